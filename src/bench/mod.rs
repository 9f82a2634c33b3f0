//! Measures the daemon on this machine: the real program as a child process, a provider that counts what it truly
//! receives, a load generator, and beside each figure its *ceiling*: what the store behind the same seam reaches, in the
//! same run, when nothing else is done.
//!
//! Load generator and provider share the machine with the daemon, and a machine that is loaded otherwise shows in figure
//! and ceiling alike; so the ratio says more than the figure.

mod admission;
mod ceiling;
mod daemon;
mod dispatching;
mod figure;
mod histogram;
mod history;
mod load;
mod reading;
mod rows;
mod sink;
mod site;
mod wire;

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::{Clock as _, SystemClock};
use crate::config::Settings;
use crate::store::{Store, StoreError};

pub use figure::{Figure, Latency, Report};
use site::Site;

/// Whose rows the bench makes.
const TENANT: &str = "bench";
/// The configured provider, which is the bench's own sink.
const PROVIDER: &str = "sink";
/// What is done before anything counts.
const WARM_UP: Duration = Duration::from_secs(1);

/// Which figures are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Durable admissions: a closed loop, and open loops at rates.
    Admit,
    /// From the provider's point of view: draining a backlog, keeping up with a rate, a slow provider.
    Dispatch,
    /// Reading how notifications stand.
    Status,
    /// Reading the whole log.
    Export,
    /// What history costs: claims and admissions beside many finished rows.
    Backlog,
    /// All of them.
    All,
}

/// What is measured, and how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which figures.
    pub what: What,
    /// How long each load counts, at least 1 s.
    pub time: Duration,
    /// Connections of the load generator, at least 1.
    pub connections: usize,
    /// Requests a second of every open loop, at least 1; `None` for the usual rates of each figure.
    pub rate: Option<u32>,
    /// Rows of backlogs and histories, at least 1; `None` for the usual number of each figure.
    pub rows: Option<u64>,
    /// Attempts that are under way at a provider that answers at once, 1 to 1000.
    pub in_flight: u32,
    /// Where a directory for the run is made.
    pub dir: PathBuf,
    /// URL of a PostgreSQL database that holds nothing but what a bench left; `None` for SQLite in the run's directory.
    pub store: Option<String>,
    /// This program.
    pub program: PathBuf,
}

/// Opens the store that a configuration names, as the daemon would.
#[async_trait(?Send)]
pub trait OpenStore {
    /// Opens it and brings its schema up to date.
    ///
    /// # Errors
    /// What to tell people.
    async fn open(&self, settings: &Settings) -> Result<Arc<dyn Store>, String>;
}

/// Hears what is being done.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// Why nothing, or not everything, was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file, a socket or a process.
    #[error("{0}: {1}")]
    Io(&'static str, io::ErrorKind),
    /// The bare store failed.
    #[error("the bare store: {0}")]
    Store(StoreError),
    /// The daemon, or another command of this program, failed.
    #[error("the daemon: {0}")]
    Daemon(String),
    /// The daemon answered something else than it should.
    #[error("{0} is not as it should be")]
    Answer(&'static str),
    /// It took too long.
    #[error("{0} did not come in time")]
    TimedOut(&'static str),
    /// Somebody else's rows must not be sent to the sink.
    #[error("the database has notifications that no bench made; name one that may be filled, and nothing else uses")]
    NotOurs,
}

fn now() -> Duration {
    SystemClock.since_boot()
}

fn broken(e: io::Error) -> BenchError {
    BenchError::Io("the connection to the daemon", e.kind())
}

/// Measures. Leaves nothing behind but, in a database that was named, finished notifications of the tenant `bench`.
///
/// # Errors
/// [`BenchError`]; nothing that was measured before is kept then.
pub async fn run(plan: Plan, opener: Rc<dyn OpenStore>, tell: Tell) -> Result<Report, BenchError> {
    let what = plan.what;
    let wants = |one| what == one || what == What::All;
    let mut report = Report::new(&plan);
    let mut site = Site::new(plan, opener, tell).await?;
    if wants(What::Admit) {
        admission::run(&mut site, &mut report).await?;
    }
    if wants(What::Dispatch) {
        dispatching::run(&mut site, &mut report).await?;
    }
    if wants(What::Status) || wants(What::Export) {
        reading::run(&mut site, &mut report, wants(What::Status), wants(What::Export)).await?;
    }
    if wants(What::Backlog) {
        history::run(&mut site, &mut report).await?;
    }
    site.fresh().await?;
    Ok(report)
}
