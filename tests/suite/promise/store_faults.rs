//! A store that cannot be written for a while.

use super::*;
use crate::support::daemon::{Place, event, wait};

/// A daemon that waits only shortly for a lock.
async fn impatient(place: &Place, oracle: &HttpOracle) -> Daemon {
    let lines = "timeout = \"20s\"\nconcurrency = 1";
    let plan = Plan::new().http_with("probe", &oracle.url(), &[], lines).sms(&["probe"]);
    Daemon::start(place.plan(plan.section("store", "busy_timeout = \"200ms\""))).await
}

#[tokio::test]
async fn an_answer_that_cannot_be_stored_is_stored_later_and_nothing_is_sent_again() {
    stored_later(Place::File).await;
}

#[tokio::test]
async fn an_answer_that_a_server_cannot_store_is_stored_later_and_nothing_is_sent_again() {
    stored_later(Place::server().await).await;
}

async fn stored_later(place: Place) {
    let (oracle, gate) = gated().await;
    let daemon = impatient(&place, &oracle).await;
    let id = daemon.accept(&event("b09")).await;
    oracle.wait_for(1, PATIENCE).await;
    let waiting = daemon.accept(&event("b09-waiting")).await;
    let held = place.hold(&daemon, "log").await;
    gate.send_replace(true);
    wait("not ready", async || daemon.readyz().await == 503).await;
    assert_eq!(daemon.status(&id).await["state"], "dispatching", "reading goes on");
    let refused = daemon.post(&event("b09-other")).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(sends(&oracle), 1, "the one that waits is not claimed");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    held.release().await;
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
    killed_before_it_is_stored(Place::File).await;
}

#[tokio::test]
async fn a_kill_while_a_server_cannot_store_the_answer_leaves_an_unknown() {
    killed_before_it_is_stored(Place::server().await).await;
}

async fn killed_before_it_is_stored(place: Place) {
    let (oracle, gate) = gated().await;
    let daemon = impatient(&place, &oracle).await;
    let id = daemon.accept(&event("b09-killed")).await;
    oracle.wait_for(1, PATIENCE).await;
    let held = place.hold(&daemon, "log").await;
    gate.send_replace(true);
    wait("the fault is told", async || daemon.log().contains("results cannot be stored")).await;
    daemon.kill9();
    held.release().await;
    daemon.launch().await;
    daemon.wait_for_state(&id, "dispatch_unknown").await;
    assert_eq!(sends(&oracle), 1);
    daemon.audit_closes().await;
}
