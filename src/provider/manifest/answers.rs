//! Reading a provider's answer to a send. Whatever no rule and no default tells is `unknown`.

use http::header::{HeaderMap, HeaderValue};

use super::reader::{Reader, plain_each};
use crate::document::{Table, Value};
use crate::domain::ids::ProviderMessageId;
use crate::domain::outcome::{Outcome, OutcomeClass, Reason};
use crate::domain::time::Timestamp;
use crate::provider::http_client::retry_after;

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
    Any(Spot, Vec<String>),
    Absent(Spot),
}

#[derive(Debug)]
struct Rule {
    statuses: Vec<Status>,
    code: Option<Code>,
    is: Is,
    reason: Option<Reason>,
}

/// Where a code or the provider's id of the message stands in an answer.
#[derive(Debug)]
enum Spot {
    Pointer(String),
    Header(String),
}

impl Spot {
    fn read(reader: &Reader, table: &mut Table, key: &str) -> Option<Self> {
        let text = table.str(key)?;
        match text.strip_prefix("header:") {
            Some(name) => Some(Self::Header(name.trim().to_ascii_lowercase())),
            None if text.starts_with('/') => Some(Self::Pointer(text)),
            None => reader.none(&table.place_of(key), "must be a JSON pointer, or \"header:\" and a name"),
        }
    }
}

/// What is read of an answer.
struct Read<'a> {
    status: u16,
    headers: &'a HeaderMap,
    json: Option<serde_json::Value>,
}

impl Read<'_> {
    /// What stands at each place that `spot` names.
    fn texts(&self, spot: &Spot) -> Vec<Option<String>> {
        match spot {
            Spot::Pointer(pointer) => self.json.as_ref().map(|json| plain_each(json, pointer)).unwrap_or_default(),
            Spot::Header(name) => {
                let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
                self.headers.get_all(name).iter().map(text).collect()
            }
        }
    }

    /// Whether nothing stands there at all, in an answer that could be read.
    fn lacks(&self, spot: &Spot) -> bool {
        match spot {
            Spot::Pointer(pointer) => self.json.as_ref().is_some_and(|json| json.pointer(pointer).is_none()),
            Spot::Header(name) => !self.headers.contains_key(name),
        }
    }
}

/// The part of a code that counts, where codes are fragments: behind the last `#`, before a `:`.
fn fragment(code: &str) -> &str {
    let end = code.rsplit('#').next().unwrap_or(code);
    end.split(':').next().unwrap_or(end)
}

/// How answers to a send are read.
#[derive(Debug)]
pub(crate) struct Answers {
    /// A 2xx alone is no verdict: the body has to say it.
    verdict_in_body: bool,
    /// Of a code only its [`fragment`] counts.
    fragment_codes: bool,
    message_id: Option<Spot>,
    rules: Vec<Rule>,
}

impl Answers {
    /// Reads the keys `verdict`, `fragment_codes`, `message_id` and `answers` of `[send]`.
    pub(super) fn read(reader: &Reader, table: &mut Table) -> Self {
        let verdict_in_body = table.need_one_of("verdict", &[("status", false), ("body", true)]);
        let fragment_codes = table.bool("fragment_codes").unwrap_or(false);
        let message_id = Spot::read(reader, table, "message_id");
        let rules = table.tables("answers").into_iter().map(|t| Rule::read(reader, t, verdict_in_body)).collect();
        Self { verdict_in_body, fragment_codes, message_id, rules }
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
        let json = answer.body.and_then(|b| serde_json::from_slice(b).ok());
        let read = Read { status: answer.status, headers: answer.headers, json };
        let id = || keep(read.texts(self.message_id.as_ref()?).iter().flatten().next()?);
        let mut outcome = match self.rules.iter().find(|r| r.fits(&read, self.fragment_codes)) {
            Some(rule) => rule.outcome(id),
            None => self.by_default(answer.status, read.json.is_some(), id),
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
}

impl Rule {
    fn read(reader: &Reader, mut table: Table, verdict_in_body: bool) -> Self {
        if !table.has("status") {
            table.wrong("status", "is required");
        }
        let statuses = table.raw("status").map(|v| read_statuses(reader, v)).unwrap_or_default();
        let spot = Spot::read(reader, &mut table, "code");
        let any = reader.codes(&mut table, "any");
        let absent = table.bool("absent").unwrap_or(false);
        let code = match (spot, any, absent) {
            (Some(spot), Some(any), false) => Some(Code::Any(spot, any)),
            (Some(Spot::Pointer(pointer)), None, true) if pointer.contains("/*") => {
                reader.none(&table.place_of("code"), "must name one place with `absent`")
            }
            (Some(spot), None, true) => Some(Code::Absent(spot)),
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

    /// An answer may speak of several parts of one message. Then one word that it was taken, or that this cannot be told,
    /// is enough; what refuses it must be said of every part.
    fn fits(&self, answer: &Read<'_>, fragments: bool) -> bool {
        let status = self.statuses.iter().any(|s| match s {
            Status::One(one) => *one == answer.status,
            Status::Hundred(hundred) => *hundred == answer.status / 100,
        });
        status
            && match &self.code {
                None => true,
                Some(Code::Absent(spot)) => answer.lacks(spot),
                Some(Code::Any(spot, any)) => {
                    let found = answer.texts(spot);
                    let is_one = |code: &Option<String>| {
                        let code = code.as_deref().map(|code| if fragments { fragment(code) } else { code });
                        code.is_some_and(|code| any.iter().any(|wanted| wanted == code))
                    };
                    match self.is {
                        Is::RefusedMessage | Is::RefusedAccount | Is::NotSent => {
                            !found.is_empty() && found.iter().all(is_one)
                        }
                        _ => found.iter().any(is_one),
                    }
                }
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
