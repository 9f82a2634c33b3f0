//! The way in for receipts that come on a provider's own connection, not over HTTP: to whoever stores them, and the word
//! back, so that the provider is told "taken" only after the commit.

use tokio::sync::{mpsc, oneshot};

use crate::domain::receipt::Receipt;

/// A receipt on its way to the ledger. Dropped without [`stored`](Self::stored), it was not stored.
#[derive(Debug)]
pub struct Handed {
    /// What came.
    pub receipt: Receipt,
    stored: oneshot::Sender<()>,
}

impl Handed {
    /// It is durable.
    pub fn stored(self) {
        // Who handed it over may be gone; it is stored all the same.
        let _ = self.stored.send(());
    }
}

/// Where a provider hands its receipts over.
#[derive(Clone, Debug)]
pub struct Inbox(mpsc::Sender<Handed>);

/// The receipt is not durable; it should come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the receipt was not stored")]
pub struct NotStored;

impl Inbox {
    /// An inbox in which at most `bound` receipts wait, and its other end.
    pub fn new(bound: usize) -> (Self, mpsc::Receiver<Handed>) {
        let (sender, receiver) = mpsc::channel(bound);
        (Self(sender), receiver)
    }

    /// Hands a receipt over and waits until it is durable.
    ///
    /// # Errors
    /// [`NotStored`] when it is not, or when nobody takes receipts (any more).
    pub async fn store(&self, receipt: Receipt) -> Result<(), NotStored> {
        let (stored, told) = oneshot::channel();
        self.0.send(Handed { receipt, stored }).await.map_err(|_| NotStored)?;
        told.await.map_err(|_| NotStored)
    }
}
