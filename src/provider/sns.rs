//! The door for receipts that come through Amazon SNS: who signed them is told by a certificate, which must be fetched,
//! and a topic's subscription must be confirmed once.
//!
//! Nothing is fetched for a topic that is not configured, from a host that is not SNS's own, or faster than [`FETCHES`].

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use reqwest::Url;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::server::ParsedCertificate;

use super::http_client::HttpClient;
use super::manifest::request::Ready;
use super::signature::sns::{Envelope, certificate_url, confirmation_url};
use super::{ReceiptError, ReceiptRequest};
use crate::domain::time::Timestamp;

/// How long a certificate's key is kept.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// How many keys are kept; the oldest makes room.
const KEYS: usize = 16;
/// How many fetches there may be within [`FETCH_SPAN`].
const FETCHES: usize = 10;
const FETCH_SPAN: Duration = Duration::from_secs(60);

/// A certificate's key, as it was fetched.
struct Key {
    url: Url,
    fetched: Timestamp,
    spki: Vec<u8>,
}

/// What one provider remembers of SNS.
pub(super) struct SnsDoor {
    /// Stands for the hosts of SNS, where they are reached another way.
    base_url: Option<String>,
    keys: Mutex<Vec<Key>>,
    fetches: Mutex<Vec<Timestamp>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl SnsDoor {
    pub(super) fn new(base_url: Option<String>) -> Self {
        Self { base_url, keys: Mutex::default(), fetches: Mutex::default() }
    }

    /// What an authentic notification of one of `topics` says, as JSON; `None` when it was about the subscription, which is
    /// then confirmed.
    ///
    /// # Errors
    /// [`ReceiptError::Unavailable`] when a certificate or the confirmation cannot be fetched now; SNS asks again.
    pub(super) async fn open(
        &self,
        client: &HttpClient,
        topics: &[&str],
        request: &ReceiptRequest,
        now: Timestamp,
    ) -> Result<Option<serde_json::Value>, ReceiptError> {
        let envelope: Envelope = serde_json::from_slice(&request.body).map_err(|_| ReceiptError::NotAuthentic)?;
        if !topics.contains(&envelope.topic_arn.as_str()) || !envelope.is_fresh(now) {
            return Err(ReceiptError::NotAuthentic);
        }
        let certificate = certificate_url(&envelope.signing_cert_url).ok_or(ReceiptError::NotAuthentic)?;
        let key = self.key(client, &certificate, now).await?;
        if !envelope.verify(&key) {
            return Err(ReceiptError::NotAuthentic);
        }
        match envelope.kind.as_str() {
            "Notification" => serde_json::from_str(&envelope.message).map(Some).map_err(|_| ReceiptError::Unreadable),
            "SubscriptionConfirmation" => {
                let url = envelope.subscribe_url.as_deref().and_then(|url| confirmation_url(url, &envelope.topic_arn));
                self.fetch(client, &url.ok_or(ReceiptError::NotAuthentic)?, now).await.map(|_| None)
            }
            _ => Ok(None),
        }
    }

    async fn key(&self, client: &HttpClient, url: &Url, now: Timestamp) -> Result<Vec<u8>, ReceiptError> {
        let kept = |key: &&Key| key.url == *url && now.since(key.fetched) < KEPT;
        if let Some(key) = lock(&self.keys).iter().find(kept) {
            return Ok(key.spki.clone());
        }
        let pem = self.fetch(client, url, now).await?;
        let spki = CertificateDer::from_pem_slice(&pem).ok().and_then(|der| {
            let certificate = ParsedCertificate::try_from(&der).ok()?;
            Some(certificate.subject_public_key_info().as_ref().to_vec())
        });
        let spki = spki.ok_or(ReceiptError::Unavailable)?;
        let mut keys = lock(&self.keys);
        keys.retain(|key| key.url != *url);
        if keys.len() == KEYS {
            keys.remove(0);
        }
        keys.push(Key { url: url.clone(), fetched: now, spki: spki.clone() });
        Ok(spki)
    }

    async fn fetch(&self, client: &HttpClient, url: &Url, now: Timestamp) -> Result<Bytes, ReceiptError> {
        {
            let mut fetches = lock(&self.fetches);
            fetches.retain(|at| now.since(*at) < FETCH_SPAN);
            if fetches.len() >= FETCHES {
                return Err(ReceiptError::Unavailable);
            }
            fetches.push(now);
        }
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let here = |base: &String| format!("{base}{}{query}", url.path());
        let url = self.base_url.as_ref().map_or_else(|| url.to_string(), here);
        let ready = Ready { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() };
        let received = client.exchange(ready, None).await.map_err(|_| ReceiptError::Unavailable)?;
        received.body.filter(|_| received.status == 200).ok_or(ReceiptError::Unavailable)
    }
}
