//! Long polls: a bounded number of readers wait for the next commit that changes what they see.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use data_encoding::HEXLOWER;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::sleep;

use super::Api;
use super::headers::none_match;
use super::problem::{Code, Problem};
use super::server::told_to;
use super::view::Status;
use crate::domain::ids::{EventId, IdempotencyKey, NotificationId, Tenant};

/// The longest that anyone may wait.
pub(super) const LONGEST: Duration = Duration::from_secs(60);
/// Under load every commit wakes every waiter; each reads again at most so often.
const PACE: Duration = Duration::from_millis(100);

/// What another node has changed is seen so soon.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Which notification is wanted.
pub(super) enum Wanted {
    Id(NotificationId),
    Event(EventId),
    Key(IdempotencyKey),
}

/// What a reader is shown, and by which tag it is known.
struct Shown {
    body: Vec<u8>,
    tag: String,
    is_final: bool,
}

async fn read(api: &Api, tenant: &Tenant, wanted: &Wanted) -> Result<Shown, Problem> {
    let row = match wanted {
        Wanted::Id(id) => api.ask(api.ledger.status(tenant, *id)).await?,
        Wanted::Event(event) => api.ask(api.ledger.status_by_event(tenant, event)).await?,
        Wanted::Key(key) => api.ask(api.ledger.status_by_key(tenant, key)).await?,
    };
    let status = Status::of(&row.ok_or_else(Problem::not_found)?);
    let body = serde_json::to_vec(&status).map_err(|_| Problem::new(Code::Internal, "the status cannot be shown"))?;
    let tag = format!("\"{}\"", HEXLOWER.encode(&digest(&SHA256, &body).as_ref()[..16]));
    Ok(Shown { body, tag, is_final: status.is_final() })
}

/// The status at once or, with `wait`, when it is final; with `If-None-Match`, when it is another one than that.
pub(super) async fn answer(
    api: &Api,
    tenant: &Tenant,
    wanted: &Wanted,
    headers: &HeaderMap,
    wait: Option<Duration>,
) -> Result<Response, Problem> {
    let conditional = headers.contains_key(http::header::IF_NONE_MATCH);
    let settled = |shown: &Shown| if conditional { !none_match(headers, &shown.tag) } else { shown.is_final };
    // Subscribed before the first look, so that no commit falls between.
    let mut commits = api.ledger.commits();
    let mut shown = read(api, tenant, wanted).await?;
    if let Some(wait) = wait.filter(|_| !settled(&shown)) {
        let full = || Problem::new(Code::TooManyWaiters, "too many requests wait already").after(PACE);
        let _permit = Arc::clone(&api.waiters).try_acquire_owned().map_err(|_| full())?;
        let mut stopping = api.stopping.clone();
        let mut over = pin!(sleep(wait));
        while !settled(&shown) {
            let mut pause = pin!(sleep(PACE));
            let changed = tokio::select! {
                changed = commits.changed() => changed.is_ok(),
                () = sleep(LOOK_EVERY) => true,
                () = &mut over => false,
                () = told_to(&mut stopping) => false,
            };
            if !changed {
                break;
            }
            pause.as_mut().await;
            shown = read(api, tenant, wanted).await?;
        }
    }
    Ok(response(shown, headers))
}

fn response(shown: Shown, headers: &HeaderMap) -> Response {
    let mut response = if none_match(headers, &shown.tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(CONTENT_TYPE, "application/json")], Body::from(shown.body)).into_response()
    };
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&shown.tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}
