//! The daemon itself, as a process of its own: configured, started, asked, signalled, killed and started again.
//!
//! ```ignore
//! let oracle = HttpOracle::start().await;
//! let daemon = Daemon::start(Plan::new().http("probe", &oracle.url(), &[Strategy::Receipts]).sms(&["probe"])).await;
//! let id = daemon.accept(&event("e1")).await;
//! daemon.wait_for_state(&id, "dispatched").await;
//! daemon.audit_closes().await;
//! ```

mod plan;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http_oracle::{Post, Seen};
use super::site::port;
pub use plan::{Plan, Strategy};

/// How long anything may take that is to happen: long, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// The secret in the URL of receipts of the test's provider.
pub const RECEIPT_SECRET: &str = "receipt-secret-1";
const BINARY: &str = env!("CARGO_BIN_EXE_sendonce");
const TENANT: &str = "shop";

/// An answer of the daemon.
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
}

/// An event for a person and a number of its own, with ten minutes to live.
pub fn event(id: &str) -> Value {
    json!({ "event_id": id, "kind": "password_reset", "to": [{ "sms": phone(id) }], "locale": "en",
        "data": { "code": "493021" }, "user": id, "expires_in": 600 })
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

/// A daemon and its directory. Dropping it kills the process that it started, and no other.
pub struct Daemon {
    dir: TempDir,
    child: Mutex<Option<Child>>,
    ports: (u16, u16),
    key: String,
    client: reqwest::Client,
    accepted: Mutex<BTreeMap<String, String>>,
    env: Vec<(String, String)>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the daemon's log ends with:\n{}", tail(&self.log(), 60));
        }
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn run(args: &[&str]) -> String {
    let output = Command::new(BINARY).args(args).output().expect("the program");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn write_private(path: &Path, text: &str) {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut f| f.write_all(text.as_bytes())).expect("a file");
}

impl Daemon {
    /// Starts a daemon and waits until it is ready.
    pub async fn start(plan: Plan) -> Self {
        let daemon = Self::prepare(plan).await;
        daemon.launch().await;
        daemon
    }

    /// Writes everything that a daemon needs, and does not start it.
    pub async fn prepare(plan: Plan) -> Self {
        let dir = TempDir::new().expect("a directory");
        let path = |name: &str| dir.path().join(name).display().to_string();
        run(&["keys", "init", &path("")]);
        let keys = path("keys.toml");
        let roles = ["--role", "sender", "--role", "auditor", "--role", "operator"];
        let key = run(&[&["keys", "new", "--file", &keys, "--tenant", TENANT], &roles[..]].concat());
        write_private(&dir.path().join("receipt.secret"), RECEIPT_SECRET);
        for (name, text) in &plan.files {
            write_private(&dir.path().join(name), text);
        }
        let ports = (port(), port());
        let store = plan.store.clone().unwrap_or_else(|| dir.path().join("sendonce.db"));
        let mut sections = plan.sections;
        let mut add = |name, lines: String| sections.entry(name).or_default().push_str(&lines);
        let (api, admin) = ports;
        let urls = format!("listen = \"127.0.0.1:{api}\"\nadmin_listen = \"127.0.0.1:{admin}\"\n");
        add("server", format!("{urls}public_url = \"http://127.0.0.1:{api}\"\n"));
        add("store", format!("url = \"sqlite:{}\"\n", store.display()));
        add("vault", "sealing_keys_file = \"sealing.keys\"\nindex_key_file = \"index.key\"\n".to_owned());
        add("keys", "file = \"keys.toml\"\n".to_owned());
        let mut text: String = sections.iter().map(|(name, lines)| format!("[{name}]\n{lines}\n")).collect();
        text.push_str(&format!("[[tenant]]\nname = \"{TENANT}\"\n\n{}", plan.more.replace("{dir}", &path(""))));
        write_private(&dir.path().join("sendonce.toml"), &text);
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(PATIENCE);
        let client = client.build().expect("a client");
        Self { dir, child: Mutex::default(), ports, key, client, accepted: Mutex::default(), env: plan.env }
    }

    /// A second daemon with the same configuration but for its ports; not started.
    pub async fn twin(&self) -> Self {
        let mut twin = Self::prepare(Plan::new()).await;
        let mut text = fs::read_to_string(self.path("sendonce.toml")).expect("a configuration");
        text = text.replace(&self.ports.0.to_string(), &twin.ports.0.to_string());
        text = text.replace(&self.ports.1.to_string(), &twin.ports.1.to_string());
        for entry in fs::read_dir(self.dir.path()).expect("a directory").flatten() {
            let name = entry.file_name().display().to_string();
            if !name.starts_with("sendonce.") && entry.path().is_file() {
                fs::copy(entry.path(), twin.dir.path().join(name)).expect("copied");
            }
        }
        write_private(&twin.dir.path().join("sendonce.toml"), &text);
        twin.key.clone_from(&self.key);
        twin
    }

    /// A file of the daemon's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// All that the daemon has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The API's URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.0)
    }

    /// The API key, with every role.
    pub fn key(&self) -> &str {
        &self.key
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the process, without waiting for anything.
    pub fn spawn(&self) {
        let log = OpenOptions::new().append(true).create(true).open(self.path("log")).expect("a log");
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config"]).arg(self.path("sendonce.toml"));
        command.env("RUST_LOG", "trace").envs(self.env.iter().cloned());
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        let before = self.child().replace(command.spawn().expect("the program"));
        assert!(before.is_none(), "one process at a time");
    }

    /// Starts the process and waits until it is ready.
    pub async fn launch(&self) {
        for _ in 0..5 {
            self.spawn();
            match self.ready_or_ended().await {
                None => return,
                Some(status) if self.log().contains("cannot listen") => {
                    // Somebody else has the port for the moment: an outgoing connection of another test.
                    eprintln!("{status}: the port was taken");
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
                Some(status) => panic!("the daemon ended with {status}"),
            }
        }
        panic!("no port to listen on");
    }

    async fn ready_or_ended(&self) -> Option<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let ended = self.child().as_mut().map(|c| c.try_wait().expect("a child")).expect("a process");
            if ended.is_some() {
                self.child().take();
                return ended;
            }
            if self.readyz().await == 200 {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("not ready within {PATIENCE:?}");
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child().as_ref().expect("a process").id()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.pid().to_string()]).status().expect("a kill program");
        assert!(sent.success(), "{name}");
    }

    /// Kills the process, as a power cut would, and waits for its end.
    pub fn kill9(&self) {
        let mut child = self.child().take().expect("a process");
        child.kill().expect("killed");
        child.wait().expect("ended");
    }

    /// Asks it to stop.
    pub fn sigterm(&self) {
        self.signal("-TERM");
    }

    /// Pauses it.
    pub fn sigstop(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub fn sigcont(&self) {
        self.signal("-CONT");
    }

    /// Waits for its end, and gives the exit code; `None` when a signal ended it.
    pub async fn ended(&self) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let status = self.child().as_mut().map(|c| c.try_wait().expect("a child")).expect("a process");
            if let Some(status) = status {
                self.child().take();
                return status.code();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("not ended within {PATIENCE:?}");
    }

    /// Kills and starts it again.
    pub async fn restart(&self) {
        self.kill9();
        self.launch().await;
    }

    /// One request to the API.
    pub async fn try_call(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> Option<Answer> {
        let mut request = self.client.request(method, format!("{}{path}", self.url())).bearer_auth(&self.key);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.ok()?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let answer = Answer { status, headers, text: response.text().await.ok()? };
        if let (202, Some(id), Some(event)) = (status, answer.json()["id"].as_str(), answer.json()["event_id"].as_str())
        {
            let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
            accepted.insert(id.to_owned(), event.to_owned());
        }
        Some(answer)
    }

    /// One request to the API that is answered.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let answer = self.try_call(method, path, None, body).await;
        answer.unwrap_or_else(|| panic!("no answer to {path}"))
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

    /// Posts an event, which must be accepted, and gives the notification's id.
    pub async fn accept(&self, event: &Value) -> String {
        let answer = self.post(event).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.id()
    }

    /// How a notification stands.
    pub async fn status(&self, id: &str) -> Value {
        let answer = self.call(Method::GET, &format!("/v1/notifications/{id}"), None).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Waits until `fits` says yes to the notification's status.
    pub async fn wait_until(&self, id: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        let mut last = Value::Null;
        while start.elapsed() < PATIENCE {
            last = self.status(id).await;
            if fits(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{id} is not {what} within {PATIENCE:?}: {last}");
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
        let answer = self.call(Method::GET, &format!("/v1/audit?format=ndjson{more}"), None).await;
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
        let account = self.call(Method::GET, "/v1/audit/account", None).await;
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

    /// The status of `/readyz`; 0 without an answer.
    pub async fn readyz(&self) -> u16 {
        let url = format!("http://127.0.0.1:{}/readyz", self.ports.1);
        self.client.get(url).send().await.map_or(0, |response| response.status().as_u16())
    }

    /// The numbers.
    pub async fn metrics(&self) -> String {
        let url = format!("http://127.0.0.1:{}/metrics", self.ports.1);
        self.client.get(url).send().await.expect("an answer").text().await.expect("a text")
    }

    /// A receipt of `provider` as the test's manifest reads it; `fields` has at least `status`.
    pub fn receipt(&self, provider: &str, fields: &Value) -> Post {
        let url = format!("{}/v1/receipts/{provider}?key={RECEIPT_SECRET}", self.url());
        Post { url, headers: vec![], body: fields.to_string().into_bytes() }
    }
}

/// Our reference in a request that the test's provider got.
pub fn reference(seen: &Seen) -> String {
    seen.json()["ref"].as_str().unwrap_or_default().to_owned()
}

/// Waits until `holds` does.
pub async fn wait(what: &str, holds: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not within {PATIENCE:?}: {what}");
}
