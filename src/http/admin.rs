//! The admin listener: is the process alive, does it take work, and its numbers.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use super::problem::Problem;
use super::request::Json;
use crate::metrics::Metrics;

/// Tells why the daemon is not ready; nothing when it is.
pub type Readiness = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// What the admin listener shows.
#[derive(Clone)]
pub struct Admin {
    /// Why the daemon is not ready.
    pub readiness: Readiness,
    /// The numbers.
    pub metrics: Metrics,
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    reasons: Vec<String>,
}

/// `/healthz`, `/readyz` and `/metrics`.
pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(async || Problem::not_found())
        .with_state(admin)
}

async fn readyz(State(admin): State<Admin>) -> Response {
    let reasons = (admin.readiness)();
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Ready { ready: reasons.is_empty(), reasons })).into_response()
}

/// OpenMetrics 1.0, section "Content-Type".
async fn metrics(State(admin): State<Admin>) -> Response {
    let text = admin.metrics.encode();
    if text.is_empty() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}
