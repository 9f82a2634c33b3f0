//! Tells apps what became of their notifications, by signed requests to configured targets.
//!
//! The log is the outbox: what is told was recorded in the transaction of the change itself, so nothing that happened can
//! be missed and no commit does anything for a callback. The node that leads reads on in the log from a durable place for
//! each target, and keeps what is to be told until the target has taken it or it is given up. So a callback comes at least
//! once, under the same id however often it comes; those of one notification come in order.

pub mod client;
pub mod guard;
mod message;
mod pace;
mod teller;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::SharedClock;
use crate::domain::callback::Change;
use crate::domain::ids::{TargetName, Tenant};
use crate::domain::retry::RetryPolicy;
use crate::metrics::Metrics;
use crate::provider::signature::standard::StandardKey;
use crate::store::{Store, StoreError};

use client::Client;
use teller::Teller;

/// A task that panicked is started again after this time.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// What is under way at a stop gets so long to be answered.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Where callbacks of one tenant go.
#[derive(Debug)]
pub struct Target {
    /// Its name, under which its place in the log is kept.
    pub name: TargetName,
    /// Whose notifications it is told of.
    pub tenant: Tenant,
    /// Reaches it.
    pub client: Client,
    /// Every one of these signs; not empty.
    pub keys: Vec<StandardKey>,
    /// What it is told.
    pub changes: BTreeSet<Change>,
    /// Requests under way at once, at most.
    pub concurrency: usize,
    /// Delays between the tries of one callback.
    pub retry: RetryPolicy,
    /// A callback that was not taken so long after its change is given up.
    pub give_up_after: Duration,
}

/// What telling is made of.
#[derive(Clone)]
pub struct Parts {
    /// Where the log is.
    pub store: Arc<dyn Store>,
    /// The process's clock.
    pub clock: SharedClock,
    /// Where numbers are counted.
    pub metrics: Metrics,
    /// Changes with every commit of this process.
    pub commits: watch::Receiver<u64>,
    /// Whether this node does what only one should do.
    pub leads: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Under which URL apps reach the API, without a final slash.
    pub public_url: Option<String>,
    /// Draws in `0.0..1.0`, for jitter.
    pub draw: fn() -> f64,
}

/// Has each target that is new begin at the end of the log: it is told everything that happens from now on.
///
/// # Errors
/// When the store fails.
pub async fn enlist(store: &dyn Store, targets: &[Target]) -> Result<(), StoreError> {
    if targets.is_empty() {
        return Ok(());
    }
    let end = store.reader().log_end().await?;
    for target in targets {
        store.callbacks().enlist(&target.name, end).await?;
    }
    Ok(())
}

/// The running tasks, one for each target.
pub struct Tellers {
    stop: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Tellers {
    /// Starts telling; without a target there is nothing to run. Must be called within a Tokio runtime.
    pub fn start(parts: &Parts, targets: Vec<Target>) -> Self {
        let stop = watch::channel(false).0;
        let start = |target| supervise(Arc::new(Teller::new(parts.clone(), target)), stop.subscribe());
        let tasks = Mutex::new(targets.into_iter().map(start).collect());
        Self { stop, tasks }
    }

    /// Begins no request any more.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Stops, and waits for a while until what is under way is answered and stored. What is not comes again, under the
    /// same id.
    pub async fn ended(&self) {
        self.stop();
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let aborts: Vec<_> = tasks.iter().map(JoinHandle::abort_handle).collect();
        if tokio::time::timeout(LAST_ANSWERS * 2, join_all(tasks)).await.is_err() {
            aborts.iter().for_each(tokio::task::AbortHandle::abort);
        }
    }
}

/// Runs a target's task until the stop, and starts it again when it panics.
fn supervise(teller: Arc<Teller>, stop: watch::Receiver<bool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while tokio::spawn(teller::run(teller.clone(), stop.clone())).await.is_err() {
            tracing::error!(alert = true, callback = %teller.name(), "callbacks panicked; they start again");
            let mut stop = stop.clone();
            let _over = tokio::time::timeout(RESTART_AFTER, teller::stopped(&mut stop)).await;
        }
    })
}
