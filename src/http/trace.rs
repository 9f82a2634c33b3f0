//! One log line for each failure, and a name for each request. No line holds a value of the request.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderValue};

use super::Api;
use super::headers::{IDEMPOTENCY_KEY, REQUEST_ID, TRACEPARENT, idempotency_key, request_id, traceparent};
use super::problem::Failed;
use crate::vault::{Purpose, random};

/// Names the request, runs it, and tells of a failure.
pub(super) async fn told(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let id = request_id(headers).map_or_else(|| HEXLOWER.encode(random::<8>().as_slice()), str::to_owned);
    let told = kept(headers);
    let mut response = next.run(request).await;
    if let Some(Failed(code)) = response.extensions().get() {
        let (problem, status) = (code.name(), code.status().as_u16());
        let key = logged_key(&api, &told);
        // A field without a value is left out of the line.
        let (traceparent, key) = (traceparent(&told), key.as_deref());
        if code.status().is_server_error() {
            tracing::warn!(request = %id, traceparent, key, problem, status, "request failed");
        } else {
            tracing::info!(request = %id, traceparent, key, problem, status, "request refused");
        }
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// What of the headers a line about a failure needs; most requests need none.
fn kept(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in [IDEMPOTENCY_KEY, TRACEPARENT] {
        for value in headers.get_all(&name) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// The idempotency key as logs may hold it.
fn logged_key(api: &Api, headers: &HeaderMap) -> Option<String> {
    let key = idempotency_key(headers).ok()?;
    Some(api.index.hash(Purpose::LoggedKey, &[key.as_str().as_bytes()]).to_string())
}
