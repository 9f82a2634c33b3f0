//! Serves a router on a listener within bounds, until it is told to stop; then lets what is under way finish.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// After a failed accept (no file descriptor left, say) the listener rests so long.
const REST: Duration = Duration::from_millis(50);

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once; later ones wait in the kernel's queue.
    pub connections: usize,
    /// A request's head must have arrived within this time; an idle connection is closed after it too.
    pub head_time: Duration,
    /// The largest head of a request, in bytes; at least 8192.
    pub head_bytes: usize,
    /// The most header lines of a request.
    pub headers: usize,
    /// How long requests under way may go on after the stop.
    pub drain: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 1024,
            head_time: Duration::from_secs(15),
            head_bytes: 16 * 1024,
            headers: 64,
            drain: Duration::from_secs(10),
        }
    }
}

/// Serves until `stop` says `true` or its sender is gone. Returns whether everything under way had finished by the end
/// of the drain time.
pub async fn serve(listener: TcpListener, router: Router, bounds: Bounds, mut stop: watch::Receiver<bool>) -> bool {
    let permits = Arc::new(Semaphore::new(bounds.connections.min(Semaphore::MAX_PERMITS)));
    let graceful = GracefulShutdown::new();
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_time)
        .max_buf_size(bounds.head_bytes.max(8192))
        .max_headers(bounds.headers)
        .keep_alive(true);
    loop {
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, stream) = tokio::select! {
            biased;
            () = told_to(&mut stop) => break,
            (permit, accepted) = accepted => match (permit, accepted) {
                (Ok(permit), Ok((stream, _))) => (permit, stream),
                (_, Err(e)) => {
                    tracing::warn!(kind = %e.kind(), "a connection was not accepted");
                    tokio::time::sleep(REST).await;
                    continue;
                }
                (Err(_), _) => break,
            },
        };
        no_delay(&stream);
        let service = TowerToHyperService::new(router.clone());
        let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(e) = connection.await {
                tracing::debug!(timeout = e.is_timeout(), parse = e.is_parse(), "a connection ended early");
            }
        });
    }
    drop(listener);
    tokio::time::timeout(bounds.drain, graceful.shutdown()).await.is_ok()
}

/// Waits for the word to stop, or for nobody being left to give it.
pub(super) async fn told_to(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

/// Answers are small and whole: waiting to fill a segment only delays them.
fn no_delay(stream: &TcpStream) {
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!(kind = %e.kind(), "TCP_NODELAY was not set");
    }
}
