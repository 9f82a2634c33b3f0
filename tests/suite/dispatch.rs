//! The dispatcher against a ledger that fails at will and providers that do as they are told.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sendonce::clock::{Clock as _, ManualClock};
use sendonce::dispatch::breaker::Standing;
use sendonce::dispatch::{Dispatcher, Drained, LaneSettings, Parts, Router, Settings};
use sendonce::domain::content::Channel;
use sendonce::domain::ids::{Kind, NotificationId, ProviderName};
use sendonce::domain::outcome::{LookupAnswer, Outcome, OutcomeClass, Reason};
use sendonce::domain::route::{Route, RouteTable, Scope};
use sendonce::ledger::{Question, Routes as _, RoutingKey};
use sendonce::metrics::Metrics;
use sendonce::provider::Provider;

use crate::support::desk::{NOW, Page, Play, Puppet, claim, leg, lookup, name};

const SOON: Duration = Duration::from_secs(10);

struct House {
    page: Arc<Page>,
    router: Arc<Router>,
    clock: Arc<ManualClock>,
    dispatcher: Dispatcher,
}

fn house(puppets: &[&Arc<Puppet>], concurrency: u32) -> House {
    let page = Arc::new(Page::default());
    let clock = ManualClock::at(NOW);
    let lane = LaneSettings { concurrency, ..LaneSettings::default() };
    let providers = puppets.iter().map(|p| ((*p).clone() as Arc<dyn Provider>, lane)).collect();
    let mut routes = RouteTable::default();
    let all = Scope { channel: Channel::Email, kind: None, country: None };
    routes.insert(all, Route::in_order(puppets.iter().map(|p| p.name().clone())));
    let router = Arc::new(Router::new(clock.clone(), providers, routes).expect("routes that fit"));
    let dispatcher = Dispatcher::start(Parts {
        desk: page.clone(),
        router: router.clone(),
        clock: clock.clone(),
        metrics: Metrics::default(),
        settings: Settings { poll: Duration::from_millis(10), ..Settings::default() },
        draw: || 0.5,
    });
    House { page, router, clock, dispatcher }
}

fn with_key<T>(read: impl FnOnce(&RoutingKey<'_>) -> T) -> T {
    let kind = Kind::parse("password_reset").expect("a kind");
    read(&RoutingKey { id: NotificationId::from_bytes([1; 16]), kind: &kind, leg: &leg() })
}

impl House {
    fn first(&self) -> Option<ProviderName> {
        with_key(|key| self.router.first(key))
    }

    fn after(&self, provider: &ProviderName) -> Option<ProviderName> {
        with_key(|key| self.router.after(key, provider))
    }
}

/// Waits until `condition` holds; a test that waits in vain says for what.
async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("waited in vain until {what}");
}

fn accepted() -> Play {
    Play::Answer(Outcome::accepted(None))
}

fn refused(reason: Reason) -> Play {
    Play::Answer(Outcome::new(OutcomeClass::RefusedAccount, reason))
}

#[tokio::test]
async fn every_due_message_is_sent_once_and_never_more_at_a_time_than_allowed() {
    let puppet = Puppet::new("a", accepted());
    let house = house(&[&puppet], 3);
    house.page.add(puppet.name(), 1..=200);
    until("all are settled", || house.page.settled().len() == 200).await;
    let mut sent = puppet.sent();
    sent.sort_unstable();
    assert_eq!(sent, (1..=200).collect::<Vec<u8>>());
    assert!(puppet.most.load(Ordering::SeqCst) <= 3);
}

#[tokio::test]
async fn a_panic_is_one_unknown_attempt_and_the_lane_goes_on() {
    let puppet = Puppet::new("a", Play::Panic);
    let house = house(&[&puppet], 2);
    house.page.add(puppet.name(), 1..=20);
    until("all are settled", || house.page.settled().len() == 20).await;
    assert!(house.page.settled().iter().all(|(_, outcome)| *outcome == Outcome::unknown(Reason::Panicked)));
    puppet.tell(accepted());
    house.page.add(puppet.name(), [21]);
    until("the next is accepted", || {
        house.page.settled().iter().any(|(n, o)| *n == 21 && *o == Outcome::accepted(None))
    })
    .await;
}

#[tokio::test]
async fn a_result_that_cannot_be_stored_is_written_again_and_nothing_new_is_sent_meanwhile() {
    let puppet = Puppet::new("a", accepted());
    let house = house(&[&puppet], 1);
    house.page.settle_fails.store(true, Ordering::SeqCst);
    house.page.add(puppet.name(), [1]);
    until("the write has failed", || house.dispatcher.view().unstored == 1).await;
    house.page.add(puppet.name(), [2, 3]);
    let claims = house.page.claims.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!((puppet.sent(), house.page.claims.load(Ordering::SeqCst)), (vec![1], claims));
    assert!(!house.dispatcher.view().is_ready());
    house.page.settle_fails.store(false, Ordering::SeqCst);
    until("all are settled", || house.page.settled().len() == 3).await;
    assert_eq!(puppet.sent(), [1, 2, 3], "the write was repeated, never the send");
    assert!(house.dispatcher.view().is_ready());
}

#[tokio::test]
async fn a_provider_that_hangs_holds_no_other_up() {
    let (slow, quick) = (Puppet::new("slow", Play::Hang), Puppet::new("quick", accepted()));
    let house = house(&[&slow, &quick], 2);
    house.page.add(slow.name(), 1..=100);
    house.page.add(quick.name(), 101..=110);
    until("the quick ones are settled", || house.page.settled().len() == 10).await;
    assert_eq!(slow.sent().len(), 2, "no more is claimed than may run");
    slow.let_go.send_replace(true);
    until("all are settled", || house.page.settled().len() == 110).await;
}

#[tokio::test]
async fn refused_credentials_stop_the_lane_until_one_trial_succeeds() {
    let puppet = Puppet::new("a", refused(Reason::BadCredentials));
    let house = house(&[&puppet], 1);
    house.page.add(puppet.name(), 1..=5);
    until("the breaker is open", || house.dispatcher.view().lanes[0].breaker == Standing::Open).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((puppet.sent().len(), house.page.left(puppet.name())), (1, 4));
    assert!(house.router.is_open(puppet.name()));
    puppet.tell(accepted());
    house.clock.advance(Duration::from_secs(6));
    until("the rest is settled", || house.page.settled().len() == 5).await;
    assert_eq!(house.dispatcher.view().lanes[0].breaker, Standing::Closed);
}

#[tokio::test]
async fn what_waits_at_an_open_breaker_moves_to_the_next_provider() {
    let (first, second) = (Puppet::new("a", refused(Reason::NoCredit)), Puppet::new("b", accepted()));
    let house = house(&[&first, &second], 1);
    assert_eq!(house.first(), Some(name("a")));
    house.page.add(first.name(), 1..=5);
    until("the rest has moved", || house.page.moved.lock().expect("moved").len() == 4).await;
    assert_eq!(house.first(), Some(name("b")));
    assert_eq!(house.after(first.name()), Some(name("b")));
    assert_eq!(house.after(second.name()), None);
    house.clock.advance(Duration::from_secs(6));
    assert_eq!(house.first(), Some(name("a")), "one may try whether it works again");
    assert_eq!(house.first(), Some(name("b")), "only one");
}

#[tokio::test]
async fn a_rate_limit_pauses_the_lane_for_as_long_as_the_provider_says() {
    let limited = Outcome { retry_after: Some(Duration::from_secs(30)), ..Outcome::not_sent(Reason::RateLimited) };
    let puppet = Puppet::new("a", Play::Answer(limited));
    let house = house(&[&puppet], 1);
    house.page.add(puppet.name(), 1..=3);
    until("the first is settled", || house.page.settled().len() == 1).await;
    puppet.tell(accepted());
    house.clock.advance(Duration::from_secs(29));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(puppet.sent(), [1]);
    assert_eq!(house.dispatcher.view().lanes[0].breaker, Standing::Closed);
    house.clock.advance(Duration::from_secs(1));
    until("the rest is settled", || house.page.settled().len() == 3).await;
}

#[tokio::test]
async fn a_message_that_does_not_open_never_begins() {
    let puppet = Puppet::new("a", accepted());
    let house = house(&[&puppet], 1);
    house.page.keys_are_gone.store(true, Ordering::SeqCst);
    house.page.add(puppet.name(), [1]);
    until("it is settled", || house.page.settled() == [(1, Outcome::never_began(Reason::UnsealFailed))]).await;
    assert!(puppet.sent().is_empty());
}

#[tokio::test]
async fn an_unknown_is_looked_up_or_repeated_and_a_panic_of_the_look_up_says_nothing() {
    let puppet = Puppet::new("a", accepted());
    let house = house(&[&puppet], 2);
    let probe = Question::Probe(Box::new(claim(puppet.name(), 2, true)));
    house.page.questions.lock().expect("questions").extend([lookup(puppet.name(), 1), probe]);
    let answers = || house.page.answers.lock().expect("answers").clone();
    until("both are stored", || answers().len() + house.page.settled().len() == 2).await;
    assert_eq!(answers(), [LookupAnswer::Found { message_id: None, delivery: None }]);
    assert_eq!(house.page.settled(), [(2, Outcome::accepted(None))]);
    puppet.tell(Play::Panic);
    house.page.questions.lock().expect("questions").push(lookup(puppet.name(), 3));
    until("it is answered", || answers().len() == 2).await;
    assert_eq!(answers()[1], LookupAnswer::Unreadable);
}

#[tokio::test]
async fn a_drain_claims_nothing_and_waits_for_what_runs() {
    let puppet = Puppet::new("a", Play::Hang);
    let house = house(&[&puppet], 2);
    house.page.add(puppet.name(), 1..=10);
    until("two run", || puppet.sent().len() == 2).await;
    let let_go = puppet.let_go.clone();
    let go = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let_go.send_replace(true);
    });
    let drained = house.dispatcher.drain(SOON).await;
    assert_eq!(drained, Drained { complete: true, given_up: 0, unstored: 0 });
    assert!(house.page.settled().iter().all(|(_, outcome)| *outcome == Outcome::accepted(None)));
    assert_eq!((puppet.sent().len(), house.page.settled().len(), house.page.left(puppet.name())), (2, 2, 8));
    go.await.expect("the hand that let go");
}

#[tokio::test]
async fn what_outlasts_the_drain_is_stored_as_unknown_before_it_ends() {
    let puppet = Puppet::new("a", Play::Hang);
    let house = house(&[&puppet], 2);
    house.page.add(puppet.name(), [1, 2]);
    until("two run", || puppet.sent().len() == 2).await;
    let drained = house.dispatcher.drain(Duration::from_millis(50)).await;
    assert_eq!(drained, Drained { complete: false, given_up: 2, unstored: 0 });
    let settled = house.page.settled();
    assert_eq!(settled.len(), 2);
    assert!(settled.iter().all(|(_, outcome)| *outcome == Outcome::unknown(Reason::ProcessDied)));
}

#[tokio::test]
async fn a_claim_that_comes_back_into_a_drain_is_released_unsent() {
    let puppet = Puppet::new("a", accepted());
    let house = house(&[&puppet], 2);
    house.page.claim_waits.store(true, Ordering::SeqCst);
    house.page.add(puppet.name(), [1, 2]);
    until("a claim is under way", || house.page.claims.load(Ordering::SeqCst) == 1).await;
    let page = house.page.clone();
    let go = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        page.claim_goes_on.notify_one();
    });
    assert!(house.dispatcher.drain(SOON).await.complete);
    go.await.expect("the hand that let go");
    assert!(puppet.sent().is_empty());
    let settled = house.page.settled();
    assert_eq!(settled.len(), 2);
    assert!(settled.iter().all(|(_, outcome)| *outcome == Outcome::never_began(Reason::Draining)));
}

#[tokio::test]
async fn a_jump_of_the_wall_clock_stops_the_lanes() {
    let puppet = Puppet::new("a", accepted());
    let house = house(&[&puppet], 2);
    until("the clock is believed", || house.dispatcher.view().clock_steady).await;
    house.clock.set_wall(house.clock.now().plus(Duration::from_secs(3600)));
    until("the clock is not believed", || !house.dispatcher.view().clock_steady).await;
    house.page.add(puppet.name(), [1]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(puppet.sent().is_empty() && !house.dispatcher.view().is_ready());
}
