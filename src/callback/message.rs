//! What a callback says. Nothing secret is in what it is made of: a record of the log has no such field.

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE32_NOPAD;
use serde::Serialize;

use super::client::Stamp;
use crate::domain::delivery::Delivery;
use crate::domain::ids::{AttemptNumber, EventId, NotificationId, ProviderName};
use crate::domain::lifecycle::{Sent, State};
use crate::domain::outcome::{OutcomeClass, Reason};
use crate::domain::time::Timestamp;
use crate::provider::signature::standard::StandardKey;
use crate::store::callbacks::Callback;

/// Characters of base32 in an id, for 130 bits.
const ID_LEN: usize = 26;

#[derive(Serialize)]
struct Message<'a> {
    r#type: String,
    timestamp: String,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    id: NotificationId,
    event_id: &'a EventId,
    state: State,
    sent: Sent,
    delivery: Delivery,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<AttemptNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a ProviderName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<OutcomeClass>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_url: Option<String>,
}

/// The id of a callback: the same for every try of it, whoever makes it, and no other's. Its time is in it because a store
/// that was restored from a copy gives out positions anew.
pub(super) fn id(callback: &Callback) -> String {
    let parts =
        [&callback.notification.as_bytes()[..], &callback.pos.to_be_bytes(), &callback.at.micros().to_be_bytes()];
    let hash = BASE32_NOPAD.encode(digest(&SHA256, &parts.concat()).as_ref()).to_ascii_lowercase();
    format!("msg_{}", hash.get(..ID_LEN).unwrap_or(&hash))
}

/// The body, which is the same for every try. `public_url` has no final slash.
pub(super) fn body(callback: &Callback, public_url: Option<&str>) -> Vec<u8> {
    let message = Message {
        r#type: format!("notification.{}", callback.change),
        timestamp: callback.at.to_string(),
        data: Data {
            id: callback.notification,
            event_id: &callback.event_id,
            state: callback.state,
            sent: callback.sent.unwrap_or(Sent::Unknown),
            delivery: callback.delivery.unwrap_or(Delivery::None),
            attempt: callback.attempt,
            provider: callback.provider.as_ref(),
            outcome: callback.outcome,
            reason: callback.reason,
            status_url: public_url.map(|base| format!("{base}/v1/notifications/{}", callback.notification)),
        },
    };
    // Texts and numbers have no way not to be written.
    serde_json::to_vec(&message).unwrap_or_default()
}

/// Signs a try that is made now, under every key.
pub(super) fn stamp(id: String, body: &[u8], keys: &[StandardKey], now: Timestamp) -> Stamp {
    let timestamp = now.micros() / 1_000_000;
    let signatures: Vec<String> = keys.iter().map(|key| key.sign(&id, timestamp, body)).collect();
    Stamp { id, timestamp, signatures: signatures.join(" ") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::callback::Change;

    fn callback() -> Callback {
        Callback {
            pos: 7,
            notification: NotificationId::from_bytes([7; 16]),
            change: Change::Dispatched,
            state: State::Dispatched,
            tries: 0,
            due_at: Timestamp::from_micros(1),
            at: Timestamp::from_micros(0),
            event_id: EventId::parse("reset-1").expect("an id"),
            sent: Some(Sent::Yes),
            delivery: None,
            attempt: Some(1),
            provider: None,
            outcome: Some(OutcomeClass::Accepted),
            reason: None,
        }
    }

    #[test]
    fn an_id_depends_on_the_record_alone() {
        let first = id(&callback());
        assert_eq!(first.len(), 30);
        assert_eq!(first, id(&Callback { tries: 9, due_at: Timestamp::from_micros(5), ..callback() }));
        for other in [
            Callback { pos: 8, ..callback() },
            Callback { at: Timestamp::from_micros(1), ..callback() },
            Callback { notification: NotificationId::from_bytes([8; 16]), ..callback() },
        ] {
            assert_ne!(first, id(&other));
        }
    }

    #[test]
    fn a_body_has_closed_codes_and_leaves_out_what_is_not_known() {
        let body: Value = serde_json::from_slice(&body(&callback(), Some("https://x.example"))).expect("JSON");
        let id = NotificationId::from_bytes([7; 16]);
        let wanted = json!({
            "type": "notification.dispatched", "timestamp": "1970-01-01T00:00:00.000000Z",
            "data": { "id": id, "event_id": "reset-1", "state": "dispatched", "sent": "yes", "delivery": "none", "attempt": 1,
                      "outcome": "accepted", "status_url": format!("https://x.example/v1/notifications/{id}") }
        });
        assert_eq!(body, wanted);
    }
}
