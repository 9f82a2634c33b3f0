//! What is secret stands nowhere but with the provider: one life of the daemon at its most talkative, with every fault that
//! could make it quote something, and then a search through all that it wrote or said.

mod hooks;
mod search;

use std::fs;

use data_encoding::BASE64;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::support::daemon::{Answer, Daemon, PASSWORD, Place, Plan, RECEIPT_SECRET, event_to, wait};
use crate::support::hook::{Hook, SECRET};
use crate::support::http_oracle::{HttpOracle, Reply};
use crate::support::pki::Pki;
use crate::support::port::refusing;
use crate::support::postgres::{self, Database};
use crate::support::smtp_oracle::{Act, Script, SmtpOracle, Stage};
use search::{Said, Secret};

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

fn plan(vendor: &HttpOracle, hook: &Hook, untrusted: &SmtpOracle, relay: &SmtpOracle, pki: &Pki) -> Plan {
    let closed = refusing();
    let mut plan = Plan::plain().sms(&["good"]).file("talkative.toml", MANIFEST);
    plan = plan.file("api.key", &format!("{API_KEY}\n")).file("hook", &format!("{HOOK}\n"));
    plan = plan.file("hook.secret", SECRET).toml(&hook.section(""));
    for (country, provider, _) in NUMBERS {
        plan = plan.toml(&format!("[[routes.rule]]\ncountries = [\"{country}\"]\nsms = [\"{provider}\"]"));
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
    .file(hooks::WEBHOOK_FILE, &hooks::webhook_secret())
    .file(hooks::PASSWORD_FILE, hooks::PASSWORD)
    .toml(hooks::PLAN)
    .env("RUST_LOG", "trace,hyper=trace,reqwest=trace,sqlx=trace")
}

/// The files of a daemon's directory that are there to hold a secret.
const KEPT_SECRET: [&str; 10] = [
    "api.key",
    "hook",
    "hook.secret",
    "receipt.secret",
    "smtp.password",
    "sealing.keys",
    "index.key",
    "pg.password",
    hooks::WEBHOOK_FILE,
    hooks::PASSWORD_FILE,
];

impl Said {
    fn answered(&mut self, place: &str, status: u16, answer: &Answer) {
        assert_eq!(answer.status, status, "{place}: {answer:?}");
        self.heard(place, answer.text.as_bytes());
        self.heard(format!("{place}, headers"), format!("{:?}", answer.headers).as_bytes());
    }

    /// Everything that the daemon has left in files: its store, the logs beside it, the mark, its own log, an export.
    fn files(&mut self, daemon: &Daemon, when: &str) {
        for entry in fs::read_dir(daemon.path("")).expect("a directory").flatten() {
            let name = entry.file_name().display().to_string();
            if entry.path().is_file() && !KEPT_SECRET.contains(&name.as_str()) {
                self.heard(format!("{name}, {when}"), &fs::read(entry.path()).expect("a file"));
            }
        }
    }

    /// What the machine tells everybody of a process: the daemon's, and of those that it started.
    fn processes(&mut self, daemon: &Daemon) {
        let mut family = vec![daemon.pid()];
        for entry in fs::read_dir("/proc").expect("processes").flatten() {
            let Ok(pid) = entry.file_name().display().to_string().parse::<u32>() else { continue };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
            family.extend(parent.filter(|parent: &u32| *parent == daemon.pid()).map(|_| pid));
        }
        for pid in family {
            for name in ["cmdline", "environ"] {
                // What we may not read tells us nothing.
                self.heard(format!("{name} of {pid}"), &fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default());
            }
        }
        let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).expect("a process");
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    }

    /// Everything that can be read now, but the outbox of the providers.
    async fn look(&mut self, daemon: &Daemon, place: &Place, when: &str) {
        let export = daemon.path("export.ndjson");
        let exported = daemon.run(&["audit", "export", "--output", export.to_str().expect("text")], "");
        assert!(exported.status.success(), "{exported:?}");
        for args in [&["audit", "account"][..], &["unknown", "list"], &["status", "--event-id", "good"]] {
            let run = daemon.run(args, "");
            self.heard(format!("{args:?}, {when}"), &[run.stdout, run.stderr].concat());
        }
        self.files(daemon, when);
        self.processes(daemon);
        for path in ["/metrics", "/readyz", "/healthz"] {
            self.heard(format!("{path}, {when}"), daemon.admin(path).await.expect("an answer").text.as_bytes());
        }
        for path in ["/v1/audit", "/v1/audit?format=csv", "/v1/audit/account", "/v1/unknown", "/openapi.json"] {
            self.answered(path, 200, &daemon.get(path).await);
        }
        if let Place::Server(database) = place {
            self.heard(format!("a dump, {when}"), &database.dump());
        }
    }

    /// What has reached the server: statements with their parameters, pages, and the log that it writes ahead.
    async fn server(&mut self, database: &Database) {
        self.heard_much("the server's log", &Database::server_log());
        let (pages, ahead) = database.files().await;
        for (what, paths) in [("pages", pages), ("written ahead", ahead)] {
            let octets: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap_or_default()).collect();
            self.heard_much(what, &octets.concat());
        }
    }
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

/// A daemon that would write a core dump if it were left to its limits.
async fn start(plan: Plan, place: &Place) -> Daemon {
    let plan = match place {
        Place::File => plan,
        // What the server is told is logged with every parameter.
        Place::Server(database) => {
            let name = database.name();
            for setting in ["log_min_messages = 'log'", "log_statement = 'all'", "log_parameter_max_length = -1"] {
                database.run(&format!("ALTER DATABASE {name} SET {setting}")).await;
            }
            plan.file("pg.password", postgres::PASSWORD).section("store", "password_file = \"pg.password\"")
        }
    };
    let daemon = Daemon::prepare(place.plan(plan));
    if let Place::Server(database) = place {
        daemon.reconfigure(&database.url(), &database.tcp_url());
    }
    daemon.spawn_with(&["sh", "-c", "ulimit -c unlimited; exec \"$0\" \"$@\""], &[("PATH", "/usr/bin:/bin")]);
    wait("it is ready", async || daemon.readyz().await == 200).await;
    daemon
}

fn secrets(daemon: &Daemon) -> Vec<Secret> {
    let key = |name, file: &str| {
        let text = fs::read_to_string(daemon.path(file)).expect("a key");
        Secret::key(name, text.split_whitespace().last().expect("a key"))
    };
    let mut secrets = vec![
        Secret::text("the code", CODE),
        Secret::text("the link's token", LINK_TOKEN),
        Secret::text("the user", USER),
        Secret::text("the provider's key", API_KEY),
        Secret::text("the password of receipts", HOOK),
        Secret::text("the secret of receipts", RECEIPT_SECRET),
        Secret::text("the secret of callbacks", SECRET.trim_start_matches("whsec_")),
        Secret::text("what is out of place", STRAY),
        Secret::text("the mail address", PERSON),
        Secret::text("the relay's password", PASSWORD),
        Secret::text("the server's password", postgres::PASSWORD),
        Secret::text("our API key", daemon.key()),
        Secret::text("the key of webhooks", hooks::WEBHOOK_KEY),
        Secret::text("the password of a hook", hooks::PASSWORD),
        key("the sealing key", "sealing.keys"),
        key("the index key", "index.key"),
    ];
    secrets.extend(NUMBERS.map(|(_, provider, number)| Secret::text(provider, number.trim_start_matches('+'))));
    secrets
}

#[tokio::test]
async fn no_secret_is_found_in_anything_that_the_daemon_keeps_or_says() {
    live(&Place::File).await;
}

#[tokio::test]
async fn no_secret_is_found_in_anything_that_a_daemon_on_postgres_or_its_server_keeps_or_says() {
    live(&Place::server().await).await;
}

/// One life of the daemon.
async fn live(place: &Place) {
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
    // An app that does not take what it is told at first, and says too much about it.
    let hook = Hook::start().await;
    hook.oracle.play([Reply::json(500, json!({ "secret": SECRET, "code": CODE })), Reply::status(200)]);
    let daemon = start(plan(&vendor, &hook, &untrusted, &relay, &pki), place).await;
    let mut said = Said::default();

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
    for id in hooks::calls(&daemon, &mut said).await {
        daemon.wait_for_state(&id, "dispatched").await;
    }

    daemon.wait_for_state(&ids[0], "dispatched").await;
    daemon.wait_for_state(&ids[2], "failed").await;
    for n in [1, 4, 5] {
        wait("an attempt that failed", async || daemon.status(&ids[n]).await["attempts"][0]["outcome"].is_string())
            .await;
    }
    wait("the redirect's end", async || daemon.status(&ids[3]).await["attempts"][0]["outcome"].is_string()).await;
    assert!(vendor.requests().iter().any(|seen| seen.path.contains(CODE)), "the secrets did go to the provider");
    daemon.logs(&["the breaker opened", "relay"]).await;
    said.look(&daemon, place, "while messages wait").await;

    for id in &ids {
        said.answered("status", 200, &daemon.get(&format!("/v1/notifications/{id}")).await);
        let cancelled = daemon.ask(Method::POST, &format!("/v1/notifications/{id}/cancel"), &[], "").await;
        said.heard("cancelled", cancelled.text.as_bytes());
    }
    for n in [1, 3, 4, 5] {
        daemon.wait_for_state(&ids[n], "cancelled").await;
    }
    let told = hook.wait_for(ids.len()).await;
    assert!(told.len() > ids.len(), "one was told again");
    for seen in hook.oracle.requests() {
        said.heard("a callback", &seen.body);
        said.heard("a callback, headers", format!("{} {:?}", seen.path, seen.headers).as_bytes());
    }
    assert_eq!(sealed(&daemon, place).await, 0, "of what is over not even the sealed form is kept");
    said.look(&daemon, place, "when they are over").await;
    // A crash, such as the memory's limit or a fault in a library would make it.
    daemon.signal("-ABRT");
    assert_eq!(daemon.ended().await, None);
    said.files(&daemon, "after a crash");
    let cores = fs::read_dir(daemon.path("")).expect("a directory").flatten();
    let cores = cores.filter(|entry| entry.file_name().display().to_string().starts_with("core")).count();
    assert_eq!(cores, 0, "no core dump");
    daemon.spawn();
    wait("it is ready", async || daemon.readyz().await == 200).await;
    assert_eq!(daemon.stop().await, Some(0));
    said.files(&daemon, "after the end");
    if let Place::Server(database) = place {
        said.server(database).await;
    }

    let hits: Vec<String> = secrets(&daemon).iter().flat_map(|secret| said.hits(secret)).collect();
    assert!(hits.is_empty(), "{}", hits.join("\n"));
    let places = match place {
        Place::File => &["sendonce.db,", "export.ndjson,", "/metrics"][..],
        Place::Server(_) => &["the server's log", "a dump", "pages", "written ahead", "export.ndjson,"],
    };
    for place in places {
        assert!(said.holds(place, "untrusted"), "the search would find it in {place}");
    }
    assert!(said.holds("log,", "the breaker opened"), "and in the daemon's log");
}

/// How many sealed values the store holds.
async fn sealed(daemon: &Daemon, place: &Place) -> i64 {
    const COUNT: &str = "SELECT count(*) FROM work";
    match place {
        Place::File => {
            let options = SqliteConnectOptions::new().filename(daemon.path("sendonce.db"));
            let mut store = options.connect().await.expect("a connection");
            let sealed = sqlx::query_scalar(COUNT).fetch_one(&mut store).await.expect("a count");
            store.close().await.expect("closed");
            sealed
        }
        Place::Server(database) => {
            let mut store = database.connect().await;
            let sealed = sqlx::query_scalar(COUNT).fetch_one(&mut store).await.expect("a count");
            store.close().await.expect("closed");
            sealed
        }
    }
}
