//! `sendonce bench`: starts daemons of its own, on stores of its own, and measures them.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};

use super::compose::open_store;
use super::{Exit, Failure, show};
use crate::bench::{self, BenchError, OpenStore, Plan, Report, Tell, What};
use crate::clock::{SharedClock, SystemClock};
use crate::config::Settings;
use crate::store::Store;

/// Flags of `sendonce bench`.
#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    /// Which figures
    #[arg(value_enum, default_value_t = Figures::All)]
    figures: Figures,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Seconds that each load counts, after one of warm-up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=600))]
    secs: u16,
    /// Connections of the load generator
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Events a second where they come at a rate; by default 1000 and 5000 for admissions, 8000 for admitting and
    /// sending together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// Rows of backlogs (50000 by default), of what is read (20000) and of history (100000)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    rows: Option<u64>,
    /// Attempts under way at once at a provider that answers at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1000))]
    in_flight: u16,
    /// `sqlite`, or the URL of a PostgreSQL database that the bench may fill and nothing else uses
    // Not checked while the command line is read: what does not read there is repeated to the terminal, password and all.
    #[arg(long, env = "SENDONCE_BENCH_STORE", hide_env_values = true, value_name = "STORE", default_value = "sqlite")]
    store: StoreUrl,
    /// Make a directory for the run in this one, and remove it afterwards; it should be on the disk that matters
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Figures {
    /// Durable admissions: as fast as they are answered, and at rates
    Admit,
    /// Sending: a backlog drained, a rate kept up with, a slow provider, the first byte
    Dispatch,
    /// Reading how notifications stand
    Status,
    /// Reading the whole log
    Export,
    /// What finished rows cost claims and admissions
    Backlog,
    /// All of them
    All,
}

/// Which store is measured. It prints nothing, because a URL may hold a password.
#[derive(Clone)]
struct StoreUrl(String);

impl std::str::FromStr for StoreUrl {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl StoreUrl {
    /// `None` for the embedded store.
    fn read(self) -> Result<Option<String>, Failure> {
        match self.0 {
            name if name == "sqlite" => Ok(None),
            url if url.starts_with("postgres://") || url.starts_with("postgresql://") => Ok(Some(url)),
            _ => Err(Failure::new(Exit::Usage, "--store: `sqlite`, or a URL that begins with postgres://")),
        }
    }
}

impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreUrl")
    }
}

struct AsTheDaemon;

#[async_trait(?Send)]
impl OpenStore for AsTheDaemon {
    async fn open(&self, settings: &Settings) -> Result<Arc<dyn Store>, String> {
        let clock: SharedClock = Arc::new(SystemClock);
        open_store(settings, &clock).await.map_err(|failure| failure.to_string())
    }
}

pub(super) fn run(args: BenchArgs) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(|e| Failure::failed(format!("this program: {}", e.kind())))?;
    let what = match args.figures {
        Figures::Admit => What::Admit,
        Figures::Dispatch => What::Dispatch,
        Figures::Status => What::Status,
        Figures::Export => What::Export,
        Figures::Backlog => What::Backlog,
        Figures::All => What::All,
    };
    let store = args.store.read()?;
    if !args.dir.is_dir() {
        return Err(Failure::new(Exit::Usage, format!("--dir: {} is not a directory", args.dir.display())));
    }
    if is_in_memory(&args.dir) {
        eprintln!("warning: {} is in memory; figures of a store that is say nothing about a disk", args.dir.display());
    }
    if cfg!(debug_assertions) {
        eprintln!("warning: this program was built without optimisation; its figures say little");
    }
    let plan = Plan {
        what,
        time: Duration::from_secs(args.secs.into()),
        connections: args.connections.into(),
        rate: args.rate,
        rows: args.rows,
        in_flight: args.in_flight.into(),
        dir: args.dir,
        store,
        program,
    };
    // One thread: the fewer threads the load takes, the less it disturbs what it measures.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::failed(format!("the runtime: {}", e.kind())))?;
    let report = runtime.block_on(measured(plan))?;
    tell(&report, args.json)?;
    match report.faults.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed("counts do not agree: see above")),
    }
}

/// Runs to the end or to the first signal; either way nothing is left running.
async fn measured(plan: Plan) -> Result<Report, Failure> {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
    let bar = style.map_or(bar.clone(), |style| bar.with_style(style));
    bar.enable_steady_tick(Duration::from_millis(200));
    let shown = bar.clone();
    let tell: Tell = Arc::new(move |what| shown.set_message(what.to_owned()));
    let signals = |e: std::io::Error| Failure::failed(format!("signals: {}", e.kind()));
    let mut int = signal(SignalKind::interrupt()).map_err(signals)?;
    let mut term = signal(SignalKind::terminate()).map_err(signals)?;
    let report = tokio::select! {
        report = bench::run(plan, Rc::new(AsTheDaemon), tell) => report.map_err(|e| failure(&e)),
        _ = int.recv() => Err(Failure::failed("interrupted; nothing was left behind")),
        _ = term.recv() => Err(Failure::failed("stopped; nothing was left behind")),
    };
    bar.finish_and_clear();
    report
}

fn failure(error: &BenchError) -> Failure {
    match error {
        BenchError::NotOurs => Failure::new(Exit::Usage, format!("--store: {error}")),
        _ => Failure::failed(error.to_string()),
    }
}

fn tell(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        let text = serde_json::to_string(report).map_err(|_| Failure::failed("the report cannot be written"))?;
        return show::line(&text);
    }
    show::bytes(report.to_string().as_bytes())
}

/// Whether a directory is on a file system that is in memory, as far as `/proc/mounts` (proc_pid_mounts(5)) tells.
fn is_in_memory(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    dir.canonicalize().is_ok_and(|dir| in_memory_by(&mounts, &dir))
}

fn in_memory_by(mounts: &str, dir: &Path) -> bool {
    let mut below: Vec<(usize, bool)> = vec![];
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        if let (Some(place), Some(kind)) = (fields.next(), fields.next())
            && dir.starts_with(place)
        {
            below.push((place.len(), matches!(kind, "tmpfs" | "ramfs")));
        }
    }
    // Of two at the same place the later one hides the other.
    below.iter().max_by_key(|(length, _)| *length).is_some_and(|(_, in_memory)| *in_memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_from_a_disk() {
        let mounts =
            "disk / ext4 rw 0 0\nnone /run tmpfs rw 0 0\nnone /data\\040x tmpfs rw 0 0\ndisk /run/disk ext4 rw 0 0\n";
        for (place, in_memory) in [("/", false), ("/runner", false), ("/run/x", true), ("/run/disk/x", false)] {
            assert_eq!(in_memory_by(mounts, Path::new(place)), in_memory, "{place}");
        }
    }

    #[test]
    fn a_store_is_named_and_never_printed() {
        let store = |text: &str| StoreUrl(text.to_owned());
        let url = store("postgres://u:CANARY@localhost/bench");
        assert!(!format!("{url:?}").contains("CANARY"));
        assert!(url.read().is_ok_and(|url| url.is_some_and(|url| url.contains("CANARY"))));
        assert_eq!(store("sqlite").read(), Ok(None));
        let refused = store("mysql://u:CANARY@h").read().expect_err("no store of ours");
        assert!(refused.exit() == Exit::Usage && !refused.to_string().contains("CANARY"));
    }
}
