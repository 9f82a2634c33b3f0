//! Supabase Auth's Send SMS and Send Email hooks.
//!
//! Source: Supabase, "Send SMS Hook" and "Send Email Hook" (<https://supabase.com/docs/guides/auth/auth-hooks>), and the
//! names of the members in supabase/auth, `internal/models/user.go`, `internal/hooks/v0hooks/v0hooks.go`.
//!
//! Supabase Auth makes the body once and repeats it as it is, under a new `webhook-id` and time. Another press of the
//! button makes another code. So an event is told by hook, user, action, address, code and the hash of the code. Two
//! actions of one user may by chance draw the same six digits; the times at which the user was last written to, which
//! Supabase Auth stores after each action, tell them apart.

use zeroize::Zeroizing;

use super::link::{LinkPattern, Parts};
use super::{Draft, Heard, Name, Reading, Unfit};
use crate::domain::content::Channel;
use crate::domain::event::BadRequest;

/// The actions that Supabase Auth names in `email_action_type` and gives a code for. Its mere notices
/// (`password_changed_notification` and the like) have none.
pub const ACTIONS: [&str; 7] =
    ["signup", "invite", "magiclink", "recovery", "email_change", "email", "reauthentication"];

/// When the user was last written to, by action, before this one.
const SENT_AT: [&str; 5] = [
    "/user/confirmation_sent_at",
    "/user/recovery_sent_at",
    "/user/email_change_sent_at",
    "/user/phone_change_sent_at",
    "/user/reauthentication_sent_at",
];

fn name(reading: &Reading<'_>, parts: [Option<&Zeroizing<String>>; 6]) -> Name {
    let sent_at = SENT_AT.iter().map(|at| reading.text(at).unwrap_or_default());
    Name::Derived(parts.map(|part| part.cloned().unwrap_or_default()).into_iter().chain(sent_at).collect())
}

/// Reads a request of the Send SMS hook.
pub(super) fn sms(reading: &Reading<'_>) -> Result<Vec<Heard>, Unfit> {
    let Some((kind, action)) = reading.kind("/sms/sms_type")? else { return Ok(vec![]) };
    let (user, code) = (reading.need("/user/id")?, reading.need("/sms/otp")?);
    let phone = phone(reading)?;
    let name = name(reading, [Some(&action), None, Some(&user), Some(&phone), Some(&code), None]);
    let event = reading.event(Draft {
        kind,
        to: vec![(Channel::Sms, phone)],
        user: Some(user),
        data: vec![("code".to_owned(), code)],
        expires: reading.life(None),
        name,
    })?;
    Ok(vec![event])
}

/// The number that the code is for. `sms.phone` says it (supabase/auth pull request 2160). Without it, a user who has one
/// number and changes to another has two, and a code for either must not go to the other.
fn phone(reading: &Reading<'_>) -> Result<Zeroizing<String>, BadRequest> {
    let (old, new) = (reading.text("/user/phone"), reading.text("/user/new_phone"));
    let digits = match (reading.text("/sms/phone"), old, new) {
        (Some(said), _, _) => said,
        (None, Some(one), None) | (None, None, Some(one)) => one,
        (None, Some(old), Some(new)) if old == new => old,
        (None, Some(_), Some(_)) => {
            return Err(BadRequest::new("sms.phone", "is missing, and user.phone is another than user.new_phone"));
        }
        (None, None, None) => return Err(BadRequest::new("sms.phone", "is missing, as user.phone is")),
    };
    // Supabase Auth keeps numbers without their `+`.
    Ok(if digits.starts_with('+') { digits } else { Zeroizing::new(format!("+{}", digits.as_str())) })
}

/// One mail of a request.
struct Mail {
    /// Empty, or which of the two mails of a change of address it is.
    role: &'static str,
    to: Zeroizing<String>,
    code: Option<Zeroizing<String>>,
    hash: Option<Zeroizing<String>>,
}

/// Reads a request of the Send Email hook.
pub(super) fn email(reading: &Reading<'_>, link: Option<&LinkPattern>) -> Result<Vec<Heard>, Unfit> {
    let Some((kind, action)) = reading.kind("/email_data/email_action_type")? else { return Ok(vec![]) };
    let user = reading.need("/user/id")?;
    let given = |at: &str| reading.text(at).unwrap_or_default();
    let (site_url, redirect_to) = (given("/email_data/site_url"), given("/email_data/redirect_to"));
    let event = |mail: Mail| {
        if mail.code.is_none() && mail.hash.is_none() {
            return Err(BadRequest::new("email_data.token", "is missing, as its hash is").into());
        }
        let role = Zeroizing::new(mail.role.to_owned());
        let parts = [Some(&action), Some(&role), Some(&user), Some(&mail.to), mail.code.as_ref(), mail.hash.as_ref()];
        let name = name(reading, parts);
        // The two mails of one change must not supersede each other.
        let person = if mail.role.is_empty() { user.to_string() } else { format!("{}:{}", user.as_str(), mail.role) };
        let link = link.zip(mail.hash.as_ref()).map(|(link, token_hash)| {
            link.fill(&Parts { site_url: &site_url, token_hash, action: &action, redirect_to: &redirect_to })
        });
        let data = [("code", mail.code), ("link", link)].into_iter();
        reading.event(Draft {
            kind: kind.clone(),
            to: vec![(Channel::Email, mail.to)],
            user: Some(Zeroizing::new(person)),
            data: data.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
            expires: reading.life(None),
            name,
        })
    };
    mails(reading, &action)?.into_iter().map(event).collect()
}

/// The mails that a request wants. A change of address may want two; `token_hash_new` then belongs to `token` and the
/// address that was, and `token_hash` to `token_new` and the new one ("Email change behavior and token hash mapping").
fn mails(reading: &Reading<'_>, action: &str) -> Result<Vec<Mail>, BadRequest> {
    let [code, hash, new_code, new_hash] =
        ["token", "token_hash", "token_new", "token_hash_new"].map(|name| reading.text(&format!("/email_data/{name}")));
    if action != "email_change" {
        return Ok(vec![Mail { role: "", to: reading.need("/user/email")?, code, hash }]);
    }
    // `new_email` is the member's name in Supabase Auth, `email_new` in its documents.
    let new = reading.text("/user/new_email").or_else(|| reading.text("/user/email_new"));
    let new = new.ok_or_else(|| BadRequest::new("user.new_email", "is missing, empty or no text"))?;
    Ok(match new_hash {
        Some(old_hash) => vec![
            Mail { role: "current", to: reading.need("/user/email")?, code, hash: Some(old_hash) },
            Mail { role: "new", to: new, code: new_code, hash },
        ],
        None => vec![Mail { role: "new", to: new, code: code.or(new_code), hash }],
    })
}
