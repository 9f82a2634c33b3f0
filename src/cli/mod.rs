//! The command line, and the room in which the program is put together.
//!
//! Every command ends with one of these codes, so that scripts can tell what happened:
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | failed, or what was waited for did not come |
//! | 2 | the command line does not read |
//! | 3 | the configuration, a manifest or a key file has mistakes |
//! | 4 | the daemon refused the request |
//! | 5 | the daemon could not be reached, or its answer was lost |
//! | 6 | a provider's list and our attempts were compared, and differ |

mod audit;
mod batch;
mod bench;
mod callbacks;
mod cancel;
mod client;
mod compose;
mod config;
mod dev;
mod exit;
mod hooks;
mod keys;
mod provider_test;
mod providers;
mod send;
mod serve;
mod show;
mod statement;
mod status;
mod store;
mod unknown;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use config::check_keys;
pub use exit::{Exit, Failure};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 usage, 3 mistakes in a configuration, manifest or key file, \
                          4 refused by the daemon, 5 daemon not reached or its answer lost, 6 statement compared and \
                          different.";

/// Durable dispatcher of password-reset messages by SMS and e-mail.
#[derive(Debug, Parser)]
#[command(name = "sendonce", version, after_help = EXIT_CODES, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Where the configuration is.
#[derive(Debug, Args)]
pub struct ConfigFile {
    /// The configuration file
    #[arg(long = "config", env = "SENDONCE_CONFIG", value_name = "FILE", default_value = "/etc/sendonce/config.toml")]
    pub path: PathBuf,
}

/// `sendonce dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// Keep the store, the keys and the outbox here
    #[arg(long, value_name = "DIR", default_value = "sendonce-dev")]
    pub dir: PathBuf,
    /// Address of the API
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8025")]
    pub listen: SocketAddr,
    /// Address of health and metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8026")]
    pub admin_listen: SocketAddr,
}

/// `sendonce recover`.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Where the store is.
    #[command(flatten)]
    pub config: ConfigFile,
    /// Id of the ticket or change under which the store was restored; goes into the audit
    #[arg(long, value_name = "ID", value_parser = crate::domain::ids::Ticket::parse)]
    pub ticket: crate::domain::ids::Ticket,
    /// Do not ask before releasing the held work
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon
    Serve(ConfigFile),
    /// Run a daemon for trying things out: embedded store, sandbox providers, a ready key
    Dev(DevArgs),
    /// Bring the store's schema up to date
    Migrate(ConfigFile),
    /// Release the work of a store that was restored from an older copy, as unknown
    Recover(RecoverArgs),
    /// Post an event
    Send(Box<send::SendArgs>),
    /// Post many events, a line each
    Batch(batch::BatchArgs),
    /// Show what became of a notification
    Status(status::StatusArgs),
    /// Take a notification back, as far as that is still possible
    Cancel(cancel::CancelArgs),
    /// List and settle notifications of which nobody knows whether they were sent
    #[command(subcommand)]
    Unknown(unknown::UnknownCommand),
    /// Compare a provider's own list of messages with our attempts, and settle unknowns that it shows
    Statement(statement::StatementArgs),
    /// Export the audit log and the accounting
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Check a configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Show and check provider manifests
    #[command(subcommand)]
    Providers(providers::ProvidersCommand),
    /// Make and revoke API keys, make and rotate the vault's keys
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Measure the daemon on this machine, beside what its store reaches alone
    Bench(bench::BenchArgs),
    /// Print the OpenAPI document
    Openapi,
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// Reads the command line, does what it says, and tells how that ended.
pub fn main() -> ExitCode {
    if let Err(e) = crate::process::leave_no_core() {
        return Failure::failed(format!("core dumps cannot be ruled out: {}", e.kind())).report();
    }
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Dev(args) => dev::run(args),
        Command::Migrate(args) => store::migrate(&args),
        Command::Recover(args) => store::recover(&args),
        Command::Openapi => openapi(),
        Command::Send(args) => client::block_on(send::run(*args)),
        Command::Batch(args) => client::block_on(batch::run(args)),
        Command::Status(args) => client::block_on(status::run(args)),
        Command::Cancel(args) => client::block_on(cancel::run(args)),
        Command::Unknown(command) => client::block_on(unknown::run(command)),
        Command::Statement(args) => client::block_on(statement::run(args)),
        Command::Audit(command) => client::block_on(audit::run(command)),
        Command::Config(command) => config::run(command),
        Command::Providers(command) => providers::run(command),
        Command::Keys(command) => keys::run(command),
        Command::Bench(args) => bench::run(args),
        Command::Completions { shell } => {
            let mut script = vec![];
            clap_complete::generate(shell, &mut Cli::command(), "sendonce", &mut script);
            show::bytes(&script)
        }
    }
}

fn openapi() -> Result<(), Failure> {
    let text =
        crate::http::document().to_pretty_json().map_err(|_| Failure::failed("the document cannot be written"))?;
    show::line(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_documented_reads() {
        for line in [
            "serve --config x.toml",
            "dev --dir /tmp/x",
            "recover --ticket OPS-1 --yes",
            "send --sms +84901234567 --email a@b.example --kind password_reset --event-id e1 --code - --expires-in 10m",
            "status ntf_0198c7f4-0000-7000-8000-000000000000 --wait 20s --json",
            "status --event-id e1",
            "cancel ntf_0198c7f4-0000-7000-8000-000000000000",
            "unknown list --provider a --cause lost_answer --before 2026-11-29T00:00:00Z",
            "unknown resolve ntf_0198c7f4-0000-7000-8000-000000000000 --sent --ticket OPS-1",
            "unknown resolve --all-matching --provider a --not-sent --ticket OPS-1",
            "audit export --format csv --from 2026-11-01T00:00:00Z --what accepted --output x.csv",
            "audit account --json",
            "statement --provider twilio --from 26h --to 2026-11-29T00:00:00Z --json",
            "config check x.toml --credentials secrets",
            "providers list --json --config x.toml",
            "providers show twilio",
            "providers test twilio --to +84901234567 --config x.toml",
            "keys new --tenant shop --role sender --role auditor",
            "keys rotate sealing.keys",
            "bench",
            "bench dispatch --json --secs 1 --connections 8 --rate 100 --rows 200 --in-flight 16 --dir /tmp",
            "bench admit --store postgres:///bench",
            "completions bash",
        ] {
            let read = Cli::try_parse_from(std::iter::once("sendonce").chain(line.split(' ')));
            assert!(read.is_ok(), "{line}: {read:?}");
        }
        for line in [
            "send --sms +84901234567",
            "send --event-id e1 --expires-in 10m",
            "status",
            "status ntf_1 --event-id e1",
            "unknown resolve --sent --ticket T",
            "unknown resolve ntf_0198c7f4-0000-7000-8000-000000000000 --sent --not-sent --ticket T",
            "unknown resolve ntf_0198c7f4-0000-7000-8000-000000000000 --sent",
            "unknown resolve ntf_0198c7f4-0000-7000-8000-000000000000 --all-matching --sent --ticket T",
            "keys new --tenant shop",
            "bench all --secs 0",
            "bench nothing",
        ] {
            let read = Cli::try_parse_from(std::iter::once("sendonce").chain(line.split(' ')));
            assert!(read.is_err(), "{line}: {read:?}");
        }
    }
}
