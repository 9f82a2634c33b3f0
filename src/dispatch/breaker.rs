//! When a provider is left alone: a pure state machine, with time and chance as arguments.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::domain::ids::KeyedHash;
use crate::domain::outcome::{Outcome, OutcomeClass, Reason};
use crate::domain::retry::RetryPolicy;

/// New work may be led to a provider whose breaker is half open only this often, so that it can prove itself.
const TRIAL_EVERY: Duration = Duration::from_secs(5);

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerSettings {
    /// So many transport failures in a row (certainly not sent: DNS, connect, TLS, lost before the commit) open it;
    /// at least 1.
    pub failures: u32,
    /// So many lost answers in a row (time-out, cut connection, server fault) open it; at least 1.
    pub lost_answers: u32,
    /// So many distinct recipients refused on account of our account, with no success between, open it; at least 1.
    pub recipients: u32,
    /// How long it stays open before one message may try, growing from one failed trial to the next.
    pub open_for: RetryPolicy,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        let open_for =
            RetryPolicy { first: Duration::from_secs(5), factor: 2.0, cap: Duration::from_secs(120), jitter: 0.3 };
        Self { failures: 5, lost_answers: 20, recipients: 3, open_for }
    }
}

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Work flows.
    Closed,
    /// Nothing is sent.
    Open,
    /// One message at a time may try.
    HalfOpen,
}

impl Standing {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// What an outcome did to a breaker, where it did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It opened.
    Opened,
    /// A trial failed, and it stays open for longer.
    Reopened,
    /// It closed; the flow begins slowly.
    Closed,
}

/// What an outcome says of the provider, as opposed to the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Works,
    Transport,
    AnswerLost,
    AccountBroken,
    AccountRefused,
    /// Nothing while it works, and a failure where it was to prove that it does.
    Doubt,
    Nothing,
}

impl Sign {
    fn of(outcome: &Outcome) -> Self {
        match (outcome.class, outcome.reason) {
            (_, Reason::RateLimited) | (OutcomeClass::NeverBegan, _) => Self::Nothing,
            (OutcomeClass::Accepted | OutcomeClass::RefusedMessage, _) => Self::Works,
            (_, Reason::BadCredentials | Reason::NoCredit | Reason::TlsRequired) => Self::AccountBroken,
            (OutcomeClass::RefusedAccount, _) => Self::AccountRefused,
            (OutcomeClass::NotSent, Reason::TemporarilyRefused) => Self::Doubt,
            (OutcomeClass::NotSent, _) => Self::Transport,
            (OutcomeClass::Unknown, Reason::LostAnswer | Reason::AnswerTimeout | Reason::ServerFault) => {
                Self::AnswerLost
            }
            (OutcomeClass::Unknown, _) => Self::Doubt,
        }
    }
}

/// The breaker of one provider. Times are since boot.
#[derive(Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    full: u32,
    open: Option<Open>,
    /// Slow start after closing: how much may flow, and successes since it last grew.
    ramp: Option<(u32, u32)>,
    failures: u32,
    lost_answers: u32,
    refused: BTreeSet<KeyedHash>,
}

#[derive(Debug)]
struct Open {
    until: Duration,
    times: u8,
    next_trial: Duration,
}

impl Breaker {
    /// A closed breaker of a lane that may run `full` attempts at a time.
    pub fn new(settings: BreakerSettings, full: u32) -> Self {
        Self {
            settings,
            full: full.max(1),
            open: None,
            ramp: None,
            failures: 0,
            lost_answers: 0,
            refused: BTreeSet::new(),
        }
    }

    /// Where it stands at `now`.
    pub fn standing(&self, now: Duration) -> Standing {
        match &self.open {
            None => Standing::Closed,
            Some(open) if now < open.until => Standing::Open,
            Some(_) => Standing::HalfOpen,
        }
    }

    /// How many attempts may be under way at `now`.
    pub fn limit(&self, now: Duration) -> u32 {
        match self.standing(now) {
            Standing::Open => 0,
            Standing::HalfOpen => 1,
            Standing::Closed => self.ramp.map_or(self.full, |(limit, _)| limit.min(self.full)),
        }
    }

    /// When an open breaker becomes half open; `None` when it is not open at `now`.
    pub fn half_open_at(&self, now: Duration) -> Option<Duration> {
        self.open.as_ref().map(|open| open.until).filter(|until| *until > now)
    }

    /// Whether new work may be led here at `now`: always when closed; when half open, now and then one, because
    /// without any work it could never prove that it works again.
    pub fn admits(&mut self, now: Duration) -> bool {
        match &mut self.open {
            None => true,
            Some(open) if now >= open.until && now >= open.next_trial => {
                open.next_trial = now.saturating_add(TRIAL_EVERY);
                true
            }
            Some(_) => false,
        }
    }

    /// Learns from an outcome for the recipient `to`. `draw` in `0.0..1.0` places the jitter.
    pub fn learn(&mut self, outcome: &Outcome, to: KeyedHash, now: Duration, draw: f64) -> Option<Change> {
        let sign = Sign::of(outcome);
        if let Some(open) = &self.open {
            return match sign {
                Sign::Nothing => None,
                Sign::Works => Some(self.close()),
                // An attempt that began before the breaker opened says nothing new.
                _ if now < open.until => None,
                _ => {
                    let times = open.times.saturating_add(1);
                    self.open_for(times, now, draw);
                    Some(Change::Reopened)
                }
            };
        }
        if self.is_too_much(sign, to) {
            self.open_for(1, now, draw);
            return Some(Change::Opened);
        }
        None
    }

    fn is_too_much(&mut self, sign: Sign, to: KeyedHash) -> bool {
        match sign {
            Sign::Nothing | Sign::Doubt => false,
            Sign::Works => {
                self.forget();
                self.grow();
                false
            }
            Sign::Transport => {
                self.failures += 1;
                self.failures >= self.settings.failures
            }
            Sign::AnswerLost => {
                self.lost_answers += 1;
                self.lost_answers >= self.settings.lost_answers
            }
            Sign::AccountBroken => true,
            Sign::AccountRefused => {
                self.refused.insert(to);
                self.refused.len() >= self.settings.recipients as usize
            }
        }
    }

    fn open_for(&mut self, times: u8, now: Duration, draw: f64) {
        let until = now.saturating_add(self.settings.open_for.delay(times, None, draw));
        self.open = Some(Open { until, times, next_trial: until });
        self.ramp = None;
        self.forget();
    }

    fn close(&mut self) -> Change {
        self.open = None;
        self.ramp = (self.full > 1).then_some((1, 0));
        self.forget();
        Change::Closed
    }

    fn forget(&mut self) {
        self.failures = 0;
        self.lost_answers = 0;
        self.refused.clear();
    }

    /// As many successes as may flow at a time double the flow.
    fn grow(&mut self) {
        let Some((limit, successes)) = self.ramp else { return };
        self.ramp = match successes + 1 {
            n if n < limit => Some((limit, n)),
            _ => limit.checked_mul(2).filter(|doubled| *doubled < self.full).map(|doubled| (doubled, 0)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(1000);
    const OPEN_FOR: RetryPolicy =
        RetryPolicy { first: Duration::from_secs(10), factor: 2.0, cap: Duration::from_secs(30), jitter: 0.5 };

    fn breaker(full: u32) -> Breaker {
        Breaker::new(BreakerSettings { failures: 3, lost_answers: 4, recipients: 3, open_for: OPEN_FOR }, full)
    }

    fn to(n: u8) -> KeyedHash {
        KeyedHash::from_bytes([n; 16])
    }

    fn feed(breaker: &mut Breaker, outcome: &Outcome, times: u8) -> Option<Change> {
        (0..times).map(|n| breaker.learn(outcome, to(n), T0, 0.5)).last().flatten()
    }

    fn refused(reason: Reason) -> Outcome {
        Outcome::new(OutcomeClass::RefusedAccount, reason)
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_starts_the_count_again() {
        let mut b = breaker(8);
        assert_eq!(feed(&mut b, &Outcome::not_sent(Reason::Connect), 2), None);
        assert_eq!(feed(&mut b, &Outcome::accepted(None), 1), None);
        assert_eq!(feed(&mut b, &Outcome::not_sent(Reason::Dns), 2), None);
        assert_eq!(feed(&mut b, &Outcome::not_sent(Reason::Tls), 1), Some(Change::Opened));
        assert_eq!((b.standing(T0), b.limit(T0)), (Standing::Open, 0));
    }

    #[test]
    fn a_provider_that_only_loses_answers_is_left_alone_too() {
        let mut b = breaker(8);
        assert_eq!(feed(&mut b, &Outcome::unknown(Reason::AnswerTimeout), 3), None);
        assert_eq!(feed(&mut b, &Outcome::unknown(Reason::ServerFault), 1), Some(Change::Opened));
    }

    #[test]
    fn a_fault_of_our_account_opens_it_at_once_only_where_no_message_could_pass() {
        for reason in [Reason::BadCredentials, Reason::NoCredit, Reason::TlsRequired] {
            assert_eq!(feed(&mut breaker(8), &refused(reason), 1), Some(Change::Opened), "{reason}");
        }
        let mut b = breaker(8);
        for _ in 0..10 {
            assert_eq!(b.learn(&refused(Reason::AccountRefused), to(1), T0, 0.5), None, "one recipient only");
        }
        assert_eq!(b.learn(&refused(Reason::AccountRefused), to(2), T0, 0.5), None);
        assert_eq!(b.learn(&refused(Reason::AccountRefused), to(3), T0, 0.5), Some(Change::Opened));
    }

    #[test]
    fn what_concerns_one_message_or_our_rate_never_opens_it() {
        for outcome in [
            Outcome::new(OutcomeClass::RefusedMessage, Reason::BadAddress),
            Outcome::not_sent(Reason::RateLimited),
            Outcome::not_sent(Reason::TemporarilyRefused),
            Outcome::never_began(Reason::UnsealFailed),
            Outcome::unknown(Reason::Panicked),
        ] {
            assert_eq!(feed(&mut breaker(8), &outcome, 100), None, "{outcome:?}");
        }
    }

    #[test]
    fn one_message_tries_after_a_pause_that_grows_with_every_failed_trial() {
        let mut b = breaker(8);
        feed(&mut b, &refused(Reason::BadCredentials), 1);
        let mut now = T0;
        for pause in [10, 20, 30, 30] {
            let until = b.half_open_at(now).expect("an open breaker");
            assert_eq!(until - now, Duration::from_secs(pause));
            assert_eq!(b.learn(&Outcome::not_sent(Reason::Connect), to(1), now, 0.5), None, "an old attempt");
            now = until;
            assert_eq!((b.standing(now), b.limit(now)), (Standing::HalfOpen, 1));
            assert_eq!(b.learn(&refused(Reason::BadCredentials), to(1), now, 0.5), Some(Change::Reopened));
        }
    }

    #[test]
    fn the_jitter_moves_the_pause() {
        for (draw, seconds) in [(0.0, 5), (1.0, 15)] {
            let mut b = breaker(8);
            b.learn(&refused(Reason::NoCredit), to(1), T0, draw);
            assert_eq!(b.half_open_at(T0), Some(T0 + Duration::from_secs(seconds)));
        }
    }

    #[test]
    fn after_a_success_the_flow_doubles_from_one_to_all() {
        let mut b = breaker(6);
        feed(&mut b, &refused(Reason::BadCredentials), 1);
        let now = T0 + Duration::from_secs(60);
        let ok = Outcome::accepted(None);
        assert_eq!(b.learn(&ok, to(1), now, 0.5), Some(Change::Closed));
        let limits: Vec<u32> = (0..8)
            .map(|_| {
                let limit = b.limit(now);
                b.learn(&ok, to(1), now, 0.5);
                limit
            })
            .collect();
        assert_eq!(limits, [1, 2, 2, 4, 4, 4, 4, 6]);
    }

    #[test]
    fn half_open_it_draws_one_new_message_at_a_time() {
        let mut b = breaker(8);
        assert!(b.admits(T0) && b.admits(T0), "closed");
        feed(&mut b, &refused(Reason::BadCredentials), 1);
        assert!(!b.admits(T0), "open");
        let half = T0 + Duration::from_secs(10);
        assert!(b.admits(half));
        assert!(!b.admits(half + Duration::from_secs(1)));
        assert!(b.admits(half + TRIAL_EVERY));
    }
}
