//! `sendonce providers`: shows and checks manifests.

use std::path::PathBuf;

use clap::Subcommand;

use super::Failure;

/// `sendonce providers …`.
#[derive(Debug, Subcommand)]
pub(super) enum ProvidersCommand {
    /// List the built-in manifests
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a built-in manifest: its settings, and what can be known after a lost answer
    Show {
        /// Name of the manifest
        name: String,
    },
    /// Check manifests and tell every mistake
    Check {
        /// Manifest files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

pub(super) fn run(command: ProvidersCommand) -> Result<(), Failure> {
    match command {
        ProvidersCommand::List { .. } | ProvidersCommand::Show { .. } | ProvidersCommand::Check { .. } => {
            Err(Failure::failed("this command is not part of this build"))
        }
    }
}
