//! What the database and the network do to nodes.

use sendonce::store::mark::Mark;

use super::*;
use crate::support::daemon::{event, wait};

const LISTENING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";

#[tokio::test]
async fn a_lost_listening_session_is_made_again_and_nothing_is_missed_meanwhile() {
    let oracle = oracle(taken).await;
    let nodes = Nodes::start(2, &oracle, &[], "timeout = \"1s\"").await;
    wait("both listen", async || nodes.number(LISTENING).await == 2).await;
    for round in 0..3 {
        let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE datname = current_database() AND query LIKE 'LISTEN%'";
        assert!(nodes.number(cut).await >= 1);
        let id = nodes[round % 2].accept(&event(&format!("heard-{round}"))).await;
        nodes[(round + 1) % 2].wait_for_state(&id, "dispatched").await;
        wait("both listen again", async || nodes.number(LISTENING).await == 2).await;
    }
    assert_eq!(sends(&oracle), 3);
    assert_eq!((nodes[0].readyz().await, nodes[1].readyz().await), (200, 200));
}

#[tokio::test]
async fn a_database_that_is_away_for_longer_than_a_lease_costs_503s_and_neither_a_message_nor_a_second_one() {
    let oracle = oracle(taken).await;
    let nodes = Nodes::start(2, &oracle, &[], "timeout = \"1s\"").await;
    for n in 0..10 {
        nodes[n % 2].accept(&event(&format!("before-{n}"))).await;
    }
    nodes.database.hide().await;
    wait("both are not ready", async || nodes[0].readyz().await == 503 && nodes[1].readyz().await == 503).await;
    let refused = nodes[0].post(&event("meanwhile")).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"));
    tokio::time::sleep(2 * LEASE).await;
    nodes.database.show().await;
    wait("both are ready", async || nodes[0].readyz().await == 200 && nodes[1].readyz().await == 200).await;
    let id = nodes[1].accept(&event("meanwhile")).await;
    nodes[0].wait_for_state(&id, "dispatched").await;
    let unsettled = "SELECT count(*) FROM work WHERE state NOT IN ('dispatched', 'dispatch_unknown')";
    wait("all is settled", async || nodes.number(unsettled).await == 0).await;
    let mut refs: Vec<_> = oracle.requests().iter().map(|seen| seen.json()["to"].to_string()).collect();
    refs.sort();
    refs.dedup();
    assert_eq!((refs.len(), sends(&oracle)), (11, 11), "each once");
    for node in &nodes.nodes {
        assert!(!node.log().contains("the lease of a node has run out"), "nobody is taken for dead for that");
        node.audit_closes().await;
    }
}

#[tokio::test]
async fn a_database_that_has_lost_its_last_records_is_held_by_every_node_until_one_recovers_it() {
    let gate = tokio::sync::watch::Sender::new(true);
    let subscriber = gate.clone();
    let oracle = oracle(move |seen| taken(seen).gated(&subscriber)).await;
    let nodes = Nodes::start(2, &oracle, &[], "timeout = \"60s\"").await;
    let first = nodes[0].accept(&event("kept")).await;
    nodes[1].wait_for_state(&first, "dispatched").await;
    gate.send_replace(false);
    let second = nodes[0].accept(&event("under-way")).await;
    oracle.wait_for(2, crate::support::daemon::PATIENCE).await;
    let last = nodes.number("SELECT max(pos) FROM log").await;
    let has_seen = |node: &Daemon| {
        let mark = Mark::open(&node.path("sendonce.mark")).expect("a mark");
        mark.read().is_some_and(|seen| seen.pos >= last)
    };
    wait("both remember how far it had come", async || nodes.nodes.iter().all(has_seen)).await;
    // As a copy from before the last record would be; the table's own triggers forbid it.
    let lose = "SET session_replication_role = replica; DELETE FROM log WHERE pos = (SELECT max(pos) FROM log)";
    nodes.database.run(lose).await;
    wait("both hold", async || nodes[0].readyz().await == 503 && nodes[1].readyz().await == 503).await;
    assert_eq!((nodes[0].post(&event("held")).await.status, nodes[1].post(&event("held")).await.status), (503, 503));
    let config = nodes[0].config();
    let recover = ["recover", "--config", config.to_str().expect("text"), "--ticket", "OPS-7", "--yes"];
    let recovered = nodes[0].run(&recover, "");
    assert!(recovered.status.success(), "{recovered:?}");
    wait("both go on", async || nodes[0].readyz().await == 200 && nodes[1].readyz().await == 200).await;
    let status = nodes[1].status(&second).await;
    assert_eq!((&status["state"], &status["sent"]), (&json!("dispatch_unknown"), &json!("unknown")));
    gate.send_replace(true);
    // What the worker heard in the end is evidence.
    nodes[1].wait_for_state(&second, "dispatched").await;
    let third = nodes[1].accept(&event("held")).await;
    nodes[0].wait_for_state(&third, "dispatched").await;
    assert_eq!(sends(&oracle), 3);
}

#[tokio::test]
async fn a_node_with_another_index_key_is_refused() {
    let oracle = oracle(taken).await;
    let nodes = Nodes::prepare(2, &oracle, &[], "timeout = \"1s\"").await;
    nodes[0].launch().await;
    let another = Daemon::prepare(Plan::new());
    std::fs::copy(another.path("index.key"), nodes[1].path("index.key")).expect("copied");
    nodes[1].spawn();
    assert_eq!(nodes[1].ended().await, Some(1));
    assert!(nodes[1].log().contains("the store was made with another key"), "{}", nodes[1].log());
}
