//! A mail server and a parser that we did not write.

use OutcomeClass::{Accepted, RefusedAccount};
use secrecy::SecretString;
use sendonce::domain::address::MailAddress;
use sendonce::domain::outcome::{OutcomeClass, Reason};
use sendonce::provider::smtp::SmtpSettings;

use crate::smtp::{PASSWORD, ending, provider};
use crate::support::pki::Pki;
use crate::support::sample::LINK;

/// `aiosmtpd` is a server that we did not write, and python's `email` a parser that we did not write.
#[tokio::test]
async fn a_server_and_a_parser_of_others_read_what_we_sent() {
    let python = std::env::var("SENDONCE_TEST_AIOSMTPD_PYTHON")
        .expect("SENDONCE_TEST_AIOSMTPD_PYTHON must name a python that has aiosmtpd");
    let pki = Pki::new();
    let dir = tempfile::tempdir().expect("a directory");
    let (cert, key) = pki.write_good(dir.path());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/support/real_smtp.py");
    let mut server = std::process::Command::new(python)
        .args([script, "mailer", PASSWORD])
        .args([dir.path(), &cert, &key])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python runs");
    let mut said = std::io::BufReader::new(server.stdout.take().expect("its output"));
    let mut port = String::new();
    std::io::BufRead::read_line(&mut said, &mut port).expect("a port");
    let port = port.trim().parse().expect("a port");

    let from = MailAddress::parse("no-reply@example.org").expect("a mail address");
    let good = SmtpSettings {
        port,
        extra_roots: Some(pki.roots()),
        credentials: Some(("mailer".to_owned(), SecretString::from(PASSWORD))),
        ..SmtpSettings::new("localhost", from)
    };
    let wrong = Some(("mailer".to_owned(), SecretString::from("wrong")));
    let wrong = provider(SmtpSettings { credentials: wrong, ..good.clone() });
    let refused = ending(&wrong, 1).await;
    let accepted = ending(&provider(good), 2).await;
    // It ends when its input does.
    drop(server.stdin.take());
    server.wait().expect("the server ends");

    assert_eq!(refused, (RefusedAccount, Reason::BadCredentials));
    assert_eq!(accepted, (Accepted, Reason::Ok));
    let stored = std::fs::read_to_string(dir.path().join("1.json")).expect("one mail was stored");
    let stored: serde_json::Value = serde_json::from_str(&stored).expect("what the parser read");
    assert!(!dir.path().join("2.json").exists(), "one mail, once");
    assert_eq!(stored["rcpt"], serde_json::json!(["user@example.net"]));
    assert_eq!(stored["subject"], "Réinitialiser · 493021");
    assert_eq!(stored["message_id"], "<02020202-0202-0202-0202-020202020202@example.org>");
    let text = stored["text"].as_str().expect("a text part");
    assert!(text.contains(&format!("\n.\n..dots\n{LINK}\n")), "{text}");
    assert_eq!(stored["hrefs"], serde_json::json!([LINK]));
}
