//! `/v1/hooks/{name}`: requests that other systems send as they are. Each hook has a proof of its own; what it brings goes
//! the way of every event, and the answer is one that its sender understands.

mod proof;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::admission::{self, Taken};
use super::forms;
use super::headers::json_only;
use super::notifications::{AcceptedBody, accepted_response};
use super::problem::{Code, Failed, Problem, ProblemBody};
use super::request::{Json, Segment, body};
use super::{Api, judge};
use crate::domain::event::EventRequest;
use crate::domain::hook::{Heard, Hook, Unfit};
use crate::domain::ids::HookName;
use crate::ledger::Repeat;
use crate::vault::Purpose;

/// What Supabase Auth is answered, and whoever is to be content that nothing is sent.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = HookAnswer)]
struct HookAnswer {
    /// What Supabase Auth shall tell its own client.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<HookError>,
}

/// Why a message is not sent.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = HookError)]
struct HookError {
    /// The status that the same event would be answered with in a request of an app.
    http_code: u16,
    /// The problem in words.
    message: String,
}

/// Takes what another system sends. Repeat it until it is answered; a repeat is recognised by its content.
#[utoipa::path(
    post, path = "/v1/hooks/{name}", operation_id = "post_hook",
    params(("name" = forms::Hook, Path, description = "A configured hook, which proves its requests in its own way")),
    request_body(content = Object, content_type = "application/json", description = "As its sender documents it"),
    responses(
        (status = 200, description = "To Supabase Auth: stored, stored before, or refused for good (`error`). To others: nothing is to be sent", body = HookAnswer),
        (status = 202, description = "Stored, or stored before (Idempotency-Replayed: true)", body = AcceptedBody,
            headers(("Location" = String), ("Idempotency-Replayed" = String))),
        (status = 400, description = "Proven, but malformed; names the field", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "The origin is not proven", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "Role or country", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "No such hook", body = ProblemBody, content_type = "application/problem+json"),
        (status = 408, description = "The body did not arrive in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "event-already-accepted under another key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Body over the limit", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "Not application/json", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "No kind for it, or refused by judgement", body = ProblemBody, content_type = "application/problem+json"),
        (status = 429, description = "A limit is reached; Retry-After", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not known to be stored; repeat it", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn post(
    State(api): State<Arc<Api>>,
    Segment(name): Segment,
    request: Request,
) -> Result<Response, Problem> {
    let hook = HookName::parse(&name).ok().and_then(|name| api.hooks.get(&name)).ok_or_else(Problem::not_found)?;
    let count = |problem: &Problem| admission::count(&api, Err(problem));
    let (parts, posted) = request.into_parts();
    let bytes = body(posted, &parts.headers, api.limits.body, &api.limits).await.inspect_err(count)?;
    let principal = proof::prove(&api, hook, &parts.headers, &bytes).inspect_err(count)?;
    let taken = async {
        json_only(&parts.headers)?;
        admission::take_all(&api, &principal, events(&api, hook, &bytes)?).await
    };
    let taken = taken.await.inspect_err(count);
    taken.iter().flatten().for_each(|taken| admission::count(&api, Ok(taken)));
    answer(hook, taken)
}

/// The events of a proven request, each with what recognises a repeat of it.
fn events(api: &Api, hook: &Hook, body: &[u8]) -> Result<Vec<(EventRequest, Repeat)>, Problem> {
    let heard = hook.read(body, &|parts| api.index.hash(Purpose::HookEvent, parts)).map_err(|unfit| match unfit {
        Unfit::Malformed(e) => Problem::from(e),
        Unfit::Unmapped(field) => {
            Problem::new(Code::UnknownKind, "this hook has no kind of message for what it names").at(field)
        }
    })?;
    let repeat_of = |Heard { event, key, derived }| {
        let recognise = if derived { judge::repeat_by_key } else { judge::repeat_of };
        let repeat = recognise(&api.index, &hook.tenant, &key, &event);
        (event, repeat)
    };
    Ok(heard.into_iter().map(repeat_of).collect())
}

/// Supabase Auth reads no body but that of a 200 (supabase/auth pull request 2380), and makes every other status but 429
/// and 503 a mere 500 for its client; on these it tries again at once, three times in all within 5 seconds. So a refusal
/// that would stand is a 200 with the error in it, and only what may be repeated keeps its status.
fn answer(hook: &Hook, taken: Result<Vec<Taken>, Problem>) -> Result<Response, Problem> {
    match taken {
        Ok(taken) => match taken.into_iter().next().filter(|_| !hook.speaks.is_supabase()) {
            Some(taken) => Ok(accepted_response(taken)),
            None => Ok(Json(HookAnswer { error: None }).into_response()),
        },
        Err(problem) if hook.speaks.is_supabase() && problem.code().status().is_client_error() => {
            let error = HookError { http_code: problem.code().status().as_u16(), message: problem.in_words() };
            let mut response = Json(HookAnswer { error: Some(error) }).into_response();
            response.extensions_mut().insert(Failed(problem.code()));
            Ok(response)
        }
        Err(problem) => Err(problem),
    }
}
