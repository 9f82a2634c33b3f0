//! `[hook.NAME]`: other systems whose own requests are taken.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;

use super::{Context, TenantSettings};
use crate::document::Table;
use crate::domain::content::Channel;
use crate::domain::event::is_locale;
use crate::domain::hook::{
    Encoding, Hook, Kinds, LinkPattern, Naming, Places, Pointer, Proof, SUPABASE_ACTIONS, Speaks,
};
use crate::domain::ids::{HookName, Kind, Tenant};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What `speaks` may say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    SupabaseSms,
    SupabaseEmail,
    Kratos,
    Generic,
}

const LANGUAGES: [(&str, Language); 4] = [
    ("supabase-sms", Language::SupabaseSms),
    ("supabase-email", Language::SupabaseEmail),
    ("kratos", Language::Kratos),
    ("generic", Language::Generic),
];

/// What `auth` may say.
#[derive(Clone, Copy)]
enum Auth {
    Key,
    Basic,
    Header,
    Hmac,
    StandardWebhooks,
}

const AUTHS: [(&str, Auth); 5] = [
    ("key", Auth::Key),
    ("basic", Auth::Basic),
    ("header", Auth::Header),
    ("hmac", Auth::Hmac),
    ("standard-webhooks", Auth::StandardWebhooks),
];

/// Reads every hook. One that is mistaken where nothing can stand in is left out.
pub(super) fn read_all(root: &mut Table, tenants: &[TenantSettings], context: &Context<'_>) -> Vec<Hook> {
    let tables = root.named_tables("hook").into_iter();
    tables.filter_map(|(name, table)| read(&name, table, tenants, context)).collect()
}

fn read(name: &str, mut t: Table, tenants: &[TenantSettings], context: &Context<'_>) -> Option<Hook> {
    let name = HookName::parse(name).map_err(|e| t.mistakes().add(t.place(), format!("the name {e}"))).ok();
    if !t.has("speaks") {
        t.wrong("speaks", "is required: \"supabase-sms\", \"supabase-email\", \"kratos\" or \"generic\"");
    }
    // Without it nothing can be told of the other keys.
    let language = t.one_of("speaks", &LANGUAGES)?;
    let tenant = read_tenant(&mut t, tenants);
    let proof = read_proof(&mut t, language, context);
    let kinds = read_kinds(&mut t, language);
    let speaks = read_speaks(&mut t, language, kinds.as_ref());
    let expires_in = t.need_duration("expires_in", SECOND..=30 * DAY);
    if expires_in.subsec_nanos() > 0 {
        t.wrong("expires_in", "must be whole seconds");
    }
    let locale = t.parsed("locale", |text| is_locale(text).then(|| text.to_owned()).ok_or("must be a language tag"));
    let locale_at = t.parsed("locale_at", Pointer::parse);
    let data: BTreeMap<_, _> = t.str_map("data").unwrap_or_default();
    for (name, (_, place)) in &data {
        if matches!(name.as_str(), "code" | "link") {
            t.mistakes().add(place, "comes from the request");
        }
    }
    let data = data.into_iter().map(|(name, (value, _))| (name, value)).collect();
    t.finish();
    let (tenant, proof, kinds, speaks) = (tenant?, proof?, kinds?, speaks?);
    Some(Hook { name: name?, tenant, proof, speaks, kinds, expires_in: expires_in.as_secs(), locale, locale_at, data })
}

fn read_tenant(t: &mut Table, tenants: &[TenantSettings]) -> Option<Tenant> {
    if !t.has("tenant") {
        t.wrong("tenant", "is required");
    }
    let tenant = t.parsed("tenant", Tenant::parse)?;
    if !tenants.iter().any(|other| other.name == tenant) {
        t.wrong("tenant", "names a tenant that has no [[tenant]] section");
    }
    Some(tenant)
}

fn read_proof(t: &mut Table, language: Language, context: &Context<'_>) -> Option<Proof> {
    let auth = match language {
        Language::SupabaseSms | Language::SupabaseEmail => Auth::StandardWebhooks,
        Language::Kratos => t.one_of("auth", &AUTHS[..3]).unwrap_or(Auth::Key),
        Language::Generic => t.need_one_of("auth", &AUTHS),
    };
    Some(match auth {
        Auth::Key => Proof::Key,
        Auth::Basic => {
            let user = t.need_str("user");
            if user.contains(':') {
                t.wrong("user", "must not have a colon (RFC 7617 section 2)");
            }
            Proof::Basic { user, secrets: secrets(t, context) }
        }
        Auth::Header => Proof::Header { header: header(t), secrets: secrets(t, context) },
        Auth::Hmac => Proof::Hmac {
            header: header(t),
            prefix: t.str("prefix").unwrap_or_default(),
            encoding: t
                .one_of("encoding", &[("hex", Encoding::Hex), ("base64", Encoding::Base64)])
                .unwrap_or(Encoding::Hex),
            secrets: secrets(t, context),
        },
        Auth::StandardWebhooks => Proof::StandardWebhooks { secrets: secrets(t, context) },
    })
}

/// `secret`, and `old_secret` while one is exchanged for the other.
fn secrets(t: &mut Table, context: &Context<'_>) -> Vec<SecretString> {
    [Some(context.need_secret(t, "secret")), context.secret(t, "old_secret")].into_iter().flatten().collect()
}

/// The name of a header, in lower case.
fn header(t: &mut Table) -> String {
    let name = t.need_str("header");
    match http::HeaderName::from_bytes(name.as_bytes()) {
        Ok(name) => name.as_str().to_owned(),
        Err(_) => {
            if !name.is_empty() {
                t.wrong("header", "must be the name of a header");
            }
            String::new()
        }
    }
}

fn read_kinds(t: &mut Table, language: Language) -> Option<Kinds> {
    let (one, map) = (t.has("kind"), t.has("kinds"));
    if language == Language::SupabaseSms && map {
        t.wrong("kinds", "is not for supabase-sms, whose requests name no action; give `kind`");
    } else if one == map {
        t.wrong("kind", "one of `kind` and `kinds` is required");
    }
    let kind = t.parsed("kind", Kind::parse).map(Kinds::One);
    let rest = t.one_of("unmapped", &[("refuse", false), ("ignore", true)]);
    if rest.is_some() && !map {
        t.wrong("unmapped", "is only for `kinds`");
    }
    let mut kinds = BTreeMap::new();
    for (action, (text, place)) in t.str_map("kinds").unwrap_or_default() {
        if language == Language::SupabaseEmail && !SUPABASE_ACTIONS.contains(&action.as_str()) {
            t.mistakes().add(&place, format!("is not one of the actions {}", SUPABASE_ACTIONS.join(", ")));
        }
        match Kind::parse(&text) {
            Ok(kind) => drop(kinds.insert(action, kind)),
            Err(e) => t.mistakes().add(&place, e.to_string()),
        }
    }
    if map { Some(Kinds::By { map: kinds, ignore_others: rest.unwrap_or(false) }) } else { kind }
}

fn read_speaks(t: &mut Table, language: Language, kinds: Option<&Kinds>) -> Option<Speaks> {
    Some(match language {
        Language::SupabaseSms => Speaks::SupabaseSms,
        Language::SupabaseEmail => Speaks::SupabaseEmail(t.parsed("link", LinkPattern::parse)),
        Language::Kratos => Speaks::Kratos,
        Language::Generic => {
            let by_action = matches!(kinds, Some(Kinds::By { .. }));
            Speaks::Generic(Box::new(read_places(t.need_table("at"), by_action)?))
        }
    })
}

/// `[hook.NAME.at]`: where things stand in the body.
fn read_places(mut t: Table, by_action: bool) -> Option<Places> {
    if t.has("kind") != by_action {
        t.wrong("kind", "is needed with `kinds`, and only then");
    }
    if t.has("event_id") == t.has("identity") {
        t.wrong("event_id", "one of `event_id` and `identity` is required");
    }
    let id = t.parsed("event_id", Pointer::parse).map(Naming::Id);
    let identity = t.strs_at("identity").map(|all| {
        let all =
            all.iter().filter_map(|(text, place)| Pointer::parse(text).map_err(|e| t.mistakes().add(place, e)).ok());
        Naming::Hash(all.collect())
    });
    if matches!(&identity, Some(Naming::Hash(all)) if all.is_empty()) {
        t.wrong("identity", "must name at least one place");
    }
    let mut data = BTreeMap::new();
    for (name, (text, place)) in t.str_map("data").unwrap_or_default() {
        match Pointer::parse(&text) {
            Ok(pointer) => drop(data.insert(name, pointer)),
            Err(e) => t.mistakes().add(&place, e),
        }
    }
    let places = Places {
        to: read_addresses(&mut t),
        user: t.parsed("user", Pointer::parse),
        naming: id.or(identity).unwrap_or(Naming::Hash(vec![])),
        kind: t.parsed("kind", Pointer::parse),
        expires_at: t.parsed("expires_at", Pointer::parse),
        data,
    };
    t.finish();
    Some(places)
}

/// `to = [{ sms = "/phone" }, { email = "/mail" }]`.
fn read_addresses(t: &mut Table) -> Vec<(Channel, Pointer)> {
    let tables = t.tables("to");
    if tables.is_empty() {
        t.wrong("to", "must name at least one place, such as { sms = \"/phone\" }");
    }
    let read = |mut entry: Table| {
        if entry.has("sms") == entry.has("email") {
            entry.wrong("sms", "one of `sms` and `email` is required");
        }
        let [sms, email] = [("sms", Channel::Sms), ("email", Channel::Email)]
            .map(|(key, channel)| entry.parsed(key, Pointer::parse).map(|pointer| (channel, pointer)));
        entry.finish();
        sms.or(email)
    };
    tables.into_iter().filter_map(read).collect()
}
