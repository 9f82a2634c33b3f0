//! What apps do to two nodes, and what a crash does between them.

use http::header::LOCATION;
use reqwest::Method;
use tokio::sync::watch;

use super::*;
use crate::support::daemon::{PATIENCE, event, reference, wait};
use crate::support::http_oracle::post;

#[tokio::test]
async fn the_same_request_five_milliseconds_apart_on_two_nodes_is_one_row_and_one_answer() {
    let oracle = oracle(taken).await;
    let nodes = Nodes::start(2, &oracle, &[], "timeout = \"1s\"").await;
    for round in 0..10 {
        let event = event(&format!("twice-{round}"));
        let later = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            nodes[1].post(&event).await
        };
        let (first, second) = tokio::join!(nodes[0].post(&event), later);
        assert_eq!((first.status, second.status), (202, 202), "{first:?} {second:?}");
        assert_eq!(first.text, second.text);
        assert_eq!(first.headers.get(LOCATION), second.headers.get(LOCATION));
        let replayed = [&first, &second].map(|answer| answer.headers.contains_key("idempotency-replayed"));
        assert_eq!(replayed.iter().filter(|is| **is).count(), 1, "one of them is the repeat");
        nodes[1].wait_for_state(&first.id(), "dispatched").await;
    }
    assert_eq!(nodes.number("SELECT count(*) FROM notification").await, 10);
    assert_eq!(sends(&oracle), 10);
    nodes[0].audit_closes().await;
    nodes[1].audit_closes().await;
}

#[tokio::test]
async fn a_key_with_another_payload_is_refused_by_every_node_and_an_event_under_another_key_too() {
    let oracle = oracle(taken).await;
    let nodes = Nodes::start(2, &oracle, &[], "timeout = \"1s\"").await;
    let first = event("one");
    let id = nodes[0].accept(&first).await;
    let mut other = first.clone();
    other["data"]["code"] = "111111".into();
    let refused = nodes[1].post_as("one", &other).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.text.contains("idempotency-key-reused"), "{refused:?}");
    let taken = nodes[1].post_as("another-key", &first).await;
    assert_eq!((taken.status, &taken.json()["id"]), (409, &json!(id)), "{taken:?}");
    nodes[1].wait_for_state(&id, "dispatched").await;
    assert_eq!((sends(&oracle), nodes.number("SELECT count(*) FROM notification").await), (1, 1));
    nodes[1].audit_closes().await;
}

#[tokio::test]
async fn a_client_that_gives_up_on_one_node_and_repeats_at_another_gets_one_message() {
    let oracle = oracle(taken).await;
    let nodes = Nodes::start(2, &oracle, &[], "timeout = \"1s\"").await;
    for round in 0..5 {
        let event = event(&format!("gives-up-{round}"));
        let stream = nodes[0].write(&nodes[0].request(&event)).await;
        tokio::time::sleep(Duration::from_millis(round * 2)).await;
        drop(stream);
        let id = nodes[1].accept(&event).await;
        nodes[1].wait_for_state(&id, "dispatched").await;
        let again = nodes[0].post(&event).await;
        assert_eq!((again.status, again.id()), (202, id));
    }
    assert_eq!(nodes.number("SELECT count(*) FROM notification").await, 5);
    assert_eq!(sends(&oracle), 5);
    nodes[1].audit_closes().await;
}

/// A provider that takes a message and keeps its answer to itself.
async fn silent() -> (HttpOracle, watch::Sender<bool>) {
    let gate = watch::Sender::new(false);
    let subscriber = gate.clone();
    (oracle(move |seen| taken(seen).gated(&subscriber)).await, gate)
}

#[tokio::test]
async fn a_node_killed_after_the_provider_took_the_message_leaves_an_unknown_that_evidence_settles() {
    let (oracle, _gate) = silent().await;
    let nodes = Nodes::start(2, &oracle, &[Strategy::Receipts], "timeout = \"20s\"\nconcurrency = 1").await;
    // One of them has the message in its hands, and it may be either.
    let id = nodes[0].accept(&event("killed")).await;
    let seen = oracle.wait_for(1, PATIENCE).await;
    let owner =
        nodes.number("SELECT count(*) FROM work AS w JOIN node AS n ON n.boot = w.owner WHERE n.name = 'n0'").await;
    let (killed, alive) = if owner == 1 { (0, 1) } else { (1, 0) };
    nodes[killed].kill9();
    let status = nodes[alive].wait_for_state(&id, "dispatch_unknown").await;
    assert_eq!((&status["sent"], &status["cause"]), (&json!("unknown"), &json!("process_died")));
    let receipt = nodes[alive].receipt("probe", &json!({ "ref": reference(&seen[0]), "status": "delivered" }));
    assert_eq!(post(&receipt).await, 200);
    let status = nodes[alive].wait_for_state(&id, "dispatched").await;
    assert_eq!((&status["sent"], &status["delivery"], attempts(&status)), (&json!("yes"), &json!("delivered"), 1));
    nodes[killed].launch().await;
    assert_eq!(nodes[killed].status(&id).await["state"], "dispatched");
    assert_eq!(sends(&oracle), 1);
    nodes[alive].audit_closes().await;
}

#[tokio::test]
async fn work_that_a_busy_node_cannot_take_is_taken_by_another_and_a_waiting_reader_elsewhere_is_told() {
    let (oracle, gate) = silent().await;
    let nodes = Nodes::start(2, &oracle, &[], "timeout = \"20s\"\nconcurrency = 1").await;
    let first = nodes[0].accept(&event("busy-1")).await;
    let second = nodes[0].accept(&event("busy-2")).await;
    oracle.wait_for(2, PATIENCE).await;
    let owners = "SELECT count(DISTINCT owner) FROM work WHERE state = 'dispatching'";
    assert_eq!(nodes.number(owners).await, 2, "one each");
    // Whoever sends it, both see the end.
    let path = format!("/v1/notifications/{first}?wait=30s");
    let opens = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        gate.send_replace(true);
    };
    let waits = |n: usize| nodes[n].call(Method::GET, &path, None);
    let (a, b, ()) = tokio::join!(waits(0), waits(1), opens);
    assert_eq!((&a.json()["state"], &b.json()["state"]), (&json!("dispatched"), &json!("dispatched")));
    nodes[1].wait_for_state(&second, "dispatched").await;
    wait("nobody works", async || nodes.number("SELECT count(*) FROM work").await == 0).await;
    assert_eq!(sends(&oracle), 2);
    nodes[1].audit_closes().await;
}
