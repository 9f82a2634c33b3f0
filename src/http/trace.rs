//! One log line for each failure, and a name for each request. No line holds a value of the request.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderValue};

use super::Api;
use super::headers::{REQUEST_ID, idempotency_key, request_id, traceparent};
use super::problem::Failed;
use crate::vault::{Purpose, random};

/// Names the request, runs it, and tells of a failure.
pub(super) async fn told(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let id = request_id(headers).map_or_else(|| HEXLOWER.encode(random::<8>().as_slice()), str::to_owned);
    let trace = traceparent(headers).map(str::to_owned);
    let key = logged_key(&api, headers);
    let mut response = next.run(request).await;
    if let Some(Failed(code)) = response.extensions().get() {
        let (problem, status) = (code.name(), code.status().as_u16());
        // A field without a value is left out of the line.
        let (traceparent, key) = (trace.as_deref(), key.as_deref());
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

/// The idempotency key as logs may hold it.
fn logged_key(api: &Api, headers: &HeaderMap) -> Option<String> {
    let key = idempotency_key(headers).ok()?;
    Some(api.index.hash(Purpose::LoggedKey, &[key.as_str().as_bytes()]).to_string())
}
