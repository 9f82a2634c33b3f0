//! The forms of requests and the closed sets of answers, for the OpenAPI document. Requests are read by stricter readers;
//! a form says as much of them as JSON Schema can, and nothing that they would not take.

use std::collections::BTreeMap;

use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{ArrayBuilder, KnownFormat, ObjectBuilder, OneOfBuilder, RefOr, Schema, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use crate::audit::Format as ExportFormat;
use crate::domain::audit::What as RecordKind;
use crate::domain::delivery::Delivery as Delivered;
use crate::domain::event::MAX_ADDRESSES;
use crate::domain::lifecycle::{Sent as Known, State as Stands};
use crate::domain::outcome::{OutcomeClass, Reason as Why};
use crate::ledger::Verdict as Word;

/// Texts of one pattern.
macro_rules! texts {
    ($($(#[doc = $doc:literal])+ $name:ident: $pattern:literal;)+) => { $(
        $(#[doc = $doc])+
        pub(super) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some($pattern));
                text.description(Some(concat!($($doc),+).trim())).into()
            }
        }

        impl ToSchema for $name {}
    )+ };
}

/// Texts of a closed set.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident: $set:ty;)+) => { $(
        $(#[doc = $doc])+
        pub(super) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let codes = <$set>::ALL.iter().map(|member| member.code());
                let text = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(codes));
                text.description(Some(concat!($($doc),+).trim())).into()
            }
        }

        impl ToSchema for $name {}
    )+ };
}

texts! {
    /// The app's name for an event, or its idempotency key.
    Name: "^[A-Za-z0-9._:-]{1,255}$";
    /// The same in a header, quoted or bare.
    KeyHeader: "^([A-Za-z0-9._:-]{1,255}|\"[A-Za-z0-9._:-]{1,255}\")$";
    /// `ntf_` and a UUID.
    Id: "^ntf_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
    /// A kind of message.
    Kind: "^[a-z0-9_-]{1,64}$";
    /// A configured hook.
    Hook: "^[a-z0-9_-]{1,40}$";
    /// A configured provider.
    Provider: "^[a-z0-9_-]{1,40}$";
    /// The ticket or change that is a verdict's ground.
    Ticket: "^[A-Za-z0-9._:-]{1,64}$";
    /// Seconds to wait; more than 60 count as 60.
    Wait: "^[0-9]{1,4}s?$";
    /// A phone number in E.164 form.
    Phone: "^[+][1-9][0-9]{6,14}$";
    /// A mail address (RFC 5321, RFC 6531).
    Mailbox: "^.{1,64}@.{1,190}$";
    /// A language tag (RFC 5646).
    Locale: "^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,3}$";
}

codes! {
    /// What happened.
    What: RecordKind;
    /// A state.
    State: Stands;
    /// Whether it was handed to a provider.
    Sent: Known;
    /// What receipts say.
    Delivery: Delivered;
    /// How an attempt ended.
    Outcome: OutcomeClass;
    /// Why it ended so, or why it is not known.
    Reason: Why;
    /// An operator's word on an unknown.
    Verdict: Word;
    /// The form of an export.
    Format: ExportFormat;
}

/// A time (RFC 3339).
pub(super) struct Time;

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::DateTime);
        let text = ObjectBuilder::new().schema_type(Type::String).format(Some(format));
        text.description(Some("A time (RFC 3339).")).into()
    }
}

impl ToSchema for Time {}

/// The body of `POST /v1/notifications:batch`: no JSON as a whole, so that no schema fits it.
pub(super) struct Lines;

impl PartialSchema for Lines {
    fn schema() -> RefOr<Schema> {
        let text = "A line each: an event with its key as the member `idempotency_key`.";
        ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some(text)).into()
    }
}

impl ToSchema for Lines {}

/// The body of `POST /v1/notifications`.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "tells the form only")]
pub(super) struct Event {
    /// The app's name for the event. It may hold neither an address nor a value of `data`.
    event_id: Name,
    /// A configured kind of message.
    kind: Kind,
    to: To,
    /// The kind's default when it is missing.
    #[schema(nullable = false)]
    locale: Option<Locale>,
    /// Values for the template, as the kind asks for them; secret.
    #[schema(nullable = false)]
    data: Option<BTreeMap<String, String>>,
    /// The person, opaque; the first address when it is missing.
    #[schema(nullable = false, min_length = 1, max_length = 256)]
    user: Option<String>,
    /// When the token dies; this or `expires_in`.
    #[schema(nullable = false)]
    expires_at: Option<Time>,
    /// Seconds until the token dies; this or `expires_at`.
    #[schema(nullable = false, minimum = 1)]
    expires_in: Option<u64>,
    /// When the event happened.
    #[schema(nullable = false)]
    occurred_at: Option<Time>,
}

/// One address, or up to 8 in the order in which they may be tried.
struct To;

impl PartialSchema for To {
    fn schema() -> RefOr<Schema> {
        let several = ArrayBuilder::new().items(Address::schema()).min_items(Some(1)).max_items(Some(MAX_ADDRESSES));
        OneOfBuilder::new().item(Address::schema()).item(several).into()
    }
}

impl ToSchema for To {}

/// One address.
#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "tells the form only")]
enum Address {
    Sms(#[schema(inline)] Phone),
    Email(#[schema(inline)] Mailbox),
}

/// A verdict on one unknown.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "tells the form only")]
pub(super) struct VerdictForm {
    verdict: Verdict,
    ticket: Ticket,
}

/// A verdict on many; at least one of provider, cause and before.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "tells the form only")]
pub(super) struct VerdictOnMany {
    verdict: Verdict,
    ticket: Ticket,
    /// Only at this provider.
    #[schema(nullable = false)]
    provider: Option<Provider>,
    /// Only with this cause.
    #[schema(nullable = false)]
    cause: Option<Reason>,
    /// Only those whose attempt ended before this time.
    #[schema(nullable = false)]
    before: Option<Time>,
    /// At most so many; 100 when it is missing.
    #[schema(nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<u64>,
}

/// What is to be compared with a provider's list.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "tells the form only")]
pub(super) struct StatementForm {
    /// A configured provider that has a list.
    provider: Provider,
    /// From this time on; at most 31 days before `to`.
    from: Time,
    /// Before this time, which has passed.
    to: Time,
}
