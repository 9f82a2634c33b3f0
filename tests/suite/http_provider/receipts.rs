//! Receipts of each shipped provider: whose are taken, and what they say.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
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

#[test]
fn a_twilio_receipt_is_signed_over_our_public_url_and_names_the_attempt() {
    let twilio = provider("twilio", LOOPBACK, &[("auth_token_previous", "token-0")]);
    assert!(twilio.abilities().receipts && !twilio.abilities().receipts_by_id);
    let path = format!("/v1/receipts/twilio?ref={}", reference(3));
    let body = "MessageStatus=delivered&MessageSid=SM1&To=%2B12025550143";
    let tail = "MessageSidSM1MessageStatusdeliveredTo+12025550143";
    for token in ["token-1", "token-0"] {
        let signed = request(&path, &[("x-twilio-signature", &twilio_signature(token, &path, tail))], body);
        let wanted = vec![(Some(3), Some("SM1".to_owned()), "delivered")];
        assert_eq!(facts(twilio.receipts(&signed, NOW)), wanted, "{token}");
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
        assert_eq!(twilio.receipts(&forged, NOW), Err(ReceiptError::NotAuthentic), "{}", forged.path_and_query);
    }
}

#[test]
fn twilios_words_are_ranked_and_an_unknown_word_or_a_forged_reference_counts_for_nothing() {
    let twilio = provider("twilio", LOOPBACK, &[]);
    let read = |path: &str, status: &str, sid: &str| {
        let (body, tail) =
            (format!("MessageSid={sid}&MessageStatus={status}"), format!("MessageSid{sid}MessageStatus{status}"));
        let signature = twilio_signature("token-1", path, &tail);
        facts(twilio.receipts(&request(path, &[("x-twilio-signature", &signature)], &body), NOW))
    };
    let path = format!("/v1/receipts/twilio?ref={}", reference(1));
    for (status, wanted) in
        [("queued", "progress"), ("sent", "progress"), ("undelivered", "undelivered"), ("failed", "undelivered")]
    {
        assert_eq!(read(&path, status, "SM1")[0].2, wanted);
    }
    assert_eq!(read(&path, "dreaming", "SM1"), []);
    let forged = "/v1/receipts/twilio?ref=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    assert_eq!(read(forged, "sent", "SM1"), [(None, Some("SM1".to_owned()), "progress")]);
    assert_eq!(read(forged, "sent", ""), []);
}

#[test]
fn without_what_proves_an_origin_no_receipts_are_offered_or_asked_for() {
    let twilio = build(shipped("twilio").expect("shipped").expect("right"), settings("twilio"), PATIENT, None)
        .expect("settings");
    for provider in
        [twilio, provider("telnyx", LOOPBACK, &[]), provider("infobip", LOOPBACK, &[("receipt_secret", "")])]
    {
        assert!(!provider.abilities().receipts, "{provider:?}");
        assert_eq!(provider.receipts(&request("/", &[], "{}"), NOW), Err(ReceiptError::NotOffered));
    }
}

#[test]
fn a_telnyx_receipt_is_signed_with_its_key_and_fresh() {
    let pair = Ed25519KeyPair::generate().expect("a key pair");
    let telnyx = provider("telnyx", LOOPBACK, &[("public_key", &BASE64.encode(pair.public_key().as_ref()))]);
    let body =
        r#"{"data":{"event_type":"message.finalized","payload":{"id":"t1","to":[{"status":"delivery_failed"}]}}}"#;
    let time = (NOW.micros() / 1_000_000).to_string();
    let signature = BASE64.encode(pair.sign(format!("{time}|{body}").as_bytes()).as_ref());
    let path = format!("/v1/receipts/telnyx?ref={}", reference(0));
    let signed = request(&path, &[("telnyx-timestamp", &time), ("telnyx-signature-ed25519", &signature)], body);
    assert_eq!(facts(telnyx.receipts(&signed, NOW)), [(Some(0), Some("t1".to_owned()), "undelivered")]);
    let later = NOW.plus(Duration::from_secs(301));
    assert_eq!(telnyx.receipts(&signed, later), Err(ReceiptError::NotAuthentic));
    let unsigned = request(&path, &[], body);
    assert_eq!(telnyx.receipts(&unsigned, NOW), Err(ReceiptError::NotAuthentic));
}

#[test]
fn a_resend_receipt_is_a_standard_webhook_under_either_name_of_its_headers() {
    let secret = BASE64.encode(b"a secret of some length");
    let resend = provider("resend", LOOPBACK, &[("webhook_secret", &format!("whsec_{secret}"))]);
    let body =
        format!(r#"{{"type":"email.bounced","data":{{"email_id":"r1","tags":{{"reference":"{}"}}}}}}"#, reference(0));
    let time = (NOW.micros() / 1_000_000).to_string();
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"a secret of some length");
    let sign =
        |body: &str| format!("v1,{}", BASE64.encode(hmac::sign(&key, format!("m1.{time}.{body}").as_bytes()).as_ref()));
    let post = |prefix: &str, body: &str, signed: &str| {
        let names = ["id", "timestamp", "signature"].map(|name| format!("{prefix}-{name}"));
        let signature = sign(signed);
        let headers = [(names[0].as_str(), "m1"), (&names[1], &time), (&names[2], &signature)];
        resend.receipts(&request("/v1/receipts/resend", &headers, body), NOW)
    };
    for prefix in ["svix", "webhook"] {
        assert_eq!(facts(post(prefix, &body, &body)), [(Some(0), Some("r1".to_owned()), "undelivered")]);
    }
    assert_eq!(post("svix", &body.replace("bounced", "delivered"), &body), Err(ReceiptError::NotAuthentic));
    assert_eq!(post("svix", "not json", "not json"), Err(ReceiptError::Unreadable));
    assert_eq!(
        facts(post("svix", r#"{"type":"contact.created","data":{}}"#, r#"{"type":"contact.created","data":{}}"#)),
        []
    );
}

#[test]
fn a_postmark_receipt_needs_the_password_and_only_a_hard_bounce_is_final() {
    let postmark = provider("postmark", LOOPBACK, &[]);
    let header = format!("Basic {}", BASE64.encode(b"hook:pass"));
    let read =
        |body: &str| postmark.receipts(&request("/v1/receipts/postmark", &[("authorization", &header)], body), NOW);
    let body = |kind: &str, more: &str| {
        format!(r#"{{"RecordType":"{kind}","MessageID":"p1","Tag":"{}"{more}}}"#, reference(2))
    };
    for (body, wanted) in [
        (body("Delivery", ""), "delivered"),
        (body("Bounce", r#","Type":"HardBounce""#), "undelivered"),
        (body("Bounce", r#","Type":"Transient""#), "progress"),
    ] {
        assert_eq!(facts(read(&body)), [(Some(2), Some("p1".to_owned()), wanted)]);
    }
    let wrong = format!("Basic {}", BASE64.encode(b"hook:word"));
    let forged = request("/v1/receipts/postmark", &[("authorization", &wrong)], &body("Delivery", ""));
    assert_eq!(postmark.receipts(&forged, NOW), Err(ReceiptError::NotAuthentic));
}

#[test]
fn an_infobip_request_holds_several_receipts_behind_a_secret() {
    let infobip = provider("infobip", LOOPBACK, &[]);
    let body = format!(
        r#"{{"results":[{{"messageId":"{0}","callbackData":"{0}","status":{{"groupId":3}}}},
            {{"messageId":"m2","status":{{"groupId":5}}}},{{"status":{{"groupId":3}}}}]}}"#,
        reference(1)
    );
    let read = |path: &str, body: &str| infobip.receipts(&request(path, &[], body), NOW);
    let wanted = [(Some(1), Some(reference(1)), "delivered"), (None, Some("m2".to_owned()), "undelivered")];
    assert_eq!(facts(read("/v1/receipts/infobip?key=path-secret", &body)), wanted);
    assert_eq!(facts(read("/v1/receipts/infobip/path-secret", &body)), wanted);
    assert_eq!(read("/v1/receipts/infobip?key=path-secre", &body), Err(ReceiptError::NotAuthentic));
    assert_eq!(read("/v1/receipts/infobip?key=path-secret", "{}"), Err(ReceiptError::Unreadable));
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

#[test]
fn a_receipt_may_speak_of_one_part_of_a_message() {
    let provider = custom(IN_PARTS, LOOPBACK, &[("secret", "x y")]);
    assert!(provider.abilities().receipts_by_id);
    let read = |body: &str| {
        let receipts = provider.receipts(&request("/v1/receipts/in-parts?key=x+y", &[], body), NOW).expect("taken");
        assert_eq!(receipts[0].status, ReceiptStatus::Delivered);
        receipts[0].part
    };
    assert_eq!(Some(read("id=1&s=d&part=2&parts=3")), Part::new(1, 3));
    for body in ["id=1&s=d", "id=1&s=d&part=0&parts=3", "id=1&s=d&part=4&parts=3", "id=1&s=d&part=1&parts=99"] {
        assert_eq!(read(body), Part::WHOLE, "{body}");
    }
}

#[test]
fn a_receipt_may_stand_in_the_query_of_our_own_url() {
    let text = IN_PARTS.replace("format = \"form\"", "format = \"query\"\nreference = \"query\"");
    let provider = custom(&text, LOOPBACK, &[("secret", "x")]);
    let path = format!("/v1/receipts/in-parts?ref={}&key=x&id=a%2Bb&s=d", reference(5));
    let read = facts(provider.receipts(&request(&path, &[], ""), NOW));
    assert_eq!(read, [(Some(5), Some("a+b".to_owned()), "delivered")]);
}
