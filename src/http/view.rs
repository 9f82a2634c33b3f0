//! A notification as its readers see it: masked addresses, closed codes, times. Nothing secret is in what it is made of.

use serde::Serialize;
use utoipa::ToSchema;

use super::forms;
use crate::domain::audit::{Record, Source, What};
use crate::domain::lifecycle::State;
use crate::store::rows::{Queue, StatusRow, WorkState};

/// How a notification stands.
#[derive(Serialize, ToSchema)]
pub(super) struct Status {
    /// `ntf_` and a UUID.
    #[schema(value_type = forms::Id)]
    id: String,
    /// The app's name for the event.
    #[schema(value_type = forms::Name)]
    event_id: String,
    /// Kind of message.
    #[schema(value_type = forms::Kind)]
    kind: String,
    /// `accepted`, `dispatching`, `retry_wait`, `dispatch_unknown`, `dispatched`, `failed`, `expired`, `cancelled` or `superseded`.
    #[schema(value_type = forms::State)]
    state: &'static str,
    /// Whether it was handed to a provider: `no`, `yes` or `unknown`.
    #[schema(value_type = forms::Sent)]
    sent: &'static str,
    /// What receipts say: `none`, `delivered` or `undelivered`.
    #[schema(value_type = forms::Delivery)]
    delivery: &'static str,
    /// The masked addresses, in order.
    to: Vec<String>,
    /// When it was accepted (RFC 3339).
    #[schema(value_type = forms::Time)]
    created_at: String,
    /// When the token dies.
    #[schema(value_type = forms::Time)]
    expires_at: String,
    /// When the state became final.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = forms::Time, required = false)]
    finished_at: Option<String>,
    /// What happens next: `provider`, `answer`, `lookup` or `operator`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    waiting_for: Option<&'static str>,
    /// Why it is unknown, or why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = forms::Reason, required = false)]
    cause: Option<&'static str>,
    /// What was asked while an attempt could not be recalled.
    marks: Marks,
    /// Every attempt and probe, in order.
    attempts: Vec<Attempt>,
    #[serde(skip)]
    is_final: bool,
}

/// What waits to take effect.
#[derive(Serialize, ToSchema)]
struct Marks {
    /// The app asked to cancel.
    cancel: bool,
    /// A newer event came.
    supersede: bool,
}

/// One attempt, or one repeat of it under the provider's dedupe.
#[derive(Serialize, ToSchema)]
struct Attempt {
    /// Counted from 1.
    number: u8,
    /// At which provider.
    #[schema(value_type = Option<forms::Provider>)]
    provider: Option<String>,
    /// When it was recorded.
    #[schema(value_type = forms::Time)]
    began_at: String,
    /// When its outcome was; nothing while it is under way.
    #[schema(value_type = Option<forms::Time>)]
    ended_at: Option<String>,
    /// `accepted`, `refused.message`, `refused.account`, `not_sent`, `unknown` or `never_began`.
    #[schema(value_type = Option<forms::Outcome>)]
    outcome: Option<&'static str>,
    /// Why, from a closed set.
    #[schema(value_type = Option<forms::Reason>)]
    reason: Option<&'static str>,
    /// The provider's id of the message.
    message_id: Option<String>,
    /// A repeat of an earlier attempt under the provider's dedupe.
    probe: bool,
}

impl Status {
    /// What a row and its history show.
    pub(super) fn of(row: &StatusRow) -> Self {
        let n = &row.notification;
        let life = row.work.as_ref().map(|work| work.life);
        let state = life.map_or(n.outcome.state, |life| life.state);
        let marks = life.map(|life| life.marks).unwrap_or_default();
        let channel = n.outcome.channel;
        let delivery = channel.map_or("none", |channel| n.outcome.delivery.verdict(channel).code());
        Self {
            id: n.id.to_string(),
            event_id: n.event_id.to_string(),
            kind: n.kind.to_string(),
            state: state.code(),
            sent: life.map_or(n.outcome.sent, |life| life.sent).code(),
            delivery,
            to: n.mask.split(',').map(str::to_owned).collect(),
            created_at: n.created_at.to_string(),
            expires_at: n.expires_at.to_string(),
            finished_at: n.outcome.finished_at.map(|at| at.to_string()),
            waiting_for: row.work.as_ref().and_then(waiting_for),
            cause: cause(row, state),
            marks: Marks { cancel: marks.cancel, supersede: marks.supersede },
            attempts: attempts(row.log.iter().map(|line| &line.record)),
            is_final: state.is_final(),
        }
    }

    /// The state is final.
    pub(super) const fn is_final(&self) -> bool {
        self.is_final
    }
}

/// Whose turn it is.
pub(super) fn waiting_for(work: &WorkState) -> Option<&'static str> {
    match (&work.queue, work.life.state) {
        (Some(Queue::Ask(_)), _) => Some("lookup"),
        (Some(Queue::Send(_)), _) => Some("provider"),
        (None, State::Dispatching) => Some("answer"),
        (None, _) if work.life.probing => Some("answer"),
        (None, State::DispatchUnknown) => Some("operator"),
        (None, _) => None,
    }
}

fn cause(row: &StatusRow, state: State) -> Option<&'static str> {
    let open = row.work.as_ref().and_then(|work| work.asked.as_ref()?.cause);
    let ended = || {
        let mut records = row.log.iter().rev().map(|line| &line.record);
        records.find(|record| record.to == Some(state) && record.from != record.to)?.reason
    };
    let cause = if state == State::DispatchUnknown { open } else { None };
    cause.or_else(|| if state.is_final() { ended() } else { None }).map(|reason| reason.code())
}

fn attempts<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = vec![];
    for record in records {
        let Some(number) = record.attempt else { continue };
        match record.what {
            What::AttemptBegun | What::ProbeBegun => attempts.push(Attempt {
                number,
                provider: record.provider.as_ref().map(ToString::to_string),
                began_at: record.at.to_string(),
                ended_at: None,
                outcome: None,
                reason: None,
                message_id: None,
                probe: record.what == What::ProbeBegun,
            }),
            // An attempt that a receipt had settled before its own answer came ends with that answer.
            What::Evidence if record.source != Some(Source::LateAnswer) => {}
            What::AttemptEnded | What::ProbeEnded | What::Evidence => {
                if let Some(attempt) = attempts.iter_mut().find(|attempt| attempt.number == number) {
                    attempt.ended_at = Some(record.at.to_string());
                    attempt.outcome = record.outcome.map(|outcome| outcome.code());
                    attempt.reason = record.reason.map(|reason| reason.code());
                    attempt.message_id = record.message_id.as_ref().map(ToString::to_string);
                }
            }
            _ => {}
        }
    }
    attempts
}
