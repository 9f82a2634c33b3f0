//! What is told of a manifest or of settings that are wrong, and what names an account and a revision.

use super::*;

fn mistakes(text: &str) -> Vec<String> {
    Manifest::parse("mine.toml", text).expect_err("has mistakes").iter().map(ToString::to_string).collect()
}

#[test]
fn every_mistake_in_a_manifest_is_told_at_once_with_its_line() {
    let text = r#"name = "mine"
channel = "fax"
[settings]
base_url = {}
key = { secret = true, default = "x" }
[send]
method = "PATCH"
url = "https://vendor.example/send"
headers = { "a b" = "x" }
auth = { bearer = "{{ kay }}", basic = ["a", "b"] }
form = { To = "{{ to | shout }}", From = 1 }
verdict = "body"
message_id = "id"
answers = [
  { status = 200, is = "accepted" },
  { status = 99, is = "sent" },
  { status = "4xx", code = "/code", is = "unknown", reason = "because" },
  { status = 200, code = "/parts/*/code", absent = true, is = "refused.message" },
]
[dedupe]
window = "1s"
settle_after = "1m"
covers = "any"
[lookup]
method = "GET"
url = "{{ base_url }}/x?to={{ to"
found = "items"
settle_after = "1m"
window = "1h"
[receipt]
signature = "basic"
secrets = ["kay"]
format = "json"
colour = "red"
"#;
    assert_eq!(
        mistakes(text),
        [
            "mine.toml:1:1: page: is required",
            r#"mine.toml:2:1: channel: must be one of "sms", "email""#,
            "mine.toml:5:24: settings.key.default: a secret has no default",
            r#"mine.toml:7:1: send.method: must be one of "POST", "PUT", "GET""#,
            r#"mine.toml:8:1: send.url: must begin with "{{ base_url }}""#,
            "mine.toml:9:13: send.headers.a b: must be the name of a header",
            "mine.toml:10:1: send.auth: must hold one of basic, bearer, header and sigv4",
            "mine.toml:10:10: send.auth.bearer: names `kay`, which is neither a setting nor a variable",
            "mine.toml:11:10: send.form.To: does not render: unknown filter",
            "mine.toml:11:35: send.form.From: must be a string",
            "mine.toml:13:1: send.message_id: must be a JSON pointer, or \"header:\" and a name",
            "mine.toml:15:19: send.answers[0].is: under verdict = \"body\", `accepted` needs `code` and `any`",
            "mine.toml:16:5: send.answers[1].status: must be a status from 200 to 599, \"2xx\", \"4xx\", \"5xx\", or a list of these",
            "mine.toml:16:18: send.answers[1].is: must be one of \"accepted\", \"refused.message\", \"refused.account\", \"not_sent\", \"unknown\", \"first_stands\", \"dedupe_in_progress\", \"dedupe_mismatch\"",
            "mine.toml:17:3: send.answers[2]: `code` goes with either `any` or `absent = true`",
            "mine.toml:17:53: send.answers[2].reason: must be one of the reasons for outcomes",
            "mine.toml:18:19: send.answers[3].code: must name one place with `absent`",
            "mine.toml:20:2: dedupe.header: is required where [send] does not use `dedupe_key`",
            "mine.toml:20:2: dedupe: needs answers that are `first_stands`, or `dedupe_in_progress` and `dedupe_mismatch`",
            "mine.toml:21:1: dedupe.window: must be a duration from 1m to 30d, such as \"10s\"",
            "mine.toml:24:2: lookup.match: is required",
            "mine.toml:24:2: lookup: needs a setting with account = true, which tells whose messages are looked up",
            "mine.toml:26:1: lookup.url: has {{ without }}",
            "mine.toml:27:1: lookup.found: must be a JSON pointer, which begins with /",
            "mine.toml:30:2: receipt.user: is required",
            "mine.toml:30:2: receipt.message_id: is required where there is no `reference`",
            "mine.toml:32:12: receipt.secrets[0]: must be the name of a declared setting",
            "mine.toml:34:1: receipt.colour: is not a known key",
        ]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>()
    );
}

const GOOD: &str = r#"
name = "good"
channel = "sms"
page = "https://vendor.example"
[settings]
base_url = { default = "https://api.vendor.example" }
account = { account = true }
key = { secret = true }
sender = { required = false }
[send]
method = "POST"
url = "{{ base_url }}/send"
json = { to = "{{ to }}", key = "{{ dedupe_key }}" }
verdict = "status"
answers = [{ status = 409, is = "first_stands" }]
[dedupe]
window = "24h"
settle_after = "1m"
covers = "any"
identical_body = true
"#;

#[test]
fn a_request_that_must_stay_the_same_may_not_hold_what_changes() {
    let text = GOOD.replace("{{ to }}", "{{ to }}{{ remaining_seconds }}{{ began_at }}");
    assert_eq!(
        mistakes(&text),
        [
            "mine.toml:20:1: dedupe.identical_body: [send] uses `remaining_seconds`, which is not the same on every attempt",
            "mine.toml:20:1: dedupe.identical_body: [send] uses `began_at`, which is not the same on every attempt",
        ]
    );
    let text = GOOD.replace("first_stands", "refused.message").replace("{{ dedupe_key }}", "x");
    assert_eq!(
        mistakes(&text),
        [
            "mine.toml:16:2: dedupe.header: is required where [send] does not use `dedupe_key`",
            "mine.toml:16:2: dedupe: needs answers that are `first_stands`, or `dedupe_in_progress` and `dedupe_mismatch`",
        ]
    );
}

#[test]
fn a_variable_is_used_only_where_it_has_a_value_and_no_setting_takes_its_name() {
    let text = GOOD.replace("{{ to }}", "{{ html }}").replace("sender =", "text =").replace("\"good\"", "\"Good One\"");
    assert_eq!(
        mistakes(&text),
        [
            "mine.toml:2:1: name: has a character outside a-z 0-9 _ -",
            "mine.toml:9:1: settings.text: is a name that every manifest has already",
            "mine.toml:10:2: send: uses `html`, which has no value here",
        ]
    );
}

#[test]
fn a_signature_is_told_what_it_cannot_go_without() {
    let signed = |receipt: &str| {
        let text = GOOD.replace("json = {", "auth.sigv4 = { service = \"s\", region = \"{{ nowhere }}\" }\njson = {");
        mistakes(&format!("{text}[receipt]\nsecrets = [\"key\"]\nreference = \"query\"\n{receipt}"))
    };
    assert_eq!(
        signed("signature = \"sns\"\nformat = \"json\"\n"),
        [
            "mine.toml:13:6: send.auth.sigv4.access_key_id: is required",
            "mine.toml:13:6: send.auth.sigv4.secret_access_key: is required",
            "mine.toml:13:6: send.auth.sigv4.session_token: is required",
            "mine.toml:13:31: send.auth.sigv4.region: names `nowhere`, which is neither a setting nor a variable",
            "mine.toml:26:1: receipt.format: must be \"sns\" with this signature",
        ]
    );
    for (signature, format) in [("twilio", "json"), ("plivo-v3", "json"), ("mailgun", "form"), ("basic", "sns")] {
        let wrong = signed(&format!("signature = \"{signature}\"\nformat = \"{format}\"\nuser = \"key\"\n"));
        assert!(wrong.iter().any(|m| m.contains("receipt.format: must be ")), "{signature} {format}: {wrong:?}");
    }
}

fn with(pairs: &[(&str, &str)]) -> Result<HttpProvider, Vec<SettingMistake>> {
    build(Manifest::parse("good.toml", GOOD).expect("right"), secret(pairs), PATIENT, None)
}

#[test]
fn every_wrong_setting_is_named_and_none_is_shown() {
    let wrong = with(&[("kee", "CANARY"), ("base_url", "ftp://CANARY"), ("allow_http", "CANARY"), ("key", "")]);
    let told: Vec<String> = wrong.expect_err("wrong").iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "setting `account` is required",
            "setting `key` is required",
            "setting `kee` is not known to this provider",
            "setting `allow_http` must be true or false",
            "setting `base_url` must be an https URL without query; http only for a loopback host or with allow_http",
        ]
    );
}

#[test]
fn plain_http_is_for_the_loopback_or_on_request() {
    let build = |url: &str, allow: &str| {
        with(&[("account", "a"), ("key", "k"), ("base_url", url), ("allow_http", allow)]).map(drop).is_ok()
    };
    for url in ["https://api.vendor.example", "http://127.0.0.1:1/", "http://localhost:1", "http://[::1]:1/base"] {
        assert!(build(url, "false"), "{url}");
    }
    for url in [
        "http://api.vendor.example",
        "http://localhost.vendor.example",
        "http://128.0.0.1",
        "https://u:p@h",
        "https://h/?a=b",
        "h",
    ] {
        assert!(!build(url, "false"), "{url}");
    }
    assert!(build("http://api.vendor.example", "true"));
}

#[test]
fn where_snss_certificates_come_from_is_a_url_as_any_other() {
    let build = |url: &str| {
        let manifest = shipped("amazon-ses").expect("shipped").expect("right");
        let mut settings = Contract::of("amazon-ses").settings();
        settings.extend(secret(&[("base_url", "https://email.eu-west-1.amazonaws.com"), ("sns_url", url)]));
        super::build(manifest, settings, PATIENT, None).map(drop)
    };
    for url in ["", "https://vpce.example", "http://127.0.0.1:1/"] {
        assert_eq!(build(url), Ok(()), "{url}");
    }
    for url in ["http://vpce.example", "vpce.example", "https://vpce.example/?a=b"] {
        assert_eq!(build(url), Err(vec![SettingMistake::NotAUrl("sns_url".to_owned())]), "{url}");
    }
}

#[test]
fn the_account_follows_what_names_it_and_the_revision_follows_everything() {
    let base = [("account", "a"), ("key", "k")];
    let of = |more: &[(&str, &str)]| {
        let settings = [&base, more].concat();
        let abilities = with(&settings).expect("right").abilities().clone();
        (abilities.account, abilities.rev)
    };
    let (account, rev) = of(&[]);
    assert_eq!(of(&[]), (account, rev));
    for (more, same_account) in [(("key", "k2"), true), (("sender", "s"), true), (("account", "b"), false)] {
        let (other_account, other_rev) = of(&[more]);
        assert_eq!(other_account == account, same_account, "{more:?}");
        assert_ne!(other_rev, rev, "{more:?}");
    }
}

#[test]
fn what_an_operator_knows_of_look_ups_stands_above_the_manifest() {
    let rules = |p: HttpProvider| p.abilities().lookup.expect("look-ups");
    let infobip = || provider("infobip", "http://127.0.0.1:9", &[]);
    let shipped = rules(infobip());
    assert_eq!((shipped.trust_miss, shipped.misses_needed, shipped.needs_address), (false, 3, false));
    let minute = Duration::from_secs(60);
    let known = rules(infobip().with_lookup(Some(minute), None));
    assert_eq!((known.trust_miss, known.settle_after), (true, minute));
    assert!(!rules(infobip().with_lookup(Some(minute), Some(false))).trust_miss);
    assert!(!rules(infobip().with_lookup(None, None)).trust_miss);
}
