//! Checking where a receipt comes from, and reading it as its manifest says.

use reqwest::Url;

use super::manifest::reader::plain_at;
use super::manifest::receipts::{Format, Receipts, ReferencePlace, Scheme};
use super::signature::{self, jwt, keyed};
use super::{ReceiptError, ReceiptRequest};
use crate::domain::ids::ProviderName;
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::vault::IndexKey;

/// The most receipts that one request may hold.
const BATCH_MAX: usize = 1000;

/// What verifying needs to know of the configuration.
pub(super) struct Origin<'a> {
    /// The secrets that are set.
    pub secrets: Vec<&'a str>,
    /// The user, for HTTP Basic.
    pub user: &'a str,
    /// Scheme and authority at which the provider reaches us, without a slash at the end.
    pub public_url: Option<&'a str>,
}

/// Checks the origin of `request`. What [`Scheme::Sns`] needs cannot be had here.
pub(super) fn verify(rules: &Receipts, origin: &Origin<'_>, request: &ReceiptRequest, now: Timestamp) -> bool {
    let secrets = origin.secrets.as_slice();
    let body = request.body.as_ref();
    let header = |name: &str| signature::one_header(&request.headers, name);
    let url = || Some(format!("{}{}", origin.public_url?, request.path_and_query));
    let verified = || {
        Some(match rules.scheme {
            Scheme::Twilio => {
                // Where this header is there, it must read: another algorithm must not be taken for the usual one.
                let settings = match request.headers.contains_key("x-twilio-webhooks-signature-settings") {
                    true => Some(header("x-twilio-webhooks-signature-settings")?),
                    false => None,
                };
                let given = header("x-twilio-signature")?;
                signature::verify_twilio(secrets, &url()?, &pairs(body)?, body, given, settings)
            }
            Scheme::TelnyxEd25519 => {
                let (time, given) = (header("telnyx-timestamp")?, header("telnyx-signature-ed25519")?);
                signature::verify_telnyx(secrets, time, body, given, now)
            }
            Scheme::StandardWebhooks => signature::verify_standard_headers(secrets, &request.headers, body, now),
            Scheme::SendGridEcdsa => {
                let part = |name: &str| header(&format!("x-twilio-email-event-webhook-{name}"));
                signature::verify_sendgrid(secrets, part("timestamp")?, body, part("signature")?, now)
            }
            Scheme::Sinch => {
                let part = |name: &str| header(&format!("x-sinch-webhook-signature{name}"));
                keyed::verify_sinch(secrets, body, part("-nonce")?, part("-timestamp")?, part("")?, now)
            }
            Scheme::PlivoV3 => {
                let (nonce, given) = (header("x-plivo-signature-v3-nonce")?, header("x-plivo-signature-v3")?);
                let (path, query) = split(request);
                let url = format!("{}{path}", origin.public_url?);
                keyed::verify_plivo(secrets, &url, &pairs(query.as_bytes())?, &pairs(body)?, nonce, given)
            }
            Scheme::Mailgun => {
                let json: serde_json::Value = serde_json::from_slice(body).ok()?;
                let part = |name: &str| plain_at(&json, &format!("/signature/{name}"));
                keyed::verify_mailgun(secrets, &part("timestamp")?, &part("token")?, &part("signature")?, now)
            }
            Scheme::VonageSms => keyed::verify_vonage_sms(secrets, &pairs(body)?, now),
            Scheme::VonageJwt => jwt::verify_vonage(secrets, body, header("authorization")?, now),
            Scheme::MessageBirdJwt => {
                jwt::verify_messagebird(secrets, &url()?, body, header("messagebird-signature-jwt")?, now)
            }
            Scheme::Sns => return None,
            Scheme::Basic => signature::verify_basic(origin.user, secrets, header("authorization")?),
            Scheme::SecretPath => {
                signature::verify_secret_path(secrets, split(request).0, query(request, "key").as_deref())
            }
        })
    };
    verified().unwrap_or(false)
}

/// Reads a receipt whose origin is proven.
pub(super) fn read(
    rules: &Receipts,
    provider: &ProviderName,
    index: &IndexKey,
    request: &ReceiptRequest,
) -> Result<Vec<Receipt>, ReceiptError> {
    let fields = |encoded: &[u8]| {
        Some(pairs(encoded)?.into_iter().map(|(name, value)| (name, serde_json::Value::from(value))).collect())
    };
    let body: Option<serde_json::Value> = match rules.format {
        Format::Form => fields(&request.body),
        Format::Query => fields(split(request).1.as_bytes()),
        Format::Json => serde_json::from_slice(&request.body).ok(),
        Format::Sns => None,
    };
    read_json(rules, provider, index, request, &body.ok_or(ReceiptError::Unreadable)?)
}

/// Reads what `body` says.
pub(super) fn read_json(
    rules: &Receipts,
    provider: &ProviderName,
    index: &IndexKey,
    request: &ReceiptRequest,
    body: &serde_json::Value,
) -> Result<Vec<Receipt>, ReceiptError> {
    let items = match &rules.batch {
        Some(at) => match body.pointer(at) {
            Some(serde_json::Value::Array(items)) => items.as_slice(),
            Some(one @ serde_json::Value::Object(_)) => std::slice::from_ref(one),
            _ => return Err(ReceiptError::Unreadable),
        },
        None => std::slice::from_ref(body),
    };
    if items.len() > BATCH_MAX {
        return Err(ReceiptError::Unreadable);
    }
    let one = |item: &serde_json::Value| {
        let reference = match rules.reference.as_ref() {
            Some(ReferencePlace::Query) => query(request, "ref"),
            Some(ReferencePlace::Pointer(at)) => plain_at(item, at),
            None => None,
        };
        let reference = reference.and_then(|text| index.read_reference(&text));
        let id = rules.message_id.as_ref().and_then(|at| plain_at(item, at));
        let message_id = id.and_then(|id| index.message_id(provider, &id));
        let status = rules.statuses.status(item)?;
        (reference.is_some() || message_id.is_some()).then(|| Receipt {
            provider: provider.clone(),
            reference,
            message_id,
            status,
            part: rules.part(item),
        })
    };
    Ok(items.iter().filter_map(one).collect())
}

/// Path and query, without the `?` between them.
fn split(request: &ReceiptRequest) -> (&str, &str) {
    request.path_and_query.split_once('?').unwrap_or((&request.path_and_query, ""))
}

/// The first value of a name in the query.
fn query(request: &ReceiptRequest, name: &str) -> Option<String> {
    pairs(split(request).1.as_bytes())?.into_iter().find(|(n, _)| n == name).map(|(_, value)| value)
}

/// Decodes `application/x-www-form-urlencoded` (WHATWG URL section 5.1), which a query is as well.
fn pairs(encoded: &[u8]) -> Option<Vec<(String, String)>> {
    let mut url = Url::parse("form:/").ok()?;
    url.set_query(Some(std::str::from_utf8(encoded).ok()?));
    Some(url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
}
