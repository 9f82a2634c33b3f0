//! The numbers that the admin listener shows. Labels are closed sets and configured names, never values of a message.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// One label, `result`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ByResult {
    /// A code from a closed set.
    pub result: &'static str,
}

/// One label, `provider`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ByProvider {
    /// A configured name.
    pub provider: String,
}

/// Labels `provider` and `result`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ByProviderResult {
    /// A configured name.
    pub provider: String,
    /// A code from a closed set.
    pub result: &'static str,
}

/// Labels `provider` and `state`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ByProviderState {
    /// A configured name.
    pub provider: String,
    /// A state's code.
    pub state: &'static str,
}

/// One label, `target`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ByTarget {
    /// A configured name.
    pub target: String,
}

/// Labels `target` and `result`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ByTargetResult {
    /// A configured name.
    pub target: String,
    /// A code from a closed set.
    pub result: &'static str,
}

/// All metrics of the daemon; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    /// What became of posted events, in whatever form they came, by result (`new`, `replayed`, or the problem's type).
    pub admissions: Family<ByResult, Counter>,
    /// Attempts that ended, by provider and outcome class.
    pub attempts: Family<ByProviderResult, Counter>,
    /// Look-ups and probes, by provider and what they found.
    pub questions: Family<ByProviderResult, Counter>,
    /// Receipts, by provider and what became of them.
    pub receipts: Family<ByProviderResult, Counter>,
    /// Contradicting evidence. Anything above zero wants a person.
    pub contradictions: Counter,
    /// Seconds from the claim to the provider's answer.
    pub send_seconds: Family<ByProvider, Histogram, fn() -> Histogram>,
    /// Seconds that one commit took.
    pub commit_seconds: Histogram,
    /// Commands in one commit.
    pub commit_commands: Histogram,
    /// Commits that failed.
    pub commit_failures: Counter,
    /// Commands that wait for the committer.
    pub commit_queue: Gauge,
    /// Live work, by provider and state.
    pub work: Family<ByProviderState, Gauge>,
    /// Seconds by which the oldest due work is late, by provider.
    pub lateness_seconds: Family<ByProvider, Gauge<f64, AtomicU64>>,
    /// 1 for the state that a provider's breaker is in, 0 for the others.
    pub breaker: Family<ByProviderState, Gauge>,
    /// Attempts that may be under way at a time.
    pub permits: Family<ByProvider, Gauge>,
    /// Attempts under way.
    pub in_flight: Family<ByProvider, Gauge>,
    /// Callbacks, by target: `delivered`, `failed` for each try in vain, `given_up`.
    pub callbacks: Family<ByTargetResult, Counter>,
    /// Callbacks that are taken over from the log and not settled.
    pub callbacks_pending: Family<ByTarget, Gauge>,
    /// Age of the change that the oldest of these tells.
    pub callback_age_seconds: Family<ByTarget, Gauge<f64, AtomicU64>>,
    /// 1 where the target wants no more of them.
    pub callback_gone: Family<ByTarget, Gauge>,
}

fn seconds() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("sendonce");
        let metrics = Self {
            registry: Arc::default(),
            admissions: Family::default(),
            attempts: Family::default(),
            questions: Family::default(),
            receipts: Family::default(),
            contradictions: Counter::default(),
            send_seconds: Family::new_with_constructor(seconds as fn() -> Histogram),
            commit_seconds: seconds(),
            commit_commands: Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0]),
            commit_failures: Counter::default(),
            commit_queue: Gauge::default(),
            work: Family::default(),
            lateness_seconds: Family::default(),
            breaker: Family::default(),
            permits: Family::default(),
            in_flight: Family::default(),
            callbacks: Family::default(),
            callbacks_pending: Family::default(),
            callback_age_seconds: Family::default(),
            callback_gone: Family::default(),
        };
        let r = &mut registry;
        r.register("admissions", "Answers to posted events", metrics.admissions.clone());
        r.register("attempts", "Attempts that ended", metrics.attempts.clone());
        r.register("questions", "Look-ups and probes of unknown attempts", metrics.questions.clone());
        r.register("receipts", "Receipts from providers", metrics.receipts.clone());
        r.register("contradictions", "Evidence that contradicts other evidence", metrics.contradictions.clone());
        r.register_with_unit("send", "Claim to answer", Unit::Seconds, metrics.send_seconds.clone());
        r.register_with_unit("commit", "Time of one commit", Unit::Seconds, metrics.commit_seconds.clone());
        r.register("commit_commands", "Commands in one commit", metrics.commit_commands.clone());
        r.register("commit_failures", "Commits that failed", metrics.commit_failures.clone());
        r.register("commit_queue", "Commands that wait for the committer", metrics.commit_queue.clone());
        r.register("work", "Live work", metrics.work.clone());
        r.register_with_unit("lateness", "Age of the oldest due work", Unit::Seconds, metrics.lateness_seconds.clone());
        r.register("breaker", "1 for the state that a provider's breaker is in", metrics.breaker.clone());
        r.register("permits", "Attempts that may be under way at a time", metrics.permits.clone());
        r.register("in_flight", "Attempts under way", metrics.in_flight.clone());
        r.register("callbacks", "Callbacks to apps", metrics.callbacks.clone());
        r.register("callbacks_pending", "Callbacks that are not settled", metrics.callbacks_pending.clone());
        let age = metrics.callback_age_seconds.clone();
        r.register_with_unit("callback_age", "Age of the oldest change that is not told", Unit::Seconds, age);
        r.register("callback_gone", "1 where a target wants no more callbacks", metrics.callback_gone.clone());
        Self { registry: Arc::new(registry), ..metrics }
    }
}

impl Metrics {
    /// The text form (OpenMetrics 1.0).
    pub fn encode(&self) -> String {
        let mut out = String::new();
        match prometheus_client::encoding::text::encode(&mut out, &self.registry) {
            Ok(()) => out,
            Err(std::fmt::Error) => String::new(),
        }
    }
}
