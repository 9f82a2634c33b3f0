//! A provider's own list of messages, page by page. Nothing of it that is kept here is an address or a text.

use std::time::Duration;

use async_trait::async_trait;

use crate::domain::ids::{ProviderMessageId, Reference};
use crate::domain::receipt::ReceiptStatus;
use crate::domain::time::Timestamp;

/// From `since` on and before `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Its beginning.
    pub since: Timestamp,
    /// Its end, exclusive.
    pub until: Timestamp,
}

impl Period {
    /// Whether `at` lies in it.
    pub fn holds(&self, at: Timestamp) -> bool {
        self.since <= at && at < self.until
    }

    /// Longer by `by` at both ends.
    #[must_use]
    pub fn widened(&self, by: Duration) -> Self {
        Self { since: self.since.minus(by), until: self.until.plus(by) }
    }
}

/// One message as the provider lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Our reference, where it carries one with a good MAC.
    pub reference: Option<Reference>,
    /// The provider's id.
    pub message_id: ProviderMessageId,
    /// When the provider took it.
    pub at: Timestamp,
    /// What the provider says of its delivery.
    pub status: Option<ReceiptStatus>,
}

/// Where a page begins.
#[derive(Clone, PartialEq, Eq)]
pub enum PageStart {
    /// The first page.
    First,
    /// Under this URL, which the page before named.
    Link(String),
    /// Behind this token, which the page before named.
    Cursor(String),
    /// After so many messages.
    Offset(usize),
}

/// One page.
pub struct Page {
    /// Its messages.
    pub messages: Vec<Listed>,
    /// Where the next one begins; nothing after the last.
    pub next: Option<PageStart>,
}

/// A provider that lists its messages.
#[async_trait]
pub trait Statement: Send + Sync {
    /// How far back the list reaches.
    fn window(&self) -> Duration;

    /// One page of the messages of a period; it may hold some from beside the period. `None` when it cannot be had, or
    /// anything in it does not read.
    async fn page(&self, period: Period, start: &PageStart, now: Timestamp) -> Option<Page>;
}
