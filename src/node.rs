//! Being a node among others: taking a name, keeping its lease, and noticing when it is lost.
//!
//! A lost lease means that others have settled what this boot had begun. The process then goes on as another boot, unless
//! somebody else has taken its name meanwhile.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::SharedClock;
use crate::domain::ids::{BootId, NodeName};
use crate::domain::retry::RetryPolicy;
use crate::store::nodes::{Enrolled, Identity, Renewed};
use crate::store::{Store, StoreError};

/// Heartbeats in the time of one lease.
const BEATS: u32 = 3;

/// A name that is held is looked at this often, until its lease has run out or is seen to be renewed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Pauses between heartbeats that do not arrive.
const RETRY: RetryPolicy =
    RetryPolicy { first: Duration::from_millis(100), factor: 2.0, cap: Duration::from_secs(2), jitter: 0.5 };

/// Why this process cannot be the node that it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrolError {
    /// A process that lives has the name.
    #[error("the node name `{0}` is in use by another running process; give each node a `node.name` of its own")]
    InUse(NodeName),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a node needs to stay one.
#[derive(Clone)]
pub struct Member {
    /// Where nodes meet.
    pub store: Arc<dyn Store>,
    /// The process's clock, which learns the store's time from every heartbeat.
    pub clock: SharedClock,
    /// Who this process is.
    pub identity: Arc<Identity>,
    /// How long a node may be silent before others take it for dead.
    pub lease: Duration,
    /// Makes the id of another boot.
    pub boots: fn() -> BootId,
    /// Draws in `0.0..1.0`, for jitter.
    pub draw: fn() -> f64,
}

impl Member {
    /// Takes the node's name. Where an earlier process has it that is not seen to live, such as one that was killed, waits
    /// for the end of its lease.
    ///
    /// # Errors
    /// [`EnrolError`] when the holder of the name lives, or the store fails.
    pub async fn enrol(&self) -> Result<(), EnrolError> {
        let name = self.identity.name();
        let mut seen = None;
        loop {
            let asked = self.clock.since_boot();
            match self.store.nodes().enrol(name, &self.identity.boot(), self.lease).await? {
                Enrolled::Taken { now } => {
                    self.clock.follow(now, asked, self.clock.since_boot());
                    self.identity.kept(asked, self.lease);
                    tracing::info!(node = %name, boot = %self.identity.boot(), "enrolled");
                    return Ok(());
                }
                Enrolled::Held { expires_at, .. } if seen.is_some_and(|seen| expires_at > seen) => {
                    return Err(EnrolError::InUse(name.clone()));
                }
                Enrolled::Held { expires_at, rest } => {
                    if seen.is_none() {
                        let wait_ms = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
                        tracing::warn!(node = %name, wait_ms, "an earlier process holds the name; waiting for its lease to run out");
                    }
                    seen = Some(expires_at);
                    tokio::time::sleep(rest.min(LOOK_EVERY)).await;
                }
            }
        }
    }

    /// Keeps the lease. Returns only when somebody else has the name: then this process must end.
    pub async fn keep(self) -> NodeName {
        let mut failed = 0_u8;
        let mut next = None;
        loop {
            let pause = match failed {
                0 => self.lease / BEATS,
                _ => RETRY.delay(failed, None, (self.draw)()).min(self.lease / BEATS),
            };
            tokio::time::sleep(pause).await;
            let held = self.identity.holds(self.clock.since_boot());
            match self.beat(&mut next).await {
                Ok(true) => failed = 0,
                Ok(false) => return self.identity.name().clone(),
                Err(error) => {
                    self.identity.missed();
                    if failed == 0 {
                        tracing::warn!(%error, "a heartbeat did not arrive");
                    }
                    failed = failed.saturating_add(1);
                }
            }
            match (held, self.identity.holds(self.clock.since_boot())) {
                (true, false) => tracing::error!(alert = true, "the node's lease has run out; nothing new is sent"),
                (false, true) => tracing::warn!("the node's lease runs again"),
                _ => {}
            }
        }
    }

    /// One heartbeat. `next` is the boot to go on as, should this one be over. `false`: the name is another's.
    async fn beat(&self, next: &mut Option<BootId>) -> Result<bool, StoreError> {
        let within = self.lease / BEATS;
        let name = self.identity.name();
        let asked = self.clock.since_boot();
        let own = self.identity.boot();
        let renew = self.store.nodes().renew(name, &own, self.lease);
        match tokio::time::timeout(within, renew).await.unwrap_or(Err(StoreError::Unavailable))? {
            Renewed::Kept { now } => {
                self.clock.follow(now, asked, self.clock.since_boot());
                self.identity.kept(asked, self.lease);
                return Ok(true);
            }
            Renewed::Lost => self.identity.lost(),
        }
        // Asked for again under the same id, because the answer to a request that succeeded may have been lost.
        let boot = next.get_or_insert_with(self.boots).clone();
        let asked = self.clock.since_boot();
        let enrol = self.store.nodes().enrol(name, &boot, self.lease);
        match tokio::time::timeout(within, enrol).await.unwrap_or(Err(StoreError::Unavailable))? {
            Enrolled::Taken { now } => {
                self.clock.follow(now, asked, self.clock.since_boot());
                tracing::error!(alert = true, %boot, "the node was taken for dead; it goes on as another boot");
                self.identity.reborn(boot, asked, self.lease);
                *next = None;
                Ok(true)
            }
            Enrolled::Held { .. } => {
                tracing::error!(alert = true, node = %name, "another process has taken the node's name");
                Ok(false)
            }
        }
    }
}
