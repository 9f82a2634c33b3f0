//! The commands that open the store's file themselves, while no daemon runs.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::Arc;

use super::compose::{assemble, open_store};
use super::{ConfigFile, Failure, RecoverArgs, show};
use crate::clock::{SharedClock, SystemClock};
use crate::config::Settings;

fn settings(config: &ConfigFile) -> Result<Settings, Failure> {
    Settings::load(&config.path).map_err(|m| Failure::mistakes(&m))
}

fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Failure::failed(format!("the runtime: {}", e.kind())))?.block_on(work)
}

/// Opening a store brings its schema up to date.
pub(super) fn migrate(args: &ConfigFile) -> Result<(), Failure> {
    let settings = settings(args)?;
    let clock: SharedClock = Arc::new(SystemClock);
    block_on(async {
        open_store(&settings, &clock).await?.close().await;
        show::line("the schema is up to date")
    })
}

/// Everything live becomes unknown, because the lost part of the history may have sent it.
pub(super) fn recover(args: &RecoverArgs) -> Result<(), Failure> {
    let settings = settings(&args.config)?;
    if !args.yes && !agreed()? {
        return Err(Failure::failed("nothing was changed"));
    }
    block_on(async {
        let ledger = assemble(&settings).await?.ledger;
        if !ledger.is_held() {
            ledger.close().await;
            return Err(Failure::failed("this store is not held; nothing was changed"));
        }
        let released = ledger.recover(&args.ticket).await;
        ledger.close().await;
        let released = released.map_err(|e| Failure::failed(e.to_string()))?;
        show::line(&format!("{released} notifications are unknown now; settle them with `sendonce unknown`"))
    })
}

fn agreed() -> Result<bool, Failure> {
    let mut input = std::io::stdin().lock();
    if !std::io::stdin().is_terminal() {
        return Err(Failure::failed("add --yes where nobody can be asked"));
    }
    print!("Turn everything that waits to be sent into an unknown, to be settled by evidence? [y/N] ");
    let mut answer = String::new();
    let asked = std::io::stdout().flush().and_then(|()| input.read_line(&mut answer));
    Ok(asked.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}
