//! `sendonce batch`: posts many events, a line each.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use super::client::{Connection, unreachable};
use super::{Exit, Failure, show};

/// Flags of `sendonce batch`.
#[derive(Debug, Args)]
pub(super) struct BatchArgs {
    /// File of events (NDJSON): on each line the body of one, with its key as `idempotency_key`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: BatchArgs) -> Result<(), Failure> {
    let lines = std::fs::read(&args.file)
        .map_err(|e| Failure::failed(format!("{}: cannot be read: {}", args.file.display(), e.kind())))?;
    let wanted = lines.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
    let mut response = args.connection.open()?.post_lines(&["notifications:batch"], lines).await?;
    let (mut pending, mut answered, mut refused) = (vec![], 0_usize, 0_usize);
    while let Some(chunk) = response.chunk().await.map_err(|e| unreachable(&e))? {
        pending.extend_from_slice(&chunk);
        let Some(end) = pending.iter().rposition(|byte| *byte == b'\n') else { continue };
        let whole: Vec<u8> = pending.drain(..=end).collect();
        show::bytes(&whole)?;
        for line in whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let status = serde_json::from_slice::<Value>(line).ok().and_then(|answer| answer["status"].as_u64());
            answered += 1;
            refused += usize::from(status != Some(202));
        }
    }
    if answered < wanted {
        let text = format!("{answered} of {wanted} lines were answered; the same command again is safe");
        return Err(Failure::new(Exit::Unreachable, text));
    }
    if refused > 0 {
        return Err(Failure::new(Exit::Refused, format!("{refused} of {wanted} lines were not taken")));
    }
    Ok(())
}
