//! The store has nowhere to write to: a full disk, and a file system that has turned read-only.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::reckoning::{Counts, Promise, reckon};
use super::vendor::{Kind, Vendor};
use crate::support::daemon::{Answer, Daemon, PATIENCE, Place, Plan, event_to, wait};
use crate::support::disk::Disk;
use crate::support::postgres::Database;

/// The only provider here takes one message at a time.
const KIND: Kind = Kind::Silent;
const ONE_AT_A_TIME: &str = "timeout = \"30s\"\nconcurrency = 1";

fn event(n: usize) -> Value {
    event_to(&format!("disk-{n}"), json!([{ KIND.channel(): KIND.address(n) }]), json!({ "code": "493021" }))
}

/// A daemon, and what was promised by it.
struct Trial {
    vendor: Vendor,
    daemon: Daemon,
    promises: BTreeMap<String, Promise>,
}

impl Trial {
    async fn start(plan: impl FnOnce(Plan) -> Plan) -> Self {
        let vendor = Vendor::start(None).await;
        let daemon = Daemon::start(plan(vendor.plan_with(Plan::new(), ONE_AT_A_TIME))).await;
        Self { vendor, daemon, promises: BTreeMap::new() }
    }

    async fn post(&mut self, n: usize) -> Answer {
        let answer = self.daemon.post(&event(n)).await;
        if answer.status == 202 {
            self.promises.insert(format!("disk-{n}"), Promise { id: answer.id(), to: KIND.address(n) });
        }
        answer
    }

    /// One message is with the provider, which does not answer, and one waits.
    async fn one_under_way_and_one_waits(&mut self) {
        self.vendor.shut();
        for n in 0..2 {
            assert_eq!(self.post(n).await.status, 202);
        }
        self.vendor.http.wait_for(1, PATIENCE).await;
    }

    /// Posts until it is refused, and gives the number of what was.
    async fn refused(&mut self) -> usize {
        for n in 2..2000 {
            let answer = self.post(n).await;
            if answer.status != 202 {
                assert_eq!((answer.status, answer.headers.contains_key("retry-after")), (503, true), "{answer:?}");
                return n;
            }
        }
        panic!("nothing is refused");
    }

    /// All that was promised was sent, once; of what was under way at a kill an operator says what the provider has.
    async fn all_sent(&self) {
        for (event, promise) in &self.promises {
            let told =
                |status: &Value| ["dispatched", "dispatch_unknown"].iter().any(|state| status["state"] == *state);
            let status = self.daemon.wait_until(&promise.id, "told", told).await;
            if status["state"] == "dispatch_unknown" {
                let verdict = if self.vendor.copies().contains_key(&promise.to) { "sent" } else { "not_sent" };
                assert_eq!(self.daemon.resolve(&promise.id, verdict, "OPS-1").await.status, 200);
            }
            let status = self.daemon.wait_for_state(&promise.id, "dispatched").await;
            assert_eq!(status["sent"], "yes", "{event}: {status}");
        }
        let counts = reckon(&self.daemon, &self.vendor, &self.promises).await;
        let all = self.promises.len();
        assert_eq!(counts, Counts { acknowledged: all, sent: all, ..Counts::default() });
        assert_eq!(self.vendor.taken().len(), all, "nothing that was refused was sent");
    }
}

async fn a_full_disk_recovers_without_a_restart(disk: &Disk, plan: impl FnOnce(Plan) -> Plan) {
    let mut trial = Trial::start(plan).await;
    trial.one_under_way_and_one_waits().await;
    disk.fill();
    // What the store has in reserve may take a few more.
    let refused = trial.refused().await;
    assert_eq!(trial.vendor.http.requests().len(), 1, "the others wait for their turn");
    trial.vendor.open();
    // Making order may make room, so some may still be taken; none may be lost.
    for n in 3000..3020 {
        let answer = trial.post(n).await;
        assert!([202, 503].contains(&answer.status), "{answer:?}");
    }
    let told = trial.daemon.log().lines().filter(|line| line.contains("\"ERROR\"")).count();
    assert!((1..=8).contains(&told), "{told} lines of errors for one fault");
    disk.free();
    wait("ready", async || trial.daemon.readyz().await == 200).await;
    assert_eq!(trial.post(refused).await.status, 202);
    trial.all_sent().await;
}

#[tokio::test]
async fn a_full_disk_stops_admission_and_claims_and_recovers_without_a_restart() {
    let disk = Disk::memory(4);
    let file = disk.path().join("sendonce.db");
    a_full_disk_recovers_without_a_restart(&disk, |plan| plan.store(&file)).await;
}

/// The database goes before its disk, however the test ends.
struct OnDisk(Place);

impl Drop for OnDisk {
    fn drop(&mut self) {
        if let Place::Server(database) = &self.0 {
            database.discard();
        }
    }
}

#[tokio::test]
async fn a_full_disk_of_a_server_stops_admission_and_claims_and_recovers_without_a_restart() {
    let disk = Disk::memory(32);
    let place = OnDisk(Place::Server(Database::fresh_in(disk.path()).await));
    a_full_disk_recovers_without_a_restart(&disk, |plan| place.0.plan(plan)).await;
}

#[tokio::test]
async fn a_daemon_killed_on_a_full_disk_and_started_there_loses_nothing_and_sends_nothing_twice() {
    let disk = Disk::memory(4);
    let file = disk.path().join("sendonce.db");
    let mut trial = Trial::start(|plan| plan.store(&file)).await;
    trial.one_under_way_and_one_waits().await;
    disk.fill();
    let refused = trial.refused().await;
    trial.daemon.kill9();
    trial.vendor.open();
    trial.daemon.spawn();
    // It may find a little room by making order; where it finds none it does not start.
    let daemon = &trial.daemon;
    wait("it is there or is gone", async || daemon.has_ended() || daemon.admin("/healthz").await.is_some()).await;
    daemon.kill9();
    disk.free();
    daemon.launch().await;
    assert_eq!(trial.post(refused).await.status, 202);
    trial.all_sent().await;
}

#[tokio::test]
async fn a_file_system_that_turns_read_only_stops_admission_and_sending_and_what_was_known_is_there_when_it_is_mended()
{
    let disk = Disk::image();
    let file = disk.path().join("sendonce.db");
    let mut trial = Trial::start(|plan| plan.store(&file)).await;
    trial.one_under_way_and_one_waits().await;
    disk.fault();
    let refused = trial.refused().await;
    trial.vendor.open();
    wait("not ready", async || trial.daemon.readyz().await == 503).await;
    let id = trial.promises["disk-0"].id.clone();
    assert_eq!(trial.daemon.status(&id).await["state"], "dispatching", "reading goes on");
    for n in 3000..3010 {
        assert_eq!(trial.post(n).await.status, 503);
    }
    assert_eq!(trial.vendor.http.requests().len(), 1, "the others wait for their turn");
    trial.daemon.kill9();
    disk.mend();
    trial.daemon.launch().await;
    trial.daemon.wait_for_state(&id, "dispatch_unknown").await;
    assert_eq!(trial.post(refused).await.status, 202);
    trial.all_sent().await;
}
