//! `GET /v1/providers`: how the lanes of the configured providers do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Principal, Role};
use super::forms;
use super::problem::{Problem, ProblemBody};
use super::request::{Json, Query};
use crate::domain::content::Channel;
use crate::domain::ids::ProviderName;
use crate::domain::lifecycle::State as Stands;
use crate::domain::time::Timestamp;

/// One provider's lane, as this node has it.
#[derive(Clone, Debug)]
pub struct Lane {
    /// The provider.
    pub provider: ProviderName,
    /// Its channel.
    pub channel: Channel,
    /// The code of where its breaker stands.
    pub breaker: &'static str,
    /// Attempts that may be under way at a time.
    pub permits: u32,
    /// Attempts under way.
    pub in_flight: u32,
    /// How long its rate limit or its breaker lets nothing begin.
    pub closed_for: Duration,
}

/// Looks at the lanes, in the order of their names.
pub type Lanes = Arc<dyn Fn() -> Vec<Lane> + Send + Sync>;

/// The configured providers.
#[derive(Serialize, ToSchema)]
pub(super) struct Providers {
    /// In the order of their names.
    items: Vec<ProviderItem>,
}

/// One provider. What waits and what is unknown is told for all nodes and tenants, the rest for the node that is asked.
#[derive(Serialize, ToSchema)]
struct ProviderItem {
    /// Its name.
    #[schema(value_type = forms::Provider)]
    provider: String,
    /// `sms` or `email`.
    channel: &'static str,
    /// `closed` (it works), `open` (it is left alone) or `half_open` (one message may try).
    breaker: &'static str,
    /// Attempts that may be under way at a time.
    permits: u32,
    /// Attempts under way.
    in_flight: u32,
    /// Seconds for which its rate limit or its breaker lets nothing begin.
    closed_for: u64,
    /// Messages that wait for an attempt.
    waiting: u64,
    /// Seconds by which the longest due of these is late.
    late_for: u64,
    /// Messages of which nobody knows whether they were sent.
    unknown: u64,
}

/// What waits at one provider.
#[derive(Default)]
struct Load {
    waiting: u64,
    oldest: Option<Timestamp>,
    unknown: u64,
}

/// Lists the configured providers and how they do.
#[utoipa::path(
    get, path = "/v1/providers", operation_id = "list_providers", security(("key" = [])),
    responses(
        (status = 200, description = "The providers", body = Providers),
        (status = 400, description = "Malformed", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "No role", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not available now", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    principal: Principal,
    query: Query,
) -> Result<Json<Providers>, Problem> {
    principal.require(&[Role::Operator])?;
    query.nothing_else()?;
    let mut loads: BTreeMap<ProviderName, Load> = BTreeMap::new();
    for count in api.ask(api.ledger.work_counts()).await? {
        let load = loads.entry(count.provider).or_default();
        if count.state.is_waiting() {
            load.waiting += count.count;
            load.oldest = Some(load.oldest.map_or(count.oldest_due, |oldest| oldest.min(count.oldest_due)));
        } else if count.state == Stands::DispatchUnknown {
            load.unknown += count.count;
        }
    }
    let now = api.clock.now();
    let item = |lane: Lane| {
        let load = loads.remove(&lane.provider).unwrap_or_default();
        ProviderItem {
            provider: lane.provider.to_string(),
            channel: lane.channel.code(),
            breaker: lane.breaker,
            permits: lane.permits,
            in_flight: lane.in_flight,
            closed_for: lane.closed_for.as_secs() + u64::from(lane.closed_for.subsec_nanos() > 0),
            waiting: load.waiting,
            late_for: load.oldest.map_or(0, |oldest| now.since(oldest).as_secs()),
            unknown: load.unknown,
        }
    };
    Ok(Json(Providers { items: (api.lanes)().into_iter().map(item).collect() }))
}
