//! `sendonce status`: shows what became of a notification.

use std::time::Duration;

use clap::Args;
use http::StatusCode;
use http::header::ETAG;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::client::{Client, Connection, duration};
use super::{Failure, show};
use crate::document::show_duration;
use crate::domain::ids::{EventId, IdempotencyKey, NotificationId};
use crate::domain::lifecycle::{Sent, State};

/// The longest wait of one request.
const ONE_WAIT: Duration = Duration::from_secs(20);
/// Between two requests, so that an answer which comes at once does not become a storm.
const PAUSE: Duration = Duration::from_millis(200);

/// Flags of `sendonce status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    selector: Selector,
    /// Wait so long for a final state; ends with 1 when it does not come or is not a good one
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Selector {
    /// The notification
    #[arg(value_name = "ID", value_parser = NotificationId::parse)]
    id: Option<NotificationId>,
    /// The app's name for the event
    #[arg(long, value_name = "ID", value_parser = EventId::parse)]
    event_id: Option<EventId>,
    /// The idempotency key
    #[arg(long, value_parser = IdempotencyKey::parse)]
    key: Option<IdempotencyKey>,
}

pub(super) async fn run(args: StatusArgs) -> Result<(), Failure> {
    let client = args.connection.open()?;
    let Selector { id, event_id, key } = args.selector;
    let first = match id {
        Some(id) => client.get(&["notifications", &id.to_string()], &[]).await?.body,
        None => {
            let by_event = event_id.map(|e| ("event_id", e.to_string()));
            let by_key = key.map(|k| ("idempotency_key", k.to_string()));
            let query: Vec<_> = by_event.into_iter().chain(by_key).collect();
            client.get(&["notifications"], &query).await?.body
        }
    };
    let Some(wait) = args.wait else { return show::answer(&first, args.json) };
    let id = first.get("id").and_then(Value::as_str).and_then(|id| NotificationId::parse(id).ok());
    let id = id.ok_or_else(|| Failure::failed("the answer names no notification"))?;
    follow(&client, id, wait, args.json).await
}

fn state(status: &Value) -> Option<State> {
    status.get("state").and_then(Value::as_str).and_then(State::from_code)
}

/// The message was handed to a provider.
fn is_good(status: &Value) -> bool {
    let sent = status.get("sent").and_then(Value::as_str).and_then(Sent::from_code);
    state(status) == Some(State::Dispatched) || sent == Some(Sent::Yes)
}

/// Waits for a final state, and shows how the notification stands then, or when the time is up.
///
/// # Errors
/// Exit code 1 when it does not come within `wait` or is not a good one, or what the daemon refused.
pub(super) async fn follow(client: &Client, id: NotificationId, wait: Duration, json: bool) -> Result<(), Failure> {
    let name = id.to_string();
    let path = ["notifications", &name];
    // Asked at once and without a wait, so that there is something to show when the time is up.
    let first = client.get_if_changed(&path, &[], None).await?;
    let (mut last, mut tag) = (first.body, first.headers.get(ETAG).cloned());
    let watch = async {
        let query = [("wait", format!("{}s", wait.min(ONE_WAIT).as_secs().max(1)))];
        while !state(&last).is_some_and(State::is_final) {
            let answer = client.get_if_changed(&path, &query, tag.as_ref()).await?;
            if answer.status != StatusCode::NOT_MODIFIED {
                tag = answer.headers.get(ETAG).cloned();
                last = answer.body;
            }
            sleep(PAUSE).await;
        }
        Ok(())
    };
    let in_time = timeout(wait, watch).await;
    show::answer(&last, json)?;
    match in_time {
        Ok(ended) => ended.and_then(|()| if is_good(&last) { Ok(()) } else { Err(Failure::failed("")) }),
        Err(_) => {
            let state = state(&last).map_or("of unknown state", State::code);
            Err(Failure::failed(format!("still {state} after {}", show_duration(wait))))
        }
    }
}
