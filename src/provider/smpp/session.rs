//! One bound session (SMPP 3.4 section 2.2), from the bind's answer to the end of the connection.
//!
//! A submission is certainly not sent up to its first octet; from there on only a whole answer with its sequence number
//! tells what became of it, and the end of the session leaves it unknown. Each session counts from 1, so no answer can be
//! taken for another session's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::time::sleep;
use zeroize::Zeroizing;

use super::Account;
use super::pdu::{self, Frame, command};
use super::receipt::{self, Reading};
use super::status;
use super::wire::{Fault, Unwritten, WRITE, Wire};
use crate::domain::ids::{ProviderMessageId, Reference};
use crate::domain::outcome::{Outcome, OutcomeClass, Reason};
use crate::domain::receipt::{Part, Receipt, ReceiptStatus};
use crate::provider::gate::Gate;
use crate::provider::inbox::NotStored;

/// So many receipts may wait for the ledger at once; the SMSC is asked to send the others again.
const RECEIPTS_WAITING: usize = 64;

/// So many submissions are remembered whose answer nobody waits for any more, in case it still comes.
const LATE_KEPT: usize = 1024;

/// A message that is to leave now.
pub(super) struct Submit {
    /// `submit_sm` without its sequence number.
    pub(super) pdu: Zeroizing<Vec<u8>>,
    pub(super) gate: Gate,
    /// The attempt's, for evidence that comes late.
    pub(super) reference: Option<Reference>,
    pub(super) claim: Claim,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// Whose a message in the queue is: the first to say so has it, the session to write it or the sender to take it back.
#[derive(Clone, Default)]
pub(super) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Says whether it is ours.
    pub(super) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }
}

/// What became of it.
pub(super) enum Answer {
    Ended(Outcome),
    /// The session ended before its first octet left.
    Untouched,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The connection ended or could not be written to.
    Lost,
    /// What came was no PDU.
    Garbled,
    /// The SMSC did not answer `enquire_link`.
    Silent,
    /// By `unbind`, ours or theirs.
    Unbound,
}

impl End {
    const fn reason(self) -> Reason {
        match self {
            Self::Lost | Self::Unbound => Reason::LostAnswer,
            Self::Garbled => Reason::UnreadableAnswer,
            Self::Silent => Reason::AnswerTimeout,
        }
    }
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Lost => Self::Lost,
            Fault::Garbled => Self::Garbled,
        }
    }
}

struct Waiting {
    reference: Option<Reference>,
    answer: oneshot::Sender<Answer>,
}

/// How far the end by `unbind` is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    /// We have asked for it; their answer is missing.
    Asked,
    /// It is agreed, and what is under way may still end.
    Agreed,
}

/// The `sequence_number` of the `deliver_sm` to answer, where there is one, and what became of its receipt.
type Stored = (Option<u32>, Result<(), NotStored>);

enum Event {
    Heard(Result<Frame, Fault>),
    Stored(Stored),
    Submit(Submit),
    Doubt,
    Silence,
    Stop,
}

pub(super) struct Session {
    account: Arc<Account>,
    wire: Wire,
    submits: mpsc::Receiver<Submit>,
    places: Arc<Semaphore>,
    doubt: Arc<Notify>,
    waiting: BTreeMap<u32, Waiting>,
    storing: FuturesUnordered<BoxFuture<'static, Stored>>,
    sequence: u32,
    asked: bool,
    leaving: Leaving,
}

impl Session {
    /// A session over `wire`, which is bound under the sequence number 1. `doubt` tells of an answer that did not come.
    pub(super) fn new(
        account: Arc<Account>,
        wire: Wire,
        submits: mpsc::Receiver<Submit>,
        places: Arc<Semaphore>,
        doubt: Arc<Notify>,
    ) -> Self {
        let (waiting, storing, leaving) = (BTreeMap::new(), FuturesUnordered::new(), Leaving::No);
        Self { account, wire, submits, places, doubt, waiting, storing, sequence: 1, asked: false, leaving }
    }

    /// Lives to the end of the session, or a little longer than `stop` says.
    pub(super) async fn run(mut self, stop: watch::Receiver<bool>) -> End {
        let end = match self.live(stop).await {
            Ok(()) => End::Unbound,
            Err(end) => end,
        };
        self.places.close();
        self.submits.close();
        while let Ok(submit) = self.submits.try_recv() {
            let _ = submit.answer.send(Answer::Untouched);
        }
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            let _ = waiting.answer.send(Answer::Ended(Outcome::unknown(end.reason())));
        }
        end
    }

    async fn live(&mut self, mut stop: watch::Receiver<bool>) -> Result<(), End> {
        let limits = self.account.settings.timeouts;
        let silence = sleep(limits.enquire);
        tokio::pin!(silence);
        while !self.is_over() {
            let bound = self.leaving == Leaving::No;
            // What the SMSC has said comes before what we say: a session that it has ended takes no message.
            let event = tokio::select! {
                biased;
                heard = self.wire.next() => Event::Heard(heard),
                Some(stored) = self.storing.next() => Event::Stored(stored),
                () = &mut silence => Event::Silence,
                _ = stop.wait_for(|stop| *stop), if bound => Event::Stop,
                () = self.doubt.notified(), if bound && !self.asked => Event::Doubt,
                // While nobody knows whether it is still there, it takes no message.
                Some(submit) = self.submits.recv(), if bound && !self.asked => Event::Submit(submit),
            };
            match event {
                Event::Heard(heard) => {
                    let frame = heard?;
                    self.asked = false;
                    if bound {
                        silence.set(sleep(limits.enquire));
                    }
                    self.hear(frame).await?;
                    if bound && self.leaving != Leaving::No {
                        silence.set(sleep(limits.command));
                    }
                }
                Event::Stored((sequence, stored)) => self.acknowledge(sequence, stored).await?,
                Event::Submit(submit) => self.submit(submit).await?,
                Event::Silence if !bound => return Ok(()),
                Event::Silence if self.asked => return Err(End::Silent),
                Event::Silence | Event::Doubt => {
                    self.asked = true;
                    self.ask(command::ENQUIRE_LINK).await?;
                    silence.set(sleep(limits.command));
                }
                Event::Stop => {
                    self.leaving = Leaving::Asked;
                    self.ask(command::UNBIND).await?;
                    silence.set(sleep(limits.command));
                }
            }
        }
        Ok(())
    }

    /// Nothing more can come: the end is agreed, nobody waits for an answer, and every receipt has its own.
    fn is_over(&self) -> bool {
        self.leaving == Leaving::Agreed
            && self.storing.is_empty()
            && self.waiting.values().all(|waiting| waiting.answer.is_closed())
    }

    fn next_sequence(&mut self) -> u32 {
        // Section 5.1.4: 1 to 0x7fffffff.
        self.sequence = if self.sequence >= 0x7fff_ffff { 1 } else { self.sequence + 1 };
        self.sequence
    }

    async fn write(&mut self, pdu: &[u8]) -> Result<(), End> {
        self.wire.write(pdu).await.map_err(|_| End::Lost)
    }

    async fn ask(&mut self, command: u32) -> Result<(), End> {
        let sequence = self.next_sequence();
        self.write(&pdu::short(command, status::OK, sequence)).await
    }

    async fn reply(&mut self, to: u32, status: u32, sequence: u32) -> Result<(), End> {
        self.write(&pdu::short(to | command::RESPONSE, status, sequence)).await
    }

    async fn submit(&mut self, submit: Submit) -> Result<(), End> {
        let Submit { mut pdu, gate, reference, claim, answer } = submit;
        if !claim.take() {
            return Ok(());
        }
        if let Err(outcome) = gate.check_ahead(WRITE) {
            let _ = answer.send(Answer::Ended(outcome));
            return Ok(());
        }
        let sequence = self.next_sequence();
        pdu::number(&mut pdu, sequence);
        match self.wire.write(&pdu).await {
            Ok(()) => {
                self.remember(sequence, Waiting { reference, answer });
                Ok(())
            }
            Err(unwritten) => {
                let _ = answer.send(match unwritten {
                    Unwritten::Untouched => Answer::Untouched,
                    Unwritten::Begun => Answer::Ended(Outcome::unknown(Reason::LostAnswer)),
                });
                Err(End::Lost)
            }
        }
    }

    fn remember(&mut self, sequence: u32, waiting: Waiting) {
        self.waiting.insert(sequence, waiting);
        let oldest_late = || self.waiting.iter().find(|(_, w)| w.answer.is_closed()).map(|(sequence, _)| *sequence);
        if self.waiting.len() > LATE_KEPT
            && let Some(oldest) = oldest_late()
        {
            self.waiting.remove(&oldest);
        }
    }

    async fn hear(&mut self, frame: Frame) -> Result<(), End> {
        const SUBMITTED: u32 = command::SUBMIT_SM | command::RESPONSE;
        const UNBOUND: u32 = command::UNBIND | command::RESPONSE;
        match frame.command {
            SUBMITTED => self.answered(&frame),
            command::GENERIC_NACK if self.waiting.contains_key(&frame.sequence) => self.answered(&frame),
            // It could not read what we wrote, and cannot say of what it speaks (section 4.3.1).
            command::GENERIC_NACK if frame.sequence == 0 => return Err(End::Garbled),
            command::DELIVER_SM => return self.delivered(&frame).await,
            command::ENQUIRE_LINK => return self.reply(frame.command, status::OK, frame.sequence).await,
            command::UNBIND => {
                self.leaving = Leaving::Agreed;
                self.places.close();
                return self.reply(frame.command, status::OK, frame.sequence).await;
            }
            UNBOUND if self.leaving == Leaving::Asked => {
                self.leaving = Leaving::Agreed;
                // Its answers stand before that one, or never come.
                self.waiting.clear();
            }
            other if other & command::RESPONSE != 0 => {}
            _ => {
                let nack = pdu::short(command::GENERIC_NACK, status::UNKNOWN_COMMAND, frame.sequence);
                return self.write(&nack).await;
            }
        }
        Ok(())
    }

    /// The answer to a submission. One that fits none, such as a second one, says nothing.
    fn answered(&mut self, frame: &Frame) {
        let Some(Waiting { reference, answer }) = self.waiting.remove(&frame.sequence) else { return };
        let nack = frame.command == command::GENERIC_NACK;
        let outcome = match (nack, frame.status) {
            (true, status::OK) => Outcome::unknown(Reason::UnreadableAnswer),
            (true, refused) => status::submission(refused, None),
            (false, status) => status::submission(status, self.message_id(&frame.message_id())),
        };
        if frame.status != status::OK {
            let status = format_args!("0x{:08x}", frame.status);
            tracing::info!(provider = %self.account.name, status, outcome = %outcome.class, "a submission was refused");
        }
        if let Err(Answer::Ended(late)) = answer.send(Answer::Ended(outcome)) {
            self.late(reference, late);
        }
    }

    fn message_id(&self, raw: &str) -> Option<ProviderMessageId> {
        let id = self.account.settings.message_id.of_response(raw);
        self.account.index.message_id(&self.account.name, &id)
    }

    /// An answer that nobody waits for any more: "taken" is as good as a receipt with our reference.
    fn late(&mut self, reference: Option<Reference>, outcome: Outcome) {
        let (provider, message_id) = (self.account.name.clone(), outcome.message_id);
        tracing::info!(%provider, outcome = %outcome.class, "an answer came late");
        if outcome.class == OutcomeClass::Accepted && reference.is_some() {
            let (status, part) = (ReceiptStatus::Progress, Part::WHOLE);
            self.store(None, Receipt { provider, reference, message_id, status, part });
        }
    }

    fn store(&mut self, sequence: Option<u32>, receipt: Receipt) {
        let inbox = self.account.inbox.clone();
        self.storing.push(Box::pin(async move { (sequence, inbox.store(receipt).await) }));
    }

    async fn delivered(&mut self, frame: &Frame) -> Result<(), End> {
        let provider = &self.account.name;
        let status = match receipt::read(&frame.body) {
            Reading::Receipt { id, status } if self.storing.len() < RECEIPTS_WAITING => {
                let id = self.account.settings.message_id.of_receipt(&id);
                let message_id = self.account.index.message_id(provider, &id);
                let (provider, part) = (provider.clone(), Part::WHOLE);
                self.store(Some(frame.sequence), Receipt { provider, reference: None, message_id, status, part });
                return Ok(());
            }
            Reading::Receipt { .. } => status::NOT_NOW,
            // Nobody here reads what phones write; but it was delivered.
            Reading::Other => status::OK,
            Reading::Unreadable => {
                tracing::warn!(%provider, "a receipt does not read");
                status::NEVER
            }
        };
        self.reply(frame.command, status, frame.sequence).await
    }

    /// The SMSC is told that a receipt is taken once it is durable; else it sends it again.
    async fn acknowledge(&mut self, sequence: Option<u32>, stored: Result<(), NotStored>) -> Result<(), End> {
        match (sequence, stored) {
            (Some(sequence), stored) => {
                let status = if stored.is_ok() { status::OK } else { status::NOT_NOW };
                self.reply(command::DELIVER_SM, status, sequence).await
            }
            (None, Err(error)) => {
                tracing::warn!(provider = %self.account.name, %error, "a late answer is lost");
                Ok(())
            }
            (None, Ok(())) => Ok(()),
        }
    }
}
