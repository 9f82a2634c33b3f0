//! What an answered request is worth.

use super::*;
use crate::support::daemon::{event, short_event, wait};
use crate::support::port::refusing;

#[tokio::test]
async fn twenty_concurrent_posts_of_one_event_get_one_answer_and_send_once() {
    let oracle = oracle(taken).await;
    let daemon = daemon(&oracle, &[]).await;
    let event = event("b01-a");
    let answers = futures_util::future::join_all((0..20).map(|_| daemon.post(&event))).await;
    for answer in &answers {
        assert_eq!((answer.status, &answer.text), (202, &answers[0].text));
    }
    let replayed = answers.iter().filter(|a| a.headers.contains_key("idempotency-replayed")).count();
    assert_eq!(replayed, 19, "one was first");
    let status = daemon.wait_for_state(&answers[0].id(), "dispatched").await;
    assert_eq!((attempts(&status), sends(&oracle)), (1, 1));
    let later = daemon.post(&event).await;
    assert_eq!((later.status, &later.text), (202, &answers[0].text), "also when it is finished");
    daemon.audit_closes().await;
    assert_eq!(daemon.audit("&what=accepted").await.len(), 1);
    assert_eq!(sends(&oracle), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_before_the_answer_and_repeats_gets_one_message() {
    let oracle = oracle(taken).await;
    let daemon = daemon(&oracle, &[]).await;
    for n in 0..10 {
        let event = event(&format!("b01-b{n}"));
        drop(daemon.write(&daemon.request(&event)).await);
        let id = daemon.accept(&event).await;
        daemon.wait_for_state(&id, "dispatched").await;
    }
    assert_eq!(sends(&oracle), 10);
    daemon.audit_closes().await;
}

#[tokio::test]
async fn two_keys_for_one_event_at_the_same_moment_both_get_a_definite_answer() {
    let oracle = oracle(taken).await;
    let daemon = daemon(&oracle, &[]).await;
    for n in 0..10 {
        let event = event(&format!("b01-d{n}"));
        let (key_a, key_b) = (format!("a{n}"), format!("b{n}"));
        let (a, b) = tokio::join!(daemon.post_as(&key_a, &event), daemon.post_as(&key_b, &event));
        let mut statuses = [a.status, b.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [202, 409], "{a:?} {b:?}");
        assert_eq!(a.id(), b.id(), "the second is told of the first");
        daemon.wait_for_state(&a.id(), "dispatched").await;
    }
    assert_eq!(sends(&oracle), 10);
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_second_daemon_on_one_file_is_refused_and_the_first_goes_on() {
    let oracle = oracle(taken).await;
    let first = daemon(&oracle, &[]).await;
    let second = first.twin();
    second.spawn();
    assert_eq!(second.ended().await, Some(1), "{}", second.log());
    assert!(second.log().contains("another process"), "{}", second.log());
    let id = first.accept(&event("b05")).await;
    first.wait_for_state(&id, "dispatched").await;
    assert_eq!(sends(&oracle), 1);
    first.audit_closes().await;
}

#[tokio::test]
async fn what_has_expired_or_has_no_sane_expiry_is_refused_at_admission() {
    let oracle = oracle(taken).await;
    let daemon = daemon(&oracle, &[]).await;
    let with = |id: &str, member: &str, value: Value| {
        let mut event = event(id);
        event.as_object_mut().expect("an object").remove("expires_in");
        if !member.is_empty() {
            event[member] = value;
        }
        event
    };
    for (n, (member, value, wanted)) in [
        ("", Value::Null, 400),
        ("expires_at", json!("1970-01-01T00:00:00Z"), 422),
        ("expires_at", json!("9999-12-31T23:59:59Z"), 422),
        ("expires_at", json!("2026-01-01T00:00:00+14:00"), 422),
        ("expires_at", json!("2016-12-31T23:59:60Z"), 422),
        ("expires_at", json!("tomorrow"), 400),
        ("expires_in", json!(0), 400),
        ("expires_in", json!(-5), 400),
        ("expires_in", json!(90_000), 422),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = daemon.post(&with(&format!("b22-e{n}"), member, value.clone())).await;
        let refused = [400, 422].contains(&answer.status);
        assert!(refused, "{member} {value}: {answer:?}");
        assert_eq!(answer.status, wanted, "{member} {value}: {answer:?}");
    }
    assert_eq!(daemon.audit("&what=accepted").await.len(), 0);
    assert_eq!(sends(&oracle), 0);
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_newer_event_of_the_same_user_takes_the_place_of_one_that_still_waits() {
    let down = format!("http://{}", refusing());
    let plan = Plan::new().http("probe", &down, &[]).sms(&["probe"]);
    let daemon = Daemon::start(plan.section("dispatch", "max_attempts = 20")).await;
    let mut events = [short_event("b22-f1", 600), short_event("b22-f2", 600)];
    for event in &mut events {
        event["user"] = "user-1".into();
    }
    let old = daemon.accept(&events[0]).await;
    wait("a try", async || attempts(&daemon.status(&old).await) > 0).await;
    let new = daemon.accept(&events[1]).await;
    let status = daemon.wait_for_state(&old, "superseded").await;
    assert_eq!(status["sent"], "no");
    assert_ne!(daemon.status(&new).await["state"], "superseded");
    assert_eq!(daemon.cancel(&new).await.status, 200);
    daemon.wait_for_state(&new, "cancelled").await;
    daemon.audit_closes().await;
}
