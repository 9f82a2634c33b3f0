//! Several nodes on one server: leases in a table, the lead by an advisory lock, wake-ups by LISTEN and NOTIFY.
//!
//! Heartbeats have connections of their own, so that they wait for no work. The session that holds the lead does nothing
//! else: when it is lost so is the lead, and the server frees the lock. Wake-ups are a hint and may be lost, since every
//! node looks for due work now and then.

mod ear;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::{Mutex, Notify};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::bind::{number, statement};
use super::fault::sql_fault;
use super::transaction::clock;
use super::wire::Wires;
use super::{PostgresStore, sql};
use crate::domain::ids::{BootId, NodeName};
use crate::domain::time::Timestamp;
use crate::store::nodes::{Enrolled, Nodes, Renewed, Rung};
use crate::store::rows::Queue;
use crate::store::{StoreError, new_incarnation};
use ear::Ear;

/// A heartbeat that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// A node tells others of due work no more often than this, however much falls due.
const RING_EVERY: Duration = Duration::from_millis(20);

/// The server gives up on a session whose machine has gone silent after about 20 s; its own default is two hours
/// (PostgreSQL, section 20.3.2).
const KEEPALIVES: [(&str, &str); 4] = [
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "20000"),
];

/// What this process needs to be one node of several.
pub(super) struct Neighbourhood {
    wires: Arc<Wires>,
    chair: Mutex<Chair>,
    ear: Mutex<Ear>,
    bell: Arc<Bell>,
    ringing: AbortHandle,
}

/// The session that holds the lead, or would if another one did not.
struct Chair {
    options: PgConnectOptions,
    session: Option<PgConnection>,
    held: bool,
}

/// Queues that other nodes are to be told of.
#[derive(Default)]
struct Bell {
    waiting: std::sync::Mutex<BTreeSet<String>>,
    rung: Notify,
}

impl Neighbourhood {
    /// Prepares everything; connects when something is asked for. To be called within the runtime.
    pub(super) fn new(base: &PgConnectOptions) -> Self {
        let options = base.clone().options(KEEPALIVES);
        let millis = PATIENCE.as_millis().to_string();
        let bounded = options.clone().options([("statement_timeout", &millis), ("lock_timeout", &millis)]);
        let wires = Wires::writing(bounded, 2, PATIENCE);
        let (bell, voice) = (Arc::<Bell>::default(), rand::random::<u32>());
        let ringing = tokio::spawn(ring(bell.clone(), wires.clone(), voice)).abort_handle();
        Self {
            wires,
            chair: Mutex::new(Chair { options: options.clone(), session: None, held: false }),
            ear: Mutex::new(Ear::new(options, voice)),
            bell,
            ringing,
        }
    }

    pub(super) async fn close(&self) {
        self.ringing.abort();
        self.wires.close().await;
        let session = self.chair.lock().await.session.take();
        if let Some(session) = session {
            let _ = timeout(PATIENCE, session.close()).await;
        }
    }
}

/// Tells other nodes what has gathered, then pauses.
async fn ring(bell: Arc<Bell>, wires: Arc<Wires>, voice: u32) {
    loop {
        bell.rung.notified().await;
        let queues = std::mem::take(&mut *bell.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let told: Vec<String> = queues.iter().map(|queue| ear::told(voice, queue)).collect();
        // What is not told is found by looking.
        let _ = wires.read(|| statement(sql::RING).bind(told.clone())).await;
        tokio::time::sleep(RING_EVERY).await;
    }
}

impl Chair {
    async fn is_ours(&mut self) -> Result<bool, sqlx::Error> {
        // Taken out, so that a session which fails or is given up half-way is not used again.
        let mut session = match self.session.take() {
            Some(session) => session,
            None => {
                self.held = false;
                self.options.connect().await?
            }
        };
        if self.held {
            session.ping().await?;
        } else {
            let row = sqlx::query(sql::LEAD).fetch_one(&mut session).await?;
            self.held = row.try_get("leads")?;
        }
        self.session = Some(session);
        Ok(self.held)
    }
}

/// Yes or no, from the one row of an answer.
fn flag(rows: &[PgRow], column: &'static str) -> Result<bool, StoreError> {
    let row = rows.first().ok_or(StoreError::Refused("statement"))?;
    row.try_get(column).map_err(|_| StoreError::Refused("statement"))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[async_trait]
impl Nodes for PostgresStore {
    async fn agree(&self, on: &'static str, value: &str) -> Result<bool, StoreError> {
        self.nodes.wires.read(|| statement(sql::PIN).bind(on).bind(value.to_owned())).await?;
        let rows = self.nodes.wires.read(|| statement(sql::PINNED).bind(on).bind(value.to_owned())).await?;
        flag(&rows, "same")
    }

    async fn succeed(&self) -> Result<(), StoreError> {
        let incarnation = new_incarnation();
        self.nodes.wires.read(|| statement(sql::KEEP_PREDECESSOR)).await?;
        self.nodes.wires.read(|| statement(sql::SUCCEED).bind(incarnation.clone())).await.map(drop)
    }

    async fn succeeds(&self, incarnation: &str) -> Result<bool, StoreError> {
        let rows = self.nodes.wires.read(|| statement(sql::SUCCEEDS).bind(incarnation.to_owned())).await?;
        flag(&rows, "succeeds")
    }

    async fn enrol(&self, name: &NodeName, boot: &BootId, lease: Duration) -> Result<Enrolled, StoreError> {
        let enrol = || statement(sql::ENROL).bind(name.to_string()).bind(boot.to_string()).bind(micros(lease));
        // The holder may leave between the two statements.
        for _ in 0..3 {
            let rows = self.nodes.wires.read(enrol).await?;
            if !rows.is_empty() {
                return Ok(Enrolled::Taken { now: clock(&rows)? });
            }
            let holder = self.nodes.wires.read(|| statement(sql::HOLDER).bind(name.to_string())).await?;
            if !holder.is_empty() {
                let expires_at = Timestamp::from_micros(number(&holder, "expires_at")?);
                return Ok(Enrolled::Held { expires_at, rest: expires_at.since(clock(&holder)?) });
            }
        }
        Err(StoreError::Busy)
    }

    async fn renew(&self, name: &NodeName, boot: &BootId, lease: Duration) -> Result<Renewed, StoreError> {
        let renew = || statement(sql::RENEW).bind(name.to_string()).bind(boot.to_string()).bind(micros(lease));
        let rows = self.nodes.wires.read(renew).await?;
        if rows.is_empty() { Ok(Renewed::Lost) } else { Ok(Renewed::Kept { now: clock(&rows)? }) }
    }

    async fn release(&self, name: &NodeName, boot: &BootId) -> Result<(), StoreError> {
        let release = || statement(sql::RELEASE).bind(name.to_string()).bind(boot.to_string());
        self.nodes.wires.read(release).await.map(drop)
    }

    async fn bury(&self, own: &NodeName) -> Result<Vec<NodeName>, StoreError> {
        let rows = self.nodes.wires.read(|| statement(sql::BURY).bind(own.to_string())).await?;
        let corrupt = StoreError::Corrupt { table: "node", column: "name" };
        let name = |text: String| NodeName::parse(&text).map_err(|_| corrupt);
        rows.iter().map(|row| row.try_get("name").map_err(|_| corrupt).and_then(name)).collect()
    }

    async fn lead(&self) -> Result<bool, StoreError> {
        let mut chair = self.nodes.chair.lock().await;
        match timeout(PATIENCE, chair.is_ours()).await {
            Ok(leads) => leads.map_err(|e| sql_fault(&e)),
            Err(_) => Err(StoreError::Unavailable),
        }
    }

    async fn resign(&self) -> bool {
        let mut chair = self.nodes.chair.lock().await;
        let held = std::mem::take(&mut chair.held);
        if let Some(session) = chair.session.take().filter(|_| held) {
            let _ = timeout(PATIENCE, session.close()).await;
        }
        held
    }

    fn ring(&self, queue: &Queue) {
        let new = self.nodes.bell.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(queue.to_string());
        if new {
            self.nodes.bell.rung.notify_one();
        }
    }

    async fn heard(&self) -> Rung {
        self.nodes.ear.lock().await.hear().await
    }
}
