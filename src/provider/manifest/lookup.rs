//! Asking a provider for an earlier message: the request, and how its answer is read.

use std::time::Duration;

use minijinja::value::Value as Variables;

use super::reader::{Reader, StatusRules, plain_all, plain_at};
use super::request::RequestRule;
use crate::document::Table;
use crate::domain::ids::ProviderMessageId;
use crate::domain::outcome::LookupAnswer;
use crate::provider::LookupRules;
use crate::provider::template::Template;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// `[lookup]`.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub request: RequestRule,
    pub rules: LookupRules,
    /// Its request names the provider's own id.
    pub needs_message_id: bool,
    found: String,
    matches: Vec<(String, Template)>,
    message_id: Option<String>,
    statuses: StatusRules,
    /// As many messages as this are a full page, which may go on: then a miss is none.
    full_page: Option<usize>,
}

impl Lookup {
    pub(super) fn read(reader: &Reader, mut table: Table) -> Self {
        let request = RequestRule::read(reader, &mut table);
        let found = reader.need_pointer(&mut table, "found");
        let mut matches = vec![];
        let has_match = table.has("match");
        for (pointer, (text, place)) in table.str_map("match").unwrap_or_default() {
            if !pointer.starts_with('/') {
                reader.wrong(&place, "must be a JSON pointer, which begins with /");
            }
            matches.push((pointer, reader.template(&text, &place)));
        }
        if matches.is_empty() {
            table.wrong("match", if has_match { "must be a table with a pointer in it" } else { "is required" });
        }
        let message_id = reader.pointer(&mut table, "message_id");
        let statuses = StatusRules::read(reader, &mut table);
        let full_page = table.int::<u32>("full_page", 1..=10_000).and_then(|n| usize::try_from(n).ok());
        let mut names = request.variables();
        names.extend(matches.iter().flat_map(|(_, t)| t.variables()));
        let rules = LookupRules {
            settle_after: table.need_duration("settle_after", Duration::ZERO..=DAY),
            misses_needed: table.int("not_found_needed", 1..=20).unwrap_or(2),
            trust_miss: table.bool("trust_miss").unwrap_or(false),
            window: table.need_duration("window", HOUR / 60..=400 * DAY),
            needs_address: names.contains("to") || names.contains("to_digits"),
        };
        super::without(&table, &request, super::statement::VARIABLES);
        super::without(&table, &request, &["text", "subject", "html", "remaining_seconds", "expires_at"]);
        let needs_message_id = names.contains("message_id");
        table.finish();
        Self { request, rules, needs_message_id, found, matches, message_id, statuses, full_page }
    }

    /// Reads the answer to a look-up: only a complete 2xx whose messages can be found in it counts.
    pub(crate) fn answer(
        &self,
        status: u16,
        body: Option<&[u8]>,
        variables: &Variables,
        keep: &dyn Fn(&str) -> Option<ProviderMessageId>,
    ) -> LookupAnswer {
        let read = || {
            let json: serde_json::Value = serde_json::from_slice(body.filter(|_| status / 100 == 2)?).ok()?;
            let wanted = self.matches.iter().map(|(at, t)| Some((at.as_str(), t.text(variables).ok()?)));
            let wanted: Vec<(&str, String)> = wanted.collect::<Option<_>>()?;
            let messages = json.pointer(&self.found)?.as_array()?;
            let ours = |m: &&serde_json::Value| {
                wanted.iter().all(|(at, value)| !value.is_empty() && plain_all(m, at).contains(value))
            };
            Some(match messages.iter().find(ours) {
                Some(message) => LookupAnswer::Found {
                    message_id: self.message_id.as_ref().and_then(|at| keep(&plain_at(message, at)?)),
                    delivery: self.statuses.status(message),
                },
                None if self.full_page.is_some_and(|full| messages.len() >= full) => LookupAnswer::Unreadable,
                None => LookupAnswer::NotFound,
            })
        };
        read().unwrap_or(LookupAnswer::Unreadable)
    }
}
