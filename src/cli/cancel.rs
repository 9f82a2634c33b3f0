//! `sendonce cancel`: takes a notification back, as far as that is still possible.

use clap::Args;
use http::HeaderMap;
use serde_json::json;

use super::client::Connection;
use super::{Failure, show};
use crate::domain::ids::NotificationId;

/// Flags of `sendonce cancel`.
#[derive(Debug, Args)]
pub(super) struct CancelArgs {
    /// The notification
    #[arg(value_name = "ID", value_parser = NotificationId::parse)]
    id: NotificationId,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: CancelArgs) -> Result<(), Failure> {
    let client = args.connection.open()?;
    let path = ["notifications", &args.id.to_string(), "cancel"];
    let answer = client.post(&path, &json!({}), HeaderMap::new()).await?;
    show::answer(&answer.body, args.json)
}
