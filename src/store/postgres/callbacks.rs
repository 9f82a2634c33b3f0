//! Callbacks on the server, on connections of their own: they wait for no commit, and no commit for them.

use async_trait::async_trait;

use super::PostgresStore;
use super::bind::{column, id_bytes, limit_of, number, statement};
use crate::domain::ids::{TargetName, Tenant};
use crate::store::callbacks::{Again, Backlog, Callback, Callbacks, Logged, NewCallback};
use crate::store::{StoreError, decode};

/// Parameters: target, position.
const ENLIST: &str =
    "INSERT INTO callback_target (name, pos) VALUES ($1::text, $2::bigint) ON CONFLICT (name) DO NOTHING";

const PLACE: &str = "SELECT pos FROM callback_target WHERE name = $1::text";

/// Parameters: tenant, after position, up to position.
const LOGGED: &str = logged!("$1::text", "$2::bigint", "$3::bigint");

/// Parameters: target, from, to, and the columns of the callbacks. A target that another node has moved meanwhile stays
/// where it is.
const TAKE_OVER: &str = "\
     WITH moved AS (UPDATE callback_target SET pos = $3::bigint WHERE name = $1::text AND pos = $2::bigint \
     RETURNING name), \
     taken AS (INSERT INTO callback (target, pos, notification, change, state, tries, due_at) \
     SELECT moved.name, j.pos, j.notification, j.change, j.state, 0, j.due_at FROM moved \
     CROSS JOIN unnest($4::bigint[], $5::bytea[], $6::text[], $7::text[], $8::bigint[]) \
     AS j (pos, notification, change, state, due_at)) \
     SELECT count(*) AS moved FROM moved";

/// Parameters: target, limit.
const FIRST: &str = first_callbacks!("JOIN", "$1::text", "$2::bigint");

/// Parameters: target, positions that are over, and the columns of what is postponed.
const SETTLE: &str = "\
     WITH over AS (DELETE FROM callback WHERE target = $1::text AND pos = ANY($2::bigint[])) \
     UPDATE callback SET tries = j.tries, due_at = j.due_at \
     FROM unnest($3::bigint[], $4::integer[], $5::bigint[]) AS j (pos, tries, due_at) \
     WHERE callback.target = $1::text AND callback.pos = j.pos";

const BACKLOG: &str = callback_backlog!("JOIN", "$1::text");

/// Every statement of this file.
pub const STATEMENTS: &[&str] = &[ENLIST, PLACE, LOGGED, TAKE_OVER, FIRST, SETTLE, BACKLOG];

#[async_trait]
impl Callbacks for PostgresStore {
    async fn enlist(&self, target: &TargetName, pos: i64) -> Result<(), StoreError> {
        self.callbacks.read(|| statement(ENLIST).bind(target.to_string()).bind(pos)).await.map(drop)
    }

    async fn place(&self, target: &TargetName) -> Result<i64, StoreError> {
        number(&self.callbacks.read(|| statement(PLACE).bind(target.to_string())).await?, "pos")
    }

    async fn logged(&self, tenant: &Tenant, after: i64, up_to: i64) -> Result<Vec<Logged>, StoreError> {
        let page = || statement(LOGGED).bind(tenant.to_string()).bind(after).bind(up_to);
        self.callbacks.read(page).await?.iter().map(decode::logged).collect()
    }

    async fn take_over(
        &self,
        target: &TargetName,
        from: i64,
        to: i64,
        callbacks: &[NewCallback],
    ) -> Result<bool, StoreError> {
        let take_over = || {
            statement(TAKE_OVER)
                .bind(target.to_string())
                .bind(from)
                .bind(to)
                .bind(column(callbacks, |c| c.pos))
                .bind(column(callbacks, |c| id_bytes(&c.notification)))
                .bind(column(callbacks, |c| c.change.code()))
                .bind(column(callbacks, |c| c.state.code()))
                .bind(column(callbacks, |c| c.due_at.micros()))
        };
        Ok(number(&self.callbacks.read(take_over).await?, "moved")? == 1)
    }

    async fn first(&self, target: &TargetName, limit: u32) -> Result<Vec<Callback>, StoreError> {
        let first = || statement(FIRST).bind(target.to_string()).bind(limit_of(limit));
        self.callbacks.read(first).await?.iter().map(decode::callback).collect()
    }

    async fn settle(&self, target: &TargetName, over: &[i64], again: &[Again]) -> Result<(), StoreError> {
        let settle = || {
            statement(SETTLE)
                .bind(target.to_string())
                .bind(over.to_vec())
                .bind(column(again, |a| a.pos))
                .bind(column(again, |a| i32::from(a.tries)))
                .bind(column(again, |a| a.due_at.micros()))
        };
        self.callbacks.read(settle).await.map(drop)
    }

    async fn backlog(&self, target: &TargetName) -> Result<Backlog, StoreError> {
        let rows = self.callbacks.read(|| statement(BACKLOG).bind(target.to_string())).await?;
        decode::backlog(rows.first().ok_or(StoreError::Refused("statement"))?)
    }
}
