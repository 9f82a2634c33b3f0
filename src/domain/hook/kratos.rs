//! Ory Kratos' HTTP courier, with the body that Kratos documents as its default or the one of `docs/CALLERS.md`.
//!
//! Source: Ory, "HTTP based email delivery" (<https://www.ory.sh/docs/kratos/self-hosted/email-http>), and the default of
//! `courier.http.request_config.body` in ory/kratos, `embedx/config.schema.json`.
//!
//! Kratos repeats a message that was not answered with 2xx, from what it stored, and gives it no id. So an event is told by
//! template, recipient, identity, code, link and the URL of the request that led to it.

use zeroize::Zeroizing;

use super::{Draft, Heard, Name, Reading, Unfit};
use crate::domain::content::Channel;
use crate::domain::event::BadRequest;

/// Where a code may stand; each template has one. That of a recovery by SMS calls itself `verification_code`.
const CODES: [&str; 4] = ["/recovery_code", "/verification_code", "/login_code", "/registration_code"];
/// Where a link may stand.
const LINKS: [&str; 2] = ["/recovery_url", "/verification_url"];

/// Reads a message of the courier.
pub(super) fn read(reading: &Reading<'_>) -> Result<Vec<Heard>, Unfit> {
    let Some((kind, template)) = reading.kind("/template_type")? else { return Ok(vec![]) };
    let recipient = reading.need("/recipient")?;
    let first = |places: &[&str]| places.iter().find_map(|at| reading.text(at));
    let (code, link) = (first(&CODES), first(&LINKS));
    if code.is_none() && link.is_none() {
        return Err(BadRequest::new("recovery_code", "is missing, and there is no other code or link").into());
    }
    let user = reading.text("/identity_id");
    let told = [Some(&template), Some(&recipient), user.as_ref(), code.as_ref(), link.as_ref()];
    let request_url = reading.text("/request_url").unwrap_or_default();
    let name = told.map(|part: Option<&Zeroizing<String>>| part.cloned().unwrap_or_default());
    let name = Name::Derived(name.into_iter().chain([request_url]).collect());
    let minutes = reading.text("/expires_in_minutes").and_then(|minutes| minutes.parse::<u64>().ok());
    let channel = if recipient.contains('@') { Channel::Email } else { Channel::Sms };
    let data = [("code", code), ("link", link)].into_iter();
    let event = reading.event(Draft {
        kind,
        to: vec![(channel, recipient)],
        user,
        data: data.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
        expires: reading.life(minutes.filter(|&m| m > 0).map(|m| m.saturating_mul(60))),
        name,
    })?;
    Ok(vec![event])
}
