//! A provider for development and tests: it sends nothing, writes what it took to an outbox that people can open, and
//! plays every outcome by the address.
//!
//! **The outbox holds codes and links in clear** (mode 0600). Never configure it where real users' messages pass.
//!
//! | SMS to `+1500555..NN` | mail to `…@any.domain` | what it plays |
//! | --- | --- | --- |
//! | any other number | any other local part | accepted |
//! | `01` | `refused` | refused for this address |
//! | `02` | `account-refused` | our account is refused |
//! | `03` | `not-sent-twice` | certainly not sent at attempts 1 and 2, then accepted |
//! | `04` | `slow` | accepted after 3 s |
//! | `05` | `lost-sent` | taken, the answer is lost; a look-up finds it |
//! | `06` | `lost-not-sent` | attempt 1 is lost and was not taken; a look-up does not find it; the next is accepted |
//! | `07` | `lost-silent` | taken, the answer is lost, and look-ups never answer: a question for an operator |
//! | `08` | `delivered` | accepted; 2 s later a receipt says delivered |
//! | `09` | `undelivered` | accepted; 2 s later a receipt says undelivered |
//! | `10` | `lost-receipt` | taken, the answer is lost, look-ups never answer; 2 s later a receipt says delivered |
//!
//! `NN` are the last two digits, the two before them are free (`+15005551205` plays `lost-sent`); a mail's local part may
//! go on after a `+` (`lost-sent+anna@example.org`). So an app's tests can use many people for one play.

mod outbox;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

use super::gate::Gate;
use super::inbox::Inbox;
use super::{Abilities, Dispatch, Inquiry, LookupRules, Provider, ReceiptError, ReceiptRequest};
use crate::domain::address::Address;
use crate::domain::content::Channel;
use crate::domain::ids::{ProviderMessageId, ProviderName, Reference};
use crate::domain::outcome::{LookupAnswer, Outcome, OutcomeClass, Reason};
use crate::domain::receipt::{Part, Receipt, ReceiptStatus};
use crate::domain::time::Timestamp;
use crate::vault::{IndexKey, Purpose};
pub use outbox::OutboxError;
use outbox::{Entry, Outbox};

/// What an address makes the sandbox play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Play {
    Accepted,
    Refused,
    AccountRefused,
    NotSentTwice,
    Slow,
    LostSent,
    LostNotSent,
    LostSilent,
    Delivered,
    Undelivered,
    LostReceipt,
}

impl Play {
    const TABLE: [(&str, &str, Self); 10] = [
        ("01", "refused", Self::Refused),
        ("02", "account-refused", Self::AccountRefused),
        ("03", "not-sent-twice", Self::NotSentTwice),
        ("04", "slow", Self::Slow),
        ("05", "lost-sent", Self::LostSent),
        ("06", "lost-not-sent", Self::LostNotSent),
        ("07", "lost-silent", Self::LostSilent),
        ("08", "delivered", Self::Delivered),
        ("09", "undelivered", Self::Undelivered),
        ("10", "lost-receipt", Self::LostReceipt),
    ];

    fn of(address: &Address) -> Self {
        let matches = |digits: &str, local: &str| match address {
            Address::Sms(phone) => {
                phone.e164().strip_prefix("+1500555").is_some_and(|rest| rest.len() == 4 && rest.ends_with(digits))
            }
            Address::Email(mail) => mail.local().split('+').next() == Some(local),
        };
        Self::TABLE
            .into_iter()
            .find(|(digits, local, _)| matches(digits, local))
            .map_or(Self::Accepted, |(.., play)| play)
    }

    /// The message is taken when attempt number `attempt` is made.
    const fn takes(self, attempt: u8) -> bool {
        match self {
            Self::Refused | Self::AccountRefused => false,
            Self::NotSentTwice => attempt > 2,
            Self::LostNotSent => attempt > 1,
            _ => true,
        }
    }

    /// Look-ups never answer.
    const fn silent(self) -> bool {
        matches!(self, Self::LostSilent | Self::LostReceipt)
    }

    const fn receipt(self) -> Option<ReceiptStatus> {
        match self {
            Self::Delivered | Self::LostReceipt => Some(ReceiptStatus::Delivered),
            Self::Undelivered => Some(ReceiptStatus::Undelivered),
            _ => None,
        }
    }

    /// The outcome of an attempt that took the message, or did not.
    fn outcome(self, taken: Option<ProviderMessageId>) -> Outcome {
        match (self, taken) {
            (Self::LostSent | Self::LostSilent | Self::LostReceipt, _) | (Self::LostNotSent, None) => {
                Outcome::unknown(Reason::LostAnswer)
            }
            (_, Some(id)) => Outcome::accepted(Some(id)),
            (Self::Refused, None) => Outcome::new(OutcomeClass::RefusedMessage, Reason::BadAddress),
            (Self::AccountRefused, None) => Outcome::new(OutcomeClass::RefusedAccount, Reason::AccountRefused),
            (_, None) => Outcome::not_sent(Reason::TemporarilyRefused),
        }
    }
}

/// How fast the sandbox plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxPace {
    /// How long `slow` takes: 3 s.
    pub slow: Duration,
    /// How long a look-up's miss proves nothing: 2 s.
    pub settle_after: Duration,
    /// How long after the attempt a receipt comes: 2 s.
    pub receipt_after: Duration,
}

impl Default for SandboxPace {
    fn default() -> Self {
        Self {
            slow: Duration::from_secs(3),
            settle_after: Duration::from_secs(2),
            receipt_after: Duration::from_secs(2),
        }
    }
}

/// The sandbox for one channel.
pub struct Sandbox {
    name: ProviderName,
    channel: Channel,
    pace: SandboxPace,
    abilities: Abilities,
    outbox: Outbox,
    receipts: Inbox,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("name", &self.name).field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl Sandbox {
    /// Opens the outbox, reading back what was taken before. Several sandboxes may share one outbox. What `receipts`
    /// takes is to be handed to the ledger as if it had come over HTTP.
    ///
    /// # Errors
    /// [`OutboxError`] when the file cannot be opened or read.
    pub fn build(
        name: ProviderName,
        channel: Channel,
        outbox: &Path,
        pace: SandboxPace,
        index: &IndexKey,
        receipts: Inbox,
    ) -> Result<Self, OutboxError> {
        let account = index.hash(Purpose::Account, &[b"sandbox", name.as_str().as_bytes()]);
        let rev: [&[u8]; 2] = [account.as_bytes(), env!("CARGO_PKG_VERSION").as_bytes()];
        let abilities = Abilities {
            account: *account.as_bytes(),
            rev: *index.hash(Purpose::Revision, &rev).as_bytes(),
            send_timeout: pace.slow + Duration::from_secs(5),
            lookup: Some(LookupRules {
                settle_after: pace.settle_after,
                misses_needed: 2,
                trust_miss: true,
                window: Duration::from_secs(30 * 24 * 3600),
                needs_address: false,
            }),
            dedupe: None,
            receipts: true,
            receipts_by_id: false,
            identical_body: false,
        };
        let outbox = Outbox::open(outbox, &name)?;
        Ok(Self { name, channel, pace, abilities, outbox, receipts })
    }

    /// Writes the message to the outbox.
    async fn take(&self, dispatch: &Dispatch, play: Play, now: Timestamp) -> Result<ProviderMessageId, Outcome> {
        let unwritten = || Outcome::not_sent(Reason::TemporarilyRefused);
        let id = ProviderMessageId::parse(&format!("sandbox-{}", dispatch.reference)).map_err(|_| unwritten())?;
        let mail = dispatch.content.mail.as_ref().filter(|_| self.channel == Channel::Email);
        let entry = Entry {
            at: now.to_string(),
            provider: self.name.as_str().to_owned(),
            to: match &dispatch.to {
                Address::Sms(phone) => phone.e164().to_owned(),
                Address::Email(mail) => mail.as_str().to_owned(),
            },
            subject: mail.map(|m| m.subject.clone()),
            text: mail.map(|m| m.text.clone()).or_else(|| dispatch.content.sms.clone()).unwrap_or_default(),
            html: mail.map(|m| m.html.clone()),
            notification: dispatch.id.to_string(),
            reference: dispatch.reference.clone(),
            message_id: id.as_str().to_owned(),
            dedupe_key: dispatch.dedupe_key.clone(),
            copy: 0,
            silent: play.silent(),
        };
        self.outbox.append(entry).await.map_err(|_| unwritten())?;
        Ok(id)
    }

    /// Sends the receipt that the play asks for, later.
    fn receipt_later(&self, status: ReceiptStatus, reference: Option<Reference>, id: ProviderMessageId) {
        let receipt =
            Receipt { provider: self.name.clone(), reference, message_id: Some(id), status, part: Part::WHOLE };
        let (inbox, wait) = (self.receipts.clone(), self.pace.receipt_after);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            // A real provider would send it again; this one has nothing to lose.
            let _ = inbox.store(receipt).await;
        });
    }

    async fn attempt(&self, dispatch: &Dispatch, gate: &Gate) -> Result<Outcome, Outcome> {
        let fits = dispatch.to.channel() == self.channel;
        let play = if fits { Play::of(&dispatch.to) } else { Play::Refused };
        gate.check()?;
        if play == Play::Slow {
            tokio::time::sleep(self.pace.slow).await;
        }
        let reference = Reference::parse(&dispatch.reference).ok();
        if !play.takes(reference.map_or(1, |r| r.attempt)) {
            return Ok(play.outcome(None));
        }
        gate.check()?;
        let id = self.take(dispatch, play, gate.now()).await?;
        if let Some(status) = play.receipt() {
            self.receipt_later(status, reference, id.clone());
        }
        Ok(play.outcome(Some(id)))
    }
}

#[async_trait]
impl Provider for Sandbox {
    fn name(&self) -> &ProviderName {
        &self.name
    }

    fn channel(&self) -> Channel {
        self.channel
    }

    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    async fn send(&self, dispatch: &Dispatch, gate: &Gate) -> Outcome {
        match self.attempt(dispatch, gate).await {
            Ok(outcome) | Err(outcome) => outcome,
        }
    }

    async fn lookup(&self, inquiry: &Inquiry) -> LookupAnswer {
        match self.outbox.find(&inquiry.reference).await {
            None => LookupAnswer::NotFound,
            Some(found) if found.silent => LookupAnswer::Unreadable,
            Some(found) => {
                LookupAnswer::Found { message_id: ProviderMessageId::parse(&found.message_id).ok(), delivery: None }
            }
        }
    }

    async fn receipts(&self, _: &ReceiptRequest, _: Timestamp) -> Result<Vec<Receipt>, ReceiptError> {
        Err(ReceiptError::NotOffered)
    }
}
