//! A place where the real program runs: its own directory, keys and ports, its log and its files.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The password in the file `smtp.password` of every site: one that every encoding on the way would love to break.
pub const PASSWORD: &str = "p@ss:w/rd%25+ é CANARYPASSWORD";

/// Delays so short that a repeat which should not be would come before any test looks.
pub const EAGER: &str = "retry = { first = \"10ms\", factor = 1.0, cap = \"10ms\" }";

/// The lines of the configuration, by section; `rest` begins with sections of its own.
#[derive(Default)]
pub struct Plan {
    pub server: &'static str,
    pub store: &'static str,
    pub dispatch: &'static str,
    pub admission: &'static str,
    pub rest: String,
    /// The listeners come from the supervisor.
    pub activated: bool,
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    pub fn id(&self) -> String {
        self.json()["id"].as_str().unwrap_or_else(|| panic!("no id: {self:?}")).to_owned()
    }
}

/// Ports below those that the system gives away by itself, so that no connection takes one in between; each is given
/// away once in a long while, so that two daemons do not get the same one.
pub fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 10_000 + u16::try_from(std::process::id() % 50).expect("small") * 400;
    let mut ports = (0..400).map(|_| base + NEXT.fetch_add(1, Ordering::Relaxed) % 400);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

pub struct Site {
    dir: TempDir,
    pub api: SocketAddr,
    pub admin: SocketAddr,
    pub key: String,
    client: reqwest::Client,
}

impl Site {
    /// Makes the keys and writes the configuration; starts nothing.
    pub fn make(plan: Plan) -> Self {
        let dir = TempDir::new().expect("a directory");
        let (api, admin) = (SocketAddr::from(([127, 0, 0, 1], port())), SocketAddr::from(([127, 0, 0, 1], port())));
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().expect("a client");
        let mut site = Self { dir, api, admin, key: String::new(), client };
        let path = |name: &str| site.path(name).to_str().expect("text").to_owned();
        assert!(site.run(&["keys", "init", &path("")], "").status.success());
        let roles = ["--role", "sender", "--role", "auditor", "--role", "operator"];
        let keys = path("keys.toml");
        let made = site.run(&[&["keys", "new", "--tenant", "shop", "--file", &keys], &roles[..]].concat(), "");
        assert!(made.status.success(), "{made:?}");
        site.key = String::from_utf8(made.stdout).expect("text").trim().to_owned();
        write_secret(&site.path("smtp.password"), &format!("{PASSWORD}\n"));
        let (listen, admin) = match plan.activated {
            true => ("systemd".to_owned(), "systemd".to_owned()),
            false => (api.to_string(), admin.to_string()),
        };
        let Plan { server, store, dispatch, admission, rest, .. } = plan;
        let text = format!(
            "[server]\nlisten = \"{listen}\"\nadmin_listen = \"{admin}\"\npublic_url = \"http://{api}\"\n{server}\n\
             [store]\nurl = \"sqlite:s.db\"\n{store}\n\
             [vault]\nsealing_keys_file = \"sealing.keys\"\nindex_key_file = \"index.key\"\n\
             [keys]\nfile = \"keys.toml\"\n[[tenant]]\nname = \"shop\"\n\
             [dispatch]\nsweep_every = \"100ms\"\n{dispatch}\n[admission]\n{admission}\n{rest}"
        );
        fs::write(site.path("config.toml"), text).expect("written");
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What the daemon said so far, over all its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sendonce"));
        command.env_clear().env("SENDONCE_URL", format!("http://{}", self.api)).env("SENDONCE_API_KEY", &self.key);
        command
    }

    /// Runs a command of the program to its end.
    pub fn run(&self, args: &[&str], input: &str) -> Output {
        let mut command = self.command();
        let child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program");
        // A command that does not read its input may be gone before it is written.
        let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
        child.wait_with_output().expect("an end")
    }

    /// The program's `serve`, not yet started; its log goes to the site's file.
    pub fn serve(&self, launcher: &[&str], env: &[(&str, &str)]) -> Daemon {
        let program = env!("CARGO_BIN_EXE_sendonce");
        let config = self.path("config.toml");
        let mut command = Command::new(launcher.first().unwrap_or(&program));
        if !launcher.is_empty() {
            command.args(&launcher[1..]).arg(program);
        }
        let log = OpenOptions::new().create(true).append(true).open(self.path("log")).expect("a log");
        command.arg("serve").arg("--config").arg(config).env_clear().envs(env.iter().copied());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        // Signals of the terminal that runs the tests are not for the daemon.
        let child = command.process_group(0).spawn().expect("the program");
        Daemon { child }
    }

    /// A running daemon that takes requests.
    pub async fn start(&self) -> Daemon {
        self.start_with(&[]).await
    }

    pub async fn start_with(&self, env: &[(&str, &str)]) -> Daemon {
        let mut daemon = self.serve(&[], env);
        self.listening(&mut daemon).await;
        daemon
    }

    /// Waits until the API answers.
    pub async fn listening(&self, daemon: &mut Daemon) {
        until("the API", async || {
            if let Some(status) = daemon.child.try_wait().expect("a child") {
                panic!("the daemon ended with {status}: {}", self.log());
            }
            TcpStream::connect(self.api).await.is_ok() && self.admin("/healthz").await.is_some()
        })
        .await;
    }

    pub async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<String>) -> Answer {
        let request = self.client.request(method, format!("http://{}{path}", self.api)).body(body.into());
        let request = request.bearer_auth(&self.key);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        read(request.send().await.expect("an answer")).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[], "").await
    }

    /// Posts an event under its own id as key.
    pub async fn post(&self, event_id: &str, to: Value, data: Value) -> Answer {
        let body = json!({ "event_id": event_id, "kind": "password_reset", "to": to, "data": data, "expires_in": 600 });
        let headers = [("Idempotency-Key", event_id), ("Content-Type", "application/json")];
        self.ask(Method::POST, "/v1/notifications", &headers, body.to_string()).await
    }

    /// Posts a code to an address, which must be taken. Says the notification's id.
    pub async fn mail(&self, event_id: &str, to: &str) -> String {
        let answer = self.post(event_id, json!([{ "email": to }]), json!({ "code": "493021" })).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.id()
    }

    pub async fn status(&self, id: &str) -> Value {
        self.get(&format!("/v1/notifications/{id}")).await.json()
    }

    /// The status, once the state is this one.
    pub async fn reaches(&self, id: &str, state: &str) -> Value {
        let mut last = Value::Null;
        for _ in 0..2000 {
            last = self.status(id).await;
            if last["state"] == state {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("not {state}: {last} {}", self.log());
    }

    /// What the admin listener answers, if it does.
    pub async fn admin(&self, path: &str) -> Option<Answer> {
        let answer = self.client.get(format!("http://{}{path}", self.admin)).send().await.ok()?;
        Some(read(answer).await)
    }

    /// Waits for a line of the log that holds all of `parts`.
    pub async fn logs(&self, parts: &[&str]) {
        until(&format!("{parts:?} in the log"), async || {
            self.log().lines().any(|line| parts.iter().all(|part| line.contains(part)))
        })
        .await;
    }

    /// Sends bytes as they are and reads until the daemon closes the connection.
    pub async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.api).await.expect("a connection");
        stream.write_all(bytes).await.expect("written");
        let mut read = vec![];
        let reading = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut read)).await;
        // A reset after the answer ends it as well as an orderly end.
        let _ = reading.expect("an end within 20 s");
        String::from_utf8_lossy(&read).into_owned()
    }
}

async fn read(response: reqwest::Response) -> Answer {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Answer { status, headers, text: response.text().await.expect("a body") }
}

/// Writes a file for its owner alone.
pub fn write_secret(path: &Path, text: &str) {
    let mut file: File =
        OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
}

/// Waits, at most 20 s, until `condition` holds.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..2000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no {what} in 20 s");
}

/// The running program; it is killed when this is dropped.
pub struct Daemon {
    child: Child,
}

impl Daemon {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().expect("a kill program");
        assert!(sent.success());
    }

    /// How it ended, once it has.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut ended = None;
        until("end of the daemon", async || {
            ended = self.child.try_wait().expect("a child");
            ended.is_some()
        })
        .await;
        ended.expect("an end")
    }

    /// SIGTERM, and the code with which it ends.
    pub async fn stop(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.ended().await.code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
