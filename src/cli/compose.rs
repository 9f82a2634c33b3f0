//! Puts the program together: from settings to providers, ledger, dispatcher and listeners. The only place that knows
//! every room.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use secrecy::ExposeSecret as _;
use tokio::sync::{Semaphore, mpsc, watch};

use super::{Failure, callbacks, check_keys, providers};
use crate::callback::{self, Target, Tellers};
use crate::clock::{FollowingClock, SharedClock, SystemClock};
use crate::config::{self, Environment, ProviderSettings, Settings, StorePlace};
use crate::dispatch::{self, Dispatcher, Router};
use crate::document::{Mistake, Place, show_duration};
use crate::domain::audit::Actor;
use crate::domain::content::Channel;
use crate::domain::ids::{BootId, NodeName, ProviderName};
use crate::domain::route::Route;
use crate::http::{self, Api, Authenticate, Principal, Rate, TenantRules};
use crate::keys::{self, KeyRing};
use crate::ledger::{Ledger, Parts, Policy, Transit};
use crate::metrics::Metrics;
use crate::node::Member;
use crate::process;
use crate::provider::Provider;
use crate::provider::inbox::{Handed, Inbox};
use crate::render::templates::Templates;
use crate::store::mark::Mark;
use crate::store::nodes::Identity;
use crate::store::postgres::{PostgresOptions, PostgresStore};
use crate::store::sqlite::{SqliteOptions, SqliteStore};
use crate::store::{Store, StoreError};
use crate::vault::{IndexKey, Purpose, Vault, random};

/// How many receipts that do not come over HTTP may wait for the ledger.
const RECEIPTS_WAITING: usize = 1024;

/// How many requests may wait for a change at once.
const LONG_POLLS: usize = 1024;

/// The daemon, put together and not yet started.
pub(super) struct Assembly {
    pub ledger: Ledger,
    pub member: Member,
    pub router: Arc<Router>,
    pub metrics: Metrics,
    pub clock: SharedClock,
    pub keys: Arc<KeyRing>,
    pub index: Arc<IndexKey>,
    pub templates: Arc<Templates>,
    pub receipts: mpsc::Receiver<Handed>,
    pub targets: Vec<Target>,
}

/// A draw in `0.0..1.0`.
pub(super) fn draw() -> f64 {
    rand::random()
}

fn new_boot() -> BootId {
    BootId::new(*random())
}

/// The configured name, or the host's.
fn node_name(settings: &Settings) -> Result<NodeName, Failure> {
    settings.node.name.clone().map_or_else(
        || {
            NodeName::parse(&process::host_name()).map_err(|e| {
                let place = Place { key: "node.name".to_owned(), ..settings.place.clone() };
                Failure::mistakes(&[Mistake { place, message: format!("must be given, since the host's name {e}") }])
            })
        },
        Ok,
    )
}

/// What a composition needs besides the store: the keys are checked, the providers built.
struct Checked {
    vault: Arc<Vault>,
    index: Arc<IndexKey>,
    router: Arc<Router>,
    receipts: mpsc::Receiver<Handed>,
}

/// Reads a configuration and checks everything that it names. Tells every mistake at once, with the settings as far as
/// they are sound.
///
/// # Errors
/// When the file cannot be read or is no TOML.
pub(super) fn read(path: &Path, env: &Environment) -> Result<(Settings, Vec<Mistake>), Vec<Mistake>> {
    let (mut settings, mut mistakes) = Settings::read(path, env)?;
    mistakes.extend(check(&mut settings, &mistakes));
    Ok((settings, mistakes))
}

/// The settings of a configuration without mistakes.
pub(super) fn load(path: &Path) -> Result<Settings, Failure> {
    match read(path, &Environment::of_process()) {
        Ok((settings, mistakes)) if mistakes.is_empty() => Ok(settings),
        Ok((_, mistakes)) | Err(mistakes) => Err(Failure::mistakes(&mistakes)),
    }
}

/// Checks what the settings name, but for what is `told` to be mistaken already.
fn check(settings: &mut Settings, told: &[Mistake]) -> Vec<Mistake> {
    let is_told = |key: &str| told.iter().any(|m| m.place.key.starts_with(key) || key.starts_with(&m.place.key));
    let mut mistakes = check_keys(settings, is_told);
    if !is_told("templates.") {
        match templates(settings) {
            Ok(templates) => {
                settings.advice.extend(short_lives(settings, &templates));
                mistakes.extend(super::hooks::check(settings, &templates));
                mistakes.extend(unknown_kinds(settings, &templates));
            }
            Err(more) => mistakes.extend(more),
        }
    }
    mistakes.extend(callbacks::build_all(&settings.callbacks, is_told).err().unwrap_or_default());
    // Without an index key the providers cannot be built for the daemon, but their mistakes can still be told.
    let index = IndexKey::parse(settings.vault.index_key.expose_secret())
        .or_else(|_| IndexKey::parse(&crate::vault::new_key_line("check")));
    if let Ok(index) = index {
        let sound = settings.providers.iter().filter(|p| !is_told(&format!("provider.{}.", p.name)));
        let receipts = Inbox::new(1).0;
        match lanes(settings, sound, &Arc::new(index), &receipts) {
            Ok(lanes) if told.is_empty() => {
                mistakes.extend(router(settings, Arc::new(SystemClock), lanes).err());
            }
            Ok(_) => {}
            Err(more) => mistakes.extend(more),
        }
    }
    mistakes
}

/// Advice on kinds whose messages can never leave in time.
fn short_lives(settings: &Settings, templates: &Templates) -> Vec<Mistake> {
    let dispatch = &settings.dispatch;
    let leads_on = |route: &Route| route.providers().next().is_some();
    let is_routed = |to| settings.routes.routes().any(|(channel, route)| channel == to && leads_on(route));
    let channels = [
        ("dispatch.transit_sms", dispatch.transit_sms, is_routed(Channel::Sms)),
        ("dispatch.transit_email", dispatch.transit_email, is_routed(Channel::Email)),
    ];
    let lives = templates.kinds().filter_map(|kind| Some((kind, templates.kind(kind)?.max_expires_in())));
    let pairs = lives.flat_map(|(kind, life)| channels.map(|channel| (kind, life, channel)));
    let never = pairs.filter(|(_, life, (_, transit, routed))| *routed && transit >= life);
    let advice = never.map(|(kind, life, (key, transit, _))| Mistake {
        place: Place { key: key.to_owned(), ..settings.place.clone() },
        message: format!(
            "{} is not less than the {} that a message of the kind `{kind}` may live; none can leave this way",
            show_duration(transit),
            show_duration(life)
        ),
    });
    advice.collect()
}

/// Kinds that a route is for and that no template has.
fn unknown_kinds(settings: &Settings, templates: &Templates) -> Option<Mistake> {
    let unknown = settings.routes.kinds().find(|kind| templates.kind(kind).is_none())?;
    let place = Place { key: "routes.rule".to_owned(), ..settings.place.clone() };
    Some(Mistake { place, message: format!("a rule is for the kind `{unknown}`, which has no templates") })
}

fn templates(settings: &Settings) -> Result<Templates, Vec<Mistake>> {
    let read = match &settings.templates.dir {
        Some(dir) => Templates::load(dir),
        None => Templates::shipped(),
    };
    let mistake = |m: &crate::render::templates::TemplateMistake| Mistake {
        place: Place::of_file(&m.file.display().to_string()),
        message: m.mistake.to_string(),
    };
    read.map_err(|mistakes| mistakes.iter().map(mistake).collect())
}

type BuiltLane = (Arc<dyn Provider>, dispatch::LaneSettings);

/// Builds providers.
fn lanes<'s>(
    settings: &Settings,
    providers: impl Iterator<Item = &'s ProviderSettings>,
    index: &Arc<IndexKey>,
    receipts: &Inbox,
) -> Result<Vec<BuiltLane>, Vec<Mistake>> {
    let (mut lanes, mut mistakes) = (vec![], vec![]);
    for provider in providers {
        match providers::build(provider, index, settings.server.public_url.as_deref(), receipts) {
            Ok(built) => lanes.push((built, lane_settings(&provider.lane))),
            Err(more) => mistakes.extend(more),
        }
    }
    if mistakes.is_empty() { Ok(lanes) } else { Err(mistakes) }
}

/// The routes to all providers.
fn router(settings: &Settings, clock: SharedClock, lanes: Vec<BuiltLane>) -> Result<Arc<Router>, Mistake> {
    Router::new(clock, lanes, settings.routes.clone()).map(Arc::new).map_err(|error| {
        let place = Place { key: "routes".to_owned(), ..settings.place.clone() };
        Mistake { place, message: error.to_string() }
    })
}

/// Builds one configured provider alone, for a test of it.
pub(super) fn one_provider(
    settings: &Settings,
    name: &ProviderName,
) -> Result<(Arc<dyn Provider>, Arc<IndexKey>), Failure> {
    let index = IndexKey::parse(settings.vault.index_key.expose_secret());
    let index = Arc::new(index.map_err(|e| Failure::failed(format!("vault.index_key: {e}")))?);
    let configured = settings.providers.iter().find(|p| p.name == *name);
    let configured = configured.ok_or_else(|| Failure::failed("no provider of this name is configured"))?;
    let receipts = Inbox::new(1).0;
    let built = providers::build(configured, &index, settings.server.public_url.as_deref(), &receipts);
    Ok((built.map_err(|m| Failure::mistakes(&m))?, index))
}

fn lane_settings(lane: &config::Lane) -> dispatch::LaneSettings {
    let default = dispatch::breaker::BreakerSettings::default();
    let open_for = crate::domain::retry::RetryPolicy {
        first: lane.breaker.open_for,
        cap: default.open_for.cap.max(lane.breaker.open_for),
        ..default.open_for
    };
    dispatch::LaneSettings {
        concurrency: lane.concurrency.into(),
        rate: lane.rate,
        burst: lane.burst,
        breaker: dispatch::breaker::BreakerSettings { failures: lane.breaker.failures, open_for, ..default },
    }
}

fn checked(settings: &Settings, clock: &SharedClock) -> Result<Checked, Failure> {
    let key_mistake = |key: &str, e: crate::vault::KeyFileError| {
        let place = Place { key: key.to_owned(), ..settings.place.clone() };
        Failure::mistakes(&[Mistake { place, message: e.to_string() }])
    };
    let vault = Vault::parse(settings.vault.sealing_keys.expose_secret());
    let vault = Arc::new(vault.map_err(|e| key_mistake("vault.sealing_keys", e))?);
    let index = IndexKey::parse(settings.vault.index_key.expose_secret());
    let index = Arc::new(index.map_err(|e| key_mistake("vault.index_key", e))?);
    let (inbox, receipts) = Inbox::new(RECEIPTS_WAITING);
    let lanes = lanes(settings, settings.providers.iter(), &index, &inbox).map_err(|m| Failure::mistakes(&m))?;
    let router = router(settings, clock.clone(), lanes).map_err(|m| Failure::mistakes(&[m]))?;
    Ok(Checked { vault, index, router, receipts })
}

fn policy(settings: &Settings) -> Policy {
    let (d, r, a) = (&settings.dispatch, &settings.retention, &settings.admission);
    Policy {
        max_attempts: d.max_attempts,
        retry: d.retry,
        ask: d.ask,
        transit: Transit { sms: d.transit_sms, email: d.transit_email },
        failover_after: d.failover_after,
        key_retention: r.keys,
        receipt_retention: r.receipts,
        receipts_kept: r.receipts_kept,
        begins_after_loss: match settings.store.place {
            // The file's lock tells that whoever had it before is dead.
            StorePlace::Sqlite(_) => None,
            StorePlace::Postgres { .. } => Some(d.start_by),
        },
        queue: a.queue,
        batch: a.batch,
    }
}

/// What to tell when the store does not open.
fn store_failure(settings: &Settings, error: StoreError) -> Failure {
    match &settings.store.place {
        StorePlace::Sqlite(path) => Failure::failed(format!("{}: {error}", path.display())),
        StorePlace::Postgres { .. } => Failure::failed(format!("the store in PostgreSQL: {error}")),
    }
}

/// Opens the store, and brings its schema up to date.
pub(super) async fn open_store(settings: &Settings, clock: &SharedClock) -> Result<Arc<dyn Store>, Failure> {
    let busy_timeout = settings.store.busy_timeout;
    let opened: Result<Arc<dyn Store>, StoreError> = match &settings.store.place {
        StorePlace::Sqlite(path) => {
            let options = SqliteOptions { busy_timeout, ..SqliteOptions::default() };
            SqliteStore::open(path, clock.clone(), options).await.map(|store| Arc::new(store) as _)
        }
        StorePlace::Postgres { url, password } => {
            let options = PostgresOptions { busy_timeout, ..PostgresOptions::default() };
            PostgresStore::open(url, password.as_ref(), options).await.map(|store| Arc::new(store) as _)
        }
    };
    opened.map_err(|e| store_failure(settings, e))
}

/// The clock that all of the daemon goes by: the store's.
fn clock_of(settings: &Settings) -> SharedClock {
    match settings.store.place {
        StorePlace::Sqlite(_) => Arc::new(SystemClock),
        StorePlace::Postgres { .. } => Arc::new(FollowingClock::new(SystemClock)),
    }
}

/// Puts everything together and opens the store.
pub(super) async fn assemble(settings: &Settings) -> Result<Assembly, Failure> {
    let clock = clock_of(settings);
    let Checked { vault, index, router, receipts } = checked(settings, &clock)?;
    let templates = Arc::new(templates(settings).map_err(|m| Failure::mistakes(&m))?);
    let targets = callbacks::build_all(&settings.callbacks, |_| false).map_err(|m| Failure::mistakes(&m))?;
    let keys = KeyRing::load(&settings.keys.file).map_err(|e| Failure::failed(e.to_string()))?;
    let metrics = Metrics::default();
    let store = open_store(settings, &clock).await?;
    let key = index.hash(Purpose::Itself, &[]).to_string();
    if !store.nodes().agree("index_key", &key).await.map_err(|e| store_failure(settings, e))? {
        return Err(Failure::failed(
            "vault.index_key: the store was made with another key; with this one no repeat would be recognised",
        ));
    }
    let identity = Arc::new(Identity::new(node_name(settings)?, new_boot()));
    let mark = Mark::open(&settings.store.mark_file);
    let mark = mark.map_err(|e| Failure::failed(format!("{}: {e}", settings.store.mark_file.display())))?;
    let parts = Parts {
        store: store.clone(),
        routes: router.clone(),
        vault,
        index: index.clone(),
        clock: clock.clone(),
        policy: policy(settings),
        identity: identity.clone(),
        metrics: metrics.clone(),
        draw,
    };
    let ledger = Ledger::start(parts, Some(mark)).await.map_err(|e| Failure::failed(e.to_string()))?;
    let member = Member { store, clock: clock.clone(), identity, lease: settings.node.lease, boots: new_boot, draw };
    callback::enlist(member.store.as_ref(), &targets).await.map_err(|e| store_failure(settings, e))?;
    Ok(Assembly { ledger, member, router, metrics, clock, keys: Arc::new(keys), index, templates, receipts, targets })
}

impl Assembly {
    /// Starts to claim and send.
    pub fn dispatcher(&self, settings: &Settings) -> Dispatcher {
        let (start_by, sweep_every) = (settings.dispatch.start_by, settings.dispatch.sweep_every);
        Dispatcher::start(dispatch::Parts {
            desk: Arc::new(self.ledger.clone()),
            router: self.router.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            settings: dispatch::Settings { start_by, sweep_every, ..dispatch::Settings::default() },
            draw,
        })
    }

    /// The providers that are configured.
    pub fn providers(&self, settings: &Settings) -> HashMap<ProviderName, Arc<dyn Provider>> {
        let names = settings.providers.iter().map(|p| &p.name);
        names.filter_map(|name| Some((name.clone(), self.router.provider(name)?))).collect()
    }

    /// Starts to tell apps.
    pub fn tellers(&mut self, settings: &Settings) -> Tellers {
        let ledger = self.ledger.clone();
        let parts = callback::Parts {
            store: self.member.store.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            commits: ledger.commits(),
            leads: Arc::new(move || ledger.leads() && ledger.holds_lease() && !ledger.is_held()),
            public_url: settings.server.public_url.clone(),
            draw,
        };
        Tellers::start(&parts, std::mem::take(&mut self.targets))
    }

    /// The state of the HTTP handlers.
    pub fn api(&self, settings: &Settings, stopping: watch::Receiver<bool>) -> Arc<Api> {
        let rate = |limit: &config::Limit| Rate { burst: limit.burst, per: limit.per };
        let rules = |tenant: &config::TenantSettings| TenantRules {
            countries: tenant.countries.iter().map(|c| c.code()).collect(),
            recipient_limit: tenant.recipient_limit.as_ref().map(rate),
            tenant_limit: tenant.tenant_limit.as_ref().map(rate),
        };
        let tenants = settings.tenants.iter().map(|t| (t.name.clone(), rules(t))).collect();
        Arc::new(Api {
            ledger: self.ledger.clone(),
            index: self.index.clone(),
            templates: self.templates.clone(),
            tenants,
            authenticate: Arc::new(Doorkeeper(self.keys.clone())),
            providers: self.providers(settings),
            hooks: settings.hooks.iter().map(|hook| (hook.name.clone(), hook.clone())).collect(),
            lanes: lanes_of(self.router.clone()),
            metrics: self.metrics.clone(),
            clock: self.clock.clone(),
            limits: http::Limits {
                body: settings.server.body_limit,
                body_time: settings.server.request_timeout,
                batch_lines: settings.admission.batch_lines,
                answer_time: settings.server.request_timeout,
                max_sms_parts: settings.admission.max_sms_parts,
            },
            statements: Arc::new(Semaphore::new(1)),
            waiters: Arc::new(Semaphore::new(LONG_POLLS)),
            stopping,
        })
    }
}

/// The lanes, as the HTTP room shows them.
fn lanes_of(router: Arc<Router>) -> http::Lanes {
    let shown = |lane: dispatch::LaneView| http::Lane {
        provider: lane.provider,
        channel: lane.channel,
        breaker: lane.breaker.code(),
        permits: lane.permits,
        in_flight: lane.in_flight,
        closed_for: lane.closed_for,
    };
    Arc::new(move || router.lanes().into_iter().map(shown).collect())
}

/// The keys of the file, as the HTTP room asks for them.
struct Doorkeeper(Arc<KeyRing>);

impl Authenticate for Doorkeeper {
    fn principal(&self, bearer: &str) -> Option<Principal> {
        let keys::Principal { id, tenant, roles } = self.0.lookup(bearer)?;
        Some(Principal { actor: Actor::Key(id), tenant, roles: roles.into_iter().collect() })
    }
}
