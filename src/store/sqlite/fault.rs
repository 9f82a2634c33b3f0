//! What SQLite's result codes mean for a caller. Texts of the library never leave this file.

use std::io;

use sqlx::migrate::MigrateError;

use crate::store::StoreError;

/// `SQLITE_ERROR`, as sqlx gives it.
pub(super) const GENERIC: &str = "1";

/// Judges by the primary result code, which is the low byte of an extended one (sqlite.org, "Result and Error Codes").
pub(super) fn sql_fault(error: &sqlx::Error) -> StoreError {
    let code = match error {
        sqlx::Error::Database(e) => e.code().and_then(|code| code.parse::<u32>().ok()).unwrap_or(1),
        sqlx::Error::PoolTimedOut => return StoreError::Busy,
        sqlx::Error::Io(e) => return io_fault(e),
        sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => return StoreError::Unavailable,
        _ => return StoreError::Refused("protocol"),
    };
    match code & 0xff {
        5 | 6 => StoreError::Busy,
        8 => StoreError::ReadOnly,
        10 | 14 => StoreError::Unavailable,
        13 => StoreError::Full,
        11 => StoreError::Refused("corrupt"),
        19 => StoreError::Refused("constraint"),
        26 => StoreError::Schema,
        _ => StoreError::Refused("statement"),
    }
}

/// A failed COMMIT. When writing or syncing the log fails, the frames may be complete on disk: this process rolls back
/// and overwrites them with its next commit, but a crash before that would let the next start find them.
pub(super) fn commit_fault(error: &sqlx::Error) -> StoreError {
    match sql_fault(error) {
        StoreError::Unavailable => StoreError::Ambiguous,
        fault => fault,
    }
}

pub(super) fn io_fault(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full,
        io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly,
        _ => StoreError::Unavailable,
    }
}

pub(super) fn migrate_fault(error: &MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(e) | MigrateError::ExecuteMigration(e, _) => sql_fault(e),
        _ => StoreError::Schema,
    }
}
