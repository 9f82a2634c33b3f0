//! A ledger on a real store, by default a SQLite file, with a clock that the test moves, and providers that exist only as
//! abilities.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use sendonce::clock::ManualClock;
use sendonce::domain::address::{Address, MailAddress, PhoneNumber};
use sendonce::domain::audit::Actor;
use sendonce::domain::content::{Channel, Content, Mail};
use sendonce::domain::ids::{BootId, EventId, Kind, NodeName, NotificationId, ProviderMessageId, ProviderName, Tenant};
use sendonce::domain::lifecycle::State;
use sendonce::domain::outcome::{Outcome, OutcomeClass, Reason};
use sendonce::domain::retry::RetryPolicy;
use sendonce::domain::time::Timestamp;
use sendonce::ledger::{
    Admission, Claimed, Hold, Ledger, LedgerError, LimitCheck, NewNotification, Parts, Policy, Question, Repeat,
    Routes, RoutingKey, Transit,
};
use sendonce::metrics::Metrics;
use sendonce::provider::{Abilities, DedupeCovers, DedupeRules, LookupRules};
use sendonce::store::Store;
use sendonce::store::mark::Mark;
use sendonce::store::nodes::Identity;
use sendonce::store::rows::{Leg, StatusRow};
use sendonce::store::sqlite::{SqliteOptions, SqliteStore};
use sendonce::vault::{IndexKey, Purpose, Vault, new_key_line};
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub fn provider(name: &str) -> ProviderName {
    ProviderName::parse(name).expect("a provider's name")
}

pub fn tenant() -> Tenant {
    Tenant::parse("shop").expect("a tenant")
}

pub fn message_id(id: &str) -> ProviderMessageId {
    ProviderMessageId::parse(id).expect("a message id")
}

/// Abilities of a provider that can tell nothing.
pub fn silent() -> Abilities {
    Abilities {
        account: [1; 16],
        rev: [1; 16],
        send_timeout: Duration::from_secs(10),
        lookup: None,
        dedupe: None,
        receipts: false,
        receipts_by_id: false,
        identical_body: false,
    }
}

/// One with look-ups that settle after 60 s and need two misses.
pub fn with_lookup() -> Abilities {
    let rules = LookupRules {
        settle_after: Duration::from_secs(60),
        misses_needed: 2,
        trust_miss: true,
        window: Duration::from_secs(48 * 3600),
        needs_address: false,
    };
    Abilities { lookup: Some(rules), ..silent() }
}

/// One that dedupes for an hour.
pub fn with_dedupe() -> Abilities {
    let rules = DedupeRules {
        window: Duration::from_secs(3600),
        settle_after: Duration::from_secs(5),
        covers: DedupeCovers::NoAnswer,
    };
    Abilities { dedupe: Some(rules), identical_body: true, ..silent() }
}

/// Routes by channel, in order; and which breakers are open.
#[derive(Default)]
pub struct TestRoutes {
    pub sms: Vec<ProviderName>,
    pub email: Vec<ProviderName>,
    pub abilities: Mutex<BTreeMap<ProviderName, Arc<Abilities>>>,
    pub open: Mutex<Vec<ProviderName>>,
}

impl TestRoutes {
    fn route(&self, leg: &Leg) -> &[ProviderName] {
        match leg.channel {
            Channel::Sms => &self.sms,
            Channel::Email => &self.email,
        }
    }
}

impl Routes for TestRoutes {
    fn first(&self, key: &RoutingKey<'_>) -> Option<ProviderName> {
        let route = self.route(key.leg);
        route.iter().find(|p| !self.is_open(p)).or(route.first()).cloned()
    }

    fn after(&self, key: &RoutingKey<'_>, provider: &ProviderName) -> Option<ProviderName> {
        self.route(key.leg).iter().skip_while(|p| *p != provider).skip(1).find(|p| !self.is_open(p)).cloned()
    }

    fn abilities(&self, provider: &ProviderName) -> Option<Arc<Abilities>> {
        self.abilities.lock().expect("no panic").get(provider).cloned()
    }

    fn is_open(&self, provider: &ProviderName) -> bool {
        self.open.lock().expect("no panic").contains(provider)
    }
}

/// Opens a bench's store, at every start of its ledger. The path is that of the file, where it is one.
pub type Opener = Arc<dyn Fn(PathBuf, Arc<ManualClock>) -> LocalBoxFuture<'static, Arc<dyn Store>> + Send + Sync>;

/// Opens the file.
pub fn sqlite() -> Opener {
    Arc::new(|path, clock| {
        Box::pin(async move {
            let store = SqliteStore::open(&path, clock, SqliteOptions::default()).await.expect("a store");
            Arc::new(store) as Arc<dyn Store>
        })
    })
}

/// What a bench is begun with; the same keys and store survive a restart.
pub struct Bench {
    open: Opener,
    pub dir: TempDir,
    pub clock: Arc<ManualClock>,
    pub routes: Arc<TestRoutes>,
    pub index: Arc<IndexKey>,
    vault: Arc<Vault>,
    pub policy: Policy,
    pub metrics: Metrics,
    pub ledger: Ledger,
    boots: u32,
}

const FILE: &str = "sendonce.db";

pub const START: Timestamp = Timestamp::from_micros(1_795_000_000_000_000);

fn policy() -> Policy {
    Policy {
        max_attempts: 4,
        retry: RetryPolicy { jitter: 0.0, ..RetryPolicy::default() },
        ask: RetryPolicy { first: Duration::from_secs(1), jitter: 0.0, ..RetryPolicy::default() },
        transit: Transit { sms: Duration::from_secs(10), email: Duration::from_secs(10) },
        failover_after: 2,
        key_retention: Duration::from_secs(30 * 24 * 3600),
        receipt_retention: Duration::from_secs(24 * 3600),
        receipts_kept: 100,
        begins_after_loss: None,
        queue: 1000,
        batch: 64,
    }
}

impl Bench {
    /// SMS over `sms-a` (these abilities) then `sms-b` (silent), mail over `mail` (silent).
    pub async fn with(abilities: Abilities) -> Self {
        Self::on(TempDir::new().expect("a folder"), sqlite(), abilities).await
    }

    /// The same on another store.
    pub async fn on(dir: TempDir, open: Opener, abilities: Abilities) -> Self {
        let routes = TestRoutes {
            sms: vec![provider("sms-a"), provider("sms-b")],
            email: vec![provider("mail")],
            ..TestRoutes::default()
        };
        let all = [("sms-a", abilities), ("sms-b", silent()), ("mail", silent())];
        *routes.abilities.lock().expect("fresh") =
            all.into_iter().map(|(name, abilities)| (provider(name), Arc::new(abilities))).collect();
        let clock = ManualClock::at(START);
        let (routes, policy) = (Arc::new(routes), policy());
        let index = Arc::new(IndexKey::parse(&new_key_line("i")).expect("a key"));
        let vault = Arc::new(Vault::parse(&new_key_line("k1")).expect("a key"));
        let store = open(dir.path().join(FILE), clock.clone()).await;
        let metrics = Metrics::default();
        let ledger = start(store, &dir, &clock, &routes, &index, &vault, &policy, &metrics, 1).await;
        Self { open, dir, clock, routes, index, vault, policy, metrics, ledger, boots: 1 }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join(FILE)
    }

    /// Closes the ledger and opens it as the next boot would.
    pub async fn restart(&mut self) {
        self.ledger.close().await;
        self.start_again().await;
    }

    /// Opens it again after [`Ledger::close`].
    pub async fn start_again(&mut self) {
        self.boots += 1;
        let store = (self.open)(self.path(), self.clock.clone()).await;
        let (clock, routes, index, vault) = (&self.clock, &self.routes, &self.index, &self.vault);
        let (policy, metrics) = (&self.policy, &self.metrics);
        self.ledger = start(store, &self.dir, clock, routes, index, vault, policy, metrics, self.boots).await;
    }

    /// An SMS event that lives for 10 minutes.
    pub fn event(&self, name: &str) -> NewNotification {
        self.event_to(name, &["+84901234567"])
    }

    pub fn event_to(&self, name: &str, to: &[&str]) -> NewNotification {
        let tenant = tenant();
        let hash = |purpose, text: &str| self.index.hash(purpose, &[tenant.as_str().as_bytes(), text.as_bytes()]);
        let address = |text: &&str| match text.contains('@') {
            true => Address::Email(MailAddress::parse(text).expect("a mail address")),
            false => Address::Sms(PhoneNumber::parse(text).expect("a phone number")),
        };
        let mut fingerprint = [1; 33];
        fingerprint[1..].copy_from_slice(&self.index.hash32(Purpose::Fingerprint, &[name.as_bytes()]));
        let now = sendonce::clock::Clock::now(&*self.clock);
        NewNotification {
            kind: Kind::parse("password_reset").expect("a kind"),
            event_id: EventId::parse(name).expect("an event id"),
            repeat: Repeat {
                tenant: tenant.clone(),
                key: hash(Purpose::Key, name),
                event: hash(Purpose::Event, name),
                fingerprint,
            },
            now,
            expires_at: now.plus(Duration::from_secs(600)),
            occurred_at: None,
            user: hash(Purpose::User, name),
            to: to.iter().map(address).collect(),
            content: Content {
                sms: Some("493021".to_owned()),
                mail: Some(Mail { subject: "s".to_owned(), text: "493021".to_owned(), html: "493021".to_owned() }),
            },
            limits: Vec::<LimitCheck>::new(),
            actor: actor(),
            tenant,
        }
    }

    /// Admits an event that must be new.
    pub async fn admit(&self, name: &str) -> NotificationId {
        self.admit_event(self.event(name)).await
    }

    pub async fn admit_event(&self, event: NewNotification) -> NotificationId {
        match self.ledger.admit(event).await.expect("a working store") {
            Admission::New(accepted) => accepted.id,
            other => panic!("not new: {other:?}"),
        }
    }

    pub async fn claim(&self, name: &str) -> Vec<Claimed> {
        self.ledger.claim(&provider(name), 100).await.expect("a working store")
    }

    /// Claims the one notification that is due.
    pub async fn claim_one(&self, name: &str) -> Claimed {
        let mut claimed = self.claim(name).await;
        assert_eq!(claimed.len(), 1, "exactly one is due at {name}");
        claimed.remove(0)
    }

    /// Waits for one notification that a commit to come makes due. The first poll hands the wish over, and the committer
    /// takes commands in their order: what is asked after this is done after it.
    pub async fn wish(&self, name: &str, hold: Hold) -> JoinHandle<Result<Vec<Claimed>, LedgerError>> {
        let (ledger, name) = (self.ledger.clone(), provider(name));
        let wish = tokio::spawn(async move { ledger.claim_next(&name, Arc::new(|| 1), hold).await });
        tokio::task::yield_now().await;
        wish
    }

    /// An unknown whose probe is under way: the attempt that is open, and the probe.
    pub async fn probing(&self) -> (Claimed, Claimed) {
        self.admit("e1").await;
        let first = self.claim_one("sms-a").await;
        self.settle(&first, lost()).await;
        self.clock.advance(Duration::from_secs(6));
        match self.ledger.ask(&provider("sms-a"), 10).await.expect("a working store").pop() {
            Some(Question::Probe(probe)) => (first, *probe),
            other => panic!("a probe is due: {other:?}"),
        }
    }

    /// Ends an attempt.
    pub async fn settle(&self, claimed: &Claimed, outcome: Outcome) -> State {
        self.ledger.settle(claimed.id, claimed.attempt, outcome).await.expect("a working store");
        self.state(claimed.id).await
    }

    pub async fn status(&self, id: NotificationId) -> StatusRow {
        self.ledger.status(&tenant(), id).await.expect("a working store").expect("a notification")
    }

    pub async fn state(&self, id: NotificationId) -> State {
        let status = self.status(id).await;
        status.work.map_or(status.notification.outcome.state, |work| work.life.state)
    }

    /// The log of a notification as `what:to` words.
    pub async fn story(&self, id: NotificationId) -> Vec<String> {
        let word = |r: &sendonce::domain::audit::Record| match r.to {
            Some(to) => format!("{}>{to}", r.what),
            None => r.what.to_string(),
        };
        self.status(id).await.log.iter().map(|row| word(&row.record)).collect()
    }

    /// The accounting closes: one `accepted` record each, one final record where it is over.
    pub async fn accounts_close(&self) {
        let faults = self.ledger.account_faults(None, 10).await.expect("a working store");
        assert_eq!(faults, [], "the accounting must close");
    }
}

#[expect(clippy::too_many_arguments, reason = "all that survives a restart")]
async fn start(
    store: Arc<dyn Store>,
    dir: &TempDir,
    clock: &Arc<ManualClock>,
    routes: &Arc<TestRoutes>,
    index: &Arc<IndexKey>,
    vault: &Arc<Vault>,
    policy: &Policy,
    metrics: &Metrics,
    boot: u32,
) -> Ledger {
    let parts = Parts {
        store,
        routes: routes.clone(),
        vault: vault.clone(),
        index: index.clone(),
        clock: clock.clone(),
        policy: policy.clone(),
        identity: Arc::new(Identity::alone(node(), BootId::parse(&format!("test-{boot}")).expect("an id"))),
        metrics: metrics.clone(),
        draw: || 0.5,
    };
    let mark = Mark::open(&dir.path().join("sendonce.db.mark")).expect("a mark");
    Ledger::start(parts, Some(mark)).await.expect("a ledger")
}

fn node() -> NodeName {
    NodeName::parse("test").expect("a name")
}

pub fn accepted(id: &str) -> Outcome {
    Outcome::accepted(Some(message_id(id)))
}

pub fn lost() -> Outcome {
    Outcome::unknown(Reason::LostAnswer)
}

pub fn refused() -> Outcome {
    Outcome::new(OutcomeClass::RefusedMessage, Reason::BadAddress)
}

pub fn refused_account() -> Outcome {
    Outcome::new(OutcomeClass::RefusedAccount, Reason::BadCredentials)
}

pub fn not_sent() -> Outcome {
    Outcome::not_sent(Reason::Connect)
}

pub fn actor() -> Actor {
    Actor::Key(sendonce::domain::ids::ActorName::parse("test").expect("a name"))
}
