//! Which provider gets a message, held against the real daemon and a vendor that counts what each of its accounts was
//! sent; and what people are shown of the lanes.

use std::path::Path;
use std::process::Command;

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use serde_json::{Value, json};

use crate::promise::{oracle, taken};
use crate::support::daemon::{Daemon, Plan, event, event_to, reference, wait};
use crate::support::http_oracle::{HttpOracle, Reply};
use crate::support::port::refusing;

/// A breaker would only hold up what is to happen.
const NO_BREAKER: &str = "timeout = \"1s\"\nbreaker = { failures = 1000, open_for = \"1s\" }";

/// A plan with an account at the vendor for each of these providers, under the path of its name.
fn accounts(plan: Plan, vendor: &HttpOracle, names: &[&str]) -> Plan {
    let account = |plan: Plan, name: &&str| plan.http_with(name, &format!("{}/{name}", vendor.url()), &[], NO_BREAKER);
    names.iter().fold(plan, account)
}

/// The route of text messages with these weights.
fn weighted(plan: Plan, weights: &[(&str, u128)]) -> Plan {
    let hop = |(name, weight): &(&str, u128)| match weight {
        0 => format!("\"{name}\""),
        weight => format!("{{ provider = \"{name}\", weight = {weight} }}"),
    };
    let hops: Vec<String> = weights.iter().map(hop).collect();
    plan.section("routes", &format!("sms = [{}]", hops.join(", ")))
}

/// In which order a notification's providers should come, reckoned here anew from its id: its last 62 bits say where in
/// the sum of the weights it lies.
fn order<'a>(id: &str, weights: &[(&'a str, u128)]) -> Vec<&'a str> {
    let digits = id.trim_start_matches("ntf_").replace('-', "");
    let draw = u128::from_str_radix(&digits[16..], 16).expect("a UUID") & ((1 << 62) - 1);
    let total: u128 = weights.iter().map(|(_, weight)| weight).sum();
    let mut until = 0;
    let head = weights.iter().find(|(_, weight)| {
        until += weight;
        draw * total < until << 62
    });
    let head = head.expect("a head").0;
    [head].into_iter().chain(weights.iter().map(|(name, _)| *name).filter(|name| *name != head)).collect()
}

/// The providers that were sent the message of this notification, one for each request. A reference begins with the id.
fn got(vendor: &HttpOracle, id: &str) -> Vec<String> {
    let digits = id.trim_start_matches("ntf_").replace('-', "");
    let is_its = |reference: &str| {
        let bytes = BASE32_NOPAD.decode(reference.to_uppercase().as_bytes()).expect("a reference");
        HEXLOWER.encode(&bytes[..16]) == digits
    };
    let its = vendor.requests().into_iter().filter(|seen| is_its(&reference(seen)));
    its.map(|seen| seen.path.split('/').nth(1).unwrap_or_default().to_owned()).collect()
}

async fn accept_all(daemon: &Daemon, events: &[Value]) -> Vec<String> {
    futures_util::future::join_all(events.iter().map(|event| daemon.accept(event))).await
}

#[tokio::test]
async fn messages_divide_among_weighted_providers_as_their_ids_say_and_each_is_sent_once() {
    const WEIGHTS: [(&str, u128); 3] = [("heavy", 3), ("spare", 0), ("light", 1)];
    let vendor = oracle(taken).await;
    let plan = weighted(accounts(Plan::new(), &vendor, &["heavy", "spare", "light"]), &WEIGHTS);
    let daemon = Daemon::start(plan).await;
    let events: Vec<Value> = (0..200).map(|n| event(&format!("share-{n}"))).collect();
    let ids = accept_all(&daemon, &events).await;
    for id in &ids {
        daemon.wait_for_state(id, "dispatched").await;
        assert_eq!(got(&vendor, id), [order(id, &WEIGHTS)[0]], "{id}");
    }
    assert_eq!(vendor.requests().len(), 200);
    // Eight standard deviations on either side of 150: that ids are random is all that this asks.
    let heavy = ids.iter().filter(|id| order(id, &WEIGHTS)[0] == "heavy").count();
    assert!((101..200).contains(&heavy), "{heavy} of 200");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn every_attempt_keeps_to_the_order_of_its_notification_also_over_a_restart() {
    const WEIGHTS: [(&str, u128); 3] = [("a", 1), ("b", 1), ("c", 0)];
    let mut plan = Plan::new().section("dispatch", "max_attempts = 3\nfailover_after = 1");
    for (name, _) in WEIGHTS {
        plan = plan.http_with(name, &format!("http://{}", refusing()), &[], NO_BREAKER);
    }
    let daemon = Daemon::start(weighted(plan, &WEIGHTS)).await;
    let events: Vec<Value> = (0..24).map(|n| event(&format!("order-{n}"))).collect();
    let ids = accept_all(&daemon, &events).await;
    assert_eq!(daemon.stop().await, Some(0));
    daemon.launch().await;
    for id in &ids {
        let status = daemon.wait_for_state(id, "failed").await;
        let ended = status["attempts"].as_array().expect("a list").iter().filter(|a| a["outcome"] == "not_sent");
        let tried: Vec<&str> = ended.map(|attempt| attempt["provider"].as_str().unwrap_or_default()).collect();
        assert_eq!(tried, order(id, &WEIGHTS), "{status}");
    }
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_lost_answer_leads_to_no_other_provider_and_a_proof_that_nothing_was_sent_does() {
    const WEIGHTS: [(&str, u128); 3] = [("good", 1), ("lost", 1), ("down", 1)];
    let vendor = oracle(|seen| if seen.path.starts_with("/lost") { Reply::Close } else { taken(seen) }).await;
    let plan = accounts(Plan::new(), &vendor, &["good", "lost"]);
    let plan = plan.http_with("down", &format!("http://{}", refusing()), &[], NO_BREAKER);
    let daemon = Daemon::start(weighted(plan.section("dispatch", "failover_after = 1"), &WEIGHTS)).await;
    // Fewer than the lost answers in a row that open a breaker.
    let events: Vec<Value> = (0..18).map(|n| event(&format!("proof-{n}"))).collect();
    for id in accept_all(&daemon, &events).await {
        let head = order(&id, &WEIGHTS)[0];
        let (state, provider) = if head == "lost" { ("dispatch_unknown", "lost") } else { ("dispatched", "good") };
        let status = daemon.wait_for_state(&id, state).await;
        assert_eq!(got(&vendor, &id), [provider], "{status}");
        assert_eq!(status["attempts"].as_array().map_or(0, Vec::len), if head == "down" { 2 } else { 1 }, "{status}");
    }
    daemon.audit_closes().await;
}

/// Copies the templates of `password_reset` as those of another kind.
fn add_kind(daemon: &Daemon, kind: &str) {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/templates/password_reset");
    std::fs::create_dir_all(daemon.path("templates")).expect("a directory");
    let copied = Command::new("cp").arg("-r").arg(shipped).arg(daemon.path("templates").join(kind)).status();
    assert!(copied.expect("a program").success());
}

#[tokio::test]
async fn the_route_of_a_kind_and_a_country_stands_above_that_of_either_and_these_above_the_channels() {
    let vendor = oracle(taken).await;
    let plan = accounts(Plan::new(), &vendor, &["channel", "kind", "country", "both"]).sms(&["channel"]);
    let plan = plan.section("templates", "dir = \"templates\"").toml(
        "[[routes.rule]]\nkinds = [\"login\"]\nsms = [\"kind\"]\n\
         [[routes.rule]]\ncountries = [\"VN\", \"TH\"]\nsms = [\"country\"]\n\
         [[routes.rule]]\nkinds = [\"login\"]\ncountries = [\"VN\", \"TH\"]\nsms = [\"both\"]\n\
         [[routes.rule]]\ncountries = [\"DE\"]\nkinds = [\"login\"]\nsms = []",
    );
    let daemon = Daemon::prepare(plan);
    for kind in ["password_reset", "login"] {
        add_kind(&daemon, kind);
    }
    daemon.launch().await;
    let to = |kind: &str, number: &str, id: &str| {
        let mut event = event_to(id, json!([{ "sms": number }]), json!({ "code": "493021" }));
        event["kind"] = kind.into();
        event["user"] = id.into();
        event
    };
    for (n, (kind, number, provider)) in [
        ("password_reset", "+447911123456", "channel"),
        ("login", "+447911123456", "kind"),
        ("password_reset", "+84901234567", "country"),
        ("password_reset", "+66812345678", "country"),
        ("login", "+84901234567", "both"),
        ("login", "+66812345678", "both"),
        ("password_reset", "+4915112345678", "channel"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = daemon.accept(&to(kind, number, &format!("specific-{n}"))).await;
        daemon.wait_for_state(&id, "dispatched").await;
        assert_eq!(got(&vendor, &id), [provider], "{kind} {number}");
    }
    let nowhere = daemon.post(&to("login", "+4915112345678", "specific-nowhere")).await;
    assert!(nowhere.status >= 400, "an empty route leads nowhere: {nowhere:?}");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn rules_of_which_neither_is_more_specific_and_kinds_without_templates_are_told_at_the_start() {
    let daemon = Daemon::prepare(Plan::new().sandbox().toml(
        "[[routes.rule]]\nkinds = [\"login\"]\nsms = [\"sandbox\"]\n[[routes.rule]]\ncountries = [\"VN\"]\nsms = []",
    ));
    let check = || daemon.run(&["config", "check", &daemon.config().display().to_string()], "");
    let told = check();
    let told = (told.status.code(), String::from_utf8_lossy(&told.stderr).into_owned());
    assert!(
        told.0 == Some(3) && told.1.contains("routes.rule[1].sms: a message of the kind `login` to VN has"),
        "{told:?}"
    );
    daemon.reconfigure("countries = [\"VN\"]", "kinds = [\"login\"]\ncountries = [\"VN\"]");
    let told = check();
    let told = (told.status.code(), String::from_utf8_lossy(&told.stderr).into_owned());
    assert!(told.0 == Some(3) && told.1.contains("the kind `login`, which has no templates"), "{told:?}");
    assert_eq!(daemon.run(&["serve", "--config", &daemon.config().display().to_string()], "").status.code(), Some(3));
}

#[tokio::test]
async fn an_open_breaker_is_shown_in_the_metrics_and_in_the_list_of_providers() {
    let vendor = oracle(|seen| if seen.path.starts_with("/bad") { Reply::status(401) } else { taken(seen) }).await;
    let plan = accounts(Plan::new(), &vendor, &["good"])
        .sms(&["bad"])
        .toml("[[routes.rule]]\ncountries = [\"GB\"]\nsms = [\"good\"]");
    let lines = "timeout = \"1s\"\nconcurrency = 3\nbreaker = { failures = 1, open_for = \"1h\" }";
    let daemon = Daemon::start(plan.http_with("bad", &format!("{}/bad", vendor.url()), &[], lines)).await;
    let lane =
        |name: &str, state: &str, is: u8| format!("sendonce_breaker{{provider=\"{name}\",state=\"{state}\"}} {is}");
    wait("the lanes' first numbers", async || {
        let metrics = daemon.metrics().await;
        metrics.contains(&lane("bad", "closed", 1)) && metrics.contains("sendonce_permits{provider=\"bad\"} 3")
    })
    .await;
    let id = daemon.accept(&event_to("shown", json!([{ "sms": "+84901234567" }]), json!({ "code": "493021" }))).await;
    wait("the open breaker", async || {
        let metrics = daemon.metrics().await;
        let lanes =
            [lane("bad", "open", 1), lane("bad", "closed", 0), lane("bad", "half_open", 0), lane("good", "closed", 1)];
        lanes.iter().all(|line| metrics.contains(line)) && metrics.contains("sendonce_permits{provider=\"bad\"} 0")
    })
    .await;
    daemon.wait_for_state(&id, "retry_wait").await;

    let config = daemon.config().display().to_string();
    let listed = daemon.run(&["providers", "list", "--json", "--config", &config], "");
    let list: Value = serde_json::from_slice(&listed.stdout).unwrap_or_else(|e| panic!("{e}: {listed:?}"));
    assert_eq!(list["source"], "daemon");
    let [bad, good] = [&list["items"][0], &list["items"][1]];
    assert_eq!(
        (&bad["provider"], &bad["breaker"], &bad["permits"], &bad["waiting"]),
        (&json!("bad"), &json!("open"), &json!(0), &json!(1))
    );
    assert!(bad["closed_for"].as_u64().is_some_and(|seconds| seconds > 60), "{list}");
    assert_eq!(
        (&good["provider"], &good["breaker"], &good["waiting"], &good["unknown"]),
        (&json!("good"), &json!("closed"), &json!(0), &json!(0))
    );
    let read = daemon.run(&["providers", "list"], "");
    let read = String::from_utf8_lossy(&read.stdout).into_owned();
    assert!(read.contains("provider=bad breaker=open") && read.lines().count() == 2, "{read}");

    daemon.kill9();
    let listed = daemon.run(&["providers", "list", "--json", "--config", &config], "");
    let list: Value = serde_json::from_slice(&listed.stdout).unwrap_or_else(|e| panic!("{e}: {listed:?}"));
    assert_eq!((listed.status.code(), &list["source"]), (Some(0), &json!("configuration")), "{listed:?}");
    let expected = json!({ "provider": "bad", "kind": "http", "channel": "sms", "permits": 3 });
    assert_eq!((&list["items"][0], &list["items"][0]["breaker"]), (&expected, &Value::Null));
    assert!(String::from_utf8_lossy(&listed.stderr).contains("this is what the configuration says"), "{listed:?}");
}
