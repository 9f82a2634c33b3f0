//! Nodes on a file that only one process can have open: this one is alive, leads, and wakes itself.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row as _;

use super::fault::sql_fault;
use super::{SqliteStore, sql};
use crate::domain::ids::{BootId, NodeName};
use crate::store::StoreError;
use crate::store::new_incarnation;
use crate::store::nodes::{Enrolled, Nodes, Renewed, Rung};
use crate::store::rows::Queue;

#[async_trait]
impl Nodes for SqliteStore {
    async fn agree(&self, on: &'static str, value: &str) -> Result<bool, StoreError> {
        let mut writer = self.writer.clone().lock_owned().await;
        let connection = writer.idle().await?;
        let pin = sqlx::query(sql::PIN).bind(on).bind(value.to_owned());
        pin.execute(&mut *connection).await.map_err(|e| sql_fault(&e))?;
        let pinned = sqlx::query(sql::PINNED).bind(on).bind(value.to_owned());
        let row = pinned.fetch_one(connection).await.map_err(|e| sql_fault(&e))?;
        row.try_get("same").map_err(|e| sql_fault(&e))
    }

    async fn succeed(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.clone().lock_owned().await;
        let connection = writer.idle().await?;
        sqlx::query(sql::KEEP_PREDECESSOR).execute(&mut *connection).await.map_err(|e| sql_fault(&e))?;
        let succeed = sqlx::query(sql::SUCCEED).bind(new_incarnation());
        succeed.execute(connection).await.map(drop).map_err(|e| sql_fault(&e))
    }

    async fn succeeds(&self, incarnation: &str) -> Result<bool, StoreError> {
        let mut writer = self.writer.clone().lock_owned().await;
        let succeeds = sqlx::query(sql::SUCCEEDS).bind(incarnation.to_owned());
        let row = succeeds.fetch_one(writer.idle().await?).await.map_err(|e| sql_fault(&e))?;
        row.try_get("succeeds").map_err(|e| sql_fault(&e))
    }

    /// Whoever stands in the table is dead, since we hold the lock.
    async fn enrol(&self, name: &NodeName, boot: &BootId, lease: Duration) -> Result<Enrolled, StoreError> {
        let mut writer = self.writer.clone().lock_owned().await;
        let connection = writer.idle().await?;
        let now = self.clock.now();
        sqlx::query(sql::FORGET_NODES).execute(&mut *connection).await.map_err(|e| sql_fault(&e))?;
        let enrol = sqlx::query(sql::ENROL).bind(name.to_string()).bind(boot.to_string());
        let enrol = enrol.bind(now.micros()).bind(now.plus(lease).micros());
        enrol.execute(connection).await.map_err(|e| sql_fault(&e))?;
        Ok(Enrolled::Taken { now })
    }

    /// Nothing is written: the lock is the lease.
    async fn renew(&self, _name: &NodeName, _boot: &BootId, _lease: Duration) -> Result<Renewed, StoreError> {
        Ok(Renewed::Kept { now: self.clock.now() })
    }

    async fn release(&self, _name: &NodeName, _boot: &BootId) -> Result<(), StoreError> {
        let mut writer = self.writer.clone().lock_owned().await;
        let forget = sqlx::query(sql::FORGET_NODES).execute(writer.idle().await?).await;
        forget.map(|_| ()).map_err(|e| sql_fault(&e))
    }

    async fn bury(&self, _own: &NodeName) -> Result<Vec<NodeName>, StoreError> {
        Ok(vec![])
    }

    async fn lead(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn resign(&self) -> bool {
        false
    }

    fn ring(&self, _queue: &Queue) {}

    async fn heard(&self) -> Rung {
        std::future::pending().await
    }
}
