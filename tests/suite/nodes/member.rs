//! How a process becomes a node and stays one, against a store that answers as it is told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sendonce::clock::ManualClock;
use sendonce::domain::ids::{BootId, NodeName};
use sendonce::domain::time::Timestamp;
use sendonce::node::{EnrolError, Member};
use sendonce::store::callbacks::Callbacks;
use sendonce::store::nodes::{Enrolled, Identity, Nodes as NodesOfStore, Renewed, Rung};
use sendonce::store::rows::Queue;
use sendonce::store::{Reader, Store, StoreError, Transaction};

use super::*;
use crate::support::daemon::wait;

const NOW: Timestamp = Timestamp::from_micros(1_795_910_400_000_000);
const TAKEN: Enrolled = Enrolled::Taken { now: NOW };
/// Short, so that heartbeats come every few milliseconds.
const SHORT: Duration = Duration::from_millis(30);

/// A store of which only the nodes are there. Without a script it says yes.
#[derive(Default)]
struct Script {
    enrols: Mutex<VecDeque<Result<Enrolled, StoreError>>>,
    renews: Mutex<VecDeque<Result<Renewed, StoreError>>>,
    asked: Mutex<Vec<BootId>>,
}

fn next<T>(script: &Mutex<VecDeque<T>>, otherwise: T) -> T {
    script.lock().expect("a script").pop_front().unwrap_or(otherwise)
}

#[async_trait]
impl Store for Script {
    fn writers(&self) -> usize {
        1
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        Err(StoreError::Unavailable)
    }

    fn reader(&self) -> &dyn Reader {
        panic!("nobody reads here")
    }

    fn nodes(&self) -> &dyn NodesOfStore {
        self
    }

    fn callbacks(&self) -> &dyn Callbacks {
        panic!("nobody is told here")
    }

    async fn close(&self) {}
}

#[async_trait]
impl NodesOfStore for Script {
    async fn agree(&self, _on: &'static str, _value: &str) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn succeed(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn succeeds(&self, _incarnation: &str) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn enrol(&self, _name: &NodeName, boot: &BootId, _lease: Duration) -> Result<Enrolled, StoreError> {
        self.asked.lock().expect("asked").push(boot.clone());
        next(&self.enrols, Ok(TAKEN))
    }

    async fn renew(&self, _name: &NodeName, _boot: &BootId, _lease: Duration) -> Result<Renewed, StoreError> {
        next(&self.renews, Ok(Renewed::Kept { now: NOW }))
    }

    async fn release(&self, _name: &NodeName, _boot: &BootId) -> Result<(), StoreError> {
        Ok(())
    }

    async fn bury(&self, _own: &NodeName) -> Result<Vec<NodeName>, StoreError> {
        Ok(vec![])
    }

    async fn lead(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn resign(&self) -> bool {
        false
    }

    fn ring(&self, _queue: &Queue) {}

    async fn heard(&self) -> Rung {
        std::future::pending().await
    }
}

fn held(until: u64) -> Result<Enrolled, StoreError> {
    Ok(Enrolled::Held { expires_at: NOW.plus(Duration::from_secs(until)), rest: Duration::from_millis(1) })
}

fn member(
    enrols: impl IntoIterator<Item = Result<Enrolled, StoreError>>,
    renews: impl IntoIterator<Item = Result<Renewed, StoreError>>,
) -> (Arc<Script>, Member) {
    let (enrols, renews) = (enrols.into_iter().collect(), renews.into_iter().collect());
    let script = Arc::new(Script { enrols: Mutex::new(enrols), renews: Mutex::new(renews), ..Script::default() });
    let name = NodeName::parse("n0").expect("a name");
    let member = Member {
        store: script.clone(),
        clock: ManualClock::at(NOW),
        identity: Arc::new(Identity::new(name, BootId::new([0; 8]))),
        lease: SHORT,
        boots: || BootId::new(rand::random()),
        draw: || 0.5,
    };
    (script, member)
}

#[tokio::test]
async fn a_name_is_waited_for_while_its_lease_runs_out_and_given_up_when_it_is_renewed() {
    let (_, patient) = member([held(10), held(10), Ok(TAKEN)], []);
    assert!(!patient.identity.holds(patient.clock.since_boot()));
    assert_eq!(patient.enrol().await, Ok(()));
    assert!(patient.identity.holds(patient.clock.since_boot()));

    let (_, refused) = member([held(10), held(10), held(15)], []);
    assert_eq!(refused.enrol().await, Err(EnrolError::InUse(refused.identity.name().clone())));
    assert!(!refused.identity.holds(refused.clock.since_boot()));
}

#[tokio::test]
async fn heartbeats_that_do_not_arrive_are_sent_again_and_the_lease_is_kept() {
    let kept = Renewed::Kept { now: NOW };
    let away = Err(StoreError::Unavailable);
    let (script, member) = member([], [Ok(kept), away, away, Ok(kept)]);
    let (identity, clock) = (member.identity.clone(), member.clock.clone());
    let keeping = tokio::spawn(member.keep());
    wait("all are sent", async || script.renews.lock().expect("a script").is_empty()).await;
    wait("it is held", async || identity.holds(clock.since_boot())).await;
    assert_eq!(identity.boot(), BootId::new([0; 8]), "the same boot");
    assert!(!identity.may_bury(clock.since_boot()), "others get time to be heard again");
    keeping.abort();
}

#[tokio::test]
async fn a_boot_that_is_over_is_followed_by_one_other_even_when_the_answer_to_its_enrolment_is_lost() {
    let (script, member) = member([Err(StoreError::Unavailable), Ok(TAKEN)], [Ok(Renewed::Lost), Ok(Renewed::Lost)]);
    let identity = member.identity.clone();
    let keeping = tokio::spawn(member.keep());
    wait("it goes on", async || identity.boot() != BootId::new([0; 8])).await;
    assert_eq!(*script.asked.lock().expect("asked"), [identity.boot(), identity.boot()]);
    keeping.abort();
}

#[tokio::test]
async fn a_node_whose_name_another_process_has_taken_ends() {
    let (_, member) = member([held(10)], [Ok(Renewed::Lost)]);
    let (identity, clock) = (member.identity.clone(), member.clock.clone());
    assert_eq!(member.keep().await, *identity.name());
    assert!(!identity.holds(clock.since_boot()));
}
