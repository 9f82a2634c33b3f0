//! Where the daemon is killed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::vendor::{Kind, Play};
use crate::support::daemon::{Daemon, PATIENCE};
use crate::support::http_oracle::{Moment, Seen};
use crate::support::smtp_oracle::{Act, Stage};

/// A moment in the life of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Nobody chose it.
    AnyTime,
    /// A client has written half a request.
    HalfPosted,
    /// A client has written a whole request.
    Posted,
    /// A client has read the first 202.
    Acknowledged,
    /// A commit is held up that admits and claims.
    CommitHeld,
    /// The commit of a provider's answer is held up.
    ResultHeld,
    /// A provider has accepted the connection.
    Connected,
    /// A provider has read the head of a message.
    HeadRead,
    /// A provider has read a whole message.
    MessageRead,
    /// A provider has written a part of its answer.
    HalfAnswered,
    /// A provider has written its whole answer.
    Answered,
    /// A provider has read a look-up.
    LookUpRead,
    /// A provider has answered a look-up.
    LookUpAnswered,
    /// A provider has read a request for the second time.
    ProbeRead,
    /// A provider has answered it.
    ProbeAnswered,
    /// A provider has written a receipt.
    ReceiptWritten,
    /// The relay has read MAIL.
    MailRead,
    /// The relay has read DATA.
    DataRead,
    /// The relay has read the final dot.
    DotRead,
    /// The relay has written a part of its reply to the final dot.
    DotHalfAnswered,
    /// It has been started a moment ago.
    Starting,
    /// It drains.
    Draining,
    /// It is told to stop, and has the time.
    Stopped,
    /// It is told to stop, and attempts last longer.
    StoppedTooSoon,
}

impl Point {
    /// Every one.
    pub const ALL: [Self; 24] = [
        Self::AnyTime,
        Self::HalfPosted,
        Self::Posted,
        Self::Acknowledged,
        Self::CommitHeld,
        Self::ResultHeld,
        Self::Connected,
        Self::HeadRead,
        Self::MessageRead,
        Self::HalfAnswered,
        Self::Answered,
        Self::LookUpRead,
        Self::LookUpAnswered,
        Self::ProbeRead,
        Self::ProbeAnswered,
        Self::ReceiptWritten,
        Self::MailRead,
        Self::DataRead,
        Self::DotRead,
        Self::DotHalfAnswered,
        Self::Starting,
        Self::Draining,
        Self::Stopped,
        Self::StoppedTooSoon,
    ];

    /// What must become of a message so that this moment comes.
    pub const fn bait(self) -> Option<(Kind, Play)> {
        match self {
            Self::LookUpRead | Self::LookUpAnswered => Some((Kind::Lookup, Play::TakeAndClose)),
            Self::ProbeRead | Self::ProbeAnswered => Some((Kind::Dedupe, Play::Lose)),
            Self::ReceiptWritten => Some((Kind::Receipts, Play::TakeAndFail)),
            Self::HalfAnswered | Self::Answered => Some((Kind::Silent, Play::Take)),
            _ => None,
        }
    }

    /// What the relay does so that this moment lasts.
    pub const fn relay(self) -> Option<(Stage, Act)> {
        match self {
            Self::MailRead => Some((Stage::Mail, Act::Stall)),
            Self::DataRead => Some((Stage::Data, Act::Stall)),
            Self::DotRead => Some((Stage::Dot, Act::Stall)),
            Self::DotHalfAnswered => Some((Stage::Dot, Act::Half("25"))),
            _ => None,
        }
    }
}

/// Kills the daemon at a moment of an exchange with a provider, from within that moment.
pub struct Trap {
    daemon: Arc<Daemon>,
    armed: Mutex<Option<Point>>,
    keys: Mutex<BTreeSet<String>>,
    missed: Mutex<Vec<Point>>,
    sprung: watch::Sender<bool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trap {
    pub fn new(daemon: Arc<Daemon>) -> Self {
        let (armed, keys, missed) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { daemon, armed, keys, missed, sprung: watch::Sender::new(false) }
    }

    /// Waits for this moment from now on; for those that are none of an exchange nothing happens.
    pub fn set(&self, point: Point) {
        self.sprung.send_replace(false);
        *lock(&self.armed) = Some(point);
    }

    /// It is that moment.
    pub fn reached(&self, moment: Moment, seen: Option<&Seen>) {
        let point = self.point(moment, seen);
        if lock(&self.armed).take_if(|armed| point == Some(*armed)).is_some() {
            self.daemon.kill9();
            self.sprung.send_replace(true);
        }
    }

    fn point(&self, moment: Moment, seen: Option<&Seen>) -> Option<Point> {
        let Some(seen) = seen else { return Some(Point::Connected) };
        let key = seen.header("idempotency-key").map(str::to_owned);
        let again = |key: Option<String>| key.is_some_and(|key| !lock(&self.keys).insert(key));
        Some(match (moment, seen.method.as_str()) {
            (Moment::Connected, _) => Point::Connected,
            (Moment::Read, "GET") => Point::LookUpRead,
            (Moment::Answered, "GET") => Point::LookUpAnswered,
            (_, "GET") => return None,
            (Moment::Head, _) => Point::HeadRead,
            (Moment::Read, _) if again(key) => Point::ProbeRead,
            (Moment::Read, _) => Point::MessageRead,
            (Moment::HalfAnswered, _) => Point::HalfAnswered,
            (Moment::Answered, _) if *lock(&self.armed) == Some(Point::ProbeAnswered) => {
                return (Kind::of(seen) == Kind::Dedupe).then_some(Point::ProbeAnswered);
            }
            (Moment::Answered, _) => Point::Answered,
        })
    }

    /// Waits until it has happened. A moment that does not come is noted and the daemon killed all the same: what it did
    /// instead, the providers' account tells better.
    pub async fn sprung(&self) {
        let mut sprung = self.sprung.subscribe();
        let waited = tokio::time::timeout(PATIENCE, sprung.wait_for(|sprung| *sprung)).await;
        let missed = lock(&self.armed).take_if(|_| waited.is_err());
        if let Some(point) = missed {
            self.daemon.kill9();
            lock(&self.missed).push(point);
        }
    }

    /// The moments that did not come.
    pub fn missed(&self) -> Vec<Point> {
        lock(&self.missed).clone()
    }
}
