//! `GET /v1/unknown`: the queue of those of which nobody knows whether they were sent.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Principal, Role};
use super::forms;
use super::problem::{Problem, ProblemBody};
use super::request::{Json, Query};
use super::view::waiting_for;
use crate::domain::ids::{NotificationId, ProviderName};
use crate::domain::outcome::Reason;
use crate::domain::time::Timestamp;
use crate::store::rows::{UnknownFilter, UnknownRow};

/// The most on one page.
const MAX_PAGE: u32 = 500;

/// A page of unknowns, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Page {
    /// The unknowns.
    items: Vec<Item>,
    /// Where the next page begins (`after`); nothing on the last one.
    #[schema(value_type = Option<forms::Id>)]
    next: Option<String>,
}

/// One unknown.
#[derive(Serialize, ToSchema)]
struct Item {
    /// `ntf_` and a UUID.
    #[schema(value_type = forms::Id)]
    id: String,
    /// The app's name for the event.
    #[schema(value_type = forms::Name)]
    event_id: String,
    /// The masked addresses.
    to: Vec<String>,
    /// Its state: `dispatch_unknown`, or a final one whose attempt is still asked about.
    #[schema(value_type = forms::State)]
    state: &'static str,
    /// At which provider.
    #[schema(value_type = forms::Provider)]
    provider: String,
    /// Which attempt.
    attempt: Option<u8>,
    /// Why it is unknown.
    #[schema(value_type = Option<forms::Reason>)]
    cause: Option<&'static str>,
    /// When the attempt ended, at the latest.
    ended_at: Option<String>,
    /// `lookup`, `answer` or `operator`.
    waiting_for: Option<&'static str>,
    /// When it was accepted.
    #[schema(value_type = forms::Time)]
    created_at: String,
    /// When the token dies.
    #[schema(value_type = forms::Time)]
    expires_at: String,
    /// Where its status is.
    status_url: String,
}

impl From<&UnknownRow> for Item {
    fn from(row: &UnknownRow) -> Self {
        let asked = row.state.asked.as_ref();
        Self {
            id: row.id.to_string(),
            event_id: row.event_id.to_string(),
            to: row.mask.split(',').map(str::to_owned).collect(),
            state: row.state.life.state.code(),
            provider: row.state.provider.to_string(),
            attempt: row.state.life.open,
            cause: asked.and_then(|asked| asked.cause).map(|cause| cause.code()),
            ended_at: asked.and_then(|asked| asked.ended_at).map(|at| at.to_string()),
            waiting_for: waiting_for(&row.state),
            created_at: row.created_at.to_string(),
            expires_at: row.expires_at.to_string(),
            status_url: super::status_url(row.id),
        }
    }
}

/// Lists unknowns, oldest first.
#[utoipa::path(
    get, path = "/v1/unknown", operation_id = "list_unknowns", security(("key" = [])),
    params(
        ("provider" = Option<forms::Provider>, Query, description = "Only at this provider"),
        ("cause" = Option<forms::Reason>, Query, description = "Only with this cause"),
        ("before" = Option<forms::Time>, Query, description = "Only those whose attempt ended before this time (RFC 3339)"),
        ("after" = Option<forms::Id>, Query, description = "The next of the page before"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 500, description = "1 to 500; 100 when it is missing"),
    ),
    responses(
        (status = 200, description = "A page", body = Page),
        (status = 400, description = "Malformed", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "No role", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not available now", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    principal: Principal,
    mut query: Query,
) -> Result<Json<Page>, Problem> {
    principal.require(&[Role::Operator])?;
    let limit = |text: &str| text.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit)).ok_or(());
    let wanted = query.take("limit", limit)?.unwrap_or(100);
    let filter = UnknownFilter {
        tenant: Some(principal.tenant.clone()),
        provider: query.take("provider", ProviderName::parse)?,
        cause: query.take("cause", |text| Reason::from_code(text).ok_or(()))?,
        before: query.take("before", Timestamp::parse_rfc3339)?,
        after: query.take("after", NotificationId::parse)?,
        limit: wanted,
    };
    query.nothing_else()?;
    let rows = api.ask(api.ledger.unknowns(&filter)).await?;
    let full = u32::try_from(rows.len()).is_ok_and(|count| count >= wanted);
    let next = rows.last().filter(|_| full).map(|row| row.id.to_string());
    Ok(Json(Page { items: rows.iter().map(Item::from).collect(), next }))
}
