//! Answers that were lost: what is done about them, and what is not.

use std::sync::Mutex;

use super::*;
use crate::support::daemon::{event, phone, reference, wait};
use crate::support::http_oracle::post;

#[tokio::test]
async fn silence_and_faults_and_lost_connections_after_a_post_are_unknown_and_are_not_repeated() {
    let oracle = oracle(|seen| match seen.text() {
        t if t.contains(&phone("b07-a")) => Reply::Stall,
        t if t.contains(&phone("b07-b")) => Reply::json(500, r#"{"error":"internal"}"#),
        t if t.contains(&phone("b07-c")) => Reply::json(502, "<html>bad gateway</html>"),
        t if t.contains(&phone("b10-2")) => Reply::Close,
        t if t.contains(&phone("b10-3")) => Reply::Reset,
        _ => taken(seen),
    })
    .await;
    let daemon = daemon(&oracle, &[Strategy::Receipts]).await;
    let mut ids = vec![];
    for (event_id, cause) in [
        ("b07-a", "answer_timeout"),
        ("b07-b", "server_fault"),
        ("b07-c", "server_fault"),
        ("b10-2", "lost_answer"),
        ("b10-3", "lost_answer"),
    ] {
        let id = daemon.accept(&event(event_id)).await;
        let status = daemon.wait_for_state(&id, "dispatch_unknown").await;
        assert_eq!((&status["sent"], &status["cause"]), (&json!("unknown"), &json!(cause)), "{event_id}");
        ids.push(id);
    }
    // Another message passes through the same lane afterwards, so anything that was due has had its turn.
    let last = daemon.accept(&event("b07-last")).await;
    daemon.wait_for_state(&last, "dispatched").await;
    assert_eq!(sends(&oracle), 6, "each was sent once");
    for (seen, id) in oracle.requests().iter().zip(&ids) {
        let receipt = daemon.receipt("probe", &json!({ "ref": reference(seen), "status": "delivered" }));
        assert_eq!(post(&receipt).await, 200);
        let status = daemon.wait_for_state(id, "dispatched").await;
        assert_eq!((&status["sent"], &status["delivery"]), (&json!("yes"), &json!("delivered")));
        let records = daemon.audit(&format!("&notification={id}")).await;
        assert_eq!(post(&receipt).await, 200, "the same once more");
        assert_eq!(daemon.status(id).await, status, "and nothing changes");
        assert_eq!(daemon.audit(&format!("&notification={id}")).await, records);
    }
    let stranger = daemon.receipt("probe", &json!({ "id": "nobody", "status": "delivered" }));
    assert_eq!((post(&stranger).await, post(&stranger).await), (200, 200));
    assert_eq!(sends(&oracle), 6);
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_daemon_that_is_paused_during_a_submit_keeps_the_true_result_and_sends_once() {
    let (oracle, gate) = gated().await;
    let daemon = patient(&oracle, &[], "start_by = \"1s\"").await;
    let id = daemon.accept(&event("b06")).await;
    oracle.wait_for(1, PATIENCE).await;
    daemon.sigstop();
    gate.send_replace(true);
    // Longer than a claim has to begin and than several sweeps.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    daemon.sigcont();
    let status = daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!((attempts(&status), sends(&oracle)), (1, 1));
    assert_eq!(status["attempts"][0]["message_id"], "m1");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_daemon_that_is_paused_past_the_providers_time_out_never_sends_again() {
    let (oracle, gate) = gated().await;
    let daemon = daemon(&oracle, &[]).await;
    let id = daemon.accept(&event("b06-late")).await;
    oracle.wait_for(1, PATIENCE).await;
    daemon.sigstop();
    gate.send_replace(true);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    daemon.sigcont();
    let over = |s: &Value| ["dispatched", "dispatch_unknown"].contains(&s["state"].as_str().unwrap_or_default());
    daemon.wait_until(&id, "over", over).await;
    let next = daemon.accept(&event("b06-next")).await;
    daemon.wait_for_state(&next, "dispatched").await;
    assert_eq!(sends(&oracle), 2, "one of each");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_look_up_that_finds_the_message_settles_it_without_a_second_send() {
    let sent = Mutex::new(vec![]);
    let oracle = oracle(move |seen| {
        let mut sent = sent.lock().expect("not poisoned");
        if seen.method == "POST" {
            sent.push(json!({ "ref": reference(seen), "id": "m7" }));
            return Reply::Close;
        }
        Reply::json(200, json!({ "messages": *sent }))
    })
    .await;
    let daemon = daemon(&oracle, &[Strategy::Lookup]).await;
    let id = daemon.accept(&event("lookup-hit")).await;
    let status = daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!((&status["sent"], sends(&oracle)), (&json!("yes"), 1));
    let evidence = daemon.records(&id, "evidence").await;
    assert_eq!(
        (codes(&evidence, "source"), codes(&evidence, "reason")),
        (vec!["lookup".into()], vec!["lookup_found".into()])
    );
    assert_eq!(evidence[0]["message_id"], "m7");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn two_look_ups_that_miss_authorise_one_resend_and_the_log_says_so() {
    let first = Mutex::new(true);
    let oracle = oracle(move |seen| match seen.method.as_str() {
        "GET" => Reply::json(200, json!({ "messages": [] })),
        _ if std::mem::take(&mut *first.lock().expect("not poisoned")) => Reply::Close,
        _ => taken(seen),
    })
    .await;
    let daemon = daemon(&oracle, &[Strategy::Lookup]).await;
    let id = daemon.accept(&event("lookup-miss")).await;
    let status = daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!((attempts(&status), sends(&oracle)), (2, 2));
    let order: Vec<String> = oracle.requests().into_iter().map(|seen| seen.method).collect();
    // A look-up before the provider's lag is over counts for nothing.
    let asked = order.iter().filter(|method| *method == "GET").count();
    assert!(asked >= 2 && order.len() == asked + 2, "{order:?}");
    assert_eq!((order[0].as_str(), order[asked + 1].as_str()), ("POST", "POST"), "only after two misses: {order:?}");
    let requests = oracle.requests();
    assert_ne!(reference(&requests[0]), reference(&requests[asked + 1]), "an attempt has a reference of its own");
    let evidence = daemon.records(&id, "evidence").await;
    assert_eq!(codes(&evidence, "source"), ["lookup"], "{evidence:?}");
    assert_eq!(codes(&evidence, "from"), ["dispatch_unknown"]);
    assert_eq!(codes(&evidence, "to"), ["retry_wait"]);
    assert_eq!(daemon.records(&id, "attempt_begun").await.len(), 2, "two sends were authorised");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_provider_that_dedupes_gets_the_same_bytes_under_the_same_key() {
    let first = Mutex::new(true);
    let oracle = oracle(move |_| match std::mem::take(&mut *first.lock().expect("not poisoned")) {
        true => Reply::Close,
        false => Reply::json(200, json!({ "id": "m9" })),
    })
    .await;
    let daemon = daemon(&oracle, &[Strategy::Dedupe]).await;
    let id = daemon.accept(&event("dedupe")).await;
    let status = daemon.wait_for_state(&id, "dispatched").await;
    let requests = oracle.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].body, requests[1].body, "byte for byte");
    assert_eq!(requests[0].path, requests[1].path);
    let key = |n: usize| requests[n].header("idempotency-key").map(str::to_owned);
    assert!(key(0).is_some() && key(0) == key(1), "{:?} {:?}", key(0), key(1));
    assert_eq!(status["attempts"][1]["probe"], true, "{status}");
    assert_eq!(codes(&daemon.records(&id, "probe_ended").await, "reason"), ["first_stands"]);
    daemon.audit_closes().await;
}

#[tokio::test]
async fn an_operator_settles_one_and_many_and_the_log_names_who_and_why() {
    let lost = std::sync::Arc::new(Mutex::new(true));
    let script = lost.clone();
    let oracle =
        oracle(move |seen| if *script.lock().expect("not poisoned") { Reply::Close } else { taken(seen) }).await;
    let daemon = daemon(&oracle, &[]).await;
    let mut ids = vec![];
    for n in 0..5 {
        let id = daemon.accept(&event(&format!("operator-{n}"))).await;
        daemon.wait_for_state(&id, "dispatch_unknown").await;
        ids.push(id);
    }
    let unknowns = async || {
        let page = daemon.call(reqwest::Method::GET, "/v1/unknown?provider=probe", None).await.json();
        page["items"].as_array().cloned().unwrap_or_default()
    };
    let listed = unknowns().await;
    assert_eq!(codes(&listed, "id"), ids, "oldest first");
    assert!(listed.iter().all(|item| item["waiting_for"] == "operator"), "{listed:?}");
    assert_eq!(daemon.resolve(&ids[0], "sent", "OPS-1").await.status, 200);
    assert_eq!(daemon.status(&ids[0]).await["state"], "dispatched");
    assert_eq!(daemon.resolve(&ids[0], "not_sent", "OPS-1").await.status, 409, "it is settled");
    assert_eq!(daemon.resolve(&ids[1], "abandon", "OPS-2").await.status, 200);
    assert_eq!((sends(&oracle), unknowns().await.len()), (5, 3), "nothing was sent for it");
    *lost.lock().expect("not poisoned") = false;
    let many = json!({ "verdict": "not_sent", "ticket": "OPS-3", "provider": "probe", "cause": "lost_answer" });
    let answer = daemon.call(reqwest::Method::POST, "/v1/unknown/resolve", Some(&many)).await;
    assert_eq!((answer.status, &answer.json()["resolved"]), (200, &json!(3)), "{answer:?}");
    for id in &ids[2..] {
        let status = daemon.wait_for_state(id, "dispatched").await;
        assert_eq!(attempts(&status), 2);
    }
    assert_eq!(sends(&oracle), 8);
    for (n, ticket) in [(0, "OPS-1"), (1, "OPS-2"), (2, "OPS-3"), (4, "OPS-3")] {
        let records = daemon.audit(&format!("&notification={}", ids[n])).await;
        let said: Vec<&Value> = records.iter().filter(|r| r["source"] == "operator").collect();
        assert_eq!(said.len(), 1, "{records:?}");
        assert_eq!(said[0]["ticket"], ticket);
        let actor = said[0]["actor"].as_str().unwrap_or_default();
        assert!(actor.strip_prefix("key:").is_some_and(|id| daemon.key().contains(id)), "{actor}");
    }
    wait("an empty queue", async || unknowns().await.is_empty()).await;
    daemon.audit_closes().await;
}
