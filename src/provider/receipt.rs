//! Checking where a receipt comes from, and reading it as its manifest says.

use http::HeaderMap;
use reqwest::Url;

use super::manifest::reader::plain_at;
use super::manifest::receipts::{Format, Receipts, ReferencePlace, Scheme};
use super::signature;
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

/// Checks the origin of `request`.
pub(super) fn verify(rules: &Receipts, origin: &Origin<'_>, request: &ReceiptRequest, now: Timestamp) -> bool {
    let secrets = origin.secrets.as_slice();
    let headers = &request.headers;
    let body = request.body.as_ref();
    let verified = match &rules.scheme {
        Scheme::Twilio => (|| {
            // With this header another algorithm or key is in use, which must not be taken for ours.
            if request.headers.contains_key("x-twilio-webhooks-signature-settings") {
                return None;
            }
            let url = format!("{}{}", origin.public_url?, request.path_and_query);
            Some(signature::verify_twilio(
                secrets,
                &url,
                &pairs(body)?,
                body,
                one_header(headers, "x-twilio-signature")?,
            ))
        })(),
        Scheme::TelnyxEd25519 => (|| {
            let (time, signature) =
                (one_header(headers, "telnyx-timestamp")?, one_header(headers, "telnyx-signature-ed25519")?);
            Some(signature::verify_telnyx(secrets, time, body, signature, now))
        })(),
        Scheme::StandardWebhooks => ["webhook", "svix"].into_iter().find_map(|prefix| {
            let part = |name: &str| one_header(headers, &format!("{prefix}-{name}"));
            let (id, time, signature) = (part("id")?, part("timestamp")?, part("signature")?);
            Some(signature::verify_standard(secrets, id, time, body, signature, now))
        }),
        Scheme::Basic(_) => {
            one_header(headers, "authorization").map(|h| signature::verify_basic(origin.user, secrets, h))
        }
        Scheme::SecretPath => {
            let path = request.path_and_query.split('?').next().unwrap_or_default();
            Some(signature::verify_secret_path(secrets, path, query(request, "key").as_deref()))
        }
    };
    verified.unwrap_or(false)
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
        Format::Query => fields(request.path_and_query.split_once('?').map_or("", |(_, query)| query).as_bytes()),
        Format::Json => serde_json::from_slice(&request.body).ok(),
    };
    let body = body.ok_or(ReceiptError::Unreadable)?;
    let items = match &rules.batch {
        Some(at) => body.pointer(at).and_then(|v| v.as_array()).ok_or(ReceiptError::Unreadable)?.as_slice(),
        None => std::slice::from_ref(&body),
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

/// A header that stands there once.
fn one_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The first value of a name in the query.
fn query(request: &ReceiptRequest, name: &str) -> Option<String> {
    let (_, query) = request.path_and_query.split_once('?')?;
    pairs(query.as_bytes())?.into_iter().find(|(n, _)| n == name).map(|(_, value)| value)
}

/// Decodes `application/x-www-form-urlencoded` (WHATWG URL section 5.1), which a query is as well.
fn pairs(encoded: &[u8]) -> Option<Vec<(String, String)>> {
    let mut url = Url::parse("form:/").ok()?;
    url.set_query(Some(std::str::from_utf8(encoded).ok()?));
    Some(url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
}
