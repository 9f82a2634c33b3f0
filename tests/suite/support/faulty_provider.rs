//! A provider that counts what it truly took, and the line to it, on which requests, answers and receipts are lost, come
//! late, twice, or in another order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sendonce::domain::content::Channel;
use sendonce::domain::ids::{NotificationId, ProviderName};
use sendonce::domain::outcome::{LookupAnswer, Outcome, OutcomeClass, Reason};
use sendonce::domain::receipt::{Part, Receipt, ReceiptStatus};
use sendonce::domain::time::Timestamp;
use sendonce::provider::gate::Gate;
use sendonce::provider::{Abilities, Dispatch, Inquiry, Provider, ReceiptError, ReceiptRequest};
use sendonce::vault::IndexKey;

use super::bench::message_id;

/// What the provider does with a request that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    Take,
    Busy,
    RefuseAddress,
    RefuseAccount,
}

/// One message that was sent on to the recipient.
#[derive(Clone, Debug)]
pub struct Taken {
    pub id: NotificationId,
    /// The event's name.
    pub event: String,
    pub reference: String,
    dedupe_key: String,
    /// When the provider had it.
    pub at: Timestamp,
    pub expires_at: Timestamp,
}

/// What a provider does with the `nth` request there for the event of this name, counted from 0.
pub type Script = fn(&str, &str, usize) -> Play;

/// The provider itself: the oracle of what was sent.
pub struct CountingProvider {
    name: ProviderName,
    abilities: Abilities,
    index: Arc<IndexKey>,
    script: Script,
    read: Mutex<BTreeMap<String, usize>>,
    taken: Mutex<Vec<Taken>>,
}

impl CountingProvider {
    pub fn new(name: &ProviderName, abilities: &Abilities, index: &Arc<IndexKey>, script: Script) -> Arc<Self> {
        let (name, abilities, index) = (name.clone(), abilities.clone(), index.clone());
        Arc::new(Self { name, abilities, index, script, read: Mutex::default(), taken: Mutex::default() })
    }

    pub fn taken(&self) -> Vec<Taken> {
        self.taken.lock().expect("no panic").clone()
    }

    /// A receipt as it would be posted.
    pub fn receipt(&self, taken: &Taken, status: ReceiptStatus) -> ReceiptRequest {
        ReceiptRequest {
            path_and_query: format!("/v1/receipts/{}", self.name),
            method: http::Method::POST,
            headers: http::HeaderMap::new(),
            body: format!("{} {status}", taken.reference).into(),
        }
    }
}

/// The name of the event, which is what the tests write into the message.
fn event_of(dispatch: &Dispatch) -> String {
    let mail = || dispatch.content.mail.as_ref().map(|mail| mail.text.clone());
    dispatch.content.sms.clone().or_else(mail).unwrap_or_default()
}

fn id_of(taken: &Taken) -> Outcome {
    Outcome::accepted(Some(message_id(&format!("m-{}", &taken.reference))))
}

#[async_trait]
impl Provider for CountingProvider {
    fn name(&self) -> &ProviderName {
        &self.name
    }

    fn channel(&self) -> Channel {
        Channel::Sms
    }

    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    async fn send(&self, dispatch: &Dispatch, gate: &Gate) -> Outcome {
        if let Err(outcome) = gate.check() {
            return outcome;
        }
        let event = event_of(dispatch);
        let nth = {
            let mut read = self.read.lock().expect("no panic");
            let count = read.entry(event.clone()).or_default();
            *count += 1;
            *count - 1
        };
        match (self.script)(self.name.as_str(), &event, nth) {
            Play::Busy => return Outcome::not_sent(Reason::RateLimited),
            Play::RefuseAddress => return Outcome::new(OutcomeClass::RefusedMessage, Reason::BadAddress),
            Play::RefuseAccount => return Outcome::new(OutcomeClass::RefusedAccount, Reason::NoCredit),
            Play::Take => {}
        }
        let mut taken = self.taken.lock().expect("no panic");
        if self.abilities.dedupe.is_some()
            && let Some(first) = taken.iter().find(|first| first.dedupe_key == dispatch.dedupe_key)
        {
            return Outcome { reason: Reason::FirstStands, ..id_of(first) };
        }
        let message = Taken {
            id: dispatch.id,
            event,
            reference: dispatch.reference.clone(),
            dedupe_key: dispatch.dedupe_key.clone(),
            at: gate.now(),
            expires_at: dispatch.expires_at,
        };
        let outcome = id_of(&message);
        taken.push(message);
        outcome
    }

    async fn lookup(&self, inquiry: &Inquiry) -> LookupAnswer {
        let there = self.taken().iter().any(|taken| taken.reference == inquiry.reference);
        if there { LookupAnswer::Found { message_id: None, delivery: None } } else { LookupAnswer::NotFound }
    }

    async fn receipts(&self, request: &ReceiptRequest, _now: Timestamp) -> Result<Vec<Receipt>, ReceiptError> {
        let text = std::str::from_utf8(&request.body).map_err(|_| ReceiptError::Unreadable)?;
        let (reference, status) = text.split_once(' ').ok_or(ReceiptError::Unreadable)?;
        let reference = self.index.read_reference(reference).ok_or(ReceiptError::NotAuthentic)?;
        let status = ReceiptStatus::from_code(status).ok_or(ReceiptError::Unreadable)?;
        let provider = self.name.clone();
        Ok(vec![Receipt { provider, reference: Some(reference), message_id: None, status, part: Part::WHOLE }])
    }
}

/// What happens on the line to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The request does not arrive, and nobody here knows that.
    RequestLost,
    /// It arrives; the answer does not.
    AnswerLost,
    /// It arrives; the answer comes when nobody waits for it any more.
    AnswerLate,
    /// The answer comes twice.
    AnswerTwice,
}

impl Mishap {
    pub const ALL: [Self; 4] = [Self::RequestLost, Self::AnswerLost, Self::AnswerLate, Self::AnswerTwice];
}

/// What happens on the line to a provider to the `nth` request for the event of this name, counted from 0.
pub type Weather = fn(&str, &str, usize) -> Option<Mishap>;

/// The line. A fault may be planned besides the weather: at the n-th call of any kind on all lines that share the count.
pub struct FaultyProvider {
    inner: Arc<CountingProvider>,
    weather: Weather,
    begun: Mutex<BTreeMap<String, usize>>,
    calls: Arc<Calls>,
    late: Mutex<Vec<Outcome>>,
}

/// Calls of all lines, and which one goes wrong.
#[derive(Debug, Default)]
pub struct Calls {
    count: AtomicU64,
    plan: Mutex<Option<(u64, Mishap)>>,
}

impl Calls {
    pub fn plan(&self, n: u64, mishap: Mishap) {
        *self.plan.lock().expect("no panic") = Some((n, mishap));
    }

    /// The planned fault has been met.
    pub fn met(&self) -> bool {
        self.plan.lock().expect("no panic").is_none_or(|(n, _)| n <= self.count.load(Ordering::SeqCst))
    }

    fn next(&self) -> Option<Mishap> {
        let n = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        self.plan.lock().expect("no panic").filter(|(at, _)| *at == n).map(|(_, mishap)| mishap)
    }
}

impl FaultyProvider {
    pub fn new(inner: Arc<CountingProvider>, weather: Weather, calls: &Arc<Calls>) -> Self {
        Self { inner, weather, begun: Mutex::default(), calls: calls.clone(), late: Mutex::default() }
    }

    pub fn counting(&self) -> &Arc<CountingProvider> {
        &self.inner
    }

    /// Answers to the last request that are still on their way.
    pub fn late(&self) -> Vec<Outcome> {
        std::mem::take(&mut *self.late.lock().expect("no panic"))
    }
}

#[async_trait]
impl Provider for FaultyProvider {
    fn name(&self) -> &ProviderName {
        self.inner.name()
    }

    fn channel(&self) -> Channel {
        self.inner.channel()
    }

    fn abilities(&self) -> &Abilities {
        self.inner.abilities()
    }

    async fn send(&self, dispatch: &Dispatch, gate: &Gate) -> Outcome {
        let planned = self.calls.next();
        let nth = {
            let mut begun = self.begun.lock().expect("no panic");
            let count = begun.entry(event_of(dispatch)).or_default();
            *count += 1;
            *count - 1
        };
        let mishap = planned.or_else(|| (self.weather)(self.name().as_str(), &event_of(dispatch), nth));
        if mishap == Some(Mishap::RequestLost) {
            return gate.check().err().unwrap_or_else(|| Outcome::unknown(Reason::LostAnswer));
        }
        let outcome = self.inner.send(dispatch, gate).await;
        let keep = |outcome: &Outcome| self.late.lock().expect("no panic").push(outcome.clone());
        match mishap {
            None | Some(Mishap::RequestLost) => outcome,
            Some(Mishap::AnswerLost) => Outcome::unknown(Reason::LostAnswer),
            Some(Mishap::AnswerLate) => {
                keep(&outcome);
                Outcome::unknown(Reason::AnswerTimeout)
            }
            Some(Mishap::AnswerTwice) => {
                keep(&outcome);
                outcome
            }
        }
    }

    async fn lookup(&self, inquiry: &Inquiry) -> LookupAnswer {
        match self.calls.next() {
            None | Some(Mishap::AnswerTwice) => self.inner.lookup(inquiry).await,
            Some(_) => LookupAnswer::Unreadable,
        }
    }

    async fn receipts(&self, request: &ReceiptRequest, now: Timestamp) -> Result<Vec<Receipt>, ReceiptError> {
        let mut receipts = self.inner.receipts(request, now).await?;
        match self.calls.next() {
            None => {}
            Some(Mishap::AnswerTwice) => receipts.extend(receipts.clone()),
            // Whoever posted it gets no answer, and posts it again.
            Some(_) => return Err(ReceiptError::Unreadable),
        }
        Ok(receipts)
    }
}
