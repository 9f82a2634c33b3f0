//! A provider's own list of messages beside our attempts: what only one side knows, and what settles an unknown.
//!
//! Nothing is changed before both sides are read whole. What the list shows under our reference is evidence that it was
//! sent; what it does not show proves nothing.

mod compare;
mod ours;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc;

use crate::clock::SharedClock;
use crate::domain::ids::{AttemptNumber, NotificationId, ProviderMessageId, ProviderName, Tenant};
use crate::domain::receipt::{Part, Receipt, ReceiptStatus};
use crate::domain::time::Timestamp;
use crate::ledger::{Ledger, LedgerError, Received};
use crate::provider::Provider;
use crate::provider::statement::{Listed, PageStart, Period};

use compare::{Comparison, compare};

/// What a provider noted and what we did may lie so far apart in time: clocks differ, and providers queue.
const SLACK: Duration = Duration::from_secs(15 * 60);

/// The longest list, and the most attempts, that are compared.
const MOST: usize = 200_000;

/// The most pages of a list.
const MOST_PAGES: u32 = 2_000;

/// Messages whose evidence one command takes.
const AT_ONCE: usize = 100;

/// The longest period that can be asked for.
pub const LONGEST: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// What is to be compared.
#[derive(Clone)]
pub struct Question {
    /// The provider; it has a list.
    pub provider: Arc<dyn Provider>,
    /// When our attempts began, or the provider's messages came.
    pub period: Period,
    /// Whose attempts are told of. Messages that nobody's attempts explain are told of to whoever asks.
    pub tenant: Tenant,
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Line {
    /// The work goes on.
    Progress {
        /// Messages of the list so far.
        listed: usize,
    },
    /// The provider lists it, and no attempt of ours is known under its id or reference.
    ProviderOnly {
        /// The provider's id.
        message_id: ProviderMessageId,
        /// When the provider took it.
        at: Timestamp,
        /// What the provider says of its delivery.
        status: Option<ReceiptStatus>,
    },
    /// We sent it, or may have, and the provider does not list it.
    OursOnly {
        /// The notification.
        notification: NotificationId,
        /// Its attempt.
        attempt: AttemptNumber,
        /// When the attempt began.
        at: Timestamp,
        /// Whether we know that it was sent.
        sent: Known,
        /// The provider's id, where we have one.
        message_id: Option<ProviderMessageId>,
    },
    /// Nobody knew whether it was sent, or it was taken for not sent; the list shows that it was.
    Settled {
        /// The notification.
        notification: NotificationId,
        /// Its attempt; 0 where the reference names the notification only.
        attempt: AttemptNumber,
        /// The provider's id.
        message_id: ProviderMessageId,
    },
    /// All was compared.
    Done(Sums),
    /// It was not, and nothing was changed but what has been told to be settled.
    Failed {
        /// Why.
        why: Fault,
    },
}

/// What we know of an attempt that the provider does not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// It was sent.
    Yes,
    /// Nobody knows.
    Unknown,
}

/// The sums of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// Messages in the provider's list, within the period.
    pub listed: usize,
    /// The tenant's attempts within the period that were sent or may have been.
    pub attempts: usize,
    /// Messages that attempts of ours explain, whosever.
    pub matched: usize,
    /// Messages that none explains.
    pub provider_only: usize,
    /// The tenant's attempts that the list does not show.
    pub ours_only: usize,
    /// The tenant's attempts that the list settled.
    pub settled: usize,
}

/// Why a comparison did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A page of the list could not be had, or did not read.
    ListUnreadable,
    /// There are more messages or attempts than are compared at once; a shorter period helps.
    TooMany,
    /// The store failed.
    StoreUnavailable,
    /// The daemon stops.
    Stopping,
}

impl From<LedgerError> for Fault {
    fn from(_: LedgerError) -> Self {
        Self::StoreUnavailable
    }
}

/// Compares, and tells line by line; the last line is [`Line::Done`] or [`Line::Failed`]. Ends early when nobody listens.
pub async fn run(ledger: Ledger, clock: SharedClock, question: Question, lines: mpsc::Sender<Line>) {
    let last = match go(&ledger, &clock, &question, &lines).await {
        Ok(sums) => Line::Done(sums),
        Err(why) => {
            tracing::warn!(provider = %question.provider.name(), ?why, "a statement was not compared whole");
            Line::Failed { why }
        }
    };
    // Whoever has gone away needs no end.
    let _told = lines.send(last).await;
}

async fn go(
    ledger: &Ledger,
    clock: &SharedClock,
    question: &Question,
    lines: &mpsc::Sender<Line>,
) -> Result<Sums, Fault> {
    let listed = read_list(clock, question, lines).await?;
    let name = question.provider.name();
    let attempts = ours::read(ledger, name, question.period.widened(SLACK * 2)).await?;
    let Comparison { mut sums, evidence, differences } = compare(&listed, &attempts, question.period, &question.tenant);
    for messages in evidence.chunks(AT_ONCE) {
        let receipts = messages.iter().map(|message| receipt(name, message)).collect();
        for (message, became) in messages.iter().zip(ledger.listed(receipts).await?) {
            let (Received::Matched(_), Some(reference)) = (became, message.reference) else { continue };
            if attempts.is_of(reference.id, &question.tenant) {
                sums.settled += 1;
                let (notification, attempt) = (reference.id, reference.attempt);
                tell(lines, Line::Settled { notification, attempt, message_id: message.message_id.clone() }).await?;
            }
        }
    }
    for line in differences {
        tell(lines, line).await?;
    }
    Ok(sums)
}

async fn tell(lines: &mpsc::Sender<Line>, line: Line) -> Result<(), Fault> {
    lines.send(line).await.map_err(|_| Fault::Stopping)
}

fn receipt(provider: &ProviderName, message: &Listed) -> Receipt {
    Receipt {
        provider: provider.clone(),
        reference: message.reference,
        message_id: Some(message.message_id.clone()),
        // That it is listed says that it was taken.
        status: message.status.unwrap_or(ReceiptStatus::Progress),
        part: Part::WHOLE,
    }
}

/// The list of the period and a little more on either side.
async fn read_list(clock: &SharedClock, question: &Question, lines: &mpsc::Sender<Line>) -> Result<Vec<Listed>, Fault> {
    let list = question.provider.statement().ok_or(Fault::ListUnreadable)?;
    let period = question.period.widened(SLACK);
    let (mut all, mut start) = (vec![], PageStart::First);
    for _ in 0..MOST_PAGES {
        let page = list.page(period, &start, clock.now()).await.ok_or(Fault::ListUnreadable)?;
        all.extend(page.messages.into_iter().filter(|message| period.holds(message.at)));
        if all.len() > MOST {
            return Err(Fault::TooMany);
        }
        tell(lines, Line::Progress { listed: all.len() }).await?;
        match page.next {
            None => return Ok(all),
            // A page that is followed by itself has no end.
            Some(next) if next == start => return Err(Fault::ListUnreadable),
            Some(next) => start = next,
        }
    }
    Err(Fault::TooMany)
}
