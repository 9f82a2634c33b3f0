//! Receipts through Amazon SNS: whose certificate is fetched, how often, and which subscription is confirmed.

use sendonce::provider::ReceiptError;
use sendonce::provider::manifest::SHIPPED;
use serde_json::{Value, json};

use super::signer::{Signer, TOPIC};
use super::*;

const CONFIRMS: &str = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription";

struct Desk {
    signer: Signer,
    oracle: HttpOracle,
    provider: HttpProvider,
}

impl Desk {
    async fn new() -> Self {
        let (_, manifest) = SHIPPED.iter().find(|(name, _)| *name == "amazon-ses").expect("shipped");
        let signer = Signer::of(manifest, &BTreeMap::new());
        let oracle = signer.sns().await;
        let settings = [("topic", TOPIC), ("sns_url", &oracle.url())];
        let provider = provider("amazon-ses", "http://127.0.0.1:9", &settings);
        Self { signer, oracle, provider }
    }

    async fn post(&self, members: Value) -> Result<usize, ReceiptError> {
        let request = self.signer.posted(&self.signer.envelope(NOW, members));
        self.provider.receipts(&request, NOW).await.map(|read| read.len())
    }

    fn fetched(&self) -> Vec<String> {
        self.oracle.requests().into_iter().map(|seen| format!("{} {}", seen.method, seen.path)).collect()
    }
}

fn notification(more: &Value) -> Value {
    let content = json!({ "eventType": "Delivery", "mail": { "messageId": "s1" } }).to_string();
    let mut all = json!({ "Type": "Notification", "Message": content });
    for (name, value) in more.as_object().expect("members") {
        all[name] = value.clone();
    }
    all
}

fn confirmation(url: &str) -> Value {
    json!({ "Type": "SubscriptionConfirmation", "Message": "m", "Token": "t", "SubscribeURL": url })
}

#[tokio::test]
async fn a_certificate_is_fetched_once_for_many_receipts() {
    let desk = Desk::new().await;
    for _ in 0..3 {
        assert_eq!(desk.post(notification(&json!({}))).await, Ok(1));
    }
    assert_eq!(desk.fetched(), ["GET /SimpleNotificationService-1.pem"]);
    assert_eq!(desk.oracle.requests()[0].header("authorization"), None, "no credentials go to SNS");
}

#[tokio::test]
async fn nothing_is_fetched_for_another_topic_a_foreign_host_or_an_old_message() {
    let desk = Desk::new().await;
    for members in [
        json!({ "TopicArn": "arn:aws:sns:eu-west-1:123456789012:other" }),
        json!({ "SigningCertURL": "https://sns.eu-west-1.amazonaws.com.evil.example/x.pem" }),
        json!({ "SigningCertURL": "http://sns.eu-west-1.amazonaws.com/x.pem" }),
        json!({ "SigningCertURL": "https://evil.example/x.pem" }),
        json!({ "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/?Action=Publish" }),
        json!({ "Timestamp": NOW.minus(Duration::from_secs(4_000)).to_string() }),
        json!({ "Timestamp": NOW.plus(Duration::from_secs(400)).to_string() }),
        json!({ "Timestamp": "yesterday" }),
    ] {
        assert_eq!(desk.post(notification(&members)).await, Err(ReceiptError::NotAuthentic), "{members}");
    }
    assert_eq!(desk.fetched(), Vec::<String>::new());
}

#[tokio::test]
async fn a_subscription_is_confirmed_for_a_configured_topic_at_sns_itself() {
    let desk = Desk::new().await;
    let good = format!("{CONFIRMS}&TopicArn={TOPIC}&Token=t");
    assert_eq!(desk.post(confirmation(&good)).await, Ok(0));
    let confirmed = format!("GET /?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=t");
    assert_eq!(desk.fetched(), ["GET /SimpleNotificationService-1.pem", confirmed.as_str()]);
    for bad in [
        format!("{CONFIRMS}&TopicArn=arn:aws:sns:eu-west-1:1:other&Token=t"),
        good.replace("amazonaws.com", "evil.example"),
        good.replace("https", "http"),
        good.replace("ConfirmSubscription", "Unsubscribe"),
        "nonsense".to_owned(),
    ] {
        assert_eq!(desk.post(confirmation(&bad)).await, Err(ReceiptError::NotAuthentic), "{bad}");
    }
    let mut unsigned = confirmation(&good);
    unsigned["TopicArn"] = TOPIC.into();
    let request = desk.signer.posted(&unsigned.to_string());
    assert_eq!(desk.provider.receipts(&request, NOW).await, Err(ReceiptError::NotAuthentic));
    assert_eq!(desk.fetched().len(), 2, "no other subscription was confirmed");
    assert_eq!(desk.post(json!({ "Type": "UnsubscribeConfirmation", "Message": "m", "Token": "t" })).await, Ok(0));
    assert_eq!(desk.fetched().len(), 2, "the end of a subscription is nothing to confirm");
}

#[tokio::test]
async fn what_cannot_be_fetched_now_is_asked_for_again_and_never_too_often() {
    let desk = Desk::new().await;
    let none = [Reply::status(503), Reply::Close, Reply::json(200, "no certificate")];
    desk.oracle.play(none.into_iter().chain([desk.signer.certificate()]));
    for _ in 0..3 {
        assert_eq!(desk.post(notification(&json!({}))).await, Err(ReceiptError::Unavailable));
    }
    assert_eq!(desk.post(notification(&json!({}))).await, Ok(1), "a failure is not remembered");
    for n in 0..20 {
        let url = format!("https://sns.eu-west-1.amazonaws.com/{n}.pem");
        let _ = desk.post(notification(&json!({ "SigningCertURL": url }))).await;
    }
    assert_eq!(desk.fetched().len(), 10, "as many as a minute allows");
    assert_eq!(desk.post(notification(&json!({}))).await, Ok(1), "what is known needs no fetch");
}
