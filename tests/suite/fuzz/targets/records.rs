//! What auditors take away: names of strangers stand in it.

use sendonce::audit::record_line::{csv_header, csv_lines, ndjson_line};
use sendonce::domain::audit::{Actor, Record, What};
use sendonce::domain::ids::{ActorName, EventId, ProviderMessageId, ProviderName, Tenant, Ticket};
use sendonce::domain::time::Timestamp;
use sendonce::store::rows::LogRow;

use super::seeds;

pub fn records() -> Vec<Vec<u8>> {
    seeds(["-e:1\0=1+1\0OPS-1\0mailer", "e\0<id@host>\0-T\0-p", "@\0@SUM(1)\0..\0_"])
}

/// A record is one line in each form, every name in its place, and nothing that a spreadsheet would run.
pub fn record(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut names = text.split('\0');
    let mut next = || names.next().unwrap_or_default();
    let (event, message, ticket, provider) = (next(), next(), next(), next());
    let who =
        ActorName::parse(provider).map_or_else(|_| Actor::Key(ActorName::parse("k").expect("a name")), Actor::Key);
    let tenant = Tenant::parse(provider).unwrap_or_else(|_| Tenant::parse("shop").expect("a name"));
    let row = LogRow {
        pos: i64::try_from(data.len()).expect("a length"),
        record: Record {
            event_id: EventId::parse(event).ok(),
            message_id: ProviderMessageId::parse(message).ok(),
            ticket: Ticket::parse(ticket).ok(),
            provider: ProviderName::parse(provider).ok(),
            ..Record::new(Timestamp::from_micros(0), tenant, What::Accepted, who)
        },
    };
    let line = ndjson_line(&row);
    assert_eq!(line.matches('\n').count(), 1, "{line}");
    let json: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let csv = format!("{}{}", csv_header(), csv_lines(std::slice::from_ref(&row)));
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let heads = reader.headers().expect("a head").clone();
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().expect("rows as wide as the head");
    let [cells] = rows.as_slice() else { panic!("{csv}") };
    for (head, cell) in heads.iter().zip(cells) {
        assert!(!cell.starts_with(['=', '+', '-', '@']), "{head}: {cell}");
        let bare = cell.strip_prefix('\'').unwrap_or(cell);
        let told = match &json[head] {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Null => String::new(),
            other => other.to_string(),
        };
        assert_eq!(bare, told, "{head}");
    }
}
