//! The loop: events are posted, the daemon is killed at a moment that dice or the list of points choose, and starts again.
//! `SENDONCE_TEST_ROUNDS` says how many times on each store, `SENDONCE_TEST_SEED` how the dice fall.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};
use reqwest::Method;
use serde_json::{Value, json};

use super::points::{Point, Trap};
use super::reckoning::{Counts, Promise, decide, reckon};
use super::vendor::{Kind, Vendor};
use crate::support::daemon::{Answer, Daemon, Place, Plan, TABLES, event_to, wait};
use crate::support::dice;
use crate::support::http_oracle::post;

/// Names that a node of a server takes in turn: the lease of the one before runs on.
const NAMES: usize = 16;
/// After so many rounds an operator looks into the queue of unknowns.
const OPERATOR_COMES: usize = 25;
/// A look-up that died with the daemon is asked again half a minute later; an operator looks so often before he no longer
/// waits for it.
const LOOKS: usize = 60;

/// An event, and the 202 that it got.
struct Event {
    body: Value,
    to: String,
    id: Option<String>,
}

struct Game {
    place: Place,
    daemon: Arc<Daemon>,
    vendor: Vendor,
    trap: Arc<Trap>,
    dice: StdRng,
    events: BTreeMap<String, Event>,
    boots: usize,
    acknowledged: AtomicUsize,
}

impl Game {
    async fn start(place: Place) -> Self {
        let mut dice = dice::dice();
        let vendor = Vendor::start(Some(StdRng::from_rng(&mut dice))).await;
        let lines = "drain_timeout = \"1s\"\nmax_attempts = 20";
        let plan = Plan::new().section("dispatch", lines).section("store", "busy_timeout = \"300ms\"");
        let daemon = Arc::new(Daemon::start(place.plan(vendor.plan(plan))).await);
        let trap = Arc::new(Trap::new(daemon.clone()));
        let told = trap.clone();
        vendor.http.witness(move |moment, seen| told.reached(moment, seen));
        let (events, acknowledged) = (BTreeMap::new(), AtomicUsize::new(0));
        Self { place, daemon, vendor, trap, dice, events, boots: 0, acknowledged }
    }

    /// One event for each provider, and one more of a user who is among them.
    fn more_events(&mut self) {
        let first = self.events.len();
        for n in 0..=Kind::ALL.len() {
            let kind = *Kind::ALL.get(n).unwrap_or(&Kind::Silent);
            let (name, to) = (format!("crash-{:05}", first + n), kind.address(first + n));
            let mut body = event_to(&name, json!([{ kind.channel(): &to }]), json!({ "code": "493021" }));
            body["expires_in"] = 3600.into();
            body["user"] = format!("user-{first}-{}", n % Kind::ALL.len()).into();
            if kind == Kind::Silent {
                body["user"] = format!("user-{first}").into();
            }
            self.events.insert(name, Event { body, to, id: None });
        }
    }

    /// Posts what has no 202 yet, all at once, as apps do that were told to repeat.
    async fn post_all(&self) -> Vec<(String, Option<Answer>)> {
        let waiting = self.events.iter().filter(|(_, event)| event.id.is_none());
        let posts = waiting.map(async |(name, event)| {
            let answer = self.daemon.try_call(Method::POST, "/v1/notifications", Some(name), Some(&event.body)).await;
            if answer.as_ref().is_some_and(|answer| answer.status == 202) {
                self.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            (name.clone(), answer)
        });
        futures_util::future::join_all(posts).await
    }

    fn note(&mut self, answers: Vec<(String, Option<Answer>)>) {
        for (name, answer) in answers {
            match answer {
                Some(answer) if answer.status == 202 => {
                    self.events.get_mut(&name).expect("an event").id = Some(answer.id());
                }
                // A 202 whose body did not come whole is none.
                Some(answer) => assert_eq!(answer.status, 503, "{name}: {answer:?}"),
                None => {}
            }
        }
    }

    async fn round(&mut self, point: Point) {
        self.more_events();
        self.acknowledged.store(0, Ordering::SeqCst);
        if let Some((kind, play)) = point.bait() {
            self.vendor.next(kind, play);
        }
        self.vendor.relay(point.relay());
        if matches!(point, Point::ResultHeld | Point::Draining | Point::StoppedTooSoon) {
            self.vendor.shut();
        }
        let table = TABLES.choose(&mut self.dice).expect("a table");
        let held = match point {
            Point::CommitHeld => Some(self.place.hold(&self.daemon, table).await),
            _ => None,
        };
        let delay = Duration::from_millis(self.dice.random_range(0..150));
        self.trap.set(point);
        let (answers, ()) = tokio::join!(self.post_all(), self.kill(point, delay));
        if let Some(held) = held {
            held.release().await;
        }
        self.vendor.open();
        self.note(answers);
        if matches!(self.place, Place::Server(_)) && self.dice.random_range(0..16) > 0 {
            let name = |boot: usize| format!("name = \"n{}\"", boot % NAMES);
            self.daemon.reconfigure(&name(self.boots), &name(self.boots + 1));
            self.boots += 1;
        }
        self.daemon.launch().await;
    }

    /// Comes back when the process is dead.
    async fn kill(&self, point: Point, delay: Duration) {
        let daemon = &self.daemon;
        let sends = self.vendor.http.requests().len();
        let sends_more = async || self.vendor.http.requests().len() > sends;
        match point {
            Point::AnyTime => {
                tokio::time::sleep(delay).await;
                daemon.kill9();
            }
            Point::HalfPosted | Point::Posted => {
                let event = self.events.values().next_back().expect("an event");
                let request = daemon.request(&event.body);
                let length = if point == Point::Posted { request.len() } else { request.len() / 2 };
                let _open = daemon.write(&request[..length]).await;
                daemon.kill9();
            }
            Point::Acknowledged => {
                self.first_acknowledged().await;
                daemon.kill9();
            }
            Point::CommitHeld => {
                self.place.somebody_waits(daemon).await;
                daemon.kill9();
            }
            Point::ResultHeld => {
                wait("a message is with a provider", sends_more).await;
                let held = self.place.hold(daemon, "log").await;
                self.vendor.open();
                wait("its result waits", async || daemon.readyz().await == 503).await;
                daemon.kill9();
                held.release().await;
            }
            Point::ReceiptWritten => {
                wait("one was taken", async || !self.vendor.receipts(daemon).is_empty()).await;
                let receipts = self.vendor.receipts(daemon);
                let last = receipts.last().expect("a receipt");
                let (path, length) = (last.url.replace(&daemon.url(), ""), last.body.len());
                let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
                let _open = daemon.write(&[head.as_bytes(), &last.body].concat()).await;
                daemon.kill9();
            }
            Point::MailRead | Point::DataRead => {
                let verb = if point == Point::MailRead { "MAIL" } else { "DATA" };
                let count = || self.vendor.mail.commands().iter().filter(|command| *command == verb).count();
                let before = count();
                wait("the relay has read it", async || count() > before).await;
                daemon.kill9();
            }
            Point::DotRead | Point::DotHalfAnswered => {
                let before = self.vendor.mail.messages().len();
                wait("the relay has read it", async || self.vendor.mail.messages().len() > before).await;
                daemon.kill9();
            }
            Point::Starting => {
                self.first_acknowledged().await;
                daemon.kill9();
                daemon.spawn();
                tokio::time::sleep(delay).await;
                daemon.kill9();
            }
            Point::Draining => {
                wait("a message is with a provider", sends_more).await;
                daemon.sigterm();
                wait("it drains", async || daemon.readyz().await == 503).await;
                daemon.kill9();
            }
            Point::Stopped | Point::StoppedTooSoon => {
                if point == Point::Stopped {
                    self.first_acknowledged().await;
                } else {
                    wait("a message is with a provider", sends_more).await;
                }
                daemon.sigterm();
                assert!(matches!(daemon.ended().await, Some(0 | 1)), "it ends by itself");
            }
            _ => self.trap.sprung().await,
        }
    }

    async fn first_acknowledged(&self) {
        wait("a 202", async || self.acknowledged.load(Ordering::SeqCst) > 0).await;
    }

    /// Everything comes to its end: apps repeat, receipts come, and an operator looks into the providers' account.
    async fn settle(&mut self) {
        self.vendor.relay(None);
        wait("every event is acknowledged", async || {
            let answers = self.post_all().await;
            self.note(answers);
            self.events.values().all(|event| event.id.is_some())
        })
        .await;
        let promises = self.promises();
        let mut looks = 0;
        wait("nothing is live", async || {
            looks += 1;
            for receipt in self.vendor.receipts(&self.daemon) {
                assert_eq!(post(&receipt).await, 200);
            }
            decide(&self.daemon, &self.vendor, &promises, looks > LOOKS).await;
            self.daemon.get("/v1/audit/account").await.json()["counts"]["live"] == 0
        })
        .await;
    }

    fn promises(&self) -> BTreeMap<String, Promise> {
        let promise = |event: &Event| Promise { id: event.id.clone().expect("a 202"), to: event.to.clone() };
        self.events.iter().map(|(name, event)| (name.clone(), promise(event))).collect()
    }
}

async fn play(place: Place) {
    let rounds = dice::rounds(25);
    let mut game = Game::start(place).await;
    let mut order = vec![];
    for round in 0..rounds {
        if order.is_empty() {
            order = Point::ALL.to_vec();
            order.shuffle(&mut game.dice);
        }
        let point = order.pop().expect("a point");
        println!("round {round}: {point:?}");
        game.round(point).await;
        if round % OPERATOR_COMES == OPERATOR_COMES - 1 {
            game.settle().await;
        }
    }
    game.settle().await;
    let counts = reckon(&game.daemon, &game.vendor, &game.promises()).await;
    println!("after {rounds} rounds: {counts:?}");
    let wanted = Counts { acknowledged: game.events.len(), sent: counts.sent, ..Counts::default() };
    assert_eq!(counts, wanted, "none lost, none sent twice");
    assert_eq!(game.trap.missed(), [], "every moment comes");
    assert!(counts.sent * 2 > counts.acknowledged, "most are sent");
}

#[tokio::test]
async fn a_daemon_killed_at_every_point_loses_nothing_and_sends_nothing_twice() {
    play(Place::File).await;
}

#[tokio::test]
async fn a_daemon_on_postgres_killed_at_every_point_loses_nothing_and_sends_nothing_twice() {
    play(Place::server().await).await;
}
