//! The program as scripts see it: what it asks of the daemon, what it prints, and how it ends.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use http_body_util::BodyExt as _;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::support::port::refusing;

const KEY: &str = "sok_test_CANARYKEY";
const ID: &str = "ntf_0198c7f4-0000-7000-8000-000000000000";

type Answers = Vec<(u16, &'static str, &'static str)>;

/// What the stub was asked, as `METHOD path?query | authorization | idempotency-key | body`.
type Seen = Arc<Mutex<Vec<String>>>;

/// A daemon that answers from a list, and remembers what it was asked.
async fn stub(answers: Answers) -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let state = (seen.clone(), Arc::new(Mutex::new(answers.into_iter())));
    let router = Router::new().fallback(answer).with_state(state);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, seen)
}

type StubState = (Seen, Arc<Mutex<std::vec::IntoIter<(u16, &'static str, &'static str)>>>);

async fn answer(State((seen, answers)): State<StubState>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let header = |name| head.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("-").to_owned();
    let line = format!(
        "{} {} | {} | {} | {}",
        head.method,
        head.uri,
        header("authorization"),
        header("idempotency-key"),
        String::from_utf8_lossy(&body)
    );
    seen.lock().expect("not poisoned").push(line);
    let (status, kind, text) = answers.lock().expect("not poisoned").next().expect("no more answers");
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response.headers_mut().insert("content-type", kind.parse().expect("a value"));
    if status == 503 {
        response.headers_mut().insert("retry-after", "7".parse().expect("a value"));
    }
    response
}

struct Ended {
    code: i32,
    out: String,
    err: String,
}

async fn run(url: &str, args: &[&str], input: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendonce"));
    command.args(args).env_clear().env("SENDONCE_URL", url).env("SENDONCE_API_KEY", KEY);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that does not read its input may be gone before it is written.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    for _ in 0..6000 {
        if child.try_wait().expect("a child").is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // For one that has not ended by now; for any other this does nothing.
    let _ = child.kill();
    let ended = child.wait_with_output().expect("an end");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let ended = Ended { code: ended.status.code().expect("a code"), out: text(ended.stdout), err: text(ended.stderr) };
    assert!(!ended.out.contains("CANARY") && !ended.err.contains("CANARY"), "{} {}", ended.out, ended.err);
    ended
}

async fn call(answers: Answers, args: &[&str], input: &str) -> (Ended, Vec<String>) {
    let (address, seen) = stub(answers).await;
    let ended = run(&format!("http://{address}"), args, input).await;
    let seen = seen.lock().expect("not poisoned").clone();
    (ended, seen)
}

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

#[tokio::test]
async fn an_event_is_posted_with_its_code_from_standard_input_and_followed_to_its_end() {
    let accepted = r#"{"id":"ntf_0198c7f4-0000-7000-8000-000000000000","state":"accepted"}"#;
    let status = r#"{"id":"ntf_0198c7f4-0000-7000-8000-000000000000","state":"dispatched","sent":"yes"}"#;
    let args = "send --sms +84901234567 --event-id e1 --code - --expires-in 10m --wait 30s --json";
    let args: Vec<&str> = args.split(' ').collect();
    let (ended, seen) = call(vec![(202, JSON, accepted), (200, JSON, status)], &args, "CANARY-493021\n").await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    assert!(ended.out.contains("\"state\":\"dispatched\""), "{}", ended.out);
    let body = r#"{"data":{"code":"CANARY-493021"},"event_id":"e1","expires_in":600,"kind":"password_reset","to":[{"sms":"+84901234567"}]}"#;
    assert_eq!(seen[0], format!("POST /v1/notifications | Bearer {KEY} | e1 | {body}"));
    assert_eq!(seen[1], format!("GET /v1/notifications/{ID} | Bearer {KEY} | - | "));
}

#[tokio::test]
async fn a_message_that_did_not_leave_ends_with_1() {
    let failed = r#"{"id":"ntf_0198c7f4-0000-7000-8000-000000000000","state":"failed","sent":"no"}"#;
    let (ended, _) = call(vec![(200, JSON, failed), (200, JSON, failed)], &["status", ID, "--wait", "30s"], "").await;
    assert_eq!(ended.code, 1);
    assert!(ended.out.contains("state: failed"), "{}", ended.out);
}

#[tokio::test]
async fn a_refusal_is_told_in_the_daemons_words_and_ends_with_4() {
    let problem = r#"{"type":"urn:x","title":"Not found","detail":"no such notification"}"#;
    let (ended, _) = call(vec![(404, PROBLEM, problem)], &["cancel", ID], "").await;
    assert_eq!((ended.code, ended.err.as_str()), (4, "Not found: no such notification\n"));
    let (ended, _) = call(vec![(503, "text/html", "<h1>CANARY</h1>")], &["status", "--event-id", "e1"], "").await;
    let wanted = "the daemon answered 503 Service Unavailable (try again in 7 s)\n";
    assert_eq!((ended.code, ended.err.as_str()), (4, wanted));
}

#[tokio::test]
async fn a_daemon_that_is_not_there_ends_with_5() {
    let free = refusing();
    let ended = run(&format!("http://{free}"), &["audit", "account"], "").await;
    assert_eq!((ended.code, ended.err.as_str()), (5, "the daemon cannot be reached\n"));
}

const MORE: &str = r#"{"resolved":100,"more":true}"#;

#[tokio::test]
async fn unknowns_are_filtered_and_each_verdict_is_tried() {
    let args = ["unknown", "list", "--provider", "a", "--cause", "lost_answer", "--limit", "5"];
    let (ended, seen) = call(vec![(200, JSON, r#"{"items":[],"next":null}"#)], &args, "").await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "none\n"));
    assert!(seen[0].starts_with("GET /v1/unknown?provider=a&cause=lost_answer&limit=5 | "), "{}", seen[0]);

    let other = ID.replace("8000", "8001");
    let args = ["unknown", "resolve", ID, &other, "--not-sent", "--ticket", "OPS-1"];
    let answers = vec![(409, PROBLEM, r#"{"title":"Nothing open"}"#), (200, JSON, r#"{"state":"retry_wait"}"#)];
    let (ended, seen) = call(answers, &args, "").await;
    assert_eq!((ended.code, ended.out.as_str()), (4, "state: retry_wait\n"));
    assert_eq!(ended.err, format!("{ID}: Nothing open\n"));
    let body = r#"{"ticket":"OPS-1","verdict":"not_sent"}"#;
    assert_eq!(seen[1], format!("POST /v1/notifications/{other}/resolve | Bearer {KEY} | - | {body}"));

    let args = ["unknown", "resolve", "--all-matching", "--provider", "a", "--abandon", "--ticket", "OPS-1"];
    let (ended, seen) = call(vec![(200, JSON, MORE), (200, JSON, r#"{"resolved":3,"more":false}"#)], &args, "").await;
    assert_eq!((ended.code, ended.out.as_str(), seen.len()), (0, "resolved: 103\n", 2));
    assert!(seen[0].ends_with(r#"{"provider":"a","ticket":"OPS-1","verdict":"abandon"}"#), "{}", seen[0]);
}

#[tokio::test]
async fn an_export_appears_when_it_is_complete_and_not_before() {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("x.csv");
    let args = ["audit", "export", "--format", "csv", "--what", "accepted", "--output", file.to_str().expect("text")];
    let (ended, seen) = call(vec![(200, "text/csv", "a,b\n1,2\n")], &args, "").await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    assert!(seen[0].starts_with("GET /v1/audit?format=csv&what=accepted | "), "{}", seen[0]);
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "a,b\n1,2\n");

    let cut = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = cut.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut socket, _) = cut.accept().await.expect("a client");
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\na,b\n\r\n";
        socket.write_all(head.as_bytes()).await.expect("written");
    });
    let other = dir.path().join("y.csv");
    let args = ["audit", "export", "--output", other.to_str().expect("text")];
    assert_eq!(run(&format!("http://{address}"), &args, "").await.code, 5);
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).expect("a directory").map(|e| e.expect("an entry").path()).collect();
    assert_eq!(left, [file]);
}

#[tokio::test]
async fn a_configuration_is_checked_with_all_that_it_names() {
    let dir = TempDir::new().expect("a directory");
    let at = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let run = async |args: &[&str]| run("http://127.0.0.1:1", args, "").await;
    assert_eq!(run(&["keys", "init", &at("")]).await.code, 0);
    let made = run(&["keys", "new", "--tenant", "shop", "--role", "sender", "--file", &at("keys.toml")]).await;
    assert!(made.code == 0 && made.out.starts_with("sok_"), "{}", made.err);
    let config = |tenant: &str| {
        format!(
            "[store]\nurl = \"sqlite:s.db\"\n[vault]\nsealing_keys_file = \"sealing.keys\"\nindex_key_credential = \
             \"index.key\"\n[keys]\nfile = \"keys.toml\"\n[routes]\nsms = [\"a\"]\n[provider.a]\nkind = \"sandbox\"\n\
             channel = \"sms\"\noutbox = \"o\"\n[[tenant]]\nname = \"{tenant}\"\n"
        )
    };
    let write = |text: String| std::fs::write(Path::new(&at("c.toml")), text).expect("written");
    write(config("shop"));
    let checked = run(&["config", "check", &at("c.toml"), "--credentials", &at("")]).await;
    assert_eq!((checked.code, checked.out), (0, format!("{}: no mistakes\n", at("c.toml"))));
    assert!(checked.err.contains("advice: ") && checked.err.contains("sandbox"), "{}", checked.err);

    write(config("other"));
    let checked = run(&["config", "check", &at("c.toml"), "--credentials", &at(""), "--json"]).await;
    assert_eq!(checked.code, 3);
    assert!(checked.out.contains("has a key of the tenant shop, which has no [[tenant]]"), "{}", checked.out);

    // What stands in other files is told in the same round as what stands in this one.
    std::fs::write(at("bad.toml"), "name = \"bad\"\ncolour = \"CANARY\"\n").expect("written");
    let bad =
        "[provider.b]\nkind = \"http\"\nmanifest_file = \"bad.toml\"\n[provider.c]\nkind = \"http\"\ntimeout = 1\n";
    write(format!("{}{bad}[server]\nlisten = \"CANARY\"\n", config("other")));
    let checked = run(&["config", "check", &at("c.toml"), "--credentials", &at("")]).await;
    for told in
        ["server.listen", "provider.c.timeout", "provider.c.manifest", "bad.toml:2:1: colour", "the tenant shop"]
    {
        assert_eq!(checked.err.matches(told).count(), 1, "{told}: {}", checked.err);
    }
    assert!(!checked.err.contains("CANARY") && !checked.err.contains("advice"), "{}", checked.err);

    write("[server]\nlisten = \"CANARY\"\n".to_owned());
    let checked = run(&["config", "check", &at("c.toml")]).await;
    assert_eq!(checked.code, 3);
    assert_eq!(checked.err.matches("c.toml:").count(), 7, "{}", checked.err);
    assert_eq!(run(&["config", "check"]).await.code, 2);
}

#[tokio::test]
async fn settings_that_hold_each_but_not_together_are_told_as_advice() {
    let dir = TempDir::new().expect("a directory");
    let at = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let run = async |args: &[&str]| run("http://127.0.0.1:1", args, "").await;
    assert_eq!(run(&["keys", "init", &at("")]).await.code, 0);
    assert_eq!(run(&["keys", "new", "--tenant", "shop", "--role", "sender", "--file", &at("keys.toml")]).await.code, 0);
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/templates/password_reset");
    let copied = Command::new("cp").arg("-r").arg(shipped).arg(at("quick")).status().expect("a program");
    assert!(copied.success());
    std::fs::create_dir(at("templates")).expect("made");
    std::fs::rename(at("quick"), at("templates/quick")).expect("moved");
    let rules = at("templates/quick/kind.toml");
    let text = std::fs::read_to_string(&rules).expect("a file").replace("86400", "60");
    std::fs::write(rules, text).expect("written");
    let config = |dispatch: &str, relay: &str| {
        let text = format!(
            "[store]\nurl = \"sqlite:s.db\"\n[vault]\nsealing_keys_file = \"sealing.keys\"\nindex_key_file = \"index.key\"\n\
             [keys]\nfile = \"keys.toml\"\n[[tenant]]\nname = \"shop\"\n[templates]\ndir = \"templates\"\n\
             [dispatch]\n{dispatch}\n[routes]\nemail = [\"a\", \"b\"]\n[provider.a]\nkind = \"sandbox\"\nchannel = \"email\"\n\
             outbox = \"o\"\n[provider.b]\nkind = \"smtp\"\nhost = \"localhost\"\ntls = \"none\"\nfrom = \"a@b.example\"\n{relay}\n"
        );
        std::fs::write(at("c.toml"), text).expect("written");
    };
    let never = "dispatch.transit_email: 1m is not less than the 1m that a message of the kind `quick` may live";
    let late = "dispatch.failover_after: is not less than `max_attempts` (3)";
    let hasty = "may take up to 10m, longer than `dispatch.drain_timeout` (30s)";
    config("transit_sms = \"1h\"\ntransit_email = \"1m\"\nmax_attempts = 3\nfailover_after = 3", "");
    let checked = run(&["config", "check", &at("c.toml")]).await;
    assert_eq!(checked.code, 0, "{}", checked.err);
    for told in [never, late, hasty] {
        assert_eq!(checked.err.matches(told).count(), 1, "{told}: {}", checked.err);
    }
    assert!(!checked.err.contains("transit_sms"), "nothing leaves as a text message: {}", checked.err);

    config("transit_email = \"59s\"\nmax_attempts = 3\nfailover_after = 2", "final_timeout = \"30s\"");
    let checked = run(&["config", "check", &at("c.toml")]).await;
    assert_eq!(checked.code, 0, "{}", checked.err);
    for told in ["transit", "failover_after", "drain_timeout"] {
        assert!(!checked.err.contains(told), "{told}: {}", checked.err);
    }
}
