//! SMPP: what leaves, what answers mean, and how the session lives.

mod faults;
mod receipts;

use std::sync::Arc;
use std::time::Duration;

use Act::{Close, Late, Silent, Status, ThenClose, ThenUnbind};
use OutcomeClass::{Accepted, NeverBegan, NotSent, RefusedAccount, RefusedMessage, Unknown};
use secrecy::SecretString;
use sendonce::clock::{Clock as _, ManualClock};
use sendonce::domain::ids::ProviderName;
use sendonce::domain::outcome::{Outcome, OutcomeClass, Reason};
use sendonce::domain::receipt::ReceiptStatus;
use sendonce::domain::time::Timestamp;
use sendonce::provider::gate::Gate;
use sendonce::provider::inbox::{Handed, Inbox};
use sendonce::provider::smpp::{SmppError, SmppProvider, SmppSettings, Source, Timeouts, Validity};
use sendonce::provider::{Dispatch, Provider};
use sendonce::vault::IndexKey;
use tokio::sync::mpsc;

use crate::support::pki::Pki;
use crate::support::port::refusing;
use crate::support::sample::{dispatch, email, index_key, open_gate, sms};
use crate::support::smsc_oracle::{Act, Script, SmscOracle, Stage, Submitted};

const PASSWORD: &str = "CANARY9p";
const NUMBER: &str = "+84901234567";
/// Where nothing is to be waited for in vain: long enough for a busy machine.
const PATIENT: Duration = Duration::from_secs(30);
/// Where something is.
const BRIEF: Duration = Duration::from_millis(1500);

fn settings(oracle: &SmscOracle) -> SmppSettings {
    let source = Source::new("Shop", None, None);
    SmppSettings {
        port: oracle.addr().port(),
        tls: false,
        timeouts: Timeouts { connect: PATIENT, command: PATIENT, response: PATIENT, enquire: PATIENT },
        ..SmppSettings::new("localhost", "esme", SecretString::from(PASSWORD), source)
    }
}

/// The settings with a short wait for the answer to a submission.
fn impatient(oracle: &SmscOracle) -> SmppSettings {
    let settings = settings(oracle);
    SmppSettings { timeouts: Timeouts { response: BRIEF, ..settings.timeouts }, ..settings }
}

/// A provider with the other end of its inbox.
struct Stand {
    index: Arc<IndexKey>,
    provider: Arc<SmppProvider>,
    inbox: mpsc::Receiver<Handed>,
}

impl Stand {
    fn new(settings: SmppSettings) -> Self {
        let (inbox, other_end) = Inbox::new(64);
        let index = Arc::new(index_key());
        let name = ProviderName::parse("smsc").expect("a name");
        let built = SmppProvider::build(name, settings, index.clone(), inbox, || 0.5);
        Self { index, provider: Arc::new(built.expect("good settings")), inbox: other_end }
    }

    /// Attempt 1 of notification `n`, whose text names it.
    fn message(&self, n: u8) -> Dispatch {
        let mut message = dispatch(&self.index, n, 1, sms(NUMBER));
        message.content.sms = Some(text(n));
        message
    }

    async fn send(&self, n: u8) -> Outcome {
        self.provider.send(&self.message(n), &open_gate()).await
    }

    async fn ending(&self, n: u8) -> (OutcomeClass, Reason) {
        let outcome = self.send(n).await;
        (outcome.class, outcome.reason)
    }

    async fn handed(&mut self) -> Handed {
        tokio::time::timeout(PATIENT, self.inbox.recv()).await.expect("a receipt in time").expect("a provider")
    }
}

fn text(n: u8) -> String {
    format!("Your code is 4930{n}.")
}

const OK: (OutcomeClass, Reason) = (Accepted, Reason::Ok);

/// What is wrong about `class` as the outcome of notification `n`: it was accepted only if the SMSC has it once, and is
/// certainly not sent only if the SMSC has it not.
fn contradiction(oracle: &SmscOracle, n: u8, class: OutcomeClass) -> Option<String> {
    let came = oracle.submitted().iter().filter(|s| s.text() == text(n)).cloned().collect::<Vec<Submitted>>();
    let taken = came.iter().filter(|s| s.taken).count();
    let agrees = match class {
        Accepted => taken == 1,
        Unknown => came.len() == 1,
        _ => taken == 0,
    };
    (!agrees).then(|| format!("{class}, and the SMSC took it {taken} times of {}", came.len()))
}

#[tokio::test]
async fn a_message_leaves_as_the_standard_has_it_and_its_id_comes_back() {
    let oracle = SmscOracle::start(Script::plain().password(PASSWORD)).await;
    let stand = Stand::new(settings(&oracle));
    let outcome = stand.send(1).await;
    assert_eq!((outcome.class, outcome.reason), OK);
    assert_eq!(outcome.message_id.map(|id| id.to_string()).as_deref(), Some("4000000000"));
    let [sent] = &oracle.submitted()[..] else { panic!("one, once") };
    assert_eq!(sent.source, (5, 0, "Shop".to_owned()));
    assert_eq!(sent.destination, (1, 1, "84901234567".to_owned()));
    assert_eq!((sent.esm_class, sent.registered, sent.coding), (0, 1, 0));
    assert_eq!(sent.message, b"Your code is 49301.");
    // The gate is open for an hour less what has passed since.
    assert!(sent.validity.starts_with("00000000") && sent.validity.ends_with("000R"), "{}", sent.validity);
    assert!(sent.validity[8..12].parse::<u32>().expect("minutes") >= 58, "{}", sent.validity);
}

#[tokio::test]
async fn a_long_or_foreign_text_is_still_one_submission() {
    let oracle = SmscOracle::start(Script::plain()).await;
    let stand = Stand::new(settings(&oracle));
    let ucs2 = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    let cases = [
        ("Mã của bạn là 493021".to_owned(), 8, None),
        ("€{}".to_owned(), 0, Some(b"\x1b\x65\x1b\x28\x1b\x29".to_vec())),
        ("a".repeat(400), 0, Some("a".repeat(400).into_bytes())),
        ("ế".repeat(200), 8, None),
    ];
    for (n, (text, coding, octets)) in cases.into_iter().enumerate() {
        let mut message = stand.message(u8::try_from(n).expect("a number"));
        message.content.sms = Some(text.clone());
        let outcome = stand.provider.send(&message, &open_gate()).await;
        assert_eq!(outcome.class, Accepted, "{text}");
        let sent = oracle.submitted();
        assert_eq!(sent.len(), n + 1, "{text}");
        assert_eq!(sent[n].coding, coding, "{text}");
        let carried = sent[n].payload.as_ref().unwrap_or(&sent[n].message);
        assert_eq!(*carried, octets.unwrap_or_else(|| ucs2(&text)), "{text}");
        assert_eq!(sent[n].payload.is_some(), text.chars().count() > 160, "{text}");
        assert!(sent[n].payload.is_none() || sent[n].message.is_empty(), "{text}");
    }
}

#[tokio::test]
async fn the_validity_is_what_is_left_in_the_form_that_is_set() {
    for (form, wanted) in
        [(Validity::Relative, "000000000130000R"), (Validity::Absolute, "260101000130000+"), (Validity::None, "")]
    {
        let oracle = SmscOracle::start(Script::plain()).await;
        let stand = Stand::new(SmppSettings { validity: form, ..settings(&oracle) });
        let now = Timestamp::parse_rfc3339("2026-01-01T00:00:00Z").expect("a time");
        let gate = Gate::new(ManualClock::at(now), PATIENT, now.plus(Duration::from_secs(90)));
        assert_eq!(stand.provider.send(&stand.message(1), &gate).await.class, Accepted);
        assert_eq!(oracle.submitted()[0].validity, wanted, "{form:?}");
    }
}

#[tokio::test]
async fn a_status_means_what_the_table_of_the_standard_says() {
    let table = [
        (0x01, RefusedMessage, Reason::BadContent),
        (0x04, RefusedAccount, Reason::AccountRefused),
        (0x08, Unknown, Reason::ServerFault),
        (0x0a, RefusedAccount, Reason::AccountRefused),
        (0x0b, RefusedMessage, Reason::BadAddress),
        (0x0f, RefusedAccount, Reason::BadCredentials),
        (0x14, NotSent, Reason::TemporarilyRefused),
        (0x45, NotSent, Reason::TemporarilyRefused),
        (0x58, NotSent, Reason::RateLimited),
        (0x61, RefusedMessage, Reason::MessageRefused),
        (0x62, RefusedMessage, Reason::MessageRefused),
        (0x65, RefusedMessage, Reason::MessageRefused),
        (0xc4, RefusedMessage, Reason::MessageRefused),
        (0xff, Unknown, Reason::ServerFault),
        // Not for submissions, reserved, vendors', and beyond.
        (0x11, Unknown, Reason::Unclassified),
        (0x67, Unknown, Reason::Unclassified),
        (0x0400, Unknown, Reason::Unclassified),
        (0x04ff, Unknown, Reason::Unclassified),
        (u32::MAX, Unknown, Reason::Unclassified),
    ];
    let oracle = SmscOracle::start(Script::plain()).await;
    let stand = Stand::new(settings(&oracle));
    for (n, (status, class, reason)) in (0..).zip(table) {
        oracle.play(Script::plain().on(Stage::Submit, Status(status)));
        assert_eq!(stand.ending(n).await, (class, reason), "0x{status:x}");
    }
    assert_eq!(oracle.connections(), 1, "a refusal ends no session");
}

#[tokio::test]
async fn nothing_leaves_where_nobody_is_and_for_an_address_of_another_kind() {
    let oracle = SmscOracle::start(Script::plain()).await;
    let nobody = SmppSettings { port: refusing().port(), host: "127.0.0.1".to_owned(), ..settings(&oracle) };
    assert_eq!(Stand::new(nobody.clone()).ending(1).await, (NotSent, Reason::Connect));
    let nowhere = SmppSettings { host: "nowhere.invalid".to_owned(), ..nobody };
    assert_eq!(Stand::new(nowhere).ending(1).await, (NotSent, Reason::Dns));
    let stand = Stand::new(settings(&oracle));
    let mail = dispatch(&stand.index, 1, 1, email("user@example.net"));
    let outcome = stand.provider.send(&mail, &open_gate()).await;
    assert_eq!((outcome.class, outcome.reason), (RefusedMessage, Reason::BadAddress));
    assert_eq!(oracle.connections(), 0);
}

#[tokio::test]
async fn no_submission_leaves_after_the_deadline_or_when_it_could_only_leave_after_it() {
    let oracle = SmscOracle::start(Script::plain()).await;
    let stand = Stand::new(settings(&oracle));
    assert_eq!(stand.ending(1).await, OK);
    // The second one is over before a write that takes its whole time would be.
    for left in [Duration::ZERO, Duration::from_millis(1500)] {
        let clock = ManualClock::at(Timestamp::from_micros(1_000_000_000));
        let gate = Gate::new(clock.clone(), PATIENT, clock.now().plus(left));
        clock.advance(Duration::from_millis(1));
        let outcome = stand.provider.send(&stand.message(2), &gate).await;
        assert_eq!((outcome.class, outcome.reason), (NeverBegan, Reason::DeadlinePassed), "{left:?}");
    }
    let clock = ManualClock::at(Timestamp::default());
    let gate = Gate::new(clock.clone(), Duration::from_secs(10), Timestamp::from_micros(3_600_000_000));
    clock.advance(Duration::from_secs(11));
    let outcome = stand.provider.send(&stand.message(2), &gate).await;
    assert_eq!((outcome.class, outcome.reason), (NeverBegan, Reason::StartedTooLate));
    assert_eq!(oracle.submitted().len(), 1);
}

#[tokio::test]
async fn never_more_submissions_are_open_than_the_window_holds() {
    let late = Script::plain().on(Stage::Submit, Late(Duration::from_millis(50)));
    let oracle = SmscOracle::start(late).await;
    let stand = Stand::new(SmppSettings { window: 3, ..settings(&oracle) });
    let sent = futures_util::future::join_all((0..20).map(|n| stand.ending(n))).await;
    assert_eq!(sent, [OK; 20]);
    assert_eq!((oracle.most_open(), oracle.submitted().len(), oracle.connections()), (3, 20, 1));
}

#[tokio::test]
async fn a_message_that_finds_no_place_in_the_window_is_certainly_not_sent() {
    let oracle = SmscOracle::start(Script::plain().on(Stage::Submit, Silent)).await;
    let settings = settings(&oracle);
    let timeouts = Timeouts { connect: Duration::from_secs(1), ..settings.timeouts };
    let stand = Stand::new(SmppSettings { window: 1, timeouts, ..settings });
    let first = tokio::spawn({
        let (provider, message) = (stand.provider.clone(), stand.message(1));
        async move { provider.send(&message, &open_gate()).await }
    });
    oracle.wait_until("the first one", |o| o.submitted().len() == 1).await;
    assert_eq!(stand.ending(2).await, (NotSent, Reason::StalledBeforeCommit));
    oracle.hang_up();
    let first = first.await.expect("an outcome");
    assert_eq!((first.class, first.reason), (Unknown, Reason::LostAnswer));
    assert_eq!(oracle.submitted().len(), 1);
}

#[tokio::test]
async fn a_session_that_the_smsc_has_ended_costs_no_message_anything() {
    for act in [ThenClose, ThenUnbind] {
        let oracle = SmscOracle::start(Script::plain().once(Stage::Submit, act.clone())).await;
        let stand = Stand::new(settings(&oracle));
        for n in 1..=2 {
            assert_eq!(stand.ending(n).await, OK, "{act:?}");
            assert_eq!(contradiction(&oracle, n, Accepted), None, "{act:?}");
        }
        oracle.wait_until("a second session", |o| o.connections() == 2).await;
    }
}

#[tokio::test]
async fn the_session_comes_back_by_itself_after_every_end() {
    let refuses = [Status(0x05), Close, Status(0x08)];
    let script = refuses.into_iter().fold(Script::plain(), |script, act| script.once(Stage::Bind, act));
    let oracle = SmscOracle::start(script).await;
    let stand = Stand::new(settings(&oracle));
    stand.provider.start();
    oracle.wait_until("a bind after three failures", |o| o.count(Stage::Bind) == 4).await;
    oracle.hang_up();
    oracle.wait_until("a bind after the loss", |o| o.count(Stage::Bind) == 5).await;
    assert_eq!(stand.ending(1).await, OK);
}

#[tokio::test]
async fn a_silent_smsc_is_asked_whether_it_is_there_and_left_when_it_is_not() {
    let quick = |oracle: &SmscOracle| {
        let settings = settings(oracle);
        let timeouts = Timeouts { enquire: Duration::from_millis(300), command: 2 * BRIEF, ..settings.timeouts };
        SmppSettings { timeouts, ..settings }
    };
    let oracle = SmscOracle::start(Script::plain()).await;
    let stand = Stand::new(quick(&oracle));
    stand.provider.start();
    oracle.wait_until("three questions", |o| o.count(Stage::Enquire) >= 3).await;
    assert_eq!(oracle.connections(), 1, "it has answered");

    // Two messages: one has left when the SMSC falls silent, one finds it so.
    oracle.play(Script::plain().once(Stage::Submit, Silent).once(Stage::Enquire, Silent));
    assert_eq!(stand.ending(1).await, (Unknown, Reason::AnswerTimeout));
    assert_eq!(stand.ending(2).await, OK);
    assert_eq!(oracle.connections(), 2);
}

#[tokio::test]
async fn a_session_in_doubt_takes_no_message_before_the_smsc_has_spoken() {
    let oracle = SmscOracle::start(Script::plain()).await;
    let settings = settings(&oracle);
    let timeouts = Timeouts { command: BRIEF, response: 3 * BRIEF, ..settings.timeouts };
    let stand = Stand::new(SmppSettings { timeouts, ..settings });
    assert_eq!(stand.ending(0).await, OK);
    // A hole in the network: nothing is answered on this connection any more.
    oracle.play(Script::plain().once(Stage::Submit, Act::Half).once(Stage::Enquire, Silent));
    assert_eq!(stand.ending(1).await, (Unknown, Reason::AnswerTimeout));
    for n in 2..6 {
        assert_eq!(stand.ending(n).await, OK, "{n}");
        assert_eq!(contradiction(&oracle, n, Accepted), None);
    }
    assert_eq!(oracle.connections(), 2);
}

#[tokio::test]
async fn what_the_smsc_asks_is_answered() {
    let oracle = SmscOracle::start(Script::plain()).await;
    let stand = Stand::new(settings(&oracle));
    assert_eq!(stand.ending(1).await, OK);
    oracle.say(0x15, 77, &[]);
    oracle.wait_until("enquire_link_resp", |o| o.count_command(0x8000_0015) == 1).await;
    // data_sm, which we do not take.
    oracle.say(0x103, 78, &[]);
    oracle.wait_until("generic_nack", |o| o.count_command(0x8000_0000) == 1).await;
    oracle.say(6, 79, &[]);
    oracle.wait_until("unbind_resp", |o| o.count_command(0x8000_0006) == 1).await;
    assert_eq!(stand.ending(2).await, OK);
    assert_eq!(oracle.connections(), 2);
}

#[tokio::test]
async fn an_answer_that_comes_late_is_evidence_with_our_reference() {
    let late = Late(BRIEF + Duration::from_millis(300));
    let oracle = SmscOracle::start(Script::plain().once(Stage::Submit, late)).await;
    let mut stand = Stand::new(impatient(&oracle));
    assert_eq!(stand.ending(1).await, (Unknown, Reason::AnswerTimeout));
    let handed = stand.handed().await;
    assert_eq!(handed.receipt.status, ReceiptStatus::Progress);
    let reference = handed.receipt.reference.expect("a reference").to_string();
    assert_eq!(reference, stand.message(1).reference);
    assert_eq!(handed.receipt.message_id.map(|id| id.to_string()).as_deref(), Some("4000000000"));
    assert_eq!(oracle.connections(), 1);
}

#[tokio::test]
async fn the_end_is_said_and_what_has_left_is_still_heard() {
    let late = Script::plain().on(Stage::Submit, Late(Duration::from_millis(200)));
    let oracle = SmscOracle::start(late).await;
    let stand = Stand::new(settings(&oracle));
    let sending = tokio::spawn({
        let (provider, message) = (stand.provider.clone(), stand.message(1));
        async move { provider.send(&message, &open_gate()).await }
    });
    let sent = sending.await.expect("an outcome");
    assert_eq!(sent.class, Accepted);
    stand.provider.stop().await;
    assert_eq!(oracle.count(Stage::Unbind), 1);
    assert_eq!(stand.ending(2).await, (NeverBegan, Reason::Draining));
    assert_eq!(oracle.submitted().len(), 1);

    // A provider that is dropped says it too.
    let stand = Stand::new(settings(&oracle));
    assert_eq!(stand.ending(3).await, OK);
    drop(stand);
    oracle.wait_until("unbind", |o| o.count(Stage::Unbind) == 2).await;
}

#[tokio::test]
async fn tls_is_verified_and_a_wrong_password_is_the_accounts_fault() {
    let pki = Pki::new();
    let secured = |oracle: &SmscOracle| SmppSettings { tls: true, extra_roots: Some(pki.roots()), ..settings(oracle) };
    let good = SmscOracle::start(Script::tls(pki.good()).password(PASSWORD)).await;
    assert_eq!(Stand::new(secured(&good)).ending(1).await, OK);
    let wrong = SmppSettings { password: SecretString::from("wrong"), ..secured(&good) };
    let stand = Stand::new(wrong);
    assert_eq!(stand.ending(2).await, (RefusedAccount, Reason::BadCredentials));
    for server in [pki.wrong_host(), pki.expired()] {
        let oracle = SmscOracle::start(Script::tls(server)).await;
        assert_eq!(Stand::new(secured(&oracle)).ending(3).await, (RefusedAccount, Reason::Tls));
    }
    let clear = SmscOracle::start(Script::plain()).await;
    let settings = SmppSettings { tls: true, ..settings(&clear) };
    // It takes our hello for a PDU of a length that none has, and hangs up or says nothing.
    let timeouts = Timeouts { connect: Duration::from_secs(2), ..settings.timeouts };
    let outcome = Stand::new(SmppSettings { timeouts, extra_roots: Some(pki.roots()), ..settings }).send(4).await;
    assert_eq!(outcome.class, NotSent, "{outcome:?}");
}

#[test]
fn settings_that_would_never_work_are_refused_by_name_and_no_secret_is_shown() {
    let source = || Source::new("Shop", None, None);
    let secret = SecretString::from(PASSWORD);
    let base = || SmppSettings { tls: false, ..SmppSettings::new("smsc.test", "esme", secret.clone(), source()) };
    let long = |length: usize| "x".repeat(length);
    let zero = Timeouts { response: Duration::ZERO, ..Timeouts::default() };
    let build = |settings| {
        let name = ProviderName::parse("smsc").expect("a name");
        SmppProvider::build(name, settings, Arc::new(index_key()), Inbox::new(1).0, || 0.5)
    };
    for (settings, error) in [
        (SmppSettings { host: "not a host".to_owned(), ..base() }, SmppError::Host),
        (SmppSettings { port: 0, ..base() }, SmppError::Port),
        (SmppSettings { system_id: String::new(), ..base() }, SmppError::SystemId),
        (SmppSettings { system_id: long(16), ..base() }, SmppError::SystemId),
        (SmppSettings { password: SecretString::from(long(9)), ..base() }, SmppError::Password),
        (SmppSettings { password: SecretString::from("a\0b"), ..base() }, SmppError::Password),
        (SmppSettings { system_type: long(13), ..base() }, SmppError::SystemType),
        (SmppSettings { service_type: long(6), ..base() }, SmppError::ServiceType),
        (SmppSettings { source: Source::new(&long(21), None, None), ..base() }, SmppError::Source),
        (SmppSettings { source: Source::new("é", None, None), ..base() }, SmppError::Source),
        (SmppSettings { window: 0, ..base() }, SmppError::Window),
        (SmppSettings { timeouts: zero, ..base() }, SmppError::Timeout),
        (SmppSettings { tls: true, extra_roots: Some("/nonexistent.pem".into()), ..base() }, SmppError::Roots),
    ] {
        assert_eq!(build(settings).map(drop), Err(error));
    }
    let good = build(base()).expect("good settings");
    let shown = format!("{good:?} {good:#?} {:?}", base());
    assert!(!shown.contains(PASSWORD) && shown.contains("esme"), "{shown}");
}

#[test]
fn the_sender_is_of_the_type_that_it_looks_like_unless_that_is_set() {
    for (text, ton, npi, wanted) in [
        ("+15005550006", None, None, (1, 1, "15005550006")),
        ("12345", None, None, (0, 0, "12345")),
        ("Shop", None, None, (5, 0, "Shop")),
        ("+Shop", None, None, (5, 0, "+Shop")),
        ("12345", Some(3), Some(9), (3, 9, "12345")),
    ] {
        let source = Source::new(text, ton, npi);
        assert_eq!((source.ton, source.npi, source.address.as_str()), wanted, "{text}");
    }
}
