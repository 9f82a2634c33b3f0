//! Serves a router on a listener within bounds, until it is told to stop; then lets what is under way finish.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::stall::Stall;

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
    /// How long an answer may stand still because its reader takes nothing; then the connection is cut.
    pub stall: Duration,
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
            stall: Duration::from_secs(30),
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
        let connection =
            graceful.watch(builder.serve_connection(TokioIo::new(Stall::new(stream, bounds.stall)), service));
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(e) = connection.await {
                if is_stall(&e) {
                    tracing::info!("an answer was cut off, because its reader took nothing for too long");
                }
                tracing::debug!(timeout = e.is_timeout(), parse = e.is_parse(), "a connection ended early");
            }
        });
    }
    drop(listener);
    tokio::time::timeout(bounds.drain, graceful.shutdown()).await.is_ok()
}

fn is_stall(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
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

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use futures_util::stream::repeat_with;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_nobody_reads_is_given_up_and_its_stream_ends() {
        let held = Arc::new(());
        let of_stream = Arc::downgrade(&held);
        let held = std::sync::Mutex::new(Some(held));
        let endless = move || {
            let held = held.lock().ok().and_then(|mut held| held.take());
            let page = move || Ok::<_, std::io::Error>(Bytes::from(vec![held.is_some().into(); 64 * 1024]));
            std::future::ready(Body::from_stream(repeat_with(page)))
        };
        let endless = Arc::new(endless);
        let router = Router::new().route("/", get(move || endless()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (_stop, stopping) = watch::channel(false);
        let bounds = Bounds { stall: Duration::from_millis(200), ..Bounds::default() };
        tokio::spawn(serve(listener, router, bounds, stopping));
        let mut reader = TcpStream::connect(address).await.expect("a connection");
        reader.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("written");
        let ended = async {
            while of_stream.strong_count() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the stream is dropped");
    }
}
