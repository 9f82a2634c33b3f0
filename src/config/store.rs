//! `[store]`: where rows are kept.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use super::Context;
use super::secret::SUFFIXES;
use super::server::is_loopback;
use crate::document::Table;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// What a PostgreSQL URL may say after `?`: what sqlx takes, and nothing that would be passed over in silence.
const PARAMETERS: [&str; 11] = [
    "host",
    "hostaddr",
    "port",
    "user",
    "password",
    "dbname",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "options",
];
/// sqlx treats `allow` as `disable`.
const SSL_MODES: [&str; 5] = ["disable", "prefer", "require", "verify-ca", "verify-full"];

/// `[store]`.
#[derive(Clone, Debug)]
pub struct Store {
    /// The database.
    pub place: StorePlace,
    /// The file in which this node remembers how far the store had come. It must not be part of the store's backup. From
    /// `mark_file`; beside a SQLite file by default, required with PostgreSQL.
    pub mark_file: PathBuf,
    /// How long a write waits for another one's lock, 100 ms to 1 min. Default 5 s.
    pub busy_timeout: Duration,
}

/// Which database. From `url`, or where that holds a password from `url_file`, `url_env` or `url_credential`.
#[derive(Clone, Debug)]
pub enum StorePlace {
    /// `sqlite:PATH`.
    Sqlite(PathBuf),
    /// `postgres://USER@HOST:PORT/DATABASE?sslmode=verify-full`, and a password as `password_file`, `password_env` or
    /// `password_credential`.
    Postgres {
        /// The whole URL.
        url: SecretString,
        /// Stands above a password in the URL.
        password: Option<SecretString>,
    },
}

impl Store {
    pub(super) fn read(mut t: Table, context: &Context<'_>) -> Self {
        let elsewhere = SUFFIXES.iter().any(|s| t.has(&format!("url{s}")));
        let url: SecretString = match elsewhere {
            true => context.secret(&mut t, "url").unwrap_or_default(),
            false => t.need_str("url").into(),
        };
        let password = context.secret(&mut t, "password");
        let place = place(&mut t, &url, password, !elsewhere, context);
        let mark_file = match (context.path(&mut t, "mark_file"), &place) {
            (Some(path), _) => path,
            (None, StorePlace::Sqlite(path)) => {
                let mut mark = path.clone().into_os_string();
                mark.push(".mark");
                mark.into()
            }
            (None, StorePlace::Postgres { .. }) => {
                t.wrong("mark_file", "is required with PostgreSQL: a file of this node, kept apart from the backups");
                PathBuf::new()
            }
        };
        let busy_timeout = t.duration("busy_timeout", 100 * MILLISECOND..=MINUTE).unwrap_or(5 * SECOND);
        t.finish();
        Self { place, mark_file, busy_timeout }
    }

    /// A store in a SQLite file, with the defaults of everything else.
    pub(super) fn sqlite(path: PathBuf) -> Self {
        let mut mark = path.clone().into_os_string();
        mark.push(".mark");
        Self { place: StorePlace::Sqlite(path), mark_file: mark.into(), busy_timeout: 5 * SECOND }
    }
}

fn place(
    t: &mut Table,
    url: &SecretString,
    password: Option<SecretString>,
    literal: bool,
    context: &Context<'_>,
) -> StorePlace {
    let text = url.expose_secret();
    if let Some(rest) = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://")) {
        if let Err(mistake) = check(rest, literal) {
            t.wrong("url", mistake);
        }
        return StorePlace::Postgres { url: url.clone(), password };
    }
    let path = match text.split_once(':') {
        Some(("sqlite", path)) => path.strip_prefix("//").unwrap_or(path),
        _ => "",
    };
    if !text.is_empty() && (path.is_empty() || path.contains(['?', '#']) || path == ":memory:") {
        t.wrong("url", "must be \"sqlite:\" and the path of a file, or \"postgres://USER@HOST:PORT/DATABASE\"");
    } else if password.is_some() {
        t.wrong("password", "is for PostgreSQL");
    }
    StorePlace::Sqlite(context.base.join(path))
}

/// Checks what follows the scheme. `literal`: it stands in the configuration file itself.
fn check(rest: &str, literal: bool) -> Result<(), &'static str> {
    let Parts { user, database, query, .. } = Parts::of(rest);
    let mut named = !database.is_empty();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "sslmode" if !SSL_MODES.contains(&value) => {
                return Err("`sslmode` must be disable, prefer, require, verify-ca or verify-full");
            }
            "password" if literal => return Err(PASSWORD_IN_FILE),
            "dbname" => named |= !value.is_empty(),
            _ if PARAMETERS.contains(&key) => {}
            _ => {
                return Err("knows after `?` only host, hostaddr, port, user, dbname, sslmode, sslrootcert, sslcert, \
                            sslkey and options");
            }
        }
    }
    match () {
        () if literal && user.contains(':') => Err(PASSWORD_IN_FILE),
        () if rest.contains('#') => Err("must not have a fragment"),
        () if !named => Err("must name a database, as in \"postgres://USER@HOST:PORT/DATABASE\""),
        () => Ok(()),
    }
}

const PASSWORD_IN_FILE: &str = "holds a password, which must not stand in this file; give `password_file`, `password_env` or \
     `password_credential`, or the whole URL as `url_file`, `url_env` or `url_credential`";

/// A URL after its scheme.
struct Parts<'a> {
    user: &'a str,
    host: &'a str,
    database: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    fn of(rest: &'a str) -> Self {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        Self { user, host, database, query }
    }
}

/// Whether what goes to the server may be read on the way.
pub(super) fn may_be_read_on_the_way(place: &StorePlace) -> bool {
    let StorePlace::Postgres { url, .. } = place else { return false };
    let rest = url.expose_secret().split_once("://").map_or("", |(_, rest)| rest);
    let Parts { host, query, .. } = Parts::of(rest);
    let parameter = |key: &str| query.split('&').filter_map(|pair| pair.split_once('=')).rfind(|(k, _)| *k == key);
    let host = parameter("host").map_or(host, |(_, host)| host);
    let name = host
        .strip_prefix('[')
        .and_then(|h| h.split_once(']'))
        .map_or_else(|| host.split_once(':').map_or(host, |(name, _)| name), |(inner, _)| inner);
    let local =
        name.is_empty() || name.starts_with('/') || name.to_ascii_lowercase().starts_with("%2f") || is_loopback(name);
    let verified = parameter("sslmode").is_some_and(|(_, mode)| matches!(mode, "verify-ca" | "verify-full"));
    !local && !verified
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Environment;
    use crate::document::Document;

    /// Reads a `[store]`, or tells its mistakes.
    fn read(text: &str) -> Result<Store, Vec<String>> {
        let variables =
            [("URL", "postgres://u:CANARY-7f3a@db.example/x"), ("ODD", "mysql://u:CANARY-7f3a@db"), ("PW", "pa")];
        let env = Environment::new(variables.map(|(k, v)| (k.to_owned(), v.to_owned())), None);
        let context = Context { base: Path::new("/etc/sendonce"), env: &env };
        let mut root = Document::parse("c.toml", text).expect("TOML").into_table();
        let mistakes = root.mistakes();
        let store = Store::read(root.section("store"), &context);
        mistakes.verdict(store).map_err(|told| told.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_postgres_store_is_read_with_its_password_from_elsewhere() {
        for text in [
            "[store]\nurl = \"postgres://u@db:5432/x?sslmode=verify-full&sslrootcert=/ca.pem\"\npassword_env = \"PW\"\nmark_file = \"m\"",
            "[store]\nurl_env = \"URL\"\nmark_file = \"m\"",
            "[store]\nurl = \"postgresql:///x?host=/run/postgresql\"\nmark_file = \"m\"",
        ] {
            let store = read(text).expect("valid");
            assert_eq!(store.mark_file, Path::new("/etc/sendonce/m"));
            let StorePlace::Postgres { url, .. } = &store.place else { panic!("{text}") };
            assert!(url.expose_secret().starts_with("postgres"), "{text}");
            assert!(!format!("{store:?}").contains("CANARY"));
        }
    }

    #[test]
    fn what_is_wrong_with_a_store_is_told_without_its_url() {
        let cases = [
            ("url = \"postgres://u:CANARY-7f3a@db/x\"", "store.url: holds a password"),
            ("url = \"postgres://u@db/x?password=CANARY-7f3a\"", "store.url: holds a password"),
            ("url = \"postgres://u@db/\"", "store.url: must name a database"),
            ("url = \"postgres://u@db/x?sslmode=allow\"", "store.url: `sslmode` must be"),
            ("url = \"postgres://u@db/x?sslmod=CANARY-7f3a\"", "store.url: knows after `?` only"),
            ("url_env = \"ODD\"", "store.url: must be \"sqlite:\""),
            ("url = \"CANARY-7f3a\"", "store.url: must be \"sqlite:\""),
            ("url = \"sqlite:s.db\"\npassword_env = \"PW\"", "store.password: is for PostgreSQL"),
            ("url = \"postgres://u@db/x\"\npassword = \"CANARY-7f3a\"", "store.password: is a secret"),
        ];
        for (text, wanted) in cases {
            let told = read(&format!("[store]\nmark_file = \"m\"\n{text}")).expect_err("mistakes");
            assert!(told.len() == 1 && told[0].contains(wanted) && !told[0].contains("CANARY"), "{wanted}: {told:?}");
        }
    }

    #[test]
    fn only_a_verified_or_local_connection_cannot_be_read_on_the_way() {
        let place = |url: &str| StorePlace::Postgres { url: url.into(), password: None };
        for url in [
            "postgres://u@db/x?sslmode=verify-full",
            "postgres://u@127.0.0.1:5432/x",
            "postgres://u@[::1]:5432/x",
            "postgres:///x?host=/run/postgresql",
            "postgres://u@%2Frun%2Fpg:5432/x",
        ] {
            assert!(!may_be_read_on_the_way(&place(url)), "{url}");
        }
        for url in ["postgres://u@db/x", "postgres://u@db:1/x?sslmode=require", "postgres:///x?host=db.example"] {
            assert!(may_be_read_on_the_way(&place(url)), "{url}");
        }
        assert!(!may_be_read_on_the_way(&StorePlace::Sqlite("s.db".into())));
    }
}
