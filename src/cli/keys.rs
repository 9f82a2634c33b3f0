//! `sendonce keys`: API keys, and the vault's keys.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use zeroize::Zeroizing;

use super::{Exit, Failure, show};
use crate::clock::{Clock as _, SystemClock};
use crate::config::secret;
use crate::domain::ids::Tenant;
use crate::keys::{KeyFile, KeyRingError, Role, replace_file};
use crate::vault::{Vault, new_key_line};

/// `sendonce keys …`.
#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Make an API key and print it; it is shown this once and kept nowhere
    New {
        /// Whose rows its holder may see
        #[arg(long, value_parser = Tenant::parse)]
        tenant: Tenant,
        /// What its holder may do: sender, auditor or operator; repeatable
        #[arg(long, required = true, value_parser = role)]
        role: Vec<Role>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        file: ApiKeys,
    },
    /// List API keys, without the keys
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        file: ApiKeys,
    },
    /// Revoke an API key; the daemon sees it without a restart
    Revoke {
        /// The key's id, the part between `sok_` and the secret
        id: String,
        #[command(flatten)]
        file: ApiKeys,
    },
    /// Make the vault's two key files, sealing.keys and index.key
    Init {
        /// Where to put them; made for its owner alone when it is not there
        dir: PathBuf,
    },
    /// Put a new sealing key on top of a sealing-key file; the older ones still open what they sealed
    Rotate {
        /// The sealing-key file
        file: PathBuf,
        /// Id of the new key; today's date by default, with a number where that is taken
        #[arg(long)]
        id: Option<String>,
    },
}

/// Where API keys are.
#[derive(Debug, Args)]
pub(super) struct ApiKeys {
    /// The file of API keys
    #[arg(long, env = "SENDONCE_KEYS_FILE", value_name = "FILE", default_value = "/var/lib/sendonce/keys.toml")]
    file: PathBuf,
}

fn role(text: &str) -> Result<Role, &'static str> {
    Role::from_code(text).ok_or("sender, auditor or operator")
}

fn ring_failure(e: KeyRingError) -> Failure {
    match e {
        KeyRingError::Mistakes(mistakes) => Failure::mistakes(&mistakes),
        KeyRingError::Writable => Failure::new(Exit::Mistakes, e.to_string()),
        KeyRingError::Io(..) | KeyRingError::NoSuchKey => Failure::failed(e.to_string()),
    }
}

pub(super) fn run(command: KeysCommand) -> Result<(), Failure> {
    match command {
        KeysCommand::New { tenant, role, json, file } => {
            let issued = KeyFile::new(file.file).issue(&tenant, &role, SystemClock.now()).map_err(ring_failure)?;
            if json {
                return show::answer(&json!({ "id": issued.id, "key": issued.text.as_str() }), true);
            }
            show::line(&issued.text)
        }
        KeysCommand::List { json, file } => list(KeyFile::new(file.file), json),
        KeysCommand::Revoke { id, file } => {
            KeyFile::new(file.file).revoke(&id).map_err(ring_failure)?;
            show::line(&format!("{id} is revoked"))
        }
        KeysCommand::Init { dir } => {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
            made.map_err(|e| Failure::failed(format!("{} cannot be made: {}", dir.display(), e.kind())))?;
            create(&dir.join("sealing.keys"), &new_key_line(&today()))?;
            create(&dir.join("index.key"), &new_key_line("index"))
        }
        KeysCommand::Rotate { file, id } => rotate(&file, id),
    }
}

fn list(file: KeyFile, json: bool) -> Result<(), Failure> {
    let entries = file.entries().map_err(ring_failure)?;
    if entries.is_empty() && !json {
        return show::line("none");
    }
    let entries = entries.iter().map(|e| {
        let roles: Vec<_> = e.principal.roles.iter().map(|r| r.code()).collect();
        json!({ "id": e.principal.id, "tenant": e.principal.tenant, "roles": roles, "created_at": e.created_at })
    });
    show::answer(&entries.collect(), json)
}

/// The day as an id of a key: `2026-11-29`.
fn today() -> String {
    SystemClock.now().to_string().chars().take(10).collect()
}

/// Writes a new file for its owner alone; one that is there is never touched.
fn create(path: &Path, text: &str) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    match write() {
        Ok(()) => show::line(&format!("{} is made", path.display())),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            Err(Failure::failed(format!("{} is there already; it stays as it is", path.display())))
        }
        Err(e) => Err(Failure::failed(format!("{} cannot be made: {}", path.display(), e.kind()))),
    }
}

/// Without an `id` the new key is named after today, with a number when there is one of today.
fn rotate(path: &Path, id: Option<String>) -> Result<(), Failure> {
    let wrong = |e: &dyn std::fmt::Display| Failure::new(Exit::Mistakes, format!("{}: {e}", path.display()));
    let old: SecretString = secret::read_file(path).map_err(|e| wrong(&e))?;
    Vault::parse(old.expose_secret()).map_err(|e| wrong(&e))?;
    let ids = id.map_or_else(|| (1..100).map(numbered).collect(), |id| vec![id]);
    let with = |id: &String| {
        let new = Zeroizing::new(format!("{}{}\n", new_key_line(id).as_str(), old.expose_secret()));
        Vault::parse(&new).is_ok().then_some(new)
    };
    let found = ids.iter().find_map(|id| Some((id, with(id)?)));
    let taken = "--id must be new to the file: 1 to 32 characters of a-z 0-9 _ -";
    let (id, new) = found.ok_or_else(|| Failure::new(Exit::Usage, taken))?;
    replace_file(path, new.as_bytes())
        .map_err(|e| Failure::failed(format!("{} cannot be written: {}", path.display(), e.kind())))?;
    show::line(&format!("{} seals with {id} when the daemon starts again", path.display()))
}

fn numbered(n: u8) -> String {
    if n == 1 { today() } else { format!("{}-{n}", today()) }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::vault::IndexKey;

    #[test]
    fn a_rotated_file_begins_with_a_new_key_and_keeps_the_old_ones() {
        let dir = TempDir::new().expect("a directory");
        run(KeysCommand::Init { dir: dir.path().to_owned() }).expect("made");
        let again = run(KeysCommand::Init { dir: dir.path().to_owned() }).expect_err("there already");
        assert_eq!(again.exit(), Exit::Failed);
        let file = dir.path().join("sealing.keys");
        let old = fs::read_to_string(&file).expect("a file");
        rotate(&file, Some("second".to_owned())).expect("rotated");
        let new = fs::read_to_string(&file).expect("a file");
        assert!(new.starts_with("second ") && new.ends_with(&old), "the old key is still there");
        assert_eq!(rotate(&file, Some("second".to_owned())).map_err(|f| f.exit()), Err(Exit::Usage));
        assert_eq!(fs::read_to_string(&file).expect("a file"), new);
        rotate(&file, None).expect("a free name is found");
        let index = fs::read_to_string(dir.path().join("index.key")).expect("a file");
        assert!(IndexKey::parse(&index).is_ok());
    }
}
