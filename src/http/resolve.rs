//! An operator's verdict on unknowns: on one, or on many that have provider, cause and time in common.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::Api;
use super::auth::{Principal, Role};
use super::forms;
use super::headers::json_only;
use super::problem::{Code, Problem, ProblemBody};
use super::request::{Json, Segment, body};
use crate::domain::event::{BadRequest, Members};
use crate::domain::ids::{NotificationId, ProviderName, Ticket};
use crate::domain::lifecycle::State as Stands;
use crate::domain::outcome::Reason;
use crate::domain::strict_json::{self, Value};
use crate::domain::time::Timestamp;
use crate::ledger::{ResolveAnswer, Verdict};
use crate::store::rows::UnknownFilter;

/// The most unknowns that one request settles.
const MAX_MANY: u64 = 1000;
/// How many are read at once.
const PAGE: u32 = 100;

/// What a verdict came to.
#[derive(Serialize, ToSchema)]
pub(super) struct Resolved {
    /// Which notification.
    #[schema(value_type = forms::Id)]
    id: String,
    /// Its state now.
    #[schema(value_type = forms::State)]
    state: &'static str,
}

/// What a verdict on many came to.
#[derive(Serialize, ToSchema)]
pub(super) struct ManyResolved {
    /// So many were settled.
    resolved: u64,
    /// So many had been settled by somebody else in the meantime.
    passed_over: u64,
    /// There are more that fit; repeat the request.
    more: bool,
}

fn verdict(field: &str, value: Value) -> Result<Verdict, BadRequest> {
    let text: Zeroizing<String> = Members::text(field, value)?;
    Verdict::from_code(&text).ok_or_else(|| BadRequest::new(field, "must be sent, not_sent or abandon"))
}

fn cause(field: &str, value: Value) -> Result<Reason, BadRequest> {
    let text = Members::text(field, value)?;
    Reason::from_code(&text).ok_or_else(|| BadRequest::new(field, "is no known reason"))
}

/// The members of a posted JSON object.
pub(super) async fn members(api: &Api, headers: &HeaderMap, posted: Body) -> Result<Members, Problem> {
    json_only(headers)?;
    let bytes = body(posted, headers, api.limits.body, &api.limits).await?;
    Ok(Members::of(strict_json::parse(&bytes).map_err(BadRequest::from)?)?)
}

/// Settles one unknown.
#[utoipa::path(
    post, path = "/v1/notifications/{id}/resolve", operation_id = "resolve_unknown", security(("key" = [])),
    params(("id" = forms::Id, Path, description = "ntf_ and a UUID")),
    request_body = inline(forms::VerdictForm),
    responses(
        (status = 200, description = "Settled", body = Resolved),
        (status = 400, description = "Malformed", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "No role", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "There is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 408, description = "The body did not arrive in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "There is no open question about it", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Body over the limit", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "Not application/json", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not known to be stored", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn resolve(
    State(api): State<Arc<Api>>,
    principal: Principal,
    Segment(id): Segment,
    headers: HeaderMap,
    posted: Body,
) -> Result<Json<Resolved>, Problem> {
    principal.require(&[Role::Operator])?;
    let id = NotificationId::parse(&id).map_err(|_| Problem::not_found())?;
    let mut m = members(&api, &headers, posted).await?;
    let verdict = m.required("verdict", verdict)?;
    let ticket: Ticket = m.required("ticket", Members::name)?;
    m.nothing_else()?;
    let resolve = api.ledger.resolve(Some(&principal.tenant), id, verdict, ticket, principal.actor.clone());
    match api.ask(resolve).await? {
        ResolveAnswer::Resolved(state) => Ok(Json(Resolved { id: id.to_string(), state: state.code() })),
        ResolveAnswer::NothingOpen(state) => Err(nothing_open(verdict, state)),
        ResolveAnswer::NotFound => Err(Problem::not_found()),
    }
}

fn nothing_open(verdict: Verdict, state: Stands) -> Problem {
    let detail = match (verdict, state) {
        (Verdict::Abandon, Stands::Expired) => {
            "it has expired: no attempt can follow any more, so that there is nothing to abandon".to_owned()
        }
        _ => format!("nothing is open about it; its state is {state}"),
    };
    Problem::new(Code::NothingOpen, detail)
}

struct Many {
    verdict: Verdict,
    ticket: Ticket,
    filter: UnknownFilter,
    limit: u64,
}

fn many(mut m: Members, principal: &Principal) -> Result<Many, BadRequest> {
    let verdict = m.required("verdict", verdict)?;
    let ticket = m.required("ticket", Members::name)?;
    let provider: Option<ProviderName> = m.optional("provider", Members::name)?;
    let cause = m.optional("cause", cause)?;
    let before: Option<Timestamp> = m.optional("before", Members::time)?;
    let limit = m.optional("limit", Members::count)?.unwrap_or(100);
    m.nothing_else()?;
    if provider.is_none() && cause.is_none() && before.is_none() {
        return Err(BadRequest::new(
            "provider",
            "or cause or before is needed, so that no verdict falls on all by mistake",
        ));
    }
    if limit > MAX_MANY {
        return Err(BadRequest::new("limit", format!("is over {MAX_MANY}")));
    }
    let filter =
        UnknownFilter { tenant: Some(principal.tenant.clone()), provider, cause, before, after: None, limit: PAGE };
    Ok(Many { verdict, ticket, filter, limit })
}

/// Settles many unknowns by one verdict. Each is a step of its own: a failure leaves the earlier ones settled.
#[utoipa::path(
    post, path = "/v1/unknown/resolve", operation_id = "resolve_unknowns", security(("key" = [])),
    request_body = inline(forms::VerdictOnMany),
    responses(
        (status = 200, description = "How many were settled", body = ManyResolved),
        (status = 400, description = "Malformed", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "No role", body = ProblemBody, content_type = "application/problem+json"),
        (status = 408, description = "The body did not arrive in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Body over the limit", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "Not application/json", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Not all are known to be settled; repeat", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn resolve_many(
    State(api): State<Arc<Api>>,
    principal: Principal,
    headers: HeaderMap,
    posted: Body,
) -> Result<Json<ManyResolved>, Problem> {
    principal.require(&[Role::Operator])?;
    let Many { verdict, ticket, mut filter, limit } = many(members(&api, &headers, posted).await?, &principal)?;
    let mut done = ManyResolved { resolved: 0, passed_over: 0, more: false };
    loop {
        let page = api.ask(api.ledger.unknowns(&filter)).await?;
        let Some(last) = page.last().map(|row| row.id) else { return Ok(Json(done)) };
        // Handed over together, so that one commit takes them together.
        let left = usize::try_from(limit - done.resolved).unwrap_or(usize::MAX);
        done.more = page.len() > left;
        let verdicts = page.iter().take(left).map(|row| {
            let resolve =
                api.ledger.resolve(Some(&principal.tenant), row.id, verdict, ticket.clone(), principal.actor.clone());
            api.ask(resolve)
        });
        for answer in futures_util::future::join_all(verdicts).await {
            match answer? {
                ResolveAnswer::Resolved(_) => done.resolved += 1,
                ResolveAnswer::NothingOpen(_) | ResolveAnswer::NotFound => done.passed_over += 1,
            }
        }
        if done.more {
            return Ok(Json(done));
        }
        filter.after = Some(last);
    }
}

#[cfg(test)]
mod tests {
    use super::super::auth::Roles;
    use super::*;
    use crate::domain::audit::Actor;
    use crate::domain::ids::{ActorName, Tenant};

    fn read(text: &str) -> Result<Many, BadRequest> {
        let actor = Actor::Key(ActorName::parse("op1").expect("a name"));
        let principal = Principal { actor, tenant: Tenant::parse("shop").expect("a tenant"), roles: Roles::NONE };
        many(Members::of(strict_json::parse(text.as_bytes()).expect("JSON"))?, &principal)
    }

    #[test]
    fn who_abandons_what_has_expired_is_told_that_it_has() {
        let told = |verdict, state| format!("{:?}", nothing_open(verdict, state));
        assert!(told(Verdict::Abandon, Stands::Expired).contains("has expired"));
        assert!(told(Verdict::Sent, Stands::Expired).contains("its state is expired"));
        assert!(told(Verdict::Abandon, Stands::Failed).contains("its state is failed"));
    }

    #[test]
    fn a_verdict_on_many_needs_a_ticket_and_a_filter() {
        let read_ok = read(r#"{"verdict":"not_sent","ticket":"OPS-7","provider":"twilio","cause":"lost_answer"}"#);
        let Ok(many) = read_ok else { panic!("refused") };
        assert_eq!((many.verdict, many.filter.cause), (Verdict::NotSent, Some(Reason::LostAnswer)));
        assert_eq!(many.filter.tenant.map(|tenant| tenant.to_string()), Some("shop".to_owned()));
        for (text, field) in [
            (r#"{"verdict":"not_sent","ticket":"OPS-7"}"#, "provider"),
            (r#"{"verdict":"not_sent","provider":"twilio"}"#, "ticket"),
            (r#"{"verdict":"maybe","ticket":"OPS-7","provider":"twilio"}"#, "verdict"),
            (r#"{"verdict":"sent","ticket":"OPS-7","cause":"493021"}"#, "cause"),
            (r#"{"verdict":"sent","ticket":"OPS-7","provider":"a","limit":1001}"#, "limit"),
            (r#"{"verdict":"sent","ticket":"OPS-7","provider":"a","reason":"x"}"#, "reason"),
        ] {
            assert_eq!(read(text).err().and_then(|e| e.field).as_deref(), Some(field), "{text}");
        }
    }
}
