//! What a client can do to the daemon through its sockets, and what a database that does not answer can.

use std::fs;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::daemon::{Answer, Daemon, Plan, event_to, wait};
use crate::support::smtp_oracle::{Act, Script, SmtpOracle, Stage};

/// Another person for each event: a newer message to the same one would take the older one's place.
fn person(event_id: &str) -> String {
    let sum: u32 = event_id.bytes().map(u32::from).sum();
    format!("+447700900{:03}", sum % 1000)
}

async fn text(daemon: &Daemon, event_id: &str) -> Answer {
    daemon.post(&event_to(event_id, json!([{ "sms": person(event_id) }]), json!({ "code": "493021" }))).await
}

/// A request to post as it goes over the wire, with these header lines more.
fn request(daemon: &Daemon, event_id: &str, more: &str) -> String {
    let body = body(event_id);
    format!("{}Content-Length: {}\r\n{more}\r\n{body}", head(daemon, event_id), body.len())
}

fn head(daemon: &Daemon, event_id: &str) -> String {
    format!(
        "POST /v1/notifications HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Idempotency-Key: {event_id}\r\n",
        daemon.key()
    )
}

fn body(event_id: &str) -> String {
    let code = json!({ "code": "493021" });
    let to = json!({ "sms": person(event_id) });
    json!({ "event_id": event_id, "kind": "password_reset", "to": to, "data": code, "expires_in": 600 }).to_string()
}

fn sent(daemon: &Daemon) -> usize {
    fs::read_to_string(daemon.path("outbox")).map_or(0, |outbox| outbox.lines().count())
}

/// Another process's hold on the database.
async fn other(daemon: &Daemon, sql: &'static str) -> SqliteConnection {
    let mut other =
        SqliteConnectOptions::new().filename(daemon.path("sendonce.db")).connect().await.expect("a connection");
    sqlx::raw_sql(sql).execute(&mut other).await.expect("done");
    other
}

async fn let_go(mut other: SqliteConnection) {
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.expect("done");
}

#[tokio::test]
async fn a_client_that_dawdles_over_its_head_or_body_is_sent_away() {
    let hasty = "header_timeout = \"1s\"\nrequest_timeout = \"1s\"";
    let daemon = Daemon::start(Plan::plain().sandbox().section("server", hasty)).await;
    let answer = daemon.raw(b"POST /v1/notifications HTTP/1.1\r\nHost: x\r\nX-Slow: ").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    let slow = format!("{}Content-Length: 500\r\nConnection: close\r\n\r\n{{", head(&daemon, "slow"));
    let answer = daemon.raw(slow.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    // A second is also all that the store has for an answer here: a busy machine may need a repeat.
    wait("the next one", async || text(&daemon, "next").await.status == 202).await;
}

#[tokio::test]
async fn idle_connections_keep_nobody_out() {
    let daemon = Daemon::start(Plan::plain().sandbox()).await;
    let mut idle = vec![];
    for _ in 0..100 {
        idle.push(TcpStream::connect(daemon.api()).await.expect("a connection"));
    }
    assert_eq!(text(&daemon, "through").await.status, 202);
    assert_eq!(idle.len(), 100);
}

#[tokio::test]
async fn what_is_too_large_or_given_twice_is_refused() {
    let daemon = Daemon::start(Plan::plain().sandbox()).await;
    let close = "Connection: close\r\n";
    let large = format!("{}Content-Length: 16385\r\n{close}\r\n{}", head(&daemon, "large"), " ".repeat(16_385));
    let many: String = (0..100).map(|n| format!("X-{n}: x\r\n")).collect();
    let long = format!("X-Long: {}\r\n{close}", "x".repeat(32 * 1024));
    for (request, status) in [
        (large, "413"),
        (request(&daemon, "many", &format!("{many}{close}")), "431"),
        (request(&daemon, "long", &long), "431"),
        (request(&daemon, "twice", &format!("Idempotency-Key: other\r\n{close}")), "400"),
        (request(&daemon, "coded", &format!("Content-Encoding: gzip\r\n{close}")), "415"),
    ] {
        let answer = daemon.raw(request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
    for path in
        ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e", "..", "sandbox%00", "sandbox/../sandbox", "no-such"]
    {
        let lines = format!("POST /v1/receipts/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n{close}\r\n");
        let answer = daemon.raw(lines.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
    assert_eq!(sent(&daemon), 0);
}

#[tokio::test]
async fn every_lawful_form_of_a_request_is_understood() {
    let daemon = Daemon::start(Plan::plain().sandbox()).await;
    let close = "Connection: close\r\n";

    let two = request(&daemon, "piped-1", "") + &request(&daemon, "piped-2", close);
    let answer = daemon.raw(two.as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 202 Accepted").count(), 2, "{answer}");

    let body = body("chunked");
    let (first, second) = body.split_at(20);
    let chunks = format!("{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", first.len(), second.len());
    let chunked = format!("{}Transfer-Encoding: chunked\r\n{close}\r\n{chunks}", head(&daemon, "chunked"));
    let answer = daemon.raw(chunked.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");

    let asks = request(&daemon, "asks", &format!("Expect: 100-continue\r\n{close}"));
    let (head, body) = asks.split_once("\r\n\r\n").expect("a head and a body");
    let mut stream = TcpStream::connect(daemon.api()).await.expect("a connection");
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.expect("written");
    let mut go = [0; 25];
    stream.read_exact(&mut go).await.expect("a word");
    assert_eq!(&go, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");

    wait("four texts", async || sent(&daemon) == 4).await;
}

#[tokio::test]
async fn the_admin_listener_tells_health_readiness_and_numbers() {
    let daemon = Daemon::start(Plan::plain().sandbox()).await;
    let id = text(&daemon, "one").await.id();
    daemon.wait_for_state(&id, "dispatched").await;
    let health = daemon.admin("/healthz").await.expect("an answer");
    assert_eq!((health.status, health.text.as_str()), (200, "ok\n"));
    let ready = daemon.admin("/readyz").await.expect("an answer");
    assert_eq!((ready.status, ready.json()), (200, json!({ "ready": true, "reasons": [] })));
    let numbers = async || daemon.admin("/metrics").await.expect("an answer");
    wait("the numbers", async || numbers().await.text.contains("sendonce_lateness_seconds{")).await;
    let numbers = numbers().await;
    assert!(numbers.headers["content-type"].to_str().expect("text").starts_with("application/openmetrics-text"));
    for line in [
        "sendonce_admissions_total{result=\"new\"} 1",
        "sendonce_attempts_total{provider=\"sandbox\",result=\"accepted\"} 1",
        "sendonce_contradictions_total 0",
        "sendonce_send_seconds_count{provider=\"sandbox\"} 1",
        "sendonce_in_flight{provider=\"sandbox\"} 0",
        "sendonce_commit_failures_total 0",
        "sendonce_commit_queue ",
        "sendonce_commit_seconds_bucket{",
        "sendonce_lateness_seconds{provider=\"sandbox\"}",
    ] {
        assert!(numbers.text.lines().any(|l| l.starts_with(line)), "{line}: {}", numbers.text);
    }
    assert!(numbers.text.ends_with("# EOF\n"));
    assert_eq!(daemon.admin("/v1/notifications").await.expect("an answer").status, 404);
    assert_eq!(daemon.get("/metrics").await.status, 404, "the numbers are not for the public");

    let told: serde_json::Value = serde_json::from_slice(&daemon.run(&["openapi"], "").stdout).expect("JSON");
    assert_eq!(daemon.get("/openapi.json").await.json(), told);
}

#[tokio::test]
async fn a_database_that_another_process_holds_is_told_as_503_and_nothing_is_stored() {
    let daemon = Daemon::start(Plan::plain().sandbox().section("store", "busy_timeout = \"1s\"")).await;
    let lock = other(&daemon, "BEGIN IMMEDIATE").await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        let answer = text(&daemon, "held").await;
        assert_eq!((answer.status, answer.headers.get("retry-after").is_some()), (503, true), "{answer:?}");
        assert!(answer.text.contains("repeat it with the same key"), "{answer:?}");
    }
    let ready = daemon.admin("/readyz").await.expect("an answer");
    assert_eq!(ready.status, 503, "{ready:?}");
    assert_eq!(daemon.get("/v1/notifications?event_id=held").await.status, 404);
    let_go(lock).await;
    let answer = text(&daemon, "held").await;
    assert_eq!((answer.status, answer.headers.get("idempotency-replayed")), (202, None), "{answer:?}");
    daemon.wait_for_state(&answer.id(), "dispatched").await;
    assert_eq!(sent(&daemon), 1);
    wait("readiness", async || daemon.admin("/readyz").await.is_some_and(|ready| ready.status == 200)).await;
}

#[tokio::test]
async fn more_requests_than_may_wait_are_told_to_come_again_and_nothing_of_them_is_stored() {
    let plan = Plan::plain().sandbox().section("store", "busy_timeout = \"2s\"");
    let daemon = Daemon::start(plan.section("admission", "queue = 2\nbatch = 1")).await;
    let lock = other(&daemon, "BEGIN IMMEDIATE").await;
    let names: Vec<String> = (0..12).map(|n| format!("crowd-{n}")).collect();
    let answers = futures_util::future::join_all(names.iter().map(|name| text(&daemon, name))).await;
    assert!(answers.iter().all(|a| a.status == 503 && a.headers.contains_key("retry-after")), "{answers:?}");
    let turned_away = answers.iter().filter(|a| a.text.contains("overloaded")).count();
    assert!((8..12).contains(&turned_away), "{turned_away}");
    let_go(lock).await;
    for name in &names {
        assert_eq!(daemon.get(&format!("/v1/notifications?event_id={name}")).await.status, 404);
    }
    for name in &names {
        wait("room", async || {
            let answer = text(&daemon, name).await;
            answer.status == 202 && answer.headers.get("idempotency-replayed").is_none()
        })
        .await;
    }
    wait("twelve texts", async || sent(&daemon) == 12).await;
}

#[tokio::test]
async fn a_result_that_cannot_be_stored_is_kept_and_the_mail_is_not_sent_again() {
    let script = Script::plain().once(Stage::Dot, Act::Late(Duration::from_secs(1), "250 2.0.0 kept"));
    let oracle = SmtpOracle::start(script).await;
    let plan = Plan::plain().relay_in_clear(oracle.addr().port(), "");
    let daemon = Daemon::start(plan.section("store", "busy_timeout = \"1s\"")).await;
    let id = daemon.mail("kept", "user@customer.example").await;
    oracle.wait_for(1).await;
    let lock = other(&daemon, "BEGIN IMMEDIATE").await;
    wait("a result that waits", async || {
        let ready = daemon.admin("/readyz").await.expect("an answer");
        ready.text.contains("results wait to be stored")
    })
    .await;
    assert_eq!(daemon.status(&id).await["state"], "dispatching");
    let_go(lock).await;
    daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!(oracle.messages().len(), 1);
}

#[tokio::test]
async fn a_long_reader_stops_nobody_and_the_write_ahead_log_is_emptied_after_it() {
    let daemon = Daemon::start(Plan::plain().sandbox()).await;
    let reader = other(&daemon, "BEGIN; SELECT count(*) FROM sqlite_schema").await;
    let wal = || fs::metadata(daemon.path("sendonce.db-wal")).expect("a file").len();
    for n in 0..60 {
        let id = text(&daemon, &format!("read-{n}")).await.id();
        daemon.wait_for_state(&id, "dispatched").await;
    }
    assert_eq!(sent(&daemon), 60);
    assert!(wal() < 64 * 1024 * 1024, "{}", wal());
    let_go(reader).await;
    wait("an empty log", async || wal() == 0).await;
    let answer = daemon.ask(Method::GET, "/v1/audit/account", &[], "").await.json();
    assert_eq!(answer["closes"], true, "{answer}");
}

#[tokio::test]
async fn the_line_of_a_refusal_has_no_field_that_the_request_did_not_give() {
    let daemon = Daemon::start(Plan::plain().sandbox()).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let named = [("x-request-id", "named"), ("traceparent", trace), ("idempotency-key", "k1")];
    for headers in [&[("x-request-id", "bare")][..], &named] {
        assert_eq!(daemon.ask(Method::GET, "/v1/unknown?x=1", headers, "").await.status, 400);
    }
    let line = |request: &str| {
        let parse = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok();
        daemon.log().lines().filter_map(parse).find(|line| line["request"] == request)
    };
    wait("both lines", async || line("bare").is_some() && line("named").is_some()).await;
    let (bare, named) = (line("bare").expect("a line"), line("named").expect("a line"));
    assert_eq!((bare.get("traceparent"), bare.get("key")), (None, None), "{bare}");
    assert_eq!(named["traceparent"], trace);
    assert!(named["key"].as_str().is_some_and(|key| !key.is_empty() && key != "k1"), "{named}");
}
