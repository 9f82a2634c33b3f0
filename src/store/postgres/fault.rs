//! What PostgreSQL's error codes mean for a caller. Texts of the library and of the server never leave this file.

use std::io;

use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::store::StoreError;

/// Judges by the SQLSTATE (PostgreSQL, appendix A, "PostgreSQL Error Codes").
pub(super) fn sql_fault(error: &sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(e) => code_fault(e.code().as_deref().unwrap_or_default()),
        // What came does not follow the protocol: whoever speaks at the other end, this connection is of no use.
        _ => StoreError::Unavailable,
    }
}

fn code_fault(code: &str) -> StoreError {
    match code {
        // Serialisation failure, deadlock; a plan or a prepared statement that no longer fits the schema.
        "40001" | "40P01" | "0A000" | "26000" => StoreError::Conflict,
        // Lock not available in time, statement cancelled by its time-out.
        "55P03" | "57014" => StoreError::Busy,
        // Read-only transaction: a standby, or a server that was made read-only.
        "25006" => StoreError::ReadOnly,
        "53100" => StoreError::Full,
        // Corrupt data or index.
        "XX001" | "XX002" => StoreError::Refused("corrupt"),
        // Undefined table, column or function.
        "42P01" | "42703" | "42883" => StoreError::Schema,
        "42501" => StoreError::Refused("privilege"),
        // The session waited in a transaction for too long, and was ended.
        "25P03" => StoreError::Unavailable,
        _ => match code.get(..2) {
            Some("23" | "P0") => StoreError::Refused("constraint"),
            // Connection, authorization, database, resources, operator's intervention, the system.
            Some("08" | "28" | "3D" | "53" | "57" | "58") => StoreError::Unavailable,
            _ => StoreError::Refused("statement"),
        },
    }
}

/// Whether the connection is still good: the server answered, and went on listening.
pub(super) fn is_only_the_statement(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(e) = error else { return false };
    let severity = e.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
    severity == Some(PgSeverity::Error) && !matches!(e.code().as_deref(), Some("25006" | "0A000" | "26000"))
}

/// A failed COMMIT. An error of severity ERROR undid the transaction: once the commit record is written, nothing less than
/// FATAL or PANIC is raised. Everything else, a lost connection above all, may have come after it.
pub(super) fn commit_fault(error: &sqlx::Error) -> StoreError {
    // 40003 is "statement completion unknown".
    let undone = match error {
        sqlx::Error::Database(e) => {
            let severity = e.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
            severity == Some(PgSeverity::Error) && e.code().as_deref() != Some("40003")
        }
        _ => false,
    };
    if undone { sql_fault(error) } else { StoreError::Ambiguous }
}

/// A connection that could not be made when the store is opened, where somebody reads the answer.
pub(super) fn connect_fault(error: &sqlx::Error) -> StoreError {
    let code = match error {
        sqlx::Error::Database(e) => e.code(),
        sqlx::Error::Tls(_) => return StoreError::Unfit("the TLS handshake with the PostgreSQL server failed"),
        sqlx::Error::Configuration(_) => {
            return StoreError::Unfit("the PostgreSQL URL or a file that it names is unusable");
        }
        sqlx::Error::Io(e) if e.kind() == io::ErrorKind::NotFound => {
            return StoreError::Unfit("a file or socket that the PostgreSQL URL names is not there");
        }
        _ => None,
    };
    match code.as_deref() {
        Some("28000" | "28P01") => StoreError::Unfit("the PostgreSQL server refused the user or the password"),
        Some("3D000") => StoreError::Unfit("the PostgreSQL server has no database of this name"),
        Some("42501") => StoreError::Unfit("the PostgreSQL user may not connect to this database"),
        _ => sql_fault(error),
    }
}

pub(super) fn migrate_fault(error: &MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(e) | MigrateError::ExecuteMigration(e, _) => match sql_fault(e) {
            StoreError::Refused("privilege") => StoreError::Unfit("the PostgreSQL user may not create tables here"),
            fault => fault,
        },
        _ => StoreError::Schema,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_one_meaning() {
        let cases = [
            ("40001", StoreError::Conflict),
            ("40P01", StoreError::Conflict),
            ("57014", StoreError::Busy),
            ("55P03", StoreError::Busy),
            ("25006", StoreError::ReadOnly),
            ("53100", StoreError::Full),
            ("53300", StoreError::Unavailable),
            ("57P01", StoreError::Unavailable),
            ("57P03", StoreError::Unavailable),
            ("25P03", StoreError::Unavailable),
            ("08006", StoreError::Unavailable),
            ("28P01", StoreError::Unavailable),
            ("58030", StoreError::Unavailable),
            ("23505", StoreError::Refused("constraint")),
            ("23514", StoreError::Refused("constraint")),
            ("P0001", StoreError::Refused("constraint")),
            ("XX001", StoreError::Refused("corrupt")),
            ("42P01", StoreError::Schema),
            ("42601", StoreError::Refused("statement")),
            ("", StoreError::Refused("statement")),
        ];
        for (code, fault) in cases {
            assert_eq!(code_fault(code), fault, "{code}");
        }
    }

    #[test]
    fn a_connection_that_is_lost_during_a_commit_leaves_it_unknown() {
        let lost = || sqlx::Error::Io(io::ErrorKind::ConnectionReset.into());
        assert_eq!(commit_fault(&lost()), StoreError::Ambiguous);
        assert_eq!(sql_fault(&lost()), StoreError::Unavailable);
        assert!(!is_only_the_statement(&lost()));
    }
}
