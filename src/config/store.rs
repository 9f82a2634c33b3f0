//! `[store]`: where rows are kept.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::Context;
use super::server::is_loopback;
use crate::document::Table;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// `[store]`.
#[derive(Clone, Debug)]
pub struct Store {
    /// Which store, from `url`. Required.
    pub place: StorePlace,
    /// How long a write waits for a lock, 100 ms to 1 min. Default 5 s.
    pub busy_timeout: Duration,
}

/// Which store.
#[derive(Clone, Debug)]
pub enum StorePlace {
    /// One file, from `url = "sqlite:PATH"`.
    Sqlite(PathBuf),
    /// A server that several nodes share, from `url = "postgres://USER@HOST/DATABASE"`.
    Postgres {
        /// The URL without a password; encrypted unless the server is this machine.
        url: SecretString,
        /// From `password_file`, `password_env` or `password_credential`.
        password: Option<SecretString>,
        /// A small file of this node, on a disk of its own and not part of the database's backup, that remembers how far
        /// the store had come. Required.
        mark: PathBuf,
    },
}

impl Store {
    pub(super) fn read(mut t: Table, context: &Context<'_>) -> Self {
        let url = t.need_str("url");
        let place = if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            if let Err(mistake) = check_postgres(&url) {
                t.wrong("url", mistake);
            }
            let password = context.secret(&mut t, "password");
            StorePlace::Postgres { url: url.into(), password, mark: context.need_path(&mut t, "mark") }
        } else {
            let path = match url.split_once(':') {
                Some(("sqlite", path)) => path.strip_prefix("//").unwrap_or(path),
                _ => "",
            };
            if !url.is_empty() && (path.is_empty() || path.contains(['?', '#']) || path == ":memory:") {
                t.wrong("url", "must be \"sqlite:\" and the path of a file, or \"postgres://USER@HOST/DATABASE\"");
            }
            StorePlace::Sqlite(context.base.join(path))
        };
        let busy_timeout = t.duration("busy_timeout", 100 * MILLISECOND..=MINUTE).unwrap_or(5 * SECOND);
        t.finish();
        Self { place, busy_timeout }
    }
}

/// No password in the file, and no server on a network without encryption. The rest is for the driver to judge.
fn check_postgres(url: &str) -> Result<(), &'static str> {
    let rest = url.split_once("://").ok_or("must begin with postgres://")?.1;
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = place.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let parameter = |name: &str| parameters.split('&').filter_map(|p| p.split_once('=')).rfind(|p| p.0 == name);
    if user.contains(':') || parameter("password").is_some() {
        return Err("must not hold a password; give it as `password_file`, `password_env` or `password_credential`");
    }
    let host = parameter("host").map_or(host, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_socket = host.starts_with('/') || host.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("%2f"));
    let encrypted = parameter("sslmode").is_some_and(|p| matches!(p.1, "require" | "verify-ca" | "verify-full"));
    if host.is_empty() || is_socket || is_loopback(host) || encrypted {
        Ok(())
    } else {
        Err("needs `sslmode=verify-full` (or verify-ca, require): the server is on another machine")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_elsewhere_must_be_spoken_to_in_secret_and_no_password_stands_in_the_url() {
        for url in [
            "postgres://u@localhost/d",
            "postgres://u@[::1]:5432/d",
            "postgres://u@%2Ftmp%2Fpg:5433/d",
            "postgres:///d?host=/run/postgresql",
            "postgresql://u@db.example.org/d?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        ] {
            assert_eq!(check_postgres(url), Ok(()), "{url}");
        }
        for url in [
            "postgres://u:p@localhost/d",
            "postgres://u@localhost/d?password=p",
            "postgres://u@db.example.org/d",
            "postgres://u@db.example.org/d?sslmode=prefer",
            "postgres://u@localhost/d?host=db.example.org",
            "postgres:d",
        ] {
            assert!(check_postgres(url).is_err(), "{url}");
        }
    }
}
