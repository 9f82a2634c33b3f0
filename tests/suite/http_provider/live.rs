//! `sendonce providers test`: what it learns of a live account, which the oracle plays here.

use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::support::daemon::{Daemon, Plan, Strategy, reference};
use crate::support::http_oracle::Post;

const PHONE: &str = "+12025550143";

/// Runs the command with the configuration of a daemon that is not started, so that its address is free for receipts.
async fn test(daemon: &Arc<Daemon>, more: &[&str]) -> Output {
    let (config, address) = (daemon.config().display().to_string(), daemon.api().to_string());
    let args = ["providers", "test", "probe", "--to", PHONE, "--json", "--config", &config];
    let more = more.iter().map(|arg| if *arg == "HERE" { address.as_str() } else { arg });
    let args: Vec<String> = args.into_iter().chain(more).map(str::to_owned).collect();
    let daemon = daemon.clone();
    let run = move || daemon.run(&args.iter().map(String::as_str).collect::<Vec<_>>(), "");
    tokio::task::spawn_blocking(run).await.expect("an end")
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The line that has this member.
fn line<'a>(lines: &'a [Value], member: &str) -> &'a Value {
    let mut found = lines.iter().filter(|line| line.get(member).is_some());
    let line = found.next().unwrap_or_else(|| panic!("no {member} in {lines:?}"));
    assert!(found.next().is_none(), "one {member} in {lines:?}");
    line
}

#[tokio::test]
async fn a_live_account_tells_how_soon_it_finds_what_a_repeat_is_answered_and_which_receipts_come() {
    let oracle = HttpOracle::start().await;
    let all = [Strategy::Lookup, Strategy::Dedupe, Strategy::Receipts];
    let daemon = Arc::new(Daemon::prepare(Plan::plain().http("probe", &oracle.url(), &all).sms(&["probe"])));
    let receipt = {
        let daemon = daemon.clone();
        move |fields: Value| daemon.receipt("probe", &fields)
    };
    let asked = AtomicUsize::new(0);
    oracle.script(move |seen| {
        let nth = asked.fetch_add(1, Ordering::SeqCst);
        match (seen.method.as_str(), nth) {
            ("POST", 0) => {
                let sent = receipt(json!({ "ref": reference(seen), "status": "sent" }));
                let forged = Post { url: sent.url.replace("key=", "key=x"), ..sent.clone() };
                let of_another = receipt(json!({ "id": "m9", "status": "delivered" }));
                let taken = Reply::json(202, r#"{"id":"m1"}"#);
                taken.after_receipt(sent).after_receipt(of_another).after_receipt(forged)
            }
            ("POST", _) => {
                let delivered = receipt(json!({ "id": "m1", "status": "delivered" }));
                Reply::json(200, r#"{"id":"m1"}"#).after_receipt(delivered)
            }
            (_, 2) => Reply::json(200, r#"{"messages":[]}"#),
            _ => {
                let reference = seen.path.split_once("ref=").map_or("", |(_, reference)| reference);
                Reply::json(200, json!({ "messages": [{ "ref": reference, "id": "m1" }] }))
            }
        }
    });
    let output = test(&daemon, &["--repeat", "--receipts", "HERE", "--wait-for", "60"]).await;
    assert!(output.status.success(), "{output:?}");
    let lines = lines(&output);
    assert_eq!(line(&lines, "outcome")["outcome"], "accepted");
    let repeat = line(&lines, "repeat");
    assert_eq!((&repeat["repeat"], &repeat["reason"]), (&json!("accepted"), &json!("first_stands")));
    let lookup = line(&lines, "lookup");
    assert_eq!((&lookup["lookup"], &lookup["asked"]), (&json!("found"), &json!(2)));
    let receipts: Vec<(&Value, &Value)> =
        lines.iter().filter(|line| line.get("receipt").is_some()).map(|l| (&l["receipt"], &l["known_by"])).collect();
    let (by_reference, by_id) = (json!("reference"), json!("message_id"));
    assert_eq!(
        receipts,
        [(&json!("refused"), &Value::Null), (&json!("progress"), &by_reference), (&json!("delivered"), &by_id)]
    );
    assert_eq!(oracle.receipt_answers(), [401, 503, 200, 200], "another message's has to come again");
    let keys: Vec<_> =
        oracle.requests().iter().filter_map(|r| r.header("idempotency-key").map(str::to_owned)).collect();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
    assert!(!format!("{output:?}").contains(&PHONE[1..]));
}

#[tokio::test]
async fn it_waits_no_longer_than_told_for_a_receipt_that_does_not_come() {
    let oracle = HttpOracle::start().await;
    oracle.script(|_| Reply::json(202, r#"{"id":"m1"}"#));
    let plan = Plan::plain().http("probe", &oracle.url(), &[Strategy::Receipts]).sms(&["probe"]);
    let daemon = Arc::new(Daemon::prepare(plan));
    let output = test(&daemon, &["--receipts", "HERE", "--wait-for", "1"]).await;
    assert!(output.status.success(), "{output:?}");
    let lines = lines(&output);
    let none = line(&lines, "final_receipt");
    assert_eq!((&none["final_receipt"], &none["receipts"]), (&json!("none"), &json!(0)));
    assert!(none["after_seconds"].as_f64() >= Some(1.0));
}

#[tokio::test]
async fn what_can_teach_nothing_is_refused_before_anything_is_sent() {
    let oracle = HttpOracle::start().await;
    let daemon = Arc::new(Daemon::prepare(Plan::plain().http("probe", &oracle.url(), &[]).sms(&["probe"])));
    for (more, told) in [(&["--repeat"][..], "--repeat: "), (&["--receipts", "HERE"], "--receipts: ")] {
        let output = test(&daemon, more).await;
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).starts_with(told), "{output:?}");
    }
    assert_eq!(oracle.requests().len(), 0);
}
