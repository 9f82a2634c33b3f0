//! How answers are read by every manifest, and what stands where no rule does.

use sendonce::domain::ids::ProviderMessageId;
use sendonce::domain::outcome::{LookupAnswer, Reason};
use sendonce::domain::retry::RETRY_AFTER_CAP;

use super::*;

const VENDOR: &str = r#"
name = "vendor"
channel = "sms"
page = "https://vendor.example"
[settings]
base_url = {}
[send]
method = "POST"
url = "{{ base_url }}/send"
json = { to = "{{ to }}" }
"#;

const BY_STATUS: &str = r#"
verdict = "status"
message_id = "header:X-Message-Id"
answers = [{ status = 200, code = "/messages/0/status", any = ["4"], is = "refused.account" }]
"#;

const BY_BODY: &str = r#"
verdict = "body"
message_id = "/messages/0/message-id"
answers = [
  { status = "2xx", code = "/messages/0/status", any = [0], is = "accepted" },
  { status = "2xx", code = "/messages/0/status", any = [1], is = "not_sent", reason = "rate_limited" },
  { status = "2xx", code = "/messages", absent = true, is = "refused.message" },
]
"#;

#[tokio::test]
async fn any_success_is_accepted_where_the_status_decides_and_only_a_told_one_where_the_body_does() {
    let oracle = HttpOracle::start().await;
    let by_status = custom(&[VENDOR, BY_STATUS].concat(), &oracle.url(), &[]);
    let by_body = custom(&[VENDOR, BY_BODY].concat(), &oracle.url(), &[]);
    let ok = r#"{"messages":[{"status":"0","message-id":"v1"},{"status":"1"}]}"#;
    for (status, body, first, second) in [
        (200, ok, "accepted accepted_without_id", "accepted ok"),
        (201, ok, "accepted accepted_without_id", "accepted ok"),
        (202, ok, "accepted accepted_without_id", "accepted ok"),
        (299, ok, "accepted accepted_without_id", "accepted ok"),
        (204, "", "accepted accepted_without_id", "unknown unreadable_answer"),
        (200, r#"{"messages":[{"status":"4"}]}"#, "refused.account account_refused", "unknown unclassified"),
        (200, r#"{"messages":[{"status":"1"}]}"#, "accepted accepted_without_id", "not_sent rate_limited"),
        (200, "{}", "accepted accepted_without_id", "refused.message message_refused"),
        (200, "<html>proxy</html>", "accepted accepted_without_id", "unknown unreadable_answer"),
        (202, r#"{"id":"#, "accepted accepted_without_id", "unknown unreadable_answer"),
    ] {
        oracle.play([Reply::json(status, body)]);
        assert_eq!(told(&send(&by_status).await), first, "{status} {body}");
        assert_eq!(told(&send(&by_body).await), second, "{status} {body}");
    }
    oracle.play([Reply::status(202).header("x-message-id", "h1")]);
    assert_eq!(send(&by_status).await, Outcome::accepted(ProviderMessageId::parse("h1").ok()));
    oracle.play([Reply::status(202).header("x-message-id", "your code is 493021")]);
    let kept = send(&by_status).await.message_id.expect("an id");
    assert!(kept.as_str().starts_with("h:"), "free text is kept as a hash only");
}

#[tokio::test]
async fn a_wish_to_wait_is_believed_in_both_forms_and_up_to_a_day() {
    let oracle = HttpOracle::start().await;
    let provider = provider("twilio", &oracle.url(), &[]);
    // NOW is 2027-01-15 08:00:00 UTC.
    for (value, wanted) in [
        ("17", Some(Duration::from_secs(17))),
        ("Fri, 15 Jan 2027 08:01:30 GMT", Some(Duration::from_secs(90))),
        ("Thu, 14 Jan 2027 08:01:30 GMT", Some(Duration::ZERO)),
        ("99999999", Some(RETRY_AFTER_CAP)),
        ("soon", None),
    ] {
        oracle.play([Reply::json(429, r#"{"code":20429}"#).header("Retry-After", value)]);
        let outcome = send(&provider).await;
        assert_eq!((outcome.reason, outcome.retry_after), (Reason::RateLimited, wanted), "{value}");
    }
}

#[tokio::test]
async fn a_look_up_without_a_whole_answer_says_nothing() {
    let oracle = HttpOracle::start().await;
    let infobip = provider("infobip", &oracle.url(), &[]);
    for reply in [Reply::cut(200, r#"{"results":[]}"#), Reply::redirect(302, &oracle.url()), Reply::Close] {
        oracle.play([reply.clone()]);
        assert_eq!(infobip.lookup(&inquiry()).await, LookupAnswer::Unreadable, "{reply:?}");
    }
}

#[tokio::test]
async fn a_full_page_without_our_message_proves_nothing() {
    let oracle = HttpOracle::start().await;
    let postmark = provider("postmark", &oracle.url(), &[]);
    let other = serde_json::json!({ "Tag": "other", "MessageID": "p0" });
    oracle.play([Reply::json(200, serde_json::json!({ "Messages": vec![other.clone(); 9] }))]);
    assert_eq!(postmark.lookup(&inquiry()).await, LookupAnswer::NotFound);
    oracle.play([Reply::json(200, serde_json::json!({ "Messages": vec![other; 10] }))]);
    assert_eq!(postmark.lookup(&inquiry()).await, LookupAnswer::Unreadable);
}
