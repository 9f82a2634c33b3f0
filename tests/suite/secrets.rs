//! What is secret stands nowhere but with the provider: one life of the daemon at its most talkative, with every fault that
//! could make it quote something, and then a search through all that it wrote or said.

use std::fs;

use data_encoding::{BASE64, BASE64URL, HEXLOWER, HEXUPPER};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::support::daemon::{Answer, Daemon, PASSWORD, Plan, event_to, wait};
use crate::support::http_oracle::{HttpOracle, Reply};
use crate::support::pki::Pki;
use crate::support::port::refusing;
use crate::support::smtp_oracle::{Act, Script, SmtpOracle, Stage};

const CODE: &str = "CANARYcode48151623";
const LINK_TOKEN: &str = "CANARY-link_~token%2Bend";
const USER: &str = "CANARYuser108";
const API_KEY: &str = "CANARY/api+key=42";
const HOOK: &str = "CANARYhook2342";
const STRAY: &str = "CANARYstray777";
const PERSON: &str = "canary.person";

/// Who is reached by which provider, by country.
const NUMBERS: [(&str, &str, &str); 5] = [
    ("VN", "good", "+84901234567"),
    ("GB", "closed", "+447400123456"),
    ("US", "missing", "+12025550143"),
    ("FR", "moved", "+33612345678"),
    ("DE", "untrusted", "+4915112345678"),
];

/// A vendor that wants everything in the URL.
const MANIFEST: &str = r#"
name = "talkative"
channel = "sms"
page = "https://vendor.example/docs"
[settings]
base_url = {}
api_key = { secret = true }
[send]
method = "GET"
url = "{{ base_url }}/send?key={{ api_key }}&to={{ to }}&text={{ text }}"
verdict = "status"
message_id = "/id"
answers = [
  { status = 200, is = "accepted" },
  { status = 404, is = "refused.message" },
]
"#;

fn link() -> String {
    format!("https://app.example.org/reset?token={LINK_TOKEN}")
}

fn plan(vendor: &HttpOracle, untrusted: &SmtpOracle, relay: &SmtpOracle, pki: &Pki) -> Plan {
    let closed = refusing();
    let mut plan = Plan::plain().sms(&["good"]).file("talkative.toml", MANIFEST);
    plan = plan.file("api.key", &format!("{API_KEY}\n")).file("hook", &format!("{HOOK}\n"));
    for (country, provider, _) in NUMBERS {
        plan = plan.toml(&format!("[[routes.country]]\ncountry = \"{country}\"\nsms = [\"{provider}\"]"));
    }
    for (name, url) in [
        ("good", format!("{}/good", vendor.url())),
        ("closed", format!("http://{closed}")),
        ("missing", format!("{}/missing", vendor.url())),
        ("moved", format!("{}/moved", vendor.url())),
        ("untrusted", format!("https://localhost:{}", untrusted.addr().port())),
    ] {
        plan = plan.toml(&format!(
            "[provider.{name}]\nkind = \"http\"\nmanifest_file = \"talkative.toml\"\n[provider.{name}.settings]\n\
             base_url = \"{url}\"\napi_key_file = \"api.key\""
        ));
    }
    let (port, roots) = (relay.addr().port(), pki.roots());
    plan.relay(&format!(
        "host = \"localhost\"\nport = {port}\nusername = \"shop\"\npassword_file = \"smtp.password\"\nca_file = \"{}\"",
        roots.display()
    ))
    .toml(&format!(
        "[provider.hooked]\nkind = \"http\"\nmanifest = \"postmark\"\n[provider.hooked.settings]\n\
         server_token_file = \"api.key\"\nfrom = \"no-reply@shop.example\"\nreceipt_user = \"hook\"\n\
         receipt_password_file = \"hook\"\nbase_url = \"http://{closed}\""
    ))
    .env("RUST_LOG", "trace,hyper=trace,reqwest=trace,sqlx=trace")
}

/// All that the daemon wrote or said, by where.
struct Said(Vec<(String, String)>);

impl Said {
    fn heard(&mut self, place: impl Into<String>, bytes: &[u8]) {
        self.0.push((place.into(), String::from_utf8_lossy(bytes).into_owned()));
    }

    fn answered(&mut self, place: &str, status: u16, answer: &Answer) {
        assert_eq!(answer.status, status, "{place}: {answer:?}");
        self.heard(place, answer.text.as_bytes());
        self.heard(format!("{place}, headers"), format!("{:?}", answer.headers).as_bytes());
    }

    /// Everything that can be read now, but the outbox of the providers.
    async fn look(&mut self, daemon: &Daemon, when: &str) {
        for file in ["sendonce.db", "sendonce.db-wal", "sendonce.db-shm", "sendonce.db.mark", "log", "keys.toml"] {
            self.heard(format!("{file}, {when}"), &fs::read(daemon.path(file)).expect("a file"));
        }
        self.heard("command line", &fs::read(format!("/proc/{}/cmdline", daemon.pid())).expect("a process"));
        for path in ["/metrics", "/readyz"] {
            self.heard(format!("{path}, {when}"), daemon.admin(path).await.expect("an answer").text.as_bytes());
        }
        for path in ["/v1/audit", "/v1/audit?format=csv", "/v1/audit/account", "/v1/unknown"] {
            self.answered(path, 200, &daemon.get(path).await);
        }
    }

    fn hits(&self, secret: &str) -> Vec<String> {
        let forms = forms(secret);
        let held = |text: &str| forms.iter().find(|(_, form)| text.contains(form.as_str())).map(|(how, _)| *how);
        self.0.iter().filter_map(|(place, text)| held(text).map(|how| format!("{secret} ({how}) in {place}"))).collect()
    }
}

/// Every form in which a secret may be written down.
fn forms(secret: &str) -> Vec<(&'static str, String)> {
    let percent = |plain: fn(u8) -> bool| -> String {
        let one = |b: u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
        secret.bytes().map(one).collect()
    };
    let mut forms = vec![
        ("plain", secret.to_owned()),
        ("percent", percent(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))),
        ("all percent", percent(|_| false)),
        ("hex", HEXLOWER.encode(secret.as_bytes())),
        ("hex", HEXUPPER.encode(secret.as_bytes())),
        ("JSON", json!(secret).to_string().trim_matches('"').to_owned()),
    ];
    // In base64 a text looks different at each of three offsets; its first and last characters mix with its neighbours.
    for offset in 0..3 {
        let shifted = [&b"\0\0"[..offset], secret.as_bytes()].concat();
        let whole = shifted.len() / 3 * 3;
        let first = if offset == 0 { 0 } else { 4 };
        forms.push(("base64", BASE64.encode(&shifted[..whole])[first..].to_owned()));
        forms.push(("base64url", BASE64URL.encode(&shifted[..whole])[first..].to_owned()));
    }
    forms
}

/// Requests with secrets in places where none belongs.
async fn misuse(daemon: &Daemon, said: &mut Said) {
    let good = json!({ "event_id": "bad", "kind": "password_reset", "to": [{ "sms": NUMBERS[0].2 }],
                       "data": { "code": CODE }, "expires_in": 600 });
    let with = |name: &str, value: Value| {
        let mut event = good.clone();
        event[name] = value;
        event.to_string()
    };
    let bodies = [
        ("not JSON", 400, format!("{{\"code\": {CODE}}}")),
        ("cut JSON", 400, format!("{{\"code\": \"{CODE}")),
        ("a string", 400, json!(CODE).to_string()),
        ("an unknown member", 400, with("secret", json!(STRAY))),
        ("an unknown kind", 400, with("kind", json!(STRAY))),
        ("no locale", 400, with("locale", json!(format!("{STRAY}!")))),
        ("no number", 422, with("to", json!([{ "sms": STRAY }]))),
        ("no mail address", 422, with("to", json!([{ "email": format!("{STRAY}@@{PERSON}") }]))),
        ("an unknown channel", 400, with("to", json!([{ "fax": STRAY }]))),
        ("no time", 400, with("expires_at", json!(STRAY))),
        ("no data", 422, with("data", json!({ "nothing": STRAY }))),
        ("deep data", 400, with("data", json!({ "code": { "code": CODE } }))),
        ("a bad link", 422, with("data", json!({ "link": format!("javascript:{STRAY}") }))),
        ("the code as event id", 400, with("event_id", json!(CODE))),
        ("a wide member", 400, with(&format!("{PERSON}@x"), json!(1))),
    ];
    for (place, status, body) in bodies {
        let headers = [("Idempotency-Key", "bad"), ("Content-Type", "application/json")];
        let answer = daemon.ask(Method::POST, "/v1/notifications", &headers, body).await;
        said.answered(place, status, &answer);
    }
    let key = format!("{CODE} {STRAY}");
    for (place, status, headers) in [
        ("a bad key", 400, vec![("Idempotency-Key", key.as_str()), ("Content-Type", "application/json")]),
        ("a bad type", 415, vec![("Idempotency-Key", "bad"), ("Content-Type", STRAY)]),
        ("a bad trace", 400, vec![("traceparent", STRAY), ("Cookie", STRAY), ("Content-Type", "application/json")]),
    ] {
        let answer = daemon.ask(Method::POST, "/v1/notifications", &headers, good.to_string()).await;
        said.answered(place, status, &answer);
    }
    for (status, path) in [
        (404, format!("/{STRAY}")),
        (404, format!("/v1/notifications/{STRAY}")),
        (400, format!("/v1/notifications?event_id={STRAY}%20")),
        (400, format!("/v1/unknown?provider={STRAY}")),
        (400, format!("/v1/audit?from={STRAY}")),
    ] {
        said.answered(&path.replace(STRAY, "…"), status, &daemon.get(&path).await);
    }
    let stranger =
        format!("GET /v1/unknown HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {STRAY}\r\nConnection: close\r\n\r\n");
    said.heard("a stranger", daemon.raw(stranger.as_bytes()).await.as_bytes());
    let garbage = format!("{STRAY} {STRAY}\r\n\r\n");
    said.heard("no HTTP", daemon.raw(garbage.as_bytes()).await.as_bytes());
}

async fn receipts(daemon: &Daemon, said: &mut Said) {
    let proof = format!("Basic {}", BASE64.encode(format!("hook:{HOOK}").as_bytes()));
    let receipt = json!({ "RecordType": "Delivery", "MessageID": "883953f4-6105-42a2-a16a-77a8eac79483",
                          "Recipient": format!("{PERSON}@customer.example"), "Details": STRAY, "Tag": "nobody" });
    for (place, status, path, headers, body) in [
        ("a receipt", 200, "hooked", vec![("Authorization", proof.as_str())], receipt.to_string()),
        ("no receipt", 400, "hooked", vec![("Authorization", proof.as_str())], format!("{STRAY}{{")),
        ("a forged receipt", 401, "hooked?key=CANARYstray777", vec![("Authorization", STRAY)], receipt.to_string()),
        ("an unwanted receipt", 404, "good?to=CANARYstray777", vec![], receipt.to_string()),
        ("a lost receipt", 404, "CANARYstray777", vec![], receipt.to_string()),
    ] {
        let url = format!("http://{}/v1/receipts/{path}", daemon.api());
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let request = headers.iter().fold(client.post(url).body(body), |r, (name, value)| r.header(*name, *value));
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status().as_u16(), status, "{place}");
        said.heard(place, response.text().await.expect("a body").as_bytes());
    }
}

#[test]
fn the_search_finds_a_secret_in_every_form_and_between_any_neighbours() {
    for secret in [CODE, LINK_TOKEN, API_KEY, PASSWORD] {
        for before in ["", "a", "bc", "def"] {
            let text = format!("{before}{secret}{before}");
            let written = [text.clone(), BASE64.encode(text.as_bytes()), HEXLOWER.encode(text.as_bytes())];
            for written in written {
                let mut said = Said(vec![]);
                said.heard("here", written.as_bytes());
                assert_eq!(said.hits(secret).len(), 1, "{written}");
                assert!(said.hits("CANARYother99").is_empty(), "{written}");
            }
        }
    }
}

#[tokio::test]
async fn no_secret_is_found_in_anything_that_the_daemon_keeps_or_says() {
    let pki = Pki::new();
    let vendor = HttpOracle::start().await;
    vendor.script(|seen| {
        let echo = json!({ "id": "m-1", "text": CODE, "you_sent": seen.path });
        match seen.path.split('/').nth(1) {
            Some("good") => Reply::json(200, echo),
            Some("moved") => Reply::redirect(307, &format!("http://127.0.0.1:1/?text={CODE}")),
            _ => Reply::json(404, echo),
        }
    });
    // A server whose certificate nobody here trusts.
    let untrusted = SmtpOracle::start(Script::implicit(pki.good())).await;
    let refusing = Script::starttls(pki.good()).login("shop", PASSWORD);
    let refusal = Act::Reply("535 5.7.8 CANARYstray777 is not your password");
    let relay = SmtpOracle::start(refusing.on(Stage::Auth, refusal)).await;
    let daemon = Daemon::start(plan(&vendor, &untrusted, &relay, &pki)).await;
    let mut said = Said(vec![]);

    let mut ids = vec![];
    for (_, provider, number) in NUMBERS {
        let data = json!({ "code": CODE, "link": link() });
        let answer = daemon.post(&event_to(provider, json!([{ "sms": number }]), data)).await;
        said.answered("accepted", 202, &answer);
        ids.push(answer.id());
    }
    let mail = json!({ "event_id": "mail", "kind": "password_reset", "user": USER, "expires_in": 600,
                       "to": [{ "email": format!("{PERSON}@customer.example") }], "data": { "code": CODE } });
    let headers = [("Idempotency-Key", "mail"), ("Content-Type", "application/json")];
    let answer = daemon.ask(Method::POST, "/v1/notifications", &headers, mail.to_string()).await;
    said.answered("accepted", 202, &answer);
    ids.push(answer.id());
    misuse(&daemon, &mut said).await;
    receipts(&daemon, &mut said).await;

    daemon.wait_for_state(&ids[0], "dispatched").await;
    daemon.wait_for_state(&ids[2], "failed").await;
    for n in [1, 4, 5] {
        wait("an attempt that failed", async || daemon.status(&ids[n]).await["attempts"][0]["outcome"].is_string())
            .await;
    }
    wait("the redirect's end", async || daemon.status(&ids[3]).await["attempts"][0]["outcome"].is_string()).await;
    assert!(vendor.requests().iter().any(|seen| seen.path.contains(CODE)), "the secrets did go to the provider");
    daemon.logs(&["the breaker opened", "relay"]).await;
    said.look(&daemon, "while messages wait").await;

    for id in &ids {
        said.answered("status", 200, &daemon.get(&format!("/v1/notifications/{id}")).await);
        let cancelled = daemon.ask(Method::POST, &format!("/v1/notifications/{id}/cancel"), &[], "").await;
        said.heard("cancelled", cancelled.text.as_bytes());
    }
    for n in [1, 3, 4, 5] {
        daemon.wait_for_state(&ids[n], "cancelled").await;
    }
    let mut store =
        SqliteConnectOptions::new().filename(daemon.path("sendonce.db")).connect().await.expect("a connection");
    let sealed: i64 = sqlx::query_scalar("SELECT count(*) FROM work").fetch_one(&mut store).await.expect("a count");
    assert_eq!(sealed, 0, "of what is over not even the sealed form is kept");
    store.close().await.expect("closed");
    said.look(&daemon, "when they are over").await;
    assert_eq!(daemon.stop().await, Some(0));
    for file in ["sendonce.db", "sendonce.db.mark", "log"] {
        said.heard(format!("{file} after the end"), &fs::read(daemon.path(file)).expect("a file"));
    }

    let vault = |file: &str| {
        let text = fs::read_to_string(daemon.path(file)).expect("a key");
        text.split_whitespace().last().expect("a key").to_owned()
    };
    let (sealing, index) = (vault("sealing.keys"), vault("index.key"));
    let mut secrets =
        vec![CODE, LINK_TOKEN, USER, API_KEY, HOOK, STRAY, PERSON, PASSWORD, daemon.key(), &sealing, &index];
    secrets.extend(NUMBERS.iter().map(|(_, _, number)| number.trim_start_matches('+')));
    let hits: Vec<String> = secrets.iter().flat_map(|secret| said.hits(secret)).collect();
    assert!(hits.is_empty(), "{}", hits.join("\n"));
    assert!(
        said.0.iter().any(|(place, text)| place.starts_with("sendonce.db,") && text.contains("untrusted")),
        "it can find"
    );
}
