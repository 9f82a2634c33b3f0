//! The outbox: one JSON object a line, for people to open and for look-ups after a restart.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Mutex;

use crate::domain::ids::ProviderName;

/// The outbox cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// It cannot be opened for reading and appending, or its mode cannot be set to 0600.
    #[error("the outbox cannot be opened")]
    Open(#[source] io::Error),
    /// It cannot be read, or is not UTF-8.
    #[error("the outbox cannot be read")]
    Read(#[source] io::Error),
}

/// One message that was taken. Secret.
#[derive(Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) at: String,
    pub(super) provider: String,
    pub(super) to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<String>,
    pub(super) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) html: Option<String>,
    pub(super) notification: String,
    pub(super) reference: String,
    pub(super) message_id: String,
    pub(super) dedupe_key: String,
    /// 1 for the first message under its dedupe key; 2 is a duplicate that a person would have received.
    pub(super) copy: u32,
    /// Look-ups for it never answer.
    #[serde(default)]
    pub(super) silent: bool,
}

/// What a look-up may learn.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) message_id: String,
    pub(super) silent: bool,
}

#[derive(Default)]
struct Taken {
    by_reference: HashMap<String, Found>,
    copies: HashMap<String, u32>,
}

impl Taken {
    fn note(&mut self, entry: &Entry) {
        let found = Found { message_id: entry.message_id.clone(), silent: entry.silent };
        self.by_reference.insert(entry.reference.clone(), found);
        *self.copies.entry(entry.dedupe_key.clone()).or_default() += 1;
    }
}

pub(super) struct Outbox(Mutex<(tokio::fs::File, Taken)>);

impl Outbox {
    /// Opens or creates the file and reads what `provider` took before. A line that a crash cut off is passed over.
    pub(super) fn open(path: &Path, provider: &ProviderName) -> Result<Self, OutboxError> {
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).append(true).create(true).mode(0o600).open(path).map_err(OutboxError::Open)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(OutboxError::Open)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(OutboxError::Read)?;
        let mut taken = Taken::default();
        let entries = text.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
        entries.filter(|e| e.provider == provider.as_str()).for_each(|e| taken.note(&e));
        if !text.is_empty() && !text.ends_with('\n') {
            io::Write::write_all(&mut file, b"\n").map_err(OutboxError::Open)?;
        }
        Ok(Self(Mutex::new((tokio::fs::File::from_std(file), taken))))
    }

    /// Appends a line and numbers it among the copies under its dedupe key.
    pub(super) async fn append(&self, mut entry: Entry) -> io::Result<()> {
        let mut guard = self.0.lock().await;
        let (file, taken) = &mut *guard;
        entry.copy = taken.copies.get(&entry.dedupe_key).copied().unwrap_or_default() + 1;
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        file.write_all(&line).await?;
        file.flush().await?;
        taken.note(&entry);
        Ok(())
    }

    pub(super) async fn find(&self, reference: &str) -> Option<Found> {
        self.0.lock().await.1.by_reference.get(reference).cloned()
    }
}
