//! JSON of any form, proven by an HMAC of any form.

use data_encoding::HEXLOWER;
use serde_json::json;

use super::*;

const HOOK: &str = "[hook.jobs]\nspeaks = \"generic\"\ntenant = \"shop\"\nauth = \"hmac\"\nheader = \"X-Signature\"\n\
    prefix = \"sha256=\"\nsecret_file = \"hook.secret\"\nkinds = { reset = \"password_reset\" }\nexpires_in = \"10m\"\n\
    [hook.jobs.at]\nto = [{ sms = \"/who/phone\" }]\nuser = \"/who/id\"\nkind = \"/type\"\nexpires_at = \"/until\"\n\
    data = { code = \"/secret\" }\n";

fn job(id: &str) -> Value {
    json!({ "id": id, "type": "reset", "secret": 493_021, "who": { "id": 7, "phone": "+447911123456" } })
}

async fn post(daemon: &Daemon, body: &Value) -> Answer {
    let body = body.to_string();
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"hook's secret");
    let signature = HEXLOWER.encode(hmac::sign(&key, body.as_bytes()).as_ref());
    call(daemon, "jobs", &vec![header("x-signature", format!("sha256={signature}"))], &body).await
}

async fn daemon(naming: &str) -> (HttpOracle, Daemon) {
    let (oracle, plan) = provider().await;
    let plan = plan.file("hook.secret", "hook's secret\n").toml(&format!("{HOOK}{naming}\n"));
    (oracle, Daemon::start(plan).await)
}

#[tokio::test]
async fn an_event_that_its_sender_names_is_the_same_as_one_that_an_app_posts() {
    let (oracle, daemon) = daemon("event_id = \"/id\"").await;
    let first = post(&daemon, &job("job-7")).await;
    assert_eq!((first.status, &first.json()["event_id"]), (202, &json!("job-7")), "{first:?}");
    assert_eq!(post(&daemon, &job("job-7")).await.text, first.text);
    let other = post(&daemon, &with(job("job-7"), "/secret", 493_022)).await;
    assert_eq!(
        (other.status, other.json()["type"].as_str()),
        (422, Some("urn:sendonce:problem:idempotency-key-reused"))
    );
    let by_app = daemon.post(&crate::support::daemon::event("job-7")).await;
    assert_eq!((by_app.status, by_app.id()), (409, first.id()));
    let late = post(&daemon, &with(job("job-8"), "/until", "2026-01-01T00:00:00Z")).await;
    assert_eq!((late.status, late.json()["type"].as_str()), (422, Some("urn:sendonce:problem:already-expired")));
    sent(&daemon, &oracle, 1).await;
}

#[tokio::test]
async fn an_event_without_a_name_is_told_by_what_the_configuration_says() {
    let (oracle, daemon) = daemon("identity = [\"/who/id\", \"/secret\"]").await;
    let first = post(&daemon, &job("try-1")).await;
    assert_eq!(first.status, 202, "{first:?}");
    assert_eq!(post(&daemon, &job("try-2")).await.text, first.text);
    assert_eq!(post(&daemon, &with(job("try-2"), "/secret", 493_022)).await.status, 202);
    sent(&daemon, &oracle, 2).await;
}

#[tokio::test]
async fn a_body_that_is_too_large_of_another_type_or_not_signed_is_refused() {
    let (oracle, daemon) = daemon("event_id = \"/id\"").await;
    let large = with(job("job-7"), "/more", "x".repeat(17 * 1024));
    assert_eq!(post(&daemon, &large).await.status, 413);
    let forged = vec![header("x-signature", format!("sha256={}", "0".repeat(64)))];
    for headers in [forged, vec![header("x-signature", "0")], vec![]] {
        assert_eq!(call(&daemon, "jobs", &headers, &job("job-7").to_string()).await.status, 401);
    }
    sent(&daemon, &oracle, 0).await;
}
