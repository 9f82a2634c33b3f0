//! Many events in one request: an answer for each line, in order, each after its own commit.

use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::support::daemon::event;

const PATH: &str = "/v1/notifications:batch";

/// A line that posts an event under its id as the key.
fn line(id: &str) -> String {
    with(event(id), "/idempotency_key", id).to_string()
}

async fn post(daemon: &Daemon, lines: &[String]) -> Answer {
    daemon.ask(Method::POST, PATH, &[("content-type", "application/x-ndjson")], lines.join("\n")).await
}

/// The answer lines.
fn answers(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Numbers and statuses of the answer lines.
fn statuses(answers: &[Value]) -> Vec<(u64, u64)> {
    let number = |value: &Value| value.as_u64().expect("a number");
    answers.iter().map(|answer| (number(&answer["line"]), number(&answer["status"]))).collect()
}

#[tokio::test]
async fn lines_are_answered_in_their_order_and_a_repeat_of_all_of_them_sends_nothing() {
    let (oracle, plan) = provider().await;
    let daemon = Daemon::start(plan).await;
    let lines: Vec<String> = (0..150).map(|n| line(&format!("e{n}"))).collect();
    let first = answers(&post(&daemon, &lines).await);
    assert_eq!(statuses(&first), (1..=150).map(|n| (n, 202)).collect::<Vec<_>>());
    for (n, answer) in first.iter().enumerate() {
        assert_eq!(answer["body"]["event_id"], format!("e{n}"));
        assert!(answer.get("replayed").is_none() && answer.get("problem").is_none(), "{answer}");
    }
    sent(&daemon, &oracle, 150).await;
    let again = answers(&post(&daemon, &lines).await);
    assert!(again.iter().zip(&first).all(|(again, first)| again["body"] == first["body"] && again["replayed"] == true));
    sent(&daemon, &oracle, 150).await;
}

#[tokio::test]
async fn a_bad_line_fails_alone() {
    let (oracle, plan) = provider().await;
    let daemon = Daemon::start(plan).await;
    let keyless = event("e2").to_string();
    let long = with(event("e4"), "/locale", "x".repeat(17 * 1024)).to_string();
    let telling = with(event("e5"), "/idempotency_key", "reset-493021").to_string();
    let reused = with(event("e7"), "/idempotency_key", "e1").to_string();
    let lines =
        [line("e1"), keyless, "{".to_owned(), String::new(), long, telling, line("e1"), line("e6") + "\r", reused];
    let answers = answers(&post(&daemon, &lines).await);
    assert_eq!(statuses(&answers), [(1, 202), (2, 400), (3, 400), (5, 413), (6, 400), (7, 202), (8, 202), (9, 422)]);
    assert_eq!(answers[1]["problem"]["field"], "idempotency_key");
    assert_eq!(answers[4]["problem"]["field"], "idempotency_key");
    assert_eq!(answers[7]["problem"]["field"], "idempotency_key");
    assert_eq!(answers[0]["body"], answers[5]["body"], "the same line twice is one event");
    sent(&daemon, &oracle, 2).await;
}

#[tokio::test]
async fn what_is_wrong_with_the_whole_is_an_answer_to_the_whole() {
    let (oracle, plan) = provider().await;
    let daemon = Daemon::start(plan.section("admission", "batch_lines = 3")).await;
    let json = daemon.ask(Method::POST, PATH, &[("content-type", "application/json")], line("e1")).await;
    assert_eq!(json.status, 415);
    assert_eq!(post(&daemon, &[]).await.status, 400);
    assert_eq!(post(&daemon, &[String::new(), " ".to_owned()]).await.status, 400);
    let lines: Vec<String> = (0..6).map(|n| line(&format!("e{n}"))).collect();
    let answers = answers(&post(&daemon, &lines).await);
    assert_eq!(statuses(&answers), [(1, 202), (2, 202), (3, 202), (4, 413)], "and nothing after that is read");
    sent(&daemon, &oracle, 3).await;
}

#[tokio::test]
async fn a_client_that_hangs_up_midway_repeats_its_lines_and_each_is_sent_once() {
    let (oracle, plan) = provider().await;
    let daemon = Daemon::start(plan).await;
    let lines: Vec<String> = (0..40).map(|n| line(&format!("e{n}"))).collect();
    let body = lines.join("\n") + "\n";
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/x-ndjson\r\n\
         Content-Length: {}\r\n\r\n",
        daemon.key(),
        body.len()
    );
    // Half of a line more than ten: what came is answered while the rest is not there yet.
    let cut = lines[..10].iter().map(|line| line.len() + 1).sum::<usize>() + 60;
    let mut stream = daemon.write(format!("{head}{}", &body[..cut]).as_bytes()).await;
    let mut said = String::new();
    while !said.contains("\"line\":10,") {
        let mut bytes = [0; 4096];
        let read =
            tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await.expect("in time").expect("a connection");
        assert!(read > 0, "{said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    assert!(said.starts_with("HTTP/1.1 200") && !said.contains("\"line\":11,"), "{said}");
    drop(stream);
    wait("the ten have left", async || daemon.get("/v1/audit/account").await.json()["counts"]["sent"] == 10).await;
    let answers = answers(&post(&daemon, &lines).await);
    assert!(answers[..10].iter().all(|answer| answer["replayed"] == true));
    assert!(answers[10..].iter().all(|answer| answer.get("replayed").is_none()), "half a line is none");
    sent(&daemon, &oracle, 40).await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_before_it_has_sent_all_is_not_waited_for() {
    let (oracle, plan) = provider().await;
    let daemon = Daemon::start(plan.section("server", "body_limit = 65536")).await;
    // More than what the sockets between hold: refused lines cost the daemon little.
    let padding = " ".repeat(30_000);
    let body: String = (0..900).map(|n| format!("{{\"n\":{n}{padding}}}\n")).collect();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/x-ndjson\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n",
        daemon.key(),
        body.len()
    );
    let mut stream = daemon.write(head.as_bytes()).await;
    tokio::time::timeout(PATIENCE, stream.write_all(body.as_bytes())).await.expect("it reads on").expect("written");
    let mut said = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut said)).await.expect("an end").expect("an answer");
    assert_eq!(said.matches("\"problem\":{").count(), 900);
    sent(&daemon, &oracle, 0).await;
}

#[tokio::test]
async fn lines_of_a_batch_share_commits() {
    let (oracle, plan) = provider().await;
    let daemon = Daemon::start(plan).await;
    let lines: Vec<String> = (0..128).map(|n| line(&format!("e{n}"))).collect();
    assert_eq!(answers(&post(&daemon, &lines).await).len(), 128);
    sent(&daemon, &oracle, 128).await;
    let metrics = daemon.metrics().await;
    let number = |name: &str| -> u64 {
        let value = metrics.lines().find_map(|line| line.strip_prefix(&format!("sendonce_commit_commands_{name} ")));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {metrics}"))
    };
    assert!(number("bucket{le=\"8.0\"}") < number("count"), "no commit had more than 8 commands: {metrics}");
}

#[tokio::test]
async fn the_program_sends_a_file_and_tells_every_answer() {
    let (oracle, plan) = provider().await;
    let daemon = Daemon::start(plan).await;
    let file = daemon.path("events.ndjson");
    std::fs::write(&file, format!("{}\n{{\n{}\n", line("e1"), line("e2"))).expect("a file");
    let run = daemon.run(&["batch", &file.display().to_string()], "");
    assert_eq!((run.status.code(), String::from_utf8_lossy(&run.stdout).lines().count()), (Some(4), 3), "{run:?}");
    sent(&daemon, &oracle, 2).await;
    std::fs::write(&file, format!("{}\n{}\n", line("e1"), line("e2"))).expect("a file");
    assert_eq!(daemon.run(&["batch", &file.display().to_string()], "").status.code(), Some(0));
    sent(&daemon, &oracle, 2).await;
}
