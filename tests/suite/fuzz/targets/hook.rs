//! What other systems send to hooks.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use sendonce::domain::content::Channel;
use sendonce::domain::hook::{Hook, Kinds, LinkPattern, Naming, Places, Pointer, Proof, Speaks, Unfit};
use sendonce::domain::ids::{HookName, KeyedHash, Kind, Tenant};

use super::{assert_quiet, seeds};

pub fn bodies() -> Vec<Vec<u8>> {
    seeds([
        r#"{"user":{"id":"CANARY","phone":"84CANARY","confirmation_sent_at":"CANARY"},"sms":{"otp":"CANARY"}}"#,
        r#"{"user":{"id":"u","phone":"1","new_phone":"2"},"sms":{"otp":"CANARY","phone":"+CANARY","sms_type":"x"}}"#,
        r#"{"user":{"id":"CANARY","email":"CANARY@example.org","new_email":"new@example.org"},"email_data":{
            "token":"CANARY","token_hash":"CANARY","token_new":"CANARY","token_hash_new":"CANARY",
            "email_action_type":"email_change","site_url":"https://x.example","redirect_to":"CANARY"}}"#,
        r#"{"recipient":"CANARY@example.org","template_type":"recovery","recovery_code":"CANARY","recovery_url":null,
            "identity_id":"CANARY","expires_in_minutes":5}"#,
        r#"{"a":[{"phone":"+84CANARY","code":493021}],"until":"2026-11-29T12:00:00Z"}"#,
    ])
}

fn hooks() -> Vec<Hook> {
    let kind = || Kind::parse("k").expect("a kind");
    let at = |text| Pointer::parse(text).expect("a pointer");
    let link = LinkPattern::parse("{site_url}/?t={token_hash}&r={redirect_to}").expect("a pattern");
    let map = BTreeMap::from(["email_change", "recovery"].map(|action| (action.to_owned(), kind())));
    let by_action = Kinds::By { map, ignore_others: false };
    let places = Places {
        to: vec![(Channel::Sms, at("/a/0/phone"))],
        user: Some(at("/a/0/code")),
        naming: Naming::Hash(vec![at("/a/0/code")]),
        kind: None,
        expires_at: Some(at("/until")),
        data: BTreeMap::from([("code".to_owned(), at("/a/0/code"))]),
    };
    let hook = |speaks, kinds| Hook {
        name: HookName::parse("h").expect("a name"),
        tenant: Tenant::parse("shop").expect("a tenant"),
        proof: Proof::Key,
        speaks,
        kinds,
        expires_in: 600,
        locale: None,
        locale_at: Some(at("/user/locale")),
        data: BTreeMap::new(),
    };
    vec![
        hook(Speaks::SupabaseSms, Kinds::One(kind())),
        hook(Speaks::SupabaseEmail(Some(link)), by_action.clone()),
        hook(Speaks::Kratos, by_action),
        hook(Speaks::Generic(Box::new(places)), Kinds::One(kind())),
    ]
}

fn hash(parts: &[&[u8]]) -> KeyedHash {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&hasher.finish().to_be_bytes());
    KeyedHash::from_bytes(bytes)
}

/// A body is refused without an echo of it, or it is the same events whenever it comes, under names that tell nothing.
pub fn body(data: &[u8]) {
    for hook in hooks() {
        match hook.read(data, &hash) {
            Ok(heard) => {
                let again = hook.read(data, &hash).expect("what was taken once");
                assert_eq!(heard.len(), again.len());
                for (heard, again) in heard.iter().zip(&again) {
                    assert!(heard.event == again.event && heard.key == again.key, "it changed");
                    assert!(heard.derived && heard.key.as_str() == heard.event.event_id.as_str(), "named by a hash");
                    assert_quiet(format!("{heard:?}"));
                }
            }
            Err(Unfit::Malformed(refusal)) => {
                assert_quiet(&refusal);
                assert_quiet(format!("{refusal:?}"));
            }
            Err(Unfit::Unmapped(field)) => assert_quiet(field),
        }
    }
}
