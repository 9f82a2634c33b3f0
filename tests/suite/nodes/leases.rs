//! Names, leases and the lead.

use super::*;
use crate::support::daemon::{PATIENCE, event, wait};

#[tokio::test]
async fn a_second_live_holder_of_a_name_is_refused_and_the_first_goes_on() {
    let oracle = oracle(taken).await;
    let nodes = Nodes::prepare(2, &oracle, &[], "timeout = \"1s\"").await;
    nodes[0].launch().await;
    nodes[1].reconfigure("name = \"n1\"", "name = \"n0\"");
    nodes[1].spawn();
    assert_eq!(nodes[1].ended().await, Some(1));
    assert!(nodes[1].log().contains("waiting for its lease to run out"));
    assert!(nodes[1].log().contains("the node name `n0` is in use by another running process"), "{}", nodes[1].log());
    let id = nodes[0].accept(&event("first")).await;
    nodes[0].wait_for_state(&id, "dispatched").await;
    assert_eq!(nodes[0].readyz().await, 200);
}

#[tokio::test]
async fn a_killed_node_comes_back_under_its_name_when_its_lease_is_over_and_ends_what_it_had_begun() {
    let gate = tokio::sync::watch::Sender::new(false);
    let subscriber = gate.clone();
    let oracle = oracle(move |seen| taken(seen).gated(&subscriber)).await;
    let nodes = Nodes::start(1, &oracle, &[], "timeout = \"20s\"").await;
    let id = nodes[0].accept(&event("alone")).await;
    oracle.wait_for(1, PATIENCE).await;
    nodes[0].kill9();
    nodes[0].launch().await;
    nodes[0].wait_for_state(&id, "dispatch_unknown").await;
    assert_eq!(sends(&oracle), 1);
    nodes[0].audit_closes().await;
}

#[tokio::test]
async fn a_node_that_stops_in_order_gives_its_name_back_at_once() {
    let oracle = oracle(taken).await;
    let nodes = Nodes::start(1, &oracle, &[], "timeout = \"1s\"").await;
    assert_eq!(nodes.number("SELECT count(*) FROM node").await, 1);
    nodes[0].sigterm();
    assert_eq!(nodes[0].ended().await, Some(0));
    assert_eq!(nodes.number("SELECT count(*) FROM node").await, 0);
    nodes[0].launch().await;
    assert!(!nodes[0].log().contains("waiting for its lease"));
}

/// Which nodes show the numbers of the store, as only the one that leads does.
async fn leaders(nodes: &Nodes, alive: &[usize]) -> Vec<usize> {
    let mut leaders = vec![];
    for n in alive {
        if nodes[*n].metrics().await.contains("sendonce_lateness_seconds{") {
            leaders.push(*n);
        }
    }
    leaders
}

#[tokio::test]
async fn one_node_leads_and_when_it_is_killed_or_loses_its_session_another_one_does() {
    let oracle = oracle(taken).await;
    let nodes = Nodes::start(3, &oracle, &[], "timeout = \"1s\"").await;
    let mut alive = vec![0, 1, 2];
    wait("one leads", async || leaders(&nodes, &alive).await.len() == 1).await;
    let leader = leaders(&nodes, &alive).await[0];
    nodes[leader].kill9();
    alive.retain(|n| *n != leader);
    wait("another leads", async || leaders(&nodes, &alive).await.len() == 1).await;
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted \
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND mode = 'ExclusiveLock' \
               AND classid = 1936027236";
    assert_eq!(nodes.number(cut).await, 1);
    wait("one leads again", async || leaders(&nodes, &alive).await.len() == 1).await;
    let id = nodes[alive[0]].accept(&event("led")).await;
    nodes[alive[1]].wait_for_state(&id, "dispatched").await;
}

#[tokio::test]
async fn a_node_that_was_paused_for_longer_than_its_lease_goes_on_as_another_boot_and_its_late_result_counts() {
    let gate = tokio::sync::watch::Sender::new(false);
    let subscriber = gate.clone();
    let oracle = oracle(move |seen| taken(seen).gated(&subscriber)).await;
    let nodes = Nodes::start(2, &oracle, &[], "timeout = \"30s\"\nconcurrency = 1").await;
    let id = nodes[0].accept(&event("paused")).await;
    oracle.wait_for(1, PATIENCE).await;
    let owned = "SELECT count(*) FROM work AS w JOIN node AS n ON n.boot = w.owner WHERE n.name = 'n0'";
    let (paused, other) = if nodes.number(owned).await == 1 { (0, 1) } else { (1, 0) };
    nodes[paused].sigstop();
    let status = nodes[other].wait_for_state(&id, "dispatch_unknown").await;
    assert_eq!(status["cause"], "process_died");
    gate.send_replace(true);
    nodes[paused].sigcont();
    let status = nodes[other].wait_for_state(&id, "dispatched").await;
    assert_eq!((&status["sent"], attempts(&status), sends(&oracle)), (&json!("yes"), 1, 1));
    wait("it is ready again", async || nodes[paused].readyz().await == 200).await;
    assert!(nodes[paused].log().contains("it goes on as another boot"));
    let next = nodes[paused].accept(&event("after")).await;
    nodes[paused].wait_for_state(&next, "dispatched").await;
    nodes[other].audit_closes().await;
}
