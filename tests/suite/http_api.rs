//! The contract of the HTTP interface, on a real socket over a real ledger.

use std::time::Duration;

use sendonce::domain::outcome::{Outcome, Reason};
use serde_json::{Value, json};

use crate::support::api::App;

fn event(id: &str) -> Value {
    json!({
        "event_id": id, "kind": "password_reset", "to": {"sms": "+84901234567"},
        "locale": "vi", "data": {"code": "493021"}, "user": id, "expires_in": 600,
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut body = event("e-1");
    body[field] = value;
    body
}

/// Posts an event and returns its path.
async fn accepted(app: &App, name: &str) -> String {
    let answer = app.event(name, &event(name)).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    answer.header("location").to_owned()
}

#[tokio::test]
async fn an_event_is_taken_once_and_a_repeat_gets_the_same_bytes() {
    let app = App::start().await;
    let first = app.event("\"k-1\"", &event("e-1")).await;
    assert_eq!(first.status, 202, "{}", first.text);
    assert_eq!(first.json()["state"], "accepted");
    assert_eq!(first.header("location"), first.json()["status_url"]);
    assert_eq!(first.header("idempotency-replayed"), "");
    app.attempt(Outcome::accepted(None)).await;
    let again = app.event("k-1", &event("e-1")).await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (202, "true"));
    assert_eq!(again.text, first.text);
    // Long after it has expired, a repeat with the time as it was sent is still recognised.
    app.clock.advance(Duration::from_secs(3600));
    assert_eq!(app.event("k-1", &event("e-1")).await.text, first.text);
}

#[tokio::test]
async fn concurrent_repeats_are_one_event() {
    let app = App::start().await;
    let body = event("e-1");
    let answers = futures_util::future::join_all((0..16).map(|_| app.event("k-1", &body))).await;
    let new = answers.iter().filter(|a| a.header("idempotency-replayed").is_empty()).count();
    assert_eq!(new, 1);
    assert!(answers.iter().all(|a| a.status == 202 && a.text == answers[0].text));
}

#[tokio::test]
async fn a_key_or_an_event_that_stands_for_something_else_is_refused() {
    let app = App::start().await;
    let first = app.event("k-1", &event("e-1")).await;
    let reused = app.event("k-1", &with("expires_in", json!(601))).await;
    assert_eq!((reused.status, reused.problem().as_str()), (422, "idempotency-key-reused"));
    let taken = app.event("k-2", &event("e-1")).await;
    assert_eq!((taken.status, taken.problem().as_str()), (409, "event-already-accepted"));
    assert_eq!(taken.json()["id"], first.json()["id"]);
    assert_eq!(taken.json()["status_url"], first.json()["status_url"]);
}

#[tokio::test]
async fn a_repeat_is_recognised_before_it_is_judged() {
    let app = App::start().await;
    let mut body = with("expires_at", json!("2026-11-29T12:05:00Z"));
    body.as_object_mut().expect("an object").remove("expires_in");
    let first = app.event("k-1", &body).await;
    assert_eq!(first.status, 202, "{}", first.text);
    app.clock.advance(Duration::from_secs(600));
    let again = app.event("k-1", &body).await;
    assert_eq!((again.status, again.text), (202, first.text));
    body["event_id"] = json!("e-2");
    let other = app.event("k-1", &body).await;
    assert_eq!((other.status, other.problem().as_str()), (422, "idempotency-key-reused"));
    let new = app.event("k-2", &body).await;
    assert_eq!((new.status, new.problem().as_str()), (422, "already-expired"));
}

#[tokio::test]
async fn refusals_name_the_field_and_echo_nothing() {
    let app = App::start().await;
    let table = [
        (with("event_id", json!("reset-493021")), 400, "bad-request", "event_id"),
        (with("colour", json!("493021")), 400, "bad-request", "colour"),
        (with("data", json!({"code": "49\u{0}3021"})), 400, "bad-request", "a member of data"),
        (with("kind", json!("unheard_of")), 422, "unknown-kind", "kind"),
        (with("data", json!({"code": "493 021"})), 422, "data-mismatch", "data.code"),
        (with("data", json!({})), 422, "data-mismatch", "data"),
        (with("to", json!({"sms": "0901234567"})), 422, "bad-address", "to[0].sms"),
        (with("to", json!({"email": "user@example.org"})), 422, "no-route", "to"),
        (with("to", json!({"sms": "+14155550123"})), 403, "country-not-allowed", "to[0].sms"),
        (with("expires_in", json!(86_401)), 422, "expiry-too-late", "expires_in"),
    ];
    for (body, status, problem, field) in table {
        let answer = app.event("k-1", &body).await;
        assert_eq!((answer.status, answer.problem().as_str()), (status, problem), "{body}");
        assert_eq!(answer.json()["field"], field, "{body}");
        for secret in ["493021", "493 021", "901234567", "4155550123", "example.org"] {
            assert!(!answer.text.contains(secret), "{}", answer.text);
        }
    }
    // None of them used the key up.
    assert_eq!(app.event("k-1", &event("e-1")).await.status, 202);
}

#[tokio::test]
async fn a_request_must_be_whole_and_allowed() {
    let app = App::start().await;
    let body = event("e-1").to_string();
    let post = |key: &str| app.request("POST", "/v1/notifications", key).body(body.clone());
    let json_post = |key: &str| post(key).header("content-type", "application/json");
    let table = [
        (json_post("nobody"), 401, "unauthorized"),
        (json_post("shop-auditor"), 403, "role-missing"),
        (post("shop-sender").header("idempotency-key", "k"), 415, "unsupported-media-type"),
        (json_post("shop-sender"), 400, "idempotency-key-missing"),
        (
            json_post("shop-sender").header("idempotency-key", "k").header("idempotency-key", "k"),
            400,
            "idempotency-key-malformed",
        ),
        (json_post("shop-sender").header("idempotency-key", "k-493021"), 400, "bad-request"),
        (json_post("shop-sender").header("idempotency-key", "k").body(" ".repeat(8193)), 413, "body-too-large"),
        (json_post("shop-sender").header("idempotency-key", "k").body("{\"kind\":1,\"kind\":2}"), 400, "bad-request"),
        (app.request("PUT", "/v1/notifications", "shop-sender"), 405, "method-not-allowed"),
        (app.request("GET", "/v2", "shop-sender"), 404, "not-found"),
    ];
    for (request, status, problem) in table {
        let answer = app.send(request).await;
        assert_eq!((answer.status, answer.problem().as_str()), (status, problem), "{}", answer.text);
        assert!(!answer.header("x-request-id").is_empty());
    }
}

#[tokio::test]
async fn a_limit_refuses_until_its_time_and_uses_no_key_up() {
    let app = App::start().await;
    for name in ["e-1", "e-2"] {
        accepted(&app, name).await;
    }
    let limited = app.event("e-3", &event("e-3")).await;
    assert_eq!((limited.status, limited.problem().as_str()), (429, "recipient-limit-reached"));
    let wait: u64 = limited.header("retry-after").parse().expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(app.event("e-1", &event("e-1")).await.status, 202, "a repeat is no new message");
    app.clock.advance(Duration::from_secs(wait));
    assert_eq!(app.event("e-3", &event("e-3")).await.status, 202);
}

#[tokio::test]
async fn a_status_tells_the_attempts_and_no_secret() {
    let app = App::start().await;
    let path = accepted(&app, "e-1").await;
    app.attempt(Outcome::unknown(Reason::LostAnswer)).await;
    let status = app.get(&path, "shop-auditor").await;
    let json = status.json();
    assert_eq!((&json["state"], &json["sent"]), (&json!("dispatch_unknown"), &json!("unknown")), "{}", status.text);
    assert_eq!((&json["waiting_for"], &json["cause"]), (&json!("operator"), &json!("lost_answer")), "{}", status.text);
    assert_eq!(json["to"], json!(["+84•••••567"]));
    assert_eq!(json["attempts"][0]["outcome"], "unknown");
    assert_eq!(json["attempts"][0]["provider"], "stub");
    assert!(!status.text.contains("493021") && !status.text.contains("901234"), "{}", status.text);
    for query in ["event_id=e-1", "idempotency_key=e-1"] {
        assert_eq!(app.get(&format!("/v1/notifications?{query}"), "shop-sender").await.text, status.text);
    }
    let tag = status.header("etag").to_owned();
    let same = app.send(app.request("GET", &path, "shop-sender").header("if-none-match", tag)).await;
    assert_eq!((same.status, same.text.as_str()), (304, ""));
    assert_eq!(app.get("/v1/notifications", "shop-sender").await.status, 400);
}

#[tokio::test]
async fn another_tenants_rows_are_not_there() {
    let app = App::start().await;
    let path = accepted(&app, "e-1").await;
    for missing in [app.get(&path, "bank-sender").await, app.get("/v1/notifications?event_id=e-1", "bank-sender").await]
    {
        assert_eq!((missing.status, missing.problem().as_str()), (404, "not-found"));
    }
    let cancel = app.post(&format!("{path}/cancel"), "bank-sender", &json!({})).await;
    assert_eq!(cancel.status, 404);
    let verdict = json!({"verdict": "sent", "ticket": "OPS-1"});
    assert_eq!(app.post(&format!("{path}/resolve"), "bank-operator", &verdict).await.status, 404);
    assert!(!app.get("/v1/audit", "bank-auditor").await.text.contains("e-1"));
}

#[tokio::test]
async fn every_route_asks_for_its_roles_before_it_reads_anything() {
    let app = App::start().await;
    let path = accepted(&app, "e-1").await;
    let (cancel, resolve) = (format!("{path}/cancel"), format!("{path}/resolve"));
    let verdict = json!({"verdict": "sent", "ticket": "OPS-1", "provider": "stub"});
    let routes: [(&str, &str, &[&str]); 9] = [
        ("POST", "/v1/notifications", &["sender"]),
        ("GET", path.as_str(), &["sender", "auditor", "operator"]),
        ("GET", "/v1/notifications?event_id=e-1", &["sender", "auditor", "operator"]),
        ("GET", "/v1/unknown", &["operator"]),
        ("GET", "/v1/audit", &["auditor"]),
        ("GET", "/v1/audit/account", &["auditor", "operator"]),
        ("POST", "/v1/unknown/resolve", &["operator"]),
        ("POST", resolve.as_str(), &["operator"]),
        ("POST", cancel.as_str(), &["sender", "operator"]),
    ];
    for (method, path, allowed) in routes {
        for role in ["sender", "auditor", "operator"] {
            let key = format!("shop-{role}");
            let answer = if method == "GET" { app.get(path, &key).await } else { app.post(path, &key, &verdict).await };
            assert_eq!(answer.status != 403, allowed.contains(&role), "{method} {path} {role}: {}", answer.text);
        }
        for nobody in ["shop-root", "x"] {
            let answer =
                if method == "GET" { app.get(path, nobody).await } else { app.post(path, nobody, &verdict).await };
            assert_eq!((answer.status, answer.problem().as_str()), (401, "unauthorized"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn another_tenant_settles_counts_and_takes_back_nothing() {
    let app = App::start().await;
    let path = accepted(&app, "e-1").await;
    app.attempt(Outcome::unknown(Reason::AnswerTimeout)).await;
    let before = app.get(&path, "shop-sender").await.text;
    let id = path.rsplit('/').next().expect("an id").to_owned();
    let many = json!({"verdict": "not_sent", "ticket": "OPS-1", "provider": "stub"});
    let done = app.post("/v1/unknown/resolve", "bank-operator", &many).await.json();
    assert_eq!((&done["resolved"], &done["more"]), (&json!(0), &json!(false)));
    let one = json!({"verdict": "not_sent", "ticket": "OPS-1"});
    for missing in [
        app.post(&format!("{path}/resolve"), "bank-operator", &one).await,
        app.post(&format!("{path}/cancel"), "bank-sender", &json!({})).await,
        app.get(&format!("{path}?wait=1s"), "bank-sender").await,
        app.get("/v1/notifications?idempotency_key=e-1", "bank-sender").await,
    ] {
        assert_eq!((missing.status, missing.problem().as_str()), (404, "not-found"));
    }
    assert_eq!(app.get("/v1/unknown", "bank-operator").await.json()["items"], json!([]));
    for filter in [format!("notification={id}"), "event_id=e-1".to_owned()] {
        let log = app.get(&format!("/v1/audit?{filter}"), "bank-auditor").await.text;
        assert!(!log.contains("accepted") && !log.contains("attempt"), "only the exports themselves: {log}");
    }
    let ours = app.get("/v1/audit/account", "shop-auditor").await.json();
    let theirs = app.get("/v1/audit/account", "bank-auditor").await.json();
    assert_ne!(ours["counts"], theirs["counts"]);
    assert_eq!(theirs["closes"], true);
    assert_eq!(app.get(&path, "shop-sender").await.text, before);
}

#[tokio::test]
async fn a_long_poll_ends_when_the_state_is_final() {
    let app = App::start().await;
    let path = accepted(&app, "e-1").await;
    let work = app.attempt(Outcome::accepted(None));
    let waiting = format!("{path}?wait=15s");
    let (answer, ()) = tokio::join!(app.get(&waiting, "shop-sender"), work);
    assert_eq!(answer.json()["state"], "dispatched");
}

#[tokio::test]
async fn long_polls_are_bounded_and_end_with_the_server() {
    let app = App::start().await;
    let path = format!("{}?wait=60s", accepted(&app, "e-1").await);
    let polls = [(); 2].map(|()| tokio::spawn(app.request("GET", &path, "shop-sender").send()));
    let full = async {
        while app.waiters.available_permits() > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), full).await.expect("both wait");
    assert_eq!(app.get(&path, "shop-sender").await.problem(), "too-many-waiters");
    assert!(app.stop().await, "what was under way had finished");
    for poll in polls {
        assert_eq!(poll.await.expect("no panic").expect("an answer").status().as_u16(), 200);
    }
}

#[tokio::test]
async fn a_cancel_says_whether_it_came_in_time() {
    let app = App::start().await;
    let path = accepted(&app, "e-1").await;
    let cancel = format!("{path}/cancel");
    assert_eq!(app.post(&cancel, "shop-sender", &json!({})).await.json()["result"], "cancelled");
    assert_eq!(app.post(&cancel, "shop-sender", &json!({})).await.json()["result"], "already_final");
    let path = accepted(&app, "e-2").await;
    app.attempt(Outcome::unknown(Reason::AnswerTimeout)).await;
    let marked = app.post(&format!("{path}/cancel"), "shop-operator", &json!({})).await.json();
    assert_eq!((&marked["result"], &marked["state"]), (&json!("marked"), &json!("dispatch_unknown")));
    assert_eq!(app.get(&path, "shop-sender").await.json()["marks"]["cancel"], true);
}

#[tokio::test]
async fn an_operator_settles_unknowns_one_by_one_and_together() {
    let app = App::start().await;
    let mut paths = vec![];
    for name in ["e-1", "e-2"] {
        paths.push(accepted(&app, name).await);
        app.attempt(Outcome::unknown(Reason::LostAnswer)).await;
        app.clock.advance(Duration::from_secs(1));
    }
    let page = app.get("/v1/unknown?limit=1", "shop-operator").await.json();
    assert_eq!(page["items"][0]["event_id"], "e-1");
    let next = page["next"].as_str().expect("a next page");
    let page = app.get(&format!("/v1/unknown?after={next}&cause=lost_answer"), "shop-operator").await.json();
    assert_eq!(page["items"][0]["event_id"], "e-2");
    assert_eq!(app.get("/v1/unknown", "shop-sender").await.status, 403);

    let resolve = format!("{}/resolve", paths[0]);
    let without = app.post(&resolve, "shop-operator", &json!({"verdict": "sent"})).await;
    assert_eq!((without.status, without.json()["field"].as_str()), (400, Some("ticket")));
    let verdict = json!({"verdict": "sent", "ticket": "OPS-1"});
    assert_eq!(app.post(&resolve, "shop-operator", &verdict).await.json()["state"], "dispatched");
    assert_eq!(app.post(&resolve, "shop-operator", &verdict).await.problem(), "nothing-open");

    let many = json!({"verdict": "abandon", "ticket": "OPS-2", "provider": "stub"});
    let done = app.post("/v1/unknown/resolve", "shop-operator", &many).await;
    assert_eq!((&done.json()["resolved"], &done.json()["more"]), (&json!(1), &json!(false)), "{}", done.text);
    assert_eq!(app.get(&paths[1], "shop-sender").await.json()["state"], "failed");
}

#[tokio::test]
async fn the_log_is_exported_in_both_forms_and_the_export_is_in_it() {
    let app = App::start().await;
    accepted(&app, "e-1").await;
    app.attempt(Outcome::accepted(None)).await;
    app.clock.advance(Duration::from_secs(1));
    let ndjson = app.get("/v1/audit", "shop-auditor").await;
    let lines: Vec<Value> = ndjson.text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
    let told: Vec<&str> = lines.iter().filter_map(|line| line["what"].as_str()).collect();
    assert_eq!(told, ["accepted", "attempt_begun", "attempt_ended"]);
    assert!(!ndjson.text.contains("493021") && !ndjson.text.contains("901234"));
    app.clock.advance(Duration::from_secs(1));
    let csv = app.get("/v1/audit?format=csv&what=exported", "shop-auditor").await;
    assert!(csv.header("content-type").starts_with("text/csv"));
    let rows: Vec<&str> = csv.text.lines().collect();
    assert_eq!(rows.len(), 2, "{}", csv.text);
    assert!(rows[0].starts_with("pos,at,") && rows[1].contains("key:shop-auditor"), "{}", csv.text);
    assert_eq!(app.get("/v1/audit", "shop-sender").await.status, 403);
    let account = app.get("/v1/audit/account", "shop-auditor").await.json();
    assert_eq!((&account["closes"], &account["counts"]["notifications"]), (&json!(true), &json!(1)));
}

#[tokio::test]
async fn receipts_are_answered_after_the_commit_and_only_if_proven() {
    let app = App::start().await;
    let path = accepted(&app, "e-1").await;
    let claimed = app.ledger.claim(&app.provider, 1).await.expect("a claim");
    let reference = app.index.reference(claimed[0].id, claimed[0].attempt);
    app.ledger.settle(claimed[0].id, claimed[0].attempt, Outcome::unknown(Reason::LostAnswer)).await.expect("settled");
    let receipt = |secret: &'static str, body: String| {
        app.request("POST", "/v1/receipts/stub", "none").header("x-secret", secret).body(body)
    };
    let good = format!("{reference} delivered");
    assert_eq!(app.send(receipt("guess", good.clone())).await.problem(), "unauthorized");
    assert_eq!(app.send(receipt("open", "nonsense".to_owned())).await.status, 400);
    assert_eq!(app.get("/v1/receipts/other", "none").await.status, 404);
    assert_eq!(app.send(receipt("open", good.clone())).await.status, 200);
    let status = app.get(&path, "shop-sender").await.json();
    assert_eq!((&status["state"], &status["delivery"]), (&json!("dispatched"), &json!("delivered")));
    assert_eq!(app.send(receipt("open", good)).await.status, 200);
    assert_eq!(app.send(receipt("open", "x".repeat(256 * 1024 + 1))).await.status, 413);
}

#[tokio::test]
async fn what_the_ledger_cannot_store_is_not_acknowledged() {
    let app = App::start().await;
    app.ledger.close().await;
    let answer = app.event("k-1", &event("e-1")).await;
    assert_eq!((answer.status, answer.problem().as_str()), (503, "unavailable"));
    assert!(!answer.header("retry-after").is_empty());
    assert!(answer.json()["detail"].as_str().is_some_and(|detail| detail.contains("not known to be stored")));
    let receipt = app.request("POST", "/v1/receipts/stub", "none").header("x-secret", "open");
    let id = sendonce::domain::ids::NotificationId::from_bytes([1; 16]);
    let body = format!("{} delivered", app.index.reference(id, 1));
    assert_eq!(app.send(receipt.body(body)).await.status, 503);
    assert!(app.metrics.encode().contains("sendonce_admissions_total{result=\"unavailable\"} 1"));
}

#[tokio::test]
async fn the_document_is_served_with_every_route() {
    let app = App::start().await;
    let document = app.get("/openapi.json", "none").await.json();
    assert!(document["paths"]["/v1/notifications"]["post"]["responses"]["422"].is_object());
    assert_eq!(document["openapi"].as_str().map(|version| version.starts_with("3.")), Some(true));
    assert!(app.stop().await);
}

#[tokio::test]
async fn the_lanes_are_shown_to_operators_with_what_waits_there() {
    let app = App::start().await;
    let answer = app.event("k-lanes", &event("e-lanes")).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let answer = app.get("/v1/providers", "shop-operator").await;
    let lane = json!({"provider": "stub", "channel": "sms", "breaker": "half_open", "permits": 1, "in_flight": 0,
        "closed_for": 2, "waiting": 1, "late_for": 0, "unknown": 0});
    assert_eq!((answer.status, answer.json()), (200, json!({"items": [lane]})));
    for key in ["shop-sender", "shop-auditor"] {
        assert_eq!(app.get("/v1/providers", key).await.status, 403, "{key}");
    }
    assert_eq!(app.get("/v1/providers?x=1", "shop-operator").await.status, 400);
}
