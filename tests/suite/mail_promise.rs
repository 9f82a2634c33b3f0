//! Mail through the running program: each is sent once, and what nobody can know is told as unknown.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use crate::support::daemon::{Daemon, EAGER, PASSWORD, Plan, event_to, wait};
use crate::support::pki::Pki;
use crate::support::smtp_oracle::{Act, Script, SmtpOracle, Stage};

/// A message that a refusal of our account cost its one attempt would fail.
const ONE_ATTEMPT: &str = "max_attempts = 1";

/// A relay in clear, which is allowed on this machine.
fn plain(oracle: &SmtpOracle, more: &str) -> Plan {
    Plan::plain().relay_in_clear(oracle.addr().port(), &format!("hello_name = \"client.test\"\n{more}"))
}

/// A relay that wants STARTTLS and a password.
fn secured(oracle: &SmtpOracle, pki: &Pki) -> Plan {
    let (port, roots) = (oracle.addr().port(), pki.roots());
    Plan::plain().relay(&format!(
        "host = \"localhost\"\nport = {port}\nusername = \"shop\"\npassword_file = \"smtp.password\"\nca_file = \"{}\"\n\
         hello_name = \"client.test\"\nbreaker = {{ open_for = \"1s\" }}",
        roots.display()
    ))
}

async fn daemon(dispatch: &str, plan: Plan) -> Daemon {
    Daemon::start(plan.section("dispatch", dispatch)).await
}

fn message_ids(oracle: &SmtpOracle) -> Vec<String> {
    oracle.messages().iter().map(|m| m.header("Message-ID").expect("a Message-ID")).collect()
}

#[tokio::test]
async fn what_is_lost_after_the_dot_is_unknown_and_goes_out_again_once_and_only_on_an_operators_word() {
    let acts = [
        Act::Late(Duration::from_secs(3), "250 2.0.0 at last"),
        Act::Close,
        Act::ReplyClose("421 4.3.2 going down"),
        Act::Half("2"),
    ];
    let script = acts.iter().cloned().fold(Script::plain(), |script, act| script.once(Stage::Dot, act));
    let oracle = SmtpOracle::start(script).await;
    let daemon = daemon(EAGER, plain(&oracle, "final_timeout = \"1s\"")).await;
    let mut ids = vec![];
    for (n, act) in acts.iter().enumerate() {
        let id = daemon.mail(&format!("lost-{n}"), &format!("user{n}@customer.example")).await;
        let status = daemon.wait_for_state(&id, "dispatch_unknown").await;
        assert_eq!((&status["sent"], &status["waiting_for"]), (&"unknown".into(), &"operator".into()), "{act:?}");
        assert_eq!(status["attempts"].as_array().map(Vec::len), Some(1), "{act:?}");
        ids.push(id);
    }
    let after = daemon.mail("after", "after@customer.example").await;
    daemon.wait_for_state(&after, "dispatched").await;
    assert_eq!(oracle.messages().len(), 5, "none went out again by itself");

    let words = ["unknown", "resolve", "--not-sent", "--ticket", "OPS-1"];
    let args: Vec<&str> = words.into_iter().chain(ids.iter().map(String::as_str)).collect();
    let resolved = daemon.run(&args, "");
    assert!(resolved.status.success(), "{resolved:?}");
    for id in &ids {
        let status = daemon.wait_for_state(id, "dispatched").await;
        assert_eq!(status["attempts"].as_array().map(Vec::len), Some(2), "{status}");
    }
    let sent = message_ids(&oracle);
    assert_eq!(sent.len(), 9);
    assert_eq!(
        sent.iter().collect::<BTreeSet<_>>().len(),
        5,
        "the second copy has the first one's Message-ID: {sent:?}"
    );
    let again: BTreeSet<_> = sent[5..].iter().collect();
    assert_eq!(again, sent[..4].iter().collect());
    assert_eq!(daemon.run(&args, "").status.code(), Some(4), "nothing is open any more");
    assert_eq!(oracle.messages().len(), 9);
}

#[tokio::test]
async fn a_refusal_for_now_after_the_dot_is_tried_again_with_the_same_message_id() {
    let script = Script::plain().once(Stage::Dot, Act::Reply("451 4.3.0 try again later"));
    let oracle = SmtpOracle::start(script).await;
    let daemon = daemon(EAGER, plain(&oracle, "")).await;
    let id = daemon.mail("grey", "user@customer.example").await;
    let status = daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!(status["attempts"][0]["outcome"], "not_sent", "{status}");
    assert_eq!(status["attempts"].as_array().map(Vec::len), Some(2));
    let sent = message_ids(&oracle);
    assert_eq!((sent.len(), &sent[0]), (2, &sent[1]));
}

#[tokio::test]
async fn a_late_reply_to_one_mail_is_never_taken_for_the_next_ones() {
    let script = Script::plain()
        .once(Stage::Dot, Act::Late(Duration::from_millis(1500), "250 2.0.0 the first one"))
        .once(Stage::Dot, Act::Reply("554 5.6.0 not this one"));
    let oracle = SmtpOracle::start(script).await;
    let daemon = daemon(EAGER, plain(&oracle, "final_timeout = \"1s\"\nconcurrency = 1")).await;
    let first = daemon.mail("first", "first@customer.example").await;
    let second = daemon.mail("second", "second@customer.example").await;
    daemon.wait_for_state(&first, "dispatch_unknown").await;
    let status = daemon.wait_for_state(&second, "failed").await;
    assert_eq!((&status["sent"], &status["cause"]), (&"no".into(), &"bad_content".into()), "{status}");
    let messages = oracle.messages();
    assert_eq!(messages.len(), 2);
    assert_ne!(messages[0].connection, messages[1].connection, "a connection in doubt is not used again");
}

#[tokio::test]
async fn while_the_relay_refuses_our_password_mail_waits_and_then_each_goes_out_once() {
    const COUNT: usize = 30;
    let pki = Pki::new();
    let good = || Script::starttls(pki.good()).login("shop", PASSWORD);
    let oracle = SmtpOracle::start(good().on(Stage::Auth, Act::Reply("535 5.7.8 bad credentials"))).await;
    let daemon = daemon(ONE_ATTEMPT, secured(&oracle, &pki)).await;
    let mut ids = vec![];
    for n in 0..COUNT {
        ids.push(daemon.mail(&format!("waits-{n}"), &format!("user{n}@customer.example")).await);
    }
    daemon.logs(&["the breaker opened", "\"alert\":true", "bad_credentials"]).await;
    // A trial or two that fail.
    oracle.wait_until("a second trial", |o| o.commands().iter().filter(|c| *c == "AUTH").count() >= 3).await;
    for id in &ids {
        assert_eq!(daemon.status(id).await["sent"], "no");
        assert_ne!(daemon.status(id).await["state"], "failed");
    }
    assert_eq!(oracle.messages().len(), 0);
    oracle.play(good());
    for id in &ids {
        daemon.wait_for_state(id, "dispatched").await;
    }
    let to: BTreeSet<_> = oracle.messages().iter().flat_map(|m| m.to.clone()).collect();
    assert_eq!((oracle.messages().len(), to.len()), (COUNT, COUNT));
    assert!(!oracle.heard_in_clear().iter().any(|line| line.starts_with("AUTH")));
}

#[tokio::test]
async fn without_starttls_mail_waits_and_no_password_crosses_the_network() {
    let pki = Pki::new();
    let oracle = SmtpOracle::start(Script::plain().login("shop", PASSWORD)).await;
    let daemon = daemon(ONE_ATTEMPT, secured(&oracle, &pki)).await;
    let mut ids = vec![];
    for n in 0..5 {
        ids.push(daemon.mail(&format!("clear-{n}"), &format!("user{n}@customer.example")).await);
    }
    daemon.logs(&["the breaker opened", "\"alert\":true", "tls_required"]).await;
    oracle.wait_until("a second trial", |o| o.connections() >= 3).await;
    let metrics = daemon.metrics().await;
    // Open, or half open while a trial is under way.
    assert!(metrics.contains("sendonce_breaker{provider=\"relay\",state=\"closed\"} 0"), "{metrics}");
    for id in &ids {
        let state = daemon.status(id).await["state"].clone();
        assert!(state == "accepted" || state == "retry_wait" || state == "dispatching", "{state}");
    }
    let heard = oracle.heard_in_clear();
    let verbs = |line: &String| line.starts_with("EHLO") || line.starts_with("QUIT");
    assert!(heard.iter().all(verbs), "{heard:?}");
    oracle.play(Script::starttls(pki.good()).login("shop", PASSWORD));
    for id in &ids {
        daemon.wait_for_state(id, "dispatched").await;
    }
    assert_eq!(oracle.messages().len(), 5);
}

/// Stops the daemon while the relay holds its reply to the dot, starts it again, and says how it ended and how the mail
/// stands then.
async fn stopped_after_the_dot(hold: Duration, dispatch: &'static str) -> (Option<i32>, String, usize) {
    let script = Script::plain().once(Stage::Dot, Act::Late(hold, "250 2.0.0 kept"));
    let oracle = SmtpOracle::start(script).await;
    let daemon = daemon(dispatch, plain(&oracle, "")).await;
    let id = daemon.mail("held", "user@customer.example").await;
    oracle.wait_for(1).await;
    let code = daemon.stop().await;
    daemon.launch().await;
    let after = daemon.mail("after", "after@customer.example").await;
    daemon.wait_for_state(&after, "dispatched").await;
    let state = daemon.status(&id).await["state"].as_str().expect("a state").to_owned();
    let copies = oracle.messages().iter().filter(|m| m.to == ["user@customer.example"]).count();
    (code, state, copies)
}

#[tokio::test]
async fn a_stop_waits_for_the_reply_to_the_dot() {
    let told = stopped_after_the_dot(Duration::from_secs(2), "drain_timeout = \"10s\"").await;
    assert_eq!(told, (Some(0), "dispatched".to_owned(), 1));
}

#[tokio::test]
async fn a_stop_that_cannot_wait_for_the_reply_leaves_it_unknown_and_it_is_not_sent_again() {
    let told = stopped_after_the_dot(Duration::from_secs(60), "drain_timeout = \"1s\"").await;
    assert_eq!(told, (Some(1), "dispatch_unknown".to_owned(), 1));
}

#[tokio::test]
async fn a_second_signal_and_even_a_kill_leave_mail_after_its_dot_unknown_and_unrepeated() {
    for signals in [&["-TERM", "-INT"][..], &["-KILL"]] {
        let oracle = SmtpOracle::start(Script::plain().once(Stage::Dot, Act::Stall)).await;
        let daemon = daemon(EAGER, plain(&oracle, "")).await;
        let id = daemon.mail("held", "user@customer.example").await;
        oracle.wait_for(1).await;
        for signal in signals {
            daemon.signal(signal);
            if *signal == "-TERM" {
                daemon.logs(&["\"stopping\""]).await;
            }
        }
        assert_ne!(daemon.ended().await, Some(0));
        daemon.launch().await;
        let after = daemon.mail("after", "after@customer.example").await;
        daemon.wait_for_state(&after, "dispatched").await;
        assert_eq!(daemon.status(&id).await["state"], "dispatch_unknown", "{signals:?}");
        assert_eq!(oracle.messages().len(), 2, "{signals:?}");
    }
}

#[tokio::test]
async fn a_connection_that_the_relay_gave_up_while_it_waited_costs_no_attempt() {
    let script = Script::plain()
        .once(Stage::Dot, Act::Inject("421 4.4.2 idle\r\n"))
        .once(Stage::Mail, Act::Normal)
        .once(Stage::Mail, Act::Normal)
        .once(Stage::Mail, Act::ReplyClose("421 4.4.2 idle"));
    let oracle = SmtpOracle::start(script).await;
    let daemon = daemon("", plain(&oracle, "idle = \"1m\"\nconcurrency = 1")).await;
    for n in 0..3 {
        let id = daemon.mail(&format!("idle-{n}"), &format!("user{n}@customer.example")).await;
        let status = daemon.wait_for_state(&id, "dispatched").await;
        assert_eq!(status["attempts"].as_array().map(Vec::len), Some(1), "{status}");
        assert_eq!(oracle.messages().len(), n + 1);
    }
    assert_eq!(oracle.connections(), 3);
}

#[tokio::test]
async fn an_address_that_the_relay_refuses_gives_way_to_the_next_one() {
    let oracle = SmtpOracle::start(Script::plain().on(Stage::Rcpt, Act::Reply("550 5.1.1 no such user"))).await;
    let daemon = daemon(EAGER, plain(&oracle, "").sandbox()).await;
    let to = json!([{ "email": "nobody@customer.example" }, { "sms": "+447700900123" }]);
    let id = daemon.accept(&event_to("both", to, json!({ "code": "493021" }))).await;
    let status = daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!(status["attempts"][0]["outcome"], "refused.message", "{status}");
    assert_eq!(status["attempts"][1]["provider"], "sandbox", "{status}");
    assert_eq!(status["attempts"].as_array().map(Vec::len), Some(2));
    assert_eq!(oracle.messages().len(), 0);
    wait("the text message", async || {
        std::fs::read_to_string(daemon.path("outbox")).is_ok_and(|o| o.lines().count() == 1)
    })
    .await;

    let alone = daemon.mail("alone", "nobody@customer.example").await;
    let status = daemon.wait_for_state(&alone, "failed").await;
    assert_eq!((&status["sent"], &status["cause"]), (&"no".into(), &"bad_address".into()), "{status}");
}

#[tokio::test]
async fn a_stop_takes_leave_of_the_relay_on_a_connection_that_waits() {
    let oracle = SmtpOracle::start(Script::plain()).await;
    let daemon = daemon(EAGER, plain(&oracle, "idle = \"1m\"")).await;
    let id = daemon.mail("last", "user@customer.example").await;
    daemon.wait_for_state(&id, "dispatched").await;
    assert!(!oracle.commands().contains(&"QUIT".to_owned()), "it waits for another message");
    assert_eq!(daemon.stop().await, Some(0));
    oracle.wait_until("QUIT", |o| o.commands().contains(&"QUIT".to_owned())).await;
}
