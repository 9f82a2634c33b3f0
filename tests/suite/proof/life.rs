//! One scripted life of several notifications, from admission to housekeeping, on a real store: the clients, the workers
//! and the provider's line do what real ones do when something goes wrong under them, which is to try again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sendonce::clock::Clock as _;
use sendonce::domain::ids::{AttemptNumber, NotificationId, ProviderName, Ticket};
use sendonce::domain::outcome::Outcome;
use sendonce::domain::receipt::ReceiptStatus;
use sendonce::ledger::{Admission, Claimed, LedgerError, NewNotification, Question, Verdict};
use sendonce::provider::gate::Gate;
use sendonce::provider::{Abilities, Provider as _};
use sendonce::vault::Purpose;
use tempfile::TempDir;

use crate::support::bench::{Bench, Opener, actor, provider, silent, tenant, with_dedupe, with_lookup};
use crate::support::faulty_provider::{Calls, CountingProvider, FaultyProvider, Mishap, Play, Taken};
use crate::support::faulty_store::Faults;

const PROVIDERS: [&str; 3] = ["sms-a", "sms-b", "mail"];

/// A worker that has not begun by then does not.
const START_BY: Duration = Duration::from_secs(30);

/// How often somebody tries again before the test gives up on him. One fault costs one try.
const TRIES: usize = 8;

/// Everybody who has a part in the life.
pub struct Stage {
    pub bench: Bench,
    pub faults: Arc<Faults>,
    /// Before the names of its events, so that several lives can share a store.
    prefix: String,
    lines: BTreeMap<ProviderName, FaultyProvider>,
    /// What was answered 202.
    pub acknowledged: BTreeMap<String, NotificationId>,
    /// Answers that are still on their way to a worker that lives.
    late: Vec<(NotificationId, AttemptNumber, Outcome)>,
}

fn event(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn script(provider: &str, name: &str, nth: usize) -> Play {
    match (provider, event(name), nth) {
        ("sms-a", "failover", _) | (_, "cancelled-late" | "overtaken-late", 0) => Play::Busy,
        ("sms-a", "bad-number", _) => Play::RefuseAddress,
        ("sms-a", "no-credit", _) => Play::RefuseAccount,
        _ => Play::Take,
    }
}

fn weather(provider: &str, name: &str, nth: usize) -> Option<Mishap> {
    let lost = ["found", "operator-sent", "operator-wrong", "abandoned", "expired-unknown"];
    match (provider, event(name), nth) {
        (_, name, 0) if lost.contains(&name) => Some(Mishap::AnswerLost),
        ("sms-b", "failover", 0) => Some(Mishap::AnswerLost),
        (_, "missed" | "operator-not-sent", 0) => Some(Mishap::RequestLost),
        (_, "late", 0) => Some(Mishap::AnswerLate),
        (_, "twice", 0) => Some(Mishap::AnswerTwice),
        _ => None,
    }
}

impl Stage {
    /// SMS goes to a provider with look-ups and then to one that dedupes, mail to one that only sends receipts.
    pub async fn set(open: Opener, faults: Arc<Faults>, calls: &Arc<Calls>, prefix: &str) -> Self {
        let shm = std::path::Path::new("/dev/shm");
        // Every commit syncs; in memory that costs nothing, and power is not what fails here.
        let dir = if shm.is_dir() { TempDir::new_in(shm) } else { TempDir::new() }.expect("a folder");
        let bench = Bench::on(dir, open, with_lookup()).await;
        let all: [Abilities; 3] = [with_lookup(), with_dedupe(), Abilities { receipts: true, ..silent() }];
        let mut lines = BTreeMap::new();
        for (name, abilities) in PROVIDERS.map(provider).into_iter().zip(all) {
            let counting = CountingProvider::new(&name, &abilities, &bench.index, script);
            lines.insert(name.clone(), FaultyProvider::new(counting, weather, calls));
            bench.routes.abilities.lock().expect("free").insert(name, abilities.into());
        }
        let prefix = prefix.to_owned();
        Self { bench, faults, prefix, lines, acknowledged: BTreeMap::new(), late: vec![] }
    }

    /// What all providers took.
    pub fn taken(&self) -> Vec<Taken> {
        self.lines.values().flat_map(|line| line.counting().taken()).collect()
    }

    fn advance(&self, seconds: u64) {
        self.bench.clock.advance(Duration::from_secs(seconds));
    }

    /// The process has ended: what it knew is gone, and the next one takes over what it had begun.
    pub async fn rise(&mut self) {
        self.late.clear();
        for _ in 0..TRIES {
            self.faults.end();
            self.bench.restart().await;
            if self.bench.ledger.take_over().await.is_ok() {
                return;
            }
        }
        panic!("nobody takes over");
    }

    /// Somebody who does not give up, not even when the process ends under him.
    async fn insist<T>(&mut self, what: impl AsyncFn(&Self) -> Result<T, LedgerError>) -> T {
        for _ in 0..TRIES {
            match what(self).await {
                Ok(answer) => return answer,
                Err(_) if self.faults.ended() => self.rise().await,
                Err(_) => {}
            }
        }
        panic!("the store does not recover from {:?}", self.faults.met());
    }

    /// A worker: it tries again, and ends with its process.
    async fn settle(&mut self, id: NotificationId, attempt: AttemptNumber, outcome: Outcome) -> Result<(), Ended> {
        for _ in 0..TRIES {
            match self.bench.ledger.settle(id, attempt, outcome.clone()).await {
                Ok(_) => return Ok(()),
                Err(_) if self.faults.ended() => {
                    self.rise().await;
                    return Err(Ended);
                }
                Err(_) => {}
            }
        }
        panic!("the store does not recover from {:?}", self.faults.met());
    }

    fn event(&self, name: &str, user: &str, to: &[&str]) -> NewNotification {
        let name = format!("{}{name}", self.prefix);
        let mut event = self.bench.event_to(&name, to);
        event.user = self.bench.index.hash(Purpose::User, &[self.prefix.as_bytes(), user.as_bytes()]);
        event.content.sms = Some(name.clone());
        if let Some(mail) = &mut event.content.mail {
            mail.text = name;
        }
        event
    }

    /// Posts events, all at once, until each is answered, and then all once more.
    pub async fn post(&mut self, user: Option<&str>, to: &[&str], names: &[&str]) {
        for _ in 0..2 {
            let mut left = names.to_vec();
            for _ in 0..TRIES {
                let stage = &*self;
                let posting = async |name: &str| {
                    let answer = stage.bench.ledger.admit(stage.event(name, user.unwrap_or(name), to)).await;
                    (name.to_owned(), answer)
                };
                let answers = join_all(left.iter().map(|name| posting(name))).await;
                for (name, answer) in answers {
                    let answer = match answer {
                        Ok(Admission::New(answer) | Admission::Replayed(answer)) => answer,
                        Ok(other) => panic!("{name}: {other:?}"),
                        Err(_) => continue,
                    };
                    left.retain(|left| *left != name);
                    let first = *self.acknowledged.entry(name.clone()).or_insert(answer.id);
                    assert_eq!(first, answer.id, "{name}: another answer to a repeat");
                }
                if left.is_empty() {
                    break;
                }
                if self.faults.ended() {
                    self.rise().await;
                }
            }
            assert!(left.is_empty(), "{left:?} are not answered");
        }
    }

    /// Requests that contradict the one of this name.
    pub async fn contradict(&mut self, name: &str) {
        let first = self.acknowledged[name];
        let other_payload = async |stage: &Self| {
            let mut event = stage.event(name, name, &["+84901234567"]);
            event.repeat.fingerprint[1] ^= 1;
            stage.bench.ledger.admit(event).await
        };
        assert_eq!(self.insist(other_payload).await, Admission::KeyReused);
        let other_key = async |stage: &Self| {
            let mut event = stage.event(name, name, &["+84901234567"]);
            event.repeat.key = stage.bench.index.hash(Purpose::Key, &[b"another"]);
            stage.bench.ledger.admit(event).await
        };
        match self.insist(other_key).await {
            Admission::EventTaken(of) => assert_eq!(of.id, first),
            other => panic!("{name}: {other:?}"),
        }
    }

    pub async fn cancel(&mut self, name: &str) {
        let id = self.acknowledged[name];
        self.insist(async |stage: &Self| stage.bench.ledger.cancel(&tenant(), id, actor()).await).await;
    }

    pub async fn resolve(&mut self, name: &str, verdict: Verdict) {
        let id = self.acknowledged[name];
        let ticket = Ticket::parse("OPS-1").expect("a ticket");
        let resolving =
            async |stage: &Self| stage.bench.ledger.resolve(None, id, verdict, ticket.clone(), actor()).await;
        self.insist(resolving).await;
    }

    pub async fn sweep(&mut self) {
        self.insist(async |stage: &Self| stage.bench.ledger.sweep().await).await;
    }

    /// What is due at every provider is sent. Answers come back in the reverse order.
    pub async fn work(&mut self) {
        for name in PROVIDERS.map(provider) {
            let claims = self.insist(async |stage: &Self| stage.bench.ledger.claim(&name, 10).await).await;
            if self.send_all(claims).await.is_err() {
                return;
            }
        }
    }

    async fn send_all(&mut self, claims: Vec<Claimed>) -> Result<(), Ended> {
        let mut answers = vec![];
        for claimed in claims {
            let (id, attempt) = (claimed.id, claimed.attempt);
            let outcome = self.send(claimed).await;
            answers.push((id, attempt, outcome));
        }
        for (id, attempt, outcome) in answers.into_iter().rev() {
            self.settle(id, attempt, outcome).await?;
        }
        Ok(())
    }

    /// As `dispatch/worker.rs` does it.
    async fn send(&mut self, claimed: Claimed) -> Outcome {
        let opened = self.bench.ledger.open(&claimed).expect("it opens");
        let clock = self.bench.clock.clone();
        let gate = Gate::new(clock.clone(), clock.since_boot() + START_BY, claimed.commit_by);
        let (id, attempt, line) = (claimed.id, claimed.attempt, &self.lines[&claimed.provider]);
        let outcome = line.send(&claimed.dispatch(opened), &gate).await;
        self.late.extend(line.late().into_iter().map(|late| (id, attempt, late)));
        outcome
    }

    /// Unknowns that are due are asked about at every provider.
    pub async fn ask(&mut self) {
        for name in PROVIDERS.map(provider) {
            let questions = self.insist(async |stage: &Self| stage.bench.ledger.ask(&name, 10).await).await;
            let mut probes = vec![];
            for question in questions {
                match question {
                    Question::Probe(claimed) => probes.push(*claimed),
                    Question::Lookup(asking) => {
                        let (id, attempt, now) = (asking.id, asking.attempt, self.bench.clock.now());
                        let answer = self.lines[&name].lookup(&asking.inquiry(now)).await;
                        // An answer that is not stored is no loss: the question comes up again.
                        let stored = self.bench.ledger.answer(id, attempt, answer).await;
                        if stored.is_err() && self.faults.ended() {
                            self.rise().await;
                            return;
                        }
                    }
                }
            }
            if self.send_all(probes).await.is_err() {
                return;
            }
        }
    }

    /// Answers come that nobody waits for any more.
    pub async fn late_answers(&mut self) {
        for (id, attempt, outcome) in std::mem::take(&mut self.late).into_iter().rev() {
            if self.settle(id, attempt, outcome).await.is_err() {
                return;
            }
        }
    }

    /// The provider of mail posts receipts for these events' messages, the last one first, until it is answered.
    pub async fn receipts(&mut self, events: &[&str], status: ReceiptStatus) {
        let mail = provider("mail");
        let taken = self.lines[&mail].counting().taken();
        for message in taken.iter().rev().filter(|taken| events.contains(&event(&taken.event))) {
            let request = self.lines[&mail].counting().receipt(message, status);
            for _ in 0..TRIES {
                let now = self.bench.clock.now();
                let Ok(receipts) = self.lines[&mail].receipts(&request, now).await else { continue };
                self.insist(async |stage: &Self| stage.bench.ledger.receive(receipts.clone()).await).await;
                break;
            }
        }
    }

    /// The life.
    pub async fn live(&mut self) {
        let (sms, mail) = (["+84901234567"], ["user@example.org"]);
        self.post(Some("one"), &sms, &["overtaken"]).await;
        self.advance(1);
        self.post(Some("one"), &sms, &["overtaken-late"]).await;
        let plain = ["plain", "cancelled", "found", "missed", "failover", "cancelled-late", "twice", "no-credit"];
        self.post(None, &sms, &plain).await;
        self.contradict("plain").await;
        self.cancel("cancelled").await;
        self.post(None, &[sms[0], mail[0]], &["bad-number"]).await;
        let operators = ["operator-sent", "operator-not-sent", "operator-wrong", "abandoned"];
        self.post(None, &mail, &[&["late", "expired-unknown"], &operators[..]].concat()).await;
        self.work().await;
        self.cancel("cancelled-late").await;
        self.advance(1);
        self.post(Some("one"), &sms, &["newest"]).await;
        self.receipts(&["late"], ReceiptStatus::Progress).await;
        self.late_answers().await;
        self.advance(3);
        self.ask().await;
        self.work().await;
        for name in ["operator-sent", "operator-not-sent"] {
            let sent = self.taken().iter().any(|taken| event(&taken.event) == name);
            self.resolve(name, if sent { Verdict::Sent } else { Verdict::NotSent }).await;
        }
        self.resolve("operator-wrong", Verdict::NotSent).await;
        self.resolve("abandoned", Verdict::Abandon).await;
        self.post(None, &sms, &["restarted"]).await;
        let claims = self.insist(async |stage: &Self| stage.bench.ledger.claim(&provider("sms-a"), 10).await).await;
        for claimed in claims {
            self.send(claimed).await;
        }
        self.rise().await;
        for _ in 0..4 {
            self.advance(40);
            self.ask().await;
            self.work().await;
        }
        for status in [ReceiptStatus::Undelivered, ReceiptStatus::Delivered, ReceiptStatus::Progress] {
            self.receipts(&["late", "operator-sent", "bad-number", "operator-wrong"], status).await;
        }
        self.post(None, &sms, &["expired"]).await;
        self.advance(700);
        self.sweep().await;
        self.receipts(&["abandoned", "expired-unknown"], ReceiptStatus::Delivered).await;
        self.ask().await;
        self.work().await;
        self.advance(31 * 24 * 3600);
        self.sweep().await;
    }

    /// Nothing goes wrong any more, and everything comes to its end.
    pub async fn drain(&mut self) {
        self.faults.lift();
        self.rise().await;
        for _ in 0..24 {
            self.work().await;
            self.ask().await;
            self.late_answers().await;
            self.sweep().await;
            if self.bench.ledger.work_counts().await.expect("a working store").is_empty() {
                return;
            }
            self.advance(30);
        }
    }
}

/// The process ended meanwhile.
struct Ended;
