//! API keys: who may call, for which tenant, in which roles.
//!
//! A key is `sok_ID_SECRET`, where the secret is 256 random bits in base32. The file holds only its SHA-256: a plain
//! hash of so much randomness cannot be reversed by guessing, so it needs neither a salt nor a slow hash (NIST SP 800-63B
//! asks for those where a person chose the secret).

mod file;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use aws_lc_rs::{constant_time, digest};

use crate::document::Mistake;
use crate::domain::ids::{ActorName, Tenant};
pub use crate::domain::role::Role;

pub(crate) use file::replace_file;
use file::{Contents, Stamp};
pub use file::{Entry, Issued, KeyFile};

/// The longest text that is looked at as a key, in bytes.
const MAX_LEN: usize = 128;

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The key's id, which the audit names.
    pub id: ActorName,
    /// Whose rows it may see.
    pub tenant: Tenant,
    /// What it may do; at least one.
    pub roles: Vec<Role>,
}

impl Principal {
    /// Whether it has this role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}

/// Why the file of API keys could not be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// It could not be read or written.
    #[error("the file of API keys cannot be {0}: {1}")]
    Io(&'static str, std::io::ErrorKind),
    /// Group or others may write to it, and so could make keys.
    #[error("the file of API keys is writable by group or others; `chmod 600` it")]
    Writable,
    /// It does not read; every mistake with its place.
    #[error("the file of API keys has mistakes: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Mistakes(Vec<Mistake>),
    /// There is no key with this id.
    #[error("there is no API key with this id")]
    NoSuchKey,
}

/// The SHA-256 of a key.
#[derive(Clone, PartialEq, Eq)]
struct KeyHash([u8; 32]);

impl KeyHash {
    fn of(key: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, key.as_bytes()).as_ref());
        Self(hash)
    }

    fn is_of(&self, key: &str) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &Self::of(key).0).is_ok()
    }
}

struct Loaded {
    stamp: Option<Stamp>,
    keys: HashMap<String, Entry>,
}

impl Loaded {
    fn new(contents: Contents) -> Self {
        let keys = contents.entries.into_iter().map(|e| (e.principal.id.as_str().to_owned(), e)).collect();
        Self { stamp: contents.stamp, keys }
    }
}

/// The keys that the daemon knows, shared by all requests.
pub struct KeyRing {
    path: PathBuf,
    loaded: RwLock<Loaded>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing({} keys)", self.len())
    }
}

impl KeyRing {
    /// Reads the file.
    ///
    /// # Errors
    /// [`KeyRingError`] when it cannot be read, others may write to it, or it has mistakes.
    pub fn load(path: &Path) -> Result<Self, KeyRingError> {
        let loaded = RwLock::new(Loaded::new(file::read(path)?));
        Ok(Self { path: path.to_owned(), loaded })
    }

    /// Who holds `key`, if anybody does. The comparison takes as long for every wrong secret.
    pub fn lookup(&self, key: &str) -> Option<Principal> {
        let (id, _) = key.strip_prefix("sok_").filter(|_| key.len() <= MAX_LEN)?.split_once('_')?;
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        let entry = loaded.keys.get(id)?;
        entry.hash.is_of(key).then(|| entry.principal.clone())
    }

    /// Reads the file again if it has changed since it was last looked at, and says whether it had. On an error the keys
    /// stay as they were; a change that was told of once is not told of again.
    ///
    /// # Errors
    /// [`KeyRingError`] when the changed file cannot be read, others may write to it, or it has mistakes.
    pub fn reload_if_changed(&self) -> Result<bool, KeyRingError> {
        let stamp = Stamp::of(&self.path);
        let known = self.loaded.read().unwrap_or_else(PoisonError::into_inner).stamp.clone();
        if stamp == known {
            return Ok(false);
        }
        let read = file::read(&self.path);
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(contents) => *loaded = Loaded::new(contents),
            Err(e) => {
                loaded.stamp = stamp;
                return Err(e);
            }
        }
        Ok(true)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).keys.len()
    }

    /// Whether there is none, so that nobody can call.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tenants that keys name, each once.
    pub fn tenants(&self) -> Vec<Tenant> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        let mut tenants: Vec<_> = loaded.keys.values().map(|e| e.principal.tenant.clone()).collect();
        tenants.sort();
        tenants.dedup();
        tenants
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::*;
    use crate::domain::time::Timestamp;

    fn shop() -> Tenant {
        Tenant::parse("shop").expect("a tenant")
    }

    fn now() -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000)
    }

    #[test]
    fn a_key_is_known_by_its_whole_text_until_it_is_revoked() {
        let dir = TempDir::new().expect("a directory");
        let file = KeyFile::new(dir.path().join("keys.toml"));
        let a = file.issue(&shop(), &[Role::Sender, Role::Operator], now()).expect("a key");
        let b = file.issue(&shop(), &[Role::Auditor], now()).expect("a key");
        let ring = KeyRing::load(file.path()).expect("a ring");
        let found = ring.lookup(&a.text).expect("known");
        assert_eq!((&found.id, &found.tenant), (&a.id, &shop()));
        assert!(found.has(Role::Operator) && !found.has(Role::Auditor));
        let (id, secret) = a.text[4..].split_once('_').expect("two parts");
        assert_eq!((id, secret.len()), (a.id.as_str(), 52));
        for wrong in [
            String::new(),
            "sok_".to_owned(),
            a.text.to_ascii_uppercase(),
            a.text[..a.text.len() - 1].to_owned(),
            format!("{}a", a.text.as_str()),
            format!("sok_{}_{secret}", b.id),
            format!("sok_{id}_{}", "a".repeat(1000)),
        ] {
            assert_eq!(ring.lookup(&wrong), None, "{wrong}");
        }
        assert_eq!(ring.reload_if_changed(), Ok(false));
        file.revoke(a.id.as_str()).expect("revoked");
        assert_eq!(file.revoke(a.id.as_str()), Err(KeyRingError::NoSuchKey));
        assert_eq!(ring.reload_if_changed(), Ok(true));
        assert_eq!((ring.lookup(&a.text), ring.len()), (None, 1));
        assert!(ring.lookup(&b.text).is_some());
    }

    #[test]
    fn the_file_holds_no_key_and_only_its_owner_may_touch_it() {
        let dir = TempDir::new().expect("a directory");
        let file = KeyFile::new(dir.path().join("keys.toml"));
        let key = file.issue(&shop(), &[Role::Sender], now()).expect("a key");
        let text = fs::read_to_string(file.path()).expect("a file");
        let secret = key.text.rsplit('_').next().expect("a secret");
        assert!(!text.contains(secret) && !format!("{key:?}").contains(secret));
        assert_eq!(fs::metadata(file.path()).expect("a file").permissions().mode() & 0o777, 0o600);
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o620)).expect("a mode");
        assert_eq!(KeyRing::load(file.path()).err(), Some(KeyRingError::Writable));
    }

    #[test]
    fn a_file_that_goes_bad_is_told_once_and_the_known_keys_stay() {
        let dir = TempDir::new().expect("a directory");
        let file = KeyFile::new(dir.path().join("keys.toml"));
        let key = file.issue(&shop(), &[Role::Sender], now()).expect("a key");
        let ring = KeyRing::load(file.path()).expect("a ring");
        fs::write(file.path(), "[[key]]\nid = \"a b\"\ntenant = \"T\"\nroles = [\"king\"]\nhash = \"CANARY\"\nx = 1\n")
            .expect("written");
        let Err(KeyRingError::Mistakes(told)) = ring.reload_if_changed() else { panic!("no mistakes") };
        let told: Vec<_> = told.iter().map(|m| format!("{}: {}", m.place.key, m.message)).collect();
        assert_eq!(
            told,
            [
                "key[0].created_at: is required",
                "key[0].id: has a character outside A-Z a-z 0-9 . _ : -",
                "key[0].tenant: has a character outside a-z 0-9 _ -",
                "key[0].roles: must be a list of \"sender\", \"auditor\", \"operator\", at least one",
                "key[0].hash: must be 64 lower-case hexadecimal digits",
                "key[0].x: is not a known key",
            ]
        );
        assert_eq!(ring.reload_if_changed(), Ok(false));
        assert!(ring.lookup(&key.text).is_some());
        fs::remove_file(file.path()).expect("removed");
        assert_eq!(ring.reload_if_changed(), Err(KeyRingError::Io("read", std::io::ErrorKind::NotFound)));
        assert_eq!(ring.reload_if_changed(), Ok(false));
    }

    #[test]
    fn keys_that_are_issued_at_once_are_all_kept() {
        let dir = TempDir::new().expect("a directory");
        let path = dir.path().join("keys.toml");
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| KeyFile::new(path.clone()).issue(&shop(), &[Role::Sender], now()).expect("a key"));
            }
        });
        assert_eq!(KeyFile::new(path).entries().expect("entries").len(), 8);
    }
}
