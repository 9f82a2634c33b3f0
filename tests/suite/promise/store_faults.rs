//! A store that cannot be written for a while.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;

use super::*;
use crate::support::daemon::{event, wait};

/// Takes the write lock of a daemon's store, as another program might.
async fn lock(daemon: &Daemon) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(daemon.path("sendonce.db"));
    let mut connection = options.connect().await.expect("the store's file");
    sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.expect("the lock");
    connection
}

async fn unlock(mut connection: SqliteConnection) {
    sqlx::query("ROLLBACK").execute(&mut connection).await.expect("the lock is given back");
    connection.close().await.expect("closed");
}

/// A daemon that waits only shortly for a lock.
async fn impatient(oracle: &HttpOracle) -> Daemon {
    let lines = "timeout = \"20s\"\nconcurrency = 1";
    let plan = Plan::new().http_with("probe", &oracle.url(), &[], lines).sms(&["probe"]);
    Daemon::start(plan.section("store", "busy_timeout = \"200ms\"")).await
}

#[tokio::test]
async fn an_answer_that_cannot_be_stored_is_stored_later_and_nothing_is_sent_again() {
    let (oracle, gate) = gated().await;
    let daemon = impatient(&oracle).await;
    let id = daemon.accept(&event("b09")).await;
    oracle.wait_for(1, PATIENCE).await;
    let waiting = daemon.accept(&event("b09-waiting")).await;
    let held = lock(&daemon).await;
    gate.send_replace(true);
    wait("not ready", async || daemon.readyz().await == 503).await;
    assert_eq!(daemon.status(&id).await["state"], "dispatching", "reading goes on");
    let refused = daemon.post(&event("b09-other")).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(sends(&oracle), 1, "the one that waits is not claimed");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    unlock(held).await;
    let status = daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!((attempts(&status), &status["attempts"][0]["message_id"]), (1, &json!("m1")));
    wait("ready", async || daemon.readyz().await == 200).await;
    let later = daemon.accept(&event("b09-other")).await;
    daemon.wait_for_state(&waiting, "dispatched").await;
    daemon.wait_for_state(&later, "dispatched").await;
    assert_eq!(sends(&oracle), 3, "each once");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_kill_while_the_answer_cannot_be_stored_leaves_an_unknown() {
    let (oracle, gate) = gated().await;
    let daemon = impatient(&oracle).await;
    let id = daemon.accept(&event("b09-killed")).await;
    oracle.wait_for(1, PATIENCE).await;
    let held = lock(&daemon).await;
    gate.send_replace(true);
    wait("the fault is told", async || daemon.log().contains("results cannot be stored")).await;
    daemon.kill9();
    unlock(held).await;
    daemon.launch().await;
    daemon.wait_for_state(&id, "dispatch_unknown").await;
    assert_eq!(sends(&oracle), 1);
    daemon.audit_closes().await;
}

/// A small file system of its own, mounted until dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let dir = TempDir::new().expect("a directory");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(dir.path()).status();
        let mounted = mounted.is_ok_and(|status| status.success());
        assert!(mounted, "this test needs the right to mount a tmpfs: run it as root");
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves not one free block.
    fn fill(&self) {
        let mut file = fs::File::create(self.path().join("ballast")).expect("a file");
        while file.write_all(&[7; 4096]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.path().join("ballast")).expect("removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_stops_admission_and_claims_and_recovers_without_a_restart() {
    let (oracle, gate) = gated().await;
    let disk = SmallDisk::mount();
    let lines = "timeout = \"20s\"\nconcurrency = 1";
    let plan = Plan::new().http_with("probe", &oracle.url(), &[], lines).sms(&["probe"]);
    let daemon = Daemon::start(plan.store(&disk.path().join("sendonce.db"))).await;
    let under_way = daemon.accept(&event("e09-first")).await;
    oracle.wait_for(1, PATIENCE).await;
    let waiting = daemon.accept(&event("e09-second")).await;
    disk.fill();
    // What the write-ahead log has in reserve may take a few more.
    let mut taken = vec![];
    let mut refused = None;
    for n in 0..2000 {
        let answer = daemon.post(&event(&format!("e09-{n}"))).await;
        match answer.status {
            202 => taken.push(answer.id()),
            _ => {
                refused = Some((n, answer));
                break;
            }
        }
    }
    let (n, answer) = refused.expect("a full disk refuses");
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    assert_eq!(sends(&oracle), 1, "the others wait for their turn");
    gate.send_replace(true);
    // A checkpoint may make room in the log that is there already, so some may still be taken; none may be lost.
    for more in 0..20 {
        let answer = daemon.post(&event(&format!("e09-more{more}"))).await;
        match answer.status {
            202 => taken.push(answer.id()),
            status => assert_eq!(status, 503, "{answer:?}"),
        }
    }
    let told = daemon.log().lines().filter(|line| line.contains("\"ERROR\"")).count();
    assert!((1..=8).contains(&told), "{told} lines of errors for one fault");
    disk.free();
    wait("ready", async || daemon.readyz().await == 200).await;
    let again = daemon.accept(&event(&format!("e09-{n}"))).await;
    for id in taken.iter().chain([&under_way, &waiting, &again]) {
        daemon.wait_for_state(id, "dispatched").await;
    }
    assert_eq!(sends(&oracle), taken.len() + 3, "each once, and nothing that was refused");
    daemon.audit_closes().await;
}
