//! The stores: what each primitive does, and what it refuses. `primitives` and `reads` hold for both backends and run on
//! both; the other files have what is special to one.

/// Makes a test of each backend from functions that take a [`Bed`].
macro_rules! on_both {
    ($($name:ident,)+) => {
        mod on_sqlite {
            $(#[tokio::test] async fn $name() { super::$name(super::Bed::sqlite().await).await; })+
        }
        mod on_postgres {
            $(#[tokio::test] async fn $name() { super::$name(super::Bed::postgres().await).await; })+
        }
    };
}

mod callbacks;
mod file;
mod parity;
mod postgres;
mod primitives;
mod reads;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sendonce::clock::ManualClock;
use sendonce::domain::audit::{Actor, Record, Source, What};
use sendonce::domain::content::Channel;
use sendonce::domain::delivery::{Delivery, DeliveryFacts};
use sendonce::domain::ids::{
    ActorName, EventId, KeyedHash, Kind, NotificationId, ProviderMessageId, ProviderName, Tenant, Ticket,
};
use sendonce::domain::lifecycle::{Life, Marks, Sent, State};
use sendonce::domain::outcome::{OutcomeClass, Reason};
use sendonce::domain::receipt::{Part, Receipt, ReceiptStatus};
use sendonce::domain::time::Timestamp;
use sendonce::store::postgres::{PostgresOptions, PostgresStore};
use sendonce::store::rows::{
    AccountFault, Asked, Changes, Known, Leg, LogFilter, NotificationOutcome, NotificationRow, NotificationUpdate,
    Owner, Queue, StatusSelector, UnknownFilter, WorkRow, WorkState, WorkUpdate,
};
use sendonce::store::sqlite::{SqliteOptions, SqliteStore, sql};
use sendonce::store::{Reader, Store, StoreError, Transaction};

use crate::support::postgres::Database;

const NOW: Timestamp = Timestamp::from_micros(1_795_910_400_000_000);

async fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, ManualClock::at(NOW), SqliteOptions::default()).await.expect("opens")
}

/// A store in a directory that goes away with the test.
async fn fresh() -> (tempfile::TempDir, SqliteStore) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir.path().join("s.db")).await;
    (dir, store)
}

/// A store of either kind, and what it stands on.
struct Bed {
    store: Arc<dyn Store>,
    place: Place,
}

enum Place {
    Sqlite(#[expect(dead_code, reason = "goes away with the test")] tempfile::TempDir),
    Postgres(Database),
}

impl Bed {
    async fn sqlite() -> Self {
        let (dir, store) = fresh().await;
        Self { store: Arc::new(store), place: Place::Sqlite(dir) }
    }

    async fn postgres() -> Self {
        let database = Database::fresh().await;
        Self { store: Arc::new(open_postgres(&database).await), place: Place::Postgres(database) }
    }

    /// The database of a PostgreSQL store.
    fn database(&self) -> &Database {
        match &self.place {
            Place::Postgres(database) => database,
            Place::Sqlite(_) => panic!("is a file"),
        }
    }

    /// Whether a store can have told this time just now.
    fn is_its_now(&self, time: Timestamp) -> bool {
        match self.place {
            Place::Sqlite(_) => time == NOW,
            Place::Postgres(_) => {
                let now = sendonce::clock::Clock::now(&sendonce::clock::SystemClock);
                time > now.minus(Duration::from_secs(60)) && time < now.plus(Duration::from_secs(60))
            }
        }
    }

    fn reader(&self) -> &dyn Reader {
        self.store.reader()
    }

    async fn begin(&self) -> Box<dyn Transaction> {
        begin(self.store.as_ref()).await
    }
}

async fn open_postgres(database: &Database) -> PostgresStore {
    let url = database.url().into();
    PostgresStore::open(&url, None, PostgresOptions::default()).await.expect("opens")
}

fn tenant(name: &str) -> Tenant {
    Tenant::parse(name).expect("a tenant")
}

fn provider(name: &str) -> ProviderName {
    ProviderName::parse(name).expect("a provider")
}

fn hash(n: u32) -> KeyedHash {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    KeyedHash::from_bytes(bytes)
}

fn message(id: &str) -> ProviderMessageId {
    ProviderMessageId::parse(id).expect("a message id")
}

fn event(n: u32) -> EventId {
    EventId::parse(&format!("event-{n}")).expect("an event id")
}

fn id(n: u32) -> NotificationId {
    let mut random = [0; 10];
    random[6..].copy_from_slice(&n.to_be_bytes());
    NotificationId::new(NOW.plus(Duration::from_millis(n.into())), random)
}

/// A notification whose key, event and id all come from `n`.
fn notification(n: u32) -> NotificationRow {
    NotificationRow {
        id: id(n),
        tenant: tenant("acme"),
        key: hash(n),
        event: hash(n),
        event_id: event(n),
        kind: Kind::parse("password_reset").expect("a kind"),
        mask: "+49*****\"42,a***@example.org".to_owned(),
        fingerprint: [7; 33],
        created_at: NOW,
        expires_at: NOW.plus(Duration::from_secs(600)),
        outcome: NotificationOutcome::NEW,
    }
}

fn work(n: u32) -> WorkRow {
    WorkRow {
        id: id(n),
        tenant: tenant("acme"),
        event_id: event(n),
        kind: Kind::parse("password_reset").expect("a kind"),
        created_at: NOW,
        state: WorkState {
            life: Life::NEW,
            queue: Some(Queue::Send(provider("sandbox"))),
            due_at: NOW.plus(Duration::from_micros(n.into())),
            leg: 0,
            provider: provider("sandbox"),
            tries_here: 0,
            owner: None,
            asked: None,
        },
        expires_at: NOW.plus(Duration::from_secs(600)),
        ordered_at: NOW,
        user: hash(1000 + n),
        legs: vec![
            Leg { channel: Channel::Sms, country: Some(*b"DE"), address: hash(1) },
            Leg { channel: Channel::Email, country: None, address: hash(2) },
        ],
        sealed_to: vec![1, 2, 3],
        sealed_message: Some(vec![0, 255]),
    }
}

async fn begin(store: &dyn Store) -> Box<dyn Transaction> {
    store.begin().await.expect("begins")
}

/// Stores notifications with their work.
async fn admit(store: &dyn Store, numbers: std::ops::Range<u32>) {
    let mut tx = begin(store).await;
    let rows: Vec<_> = numbers.clone().map(notification).collect();
    assert_eq!(tx.insert_notifications(&rows).await.expect("inserts").len(), rows.len());
    tx.write(&new(numbers.map(work))).await.expect("inserts");
    tx.commit().await.expect("commits");
}

fn new(work: impl IntoIterator<Item = WorkRow>) -> Changes {
    Changes { new: work.into_iter().collect(), ..Changes::default() }
}

fn changed(work: impl IntoIterator<Item = WorkUpdate>) -> Changes {
    Changes { changed: work.into_iter().collect(), ..Changes::default() }
}

fn over(numbers: impl IntoIterator<Item = u32>) -> Changes {
    Changes { over: numbers.into_iter().map(id).collect(), ..Changes::default() }
}

fn outcomes(outcomes: impl IntoIterator<Item = NotificationUpdate>) -> Changes {
    Changes { outcomes: outcomes.into_iter().collect(), ..Changes::default() }
}

fn log(records: impl IntoIterator<Item = Record>) -> Changes {
    Changes { records: records.into_iter().collect(), ..Changes::default() }
}

/// The first claim of a boot.
fn owner(boot: &str) -> Owner {
    Owner { boot: boot.to_owned(), claim: 1 }
}

fn debug(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

fn update(n: u32, was_state: State, was_attempt: u8, attempt: u8) -> WorkUpdate {
    let life = Life { state: State::Dispatching, attempt, used: attempt, ..Life::NEW };
    let state = WorkState { life, queue: None, owner: Some(owner("boot")), ..work(n).state };
    WorkUpdate { id: id(n), was_state, was_attempt, state, wipe_message: false }
}
