//! Where `sendonce providers test` takes receipts while it waits for those of its message.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::cli::{Failure, show};
use crate::clock::SharedClock;
use crate::domain::ids::{NotificationId, ProviderMessageId};
use crate::domain::receipt::{Part, Receipt, ReceiptStatus};
use crate::http::problem::{Code, Problem};
use crate::http::server::{Bounds, serve};
use crate::http::{Limits, receipts};
use crate::provider::{Provider, ReceiptError};

/// A receipt of our message, or why something that came was not taken.
type Arrival = Result<Receipt, ReceiptError>;

/// An open door. It closes when this is dropped.
pub(super) struct Door {
    shared: Arc<Shared>,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    _stop: watch::Sender<bool>,
}

struct Shared {
    provider: Arc<dyn Provider>,
    clock: SharedClock,
    id: NotificationId,
    message_id: OnceLock<ProviderMessageId>,
    arrivals: mpsc::UnboundedSender<Arrival>,
}

impl Door {
    /// Listens at `address`, for receipts of the notification `id`.
    ///
    /// # Errors
    /// The address cannot be taken.
    pub(super) async fn open(
        address: SocketAddr,
        provider: Arc<dyn Provider>,
        clock: SharedClock,
        id: NotificationId,
    ) -> Result<Self, Failure> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|e| Failure::failed(format!("--receipts {address}: {}", e.kind())))?;
        let (sender, arrivals) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared { provider, clock, id, message_id: OnceLock::new(), arrivals: sender });
        let router = Router::new().fallback(take).with_state(shared.clone());
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(serve(listener, router, Bounds::default(), stopping));
        Ok(Self { shared, arrivals, _stop: stop })
    }

    /// From now on receipts are also known by the provider's own id.
    pub(super) fn know(&self, message_id: Option<&ProviderMessageId>) {
        if let Some(id) = message_id {
            self.shared.message_id.get_or_init(|| id.clone());
        }
    }

    /// Tells of each receipt as it comes, until one says how the message ended, or `patience` is over.
    pub(super) async fn wait(&mut self, patience: Duration, as_json: bool) -> Result<(), Failure> {
        let began = self.shared.clock.since_boot();
        let passed = || self.shared.clock.since_boot().saturating_sub(began);
        let mut came = 0_u32;
        loop {
            let left = patience.saturating_sub(passed());
            let Ok(Some(arrival)) = tokio::time::timeout(left, self.arrivals.recv()).await else { break };
            let told = told(&arrival, passed());
            show::answer(&told, as_json)?;
            came += u32::from(arrival.is_ok());
            let is_final = |r: &Receipt| r.status != ReceiptStatus::Progress && r.part == Part::WHOLE;
            if arrival.is_ok_and(|receipt| is_final(&receipt)) {
                return Ok(());
            }
        }
        show::answer(
            &json!({ "final_receipt": "none", "receipts": came, "after_seconds": passed().as_secs_f64() }),
            as_json,
        )
    }
}

fn told(arrival: &Arrival, after: Duration) -> Value {
    let after = after.as_secs_f64();
    match arrival {
        Ok(receipt) => json!({
            "receipt": receipt.status.code(),
            "known_by": if receipt.reference.is_some() { "reference" } else { "message_id" },
            "part": (receipt.part != Part::WHOLE).then(|| format!("{}/{}", receipt.part.index + 1, receipt.part.of)),
            "after_seconds": after,
        }),
        Err(e) => json!({ "receipt": "refused", "reason": e.to_string(), "after_seconds": after }),
    }
}

/// Takes what is ours. What another message's is has to come again, to the daemon.
async fn take(State(door): State<Arc<Shared>>, request: Request) -> Result<StatusCode, Problem> {
    let request = receipts::whole(request, &Limits::default()).await?;
    let read = door.provider.receipts(&request, door.clock.now()).await;
    let read = read.map_err(|e| {
        door.tell(Err(e));
        receipts::refusal(e)
    })?;
    let (ours, others): (Vec<Receipt>, Vec<Receipt>) = read.into_iter().partition(|receipt| door.is_ours(receipt));
    ours.into_iter().for_each(|receipt| door.tell(Ok(receipt)));
    match others.is_empty() {
        true => Ok(StatusCode::OK),
        false => Err(Problem::new(Code::Unavailable, "another message's receipt is not taken here")),
    }
}

impl Shared {
    fn is_ours(&self, receipt: &Receipt) -> bool {
        match &receipt.reference {
            Some(reference) => reference.id == self.id,
            None => receipt.message_id.is_some() && receipt.message_id.as_ref() == self.message_id.get(),
        }
    }

    /// Nobody listens any more when the wait is over.
    fn tell(&self, arrival: Arrival) {
        drop(self.arrivals.send(arrival));
    }
}
