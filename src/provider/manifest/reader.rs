//! What the readers of a manifest's sections share.

use std::collections::BTreeSet;

use crate::document::{Mistakes, Place, Table, Value};
use crate::domain::receipt::ReceiptStatus;
use crate::provider::template::Template;

/// The names that templates may use, and where mistakes go.
pub(crate) struct Reader {
    pub settings: BTreeSet<String>,
    pub mistakes: Mistakes,
}

impl Reader {
    /// Records a mistake.
    pub fn wrong(&self, place: &Place, message: impl Into<String>) {
        self.mistakes.add(place, message);
    }

    /// Records a mistake where a value was wanted.
    pub fn none<T>(&self, place: &Place, message: &str) -> Option<T> {
        self.wrong(place, message);
        None
    }

    /// Compiles a template; a bad one is recorded and replaced by nothing.
    pub fn template(&self, text: &str, place: &Place) -> Template {
        Template::parse(text, &self.settings).unwrap_or_else(|message| {
            self.wrong(place, message);
            Template::empty()
        })
    }

    /// A JSON pointer (RFC 6901), in which a segment `*` stands for every member.
    pub fn pointer(&self, table: &mut Table, key: &str) -> Option<String> {
        let pointer = table.str(key)?;
        if pointer.is_empty() || pointer.starts_with('/') {
            Some(pointer)
        } else {
            self.none(&table.place_of(key), "must be a JSON pointer, which begins with /")
        }
    }

    /// A JSON pointer that must be there.
    pub fn need_pointer(&self, table: &mut Table, key: &str) -> String {
        if !table.has(key) {
            table.wrong(key, "is required");
        }
        self.pointer(table, key).unwrap_or_default()
    }

    /// The names of settings, each of which must be declared.
    pub fn setting_names(&self, table: &mut Table, key: &str) -> Vec<String> {
        let names = table.strs_at(key).unwrap_or_default();
        names.into_iter().map(|(name, place)| self.declared(name, &place)).collect()
    }

    /// A name that must be a declared setting's.
    pub fn declared(&self, name: String, place: &Place) -> String {
        if !self.settings.contains(&name) {
            self.wrong(place, "must be the name of a declared setting");
        }
        name
    }

    /// Codes: strings, integers or truth values, compared as text.
    pub fn codes(&self, table: &mut Table, key: &str) -> Option<Vec<String>> {
        let code = |value: Value| {
            let text = plain(&value.to_json());
            if text.is_none() {
                self.wrong(value.place(), "must be a string, an integer or a truth value");
            }
            text
        };
        Some(table.list(key)?.into_iter().filter_map(code).collect())
    }
}

/// A JSON value that is no container, as text: how codes and ids are compared.
pub(crate) fn plain(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(s) => Some(s.clone()),
        serde_json::Value::Number(n) => Some(n.to_string()),
        serde_json::Value::Bool(b) => Some(b.to_string()),
        _ => None,
    }
}

/// The text at `pointer`, when something plain stands there; the first one, where the pointer names several places.
pub(crate) fn plain_at(value: &serde_json::Value, pointer: &str) -> Option<String> {
    plain_all(value, pointer).into_iter().next()
}

/// The texts at every place that `pointer` names.
pub(crate) fn plain_all(value: &serde_json::Value, pointer: &str) -> Vec<String> {
    plain_each(value, pointer).into_iter().flatten().collect()
}

/// What stands at each place that `pointer` names: a segment `*` stands for each item of an array or member of an object.
pub(crate) fn plain_each(value: &serde_json::Value, pointer: &str) -> Vec<Option<String>> {
    let star = pointer.find("/*/").or_else(|| pointer.strip_suffix("/*").map(str::len));
    let Some(star) = star else { return vec![value.pointer(pointer).and_then(plain)] };
    let rest = &pointer[star + "/*".len()..];
    match value.pointer(&pointer[..star]) {
        Some(serde_json::Value::Array(items)) => items.iter().flat_map(|v| plain_each(v, rest)).collect(),
        Some(serde_json::Value::Object(members)) => members.values().flat_map(|v| plain_each(v, rest)).collect(),
        _ => vec![],
    }
}

/// Rules, in order, that read a provider's words on delivery.
#[derive(Debug, Default)]
pub(crate) struct StatusRules(Vec<(String, Vec<String>, ReceiptStatus)>);

impl StatusRules {
    /// Reads the list of tables `statuses`.
    pub(super) fn read(reader: &Reader, table: &mut Table) -> Self {
        let words: Vec<(&str, ReceiptStatus)> = ReceiptStatus::ALL.iter().map(|s| (s.code(), *s)).collect();
        let read = |mut rule: Table| {
            let at = reader.need_pointer(&mut rule, "at");
            if !rule.has("any") {
                rule.wrong("any", "is required");
            }
            let any = reader.codes(&mut rule, "any").unwrap_or_default();
            let is = rule.need_one_of("is", &words);
            rule.finish();
            (at, any, is)
        };
        Self(table.tables("statuses").into_iter().map(read).collect())
    }

    /// The first rule's word that fits `message`.
    pub(crate) fn status(&self, message: &serde_json::Value) -> Option<ReceiptStatus> {
        let fits = |(at, any, _): &&(String, Vec<String>, ReceiptStatus)| {
            plain_all(message, at).iter().any(|code| any.contains(code))
        };
        self.0.iter().find(fits).map(|(_, _, is)| *is)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_a_pointer_names_every_member_of_a_list_or_table() {
        let value =
            serde_json::json!({ "a": [{ "b": 1 }, {}, { "b": "2" }], "c": { "x": { "d": 3 }, "y": { "d": {} } } });
        for (pointer, wanted) in [
            ("/a/*/b", vec!["1", "2"]),
            ("/c/*/d", vec!["3"]),
            ("/*/*/b", vec!["1", "2"]),
            ("/a/0/b", vec!["1"]),
            ("/a/*", vec![]),
            ("/a/0/b/*", vec![]),
            ("/z/*/b", vec![]),
        ] {
            assert_eq!(plain_all(&value, pointer), wanted, "{pointer}");
        }
        assert_eq!(plain_all(&serde_json::json!(["x", "y"]), "/*"), ["x", "y"]);
        assert_eq!(plain_at(&value, "/a/*/b").as_deref(), Some("1"));
        assert_eq!(plain_each(&value, "/a/*/b"), [Some("1".to_owned()), None, Some("2".to_owned())]);
        assert_eq!(plain_each(&value, "/a/9/b"), [None]);
    }
}
