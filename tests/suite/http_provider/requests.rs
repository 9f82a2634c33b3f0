//! The bytes that leave, pinned for each shipped provider.

use serde_json::json;

use super::*;
use crate::support::http_oracle::Seen;

async fn sent(name: &str, more: &[(&str, &str)]) -> Seen {
    let oracle = HttpOracle::start().await;
    send(&provider(name, &oracle.url(), more)).await;
    oracle.wait_for(1, Duration::from_secs(5)).await.remove(0)
}

#[tokio::test]
async fn twilio_gets_a_form_with_the_validity_and_the_callback_of_this_attempt() {
    let seen = sent("twilio", &[]).await;
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/2010-04-01/Accounts/AC1/Messages.json"));
    assert_eq!(seen.header("authorization"), Some("Basic QUMxOnRva2VuLTE="));
    assert_eq!(seen.header("content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(seen.header("user-agent"), Some(concat!("sendonce/", env!("CARGO_PKG_VERSION"))));
    let callback = format!("https%3A%2F%2Fhooks.shop.example%2Fv1%2Freceipts%2Ftwilio%3Fref%3D{}", reference(1));
    assert_eq!(
        seen.text(),
        format!(
            "Body=Code%20493021%20%26%20more%3A%20%C3%A9&From=%2B15005550006&StatusCallback={callback}\
             &To=%2B12025550143&ValidityPeriod=600"
        )
    );
    let seen = sent("twilio", &[("sender", "MG0123")]).await;
    assert!(seen.contains("MessagingServiceSid=MG0123") && !seen.contains("From="), "{}", seen.text());
}

#[tokio::test]
async fn infobip_gets_json_with_our_message_id_and_seconds_of_validity() {
    let seen = sent("infobip", &[]).await;
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/sms/3/messages"));
    assert_eq!(seen.header("authorization"), Some("App key-1"));
    let url = format!("{PUBLIC}/v1/receipts/infobip?ref={}&key=path-secret", reference(1));
    let wanted = json!({ "messages": [{
        "sender": "Shop",
        "destinations": [{ "to": "12025550143", "messageId": reference(1) }],
        "content": { "text": "Code 493021 & more: é" },
        "options": { "validityPeriod": { "amount": 600, "timeUnit": "SECONDS" } },
        "webhooks": { "delivery": { "url": url }, "contentType": "application/json", "callbackData": reference(1) },
    }] });
    assert_eq!(seen.json(), wanted);
    let without = sent("infobip", &[("receipt_secret", "")]).await.json();
    assert_eq!(without["messages"][0]["webhooks"].get("delivery"), None);
}

#[tokio::test]
async fn telnyx_gets_the_same_bytes_under_the_same_key_every_time() {
    let (first, second) = (sent("telnyx", &[]).await, sent("telnyx", &[]).await);
    assert_eq!((first.method.as_str(), first.path.as_str()), ("POST", "/v2/messages"));
    assert_eq!(first.header("authorization"), Some("Bearer key-1"));
    assert_eq!(first.header("idempotency-key"), Some("0123456789abcdef0123456789abcdef"));
    let wanted = json!({ "to": "+12025550143", "from": "+15005550006", "text": "Code 493021 & more: é" });
    assert_eq!(first.json(), wanted, "no public key, so no receipts are asked for");
    assert_eq!(first.body, second.body);
    let with = sent("telnyx", &[("public_key", "AAAA")]).await.json();
    assert_eq!(with["webhook_url"], format!("{PUBLIC}/v1/receipts/telnyx?ref={}", reference(1)));
}

#[tokio::test]
async fn resend_gets_both_bodies_and_our_reference_as_a_tag() {
    let seen = sent("resend", &[]).await;
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/emails"));
    assert_eq!(seen.header("authorization"), Some("Bearer key-1"));
    assert_eq!(seen.header("idempotency-key"), Some("0123456789abcdef0123456789abcdef"));
    let wanted = json!({
        "from": "Shop <no-reply@shop.example>", "to": ["user@example.org"], "subject": "Reset & go",
        "text": "Code 493021", "html": "<b>493021</b>", "tags": [{ "name": "reference", "value": reference(1) }],
    });
    assert_eq!(seen.json(), wanted);
}

#[tokio::test]
async fn postmark_gets_our_reference_as_the_tag() {
    let seen = sent("postmark", &[]).await;
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/email"));
    assert_eq!(seen.header("x-postmark-server-token"), Some("token-1"));
    assert_eq!(seen.header("accept"), Some("application/json"));
    let wanted = json!({
        "From": "Shop <no-reply@shop.example>", "To": "user@example.org", "Subject": "Reset & go",
        "TextBody": "Code 493021", "HtmlBody": "<b>493021</b>", "Tag": reference(1),
    });
    assert_eq!(seen.json(), wanted);
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
