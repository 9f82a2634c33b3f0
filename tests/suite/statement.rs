//! `sendonce statement`, held against the real daemon and a provider that keeps a list of what it took: each side is told
//! what only the other knows, and what the list shows settles.

mod hours;

use std::collections::BTreeMap;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::promise::sends;
use crate::support::daemon::{Daemon, Plan, Strategy, event, phone, reference};
use crate::support::http_oracle::{HttpOracle, Reply, Seen};

/// Stands in every message of the list, where texts stand.
const CANARY: &str = "CANARY-list-text";

/// What the provider has taken, and which page of its list is broken.
#[derive(Default)]
struct Books {
    messages: Vec<Value>,
    broken: Option<(usize, Reply)>,
}

/// A provider that lists what it took: each event's name says what becomes of it.
struct Vendor {
    oracle: HttpOracle,
    books: Arc<Mutex<Books>>,
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

impl Vendor {
    /// Of `events`, `lost-…` are taken and their answers lost, `gone-…` are answered and not listed, `void-…` neither,
    /// `refused-…` are listed and refused, `twice-…` are as `lost-…` and recognised when they come again, and all others listed and answered.
    async fn start(events: &[&str]) -> Self {
        let oracle = HttpOracle::start().await;
        let books: Arc<Mutex<Books>> = Arc::default();
        let names: Vec<(String, String)> = events.iter().map(|name| (phone(name), (*name).to_owned())).collect();
        let kept = books.clone();
        oracle.script(move |seen| {
            let mut books = kept.lock().expect("no panic");
            if seen.method == "GET" { list(&books, seen) } else { take(&mut books, seen, &names) }
        });
        Self { oracle, books }
    }

    /// A message that we did not send, so many seconds ago.
    fn add(&self, id: &str, ago: f64) {
        let message = json!({ "id": id, "at": now() - ago, "to": phone("stranger"), "text": CANARY });
        self.books.lock().expect("no panic").messages.push(message);
    }

    /// What the list answers at this offset.
    fn breaks(&self, broken: Option<(usize, Reply)>) {
        self.books.lock().expect("no panic").broken = broken;
    }

    /// The pages that were asked for, by their offsets.
    fn pages(&self) -> Vec<usize> {
        let lists = self.oracle.requests().into_iter().filter(|seen| seen.method == "GET");
        lists.map(|seen| offset(&seen)).collect()
    }
}

fn offset(seen: &Seen) -> usize {
    seen.path.rsplit_once("offset=").and_then(|(_, offset)| offset.parse().ok()).expect("an offset")
}

fn list(books: &Books, seen: &Seen) -> Reply {
    let from = offset(seen);
    match &books.broken {
        Some((at, reply)) if *at == from => reply.clone(),
        _ => {
            let page: Vec<&Value> = books.messages.iter().skip(from).take(3).collect();
            Reply::json(200, json!({ "messages": page }))
        }
    }
}

fn take(books: &mut Books, seen: &Seen, names: &[(String, String)]) -> Reply {
    let name = names.iter().find(|(number, _)| seen.contains(number)).map_or("", |(_, name)| name.as_str());
    let id = format!("m-{name}");
    if name.starts_with("twice") && books.messages.iter().any(|message| message["id"] == id.as_str()) {
        return Reply::json(200, json!({ "id": id }));
    }
    if !name.starts_with("gone") && !name.starts_with("void") {
        let message = json!({ "ref": reference(seen), "id": id, "at": now(), "to": phone(name), "text": CANARY });
        books.messages.push(message);
    }
    match name.split('-').next() {
        Some("lost" | "void" | "twice") => Reply::Close,
        Some("refused") => Reply::json(400, "{}"),
        _ => Reply::json(201, json!({ "id": id })),
    }
}

async fn daemon(vendor: &Vendor) -> Daemon {
    let plan = Plan::new().http("probe", &vendor.oracle.url(), &[Strategy::List]).sms(&["probe"]);
    Daemon::start(plan.section("dispatch", "failover_after = 3")).await
}

/// Sends the events; gives the notifications by their names, once each stands where it should.
async fn send_all(daemon: &Daemon, events: &[&str]) -> BTreeMap<String, String> {
    let mut ids = BTreeMap::new();
    for name in events {
        let id = daemon.accept(&event(name)).await;
        let state = match name.split('-').next() {
            Some("lost" | "void") => "dispatch_unknown",
            Some("refused") => "failed",
            _ => "dispatched",
        };
        daemon.wait_for_state(&id, state).await;
        ids.insert((*name).to_owned(), id);
    }
    ids
}

fn compare(daemon: &Daemon, provider: &str, from: &str) -> (Output, Vec<Value>) {
    let output = daemon.run(&["statement", "--provider", provider, "--from", from, "--to", "0s", "--json"], "");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    (output, lines)
}

/// The values of `field` in the lines of one kind, in order.
fn told(lines: &[Value], what: &str, field: &str) -> Vec<String> {
    let kind = lines.iter().filter(|line| line["what"] == what);
    let mut told: Vec<String> = kind.map(|line| line[field].as_str().unwrap_or_default().to_owned()).collect();
    told.sort();
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_side_is_told_what_only_the_other_knows_and_what_the_list_shows_is_settled_without_a_resend() {
    const EVENTS: [&str; 6] = ["good-1", "good-2", "good-3", "lost-1", "gone-1", "void-1"];
    let vendor = Vendor::start(&EVENTS).await;
    let daemon = daemon(&vendor).await;
    let ids = send_all(&daemon, &EVENTS).await;
    vendor.add("strange-1", 1.0);
    vendor.add("strange-2", 60.0);
    vendor.add("long-ago", 90_000.0);
    let (output, lines) = compare(&daemon, "probe", "1h");
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert_eq!(vendor.pages(), [0, 3, 6], "seven messages, three a page");
    assert_eq!(told(&lines, "provider_only", "message_id"), ["strange-1", "strange-2"]);
    let mut missing = vec![ids["gone-1"].clone(), ids["void-1"].clone()];
    missing.sort();
    assert_eq!(told(&lines, "ours_only", "notification"), missing);
    let gone = lines.iter().find(|line| line["notification"] == ids["gone-1"]).expect("a line");
    assert_eq!((&gone["sent"], &gone["message_id"], &gone["attempt"]), (&json!("yes"), &json!("m-gone-1"), &json!(1)));
    let void = lines.iter().find(|line| line["notification"] == ids["void-1"]).expect("a line");
    assert_eq!((&void["sent"], &void["message_id"]), (&json!("unknown"), &Value::Null));
    assert_eq!(told(&lines, "settled", "notification"), [ids["lost-1"].clone()]);
    let sums = json!({ "what": "done", "listed": 6, "attempts": 6, "matched": 4, "provider_only": 2, "ours_only": 2,
        "settled": 1 });
    assert_eq!(lines.last(), Some(&sums));

    let status = daemon.wait_for_state(&ids["lost-1"], "dispatched").await;
    assert_eq!(status["sent"], "yes");
    let evidence = daemon.records(&ids["lost-1"], "evidence").await;
    let evidence = &evidence[0];
    assert_eq!(
        (&evidence["source"], &evidence["reason"], &evidence["actor"], &evidence["message_id"]),
        (&json!("statement"), &json!("listed"), &json!("provider:probe"), &json!("m-lost-1"))
    );
    assert_eq!(daemon.status(&ids["void-1"]).await["state"], "dispatch_unknown", "absence proves nothing");
    let (output, lines) = compare(&daemon, "probe", "1h");
    assert_eq!((output.status.code(), told(&lines, "settled", "notification").len()), (Some(6), 0));
    assert_eq!(sends(&vendor.oracle), EVENTS.len(), "nothing was sent again");

    let people = daemon.run(&["statement", "--provider", "probe", "--from", "1h", "--to", "0s"], "");
    let people = String::from_utf8_lossy(&people.stdout).into_owned();
    assert!(people.contains("what=provider_only ") && people.contains("message_id=strange-1"), "{people}");
    let said = format!("{output:?}{lines:?}{people}{}", daemon.log());
    for secret in [CANARY, &phone("stranger"), &phone("good-1")] {
        assert!(!said.contains(secret), "{secret}");
    }
    daemon.audit_closes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_both_sides_agree_the_command_ends_well_also_after_a_settlement() {
    let vendor = Vendor::start(&["good-1", "lost-1"]).await;
    let daemon = daemon(&vendor).await;
    let ids = send_all(&daemon, &["good-1", "lost-1"]).await;
    let (output, lines) = compare(&daemon, "probe", "1h");
    assert_eq!(
        (output.status.code(), told(&lines, "settled", "notification")),
        (Some(0), vec![ids["lost-1"].clone()]),
        "{output:?}"
    );
    assert_eq!(compare(&daemon, "probe", "1h").0.status.code(), Some(0));
    daemon.audit_closes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_cannot_be_read_whole_changes_nothing_and_says_so() {
    let events = ["good-1", "good-2", "good-3", "lost-1"];
    let vendor = Vendor::start(&events).await;
    let daemon = daemon(&vendor).await;
    let ids = send_all(&daemon, &events).await;
    let hole = json!({ "messages": [{ "ref": "x", "at": now() }] });
    for (at, broken) in
        [(3, Reply::status(500)), (3, Reply::Close), (0, Reply::json(200, "{")), (3, Reply::json(200, hole))]
    {
        vendor.breaks(Some((at, broken.clone())));
        let (output, lines) = compare(&daemon, "probe", "1h");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), lines.len()), (Some(1), 1), "{broken:?}: {output:?}");
        assert_eq!(lines[0], json!({ "what": "failed", "why": "list_unreadable" }));
        assert!(said.contains("could not be read whole; nothing was changed"), "{said}");
    }
    let status = daemon.status(&ids["lost-1"]).await;
    assert_eq!((&status["state"], &status["sent"]), (&json!("dispatch_unknown"), &json!("unknown")));
    assert!(daemon.records(&ids["lost-1"], "evidence").await.is_empty());
    vendor.breaks(None);
    assert_eq!(compare(&daemon, "probe", "1h").0.status.code(), Some(0));
    daemon.wait_for_state(&ids["lost-1"], "dispatched").await;
    assert_eq!(sends(&vendor.oracle), events.len());
    daemon.audit_closes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_taken_for_refused_and_stands_in_the_list_is_known_to_be_sent_from_then_on() {
    let vendor = Vendor::start(&["refused-1"]).await;
    let daemon = daemon(&vendor).await;
    let ids = send_all(&daemon, &["refused-1"]).await;
    let (output, lines) = compare(&daemon, "probe", "1h");
    assert_eq!(
        (output.status.code(), told(&lines, "settled", "notification")),
        (Some(0), vec![ids["refused-1"].clone()]),
        "{output:?}"
    );
    let status = daemon.status(&ids["refused-1"]).await;
    assert_eq!((&status["state"], &status["sent"]), (&json!("failed"), &json!("yes")));
    daemon.audit_closes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_repeated_under_the_providers_dedupe_stands_for_both_attempts() {
    let vendor = Vendor::start(&["twice-1"]).await;
    let plan = Plan::new().http("probe", &vendor.oracle.url(), &[Strategy::List, Strategy::Dedupe]).sms(&["probe"]);
    let daemon = Daemon::start(plan).await;
    let ids = send_all(&daemon, &["twice-1"]).await;
    assert_eq!(daemon.status(&ids["twice-1"]).await["attempts"].as_array().map(Vec::len), Some(2));
    let (output, lines) = compare(&daemon, "probe", "1h");
    let done = lines.last().expect("a line");
    assert_eq!(
        (output.status.code(), &done["attempts"], &done["matched"]),
        (Some(0), &json!(2), &json!(1)),
        "{output:?}"
    );
    daemon.audit_closes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_compared_is_refused_with_its_reason() {
    let vendor = Vendor::start(&[]).await;
    let plan =
        Plan::new().http("probe", &vendor.oracle.url(), &[Strategy::List]).http("mute", &vendor.oracle.url(), &[]);
    let daemon = Daemon::start(plan.sms(&["probe"])).await;
    for (provider, from, told) in [
        ("nobody", "1h", "Not found"),
        ("mute", "1h", "The provider has no list of messages"),
        ("probe", "31d", "`from`"),
        ("probe", "0s", "`from`"),
        ("probe", "2100-01-01T00:00:00Z", "`from`"),
    ] {
        let (output, lines) = compare(&daemon, provider, from);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), lines.len()), (Some(4), 0), "{provider} {from}: {output:?}");
        assert!(said.contains(told) || said.contains("from"), "{provider} {from}: {said}");
    }
    assert!(vendor.pages().is_empty());
}
