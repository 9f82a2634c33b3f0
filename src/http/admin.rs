//! The admin listener: is the process alive, does it take work, its numbers, and the document of all this.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use utoipa::openapi::{InfoBuilder, OpenApiBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::openapi::serve_document;
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

/// Whether it takes work.
#[derive(Serialize, utoipa::ToSchema)]
struct Ready {
    /// There is no reason against it.
    ready: bool,
    /// Why not.
    reasons: Vec<String>,
}

/// `/healthz`, `/readyz`, `/metrics`, and `/openapi.json` that tells of them.
pub fn router(admin: Admin) -> Router {
    let info = InfoBuilder::new().title("sendonce, admin listener").version(env!("CARGO_PKG_VERSION")).build();
    let (routes, document) = OpenApiRouter::with_openapi(OpenApiBuilder::new().info(info).build())
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(metrics))
        .split_for_parts();
    serve_document(routes, &document)
        .fallback(async || Problem::not_found())
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .with_state(admin)
}

/// The process is alive.
#[utoipa::path(get, path = "/healthz", responses((status = 200, description = "It is", body = String, content_type = "text/plain")))]
async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether it takes work.
#[utoipa::path(
    get, path = "/readyz",
    responses(
        (status = 200, description = "It does", body = Ready),
        (status = 503, description = "It does not; says why", body = Ready),
    )
)]
async fn readyz(State(admin): State<Admin>) -> Response {
    let reasons = (admin.readiness)();
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Ready { ready: reasons.is_empty(), reasons })).into_response()
}

/// The numbers, in the text form of OpenMetrics 1.0 (section "Content-Type").
#[utoipa::path(
    get, path = "/metrics",
    responses((status = 200, description = "The numbers", body = String, content_type = "application/openmetrics-text"))
)]
async fn metrics(State(admin): State<Admin>) -> Response {
    let text = admin.metrics.encode();
    if text.is_empty() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}
