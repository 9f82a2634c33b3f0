//! Four nodes that are killed at random, while the providers keep their account. `SENDONCE_TEST_SEED` says how the dice
//! fall.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::Method;

use super::*;
use crate::crash::reckoning::{Counts, Promise, decide, reckon};
use crate::crash::vendor::{Kind, Vendor};
use crate::support::daemon::{event_to, wait};
use crate::support::dice;

const EVENTS: usize = 300;

#[tokio::test]
async fn four_nodes_killed_at_random_lose_nothing_and_send_nothing_twice() {
    let mut dice = dice::dice();
    let vendor = Vendor::start_slow(Some(StdRng::from_rng(&mut dice)), Duration::from_millis(50)).await;
    let plan = vendor.plan_with(Plan::new().section("dispatch", "max_attempts = 20"), "timeout = \"2s\"");
    let nodes = Nodes::planned(4, plan).await;
    nodes.launch().await;
    let posted = AtomicBool::new(false);
    let posts = async {
        let mut promises = BTreeMap::new();
        for n in 0..EVENTS {
            let (name, kind) = (format!("chaos-{n}"), Kind::ALL[n % Kind::ALL.len()]);
            let to = kind.address(n);
            let event = event_to(&name, json!([{ kind.channel(): &to }]), json!({ "code": "493021" }));
            let mut node = n;
            // As an app does: again, elsewhere, until somebody says 202.
            let id = loop {
                let answer =
                    nodes[node % 4].try_call(Method::POST, "/v1/notifications", Some(&name), Some(&event)).await;
                match answer {
                    Some(answer) if answer.status == 202 => break answer.id(),
                    Some(answer) if answer.status != 503 => panic!("{answer:?}"),
                    _ => node += 1,
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            promises.insert(name, Promise { id, to });
        }
        posted.store(true, Ordering::SeqCst);
        promises
    };
    let kills = async {
        let mut kills = 0;
        while !posted.load(Ordering::SeqCst) || kills < 4 {
            let victim = dice.random_range(0..4);
            tokio::time::sleep(Duration::from_millis(dice.random_range(200..900))).await;
            nodes[victim].kill9();
            kills += 1;
            nodes[victim].launch().await;
        }
        kills
    };
    let (promises, kills) = tokio::join!(posts, kills);
    wait("nothing is live", async || {
        decide(&nodes[0], &vendor, &promises, true).await;
        nodes.number("SELECT count(*) FROM work").await == 0
    })
    .await;
    let counts = reckon(&nodes[0], &vendor, &promises).await;
    println!("after {kills} kills: {counts:?}");
    assert_eq!(counts, Counts { acknowledged: EVENTS, sent: counts.sent, ..Counts::default() });
    for node in &nodes.nodes {
        node.audit_closes().await;
    }
}
