//! Whose receipts are taken, and what they may say, beyond the contracts.

use aws_lc_rs::hmac;
use data_encoding::BASE64;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use sendonce::domain::receipt::{Part, Receipt, ReceiptStatus};
use sendonce::provider::{ReceiptError, ReceiptRequest};

use super::*;

const LOOPBACK: &str = "http://127.0.0.1:9";

fn request(path: &str, headers: &[(&str, &str)], body: &str) -> ReceiptRequest {
    let pairs = headers.iter().map(|(n, v)| {
        let name = HeaderName::try_from(*n).expect("a header's name");
        (name, HeaderValue::from_str(v).expect("a header's value"))
    });
    ReceiptRequest {
        path_and_query: path.to_owned(),
        method: Method::POST,
        headers: pairs.collect::<HeaderMap>(),
        body: body.to_owned().into(),
    }
}

/// Reference, id and status of each receipt.
fn facts(receipts: Result<Vec<Receipt>, ReceiptError>) -> Vec<(Option<u8>, Option<String>, &'static str)> {
    let fact = |r: Receipt| {
        let attempt = r.reference.map(|reference| {
            assert_eq!(reference.id, ID);
            reference.attempt
        });
        (attempt, r.message_id.map(|id| id.to_string()), r.status.code())
    };
    receipts.expect("taken").into_iter().map(fact).collect()
}

fn twilio_signature(token: &str, path: &str, tail: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, token.as_bytes());
    BASE64.encode(hmac::sign(&key, format!("{PUBLIC}{path}{tail}").as_bytes()).as_ref())
}

#[tokio::test]
async fn a_twilio_receipt_is_signed_over_our_public_url_and_names_the_attempt() {
    let twilio = provider("twilio", LOOPBACK, &[("auth_token_previous", "token-0")]);
    assert!(twilio.abilities().receipts && !twilio.abilities().receipts_by_id);
    let path = format!("/v1/receipts/twilio?ref={}", reference(3));
    let body = "MessageStatus=delivered&MessageSid=SM1&To=%2B12025550143";
    let tail = "MessageSidSM1MessageStatusdeliveredTo+12025550143";
    for token in ["token-1", "token-0"] {
        let signed = request(&path, &[("x-twilio-signature", &twilio_signature(token, &path, tail))], body);
        let wanted = vec![(Some(3), Some("SM1".to_owned()), "delivered")];
        assert_eq!(facts(twilio.receipts(&signed, NOW).await), wanted, "{token}");
    }
    let signature = twilio_signature("token-1", &path, tail);
    let headers = [("x-twilio-signature", signature.as_str())];
    let other_path = path.replace(&reference(3), &reference(4));
    let settings_header = [headers[0], ("x-twilio-webhooks-signature-settings", "key=k,algorithm=HMAC_SHA256")];
    for forged in [
        request(&path, &[], body),
        request(&path, &[("x-twilio-signature", &twilio_signature("token-2", &path, tail))], body),
        request(&other_path, &headers, body),
        request(&path, &headers, &body.replace("delivered", "failed")),
        request(&path, &settings_header, body),
        request(&path, &[headers[0], headers[0]], body),
    ] {
        assert_eq!(twilio.receipts(&forged, NOW).await, Err(ReceiptError::NotAuthentic), "{}", forged.path_and_query);
    }
}

#[tokio::test]
async fn a_forged_reference_counts_for_nothing() {
    let twilio = provider("twilio", LOOPBACK, &[]);
    let path = "/v1/receipts/twilio?ref=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    for (sid, wanted) in [("SM1", vec![(None, Some("SM1".to_owned()), "progress")]), ("", vec![])] {
        let (body, tail) =
            (format!("MessageSid={sid}&MessageStatus=sent"), format!("MessageSid{sid}MessageStatussent"));
        let signature = twilio_signature("token-1", path, &tail);
        let signed = request(path, &[("x-twilio-signature", &signature)], &body);
        assert_eq!(facts(twilio.receipts(&signed, NOW).await), wanted);
    }
}

#[tokio::test]
async fn without_what_proves_an_origin_no_receipts_are_offered_or_asked_for() {
    let twilio =
        build(shipped("twilio").expect("shipped").expect("right"), Contract::of("twilio").settings(), PATIENT, None)
            .expect("settings");
    for provider in
        [twilio, provider("telnyx", LOOPBACK, &[]), provider("infobip", LOOPBACK, &[("receipt_secret", "")])]
    {
        assert!(!provider.abilities().receipts, "{provider:?}");
        assert_eq!(provider.receipts(&request("/", &[], "{}"), NOW).await, Err(ReceiptError::NotOffered));
    }
}

const IN_PARTS: &str = r#"
name = "in-parts"
channel = "sms"
page = "https://vendor.example"
[settings]
base_url = {}
secret = { secret = true }
[send]
method = "POST"
url = "{{ base_url }}/send"
json = { to = "{{ to }}" }
verdict = "status"
[receipt]
signature = "secret-path"
secrets = ["secret"]
format = "form"
message_id = "/id"
part = "/part"
parts = "/parts"
parts_from = 1
statuses = [{ at = "/s", any = ["d"], is = "delivered" }]
"#;

#[tokio::test]
async fn a_receipt_may_speak_of_one_part_of_a_message() {
    let provider = custom(IN_PARTS, LOOPBACK, &[("secret", "x y")]);
    assert!(provider.abilities().receipts_by_id);
    for (body, wanted) in [
        ("id=1&s=d&part=2&parts=3", Part::new(1, 3)),
        ("id=1&s=d", Some(Part::WHOLE)),
        ("id=1&s=d&part=0&parts=3", Some(Part::WHOLE)),
        ("id=1&s=d&part=4&parts=3", Some(Part::WHOLE)),
        ("id=1&s=d&part=1&parts=99", Some(Part::WHOLE)),
    ] {
        let request = request("/v1/receipts/in-parts?key=x+y", &[], body);
        let receipts = provider.receipts(&request, NOW).await.expect("taken");
        assert_eq!(receipts[0].status, ReceiptStatus::Delivered);
        assert_eq!(Some(receipts[0].part), wanted, "{body}");
    }
}

#[tokio::test]
async fn a_receipt_may_stand_in_the_query_of_our_own_url() {
    let text = IN_PARTS.replace("format = \"form\"", "format = \"query\"\nreference = \"query\"");
    let provider = custom(&text, LOOPBACK, &[("secret", "x")]);
    let path = format!("/v1/receipts/in-parts?ref={}&key=x&id=a%2Bb&s=d", reference(5));
    let read = facts(provider.receipts(&request(&path, &[], ""), NOW).await);
    assert_eq!(read, [(Some(5), Some("a+b".to_owned()), "delivered")]);
}
