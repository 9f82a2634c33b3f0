//! `[callback.NAME]`: where an app is told what became of its notifications.

use std::time::Duration;

use secrecy::SecretString;

use super::Context;
use super::policy::{TenantSettings, read_delays};
use super::server::{check_url, is_loopback};
use crate::document::{Place, Table};
use crate::domain::callback::Change;
use crate::domain::ids::{TargetName, Tenant};
use crate::domain::retry::RetryPolicy;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// `[callback.NAME]`.
#[derive(Clone, Debug)]
pub struct CallbackSettings {
    /// Its name, under which its place in the log is kept; also in metrics.
    pub name: TargetName,
    /// Where the section is, for mistakes that are found later.
    pub place: Place,
    /// Whose notifications it is told of. Required.
    pub tenant: Tenant,
    /// Where to; `https`, or `http` on this machine itself where `allow_private` is set. Required.
    pub url: String,
    /// The secrets that sign: `secret`, which is required, and `old_secret` while the receiver learns a new one.
    pub secrets: Vec<(&'static str, SecretString)>,
    /// What it is told. Default everything.
    pub events: Vec<Change>,
    /// Requests under way at once, 1 to 64. Default 8.
    pub concurrency: u8,
    /// For a whole request, 1 s to 1 min. Default 20 s.
    pub timeout: Duration,
    /// Delays between tries: `retry = { first, factor, cap, jitter }`. Default 5 s, 2, 1 h, 0.3.
    pub retry: RetryPolicy,
    /// A callback that was not taken so long after its change is given up, 1 min to 30 days. Default 72 h.
    pub give_up_after: Duration,
    /// It may be on this machine or a private network. Default `false`.
    pub allow_private: bool,
}

impl CallbackSettings {
    pub(super) fn read_all(root: &mut Table, context: &Context<'_>, tenants: &[TenantSettings]) -> Vec<Self> {
        let mut all = vec![];
        for (name, mut t) in root.named_tables("callback") {
            let name = TargetName::parse(&name).map_err(|e| t.mistakes().add(t.place(), format!("the name {e}")));
            all.extend(Self::read(&mut t, context, tenants).zip(name.ok()).map(|(read, name)| Self { name, ..read }));
            t.finish();
        }
        all
    }

    /// Reads all but the name.
    fn read(t: &mut Table, context: &Context<'_>, tenants: &[TenantSettings]) -> Option<Self> {
        if !t.has("tenant") {
            t.wrong("tenant", "is required");
        }
        let tenant = t.parsed("tenant", Tenant::parse);
        if tenant.as_ref().is_some_and(|tenant| tenants.iter().all(|t| t.name != *tenant)) {
            t.wrong("tenant", "names a tenant that has no [[tenant]]");
        }
        let url = t.need_str("url");
        let allow_private = t.bool("allow_private").unwrap_or(false);
        if let Some(mistake) = url_mistake(&url, allow_private).filter(|_| !url.is_empty()) {
            t.wrong("url", mistake);
        }
        let secret = ("secret", context.need_secret(t, "secret"));
        let old = context.secret(t, "old_secret").map(|secret| ("old_secret", secret));
        Some(Self {
            // Replaced by the caller.
            name: TargetName::parse("callback").ok()?,
            place: t.place().clone(),
            url,
            secrets: [secret].into_iter().chain(old).collect(),
            events: read_events(t),
            concurrency: t.int("concurrency", 1..=64).unwrap_or(8),
            timeout: t.duration("timeout", SECOND..=MINUTE).unwrap_or(20 * SECOND),
            retry: read_delays(
                t.section("retry"),
                RetryPolicy { first: 5 * SECOND, factor: 2.0, cap: HOUR, jitter: 0.3 },
            ),
            give_up_after: t.duration("give_up_after", MINUTE..=30 * 24 * HOUR).unwrap_or(72 * HOUR),
            allow_private,
            // Last, so that all other keys are read whatever is wrong with it.
            tenant: tenant?,
        })
    }
}

fn url_mistake(url: &str, allow_private: bool) -> Option<&'static str> {
    let host = |url: &str| url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
    match check_url(url) {
        Err(mistake) => Some(mistake),
        Ok(()) if allow_private => None,
        Ok(()) if host(url).is_some_and(|host| is_loopback(host.trim_matches(['[', ']']))) => {
            Some("leads to this machine; `allow_private = true` allows that")
        }
        Ok(()) => None,
    }
}

fn read_events(t: &mut Table) -> Vec<Change> {
    let Some(given) = t.strs_at("events") else { return Change::ALL.to_vec() };
    if given.is_empty() {
        t.wrong("events", "must not be empty; leave it out for all");
    }
    let known = || Change::ALL.iter().map(|change| format!("\"{change}\"")).collect::<Vec<_>>().join(", ");
    let read = given.iter().filter_map(|(text, place)| {
        let change = Change::from_code(text);
        if change.is_none() {
            t.mistakes().add(place, format!("must be one of {}", known()));
        }
        change
    });
    read.collect()
}
