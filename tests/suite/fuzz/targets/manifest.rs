//! What operators write for a provider, and what their settings put into it.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::value::Value;
use sendonce::provider::manifest::{Manifest, SHIPPED};
use sendonce::provider::template::Template;

use super::seeds;

pub fn manifests() -> Vec<Vec<u8>> {
    SHIPPED.iter().map(|(_, text)| text.as_bytes().to_vec()).collect()
}

/// A manifest is refused with mistakes that have a place, or reads the same again.
pub fn manifest(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Manifest::parse("m.toml", text) {
        Ok(manifest) => {
            assert_eq!(manifest.text(), text);
            let again = Manifest::parse("m.toml", manifest.text()).expect("what was taken once");
            assert_eq!((again.name(), again.channel()), (manifest.name(), manifest.channel()));
            assert!(manifest.settings().contains_key("base_url"));
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "refused for nothing");
            for mistake in mistakes {
                assert!(mistake.place.line <= text.lines().count() + 1, "{mistake}");
                assert!(mistake.to_string().starts_with("m.toml"), "{mistake}");
            }
        }
    }
}

pub fn templates() -> Vec<Vec<u8>> {
    seeds([
        "{{ base }}/x/{{ key }}?n={{ remaining_seconds | clamp(1, 36000) }}",
        "{{ '' if key[:2] == 'MG' else key }}",
        "{{ to }}",
        "{{ 'a' ~ key * 2 }}",
        "{% if to %}",
    ])
}

/// A template that is taken renders or says that it does not, and no value leaves its place in a URL.
pub fn template(data: &[u8]) {
    const HOSTILE: &str = "a b\r\n/../?&=#%\u{e9}";
    let Ok(text) = std::str::from_utf8(data) else { return };
    let settings = BTreeSet::from(["key".to_owned(), "base".to_owned()]);
    let Ok(template) = Template::parse(text, &settings) else { return };
    let value = |name: String| (name.clone(), if name == "remaining_seconds" { 600.into() } else { HOSTILE.into() });
    let values: BTreeMap<String, Value> = template.variables().into_iter().map(value).collect();
    let values = Value::from(values);
    if let Ok(url) = template.url(&values) {
        assert!(text.contains(['\r', '\n']) || !url.contains(['\r', '\n']), "{url}");
        assert!(text.contains("..") || !url.contains("../"), "{url}");
        assert_eq!(template.url(&values).as_deref(), Ok(url.as_str()), "the same twice");
    }
    if let (Ok(json), Ok(shown)) = (template.json(&values), template.text(&values)) {
        assert!(json.as_str().is_none_or(|json| json == shown), "{json} and {shown}");
    }
}
