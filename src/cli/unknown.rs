//! `sendonce unknown`: notifications of which nobody knows whether they were sent.

use clap::{ArgGroup, Args, Subcommand};
use http::HeaderMap;
use serde_json::{Value, json};

use super::client::{Client, Connection};
use super::{Failure, show};
use crate::domain::ids::{NotificationId, ProviderName, Ticket};
use crate::domain::outcome::Reason;
use crate::domain::time::Timestamp;
use crate::ledger::Verdict;

/// `sendonce unknown …`.
#[derive(Debug, Subcommand)]
pub(super) enum UnknownCommand {
    /// List them, oldest first
    List(ListArgs),
    /// Say what you found out about some of them; it goes into the audit
    Resolve(Box<ResolveArgs>),
}

/// Which unknowns are meant.
#[derive(Debug, Args)]
#[group(id = "filter", multiple = true)]
struct Filter {
    /// Only at this provider
    #[arg(long, value_name = "NAME", value_parser = ProviderName::parse)]
    provider: Option<ProviderName>,
    /// Only with this cause, such as lost_answer
    #[arg(long, value_name = "CODE", value_parser = cause)]
    cause: Option<Reason>,
    /// Only those whose attempt ended before this time (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse_rfc3339)]
    before: Option<Timestamp>,
}

fn cause(text: &str) -> Result<Reason, &'static str> {
    Reason::from_code(text).ok_or("not a code of a cause")
}

impl Filter {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let provider = self.provider.as_ref().map(|p| ("provider", p.to_string()));
        let cause = self.cause.map(|c| ("cause", c.to_string()));
        let before = self.before.map(|t| ("before", t.to_string()));
        provider.into_iter().chain(cause).chain(before).collect()
    }
}

/// Flags of `sendonce unknown list`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    /// Only after this notification
    #[arg(long, value_name = "ID", value_parser = NotificationId::parse)]
    after: Option<NotificationId>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Flags of `sendonce unknown resolve`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["ids", "all_matching"]))]
#[command(group = ArgGroup::new("verdict").required(true).args(["sent", "not_sent", "abandon"]))]
pub(super) struct ResolveArgs {
    /// The notifications
    #[arg(value_name = "ID", value_parser = NotificationId::parse, conflicts_with_all = ["provider", "cause", "before"])]
    ids: Vec<NotificationId>,
    /// All that match the filters
    #[arg(long, requires = "filter")]
    all_matching: bool,
    #[command(flatten)]
    filter: Filter,
    /// It was sent
    #[arg(long)]
    sent: bool,
    /// It was certainly not sent; another attempt may follow
    #[arg(long)]
    not_sent: bool,
    /// Nobody will find out; no further attempt
    #[arg(long)]
    abandon: bool,
    /// Id of the ticket that holds your grounds
    #[arg(long, value_name = "ID", value_parser = Ticket::parse)]
    ticket: Ticket,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

impl ResolveArgs {
    const fn verdict(&self) -> Verdict {
        match (self.sent, self.not_sent) {
            (true, _) => Verdict::Sent,
            (false, true) => Verdict::NotSent,
            (false, false) => Verdict::Abandon,
        }
    }
}

pub(super) async fn run(command: UnknownCommand) -> Result<(), Failure> {
    match command {
        UnknownCommand::List(args) => {
            let mut query = args.filter.pairs();
            query.extend(args.after.map(|id| ("after", id.to_string())));
            query.push(("limit", args.limit.to_string()));
            let answer = args.connection.open()?.get(&["unknown"], &query).await?;
            if args.json { show::answer(&answer.body, true) } else { list(answer.body) }
        }
        UnknownCommand::Resolve(args) => resolve(*args).await,
    }
}

/// One line for each; what a line leaves out is in `sendonce status`.
fn list(mut page: Value) -> Result<(), Failure> {
    let next = page.get("next").and_then(Value::as_str).map(show::plain);
    let mut items = page.get_mut("items").map(Value::take).unwrap_or_default();
    for item in items.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        item.retain(|name, _| !matches!(name.as_str(), "status_url" | "created_at"));
    }
    show::answer(&items, false)?;
    match next {
        Some(id) => show::line(&format!("there may be more: --after {id}")),
        None if items.as_array().is_none_or(Vec::is_empty) => show::line("none"),
        None => Ok(()),
    }
}

async fn resolve(args: ResolveArgs) -> Result<(), Failure> {
    let mut body = json!({ "verdict": args.verdict().code(), "ticket": args.ticket.as_str() });
    let (ids, filter, json) = (args.ids, args.filter.pairs(), args.json);
    let client = args.connection.open()?;
    if ids.is_empty() {
        for (name, value) in filter {
            body[name] = value.into();
        }
        return show::answer(&resolve_many(&client, &body).await?, json);
    }
    // Each id is tried, so that one that is settled already does not keep the others open.
    let mut refused = None;
    for id in ids {
        match resolve_one(&client, id, &body).await {
            Ok(answer) => show::answer(&answer, json)?,
            Err(failure) => {
                eprintln!("{id}: {failure}");
                refused = Some(failure);
            }
        }
    }
    refused.map_or(Ok(()), |f| Err(Failure::new(f.exit(), "")))
}

/// Repeats the request until the daemon says that no more match, or nothing moves any more.
async fn resolve_many(client: &Client, body: &Value) -> Result<Value, Failure> {
    let mut resolved = 0;
    loop {
        let answer = client.post(&["unknown", "resolve"], body, HeaderMap::new()).await;
        let answer = answer.map_err(|f| Failure::new(f.exit(), format!("after {resolved} were resolved: {f}")))?.body;
        let now = answer.get("resolved").and_then(Value::as_u64).unwrap_or(0);
        resolved += now;
        if now == 0 || answer.get("more").and_then(Value::as_bool) != Some(true) {
            return Ok(json!({ "resolved": resolved }));
        }
    }
}

async fn resolve_one(client: &Client, id: NotificationId, body: &Value) -> Result<Value, Failure> {
    let path = ["notifications", &id.to_string(), "resolve"];
    Ok(client.post(&path, body, HeaderMap::new()).await?.body)
}
