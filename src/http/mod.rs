//! The HTTP interface: one file per resource.
//!
//! A handler reads and judges, hands a command to the ledger, and tells what became of it. It holds no transaction, and
//! a client that hangs up changes nothing that the ledger has taken.

pub mod admin;
pub mod auth;
pub mod headers;
pub mod problem;
pub mod receipts;
pub mod server;

mod admission;
mod audit;
mod batch;
mod cancel;
mod forms;
mod hooks;
mod judge;
mod ndjson;
mod notifications;
mod openapi;
mod providers;
mod request;
mod resolve;
mod stall;
mod statements;
mod trace;
mod unknown;
mod view;
mod wait;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::sync::{Semaphore, watch};

use crate::clock::SharedClock;
use crate::domain::hook::Hook;
use crate::domain::ids::{HookName, NotificationId, ProviderName, Tenant};
use crate::ledger::{Ledger, LedgerError};
use crate::metrics::Metrics;
use crate::provider::Provider;
use crate::render::templates::Templates;
use crate::vault::IndexKey;

pub use auth::{Authenticate, Principal, Role, Roles};
pub use openapi::document;
use problem::Problem;
pub use providers::{Lane, Lanes};

/// What the handlers work with.
pub struct Api {
    /// Where every durable step is made.
    pub ledger: Ledger,
    /// Behind every keyed hash.
    pub index: Arc<IndexKey>,
    /// The message templates.
    pub templates: Arc<Templates>,
    /// What each tenant may do. A tenant without rules may do all that its keys allow.
    pub tenants: HashMap<Tenant, TenantRules>,
    /// Who knows the keys.
    pub authenticate: Arc<dyn Authenticate>,
    /// The providers, for their receipts.
    pub providers: HashMap<ProviderName, Arc<dyn Provider>>,
    /// The hooks, for the requests of other systems.
    pub hooks: HashMap<HookName, Hook>,
    /// How their lanes do.
    pub lanes: Lanes,
    /// Counters.
    pub metrics: Metrics,
    /// The time.
    pub clock: SharedClock,
    /// Bounds.
    pub limits: Limits,
    /// How many comparisons with a provider's list may be made at once.
    pub statements: Arc<Semaphore>,
    /// How many long polls may wait at once.
    pub waiters: Arc<Semaphore>,
    /// Becomes `true` when the daemon stops: long polls answer at once.
    pub stopping: watch::Receiver<bool>,
}

/// What a tenant may do.
#[derive(Clone, Debug, Default)]
pub struct TenantRules {
    /// The countries that it may send text messages to (ISO 3166-1 alpha-2); empty for all.
    pub countries: HashSet<[u8; 2]>,
    /// Messages to one recipient.
    pub recipient_limit: Option<Rate>,
    /// Messages of the tenant as a whole.
    pub tenant_limit: Option<Rate>,
}

/// At most `burst` at once, and `burst` in each `per` in the long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub burst: u32,
    /// Not zero.
    pub per: Duration,
}

/// Bounds of requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest body of a command, in bytes.
    pub body: usize,
    /// A body must have arrived within this time, and so must each line of a batch.
    pub body_time: Duration,
    /// The most lines of a batch, each of which may be as long as a body.
    pub batch_lines: usize,
    /// The longest that a handler waits for the ledger. What the ledger has taken goes on.
    pub answer_time: Duration,
    /// The most parts that a text message may have.
    pub max_sms_parts: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 64 * 1024,
            body_time: Duration::from_secs(10),
            batch_lines: 1000,
            answer_time: Duration::from_secs(30),
            max_sms_parts: 4,
        }
    }
}

impl Api {
    /// Waits for the ledger, but not for ever.
    async fn ask<T>(&self, question: impl Future<Output = Result<T, LedgerError>>) -> Result<T, Problem> {
        match tokio::time::timeout(self.limits.answer_time, question).await {
            Ok(answer) => answer.map_err(Problem::unavailable),
            Err(_) => Err(Problem::late()),
        }
    }
}

/// Where a notification's status is, relative to the service.
pub fn status_url(id: NotificationId) -> String {
    format!("/v1/notifications/{id}")
}

/// The public listener's routes.
pub fn router(api: Arc<Api>) -> Router {
    let (routes, document) = openapi::routes().split_for_parts();
    openapi::serve_document(routes, &document)
        .fallback(async || Problem::not_found())
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .layer(axum::middleware::from_fn_with_state(api.clone(), trace::told))
        .with_state(api)
}
