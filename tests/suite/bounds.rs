//! What a client can do to the daemon through its sockets, and what a database that does not answer can.

use std::fs;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::site::{Answer, Plan, Site, until};
use crate::support::smtp_oracle::{Act, Script, SmtpOracle, Stage};

const SANDBOX: &str =
    "[routes]\nsms = [\"sms\"]\n[provider.sms]\nkind = \"sandbox\"\nchannel = \"sms\"\noutbox = \"outbox\"\n";

/// Another person for each event: a newer message to the same one would take the older one's place.
fn person(event_id: &str) -> String {
    let sum: u32 = event_id.bytes().map(u32::from).sum();
    format!("+447700900{:03}", sum % 1000)
}

fn site(plan: Plan) -> Site {
    Site::make(Plan { rest: SANDBOX.to_owned(), ..plan })
}

async fn text(site: &Site, event_id: &str) -> Answer {
    site.post(event_id, json!([{ "sms": person(event_id) }]), json!({ "code": "493021" })).await
}

/// A request to post as it goes over the wire, with these header lines more.
fn request(site: &Site, event_id: &str, more: &str) -> String {
    let body = body(event_id);
    format!("{}Content-Length: {}\r\n{more}\r\n{body}", head(site, event_id), body.len())
}

fn head(site: &Site, event_id: &str) -> String {
    format!(
        "POST /v1/notifications HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Idempotency-Key: {event_id}\r\n",
        site.key
    )
}

fn body(event_id: &str) -> String {
    let code = json!({ "code": "493021" });
    let to = json!({ "sms": person(event_id) });
    json!({ "event_id": event_id, "kind": "password_reset", "to": to, "data": code, "expires_in": 600 }).to_string()
}

fn sent(site: &Site) -> usize {
    fs::read_to_string(site.path("outbox")).map_or(0, |outbox| outbox.lines().count())
}

/// Another process's hold on the database.
async fn other(site: &Site, sql: &'static str) -> SqliteConnection {
    let mut other = SqliteConnectOptions::new().filename(site.path("s.db")).connect().await.expect("a connection");
    sqlx::raw_sql(sql).execute(&mut other).await.expect("done");
    other
}

async fn let_go(mut other: SqliteConnection) {
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.expect("done");
}

#[tokio::test]
async fn a_client_that_dawdles_over_its_head_or_body_is_sent_away() {
    let site = site(Plan { server: "header_timeout = \"1s\"\nrequest_timeout = \"1s\"", ..Plan::default() });
    let _daemon = site.start().await;
    let answer = site.raw(b"POST /v1/notifications HTTP/1.1\r\nHost: x\r\nX-Slow: ").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    let slow = format!("{}Content-Length: 500\r\nConnection: close\r\n\r\n{{", head(&site, "slow"));
    let answer = site.raw(slow.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert_eq!(text(&site, "next").await.status, 202);
}

#[tokio::test]
async fn idle_connections_keep_nobody_out() {
    let site = site(Plan::default());
    let _daemon = site.start().await;
    let mut idle = vec![];
    for _ in 0..100 {
        idle.push(TcpStream::connect(site.api).await.expect("a connection"));
    }
    assert_eq!(text(&site, "through").await.status, 202);
    assert_eq!(idle.len(), 100);
}

#[tokio::test]
async fn what_is_too_large_or_given_twice_is_refused() {
    let site = site(Plan::default());
    let _daemon = site.start().await;
    let close = "Connection: close\r\n";
    let large = format!("{}Content-Length: 16385\r\n{close}\r\n{}", head(&site, "large"), " ".repeat(16_385));
    let many: String = (0..100).map(|n| format!("X-{n}: x\r\n")).collect();
    let long = format!("X-Long: {}\r\n{close}", "x".repeat(32 * 1024));
    for (request, status) in [
        (large, "413"),
        (request(&site, "many", &format!("{many}{close}")), "431"),
        (request(&site, "long", &long), "431"),
        (request(&site, "twice", &format!("Idempotency-Key: other\r\n{close}")), "400"),
        (request(&site, "coded", &format!("Content-Encoding: gzip\r\n{close}")), "415"),
    ] {
        let answer = site.raw(request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
    for path in ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e", "..", "sms%00", "sms/../sms", "no-such"] {
        let lines = format!("POST /v1/receipts/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n{close}\r\n");
        let answer = site.raw(lines.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
    assert_eq!(sent(&site), 0);
}

#[tokio::test]
async fn every_lawful_form_of_a_request_is_understood() {
    let site = site(Plan::default());
    let _daemon = site.start().await;
    let close = "Connection: close\r\n";

    let two = request(&site, "piped-1", "") + &request(&site, "piped-2", close);
    let answer = site.raw(two.as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 202 Accepted").count(), 2, "{answer}");

    let body = body("chunked");
    let (first, second) = body.split_at(20);
    let chunks = format!("{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", first.len(), second.len());
    let chunked = format!("{}Transfer-Encoding: chunked\r\n{close}\r\n{chunks}", head(&site, "chunked"));
    let answer = site.raw(chunked.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");

    let asks = request(&site, "asks", &format!("Expect: 100-continue\r\n{close}"));
    let (head, body) = asks.split_once("\r\n\r\n").expect("a head and a body");
    let mut stream = TcpStream::connect(site.api).await.expect("a connection");
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.expect("written");
    let mut go = [0; 25];
    stream.read_exact(&mut go).await.expect("a word");
    assert_eq!(&go, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");

    until("four texts", async || sent(&site) == 4).await;
}

#[tokio::test]
async fn the_admin_listener_tells_health_readiness_and_numbers() {
    let site = site(Plan::default());
    let _daemon = site.start().await;
    let id = text(&site, "one").await.id();
    site.reaches(&id, "dispatched").await;
    let health = site.admin("/healthz").await.expect("an answer");
    assert_eq!((health.status, health.text.as_str()), (200, "ok\n"));
    let ready = site.admin("/readyz").await.expect("an answer");
    assert_eq!((ready.status, ready.json()), (200, json!({ "ready": true, "reasons": [] })));
    let numbers = async || site.admin("/metrics").await.expect("an answer");
    until("the numbers", async || numbers().await.text.contains("sendonce_lateness_seconds{")).await;
    let numbers = numbers().await;
    assert!(numbers.headers["content-type"].to_str().expect("text").starts_with("application/openmetrics-text"));
    for line in [
        "sendonce_admissions_total{result=\"new\"} 1",
        "sendonce_attempts_total{provider=\"sms\",result=\"accepted\"} 1",
        "sendonce_contradictions_total 0",
        "sendonce_send_seconds_count{provider=\"sms\"} 1",
        "sendonce_in_flight{provider=\"sms\"} 0",
        "sendonce_commit_failures_total 0",
        "sendonce_commit_queue ",
        "sendonce_commit_seconds_bucket{",
        "sendonce_lateness_seconds{provider=\"sms\"}",
    ] {
        assert!(numbers.text.lines().any(|l| l.starts_with(line)), "{line}: {}", numbers.text);
    }
    assert!(numbers.text.ends_with("# EOF\n"));
    assert_eq!(site.admin("/v1/notifications").await.expect("an answer").status, 404);
    assert_eq!(site.get("/metrics").await.status, 404, "the numbers are not for the public");

    let told: serde_json::Value = serde_json::from_slice(&site.run(&["openapi"], "").stdout).expect("JSON");
    assert_eq!(site.get("/openapi.json").await.json(), told);
}

#[tokio::test]
async fn a_database_that_another_process_holds_is_told_as_503_and_nothing_is_stored() {
    let site = site(Plan { store: "busy_timeout = \"1s\"", ..Plan::default() });
    let _daemon = site.start().await;
    let lock = other(&site, "BEGIN IMMEDIATE").await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        let answer = text(&site, "held").await;
        assert_eq!((answer.status, answer.headers.get("retry-after").is_some()), (503, true), "{answer:?}");
        assert!(answer.text.contains("repeat it with the same key"), "{answer:?}");
    }
    let ready = site.admin("/readyz").await.expect("an answer");
    assert_eq!(ready.status, 503, "{ready:?}");
    assert_eq!(site.get("/v1/notifications?event_id=held").await.status, 404);
    let_go(lock).await;
    let answer = text(&site, "held").await;
    assert_eq!((answer.status, answer.headers.get("idempotency-replayed")), (202, None), "{answer:?}");
    site.reaches(&answer.id(), "dispatched").await;
    assert_eq!(sent(&site), 1);
    until("readiness", async || site.admin("/readyz").await.is_some_and(|ready| ready.status == 200)).await;
}

#[tokio::test]
async fn more_requests_than_may_wait_are_told_to_come_again_and_nothing_of_them_is_stored() {
    let plan = Plan { store: "busy_timeout = \"2s\"", admission: "queue = 2\nbatch = 1", ..Plan::default() };
    let site = site(plan);
    let _daemon = site.start().await;
    let lock = other(&site, "BEGIN IMMEDIATE").await;
    let names: Vec<String> = (0..12).map(|n| format!("crowd-{n}")).collect();
    let answers = futures_util::future::join_all(names.iter().map(|name| text(&site, name))).await;
    assert!(answers.iter().all(|a| a.status == 503 && a.headers.contains_key("retry-after")), "{answers:?}");
    let turned_away = answers.iter().filter(|a| a.text.contains("overloaded")).count();
    assert!((8..12).contains(&turned_away), "{turned_away}");
    let_go(lock).await;
    for name in &names {
        assert_eq!(site.get(&format!("/v1/notifications?event_id={name}")).await.status, 404);
    }
    for name in &names {
        until("room", async || {
            let answer = text(&site, name).await;
            answer.status == 202 && answer.headers.get("idempotency-replayed").is_none()
        })
        .await;
    }
    until("twelve texts", async || sent(&site) == 12).await;
}

#[tokio::test]
async fn a_result_that_cannot_be_stored_is_kept_and_the_mail_is_not_sent_again() {
    let script = Script::plain().once(Stage::Dot, Act::Late(Duration::from_secs(1), "250 2.0.0 kept"));
    let oracle = SmtpOracle::start(script).await;
    let rest = format!(
        "[routes]\nemail = [\"relay\"]\n[provider.relay]\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {}\n\
         tls = \"none\"\nfrom = \"no-reply@shop.example\"\n",
        oracle.addr().port()
    );
    let site = Site::make(Plan { store: "busy_timeout = \"1s\"", rest, ..Plan::default() });
    let _daemon = site.start().await;
    let id = site.mail("kept", "user@customer.example").await;
    oracle.wait_for(1).await;
    let lock = other(&site, "BEGIN IMMEDIATE").await;
    until("a result that waits", async || {
        let ready = site.admin("/readyz").await.expect("an answer");
        ready.text.contains("results wait to be stored")
    })
    .await;
    assert_eq!(site.status(&id).await["state"], "dispatching");
    let_go(lock).await;
    site.reaches(&id, "dispatched").await;
    assert_eq!(oracle.messages().len(), 1);
}

#[tokio::test]
async fn a_long_reader_stops_nobody_and_the_write_ahead_log_is_emptied_after_it() {
    let site = site(Plan::default());
    let _daemon = site.start().await;
    let reader = other(&site, "BEGIN; SELECT count(*) FROM sqlite_schema").await;
    let wal = || fs::metadata(site.path("s.db-wal")).expect("a file").len();
    for n in 0..60 {
        let id = text(&site, &format!("read-{n}")).await.id();
        site.reaches(&id, "dispatched").await;
    }
    assert_eq!(sent(&site), 60);
    assert!(wal() < 64 * 1024 * 1024, "{}", wal());
    let_go(reader).await;
    until("an empty log", async || wal() == 0).await;
    let answer = site.ask(Method::GET, "/v1/audit/account", &[], "").await.json();
    assert_eq!(answer["closes"], true, "{answer}");
}
