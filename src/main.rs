//! The `sendonce` program. Its exit codes are documented in [`sendonce::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    sendonce::cli::main()
}
