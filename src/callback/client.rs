//! One request to one target, and what its answer means.

use std::error::Error as _;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::Url;

use super::guard::{NotPublic, PublicResolver, is_public};
use crate::domain::outcome::codes;
use crate::domain::time::Timestamp;
use crate::provider::http_client::{HttpTimeouts, plain_client, retry_after};

/// Name, connection and TLS may take so long together, where the whole request may take longer.
const CONNECT: Duration = Duration::from_secs(5);

/// So much of an answer's body is read, in bytes, so that the connection can be used again.
const BODY_MAX: usize = 16 * 1024;

/// Why a URL cannot be a target. Holds no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    /// It is no URL.
    #[error("must be a URL")]
    NotAUrl,
    /// It leads to this machine or a private network.
    #[error("leads to this machine or a private network; `allow_private = true` allows that")]
    Private,
    /// The TLS library cannot be set up.
    #[error("no TLS client can be made; are there root certificates?")]
    NoTls,
}

codes!(
    /// Why a callback was not taken.
    Fault {
        /// The target's name leads to no public address.
        Private = "private_address",
        /// The target's name could not be resolved.
        Dns = "dns",
        /// It could not be connected to.
        Connect = "connect",
        /// No answer in time.
        Timeout = "timeout",
        /// The connection ended without an answer.
        Lost = "lost_answer",
        /// It answered with a redirect, which is not followed.
        Redirected = "redirected",
        /// It limits our rate (429).
        RateLimited = "rate_limited",
        /// It refused this request (another 4xx).
        Refused = "refused",
        /// It has a fault of its own (5xx), or answered with something else.
        ServerFault = "server_fault",
    }
);

impl Fault {
    /// It says nothing about other callbacks: the target is there, and refuses this one.
    pub(super) const fn is_about_one(self) -> bool {
        matches!(self, Self::Refused)
    }
}

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The target has it (2xx).
    Taken,
    /// The target wants no more of them (410).
    Gone,
    /// Not taken, or not known to be.
    Failed {
        /// Why.
        fault: Fault,
        /// How long the target wants to be left alone.
        retry_after: Option<Duration>,
    },
}

impl Answer {
    const fn failed(fault: Fault) -> Self {
        Self::Failed { fault, retry_after: None }
    }
}

/// The headers of Standard Webhooks.
pub(super) struct Stamp {
    pub id: String,
    /// Seconds since 1970.
    pub timestamp: i64,
    /// Separated by spaces.
    pub signatures: String,
}

/// A client for one target.
#[derive(Debug)]
pub struct Client {
    client: reqwest::Client,
    url: Url,
}

impl Client {
    /// `timeout` is for the whole request.
    ///
    /// # Errors
    /// [`BadTarget`] when there can be no such target.
    pub fn new(url: &str, timeout: Duration, allow_private: bool) -> Result<Self, BadTarget> {
        let url = Url::parse(url).map_err(|_| BadTarget::NotAUrl)?;
        let host = url.host_str().ok_or(BadTarget::NotAUrl)?;
        let timeouts = HttpTimeouts { connect: CONNECT.min(timeout), total: timeout };
        let mut client = plain_client(timeouts, url.scheme() == "https");
        if !allow_private {
            // No resolver is asked about an address.
            let address = host.trim_start_matches('[').trim_end_matches(']').parse();
            if address.is_ok_and(|address| !is_public(address)) {
                return Err(BadTarget::Private);
            }
            client = client.dns_resolver(PublicResolver);
        }
        Ok(Self { client: client.build().map_err(|_| BadTarget::NoTls)?, url })
    }

    /// Sends one callback. `now` is for a `Retry-After` that is a date.
    pub(super) async fn post(&self, stamp: &Stamp, body: Vec<u8>, now: Timestamp) -> Answer {
        let Some(headers) = headers(stamp) else { return Answer::failed(Fault::Refused) };
        let sent = self.client.post(self.url.clone()).headers(headers).body(body).send().await;
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => return Answer::failed(without_answer(&error.without_url())),
        };
        let answer = judge(response.status(), response.headers(), now);
        // The status was the answer; what becomes of the rest changes nothing.
        let mut read = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            read += chunk.len();
            if read > BODY_MAX {
                break;
            }
        }
        answer
    }
}

fn headers(stamp: &Stamp) -> Option<HeaderMap> {
    let timestamp = stamp.timestamp.to_string();
    let values = [
        (CONTENT_TYPE, "application/json"),
        (HeaderName::from_static("webhook-id"), &stamp.id),
        (HeaderName::from_static("webhook-timestamp"), &timestamp),
        (HeaderName::from_static("webhook-signature"), &stamp.signatures),
    ];
    values.into_iter().map(|(name, value)| Some((name, HeaderValue::from_str(value).ok()?))).collect()
}

/// Source: Standard Webhooks specification, "Delivery success and failure".
fn judge(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Answer {
    let fault = match status.as_u16() {
        200..=299 => return Answer::Taken,
        410 => return Answer::Gone,
        300..=399 => Fault::Redirected,
        429 => Fault::RateLimited,
        408 => Fault::Timeout,
        400..=499 => Fault::Refused,
        _ => Fault::ServerFault,
    };
    Answer::Failed { fault, retry_after: retry_after(headers, now) }
}

fn without_answer(error: &reqwest::Error) -> Fault {
    let mut causes = std::iter::successors(error.source(), |&e| e.source());
    if causes.any(|cause| cause.is::<NotPublic>()) {
        Fault::Private
    } else if error.is_dns() {
        Fault::Dns
    } else if error.is_connect() {
        Fault::Connect
    } else if error.is_timeout() {
        Fault::Timeout
    } else {
        Fault::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_address_is_no_target_however_it_is_written() {
        let new = |url: &str, allow| Client::new(url, CONNECT, allow).err();
        for url in [
            "https://127.0.0.1/x",
            "https://2130706433/x",
            "https://0x7f.1/x",
            "https://10.0.0.1",
            "https://169.254.169.254/latest",
            "https://[::1]:8443",
            "https://[::ffff:127.0.0.1]",
            "https://[fd00::1]",
        ] {
            assert_eq!(new(url, false), Some(BadTarget::Private), "{url}");
            assert_eq!(new(url, true), None, "{url}");
        }
        assert_eq!(new("https://hooks.example.org/x", false), None);
        assert_eq!(new("nowhere", true), Some(BadTarget::NotAUrl));
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_not_connected_to_unless_that_is_allowed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://localhost:{}/x", listener.local_addr().expect("an address").port());
        let stamp = Stamp { id: "msg_1".to_owned(), timestamp: 0, signatures: "v1,AAAA".to_owned() };
        let now = Timestamp::from_micros(0);
        let guarded = Client::new(&url, CONNECT, false).expect("a client");
        assert_eq!(guarded.post(&stamp, vec![], now).await, Answer::failed(Fault::Private));
        let open = Client::new(&url, CONNECT, true).expect("a client");
        let (answer, first) = tokio::join!(open.post(&stamp, vec![], now), async {
            // Whoever had connected before would come first, and be let go with the second.
            let (stream, _) = listener.accept().await.expect("a connection");
            drop(stream);
            tokio::time::timeout(Duration::from_millis(50), listener.accept()).await.is_err()
        });
        assert_eq!((answer, first), (Answer::failed(Fault::Lost), true));
    }

    #[test]
    fn only_2xx_is_taken_and_only_410_ends_it() {
        let now = Timestamp::from_micros(0);
        let answer = |status, headers: &HeaderMap| judge(StatusCode::from_u16(status).expect("a status"), headers, now);
        let mut later = HeaderMap::new();
        later.insert("retry-after", HeaderValue::from_static("7"));
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(answer(status, &later), Answer::Taken, "{status}");
        }
        assert_eq!(answer(410, &later), Answer::Gone);
        for (status, fault) in [
            (301, Fault::Redirected),
            (307, Fault::Redirected),
            (400, Fault::Refused),
            (404, Fault::Refused),
            (408, Fault::Timeout),
            (429, Fault::RateLimited),
            (500, Fault::ServerFault),
            (503, Fault::ServerFault),
        ] {
            let wish = Some(Duration::from_secs(7));
            assert_eq!(answer(status, &later), Answer::Failed { fault, retry_after: wish }, "{status}");
        }
    }
}
