//! Random commands, and after each of them exactly what the reference says: state, what is known of sending, attempts, and
//! what may be claimed or asked about next.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sendonce::clock::Clock as _;
use sendonce::domain::ids::{AttemptNumber, NotificationId, Reference as Token, Ticket};
use sendonce::domain::outcome::{LookupAnswer, Outcome, Reason};
use sendonce::domain::receipt::{Part, Receipt, ReceiptStatus};
use sendonce::ledger::{Admission, Claimed, LedgerError, Question, Verdict};
use sendonce::vault::Purpose;
use tempfile::TempDir;

use super::reference::{End, Reference, Telling, View, WorkView, secs};
use super::{size, verdict};
use crate::support::bench::{
    Bench, Opener, START, accepted, actor, lost, not_sent, provider, refused, refused_account, silent, tenant,
    with_dedupe, with_lookup,
};
use crate::support::faulty_store::{Faults, faulty_postgres, faulty_sqlite};
use crate::support::postgres::Database;

const PROVIDERS: [&str; 3] = ["sms-a", "sms-b", "mail"];
const ENDS: [End; 8] =
    [End::Accepted, End::Lost, End::Lost, End::NotSent, End::Refused, End::Account, End::TooLate, End::PastDeadline];

#[derive(Clone, Debug)]
enum Command {
    Admit {
        name: u8,
        user: u8,
        addresses: u8,
        earlier: bool,
    },
    Repeat {
        which: usize,
        other: u8,
    },
    Claim(u8),
    /// A worker speaks: of any attempt ever handed out, and it may have spoken before.
    Settle {
        which: usize,
        end: usize,
    },
    Ask(u8),
    Answer {
        which: usize,
        found: Option<bool>,
    },
    Receipt {
        which: usize,
        delivered: bool,
    },
    Cancel(usize),
    Resolve {
        which: usize,
        sent: Option<bool>,
    },
    Advance(u64),
    Back(u64),
    Sweep,
    /// The process ends and another takes over. Its workers live on, as those of a node that was taken for dead do.
    Restart,
    /// The process ends right after it has claimed what is due.
    Crash(u8),
    Copy,
    Restore,
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let any_number = any::<usize>;
    let command = prop_oneof![
        6 => (0..10_u8, 0..4_u8, 0..3_u8, prop::bool::weighted(0.2))
            .prop_map(|(name, user, addresses, earlier)| Command::Admit { name, user, addresses, earlier }),
        1 => (any_number(), 0..3_u8).prop_map(|(which, other)| Command::Repeat { which, other }),
        8 => (0..3_u8).prop_map(Command::Claim),
        9 => (any_number(), 0..ENDS.len()).prop_map(|(which, end)| Command::Settle { which, end }),
        5 => (0..3_u8).prop_map(Command::Ask),
        5 => (any_number(), any::<Option<bool>>()).prop_map(|(which, found)| Command::Answer { which, found }),
        1 => (any_number(), any::<bool>()).prop_map(|(which, delivered)| Command::Receipt { which, delivered }),
        2 => any_number().prop_map(Command::Cancel),
        2 => (any_number(), any::<Option<bool>>()).prop_map(|(which, sent)| Command::Resolve { which, sent }),
        6 => prop_oneof![1..8_u64, 20..90_u64, Just(595_u64)].prop_map(Command::Advance),
        1 => (1..100_u64).prop_map(Command::Back),
        1 => Just(Command::Sweep),
        1 => Just(Command::Restart),
        1 => (0..3_u8).prop_map(Command::Crash),
        1 => Just(Command::Copy),
        1 => Just(Command::Restore),
    ];
    prop::collection::vec(command, 20..60)
}

/// An attempt that was handed to a worker.
struct Handed {
    id: NotificationId,
    attempt: AttemptNumber,
    reference: Token,
    provider: sendonce::domain::ids::ProviderName,
}

/// A copy of the store, and what was known when it was taken.
struct Backup {
    file: Vec<u8>,
    reference: Reference,
    names: BTreeMap<String, NotificationId>,
}

struct Run {
    bench: Bench,
    faults: Arc<Faults>,
    reference: Reference,
    names: BTreeMap<String, NotificationId>,
    handed: Vec<Handed>,
    questions: Vec<(NotificationId, AttemptNumber)>,
    backup: Option<Backup>,
    /// The store is one file, of which copies can be taken.
    is_file: bool,
}

fn pick<T>(list: &[T], which: usize) -> Option<&T> {
    list.get(which.checked_rem(list.len())?)
}

impl Run {
    async fn start(open: Opener, faults: Arc<Faults>, is_file: bool, telling: Telling) -> Self {
        let abilities = match telling {
            Telling::Nothing => silent(),
            Telling::Lookups => with_lookup(),
            Telling::Dedupes => with_dedupe(),
        };
        let shm = std::path::Path::new("/dev/shm");
        let dir = if shm.is_dir() { TempDir::new_in(shm) } else { TempDir::new() }.expect("a folder");
        let bench = Bench::on(dir, open, abilities).await;
        Self {
            bench,
            faults,
            reference: Reference::new(telling, START),
            names: BTreeMap::new(),
            handed: vec![],
            questions: vec![],
            backup: None,
            is_file,
        }
    }

    fn event(&self, name: &str, user: u8, addresses: u8) -> sendonce::ledger::NewNotification {
        let (sms, mail) = ("+84901234567", "user@example.org");
        let to: &[&str] = match addresses {
            0 => &[sms],
            1 => &[sms, mail],
            _ => &[mail],
        };
        let mut event = self.bench.event_to(name, to);
        event.user = self.bench.index.hash(Purpose::User, &[&[user]]);
        event
    }

    fn id(&self, which: usize) -> Option<NotificationId> {
        let ids: Vec<_> = self.names.values().copied().collect();
        pick(&ids, which).copied()
    }

    async fn take(&mut self, command: &Command) {
        self.reference.now = self.bench.clock.now();
        match *command {
            Command::Admit { name, user, addresses, earlier } => self.admit(name, user, addresses, earlier).await,
            Command::Repeat { which, other } => self.repeat(which, other).await,
            Command::Claim(which) => {
                let name = PROVIDERS[usize::from(which)];
                let claims = self.bench.claim(name).await;
                let expected = self.reference.claim(name);
                self.hand_out(claims, &expected);
            }
            Command::Settle { which, end } => self.settle(which, ENDS[end]).await,
            Command::Ask(which) => self.ask(PROVIDERS[usize::from(which)]).await,
            Command::Answer { which, found } => {
                let Some((id, attempt)) = pick(&self.questions, which).copied() else { return };
                let answer = match found {
                    Some(true) => LookupAnswer::Found { message_id: None, delivery: None },
                    Some(false) => LookupAnswer::NotFound,
                    None => LookupAnswer::Unreadable,
                };
                self.bench.ledger.answer(id, attempt, answer).await.expect("works");
                self.reference.answer(id, attempt, found);
            }
            Command::Receipt { which, delivered } => self.receipt(which, delivered).await,
            Command::Cancel(which) => {
                let Some(id) = self.id(which) else { return };
                self.bench.ledger.cancel(&tenant(), id, actor()).await.expect("works");
                self.reference.cancel(id);
            }
            Command::Resolve { which, sent } => {
                let Some(id) = self.id(which) else { return };
                let verdict = match sent {
                    Some(true) => Verdict::Sent,
                    Some(false) => Verdict::NotSent,
                    None => Verdict::Abandon,
                };
                self.bench.ledger.resolve(None, id, verdict, ticket(), actor()).await.expect("works");
                self.reference.resolve(id, sent);
            }
            Command::Advance(seconds) => self.bench.clock.advance(secs(seconds)),
            Command::Back(seconds) => self.bench.clock.set_wall(self.reference.now.minus(secs(seconds))),
            Command::Sweep => {
                self.bench.ledger.sweep().await.expect("works");
                self.reference.sweep();
            }
            Command::Restart => self.restart().await,
            Command::Crash(which) => {
                let name = PROVIDERS[usize::from(which)];
                self.bench.claim(name).await;
                self.reference.claim(name);
                self.restart().await;
            }
            Command::Copy => self.copy().await,
            Command::Restore => self.restore().await,
        }
    }

    async fn admit(&mut self, name: u8, user: u8, addresses: u8, earlier: bool) {
        let name = format!("e{name}");
        let mut event = self.event(&name, user, addresses);
        if earlier {
            event.occurred_at = Some(START.minus(secs(1)));
        }
        let order = event.occurred_at.unwrap_or(event.now);
        let answer = self.bench.ledger.admit(event).await.expect("works");
        match (answer, self.names.get(&name)) {
            (Admission::New(new), None) => {
                let channels: &[&'static str] = match addresses {
                    0 => &["sms"],
                    1 => &["sms", "email"],
                    _ => &["email"],
                };
                self.reference.admit(new.id, user, channels, order, secs(600));
                self.names.insert(name, new.id);
            }
            (Admission::Replayed(first), Some(id)) => assert_eq!(first.id, *id),
            (other, known) => panic!("{other:?}, and it was {known:?}"),
        }
    }

    /// The same once more, with another payload, or under another key.
    async fn repeat(&self, which: usize, other: u8) {
        let names: Vec<_> = self.names.iter().collect();
        let Some((name, id)) = pick(&names, which) else { return };
        let mut event = self.event(name, 0, 0);
        match other {
            0 => {}
            1 => event.repeat.fingerprint[5] ^= 1,
            _ => event.repeat.key = self.bench.index.hash(Purpose::Key, &[b"another"]),
        }
        match (other, self.bench.ledger.admit(event).await.expect("works")) {
            (0, Admission::Replayed(first)) | (2, Admission::EventTaken(first)) => assert_eq!(first.id, **id),
            (1, Admission::KeyReused) => {}
            (_, answer) => panic!("{answer:?} to repeat {other}"),
        }
    }

    fn hand_out(&mut self, claims: Vec<Claimed>, expected: &[(NotificationId, u8)]) {
        let mut got: Vec<_> = claims.iter().map(|claimed| (claimed.id, claimed.attempt)).collect();
        got.sort_unstable();
        assert_eq!(got, expected, "what is handed out");
        for claimed in claims {
            assert!(claimed.commit_by >= self.bench.clock.now(), "handed out too late");
            let Claimed { id, attempt, reference, provider, .. } = claimed;
            self.handed.push(Handed { id, attempt, reference, provider });
        }
    }

    async fn settle(&mut self, which: usize, end: End) {
        let Some(handed) = pick(&self.handed, which) else { return };
        let (id, attempt) = (handed.id, handed.attempt);
        let outcome = match end {
            End::Accepted => accepted(&format!("{id}.{attempt}")),
            End::Lost => lost(),
            End::NotSent => not_sent(),
            End::Refused => refused(),
            End::Account => refused_account(),
            End::TooLate => Outcome::never_began(Reason::StartedTooLate),
            End::PastDeadline => Outcome::never_began(Reason::DeadlinePassed),
        };
        self.bench.ledger.settle(id, attempt, outcome).await.expect("works");
        self.reference.settle(id, attempt, end);
    }

    async fn ask(&mut self, name: &'static str) {
        let questions = self.bench.ledger.ask(&provider(name), 100).await.expect("works");
        let (expected_lookups, expected_probes) = self.reference.ask(name);
        let (mut lookups, mut probes) = (vec![], vec![]);
        for question in questions {
            match question {
                Question::Probe(claimed) => probes.push(*claimed),
                Question::Lookup(asking) => lookups.push((asking.id, asking.attempt)),
            }
        }
        lookups.sort_unstable();
        assert_eq!(lookups, expected_lookups, "what is looked up");
        self.questions.extend(lookups);
        self.hand_out(probes, &expected_probes);
    }

    async fn receipt(&mut self, which: usize, delivered: bool) {
        let Some(handed) = pick(&self.handed, which) else { return };
        let status = if delivered { ReceiptStatus::Delivered } else { ReceiptStatus::Undelivered };
        let (reference, part) = (Some(handed.reference), Part::WHOLE);
        let receipt = Receipt { provider: handed.provider.clone(), reference, message_id: None, status, part };
        self.bench.ledger.receive(vec![receipt]).await.expect("works");
        self.reference.receipt(handed.id, handed.reference.attempt, delivered);
    }

    async fn restart(&mut self) {
        self.faults.end();
        self.bench.restart().await;
        self.take_over().await;
    }

    async fn take_over(&mut self) {
        self.bench.ledger.take_over().await.expect("works");
        self.reference.take_over();
    }

    async fn copy(&mut self) {
        if !self.is_file {
            return;
        }
        self.bench.ledger.close().await;
        let file = std::fs::read(self.bench.path()).expect("the file");
        let (reference, names) = (self.reference.clone(), self.names.clone());
        self.backup = Some(Backup { file, reference, names });
        self.bench.start_again().await;
        self.take_over().await;
    }

    async fn restore(&mut self) {
        let Some(backup) = &self.backup else { return };
        self.bench.ledger.close().await;
        std::fs::write(self.bench.path(), &backup.file).expect("the restore");
        self.names.clone_from(&backup.names);
        let before = std::mem::replace(&mut self.reference, backup.reference.clone());
        self.reference.now = before.now;
        self.bench.start_again().await;
        if self.bench.ledger.is_held() {
            for name in PROVIDERS.map(provider) {
                assert_eq!(self.bench.ledger.claim(&name, 1).await.err(), Some(LedgerError::Held));
            }
            self.bench.ledger.recover(&ticket()).await.expect("works");
            self.reference.restored();
        } else {
            let views = |reference: &Reference| -> Vec<View> { reference.notes.values().map(|n| n.view()).collect() };
            assert_eq!(views(&self.reference), views(&before), "a copy of what is there is as good as that");
        }
        self.take_over().await;
    }

    /// What the ledger says of one.
    async fn view(&self, id: NotificationId) -> View {
        let status = self.bench.status(id).await;
        let outcome = &status.notification.outcome;
        let delivered = (outcome.delivery.delivered != 0, outcome.delivery.undelivered != 0);
        let Some(work) = status.work else {
            let (state, sent) = (outcome.state.code(), outcome.sent.code());
            return View {
                state,
                sent,
                open: outcome.open_attempt,
                proven: outcome.sent_attempt,
                delivered,
                work: None,
            };
        };
        let life = work.life;
        View {
            state: life.state.code(),
            sent: life.sent.code(),
            open: life.open,
            proven: life.sent_attempt,
            delivered,
            work: Some(WorkView {
                attempt: life.attempt,
                used: life.used,
                tries: work.tries_here,
                leg: work.leg.into(),
                provider: work.provider.to_string(),
                probing: life.probing,
                marks: (life.marks.cancel, life.marks.supersede),
                next: work.queue.map(|queue| (queue.to_string(), work.due_at)),
            }),
        }
    }

    async fn compare(&self, after: &Command) {
        for (id, note) in &self.reference.notes {
            assert_eq!(self.view(*id).await, note.view(), "{id} after {after:?}");
        }
    }

    /// Every worker comes to its end, and every deadline passes.
    async fn drain(&mut self) {
        let mut commands: Vec<_> = (0..self.handed.len()).map(|which| Command::Settle { which, end: 1 }).collect();
        for _ in 0..13 {
            commands.extend([Command::Advance(5 * 3600), Command::Sweep]);
            commands.extend((0..3).flat_map(|p| [Command::Claim(p), Command::Ask(p)]));
        }
        for command in &commands {
            self.take(command).await;
        }
        self.compare(&Command::Sweep).await;
        assert!(self.reference.notes.values().all(|note| !note.live), "no work is left, and nothing sealed");
        for (name, id) in &self.names {
            verdict::read(name, &verdict::records(&self.bench.ledger, *id).await);
        }
        self.bench.accounts_close().await;
        let counts = self.bench.ledger.account_counts(None).await.expect("works");
        assert_eq!(counts.notifications, self.names.len() as u64);
    }
}

fn ticket() -> Ticket {
    Ticket::parse("OPS-1").expect("a ticket")
}

/// Runs random lives. The generator begins at the number `SENDONCE_PROOF_SEED`; a failure tells the shortest sequence
/// that shows it.
fn lives(store: &str, cases: u64, is_file: bool, open: impl AsyncFn(&Arc<Faults>) -> Opener) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let cases = u32::try_from(cases).expect("few");
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&size("SENDONCE_PROOF_SEED", 1).to_be_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let tellings = prop::sample::select(vec![Telling::Nothing, Telling::Lookups, Telling::Dedupes]);
    let ended = runner.run(&(tellings, commands()), |(telling, commands)| {
        let faults = Arc::<Faults>::default();
        runtime.block_on(async {
            let mut run = Run::start(open(&faults).await, faults.clone(), is_file, telling).await;
            for command in &commands {
                run.take(command).await;
                run.compare(command).await;
            }
            run.drain().await;
        });
        Ok(())
    });
    ended.unwrap_or_else(|failure| panic!("on {store}: {failure}"));
}

#[test]
fn random_commands_on_a_file_lead_where_the_rules_say() {
    lives("SQLite", size("SENDONCE_PROOF_CASES", 24), true, async |faults| faulty_sqlite(faults));
}

#[test]
fn random_commands_on_a_server_lead_where_the_rules_say() {
    let cases = size("SENDONCE_PROOF_CASES", 24) / 6;
    lives("PostgreSQL", cases, false, async |faults| faulty_postgres(Arc::new(Database::fresh().await), faults));
}
