//! Shipped providers behind the real daemon: what a signed batch or a message through SNS does to a notification.

use http::Method;
use sendonce::clock::{Clock as _, SystemClock};
use sendonce::provider::ReceiptRequest;
use sendonce::provider::manifest::SHIPPED;
use serde_json::json;

use super::signer::{Signer, TOPIC};
use super::*;
use crate::support::daemon::{Daemon, Plan, wait};
use crate::support::http_oracle::{Post, post};

fn signer(name: &str) -> Signer {
    let (_, manifest) = SHIPPED.iter().find(|(shipped, _)| *shipped == name).expect("shipped");
    Signer::of(manifest, &BTreeMap::new())
}

/// A daemon that mails through one shipped provider.
async fn daemon(name: &str, oracle: &HttpOracle, settings: &[(&str, &str)]) -> Daemon {
    let lines: String = settings.iter().map(|(name, value)| format!("{name} = {value:?}\n")).collect();
    let section = format!(
        "[provider.mail]\nkind = \"http\"\nmanifest = \"{name}\"\nconnect_timeout = \"500ms\"\ntimeout = \"2s\"\n\
         [provider.mail.settings]\nbase_url = \"{}\"\n{lines}",
        oracle.url()
    );
    Daemon::start(Plan::new().file("secret", "secret").toml(&section).email(&["mail"])).await
}

/// Posts a receipt as the provider does, and gives the daemon's answer.
async fn deliver(daemon: &Daemon, request: ReceiptRequest) -> u16 {
    let headers = request.headers.iter().map(|(n, v)| (n.to_string(), v.to_str().expect("text").to_owned()));
    let url = format!("{}{}", daemon.url(), request.path_and_query);
    assert_eq!(request.method, Method::POST);
    post(&Post { url, headers: headers.collect(), body: request.body.to_vec() }).await
}

#[tokio::test]
async fn a_bounce_in_a_batch_outranks_a_delivery_in_any_order_and_nothing_is_sent_again() {
    let signer = signer("sendgrid");
    let key = signer.settings()[0].1.clone();
    let oracle = HttpOracle::start().await;
    oracle.script(|_| Reply::status(202).header("X-Message-Id", "sg1"));
    let settings = [("api_key_file", "secret"), ("from_email", "no-reply@shop.example"), ("webhook_key", key.as_str())];
    let daemon = daemon("sendgrid", &oracle, &settings).await;
    let ids = [daemon.mail("batch-1", "one@example.org").await, daemon.mail("batch-2", "two@example.org").await];
    let seen = oracle.wait_for(2, Duration::from_secs(20)).await;
    let reference_of = |mail: &str| {
        let request = seen.iter().find(|seen| seen.contains(mail)).expect("sent");
        request.json()["categories"][0].as_str().expect("a reference").to_owned()
    };
    let (one, two) = (reference_of("one@example.org"), reference_of("two@example.org"));
    let event = |event: &str, reference: &str| json!({ "event": event, "reference": reference });
    let first = json!([event("processed", &one), event("delivered", &one), event("bounce", &two)]);
    let second = json!([event("bounce", &one), event("delivered", &two), event("open", &two)]);
    for batch in [&first, &second, &first] {
        let signed = signer.sign(0, "/v1/receipts/mail", &batch.to_string(), SystemClock.now());
        assert_eq!(deliver(&daemon, signed).await, 200);
    }
    for id in &ids {
        let status = daemon.wait_until(id, "bounced", |s| s["delivery"] == "undelivered").await;
        assert_eq!((&status["state"], &status["sent"]), (&json!("dispatched"), &json!("yes")));
    }
    let mut forged = signer.sign(0, "/v1/receipts/mail", &first.to_string(), SystemClock.now());
    forged.body = second.to_string().into();
    assert_eq!(deliver(&daemon, forged).await, 401);
    assert_eq!(oracle.requests().len(), 2);
    daemon.audit_closes().await;
}

#[tokio::test]
async fn a_lost_answer_of_ses_is_settled_by_a_message_through_a_confirmed_topic() {
    let signer = signer("amazon-ses");
    let (oracle, sns) = (HttpOracle::start().await, signer.sns().await);
    oracle.script(|_| Reply::Close);
    let settings = [
        ("region", "eu-west-1"),
        ("access_key_id", "AKID"),
        ("secret_access_key_file", "secret"),
        ("from", "no-reply@shop.example"),
        ("topic", TOPIC),
        ("sns_url", &sns.url()),
    ];
    let daemon = daemon("amazon-ses", &oracle, &settings).await;
    let post = async |members: serde_json::Value| {
        let mut request = signer.posted(&signer.envelope(SystemClock.now(), members));
        request.path_and_query = "/v1/receipts/mail".to_owned();
        deliver(&daemon, request).await
    };
    let confirm = format!("https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=t");
    let question = json!({ "Type": "SubscriptionConfirmation", "Message": "m", "Token": "t", "SubscribeURL": confirm });
    assert_eq!(post(question).await, 200);
    wait("the subscription is confirmed", async || sns.count("ConfirmSubscription") == 1).await;

    let id = daemon.mail("ses-lost", "user@example.org").await;
    daemon.wait_for_state(&id, "dispatch_unknown").await;
    let tag = oracle.requests()[0].json()["EmailTags"][0]["Value"].as_str().expect("a reference").to_owned();
    let event = json!({ "eventType": "Delivery", "mail": { "messageId": "s1", "tags": { "reference": [tag] } } });
    assert_eq!(post(json!({ "Type": "Notification", "Message": event.to_string() })).await, 200);
    let status = daemon.wait_until(&id, "delivered", |s| s["delivery"] == "delivered").await;
    assert_eq!((&status["state"], &status["sent"]), (&json!("dispatched"), &json!("yes")));
    assert_eq!(oracle.requests().len(), 1);

    sns.script(|_| Reply::status(503));
    let elsewhere = json!({
        "Type": "Notification", "Message": event.to_string(),
        "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/another.pem",
    });
    assert_eq!(post(elsewhere).await, 503, "what cannot be checked now is to come again");
    daemon.audit_closes().await;
}
