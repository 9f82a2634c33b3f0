//! A mail as the bytes that go over the wire: the same input gives the same bytes, so every attempt is the same message.

use std::time::{Duration, SystemTime};

use lettre::Address as Mailbox;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox as NamedMailbox, Message, MultiPart, SinglePart};

use crate::domain::address::MailAddress;
use crate::domain::content::Mail;
use crate::domain::time::Timestamp;

/// Around the mail: who, to whom, when.
#[derive(Clone, Copy, Debug)]
pub struct MailEnvelope<'a> {
    /// The name shown beside the sender's address. One line.
    pub from_name: Option<&'a str>,
    /// The sender.
    pub from: &'a MailAddress,
    /// The one recipient.
    pub to: &'a MailAddress,
    /// The Message-ID without its angle brackets, such as `ntf_0198….3@example.org`: ASCII letters, digits and
    /// `. _ + -` around one `@`, 250 octets at most. The boundary between the parts is derived from it.
    pub message_id: &'a str,
    /// The `Date` header; whole seconds count.
    pub date: Timestamp,
}

/// Why no mail could be made of it. It never holds what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MimeError {
    /// The Message-ID is not of the form that [`MailEnvelope::message_id`] tells.
    #[error("the Message-ID is not of the form word@domain")]
    MessageId,
    /// The subject or the sender's name has a control character: it could forge a header.
    #[error("a header would hold a control character")]
    Header,
    /// The builder refused the parts.
    #[error("the message cannot be built")]
    Build,
}

/// Builds the message: `multipart/alternative` of text and HTML in UTF-8, quoted-printable (RFC 2045, RFC 2046 section
/// 5.1.4), marked `Auto-Submitted: auto-generated` (RFC 3834 section 5). Addresses in headers are ASCII, unless the
/// mailbox has no such form; then they are UTF-8 (RFC 6532). Secret: the bytes hold the token.
///
/// # Errors
/// [`MimeError`] when a header would not be well-formed.
pub fn mime(mail: &Mail, envelope: &MailEnvelope<'_>) -> Result<Vec<u8>, MimeError> {
    let word = message_id_word(envelope.message_id).ok_or(MimeError::MessageId)?;
    if mail.subject.contains(char::is_control) || envelope.from_name.is_some_and(|n| n.contains(char::is_control)) {
        return Err(MimeError::Header);
    }
    let (from, to) = (mailbox(envelope.from), mailbox(envelope.to));
    let smtp = lettre::address::Envelope::new(Some(from.clone()), vec![to.clone()]).map_err(|_| MimeError::Build)?;
    // `=_` cannot occur in quoted-printable text (RFC 2045 section 6.7), so no part can hold the boundary.
    let parts = MultiPart::alternative()
        .boundary(format!("=_{}", &word[..word.len().min(60)]))
        .singlepart(part(ContentType::TEXT_PLAIN, &mail.text)?)
        .singlepart(part(ContentType::TEXT_HTML, &mail.html)?);
    let message = Message::builder()
        .date(date(envelope.date))
        .raw_header(ascii_header(HeaderName::new_from_ascii_str("Message-ID"), format!("<{}>", envelope.message_id)))
        .from(NamedMailbox::new(envelope.from_name.map(str::to_owned), from))
        .to(NamedMailbox::new(None, to))
        .subject(mail.subject.clone())
        .raw_header(ascii_header(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".to_owned()))
        .envelope(smtp)
        .multipart(parts)
        .map_err(|_| MimeError::Build)?;
    Ok(message.formatted())
}

fn part(kind: ContentType, text: &str) -> Result<SinglePart, MimeError> {
    let body = Body::new_with_encoding(text.to_owned(), ContentTransferEncoding::QuotedPrintable)
        .map_err(|_| MimeError::Build)?;
    Ok(SinglePart::builder().content_type(kind).body(body))
}

/// The part of the Message-ID before the `@`, if the whole is well-formed (RFC 5322 section 3.6.4, fewer characters).
fn message_id_word(id: &str) -> Option<&str> {
    let fits = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'+' | b'-'))
    };
    id.split_once('@').filter(|(word, domain)| id.len() <= 250 && fits(word) && fits(domain)).map(|(word, _)| word)
}

fn mailbox(address: &MailAddress) -> Mailbox {
    let domain = if address.needs_smtputf8() {
        address.as_str().rsplit_once('@').map_or("", |(_, domain)| domain)
    } else {
        address.domain_ascii()
    };
    Mailbox::new_dangerous(address.local(), domain)
}

/// Only for values of visible ASCII that fit a line.
fn ascii_header(name: HeaderName, value: String) -> HeaderValue {
    HeaderValue::dangerous_new_pre_encoded(name, value.clone(), value)
}

/// Times outside the years that a `Date` can show (RFC 5322 section 3.3) are moved to the nearest one inside.
fn date(at: Timestamp) -> SystemTime {
    const END_OF_9999: u64 = 253_402_300_799;
    let seconds = u64::try_from(at.micros() / 1_000_000).unwrap_or(0).min(END_OF_9999);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}
