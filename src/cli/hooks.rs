//! What a configuration's hooks name but do not hold: kinds of message, and the keys in their secrets.

use secrecy::ExposeSecret as _;

use crate::config::Settings;
use crate::document::{Mistake, Place, show_duration};
use crate::domain::hook::{Hook, Kinds, Proof};
use crate::provider::signature::standard::StandardKey;
use crate::render::templates::Templates;

/// Checks every hook against the templates, and its secrets.
pub(super) fn check(settings: &Settings, templates: &Templates) -> Vec<Mistake> {
    let of = |hook: &Hook| {
        let told = problems(hook, templates).into_iter();
        let place = |key| Place { key: format!("hook.{}.{key}", hook.name), ..settings.place.clone() };
        told.map(|(key, message)| Mistake { place: place(key), message }).collect::<Vec<_>>()
    };
    settings.hooks.iter().flat_map(of).collect()
}

fn problems(hook: &Hook, templates: &Templates) -> Vec<(&'static str, String)> {
    let mut told = vec![];
    let (key, kinds): (_, Vec<_>) = match &hook.kinds {
        Kinds::One(kind) => ("kind", vec![kind]),
        Kinds::By { map, .. } => ("kinds", map.values().collect()),
    };
    for kind in kinds {
        match templates.kind(kind) {
            None => told.push((key, format!("names the kind `{kind}`, which has no templates"))),
            Some(rules) if rules.max_expires_in().as_secs() < hook.expires_in => {
                let max = show_duration(rules.max_expires_in());
                told.push((
                    "expires_in",
                    format!("is more than the {max} that a message of the kind `{kind}` may live"),
                ));
            }
            Some(_) => {}
        }
    }
    if let Proof::StandardWebhooks { secrets } = &hook.proof
        && secrets.iter().any(|secret| StandardKey::of_sender(secret.expose_secret()).is_none())
    {
        told.push((
            "secret",
            "must be `whsec_` and base64, as the sender shows it (also with `v1,` before it)".to_owned(),
        ));
    }
    told
}
