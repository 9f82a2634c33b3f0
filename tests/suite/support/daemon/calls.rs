//! What is asked of a daemon over HTTP, and events to ask it with.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Daemon, PATIENCE, RECEIPT_SECRET, comes_true};
use crate::support::http_oracle::{Post, Seen};

/// An answer of the daemon, read whole.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub text: String,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// The notification's id in it.
    pub fn id(&self) -> String {
        self.json()["id"].as_str().unwrap_or_else(|| panic!("an id in {self:?}")).to_owned()
    }

    async fn read(response: reqwest::Response) -> Option<Self> {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Some(Self { status, headers, text: response.text().await.ok()? })
    }
}

/// An event for these addresses, with ten minutes to live.
pub fn event_to(id: &str, to: Value, data: Value) -> Value {
    json!({ "event_id": id, "kind": "password_reset", "to": to, "data": data, "expires_in": 600 })
}

/// An event for a person and a number of its own, with ten minutes to live.
pub fn event(id: &str) -> Value {
    let mut event = event_to(id, json!([{ "sms": phone(id) }]), json!({ "code": "493021" }));
    event["locale"] = "en".into();
    event["user"] = id.into();
    event
}

/// The same with another life time in seconds.
pub fn short_event(id: &str, expires_in: u64) -> Value {
    let mut event = event(id);
    event["expires_in"] = expires_in.into();
    event
}

/// A mobile number that belongs to `id` alone, as far as a test needs.
pub fn phone(id: &str) -> String {
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    format!("+447911{:06}", hash % 1_000_000)
}

/// Our reference in a request that the test's provider got.
pub fn reference(seen: &Seen) -> String {
    seen.json()["ref"].as_str().unwrap_or_default().to_owned()
}

impl Daemon {
    /// One request to the API, if it is answered.
    async fn try_ask(&self, method: Method, path: &str, headers: &[(&str, &str)], body: String) -> Option<Answer> {
        let request = self.client.request(method, format!("{}{path}", self.url())).bearer_auth(&self.key).body(body);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = Answer::read(request.send().await.ok()?).await?;
        let said = answer.json();
        if let (202, Some(id), Some(event)) = (answer.status, said["id"].as_str(), said["event_id"].as_str()) {
            let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
            accepted.insert(id.to_owned(), event.to_owned());
        }
        Some(answer)
    }

    /// One request to the API, which must be answered.
    pub async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<String>) -> Answer {
        let answer = self.try_ask(method, path, headers, body.into()).await;
        answer.unwrap_or_else(|| panic!("no answer to {path}"))
    }

    /// One request to the API with a body in JSON, if it is answered.
    pub async fn try_call(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> Option<Answer> {
        let key = key.map(|key| ("idempotency-key", key));
        let json = body.map(|_| ("content-type", "application/json"));
        let headers: Vec<(&str, &str)> = key.into_iter().chain(json).collect();
        self.try_ask(method, path, &headers, body.map(Value::to_string).unwrap_or_default()).await
    }

    /// The same, which must be answered.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let answer = self.try_call(method, path, None, body).await;
        answer.unwrap_or_else(|| panic!("no answer to {path}"))
    }

    /// Gets a resource.
    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None).await
    }

    /// Posts an event under its id as the key.
    pub async fn post(&self, event: &Value) -> Answer {
        self.post_as(event["event_id"].as_str().expect("an id"), event).await
    }

    /// Posts an event under another key.
    pub async fn post_as(&self, key: &str, event: &Value) -> Answer {
        let answer = self.try_call(Method::POST, "/v1/notifications", Some(key), Some(event)).await;
        answer.expect("an answer")
    }

    /// The bytes of a request that posts an event under its id as the key.
    pub fn request(&self, event: &Value) -> Vec<u8> {
        let (key, body) = (event["event_id"].as_str().expect("an id"), event.to_string());
        let head = format!(
            "POST /v1/notifications HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.key,
            body.len()
        );
        (head + &body).into_bytes()
    }

    /// Writes bytes to the API on a connection of their own, and leaves the rest to the caller.
    pub async fn write(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.api()).await.expect("a connection");
        stream.write_all(bytes).await.expect("written");
        stream
    }

    /// Posts an event, which must be accepted, and gives the notification's id.
    pub async fn accept(&self, event: &Value) -> String {
        let answer = self.post(event).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.id()
    }

    /// Posts a code for a mail address, which must be accepted, and gives the notification's id.
    pub async fn mail(&self, event_id: &str, to: &str) -> String {
        self.accept(&event_to(event_id, json!([{ "email": to }]), json!({ "code": "493021" }))).await
    }

    /// How a notification stands.
    pub async fn status(&self, id: &str) -> Value {
        let answer = self.get(&format!("/v1/notifications/{id}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Waits until `fits` says yes to the notification's status.
    pub async fn wait_until(&self, id: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let fitted = comes_true(async || {
            last = self.status(id).await;
            fits(&last)
        });
        assert!(fitted.await, "{id} is not {what} within {PATIENCE:?}: {last}");
        last
    }

    /// Waits for a state.
    pub async fn wait_for_state(&self, id: &str, state: &str) -> Value {
        self.wait_until(id, state, |status| status["state"] == state).await
    }

    /// Takes a notification back.
    pub async fn cancel(&self, id: &str) -> Answer {
        self.call(Method::POST, &format!("/v1/notifications/{id}/cancel"), None).await
    }

    /// An operator's verdict: `sent`, `not_sent` or `abandon`.
    pub async fn resolve(&self, id: &str, verdict: &str, ticket: &str) -> Answer {
        let body = json!({ "verdict": verdict, "ticket": ticket });
        self.call(Method::POST, &format!("/v1/notifications/{id}/resolve"), Some(&body)).await
    }

    /// The log as its export has it but for the records of exports, with more of the query, such as `&what=evidence`.
    pub async fn audit(&self, more: &str) -> Vec<Value> {
        let answer = self.get(&format!("/v1/audit?format=ndjson{more}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let records = answer.text.lines().map(|line| serde_json::from_str(line).expect("a record"));
        records.filter(|record: &Value| record["what"] != "exported").collect()
    }

    /// Records of one notification with this `what`.
    pub async fn records(&self, id: &str, what: &str) -> Vec<Value> {
        let records = self.audit(&format!("&notification={id}")).await;
        records.into_iter().filter(|record| record["what"] == what).collect()
    }

    /// Holds that the accounting closes, and that each 202 has exactly one `accepted` record.
    pub async fn audit_closes(&self) {
        let account = self.get("/v1/audit/account").await;
        assert_eq!((account.status, &account.json()["closes"]), (200, &json!(true)), "{account:?}");
        let mut records: BTreeMap<String, u32> = BTreeMap::new();
        for record in self.audit("&what=accepted").await {
            *records.entry(record["notification"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (id, event) in accepted {
            assert_eq!(records.get(&id), Some(&1), "accepted records of {event}");
        }
    }

    /// What the admin listener answers, if it does.
    pub async fn admin(&self, path: &str) -> Option<Answer> {
        let url = format!("http://{}{path}", self.admin_address());
        Answer::read(self.client.get(url).send().await.ok()?).await
    }

    /// The status of `/readyz`; 0 without an answer.
    pub async fn readyz(&self) -> u16 {
        self.admin("/readyz").await.map_or(0, |answer| answer.status)
    }

    /// The numbers.
    pub async fn metrics(&self) -> String {
        self.admin("/metrics").await.expect("an answer").text
    }

    /// A receipt of `provider` as the test's manifest reads it; `fields` has at least `status`.
    pub fn receipt(&self, provider: &str, fields: &Value) -> Post {
        let url = format!("{}/v1/receipts/{provider}?key={RECEIPT_SECRET}", self.url());
        Post { url, headers: vec![], body: fields.to_string().into_bytes() }
    }

    /// Sends bytes as they are and reads until the daemon closes the connection.
    pub async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.write(bytes).await;
        let mut read = vec![];
        let reading = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await;
        // A reset after the answer ends it as well as an orderly end.
        let _ = reading.unwrap_or_else(|_| panic!("no end within {PATIENCE:?}"));
        String::from_utf8_lossy(&read).into_owned()
    }
}
