//! `[receipt]`: how a receipt proves its origin, and where its facts stand.

use super::reader::{Reader, StatusRules, plain_at};
use crate::document::Table;
use crate::domain::receipt::Part;

/// How a receipt proves where it comes from. The names are those of settings that hold the secrets; any one of the
/// secrets that are set will do, so that they can be rotated.
#[derive(Debug)]
pub(crate) enum Scheme {
    /// `X-Twilio-Signature` over the URL and the form.
    Twilio,
    /// `telnyx-signature-ed25519` over time and body.
    TelnyxEd25519,
    /// `webhook-signature` or `svix-signature` over id, time and body.
    StandardWebhooks,
    /// HTTP Basic authorisation, with the setting that holds the user.
    Basic(String),
    /// A secret in the URL: the query's `key` or the path's last segment.
    SecretPath,
}

/// Where our reference stands.
#[derive(Debug)]
pub(crate) enum ReferencePlace {
    /// In the query of our own URL, as `ref`.
    Query,
    /// In the body.
    Pointer(String),
}

/// How a receipt's facts are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A form in the body.
    Form,
    /// JSON in the body.
    Json,
    /// Fields in the query, with GET.
    Query,
}

/// `[receipt]`.
#[derive(Debug)]
pub(crate) struct Receipts {
    pub scheme: Scheme,
    pub secrets: Vec<String>,
    pub format: Format,
    /// Where the list of receipts stands, when one request may hold several.
    pub batch: Option<String>,
    pub reference: Option<ReferencePlace>,
    pub message_id: Option<String>,
    pub statuses: StatusRules,
    part: Option<(String, String)>,
    parts_from: u64,
}

impl Receipts {
    pub(super) fn read(reader: &Reader, mut table: Table) -> Self {
        const TWILIO: u8 = 0;
        let words =
            [("twilio", TWILIO), ("telnyx-ed25519", 1), ("standard-webhooks", 2), ("basic", 3), ("secret-path", 4)];
        let scheme = match table.need_one_of("signature", &words) {
            TWILIO => Scheme::Twilio,
            1 => Scheme::TelnyxEd25519,
            2 => Scheme::StandardWebhooks,
            3 => Scheme::Basic(match table.need_str("user") {
                user if user.is_empty() => user,
                user => reader.declared(user, &table.place_of("user")),
            }),
            _ => Scheme::SecretPath,
        };
        let secrets = reader.setting_names(&mut table, "secrets");
        if secrets.is_empty() {
            table.wrong("secrets", "must name at least one setting");
        }
        let words = [("form", Format::Form), ("json", Format::Json), ("query", Format::Query)];
        let format = table.need_one_of("format", &words);
        if matches!(scheme, Scheme::Twilio) && format == Format::Json {
            table.wrong("format", "must be \"form\" or \"query\" with this signature");
        }
        let batch = reader.pointer(&mut table, "batch");
        let reference = table.str("reference").and_then(|text| match text.as_str() {
            "query" => Some(ReferencePlace::Query),
            at if at.starts_with('/') => Some(ReferencePlace::Pointer(at.to_owned())),
            _ => reader.none(&table.place_of("reference"), "must be \"query\" or a JSON pointer"),
        });
        let message_id = reader.pointer(&mut table, "message_id");
        if reference.is_none() && message_id.is_none() {
            table.wrong("message_id", "is required where there is no `reference`");
        }
        let statuses = StatusRules::read(reader, &mut table);
        let part = reader.pointer(&mut table, "part");
        let parts = reader.pointer(&mut table, "parts");
        let parts_from = table.int("parts_from", 0..=1).unwrap_or(0);
        let part = match (part, parts) {
            (Some(part), Some(parts)) => Some((part, parts)),
            (None, None) => None,
            _ => reader.none(table.place(), "`part` and `parts` go together"),
        };
        table.finish();
        Self { scheme, secrets, format, batch, reference, message_id, statuses, part, parts_from }
    }

    /// Which part of the message `receipt` speaks of; the whole, where it does not say.
    pub(crate) fn part(&self, receipt: &serde_json::Value) -> Part {
        let read = || {
            let (part, parts) = self.part.as_ref()?;
            let number = |at| plain_at(receipt, at)?.parse::<u64>().ok();
            Part::new(number(part)?.checked_sub(self.parts_from)?, number(parts)?)
        };
        read().unwrap_or(Part::WHOLE)
    }
}
