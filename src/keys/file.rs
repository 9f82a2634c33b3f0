//! The file of API keys: one `[[key]]` table a key.

use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
use data_encoding::{BASE32_NOPAD, HEXLOWER};
use zeroize::Zeroizing;

use super::{KeyHash, KeyRingError, Principal, Role};
use crate::document::{Document, Table};
use crate::domain::ids::{ActorName, Tenant};
use crate::domain::time::Timestamp;

/// The largest file of keys, in bytes: some tens of thousands of keys.
const MAX_FILE: u64 = 8 * 1024 * 1024;

/// One key, as the file knows it.
#[derive(Clone)]
pub struct Entry {
    /// Whose it is and what it may do.
    pub principal: Principal,
    /// When it was issued.
    pub created_at: Timestamp,
    pub(super) hash: KeyHash,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.principal).finish()
    }
}

/// A key that was just made. Its text is shown once and kept nowhere.
pub struct Issued {
    /// Its id.
    pub id: ActorName,
    /// The key itself.
    pub text: Zeroizing<String>,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Issued({})", self.id)
    }
}

/// What tells one version of the file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    len: u64,
    modified: (i64, i64),
}

impl Stamp {
    pub(super) fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|m| Self::of_metadata(&m))
    }

    fn of_metadata(m: &fs::Metadata) -> Self {
        Self { inode: m.ino(), len: m.len(), modified: (m.mtime(), m.mtime_nsec()) }
    }
}

/// The file as it was at one moment.
pub(super) struct Contents {
    pub(super) stamp: Option<Stamp>,
    pub(super) entries: Vec<Entry>,
}

/// `N` bytes from the system's random source.
fn random<const N: usize>() -> io::Result<Zeroizing<[u8; N]>> {
    let mut bytes = Zeroizing::new([0; N]);
    rand::fill(bytes.as_mut_slice()).map_err(|_| io::Error::other("no randomness"))?;
    Ok(bytes)
}

fn io_error(doing: &'static str) -> impl Fn(io::Error) -> KeyRingError {
    move |e| KeyRingError::Io(doing, e.kind())
}

pub(super) fn read(path: &Path) -> Result<Contents, KeyRingError> {
    let file = File::open(path).map_err(io_error("read"))?;
    let metadata = file.metadata().map_err(io_error("read"))?;
    if metadata.mode() & 0o022 != 0 {
        return Err(KeyRingError::Writable);
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).map_err(io_error("read"))?;
    let mut root = Document::parse(&path.display().to_string(), &text).map_err(KeyRingError::Mistakes)?.into_table();
    let mistakes = root.mistakes();
    let mut entries: Vec<Entry> = vec![];
    for mut table in root.tables("key") {
        let entry = Entry::read(&mut table);
        let repeated = |e: &Entry| entries.iter().any(|other| other.principal.id == e.principal.id);
        if entry.as_ref().is_some_and(repeated) {
            table.wrong("id", "is the id of another key too");
        }
        table.finish();
        entries.extend(entry);
    }
    root.finish();
    let stamp = Some(Stamp::of_metadata(&metadata));
    mistakes.verdict(Contents { stamp, entries }).map_err(KeyRingError::Mistakes)
}

impl Entry {
    fn read(t: &mut Table) -> Option<Self> {
        for key in ["id", "tenant", "roles", "hash", "created_at"] {
            if !t.has(key) {
                t.wrong(key, "is required");
            }
        }
        let id = t.parsed("id", ActorName::parse);
        let tenant = t.parsed("tenant", Tenant::parse);
        let roles = t.strs("roles").map(|r| r.iter().map(|r| Role::from_code(r)).collect::<Option<Vec<_>>>());
        let roles = roles.map(|r| r.filter(|r| !r.is_empty()));
        if roles == Some(None) {
            t.wrong("roles", "must be a list of \"sender\", \"auditor\", \"operator\", at least one");
        }
        let hash = t.parsed("hash", |text| {
            let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|b| b.try_into().ok());
            bytes.map(KeyHash).ok_or("must be 64 lower-case hexadecimal digits")
        });
        let created_at = t.parsed("created_at", Timestamp::parse_rfc3339);
        let principal = Principal { id: id?, tenant: tenant?, roles: roles?? };
        Some(Self { principal, created_at: created_at?, hash: hash? })
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let Principal { id, tenant, roles } = &self.principal;
        let roles = roles.iter().map(|r| format!("\"{r}\"")).collect::<Vec<_>>().join(", ");
        // No name can hold a character that TOML would want escaped.
        writeln!(out, "\n[[key]]\nid = \"{id}\"\ntenant = \"{tenant}\"\nroles = [{roles}]")?;
        writeln!(out, "hash = \"{}\"\ncreated_at = \"{}\"", HEXLOWER.encode(&self.hash.0), self.created_at)
    }
}

/// The file of API keys, to be changed. Changes are atomic (a new file is renamed over the old one) and wait for each
/// other on a lock file beside it.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// The file at `path`, which need not be there yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every key in it; none when it is not there.
    ///
    /// # Errors
    /// [`KeyRingError`] when it cannot be read, others may write to it, or it has mistakes.
    pub fn entries(&self) -> Result<Vec<Entry>, KeyRingError> {
        match read(&self.path) {
            Ok(contents) => Ok(contents.entries),
            Err(KeyRingError::Io(_, io::ErrorKind::NotFound)) => Ok(vec![]),
            Err(e) => Err(e),
        }
    }

    /// Makes a key for `tenant` with `roles`, of which there is at least one.
    ///
    /// # Errors
    /// [`KeyRingError`] when the file cannot be read or written.
    pub fn issue(&self, tenant: &Tenant, roles: &[Role], now: Timestamp) -> Result<Issued, KeyRingError> {
        let _lock = self.lock()?;
        let mut entries = self.entries()?;
        let id = loop {
            let word = BASE32_NOPAD.encode(random::<5>().map_err(io_error("written"))?.as_slice()).to_ascii_lowercase();
            let taken = entries.iter().any(|e| e.principal.id.as_str() == word);
            if let Ok(id) = ActorName::parse(&word)
                && !taken
            {
                break id;
            }
        };
        let secret = random::<32>().map_err(io_error("written"))?;
        let secret = Zeroizing::new(BASE32_NOPAD.encode(secret.as_slice()));
        let text = Zeroizing::new(format!("sok_{id}_{}", Zeroizing::new(secret.to_ascii_lowercase()).as_str()));
        let mut roles = roles.to_vec();
        roles.sort();
        roles.dedup();
        let principal = Principal { id: id.clone(), tenant: tenant.clone(), roles };
        entries.push(Entry { principal, created_at: now, hash: KeyHash::of(&text) });
        self.replace(&entries)?;
        Ok(Issued { id, text })
    }

    /// Takes the key with this id out of the file.
    ///
    /// # Errors
    /// [`KeyRingError::NoSuchKey`], or what keeps the file from being read or written.
    pub fn revoke(&self, id: &str) -> Result<(), KeyRingError> {
        let _lock = self.lock()?;
        let mut entries = self.entries()?;
        let before = entries.len();
        entries.retain(|e| e.principal.id.as_str() != id);
        if entries.len() == before {
            return Err(KeyRingError::NoSuchKey);
        }
        self.replace(&entries)
    }

    fn lock(&self) -> Result<File, KeyRingError> {
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
        let file = file.map_err(io_error("locked"))?;
        file.lock().map_err(io_error("locked"))?;
        Ok(file)
    }

    fn replace(&self, entries: &[Entry]) -> Result<(), KeyRingError> {
        let mut text = "# API keys of sendonce: hashes only. Change it with `sendonce keys`.\n".to_owned();
        for entry in entries {
            entry.write(&mut text).map_err(|fmt::Error| KeyRingError::Io("written", io::ErrorKind::Other))?;
        }
        replace_file(&self.path, text.as_bytes()).map_err(io_error("written"))
    }
}

/// Puts `bytes` in the place of the file at `path`, wholly or not at all, durably and for its owner alone.
///
/// The owner stays who it was; a new file gets the owner of its directory, so that a key made by root in the daemon's
/// own directory can be read by the daemon. That takes privileges; without them the file is the caller's.
///
/// # Errors
/// When the directory or the file cannot be written; the old file is then untouched.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}.{}", HEXLOWER.encode(random::<6>()?.as_slice())));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let owner = fs::metadata(path).or_else(|_| fs::metadata(directory))?;
        let ours = file.metadata()?;
        if (owner.uid(), owner.gid()) != (ours.uid(), ours.gid()) {
            let _ = fchown(&file, Some(owner.uid()), Some(owner.gid()));
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.and_then(|()| File::open(directory)?.sync_all())
}
