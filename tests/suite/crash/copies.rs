//! The store is set back to an older copy.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use super::reckoning::{Promise, reckon};
use super::vendor::{Kind, Vendor};
use crate::support::daemon::{Daemon, PATIENCE, Place, Plan, event_to, wait};

const FILES: [&str; 3] = ["sendonce.db", "sendonce.db-wal", "sendonce.db-shm"];

/// Copies the store of a daemon that does not run; not what stands beside it and remembers how far it had come.
async fn copy(place: &Place, daemon: &Daemon) {
    match place {
        Place::Server(database) => database.copy().await,
        Place::File => {
            for name in &FILES[..2] {
                fs::copy(daemon.path(name), daemon.path(&format!("copy.{name}"))).expect("copied");
            }
        }
    }
}

async fn restore(place: &Place, daemon: &Daemon) {
    match place {
        Place::Server(database) => database.restore().await,
        Place::File => {
            for name in FILES {
                let _ = fs::remove_file(daemon.path(name));
                let _ = fs::copy(daemon.path(&format!("copy.{name}")), daemon.path(name));
            }
        }
    }
}

fn event(kind: Kind, n: usize) -> (String, Value) {
    let to = kind.address(n);
    (to.clone(), event_to(&format!("copy-{n}"), json!([{ kind.channel(): to }]), json!({ "code": "493021" })))
}

/// What the provider's lane takes at a time, and a few more, which wait.
const LANE: usize = 8;
const WAITING: usize = LANE + 4;

async fn nothing_of_a_copy_is_sent_before_it_is_recovered_nor_twice_afterwards(place: Place) {
    let vendor = Vendor::start(None).await;
    let lines = format!("timeout = \"30s\"\nconcurrency = {LANE}");
    let daemon = Daemon::start(place.plan(vendor.plan_with(Plan::new(), &lines))).await;
    let mut promises = BTreeMap::new();
    let mut accept = async |kind: Kind, n: usize| {
        let (to, event) = event(kind, n);
        let id = daemon.accept(&event).await;
        promises.insert(format!("copy-{n}"), Promise { id: id.clone(), to });
        id
    };
    let done = accept(Kind::Lookup, 0).await;
    daemon.wait_for_state(&done, "dispatched").await;
    vendor.shut();
    for n in 1..=WAITING {
        accept(Kind::Silent, n).await;
    }
    vendor.http.wait_for(1 + LANE, PATIENCE).await;
    daemon.kill9();
    copy(&place, &daemon).await;

    // What the copy does not know: the others are sent, and one more comes in and is sent.
    vendor.open();
    daemon.launch().await;
    wait("the rest is sent", async || vendor.copies().len() == WAITING + 1).await;
    let (_, later) = event(Kind::Lookup, 100);
    let lost = daemon.accept(&later).await;
    daemon.wait_for_state(&lost, "dispatched").await;
    assert_eq!(daemon.stop().await, Some(0));
    restore(&place, &daemon).await;

    daemon.spawn();
    daemon.listening().await;
    let ready = daemon.admin("/readyz").await.expect("an answer");
    assert!(ready.status == 503 && ready.text.contains("sendonce recover"), "{ready:?}");
    let (_, new) = event(Kind::Lookup, 101);
    for _ in 0..10 {
        let refused = daemon.post(&new).await;
        assert_eq!((refused.status, refused.headers.contains_key("retry-after")), (503, true), "{refused:?}");
    }
    assert_eq!(daemon.stop().await, Some(0));
    assert_eq!(vendor.taken().len(), WAITING + 2, "nothing was sent");

    let config = daemon.config();
    let recover = ["recover", "--config", config.to_str().expect("text"), "--ticket", "OPS-7", "--yes"];
    let recovered = daemon.run(&recover, "");
    assert!(recovered.status.success(), "{recovered:?}");
    let told = format!("{WAITING} notifications are unknown now");
    assert!(String::from_utf8_lossy(&recovered.stdout).starts_with(&told), "{recovered:?}");
    daemon.launch().await;
    for n in 1..=WAITING {
        let status = daemon.status(&promises[&format!("copy-{n}")].id).await;
        assert_eq!((&status["state"], &status["sent"]), (&json!("dispatch_unknown"), &json!("unknown")), "{status}");
        let verdict = daemon.resolve(&promises[&format!("copy-{n}")].id, "sent", "OPS-8").await;
        assert_eq!(verdict.status, 200, "{verdict:?}");
    }
    let counts = reckon(&daemon, &vendor, &promises).await;
    assert_eq!((counts.sent, counts.twice.len(), counts.lost.len()), (WAITING + 1, 0, 0), "{counts:?}");
    assert_eq!(vendor.taken().len(), WAITING + 2);
}

#[tokio::test]
async fn of_a_file_from_an_older_copy_everything_live_is_held_and_then_unknown() {
    nothing_of_a_copy_is_sent_before_it_is_recovered_nor_twice_afterwards(Place::File).await;
}

#[tokio::test]
async fn of_a_database_from_an_older_copy_everything_live_is_held_and_then_unknown() {
    nothing_of_a_copy_is_sent_before_it_is_recovered_nor_twice_afterwards(Place::server().await).await;
}
