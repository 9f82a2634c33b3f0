//! What leaves where a setting or an address is out of the ordinary. The ordinary stands in the contracts.

use sendonce::provider::manifest::SHIPPED;
use serde_json::Value;

use super::*;
use crate::support::http_oracle::Seen;

async fn sent(name: &str, more: &[(&str, &str)]) -> Seen {
    let oracle = HttpOracle::start().await;
    send(&provider(name, &oracle.url(), more)).await;
    oracle.wait_for(1, Duration::from_secs(5)).await.remove(0)
}

#[tokio::test]
async fn every_request_names_the_program() {
    let seen = sent("twilio", &[]).await;
    assert_eq!(seen.header("user-agent"), Some(concat!("sendonce/", env!("CARGO_PKG_VERSION"))));
}

#[tokio::test]
async fn a_messaging_service_stands_in_the_place_of_a_sender() {
    let seen = sent("twilio", &[("sender", "MG0123")]).await;
    assert!(seen.contains("MessagingServiceSid=MG0123") && !seen.contains("From="), "{}", seen.text());
}

#[tokio::test]
async fn receipts_are_asked_for_only_where_something_proves_their_origin() {
    assert_eq!(sent("telnyx", &[]).await.json().get("webhook_url"), None);
    assert!(sent("telnyx", &[("public_key", "AAAA")]).await.json()["webhook_url"].is_string());
    let webhooks = sent("infobip", &[]).await.json()["messages"][0]["webhooks"].clone();
    assert_eq!(webhooks.get("delivery"), None);
}

/// Whether some value in it is nothing: an empty text, list or table, or null.
fn has_a_void(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty() || items.iter().any(has_a_void),
        Value::Object(members) => members.is_empty() || members.values().any(has_a_void),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[tokio::test]
async fn with_no_more_than_the_required_settings_nothing_empty_leaves() {
    for (name, _) in SHIPPED {
        let manifest = shipped(name).expect("shipped").expect("without mistakes");
        let mut settings = Contract::of(name).settings();
        settings.retain(|setting, _| manifest.settings()[setting].required);
        let oracle = HttpOracle::start().await;
        settings.insert("base_url".to_owned(), oracle.url().into());
        let provider = build(manifest, settings, PATIENT, None).expect("all that is required");
        send(&provider).await;
        let seen = oracle.requests().remove(0);
        match seen.header("content-type") {
            Some("application/x-www-form-urlencoded") => {
                assert!(seen.text().split('&').all(|field| !field.ends_with('=')), "{name}: {}", seen.text());
            }
            _ => assert!(!has_a_void(&seen.json()), "{name}: {}", seen.text()),
        }
        assert!(seen.headers.iter().all(|(_, value)| !value.is_empty()), "{name}");
        assert!(!provider.abilities().receipts || !seen.contains("/v1/receipts"), "{name}: nobody knows our URL");
    }
}

#[tokio::test]
async fn the_same_bytes_leave_under_the_same_key_every_time() {
    for name in ["telnyx", "resend"] {
        let (first, second) = (sent(name, &[]).await, sent(name, &[]).await);
        assert_eq!(first.body, second.body, "{name}");
        assert_eq!(first.header("idempotency-key"), second.header("idempotency-key"), "{name}");
    }
}

#[tokio::test]
async fn a_mail_address_is_written_with_its_domain_in_ascii() {
    let oracle = HttpOracle::start().await;
    let provider = provider("postmark", &oracle.url(), &[]);
    let mut dispatch = dispatch(Channel::Email);
    dispatch.to = Address::Email(MailAddress::parse("user@bücher.example").expect("an address"));
    provider.send(&dispatch, &gate()).await;
    assert_eq!(oracle.requests()[0].json()["To"], "user@xn--bcher-kva.example");
}
