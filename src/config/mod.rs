//! One TOML file becomes checked [`Settings`], or the list of every mistake in it.
//!
//! Unknown keys are refused, limits are checked against each other, and no secret stands in the file itself: a secret
//! `x` is given as `x_file`, `x_env` or `x_credential` (see [`secret`]). Relative paths are taken from the directory of
//! the configuration file.

mod callback;
mod check;
mod dev;
mod hook;
mod policy;
mod provider;
mod route;
pub mod secret;
mod server;
mod smpp;
mod store;

use std::path::{Path, PathBuf};

use crate::document::{Document, Mistake, Place, Table};
use crate::domain::hook::Hook;
use crate::domain::route::RouteTable;

pub use callback::CallbackSettings;
pub use policy::{Admission, Dispatch, Limit, Retention, TenantSettings};
pub use provider::{
    Breaker, Http, Kind, Lane, ManifestSource, Override, ProviderSettings, Sandbox, Setting, Smtp, SmtpTls,
};
pub use route::Country;
pub use secret::Environment;
pub use server::{Keys, Listen, Log, LogFormat, Node, Server, Templates, VaultKeys};
pub use smpp::{Smpp, SmppIds, SmppValidity};
pub use store::{Store, StorePlace};

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `[server]`: listeners and their limits.
    pub server: Server,
    /// `[store]`: where rows are kept.
    pub store: Store,
    /// `[node]`: which one this is of several on one store.
    pub node: Node,
    /// `[vault]`: the keys behind sealed values and keyed hashes.
    pub vault: VaultKeys,
    /// `[keys]`: the API keys.
    pub keys: Keys,
    /// `[dispatch]`: attempts, delays, deadlines.
    pub dispatch: Dispatch,
    /// `[retention]`: what is kept, and for how long.
    pub retention: Retention,
    /// `[admission]`: limits of what is taken in.
    pub admission: Admission,
    /// `[[tenant]]`: at least one.
    pub tenants: Vec<TenantSettings>,
    /// `[templates]`: where message templates are.
    pub templates: Templates,
    /// `[routes]`: which providers serve which addresses.
    pub routes: RouteTable,
    /// `[provider.NAME]`: in the order of their names.
    pub providers: Vec<ProviderSettings>,
    /// `[hook.NAME]`: in the order of their names.
    pub hooks: Vec<Hook>,
    /// `[callback.NAME]`: where apps are told; none by default.
    pub callbacks: Vec<CallbackSettings>,
    /// `[log]`: what is logged and how.
    pub log: Log,
    /// The file as a whole, for mistakes that are found later.
    pub place: Place,
    /// What is allowed but probably not meant; to be logged at start.
    pub advice: Vec<Mistake>,
}

impl Settings {
    /// Reads and checks a configuration file, with the process's environment for secrets.
    ///
    /// # Errors
    /// Every mistake, each with its place and without the value.
    pub fn load(path: &Path) -> Result<Self, Vec<Mistake>> {
        Self::load_with(path, &Environment::of_process())
    }

    /// Reads and checks a configuration file, with this environment for secrets.
    ///
    /// # Errors
    /// Every mistake, each with its place and without the value.
    pub fn load_with(path: &Path, env: &Environment) -> Result<Self, Vec<Mistake>> {
        Self::read(path, env).and_then(sound)
    }

    /// Reads a configuration file as far as it can be read: the settings, and every mistake in them. A stand-in takes the
    /// place of what is mistaken, so that what is sound can be checked further; there is no advice then.
    ///
    /// # Errors
    /// When the file cannot be read or is no TOML.
    pub fn read(path: &Path, env: &Environment) -> Result<(Self, Vec<Mistake>), Vec<Mistake>> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| {
            vec![Mistake { place: Place::of_file(&file), message: format!("cannot be read: {}", e.kind()) }]
        })?;
        let base = path.parent().map(Path::to_path_buf).unwrap_or_default();
        Self::read_text(&file, &text, &base, env)
    }

    /// Checks the text of a configuration file. Relative paths are taken from `base`.
    ///
    /// # Errors
    /// Every mistake, each with its place and without the value.
    pub fn parse(file: &str, text: &str, base: &Path, env: &Environment) -> Result<Self, Vec<Mistake>> {
        Self::read_text(file, text, base, env).and_then(sound)
    }

    fn read_text(file: &str, text: &str, base: &Path, env: &Environment) -> Result<(Self, Vec<Mistake>), Vec<Mistake>> {
        let mut root = Document::parse(file, text)?.into_table();
        let mistakes = root.mistakes();
        let context = Context { base, env };
        let mut settings = Self {
            server: Server::read(root.section("server")),
            store: Store::read(root.section("store"), &context),
            node: Node::read(root.section("node")),
            vault: VaultKeys::read(root.section("vault"), &context),
            keys: Keys::read(root.section("keys"), &context),
            dispatch: Dispatch::read(root.section("dispatch")),
            retention: Retention::read(root.section("retention")),
            admission: Admission::read(root.section("admission")),
            tenants: TenantSettings::read_all(&mut root),
            templates: Templates::read(root.section("templates"), &context),
            providers: ProviderSettings::read_all(&mut root, &context),
            routes: RouteTable::default(),
            hooks: vec![],
            callbacks: vec![],
            log: Log::read(root.section("log")),
            place: Place::of_file(file),
            advice: vec![],
        };
        settings.hooks = hook::read_all(&mut root, &settings.tenants, &context);
        settings.routes = route::read(root.section("routes"), &settings.providers);
        settings.callbacks = CallbackSettings::read_all(&mut root, &context, &settings.tenants);
        settings.advice = check::advice(&settings, &root);
        root.finish();
        let mistakes = mistakes.take();
        if !mistakes.is_empty() {
            settings.advice.clear();
        }
        Ok((settings, mistakes))
    }
}

fn sound((settings, mistakes): (Settings, Vec<Mistake>)) -> Result<Settings, Vec<Mistake>> {
    if mistakes.is_empty() { Ok(settings) } else { Err(mistakes) }
}

/// What the readers of sections need besides their table.
struct Context<'a> {
    base: &'a Path,
    env: &'a Environment,
}

impl Context<'_> {
    /// The path under `key`, taken from the directory of the configuration file when it is relative.
    fn path(&self, table: &mut Table, key: &str) -> Option<PathBuf> {
        let path = table.str(key)?;
        if path.is_empty() {
            table.wrong(key, "must be a path");
            return None;
        }
        Some(self.base.join(path))
    }

    /// The path under `key`, which must be given; an empty one stands in after a mistake.
    fn need_path(&self, table: &mut Table, key: &str) -> PathBuf {
        if !table.has(key) {
            table.wrong(key, "is required");
        }
        self.path(table, key).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
