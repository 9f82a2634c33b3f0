//! Providers that keep a true account of what they took, whatever they answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::daemon::{Daemon, Plan, Strategy, reference};
use crate::support::http_oracle::{HttpOracle, Post, Reply, Seen};
use crate::support::smtp_oracle::{Act, Script, SmtpOracle, Stage};

/// A provider, by what it can tell after a lost answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It answers look-ups.
    Lookup,
    /// It knows the same request again.
    Dedupe,
    /// It sends receipts.
    Receipts,
    /// It tells nothing.
    Silent,
    /// It takes mail, and tells nothing.
    Relay,
}

impl Kind {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Lookup, Self::Dedupe, Self::Receipts, Self::Silent, Self::Relay];

    /// Its name in the configuration, and in the path of its URL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Dedupe => "dedupe",
            Self::Receipts => "receipts",
            Self::Silent => "silent",
            Self::Relay => "relay",
        }
    }

    const fn strategies(self) -> &'static [Strategy] {
        match self {
            Self::Lookup => &[Strategy::Lookup],
            Self::Dedupe => &[Strategy::Dedupe],
            Self::Receipts => &[Strategy::Receipts],
            Self::Silent | Self::Relay => &[],
        }
    }

    const fn country(self) -> Option<&'static str> {
        match self {
            Self::Lookup => Some("GB"),
            Self::Dedupe => Some("US"),
            Self::Receipts => Some("FR"),
            Self::Silent => Some("DE"),
            Self::Relay => None,
        }
    }

    /// Address number `n` of those that go to it.
    pub fn address(self, n: usize) -> String {
        match self {
            Self::Lookup => format!("+447400{:06}", 100_000 + n),
            Self::Dedupe => format!("+1202{:03}{:04}", 234 + n / 10_000, n % 10_000),
            Self::Receipts => format!("+33612{n:06}"),
            Self::Silent => format!("+4915112{n:06}"),
            Self::Relay => format!("user{n}@customer.example"),
        }
    }

    /// The channel of its addresses.
    pub const fn channel(self) -> &'static str {
        match self {
            Self::Relay => "email",
            _ => "sms",
        }
    }

    /// The one that a request is for.
    pub fn of(seen: &Seen) -> Self {
        let name = seen.path.split('/').nth(1).unwrap_or_default();
        Self::ALL.into_iter().find(|kind| kind.name() == name).expect("a provider")
    }
}

/// What becomes of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    /// Taken, and said so.
    Take,
    /// Taken, and the answer is lost.
    TakeAndClose,
    /// Taken, with a server's fault for an answer.
    TakeAndFail,
    /// Not taken, and the answer is lost.
    Lose,
    /// Not taken, with a server's fault for an answer.
    Fail,
    /// Not taken now.
    Busy,
    /// Not taken for so many seconds.
    BusyFor(&'static str),
    /// Not taken ever.
    Refuse,
}

impl Play {
    const fn takes(self) -> bool {
        matches!(self, Self::Take | Self::TakeAndClose | Self::TakeAndFail)
    }

    fn draw(dice: &mut StdRng) -> Self {
        match dice.random_range(0..100) {
            0..64 => Self::Take,
            64..71 => Self::TakeAndClose,
            71..77 => Self::TakeAndFail,
            77..84 => Self::Lose,
            84..90 => Self::Fail,
            90..96 => Self::Busy,
            _ => Self::Refuse,
        }
    }
}

/// A message that was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    pub kind: Kind,
    pub to: String,
    reference: String,
}

#[derive(Default)]
struct Book {
    taken: Vec<Taken>,
    /// Bodies by the key under which they came first, and whether that one was taken.
    keys: BTreeMap<String, (Vec<u8>, bool)>,
    mismatches: usize,
    next: Option<(Kind, Play)>,
}

/// The providers.
pub struct Vendor {
    pub http: HttpOracle,
    pub mail: SmtpOracle,
    book: Arc<Mutex<Book>>,
    gate: watch::Sender<bool>,
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Vendor {
    /// Starts them; `dice` say what becomes of each message, or else all are taken.
    pub async fn start(dice: Option<StdRng>) -> Self {
        Self::start_slow(dice, Duration::ZERO).await
    }

    /// The same, where each answer over HTTP takes so long.
    pub async fn start_slow(dice: Option<StdRng>, wait: Duration) -> Self {
        let (http, mail) = (HttpOracle::start().await, SmtpOracle::start(Script::plain()).await);
        let (book, gate) = (Arc::<Mutex<Book>>::default(), watch::Sender::new(true));
        let (shared, opening, dice) = (book.clone(), gate.clone(), Mutex::new(dice));
        http.script(move |seen| {
            let mut dice = dice.lock().unwrap_or_else(PoisonError::into_inner);
            let reply = lock(&shared).answer(seen, dice.as_mut()).gated(&opening);
            if wait.is_zero() { reply } else { reply.late(wait) }
        });
        Self { http, mail, book, gate }
    }

    /// A plan of a daemon that sends by all of them; a call over HTTP ends after a second.
    pub fn plan(&self, plan: Plan) -> Plan {
        self.plan_with(plan, "timeout = \"1s\"")
    }

    /// The same with these lines of the section of each provider over HTTP.
    pub fn plan_with(&self, plan: Plan, lines: &str) -> Plan {
        // A breaker would only hold up what is to happen.
        let breaker = "breaker = { failures = 1000, open_for = \"1s\" }";
        let relay = format!("final_timeout = \"1s\"\n{breaker}");
        let lines = format!("{lines}\n{breaker}");
        let mut plan = plan.sms(&["lookup"]).relay_in_clear(self.mail.addr().port(), &relay);
        for (kind, country) in Kind::ALL.into_iter().filter_map(|kind| Some((kind, kind.country()?))) {
            let name = kind.name();
            plan = plan.http_with(name, &format!("{}/{name}", self.http.url()), kind.strategies(), &lines);
            plan = plan.toml(&format!("[[routes.rule]]\ncountries = [\"{country}\"]\nsms = [\"{name}\"]"));
        }
        plan
    }

    /// Decides what becomes of the next message at `kind`.
    pub fn next(&self, kind: Kind, play: Play) {
        lock(&self.book).next = Some((kind, play));
    }

    /// Every answer over HTTP waits until [`Vendor::open`].
    pub fn shut(&self) {
        self.gate.send_replace(false);
    }

    /// Answers come again.
    pub fn open(&self) {
        self.gate.send_replace(true);
    }

    /// The relay does `act` the next time at `stage`, and nothing else that it was told before.
    pub fn relay(&self, act: Option<(Stage, Act)>) {
        self.mail.play(act.into_iter().fold(Script::plain(), |script, (stage, act)| script.once(stage, act)));
    }

    /// All that was taken.
    pub fn taken(&self) -> Vec<Taken> {
        let mail = self.mail.messages().into_iter().flat_map(|message| message.to);
        let mail = mail.map(|to| Taken { kind: Kind::Relay, to, reference: String::new() });
        lock(&self.book).taken.iter().cloned().chain(mail).collect()
    }

    /// How many messages were taken for each address.
    pub fn copies(&self) -> BTreeMap<String, usize> {
        let mut copies = BTreeMap::new();
        for taken in self.taken() {
            *copies.entry(taken.to).or_default() += 1;
        }
        copies
    }

    /// How many requests came under a key that had come with another body.
    pub fn mismatches(&self) -> usize {
        lock(&self.book).mismatches
    }

    /// The receipts for all that was taken by the one that sends them.
    pub fn receipts(&self, daemon: &Daemon) -> Vec<Post> {
        let taken = self.taken().into_iter().filter(|taken| taken.kind == Kind::Receipts);
        let fields = taken.map(|taken| json!({ "ref": taken.reference, "status": "delivered" }));
        fields.map(|fields| daemon.receipt(Kind::Receipts.name(), &fields)).collect()
    }
}

impl Book {
    fn answer(&mut self, seen: &Seen, dice: Option<&mut StdRng>) -> Reply {
        let kind = Kind::of(seen);
        if seen.method == "GET" {
            return self.look_up(seen);
        }
        if let Some((body, taken)) = seen.header("idempotency-key").and_then(|key| self.keys.get(key)) {
            self.mismatches += usize::from(*body != seen.body);
            if *taken {
                return Reply::json(200, json!({ "id": "m0" }));
            }
        }
        let told = self.next.take_if(|(of, _)| *of == kind).map(|(_, play)| play);
        let play = told.unwrap_or_else(|| dice.map_or(Play::Take, Play::draw));
        if let Some(key) = seen.header("idempotency-key") {
            self.keys.insert(key.to_owned(), (seen.body.clone(), play.takes()));
        }
        if play.takes() {
            let to = seen.json()["to"].as_str().unwrap_or_default().to_owned();
            self.taken.push(Taken { kind, to, reference: reference(seen) });
        }
        match play {
            Play::Take => Reply::json(201, json!({ "id": format!("m{}", self.taken.len()) })),
            Play::TakeAndClose | Play::Lose => Reply::Close,
            Play::TakeAndFail | Play::Fail => Reply::json(500, "{}"),
            Play::Busy => Reply::json(429, "{}"),
            Play::BusyFor(seconds) => Reply::json(429, "{}").header("Retry-After", seconds),
            Play::Refuse => Reply::json(400, "{}"),
        }
    }

    fn look_up(&self, seen: &Seen) -> Reply {
        let found = self.taken.iter().filter(|taken| seen.path.ends_with(&format!("ref={}", taken.reference)));
        let messages: Vec<Value> = found.map(|taken| json!({ "ref": taken.reference, "id": "m0" })).collect();
        Reply::json(200, json!({ "messages": messages }))
    }
}
