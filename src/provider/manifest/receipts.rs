//! `[receipt]`: how a receipt proves its origin, and where its facts stand.

use super::reader::{Reader, StatusRules, plain_at};
use crate::document::Table;
use crate::domain::receipt::Part;

/// How a receipt proves where it comes from. The secrets stand in settings that the manifest names; any one of those that
/// are set will do, so that they can be rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// `X-Twilio-Signature` over the URL and the form.
    Twilio,
    /// `telnyx-signature-ed25519` over time and body.
    TelnyxEd25519,
    /// `webhook-signature` or `svix-signature` over id, time and body.
    StandardWebhooks,
    /// ECDSA over time and body.
    SendGridEcdsa,
    /// `x-sinch-webhook-signature` over body, nonce and time.
    Sinch,
    /// `X-Plivo-Signature-V3` over the URL, the form and a nonce.
    PlivoV3,
    /// A signature in the body over a time and a token, and over nothing else.
    Mailgun,
    /// The field `sig` over all other fields of the form.
    VonageSms,
    /// A JWT in `Authorization` that vouches for the body.
    VonageJwt,
    /// A JWT that vouches for the URL and the body.
    MessageBirdJwt,
    /// Amazon SNS: a signature in the body, by a certificate of Amazon's. The "secrets" are the topics that may send.
    Sns,
    /// HTTP Basic authorisation, with the setting that holds the user.
    Basic,
    /// A secret in the URL: the query's `key` or the path's last segment.
    SecretPath,
}

impl Scheme {
    const WORDS: [(&'static str, Self); 13] = [
        ("twilio", Self::Twilio),
        ("telnyx-ed25519", Self::TelnyxEd25519),
        ("standard-webhooks", Self::StandardWebhooks),
        ("sendgrid-ecdsa", Self::SendGridEcdsa),
        ("sinch", Self::Sinch),
        ("plivo-v3", Self::PlivoV3),
        ("mailgun", Self::Mailgun),
        ("vonage-sms", Self::VonageSms),
        ("vonage-jwt", Self::VonageJwt),
        ("messagebird-jwt", Self::MessageBirdJwt),
        ("sns", Self::Sns),
        ("basic", Self::Basic),
        ("secret-path", Self::SecretPath),
    ];

    /// Whether the signature covers our own URL, so that it must be known as the provider knows it.
    pub const fn covers_url(self) -> bool {
        matches!(self, Self::Twilio | Self::PlivoV3 | Self::MessageBirdJwt)
    }

    /// The formats that go with it; all, where it does not care.
    const fn formats(self) -> &'static [Format] {
        match self {
            Self::Twilio => &[Format::Form, Format::Query],
            Self::PlivoV3 | Self::VonageSms => &[Format::Form],
            Self::Mailgun => &[Format::Json],
            Self::Sns => &[Format::Sns],
            _ => &[Format::Form, Format::Json, Format::Query],
        }
    }
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
    /// JSON within the envelope of Amazon SNS.
    Sns,
}

impl Format {
    const WORDS: [(&'static str, Self); 4] =
        [("form", Self::Form), ("json", Self::Json), ("query", Self::Query), ("sns", Self::Sns)];
}

/// `[receipt]`.
#[derive(Debug)]
pub(crate) struct Receipts {
    pub scheme: Scheme,
    /// The setting that holds the user, for HTTP Basic.
    pub user: Option<String>,
    pub secrets: Vec<String>,
    pub format: Format,
    /// Where the list of receipts stands, when one request may hold several; one receipt may stand there alone.
    pub batch: Option<String>,
    pub reference: Option<ReferencePlace>,
    pub message_id: Option<String>,
    pub statuses: StatusRules,
    part: Option<(String, String)>,
    parts_from: u64,
}

impl Receipts {
    pub(super) fn read(reader: &Reader, mut table: Table) -> Self {
        let scheme = table.need_one_of("signature", &Scheme::WORDS);
        let user = (scheme == Scheme::Basic).then(|| match table.need_str("user") {
            user if user.is_empty() => user,
            user => reader.declared(user, &table.place_of("user")),
        });
        let secrets = reader.setting_names(&mut table, "secrets");
        if secrets.is_empty() {
            table.wrong("secrets", "must name at least one setting");
        }
        let format = table.need_one_of("format", &Format::WORDS);
        if table.had("format") && !scheme.formats().contains(&format) {
            let words = Format::WORDS.iter().filter(|(_, f)| scheme.formats().contains(f));
            let words: Vec<String> = words.map(|(word, _)| format!("\"{word}\"")).collect();
            table.wrong("format", format!("must be {} with this signature", words.join(" or ")));
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
        Self { scheme, user, secrets, format, batch, reference, message_id, statuses, part, parts_from }
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
