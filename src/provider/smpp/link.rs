//! The way to one SMSC: binds, and binds again after every end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::Account;
use super::pdu::command;
use super::session::{End, Session, Submit};
use super::status;
use super::wire::{Fault, Unwritten, Wire};
use crate::domain::outcome::{Outcome, OutcomeClass, Reason};
use crate::domain::retry::RetryPolicy;
use crate::provider::net::connect;

/// Pauses between two tries to bind.
const AGAIN: RetryPolicy =
    RetryPolicy { first: Duration::from_millis(500), factor: 2.0, cap: Duration::from_secs(30), jitter: 0.5 };

/// A message waits a little longer than a bind may take, so that it hears how that ended.
pub(super) const MARGIN: Duration = Duration::from_secs(1);

/// How the link stands.
#[derive(Clone)]
enum Standing {
    /// On its way.
    Trying,
    /// The last try failed so; another follows.
    Failed(Outcome),
    /// Messages may go there, one for each place.
    Bound { submits: mpsc::Sender<Submit>, places: Arc<Semaphore>, doubt: Arc<Notify> },
    /// No more.
    Stopped,
}

/// A place in the window, held until the answer is there or nobody waits for it any more.
pub(super) struct Place {
    pub(super) submits: mpsc::Sender<Submit>,
    /// To be told when the answer does not come.
    pub(super) doubt: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

pub(super) struct Link {
    account: Arc<Account>,
    standing: Arc<watch::Sender<Standing>>,
    /// A message waits for the session.
    wanted: Arc<Notify>,
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Link {
    pub(super) fn new(account: Arc<Account>) -> Self {
        let (standing, wanted) = (Arc::new(watch::channel(Standing::Trying).0), Arc::default());
        Self { account, standing, wanted, stop: watch::channel(false).0, task: Mutex::default() }
    }

    /// Begins to bind, unless that has begun.
    pub(super) fn start(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.is_none() && !*self.stop.borrow() {
            let life = Life {
                account: self.account.clone(),
                standing: self.standing.clone(),
                wanted: self.wanted.clone(),
                stop: self.stop.subscribe(),
            };
            *task = Some(tokio::spawn(life.run()));
        }
    }

    /// Unbinds, in not more than about twice the time that an answer to a command may take.
    pub(super) async fn stop(&self) {
        self.stop.send_replace(true);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // A panic there has been told; there is nothing more to end.
            let _ = timeout(self.account.settings.timeouts.command.saturating_mul(2), task).await;
        }
    }

    /// The longest that [`place`](Self::place) takes.
    fn patience(&self) -> Duration {
        self.account.settings.timeouts.connect.saturating_add(MARGIN)
    }

    /// A place in the window of a bound session. Nothing of a message has left, so every failure is certain: that of the
    /// try to bind that this message waited for.
    pub(super) async fn place(&self) -> Result<Place, Outcome> {
        let waiting = timeout(self.patience(), self.wait());
        waiting.await.unwrap_or_else(|_| {
            Err(match &*self.standing.borrow() {
                Standing::Failed(outcome) => outcome.clone(),
                // The window stayed full: the SMSC answers nobody.
                Standing::Bound { .. } => Outcome::not_sent(Reason::StalledBeforeCommit),
                Standing::Trying | Standing::Stopped => Outcome::not_sent(Reason::Connect),
            })
        })
    }

    async fn wait(&self) -> Result<Place, Outcome> {
        let mut standing = self.standing.subscribe();
        let mut now = standing.borrow_and_update().clone();
        let mut fresh = false;
        // After the look, so that the end of the first try is news.
        self.start();
        loop {
            match now {
                Standing::Bound { submits, places, doubt } => {
                    // Closed when the session has ended: then the standing changes.
                    if let Ok(permit) = places.acquire_owned().await {
                        return Ok(Place { submits, doubt, _permit: permit });
                    }
                }
                // What refuses our account refuses it again; anything else may have passed since.
                Standing::Failed(outcome) if fresh || outcome.class == OutcomeClass::RefusedAccount => {
                    return Err(outcome);
                }
                Standing::Failed(_) => self.wanted.notify_one(),
                Standing::Stopped => return Err(Outcome::never_began(Reason::Draining)),
                Standing::Trying => {}
            }
            if standing.changed().await.is_err() {
                return Err(Outcome::never_began(Reason::Draining));
            }
            now = standing.borrow_and_update().clone();
            fresh = true;
        }
    }
}

/// What runs beside the sends. It ends by `stop`, or when the link is dropped.
struct Life {
    account: Arc<Account>,
    standing: Arc<watch::Sender<Standing>>,
    wanted: Arc<Notify>,
    stop: watch::Receiver<bool>,
}

impl Life {
    async fn run(mut self) {
        let mut stop = self.stop.clone();
        let mut failures = 0_u8;
        loop {
            let opened = tokio::select! {
                opened = open(&self.account) => opened,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let refused = match opened {
                Ok(wire) => {
                    failures = 0;
                    let end = self.session(wire).await;
                    if *self.stop.borrow() || self.stop.has_changed().is_err() {
                        break;
                    }
                    tracing::warn!(provider = %self.account.name, ?end, "the session has ended");
                    self.standing.send_replace(Standing::Trying);
                    false
                }
                Err(outcome) => {
                    tracing::warn!(
                        provider = %self.account.name, outcome = %outcome.class, reason = %outcome.reason, "no session"
                    );
                    let refused = outcome.class == OutcomeClass::RefusedAccount;
                    self.standing.send_replace(Standing::Failed(outcome));
                    refused
                }
            };
            failures = failures.saturating_add(1);
            let pause = AGAIN.delay(failures, None, (self.account.draw)());
            tokio::select! {
                () = sleep(pause) => {}
                () = self.wanted.notified(), if !refused => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        self.standing.send_replace(Standing::Stopped);
    }

    async fn session(&mut self, wire: Wire) -> End {
        let window = usize::from(self.account.settings.window);
        let ((submits, receiver), places) = (mpsc::channel(window), Arc::new(Semaphore::new(window)));
        let doubt: Arc<Notify> = Arc::default();
        let session = Session::new(self.account.clone(), wire, receiver, places.clone(), doubt.clone());
        self.standing.send_replace(Standing::Bound { submits, places, doubt });
        tracing::info!(provider = %self.account.name, "bound");
        session.run(self.stop.clone()).await
    }
}

/// Connects and binds. No byte of a message leaves, so every failure is certain.
async fn open(account: &Account) -> Result<Wire, Outcome> {
    let settings = &account.settings;
    let limit = settings.timeouts.connect;
    let opening = async {
        let mut stream = connect(&settings.host, settings.port, limit).await?;
        if let Some(tls) = &account.tls {
            stream = tls.handshake(stream, limit).await?;
        }
        bind(account, Wire::new(stream)).await
    };
    timeout(limit, opening).await.unwrap_or(Err(Outcome::not_sent(Reason::StalledBeforeCommit)))
}

async fn bind(account: &Account, mut wire: Wire) -> Result<Wire, Outcome> {
    let lost = |_: Unwritten| Outcome::not_sent(Reason::LostBeforeCommit);
    wire.write(&account.requests.bind(1)).await.map_err(lost)?;
    let frame = wire.next().await.map_err(|fault| {
        Outcome::not_sent(match fault {
            Fault::Lost => Reason::LostBeforeCommit,
            Fault::Garbled => Reason::ProtocolBeforeCommit,
        })
    })?;
    let ours = frame.sequence == 1 && frame.command == command::BIND_TRANSCEIVER | command::RESPONSE;
    match (ours, frame.status) {
        (true, status::OK) => Ok(wire),
        (true, refused) => {
            let status = format_args!("0x{refused:08x}");
            tracing::warn!(provider = %account.name, status, "the bind was refused");
            Err(status::bind(refused))
        }
        (false, _) => Err(Outcome::not_sent(Reason::ProtocolBeforeCommit)),
    }
}
