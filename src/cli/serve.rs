//! `sendonce serve`: runs the daemon until it is told to stop, and stops without losing track of anything.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::compose::{Assembly, assemble, load};
use super::{ConfigFile, Failure};
use crate::config::{LogFormat, Settings};
use crate::dispatch::Dispatcher;
use crate::domain::ids::NodeName;
use crate::http::server::{Bounds, serve};
use crate::http::{self, admin};
use crate::keys::KeyRing;
use crate::ledger::Ledger;
use crate::metrics::{ByProviderResult, Metrics};
use crate::process::{self, Door, Sockets, Stop};
use crate::provider::inbox::Handed;
use crate::telemetry::{self, Form};

/// The file of API keys is looked at this often.
const KEYS_EVERY: Duration = Duration::from_secs(2);

/// So many receipts are stored in one commit.
const RECEIPTS_AT_ONCE: usize = 256;

/// Requests that have been read may take so long to be answered after the stop.
const REQUESTS_DRAIN: Duration = Duration::from_secs(5);

pub(super) fn run(args: &ConfigFile) -> Result<(), Failure> {
    daemon(&load(&args.path)?, |_| {})
}

/// Runs a daemon; `ready` is called with the API's listener once requests are taken.
pub(super) fn daemon(settings: &Settings, ready: impl FnOnce(&TcpListener)) -> Result<(), Failure> {
    let form = match settings.log.format {
        LogFormat::Json => Form::Json,
        LogFormat::Pretty => Form::Pretty,
    };
    telemetry::init(form, settings.log.level).map_err(|e| Failure::failed(e.to_string()))?;
    for advice in &settings.advice {
        tracing::warn!(%advice, "the configuration");
    }
    let sockets = Sockets::inherited().map_err(|e| Failure::failed(format!("the inherited sockets: {}", e.kind())))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::failed(format!("the runtime: {}", e.kind())))?;
    runtime.block_on(live(settings, sockets, ready))
}

async fn live(settings: &Settings, mut sockets: Sockets, ready: impl FnOnce(&TcpListener)) -> Result<(), Failure> {
    let signals = process::watch_signals().map_err(|e| Failure::failed(format!("signals: {}", e.kind())))?;
    let mut assembly = assemble(settings).await?;
    let ledger = assembly.ledger.clone();
    let Some(mut keeping) = join(&assembly, &signals).await? else { return Ok(()) };
    // Not before: whoever connects to a node that waits for its name would wait with it.
    let (api_listener, admin_listener) = match listen_all(&mut sockets, settings).await {
        Ok(listeners) => listeners,
        Err(failure) => {
            keeping.abort();
            ledger.close().await;
            return Err(failure);
        }
    };
    let dispatcher = Arc::new(assembly.dispatcher(settings));
    let tellers = assembly.tellers(settings);
    let (stop, stopping) = watch::channel(false);
    let bounds = Bounds {
        connections: settings.server.max_connections,
        head_time: settings.server.header_timeout,
        drain: REQUESTS_DRAIN,
        ..Bounds::default()
    };
    let readiness = readiness(&ledger, &dispatcher, &stopping);
    let admin = admin::Admin { readiness, metrics: assembly.metrics.clone() };
    // The admin listener outlives the drain, so that its end can be watched.
    let (admin_stop, admin_stopping) = watch::channel(false);
    let admin_bounds = Bounds { connections: 64, drain: Duration::from_secs(1), ..bounds };
    let admin = tokio::spawn(serve(admin_listener, admin::router(admin), admin_bounds, admin_stopping));
    ready(&api_listener);
    let api = assembly.api(settings, stopping.clone());
    let api = tokio::spawn(serve(api_listener, http::router(api), bounds, stopping));
    tokio::spawn(watch_keys(assembly.keys.clone()));
    let receipts = std::mem::replace(&mut assembly.receipts, mpsc::channel(1).1);
    tokio::spawn(take_receipts(ledger.clone(), assembly.metrics.clone(), receipts));
    let providers = assembly.providers(settings);
    providers.values().for_each(|provider| provider.start());
    let watched = ledger.clone();
    let _watchdog = process::feed_watchdog(move || watched.is_alive());
    process::notify_ready();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "ready");

    let evicted = tokio::select! {
        () = process::stopping(signals.clone()) => false,
        _ = &mut keeping => true,
    };
    process::notify_stopping(settings.dispatch.drain_timeout);
    tracing::info!(evicted, "stopping");
    stop.send_replace(true);
    tellers.stop();
    let drained = drain(settings, signals, &dispatcher, api).await;
    join_all(providers.values().map(|provider| provider.stop())).await;
    tellers.ended().await;
    // To the end of the drain, so that nobody takes for dead what still runs; no longer, so that the name is not taken anew.
    keeping.abort();
    ledger.close().await;
    admin_stop.send_replace(true);
    let _ended = admin.await;
    match (evicted, drained) {
        (true, _) => Err(Failure::failed("another process has taken the node's name; give each node one of its own")),
        (false, true) => Ok(()),
        (false, false) => {
            Err(Failure::failed("stopped before everything under way had ended; it is stored as unknown"))
        }
    }
}

/// Becomes a node of the store, and ends what an earlier boot left under way. `None`: told to stop meanwhile.
async fn join(assembly: &Assembly, signals: &watch::Receiver<Stop>) -> Result<Option<JoinHandle<NodeName>>, Failure> {
    let ledger = &assembly.ledger;
    tokio::select! {
        enrolled = assembly.member.enrol() => enrolled.map_err(|e| Failure::failed(e.to_string()))?,
        () = process::stopping(signals.clone()) => {
            ledger.close().await;
            return Ok(None);
        }
    }
    let keeping = tokio::spawn(assembly.member.clone().keep());
    // Before anything is claimed: what an earlier boot left under way is nobody's, and unknown.
    if ledger.is_held() {
        tracing::error!(alert = true, "the store is older than it was seen to be; run `sendonce recover`");
    } else {
        let unknown = ledger.take_over().await.map_err(|e| Failure::failed(e.to_string()))?;
        tracing::info!(unknown, "taken over from the earlier boot");
    }
    Ok(Some(keeping))
}

async fn listen_all(sockets: &mut Sockets, settings: &Settings) -> Result<(TcpListener, TcpListener), Failure> {
    Ok((listen(sockets, Door::Api, settings).await?, listen(sockets, Door::Admin, settings).await?))
}

async fn listen(sockets: &mut Sockets, door: Door, settings: &Settings) -> Result<TcpListener, Failure> {
    let listen = match door {
        Door::Api => settings.server.listen,
        Door::Admin => settings.server.admin_listen,
    };
    let listener = sockets.listen(door, listen.address()).await;
    let place = listen.address().map_or_else(|| "systemd's socket".to_owned(), |address| address.to_string());
    listener.map_err(|e| Failure::failed(format!("cannot listen on {place}: {}", e.kind())))
}

/// Claims nothing more, lets attempts and requests end, stores the rest as unknown. Says whether nothing was left.
async fn drain(
    settings: &Settings,
    signals: watch::Receiver<Stop>,
    dispatcher: &Dispatcher,
    api: JoinHandle<bool>,
) -> bool {
    let mut now = signals;
    let hurried = async {
        // When nobody can signal any more there is nobody in a hurry.
        if now.wait_for(|stop| *stop == Stop::Now).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let orderly = async {
        let (drained, requests) = tokio::join!(dispatcher.drain(settings.dispatch.drain_timeout), api);
        tracing::info!(complete = drained.complete, given_up = drained.given_up, "drained");
        drained.complete && requests.unwrap_or(false)
    };
    tokio::select! {
        complete = orderly => complete,
        () = hurried => {
            let drained = dispatcher.drain(Duration::ZERO).await;
            tracing::warn!(given_up = drained.given_up, "stopped at once");
            false
        }
    }
}

/// Why no traffic should come here now.
fn readiness(ledger: &Ledger, dispatcher: &Arc<Dispatcher>, stopping: &watch::Receiver<bool>) -> admin::Readiness {
    let (ledger, dispatcher, stopping) = (ledger.clone(), dispatcher.clone(), stopping.clone());
    Arc::new(move || {
        let view = dispatcher.view();
        let reasons = [
            (*stopping.borrow() || view.draining, "stopping"),
            (ledger.is_held(), "the store was restored from an older copy; run `sendonce recover`"),
            (!ledger.writable(), "the store cannot be written"),
            (!view.clock_steady, "the wall clock cannot be believed"),
            (!view.lease_held, "the node's lease has run out"),
            (view.unstored > 0, "results wait to be stored"),
        ];
        reasons.into_iter().filter(|(is_so, _)| *is_so).map(|(_, reason)| reason.to_owned()).collect()
    })
}

async fn watch_keys(keys: Arc<KeyRing>) {
    loop {
        tokio::time::sleep(KEYS_EVERY).await;
        match keys.reload_if_changed() {
            Ok(true) => tracing::info!(keys = keys.len(), "the API keys were read again"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the API keys stay as they were"),
        }
    }
}

/// Hands receipts that do not come over HTTP to the ledger, and tells when they are stored.
async fn take_receipts(ledger: Ledger, metrics: Metrics, mut receipts: mpsc::Receiver<Handed>) {
    let count = |handed: &Handed, result| {
        let labels = ByProviderResult { provider: handed.receipt.provider.to_string(), result };
        metrics.receipts.get_or_create(&labels).inc();
    };
    let mut batch = vec![];
    while receipts.recv_many(&mut batch, RECEIPTS_AT_ONCE).await > 0 {
        let batch = std::mem::take(&mut batch);
        match ledger.receive(batch.iter().map(|handed| handed.receipt.clone()).collect()).await {
            Ok(received) => {
                for (handed, what) in batch.into_iter().zip(received) {
                    count(&handed, what.code());
                    handed.stored();
                }
            }
            Err(error) => {
                batch.iter().for_each(|handed| count(handed, "not_stored"));
                tracing::warn!(%error, "receipts were not stored");
            }
        }
    }
}
