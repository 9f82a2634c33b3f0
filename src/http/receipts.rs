//! `/v1/receipts/{provider}`: a provider's later word. Its signature or secret proves it, not a bearer key.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use http::StatusCode;

use super::forms;
use super::problem::{Code, Problem, ProblemBody};
use super::request::{Segment, body};
use super::{Api, Limits};
use crate::domain::ids::ProviderName;
use crate::ledger::Received;
use crate::metrics::{ByProviderResult, Metrics};
use crate::provider::{ReceiptError, ReceiptRequest};

/// The largest receipt that is read, in bytes: several vendors put many into one request.
const MAX_BODY: usize = 256 * 1024;

/// Takes receipts. 200 only after they are stored; a provider sends again what was not answered so.
#[utoipa::path(
    post, path = "/v1/receipts/{provider}", operation_id = "post_receipts",
    params(("provider" = forms::Provider, Path, description = "A configured provider")),
    responses(
        (status = 200, description = "Stored, or known already, or of no interest"),
        (status = 400, description = "Proven, but not readable", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "The origin is not proven", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "No such provider, or it has no receipts", body = ProblemBody, content_type = "application/problem+json"),
        (status = 408, description = "The body did not arrive in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Body over the limit", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not stored; send it again", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn post(
    State(api): State<Arc<Api>>,
    Segment(provider): Segment,
    request: Request,
) -> Result<StatusCode, Problem> {
    receive(&api, &provider, request).await
}

/// Takes a receipt whose fields stand in the query.
#[utoipa::path(
    get, path = "/v1/receipts/{provider}", operation_id = "get_receipts",
    params(("provider" = forms::Provider, Path, description = "A configured provider")),
    responses(
        (status = 200, description = "Stored, or known already, or of no interest"),
        (status = 400, description = "Proven, but not readable", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "The origin is not proven", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "No such provider, or it has no receipts", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not stored; send it again", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get(
    State(api): State<Arc<Api>>,
    Segment(provider): Segment,
    request: Request,
) -> Result<StatusCode, Problem> {
    receive(&api, &provider, request).await
}

async fn receive(api: &Api, name: &str, request: Request<Body>) -> Result<StatusCode, Problem> {
    let provider = ProviderName::parse(name).ok().and_then(|name| api.providers.get(&name));
    let provider = provider.ok_or_else(Problem::not_found)?;
    let request = whole(request, &api.limits).await?;
    let told = Told { metrics: &api.metrics, provider: name };
    let receipts = provider.receipts(&request, api.clock.now()).await.map_err(|e| told.refused(e))?;
    let received = api.ask(api.ledger.receive(receipts)).await.inspect_err(|_| told.count("not_stored"))?;
    for what in received {
        told.count(match what {
            Received::Matched(_) => "matched",
            Received::Repeated(_) => "repeated",
            Received::Kept => "kept",
        });
    }
    Ok(StatusCode::OK)
}

/// Reads a request whole, as a signature needs it.
///
/// # Errors
/// 413, 408, or 400 for one that broke off.
pub async fn whole(request: Request<Body>, limits: &Limits) -> Result<ReceiptRequest, Problem> {
    let (parts, posted) = request.into_parts();
    let body = body(posted, &parts.headers, MAX_BODY, limits).await?;
    let path_and_query = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    Ok(ReceiptRequest { path_and_query, method: parts.method, headers: parts.headers, body })
}

/// What the sender of a receipt is answered that was not taken.
pub fn refusal(e: ReceiptError) -> Problem {
    match e {
        ReceiptError::NotOffered => Problem::not_found(),
        ReceiptError::NotAuthentic => Problem::new(Code::Unauthorized, "the receipt's origin is not proven"),
        ReceiptError::Unreadable => Problem::new(Code::BadRequest, "the receipt does not read as its documents say"),
        ReceiptError::Unavailable => Problem::new(Code::Unavailable, "the receipt's origin cannot be checked now"),
    }
}

/// Counts what becomes of a provider's receipts.
struct Told<'a> {
    metrics: &'a Metrics,
    provider: &'a str,
}

impl Told<'_> {
    fn count(&self, result: &'static str) {
        let labels = ByProviderResult { provider: self.provider.to_owned(), result };
        self.metrics.receipts.get_or_create(&labels).inc();
    }

    fn refused(&self, e: ReceiptError) -> Problem {
        match e {
            ReceiptError::NotOffered => {}
            ReceiptError::NotAuthentic => self.count("not_authentic"),
            ReceiptError::Unreadable => self.count("unreadable"),
            ReceiptError::Unavailable => self.count("unavailable"),
        }
        refusal(e)
    }
}
