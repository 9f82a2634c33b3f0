//! Secrets by file, environment variable or systemd credential, never in the configuration file itself.
//!
//! A secret `x` is given as one of `x_file = "PATH"`, `x_env = "VARIABLE"` or `x_credential = "NAME"`; the last is a file
//! in `$CREDENTIALS_DIRECTORY` (systemd.exec(5), `LoadCredential=`). One final line end, `\n` or `\r\n`, is cut; every
//! other octet belongs to the secret. A secret file must not be accessible to group or others; below
//! `$CREDENTIALS_DIRECTORY`, systemd sees to that.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use super::Context;
use crate::document::Table;

/// The longest secret, in bytes.
pub const MAX_LEN: u64 = 64 * 1024;

/// The ways to give a secret, as suffixes of its key.
pub const SUFFIXES: [&str; 3] = ["_file", "_env", "_credential"];

/// Environment variables that secrets may stand in, and the directory of systemd credentials.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, SecretString>,
    credentials: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process. Variables that are not UTF-8 are passed over.
    pub fn of_process() -> Self {
        let text = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Self::new(text, std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from))
    }

    /// The same, with another directory of credentials.
    #[must_use]
    pub fn with_credentials(self, directory: PathBuf) -> Self {
        Self { credentials: Some(directory), ..self }
    }

    /// An environment of these variables and this credentials directory.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>, credentials: Option<PathBuf>) -> Self {
        Self { variables: variables.into_iter().map(|(k, v)| (k, v.into())).collect(), credentials }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

/// Why a secret could not be read. Never holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The file could not be opened or read.
    #[error("the secret's file cannot be read: {0}")]
    Io(io::ErrorKind),
    /// Group or others may access the file.
    #[error("the secret's file is accessible to group or others; `chmod 600` it")]
    Exposed,
    /// It is a directory, pipe or device.
    #[error("the secret's file is not a regular file")]
    NotAFile,
    /// Longer than [`MAX_LEN`].
    #[error("the secret is longer than 64 KiB")]
    TooLong,
    /// Not UTF-8.
    #[error("the secret is not UTF-8 text")]
    NotText,
    /// Nothing, or only a line end.
    #[error("the secret is empty")]
    Empty,
    /// The variable is not set.
    #[error("the environment variable that is named here is not set")]
    NoVariable,
    /// `$CREDENTIALS_DIRECTORY` is not set.
    #[error("$CREDENTIALS_DIRECTORY is not set; a credential needs systemd's LoadCredential=")]
    NoCredentials,
    /// A credential's name is a path.
    #[error("must be the plain name of a credential")]
    NotAName,
}

/// Cuts one final line end, which editors and `echo` add.
fn cut_line_end(text: &str) -> &str {
    text.strip_suffix('\n').map_or(text, |t| t.strip_suffix('\r').unwrap_or(t))
}

fn checked(text: &str) -> Result<SecretString, SecretError> {
    match cut_line_end(text) {
        "" => Err(SecretError::Empty),
        secret if secret.len() as u64 > MAX_LEN => Err(SecretError::TooLong),
        secret => Ok(secret.into()),
    }
}

/// Reads a secret file that only its owner may access.
///
/// # Errors
/// [`SecretError`] when it cannot be read, is accessible to others, or holds no usable text.
pub fn read_file(path: &Path) -> Result<SecretString, SecretError> {
    read(path, true)
}

fn read(path: &Path, private: bool) -> Result<SecretString, SecretError> {
    let io = |e: io::Error| SecretError::Io(e.kind());
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(SecretError::NotAFile);
    }
    if private && metadata.permissions().mode() & 0o077 != 0 {
        return Err(SecretError::Exposed);
    }
    // One octet more than allowed, and two for the line end, tells too long from long enough; the buffer is of full
    // size from the start so that no copy is left behind by growing.
    let limit = MAX_LEN + 3;
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(limit).unwrap_or(usize::MAX)));
    file.take(limit).read_to_end(&mut bytes).map_err(io)?;
    checked(std::str::from_utf8(&bytes).map_err(|_| SecretError::NotText)?)
}

impl Context<'_> {
    /// The secret `key`, if it is given in one of the three ways. Mistakes are recorded.
    pub(super) fn secret(&self, table: &mut Table, key: &str) -> Option<SecretString> {
        if table.raw(key).is_some() {
            table.wrong(key, literal_hint(key));
        }
        let given: Vec<_> = SUFFIXES.iter().map(|s| (*s, format!("{key}{s}"))).collect();
        let given = given.into_iter().filter_map(|(suffix, name)| Some((suffix, table.str(&name)?, name)));
        let given: Vec<_> = given.collect();
        for (_, _, name) in given.iter().skip(1) {
            table.wrong(name, format!("`{key}` is given twice"));
        }
        let (suffix, source, name) = given.into_iter().next()?;
        self.fetch(suffix, &source).map_err(|e| table.wrong(&name, e.to_string())).ok()
    }

    /// The secret `key`, which must be given; an empty one stands in after a mistake.
    pub(super) fn need_secret(&self, table: &mut Table, key: &str) -> SecretString {
        let given = table.has(key) || SUFFIXES.iter().any(|s| table.has(&format!("{key}{s}")));
        let secret = self.secret(table, key);
        if !given {
            table.wrong(key, format!("is required, as `{key}_file`, `{key}_env` or `{key}_credential`"));
        }
        secret.unwrap_or_default()
    }

    fn fetch(&self, suffix: &str, source: &str) -> Result<SecretString, SecretError> {
        match suffix {
            "_file" => {
                let path = self.base.join(source);
                let is_credential = self.env.credentials.as_ref().is_some_and(|c| below(&path, c));
                read(&path, !is_credential)
            }
            "_env" => checked(self.env.variables.get(source).ok_or(SecretError::NoVariable)?.expose_secret()),
            _ => {
                let directory = self.env.credentials.as_ref().ok_or(SecretError::NoCredentials)?;
                if source.is_empty() || source.contains('/') || source.starts_with('.') {
                    return Err(SecretError::NotAName);
                }
                read(&directory.join(source), false)
            }
        }
    }
}

/// Whether `path` truly lies below `directory`, links and `..` resolved.
fn below(path: &Path, directory: &Path) -> bool {
    matches!((path.canonicalize(), directory.canonicalize()), (Ok(p), Ok(d)) if p.starts_with(&d))
}

/// What to write instead of a literal secret.
pub fn literal_hint(key: &str) -> String {
    format!("is a secret and must not stand in this file; give `{key}_file`, `{key}_env` or `{key}_credential` instead")
}
