//! An app that is down, refuses, redirects or forgets to answer, and a daemon that is killed meanwhile.

use tokio::sync::watch;

use super::*;
use crate::support::daemon::PATIENCE;
use crate::support::http_oracle::Accept;

async fn nothing_is_lost_while_the_app_is_down(place: Place) {
    const EVENTS: usize = 8;
    let (provider, hook) = (oracle(taken).await, Hook::start().await);
    hook.oracle.accept(Accept::Close);
    let daemon = Daemon::start(place.plan(plan(&provider, &hook, ""))).await;
    let names: Vec<String> = (0..EVENTS).map(|n| format!("down-{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        let id = daemon.accept(&event(name)).await;
        daemon.wait_for_state(&id, "dispatched").await;
        if n == EVENTS / 2 {
            daemon.restart().await;
        }
        deliver(&daemon, &provider, name, "delivered").await;
    }
    wait("the app was tried", async || hook.oracle.connections() > 0).await;
    assert_eq!(daemon.readyz().await, 200, "a dead app is no reason to send no messages here");
    daemon.restart().await;
    assert_eq!(hook.oracle.requests().len(), 0);
    hook.oracle.accept(Accept::Serve);
    let told = by_event(&hook.wait_for(2 * EVENTS).await);
    for name in &names {
        assert_eq!(told[name], ["dispatched", "delivered"], "{name}");
    }
    settled(&daemon, &hook).await;
    let all = hook.told();
    assert_eq!(all.len(), ids(&all).len(), "what was taken once did not come again");
}

#[tokio::test]
async fn while_the_app_is_down_and_the_daemon_is_killed_nothing_is_lost_and_the_order_is_kept() {
    nothing_is_lost_while_the_app_is_down(Place::File).await;
}

#[tokio::test]
async fn while_the_app_is_down_and_the_daemon_is_killed_on_postgres_nothing_is_lost_and_the_order_is_kept() {
    nothing_is_lost_while_the_app_is_down(Place::server().await).await;
}

#[tokio::test]
async fn what_the_app_took_when_the_daemon_was_killed_comes_again_under_the_same_id_and_its_successor_after_it() {
    let (provider, hook) = (oracle(taken).await, Hook::start().await);
    let gate = watch::Sender::new(false);
    let closed = gate.clone();
    hook.oracle.script(move |_| Reply::status(200).gated(&closed));
    let daemon = Daemon::start(plan(&provider, &hook, "")).await;
    daemon.accept(&event("killed")).await;
    hook.oracle.wait_for(1, PATIENCE).await;
    deliver(&daemon, &provider, "killed", "delivered").await;
    daemon.restart().await;
    hook.oracle.wait_for(2, PATIENCE).await;
    gate.send_replace(true);
    hook.wait_for(2).await;
    settled(&daemon, &hook).await;
    let told = hook.told();
    let ours = of(&told, "killed");
    let changes: Vec<_> = ours.iter().map(|told| told.change.as_str()).collect();
    assert_eq!(changes, ["dispatched", "dispatched", "delivered"]);
    assert_eq!((&ours[0].id, &ours[0].body), (&ours[1].id, &ours[1].body));
}

#[tokio::test]
async fn a_notification_that_the_app_refuses_holds_up_no_other_but_its_own_later_changes() {
    let (provider, hook) = (oracle(taken).await, Hook::start().await);
    let healed = watch::Sender::new(false);
    let is_healed = healed.subscribe();
    hook.oracle.script(move |seen| match seen.json()["data"]["event_id"].as_str() {
        Some("refused") if !*is_healed.borrow() => Reply::status(400),
        Some("broken") if !*is_healed.borrow() => Reply::status(500),
        _ => Reply::status(200),
    });
    let daemon = Daemon::start(plan(&provider, &hook, "concurrency = 2")).await;
    for name in ["refused", "broken"] {
        let id = daemon.accept(&event(name)).await;
        daemon.wait_for_state(&id, "dispatched").await;
        deliver(&daemon, &provider, name, "delivered").await;
    }
    for n in 0..10 {
        daemon.accept(&event(&format!("other-{n}"))).await;
    }
    let others = |told: &[Told]| by_event(told).keys().filter(|event| event.starts_with("other")).count();
    wait("all others are told", async || others(&hook.told()) == 10).await;
    let tries = |name: &str| of(&hook.told(), name).len();
    wait("it is tried again", async || tries("refused") > 2 && tries("broken") > 2).await;
    let before = hook.told();
    for name in ["refused", "broken"] {
        assert!(of(&before, name).iter().all(|told| told.change == "dispatched"), "{name} waits for its turn");
    }
    healed.send_replace(true);
    wait("they are told", async || {
        let told = by_event(&hook.told());
        ["refused", "broken"].iter().all(|name| told[*name] == ["dispatched", "delivered"])
    })
    .await;
    settled(&daemon, &hook).await;
    let after = hook.told();
    let delivered = of(&after, "refused").iter().filter(|told| told.change == "delivered").count();
    assert_eq!(delivered, 1);
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_its_callback_is_kept() {
    let (provider, hook, elsewhere) = (oracle(taken).await, Hook::start().await, HttpOracle::start().await);
    let target = elsewhere.url();
    hook.oracle.script(move |_| Reply::redirect(307, &target));
    let daemon = Daemon::start(plan(&provider, &hook, "")).await;
    daemon.accept(&event("moved")).await;
    hook.oracle.wait_for(3, PATIENCE).await;
    let metrics = daemon.metrics().await;
    assert!(metrics.contains("sendonce_callbacks_total{target=\"app\",result=\"failed\"}"), "{metrics}");
    assert!(metrics.contains("sendonce_callbacks_pending{target=\"app\"} 1"), "{metrics}");
    assert_eq!(elsewhere.connections(), 0);
    hook.oracle.script(|_| Reply::status(200));
    settled(&daemon, &hook).await;
    assert_eq!(ids(&hook.told()).len(), 2, "it and the barrier");
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn an_app_that_asks_to_be_left_alone_is_left_alone_by_all_callbacks() {
    let (provider, hook) = (oracle(taken).await, Hook::start().await);
    hook.oracle.play([Reply::status(429).header("Retry-After", "2"), Reply::status(200)]);
    let daemon = Daemon::start(plan(&provider, &hook, "concurrency = 1")).await;
    daemon.accept(&event("limited")).await;
    hook.oracle.wait_for(1, PATIENCE).await;
    daemon.accept(&event("other")).await;
    let seen = hook.oracle.wait_for(3, PATIENCE).await;
    let seconds =
        |n: usize| seen[n].header("webhook-timestamp").and_then(|at| at.parse::<u64>().ok()).expect("seconds");
    assert!(seconds(1) >= seconds(0) + 2, "{} and {}", seconds(0), seconds(1));
    assert_eq!(by_event(&hook.told()).len(), 2);
}

#[tokio::test]
async fn a_target_that_is_gone_is_left_alone_until_the_next_start() {
    let (provider, hook) = (oracle(taken).await, Hook::start().await);
    hook.oracle.script(|_| Reply::status(410));
    let daemon = Daemon::start(plan(&provider, &hook, "")).await;
    daemon.accept(&event("gone-1")).await;
    let gone = "sendonce_callback_gone{target=\"app\"} 1";
    wait("it is known", async || daemon.metrics().await.contains(gone)).await;
    let before = hook.oracle.requests().len();
    let id = daemon.accept(&event("gone-2")).await;
    daemon.wait_for_state(&id, "dispatched").await;
    let pending = "sendonce_callbacks_pending{target=\"app\"} 2";
    wait("it waits", async || daemon.metrics().await.contains(pending)).await;
    assert_eq!(hook.oracle.requests().len(), before);
    hook.oracle.script(|_| Reply::status(200));
    daemon.restart().await;
    settled(&daemon, &hook).await;
    let told = by_event(&hook.told());
    assert_eq!((told["gone-1"].len(), told["gone-2"].len()), (1, 1));
}

#[tokio::test]
async fn a_stop_lets_a_request_end_and_stores_what_the_app_took() {
    let (provider, hook) = (oracle(taken).await, Hook::start().await);
    let gate = watch::Sender::new(false);
    let closed = gate.clone();
    hook.oracle.script(move |_| Reply::status(200).gated(&closed));
    let daemon = Daemon::start(plan(&provider, &hook, "")).await;
    daemon.accept(&event("stopped")).await;
    hook.oracle.wait_for(1, PATIENCE).await;
    daemon.sigterm();
    daemon.logs(&["\"stopping\""]).await;
    gate.send_replace(true);
    assert_eq!(daemon.ended().await, Some(0));
    daemon.launch().await;
    settled(&daemon, &hook).await;
    assert_eq!(of(&hook.told(), "stopped").len(), 1);
}
