//! Output for people and for machines.

use std::io::{self, Write as _};

use serde_json::Value;

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

/// `name: value` for each member, and one indented line for each item of a list.
fn lines(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(_, m)| !m.is_null()) {
                match member {
                    Value::Array(items) => {
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
fn words(value: &Value) -> String {
    match value {
        Value::String(s) => plain(s),
        Value::Object(members) => {
            let members = members.iter().filter(|(_, m)| !m.is_null());
            members.map(|(name, member)| format!("{name}={}", words(member))).collect::<Vec<_>>().join(" ")
        }
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(","),
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
        let value = json!({"id": "ntf_1", "gone": null, "attempts": [{"n": 1, "why": "a\u{1b}[2J"}], "none": []});
        assert_eq!(lines(&value), "attempts:\n  n=1 why=a\u{fffd}[2J\nid: ntf_1\nnone: none\n");
    }
}
