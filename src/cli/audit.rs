//! `sendonce audit`: the log and the accounting.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reqwest::Response;

use super::client::{Connection, unreachable};
use super::{Failure, show};
use crate::domain::audit::What;
use crate::domain::ids::{EventId, NotificationId};
use crate::domain::time::Timestamp;

/// `sendonce audit …`.
#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Write the log to a file or to standard output; the export itself is recorded
    Export(Box<ExportArgs>),
    /// Show whether every accepted event has its final record
    Account(AccountArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Ndjson,
    Csv,
}

/// Flags of `sendonce audit export`.
#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// One JSON object a line, or comma-separated values with a head line
    #[arg(long, value_enum, default_value_t = Format::Ndjson)]
    format: Format,
    /// Only from this time on (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse_rfc3339)]
    from: Option<Timestamp>,
    /// Only before this time (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse_rfc3339)]
    to: Option<Timestamp>,
    /// Only of this event
    #[arg(long, value_name = "ID", value_parser = EventId::parse)]
    event_id: Option<EventId>,
    /// Only of this notification
    #[arg(long, value_name = "ID", value_parser = NotificationId::parse)]
    notification: Option<NotificationId>,
    /// Only this kind of record, such as attempt_ended
    #[arg(long, value_name = "CODE", value_parser = what)]
    what: Option<What>,
    /// Write to this file, which appears only when the export is complete; standard output by default
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

/// Flags of `sendonce audit account`.
#[derive(Debug, Args)]
pub(super) struct AccountArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

fn what(text: &str) -> Result<What, &'static str> {
    What::from_code(text).ok_or("not a kind of record")
}

pub(super) async fn run(command: AuditCommand) -> Result<(), Failure> {
    match command {
        AuditCommand::Export(args) => export(*args).await,
        AuditCommand::Account(args) => {
            let answer = args.connection.open()?.get(&["audit", "account"], &[]).await?;
            show::answer(&answer.body, args.json)
        }
    }
}

async fn export(args: ExportArgs) -> Result<(), Failure> {
    let format = if matches!(args.format, Format::Csv) { "csv" } else { "ndjson" };
    let mut query = vec![("format", format.to_owned())];
    query.extend(args.from.map(|t| ("from", t.to_string())));
    query.extend(args.to.map(|t| ("to", t.to_string())));
    query.extend(args.event_id.map(|e| ("event_id", e.to_string())));
    query.extend(args.notification.map(|n| ("notification", n.to_string())));
    query.extend(args.what.map(|w| ("what", w.to_string())));
    let response = args.connection.open()?.stream(&["audit"], &query).await?;
    let failed = |e: io::Error| Failure::failed(format!("the export cannot be written: {}", e.kind()));
    let Some(path) = args.output else { return copy(response, &mut io::stdout().lock()).await };
    let mut part = path.clone().into_os_string();
    part.push(".part");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part).map_err(failed)?;
    let copied = copy(response, &mut file).await;
    let copied = copied.and_then(|()| file.sync_all().and_then(|()| fs::rename(&part, &path)).map_err(failed));
    if copied.is_err() {
        let _ = fs::remove_file(Path::new(&part));
    }
    copied
}

/// Copies a stream as it comes. A stream that ends early is an error of the connection, since it is chunked.
async fn copy(mut response: Response, out: &mut impl Write) -> Result<(), Failure> {
    let style = ProgressStyle::with_template("{spinner} {bytes} in {elapsed} ({bytes_per_sec})");
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let bar = style.map_or(bar.clone(), |style| bar.with_style(style));
    while let Some(chunk) = response.chunk().await.map_err(|e| unreachable(&e))? {
        match out.write_all(&chunk) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => {
                written.map_err(|e| Failure::failed(format!("the export cannot be written: {}", e.kind())))?;
            }
        }
        bar.inc(chunk.len() as u64);
    }
    bar.finish_and_clear();
    out.flush().map_err(|e| Failure::failed(format!("the export cannot be written: {}", e.kind())))
}
