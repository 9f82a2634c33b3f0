//! Four nodes that are killed at random, while the provider counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use rand::RngExt as _;

use super::*;
use crate::support::daemon::{event, phone, wait};

const EVENTS: usize = 300;

#[tokio::test]
async fn four_nodes_killed_at_random_send_each_event_once_or_say_that_nobody_knows() {
    let oracle = oracle(|seen| taken(seen).late(Duration::from_millis(50))).await;
    let nodes = Nodes::start(4, &oracle, &[], "timeout = \"2s\"\nconcurrency = 8").await;
    let posted = AtomicBool::new(false);
    let posts = async {
        let mut accepted = BTreeMap::new();
        for n in 0..EVENTS {
            let event = event(&format!("chaos-{n}"));
            let mut node = n;
            // As an app does: again, elsewhere, until somebody says 202.
            let id = loop {
                let key = Some(event["event_id"].as_str().expect("an id"));
                let answer =
                    nodes[node % 4].try_call(reqwest::Method::POST, "/v1/notifications", key, Some(&event)).await;
                match answer {
                    Some(answer) if answer.status == 202 => break answer.id(),
                    Some(answer) if answer.status != 503 => panic!("{answer:?}"),
                    _ => node += 1,
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            accepted.insert(id, format!("chaos-{n}"));
        }
        posted.store(true, Ordering::SeqCst);
        accepted
    };
    let kills = async {
        let mut kills = 0;
        while !posted.load(Ordering::SeqCst) || kills < 4 {
            let victim = rand::rng().random_range(0..4);
            tokio::time::sleep(Duration::from_millis(rand::rng().random_range(200..900))).await;
            nodes[victim].kill9();
            kills += 1;
            nodes[victim].launch().await;
        }
        kills
    };
    let (accepted, kills) = tokio::join!(posts, kills);
    assert_eq!(accepted.len(), EVENTS, "each event has an id of its own");
    let unsettled = "SELECT count(*) FROM work WHERE state NOT IN ('dispatched', 'dispatch_unknown')";
    wait("all is settled", async || nodes.number(unsettled).await == 0).await;

    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for seen in oracle.requests() {
        *times.entry(seen.json()["to"].as_str().expect("an address").to_owned()).or_default() += 1;
    }
    let phones: BTreeSet<String> = accepted.values().map(|event| phone(event)).collect();
    let mut unknown = 0;
    for (id, event) in &accepted {
        let status = nodes[0].status(id).await;
        let sent = times.get(&phone(event)).copied().unwrap_or(0);
        // Two events may have the same number; those are counted together.
        let alone = accepted.values().filter(|other| phone(other) == phone(event)).count() == 1;
        match status["state"].as_str() {
            Some("dispatched") => assert!(!alone || sent == 1, "{event}: sent {sent} times, {status}"),
            Some("dispatch_unknown") => {
                unknown += 1;
                assert!(!alone || sent <= 1, "{event}: sent {sent} times, {status}");
            }
            _ => panic!("{status}"),
        }
    }
    println!("{kills} kills, {EVENTS} events to {} numbers, {} sends, {unknown} unknown", phones.len(), sends(&oracle));
    assert!(sends(&oracle) <= EVENTS);
    for node in &nodes.nodes {
        node.audit_closes().await;
    }
}
