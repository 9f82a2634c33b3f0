//! Judges a posted event: what is refused here was read well, but cannot be taken now.

use std::time::Duration;

use serde_json::{Map, Value};

use super::problem::{Code, Problem};
use super::{Api, Principal, TenantRules};
use crate::domain::address::{Address, MailAddress, PhoneNumber};
use crate::domain::content::{Channel, Content};
use crate::domain::event::{EventRequest, Expiry, PostedAddress};
use crate::domain::ids::{IdempotencyKey, KeyedHash, Tenant};
use crate::domain::time::Timestamp;
use crate::ledger::{LimitCheck, LimitScope, NewNotification, Repeat};
use crate::render::templates::RenderRefusal;
use crate::vault::{IndexKey, Purpose};

/// Version of the fingerprint's encoding; stands before the hash.
const FINGERPRINT_V1: u8 = 1;

/// What recognises a repeat of this request.
pub(super) fn repeat_of(index: &IndexKey, tenant: &Tenant, key: &IdempotencyKey, request: &EventRequest) -> Repeat {
    let parts = request.fingerprint_parts();
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_slice()).collect();
    repeat(index, tenant, key, request, &parts)
}

/// What recognises a repeat of a request whose key is made of what the event is: the key is the payload's fingerprint too,
/// so that a repeat is one also when the configuration maps it in another way meanwhile.
pub(super) fn repeat_by_key(index: &IndexKey, tenant: &Tenant, key: &IdempotencyKey, request: &EventRequest) -> Repeat {
    repeat(index, tenant, key, request, &[key.as_str().as_bytes()])
}

fn repeat(index: &IndexKey, tenant: &Tenant, key: &IdempotencyKey, request: &EventRequest, parts: &[&[u8]]) -> Repeat {
    let owner = tenant.as_str().as_bytes();
    let mut fingerprint = [FINGERPRINT_V1; 33];
    fingerprint[1..].copy_from_slice(&index.hash32(Purpose::Fingerprint, parts));
    Repeat {
        tenant: tenant.clone(),
        key: index.hash(Purpose::Key, &[owner, key.as_str().as_bytes()]),
        event: index.hash(Purpose::Event, &[owner, request.event_id.as_str().as_bytes()]),
        fingerprint,
    }
}

/// Judges a request at `now`.
///
/// # Errors
/// 403 or 422.
pub(super) fn judge(
    api: &Api,
    principal: &Principal,
    request: EventRequest,
    repeat: Repeat,
    now: Timestamp,
) -> Result<NewNotification, Problem> {
    let none = TenantRules::default();
    let rules = api.tenants.get(&principal.tenant).unwrap_or(&none);
    let kind = api.templates.kind(&request.kind).ok_or_else(unknown_kind)?;
    let expires_at = expiry(request.expiry, now, kind.max_expires_in())?;
    let to = request.to.iter().enumerate().map(|(i, posted)| address(i, posted)).collect::<Result<Vec<_>, _>>()?;
    countries(rules, &to)?;
    let content = render(api, &request, &to, expires_at.since(now))?;
    let user = request.user.as_ref().map_or_else(|| to.first().map(Address::canonical), |user| Some(user.to_string()));
    let owner = principal.tenant.as_str().as_bytes();
    let parts = [owner, request.kind.as_str().as_bytes(), user.as_deref().unwrap_or_default().as_bytes()];
    let user = api.index.hash(Purpose::User, &parts);
    Ok(NewNotification {
        tenant: principal.tenant.clone(),
        kind: request.kind,
        event_id: request.event_id,
        repeat,
        now,
        expires_at,
        occurred_at: request.occurred_at,
        user,
        limits: limits(rules, &api.index, owner, &to),
        to,
        content,
        actor: principal.actor.clone(),
    })
}

fn unknown_kind() -> Problem {
    Problem::new(Code::UnknownKind, "no such kind of message is configured").at("kind")
}

fn expiry(expiry: Expiry, now: Timestamp, max: Duration) -> Result<Timestamp, Problem> {
    let (field, left) = match expiry {
        Expiry::At(time) if time <= now => {
            return Err(Problem::new(Code::AlreadyExpired, "expires_at is in the past").at("expires_at"));
        }
        Expiry::At(time) => ("expires_at", time.since(now)),
        Expiry::In(seconds) => ("expires_in", Duration::from_secs(seconds)),
    };
    if left > max {
        let detail = format!("the kind allows at most {} seconds", max.as_secs());
        return Err(Problem::new(Code::ExpiryTooLate, detail).at(field));
    }
    Ok(now.plus(left))
}

fn address(index: usize, posted: &PostedAddress) -> Result<Address, Problem> {
    let read = match posted.channel {
        Channel::Sms => PhoneNumber::parse(&posted.text).map(Address::Sms),
        Channel::Email => MailAddress::parse(&posted.text).map(Address::Email),
    };
    read.map_err(|e| Problem::new(Code::BadAddress, e.to_string()).at(format!("to[{index}].{}", posted.channel.code())))
}

fn countries(rules: &TenantRules, to: &[Address]) -> Result<(), Problem> {
    if rules.countries.is_empty() {
        return Ok(());
    }
    let allowed = |address: &Address| address.country().is_some_and(|country| rules.countries.contains(&country));
    let refused = |address: &Address| address.channel() == Channel::Sms && !allowed(address);
    let Some(index) = to.iter().position(refused) else { return Ok(()) };
    let detail = "this tenant may not send text messages to the number's country";
    Err(Problem::new(Code::CountryNotAllowed, detail).at(format!("to[{index}].sms")))
}

fn render(api: &Api, request: &EventRequest, to: &[Address], left: Duration) -> Result<Content, Problem> {
    let member = |(name, value): (&String, &zeroize::Zeroizing<String>)| (name.clone(), Value::from(value.as_str()));
    let data: Map<String, Value> = request.data.iter().map(member).collect();
    let mut channels: Vec<Channel> = to.iter().map(Address::channel).collect();
    channels.sort_unstable();
    channels.dedup();
    let minutes = (left.as_secs() / 60).max(1);
    let parts = api.limits.max_sms_parts;
    let rendered = api.templates.render(&request.kind, request.locale.as_deref(), &data, &channels, minutes, parts);
    rendered.map_err(|e| match &e {
        RenderRefusal::UnknownKind => unknown_kind(),
        RenderRefusal::TooManySmsParts { .. } => Problem::new(Code::TooManyParts, e.to_string()).at("data"),
        RenderRefusal::Broken | RenderRefusal::TooMuchFuel => {
            Problem::new(Code::DataMismatch, e.to_string()).at("data")
        }
        _ => {
            let field = e.variable().map_or_else(|| "data".to_owned(), |name| format!("data.{name}"));
            Problem::new(Code::DataMismatch, e.to_string()).at(field)
        }
    })
}

/// One check for the tenant, and one for each person in `to`.
fn limits(rules: &TenantRules, index: &IndexKey, owner: &[u8], to: &[Address]) -> Vec<LimitCheck> {
    let mut checks = vec![];
    if let Some(rate) = rules.tenant_limit {
        let key = index.hash(Purpose::TenantLimit, &[owner]);
        checks.push(LimitCheck { scope: LimitScope::Tenant, key, burst: rate.burst, per: rate.per });
    }
    if let Some(rate) = rules.recipient_limit {
        let hash = |address: &Address| index.hash(Purpose::RecipientLimit, &[owner, address.canonical().as_bytes()]);
        let mut keys: Vec<KeyedHash> = to.iter().map(hash).collect();
        keys.sort_unstable();
        keys.dedup();
        checks.extend(keys.into_iter().map(|key| LimitCheck {
            scope: LimitScope::Recipient,
            key,
            burst: rate.burst,
            per: rate.per,
        }));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);
    const MAX: Duration = Duration::from_secs(900);

    #[test]
    fn an_expiry_lies_ahead_and_within_what_the_kind_allows() {
        let judged = |e| expiry(e, NOW, MAX).map_err(|problem| problem.code());
        assert_eq!(judged(Expiry::In(900)), Ok(NOW.plus(MAX)));
        assert_eq!(judged(Expiry::At(NOW.plus(MAX))), Ok(NOW.plus(MAX)));
        assert_eq!(judged(Expiry::In(901)), Err(Code::ExpiryTooLate));
        assert_eq!(judged(Expiry::In(u64::MAX)), Err(Code::ExpiryTooLate));
        assert_eq!(judged(Expiry::At(Timestamp::from_micros(253_402_300_799_000_000))), Err(Code::ExpiryTooLate));
        assert_eq!(judged(Expiry::At(NOW)), Err(Code::AlreadyExpired));
        assert_eq!(judged(Expiry::At(Timestamp::from_micros(-1))), Err(Code::AlreadyExpired));
    }

    #[test]
    fn a_country_counts_for_phones_only() {
        let phone = Address::Sms(PhoneNumber::parse("+84901234567").expect("a phone"));
        let mail = Address::Email(MailAddress::parse("user@example.org").expect("a mailbox"));
        let only = |country: &[u8; 2]| TenantRules { countries: [*country].into(), ..TenantRules::default() };
        let to = [mail, phone];
        assert!(countries(&only(b"VN"), &to).is_ok());
        assert!(countries(&TenantRules::default(), &to).is_ok());
        assert_eq!(countries(&only(b"DE"), &to).map_err(|p| p.code()), Err(Code::CountryNotAllowed));
    }

    #[test]
    fn a_bad_address_is_told_by_its_place() {
        let posted = PostedAddress { channel: Channel::Sms, text: "0901234567".to_owned().into() };
        let body = serde_json::to_string(&address(1, &posted).expect_err("no E.164").body()).expect("serialises");
        assert!(body.contains("to[1].sms") && !body.contains("0901234567"), "{body}");
    }

    #[test]
    fn each_person_and_the_tenant_are_counted_once() {
        let index = IndexKey::parse(&crate::vault::new_key_line("i")).expect("a key");
        let rate = Some(super::super::Rate { burst: 3, per: Duration::from_secs(60) });
        let rules = TenantRules { recipient_limit: rate, tenant_limit: rate, ..TenantRules::default() };
        let mail = Address::Email(MailAddress::parse("user@example.org").expect("a mailbox"));
        let checks = limits(&rules, &index, b"shop", &[mail.clone(), mail]);
        assert_eq!(checks.iter().map(|c| c.scope).collect::<Vec<_>>(), [LimitScope::Tenant, LimitScope::Recipient]);
        assert!(limits(&TenantRules::default(), &index, b"shop", &[]).is_empty());
    }
}
