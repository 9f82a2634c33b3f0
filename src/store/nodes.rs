//! Several nodes on one store: who is alive, who leads, who wakes whom.
//!
//! A node is (name, boot). While it lives it keeps its row alive, a lease that ends by the store's clock. What a boot
//! works on bears its id; a boot that has no row is over for good, and whatever it left under way is nobody's. So there
//! is one thing to decide about a node that is silent: whether its row may go.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use super::rows::Queue;
use crate::domain::ids::{BootId, NodeName};
use crate::domain::time::Timestamp;

/// What became of the wish to be the node of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enrolled {
    /// The name is this boot's now, and any earlier boot of it is over.
    Taken {
        /// The store's clock.
        now: Timestamp,
    },
    /// Another boot holds the name.
    Held {
        /// Until when, by the store's clock. A holder that lives moves it on.
        expires_at: Timestamp,
        /// How long that is from now.
        rest: Duration,
    },
}

/// What became of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease runs anew from this time of the store's clock, even where it had run out and nobody had noticed.
    Kept {
        /// The store's clock.
        now: Timestamp,
    },
    /// This boot is over.
    Lost,
}

/// What was heard from other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rung {
    /// Work of this queue has become due.
    Queue(Queue),
    /// Something may have been missed: everybody should look.
    Everything,
}

/// The primitives of several nodes on one store. A store that only one process can have open answers for itself alone.
#[async_trait]
pub trait Nodes: Send + Sync {
    /// Whether the store goes by this value, as it does from the first time on that it is told one under this name. Nodes
    /// must agree on some things.
    async fn agree(&self, on: &'static str, value: &str) -> Result<bool, StoreError>;

    /// Gives the store a new incarnation, as the successor of the one that it has: how every node sees that it was
    /// recovered.
    async fn succeed(&self) -> Result<(), StoreError>;

    /// Whether the store's incarnation is the successor of this one.
    async fn succeeds(&self, incarnation: &str) -> Result<bool, StoreError>;

    /// Takes a name for a boot, unless the lease of another one is still running.
    async fn enrol(&self, name: &NodeName, boot: &BootId, lease: Duration) -> Result<Enrolled, StoreError>;

    /// The heartbeat.
    async fn renew(&self, name: &NodeName, boot: &BootId, lease: Duration) -> Result<Renewed, StoreError>;

    /// Gives the name back.
    async fn release(&self, name: &NodeName, boot: &BootId) -> Result<(), StoreError>;

    /// Ends the boots of other nodes whose lease has run out, and says whose.
    async fn bury(&self, own: &NodeName) -> Result<Vec<NodeName>, StoreError>;

    /// Whether this process is the one that does what only one should do; it becomes that one where nobody is.
    async fn lead(&self) -> Result<bool, StoreError>;

    /// Leaves the lead to others, where there are any; says whether it was ours.
    async fn resign(&self) -> bool;

    /// Tells other nodes, soon and not too often, that work of this queue is due which this node cannot take itself.
    /// May be lost: every node looks for itself now and then.
    fn ring(&self, queue: &Queue);

    /// Waits for what other nodes tell. Never ends where there can be none.
    async fn heard(&self) -> Rung;
}

/// Who this process is to the store: a name, and a boot with a lease that it knows by the boot-time clock.
///
/// The lease is counted from before the heartbeat was sent, so that it ends here no later than in the store.
#[derive(Debug)]
pub struct Identity {
    name: NodeName,
    tenure: Mutex<Tenure>,
}

#[derive(Clone, Debug)]
struct Tenure {
    boot: BootId,
    /// Times since boot.
    until: Duration,
    missed: bool,
    judges_from: Duration,
}

impl Identity {
    /// The identity of a process that nobody shares the store with: its lease never ends.
    pub fn alone(name: NodeName, boot: BootId) -> Self {
        let tenure = Tenure { boot, until: Duration::MAX, missed: false, judges_from: Duration::ZERO };
        Self { name, tenure: Mutex::new(tenure) }
    }

    /// The identity of a process that has yet to enrol.
    pub fn new(name: NodeName, boot: BootId) -> Self {
        let tenure = Tenure { boot, until: Duration::ZERO, missed: false, judges_from: Duration::ZERO };
        Self { name, tenure: Mutex::new(tenure) }
    }

    fn tenure(&self) -> MutexGuard<'_, Tenure> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node's name.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// The present boot.
    pub fn boot(&self) -> BootId {
        self.tenure().boot.clone()
    }

    /// Whether the lease runs at `now`, a time since boot. What is begun when it does not may be taken for lost.
    pub fn holds(&self, now: Duration) -> bool {
        now < self.tenure().until
    }

    /// Whether others that are silent may be taken for dead at `now`. Where the store itself was away, everybody was
    /// silent, and all have one lease's time to be heard again.
    pub fn may_bury(&self, now: Duration) -> bool {
        let tenure = self.tenure();
        !tenure.missed && now >= tenure.judges_from && now < tenure.until
    }

    /// A heartbeat that was sent at `asked`, a time since boot, has arrived.
    pub fn kept(&self, asked: Duration, lease: Duration) {
        let mut tenure = self.tenure();
        if tenure.missed || asked >= tenure.until {
            tenure.judges_from = asked.saturating_add(lease);
        }
        tenure.missed = false;
        tenure.until = asked.saturating_add(lease);
    }

    /// A heartbeat did not arrive, as far as is known.
    pub fn missed(&self) {
        self.tenure().missed = true;
    }

    /// The boot is over: no lease runs until another one is enrolled.
    pub fn lost(&self) {
        self.tenure().until = Duration::ZERO;
    }

    /// Goes on as another boot, enrolled by a request that was sent at `asked`.
    pub fn reborn(&self, boot: BootId, asked: Duration, lease: Duration) {
        let mut tenure = self.tenure();
        tenure.boot = boot;
        tenure.missed = false;
        tenure.until = asked.saturating_add(lease);
        tenure.judges_from = tenure.until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn identity() -> Identity {
        Identity::alone(NodeName::parse("n1").expect("a name"), BootId::new([1; 8]))
    }

    #[test]
    fn a_lease_runs_from_before_the_heartbeat_and_no_longer() {
        let me = identity();
        assert!(me.holds(at(1_000_000)), "alone");
        me.kept(at(100), LEASE);
        assert!(me.holds(at(114)) && !me.holds(at(115)));
        me.kept(at(105), LEASE);
        assert!(me.holds(at(119)));
        me.lost();
        assert!(!me.holds(at(106)));
    }

    #[test]
    fn after_the_store_was_away_others_get_a_leases_time_to_be_heard_again() {
        let me = identity();
        me.kept(at(100), LEASE);
        assert!(me.may_bury(at(101)));
        me.missed();
        assert!(!me.may_bury(at(106)));
        me.kept(at(111), LEASE);
        assert!(!me.may_bury(at(112)));
        me.kept(at(116), LEASE);
        me.kept(at(121), LEASE);
        assert!(!me.may_bury(at(125)) && me.may_bury(at(126)));
        // Our own pause, in which no heartbeat was missed because none was sent.
        me.kept(at(200), LEASE);
        assert!(!me.may_bury(at(201)));
    }

    #[test]
    fn another_boot_is_another_owner() {
        let me = identity();
        let first = me.boot();
        me.lost();
        me.reborn(BootId::new([2; 8]), at(50), LEASE);
        assert_ne!(me.boot(), first);
        assert!(me.holds(at(51)) && !me.may_bury(at(51)));
    }
}
