//! The program as its supervisor sees it: what it tells, what it is handed, how it refuses to start, and how it is brought
//! back from a backup.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::json;
use tokio::net::UnixDatagram;

use crate::support::daemon::{Daemon, Plan, event_to, write_secret};
use crate::support::hook::SECRET;
use crate::support::pki::Pki;
use crate::support::smtp_oracle::{Act, Script, SmtpOracle, Stage};

async fn told(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 1024];
    let received = tokio::time::timeout(Duration::from_secs(20), socket.recv(&mut buffer)).await;
    let length = received.expect("a word within 20 s").expect("a datagram");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

#[tokio::test]
async fn the_supervisor_is_told_of_readiness_life_and_the_stop() {
    let daemon = Daemon::prepare(Plan::plain().sandbox());
    let path = daemon.path("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    let env = [("NOTIFY_SOCKET", path.to_str().expect("text")), ("WATCHDOG_USEC", "200000")];
    daemon.spawn_with(&[], &env);
    let mut words = vec![];
    while words.iter().filter(|w: &&String| w.contains("WATCHDOG=1")).count() < 3
        || !words.iter().any(|w| w.contains("READY=1"))
    {
        words.push(told(&socket).await);
    }
    let ready = daemon.admin("/readyz").await.expect("an answer");
    assert_eq!(ready.status, 200, "{ready:?}");
    daemon.signal("-TERM");
    let mut last = String::new();
    while !last.contains("STOPPING=1") {
        last = told(&socket).await;
    }
    assert_eq!(daemon.ended().await, Some(0));
}

/// Binds two sockets as systemd does and becomes the program.
const LAUNCHER: &str = "
import os, socket, sys
kept = []
for fd, port in ((3, sys.argv[1]), (4, sys.argv[2])):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('127.0.0.1', int(port)))
    s.listen(64)
    kept.append((os.dup(s.fileno()) if s.fileno() in (3, 4) else s.detach(), fd))
high = [(os.dup2(source, fd + 40, inheritable=True), fd) for source, fd in kept]
for source, fd in high:
    os.dup2(source, fd, inheritable=True)
    os.close(source)
os.environ.update(LISTEN_FDS='2', LISTEN_FDNAMES='api:admin', LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[3], sys.argv[3:])
";

#[tokio::test]
async fn sockets_that_the_supervisor_hands_over_are_served() {
    let daemon = Daemon::prepare(Plan::plain().sandbox().activated());
    let (api, admin) = (daemon.api().port().to_string(), daemon.admin_address().port().to_string());
    let path = std::env::var("PATH").unwrap_or_default();
    daemon.spawn_with(&["python3", "-c", LAUNCHER, &api, &admin], &[("PATH", &path)]);
    daemon.listening().await;
    let event = event_to("handed", json!([{ "sms": "+447700900123" }]), json!({ "code": "493021" }));
    let id = daemon.accept(&event).await;
    daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!(daemon.stop().await, Some(0));

    daemon.spawn();
    assert_eq!(daemon.ended().await, Some(1));
    daemon.logs(&["cannot listen on systemd's socket"]).await;
}

#[tokio::test]
async fn a_configuration_with_mistakes_is_not_started_and_every_mistake_is_told_without_its_value() {
    let more = "[routes]\nsms = [\"nobody\"]\n[provider.a]\nkind = \"smtp\"\nhost = \"mail.example.org\"\ntls = \"none\"\n\
                from = \"CANARY\"\nusername = \"u\"\npassword_file = \"smtp.password\"\ncolour = \"CANARY\"\n";
    let server = "body_limit = 12\nheader_timeout = \"CANARY\"";
    let plan = Plan::plain().section("server", server).section("dispatch", "max_attempts = 0").toml(more);
    let daemon = Daemon::prepare(plan);
    fs::set_permissions(daemon.path("smtp.password"), fs::Permissions::from_mode(0o644)).expect("changed");
    let file = daemon.config();
    let checked = daemon.run(&["config", "check", file.to_str().expect("text")], "");
    assert_eq!(checked.status.code(), Some(3));
    let text = String::from_utf8(checked.stderr).expect("text");
    for wrong in [
        "server.body_limit",
        "server.header_timeout",
        "dispatch.max_attempts",
        "routes.sms",
        "a.tls",
        "a.password_file",
        "a.colour",
    ] {
        assert!(text.contains(wrong), "{wrong}: {text}");
    }
    assert!(!text.contains("CANARY"), "{text}");
    daemon.spawn();
    assert_eq!(daemon.ended().await, Some(3));
    assert_eq!(
        daemon.log(),
        text.lines().filter(|l| !l.starts_with("advice: ")).map(|l| format!("{l}\n")).collect::<String>()
    );
    assert!(!daemon.path("sendonce.db").exists());
}

#[tokio::test]
async fn the_example_configuration_has_no_mistakes() {
    let daemon = Daemon::prepare(Plan::plain().sandbox());
    let hooks = ["supabase.phone", "supabase.mail", "kratos.password", "jobs.key"];
    for secret in ["twilio.token", "telnyx.key", "relay.password"].into_iter().chain(hooks) {
        write_secret(&daemon.path(secret), "whsec_eA==");
    }
    write_secret(&daemon.path("smsc.password"), "secret");
    write_secret(&daemon.path("shop.hook"), SECRET);
    fs::copy(Pki::new().roots(), daemon.path("relay-ca.pem")).expect("copied");
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/config");
    let text = fs::read_to_string(format!("{config}/example.toml")).expect("a file").replace("/var/lib/sendonce/", "");
    let text = text.replace("dir = \"templates\"", &format!("dir = \"{config}/templates\""));
    fs::write(daemon.config(), text).expect("written");
    let file = daemon.config();
    let dir = daemon.path("");
    let args = ["config", "check", file.to_str().expect("text"), "--credentials", dir.to_str().expect("text")];
    let checked = daemon.run(&args, "");
    assert!(checked.status.success(), "{checked:?}");
}

#[tokio::test]
async fn a_second_daemon_on_the_same_store_is_refused() {
    let daemon = Daemon::start(Plan::plain().sandbox()).await;
    let second = daemon.twin();
    second.spawn();
    assert_eq!(second.ended().await, Some(1), "{}", second.log());
    assert_eq!(daemon.stop().await, Some(0));
}

#[tokio::test]
async fn a_store_from_a_backup_sends_nothing_until_it_is_recovered_and_then_nothing_twice() {
    let oracle = SmtpOracle::start(Script::plain().on(Stage::Mail, Act::Reply("421 4.3.2 not now"))).await;
    let relay = Plan::plain().relay_in_clear(oracle.addr().port(), "breaker = { open_for = \"1s\" }");
    let dispatch = "max_attempts = 20\nretry = { first = \"1s\", factor = 1.0, cap = \"1s\" }";
    let daemon = Daemon::start(relay.section("dispatch", dispatch)).await;
    let early = daemon.mail("early", "early@customer.example").await;
    oracle.wait_until("a try", |o| o.commands().contains(&"MAIL".to_owned())).await;
    assert_eq!(daemon.stop().await, Some(0));
    fs::copy(daemon.path("sendonce.db"), daemon.path("backup")).expect("copied");
    assert!(!daemon.path("sendonce.db-wal").exists(), "a store that was closed is one file");

    oracle.play(Script::plain());
    daemon.launch().await;
    daemon.wait_for_state(&early, "dispatched").await;
    let lost = daemon.mail("lost", "lost@customer.example").await;
    daemon.wait_for_state(&lost, "dispatched").await;
    assert_eq!(daemon.stop().await, Some(0));

    fs::copy(daemon.path("backup"), daemon.path("sendonce.db")).expect("copied");
    daemon.spawn();
    daemon.listening().await;
    let ready = daemon.admin("/readyz").await.expect("an answer");
    assert_eq!(ready.status, 503);
    assert!(ready.text.contains("sendonce recover"), "{ready:?}");
    let to = json!([{ "email": "later@customer.example" }]);
    let refused = daemon.post(&event_to("later", to, json!({ "code": "493021" }))).await;
    assert_eq!((refused.status, refused.headers.contains_key("retry-after")), (503, true), "{refused:?}");
    assert_eq!(daemon.stop().await, Some(0));

    let config = daemon.config();
    let recover = ["recover", "--config", config.to_str().expect("text"), "--ticket", "OPS-7", "--yes"];
    let recovered = daemon.run(&recover, "");
    assert!(recovered.status.success(), "{recovered:?}");
    assert!(recovered.stdout.starts_with(b"1 notifications are unknown now"), "{recovered:?}");
    assert_eq!(daemon.run(&recover, "").status.code(), Some(1), "there is nothing to recover any more");

    daemon.launch().await;
    let after = daemon.mail("after", "after@customer.example").await;
    daemon.wait_for_state(&after, "dispatched").await;
    assert_eq!(daemon.status(&early).await["state"], "dispatch_unknown");
    let to: Vec<String> = oracle.messages().iter().flat_map(|m| m.to.clone()).collect();
    assert_eq!(to, ["early@customer.example", "lost@customer.example", "after@customer.example"]);
    let log = daemon.get("/v1/audit").await.text;
    assert!(log.contains("OPS-7"), "{log}");
}
