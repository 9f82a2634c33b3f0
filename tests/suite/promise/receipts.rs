//! Receipts, whenever and in whatever order they come.

use std::sync::{Arc, OnceLock};

use super::*;
use crate::support::daemon::{RECEIPT_SECRET, event, reference, wait};
use crate::support::http_oracle::{Post, post};

/// A script that knows where the daemon is once it has been started.
type Place = Arc<OnceLock<String>>;

fn receipt_to(place: &Place, fields: &Value) -> Post {
    let base = place.get().map(String::as_str).unwrap_or_default();
    let url = format!("{base}/v1/receipts/probe?key={RECEIPT_SECRET}");
    Post { url, headers: vec![], body: fields.to_string().into_bytes() }
}

async fn with_receipts(script: impl Fn(&Place, &Seen) -> Reply + Send + Sync + 'static) -> (HttpOracle, Daemon) {
    with(Strategy::Receipts, script).await
}

async fn with(
    strategy: Strategy,
    script: impl Fn(&Place, &Seen) -> Reply + Send + Sync + 'static,
) -> (HttpOracle, Daemon) {
    let place = Place::default();
    let known = place.clone();
    let oracle = oracle(move |seen| script(&known, seen)).await;
    let daemon = daemon(&oracle, &[strategy]).await;
    place.set(daemon.url()).expect("set once");
    (oracle, daemon)
}

#[tokio::test]
async fn a_receipt_that_comes_before_the_submits_answer_counts_and_is_not_overwritten() {
    let (oracle, daemon) = with_receipts(|place, seen| {
        let fields = json!({ "ref": reference(seen), "status": "delivered" });
        Reply::json(201, json!({ "id": "m-early" })).after_receipt(receipt_to(place, &fields))
    })
    .await;
    let id = daemon.accept(&event("b17-before")).await;
    let answered = |s: &Value| s["delivery"] == "delivered" && !s["attempts"][0]["ended_at"].is_null();
    let status = daemon.wait_until(&id, "delivered", answered).await;
    assert_eq!((&status["state"], &status["sent"], sends(&oracle)), (&json!("dispatched"), &json!("yes"), 1));
    assert_eq!(oracle.receipt_answers(), [200]);
    let attempt = &status["attempts"][0];
    assert_eq!((&attempt["outcome"], &attempt["message_id"]), (&json!("accepted"), &json!("m-early")));
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_receipt_by_the_providers_id_alone_waits_for_the_answer_that_names_it() {
    let (oracle, daemon) = with(Strategy::ReceiptsById, |place, _| {
        let fields = json!({ "id": "m-by-id", "status": "delivered", "part": 1, "parts": 2 });
        Reply::json(201, json!({ "id": "m-by-id" })).after_receipt(receipt_to(place, &fields))
    })
    .await;
    let id = daemon.accept(&event("b17-id")).await;
    daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!(oracle.receipt_answers(), [200]);
    let second = json!({ "id": "m-by-id", "status": "delivered", "part": 2, "parts": 2 });
    assert_eq!(post(&daemon.receipt("probe", &second)).await, 200);
    let status = daemon.status(&id).await;
    assert_eq!((&status["delivery"], sends(&oracle)), (&json!("delivered"), 1), "both parts count: {status}");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_receipt_while_the_submit_is_timing_out_proves_that_it_went_out() {
    let (oracle, daemon) = with_receipts(|place, seen| {
        let fields = json!({ "ref": reference(seen), "status": "sent" });
        Reply::Stall.after_receipt(receipt_to(place, &fields))
    })
    .await;
    let id = daemon.accept(&event("b17-timing-out")).await;
    daemon.wait_for_state(&id, "dispatched").await;
    let timed_out = "sendonce_attempts_total{provider=\"probe\",result=\"unknown\"} 1";
    wait("the time-out", async || daemon.metrics().await.contains(timed_out)).await;
    let next = daemon.accept(&event("b17-next")).await;
    oracle.wait_for(2, PATIENCE).await;
    daemon.wait_for_state(&next, "dispatched").await;
    let status = daemon.status(&id).await;
    assert_eq!(status["state"], "dispatched");
    assert_eq!((&status["sent"], &status["delivery"], sends(&oracle)), (&json!("yes"), &json!("none"), 2));
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_receipt_after_the_daemon_was_killed_during_the_submit_settles_it() {
    let (oracle, daemon) = with_receipts(|_, _| Reply::Stall).await;
    let id = daemon.accept(&event("b17-killed")).await;
    let seen = oracle.wait_for(1, PATIENCE).await;
    daemon.restart().await;
    daemon.wait_for_state(&id, "dispatch_unknown").await;
    let receipt = daemon.receipt("probe", &json!({ "ref": reference(&seen[0]), "id": "m1", "status": "delivered" }));
    assert_eq!(post(&receipt).await, 200);
    let status = daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!((&status["sent"], &status["delivery"], sends(&oracle)), (&json!("yes"), &json!("delivered"), 1));
    daemon.audit_closes().await;
}

#[tokio::test]
async fn every_order_of_receipts_shows_the_same_in_the_end() {
    let (oracle, daemon) = with_receipts(|_, seen| taken(seen)).await;
    let one = |status: &str| json!({ "status": status });
    let part = |status: &str, part: u8| json!({ "status": status, "part": part, "parts": 2 });
    let cases = [
        (vec![one("delivered"), one("sent"), one("delivered"), one("failed")], "delivered"),
        (vec![one("failed"), one("sent"), one("delivered")], "delivered"),
        (vec![one("sent"), one("failed")], "undelivered"),
        (vec![part("delivered", 1), part("failed", 2)], "undelivered"),
        (vec![part("delivered", 1), part("delivered", 2)], "delivered"),
        (vec![part("delivered", 2)], "none"),
    ];
    let mut n = 0;
    for (receipts, wanted) in cases {
        for backwards in [false, true] {
            let id = daemon.accept(&event(&format!("b18-{n}"))).await;
            daemon.wait_for_state(&id, "dispatched").await;
            let seen = oracle.requests();
            let seen = seen.last().expect("a request");
            let mut receipts = receipts.clone();
            if backwards {
                receipts.reverse();
            }
            for mut fields in receipts.clone() {
                fields["ref"] = reference(seen).into();
                assert_eq!(post(&daemon.receipt("probe", &fields)).await, 200);
            }
            let status = daemon.status(&id).await;
            assert_eq!((&status["state"], &status["delivery"]), (&json!("dispatched"), &json!(wanted)), "{receipts:?}");
            n += 1;
        }
    }
    assert_eq!(sends(&oracle), n);
    daemon.audit_closes().await;
}

#[tokio::test]
async fn two_hundred_copies_of_one_receipt_at_once_are_one_fact() {
    let (oracle, daemon) = with_receipts(|_, seen| taken(seen)).await;
    let id = daemon.accept(&event("b18-copies")).await;
    daemon.wait_for_state(&id, "dispatched").await;
    let fields = json!({ "ref": reference(&oracle.requests()[0]), "id": "m1", "status": "delivered" });
    let receipt = daemon.receipt("probe", &fields);
    let answers = futures_util::future::join_all((0..200).map(|_| post(&receipt))).await;
    assert!(answers.iter().all(|status| *status == 200), "{answers:?}");
    assert_eq!(daemon.records(&id, "receipt").await.len(), 1);
    assert_eq!((&daemon.status(&id).await["delivery"], sends(&oracle)), (&json!("delivered"), 1));
    let forged = Post { url: receipt.url.replace(RECEIPT_SECRET, "guess"), ..receipt };
    assert_eq!(post(&forged).await, 401);
    daemon.audit_closes().await;
}
