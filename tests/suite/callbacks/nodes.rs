//! Two nodes on one PostgreSQL.

use super::*;
use crate::nodes::Nodes;

/// Accepts some events at one node, and waits until each is told.
async fn tell(node: &Daemon, hook: &Hook, round: &str) {
    for n in 0..5 {
        node.accept(&event(&format!("{round}-{n}"))).await;
    }
    let told = |all: &[Told]| by_event(all).keys().filter(|event| event.starts_with(round)).count();
    wait(&format!("{round} is told"), async || told(&hook.told()) == 5).await;
}

#[tokio::test]
async fn one_of_two_nodes_tells_each_change_once_and_when_it_is_killed_the_other_one_goes_on() {
    let (provider, hook) = (oracle(taken).await, Hook::start().await);
    let nodes = Nodes::planned(2, plan(&provider, &hook, "")).await;
    nodes.launch().await;
    tell(&nodes[0], &hook, "first").await;
    tell(&nodes[1], &hook, "second").await;
    let told = hook.told();
    assert_eq!((told.len(), ids(&told).len()), (10, 10), "once each, by whomever");
    for (killed, alive) in [(0, 1), (1, 0)] {
        // What waits at the app while the node that tells it may be killed.
        nodes[killed].accept(&event(&format!("between-{killed}"))).await;
        nodes[killed].kill9();
        tell(&nodes[alive], &hook, &format!("without-{killed}")).await;
        nodes[killed].launch().await;
    }
    wait("every event is told", async || by_event(&hook.told()).len() == 22).await;
    wait("nothing is pending", async || nodes.number("SELECT count(*) FROM callback").await == 0).await;
    let unknown = |changes: &[String]| changes.first().is_some_and(|first| first == "dispatch_unknown");
    let told = by_event(&hook.told());
    let others = told.iter().filter(|(event, _)| !event.starts_with("between"));
    assert!(others.clone().all(|(_, changes)| *changes == ["dispatched"]), "{told:?}");
    let between = told.iter().filter(|(event, _)| event.starts_with("between"));
    assert!(between.clone().all(|(_, changes)| *changes == ["dispatched"] || unknown(changes)), "{told:?}");
}
