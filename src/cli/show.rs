//! Output for people and for machines.

use std::io::{self, Write as _};

use serde_json::{Map, Value};

use super::Failure;

/// Writes to standard output; a reader that went away is not a failure.
pub(super) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("standard output cannot be written: {}", e.kind())))
        }
        _ => Ok(()),
    }
}

/// Writes one line.
pub(super) fn line(text: &str) -> Result<(), Failure> {
    bytes(format!("{text}\n").as_bytes())
}

/// Writes an answer: as JSON on one line, or as lines that people read.
pub(super) fn answer(value: &Value, json: bool) -> Result<(), Failure> {
    if json { line(&value.to_string()) } else { bytes(lines(value).as_bytes()) }
}

/// What people look for first; the rest follows in the order of the alphabet, lists at the end.
#[rustfmt::skip]
const FIRST: &[&str] = &[
    "what", "closes", "notifications", "accepted_records", "finished", "final_records", "live", "id", "number", "event_id", "state",
    "sent", "delivery", "cause", "waiting_for", "provider", "outcome", "reason", "to", "attempt", "created_at", "began_at",
    "ended_at",
];

/// The members that tell something, in the order in which people read them.
fn members(object: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let says_nothing = |name: &str, value: &Value| match value {
        Value::Null => true,
        Value::Bool(is_so) => !is_so && matches!(name, "cancel" | "supersede" | "probe"),
        Value::String(text) => text == "ok" && matches!(name, "cause" | "reason"),
        Value::Object(inner) => members(inner).is_empty(),
        _ => false,
    };
    let mut told: Vec<_> = object.iter().filter(|(name, value)| !says_nothing(name, value)).collect();
    let rank = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
    let is_table = |value: &Value| value.as_array().is_some_and(|items| items.first().is_none_or(Value::is_object));
    told.sort_by_key(|(name, value)| (is_table(value), rank(name)));
    told
}

/// `name: value` for each member, and one indented line for each item of a list.
fn lines(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(object) => {
            for (name, member) in members(object) {
                match member {
                    Value::Array(items) if items.first().is_none_or(Value::is_object) => {
                        out += &format!("{name}:{}\n", if items.is_empty() { " none" } else { "" });
                        items.iter().for_each(|item| out += &format!("  {}\n", words(item)));
                    }
                    other => out += &format!("{name}: {}\n", words(other)),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| out += &format!("{}\n", words(item))),
        other => out += &format!("{}\n", words(other)),
    }
    out
}

/// A value on one line.
pub(super) fn words(value: &Value) -> String {
    match value {
        Value::String(s) => plain(s),
        Value::Object(object) => {
            let members = members(object).into_iter();
            members.map(|(name, member)| format!("{name}={}", words(member))).collect::<Vec<_>>().join(" ")
        }
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// `text` without what would steer a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_reads_as_lines_and_cannot_steer_the_terminal() {
        let value = json!({"attempts": [{"why": "a\u{1b}[2J", "number": 1, "reason": "ok"}], "gone": null, "id": "ntf_1",
            "marks": {"cancel": false}, "none": [], "to": ["a", "b"], "state": "dispatched"});
        let read = "id: ntf_1\nstate: dispatched\nto: a, b\nattempts:\n  number=1 why=a\u{fffd}[2J\nnone: none\n";
        assert_eq!(lines(&value), read);
    }
}
