//! A ledger of one page, which fails and waits at will, and a provider that does as it is told.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sendonce::dispatch::desk::Desk;
use sendonce::domain::address::{Address, MailAddress};
use sendonce::domain::content::{Channel, Content, Mail};
use sendonce::domain::ids::{AttemptNumber, EventId, KeyedHash, NotificationId, ProviderName, Reference, Tenant};
use sendonce::domain::lifecycle::State;
use sendonce::domain::outcome::{LookupAnswer, Outcome};
use sendonce::domain::receipt::Receipt;
use sendonce::domain::time::Timestamp;
use sendonce::ledger::{Asking, Claimed, Hold, LedgerError, Opened, Question, Room, SettleAnswer};
use sendonce::provider::gate::Gate;
use sendonce::provider::{Abilities, Dispatch, Inquiry, LookupRules, Provider, ReceiptError, ReceiptRequest};
use sendonce::store::StoreError;
use sendonce::store::rows::{Leg, WorkCounts};
use tokio::sync::{Notify, watch};

pub const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

pub fn name(text: &str) -> ProviderName {
    ProviderName::parse(text).expect("a name")
}

pub fn leg() -> Leg {
    Leg { channel: Channel::Email, country: None, address: KeyedHash::from_bytes([1; 16]) }
}

/// A claim of notification number `n`.
pub fn claim(provider: &ProviderName, n: u8, probe: bool) -> Claimed {
    let id = NotificationId::from_bytes([n; 16]);
    Claimed {
        id,
        tenant: Tenant::parse("shop").expect("a tenant"),
        event_id: EventId::parse("reset-1").expect("an event"),
        attempt: 1,
        provider: provider.clone(),
        leg_index: 0,
        leg: Leg { address: KeyedHash::from_bytes([n; 16]), ..leg() },
        reference: Reference { id, attempt: 1, mac: [0; 7] },
        dedupe_key: "key".to_owned(),
        admitted_at: NOW,
        expires_at: NOW.plus(Duration::from_secs(3600)),
        commit_by: NOW.plus(Duration::from_secs(3600)),
        probe,
        sealed_to: vec![],
        sealed_message: vec![],
    }
}

/// The page.
#[derive(Default)]
pub struct Page {
    pub due: Mutex<HashMap<ProviderName, VecDeque<u8>>>,
    pub questions: Mutex<Vec<Question>>,
    pub settled: Mutex<Vec<(u8, Outcome)>>,
    pub answers: Mutex<Vec<LookupAnswer>>,
    pub moved: Mutex<Vec<u8>>,
    pub settle_fails: AtomicBool,
    pub claim_waits: AtomicBool,
    pub claim_goes_on: Notify,
    pub claims: AtomicU32,
    pub keys_are_gone: AtomicBool,
    pub bell: Arc<Notify>,
}

impl Page {
    /// Makes notifications due.
    pub fn add(&self, provider: &ProviderName, numbers: impl IntoIterator<Item = u8>) {
        self.due.lock().expect("due").entry(provider.clone()).or_default().extend(numbers);
    }

    pub fn left(&self, provider: &ProviderName) -> usize {
        self.due.lock().expect("due").get(provider).map_or(0, VecDeque::len)
    }

    pub fn settled(&self) -> Vec<(u8, Outcome)> {
        self.settled.lock().expect("settled").clone()
    }
}

#[async_trait]
impl Desk for Page {
    async fn claim(&self, provider: &ProviderName, room: Room) -> Result<Vec<Claimed>, LedgerError> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        let room = room();
        if self.claim_waits.load(Ordering::SeqCst) {
            self.claim_goes_on.notified().await;
        }
        let mut due = self.due.lock().expect("due");
        let queue = due.entry(provider.clone()).or_default();
        let take = queue.len().min(room as usize);
        Ok(queue.drain(..take).map(|n| claim(provider, n, false)).collect())
    }

    async fn claim_next(
        &self,
        _provider: &ProviderName,
        _room: Room,
        _hold: Hold,
    ) -> Result<Vec<Claimed>, LedgerError> {
        std::future::pending().await
    }

    fn open(&self, _claimed: &Claimed) -> Option<Opened> {
        let text = String::new;
        let mail = Some(Mail { subject: text(), text: text(), html: text() });
        let to = Address::Email(MailAddress::parse("user@example.org").expect("an address"));
        let there = !self.keys_are_gone.load(Ordering::SeqCst);
        there.then_some(Opened { to, content: Content { sms: None, mail } })
    }

    async fn settle(
        &self,
        id: NotificationId,
        _attempt: AttemptNumber,
        outcome: Outcome,
    ) -> Result<SettleAnswer, LedgerError> {
        if self.settle_fails.load(Ordering::SeqCst) {
            return Err(LedgerError::Store(StoreError::Full));
        }
        self.settled.lock().expect("settled").push((id.as_bytes()[0], outcome));
        Ok(SettleAnswer::Now(State::Dispatched))
    }

    async fn ask(&self, _provider: &ProviderName, limit: u32) -> Result<Vec<Question>, LedgerError> {
        let mut questions = self.questions.lock().expect("questions");
        let take = questions.len().min(limit as usize);
        Ok(questions.drain(..take).collect())
    }

    async fn answer(
        &self,
        _id: NotificationId,
        _attempt: AttemptNumber,
        answer: LookupAnswer,
    ) -> Result<SettleAnswer, LedgerError> {
        self.answers.lock().expect("answers").push(answer);
        Ok(SettleAnswer::Now(State::Dispatched))
    }

    async fn reroute(&self, provider: &ProviderName, _limit: u32) -> Result<u32, LedgerError> {
        let moved: Vec<u8> = self.due.lock().expect("due").entry(provider.clone()).or_default().drain(..).collect();
        self.moved.lock().expect("moved").extend(&moved);
        Ok(u32::try_from(moved.len()).expect("few"))
    }

    async fn next_due(&self, provider: &ProviderName, ask: bool) -> Result<Option<Timestamp>, LedgerError> {
        let due = if ask { self.questions.lock().expect("questions").len() } else { self.left(provider) };
        Ok((due > 0).then_some(NOW))
    }

    async fn sweep(&self) -> Result<bool, LedgerError> {
        Ok(false)
    }

    async fn work_counts(&self) -> Result<Vec<WorkCounts>, LedgerError> {
        Ok(vec![])
    }

    async fn last_time(&self) -> Result<Timestamp, LedgerError> {
        Ok(NOW)
    }

    fn wakes(&self, _provider: &ProviderName, _ask: bool) -> Arc<Notify> {
        self.bell.clone()
    }
}

/// What a provider is told to do.
#[derive(Clone)]
pub enum Play {
    Answer(Outcome),
    Panic,
    /// Answers `accepted` once it is let go.
    Hang,
}

/// A provider that does as it is told and remembers what it was given.
pub struct Puppet {
    name: ProviderName,
    abilities: Abilities,
    pub play: Mutex<Play>,
    pub sent: Mutex<Vec<u8>>,
    pub let_go: watch::Sender<bool>,
    under_way: AtomicU32,
    pub most: AtomicU32,
}

impl Puppet {
    pub fn new(provider: &str, play: Play) -> Arc<Self> {
        let second = Duration::from_secs(1);
        let lookup = LookupRules {
            settle_after: second,
            misses_needed: 1,
            trust_miss: true,
            window: Duration::from_secs(3600),
            needs_address: false,
        };
        let abilities = Abilities {
            account: [0; 16],
            rev: [0; 16],
            send_timeout: second,
            lookup: Some(lookup),
            dedupe: None,
            receipts: false,
            receipts_by_id: false,
            identical_body: false,
        };
        Arc::new(Self {
            name: name(provider),
            abilities,
            play: Mutex::new(play),
            sent: Mutex::default(),
            let_go: watch::channel(false).0,
            under_way: AtomicU32::new(0),
            most: AtomicU32::new(0),
        })
    }

    pub fn sent(&self) -> Vec<u8> {
        self.sent.lock().expect("sent").clone()
    }

    pub fn tell(&self, play: Play) {
        *self.play.lock().expect("play") = play;
    }
}

#[async_trait]
impl Provider for Puppet {
    fn name(&self) -> &ProviderName {
        &self.name
    }

    fn channel(&self) -> Channel {
        Channel::Email
    }

    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    async fn send(&self, dispatch: &Dispatch, gate: &Gate) -> Outcome {
        if let Err(outcome) = gate.check() {
            return outcome;
        }
        self.sent.lock().expect("sent").push(dispatch.id.as_bytes()[0]);
        let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(under_way, Ordering::SeqCst);
        let play = self.play.lock().expect("play").clone();
        let outcome = match play {
            Play::Answer(outcome) => {
                tokio::task::yield_now().await;
                outcome
            }
            Play::Panic => panic!("told to"),
            Play::Hang => {
                let mut let_go = self.let_go.subscribe();
                let_go.wait_for(|go| *go).await.expect("the puppet lives");
                Outcome::accepted(None)
            }
        };
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    async fn lookup(&self, _inquiry: &Inquiry) -> LookupAnswer {
        match &*self.play.lock().expect("play") {
            Play::Panic => panic!("told to"),
            _ => LookupAnswer::Found { message_id: None, delivery: None },
        }
    }

    async fn receipts(&self, _request: &ReceiptRequest, _now: Timestamp) -> Result<Vec<Receipt>, ReceiptError> {
        Err(ReceiptError::NotOffered)
    }
}

/// A question about notification number `n`.
pub fn lookup(provider: &ProviderName, n: u8) -> Question {
    let id = NotificationId::from_bytes([n; 16]);
    Question::Lookup(Asking {
        id,
        attempt: 1,
        provider: provider.clone(),
        reference: Reference { id, attempt: 1, mac: [0; 7] },
        dedupe_key: "key".to_owned(),
        message_id: None,
        began_at: NOW,
        to: None,
    })
}
