//! The one way by which an event comes in, whoever posted it and in whatever form it was read.

use futures_util::future::try_join_all;

use super::auth::Principal;
use super::problem::{Code, Problem};
use super::{Api, judge};
use crate::domain::event::EventRequest;
use crate::ledger::{Accepted, Admission, LimitScope, NewNotification, Repeat};
use crate::metrics::ByResult;

/// An event that is stored.
#[derive(Debug)]
pub(super) struct Taken {
    /// The first answer's.
    pub accepted: Accepted,
    /// It was stored before.
    pub replayed: bool,
}

/// An event that may be stored, or is known already.
enum Judged {
    New(Box<NewNotification>, Repeat),
    Known(Admission),
}

/// Takes an event.
///
/// # Errors
/// When it is refused, or not known to be stored.
pub(super) async fn take(
    api: &Api,
    principal: &Principal,
    request: EventRequest,
    repeat: Repeat,
) -> Result<Taken, Problem> {
    commit(api, judged(api, principal, request, repeat).await?).await
}

/// Takes several events that belong together: none is stored where one is refused by judgement. Each is stored by itself,
/// so that after a failure a repeat of all of them brings what is missing.
///
/// # Errors
/// As [`take`].
pub(super) async fn take_all(
    api: &Api,
    principal: &Principal,
    events: Vec<(EventRequest, Repeat)>,
) -> Result<Vec<Taken>, Problem> {
    let judging = events.into_iter().map(|(request, repeat)| judged(api, principal, request, repeat));
    try_join_all(try_join_all(judging).await?.into_iter().map(|judged| commit(api, judged))).await
}

/// Names the field that held a key which was used before. Only the form of the request tells which one that is.
pub(super) fn key_at(problem: Problem, field: &'static str) -> Problem {
    if problem.code() == Code::KeyReused { problem.at(field) } else { problem }
}

/// Counts what became of an event.
pub(super) fn count(api: &Api, taken: Result<&Taken, &Problem>) {
    let result = match taken {
        Ok(taken) if taken.replayed => "replayed",
        Ok(_) => "new",
        Err(problem) => problem.code().name(),
    };
    api.metrics.admissions.get_or_create(&ByResult { result }).inc();
}

async fn judged(api: &Api, principal: &Principal, request: EventRequest, repeat: Repeat) -> Result<Judged, Problem> {
    match judge::judge(api, principal, request, repeat.clone(), api.clock.now()) {
        Ok(new) => Ok(Judged::New(Box::new(new), repeat)),
        Err(refusal) => known_or(api, &repeat, refusal).await.map(Judged::Known),
    }
}

async fn commit(api: &Api, judged: Judged) -> Result<Taken, Problem> {
    let admission = match judged {
        Judged::New(new, repeat) => match api.ask(api.ledger.admit(*new)).await? {
            Admission::Unroutable => known_or(api, &repeat, unroutable()).await?,
            admission => admission,
        },
        Judged::Known(admission) => admission,
    };
    told(admission)
}

/// What was taken once gets its first answer, whatever would be said of it now.
async fn known_or(api: &Api, repeat: &Repeat, refusal: Problem) -> Result<Admission, Problem> {
    api.ask(api.ledger.recognise(repeat)).await?.ok_or(refusal)
}

fn unroutable() -> Problem {
    Problem::new(Code::NoRoute, "no configured provider reaches any of the addresses").at("to")
}

fn told(admission: Admission) -> Result<Taken, Problem> {
    match admission {
        Admission::New(accepted) => Ok(Taken { accepted, replayed: false }),
        Admission::Replayed(accepted) => Ok(Taken { accepted, replayed: true }),
        Admission::KeyReused => {
            let detail = "this idempotency key was used with another payload; a new event needs a new key";
            Err(Problem::new(Code::KeyReused, detail))
        }
        Admission::EventTaken(first) => Err(Problem::event_taken(first)),
        Admission::Unroutable => Err(unroutable()),
        Admission::Limited { scope, retry_after } => {
            let (code, detail) = match scope {
                LimitScope::Recipient => (Code::RecipientLimit, "nothing is stored; the same key may come again"),
                LimitScope::Tenant => (Code::TenantLimit, "nothing is stored; the same key may come again"),
            };
            Err(Problem::new(code, detail).after(retry_after))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::ids::{EventId, NotificationId};
    use crate::domain::time::Timestamp;

    fn accepted() -> Accepted {
        let event_id = EventId::parse("reset-1").expect("an id");
        Accepted { id: NotificationId::from_bytes([7; 16]), event_id, expires_at: Timestamp::default() }
    }

    #[test]
    fn refusals_have_their_own_problem() {
        let limited = |scope| Admission::Limited { scope, retry_after: Duration::from_secs(7) };
        for (admission, code) in [
            (Admission::KeyReused, Code::KeyReused),
            (Admission::EventTaken(accepted()), Code::EventAlreadyAccepted),
            (limited(LimitScope::Recipient), Code::RecipientLimit),
            (limited(LimitScope::Tenant), Code::TenantLimit),
            (Admission::Unroutable, Code::NoRoute),
        ] {
            assert_eq!(told(admission).err().map(|problem| problem.code()), Some(code));
        }
    }
}
