//! The HTTP interface on a real socket over a real ledger and store. No dispatcher runs: tests play the worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sendonce::clock::{ManualClock, SharedClock};
use sendonce::domain::audit::Actor;
use sendonce::domain::content::Channel;
use sendonce::domain::ids::{ActorName, BootId, NodeName, ProviderName, Tenant};
use sendonce::domain::outcome::{LookupAnswer, Outcome, Reason};
use sendonce::domain::receipt::{Part, Receipt, ReceiptStatus};
use sendonce::domain::retry::RetryPolicy;
use sendonce::domain::time::Timestamp;
use sendonce::http::server::{Bounds, serve};
use sendonce::http::{Api, Authenticate, Lane, Lanes, Limits, Principal, Rate, Role, TenantRules, router};
use sendonce::ledger::{Ledger, Parts, Policy, Routes, RoutingKey, Transit};
use sendonce::metrics::Metrics;
use sendonce::provider::gate::Gate;
use sendonce::provider::{Abilities, Dispatch, Inquiry, Provider, ReceiptError, ReceiptRequest};
use sendonce::render::templates::Templates;
use sendonce::store::nodes::Identity;
use sendonce::store::sqlite::{SqliteOptions, SqliteStore};
use sendonce::vault::{IndexKey, Vault, new_key_line};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// What the store's file lives in, and all that runs on it.
pub struct App {
    pub ledger: Ledger,
    pub index: Arc<IndexKey>,
    pub clock: Arc<ManualClock>,
    pub provider: ProviderName,
    pub metrics: Metrics,
    pub waiters: Arc<Semaphore>,
    base: String,
    client: reqwest::Client,
    stop: watch::Sender<bool>,
    served: tokio::task::JoinHandle<bool>,
    _dir: tempfile::TempDir,
}

/// An answer, read whole.
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The problem's name.
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        let kind = self.json()["type"].as_str().expect("a type").to_owned();
        kind.strip_prefix("urn:sendonce:problem:").expect("our prefix").to_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }
}

/// `TENANT-ROLE` is a key with that role.
struct Keys;

impl Authenticate for Keys {
    fn principal(&self, bearer: &str) -> Option<Principal> {
        let (tenant, role) = bearer.split_once('-')?;
        let roles = [Role::from_code(role)?].into_iter().collect();
        Some(Principal {
            actor: Actor::Key(ActorName::parse(bearer).ok()?),
            tenant: Tenant::parse(tenant).ok()?,
            roles,
        })
    }
}

/// Proves receipts by a header, and reads `REFERENCE STATUS`.
struct Stub {
    name: ProviderName,
    abilities: Arc<Abilities>,
    index: Arc<IndexKey>,
}

#[async_trait]
impl Provider for Stub {
    fn name(&self) -> &ProviderName {
        &self.name
    }

    fn channel(&self) -> Channel {
        Channel::Sms
    }

    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    async fn send(&self, _: &Dispatch, _: &Gate) -> Outcome {
        Outcome::unknown(Reason::LostAnswer)
    }

    async fn lookup(&self, _: &Inquiry) -> LookupAnswer {
        LookupAnswer::Unreadable
    }

    async fn receipts(&self, request: &ReceiptRequest, _: Timestamp) -> Result<Vec<Receipt>, ReceiptError> {
        if request.headers.get("x-secret").is_none_or(|secret| secret != "open") {
            return Err(ReceiptError::NotAuthentic);
        }
        let text = std::str::from_utf8(&request.body).map_err(|_| ReceiptError::Unreadable)?;
        let (reference, status) = text.split_once(' ').ok_or(ReceiptError::Unreadable)?;
        let status = ReceiptStatus::from_code(status).ok_or(ReceiptError::Unreadable)?;
        let reference = self.index.read_reference(reference);
        let provider = self.name.clone();
        Ok(reference
            .map(|r| Receipt { provider, reference: Some(r), message_id: None, status, part: Part::WHOLE })
            .into_iter()
            .collect())
    }
}

impl Routes for Stub {
    fn first(&self, key: &RoutingKey<'_>) -> Option<ProviderName> {
        (key.leg.channel == Channel::Sms).then(|| self.name.clone())
    }

    fn after(&self, _: &RoutingKey<'_>, _: &ProviderName) -> Option<ProviderName> {
        None
    }

    fn abilities(&self, _: &ProviderName) -> Option<Arc<Abilities>> {
        Some(self.abilities.clone())
    }

    fn is_open(&self, _: &ProviderName) -> bool {
        false
    }
}

fn policy() -> Policy {
    Policy {
        max_attempts: 3,
        retry: RetryPolicy::default(),
        ask: RetryPolicy::default(),
        transit: Transit { sms: Duration::from_secs(30), email: Duration::from_secs(60) },
        failover_after: 2,
        key_retention: Duration::from_secs(30 * 86_400),
        receipt_retention: Duration::from_secs(86_400),
        receipts_kept: 1000,
        begins_after_loss: None,
        queue: 64,
        batch: 16,
    }
}

fn abilities() -> Abilities {
    Abilities {
        account: [1; 16],
        rev: [2; 16],
        send_timeout: Duration::from_secs(10),
        lookup: None,
        dedupe: None,
        receipts: true,
        receipts_by_id: false,
        identical_body: false,
    }
}

/// `shop` may send to Viet Nam only, twice a minute to one person; `bank` has no rules.
fn tenants() -> HashMap<Tenant, TenantRules> {
    let rate = Rate { burst: 2, per: Duration::from_secs(60) };
    let rules = TenantRules { countries: [*b"VN"].into(), recipient_limit: Some(rate), tenant_limit: None };
    [(Tenant::parse("shop").expect("a tenant"), rules)].into()
}

/// One lane, which waits for its breaker.
fn lanes(provider: &ProviderName) -> Lanes {
    let lane = Lane {
        provider: provider.clone(),
        channel: Channel::Sms,
        breaker: "half_open",
        permits: 1,
        in_flight: 0,
        closed_for: Duration::from_millis(1500),
    };
    Arc::new(move || vec![lane.clone()])
}

impl App {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let clock = ManualClock::at(Timestamp::parse_rfc3339("2026-11-29T12:00:00Z").expect("a time"));
        let shared: SharedClock = clock.clone();
        let store = SqliteStore::open(&dir.path().join("store.db"), shared.clone(), SqliteOptions::default()).await;
        let index = Arc::new(IndexKey::parse(&new_key_line("i")).expect("a key"));
        let provider = ProviderName::parse("stub").expect("a name");
        let stub = Arc::new(Stub { name: provider.clone(), abilities: Arc::new(abilities()), index: index.clone() });
        let metrics = Metrics::default();
        let parts = Parts {
            store: Arc::new(store.expect("a store")),
            routes: stub.clone(),
            vault: Arc::new(Vault::parse(&new_key_line("k1")).expect("a key")),
            index: index.clone(),
            clock: shared.clone(),
            policy: policy(),
            identity: Arc::new(Identity::alone(NodeName::parse("n1").expect("a name"), BootId::new([1; 8]))),
            metrics: metrics.clone(),
            draw: || 0.5,
        };
        let ledger = Ledger::start(parts, None).await.expect("a ledger");
        let (stop, stopping) = watch::channel(false);
        let waiters = Arc::new(Semaphore::new(2));
        let api = Api {
            ledger: ledger.clone(),
            index: index.clone(),
            templates: Arc::new(Templates::shipped().expect("sound templates")),
            tenants: tenants(),
            authenticate: Arc::new(Keys),
            providers: [(provider.clone(), stub as Arc<dyn Provider>)].into(),
            hooks: HashMap::new(),
            lanes: lanes(&provider),
            metrics: metrics.clone(),
            clock: shared,
            statements: Arc::new(Semaphore::new(1)),
            limits: Limits { body: 8192, ..Limits::default() },
            waiters: waiters.clone(),
            stopping: stopping.clone(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let bounds = Bounds { drain: Duration::from_secs(5), ..Bounds::default() };
        let served = tokio::spawn(serve(listener, router(Arc::new(api)), bounds, stopping));
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().expect("a client");
        Self { ledger, index, clock, provider, metrics, waiters, base, client, stop, served, _dir: dir }
    }

    pub fn request(&self, method: &str, path: &str, key: &str) -> reqwest::RequestBuilder {
        let method = method.parse().expect("a method");
        self.client.request(method, format!("{}{path}", self.base)).bearer_auth(key)
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.expect("an answer");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, headers, text: response.text().await.expect("a body") }
    }

    pub async fn get(&self, path: &str, key: &str) -> Answer {
        self.send(self.request("GET", path, key)).await
    }

    pub async fn post(&self, path: &str, key: &str, body: &Value) -> Answer {
        let request = self.request("POST", path, key).header("content-type", "application/json");
        self.send(request.body(body.to_string())).await
    }

    /// Posts an event as `shop`.
    pub async fn event(&self, key: &str, body: &Value) -> Answer {
        let request = self.request("POST", "/v1/notifications", "shop-sender");
        let request = request.header("content-type", "application/json").header("idempotency-key", key);
        self.send(request.body(body.to_string())).await
    }

    /// Takes the one due notification and ends its attempt so.
    pub async fn attempt(&self, outcome: Outcome) {
        let claimed = self.ledger.claim(&self.provider, 10).await.expect("a claim");
        assert_eq!(claimed.len(), 1, "one notification is due");
        self.ledger.settle(claimed[0].id, claimed[0].attempt, outcome).await.expect("settled");
    }

    /// Tells the server to stop, and says whether all that was under way had finished.
    pub async fn stop(self) -> bool {
        self.stop.send_replace(true);
        let drained = self.served.await.expect("no panic");
        self.ledger.close().await;
        drained
    }
}
