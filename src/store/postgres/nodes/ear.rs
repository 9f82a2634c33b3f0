//! Hears what other nodes tell, on a session of its own that is made again whenever it is lost.

use std::time::Duration;

use sqlx::Executor as _;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::time::timeout;

use super::PATIENCE;
use crate::domain::retry::RetryPolicy;
use crate::store::nodes::Rung;
use crate::store::rows::Queue;

const CHANNEL: &str = "sendonce_due";

/// After so long a silence the session is tried: a connection that a firewall forgot looks like peace.
const SILENCE: Duration = Duration::from_secs(30);

const RETRY: RetryPolicy =
    RetryPolicy { first: Duration::from_millis(100), factor: 2.0, cap: Duration::from_secs(5), jitter: 0.5 };

/// A session that listens, when there is one.
pub(super) struct Ear {
    options: PgConnectOptions,
    voice: u32,
    session: Option<PgListener>,
    failed: u8,
}

/// What is told of a queue, and by whom.
pub(super) fn told(voice: u32, queue: &str) -> String {
    format!("{voice:08x} {queue}")
}

impl Ear {
    /// Does not hear what is told with our own voice.
    pub(super) fn new(options: PgConnectOptions, voice: u32) -> Self {
        Self { options, voice, session: None, failed: 0 }
    }

    pub(super) async fn hear(&mut self) -> Rung {
        loop {
            let Some(mut session) = self.session.take() else {
                if let Some(session) = self.listen().await {
                    self.session = Some(session);
                    // Whatever was told while nobody listened.
                    return Rung::Everything;
                }
                continue;
            };
            match timeout(SILENCE, session.try_recv()).await {
                Ok(Ok(Some(heard))) => {
                    self.session = Some(session);
                    if let Some(rung) = self.understand(heard.payload()) {
                        return rung;
                    }
                }
                Ok(Ok(None) | Err(_)) => {}
                Err(_) => {
                    if matches!(timeout(PATIENCE, session.execute("SELECT 1")).await, Ok(Ok(_))) {
                        self.session = Some(session);
                    }
                }
            }
        }
    }

    async fn listen(&mut self) -> Option<PgListener> {
        if self.failed > 0 {
            tokio::time::sleep(RETRY.delay(self.failed, None, rand::random())).await;
        }
        let connect = async {
            let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(self.options.clone());
            let mut session = PgListener::connect_with(&pool).await?;
            session.eager_reconnect(false);
            session.listen(CHANNEL).await?;
            Ok::<_, sqlx::Error>(session)
        };
        let session = timeout(PATIENCE, connect).await.ok().and_then(Result::ok);
        self.failed = if session.is_some() { 0 } else { self.failed.saturating_add(1) };
        session
    }

    fn understand(&self, payload: &str) -> Option<Rung> {
        let (voice, queue) = payload.split_once(' ')?;
        if u32::from_str_radix(voice, 16) == Ok(self.voice) {
            return None;
        }
        // A queue that this version does not know is another's business.
        Queue::parse(queue).map(Rung::Queue)
    }
}
