//! The load: keep-alive connections that post or read, as fast as they are answered or at a rate.

use std::collections::BTreeMap;
use std::io;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::histogram::Histogram;
use super::now;
use super::wire::Wire;

/// Writes the request with a number.
pub(super) type Maker = Arc<dyn Fn(u64, &mut Vec<u8>) + Send + Sync>;

/// Where requests go, and which.
#[derive(Clone)]
pub(super) struct Load {
    /// The API's port.
    pub port: u16,
    /// How many connections; at least 1.
    pub connections: usize,
    /// Writes requests.
    pub maker: Maker,
    /// The next number; shared by all loads of a run, so that no event comes twice.
    pub numbers: Arc<AtomicU64>,
}

/// What came of a load.
#[derive(Clone, Debug, Default)]
pub(super) struct Answered {
    /// Answers by status, the warm-up's included.
    pub statuses: BTreeMap<u16, u64>,
    /// Answers of the time that counts.
    pub counted: u64,
    /// That time.
    pub time: Duration,
    /// How long those answers took.
    pub took: Histogram,
}

impl Answered {
    fn add(&mut self, status: u16, counts: bool, took: Duration) {
        *self.statuses.entry(status).or_default() += 1;
        if counts {
            self.counted += 1;
            self.took.add(took);
        }
    }

    fn merge(&mut self, other: &Self) {
        other.statuses.iter().for_each(|(status, count)| *self.statuses.entry(*status).or_default() += count);
        self.counted += other.counted;
        self.took.merge(&other.took);
    }

    /// Answers a second.
    pub fn rate(&self) -> f64 {
        self.counted as f64 / self.time.as_secs_f64().max(1e-6)
    }

    /// How many answers had this status.
    pub fn of(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    /// How many answers had another status than this one.
    pub fn other_than(&self, status: u16) -> u64 {
        self.statuses.values().sum::<u64>() - self.of(status)
    }
}

/// How long a closed loop goes on.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// A warm-up that does not count, and the time that does.
    Time(Duration, Duration),
    /// So many requests; all count.
    Count(u64),
}

async fn gather(tasks: JoinSet<io::Result<Answered>>) -> io::Result<Answered> {
    let mut all = Answered::default();
    for one in tasks.join_all().await {
        all.merge(&one?);
    }
    Ok(all)
}

/// Each connection sends its next request when the last one is answered.
pub(super) async fn closed(load: &Load, until: Until) -> io::Result<Answered> {
    let start = now();
    let (from, end, last) = match until {
        Until::Time(warm_up, time) => (start + warm_up, start + warm_up + time, u64::MAX),
        Until::Count(count) => (start, Duration::MAX, load.numbers.load(Ordering::Relaxed).saturating_add(count)),
    };
    let mut tasks = JoinSet::new();
    for _ in 0..load.connections.max(1) {
        let load = load.clone();
        tasks.spawn(async move {
            let (mut wire, mut request) = (Wire::connect(load.port).await?, vec![]);
            let mut answered = Answered::default();
            loop {
                let began = now();
                let next = |n| (n < last && began < end).then_some(n + 1);
                let Ok(number) = load.numbers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) else {
                    return Ok(answered);
                };
                request.clear();
                (load.maker)(number, &mut request);
                let status = wire.exchange(&request).await?;
                let ended = now();
                answered.add(status, ended >= from && ended < end, ended.saturating_sub(began));
            }
        });
    }
    let all = gather(tasks).await?;
    Ok(Answered { time: if end == Duration::MAX { now().saturating_sub(start) } else { end - from }, ..all })
}

/// Requests fall due at even intervals, whatever becomes of those before; each is timed from the moment at which it was
/// due, so that a stall counts for all that it holds up. `posted` hears of each before it leaves.
pub(super) async fn open(
    load: &Load,
    rate: u32,
    (warm_up, time): (Duration, Duration),
    posted: Arc<dyn Fn(u64, Duration) + Send + Sync>,
) -> io::Result<Answered> {
    let start = now() + Duration::from_millis(20);
    let from = start + warm_up;
    let (due, queue) = mpsc::unbounded_channel();
    let interval = Duration::from_secs(1) / rate.max(1);
    let count = u32::try_from((warm_up + time).as_nanos() / interval.as_nanos().max(1)).unwrap_or(u32::MAX);
    // A thread of its own: the runtime's timer knows whole milliseconds only.
    let pacer = std::thread::spawn(move || {
        for at in (0..count).map(|n| start + interval * n) {
            std::thread::sleep(at.saturating_sub(now()));
            if due.send(at).is_err() {
                return;
            }
        }
    });
    let queue = Arc::new(Mutex::new(queue));
    let mut tasks = JoinSet::new();
    for _ in 0..load.connections.max(1) {
        let (load, queue, posted) = (load.clone(), queue.clone(), posted.clone());
        tasks.spawn(async move {
            let (mut wire, mut request) = (Wire::connect(load.port).await?, vec![]);
            let mut answered = Answered::default();
            loop {
                let next = queue.lock().await.recv().await;
                let Some(at) = next else { return Ok(answered) };
                let number = load.numbers.fetch_add(1, Ordering::Relaxed);
                posted(number, at);
                request.clear();
                (load.maker)(number, &mut request);
                let status = wire.exchange(&request).await?;
                answered.add(status, at >= from, now().saturating_sub(at));
            }
        });
    }
    drop(queue);
    let all = gather(tasks).await;
    // It has ended, or ends at its next step, because nobody listens any more.
    let _ended = pacer.join();
    Ok(Answered { time: time.max(now().saturating_sub(from)), ..all? })
}

/// Names the events of one run as no other run does.
#[derive(Clone, Copy)]
pub(super) struct Events(u32);

impl Events {
    pub fn new() -> Self {
        Self(rand::random())
    }

    /// The id of the event with a number. No part of it is as long as the code that the message holds.
    pub fn id(self, number: u64) -> String {
        format!("e{:06x}.{number:x}", self.0 >> 8)
    }
}

/// Requests that post events, each of a person of its own.
pub(super) fn posts(key: &str, events: Events) -> Maker {
    let head = format!(
        "POST /v1/notifications HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\n"
    );
    Arc::new(move |number, out| {
        // The text of the message begins with the code, which is how the sink knows the event.
        let event = events.id(number);
        let body = format!(
            "{{\"event_id\":\"{event}\",\"kind\":\"password_reset\",\"to\":{{\"sms\":\"+447911{:06}\"}},\
             \"locale\":\"en\",\"data\":{{\"code\":\"{number:08}\"}},\"user\":\"{event}\",\"expires_in\":3600}}",
            number % 1_000_000
        );
        // Memory takes whatever is written to it.
        let _infallible = write!(out, "{head}idempotency-key: {event}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    })
}

/// A request that reads `path`, with one more header line or none.
pub(super) fn get(path: &str, key: &str, line: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n{line}\r\n")
}
