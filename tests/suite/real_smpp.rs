//! An SMSC that we did not write.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::support::daemon::{Daemon, PATIENCE, Plan, event, event_to};
use crate::support::port::Port;

/// What the SMSC says next that has `key`.
fn next(said: &mpsc::Receiver<Value>, key: &str) -> Value {
    loop {
        let line = said.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("the SMSC says nothing of {key}"));
        if line.get(key).is_some() {
            return line;
        }
    }
}

/// `smpp34` binds the daemon itself, reads what it submits, reports its delivery, and sees it go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_smsc_of_others_takes_what_the_daemon_submits_and_its_receipts_are_taken() {
    let python = std::env::var("SENDONCE_TEST_SMPP34_PYTHON")
        .expect("SENDONCE_TEST_SMPP34_PYTHON must name a python that has smpp34");
    let port = Port::reserve();
    let number = port.address().port().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/support/real_smpp.py");
    let mut smsc = Command::new(python);
    let smsc = smsc.args([script, &number]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut smsc = smsc.spawn().expect("python runs");
    let lines = BufReader::new(smsc.stdout.take().expect("its output")).lines();
    let (sender, said) = mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = sender.send(serde_json::from_str(&line).expect("a line of JSON"));
        }
    });
    next(&said, "listening");

    let daemon = Daemon::start(Plan::new().sms(&["smsc"]).file("smsc.password", "secret08\n").toml(&format!(
        "[provider.smsc]\nkind = \"smpp\"\nhost = \"127.0.0.1\"\nport = {number}\ntls = \"none\"\nsystem_id = \"shop\"\n\
         password_file = \"smsc.password\"\nsource = \"Shop\"\nmessage_id = \"hex_in_response\"\nenquire_link = \"1s\"\n"
    )))
    .await;
    assert_eq!(next(&said, "bound"), json!({ "bound": "shop" }));

    let mut vietnamese = event_to("vi", json!([{ "sms": "+84901234567" }]), json!({ "code": "493021" }));
    vietnamese["locale"] = "vi".into();
    for (event, ucs2) in [(event("en"), false), (vietnamese, true)] {
        let id = daemon.accept(&event).await;
        let sent = next(&said, "source");
        assert_eq!(sent["source"], json!([5, 0, "Shop"]));
        let to = event["to"][0]["sms"].as_str().expect("a number").trim_start_matches('+');
        assert_eq!(sent["destination"], json!([1, 1, to]));
        assert_eq!((&sent["registered"], &sent["coding"]), (&json!(1), &json!(if ucs2 { 8 } else { 0 })));
        let carried = if sent["payload"].is_null() { &sent["message"] } else { &sent["payload"] };
        let code: String =
            "493021".bytes().map(|b| if ucs2 { format!("00{b:02x}") } else { format!("{b:02x}") }).collect();
        assert!(carried.as_str().expect("hex").contains(&code), "{sent}");
        assert_eq!(next(&said, "receipt")["taken"], json!(true), "{sent}");
        let status = daemon.wait_until(&id, "delivered", |status| status["delivery"] == "delivered").await;
        assert_eq!((&status["state"], &status["sent"]), (&json!("dispatched"), &json!("yes")), "{status}");
        assert_eq!(status["attempts"].as_array().map(Vec::len), Some(1), "{status}");
    }
    assert_eq!(daemon.stop().await, Some(0));
    next(&said, "unbound");
    daemon_is_quiet(&daemon);
    // It ends when its input does.
    drop(smsc.stdin.take());
    smsc.wait().expect("the SMSC ends");
}

fn daemon_is_quiet(daemon: &Daemon) {
    let log = daemon.log();
    assert!(log.contains("bound"), "{log}");
    assert!(!log.contains("secret08") && !log.contains("493021"), "a secret is in the log");
}
