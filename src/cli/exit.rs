//! How a command ends.

use std::fmt;
use std::process::ExitCode;

use crate::document::Mistake;

/// The exit codes of everything but success; [`super`] documents them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Failed, or what was waited for did not come.
    Failed = 1,
    /// The command line does not read.
    Usage = 2,
    /// Mistakes in a configuration, manifest or key file.
    Mistakes = 3,
    /// The daemon refused.
    Refused = 4,
    /// The daemon could not be reached, or its answer was lost.
    Unreachable = 5,
    /// A provider's list and our attempts were compared, and differ.
    Differs = 6,
}

/// Why a command did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    /// Ends with `exit` and says why on standard error.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// Ends with 1.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// Ends with 3 and one line a mistake.
    pub fn mistakes(mistakes: &[Mistake]) -> Self {
        Self::new(Exit::Mistakes, mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    /// With which code it ends.
    pub const fn exit(&self) -> Exit {
        self.exit
    }

    pub(super) fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            eprintln!("{self}");
        }
        ExitCode::from(self.exit as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
