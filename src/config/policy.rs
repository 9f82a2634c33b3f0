//! The sections that hold the numbers: `[dispatch]`, `[retention]`, `[admission]`, `[[tenant]]`.

use std::time::Duration;

use super::route::{Country, read_countries};
use crate::document::Table;
use crate::domain::ids::Tenant;
use crate::domain::retry::RetryPolicy;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// `[dispatch]`.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// Counted attempts of one notification, 1 to 20. Default 5.
    pub max_attempts: u8,
    /// Delays between attempts: `retry = { first, factor, cap, jitter }`. Default 2 s, 2, 1 min, 0.3.
    pub retry: RetryPolicy,
    /// Delays between look-ups of one unknown: `ask = { first, factor, cap, jitter }`. Default 5 s, 2, 15 min, 0.3.
    pub ask: RetryPolicy,
    /// How long a text message travels after the provider took it, 0 to 1 h. Default 15 s.
    pub transit_sms: Duration,
    /// How long a mail travels after the provider took it, 0 to 1 h. Default 30 s.
    pub transit_email: Duration,
    /// After so many `not_sent` at one provider the next of the route is tried, 1 to 20. Default 2.
    pub failover_after: u8,
    /// How long a stop waits for attempts that are under way, 1 s to 15 min. Default 30 s.
    pub drain_timeout: Duration,
    /// An attempt that has not begun so long after its claim never begins, 1 s to 1 min. Default 10 s.
    pub start_by: Duration,
    /// How often what is over is swept, 100 ms to 10 min. Default 5 s.
    pub sweep_every: Duration,
}

impl Default for Dispatch {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            retry: RetryPolicy::default(),
            ask: RetryPolicy { first: 5 * SECOND, cap: 15 * MINUTE, ..RetryPolicy::default() },
            transit_sms: 15 * SECOND,
            transit_email: 30 * SECOND,
            failover_after: 2,
            drain_timeout: 30 * SECOND,
            start_by: 10 * SECOND,
            sweep_every: 5 * SECOND,
        }
    }
}

impl Dispatch {
    pub(super) fn read(mut t: Table) -> Self {
        let d = Self::default();
        let dispatch = Self {
            max_attempts: t.int("max_attempts", 1..=20).unwrap_or(d.max_attempts),
            retry: read_delays(t.section("retry"), d.retry),
            ask: read_delays(t.section("ask"), d.ask),
            transit_sms: t.duration("transit_sms", Duration::ZERO..=HOUR).unwrap_or(d.transit_sms),
            transit_email: t.duration("transit_email", Duration::ZERO..=HOUR).unwrap_or(d.transit_email),
            failover_after: t.int("failover_after", 1..=20).unwrap_or(d.failover_after),
            drain_timeout: t.duration("drain_timeout", SECOND..=15 * MINUTE).unwrap_or(d.drain_timeout),
            start_by: t.duration("start_by", SECOND..=MINUTE).unwrap_or(d.start_by),
            sweep_every: t.duration("sweep_every", 100 * MILLISECOND..=10 * MINUTE).unwrap_or(d.sweep_every),
        };
        t.finish();
        dispatch
    }
}

pub(super) fn read_delays(mut t: Table, default: RetryPolicy) -> RetryPolicy {
    let delays = RetryPolicy {
        first: t.duration("first", 10 * MILLISECOND..=HOUR).unwrap_or(default.first),
        factor: t.number("factor", 1.0..=10.0).unwrap_or(default.factor),
        cap: t.duration("cap", 10 * MILLISECOND..=DAY).unwrap_or(default.cap),
        jitter: t.number("jitter", 0.0..=1.0).unwrap_or(default.jitter),
    };
    if delays.cap < delays.first {
        t.wrong("cap", "must not be shorter than `first`");
    }
    t.finish();
    delays
}

/// `[retention]`.
#[derive(Clone, Debug)]
pub struct Retention {
    /// How long a finished notification recognises repeats of its key and event id, 30 days to 10 years. Default 30 days.
    pub keys: Duration,
    /// How long receipts that match nothing are kept, 1 min to 30 days. Default 1 day.
    pub receipts: Duration,
    /// How many receipts that match nothing are kept, 1 to 10 000 000. Default 100 000.
    pub receipts_kept: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { keys: 30 * DAY, receipts: DAY, receipts_kept: 100_000 }
    }
}

impl Retention {
    pub(super) fn read(mut t: Table) -> Self {
        let d = Self::default();
        let retention = Self {
            keys: t.duration("keys", 30 * DAY..=3650 * DAY).unwrap_or(d.keys),
            receipts: t.duration("receipts", MINUTE..=30 * DAY).unwrap_or(d.receipts),
            receipts_kept: t.int("receipts_kept", 1..=10_000_000).unwrap_or(d.receipts_kept),
        };
        t.finish();
        retention
    }
}

/// `[admission]`.
#[derive(Clone, Debug)]
pub struct Admission {
    /// How many commands may wait for the committer before it answers 503, 1 to 1 000 000. Default 1024.
    pub queue: usize,
    /// How many commands one transaction takes at most, 1 to 4096, not more than `queue`. Default 256.
    pub batch: usize,
    /// Parts of one text message, 1 to 10. Default 3.
    pub max_sms_parts: u8,
    /// Lines of one batch, 1 to 10 000. Default 1000.
    pub batch_lines: usize,
}

impl Default for Admission {
    fn default() -> Self {
        Self { queue: 1024, batch: 256, max_sms_parts: 3, batch_lines: 1000 }
    }
}

impl Admission {
    pub(super) fn read(mut t: Table) -> Self {
        let d = Self::default();
        let admission = Self {
            queue: t.int("queue", 1..=1_000_000).map_or(d.queue, |n: u32| n as usize),
            batch: t.int("batch", 1..=4096).map_or(d.batch, |n: u32| n as usize),
            max_sms_parts: t.int("max_sms_parts", 1..=10).unwrap_or(d.max_sms_parts),
            batch_lines: t.int("batch_lines", 1..=10_000).map_or(d.batch_lines, |n: u16| n.into()),
        };
        if admission.queue < admission.batch {
            t.wrong("queue", "must not be less than `batch`");
        }
        t.finish();
        admission
    }
}

/// At most `burst` at once, and `burst` in each `per` in the long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// 1 to 1 000 000.
    pub burst: u32,
    /// 1 s to 30 days.
    pub per: Duration,
}

impl Limit {
    fn read(mut t: Table) -> Self {
        let limit = Self { burst: t.need_int("burst", 1..=1_000_000), per: t.need_duration("per", SECOND..=30 * DAY) };
        t.finish();
        limit
    }
}

/// `[[tenant]]`.
#[derive(Clone, Debug)]
pub struct TenantSettings {
    /// Its name, as API keys tell it. Required, unique.
    pub name: Tenant,
    /// The countries that it may send text messages to (ISO 3166-1 alpha-2); empty for all. Default empty.
    pub countries: Vec<Country>,
    /// For one recipient: `recipient_limit = { burst, per }`. Default none.
    pub recipient_limit: Option<Limit>,
    /// For the tenant as a whole: `tenant_limit = { burst, per }`. Default none.
    pub tenant_limit: Option<Limit>,
}

impl TenantSettings {
    pub(super) fn read_all(root: &mut Table) -> Vec<Self> {
        let there = root.has("tenant");
        let mut all: Vec<Self> = vec![];
        for mut t in root.tables("tenant") {
            if !t.has("name") {
                t.wrong("name", "is required");
            }
            let name = t.parsed("name", Tenant::parse);
            let countries = read_countries(&mut t);
            let recipient_limit = t.table("recipient_limit").map(Limit::read);
            let tenant_limit = t.table("tenant_limit").map(Limit::read);
            if all.iter().any(|other| Some(&other.name) == name.as_ref()) {
                t.wrong("name", "is the name of another tenant too");
            }
            t.finish();
            all.extend(name.map(|name| Self { name, countries, recipient_limit, tenant_limit }));
        }
        if !there {
            root.wrong("tenant", "at least one [[tenant]] is required");
        }
        all
    }
}
