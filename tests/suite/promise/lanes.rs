//! Providers that are down, misconfigured or slow, and those beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::*;
use crate::support::daemon::{event, phone, short_event, wait};
use crate::support::port::refusing;

#[tokio::test]
async fn while_our_credentials_are_refused_every_message_waits_and_then_goes_out_once() {
    const MESSAGES: usize = 40;
    let fault = Arc::new(AtomicU64::new(401));
    let told = fault.clone();
    let oracle = oracle(move |seen| match told.load(Ordering::SeqCst) {
        0 => taken(seen),
        status => Reply::json(u16::try_from(status).unwrap_or(500), r#"{"error":"account"}"#),
    })
    .await;
    let lines = "timeout = \"1s\"\nbreaker = { failures = 2, open_for = \"1s\" }";
    let daemon = Daemon::start(Plan::new().http_with("probe", &oracle.url(), &[], lines).sms(&["probe"])).await;
    let events: Vec<Value> = (0..MESSAGES).map(|n| event(&format!("b13-{n}"))).collect();
    let ids = futures_util::future::join_all(events.iter().map(|event| daemon.accept(event))).await;
    for status in [401, 403, 402] {
        fault.store(status, Ordering::SeqCst);
        let before = sends(&oracle);
        wait("a probe", async || sends(&oracle) > before).await;
    }
    for id in &ids {
        let state = daemon.status(id).await["state"].clone();
        assert!(state == "accepted" || state == "retry_wait" || state == "dispatching", "{state}");
    }
    assert!(sends(&oracle) < 60, "{} calls: not one for each message and try", sends(&oracle));
    let refused = sends(&oracle);
    fault.store(0, Ordering::SeqCst);
    for id in &ids {
        daemon.wait_for_state(id, "dispatched").await;
    }
    for event in &events {
        let number = phone(event["event_id"].as_str().unwrap_or_default());
        assert!(oracle.count(&number) >= 1, "{number}");
    }
    let ended = daemon.audit("&what=attempt_ended").await;
    let accepted = ended.iter().filter(|record| record["outcome"] == "accepted").count();
    assert_eq!(accepted, MESSAGES, "each once");
    let more = sends(&oracle) - refused;
    assert!((MESSAGES..=MESSAGES + 8).contains(&more), "{more} calls after the fault");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn success_is_what_the_manifest_calls_so_and_an_unreadable_body_is_no_reason_to_repeat() {
    let answers = [
        ("b15-200", Reply::json(200, r#"{"id":"m1"}"#), "dispatched", "accepted"),
        ("b15-201", Reply::json(201, r#"{"id":"m2"}"#), "dispatched", "accepted"),
        ("b15-202", Reply::json(202, r#"{"id":"m3"}"#), "dispatched", "accepted"),
        ("b15-204", Reply::status(204), "dispatched", "accepted"),
        ("b15-299", Reply::status(299), "dispatched", "accepted"),
        ("b15-broken", Reply::json(202, r#"{"id":"#), "dispatched", "accepted"),
        ("b15-no-id", Reply::json(202, "{}"), "dispatched", "accepted"),
        ("b15-number", Reply::json(202, r#"{"error":"bad_number"}"#), "failed", "refused.message"),
        ("b15-400", Reply::json(400, "{}"), "failed", "refused.message"),
        ("b15-418", Reply::json(418, "{}"), "dispatch_unknown", "unknown"),
        ("b15-half", Reply::Raw(b"HTTP/1.1 2".to_vec()), "dispatch_unknown", "unknown"),
    ];
    let replies: Vec<(String, Reply)> = answers.iter().map(|(id, reply, ..)| (phone(id), reply.clone())).collect();
    let oracle = oracle(move |seen| {
        let reply = replies.iter().find(|(number, _)| seen.contains(number));
        reply.map_or(Reply::Close, |(_, reply)| reply.clone())
    })
    .await;
    let daemon = daemon(&oracle, &[]).await;
    for (event_id, _, state, outcome) in &answers {
        let id = daemon.accept(&event(event_id)).await;
        let status = daemon.wait_for_state(&id, state).await;
        assert_eq!(status["attempts"][0]["outcome"], *outcome, "{event_id}: {status}");
        assert_eq!(attempts(&status), 1, "{event_id}");
    }
    assert_eq!(sends(&oracle), answers.len());
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_message_whose_provider_is_down_past_its_expiry_expires_and_is_never_sent() {
    let oracle = HttpOracle::start().await;
    let down = format!("http://{}", refusing());
    let plan = Plan::new().http("probe", &down, &[]).http("other", &oracle.url(), &[]).sms(&["probe"]);
    let daemon = Daemon::start(plan.section("dispatch", "max_attempts = 20")).await;
    let id = daemon.accept(&short_event("b22-a", 2)).await;
    let status = daemon.wait_until(&id, "over", |s| !s["finished_at"].is_null()).await;
    assert_eq!((&status["state"], &status["sent"]), (&json!("expired"), &json!("no")), "{status}");
    for attempt in status["attempts"].as_array().expect("a list") {
        assert!(["not_sent", "never_began"].contains(&attempt["outcome"].as_str().unwrap_or_default()), "{attempt}");
    }
    assert_eq!(sends(&oracle), 0);
    daemon.audit_closes().await;
}

#[tokio::test]
async fn expired_rows_of_a_restart_are_cleared_without_a_send_and_hold_up_nothing() {
    const OLD: usize = 500;
    let oracle = oracle(|seen| if seen.contains(&phone("b22-gate")) { Reply::status(401) } else { taken(seen) }).await;
    let lines = "timeout = \"1s\"\nbreaker = { failures = 1, open_for = \"20s\" }";
    let daemon = Daemon::start(Plan::new().http_with("probe", &oracle.url(), &[], lines).sms(&["probe"])).await;
    // One refusal of our account closes the lane, so that the others wait in the queue.
    let gate = daemon.accept(&short_event("b22-gate", 4)).await;
    wait("the refusal", async || attempts(&daemon.status(&gate).await) > 0 && sends(&oracle) > 0).await;
    wait("its record", async || !daemon.records(&gate, "attempt_ended").await.is_empty()).await;
    let events: Vec<Value> = (0..OLD).map(|n| short_event(&format!("b22-g{n}"), 4)).collect();
    let ids = futures_util::future::join_all(events.iter().map(|event| daemon.accept(event))).await;
    let admitted = Instant::now();
    let before = sends(&oracle);
    daemon.kill9();
    // The life time of the messages passes while nothing runs.
    tokio::time::sleep((Duration::from_secs(5)).saturating_sub(admitted.elapsed())).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    daemon.launch().await;
    let fresh = daemon.accept(&event("b22-fresh")).await;
    let since = Instant::now();
    daemon.wait_for_state(&fresh, "dispatched").await;
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    for id in ids.iter().chain([&gate]) {
        let status = daemon.wait_for_state(id, "expired").await;
        assert_eq!(status["sent"], "no");
    }
    assert_eq!(sends(&oracle), before + 1, "only the fresh one");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn providers_that_hang_or_refuse_do_not_hold_up_the_messages_of_another() {
    let hanging = oracle(|_| Reply::Stall).await;
    let down = format!("http://{}", refusing());
    let good = oracle(taken).await;
    let plan = Plan::new()
        .http_with("hanging", &hanging.url(), &[], "timeout = \"30s\"\nconcurrency = 4")
        .http("down", &down, &[])
        .http("good", &good.url(), &[])
        .section("routes", "sms = [\"good\"]\nrule = [ { countries = [\"VN\"], sms = [\"hanging\"] }, { countries = [\"US\"], sms = [\"down\"] } ]");
    let daemon = Daemon::start(plan).await;
    let to = |id: String, number: String| {
        let mut event = event(&id);
        event["to"] = json!([{ "sms": number }]);
        event
    };
    let mut others = vec![];
    for n in 0..60 {
        others.push(to(format!("b32-h{n}"), format!("+849012345{:02}", n % 100)));
        others.push(to(format!("b32-d{n}"), format!("+120255501{:02}", n % 100)));
    }
    let accepted = futures_util::future::join_all(others.iter().map(|event| daemon.accept(event))).await;
    assert_eq!(accepted.len(), 120);
    hanging.wait_for(4, PATIENCE).await;
    let since = Instant::now();
    let fresh: Vec<Value> = (0..10).map(|n| event(&format!("b32-fresh{n}"))).collect();
    let ids = futures_util::future::join_all(fresh.iter().map(|event| daemon.accept(event))).await;
    good.wait_for(10, Duration::from_secs(10)).await;
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    for id in &ids {
        daemon.wait_for_state(id, "dispatched").await;
    }
    assert_eq!((sends(&good), sends(&hanging)), (10, 4), "the hanging one keeps to its four places");
    daemon.audit_closes().await;
}
