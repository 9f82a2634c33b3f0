//! The SQLite store on real files: what each primitive does, and what it refuses.

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
use sendonce::store::rows::{
    AccountFault, Asked, Known, Leg, LogFilter, NotificationOutcome, NotificationRow, NotificationUpdate, Queue,
    StatusSelector, UnknownFilter, WorkRow, WorkState, WorkUpdate,
};
use sendonce::store::sqlite::{SqliteOptions, SqliteStore, sql};
use sendonce::store::{Store, StoreError, Transaction};
use sqlx::{Connection as _, Row as _};

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

async fn begin(store: &SqliteStore) -> Box<dyn Transaction> {
    store.begin().await.expect("begins")
}

/// Stores notifications with their work.
async fn admit(store: &SqliteStore, numbers: std::ops::Range<u32>) {
    let mut tx = begin(store).await;
    let rows: Vec<_> = numbers.clone().map(notification).collect();
    assert_eq!(tx.insert_notifications(&rows).await.expect("inserts").len(), rows.len());
    tx.insert_work(&numbers.map(work).collect::<Vec<_>>()).await.expect("inserts");
    tx.commit().await.expect("commits");
}

fn debug(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

#[tokio::test]
async fn a_notification_reads_back_as_it_was_written_and_changed() {
    let (_dir, store) = fresh().await;
    admit(&store, 0..3).await;
    let mut tx = begin(&store).await;
    assert_eq!(tx.now(), NOW);
    assert_eq!(debug(tx.notifications(&[id(1), id(99)]).await), debug(Ok::<_, StoreError>(vec![notification(1)])));

    let outcome = NotificationOutcome {
        state: State::Dispatched,
        sent: Sent::Yes,
        sent_attempt: Some(2),
        open_attempt: Some(1),
        channel: Some(Channel::Email),
        delivery: DeliveryFacts { delivered: u32::MAX, undelivered: 5, parts: 32 },
        provider: Some(provider("mailer")),
        message_id: Some(message("<a@b>")),
        receipt_key: Some(message("<a@b>")),
        finished_at: Some(NOW),
    };
    let updates = [1, 77].map(|n| NotificationUpdate { id: id(n), outcome: outcome.clone() });
    tx.update_notifications(&updates).await.expect("updates");
    let changed = NotificationRow { outcome, ..notification(1) };
    assert_eq!(debug(tx.notifications(&[id(1)]).await), debug(Ok::<_, StoreError>(vec![changed])));
    assert_eq!(debug(tx.notifications(&[id(2)]).await), debug(Ok::<_, StoreError>(vec![notification(2)])));
    let found = tx.by_receipt_key(&[(provider("mailer"), message("<a@b>")), (provider("x"), message("<a@b>"))]).await;
    assert_eq!(found, Ok(vec![(provider("mailer"), message("<a@b>"), id(1))]));

    tx.delete_notifications(&[id(2)]).await.expect("deletes");
    assert_eq!(tx.notifications(&[id(2)]).await.expect("reads").len(), 0);
}

#[tokio::test]
async fn work_reads_back_as_it_was_written_and_changed() {
    let (_dir, store) = fresh().await;
    admit(&store, 0..2).await;
    let mut tx = begin(&store).await;
    assert_eq!(debug(tx.work(&[id(0)]).await), debug(Ok::<_, StoreError>(vec![work(0)])));

    let state = WorkState {
        life: Life {
            state: State::DispatchUnknown,
            sent: Sent::Unknown,
            attempt: 3,
            used: 2,
            open: Some(3),
            sent_attempt: None,
            probing: true,
            marks: Marks { cancel: true, supersede: true },
        },
        queue: Some(Queue::Ask(provider("other"))),
        due_at: NOW,
        leg: 1,
        provider: provider("other"),
        tries_here: 4,
        owner: Some("boot \"1\"".to_owned()),
        asked: Some(Asked {
            attempt: 0,
            account: [8; 16],
            rev: [9; 16],
            first_there_at: NOW,
            ended_at: Some(NOW),
            cause: Some(Reason::LostAnswer),
            misses: 2,
            asks: 300,
        }),
    };
    let update = WorkUpdate { id: id(0), was_state: State::Accepted, was_attempt: 0, state, wipe_message: true };
    let written = tx.update_work(std::slice::from_ref(&update)).await.expect("updates");
    assert_eq!(written, [id(0)].into());
    let changed = WorkRow { state: update.state, sealed_message: None, ..work(0) };
    assert_eq!(debug(tx.work(&[id(0)]).await), debug(Ok::<_, StoreError>(vec![changed])));
    assert_eq!(debug(tx.work(&[id(1)]).await), debug(Ok::<_, StoreError>(vec![work(1)])));
    assert_eq!(tx.work_of_users(&[hash(1001), hash(5)]).await, Ok(vec![(hash(1001), id(1), NOW)]));
    tx.delete_work(&[id(0)]).await.expect("deletes");
    assert_eq!(tx.work(&[id(0), id(1)]).await.expect("reads").len(), 1);
}
