//! Whether a server can keep the promise: an acknowledged commit is never lost.

use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};

use super::fault::sql_fault;
use super::sql;
use crate::store::StoreError;

/// The oldest major version that is supported; the tests run on it.
const OLDEST: i32 = 150_000;

/// Checks the server behind a connection.
///
/// # Errors
/// [`StoreError::Unfit`] says what must be changed there; [`StoreError::ReadOnly`] on a standby.
pub(super) async fn check(connection: &mut PgConnection) -> Result<(), StoreError> {
    let row = sqlx::query(sql::FITNESS).fetch_one(connection).await.map_err(|e| sql_fault(&e))?;
    let version = row.try_get("version").map_err(|e| sql_fault(&e))?;
    judge(version, &text(&row, "fsync")?, &text(&row, "synchronous_commit")?, &text(&row, "standbys")?)?;
    if text(&row, "encoding")? != "UTF8" {
        return Err(StoreError::Unfit("the PostgreSQL database must have the encoding UTF8"));
    }
    if text(&row, "read_only")? == "on" {
        return Err(StoreError::ReadOnly);
    }
    Ok(())
}

fn text(row: &PgRow, column: &str) -> Result<String, StoreError> {
    row.try_get(column).map_err(|e| sql_fault(&e))
}

/// `synchronous_commit` (PostgreSQL, section 20.5.1): `off` acknowledges before the commit is on disk, `local` before a
/// standby has it, which loses it on a failover to that.
fn judge(version: i32, fsync: &str, commit: &str, standbys: &str) -> Result<(), StoreError> {
    if version < OLDEST {
        return Err(StoreError::Unfit("the PostgreSQL server is older than version 15"));
    }
    if fsync != "on" {
        return Err(StoreError::Unfit(
            "the PostgreSQL server runs with fsync = off: a power failure would lose messages",
        ));
    }
    match commit {
        "off" => Err(StoreError::Unfit("synchronous_commit is off for this user: a crash would lose messages")),
        "local" if !standbys.is_empty() => Err(StoreError::Unfit(
            "synchronous_commit is local beside synchronous standbys: a failover would lose messages",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_keeps_what_it_acknowledged_will_do() {
        for commit in ["on", "remote_apply", "remote_write"] {
            assert_eq!(judge(150_018, "on", commit, ""), Ok(()));
            assert_eq!(judge(180_000, "on", commit, "*"), Ok(()));
        }
        assert_eq!(judge(150_000, "on", "local", ""), Ok(()));
        let unfit = [
            (140_020, "on", "on", ""),
            (150_000, "off", "on", ""),
            (150_000, "on", "off", ""),
            (150_000, "on", "local", "a"),
        ];
        for (version, fsync, commit, standbys) in unfit {
            let judged = judge(version, fsync, commit, standbys);
            assert!(matches!(judged, Err(StoreError::Unfit(_))), "{version} {fsync} {commit} {standbys}");
        }
    }
}
