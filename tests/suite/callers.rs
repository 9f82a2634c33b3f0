//! Events from what people already run, with the requests that those systems document, held against the real daemon and a
//! provider that counts what it was sent.

mod batch;
mod generic;
mod kratos;
mod supabase;

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use data_encoding::BASE64;
use serde_json::Value;

use crate::promise::{sends, taken};
use crate::support::daemon::{Answer, Daemon, PATIENCE, Plan, wait};
use crate::support::http_oracle::HttpOracle;

/// A secret as Supabase shows it, and another one.
const SECRET: &str = "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "v1,whsec_b3RoZXIgc2VjcmV0IG9mIGEgaG9vaw==";

/// The headers of a request.
pub type Headers = Vec<(String, String)>;

/// A header.
pub fn header(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

/// Seconds since 1970, and so many more.
fn seconds(more: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    now.checked_add_signed(more).expect("a time").to_string()
}

/// `v1,` and the signature of Standard Webhooks.
fn signature(secret: &str, id: &str, time: &str, body: &str) -> String {
    let key = secret.trim_start_matches("v1,").trim_start_matches("whsec_");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &BASE64.decode(key.as_bytes()).expect("base64"));
    format!("v1,{}", BASE64.encode(hmac::sign(&key, format!("{id}.{time}.{body}").as_bytes()).as_ref()))
}

/// The headers of Standard Webhooks over `body`, made `age` seconds ago.
pub fn signed(secret: &str, id: &str, age: i64, body: &str) -> Headers {
    let time = seconds(-age);
    let signature = signature(secret, id, &time, body);
    vec![header("webhook-id", id), header("webhook-timestamp", time), header("webhook-signature", signature)]
}

/// Posts to a hook, with no header but these and the type.
pub async fn call(daemon: &Daemon, hook: &str, headers: &Headers, body: &str) -> Answer {
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().expect("a client");
    let request = client.post(format!("{}/v1/hooks/{hook}", daemon.url())).body(body.to_owned());
    let request = request.header("content-type", "application/json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Answer { status, headers, text: response.text().await.expect("a body") }
}

/// How many events were accepted.
async fn accepted(daemon: &Daemon) -> usize {
    daemon.audit("&what=accepted").await.len()
}

/// A provider of text messages that takes everything, and a plan for a daemon that uses it.
async fn provider() -> (HttpOracle, Plan) {
    let oracle = HttpOracle::start().await;
    oracle.script(taken);
    let plan = Plan::new().http("probe", &oracle.url(), &[]).sms(&["probe"]);
    (oracle, plan)
}

/// Waits until so many messages have left; holds that no more do, and that the accounting closes.
async fn sent(daemon: &Daemon, oracle: &HttpOracle, wanted: usize) {
    wait("all has left", async || {
        let counts = daemon.get("/v1/audit/account").await.json()["counts"].clone();
        counts["live"] == 0 && counts["sent"] == wanted
    })
    .await;
    assert_eq!((sends(oracle), accepted(daemon).await), (wanted, wanted));
    daemon.audit_closes().await;
}

/// A part of a document, replaced.
fn with(mut body: Value, pointer: &str, value: impl Into<Value>) -> Value {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    body.pointer_mut(parent).expect("a place")[name] = value.into();
    body
}

#[test]
fn a_hook_that_could_never_bring_a_message_is_a_mistake_in_the_configuration() {
    let hook = |name: &str, kind: &str, secret: &str, life: &str| {
        format!(
            "[hook.{name}]\nspeaks = \"supabase-sms\"\ntenant = \"shop\"\nkind = \"{kind}\"\nsecret_file = \"{secret}\"\n\
             expires_in = \"{life}\"\n"
        )
    };
    let plan = Plan::new().sandbox().file("good", SECRET).file("bad", "v1,whsec_CANARY no base64");
    let hooks = [hook("a", "nothing", "good", "1h"), hook("b", "password_reset", "bad", "2d")].concat();
    let daemon = Daemon::prepare(plan.toml(&hooks));
    let checked = daemon.run(&["config", "check", &daemon.config().display().to_string()], "");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(3), "{said}");
    for wanted in [
        "hook.a.kind: names the kind `nothing`, which has no templates",
        "hook.b.expires_in: is more than the 1d that a message of the kind `password_reset` may live",
        "hook.b.secret: must be `whsec_` and base64",
    ] {
        assert!(said.contains(wanted), "{wanted} in {said}");
    }
    assert!(!said.contains("CANARY"), "{said}");
}
