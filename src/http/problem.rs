//! Every answer that is not a success: RFC 9457 problem details from one closed set.
//!
//! `type` is `urn:sendonce:problem:` and the problem's name. Names never change their meaning. No problem holds a value
//! of the request: texts are ours, and fields are named only if they are ours or look like a name.

use std::borrow::Cow;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use crate::domain::event::BadRequest;
use crate::ledger::{Accepted, LedgerError};

/// What stands before a problem's name in `type`.
pub const TYPE_PREFIX: &str = "urn:sendonce:problem:";

macro_rules! problems {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $status:ident, $title:literal;)+) => {
        /// The closed set of problems.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code { $($(#[$doc])* $variant,)+ }

        impl Code {
            /// Every member.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable name: what follows [`TYPE_PREFIX`].
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The status that goes with it.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status,)+ }
            }

            /// What it is, in a few words.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }
        }
    };
}

problems! {
    /// The request cannot be read as what it should be.
    BadRequest = "bad-request", BAD_REQUEST, "The request is malformed";
    /// `Idempotency-Key` is missing.
    KeyMissing = "idempotency-key-missing", BAD_REQUEST, "Idempotency-Key is missing";
    /// `Idempotency-Key` is not one key of the allowed characters.
    KeyMalformed = "idempotency-key-malformed", BAD_REQUEST, "Idempotency-Key is malformed";
    /// No valid key.
    Unauthorized = "unauthorized", UNAUTHORIZED, "No valid key";
    /// The key is valid and has not the role.
    RoleMissing = "role-missing", FORBIDDEN, "The key does not allow this";
    /// The tenant may not send to this country.
    CountryNotAllowed = "country-not-allowed", FORBIDDEN, "The country is not allowed";
    /// There is no such thing, or it is another tenant's.
    NotFound = "not-found", NOT_FOUND, "Not found";
    /// The path has no such method.
    MethodNotAllowed = "method-not-allowed", METHOD_NOT_ALLOWED, "The method is not allowed here";
    /// The body did not arrive in time.
    RequestTimeout = "request-timeout", REQUEST_TIMEOUT, "The request took too long to arrive";
    /// The event id was taken under another key.
    EventAlreadyAccepted = "event-already-accepted", CONFLICT, "The event was accepted under another key";
    /// There is nothing to settle.
    NothingOpen = "nothing-open", CONFLICT, "There is no open question about it";
    /// One comparison is made at a time.
    StatementRunning = "statement-running", CONFLICT, "A comparison is under way";
    /// The body is over the limit.
    BodyTooLarge = "body-too-large", PAYLOAD_TOO_LARGE, "The body is too large";
    /// The body is not `application/json`.
    UnsupportedMediaType = "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE, "The media type is not taken";
    /// The key was used with another payload.
    KeyReused = "idempotency-key-reused", UNPROCESSABLE_ENTITY, "The key was used with another payload";
    /// No such kind of message.
    UnknownKind = "unknown-kind", UNPROCESSABLE_ENTITY, "The kind is not known";
    /// The data do not fit the kind's template.
    DataMismatch = "data-mismatch", UNPROCESSABLE_ENTITY, "The data do not fit the kind";
    /// The SMS would have too many parts.
    TooManyParts = "too-many-sms-parts", UNPROCESSABLE_ENTITY, "The text message is too long";
    /// An address is not one.
    BadAddress = "bad-address", UNPROCESSABLE_ENTITY, "An address is not valid";
    /// No provider reaches an address.
    NoRoute = "no-route", UNPROCESSABLE_ENTITY, "No provider reaches an address";
    /// The provider has no list of messages.
    NoStatement = "no-statement", UNPROCESSABLE_ENTITY, "The provider has no list of messages";
    /// The expiry has passed or there is no time to send.
    AlreadyExpired = "already-expired", UNPROCESSABLE_ENTITY, "The message has expired already";
    /// The expiry is later than the kind allows.
    ExpiryTooLate = "expiry-too-late", UNPROCESSABLE_ENTITY, "The expiry is later than the kind allows";
    /// Too many messages to one recipient.
    RecipientLimit = "recipient-limit-reached", TOO_MANY_REQUESTS, "Too many messages to this recipient";
    /// Too many messages of one tenant.
    TenantLimit = "tenant-limit-reached", TOO_MANY_REQUESTS, "Too many messages of this tenant";
    /// Too many long polls.
    TooManyWaiters = "too-many-waiters", TOO_MANY_REQUESTS, "Too many requests wait";
    /// A fault of ours.
    Internal = "internal", INTERNAL_SERVER_ERROR, "A fault of this service";
    /// Not known to be stored.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "Not available now";
}

/// One problem, on its way to a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    detail: Cow<'static, str>,
    field: Option<String>,
    first: Option<Accepted>,
    retry_after: Option<u64>,
}

/// A problem's JSON.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody<'a> {
    /// `urn:sendonce:problem:` and the problem's name.
    #[serde(rename = "type")]
    kind: String,
    /// The name in a few words.
    title: &'a str,
    /// The HTTP status.
    status: u16,
    /// What is wrong here.
    detail: &'a str,
    /// The field or header at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    field: Option<&'a str>,
    /// `event-already-accepted`: the id of the first notification.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    id: Option<String>,
    /// `event-already-accepted`: where the first one's status is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    status_url: Option<String>,
}

/// What the log tells of an answer; travels with the response to the one place that logs.
#[derive(Clone, Copy, Debug)]
pub struct Failed(pub Code);

impl Problem {
    /// A problem with its own words.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: detail.into(), field: None, first: None, retry_after: None }
    }

    /// Which one it is.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Names the field at fault.
    #[must_use]
    pub fn at(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Says when to come again, in whole seconds, rounded up, at least 1.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)), ..self }
    }

    /// The event stands already.
    pub fn event_taken(first: Accepted) -> Self {
        let detail = "this event_id was accepted under another idempotency key";
        Self { first: Some(first), ..Self::new(Code::EventAlreadyAccepted, detail).at("event_id") }
    }

    /// The path leads nowhere, as far as this caller may know.
    pub fn not_found() -> Self {
        Self::new(Code::NotFound, "there is no such resource")
    }

    /// The path is there, and not for this method.
    pub fn method_not_allowed() -> Self {
        Self::new(Code::MethodNotAllowed, "this resource has no such method")
    }

    /// The ledger did not do it.
    pub fn unavailable(e: LedgerError) -> Self {
        let (why, wait) = match e {
            LedgerError::Overloaded => ("overloaded", 1),
            LedgerError::Stopping => ("stopping", 2),
            LedgerError::Held => ("waiting for an operator", 30),
            LedgerError::Store(_) => ("the store does not answer", 5),
        };
        let detail = format!("{why}: the request is not known to be stored; repeat it with the same key");
        Self::new(Code::Unavailable, detail).after(Duration::from_secs(wait))
    }

    /// The ledger did not answer in time.
    pub fn late() -> Self {
        let detail = "no answer in time: the request is not known to be stored; repeat it with the same key";
        Self::new(Code::Unavailable, detail).after(Duration::from_secs(1))
    }

    /// All that it says, in one line.
    pub fn in_words(&self) -> String {
        let field = self.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
        format!("{}: {field}{}", self.code.title(), self.detail)
    }

    /// How many seconds to wait before coming again, where that was said.
    pub const fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// The JSON that a caller gets.
    pub fn body(&self) -> ProblemBody<'_> {
        ProblemBody {
            kind: format!("{TYPE_PREFIX}{}", self.code.name()),
            title: self.code.title(),
            status: self.code.status().as_u16(),
            detail: &self.detail,
            field: self.field.as_deref(),
            id: self.first.as_ref().map(|first| first.id.to_string()),
            status_url: self.first.as_ref().map(|first| super::status_url(first.id)),
        }
    }
}

impl From<BadRequest> for Problem {
    fn from(e: BadRequest) -> Self {
        Self { field: e.field.clone(), ..Self::new(Code::BadRequest, e.to_string()) }
    }
}

impl From<LedgerError> for Problem {
    fn from(e: LedgerError) -> Self {
        Self::unavailable(e)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.body()).unwrap_or_default();
        let mut response = (self.code.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == Code::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(Failed(self.code));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{EventId, NotificationId};
    use crate::domain::time::Timestamp;

    #[test]
    fn a_problem_has_the_members_of_rfc_9457() {
        let problem = Problem::new(Code::BadAddress, "is not a phone number").at("to[0].sms");
        let body = serde_json::to_string(&problem.body()).expect("serialises");
        assert_eq!(
            body,
            r#"{"type":"urn:sendonce:problem:bad-address","title":"An address is not valid","status":422,"detail":"is not a phone number","field":"to[0].sms"}"#
        );
    }

    #[test]
    fn names_are_unique_and_plain() {
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
        assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
        assert!(Code::ALL.iter().all(|code| code.status().is_client_error() || code.status().is_server_error()));
    }

    #[test]
    fn what_may_be_repeated_says_when() {
        let response = Problem::unavailable(LedgerError::Overloaded).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        let response = Problem::new(Code::TenantLimit, "").after(Duration::from_millis(1_001)).into_response();
        assert_eq!(response.headers()[RETRY_AFTER], "2");
    }

    #[test]
    fn a_taken_event_names_the_first_notification() {
        let id = NotificationId::from_bytes([7; 16]);
        let event_id = EventId::parse("e").expect("an id");
        let problem = Problem::event_taken(Accepted { id, event_id, expires_at: Timestamp::default() });
        let body = serde_json::to_value(problem.body()).expect("serialises");
        assert_eq!(body["id"], id.to_string());
        assert_eq!(body["status_url"], format!("/v1/notifications/{id}"));
    }
}
