//! How the process ends, orderly and otherwise, and what the next one makes of it.

use std::time::Instant;

use super::*;
use crate::support::daemon::{event, wait};

#[tokio::test]
async fn a_kill_during_a_submit_is_unknown_soon_after_the_restart_without_another_node() {
    let oracle = oracle(|_| Reply::Stall).await;
    let daemon = patient(&oracle, &[], "").await;
    let id = daemon.accept(&event("b29")).await;
    oracle.wait_for(1, PATIENCE).await;
    daemon.restart().await;
    let since = Instant::now();
    let status = daemon.wait_for_state(&id, "dispatch_unknown").await;
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    assert_eq!((&status["sent"], &status["cause"]), (&json!("unknown"), &json!("process_died")));
    daemon.restart().await;
    assert_eq!(daemon.status(&id).await["state"], "dispatch_unknown");
    assert_eq!(sends(&oracle), 1);
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_stop_during_a_submit_waits_for_the_answer_stores_it_and_ends_with_0() {
    let (oracle, gate) = gated().await;
    let daemon = patient(&oracle, &[], "drain_timeout = \"30s\"").await;
    let id = daemon.accept(&event("b30-c")).await;
    oracle.wait_for(1, PATIENCE).await;
    daemon.sigterm();
    wait("not ready", async || daemon.readyz().await == 503).await;
    gate.send_replace(true);
    assert_eq!(daemon.ended().await, Some(0));
    daemon.launch().await;
    let status = daemon.status(&id).await;
    assert_eq!((&status["state"], attempts(&status), sends(&oracle)), (&json!("dispatched"), 1, 1));
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_stop_whose_drain_time_is_too_short_stores_the_attempt_as_unknown_and_ends_with_1() {
    let (oracle, _gate) = gated().await;
    let daemon = patient(&oracle, &[], "drain_timeout = \"1s\"").await;
    let id = daemon.accept(&event("b30-b")).await;
    oracle.wait_for(1, PATIENCE).await;
    daemon.sigterm();
    assert_eq!(daemon.ended().await, Some(1));
    daemon.launch().await;
    let last = daemon.log().lines().rfind(|l| l.contains("taken over")).unwrap_or_default().to_owned();
    assert!(last.contains("\"unknown\":0"), "it was stored before the exit: {last}");
    let status = daemon.status(&id).await;
    assert_eq!((&status["state"], sends(&oracle)), (&json!("dispatch_unknown"), 1));
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_stop_with_many_due_rows_begins_nothing_new_and_the_next_start_sends_each_once() {
    const MESSAGES: usize = 100;
    let (oracle, gate) = gated().await;
    let lines = "timeout = \"20s\"\nconcurrency = 2";
    let plan = Plan::new().http_with("probe", &oracle.url(), &[], lines).sms(&["probe"]);
    let daemon = Daemon::start(plan.section("dispatch", "drain_timeout = \"30s\"")).await;
    let events: Vec<Value> = (0..MESSAGES).map(|n| event(&format!("b30-d{n}"))).collect();
    let ids = futures_util::future::join_all(events.iter().map(|event| daemon.accept(event))).await;
    oracle.wait_for(2, PATIENCE).await;
    daemon.sigterm();
    wait("not ready", async || daemon.readyz().await == 503).await;
    gate.send_replace(true);
    assert_eq!(daemon.ended().await, Some(0));
    assert_eq!(sends(&oracle), 2, "only those that were under way");
    daemon.launch().await;
    for id in &ids {
        let status = daemon.wait_for_state(id, "dispatched").await;
        assert_eq!(status["sent"], "yes");
    }
    assert_eq!(sends(&oracle), MESSAGES, "each once");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_still_stores_what_was_under_way() {
    let (oracle, _gate) = gated().await;
    let daemon = patient(&oracle, &[], "drain_timeout = \"30s\"").await;
    let id = daemon.accept(&event("b30-e")).await;
    oracle.wait_for(1, PATIENCE).await;
    daemon.sigterm();
    wait("not ready", async || daemon.readyz().await == 503).await;
    let since = Instant::now();
    daemon.sigterm();
    assert_eq!(daemon.ended().await, Some(1));
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    daemon.launch().await;
    assert_eq!((&daemon.status(&id).await["state"], sends(&oracle)), (&json!("dispatch_unknown"), 1));
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_stop_during_a_back_off_ends_soon_with_0_and_the_message_goes_out_afterwards() {
    let replies = [Reply::json(429, "{}").header("Retry-After", "8"), Reply::json(201, r#"{"id":"m1"}"#)];
    let oracle = HttpOracle::start().await;
    oracle.play(replies);
    let daemon = patient(&oracle, &[], "drain_timeout = \"30s\"").await;
    let id = daemon.accept(&event("b30-f")).await;
    daemon.wait_for_state(&id, "retry_wait").await;
    let since = Instant::now();
    daemon.sigterm();
    assert_eq!(daemon.ended().await, Some(0));
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
    daemon.launch().await;
    let status = daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!((attempts(&status), sends(&oracle)), (2, 2));
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_stop_while_requests_come_in_answers_each_of_them_or_takes_nothing() {
    let oracle = oracle(taken).await;
    let daemon = patient(&oracle, &[], "drain_timeout = \"10s\"").await;
    let events: Vec<Value> = (0..40).map(|n| event(&format!("b30-g{n}"))).collect();
    let posts = events.iter().enumerate().map(|(n, event)| {
        let daemon = &daemon;
        async move {
            tokio::time::sleep(Duration::from_millis(5 * n as u64)).await;
            let key = event["event_id"].as_str();
            daemon.try_call(reqwest::Method::POST, "/v1/notifications", key, Some(event)).await
        }
    });
    let stop = async {
        tokio::time::sleep(Duration::from_millis(80)).await;
        daemon.sigterm();
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(posts), stop);
    assert_eq!(daemon.ended().await, Some(0));
    for answer in answers.iter().flatten() {
        assert!([202, 503].contains(&answer.status), "{answer:?}");
    }
    daemon.launch().await;
    for (event, before) in events.iter().zip(&answers) {
        let answer = daemon.post(event).await;
        assert_eq!(answer.status, 202);
        if let Some(before) = before.as_ref().filter(|before| before.status == 202) {
            assert_eq!(before.text, answer.text);
        }
        daemon.wait_for_state(&answer.id(), "dispatched").await;
    }
    assert_eq!(sends(&oracle), 40);
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_kill_in_the_middle_of_a_stop_leaves_an_unknown_and_no_second_copy() {
    let (oracle, _gate) = gated().await;
    let daemon = patient(&oracle, &[], "drain_timeout = \"30s\"").await;
    let id = daemon.accept(&event("b30-h")).await;
    oracle.wait_for(1, PATIENCE).await;
    daemon.sigterm();
    wait("not ready", async || daemon.readyz().await == 503).await;
    daemon.kill9();
    daemon.launch().await;
    daemon.wait_for_state(&id, "dispatch_unknown").await;
    assert_eq!(sends(&oracle), 1);
    daemon.audit_closes().await;
}
