//! What leaves where a setting or an address is out of the ordinary. The ordinary stands in the contracts.

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
