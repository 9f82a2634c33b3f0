//! Builds the configured targets of callbacks.

use secrecy::ExposeSecret as _;

use crate::callback::Target;
use crate::callback::client::Client;
use crate::config::CallbackSettings;
use crate::document::{Mistake, Place};
use crate::provider::signature::standard::StandardKey;

/// The targets, but for those of which `is_told` knows that they are mistaken already.
pub(super) fn build_all(
    callbacks: &[CallbackSettings],
    is_told: impl Fn(&str) -> bool,
) -> Result<Vec<Target>, Vec<Mistake>> {
    let (mut targets, mut mistakes) = (vec![], vec![]);
    for callback in callbacks.iter().filter(|c| !is_told(&format!("callback.{}.", c.name))) {
        match build(callback) {
            Ok(target) => targets.push(target),
            Err(more) => mistakes.extend(more),
        }
    }
    if mistakes.is_empty() { Ok(targets) } else { Err(mistakes) }
}

fn build(callback: &CallbackSettings) -> Result<Target, Vec<Mistake>> {
    let mut mistakes = vec![];
    let mut wrong = |key: &str, message: String| {
        let place = Place { key: format!("callback.{}.{key}", callback.name), ..callback.place.clone() };
        mistakes.push(Mistake { place, message });
    };
    let client = Client::new(&callback.url, callback.timeout, callback.allow_private);
    let client = client.map_err(|e| wrong("url", e.to_string())).ok();
    let keys = callback.secrets.iter().filter_map(|(key, secret)| {
        StandardKey::parse(secret.expose_secret()).map_err(|e| wrong(key, e.to_string())).ok()
    });
    let keys = keys.collect();
    let Some(client) = client.filter(|_| mistakes.is_empty()) else { return Err(mistakes) };
    Ok(Target {
        name: callback.name.clone(),
        tenant: callback.tenant.clone(),
        client,
        keys,
        changes: callback.events.iter().copied().collect(),
        concurrency: callback.concurrency.into(),
        retry: callback.retry,
        give_up_after: callback.give_up_after,
    })
}
