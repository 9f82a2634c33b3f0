//! `sendonce dev`: a daemon for trying things out. Makes its keys, and prints lines that work when pasted.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use secrecy::SecretString;

use super::{DevArgs, Failure};
use crate::clock::{Clock as _, SystemClock};
use crate::config::{Listen, Settings};
use crate::domain::ids::Tenant;
use crate::keys::{KeyFile, Role};
use crate::vault::new_key_line;

pub(super) fn run(args: DevArgs) -> Result<(), Failure> {
    let dir = args.dir;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|e| cannot("make", &dir, &e))?;
    let mut settings = Settings::dev(&dir).map_err(|e| Failure::failed(e.to_string()))?;
    settings.server.listen = Listen::Address(args.listen);
    settings.server.admin_listen = Listen::Address(args.admin_listen);
    settings.server.public_url = Some(format!("http://{}", args.listen));
    let key_line = |file: &str, id| kept(&dir.join(file), || new_key_line(id).to_string());
    settings.vault.sealing_keys = SecretString::from(key_line("sealing.keys", "dev")?);
    settings.vault.index_key = SecretString::from(key_line("index.key", "index")?);
    let key_path = dir.join("api.key");
    kept(&key_path, || issue(&settings))?;
    super::serve::daemon(&settings, |_| hello(&dir, &key_path, &settings))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot {what} {}: {}", path.display(), error.kind()))
}

/// The text of a secret file; made by `make`, with mode 0600, when there is none. What `make` cannot make is empty.
fn kept(path: &Path, make: impl FnOnce() -> String) -> Result<String, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = make();
            let mut options = OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600).open(path);
            file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| cannot("write", path, &e))?;
            Ok(text)
        }
        Err(error) => Err(cannot("read", path, &error)),
    }
}

/// A key of the tenant `dev` with every role.
fn issue(settings: &Settings) -> String {
    let issued = Tenant::parse("dev").ok().and_then(|tenant| {
        let roles = [Role::Sender, Role::Auditor, Role::Operator];
        KeyFile::new(settings.keys.file.clone()).issue(&tenant, &roles, SystemClock.now()).ok()
    });
    issued.map_or_else(String::new, |issued| format!("{}\n", *issued.text))
}

fn hello(dir: &Path, key_path: &Path, settings: &Settings) {
    let url = settings.server.public_url.as_deref().unwrap_or_default();
    let (key, outbox) = (key_path.display(), dir.join("outbox.ndjson"));
    let outbox = outbox.display();
    println!(
        r#"
sendonce dev: everything stays on this machine, below {dir}

Send a reset code (paste it again: it is still sent once):

  curl -sS {url}/v1/notifications \
    -H "Authorization: Bearer $(cat {key})" \
    -H 'Idempotency-Key: try-1' -H 'Content-Type: application/json' \
    -d '{{"event_id":"try-1","kind":"password_reset","to":{{"sms":"+84901234567"}},"data":{{"code":"493021"}},"expires_in":600}}'

See what was "sent":

  cat {outbox}

The address decides what happens. In place of +84901234567 try
  +15005550001 refused               +15005550006 answer lost, not sent: found out and sent again
  +15005550003 fails twice, then OK  +15005550007 answer lost, nobody knows: a question for an operator
  +15005550005 answer lost, sent     +15005550008 delivered, says a receipt

For the other commands (sendonce status, unknown, audit …):

  export SENDONCE_URL={url} SENDONCE_API_KEY_FILE={key}

Ctrl-C stops it; what it stored stays.
"#,
        dir = dir.display(),
    );
}
