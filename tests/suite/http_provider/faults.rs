//! What is concluded when the other side fails, at every point where it can.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sendonce::clock::Clock;
use tracing_subscriber::fmt::MakeWriter;

use super::*;
use crate::support::http_oracle::{Accept, Post};
use crate::support::port::refusing;

#[tokio::test]
async fn only_a_failure_to_connect_proves_that_nothing_was_sent() {
    let refusing = format!("http://{}", refusing());
    assert_eq!(told(&send(&provider("twilio", &refusing, &[])).await), "not_sent connect");
    let nowhere = provider("twilio", "http://sendonce.invalid", &[("allow_http", "true")]);
    assert_eq!(told(&send(&nowhere).await), "not_sent dns");
    let oracle = HttpOracle::start().await;
    let https = oracle.url().replace("http:", "https:");
    oracle.accept(Accept::Garbage);
    assert_eq!(told(&send(&provider("twilio", &https, &[])).await), "refused.account tls_required");
    oracle.accept(Accept::Stall);
    assert_eq!(told(&send(&hasty("twilio", &https)).await), "not_sent connect");
    assert_eq!(oracle.requests().len(), 0);
}

#[tokio::test]
async fn after_the_connection_stands_loss_and_faults_are_unknown() {
    let oracle = HttpOracle::start().await;
    let provider = provider("twilio", &oracle.url(), &[]);
    oracle.accept(Accept::Close);
    assert_eq!(told(&send(&provider).await), "unknown lost_answer");
    oracle.accept(Accept::Serve);
    for (n, (reply, wanted)) in [
        (Reply::Close, "unknown lost_answer"),
        (Reply::Reset, "unknown lost_answer"),
        (Reply::Raw(b"HTTP/1.1 20".to_vec()), "unknown lost_answer"),
        (Reply::Raw(b"250 ok\r\n\r\n".to_vec()), "unknown unreadable_answer"),
        (Reply::json(500, r#"{"code":20500}"#), "unknown server_fault"),
        (Reply::json(502, "<html>gateway</html>"), "unknown server_fault"),
        (Reply::status(503), "unknown server_fault"),
        (Reply::status(504), "unknown server_fault"),
        (Reply::status(408), "unknown server_fault"),
    ]
    .into_iter()
    .enumerate()
    {
        oracle.play([reply.clone()]);
        assert_eq!(told(&send(&provider).await), wanted, "{reply:?}");
        assert_eq!(oracle.count(&reference(1)), n + 1, "{reply:?}: the provider has it once");
    }
}

#[tokio::test]
async fn after_the_connection_stands_silence_is_unknown() {
    let oracle = HttpOracle::start().await;
    let provider = hasty("twilio", &oracle.url());
    oracle.accept(Accept::Stall);
    assert_eq!(told(&send(&provider).await), "unknown answer_timeout");
    oracle.accept(Accept::Serve);
    let late = Reply::json(201, r#"{"sid":"SM1"}"#).late(Duration::from_secs(30));
    for (n, reply) in [Reply::Stall, late, Reply::RawThenStall(b"HTTP/1.1 20".to_vec())].into_iter().enumerate() {
        oracle.play([reply.clone()]);
        assert_eq!(told(&send(&provider).await), "unknown answer_timeout", "{reply:?}");
        assert_eq!(oracle.count(&reference(1)), n + 1, "{reply:?}: the provider has it once");
    }
}

#[tokio::test]
async fn an_answer_that_is_only_late_is_still_the_answer() {
    let oracle = HttpOracle::start().await;
    oracle.play([Reply::json(201, r#"{"sid":"SM1"}"#).late(Duration::from_millis(500))]);
    assert_eq!(told(&send(&provider("twilio", &oracle.url(), &[])).await), "accepted ok");
}

#[tokio::test]
async fn a_cut_body_leaves_a_status_that_decides_and_loses_a_body_that_does() {
    let oracle = HttpOracle::start().await;
    let by_status = hasty("twilio", &oracle.url());
    let by_body = hasty("infobip", &oracle.url());
    let status = b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{".to_vec();
    for reply in [Reply::cut(201, "{"), Reply::RawThenStall(status), Reply::Endless(201)] {
        oracle.play([reply.clone()]);
        assert_eq!(told(&send(&by_status).await), "accepted accepted_without_id", "{reply:?}");
        assert_eq!(told(&send(&by_body).await), "unknown unreadable_answer", "{reply:?}");
    }
    oracle.play([Reply::cut(400, r#"{"code":21211}"#)]);
    assert_eq!(told(&send(&by_status).await), "unknown unclassified", "a refusal needs its code");
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_is_a_refusal_only_where_it_sends_the_request_itself_elsewhere() {
    let oracle = HttpOracle::start().await;
    let elsewhere = HttpOracle::start().await;
    let provider = provider("twilio", &oracle.url(), &[]);
    // Many programs answer a form that they have taken by leading to another page: those prove nothing.
    for (status, class) in [
        (301, "refused.account"),
        (302, "unknown"),
        (303, "unknown"),
        (307, "refused.account"),
        (308, "refused.account"),
    ] {
        oracle.play([Reply::redirect(status, &elsewhere.url())]);
        assert_eq!(told(&send(&provider).await), format!("{class} redirected"), "{status}");
    }
    assert_eq!((oracle.requests().len(), elsewhere.connections()), (5, 0));
}

#[tokio::test]
async fn a_receipt_that_comes_before_the_answer_or_after_it_changes_neither() {
    let (oracle, hooks) = (HttpOracle::start().await, HttpOracle::start().await);
    let post =
        Post { url: format!("{}/v1/receipts/twilio", hooks.url()), headers: vec![], body: b"MessageSid=SM1".to_vec() };
    let answer = Reply::json(201, r#"{"sid":"SM1"}"#);
    oracle.play([answer.clone().after_receipt(post.clone()), answer.then_receipt(post)]);
    let provider = provider("twilio", &oracle.url(), &[]);
    assert_eq!(told(&send(&provider).await), "accepted ok");
    assert_eq!((oracle.receipt_answers(), hooks.count("SM1")), (vec![200], 1));
    assert_eq!(told(&send(&provider).await), "accepted ok");
    assert_eq!(hooks.wait_for(2, Duration::from_secs(10)).await.len(), 2);
}

/// A clock whose boot time is past `start_by` from the second look on.
#[derive(Default)]
struct PausedAfterFirstLook(AtomicU64);

impl Clock for PausedAfterFirstLook {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn since_boot(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(1000, Ordering::SeqCst))
    }
}

#[tokio::test]
async fn a_closed_gate_stops_a_request_before_its_end_leaves() {
    let oracle = HttpOracle::start().await;
    let provider = provider("twilio", &oracle.url(), &[]);
    let end = NOW.plus(Duration::from_secs(600));
    let late = Gate::new(ManualClock::at(end.plus(Duration::from_micros(1))), Duration::from_secs(60), end);
    let outcome = provider.send(&dispatch(Channel::Sms), &late).await;
    assert_eq!((told(&outcome).as_str(), oracle.connections()), ("never_began deadline_passed", 0));
    let paused = Gate::new(Arc::new(PausedAfterFirstLook::default()), Duration::from_secs(60), end);
    let outcome = provider.send(&dispatch(Channel::Sms), &paused).await;
    assert_eq!(told(&outcome), "never_began started_too_late");
    assert_eq!((oracle.connections(), oracle.requests().len()), (1, 0), "it connected, and no request ended");
}

#[tokio::test]
async fn a_request_without_a_body_needs_time_to_connect_before_the_deadline() {
    let oracle = HttpOracle::start().await;
    let manifest = r#"
name = "by-query"
channel = "sms"
page = "https://vendor.example"
[settings]
base_url = {}
[send]
method = "GET"
url = "{{ base_url }}/send?to={{ to }}&text={{ text }}"
verdict = "status"
"#;
    let provider = custom(manifest, &oracle.url(), &[]);
    let gate = |left| Gate::new(ManualClock::at(NOW), Duration::from_secs(60), NOW.plus(left));
    let outcome = provider.send(&dispatch(Channel::Sms), &gate(PATIENT.connect - Duration::from_secs(1))).await;
    assert_eq!((told(&outcome).as_str(), oracle.connections()), ("never_began deadline_passed", 0));
    oracle.play([Reply::status(200)]);
    let outcome = provider.send(&dispatch(Channel::Sms), &gate(PATIENT.connect)).await;
    assert_eq!((told(&outcome).as_str(), oracle.connections()), ("accepted accepted_without_id", 1));
}

#[tokio::test]
async fn a_message_without_a_text_for_this_channel_never_leaves() {
    let oracle = HttpOracle::start().await;
    let provider = provider("twilio", &oracle.url(), &[]);
    let mut dispatch = dispatch(Channel::Sms);
    dispatch.content.sms = None;
    assert_eq!(told(&provider.send(&dispatch, &gate()).await), "refused.message bad_content");
    dispatch.to = address(Channel::Email);
    assert_eq!(told(&provider.send(&dispatch, &gate()).await), "refused.message bad_address");
    assert_eq!(oracle.connections(), 0);
}

const KEY_IN_URL: &str = r#"
name = "key-in-url"
channel = "sms"
page = "https://vendor.example"
[settings]
base_url = {}
key = { secret = true, account = true }
[send]
method = "POST"
url = "{{ base_url }}/send?key={{ key }}&to={{ to }}&text={{ text }}"
verdict = "status"
answers = [{ status = 404, is = "refused.account" }]
[lookup]
method = "GET"
url = "{{ base_url }}/find?key={{ key }}&ref={{ reference }}"
found = "/items"
match = { "/ref" = "{{ reference }}" }
settle_after = "1m"
window = "1h"
"#;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("a lock").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_key_in_the_url_shows_nowhere_whatever_fails() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_max_level(tracing::Level::TRACE).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    tracing::info!("the log is on");
    let oracle = HttpOracle::start().await;
    oracle.play([Reply::status(404), Reply::redirect(302, "/send?key=CANARY1"), Reply::Close]);
    let mut shown = String::new();
    let refusing = format!("http://{}", refusing());
    let plain = oracle.url();
    let tls = oracle.url().replace("http:", "https:");
    oracle.accept(Accept::Garbage);
    for base_url in [&refusing, &tls, &plain, &plain, &plain] {
        if *base_url == plain {
            oracle.accept(Accept::Serve);
        }
        let provider = custom(KEY_IN_URL, base_url, &[("key", "CANARY1/+")]);
        let mut dispatch = dispatch(Channel::Sms);
        dispatch.content.sms = Some("CANARY2".into());
        let outcome = provider.send(&dispatch, &gate()).await;
        shown.push_str(&format!("{outcome:?} {provider:?} {:?} {dispatch:?} ", provider.lookup(&inquiry()).await));
    }
    assert_eq!(oracle.count("key=CANARY1%2F%2B"), 6, "they did reach the provider");
    let logged = String::from_utf8_lossy(&log.0.lock().expect("a lock")).into_owned();
    assert!(logged.contains("the log is on"));
    for canary in ["CANARY1", "CANARY2", "2025550143", "Q0FOQVJZ"] {
        assert!(!shown.contains(canary), "{canary} is shown");
        assert!(!logged.contains(canary), "{canary} is logged");
    }
}
