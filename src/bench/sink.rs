//! The provider: takes every message, and counts what it truly received.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::histogram::Histogram;
use super::wire::Wire;

/// Connections that are served at once; more wait.
const CONNECTIONS: usize = 2048;

/// The provider as the daemon sees it. Dropping it hangs up.
pub(super) struct Sink {
    port: u16,
    tally: Arc<Mutex<Tally>>,
    delay: Arc<AtomicU64>,
    serving: JoinHandle<()>,
}

/// What was received since the last reset.
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    /// Messages, each counted once.
    pub messages: u64,
    /// Messages that came again.
    pub twice: u64,
    /// When the first byte of the first one came.
    pub first: Duration,
    /// When the last one came.
    pub last: Duration,
    /// From the moment at which its event was due to be posted to the first byte here, for events of an open loop.
    pub from_post: Histogram,
}

#[derive(Default)]
struct Tally {
    received: Received,
    /// The number that the first place stands for.
    base: u64,
    /// Which numbers came.
    came: Vec<bool>,
    /// When their events were due to be posted.
    posted: Vec<Option<Duration>>,
    recent: VecDeque<u64>,
}

impl Tally {
    fn place(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.base)?).ok()
    }

    fn take(&mut self, number: u64, at: Duration) {
        let Some(place) = self.place(number) else { return };
        if self.came.len() <= place {
            self.came.resize(place + 1, false);
        }
        if std::mem::replace(&mut self.came[place], true) {
            self.received.twice += 1;
            return;
        }
        if self.received.messages == 0 {
            self.received.first = at;
        }
        self.received.messages += 1;
        self.received.last = at;
        if let Some(posted) = self.posted.get(place).copied().flatten() {
            self.received.from_post.add(at.saturating_sub(posted));
        }
        self.recent.push_back(number);
        if self.recent.len() > 1024 {
            self.recent.pop_front();
        }
    }
}

impl Sink {
    /// Listens on a free port of this machine.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (tally, delay) = (Arc::<Mutex<Tally>>::default(), Arc::<AtomicU64>::default());
        let serving = tokio::spawn(serve(listener, tally.clone(), delay.clone()));
        Ok(Self { port, tally, delay, serving })
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Counts anew; messages below number `base` are those of an earlier figure, and do not count.
    pub fn reset(&self, base: u64) {
        *self.tally() = Tally { base, ..Tally::default() };
    }

    /// How long each answer takes from now on, in whole milliseconds.
    pub fn answer_after(&self, delay: Duration) {
        self.delay.store(u64::try_from(delay.as_millis()).unwrap_or(0), Ordering::Relaxed);
    }

    /// Remembers when the event with this number was due to be posted.
    pub fn posted(&self, number: u64, at: Duration) {
        let mut tally = self.tally();
        let Some(place) = tally.place(number) else { return };
        if tally.posted.len() <= place {
            tally.posted.resize(place + 1, None);
        }
        tally.posted[place] = Some(at);
    }

    /// What came so far.
    pub fn received(&self) -> Received {
        self.tally().received.clone()
    }

    /// How many messages came so far.
    pub fn messages(&self) -> u64 {
        self.tally().received.messages
    }

    /// The numbers of the messages that came last, at most `count` and 1024.
    pub fn recent(&self, count: usize) -> Vec<u64> {
        self.tally().recent.iter().rev().take(count).copied().collect()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, tally: Arc<Mutex<Tally>>, delay: Arc<AtomicU64>) {
    let mut clients = JoinSet::new();
    loop {
        while clients.len() >= CONNECTIONS {
            clients.join_next().await;
        }
        let Ok((stream, _)) = listener.accept().await else { continue };
        while clients.try_join_next().is_some() {}
        let (tally, delay) = (tally.clone(), delay.clone());
        clients.spawn(async move {
            let Ok(mut wire) = Wire::over(stream) else { return };
            // A client that hangs up is a client that is done.
            let _ = answer(&mut wire, &tally, &delay).await;
        });
    }
}

async fn answer(wire: &mut Wire, tally: &Mutex<Tally>, delay: &AtomicU64) -> io::Result<()> {
    while let Some(at) = wire.read().await? {
        let number = number_in(wire.body());
        if let Some(number) = number {
            tally.lock().unwrap_or_else(PoisonError::into_inner).take(number, at);
        }
        let delay = delay.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        let body = format!("{{\"id\":\"m{:08}\"}}", number.unwrap_or(0));
        let head = "HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ncontent-length: ";
        wire.write(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    }
    Ok(())
}

/// The number of a message: the digits with which its text begins.
fn number_in(body: &[u8]) -> Option<u64> {
    const BEFORE: &[u8] = b"\"text\":\"";
    let start = body.windows(BEFORE.len()).position(|part| part == BEFORE)? + BEFORE.len();
    std::str::from_utf8(body.get(start..start + 8)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_message_counts_once_and_a_repeat_is_seen() {
        let sink = Sink::start().await.expect("a port");
        sink.reset(7);
        sink.posted(8, Duration::ZERO);
        let mut wire = Wire::connect(sink.port()).await.expect("connected");
        for number in [6, 7, 8, 8] {
            let body = format!("{{\"ref\":\"r\",\"text\":\"{number:08} is your code\"}}");
            let request = format!("POST /messages HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            assert_eq!(wire.exchange(request.as_bytes()).await.expect("answered"), 202);
            assert_eq!(wire.body(), format!("{{\"id\":\"m{number:08}\"}}").as_bytes());
        }
        let received = sink.received();
        assert_eq!((received.messages, received.twice, received.from_post.total()), (2, 1, 1));
        assert_eq!(sink.recent(5), [8, 7]);
    }
}
