//! Where a run takes place: a directory of its own, a provider, keys, and one store after the other.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::config::Settings;
use crate::domain::ids::Tenant;
use crate::store::Store;

use super::daemon::Daemon;
use super::load::{Events, Load, get, posts};
use super::rows::Maker;
use super::sink::Sink;
use super::wire::Wire;
use super::{BenchError, OpenStore, PROVIDER, Plan, TENANT, Tell, ceiling, now};

/// How long what was admitted may take to reach the provider.
const PATIENCE: Duration = Duration::from_secs(120);

/// The index key of every run, which a database remembers from one to the next. It keeps no secret: all that it hashes is
/// made up.
const INDEX_KEY: &str = "index MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n";

const MANIFEST: &str = r#"name = "sink"
channel = "sms"
page = "https://sendonce.example/bench"
[settings]
base_url = {}
[send]
method = "POST"
url = "{{ base_url }}/messages"
verdict = "status"
message_id = "/id"
answers = [ { status = 202, is = "accepted" } ]
[send.json]
to = "{{ to }}"
text = "{{ text }}"
ref = "{{ reference }}"
"#;

/// Whether and how fast the daemon sends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lane {
    /// Not at all, but for the one message that any rate allows.
    Held,
    /// With so many attempts under way at once.
    Open(u32),
}

/// A run's place. Dropping it removes the directory.
pub(super) struct Site {
    pub plan: Plan,
    pub maker: Maker,
    pub sink: Arc<Sink>,
    numbers: Arc<AtomicU64>,
    events: Events,
    opener: Rc<dyn OpenStore>,
    tell: Tell,
    dir: PathBuf,
    key: String,
    /// The daemon's name among nodes: one that no earlier run had, which might be taken for alive.
    node: String,
    /// How many stores there were before this one; names the file of the embedded one.
    stores: u32,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    move |e| BenchError::Io(what, e.kind())
}

fn write_private(path: &Path, text: &str) -> Result<(), BenchError> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed("a file of the bench"))
}

impl Site {
    /// Makes the directory with keys and manifest, and starts the provider.
    pub async fn new(plan: Plan, opener: Rc<dyn OpenStore>, tell: Tell) -> Result<Self, BenchError> {
        let node = format!("sendonce-bench-{:016x}", rand::random::<u64>());
        let dir = plan.dir.join(&node);
        DirBuilder::new().mode(0o700).create(&dir).map_err(failed("the bench's directory"))?;
        let dir = dir.canonicalize().map_err(failed("the bench's directory"))?;
        let sink = Arc::new(Sink::start().await.map_err(failed("the provider's port"))?);
        let maker = Maker::new().map_err(|_| BenchError::Answer("a name of the bench"))?;
        let numbers = Arc::new(AtomicU64::new(1));
        let mut site = Self {
            plan,
            maker,
            sink,
            numbers,
            events: Events::new(),
            opener,
            tell,
            dir,
            key: String::new(),
            node,
            stores: 0,
        };
        site.own(&["keys", "init", &site.path("")])?;
        let roles = ["--role", "sender", "--role", "auditor"];
        let new = ["keys", "new", "--file", &site.path("keys.toml"), "--tenant", TENANT];
        site.key = site.own(&[&new[..], &roles[..]].concat())?;
        write_private(&site.dir.join("index.key"), INDEX_KEY)?;
        write_private(&site.dir.join("sink.toml"), MANIFEST)?;
        Ok(site)
    }

    /// Says what is being done now.
    pub fn tell(&self, what: &str) {
        (self.tell)(what);
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Runs another command of this program.
    fn own(&self, args: &[&str]) -> Result<String, BenchError> {
        let output = Command::new(&self.plan.program).args(args).stdin(Stdio::null()).output();
        let output = output.map_err(failed("this program"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(BenchError::Daemon(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }

    /// Whether the store is the embedded one.
    pub fn is_embedded(&self) -> bool {
        self.plan.store.is_none()
    }

    /// How many transactions a bare store is given at once: where there is one writer, one.
    pub fn writers(&self) -> usize {
        if self.is_embedded() { 1 } else { 2 }
    }

    fn store_file(&self) -> PathBuf {
        self.dir.join(format!("store-{}.db", self.stores))
    }

    fn configure(&self, lane: Lane, ports: (u16, u16)) -> Result<PathBuf, BenchError> {
        let store = match &self.plan.store {
            None => format!("url = {:?}", format!("sqlite:{}", self.store_file().display())),
            Some(url) => {
                // In a file of its own, because it may hold a password.
                write_private(&self.dir.join("store.url"), url)?;
                "url_file = \"store.url\"\nmark_file = \"store.mark\"".to_owned()
            }
        };
        let bounds = match lane {
            Lane::Held => "concurrency = 1\nrate = 0.01".to_owned(),
            Lane::Open(at_once) => format!("concurrency = {at_once}"),
        };
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:{}\"\nadmin_listen = \"127.0.0.1:{}\"\nmax_connections = 4096\n\
             [store]\n{store}\n[node]\nname = \"{}\"\n[vault]\nsealing_keys_file = \"sealing.keys\"\nindex_key_file = \"index.key\"\n\
             [keys]\nfile = \"keys.toml\"\n[log]\nlevel = \"warn\"\n[[tenant]]\nname = \"{TENANT}\"\n\
             [routes]\nsms = [\"{PROVIDER}\"]\n[provider.{PROVIDER}]\nkind = \"http\"\nmanifest_file = \"sink.toml\"\n\
             {bounds}\n[provider.{PROVIDER}.settings]\nbase_url = \"http://127.0.0.1:{}\"\n",
            ports.0,
            ports.1,
            self.node,
            self.sink.port()
        );
        let path = self.dir.join("sendonce.toml");
        write_private(&path, &text)?;
        Ok(path)
    }

    /// Gives up the present store for an empty one. A database is not emptied: what a figure left live in it goes, and
    /// what is finished stays.
    pub async fn fresh(&mut self) -> Result<(), BenchError> {
        if !self.is_embedded() {
            let store = self.open().await?;
            let counts = store.reader().account_counts(None).await.map_err(BenchError::Store)?;
            let tenant = Tenant::parse(TENANT).map_err(|_| BenchError::Answer("a name of the bench"))?;
            let ours = store.reader().account_counts(Some(&tenant)).await.map_err(BenchError::Store)?;
            if counts.notifications != ours.notifications {
                return Err(BenchError::NotOurs);
            }
            ceiling::clear(store.as_ref()).await.map_err(BenchError::Store)?;
            store.close().await;
            return Ok(());
        }
        let file = self.store_file();
        for side in ["", "-wal", "-shm", ".mark", ".lock"] {
            let mut name = file.clone().into_os_string();
            name.push(side);
            // Most of them are not there.
            let _ = fs::remove_file(name);
        }
        self.stores += 1;
        Ok(())
    }

    /// How large the embedded store's file is, in bytes.
    pub fn file_size(&self) -> Option<u64> {
        fs::metadata(self.store_file()).ok().map(|file| file.len())
    }

    /// Opens the present store, while no daemon has it.
    pub async fn open(&self) -> Result<Arc<dyn Store>, BenchError> {
        let config = self.configure(Lane::Held, (1, 2))?;
        let told = |mistakes: Vec<_>| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let settings = Settings::load(&config).map_err(|mistakes| BenchError::Daemon(told(mistakes)))?;
        self.opener.open(&settings).await.map_err(BenchError::Daemon)
    }

    /// Starts the daemon on the present store.
    pub async fn daemon(&self, lane: Lane) -> Result<Daemon, BenchError> {
        let configure = |port, admin| self.configure(lane, (port, admin));
        Daemon::start(&self.plan.program, &self.dir, configure).await
    }

    /// The number of the next event.
    pub fn next_number(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed)
    }

    /// Lets the provider count anew, from the next event on.
    pub fn count_anew(&self) {
        self.sink.reset(self.next_number());
    }

    /// The load that posts new events to a daemon.
    pub fn posting(&self, daemon: &Daemon) -> Load {
        let (connections, numbers) = (self.plan.connections, self.numbers.clone());
        Load { port: daemon.port, connections, maker: posts(&self.key, self.events), numbers }
    }

    /// A request that reads something of the daemon.
    pub fn reading(&self, path: &str, line: &str) -> String {
        get(path, &self.key, line)
    }

    /// Reads something of the daemon as JSON.
    pub async fn read(&self, daemon: &Daemon, path: &str) -> Result<Value, BenchError> {
        let ask = async {
            let mut wire = Wire::connect(daemon.port).await?;
            let status = wire.exchange(self.reading(path, "").as_bytes()).await?;
            let body = serde_json::from_slice(wire.body()).unwrap_or_default();
            Ok::<_, std::io::Error>(if status == 200 { body } else { Value::Null })
        };
        let body = ask.await.map_err(failed("the daemon's answer"))?;
        if body.is_null() { Err(BenchError::Answer("the daemon's answer")) } else { Ok(body) }
    }

    /// Reads something of the daemon that has no end in sight.
    pub async fn stream(&self, daemon: &Daemon, path: &str) -> Result<reqwest::Response, BenchError> {
        let client = reqwest::Client::builder().no_proxy().read_timeout(PATIENCE).build();
        let client = client.map_err(|_| BenchError::Answer("the HTTP client"))?;
        let request = client.get(format!("http://127.0.0.1:{}{path}", daemon.port)).bearer_auth(&self.key);
        let response = request.send().await.map_err(|_| BenchError::Answer("the daemon's answer"))?;
        response.error_for_status().map_err(|_| BenchError::Answer("the daemon's answer"))
    }

    /// Waits until the provider has `count` messages and the outcomes of the last ones, up to `at_once`, are stored.
    pub async fn recorded(&self, daemon: &Daemon, count: u64, at_once: u32) -> Result<(), BenchError> {
        let began = now();
        while self.sink.messages() < count {
            if now() > began + PATIENCE {
                return Err(BenchError::TimedOut("the last message"));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut wire = Wire::connect(daemon.port).await.map_err(failed("the daemon's answer"))?;
        for number in self.sink.recent(at_once as usize) {
            let request = self.reading(&format!("/v1/notifications?event_id={}", self.events.id(number)), "");
            loop {
                wire.exchange(request.as_bytes()).await.map_err(failed("the daemon's answer"))?;
                let status: Value = serde_json::from_slice(wire.body()).unwrap_or_default();
                if status["state"] == "dispatched" {
                    break;
                }
                if now() > began + PATIENCE {
                    return Err(BenchError::TimedOut("the last outcome"));
                }
            }
        }
        Ok(())
    }
}
