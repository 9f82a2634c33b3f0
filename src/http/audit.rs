//! `/v1/audit`: the log as a stream, and the accounting.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::TryStreamExt;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use super::Api;
use super::auth::{Principal, Role};
use super::forms;
use super::problem::{Problem, ProblemBody};
use super::request::{Json, Query};
use crate::audit::{self, Account, Format};
use crate::domain::audit::{Record, What};
use crate::domain::ids::{EventId, NotificationId};
use crate::domain::time::Timestamp;
use crate::store::rows::LogFilter;

/// Exports the tenant's log up to now. The export is itself recorded before its first byte.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "export_audit", security(("key" = [])),
    params(
        ("format" = Option<forms::Format>, Query, description = "ndjson (the default) or csv"),
        ("from" = Option<forms::Time>, Query, description = "From this time on (RFC 3339)"),
        ("to" = Option<forms::Time>, Query, description = "Before this time (RFC 3339)"),
        ("notification" = Option<forms::Id>, Query, description = "Only of this notification"),
        ("event_id" = Option<forms::Name>, Query, description = "Only of this event"),
        ("what" = Option<forms::What>, Query, description = "Only this kind of record"),
    ),
    responses(
        (status = 200, description = "Records in order of position; a broken connection means that it is not all",
            content((String = "application/x-ndjson"), (String = "text/csv"))),
        (status = 400, description = "Malformed", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "No role", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not available now", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn export(
    State(api): State<Arc<Api>>,
    principal: Principal,
    mut query: Query,
) -> Result<Response, Problem> {
    principal.require(&[Role::Auditor])?;
    let format = query.take("format", |text| Format::from_code(text).ok_or(()))?.unwrap_or(Format::Ndjson);
    let now = api.ask(api.ledger.now()).await?;
    let filter = LogFilter {
        tenant: Some(principal.tenant.clone()),
        from: query.take("from", Timestamp::parse_rfc3339)?,
        // Bounded, so that an export of a busy store ends.
        to: Some(query.take("to", Timestamp::parse_rfc3339)?.unwrap_or(now).min(now)),
        notification: query.take("notification", NotificationId::parse)?,
        event_id: query.take("event_id", EventId::parse)?,
        what: query.take("what", |text| What::from_code(text).ok_or(()))?,
        up_to: None,
    };
    query.nothing_else()?;
    let mut record = Record::new(now, principal.tenant.clone(), What::Exported, principal.actor.clone());
    record.notification = filter.notification;
    record.event_id = filter.event_id.clone();
    api.ask(api.ledger.record(record)).await?;
    let lines = audit::stream(api.ledger.clone(), filter, format).inspect_err(|e| {
        // The connection is cut, so that a reader cannot take a part for the whole.
        tracing::warn!(error = %e, "an export broke off");
    });
    let body = Body::from_stream(lines);
    Ok(([(CONTENT_TYPE, format.media_type()), (CACHE_CONTROL, "no-store")], body).into_response())
}

/// The form of an account, for the document.
#[derive(utoipa::ToSchema)]
#[schema(as = Account)]
#[expect(dead_code, reason = "tells the form only")]
struct AccountForm {
    /// The sums add up, and no notification's records are at fault.
    closes: bool,
    /// The sums.
    #[schema(value_type = Object)]
    counts: (),
    /// Notifications whose records do not add up; at most 1000.
    #[schema(value_type = Vec<Object>)]
    faults: (),
}

/// Adds up the tenant's records.
#[utoipa::path(
    get, path = "/v1/audit/account", operation_id = "account", security(("key" = [])),
    responses(
        (status = 200, description = "The numbers, and what does not add up", body = AccountForm),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "No role", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not available now", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn account(State(api): State<Arc<Api>>, principal: Principal) -> Result<Json<Account>, Problem> {
    principal.require(&[Role::Auditor, Role::Operator])?;
    Ok(Json(api.ask(audit::account(&api.ledger, Some(&principal.tenant))).await?))
}
