//! Supabase Auth's hooks, called as Supabase Auth calls them: the same body again under a new id and time, 200 with `{}` when
//! all is well, 200 with an error for what is refused for good.

use serde_json::json;

use super::*;
use crate::support::daemon::Place;
use crate::support::smtp_oracle::{Script, SmtpOracle};

const SMS: &str = "[hook.phone]\nspeaks = \"supabase-sms\"\ntenant = \"shop\"\nsecret_file = \"hook.secret\"\n\
                   kind = \"password_reset\"\nexpires_in = \"10m\"\n";
const MAIL: &str = "[hook.mail]\nspeaks = \"supabase-email\"\ntenant = \"shop\"\nsecret_file = \"hook.secret\"\n\
                    kinds = { recovery = \"password_reset\", email_change = \"password_reset\" }\nexpires_in = \"1h\"\n\
                    link = \"{site_url}/verify?token={token_hash}&type={email_action_type}&redirect_to={redirect_to}\"\n";

/// The user as Supabase documents it for these hooks, as far as sizes and types matter.
fn user() -> Value {
    json!({
        "id": "6481a5c1-3d37-4a56-9f6a-bee08c554965", "aud": "authenticated", "role": "authenticated",
        "email": "user@customer.example", "phone": "447911123456", "phone_confirmed_at": "2026-05-13T11:52:48.157306Z",
        "confirmation_sent_at": "2026-05-14T12:31:52.824573Z", "recovery_sent_at": "2026-05-14T12:31:52.824573Z",
        "app_metadata": {"provider": "phone", "providers": ["phone"]}, "user_metadata": {"locale": "vi", "n": 1.5},
        "identities": [{"identity_id": "3be5e552", "identity_data": {"email_verified": false}, "provider": "phone"}],
        "created_at": "2026-05-13T11:45:33.7738Z", "is_anonymous": false,
    })
}

fn sms(otp: &str) -> Value {
    json!({ "user": user(), "sms": { "otp": otp } })
}

fn mail(action: &str) -> Value {
    json!({ "user": user(), "email_data": {
        "token": "305805", "token_hash": "7d5b7b1964cf5d388340a7f04f1dbb5eeb6c7b52ef8270e1737a58d0",
        "redirect_to": "http://localhost:3000/", "email_action_type": action, "site_url": "https://id.shop.example/auth/v1",
        "token_new": "", "token_hash_new": "", "old_email": "", "provider": "", "factor_type": "",
    } })
}

async fn daemon(hook: &str) -> (HttpOracle, Daemon) {
    let (oracle, plan) = provider().await;
    let daemon = Daemon::start(plan.file("hook.secret", &format!("{SECRET}\n")).toml(hook)).await;
    (oracle, daemon)
}

/// Posts under a right signature.
async fn post(daemon: &Daemon, hook: &str, id: &str, body: &Value) -> Answer {
    let body = body.to_string();
    call(daemon, hook, &signed(SECRET, id, 0, &body), &body).await
}

fn is_fine(answer: &Answer) -> bool {
    let json = answer.headers.get("content-type").is_some_and(|kind| kind == "application/json");
    json && (answer.status, answer.text.as_str()) == (200, "{}")
}

/// What Supabase Auth is to tell its client.
fn error(answer: &Answer) -> (u64, String) {
    let error = &answer.json()["error"];
    assert_eq!(answer.status, 200, "{answer:?}");
    (error["http_code"].as_u64().expect("a code"), error["message"].as_str().expect("a message").to_owned())
}

#[tokio::test]
async fn retries_with_a_new_webhook_id_send_one_message_and_a_new_code_sends_another() {
    let (oracle, daemon) = daemon(SMS).await;
    let body = sms("561166");
    let calls = ["a1", "a2", "a3"].map(|id| post(&daemon, "phone", id, &body));
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(is_fine), "{answers:?}");
    sent(&daemon, &oracle, 1).await;
    assert!(is_fine(&post(&daemon, "phone", "a4", &body).await), "also when it is finished");
    sent(&daemon, &oracle, 1).await;
    assert!(oracle.requests()[0].contains("561166") && oracle.requests()[0].contains("447911123456"));
    assert!(is_fine(&post(&daemon, "phone", "b1", &sms("561167")).await));
    let later = with(body, "/user/confirmation_sent_at", "2026-05-14T12:35:00Z");
    assert!(is_fine(&post(&daemon, "phone", "c1", &later).await), "the same code by chance, another day");
    sent(&daemon, &oracle, 3).await;
    let actors: Vec<Value> = daemon.audit("&what=accepted").await.iter().map(|r| r["actor"].clone()).collect();
    assert_eq!(actors, ["hook:phone"; 3]);
}

#[tokio::test]
async fn a_request_that_proves_nothing_is_401_and_stores_nothing() {
    let (oracle, daemon) = daemon(SMS).await;
    let body = sms("561166").to_string();
    let without = |name: &str| -> Headers {
        signed(SECRET, "a", 0, &body).into_iter().filter(|(other, _)| other != name).collect()
    };
    let mut twice = signed(SECRET, "a", 0, &body);
    twice.extend(signed(SECRET, "a", 0, &body).pop());
    for (what, headers) in [
        ("another secret", signed(OTHER, "a", 0, &body)),
        ("another body", signed(SECRET, "a", 0, &sms("561167").to_string())),
        ("old", signed(SECRET, "a", 301, &body)),
        ("from the future", signed(SECRET, "a", -330, &body)),
        ("without an id", without("webhook-id")),
        ("without a time", without("webhook-timestamp")),
        ("without a signature", without("webhook-signature")),
        ("with nothing", vec![]),
        ("signed twice", twice),
    ] {
        let answer = call(&daemon, "phone", &headers, &body).await;
        assert_eq!(answer.status, 401, "{what}: {answer:?}");
    }
    let headers = signed(SECRET, "a", 0, &body);
    assert_eq!(call(&daemon, "phones", &headers, &body).await.status, 404);
    assert_eq!(call(&daemon, "PHONE", &headers, &body).await.status, 404);
    let with_key =
        daemon.ask(reqwest::Method::POST, "/v1/hooks/phone", &[("content-type", "application/json")], body).await;
    assert_eq!(with_key.status, 401, "an API key is no signature");
    sent(&daemon, &oracle, 0).await;
}

#[tokio::test]
async fn two_secrets_are_good_while_one_is_exchanged_for_the_other() {
    let (oracle, plan) = provider().await;
    let plan = plan.file("hook.secret", SECRET).file("old.secret", OTHER);
    let daemon = Daemon::start(plan.toml(&format!("{SMS}old_secret_file = \"old.secret\"\n"))).await;
    for (n, secret) in [SECRET, OTHER].into_iter().enumerate() {
        let body = sms(&format!("56116{n}")).to_string();
        assert!(is_fine(&call(&daemon, "phone", &signed(secret, "a", 0, &body), &body).await));
    }
    // With two secrets on its side Supabase Auth sends both signatures, parted by a comma and a space.
    let (body, time) = (sms("561169").to_string(), seconds(0));
    let third = signature("whsec_dGhpcmQ=", "a", &time, &body);
    let list = format!("{third}, {}", signature(SECRET, "a", &time, &body));
    let back = format!("{}, {third}", signature(SECRET, "a", &time, &body));
    for list in [list, back] {
        let headers =
            vec![header("webhook-id", "a"), header("webhook-timestamp", &time), header("webhook-signature", list)];
        assert!(is_fine(&call(&daemon, "phone", &headers, &body).await));
    }
    sent(&daemon, &oracle, 3).await;
}

#[tokio::test]
async fn what_is_refused_for_good_is_told_in_an_answer_that_supabase_reads() {
    let (oracle, daemon) = daemon(&format!("{SMS}{MAIL}")).await;
    let bad = with(sms("561166"), "/user/phone", "12");
    let (status, message) = error(&post(&daemon, "phone", "a", &bad).await);
    assert!(status == 422 && message.contains("to[0].sms") && !message.contains("561166"), "{message}");
    let two = with(sms("561166"), "/user/new_phone", "447911654321");
    assert_eq!(error(&post(&daemon, "phone", "b", &two).await).0, 400);
    let (status, message) = error(&post(&daemon, "mail", "c", &mail("signup")).await);
    assert!(status == 422 && message.contains("email_data.email_action_type"), "{message}");
    let (status, message) = error(&call(&daemon, "phone", &signed(SECRET, "d", 0, "{"), "{").await);
    assert!(status == 400 && message.contains("JSON"), "{message}");
    assert_eq!(error(&post(&daemon, "mail", "e", &mail("recovery")).await).0, 422, "no provider carries mail here");
    assert!(daemon.metrics().await.contains("admissions_total{result=\"bad-address\"} 1"));
    sent(&daemon, &oracle, 0).await;
}

#[tokio::test]
async fn an_action_that_is_to_be_ignored_is_answered_as_done() {
    let (oracle, daemon) = daemon(&format!("{MAIL}unmapped = \"ignore\"\n")).await;
    assert!(is_fine(&post(&daemon, "mail", "a", &mail("signup")).await));
    assert!(is_fine(&post(&daemon, "mail", "b", &mail("password_changed_notification")).await));
    sent(&daemon, &oracle, 0).await;
}

#[tokio::test]
async fn mails_carry_code_and_link_and_a_change_of_address_is_two_of_them() {
    let relay = SmtpOracle::start(Script::plain()).await;
    let plan = Plan::new().relay_in_clear(relay.addr().port(), "").file("hook.secret", SECRET);
    let daemon = Daemon::start(plan.toml(&format!("{MAIL}locale = \"en\"\n"))).await;
    for id in ["a", "b"] {
        assert!(is_fine(&post(&daemon, "mail", id, &mail("recovery")).await));
    }
    let first = relay.wait_for(1).await;
    let text = String::from_utf8_lossy(&first[0].data).replace("=\r\n", "").replace("=3D", "=");
    assert!(text.contains("305805"), "{text}");
    let link = "https://id.shop.example/auth/v1/verify?token=7d5b7b1964cf5d388340a7f04f1dbb5eeb6c7b52ef8270e1737a58d0";
    assert!(text.contains(link), "{text}");

    let change = with(mail("email_change"), "/user/new_email", "new@customer.example");
    let change = with(change, "/email_data/token_new", "111222");
    let change = with(change, "/email_data/token_hash_new", "0123456789abcdef");
    for id in ["c", "d"] {
        assert!(is_fine(&post(&daemon, "mail", id, &change).await));
    }
    let all = relay.wait_for(3).await;
    wait("all has left", async || daemon.get("/v1/audit/account").await.json()["counts"]["live"] == 0).await;
    let all = if all.len() == 3 { relay.messages() } else { all };
    let whom = |code: &str| -> Vec<String> {
        let has = all.iter().filter(|m| String::from_utf8_lossy(&m.data).contains(code));
        has.flat_map(|m| m.to.clone()).collect()
    };
    assert_eq!(all.len(), 3, "a retry of two mails is none");
    assert_eq!(whom("111222"), ["new@customer.example"]);
    assert_eq!(whom("305805"), ["user@customer.example"; 2]);
    assert_eq!(accepted(&daemon).await, 3);
    daemon.audit_closes().await;

    let half = with(change.clone(), "/user/new_email", "no address");
    let half = with(half, "/email_data/token", "999888");
    assert_eq!(error(&post(&daemon, "mail", "e", &half).await).0, 422);
    assert_eq!(accepted(&daemon).await, 3, "where one of the two is refused none is stored");
}

#[tokio::test]
async fn a_store_that_is_away_is_503_with_a_time_and_the_retry_sends_once() {
    let (oracle, plan) = provider().await;
    let plan = plan.section("store", "busy_timeout = \"200ms\"").file("hook.secret", SECRET).toml(SMS);
    let daemon = Daemon::start(plan).await;
    let held = Place::File.hold(&daemon, "notification").await;
    let answer = post(&daemon, "phone", "a", &sms("561166")).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"), "without it Supabase Auth does not try again");
    held.release().await;
    wait("it is taken", async || is_fine(&post(&daemon, "phone", "b", &sms("561166")).await)).await;
    sent(&daemon, &oracle, 1).await;
}

#[tokio::test]
async fn a_retry_is_recognised_after_the_configuration_has_changed() {
    let (oracle, daemon) = daemon(SMS).await;
    assert!(is_fine(&post(&daemon, "phone", "a", &sms("561166")).await));
    sent(&daemon, &oracle, 1).await;
    daemon.kill9();
    daemon.reconfigure("expires_in = \"10m\"", "expires_in = \"5m\"");
    daemon.launch().await;
    assert!(is_fine(&post(&daemon, "phone", "b", &sms("561166")).await));
    sent(&daemon, &oracle, 1).await;
}
