//! What Amazon SNS signs: an envelope, by the key of a certificate that Amazon's own hosts give out.
//!
//! Source: AWS, "Verifying the signatures of Amazon SNS messages"
//! (<https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html>).

use aws_lc_rs::signature::{
    RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, RsaParameters, UnparsedPublicKey,
};
use data_encoding::BASE64;
use reqwest::Url;
use serde::Deserialize;

use super::TOLERANCE_SECONDS;
use crate::domain::time::Timestamp;

/// How long ago a message may have been published: SNS repeats what an HTTPS endpoint did not take for at most one hour
/// ("Amazon SNS message delivery retries").
const PAST_SECONDS: i64 = 60 * 60 + TOLERANCE_SECONDS;

/// The JSON that SNS posts. Its other members are not signed.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Envelope {
    /// `Notification`, `SubscriptionConfirmation` or `UnsubscribeConfirmation`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// SNS's own id of it.
    pub message_id: String,
    /// The topic that it came through.
    pub topic_arn: String,
    /// Only of mails.
    pub subject: Option<String>,
    /// What was published.
    pub message: String,
    /// When, in RFC 3339.
    pub timestamp: String,
    /// `1` for SHA-1, `2` for SHA-256.
    pub signature_version: String,
    /// Base64.
    pub signature: String,
    /// Where the certificate is.
    #[serde(rename = "SigningCertURL")]
    pub signing_cert_url: String,
    /// To be visited to confirm a subscription.
    #[serde(rename = "SubscribeURL")]
    pub subscribe_url: Option<String>,
    /// Belongs to it.
    pub token: Option<String>,
}

impl Envelope {
    /// Whether it is a question about a subscription, and no message.
    pub fn is_about_subscription(&self) -> bool {
        matches!(self.kind.as_str(), "SubscriptionConfirmation" | "UnsubscribeConfirmation")
    }

    /// Whether it was published lately, or as long ago as SNS repeats itself.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        let second = |t: Timestamp| t.micros() / 1_000_000;
        Timestamp::parse_rfc3339(&self.timestamp).is_ok_and(|then| {
            let age = second(now) - second(then);
            (-TOLERANCE_SECONDS..=PAST_SECONDS).contains(&age)
        })
    }

    /// The text that is signed.
    fn signed(&self) -> String {
        let about_subscription = self.is_about_subscription();
        let only = |wanted: bool, value: &Option<String>| value.clone().filter(|_| wanted);
        let members = [
            ("Message", Some(self.message.clone())),
            ("MessageId", Some(self.message_id.clone())),
            ("Subject", only(!about_subscription, &self.subject)),
            ("SubscribeURL", only(about_subscription, &self.subscribe_url)),
            ("Timestamp", Some(self.timestamp.clone())),
            ("Token", only(about_subscription, &self.token)),
            ("TopicArn", Some(self.topic_arn.clone())),
            ("Type", Some(self.kind.clone())),
        ];
        members.into_iter().filter_map(|(name, value)| Some(format!("{name}\n{}\n", value?))).collect()
    }

    /// Whether the key, a SubjectPublicKeyInfo in DER, signed it.
    pub fn verify(&self, public_key: &[u8]) -> bool {
        let parameters: &RsaParameters = match self.signature_version.as_str() {
            "1" => &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
            "2" => &RSA_PKCS1_2048_8192_SHA256,
            _ => return false,
        };
        let key = UnparsedPublicKey::new(parameters, public_key);
        BASE64.decode(self.signature.as_bytes()).is_ok_and(|given| key.verify(self.signed().as_bytes(), &given).is_ok())
    }
}

/// A URL on a host of SNS itself: `https://sns.REGION.amazonaws.com`, or `.com.cn`, without user, port or fragment.
pub fn aws_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let host = url.host_str()?.strip_prefix("sns.")?;
    let region = host.strip_suffix(".amazonaws.com").or_else(|| host.strip_suffix(".amazonaws.com.cn"))?;
    let is_region =
        !region.is_empty() && region.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let plain = url.username().is_empty() && url.password().is_none() && url.port().is_none();
    (url.scheme() == "https" && is_region && plain && url.fragment().is_none()).then_some(url)
}

/// The URL of a certificate: a `.pem` on such a host, without a query.
pub fn certificate_url(text: &str) -> Option<Url> {
    aws_url(text).filter(|url| url.query().is_none() && url.path().ends_with(".pem"))
}

/// The URL that confirms a subscription to `topic`, and nothing else.
pub fn confirmation_url(text: &str, topic: &str) -> Option<Url> {
    let url = aws_url(text)?;
    let value = |name: &str| url.query_pairs().find(|(n, _)| n == name).map(|(_, value)| value.into_owned());
    let confirms = value("Action").as_deref() == Some("ConfirmSubscription");
    (url.path() == "/" && confirms && value("TopicArn").as_deref() == Some(topic)).then_some(url)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::{KeyPair, KeySize};
    use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};

    use super::*;

    fn envelope(more: &serde_json::Value) -> Envelope {
        let mut all = serde_json::json!({
            "Type": "Notification", "MessageId": "m1", "TopicArn": "arn:aws:sns:eu-west-1:1:receipts",
            "Message": "{\"a\":1}", "Timestamp": "2023-11-14T22:13:20.000Z", "SignatureVersion": "2",
            "Signature": "", "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/x.pem",
        });
        for (name, value) in more.as_object().expect("a table") {
            all[name] = value.clone();
        }
        serde_json::from_value(all).expect("an envelope")
    }

    #[test]
    fn what_is_signed_stands_in_the_order_that_aws_gives() {
        let plain = envelope(&serde_json::json!({}));
        let wanted = "Message\n{\"a\":1}\nMessageId\nm1\nTimestamp\n2023-11-14T22:13:20.000Z\nTopicArn\n\
                      arn:aws:sns:eu-west-1:1:receipts\nType\nNotification\n";
        assert_eq!(plain.signed(), wanted);
        let with_subject = envelope(&serde_json::json!({ "Subject": "s", "Token": "not signed" }));
        assert_eq!(with_subject.signed(), wanted.replace("Timestamp", "Subject\ns\nTimestamp"));
        let confirmation = envelope(&serde_json::json!({
            "Type": "SubscriptionConfirmation", "Message": "m", "SubscribeURL": "https://u", "Token": "t", "Subject": "not signed",
        }));
        let wanted = "Message\nm\nMessageId\nm1\nSubscribeURL\nhttps://u\nTimestamp\n2023-11-14T22:13:20.000Z\nToken\nt\n\
                      TopicArn\narn:aws:sns:eu-west-1:1:receipts\nType\nSubscriptionConfirmation\n";
        assert_eq!(confirmation.signed(), wanted);
    }

    #[test]
    fn an_envelope_is_bound_to_its_key_and_to_all_that_is_signed() {
        let pair = KeyPair::generate(KeySize::Rsa2048).expect("a key pair");
        let key: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("a public key");
        let mut good = envelope(&serde_json::json!({}));
        let mut tag = vec![0; pair.public_modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), good.signed().as_bytes(), &mut tag).expect("signed");
        good.signature = BASE64.encode(&tag);
        assert!(good.verify(key.as_ref()));
        for version in ["1", "3", ""] {
            let other = envelope(&serde_json::json!({ "SignatureVersion": version, "Signature": good.signature }));
            assert!(!other.verify(key.as_ref()), "{version}");
        }
        for (name, value) in
            [("Message", "{}"), ("TopicArn", "t"), ("Type", "X"), ("Subject", "s"), ("MessageId", "m2")]
        {
            let other = envelope(&serde_json::json!({ name: value, "Signature": good.signature }));
            assert!(!other.verify(key.as_ref()), "{name}");
        }
        assert!(!good.verify(b"no key"));
    }

    // Made with OpenSSL: the first version signs with SHA-1.
    const KEY: &str = "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEApqCT+UyGDUiqnwoaIqF9z0SrfKQbPrMrsZN96vKO+JMX01wViTV3dfJJ/0KEFE0+86Y9GymQe6xS272GVWh86TWqg8Z2OHEqOp7bPDGrTb2+qDbj2lgHkqGHNrJ3EAIdhFIIXcDTMvngnEfjxLQ/t/hnTxyuLt2Q4s15ezHXCxap93dq96z/JHQG55T17gQvJsqFr/Eeiq3D+vs07BnnqMiL5hjfOhaMDC1C/sSZDSf+5LwHZr+6xa21agiafF0Ii58M8osw8ziJlzrGgaCBPRpvH020XsdIh0eJpNxpu8iKaqv5F4LGeoGB0wIY3n6trh5V4oXId1LYtXFfVxYahwIDAQAB";
    const SHA1: &str = "EwSMD7h/iiyBHJGIKS1yukrD46eRgrsOZcrFJZST/mq9YwnoW+rvB/xjpSUtmyi4xLpc7CYgLaDAHBFAeFXlo4Nn/DacHOoSz7C8BZyl6igNSJ0FLETCS2Fc6McbPVddEEolFDPkA1CvtKssucLmx9yVuu11mUGNbDQbDHeiMgHaf9j9XEhTtbM/xkcxO6wsxzOJ94ezBRf6rnSBEqSLx4EaJSHzsDbz3jtYzTol7ALzCT0Sxn8KWL+j720xtAEqjoXPAaL5cKdXTYkdg5QFts3tw1aje07Dc5VNXjZoSfQiF3R47H/JIEACr4lzkUYYNcAC3DFPMqMDPq3vVzNbHg==";

    #[test]
    fn the_first_version_of_a_signature_is_good_too_where_it_says_so() {
        let key = BASE64.decode(KEY.as_bytes()).expect("base64");
        let of_version = |version| envelope(&serde_json::json!({ "SignatureVersion": version, "Signature": SHA1 }));
        assert!(of_version("1").verify(&key));
        assert!(!of_version("2").verify(&key));
    }

    #[test]
    fn an_envelope_is_fresh_as_long_as_sns_repeats_itself() {
        let envelope = envelope(&serde_json::json!({}));
        let at = |age: i64| envelope.is_fresh(Timestamp::from_micros((1_700_000_000 + age) * 1_000_000));
        assert!(at(-300) && at(0) && at(3_900));
        assert!(!at(-301) && !at(3_901));
    }

    #[test]
    fn only_hosts_of_sns_itself_are_asked() {
        for good in [
            "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0.pem",
            "https://sns.cn-north-1.amazonaws.com.cn/x.pem",
            "https://sns.us-east-1.amazonaws.com:443/x.pem",
        ] {
            assert!(certificate_url(good).is_some(), "{good}");
        }
        for bad in [
            "http://sns.eu-west-1.amazonaws.com/x.pem",
            "https://sns.eu-west-1.amazonaws.com:8443/x.pem",
            "https://sns.eu-west-1.amazonaws.com/x.pem?a=b",
            "https://sns.eu-west-1.amazonaws.com/x.html",
            "https://sns.eu-west-1.amazonaws.com.evil.example/x.pem",
            "https://sns.evil.example/sns.eu-west-1.amazonaws.com/x.pem",
            "https://sns.a.b.amazonaws.com/x.pem",
            "https://sns..amazonaws.com/x.pem",
            "https://s3.amazonaws.com/sns.eu-west-1.amazonaws.com/x.pem",
            "https://sns.eu-west-1.amazonaws.com@evil.example/x.pem",
            "https://u:p@sns.eu-west-1.amazonaws.com/x.pem",
            "file:///sns.eu-west-1.amazonaws.com/x.pem",
            "",
        ] {
            assert!(certificate_url(bad).is_none(), "{bad}");
        }
        let confirm = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:eu-west-1:1:a&Token=t";
        assert!(confirmation_url(confirm, "arn:aws:sns:eu-west-1:1:a").is_some());
        assert!(confirmation_url(confirm, "arn:aws:sns:eu-west-1:1:b").is_none());
        for bad in [
            confirm.replace("ConfirmSubscription", "Publish"),
            confirm.replace("amazonaws", "evil"),
            confirm.replace(".com/?", ".com/x?"),
        ] {
            assert!(confirmation_url(&bad, "arn:aws:sns:eu-west-1:1:a").is_none(), "{bad}");
        }
    }
}
