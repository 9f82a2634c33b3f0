//! The HTTP exchange: one request, at most one answer, and what may be concluded when there is none.

use std::error::Error as _;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use chrono::DateTime;
use http::HeaderMap;
use http::header::RETRY_AFTER;
use hyper::body::{Body, Frame, SizeHint};

use super::gate::Gate;
use super::manifest::request::Ready;
use super::net;
use crate::domain::outcome::{Outcome, OutcomeClass, Reason};
use crate::domain::retry::RETRY_AFTER_CAP;
use crate::domain::time::Timestamp;

/// The longest answer that is read, in bytes.
pub(super) const BODY_MAX: usize = 64 * 1024;

/// Idle connections are closed after this, before the other side closes them while we write: common servers keep them
/// for 5 seconds or more.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// How long an exchange may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// Name, connection and TLS together. Shorter than `total`: only a failure to connect proves that nothing was sent.
    pub connect: Duration,
    /// The whole exchange, the answer's last byte included.
    pub total: Duration,
}

/// An answer, with its body when all of it came within the limit.
pub(super) struct Received {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Option<Bytes>,
}

/// A client for one provider.
#[derive(Debug)]
pub(super) struct HttpClient {
    client: reqwest::Client,
    connect: Duration,
}

/// A client that repeats nothing, follows no redirect and heeds no proxy of the environment.
pub(crate) fn plain_client(timeouts: HttpTimeouts, https_only: bool) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .retry(reqwest::retry::never())
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .http1_only()
        .referer(false)
        .https_only(https_only)
        .connect_timeout(timeouts.connect)
        .timeout(timeouts.total)
        .pool_idle_timeout(POOL_IDLE)
        .user_agent(concat!("sendonce/", env!("CARGO_PKG_VERSION")))
}

/// `Retry-After` as seconds or as a date (RFC 9110 section 10.2.3), at most [`RETRY_AFTER_CAP`].
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => Timestamp::from_micros(DateTime::parse_from_rfc2822(text).ok()?.timestamp_micros()).since(now),
    };
    Some(wait.min(RETRY_AFTER_CAP))
}

impl HttpClient {
    /// `None` when the TLS library cannot be set up, as without any root certificate.
    pub(super) fn new(timeouts: HttpTimeouts, https_only: bool) -> Option<Self> {
        let client = plain_client(timeouts, https_only).build().ok()?;
        Some(Self { client, connect: timeouts.connect })
    }

    /// Sends `ready`; `gate` is asked before the first byte and again when the last ones are handed over.
    ///
    /// # Errors
    /// The outcome of an attempt without a complete status line.
    pub(super) async fn exchange(&self, ready: Ready, gate: Option<&Gate>) -> Result<Received, Outcome> {
        self.exchange_within(ready, gate, BODY_MAX).await
    }

    /// The same with another limit, in bytes, for the answer's body.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn exchange_within(
        &self,
        ready: Ready,
        gate: Option<&Gate>,
        body_max: usize,
    ) -> Result<Received, Outcome> {
        if let Some(gate) = gate {
            // A request without a body passes no second gate: it leaves whole when the connection stands.
            gate.check_ahead(if ready.body.is_empty() { self.connect } else { Duration::ZERO })?;
        }
        let stopped = Arc::new(OnceLock::new());
        let mut request = self.client.request(ready.method, ready.url).headers(ready.headers);
        if !ready.body.is_empty() {
            let body = GatedBody { data: Some(ready.body), gate: gate.cloned(), stopped: stopped.clone() };
            request = request.body(reqwest::Body::wrap(body));
        }
        let mut response = request.send().await.map_err(|e| match stopped.get() {
            Some(outcome) => Outcome::clone(outcome),
            None => without_answer(&e.without_url()),
        })?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = BytesMut::new();
        let body = loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= body_max => body.extend_from_slice(&chunk),
                Ok(None) => break Some(body.freeze()),
                Ok(Some(_)) | Err(_) => break None,
            }
        };
        Ok(Received { status, headers, body })
    }
}

/// What an exchange without a complete status line proves: only a failure to connect proves that nothing was sent.
fn without_answer(error: &reqwest::Error) -> Outcome {
    if error.is_builder() {
        Outcome::new(OutcomeClass::RefusedAccount, Reason::AccountRefused)
    } else if error.is_connect() {
        match causes(error).filter_map(|e| e.downcast_ref::<std::io::Error>()).find_map(net::tls_error) {
            Some(tls) => net::handshake_failed(Some(tls)),
            None if error.is_dns() => Outcome::not_sent(Reason::Dns),
            None => Outcome::not_sent(Reason::Connect),
        }
    } else if error.is_timeout() {
        Outcome::unknown(Reason::AnswerTimeout)
    } else if is_garbage(error) {
        Outcome::unknown(Reason::UnreadableAnswer)
    } else {
        Outcome::unknown(Reason::LostAnswer)
    }
}

fn is_garbage(error: &reqwest::Error) -> bool {
    causes(error).filter_map(|e| e.downcast_ref::<hyper::Error>()).any(hyper::Error::is_parse)
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&e| e.source())
}

/// A request's body that asks the gate at the moment when it is handed over. The head is written together with it, so a
/// request that is stopped here has not left.
struct GatedBody {
    data: Option<Bytes>,
    gate: Option<Gate>,
    stopped: Arc<OnceLock<Outcome>>,
}

#[derive(Debug, thiserror::Error)]
#[error("stopped by the gate")]
struct Stopped;

impl Body for GatedBody {
    type Data = Bytes;
    type Error = Stopped;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        let this = self.get_mut();
        let Some(data) = this.data.take() else { return Poll::Ready(None) };
        if let Some(Err(outcome)) = this.gate.as_ref().map(Gate::check) {
            let _ = this.stopped.set(outcome);
            return Poll::Ready(Some(Err(Stopped)));
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |d| d.len() as u64))
    }
}
