//! How each shipped provider's documented answers are read, and what stands where no rule does.

use sendonce::domain::ids::ProviderMessageId;
use sendonce::domain::outcome::{LookupAnswer, Reason};
use sendonce::domain::receipt::ReceiptStatus;
use sendonce::domain::retry::RETRY_AFTER_CAP;

use super::*;

#[tokio::test]
async fn twilios_answers_are_read_by_their_codes() {
    check_answers(
        "twilio",
        &[
            (201, r#"{"sid":"SM1","status":"queued"}"#, "accepted ok"),
            (400, r#"{"code":21211,"status":400}"#, "refused.message bad_address"),
            (400, r#"{"code":21614}"#, "refused.message bad_address"),
            (400, r#"{"code":21612}"#, "refused.message message_refused"),
            (400, r#"{"code":21408}"#, "refused.message message_refused"),
            (400, r#"{"code":21610}"#, "refused.message recipient_opted_out"),
            (400, r#"{"code":21617}"#, "refused.message bad_content"),
            (400, r#"{"code":21212}"#, "refused.account account_refused"),
            (400, r#"{"code":21606}"#, "refused.account account_refused"),
            (400, r#"{"code":21611}"#, "not_sent rate_limited"),
            (429, r#"{"code":20429}"#, "not_sent rate_limited"),
            (400, r#"{"code":99999}"#, "unknown unclassified"),
            (400, "<html>", "unknown unclassified"),
            (404, r#"{"code":20404}"#, "unknown unclassified"),
        ],
    )
    .await;
}

#[tokio::test]
async fn infobips_answers_are_read_by_the_status_in_the_body() {
    let body = |group: u8, id: u8| {
        format!(r#"{{"messages":[{{"messageId":"m1","status":{{"groupId":{group},"id":{id}}}}}]}}"#)
    };
    for (group, id, wanted) in [
        (1, 26, "accepted ok"),
        (3, 5, "accepted ok"),
        (5, 23, "accepted first_stands"),
        (5, 6, "refused.message bad_address"),
        (5, 51, "refused.message bad_address"),
        (5, 10, "refused.message recipient_opted_out"),
        (5, 14, "refused.message recipient_opted_out"),
        (5, 25, "refused.message bad_content"),
        (5, 12, "refused.account no_credit"),
        (5, 13, "refused.account account_refused"),
        (5, 20, "not_sent rate_limited"),
        (5, 21, "not_sent temporarily_refused"),
        (5, 100, "not_sent temporarily_refused"),
        (2, 31, "refused.message message_refused"),
        (2, 4, "unknown unclassified"),
        (2, 9, "unknown unclassified"),
        (4, 15, "unknown unclassified"),
    ] {
        check_answers("infobip", &[(200, &body(group, id), wanted)]).await;
    }
    check_answers(
        "infobip",
        &[
            (200, "{}", "unknown unclassified"),
            (200, "<html>", "unknown unreadable_answer"),
            (204, "", "unknown unreadable_answer"),
            (400, r#"{"errorCode":"E400"}"#, "refused.message message_refused"),
            (429, r#"{"errorCode":"E429"}"#, "unknown unclassified"),
            (500, r#"{"errorCode":"E500"}"#, "unknown server_fault"),
        ],
    )
    .await;
}

#[tokio::test]
async fn telnyxs_answers_never_take_a_conflict_of_keys_for_a_refusal() {
    check_answers(
        "telnyx",
        &[
            (200, r#"{"data":{"id":"t1"}}"#, "accepted ok"),
            (400, r#"{"errors":[{"code":"10002"}]}"#, "refused.message bad_address"),
            (422, r#"{"errors":[{"code":"10016"}]}"#, "refused.message bad_address"),
            (400, r#"{"errors":[{"code":"10015"}]}"#, "refused.message message_refused"),
            (400, r#"{"errors":[{"code":"10009"}]}"#, "refused.account bad_credentials"),
            (422, r#"{"errors":[{"code":"10015"}]}"#, "unknown dedupe_mismatch"),
            (422, "{}", "unknown dedupe_mismatch"),
            (409, "{}", "unknown dedupe_in_progress"),
            (429, r#"{"errors":[{"code":"10011"}]}"#, "not_sent rate_limited"),
            (429, "{}", "unknown unclassified"),
            (500, r#"{"errors":[{"code":"10007"}]}"#, "unknown server_fault"),
            (408, r#"{"errors":[{"code":"10008"}]}"#, "unknown server_fault"),
        ],
    )
    .await;
}

#[tokio::test]
async fn resends_answers_are_read_by_their_names() {
    let cases = [
        (422, "validation_error", "refused.message message_refused"),
        (422, "missing_required_field", "refused.message message_refused"),
        (422, "invalid_from_address", "refused.account account_refused"),
        (403, "validation_error", "refused.account account_refused"),
        (400, "invalid_api_key", "refused.account bad_credentials"),
        (429, "daily_quota_exceeded", "refused.account no_credit"),
        (429, "rate_limit_exceeded", "not_sent rate_limited"),
        (409, "invalid_idempotent_request", "unknown dedupe_mismatch"),
        (409, "concurrent_idempotent_requests", "unknown dedupe_in_progress"),
        (451, "security_error", "unknown unclassified"),
        (404, "not_found", "refused.account account_refused"),
        (500, "application_error", "unknown server_fault"),
    ];
    for (status, name, wanted) in cases {
        check_answers("resend", &[(status, &format!(r#"{{"name":"{name}"}}"#), wanted)]).await;
    }
    check_answers("resend", &[(200, r#"{"id":"r1"}"#, "accepted ok"), (200, "{}", "accepted accepted_without_id")])
        .await;
}

#[tokio::test]
async fn postmarks_answers_are_read_by_the_error_code() {
    let cases = [
        (200, 0, "accepted ok"),
        (422, 300, "refused.message message_refused"),
        (200, 406, "refused.message recipient_opted_out"),
        (422, 406, "refused.message recipient_opted_out"),
        (422, 402, "refused.message bad_content"),
        (422, 405, "refused.account no_credit"),
        (422, 401, "refused.account account_refused"),
        (422, 413, "refused.account account_refused"),
        (401, 10, "refused.account bad_credentials"),
        (200, 999, "unknown unclassified"),
        (429, 429, "unknown unclassified"),
        (503, 100, "unknown server_fault"),
        (500, 0, "unknown server_fault"),
    ];
    for (status, code, wanted) in cases {
        check_answers("postmark", &[(status, &format!(r#"{{"ErrorCode":{code},"MessageID":"p1"}}"#), wanted)]).await;
    }
    check_answers("postmark", &[(200, "<html>ok</html>", "unknown unreadable_answer")]).await;
}

#[tokio::test]
async fn a_fault_of_our_account_is_never_a_fault_of_the_message() {
    for name in ["twilio", "infobip", "telnyx", "resend", "postmark"] {
        check_answers(
            name,
            &[
                (401, "{}", "refused.account bad_credentials"),
                (402, "{}", "refused.account account_refused"),
                (403, "", "refused.account account_refused"),
            ],
        )
        .await;
    }
}

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
async fn a_look_up_finds_our_message_misses_it_or_says_nothing() {
    let oracle = HttpOracle::start().await;
    let infobip = provider("infobip", &oracle.url(), &[]);
    let entry = |id: &str, group: u8| format!(r#"{{"messageId":"{id}","status":{{"groupId":{group}}}}}"#);
    let found = |delivery| LookupAnswer::Found { message_id: ProviderMessageId::parse(&reference(1)).ok(), delivery };
    let (other, ours) = (entry("other", 3), entry(&reference(1), 3));
    for (reply, wanted) in [
        (Reply::json(200, format!(r#"{{"results":[{other},{ours}]}}"#)), found(Some(ReceiptStatus::Delivered))),
        (Reply::json(200, format!(r#"{{"results":[{}]}}"#, entry(&reference(1), 9))), found(None)),
        (Reply::json(200, r#"{"results":[]}"#), LookupAnswer::NotFound),
        (Reply::json(200, format!(r#"{{"results":[{other}]}}"#)), LookupAnswer::NotFound),
        (Reply::json(200, "{}"), LookupAnswer::Unreadable),
        (Reply::json(404, r#"{"results":[]}"#), LookupAnswer::Unreadable),
        (Reply::json(500, ""), LookupAnswer::Unreadable),
        (Reply::cut(200, r#"{"results":[]}"#), LookupAnswer::Unreadable),
        (Reply::redirect(302, &oracle.url()), LookupAnswer::Unreadable),
        (Reply::Close, LookupAnswer::Unreadable),
    ] {
        oracle.play([reply.clone()]);
        assert_eq!(infobip.lookup(&inquiry()).await, wanted, "{reply:?}");
    }
    let asked = oracle.requests().remove(0);
    assert_eq!((asked.method.as_str(), asked.path), ("GET", format!("/sms/3/logs?messageId={}", reference(1))));
    assert_eq!(oracle.requests()[0].header("authorization"), Some("App key-1"));
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
    let path = format!("/messages/outbound?count=10&offset=0&tag={}", reference(1));
    assert_eq!(oracle.requests()[0].path, path);
}
