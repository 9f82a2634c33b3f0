//! Callbacks in the file.

use async_trait::async_trait;

use super::batch::Batch;
use super::{SqliteStore, sql};
use crate::domain::ids::{TargetName, Tenant};
use crate::store::callbacks::{Again, Backlog, Callback, Callbacks, Logged, NewCallback};
use crate::store::{StoreError, Transaction as _, decode};

fn positions(positions: &[i64]) -> String {
    Batch::of(positions, |row, pos| {
        row.int(*pos);
    })
}

#[async_trait]
impl Callbacks for SqliteStore {
    async fn enlist(&self, target: &TargetName, pos: i64) -> Result<(), StoreError> {
        let mut tx = self.transaction().await?;
        tx.run(sqlx::query(sql::ENLIST_TARGET).bind(target.to_string()).bind(pos)).await?;
        Box::new(tx).commit().await
    }

    async fn place(&self, target: &TargetName) -> Result<i64, StoreError> {
        let place = sqlx::query(sql::TARGET_PLACE).bind(target.to_string());
        self.reader.one(place, |row| decode::Cells("callback_target", row).int("pos")).await
    }

    async fn logged(&self, tenant: &Tenant, after: i64, up_to: i64) -> Result<Vec<Logged>, StoreError> {
        let page = sqlx::query(sql::LOGGED).bind(tenant.to_string()).bind(after).bind(up_to);
        self.reader.all(page, decode::logged).await
    }

    async fn take_over(
        &self,
        target: &TargetName,
        from: i64,
        to: i64,
        callbacks: &[NewCallback],
    ) -> Result<bool, StoreError> {
        let rows = Batch::of(callbacks, |row, callback| {
            row.int(callback.pos)
                .blob(callback.notification.as_bytes())
                .text(callback.change.code())
                .text(callback.state.code())
                .int(callback.due_at.micros());
        });
        let mut tx = self.transaction().await?;
        let moved = tx.run(sqlx::query(sql::MOVE_TARGET).bind(target.to_string()).bind(from).bind(to)).await?;
        if moved == 0 {
            return Ok(false);
        }
        tx.run(sqlx::query(sql::INSERT_CALLBACKS).bind(target.to_string()).bind(rows)).await?;
        Box::new(tx).commit().await.map(|()| true)
    }

    async fn first(&self, target: &TargetName, limit: u32) -> Result<Vec<Callback>, StoreError> {
        let first = sqlx::query(sql::FIRST_CALLBACKS).bind(target.to_string()).bind(limit);
        self.reader.all(first, decode::callback).await
    }

    async fn settle(&self, target: &TargetName, over: &[i64], again: &[Again]) -> Result<(), StoreError> {
        let postponed = Batch::of(again, |row, again| {
            row.int(again.pos).int(again.tries).int(again.due_at.micros());
        });
        let mut tx = self.transaction().await?;
        tx.run(sqlx::query(sql::DELETE_CALLBACKS).bind(target.to_string()).bind(positions(over))).await?;
        tx.run(sqlx::query(sql::POSTPONE_CALLBACKS).bind(target.to_string()).bind(postponed)).await?;
        Box::new(tx).commit().await
    }

    async fn backlog(&self, target: &TargetName) -> Result<Backlog, StoreError> {
        let backlog = sqlx::query(sql::CALLBACK_BACKLOG).bind(target.to_string());
        self.reader.one(backlog, decode::backlog).await
    }
}
