//! The promise over SMPP: the daemon as a process, and an SMSC that loses answers, sends receipts early and late, and
//! refuses the password.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::daemon::{Daemon, EAGER, Plan, event};
use crate::support::smsc_oracle::{Act, Script, SmscOracle, Stage, receipt};

const PASSWORD: &str = "CANARY9p";

fn plan(port: u16, more: &str) -> Plan {
    Plan::plain().sms(&["smsc"]).file("smsc.password", PASSWORD).toml(&format!(
        "[provider.smsc]\nkind = \"smpp\"\nhost = \"127.0.0.1\"\nport = {port}\ntls = \"none\"\nsystem_id = \"shop\"\n\
         password_file = \"smsc.password\"\nsource = \"Shop\"\nbreaker = {{ open_for = \"1s\" }}\n{more}\n"
    ))
}

async fn daemon(oracle: &SmscOracle, more: &str) -> Daemon {
    Daemon::start(plan(oracle.addr().port(), more).section("dispatch", EAGER)).await
}

fn attempts(status: &Value) -> usize {
    status["attempts"].as_array().map_or(0, Vec::len)
}

/// Nothing secret is in the daemon's log, which is on its most talkative level.
fn assert_quiet(daemon: &Daemon) {
    let log = daemon.log();
    assert!(!log.contains(PASSWORD) && !log.contains("493021"), "a secret is in the log");
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_goes_out_again_once_and_only_on_an_operators_word() {
    let script = Script::plain().once(Stage::Submit, Act::Close).once(Stage::Submit, Act::Status(0x0407));
    let oracle = SmscOracle::start(script).await;
    let daemon = daemon(&oracle, "").await;
    let mut ids = vec![];
    for name in ["lost", "vendor"] {
        let id = daemon.accept(&event(name)).await;
        let status = daemon.wait_for_state(&id, "dispatch_unknown").await;
        assert_eq!((&status["sent"], &status["waiting_for"]), (&json!("unknown"), &json!("operator")), "{status}");
        assert_eq!(attempts(&status), 1, "{status}");
        ids.push(id);
    }
    let after = daemon.accept(&event("after")).await;
    daemon.wait_for_state(&after, "dispatched").await;
    assert_eq!(oracle.submitted().len(), 3, "none went out again by itself");
    for id in &ids {
        assert_eq!(daemon.resolve(id, "not_sent", "OPS-1").await.status, 200);
        let status = daemon.wait_for_state(id, "dispatched").await;
        assert_eq!(attempts(&status), 2, "{status}");
    }
    assert_eq!(oracle.submitted().len(), 5);
    daemon.audit_closes().await;
    assert_quiet(&daemon);
}

#[tokio::test]
async fn an_answer_that_comes_late_settles_the_unknown_and_its_receipt_finds_the_message() {
    let oracle = SmscOracle::start(Script::plain().once(Stage::Submit, Act::Late(Duration::from_secs(3)))).await;
    let daemon = daemon(&oracle, "response_timeout = \"1s\"").await;
    let id = daemon.accept(&event("late")).await;
    daemon.wait_for_state(&id, "dispatch_unknown").await;
    let status = daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!((&status["sent"], attempts(&status)), (&json!("yes"), 1), "{status}");
    let number = oracle.submitted()[0].number.to_string();
    assert_eq!(oracle.deliver(50, &receipt(&number, "DELIVRD")).await, 0);
    daemon.wait_until(&id, "delivered", |status| status["delivery"] == "delivered").await;
    assert_eq!(oracle.submitted().len(), 1);
    daemon.audit_closes().await;
}

#[tokio::test]
async fn receipts_count_once_in_every_order_and_those_of_nobody_are_taken() {
    let early = Act::ReceiptFirst(Duration::from_millis(500));
    let oracle = SmscOracle::start(Script::plain().once(Stage::Submit, early)).await;
    let daemon = daemon(&oracle, "").await;
    let early = daemon.accept(&event("early")).await;
    let status = daemon.wait_until(&early, "delivered", |status| status["delivery"] == "delivered").await;
    assert_eq!(status["state"], "dispatched", "{status}");

    let failed = daemon.accept(&event("failed")).await;
    daemon.wait_for_state(&failed, "dispatched").await;
    let number = oracle.submitted()[1].number.to_string();
    for (sequence, word) in (60..).zip(["ENROUTE", "UNDELIV", "UNDELIV", "ACCEPTD"]) {
        assert_eq!(oracle.deliver(sequence, &receipt(&number, word)).await, 0, "{word}");
    }
    daemon.wait_until(&failed, "undelivered", |status| status["delivery"] == "undelivered").await;
    assert_eq!(oracle.deliver(70, &receipt("123456789", "DELIVRD")).await, 0, "kept until its message is known");
    assert_eq!(oracle.submitted().len(), 2, "no receipt causes a copy");
    daemon.audit_closes().await;
    let metrics = daemon.metrics().await;
    assert!(metrics.contains("provider=\"smsc\",result=\"kept\""), "{metrics}");
    assert_quiet(&daemon);
}

#[tokio::test]
async fn a_receipt_that_came_while_the_daemon_was_away_is_taken_after_its_return() {
    let oracle = SmscOracle::start(Script::plain()).await;
    let daemon = daemon(&oracle, "").await;
    let id = daemon.accept(&event("away")).await;
    daemon.wait_for_state(&id, "dispatched").await;
    daemon.restart().await;
    // Nothing is sent, and it binds all the same.
    oracle.wait_until("a second bind", |o| o.count(Stage::Bind) == 2).await;
    let number = oracle.submitted()[0].number.to_string();
    assert_eq!(oracle.deliver(80, &receipt(&number, "DELIVRD")).await, 0);
    daemon.wait_until(&id, "delivered", |status| status["delivery"] == "delivered").await;
    assert_eq!(daemon.stop().await, Some(0));
    assert_eq!(oracle.count(Stage::Unbind), 1);
    assert_eq!(oracle.submitted().len(), 1);
}

#[tokio::test]
async fn while_the_smsc_refuses_our_password_messages_wait_and_then_each_goes_out_once() {
    const COUNT: usize = 10;
    let oracle = SmscOracle::start(Script::plain().password("another")).await;
    let daemon = daemon(&oracle, "").await;
    let mut ids = vec![];
    for n in 0..COUNT {
        ids.push(daemon.accept(&event(&format!("wait-{n}"))).await);
    }
    oracle.wait_until("two tries to bind", |o| o.count(Stage::Bind) >= 2).await;
    assert!(oracle.submitted().is_empty());
    oracle.play(Script::plain().password(PASSWORD));
    for id in &ids {
        daemon.wait_for_state(id, "dispatched").await;
    }
    assert_eq!(oracle.submitted().len(), COUNT);
    daemon.audit_closes().await;
    assert_quiet(&daemon);
}

#[test]
fn the_check_of_a_configuration_tells_what_no_smsc_would_take_and_what_is_not_wise() {
    let check = |lines: &str| {
        let daemon = Daemon::prepare(plan(2775, lines));
        let config = daemon.config().display().to_string();
        let checked = daemon.run(&["config", "check", &config], "");
        let told = String::from_utf8([checked.stdout, checked.stderr].concat()).expect("text");
        assert!(!told.contains(PASSWORD), "{told}");
        (checked.status.success(), told)
    };
    let (sound, told) = check("response_timeout = \"5m\"\nconnect_timeout = \"30s\"");
    assert!(sound, "{told}");
    for advice in
        ["are handed over in clear", "longer than `dispatch.drain_timeout`", "not less than `dispatch.start_by`"]
    {
        assert!(told.contains(advice), "{advice}: {told}");
    }
    let (sound, told) = check("service_type = \"TOOLONG\"");
    assert!(!sound && told.contains("service_type must be at most 5"), "{told}");
}
