//! A provider's own list of messages: the request for one page of it, and how a page is read.

use std::time::Duration;

use chrono::DateTime;
use serde_json::Value;

use super::reader::{Reader, StatusRules, plain_all, plain_at};
use super::request::RequestRule;
use crate::document::Table;
use crate::domain::ids::{ProviderMessageId, Reference};
use crate::domain::time::Timestamp;
use crate::domain::uri::percent_encode;
use crate::provider::statement::{Listed, Page, PageStart};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What only the request of a list has a value for.
pub(super) const VARIABLES: &[&str] = &["since", "until", "offset"];

/// Variables that speak of one message.
const OF_A_MESSAGE: &[&str] = &[
    "to",
    "to_digits",
    "text",
    "subject",
    "html",
    "reference",
    "dedupe_key",
    "receipt_url",
    "remaining_seconds",
    "expires_at",
    "began_at",
    "message_id",
];

/// `[statement]`.
#[derive(Debug)]
pub(crate) struct Statement {
    pub request: RequestRule,
    pub window: Duration,
    found: String,
    reference: Option<String>,
    message_id: String,
    at: String,
    statuses: StatusRules,
    paging: Paging,
}

/// How a page tells of the next one.
#[derive(Debug)]
enum Paging {
    /// The next one's URL stands here.
    Link(String),
    /// A token stands here; the next request bears it as this parameter of its query.
    Cursor(String, String),
    /// A page of as many messages as this is followed by another.
    Full(usize),
}

impl Statement {
    pub(super) fn read(reader: &Reader, mut table: Table) -> Self {
        let request = RequestRule::read(reader, &mut table);
        let found = reader.need_pointer(&mut table, "found");
        let reference = reader.pointer(&mut table, "reference");
        let message_id = reader.need_pointer(&mut table, "message_id");
        let at = reader.need_pointer(&mut table, "at");
        let statuses = StatusRules::read(reader, &mut table);
        let window = table.need_duration("window", HOUR..=400 * DAY);
        let paging = read_paging(reader, &mut table, &request);
        let names = request.variables();
        if !names.contains("since") || !names.contains("until") {
            table.wrong("url", "must ask for a period, by `since` and `until`");
        }
        super::without(&table, &request, OF_A_MESSAGE);
        table.finish();
        Self { request, window, found, reference, message_id, at, statuses, paging }
    }

    /// The URL of a page behind a token of the page before.
    pub(crate) fn behind(&self, url: &str, token: &str) -> Option<String> {
        let Paging::Cursor(_, name) = &self.paging else { return None };
        let mark = if url.contains('?') { '&' } else { '?' };
        Some(format!("{url}{mark}{}={}", percent_encode(name), percent_encode(token)))
    }

    /// Reads the page that begins at `start`. `None` when anything in it does not read: a list with a hole is none.
    pub(crate) fn page(
        &self,
        start: &PageStart,
        body: &[u8],
        keep: &dyn Fn(&str) -> Option<ProviderMessageId>,
        ours: &dyn Fn(&str) -> Option<Reference>,
    ) -> Option<Page> {
        let json: Value = serde_json::from_slice(body).ok()?;
        let found = json.pointer(&self.found)?.as_array()?;
        let listed = |message: &Value| {
            let references = self.reference.iter().flat_map(|at| plain_all(message, at));
            Some(Listed {
                reference: references.into_iter().find_map(|text| ours(&text)),
                message_id: keep(&plain_at(message, &self.message_id)?)?,
                at: time(&plain_at(message, &self.at)?)?,
                status: self.statuses.status(message),
            })
        };
        let messages: Vec<Listed> = found.iter().map(listed).collect::<Option<_>>()?;
        // Some providers name a next page for ever; an empty one is the last.
        let next = if messages.is_empty() { None } else { self.next(&json, start, messages.len())? };
        Some(Page { messages, next })
    }

    /// The outer `None`: where the next page begins cannot be read.
    fn next(&self, page: &Value, start: &PageStart, count: usize) -> Option<Option<PageStart>> {
        let token = |at: &str| match page.pointer(at) {
            None | Some(Value::Null) => Some(None),
            Some(Value::String(text)) => Some(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(_) => None,
        };
        Some(match &self.paging {
            Paging::Link(at) => token(at)?.map(PageStart::Link),
            Paging::Cursor(at, _) => token(at)?.map(PageStart::Cursor),
            Paging::Full(full) if count < *full => None,
            Paging::Full(_) => match start {
                PageStart::Offset(before) => Some(PageStart::Offset(before.checked_add(count)?)),
                _ => Some(PageStart::Offset(count)),
            },
        })
    }
}

fn read_paging(reader: &Reader, table: &mut Table, request: &RequestRule) -> Paging {
    let link = reader.pointer(table, "next").map(Paging::Link);
    let cursor = table.table("cursor").map(|mut cursor| {
        let paging = Paging::Cursor(reader.need_pointer(&mut cursor, "at"), cursor.need_str("query"));
        cursor.finish();
        paging
    });
    let full = table.int::<u32>("full_page", 1..=10_000).and_then(|n| usize::try_from(n).ok()).map(Paging::Full);
    if full.is_some() && !request.variables().contains("offset") {
        table.wrong("full_page", "needs a request that uses `offset`");
    }
    let mut all = [link, cursor, full].into_iter().flatten();
    match (all.next(), all.next()) {
        (Some(one), None) => one,
        _ => {
            table.wrong("next", "one of `next`, `cursor` and `full_page` is required, to tell of the next page");
            Paging::Full(1)
        }
    }
}

/// A time as lists have it: seconds since 1970; RFC 3339, also without the colon in its offset; or RFC 5322 section 3.3.
fn time(text: &str) -> Option<Timestamp> {
    if let Ok(seconds) = text.parse::<f64>() {
        // Up to the year 5138; beyond that it is no number of seconds.
        return (0.0..1e11).contains(&seconds).then(|| Timestamp::from_micros((seconds * 1e6) as i64));
    }
    let others = || {
        let bare = DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f%z");
        let time = bare.or_else(|_| DateTime::parse_from_rfc2822(text)).ok()?;
        Some(Timestamp::from_micros(time.timestamp_micros()))
    };
    Timestamp::parse_rfc3339(text).ok().or_else(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_in_every_form_that_lists_have() {
        let wanted = Timestamp::parse_rfc3339("2026-11-29T12:00:00Z").ok();
        for text in [
            "2026-11-29T12:00:00Z",
            "2026-11-29T07:00:00.0000000-05:00",
            "2026-11-29T12:00:00.000+0000",
            "Sun, 29 Nov 2026 12:00:00 +0000",
            "1795953600",
            "1795953600.0",
        ] {
            assert_eq!(time(text), wanted, "{text}");
        }
        for text in ["", "yesterday", "NaN", "-1", "1795953600000", "2026-11-29"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
