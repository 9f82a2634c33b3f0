//! `POST /v1/statements`: a provider's own list of messages beside our attempts.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use futures_util::StreamExt as _;
use http::HeaderMap;
use tokio::sync::mpsc;

use super::auth::{Principal, Role};
use super::forms;
use super::problem::{Code, Problem, ProblemBody};
use super::resolve::members;
use super::{Api, ndjson};
use crate::domain::event::{BadRequest, Members};
use crate::domain::ids::ProviderName;
use crate::domain::time::Timestamp;
use crate::provider::statement::Period;
use crate::statement::{self, Fault, LONGEST, Line, Question};

/// Lines that wait for a slow reader.
const WAITING: usize = 64;

/// Compares a provider's list with the attempts of a period. What the list shows of unknown attempts settles them.
#[utoipa::path(
    post, path = "/v1/statements", operation_id = "compare_statement", security(("key" = [])),
    request_body = inline(forms::StatementForm),
    responses(
        (status = 200, description = "Lines as the work goes on; without a line `done` it was not finished",
            content((String = "application/x-ndjson"))),
        (status = 400, description = "Malformed", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "No role", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "No such provider", body = ProblemBody, content_type = "application/problem+json"),
        (status = 408, description = "The body did not arrive in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "Another comparison is under way", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Body over the limit", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "Not application/json", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The provider has no list", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not available now", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn post(
    State(api): State<Arc<Api>>,
    principal: Principal,
    headers: HeaderMap,
    posted: Body,
) -> Result<Response, Problem> {
    principal.require(&[Role::Operator])?;
    let mut m = members(&api, &headers, posted).await?;
    let name: ProviderName = m.required("provider", Members::name)?;
    let since = m.required("from", Members::time)?;
    let until = m.required("to", Members::time)?;
    m.nothing_else()?;
    let provider = api.providers.get(&name).cloned().ok_or_else(Problem::not_found)?;
    let Some(list) = provider.statement() else {
        return Err(Problem::new(Code::NoStatement, "this provider has no list of messages that can be read"));
    };
    let period = Period { since, until };
    let now = api.ask(api.ledger.now()).await?;
    check(period, now, list)?;
    let Ok(permit) = api.statements.clone().try_acquire_owned() else {
        return Err(Problem::new(Code::StatementRunning, "one comparison is made at a time"));
    };
    let (lines, received) = mpsc::channel(WAITING);
    let (ledger, clock, mut stopping) = (api.ledger.clone(), api.clock.clone(), api.stopping.clone());
    let question = Question { provider, period, tenant: principal.tenant.clone() };
    tokio::spawn(async move {
        let _permit = permit;
        let stopped = lines.clone();
        tokio::select! {
            () = statement::run(ledger, clock, question, lines) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {
                let _told = stopped.try_send(Line::Failed { why: Fault::Stopping });
            }
        }
    });
    Ok(ndjson::answer(ndjson::received(received).map(|line| ndjson::line(&line))))
}

fn check(period: Period, now: Timestamp, list: &dyn crate::provider::statement::Statement) -> Result<(), BadRequest> {
    if period.until > now || period.since >= period.until {
        return Err(BadRequest::new("to", "must be after `from`, and not in the future"));
    }
    if period.until.since(period.since) > LONGEST {
        return Err(BadRequest::new("from", "must be at most 31 days before `to`"));
    }
    if now.since(period.since) > list.window() {
        return Err(BadRequest::new("from", "is further back than this provider's list reaches"));
    }
    Ok(())
}
