//! `sendonce config`: checks a configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{Exit, Failure, show};
use crate::config::{Environment, Settings};
use crate::document::{Mistake, Place};
use crate::keys::{KeyRing, KeyRingError};
use crate::vault::{IndexKey, Vault};

/// `sendonce config …`.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Read a configuration and everything it names, and tell every mistake
    Check(CheckArgs),
}

/// Flags of `sendonce config check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The configuration file
    file: PathBuf,
    /// Where to look for systemd credentials; $CREDENTIALS_DIRECTORY by default
    #[arg(long, value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Checks what a configuration names but does not hold: the vault's keys and the API keys. What `is_told` knows to be
/// mistaken already is passed over.
pub(super) fn check_keys(settings: &Settings, is_told: impl Fn(&str) -> bool) -> Vec<Mistake> {
    let mut mistakes = vec![];
    let mut wrong = |key: &str, message: String| {
        mistakes.push(Mistake { place: Place { key: key.to_owned(), ..settings.place.clone() }, message });
    };
    let vault = &settings.vault;
    for (key, error) in [
        ("vault.sealing_keys", Vault::parse(vault.sealing_keys.expose_secret()).err()),
        ("vault.index_key", IndexKey::parse(vault.index_key.expose_secret()).err()),
    ] {
        if let Some(error) = error.filter(|_| !is_told(key)) {
            wrong(key, error.to_string());
        }
    }
    if is_told("keys.") {
        return mistakes;
    }
    match KeyRing::load(&settings.keys.file) {
        Ok(ring) if !is_told("tenant") => {
            for tenant in ring.tenants() {
                if !settings.tenants.iter().any(|t| t.name == tenant) {
                    wrong("keys.file", format!("has a key of the tenant {tenant}, which has no [[tenant]]"));
                }
            }
        }
        Ok(_) => {}
        Err(KeyRingError::Mistakes(more)) => mistakes.extend(more),
        Err(e) => wrong("keys.file", e.to_string()),
    }
    mistakes
}

pub(super) fn run(command: ConfigCommand) -> Result<(), Failure> {
    let ConfigCommand::Check(args) = command;
    let env = Environment::of_process();
    let env = args.credentials.into_iter().fold(env, Environment::with_credentials);
    let (advice, mistakes) = match super::compose::read(&args.file, &env) {
        Ok((settings, mistakes)) => (settings.advice, mistakes),
        Err(mistakes) => (vec![], mistakes),
    };
    if args.json {
        let list = |all: &[Mistake]| all.iter().map(to_json).collect::<Vec<_>>();
        show::answer(&json!({ "mistakes": list(&mistakes), "advice": list(&advice) }), true)?;
        return if mistakes.is_empty() { Ok(()) } else { Err(Failure::new(Exit::Mistakes, "")) };
    }
    for a in &advice {
        eprintln!("advice: {a}");
    }
    if !mistakes.is_empty() {
        return Err(Failure::mistakes(&mistakes));
    }
    show::line(&format!("{}: no mistakes", args.file.display()))
}

fn to_json(mistake: &Mistake) -> Value {
    let Place { file, line, column, key } = &mistake.place;
    json!({ "file": &**file, "line": line, "column": column, "key": key, "message": mistake.message })
}
