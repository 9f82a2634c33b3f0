//! The sections that say where things are: `[server]`, `[node]`, `[vault]`, `[keys]`, `[templates]`, `[log]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::Context;
use crate::document::Table;
use crate::domain::ids::NodeName;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Where a listener's socket comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Bound by us.
    Address(SocketAddr),
    /// Handed over by systemd (socket activation), under the name `api` or `admin`.
    Systemd,
}

impl Listen {
    /// `port` of 127.0.0.1.
    pub fn loopback(port: u16) -> Self {
        Self::Address(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// The address to bind; `None` for a socket that systemd hands over.
    pub const fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(address),
            Self::Systemd => None,
        }
    }

    fn read(table: &mut Table, key: &str) -> Option<Self> {
        let wanted = "must be an IP address and a port, such as \"127.0.0.1:8025\", or \"systemd\"";
        let read = |text: &str| match text.parse::<SocketAddr>() {
            _ if text == "systemd" => Ok(Self::Systemd),
            Ok(address) if address.port() == 0 => Err("needs a port other than 0"),
            Ok(address) => Ok(Self::Address(address)),
            Err(_) => Err(wanted),
        };
        table.parsed(key, read)
    }
}

/// `[server]`.
#[derive(Clone, Debug)]
pub struct Server {
    /// The API. Default `127.0.0.1:8025`.
    pub listen: Listen,
    /// Health, readiness and metrics. Default `127.0.0.1:8026`.
    pub admin_listen: Listen,
    /// The URL under which providers and apps reach the API, without a final slash; `https` unless it is loopback.
    /// Receipts need it. Default none.
    pub public_url: Option<String>,
    /// The longest request body in bytes, 1 KiB to 1 MiB. Default 16 KiB.
    pub body_limit: usize,
    /// Open connections, 1 to 100 000; more wait to be accepted. Default 1024.
    pub max_connections: usize,
    /// How long a client may take over its request headers, 1 s to 1 min. Default 10 s.
    pub header_timeout: Duration,
    /// How long a client may take over its request body, 1 s to 5 min, not less than `header_timeout`. Default 30 s.
    pub request_timeout: Duration,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: Listen::loopback(8025),
            admin_listen: Listen::loopback(8026),
            public_url: None,
            body_limit: 16 * 1024,
            max_connections: 1024,
            header_timeout: 10 * SECOND,
            request_timeout: 30 * SECOND,
        }
    }
}

impl Server {
    pub(super) fn read(mut t: Table) -> Self {
        let d = Self::default();
        let server = Self {
            listen: Listen::read(&mut t, "listen").unwrap_or(d.listen),
            admin_listen: Listen::read(&mut t, "admin_listen").unwrap_or(d.admin_listen),
            public_url: t.parsed("public_url", |url| check_url(url).map(|()| url.trim_end_matches('/').to_owned())),
            body_limit: t.int("body_limit", 1024..=1024 * 1024).map_or(d.body_limit, |n: u32| n as usize),
            max_connections: t.int("max_connections", 1..=100_000).map_or(d.max_connections, |n: u32| n as usize),
            header_timeout: t.duration("header_timeout", SECOND..=MINUTE).unwrap_or(d.header_timeout),
            request_timeout: t.duration("request_timeout", SECOND..=5 * MINUTE).unwrap_or(d.request_timeout),
        };
        if server.request_timeout < server.header_timeout {
            t.wrong("request_timeout", "must not be shorter than `header_timeout`");
        }
        if server.listen == server.admin_listen && server.listen != Listen::Systemd {
            t.wrong("admin_listen", "must not be the same as `listen`");
        }
        t.finish();
        server
    }
}

/// Checks that `url` is an absolute `https` URL without user, query and fragment; `http` only to this machine.
pub(super) fn check_url(url: &str) -> Result<(), &'static str> {
    let parsed: http::Uri = url.parse().map_err(|_| "must be a URL")?;
    let (Some(scheme), Some(authority)) = (parsed.scheme_str(), parsed.authority()) else {
        return Err("must be a URL that begins with https://");
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    match scheme {
        _ if authority.as_str().contains('@') => Err("must not hold a user or password"),
        _ if url.contains(['?', '#']) => Err("must not have a query or fragment"),
        _ if authority.port_u16() == Some(0) => Err("needs a port other than 0"),
        "https" => Ok(()),
        "http" if is_loopback(host) => Ok(()),
        _ => Err("must begin with https:// (http:// is only for this machine itself)"),
    }
}

/// Whether `host` can only be this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// `[node]`.
#[derive(Clone, Debug)]
pub struct Node {
    /// What this node is called among those that share the store; each needs a name of its own, the same from one start
    /// to the next. Default none, which means the host's name.
    pub name: Option<NodeName>,
    /// How long a node may be silent before others take it for dead, 3 s to 5 min. Default 15 s.
    pub lease: Duration,
}

impl Default for Node {
    fn default() -> Self {
        Self { name: None, lease: 15 * SECOND }
    }
}

impl Node {
    pub(super) fn read(mut t: Table) -> Self {
        let d = Self::default();
        let node = Self {
            name: t.parsed("name", NodeName::parse),
            lease: t.duration("lease", 3 * SECOND..=5 * MINUTE).unwrap_or(d.lease),
        };
        t.finish();
        node
    }
}

/// `[vault]`: the text of two key files.
#[derive(Clone, Debug)]
pub struct VaultKeys {
    /// Lines of `ID BASE64`; the first seals, all open. Required, as `sealing_keys_file`, `_env` or `_credential`.
    pub sealing_keys: SecretString,
    /// One such line, the same for the life of the store. Required, as `index_key_file`, `_env` or `_credential`.
    pub index_key: SecretString,
}

impl VaultKeys {
    pub(super) fn read(mut t: Table, context: &Context<'_>) -> Self {
        let keys = Self {
            sealing_keys: context.need_secret(&mut t, "sealing_keys"),
            index_key: context.need_secret(&mut t, "index_key"),
        };
        t.finish();
        keys
    }
}

/// `[keys]`.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The file of API keys, which `sendonce keys` writes. It holds hashes only. Required.
    pub file: PathBuf,
}

impl Keys {
    pub(super) fn read(mut t: Table, context: &Context<'_>) -> Self {
        let file = context.need_path(&mut t, "file");
        t.finish();
        Self { file }
    }
}

/// `[templates]`.
#[derive(Clone, Debug, Default)]
pub struct Templates {
    /// A directory with the templates, instead of those that are built in. Default none.
    pub dir: Option<PathBuf>,
}

impl Templates {
    pub(super) fn read(mut t: Table, context: &Context<'_>) -> Self {
        let dir = context.path(&mut t, "dir");
        if dir.as_ref().is_some_and(|d| !d.is_dir()) {
            t.wrong("dir", "is not a directory that can be read");
        }
        t.finish();
        Self { dir }
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Pretty,
}

/// `[log]`.
#[derive(Clone, Debug)]
pub struct Log {
    /// Default `json`.
    pub format: LogFormat,
    /// Of this program's own lines: `error`, `warn`, `info`, `debug` or `trace`; `RUST_LOG` stands above it. Default
    /// `info`.
    pub level: &'static str,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Json, level: "info" }
    }
}

impl Log {
    pub(super) fn read(mut t: Table) -> Self {
        let default = Self::default();
        let levels = ["error", "warn", "info", "debug", "trace"].map(|l| (l, l));
        let log = Self {
            format: t
                .one_of("format", &[("json", LogFormat::Json), ("pretty", LogFormat::Pretty)])
                .unwrap_or(default.format),
            level: t.one_of("level", &levels).unwrap_or(default.level),
        };
        t.finish();
        log
    }
}
