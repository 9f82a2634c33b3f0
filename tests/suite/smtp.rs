//! SMTP, stage by stage: what is certain is told as certain, and what is not as unknown.

mod faults;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use Act::{Close, Half, HalfClose, Late, Reply, ReplyClose, Reset};
use OutcomeClass::{Accepted, NeverBegan, NotSent, RefusedAccount, RefusedMessage, Unknown};
use Stage::{Auth, Data, Dot, Ehlo, Greeting, Mail, Rcpt, Tls};
use secrecy::SecretString;
use sendonce::clock::Clock;
use sendonce::domain::address::MailAddress;
use sendonce::domain::ids::{NotificationId, ProviderName};
use sendonce::domain::outcome::{Outcome, OutcomeClass, Reason};
use sendonce::domain::time::Timestamp;
use sendonce::provider::Provider;
use sendonce::provider::gate::Gate;
use sendonce::provider::smtp::{SmtpError, SmtpProvider, SmtpSettings, StageTimeouts, TlsMode};

use crate::support::pki::Pki;
use crate::support::port::refusing;
use crate::support::sample::{dispatch, email, index_key, open_gate};
use crate::support::smtp_oracle::{Act, Received, Script, SmtpOracle, Stage};

pub(crate) const PASSWORD: &str = "p@ss:w/rd%25+ é";
/// Long enough for every stage of a busy machine, short enough to wait for.
const LIMIT: Duration = Duration::from_secs(3);

fn settings(oracle: &SmtpOracle) -> SmtpSettings {
    let from = MailAddress::parse("no-reply@example.org").expect("a mail address");
    SmtpSettings {
        port: oracle.addr().port(),
        tls: TlsMode::None,
        from_name: Some("Example".to_owned()),
        timeouts: StageTimeouts::uniform(LIMIT),
        ..SmtpSettings::new("localhost", from)
    }
}

fn secured(oracle: &SmtpOracle, pki: &Pki) -> SmtpSettings {
    SmtpSettings {
        tls: TlsMode::StartTls,
        extra_roots: Some(pki.roots()),
        credentials: Some(("mailer".to_owned(), SecretString::from(PASSWORD))),
        ..settings(oracle)
    }
}

pub(crate) fn provider(settings: SmtpSettings) -> SmtpProvider {
    let name = ProviderName::parse("smtp").expect("a name");
    SmtpProvider::build(name, settings, &index_key()).expect("good settings")
}

/// Sends attempt 1 of notification `n`.
async fn send(provider: &SmtpProvider, n: u8) -> Outcome {
    provider.send(&dispatch(&index_key(), n, 1, email("user@example.net")), &open_gate()).await
}

pub(crate) async fn ending(provider: &SmtpProvider, n: u8) -> (OutcomeClass, Reason) {
    let outcome = send(provider, n).await;
    (outcome.class, outcome.reason)
}

type Row = (Stage, Act, OutcomeClass, Reason);

/// All rows at once, each with a server and a provider of its own, which are all built before a clock runs.
async fn play(table: Vec<Row>, script: impl Fn() -> Script, pki: Option<&Pki>) {
    let mut stands = vec![];
    for row in table {
        let oracle = SmtpOracle::start(script().on(row.0, row.1.clone())).await;
        let provider = provider(pki.map_or_else(|| settings(&oracle), |pki| secured(&oracle, pki)));
        stands.push((row, oracle, provider));
    }
    futures_util::future::join_all(stands.into_iter().map(check)).await;
}

async fn check(((stage, act, class, reason), oracle, provider): (Row, SmtpOracle, SmtpProvider)) {
    let what = format!("{stage:?} {act:?}");
    assert_eq!(ending(&provider, 1).await, (class, reason), "{what}");
    assert_eq!(contradiction(&oracle, 1, class), None, "{what}");
}

/// What is wrong about `class` as the outcome of notification `n`: it was accepted only if the server has it once, and is
/// certainly not sent only if the server has it not.
fn contradiction(oracle: &SmtpOracle, n: u8, class: OutcomeClass) -> Option<String> {
    let id = format!("<{}", NotificationId::from_bytes([n; 16]).to_string().trim_start_matches("ntf_"));
    let ours = |m: &&Received| m.header("Message-ID").is_some_and(|header| header.starts_with(&id));
    let taken = oracle.messages().iter().filter(ours).filter(|m| m.taken).count();
    let agrees = match class {
        Accepted => taken == 1,
        Unknown => true,
        _ => taken == 0,
    };
    (!agrees).then(|| format!("{class}, and the server took it {taken} times"))
}

/// The replies that mean something of their own at their stage; `faults.rs` has every kind of fault at every stage.
#[tokio::test]
async fn a_reply_means_what_its_code_says_at_its_stage() {
    let table: Vec<Row> = vec![
        (Greeting, Reply("250 eager"), NotSent, Reason::ProtocolBeforeCommit),
        (Ehlo, Reply("550 5.7.1 not from there"), RefusedAccount, Reason::AccountRefused),
        (Mail, Reply("530 5.7.0 authenticate first"), RefusedAccount, Reason::AccountRefused),
        (Mail, Reply("550 5.7.1 policy"), RefusedAccount, Reason::AccountRefused),
        (Mail, Reply("553 5.1.8 bad sender"), RefusedAccount, Reason::AccountRefused),
        (Mail, Reply("552 5.3.4 too big"), RefusedMessage, Reason::BadContent),
        (Mail, Reply("354 what"), NotSent, Reason::ProtocolBeforeCommit),
        (Rcpt, Reply("452 4.2.2 full"), NotSent, Reason::TemporarilyRefused),
        (Rcpt, Reply("550 5.1.1 no such user"), RefusedMessage, Reason::BadAddress),
        (Rcpt, Reply("550-5.1.1 no such\r\n550 5.1.1 user"), RefusedMessage, Reason::BadAddress),
        (Rcpt, Reply("550 no such user"), RefusedMessage, Reason::BadAddress),
        (Rcpt, Reply("551 not local"), RefusedMessage, Reason::BadAddress),
        (Rcpt, Reply("553 5.1.3 bad form"), RefusedMessage, Reason::BadAddress),
        (Rcpt, Reply("554 5.7.1 relay access denied"), RefusedAccount, Reason::AccountRefused),
        (Rcpt, Reply("251 will forward"), Accepted, Reason::Ok),
        (Data, Reply("250 2.1.5 Ok"), NotSent, Reason::ProtocolBeforeCommit),
        (Data, Half("354-go on\r\n"), NotSent, Reason::StalledBeforeCommit),
        (Dot, Act::Normal, Accepted, Reason::Ok),
        (Dot, Reply("250"), Accepted, Reason::Ok),
        (Dot, Late(Duration::from_millis(300), "250 2.0.0 scanned"), Accepted, Reason::Ok),
        (Dot, ReplyClose("250 2.0.0 bye"), Accepted, Reason::Ok),
        (Dot, Reply("452 4.3.1 disk full"), NotSent, Reason::TemporarilyRefused),
        (Dot, Reply("550 5.1.1 no such user"), RefusedMessage, Reason::BadAddress),
        (Dot, Reply("554 5.6.0 bad content"), RefusedMessage, Reason::BadContent),
        (Dot, Reply("554 5.7.1 spam"), RefusedMessage, Reason::MessageRefused),
        (Dot, Reply("554"), RefusedMessage, Reason::MessageRefused),
        (Dot, Reply("421 4.3.2 closing"), Unknown, Reason::ServerFault),
        (Dot, Reply("354 more"), Unknown, Reason::UnreadableAnswer),
        (Dot, Half("250 2.0.0 Ok"), Unknown, Reason::AnswerTimeout),
        (Dot, Half("250-2.0.0 Ok\r\n"), Unknown, Reason::AnswerTimeout),
        (Dot, HalfClose("250 2.0.0 Ok"), Unknown, Reason::LostAnswer),
        (Dot, HalfClose("250-2.0.0 Ok\r\n"), Unknown, Reason::LostAnswer),
    ];
    play(table, Script::plain, None).await;
}

#[tokio::test]
async fn a_reply_on_the_way_to_a_secured_session_blames_the_right_side() {
    let pki = Pki::new();
    let table: Vec<Row> = vec![
        // A fatal alert "protocol version", as a server sends it that knows nothing later than TLS 1.0.
        (Tls, HalfClose("\x15\x03\x01\x00\x02\x02\x46"), RefusedAccount, Reason::TlsRequired),
        (Auth, Reply("535 5.7.8 no"), RefusedAccount, Reason::BadCredentials),
        (Auth, Reply("534 5.7.9 too weak"), RefusedAccount, Reason::AccountRefused),
        (Auth, Reply("504 5.5.4 unknown mechanism"), RefusedAccount, Reason::AccountRefused),
        (Auth, Reply("334 more"), NotSent, Reason::ProtocolBeforeCommit),
    ];
    play(table, || Script::starttls(pki.good()).login("mailer", PASSWORD), Some(&pki)).await;
}

#[tokio::test]
async fn without_tls_nothing_secret_leaves_and_the_channel_is_at_fault() {
    let pki = Pki::new();
    let stranger = Pki::new();
    let table = [
        ("no STARTTLS", Script::plain(), TlsMode::StartTls, Reason::TlsRequired),
        ("wrong host", Script::starttls(pki.wrong_host()), TlsMode::StartTls, Reason::Tls),
        ("expired", Script::starttls(pki.expired()), TlsMode::StartTls, Reason::Tls),
        ("unknown authority", Script::starttls(stranger.good()), TlsMode::StartTls, Reason::Tls),
        ("wrong host, implicit", Script::implicit(pki.wrong_host()), TlsMode::Implicit, Reason::Tls),
        ("port 465 in clear", Script::plain(), TlsMode::Implicit, Reason::TlsRequired),
    ];
    for (what, script, tls, reason) in table {
        let oracle = SmtpOracle::start(script.login("mailer", PASSWORD)).await;
        let provider = provider(SmtpSettings { tls, ..secured(&oracle, &pki) });
        assert_eq!(ending(&provider, 1).await, (RefusedAccount, reason), "{what}");
        let commands = oracle.commands();
        let harmless = |verb: &String| matches!(verb.as_str(), "EHLO" | "STARTTLS") || !verb.is_ascii();
        assert!(commands.iter().all(|v| harmless(v) || v.contains('\u{fffd}')), "{what}: {commands:?}");
        assert!(oracle.messages().is_empty(), "{what}");
    }
}

#[tokio::test]
async fn credentials_pass_under_tls_alone_by_either_mechanism() {
    let pki = Pki::new();
    for (script, tls) in [
        (Script::starttls(pki.good()).mechanisms("PLAIN"), TlsMode::StartTls),
        (Script::starttls(pki.good()).mechanisms("LOGIN"), TlsMode::StartTls),
        (Script::implicit(pki.good()), TlsMode::Implicit),
    ] {
        let oracle = SmtpOracle::start(script.login("mailer", PASSWORD)).await;
        let provider = provider(SmtpSettings { tls, ..secured(&oracle, &pki) });
        assert_eq!(ending(&provider, 1).await, (Accepted, Reason::Ok));
        let clear = oracle.heard_in_clear();
        assert!(clear.iter().all(|l| l.starts_with("EHLO") || l == "STARTTLS"), "{clear:?}");
    }
}

#[tokio::test]
async fn a_server_without_a_mechanism_of_ours_is_a_fault_of_the_account() {
    let pki = Pki::new();
    let oracle = SmtpOracle::start(Script::starttls(pki.good()).login("mailer", PASSWORD).mechanisms("GSSAPI")).await;
    assert_eq!(ending(&provider(secured(&oracle, &pki)), 1).await, (RefusedAccount, Reason::AccountRefused));
}

#[tokio::test]
async fn a_refused_password_shows_neither_in_debug_nor_in_the_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let pki = Pki::new();
    let oracle = SmtpOracle::start(Script::starttls(pki.good()).login("mailer", "another")).await;
    let provider = provider(secured(&oracle, &pki));
    tracing::info!("begins");
    let outcome = send(&provider, 1).await;
    assert_eq!((outcome.class, outcome.reason), (RefusedAccount, Reason::BadCredentials));
    let log = String::from_utf8(log.0.lock().expect("the log").clone()).expect("a log in UTF-8");
    assert!(log.contains("begins"), "the log is watched");
    for said in [format!("{outcome:?}"), format!("{provider:?}"), log] {
        for secret in [PASSWORD, "cEBzcz", "493021", "user@example.net", "no-reply@"] {
            assert!(!said.contains(secret), "{secret} in {said}");
        }
    }
}

#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("the log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn nobody_there_is_certain() {
    let gone = refusing();
    let from = MailAddress::parse("no-reply@example.org").expect("a mail address");
    let base = SmtpSettings { tls: TlsMode::None, port: gone.port(), ..SmtpSettings::new("127.0.0.1", from) };
    assert_eq!(ending(&provider(base.clone()), 1).await, (NotSent, Reason::Connect));
    let nowhere = SmtpSettings { host: "nowhere.invalid".to_owned(), ..base };
    assert_eq!(ending(&provider(nowhere), 1).await, (NotSent, Reason::Dns));
}

#[tokio::test]
async fn a_late_reply_is_never_read_as_the_answer_to_the_next_message() {
    let late = Late(LIMIT + Duration::from_millis(500), "250 2.0.0 late");
    let refused = Reply("554 5.7.1 refused");
    let oracle = SmtpOracle::start(Script::plain().once(Dot, late).once(Dot, refused)).await;
    let provider = provider(settings(&oracle));
    assert_eq!(ending(&provider, 1).await, (Unknown, Reason::AnswerTimeout));
    assert_eq!(ending(&provider, 2).await, (RefusedMessage, Reason::MessageRefused));
    assert_eq!(oracle.connections(), 2);
}

#[tokio::test]
async fn a_second_reply_to_one_command_is_never_taken_for_the_next_one() {
    for stage in [Greeting, Ehlo, Mail, Rcpt, Data] {
        let oracle = SmtpOracle::start(Script::plain().on(stage, Act::Inject("250 2.0.0 Ok\r\n"))).await;
        let outcome = send(&provider(settings(&oracle)), 1).await;
        assert_eq!(outcome.class, NotSent, "{stage:?}");
        assert!(oracle.messages().is_empty(), "{stage:?}");
    }
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_clean_end_and_says_quit_when_it_waited_too_long() {
    let oracle = SmtpOracle::start(Script::plain()).await;
    let idle = Duration::from_millis(600);
    let provider = provider(SmtpSettings { idle, ..settings(&oracle) });
    assert_eq!(ending(&provider, 1).await, (Accepted, Reason::Ok));
    assert_eq!(ending(&provider, 2).await, (Accepted, Reason::Ok));
    assert_eq!(oracle.connections(), 1);
    oracle.wait_until("QUIT", |o| o.commands().iter().any(|c| c == "QUIT")).await;
    assert_eq!(ending(&provider, 3).await, (Accepted, Reason::Ok));
    assert_eq!((oracle.connections(), oracle.messages().len()), (2, 3));
}

#[tokio::test]
async fn a_connection_that_the_server_gave_up_while_it_waited_costs_nothing() {
    let second_mail = |act| Script::plain().once(Mail, Act::Normal).once(Mail, act);
    let scripts = [
        Script::plain().once(Dot, Act::Inject("421 4.4.2 idle too long\r\n")),
        Script::plain().once(Dot, ReplyClose("250 2.0.0 Ok")),
        second_mail(ReplyClose("421 4.4.2 idle too long")),
        second_mail(Close),
        second_mail(Reset),
    ];
    for script in scripts {
        let oracle = SmtpOracle::start(script).await;
        let provider = provider(SmtpSettings { idle: Duration::from_secs(60), ..settings(&oracle) });
        for n in 1..=2 {
            assert_eq!(ending(&provider, n).await, (Accepted, Reason::Ok));
        }
        let messages = oracle.messages();
        assert_eq!(oracle.connections(), 2);
        assert_eq!(messages.iter().map(|m| (m.connection, m.taken)).collect::<Vec<_>>(), [(1, true), (2, true)]);
    }
}

#[tokio::test]
async fn every_attempt_carries_the_same_message_id() {
    let oracle = SmtpOracle::start(Script::plain().once(Dot, Reply("451 4.3.0 later"))).await;
    let provider = provider(settings(&oracle));
    for (attempt, class) in [(1, NotSent), (2, Accepted)] {
        let message = dispatch(&index_key(), 7, attempt, email("user@example.net"));
        assert_eq!(provider.send(&message, &open_gate()).await.class, class);
    }
    let messages = oracle.wait_for(2).await;
    let id = messages[0].header("Message-ID").expect("a Message-ID");
    assert_eq!(id, "<07070707-0707-0707-0707-070707070707@example.org>");
    assert_eq!(messages[0].data, messages[1].data, "the attempts are the same to the byte");
    assert_eq!(messages[1].from, "no-reply@example.org");
    assert_eq!(messages[1].to, ["user@example.net"]);
}

#[tokio::test]
async fn the_servers_queue_id_is_kept() {
    let oracle = SmtpOracle::start(Script::plain()).await;
    let outcome = send(&provider(settings(&oracle)), 1).await;
    assert_eq!(outcome.message_id.map(|id| id.to_string()).as_deref(), Some("ORACLE1"));
}

#[tokio::test]
async fn an_address_outside_ascii_needs_a_server_that_can_carry_it() {
    let able = || Script::plain().capability("SMTPUTF8");
    for (script, to, expected) in [
        (Script::plain(), "jörg@example.net", (RefusedMessage, Reason::NeedsSmtpUtf8)),
        (able(), "jörg@example.net", (Accepted, Reason::Ok)),
        (Script::plain(), "user@bücher.example", (Accepted, Reason::Ok)),
    ] {
        let oracle = SmtpOracle::start(script).await;
        let provider = provider(settings(&oracle));
        let outcome = provider.send(&dispatch(&index_key(), 1, 1, email(to)), &open_gate()).await;
        assert_eq!((outcome.class, outcome.reason), expected, "{to}");
        match (oracle.messages().as_slice(), to) {
            ([], _) => assert!(!oracle.commands().contains(&"MAIL".to_owned()), "{to}"),
            ([message], "user@bücher.example") => {
                assert_eq!(message.to, ["user@xn--bcher-kva.example"]);
                assert_eq!(message.mail_parameters, "");
            }
            ([message], _) => assert!(message.mail_parameters.contains("SMTPUTF8"), "{to}"),
            _ => panic!("more than one message"),
        }
    }
}

/// Shows a time past every deadline from the look number `late_from` on.
struct Watch {
    looks: AtomicUsize,
    late_from: usize,
}

impl Clock for Watch {
    fn now(&self) -> Timestamp {
        let look = self.looks.fetch_add(1, Ordering::SeqCst);
        Timestamp::from_micros(if look >= self.late_from { 2_000_000 } else { 0 })
    }

    fn since_boot(&self) -> Duration {
        Duration::ZERO
    }
}

#[tokio::test]
async fn no_final_dot_leaves_after_the_deadline() {
    for (late_from, connections) in [(0, 0), (1, 1)] {
        let oracle = SmtpOracle::start(Script::plain()).await;
        let provider = provider(settings(&oracle));
        let watch = Arc::new(Watch { looks: AtomicUsize::new(0), late_from });
        let gate = Gate::new(watch, Duration::from_secs(60), Timestamp::from_micros(1_000_000));
        let outcome = provider.send(&dispatch(&index_key(), 1, 1, email("user@example.net")), &gate).await;
        assert_eq!((outcome.class, outcome.reason), (NeverBegan, Reason::DeadlinePassed));
        assert_eq!(oracle.connections(), connections);
        assert!(oracle.messages().is_empty());
    }
}

#[test]
fn settings_that_would_leak_or_never_work_are_refused_by_name() {
    let from = || MailAddress::parse("no-reply@example.org").expect("a mail address");
    let base = || SmtpSettings::new("localhost", from());
    let credentials = |password: &str| Some(("mailer".to_owned(), SecretString::from(password)));
    let zero = StageTimeouts { dot: Duration::ZERO, ..StageTimeouts::default() };
    for (settings, error) in [
        (SmtpSettings { tls: TlsMode::None, credentials: credentials("x"), ..base() }, SmtpError::CredentialsInClear),
        (SmtpSettings { credentials: credentials("a\0b"), ..base() }, SmtpError::Credentials),
        (SmtpSettings { credentials: credentials(""), ..base() }, SmtpError::Credentials),
        (SmtpSettings { port: 0, ..base() }, SmtpError::Port),
        (SmtpSettings { host: "not a host".to_owned(), ..base() }, SmtpError::Host),
        (SmtpSettings { hello_name: "a\r\nMAIL".to_owned(), ..base() }, SmtpError::HelloName),
        (SmtpSettings { from_name: Some("a\r\nBcc: b".to_owned()), ..base() }, SmtpError::FromName),
        (SmtpSettings { message_id_domain: Some("a@b".to_owned()), ..base() }, SmtpError::MessageIdDomain),
        (SmtpSettings { extra_roots: Some("/nonexistent.pem".into()), ..base() }, SmtpError::Roots),
        (SmtpSettings { timeouts: zero, ..base() }, SmtpError::Timeout),
    ] {
        let name = ProviderName::parse("smtp").expect("a name");
        assert_eq!(SmtpProvider::build(name, settings, &index_key()).map(drop), Err(error));
    }
}

#[test]
fn the_send_time_covers_every_stage_and_the_account_is_named_by_host_user_and_sender() {
    let index = index_key();
    let build = |host: &str, port| {
        let from = MailAddress::parse("no-reply@example.org").expect("a mail address");
        let settings = SmtpSettings { port, ..SmtpSettings::new(host, from) };
        SmtpProvider::build(ProviderName::parse("smtp").expect("a name"), settings, &index).expect("good settings")
    };
    let (one, two, three) = (build("a.test", 587), build("b.test", 587), build("a.test", 25));
    let t = StageTimeouts::default();
    let all = t.connect + t.greeting + t.hello + t.tls + t.auth + t.mail + t.rcpt + t.data + t.body + t.dot;
    assert!(one.abilities().send_timeout >= all);
    assert_ne!(one.abilities().account, two.abilities().account);
    assert_eq!(one.abilities().account, three.abilities().account);
    assert_ne!(one.abilities().rev, three.abilities().rev);
    assert!(one.abilities().lookup.is_none() && one.abilities().dedupe.is_none() && !one.abilities().receipts);
}
