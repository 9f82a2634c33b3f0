//! `sendonce send`: posts an event.

use std::io::Read as _;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::client::{Connection, duration};
use super::status::follow;
use super::{Exit, Failure, show};
use crate::domain::ids::{EventId, IdempotencyKey, Kind, NotificationId};

/// The longest value that is read from standard input, in bytes.
const MAX_INPUT: u64 = 16 * 1024;

/// Flags of `sendonce send`.
#[derive(Debug, Args)]
pub(super) struct SendArgs {
    #[command(flatten)]
    to: Recipients,
    /// Kind of message
    #[arg(long, default_value = "password_reset", value_parser = Kind::parse)]
    kind: Kind,
    /// The app's name for the event
    #[arg(long, value_name = "ID", value_parser = EventId::parse)]
    event_id: EventId,
    /// Idempotency key; the event id by default, so that a repeated command sends nothing twice
    #[arg(long, value_parser = IdempotencyKey::parse)]
    key: Option<IdempotencyKey>,
    /// The code for the user; `-` reads it from standard input, where no process list shows it
    #[arg(long)]
    code: Option<String>,
    /// The link for the user; `-` reads it from standard input
    #[arg(long)]
    link: Option<String>,
    /// When the code dies, from now: whole seconds
    #[arg(long, value_name = "DURATION", value_parser = life)]
    expires_in: Duration,
    /// Language of the message (BCP 47)
    #[arg(long)]
    locale: Option<String>,
    /// Opaque reference of the person; the first address by default
    #[arg(long)]
    user: Option<String>,
    /// Wait so long for the message to leave; ends with 1 when it did not
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

/// The daemon counts in seconds; what was cut to them would be another life than the one that was asked for.
fn life(text: &str) -> Result<Duration, &'static str> {
    let life = duration(text)?;
    let whole = life.subsec_nanos() == 0 && !life.is_zero();
    whole.then_some(life).ok_or("must be whole seconds, at least 1s")
}

/// Addresses in the order in which they stand on the command line, which two separate flags would not keep.
#[derive(Debug)]
struct Recipients(Vec<(&'static str, String)>);

const CHANNELS: [(&str, &str, &str); 2] = [
    ("sms", "NUMBER", "Phone number in E.164, such as +84901234567; repeatable"),
    ("email", "ADDRESS", "Mail address; repeatable. Addresses are tried in the order given"),
];

impl Args for Recipients {
    fn augment_args(command: Command) -> Command {
        let group = clap::ArgGroup::new("to").args(CHANNELS.map(|(name, ..)| name)).required(true).multiple(true);
        let flag =
            |(name, value, help)| Arg::new(name).long(name).value_name(value).help(help).action(ArgAction::Append);
        command.args(CHANNELS.map(flag)).group(group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Recipients {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut found = vec![];
        for (name, ..) in CHANNELS {
            let indices = matches.indices_of(name).into_iter().flatten();
            let values = matches.get_many::<String>(name).into_iter().flatten();
            found.extend(indices.zip(values).map(|(i, value)| (i, name, value.clone())));
        }
        found.sort();
        Ok(Self(found.into_iter().map(|(_, name, value)| (name, value)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn read_stdin() -> Result<Zeroizing<String>, Failure> {
    let mut text = Zeroizing::new(String::new());
    let read = std::io::stdin().lock().take(MAX_INPUT).read_to_string(&mut text);
    read.map_err(|e| Failure::failed(format!("standard input cannot be read: {}", e.kind())))?;
    Ok(text)
}

fn request(args: &SendArgs, stdin: impl FnOnce() -> Result<Zeroizing<String>, Failure>) -> Result<Value, Failure> {
    if args.code.as_deref() == Some("-") && args.link.as_deref() == Some("-") {
        return Err(Failure::new(Exit::Usage, "only one of --code and --link can be read from standard input"));
    }
    let mut data = Map::new();
    let mut stdin = Some(stdin);
    for (name, value) in [("code", &args.code), ("link", &args.link)] {
        let value = match (value.as_deref(), stdin.take_if(|_| value.as_deref() == Some("-"))) {
            (_, Some(read)) => read()?.trim().to_owned(),
            (Some(value), None) => value.to_owned(),
            (None, None) => continue,
        };
        data.insert(name.to_owned(), value.into());
    }
    let to: Vec<Value> = args.to.0.iter().map(|(channel, address)| json!({ *channel: address })).collect();
    let mut body = json!({
        "event_id": args.event_id.as_str(),
        "kind": args.kind.as_str(),
        "to": to,
        "data": data,
        "expires_in": args.expires_in.as_secs(),
    });
    for (name, value) in [("locale", &args.locale), ("user", &args.user)] {
        if let Some(value) = value {
            body[name] = value.as_str().into();
        }
    }
    Ok(body)
}

pub(super) async fn run(args: SendArgs) -> Result<(), Failure> {
    let body = request(&args, read_stdin)?;
    let key = args.key.as_ref().map_or(args.event_id.as_str(), IdempotencyKey::as_str);
    let key = HeaderValue::from_str(key).map_err(|_| Failure::new(Exit::Usage, "--key does not fit into a header"))?;
    let headers = HeaderMap::from_iter([(http::HeaderName::from_static("idempotency-key"), key)]);
    let client = args.connection.open()?;
    let answer = client.post(&["notifications"], &body, headers).await.map_err(|f| match f.exit() {
        Exit::Unreachable => Failure::new(Exit::Unreachable, format!("{f}; the same command again is safe")),
        _ => f,
    })?;
    if answer.status != StatusCode::ACCEPTED {
        return Err(Failure::failed("the answer is not one of this daemon"));
    }
    let Some(wait) = args.wait else { return show::answer(&answer.body, args.json) };
    let id = answer.body.get("id").and_then(Value::as_str).and_then(|id| NotificationId::parse(id).ok());
    let id = id.ok_or_else(|| Failure::failed("the answer names no notification"))?;
    follow(&client, id, wait, args.json).await
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SendArgs,
    }

    fn args(line: &str) -> SendArgs {
        Line::try_parse_from(std::iter::once("send").chain(line.split(' '))).map(|l| l.args).expect("reads")
    }

    #[test]
    fn addresses_keep_their_order_and_a_code_comes_from_standard_input() {
        let args = args("--email a@x --sms +1 --email b@x --event-id e --code - --expires-in 10m --locale vi");
        let body = request(&args, || Ok(Zeroizing::new("493021\r\n".to_owned()))).expect("a request");
        let wanted = json!({
            "event_id": "e", "kind": "password_reset", "to": [{"email": "a@x"}, {"sms": "+1"}, {"email": "b@x"}],
            "data": {"code": "493021"}, "expires_in": 600, "locale": "vi",
        });
        assert_eq!(body, wanted);
    }

    #[test]
    fn a_life_that_is_no_number_of_whole_seconds_is_refused_by_name() {
        let read = |life: &str| {
            let line = format!("send --sms +1 --event-id e --code 1 --expires-in {life}");
            Line::try_parse_from(line.split(' ')).map(|line| line.args.expires_in)
        };
        assert_eq!(read("1s").ok(), Some(Duration::from_secs(1)));
        assert_eq!(read("2000ms").ok(), Some(Duration::from_secs(2)));
        for life in ["0s", "500ms", "999ms", "1500ms", "soon"] {
            let refused = read(life).expect_err("refused").to_string();
            assert!(refused.contains("--expires-in"), "{refused}");
        }
    }

    #[test]
    fn standard_input_serves_one_value_only() {
        let args = args("--sms +1 --event-id e --code - --link - --expires-in 10m");
        let refused = request(&args, || Ok(Zeroizing::new(String::new()))).expect_err("both");
        assert_eq!(refused.exit(), Exit::Usage);
    }
}
