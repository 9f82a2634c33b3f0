//! `sendonce statement`: a provider's own list of messages beside our attempts.

use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Value, json};

use super::client::{Connection, duration, unreachable};
use super::{Exit, Failure, show};
use crate::clock::{Clock as _, SystemClock};
use crate::domain::ids::ProviderName;
use crate::domain::time::Timestamp;

/// The longest line that is read, in bytes.
const LINE_MAX: usize = 64 * 1024;

/// Flags of `sendonce statement`.
#[derive(Debug, Args)]
pub(super) struct StatementArgs {
    /// The configured provider
    #[arg(long, value_name = "NAME", value_parser = ProviderName::parse)]
    provider: ProviderName,
    /// From this time on (RFC 3339), or so long ago, such as 26h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Moment,
    /// Before this time (RFC 3339), or so long ago, such as 1h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Moment,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, Debug)]
enum Moment {
    At(Timestamp),
    Ago(Duration),
}

impl Moment {
    fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(ago) => now.minus(ago),
        }
    }
}

fn moment(text: &str) -> Result<Moment, &'static str> {
    let ago = || duration(text).map(Moment::Ago);
    Timestamp::parse_rfc3339(text)
        .map(Moment::At)
        .or_else(|_| ago())
        .map_err(|_| "a time such as 2026-11-29T00:00:00Z, or so long ago, such as 26h")
}

pub(super) async fn run(args: StatementArgs) -> Result<(), Failure> {
    let now = SystemClock.now();
    let (from, to) = (args.from.before(now).to_string(), args.to.before(now).to_string());
    let body = json!({ "provider": args.provider, "from": from, "to": to });
    let mut response = args.connection.open()?.post_stream(&["statements"], &body).await?;
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let (mut read, mut last) = (vec![], Value::Null);
    while let Some(chunk) = response.chunk().await.map_err(|e| unreachable(&e))? {
        read.extend_from_slice(&chunk);
        while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = read.drain(..=end).collect();
            last = serde_json::from_slice(&line).map_err(|_| Failure::failed("a line of the answer is not JSON"))?;
            match last.get("what").and_then(Value::as_str) {
                Some("progress") => bar.set_position(last.get("listed").and_then(Value::as_u64).unwrap_or(0)),
                _ => bar.suspend(|| show::line(&told(&last, args.json)))?,
            }
        }
        if read.len() > LINE_MAX {
            return Err(Failure::failed("a line of the answer is too long"));
        }
    }
    bar.finish_and_clear();
    end(&last)
}

/// How the comparison ended.
fn end(last: &Value) -> Result<(), Failure> {
    let count = |name: &str| last.get(name).and_then(Value::as_u64).unwrap_or(0);
    match (last.get("what").and_then(Value::as_str), last.get("why").and_then(Value::as_str)) {
        (Some("done"), _) if count("provider_only") + count("ours_only") == 0 => Ok(()),
        (Some("done"), _) => Err(Failure::new(Exit::Differs, "the provider's list and our attempts differ")),
        (Some("failed"), Some("list_unreadable")) => {
            Err(Failure::failed("the provider's list could not be read whole; nothing was changed"))
        }
        (Some("failed"), Some("too_many")) => {
            Err(Failure::failed("there are too many messages; ask for a shorter period"))
        }
        (Some("failed"), Some("stopping")) => Err(Failure::failed("the daemon stopped before all was compared")),
        (Some("failed"), _) => Err(Failure::failed("the daemon's store failed before all was compared")),
        _ => Err(Failure::new(Exit::Unreachable, "the answer ended before all was compared")),
    }
}

fn told(line: &Value, as_json: bool) -> String {
    if as_json { line.to_string() } else { show::words(line) }
}
