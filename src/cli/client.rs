//! Talking to the daemon.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use reqwest::{Response, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::show::plain;
use super::{Exit, Failure};
use crate::config::secret;
use crate::document::parse_duration;

/// The largest answer that is read as a whole, in bytes.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence after which an answer is given up; longer than the longest single wait that is asked for.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the daemon is, and who calls.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct Connection {
    /// The daemon's URL
    #[arg(long, env = "SENDONCE_URL", value_name = "URL", default_value = "http://127.0.0.1:8025")]
    url: Url,
    /// File with the API key; without it, the environment variable SENDONCE_API_KEY holds the key
    #[arg(long, env = "SENDONCE_API_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// A connection to the daemon.
pub(super) struct Client {
    http: reqwest::Client,
    url: Url,
    authorization: HeaderValue,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

/// A successful answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// `null` when there is none.
    pub body: Value,
}

/// Runs a command that talks to the daemon.
pub(super) fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Failure::failed(format!("no runtime: {}", e.kind())))?.block_on(command)
}

/// A duration on the command line.
pub(super) fn duration(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text).ok_or("a whole number and a unit, such as 20s, 10m or 1h")
}

impl Connection {
    fn key(&self) -> Result<SecretString, Failure> {
        if let Some(path) = &self.key_file {
            return secret::read_file(path).map_err(|e| Failure::new(Exit::Mistakes, format!("--key-file: {e}")));
        }
        match std::env::var("SENDONCE_API_KEY") {
            Ok(key) if !key.is_empty() => Ok(key.into()),
            _ => Err(Failure::new(Exit::Usage, "an API key is needed: --key-file FILE or SENDONCE_API_KEY")),
        }
    }

    /// Gets ready to call; nothing is sent yet.
    pub(super) fn open(self) -> Result<Client, Failure> {
        let key = self.key()?;
        let authorization = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret()));
        let mut authorization =
            authorization.map_err(|_| Failure::new(Exit::Mistakes, "the API key has a character that no key has"))?;
        authorization.set_sensitive(true);
        if self.url.cannot_be_a_base() || !matches!(self.url.scheme(), "http" | "https") {
            return Err(Failure::new(Exit::Usage, "--url must begin with http:// or https://"));
        }
        let loopback = matches!(self.url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
        if self.url.scheme() == "http" && !loopback {
            eprintln!("warning: the API key and the message travel in clear to {}", self.url.host_str().unwrap_or("?"));
        }
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .user_agent(concat!("sendonce/", env!("CARGO_PKG_VERSION")));
        let http = if loopback { http.no_proxy() } else { http };
        let http = http.build().map_err(|_| Failure::failed("the HTTP client could not be set up"))?;
        Ok(Client { http, url: self.url, authorization })
    }
}

impl Client {
    fn url(&self, path: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    async fn call(&self, request: reqwest::RequestBuilder) -> Result<Response, Failure> {
        let request = request.header(http::header::AUTHORIZATION, self.authorization.clone());
        let response = request.send().await.map_err(|e| unreachable(&e))?;
        match response.status() {
            s if s.is_success() || s == StatusCode::NOT_MODIFIED => Ok(response),
            _ => Err(refusal(response).await),
        }
    }

    /// GET, the body to be read by the caller.
    pub(super) async fn stream(&self, path: &[&str], query: &[(&str, String)]) -> Result<Response, Failure> {
        self.call(self.http.get(self.url(path, query))).await
    }

    /// GET.
    pub(super) async fn get(&self, path: &[&str], query: &[(&str, String)]) -> Result<Answer, Failure> {
        read(self.stream(path, query).await?).await
    }

    /// GET, answered by 304 when the state still has this tag.
    pub(super) async fn get_if_changed(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        tag: Option<&HeaderValue>,
    ) -> Result<Answer, Failure> {
        let request = self.http.get(self.url(path, query));
        let request = tag.into_iter().fold(request, |r, tag| r.header(http::header::IF_NONE_MATCH, tag));
        read(self.call(request).await?).await
    }

    /// POST with a body of lines, the answer to be read by the caller.
    pub(super) async fn post_lines(&self, path: &[&str], lines: Vec<u8>) -> Result<Response, Failure> {
        let request = self.http.post(self.url(path, &[])).header(http::header::CONTENT_TYPE, "application/x-ndjson");
        self.call(request.body(lines)).await
    }

    /// POST with a JSON body.
    pub(super) async fn post(&self, path: &[&str], body: &Value, headers: HeaderMap) -> Result<Answer, Failure> {
        read(self.call(self.posting(path, body).headers(headers)).await?).await
    }

    /// The same, the answer to be read by the caller.
    pub(super) async fn post_stream(&self, path: &[&str], body: &Value) -> Result<Response, Failure> {
        self.call(self.posting(path, body)).await
    }

    fn posting(&self, path: &[&str], body: &Value) -> reqwest::RequestBuilder {
        let request = self.http.request(Method::POST, self.url(path, &[]));
        request.header(http::header::CONTENT_TYPE, "application/json").body(body.to_string())
    }
}

/// What became of a call without an answer, without the library's text, which may hold the URL with its query.
pub(super) fn unreachable(e: &reqwest::Error) -> Failure {
    let what = if e.is_connect() {
        "the daemon cannot be reached"
    } else if e.is_timeout() {
        "the daemon did not answer in time; whether it acted is not known"
    } else {
        "the connection broke before the answer was complete; whether the daemon acted is not known"
    };
    Failure::new(Exit::Unreachable, what)
}

async fn body(mut response: Response) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![];
    while let Some(chunk) = response.chunk().await.map_err(|e| unreachable(&e))? {
        if bytes.len() + chunk.len() > MAX_ANSWER {
            return Err(Failure::failed("the daemon's answer is too long"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

async fn read(response: Response) -> Result<Answer, Failure> {
    let (status, headers) = (response.status(), response.headers().clone());
    let bytes = body(response).await?;
    let body = if bytes.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&bytes) };
    let body = body.map_err(|_| Failure::failed("the answer is not JSON; is this the daemon's URL?"))?;
    Ok(Answer { status, headers, body })
}

/// `title: detail` of a problem (RFC 9457), or the bare status of anything else.
async fn refusal(response: Response) -> Failure {
    let status = response.status();
    let later = response.headers().get(http::header::RETRY_AFTER).and_then(|v| v.to_str().ok()).map(plain);
    let problem: Value = body(response).await.ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default();
    let text = |name| problem.get(name).and_then(Value::as_str).map(plain);
    let mut message = match (text("title"), text("detail")) {
        (Some(title), Some(detail)) => format!("{title}: {detail}"),
        (Some(title), None) => title,
        _ => format!("the daemon answered {status}"),
    };
    if let Some(seconds) = later {
        message += &format!(" (try again in {seconds} s)");
    }
    Failure::new(Exit::Refused, message)
}
