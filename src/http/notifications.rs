//! `/v1/notifications`: posting an event, and how it stands.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;

use super::admission::Taken;
use super::auth::{Principal, Role};
use super::forms;
use super::headers::{REPLAYED, idempotency_key, json_only};
use super::problem::{Code, Problem, ProblemBody};
use super::request::{Json, Query, Segment, body};
use super::view::Status;
use super::wait::{self, Wanted};
use super::{Api, admission, judge, status_url};
use crate::domain::event::EventRequest;
use crate::domain::ids::{EventId, IdempotencyKey, NotificationId};
use crate::domain::lifecycle::State as Stands;
use crate::ledger::Accepted;

/// Who may read a notification.
const READERS: &[Role] = &[Role::Sender, Role::Auditor, Role::Operator];

/// The answer to an event that is stored; the same to the byte on every repeat.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Accepted)]
pub(super) struct AcceptedBody {
    /// `ntf_` and a UUID.
    #[schema(value_type = forms::Id)]
    id: NotificationId,
    /// The app's name for the event.
    #[schema(value_type = forms::Name)]
    event_id: EventId,
    /// Always `accepted`.
    #[schema(value_type = forms::State)]
    state: Stands,
    /// Where its status is.
    status_url: String,
    /// When the token dies, as the first request said.
    #[schema(value_type = forms::Time)]
    expires_at: String,
}

/// Posts an event. Repeat it with the same key until it is answered.
#[utoipa::path(
    post, path = "/v1/notifications", operation_id = "post_event", security(("key" = [])),
    request_body = inline(forms::Event),
    params(("Idempotency-Key" = forms::KeyHeader, Header, description = "Names the command; the same on every repeat")),
    responses(
        (status = 202, description = "Stored, or stored before (Idempotency-Replayed: true)", body = AcceptedBody,
            headers(("Location" = String), ("Idempotency-Replayed" = String)),
            links(
                ("get" = (operation_id = "get_notification", parameters(("id" = "$response.body#/id")))),
                ("find" = (operation_id = "find_notification", parameters(("event_id" = "$response.body#/event_id")))),
                ("cancel" = (operation_id = "cancel_notification", parameters(("id" = "$response.body#/id")))),
                ("resolve" = (operation_id = "resolve_unknown", parameters(("id" = "$response.body#/id")))),
            )),
        (status = 400, description = "Malformed; names the field", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "Role or country", body = ProblemBody, content_type = "application/problem+json"),
        (status = 408, description = "The body did not arrive in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "event-already-accepted under another key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Body over the limit", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "Not application/json", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "idempotency-key-reused, or refused by judgement", body = ProblemBody, content_type = "application/problem+json"),
        (status = 429, description = "A limit is reached; Retry-After", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not known to be stored; repeat with the same key", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn post(
    State(api): State<Arc<Api>>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let taken = take(&api, &principal, &headers, body).await;
    admission::count(&api, taken.as_ref());
    taken.map(accepted_response)
}

async fn take(api: &Api, principal: &Principal, headers: &HeaderMap, posted: Body) -> Result<Taken, Problem> {
    principal.require(&[Role::Sender])?;
    json_only(headers)?;
    let key = idempotency_key(headers)?;
    let bytes = body(posted, headers, api.limits.body, &api.limits).await?;
    let request = EventRequest::parse(&bytes)?;
    request.check_key(&key)?;
    let repeat = judge::repeat_of(&api.index, &principal.tenant, &key, &request);
    admission::take(api, principal, request, repeat).await.map_err(|e| admission::key_at(e, "Idempotency-Key"))
}

impl From<Accepted> for AcceptedBody {
    fn from(accepted: Accepted) -> Self {
        Self {
            id: accepted.id,
            event_id: accepted.event_id,
            state: Stands::Accepted,
            status_url: status_url(accepted.id),
            expires_at: accepted.expires_at.to_string(),
        }
    }
}

/// The answer 202.
pub(super) fn accepted_response(Taken { accepted, replayed }: Taken) -> Response {
    let body = AcceptedBody::from(accepted);
    let location = HeaderValue::from_str(&body.status_url);
    let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(LOCATION, location);
    }
    if replayed {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// How a notification stands. Local state only; never a side effect.
#[utoipa::path(
    get, path = "/v1/notifications/{id}", operation_id = "get_notification", security(("key" = [])),
    params(
        ("id" = forms::Id, Path, description = "ntf_ and a UUID"),
        ("wait" = Option<forms::Wait>, Query, description = "Such as 20s, at most 60s: answers when it is final or, with If-None-Match, when it has changed"),
    ),
    responses(
        (status = 200, description = "How it stands", body = Status, headers(("ETag" = String))),
        (status = 304, description = "As If-None-Match says"),
        (status = 400, description = "Malformed", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "No role", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "There is none, or it is another tenant's", body = ProblemBody, content_type = "application/problem+json"),
        (status = 429, description = "Too many long polls", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not available now", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get(
    State(api): State<Arc<Api>>,
    principal: Principal,
    Segment(id): Segment,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, Problem> {
    let wanted = |query: Query| {
        query.nothing_else()?;
        NotificationId::parse(&id).map(Wanted::Id).map_err(|_| Problem::not_found())
    };
    show(&api, &principal, &headers, query, wanted).await
}

/// How a notification stands, found by the app's own names.
#[utoipa::path(
    get, path = "/v1/notifications", operation_id = "find_notification", security(("key" = [])),
    params(
        ("event_id" = Option<forms::Name>, Query, description = "This or idempotency_key"),
        ("idempotency_key" = Option<forms::Name>, Query, description = "This or event_id"),
        ("wait" = Option<forms::Wait>, Query, description = "As for one notification"),
    ),
    responses(
        (status = 200, description = "How it stands", body = Status, headers(("ETag" = String))),
        (status = 304, description = "As If-None-Match says"),
        (status = 400, description = "Malformed", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "No role", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "There is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 429, description = "Too many long polls", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not available now", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn find(
    State(api): State<Arc<Api>>,
    principal: Principal,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, Problem> {
    let wanted = |mut query: Query| {
        let event = query.take("event_id", EventId::parse)?;
        let key = query.take("idempotency_key", IdempotencyKey::parse)?;
        query.nothing_else()?;
        match (event, key) {
            (Some(event), None) => Ok(Wanted::Event(event)),
            (None, Some(key)) => Ok(Wanted::Key(key)),
            _ => Err(Problem::new(Code::BadRequest, "exactly one of event_id and idempotency_key is needed")),
        }
    };
    show(&api, &principal, &headers, query, wanted).await
}

/// Shows what `wanted` reads from the query, at once or after a wait.
async fn show(
    api: &Api,
    principal: &Principal,
    headers: &HeaderMap,
    mut query: Query,
    wanted: impl FnOnce(Query) -> Result<Wanted, Problem>,
) -> Result<Response, Problem> {
    principal.require(READERS)?;
    let wait = query.take("wait", seconds)?;
    wait::answer(api, &principal.tenant, &wanted(query)?, headers, wait).await
}

/// `20s` or `20`; no more than a minute is waited.
fn seconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    let seconds: u16 = text.strip_suffix('s').unwrap_or(text).parse()?;
    Ok(Duration::from_secs(seconds.into()).min(wait::LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;
    use http_body_util::BodyExt;

    fn accepted() -> Accepted {
        Accepted {
            id: NotificationId::from_bytes([7; 16]),
            event_id: EventId::parse("reset-1").expect("an id"),
            expires_at: Timestamp::from_micros(1_795_910_400_000_000),
        }
    }

    async fn bytes(response: Response) -> Vec<u8> {
        response.into_body().collect().await.expect("a body").to_bytes().to_vec()
    }

    #[tokio::test]
    async fn a_repeat_gets_the_first_answer_to_the_byte_and_a_mark() {
        let first = accepted_response(Taken { accepted: accepted(), replayed: false });
        let again = accepted_response(Taken { accepted: accepted(), replayed: true });
        assert_eq!((first.status(), again.status()), (StatusCode::ACCEPTED, StatusCode::ACCEPTED));
        assert_eq!(first.headers()[LOCATION], "/v1/notifications/ntf_07070707-0707-0707-0707-070707070707");
        assert_eq!(first.headers()[LOCATION], again.headers()[LOCATION]);
        assert_eq!(
            (first.headers().get(REPLAYED), &again.headers()[REPLAYED]),
            (None, &HeaderValue::from_static("true"))
        );
        let first = bytes(first).await;
        assert_eq!(
            String::from_utf8_lossy(&first),
            r#"{"id":"ntf_07070707-0707-0707-0707-070707070707","event_id":"reset-1","state":"accepted","status_url":"/v1/notifications/ntf_07070707-0707-0707-0707-070707070707","expires_at":"2026-11-29T00:00:00.000000Z"}"#
        );
        assert_eq!(first, bytes(again).await);
    }

    #[test]
    fn a_wait_is_a_number_of_seconds_up_to_a_minute() {
        assert_eq!(seconds("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(seconds("5"), Ok(Duration::from_secs(5)));
        assert_eq!(seconds("3600s"), Ok(Duration::from_secs(60)));
        assert!(seconds("20m").is_err() && seconds("").is_err() && seconds("-1").is_err());
    }
}
