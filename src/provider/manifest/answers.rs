//! Reading a provider's answer to a send. Whatever no rule and no default tells is `unknown`.

use std::time::Duration;

use chrono::DateTime;
use http::HeaderMap;
use http::header::RETRY_AFTER;

use super::reader::{Reader, plain_at};
use crate::document::{Table, Value};
use crate::domain::ids::ProviderMessageId;
use crate::domain::outcome::{Outcome, OutcomeClass, Reason};
use crate::domain::retry::RETRY_AFTER_CAP;
use crate::domain::time::Timestamp;

/// An answer whose status line came whole.
pub struct Answer<'a> {
    /// The status code.
    pub status: u16,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The body, when all of it came within the limit.
    pub body: Option<&'a [u8]>,
}

/// What a rule says that an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Accepted,
    RefusedMessage,
    RefusedAccount,
    NotSent,
    Unknown,
    FirstStands,
    DedupeInProgress,
    DedupeMismatch,
}

const WORDS: [(&str, Is); 8] = [
    ("accepted", Is::Accepted),
    ("refused.message", Is::RefusedMessage),
    ("refused.account", Is::RefusedAccount),
    ("not_sent", Is::NotSent),
    ("unknown", Is::Unknown),
    ("first_stands", Is::FirstStands),
    ("dedupe_in_progress", Is::DedupeInProgress),
    ("dedupe_mismatch", Is::DedupeMismatch),
];

#[derive(Clone, Copy, Debug)]
enum Status {
    One(u16),
    Hundred(u16),
}

#[derive(Debug)]
enum Code {
    Any(String, Vec<String>),
    Absent(String),
}

#[derive(Debug)]
struct Rule {
    statuses: Vec<Status>,
    code: Option<Code>,
    is: Is,
    reason: Option<Reason>,
}

/// Where the provider's id of the message stands.
#[derive(Debug)]
enum IdPlace {
    Pointer(String),
    Header(String),
}

/// How answers to a send are read.
#[derive(Debug)]
pub(crate) struct Answers {
    /// A 2xx alone is no verdict: the body has to say it.
    verdict_in_body: bool,
    message_id: Option<IdPlace>,
    rules: Vec<Rule>,
}

impl Answers {
    /// Reads the keys `verdict`, `message_id` and `answers` of `[send]`.
    pub(super) fn read(reader: &Reader, table: &mut Table) -> Self {
        let verdict_in_body = table.need_one_of("verdict", &[("status", false), ("body", true)]);
        let message_id = table.str("message_id").and_then(|text| match text.strip_prefix("header:") {
            Some(name) => Some(IdPlace::Header(name.trim().to_ascii_lowercase())),
            None if text.starts_with('/') => Some(IdPlace::Pointer(text)),
            None => reader.none(&table.place_of("message_id"), "must be a JSON pointer, or \"header:\" and a name"),
        });
        let rules = table.tables("answers").into_iter().map(|t| Rule::read(reader, t, verdict_in_body)).collect();
        Self { verdict_in_body, message_id, rules }
    }

    /// Whether the answers that a provider with dedupe may give are told apart.
    pub(super) fn tells_dedupe(&self) -> bool {
        let has = |is| self.rules.iter().any(|r| r.is == is);
        has(Is::FirstStands) || (has(Is::DedupeInProgress) && has(Is::DedupeMismatch))
    }

    /// Reads an answer. `keep` turns the provider's id into one that may be kept.
    pub(crate) fn outcome(
        &self,
        answer: &Answer<'_>,
        now: Timestamp,
        keep: &dyn Fn(&str) -> Option<ProviderMessageId>,
    ) -> Outcome {
        let json: Option<serde_json::Value> = answer.body.and_then(|b| serde_json::from_slice(b).ok());
        let id = || self.message_id(answer, json.as_ref()).and_then(|id| keep(&id));
        let mut outcome = match self.rules.iter().find(|r| r.fits(answer.status, json.as_ref())) {
            Some(rule) => rule.outcome(id),
            None => self.by_default(answer.status, json.is_some(), id),
        };
        if outcome.class != OutcomeClass::Accepted {
            outcome.retry_after = retry_after(answer.headers, now);
        }
        outcome
    }

    fn by_default(&self, status: u16, readable: bool, id: impl Fn() -> Option<ProviderMessageId>) -> Outcome {
        match status {
            200..=299 if !self.verdict_in_body => Outcome::accepted(id()),
            200..=299 if !readable => Outcome::unknown(Reason::UnreadableAnswer),
            // These send the request itself elsewhere, so that it was not applied here (RFC 9110 sections 15.4.2, 15.4.8
            // and 15.4.9). The others may point to the result of a request that was (sections 15.4.3 and 15.4.4).
            301 | 307 | 308 => Outcome::new(OutcomeClass::RefusedAccount, Reason::Redirected),
            300..=399 => Outcome::unknown(Reason::Redirected),
            408 | 500..=599 => Outcome::unknown(Reason::ServerFault),
            _ => Outcome::unknown(Reason::Unclassified),
        }
    }

    fn message_id(&self, answer: &Answer<'_>, json: Option<&serde_json::Value>) -> Option<String> {
        match self.message_id.as_ref()? {
            IdPlace::Pointer(pointer) => plain_at(json?, pointer),
            IdPlace::Header(name) => Some(answer.headers.get(name)?.to_str().ok()?.to_owned()),
        }
    }
}

impl Rule {
    fn read(reader: &Reader, mut table: Table, verdict_in_body: bool) -> Self {
        if !table.has("status") {
            table.wrong("status", "is required");
        }
        let statuses = table.raw("status").map(|v| read_statuses(reader, v)).unwrap_or_default();
        let pointer = reader.pointer(&mut table, "code");
        let any = reader.codes(&mut table, "any");
        let absent = table.bool("absent").unwrap_or(false);
        let code = match (pointer, any, absent) {
            (Some(pointer), Some(any), false) => Some(Code::Any(pointer, any)),
            (Some(pointer), None, true) => Some(Code::Absent(pointer)),
            (None, None, false) => None,
            _ => reader.none(table.place(), "`code` goes with either `any` or `absent = true`"),
        };
        if !table.has("is") {
            table.wrong("is", "is required");
        }
        let is = table.one_of("is", &WORDS);
        let reasons: Vec<(&str, Reason)> = Reason::ALL.iter().map(|r| (r.code(), *r)).collect();
        let reason = table.raw("reason").and_then(|value| {
            let found = reasons.iter().find(|(word, _)| Some(*word) == value.as_str()).map(|(_, r)| *r);
            found.or_else(|| reader.none(value.place(), "must be one of the reasons for outcomes"))
        });
        if verdict_in_body && is == Some(Is::Accepted) && !matches!(code, Some(Code::Any(..))) {
            table.wrong("is", "under verdict = \"body\", `accepted` needs `code` and `any`");
        }
        table.finish();
        Self { statuses, code, is: is.unwrap_or(Is::Unknown), reason }
    }

    fn fits(&self, status: u16, json: Option<&serde_json::Value>) -> bool {
        let status = self.statuses.iter().any(|s| match s {
            Status::One(one) => *one == status,
            Status::Hundred(hundred) => *hundred == status / 100,
        });
        status
            && match (&self.code, json) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(Code::Any(pointer, any)), Some(json)) => {
                    plain_at(json, pointer).is_some_and(|c| any.contains(&c))
                }
                (Some(Code::Absent(pointer)), Some(json)) => json.pointer(pointer).is_none(),
            }
    }

    fn outcome(&self, id: impl Fn() -> Option<ProviderMessageId>) -> Outcome {
        let (class, reason) = match self.is {
            Is::Accepted => return Outcome::accepted(id()),
            Is::FirstStands => {
                return Outcome { reason: Reason::FirstStands, ..Outcome::accepted(id()) };
            }
            Is::RefusedMessage => (OutcomeClass::RefusedMessage, Reason::MessageRefused),
            Is::RefusedAccount => (OutcomeClass::RefusedAccount, Reason::AccountRefused),
            Is::NotSent => (OutcomeClass::NotSent, Reason::TemporarilyRefused),
            Is::Unknown => (OutcomeClass::Unknown, Reason::Unclassified),
            Is::DedupeInProgress => (OutcomeClass::Unknown, Reason::DedupeInProgress),
            Is::DedupeMismatch => (OutcomeClass::Unknown, Reason::DedupeMismatch),
        };
        Outcome::new(class, self.reason.unwrap_or(reason))
    }
}

fn read_statuses(reader: &Reader, value: Value) -> Vec<Status> {
    let place = value.place().clone();
    let one = |value: &Value| match (value.as_int(), value.as_str()) {
        (Some(n), _) => u16::try_from(n).ok().filter(|n| (200..=599).contains(n)).map(Status::One),
        (_, Some("2xx")) => Some(Status::Hundred(2)),
        (_, Some("4xx")) => Some(Status::Hundred(4)),
        (_, Some("5xx")) => Some(Status::Hundred(5)),
        _ => None,
    };
    let statuses = match one(&value) {
        Some(status) => Some(vec![status]),
        None => value.into_array().and_then(|items| items.iter().map(one).collect()),
    };
    let wanted = "must be a status from 200 to 599, \"2xx\", \"4xx\", \"5xx\", or a list of these";
    statuses.unwrap_or_else(|| reader.none(&place, wanted).unwrap_or_default())
}

/// `Retry-After` as seconds or as a date (RFC 9110 section 10.2.3), at most [`RETRY_AFTER_CAP`].
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => Timestamp::from_micros(DateTime::parse_from_rfc2822(text).ok()?.timestamp_micros()).since(now),
    };
    Some(wait.min(RETRY_AFTER_CAP))
}
