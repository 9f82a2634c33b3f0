//! `/v1/notifications:batch`: many events in one request, a line each (NDJSON), and an answer line for each in the same
//! order. A line is acknowledged after its own durable commit; lines are handed over side by side, so that they share
//! commits. Reading does not wait for the client to take the answers: a client that sends all of its lines before it
//! reads would wait for us as we for it. What so waits is bounded by the number of lines.

mod lines;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use futures_util::stream::{self, StreamExt as _};
use http::HeaderMap;
use serde::Serialize;
use tokio::sync::mpsc;

use super::admission::{self, Taken};
use super::auth::{Principal, Role};
use super::forms;
use super::headers::ndjson_only;
use super::notifications::AcceptedBody;
use super::problem::{Code, Problem, ProblemBody};
use super::{Api, judge, ndjson};
use crate::domain::event::EventRequest;
use lines::{Line, Lines};

/// How many lines of one request are with the ledger at once.
const WINDOW: usize = 64;

/// The answer to one line.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = LineAnswer)]
pub(super) struct LineAnswer<'a> {
    /// Which line, counted from 1; empty lines count and get no answer.
    line: usize,
    /// As the line would be answered alone.
    status: u16,
    /// Stored before; this is the first answer again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    replayed: bool,
    /// With 202.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body: Option<AcceptedBody>,
    /// With every other status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    problem: Option<ProblemBody<'a>>,
    /// Seconds to wait before the line is repeated, where it may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    retry_after: Option<u64>,
}

/// Posts many events, a line each. Repeat lines that got no answer, or one of 408, 429 or 503, under the same keys.
#[utoipa::path(
    post, path = "/v1/notifications:batch", operation_id = "post_batch", security(("key" = [])),
    request_body(content = forms::Lines, content_type = "application/x-ndjson",
        description = "A line each: the body of one event, with its key as the member `idempotency_key`"),
    responses(
        (status = 200, description = "A LineAnswer for each line, in the same order; where it breaks off, the lines without one are to be repeated",
            body = String, content_type = "application/x-ndjson"),
        (status = 400, description = "No line, or it broke off in the first", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "No role", body = ProblemBody, content_type = "application/problem+json"),
        (status = 408, description = "The first line did not arrive in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "Not application/x-ndjson", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn post(
    State(api): State<Arc<Api>>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    principal.require(&[Role::Sender])?;
    ndjson_only(&headers)?;
    let mut lines = Lines::new(body, &api.limits);
    let first = match lines.next().await {
        Some(Line::Broken(_, problem)) => return Err(problem),
        Some(line) => line,
        None => return Err(Problem::new(Code::BadRequest, "the body has no line")),
    };
    let (answers, answered) = mpsc::channel::<Bytes>(api.limits.batch_lines.saturating_add(1));
    tokio::spawn(run(api, principal, first, lines, answers));
    Ok(ndjson::answer(ndjson::received(answered)))
}

/// Answers the lines until there are no more, or nobody is there to be answered.
async fn run(api: Arc<Api>, principal: Principal, first: Line, lines: Lines, answers: mpsc::Sender<Bytes>) {
    let rest = stream::unfold(lines, async |mut lines| Some((lines.next().await?, lines)));
    let all = stream::once(std::future::ready(first)).chain(rest);
    let answered = all.map(|line| answer(&api, &principal, line)).buffered(WINDOW);
    let (mut taken, mut refused) = (0_usize, 0_usize);
    let mut answered = std::pin::pin!(answered);
    while let Some((is_taken, bytes)) = answered.next().await {
        *(if is_taken { &mut taken } else { &mut refused }) += 1;
        if answers.send(bytes).await.is_err() {
            tracing::info!(taken, refused, "a batch's client went away");
            return;
        }
    }
    tracing::debug!(taken, refused, "a batch was answered");
}

/// One line's answer, and whether it was taken.
async fn answer(api: &Api, principal: &Principal, line: Line) -> (bool, Bytes) {
    let (number, taken) = match line {
        Line::Whole(number, bytes) => (number, take(api, principal, &bytes).await),
        Line::Bad(number, problem) | Line::Broken(number, problem) => (number, Err(problem)),
    };
    admission::count(api, taken.as_ref());
    let mut answer =
        LineAnswer { line: number, status: 202, replayed: false, body: None, problem: None, retry_after: None };
    let refusal = match taken {
        Ok(Taken { accepted, replayed }) => {
            answer.replayed = replayed;
            answer.body = Some(accepted.into());
            None
        }
        Err(problem) => Some(problem),
    };
    if let Some(problem) = &refusal {
        answer.status = problem.code().status().as_u16();
        answer.problem = Some(problem.body());
        answer.retry_after = problem.retry_after();
    }
    (refusal.is_none(), ndjson::line(&answer))
}

async fn take(api: &Api, principal: &Principal, line: &[u8]) -> Result<Taken, Problem> {
    let (key, request) = EventRequest::parse_line(line)?;
    let repeat = judge::repeat_of(&api.index, &principal.tenant, &key, &request);
    admission::take(api, principal, request, repeat).await.map_err(|e| admission::key_at(e, "idempotency_key"))
}
