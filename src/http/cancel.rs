//! `POST /v1/notifications/{id}/cancel`: takes a notification back, or says that it may have left.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Principal, Role};
use super::forms;
use super::problem::{Problem, ProblemBody};
use super::request::{Json, Segment};
use crate::domain::ids::NotificationId;
use crate::ledger::CancelAnswer;

/// What a cancel came to.
#[derive(Serialize, ToSchema)]
pub(super) struct Cancelled {
    /// Which notification.
    #[schema(value_type = forms::Id)]
    id: String,
    /// `cancelled`: it had not left and never will. `marked`: it may have left, and no further attempt is made.
    /// `already_final`: it was over.
    result: &'static str,
    /// Its state now.
    #[schema(value_type = forms::State)]
    state: &'static str,
}

/// Cancels a notification. A repeat gives the same answer or `already_final`.
#[utoipa::path(
    post, path = "/v1/notifications/{id}/cancel", operation_id = "cancel_notification", security(("key" = [])),
    params(("id" = forms::Id, Path, description = "ntf_ and a UUID")),
    responses(
        (status = 200, description = "What it came to", body = Cancelled),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "No role", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "There is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not known to be stored", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    principal: Principal,
    Segment(id): Segment,
) -> Result<Json<Cancelled>, Problem> {
    principal.require(&[Role::Sender, Role::Operator])?;
    let id = NotificationId::parse(&id).map_err(|_| Problem::not_found())?;
    let (result, state) = match api.ask(api.ledger.cancel(&principal.tenant, id, principal.actor.clone())).await? {
        CancelAnswer::Cancelled => ("cancelled", "cancelled"),
        CancelAnswer::Marked(state) => ("marked", state.code()),
        CancelAnswer::AlreadyFinal(state) => ("already_final", state.code()),
        CancelAnswer::NotFound => return Err(Problem::not_found()),
    };
    Ok(Json(Cancelled { id: id.to_string(), result, state }))
}
