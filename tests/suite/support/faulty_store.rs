//! A store that fails where it is told: at the n-th call, before or after it took effect. Its clock is the test's, whatever
//! stands behind it.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sendonce::clock::{Clock as _, ManualClock};
use sendonce::domain::ids::{BootId, KeyedHash, NodeName, NotificationId, ProviderMessageId, ProviderName, Tenant};
use sendonce::domain::receipt::Receipt;
use sendonce::domain::time::Timestamp;
use sendonce::store::callbacks::Callbacks;
use sendonce::store::nodes::{Enrolled, Nodes, Renewed, Rung};
use sendonce::store::postgres::{PostgresOptions, PostgresStore};
use sendonce::store::rows::{
    AccountCounts, AccountFault, Changes, Due, HighWater, Known, LogFilter, LogRow, NotificationRow, Queue, StatusRow,
    StatusSelector, UnknownFilter, UnknownRow, WorkCounts, WorkRow,
};
use sendonce::store::{Reader, Store, StoreError, Transaction};

use super::bench::{Opener, sqlite};
use super::postgres::Database;

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has no effect, and says so.
    Fails(StoreError),
    /// A commit: nobody knows whether it took effect.
    Ambiguous {
        /// It did.
        done: bool,
    },
    /// The process ends here: no later call has an effect until the store is opened again.
    Ends {
        /// A commit took effect before.
        done: bool,
    },
}

/// Which calls go wrong.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// This one.
    Call(u64, Fault),
    /// All of them.
    Each(StoreError),
}

/// Counts the calls of a store and lets some of them go wrong.
#[derive(Debug, Default)]
pub struct Faults {
    calls: AtomicU64,
    plan: Mutex<Option<Plan>>,
    met: Mutex<Option<&'static str>>,
    ended: AtomicBool,
}

impl Faults {
    /// Call number `n`, counted from 1 and from now, will go wrong.
    pub fn plan(&self, n: u64, fault: Fault) {
        self.calls.store(0, Ordering::SeqCst);
        *self.plan.lock().expect("no panic") = Some(Plan::Call(n, fault));
        *self.met.lock().expect("no panic") = None;
    }

    /// Every call will fail like this, until [`Faults::lift`].
    pub fn last(&self, error: StoreError) {
        self.calls.store(0, Ordering::SeqCst);
        *self.plan.lock().expect("no panic") = Some(Plan::Each(error));
    }

    /// How many calls there were since something was planned.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Nothing goes wrong from now on.
    pub fn lift(&self) {
        *self.plan.lock().expect("no panic") = None;
    }

    /// The name of the call that went wrong.
    pub fn met(&self) -> Option<&'static str> {
        *self.met.lock().expect("no panic")
    }

    /// Ends the process.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// The process has come to its end.
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// The fault of this call, if it is its turn.
    fn meet(&self, call: &'static str) -> Result<Option<Fault>, StoreError> {
        if self.ended() {
            return Err(StoreError::Unavailable);
        }
        let n = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let mut plan = self.plan.lock().expect("no panic");
        match *plan {
            Some(Plan::Each(error)) => Err(error),
            Some(Plan::Call(at, fault)) if at == n => {
                *plan = None;
                *self.met.lock().expect("no panic") = Some(call);
                self.ended.store(matches!(fault, Fault::Ends { .. }), Ordering::SeqCst);
                Ok(Some(fault))
            }
            _ => Ok(None),
        }
    }

    /// Before a call other than a commit.
    fn pass(&self, call: &'static str) -> Result<(), StoreError> {
        match self.meet(call)? {
            None => Ok(()),
            Some(Fault::Fails(error)) => Err(error),
            Some(Fault::Ambiguous { .. } | Fault::Ends { .. }) => Err(StoreError::Unavailable),
        }
    }
}

/// The store.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    faults: Arc<Faults>,
    clock: Arc<ManualClock>,
}

/// Puts faults before what `open` opens. Each opening is that of a new process.
pub fn faulty(open: Opener, faults: &Arc<Faults>) -> Opener {
    let faults = faults.clone();
    Arc::new(move |path, clock| {
        let (faults, inner) = (faults.clone(), open(path, clock.clone()));
        Box::pin(async move {
            let inner = inner.await;
            faults.ended.store(false, Ordering::SeqCst);
            Arc::new(FaultyStore { inner, faults, clock }) as Arc<dyn Store>
        })
    })
}

/// A file.
pub fn faulty_sqlite(faults: &Arc<Faults>) -> Opener {
    faulty(sqlite(), faults)
}

/// A database on a server.
pub fn faulty_postgres(database: Arc<Database>, faults: &Arc<Faults>) -> Opener {
    let open: Opener = Arc::new(move |_: PathBuf, _| {
        let url = database.url().into();
        Box::pin(async move {
            let store = PostgresStore::open(&url, None, PostgresOptions::default()).await.expect("a store");
            Arc::new(store) as Arc<dyn Store>
        })
    });
    faulty(open, faults)
}

#[async_trait]
impl Store for FaultyStore {
    fn writers(&self) -> usize {
        self.inner.writers()
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        self.faults.pass("begin")?;
        let inner = self.inner.begin().await?;
        Ok(Box::new(FaultyTransaction { inner, faults: self.faults.clone(), now: self.clock.now() }))
    }

    fn reader(&self) -> &dyn Reader {
        self
    }

    fn nodes(&self) -> &dyn Nodes {
        self
    }

    fn callbacks(&self) -> &dyn Callbacks {
        self.inner.callbacks()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

struct FaultyTransaction {
    inner: Box<dyn Transaction>,
    faults: Arc<Faults>,
    now: Timestamp,
}

/// Each primitive as it is, but for its fault.
macro_rules! primitives {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)+) => {
        #[async_trait]
        impl Transaction for FaultyTransaction {
            fn now(&self) -> Timestamp {
                self.now
            }

            $(async fn $name(&mut self, $($arg: $type),*) -> Result<$answer, StoreError> {
                self.faults.pass(stringify!($name))?;
                self.inner.$name($($arg),*).await
            })+

            async fn commit(self: Box<Self>) -> Result<(), StoreError> {
                match self.faults.meet("commit")? {
                    None => self.inner.commit().await,
                    Some(Fault::Fails(error)) => Err(error),
                    Some(fault @ (Fault::Ambiguous { done } | Fault::Ends { done })) => {
                        if done {
                            self.inner.commit().await?;
                        }
                        Err(match fault {
                            Fault::Ambiguous { .. } => StoreError::Ambiguous,
                            _ => StoreError::Unavailable,
                        })
                    }
                }
            }
        }
    };
}

primitives! {
    insert_notifications(rows: &[NotificationRow]) -> HashSet<NotificationId>;
    delete_notifications(ids: &[NotificationId]) -> ();
    known(wanted: &[(Tenant, KeyedHash, KeyedHash)]) -> Vec<Known>;
    notifications(ids: &[NotificationId]) -> Vec<NotificationRow>;
    work(ids: &[NotificationId]) -> Vec<WorkRow>;
    due(queue: &Queue, now: Timestamp, limit: u32) -> Vec<Due>;
    work_of_users(users: &[KeyedHash]) -> Vec<(KeyedHash, NotificationId, Timestamp)>;
    write(changes: &Changes) -> ();
    quotas(scopes: &[KeyedHash]) -> Vec<(KeyedHash, Timestamp)>;
    save_quotas(quotas: &[(KeyedHash, Timestamp)]) -> ();
    keep_receipts(receipts: &[Receipt], now: Timestamp) -> ();
    take_receipts(messages: &[(ProviderName, ProviderMessageId)]) -> Vec<Receipt>;
    by_receipt_key(messages: &[(ProviderName, ProviderMessageId)]) ->
        Vec<(ProviderName, ProviderMessageId, NotificationId)>;
    sweep_small(now: Timestamp, receipts_before: Timestamp, receipts_max: u32, limit: u32) -> ();
    forget_notifications(before: Timestamp, limit: u32) -> u64;
    high_water() -> HighWater;
}

macro_rules! reads {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)+) => {
        #[async_trait]
        impl Reader for FaultyStore {
            async fn now(&self) -> Result<Timestamp, StoreError> {
                Ok(self.clock.now())
            }

            $(async fn $name(&self, $($arg: $type),*) -> Result<$answer, StoreError> {
                self.faults.pass(stringify!($name))?;
                self.inner.reader().$name($($arg),*).await
            })+
        }
    };
}

reads! {
    status(tenant: &Tenant, selector: &StatusSelector) -> Option<StatusRow>;
    known(tenant: &Tenant, key: KeyedHash, event: KeyedHash) -> Vec<Known>;
    expired(now: Timestamp, limit: u32) -> Vec<NotificationId>;
    stranded(owner: &str, limit: u32) -> Vec<(NotificationId, String)>;
    next_due(queue: &Queue) -> Option<Timestamp>;
    unknowns(filter: &UnknownFilter) -> Vec<UnknownRow>;
    log_page(filter: &LogFilter, after: i64, limit: u32) -> Vec<LogRow>;
    log_end() -> i64;
    account_counts(tenant: Option<&Tenant>) -> AccountCounts;
    account_faults(tenant: Option<&Tenant>, limit: u32) -> Vec<AccountFault>;
    work_counts() -> Vec<WorkCounts>;
    live(after: Option<NotificationId>, limit: u32) -> Vec<NotificationId>;
    high_water() -> HighWater;
}

macro_rules! neighbours {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)+) => {
        #[async_trait]
        impl Nodes for FaultyStore {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$answer, StoreError> {
                self.faults.pass(stringify!($name))?;
                self.inner.nodes().$name($($arg),*).await
            })+

            async fn resign(&self) -> bool {
                self.inner.nodes().resign().await
            }

            fn ring(&self, queue: &Queue) {
                self.inner.nodes().ring(queue);
            }

            async fn heard(&self) -> Rung {
                self.inner.nodes().heard().await
            }
        }
    };
}

neighbours! {
    agree(on: &'static str, value: &str) -> bool;
    succeed() -> ();
    succeeds(incarnation: &str) -> bool;
    enrol(name: &NodeName, boot: &BootId, lease: Duration) -> Enrolled;
    renew(name: &NodeName, boot: &BootId, lease: Duration) -> Renewed;
    release(name: &NodeName, boot: &BootId) -> ();
    bury(own: &NodeName) -> Vec<NodeName>;
    lead() -> bool;
}
