//! Ory Kratos' courier, which repeats what was not answered with 2xx.

use serde_json::json;

use super::*;

const HOOK: &str = "[hook.kratos]\nspeaks = \"kratos\"\ntenant = \"shop\"\nexpires_in = \"1h\"\n\
                    kinds = { recovery_code_valid = \"password_reset\", recovery_valid = \"password_reset\" }\n";

/// What Kratos' own default makes of a message.
fn message(code: &str) -> Value {
    json!({
        "recipient": "+447911123456", "template_type": "recovery_code_valid", "to": "+447911123456",
        "recovery_code": code, "recovery_url": null, "verification_url": null, "verification_code": null,
        "subject": "", "body": format!("Your code is {code}"),
    })
}

#[tokio::test]
async fn a_message_that_kratos_repeats_is_sent_once_and_answered_as_before() {
    let (oracle, plan) = provider().await;
    let daemon = Daemon::start(plan.toml(HOOK)).await;
    let key = vec![header("authorization", format!("Bearer {}", daemon.key()))];
    let first = call(&daemon, "kratos", &key, &message("493021").to_string()).await;
    assert_eq!(first.status, 202, "{first:?}");
    let status = daemon.wait_for_state(&first.id(), "dispatched").await;
    assert_eq!(status["kind"], "password_reset");
    let again = call(&daemon, "kratos", &key, &with(message("493021"), "/subject", "Changed").to_string()).await;
    assert_eq!((again.status, &again.text), (202, &first.text));
    assert!(again.headers.contains_key("idempotency-replayed"));
    let longer = with(with(message("493022"), "/identity_id", "i-1"), "/expires_in_minutes", 5);
    assert_eq!(call(&daemon, "kratos", &key, &longer.to_string()).await.status, 202);
    sent(&daemon, &oracle, 2).await;
}

#[tokio::test]
async fn a_wrong_key_an_unknown_template_and_a_bad_recipient_are_refused_as_problems() {
    let (oracle, plan) = provider().await;
    let daemon = Daemon::start(plan.toml(HOOK)).await;
    let auditor = daemon.run(
        &[
            "keys",
            "new",
            "--file",
            &daemon.path("keys.toml").display().to_string(),
            "--tenant",
            "shop",
            "--role",
            "auditor",
        ],
        "",
    );
    let auditor = String::from_utf8(auditor.stdout).expect("text");
    let post = async |key: &str, body: Value| {
        let headers = vec![header("authorization", format!("Bearer {key}"))];
        let answer = call(&daemon, "kratos", &headers, &body.to_string()).await;
        (answer.status, answer.json()["type"].as_str().unwrap_or_default().replace("urn:sendonce:problem:", ""))
    };
    let refused = |status: u16, name: &str| (status, name.to_owned());
    assert_eq!(post("wrong", message("493021")).await, refused(401, "unauthorized"));
    wait("the new key is known", async || {
        post(auditor.trim(), message("493021")).await == refused(403, "role-missing")
    })
    .await;
    let other = with(message("493021"), "/template_type", "login_code_valid");
    assert_eq!(post(daemon.key(), other).await, refused(422, "unknown-kind"));
    assert_eq!(post(daemon.key(), with(message("493021"), "/recipient", "+12")).await, refused(422, "bad-address"));
    assert_eq!(
        post(daemon.key(), with(message("493021"), "/recovery_code", Value::Null)).await,
        refused(400, "bad-request")
    );
    sent(&daemon, &oracle, 0).await;
}

#[tokio::test]
async fn basic_authorisation_and_a_header_of_its_own_prove_it_too() {
    let (oracle, plan) = provider().await;
    let more = "auth = \"basic\"\nuser = \"kratos\"\nsecret_file = \"hook.secret\"\n";
    let other = HOOK.replace("[hook.kratos]", "[hook.other]");
    let other = format!("{other}auth = \"header\"\nheader = \"X-Api-Key\"\nsecret_file = \"hook.secret\"\n");
    let daemon = Daemon::start(plan.file("hook.secret", "pass:word").toml(&format!("{HOOK}{more}{other}"))).await;
    let basic = |text: &str| vec![header("authorization", format!("Basic {}", BASE64.encode(text.as_bytes())))];
    let post = async |hook: &str, headers: Headers, code: &str| {
        call(&daemon, hook, &headers, &message(code).to_string()).await.status
    };
    assert_eq!(post("kratos", basic("kratos:pass:word"), "100001").await, 202);
    assert_eq!(post("kratos", basic("kratos:pass"), "100002").await, 401);
    assert_eq!(post("kratos", vec![header("authorization", format!("Bearer {}", daemon.key()))], "100003").await, 401);
    assert_eq!(post("other", vec![header("x-api-key", "pass:word")], "100004").await, 202);
    assert_eq!(post("other", vec![header("x-api-key", "pass")], "100005").await, 401);
    assert_eq!(post("other", vec![], "100006").await, 401);
    sent(&daemon, &oracle, 2).await;
}
