//! `/v1/audit`: the log as a stream, and the accounting.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Principal, Role};
use super::problem::{Problem, ProblemBody};
use super::request::{Json, Query};
use crate::domain::audit::{Record, What};
use crate::domain::ids::{EventId, NotificationId};
use crate::domain::time::Timestamp;
use crate::ledger::LedgerError;
use crate::store::rows::{LogFilter, LogRow};

/// Records are read and sent so many at a time; no transaction is held between.
const PAGE: u32 = 500;
/// The most faults that one answer lists.
const MAX_FAULTS: u32 = 100;

/// The form of an export.
#[derive(Clone, Copy)]
enum Form {
    Ndjson,
    Csv,
}

impl Form {
    fn parse(text: &str) -> Result<Self, ()> {
        match text {
            "ndjson" => Ok(Self::Ndjson),
            "csv" => Ok(Self::Csv),
            _ => Err(()),
        }
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8; header=present",
        }
    }
}

/// One record of an export. Every line has every member, in this order.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditRecord)]
pub(super) struct Line {
    pos: i64,
    at: String,
    tenant: String,
    notification: Option<String>,
    event_id: Option<String>,
    what: &'static str,
    from: Option<&'static str>,
    to: Option<&'static str>,
    sent: Option<&'static str>,
    delivery: Option<&'static str>,
    attempt: Option<u8>,
    provider: Option<String>,
    message_id: Option<String>,
    outcome: Option<&'static str>,
    reason: Option<&'static str>,
    source: Option<&'static str>,
    actor: String,
    address: Option<String>,
    ticket: Option<String>,
}

impl From<&LogRow> for Line {
    fn from(row: &LogRow) -> Self {
        let r = &row.record;
        Self {
            pos: row.pos,
            at: r.at.to_string(),
            tenant: r.tenant.to_string(),
            notification: r.notification.map(|id| id.to_string()),
            event_id: r.event_id.as_ref().map(ToString::to_string),
            what: r.what.code(),
            from: r.from.map(|state| state.code()),
            to: r.to.map(|state| state.code()),
            sent: r.sent.map(|sent| sent.code()),
            delivery: r.delivery.map(|delivery| delivery.code()),
            attempt: r.attempt,
            provider: r.provider.as_ref().map(ToString::to_string),
            message_id: r.message_id.as_ref().map(ToString::to_string),
            outcome: r.outcome.map(|outcome| outcome.code()),
            reason: r.reason.map(|reason| reason.code()),
            source: r.source.map(|source| source.code()),
            actor: r.actor.to_string(),
            address: r.address.map(|hash| hash.to_string()),
            ticket: r.ticket.as_ref().map(ToString::to_string),
        }
    }
}

/// Why an export broke off; the connection is cut, so that a reader cannot take a part for the whole.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("a record does not write")]
    Write,
}

fn write(form: Form, rows: &[LogRow], first: bool) -> Result<Bytes, Broken> {
    let mut out = vec![];
    match form {
        Form::Ndjson => {
            for row in rows {
                serde_json::to_writer(&mut out, &Line::from(row)).map_err(|_| Broken::Write)?;
                out.push(b'\n');
            }
        }
        Form::Csv => {
            let mut csv = csv::WriterBuilder::new().has_headers(first).from_writer(out);
            for row in rows {
                csv.serialize(Line::from(row)).map_err(|_| Broken::Write)?;
            }
            out = csv.into_inner().map_err(|_| Broken::Write)?;
        }
    }
    Ok(out.into())
}

/// Where an export stands: after which position, or at its end.
struct Export {
    api: Arc<Api>,
    filter: LogFilter,
    form: Form,
    after: i64,
    first: bool,
    done: bool,
}

impl Export {
    async fn page(mut self) -> Option<(Result<Bytes, Broken>, Self)> {
        if self.done {
            return None;
        }
        let page = self.api.ledger.log_page(&self.filter, self.after, PAGE).await;
        let written = match page {
            Ok(rows) => {
                self.after = rows.last().map_or(self.after, |row| row.pos);
                self.done = u32::try_from(rows.len()).is_ok_and(|count| count < PAGE);
                write(self.form, &rows, self.first)
            }
            Err(e) => Err(e.into()),
        };
        if let Err(e) = &written {
            tracing::warn!(error = %e, "export broke off");
            self.done = true;
        }
        self.first = false;
        Some((written, self))
    }
}

/// Exports the tenant's log up to now. The export is itself recorded before its first byte.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "export_audit", security(("key" = [])),
    params(
        ("format" = Option<String>, Query, description = "ndjson (the default) or csv"),
        ("from" = Option<String>, Query, description = "From this time on (RFC 3339)"),
        ("to" = Option<String>, Query, description = "Before this time (RFC 3339)"),
        ("notification" = Option<String>, Query, description = "Only of this notification"),
        ("event_id" = Option<String>, Query, description = "Only of this event"),
        ("what" = Option<String>, Query, description = "Only this kind of record"),
    ),
    responses(
        (status = 200, description = "Records in order of position; a broken connection means that it is not all",
            content((Line = "application/x-ndjson"), (String = "text/csv"))),
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
    let form = query.take("format", Form::parse)?.unwrap_or(Form::Ndjson);
    let now = api.ask(api.ledger.now()).await?;
    let filter = LogFilter {
        tenant: Some(principal.tenant.clone()),
        from: query.take("from", Timestamp::parse_rfc3339)?,
        // Bounded, so that an export of a busy store ends.
        to: Some(query.take("to", Timestamp::parse_rfc3339)?.unwrap_or(now).min(now)),
        notification: query.take("notification", NotificationId::parse)?,
        event_id: query.take("event_id", EventId::parse)?,
        what: query.take("what", |text| What::from_code(text).ok_or(()))?,
    };
    query.nothing_else()?;
    let mut record = Record::new(now, principal.tenant.clone(), What::Exported, principal.actor());
    record.notification = filter.notification;
    record.event_id = filter.event_id.clone();
    api.ask(api.ledger.record(record)).await?;
    let export = Export { api, filter, form, after: 0, first: true, done: false };
    let body = Body::from_stream(stream::unfold(export, Export::page));
    Ok(([(CONTENT_TYPE, form.media_type()), (CACHE_CONTROL, "no-store")], body).into_response())
}

/// Whether the tenant's records add up.
#[derive(Serialize, ToSchema)]
pub(super) struct Account {
    /// Every acknowledged event has one `accepted` record and, once finished, one final record.
    closes: bool,
    /// The numbers that must add up.
    #[schema(value_type = Object)]
    counts: crate::store::rows::AccountCounts,
    /// Notifications whose records do not; at most 100.
    #[schema(value_type = Vec<Object>)]
    faults: Vec<crate::store::rows::AccountFault>,
}

/// Adds up the tenant's records.
#[utoipa::path(
    get, path = "/v1/audit/account", operation_id = "account", security(("key" = [])),
    responses(
        (status = 200, description = "The numbers, and what does not add up", body = Account),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "No role", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not available now", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn account(State(api): State<Arc<Api>>, principal: Principal) -> Result<Json<Account>, Problem> {
    principal.require(&[Role::Auditor, Role::Operator])?;
    let tenant = Some(&principal.tenant);
    let counts = api.ask(api.ledger.account_counts(tenant)).await?;
    let faults = api.ask(api.ledger.account_faults(tenant, MAX_FAULTS)).await?;
    Ok(Json(Account { closes: faults.is_empty(), counts, faults }))
}
