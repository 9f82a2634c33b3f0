//! What a daemon under test is configured with.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::support::postgres::Database;

/// What the test's HTTP provider offers beyond sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// `GET /messages?ref=…`; two misses authorise a resend at once.
    Lookup,
    /// `GET /list?since=…&until=…&offset=…`, three messages a page.
    List,
    /// The header `Idempotency-Key`; status 200 says that the first request stands.
    Dedupe,
    /// JSON with `ref`, `id`, `status` and, for messages of several parts, `part` and `parts`.
    Receipts,
    /// The same, but receipts name a message by the provider's id alone.
    ReceiptsById,
}

/// Delays so short that a repeat which should not be would come before any test looks.
pub const EAGER: &str = "retry = { first = \"10ms\", factor = 1.0, cap = \"10ms\" }";

/// What a daemon is started with.
pub struct Plan {
    sections: BTreeMap<&'static str, String>,
    more: String,
    pub(super) files: Vec<(String, String)>,
    pub(super) env: Vec<(String, String)>,
    store: Option<PathBuf>,
    postgres: Option<String>,
    activated: bool,
}

impl Plan {
    /// Short delays, and no provider yet.
    pub fn new() -> Self {
        let delays = "retry = { first = \"50ms\", factor = 1.5, cap = \"300ms\", jitter = 0.3 }\n\
                      ask = { first = \"50ms\", factor = 1.5, cap = \"300ms\", jitter = 0.3 }\n\
                      transit_sms = \"0s\"\ntransit_email = \"0s\"";
        Self::plain().section("dispatch", delays)
    }

    /// The product's own delays, and no provider yet.
    pub fn plain() -> Self {
        let sections = BTreeMap::new();
        let (more, files, env) = (String::new(), vec![], vec![]);
        let plan = Self { sections, more, files, env, store: None, postgres: None, activated: false };
        plan.section("dispatch", "sweep_every = \"100ms\"")
    }

    /// Adds lines to a section, such as `admission`, `dispatch`, `store`, `routes` or `templates`.
    pub fn section(mut self, name: &'static str, lines: &str) -> Self {
        let section = self.sections.entry(name).or_default();
        section.push_str(lines);
        section.push('\n');
        self
    }

    /// Adds whole sections, such as `[provider.relay]`; `{dir}` stands for the daemon's directory.
    pub fn toml(mut self, text: &str) -> Self {
        self.more.push_str(text);
        self.more.push('\n');
        self
    }

    /// Adds a file to the daemon's directory, which only its owner may read.
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Adds a variable to its environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an SMS provider at `url` with the test's own manifest: calls end after a second.
    pub fn http(self, name: &str, url: &str, strategies: &[Strategy]) -> Self {
        self.http_with(name, url, strategies, "timeout = \"1s\"")
    }

    /// The same with `lines` of the provider's section instead of the short time-out.
    pub fn http_with(self, name: &str, url: &str, strategies: &[Strategy], lines: &str) -> Self {
        let file = format!("{name}.manifest.toml");
        let section = format!(
            "[provider.{name}]\nkind = \"http\"\nmanifest_file = \"{file}\"\nconnect_timeout = \"500ms\"\n{lines}\n\
             [provider.{name}.settings]\nbase_url = \"{url}\"\naccount = \"AC1\"\nreceipt_secret_file = \"receipt.secret\"\n"
        );
        self.file(&file, &manifest(strategies)).toml(&section)
    }

    /// Adds the sandbox as `sandbox`, and routes text messages to it; its outbox is the file `outbox`.
    pub fn sandbox(self) -> Self {
        let section = "[provider.sandbox]\nkind = \"sandbox\"\nchannel = \"sms\"\noutbox = \"outbox\"\n";
        self.toml(section).sms(&["sandbox"])
    }

    /// Adds a mail relay as `relay`, with these lines of its section, and routes mail to it.
    pub fn relay(self, lines: &str) -> Self {
        let section = "[provider.relay]\nkind = \"smtp\"\nfrom = \"no-reply@shop.example\"\n";
        self.toml(&format!("{section}{lines}\n")).email(&["relay"])
    }

    /// The same in clear, at this port of the machine, with more lines.
    pub fn relay_in_clear(self, port: u16, more: &str) -> Self {
        self.relay(&format!("host = \"127.0.0.1\"\nport = {port}\ntls = \"none\"\n{more}"))
    }

    /// The route of text messages.
    pub fn sms(self, providers: &[&str]) -> Self {
        self.section("routes", &format!("sms = {providers:?}"))
    }

    /// The route of mail.
    pub fn email(self, providers: &[&str]) -> Self {
        self.section("routes", &format!("email = {providers:?}"))
    }

    /// Another place for the store's file.
    pub fn store(mut self, file: &Path) -> Self {
        self.store = Some(file.to_owned());
        self
    }

    /// A store in PostgreSQL instead of a file.
    pub fn postgres(mut self, database: &Database) -> Self {
        self.postgres = Some(database.url());
        self
    }

    /// The listeners come from the supervisor.
    pub fn activated(mut self) -> Self {
        self.activated = true;
        self
    }

    /// The text of the configuration of a daemon in `dir`.
    pub(super) fn configuration(&self, dir: &Path, tenant: &str, api: SocketAddr, admin: SocketAddr) -> String {
        let listen = |address: SocketAddr| if self.activated { "systemd".to_owned() } else { address.to_string() };
        let file = self.store.clone().unwrap_or_else(|| dir.join("sendonce.db"));
        let store = match &self.postgres {
            Some(url) => format!("url = \"{url}\"\nmark_file = \"sendonce.mark\"\n"),
            None => format!("url = \"sqlite:{}\"\n", file.display()),
        };
        let mut sections = self.sections.clone();
        for (name, lines) in [
            ("server", format!("listen = \"{}\"\nadmin_listen = \"{}\"\n", listen(api), listen(admin))),
            ("server", format!("public_url = \"http://{api}\"\n")),
            ("store", store),
            ("vault", "sealing_keys_file = \"sealing.keys\"\nindex_key_file = \"index.key\"\n".to_owned()),
            ("keys", "file = \"keys.toml\"\n".to_owned()),
        ] {
            sections.entry(name).or_default().push_str(&lines);
        }
        let mut text: String = sections.iter().map(|(name, lines)| format!("[{name}]\n{lines}\n")).collect();
        let more = self.more.replace("{dir}", &dir.display().to_string());
        text.push_str(&format!("[[tenant]]\nname = \"{tenant}\"\n\n{more}"));
        text
    }
}

/// The manifest of the test's provider.
fn manifest(strategies: &[Strategy]) -> String {
    let mut text = r#"
name = "probe"
channel = "sms"
page = "https://provider.example/docs"
[settings]
base_url = {}
account = { account = true }
receipt_secret = { secret = true }
[send]
method = "POST"
url = "{{ base_url }}/messages"
verdict = "status"
message_id = "/id"
answers = [
  { status = 202, code = "/error", any = ["bad_number"], is = "refused.message", reason = "bad_address" },
  { status = [201, 202], is = "accepted" },
  { status = 200, is = "FIRST" },
  { status = 400, is = "refused.message" },
  { status = 401, is = "refused.account", reason = "bad_credentials" },
  { status = 402, is = "refused.account", reason = "no_credit" },
  { status = 403, is = "refused.account" },
  { status = 429, is = "not_sent", reason = "rate_limited" },
]
[send.json]
to = "{{ to }}"
text = "{{ text }}"
ref = "{{ reference }}"
"#
    .replace("FIRST", if strategies.contains(&Strategy::Dedupe) { "first_stands" } else { "accepted" });
    for strategy in strategies {
        text.push_str(match strategy {
            Strategy::Lookup => {
                "[lookup]\nmethod = \"GET\"\nurl = \"{{ base_url }}/messages?ref={{ reference }}\"\nfound = \"/messages\"\n\
                 match = { \"/ref\" = \"{{ reference }}\" }\nmessage_id = \"/id\"\nsettle_after = \"100ms\"\n\
                 not_found_needed = 2\ntrust_miss = true\nwindow = \"1h\"\n"
            }
            Strategy::List => {
                "[statement]\nmethod = \"GET\"\n\
                 url = \"{{ base_url }}/list?since={{ since }}&until={{ until }}&offset={{ offset }}\"\nfound = \"/messages\"\n\
                 full_page = 3\nreference = \"/ref\"\nmessage_id = \"/id\"\nat = \"/at\"\nwindow = \"30d\"\n\
                 statuses = [{ at = \"/status\", any = [\"delivered\"], is = \"delivered\" }]\n"
            }
            Strategy::Dedupe => {
                "[dedupe]\nheader = \"Idempotency-Key\"\nwindow = \"1h\"\nsettle_after = \"100ms\"\ncovers = \"any\"\n\
                 identical_body = true\n"
            }
            Strategy::Receipts | Strategy::ReceiptsById => {
                "[receipt]\nsignature = \"secret-path\"\nsecrets = [\"receipt_secret\"]\nformat = \"json\"\n\
                 reference = \"/ref\"\nmessage_id = \"/id\"\npart = \"/part\"\nparts = \"/parts\"\nparts_from = 1\nstatuses = [\n\
                 { at = \"/status\", any = [\"delivered\"], is = \"delivered\" },\n\
                 { at = \"/status\", any = [\"failed\"], is = \"undelivered\" },\n\
                 { at = \"/status\", any = [\"sent\"], is = \"progress\" } ]\n"
            }
        });
    }
    if strategies.contains(&Strategy::ReceiptsById) {
        text = text.replace("reference = \"/ref\"\n", "");
    }
    text
}
