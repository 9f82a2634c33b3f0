//! The providers' side of a receipt: signs it as each of them would, and forges it as an attacker would. And AWS's side of
//! a signed request.

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use aws_lc_rs::{digest, hmac};
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use sendonce::provider::ReceiptRequest;
use serde_json::{Value, json};

use super::*;
use crate::support::http_oracle::Seen;

pub const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:receipts";
const CERTIFICATE: &str = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

enum Secret {
    Text(String),
    Ed25519(Ed25519KeyPair),
    Ecdsa(EcdsaKeyPair),
    Rsa { pair: RsaKeyPair, certificate: String },
}

/// Signs as one provider.
pub struct Signer {
    scheme: String,
    in_query: bool,
    /// The names of the settings, and the secrets that they stand for.
    secrets: Vec<(String, Secret)>,
    user: String,
}

impl Signer {
    /// As the manifest's `[receipt]` asks; a secret that `given` has already is that one.
    pub fn of(manifest: &str, given: &BTreeMap<String, String>) -> Self {
        let manifest: toml::Table = toml::from_str(manifest).expect("TOML");
        let none = toml::Table::new();
        let receipt = manifest.get("receipt").and_then(toml::Value::as_table).unwrap_or(&none);
        let text = |key: &str| receipt.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
        let scheme = text("signature");
        let names = receipt.get("secrets").and_then(toml::Value::as_array).cloned().unwrap_or_default();
        let secret = |(n, name): (usize, toml::Value)| {
            let name = name.as_str().expect("a name").to_owned();
            let secret = match given.get(&name) {
                Some(given) => Secret::Text(given.clone()),
                None if n > 0 && scheme == "sns" => Secret::Text(format!("{TOPIC}-{n}")),
                None => made(&scheme, n),
            };
            (name, secret)
        };
        let secrets = names.into_iter().enumerate().map(secret).collect();
        let user = given.get(&text("user")).cloned().unwrap_or_default();
        Self { in_query: text("format") == "query", secrets, user, scheme }
    }

    pub fn secrets(&self) -> usize {
        self.secrets.len()
    }

    /// What a configuration gives for the secrets.
    pub fn settings(&self) -> Vec<(String, String)> {
        let value = |secret: &Secret| match secret {
            Secret::Text(text) => text.clone(),
            Secret::Ed25519(pair) => BASE64.encode(pair.public_key().as_ref()),
            Secret::Ecdsa(pair) => {
                let key: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("a public key");
                BASE64.encode(key.as_ref())
            }
            Secret::Rsa { .. } => TOPIC.to_owned(),
        };
        self.secrets.iter().map(|(name, secret)| (name.clone(), value(secret))).collect()
    }

    /// Stands for SNS's hosts: it gives out the certificate and takes every confirmation.
    pub async fn sns(&self) -> HttpOracle {
        let oracle = HttpOracle::start().await;
        if let Some((_, Secret::Rsa { .. })) = self.secrets.first() {
            let certificate = self.certificate();
            oracle.script(move |_| certificate.clone());
        }
        oracle
    }

    /// The answer that gives out SNS's certificate.
    pub fn certificate(&self) -> Reply {
        match &self.secrets[0].1 {
            Secret::Rsa { certificate, .. } => Reply::json(200, certificate),
            _ => panic!("only SNS has a certificate"),
        }
    }

    /// A receipt as the provider would send it, signed with the secret of that number.
    pub fn sign(&self, secret: usize, path: &str, content: &str, now: Timestamp) -> ReceiptRequest {
        self.sign_with(&self.secrets[secret].1, path, content, now)
    }

    fn sign_with(&self, secret: &Secret, path: &str, content: &str, now: Timestamp) -> ReceiptRequest {
        let time = (now.micros() / 1_000_000).to_string();
        let joined = format!("{path}{}{content}", if path.contains('?') { "&" } else { "?" });
        let (path, content) = if self.in_query { (joined.as_str(), "") } else { (path, content) };
        let post = |headers: &[(&str, &str)], body: &str| self.request(path, headers, body);
        match (self.scheme.as_str(), secret) {
            ("twilio", Secret::Text(token)) => {
                let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, token.as_bytes());
                let text = format!("{PUBLIC}{path}{}", sorted(content, "", ""));
                post(&[("x-twilio-signature", &BASE64.encode(hmac::sign(&key, text.as_bytes()).as_ref()))], content)
            }
            ("telnyx-ed25519", Secret::Ed25519(pair)) => {
                let given = BASE64.encode(pair.sign(format!("{time}|{content}").as_bytes()).as_ref());
                post(&[("telnyx-timestamp", &time), ("telnyx-signature-ed25519", &given)], content)
            }
            ("standard-webhooks", Secret::Text(secret)) => {
                let key = BASE64.decode(secret.trim_start_matches("whsec_").as_bytes()).expect("base64");
                let given = format!("v1,{}", BASE64.encode(&hmac_sha256(&key, &format!("m1.{time}.{content}"))));
                post(&[("webhook-id", "m1"), ("webhook-timestamp", &time), ("webhook-signature", &given)], content)
            }
            ("sendgrid-ecdsa", Secret::Ecdsa(pair)) => {
                let tag = pair.sign(&SystemRandom::new(), format!("{time}{content}").as_bytes()).expect("signed");
                let names = ["signature", "timestamp"].map(|name| format!("x-twilio-email-event-webhook-{name}"));
                post(&[(&names[0], &BASE64.encode(tag.as_ref())), (&names[1], &time)], content)
            }
            ("sinch", Secret::Text(secret)) => {
                let given = BASE64.encode(&hmac_sha256(secret.as_bytes(), &format!("{content}.n1.{time}")));
                let names = ["", "-nonce", "-timestamp"].map(|part| format!("x-sinch-webhook-signature{part}"));
                post(&[(&names[0], &given), (&names[1], "n1"), (&names[2], &time)], content)
            }
            ("plivo-v3", Secret::Text(token)) => {
                let (bare, query) = path.split_once('?').unwrap_or((path, ""));
                let text = format!("{PUBLIC}{bare}?{}.{}.n1", sorted(query, "=", "&"), sorted(content, "", ""));
                let given = BASE64.encode(&hmac_sha256(token.as_bytes(), &text));
                post(&[("x-plivo-signature-v3", &given), ("x-plivo-signature-v3-nonce", "n1")], content)
            }
            ("mailgun", Secret::Text(key)) => {
                let mut body: Value = serde_json::from_str(content).expect("JSON");
                let given = HEXLOWER.encode(&hmac_sha256(key.as_bytes(), &format!("{time}t1")));
                body["signature"] = json!({ "timestamp": time, "token": "t1", "signature": given });
                post(&[], &body.to_string())
            }
            ("vonage-sms", Secret::Text(key)) => {
                let body = format!("{content}&nonce=n1&timestamp={time}");
                let text = format!("&{}", sorted(&body, "=", "&"));
                let given = HEXLOWER.encode(&hmac_sha256(key.as_bytes(), &text));
                post(&[], &format!("{body}&sig={given}"))
            }
            ("vonage-jwt", Secret::Text(key)) => {
                let iat = now.micros() / 1_000_000;
                let claims = json!({ "iat": iat, "payload_hash": sha256_hex(content.as_bytes()) });
                post(&[("authorization", &format!("Bearer {}", jwt(key, &claims)))], content)
            }
            ("messagebird-jwt", Secret::Text(key)) => {
                let nbf = now.micros() / 1_000_000;
                let url_hash = sha256_hex(format!("{PUBLIC}{path}").as_bytes());
                let claims = json!({ "iss": "MessageBird", "nbf": nbf, "exp": nbf + 60, "url_hash": url_hash });
                post(&[("messagebird-signature-jwt", &jwt(key, &claims))], content)
            }
            ("sns", Secret::Rsa { pair, .. }) => {
                post(&[], &envelope(pair, now, json!({ "Type": "Notification", "Message": content })).to_string())
            }
            ("sns", Secret::Text(topic)) => {
                let members = json!({ "Type": "Notification", "Message": content, "TopicArn": topic });
                post(&[], &self.envelope(now, members))
            }
            ("basic", Secret::Text(password)) => {
                let given = BASE64.encode(format!("{}:{password}", self.user).as_bytes());
                post(&[("authorization", &format!("Basic {given}"))], content)
            }
            ("secret-path", Secret::Text(secret)) => {
                let link = if path.contains('?') { "&" } else { "?" };
                self.request(&format!("{path}{link}key={secret}"), &[], content)
            }
            (other, _) => panic!("nobody signs as {other}"),
        }
    }

    fn request(&self, path: &str, headers: &[(&str, &str)], body: &str) -> ReceiptRequest {
        let pairs = headers.iter().map(|(n, v)| {
            let name = HeaderName::try_from(*n).expect("a header's name");
            (name, HeaderValue::from_str(v).expect("a header's value"))
        });
        ReceiptRequest {
            path_and_query: path.to_owned(),
            method: if self.in_query { Method::GET } else { Method::POST },
            headers: pairs.collect::<HeaderMap>(),
            body: body.to_owned().into(),
        }
    }

    /// The same receipt, as those would send it who lack the secret.
    pub fn forgeries(&self, path: &str, content: &str) -> Vec<(&'static str, ReceiptRequest)> {
        let mut all = vec![
            ("an unsigned one", self.request(path, &[], content)),
            ("one under another secret", self.sign_with(&made(&self.scheme, 9), path, content, NOW)),
        ];
        let scheme = self.scheme.as_str();
        if !matches!(scheme, "basic" | "secret-path" | "mailgun") {
            let mut changed = self.sign(0, path, content, NOW);
            match self.in_query {
                true => changed.path_and_query.push('0'),
                false => changed.body = String::from_utf8_lossy(&changed.body).replacen('e', "E", 1).into(),
            }
            all.push(("one that was changed", changed));
        }
        if matches!(scheme, "twilio" | "plivo-v3" | "messagebird-jwt") {
            let mut elsewhere = self.sign(0, path, content, NOW);
            elsewhere.path_and_query = elsewhere.path_and_query.replace("receipts", "receipt");
            all.push(("one for another URL", elsewhere));
        }
        if !matches!(scheme, "basic" | "secret-path" | "twilio" | "plivo-v3") {
            all.push(("one of yesterday", self.sign(0, path, content, NOW.minus(DAY))));
            all.push(("one of tomorrow", self.sign(0, path, content, NOW.plus(DAY))));
        }
        all
    }

    /// A request with this body, and no more than that.
    pub fn posted(&self, body: &str) -> ReceiptRequest {
        self.request("/v1/receipts/x", &[], body)
    }

    /// What SNS posts, with other members than it should have.
    pub fn envelope(&self, now: Timestamp, members: Value) -> String {
        match &self.secrets[0].1 {
            Secret::Rsa { pair, .. } => envelope(pair, now, members).to_string(),
            _ => panic!("SNS signs with RSA"),
        }
    }
}

fn made(scheme: &str, n: usize) -> Secret {
    match scheme {
        "telnyx-ed25519" => Secret::Ed25519(Ed25519KeyPair::generate().expect("a key pair")),
        "sendgrid-ecdsa" => {
            let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
            Secret::Ecdsa(EcdsaKeyPair::generate(algorithm).expect("a key pair"))
        }
        "standard-webhooks" => Secret::Text(format!("whsec_{}", BASE64.encode(format!("secret-{n}").as_bytes()))),
        "sns" => {
            let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048);
            let key = key.expect("a key pair");
            let pair = RsaKeyPair::from_pkcs8(&key.serialize_der()).expect("a key pair");
            let params = rcgen::CertificateParams::new(vec!["sns.amazonaws.com".to_owned()]).expect("parameters");
            Secret::Rsa { pair, certificate: params.self_signed(&key).expect("a certificate").pem() }
        }
        _ => Secret::Text(format!("secret-{n}")),
    }
}

fn envelope(pair: &RsaKeyPair, now: Timestamp, members: Value) -> Value {
    let mut all = json!({
        "MessageId": "m1", "TopicArn": TOPIC, "Timestamp": now.to_string(), "SignatureVersion": "2",
        "SigningCertURL": CERTIFICATE,
    });
    for (name, value) in members.as_object().expect("members") {
        all[name] = value.clone();
    }
    let of_subscription = all["Type"] != "Notification";
    let mut text = String::new();
    for name in ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"] {
        let signed = match name {
            "Subject" => !of_subscription,
            "SubscribeURL" | "Token" => of_subscription,
            _ => true,
        };
        if let Some(value) = all[name].as_str().filter(|_| signed) {
            text.push_str(&format!("{name}\n{value}\n"));
        }
    }
    let mut tag = vec![0; pair.public_modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut tag).expect("signed");
    all["Signature"] = BASE64.encode(&tag).into();
    all
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn sha256_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn jwt(key: &str, claims: &Value) -> String {
    let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(&json!({ "alg": "HS256", "typ": "JWT" })), part(claims));
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&hmac_sha256(key.as_bytes(), &signed)))
}

/// The decoded fields of a form, sorted and joined.
fn sorted(form: &str, link: &str, gap: &str) -> String {
    let url = reqwest::Url::parse(&format!("form:/?{form}")).expect("a form");
    let mut fields: Vec<String> = url.query_pairs().map(|(name, value)| format!("{name}{link}{value}")).collect();
    fields.sort();
    fields.join(gap)
}

/// The signature that AWS would expect of a request, after "Create a signed AWS API request"
/// (<https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>).
pub fn signed_by_aws(seen: &Seen) -> String {
    let authorization = seen.header("authorization").unwrap_or_default();
    let part = |name: &str| {
        let (_, rest) = authorization.split_once(name).unwrap_or_default();
        rest.split(',').next().unwrap_or_default()
    };
    let scope = part("Credential=").split_once('/').unwrap_or_default().1;
    let names = part("SignedHeaders=");
    let headers: String =
        names.split(';').map(|name| format!("{name}:{}\n", seen.header(name).unwrap_or_default().trim())).collect();
    let canonical = format!("{}\n{}\n\n{headers}\n{names}\n{}", seen.method, seen.path, sha256_hex(&seen.body));
    let date = seen.header("x-amz-date").unwrap_or_default();
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", sha256_hex(canonical.as_bytes()));
    let key = scope.split('/').fold(b"AWS4aws-secret".to_vec(), |key, step| hmac_sha256(&key, step));
    HEXLOWER.encode(&hmac_sha256(&key, &text))
}
