//! The daemon itself, as a process of its own: configured, started, asked, signalled, killed and started again.
//!
//! ```ignore
//! let oracle = HttpOracle::start().await;
//! let daemon = Daemon::start(Plan::new().http("probe", &oracle.url(), &[Strategy::Receipts]).sms(&["probe"])).await;
//! let id = daemon.accept(&event("e1")).await;
//! daemon.wait_for_state(&id, "dispatched").await;
//! daemon.audit_closes().await;
//! ```

mod calls;
mod place;
mod plan;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::port::Port;
pub use calls::{Answer, event, event_to, phone, reference, short_event};
pub use place::{Place, TABLES};
pub use plan::{EAGER, Plan, Strategy};

/// How long anything may take that is to happen: long, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// The secret in the URL of receipts of the test's provider.
pub const RECEIPT_SECRET: &str = "receipt-secret-1";
/// What stands in every daemon's file `smtp.password`: one that every encoding on the way would love to break.
pub const PASSWORD: &str = "p@ss:w/rd%25+ é CANARYPASSWORD";
const BINARY: &str = env!("CARGO_BIN_EXE_sendonce");
const TENANT: &str = "shop";
const CONFIG: &str = "sendonce.toml";

/// A daemon and its directory. Dropping it kills the process that it started, and no other.
pub struct Daemon {
    dir: TempDir,
    child: Mutex<Option<Child>>,
    api: Port,
    admin: Port,
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

/// Runs a command of the program to its end.
fn run(args: &[&str], env: &[(&str, &str)], input: &str) -> Output {
    let mut command = Command::new(BINARY);
    command.args(args).env_clear().envs(env.iter().copied());
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the program");
    // A command that does not read its input may be gone before it is written.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("an end")
}

/// What a command says that must succeed.
fn said(args: &[&str]) -> String {
    let output = run(args, &[], "");
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// Writes a file for its owner alone.
pub fn write_secret(path: &Path, text: &str) {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut f| f.write_all(text.as_bytes())).expect("a file");
}

impl Daemon {
    /// Starts a daemon and waits until it is ready.
    pub async fn start(plan: Plan) -> Self {
        let daemon = Self::prepare(plan);
        daemon.launch().await;
        daemon
    }

    /// Writes everything that a daemon needs, and does not start it.
    pub fn prepare(plan: Plan) -> Self {
        let dir = TempDir::new().expect("a directory");
        let path = |name: &str| dir.path().join(name).display().to_string();
        said(&["keys", "init", &path("")]);
        let keys = path("keys.toml");
        let roles = ["--role", "sender", "--role", "auditor", "--role", "operator"];
        let key = said(&[&["keys", "new", "--file", &keys, "--tenant", TENANT], &roles[..]].concat());
        write_secret(&dir.path().join("receipt.secret"), RECEIPT_SECRET);
        write_secret(&dir.path().join("smtp.password"), &format!("{PASSWORD}\n"));
        for (name, text) in &plan.files {
            write_secret(&dir.path().join(name), text);
        }
        let (api, admin) = (Port::reserve(), Port::reserve());
        let text = plan.configuration(dir.path(), TENANT, api.address(), admin.address());
        write_secret(&dir.path().join(CONFIG), &text);
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(PATIENCE);
        let client = client.build().expect("a client");
        Self { dir, child: Mutex::default(), api, admin, key, client, accepted: Mutex::default(), env: plan.env }
    }

    /// A second daemon with the same configuration but for its ports; not started.
    pub fn twin(&self) -> Self {
        let mut twin = Self::prepare(Plan::new());
        let mut text = fs::read_to_string(self.config()).expect("a configuration");
        for (ours, its) in [(self.api.address(), twin.api.address()), (self.admin.address(), twin.admin.address())] {
            text = text.replace(&ours.to_string(), &its.to_string());
        }
        for entry in fs::read_dir(self.dir.path()).expect("a directory").flatten() {
            let name = entry.file_name().display().to_string();
            if !name.starts_with("sendonce.") && entry.path().is_file() {
                fs::copy(entry.path(), twin.dir.path().join(name)).expect("copied");
            }
        }
        write_secret(&twin.config(), &text);
        twin.key.clone_from(&self.key);
        twin
    }

    /// Changes its configuration, before it starts.
    pub fn reconfigure(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.config()).expect("a configuration");
        assert!(text.contains(from), "{from} in {text}");
        write_secret(&self.config(), &text.replace(from, to));
    }

    /// A file of the daemon's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Its configuration.
    pub fn config(&self) -> PathBuf {
        self.path(CONFIG)
    }

    /// All that the daemon has logged so far, over all its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Where the API listens.
    pub fn api(&self) -> SocketAddr {
        self.api.address()
    }

    /// Where health and numbers are.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// The API's URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.api())
    }

    /// The API key, with every role.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Runs a command of the program, as one who has the daemon's key, to its end.
    pub fn run(&self, args: &[&str], input: &str) -> Output {
        run(args, &[("SENDONCE_URL", &self.url()), ("SENDONCE_API_KEY", &self.key)], input)
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the process, without waiting for anything.
    pub fn spawn(&self) {
        self.spawn_with(&[], &[]);
    }

    /// Starts the process by way of `launcher`, which becomes it, with more of an environment.
    pub fn spawn_with(&self, launcher: &[&str], env: &[(&str, &str)]) {
        let log = OpenOptions::new().append(true).create(true).open(self.path("log")).expect("a log");
        let words: Vec<&str> = launcher.iter().copied().chain([BINARY, "serve", "--config"]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(self.config()).env_clear();
        command.env("RUST_LOG", "trace").envs(self.env.iter().cloned()).envs(env.iter().copied());
        command.current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        let before = self.child().replace(command.spawn().expect("the program"));
        assert!(before.is_none(), "one process at a time");
    }

    /// Starts the process and waits until it is ready.
    pub async fn launch(&self) {
        self.spawn();
        self.live("ready", async || self.readyz().await == 200).await;
    }

    /// Waits until both listeners answer, ready or not.
    pub async fn listening(&self) {
        let api = async || tokio::net::TcpStream::connect(self.api()).await.is_ok();
        self.live("listening", async || api().await && self.admin("/healthz").await.is_some()).await;
    }

    async fn live(&self, what: &str, holds: impl AsyncFn() -> bool) {
        wait(what, async || {
            if let Some(status) = self.child().as_mut().expect("a process").try_wait().expect("a child") {
                panic!("the daemon ended with {status}");
            }
            holds().await
        })
        .await;
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child().as_ref().expect("a process").id()
    }

    /// Sends a signal, such as `-TERM`.
    pub fn signal(&self, name: &str) {
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

    /// Whether the process that was started is gone.
    pub fn has_ended(&self) -> bool {
        self.child().as_mut().expect("a process").try_wait().expect("a child").is_some()
    }

    /// Waits for its end, and gives the exit code; `None` when a signal ended it.
    pub async fn ended(&self) -> Option<i32> {
        let mut ended = None;
        wait("the daemon's end", async || {
            ended = self.child().as_mut().expect("a process").try_wait().expect("a child");
            ended.is_some()
        })
        .await;
        self.child().take();
        ended.and_then(|status| status.code())
    }

    /// Asks it to stop, and gives the exit code.
    pub async fn stop(&self) -> Option<i32> {
        self.sigterm();
        self.ended().await
    }

    /// Kills and starts it again.
    pub async fn restart(&self) {
        self.kill9();
        self.launch().await;
    }

    /// Waits for a line of the log that holds all of `parts`.
    pub async fn logs(&self, parts: &[&str]) {
        wait(&format!("{parts:?} in the log"), async || {
            self.log().lines().any(|line| parts.iter().all(|part| line.contains(part)))
        })
        .await;
    }
}

/// Waits until `holds` does.
pub async fn wait(what: &str, holds: impl AsyncFnMut() -> bool) {
    assert!(comes_true(holds).await, "not within {PATIENCE:?}: {what}");
}

async fn comes_true(mut holds: impl AsyncFnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if holds().await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}
