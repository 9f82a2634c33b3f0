//! Which changes are told, how often, in which order, and what is in them.

use super::*;
use crate::support::daemon::short_event;

async fn a_change_is_told_once(place: Place) {
    let (provider, hook) = (oracle(taken).await, Hook::start().await);
    let daemon = Daemon::start(place.plan(plan(&provider, &hook, ""))).await;
    let id = daemon.accept(&event("reset-1")).await;
    hook.wait_for(1).await;
    for _ in 0..3 {
        deliver(&daemon, &provider, "reset-1", "delivered").await;
    }
    hook.wait_for(2).await;
    settled(&daemon, &hook).await;
    let told = hook.told();
    let ours = of(&told, "reset-1");
    let changes: Vec<_> = ours.iter().map(|told| told.change.as_str()).collect();
    assert_eq!(changes, ["dispatched", "delivered"], "each once and in order");
    let records = daemon.audit(&format!("&notification={id}")).await;
    let sent = records.iter().find(|record| record["to"] == "dispatched").expect("a record");
    let wanted = json!({
        "type": "notification.dispatched", "timestamp": sent["at"],
        "data": { "id": id, "event_id": "reset-1", "state": "dispatched", "sent": "yes", "delivery": "none", "attempt": 1,
                  "provider": "probe", "outcome": "accepted", "reason": "ok",
                  "status_url": format!("{}/v1/notifications/{id}", daemon.url()) }
    });
    assert_eq!(ours[0].body, wanted);
    let data = &ours[1].body["data"];
    assert_eq!((&data["state"], &data["delivery"]), (&json!("dispatched"), &json!("delivered")));
    for secret in [phone("reset-1").trim_start_matches('+'), "493021", "m1"] {
        let found = hook.oracle.requests().iter().filter(|seen| seen.text().contains(secret)).count();
        assert_eq!(found, 0, "{secret}");
    }
}

#[tokio::test]
async fn a_change_is_told_once_signed_and_in_order() {
    a_change_is_told_once(Place::File).await;
}

#[tokio::test]
async fn a_change_is_told_once_signed_and_in_order_on_postgres() {
    a_change_is_told_once(Place::server().await).await;
}

/// Does to each event what its name asks for.
fn by_number(seen: &Seen) -> Reply {
    let is = |event: &str| seen.json()["to"] == json!(phone(event));
    if is("failed") {
        Reply::status(400)
    } else if ["cancelled", "superseded", "expired"].iter().any(|event| is(event)) {
        Reply::status(429)
    } else if is("unknown") || is("late") {
        Reply::Close
    } else {
        taken(seen)
    }
}

#[tokio::test]
async fn every_change_that_an_app_cares_about_is_told_and_no_other() {
    let (provider, hook) = (oracle(by_number).await, Hook::start().await);
    let many = "retry = { first = \"1s\", factor = 1.0, cap = \"1s\" }\nmax_attempts = 20\n";
    let plan = Plan::plain()
        .section("dispatch", &format!("{many}transit_sms = \"0s\""))
        .http_with("probe", &provider.url(), &[Strategy::Receipts], "timeout = \"1s\"\nbreaker = { failures = 1000 }")
        .sms(&["probe"])
        .file("hook.secret", SECRET)
        .toml(&hook.section(""));
    let daemon = Daemon::start(plan).await;
    daemon.accept(&event("failed")).await;
    let cancelled = daemon.accept(&event("cancelled")).await;
    daemon.accept(&event("superseded")).await;
    daemon.accept(&short_event("expired", 2)).await;
    let unknown = daemon.accept(&event("unknown")).await;
    let late = daemon.accept(&short_event("late", 2)).await;
    let mut newer = event("newer");
    newer["user"] = "superseded".into();
    daemon.wait_for_state(&cancelled, "retry_wait").await;
    daemon.cancel(&cancelled).await;
    daemon.accept(&newer).await;
    daemon.wait_for_state(&unknown, "dispatch_unknown").await;
    deliver(&daemon, &provider, "unknown", "failed").await;
    daemon.wait_for_state(&late, "expired").await;
    deliver(&daemon, &provider, "late", "sent").await;
    settled(&daemon, &hook).await;

    let mut told = by_event(&hook.told());
    told.retain(|event, _| !event.starts_with("barrier"));
    let wanted: [(&str, &[&str]); 7] = [
        ("cancelled", &["cancelled"]),
        ("expired", &["expired"]),
        ("failed", &["failed"]),
        ("late", &["dispatch_unknown", "expired", "sent_changed"]),
        ("newer", &["dispatched"]),
        ("superseded", &["superseded"]),
        ("unknown", &["dispatch_unknown", "dispatched", "undelivered"]),
    ];
    let told: Vec<(&str, Vec<&str>)> =
        told.iter().map(|(event, all)| (event.as_str(), all.iter().map(String::as_str).collect())).collect();
    assert_eq!(told, wanted.iter().map(|(event, all)| (*event, all.to_vec())).collect::<Vec<_>>());
    let all = hook.told();
    let changed = of(&all, "late")[2];
    assert_eq!((&changed.body["data"]["state"], &changed.body["data"]["sent"]), (&json!("expired"), &json!("yes")));
}

#[tokio::test]
async fn only_what_was_asked_for_is_told_and_each_secret_signs() {
    let (provider, hook) = (oracle(taken).await, Hook::start().await);
    let plan = plan(&provider, &hook, "old_secret_file = \"old.secret\"\nevents = [\"delivered\"]");
    let daemon = Daemon::start(plan.file("old.secret", OLD_SECRET)).await;
    for event_id in ["a", "b"] {
        let id = daemon.accept(&event(event_id)).await;
        daemon.wait_for_state(&id, "dispatched").await;
        deliver(&daemon, &provider, event_id, "delivered").await;
    }
    let seen = hook.oracle.wait_for(2, crate::support::daemon::PATIENCE).await;
    let told: Vec<Told> = seen.iter().map(|seen| read(seen, &[SECRET, OLD_SECRET])).collect();
    assert!(told.iter().all(|told| told.change == "delivered"), "{told:?}");
    assert_eq!(ids(&told).len(), 2);
}

#[tokio::test]
async fn without_a_target_nothing_is_kept_and_nothing_is_told() {
    let (provider, hook) = (oracle(taken).await, Hook::start().await);
    let daemon = Daemon::start(plain_plan(&provider)).await;
    let id = daemon.accept(&event("quiet")).await;
    daemon.wait_for_state(&id, "dispatched").await;
    assert!(!daemon.metrics().await.lines().any(|line| line.starts_with("sendonce_callback")));
    assert_eq!(daemon.stop().await, Some(0));
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(daemon.path("sendonce.db"));
    let mut store = sqlx::ConnectOptions::connect(&options).await.expect("a connection");
    let count = "SELECT (SELECT count(*) FROM callback_target) + (SELECT count(*) FROM callback)";
    let kept: i64 = sqlx::query_scalar(count).fetch_one(&mut store).await.expect("a count");
    assert_eq!((kept, hook.oracle.connections()), (0, 0));
}

#[tokio::test]
async fn what_happened_before_a_target_was_configured_is_not_told() {
    let (provider, hook) = (oracle(taken).await, Hook::start().await);
    let daemon = Daemon::prepare(plan(&provider, &hook, ""));
    let text = std::fs::read_to_string(daemon.config()).expect("a configuration");
    let section = &text[text.find("[callback.app]").expect("a section")..];
    daemon.reconfigure(section, "");
    daemon.launch().await;
    let id = daemon.accept(&event("before")).await;
    daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!(daemon.stop().await, Some(0));
    crate::support::daemon::write_secret(&daemon.config(), &text);
    daemon.launch().await;
    settled(&daemon, &hook).await;
    assert!(of(&hook.told(), "before").is_empty());
}

#[tokio::test]
async fn mistakes_are_told_before_the_start_and_no_secret_with_them() {
    let (provider, hook) = (oracle(taken).await, Hook::start().await);
    let secret = "whsec_Q0FOQVJZ";
    for (from, to, wanted) in [
        ("tenant = \"shop\"\nurl", "tenant = \"other\"\nurl", "callback.app.tenant: names a tenant that has no"),
        ("http://127.0.0.1", "http://10.0.0.1", "callback.app.url: must begin with https://"),
        ("allow_private = true", "", "callback.app.url: leads to this machine"),
        (
            &format!("{}/hooks", hook.oracle.url()),
            "https://[::ffff:10.0.0.1]/hooks",
            "callback.app.url: leads to this machine or a private network",
        ),
        ("allow_private = true", "allow_private = true\nevents = [\"sent\"]", "callback.app.events[0]: must be one of"),
        ("hook.secret", "short.secret", "callback.app.secret: must be `whsec_` and base64 of 24 to 64"),
        ("secret_file", "signing_file", "callback.app.secret: is required"),
    ] {
        let plan = plan(&provider, &hook, "").file("short.secret", secret);
        let daemon = Daemon::prepare(plan);
        daemon.reconfigure(from, to);
        if to.starts_with("https://") {
            daemon.reconfigure("allow_private = true\n", "");
        }
        let checked = daemon.run(&["config", "check", daemon.config().to_str().expect("text")], "");
        let told = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert_eq!(checked.status.code(), Some(3), "{told}");
        assert!(told.contains(wanted), "{wanted} in {told}");
        assert!(!told.contains("Q0FOQVJZ"), "{told}");
    }
}
