//! Text messages by SMPP 3.4 (SMPP Developers Forum, "Short Message Peer to Peer Protocol Specification v3.4", issue 1.2),
//! over one `bind_transceiver` session.
//!
//! The session is our own, because the outcome of an attempt hangs on it: what is certain ends with the first octet of
//! `submit_sm`, a wait that is over takes its message back from the queue, and an answer that comes after it is still
//! evidence. `rusmpp` builds what we write.
//!
//! SMPP 3.4 has no field that carries our reference back (`user_message_reference` has 16 bits and comes back in receipts
//! of some SMSCs only), no key under which a repeat would be recognised, and `query_sm` asks by the very `message_id` that a
//! lost answer would have told. So nothing but a late answer on the same session settles a lost one; else an operator does.

mod link;
mod session;
mod settings;
mod status;
mod text;
mod wire;

pub mod pdu;
pub mod receipt;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;

use super::gate::Gate;
use super::inbox::Inbox;
use super::net::Tls;
use super::{Abilities, Dispatch, Inquiry, Provider, ReceiptError, ReceiptRequest};
use crate::domain::address::Address;
use crate::domain::content::Channel;
use crate::domain::ids::{ProviderName, Reference};
use crate::domain::outcome::{LookupAnswer, Outcome, OutcomeClass, Reason};
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::vault::{IndexKey, Purpose};
use link::{Link, Place};
use pdu::Requests;
use session::{Answer, Claim, Submit};
pub use settings::{SmppError, SmppSettings, Source, Timeouts, Validity};
use text::Text;

/// How often a message is handed to another session when one ends before its first octet has left.
const HANDOVERS: u32 = 2;

/// What all parts of the provider share.
struct Account {
    name: ProviderName,
    settings: SmppSettings,
    tls: Option<Tls>,
    requests: Requests,
    index: Arc<IndexKey>,
    inbox: Inbox,
    /// Draws in `0.0..1.0`, for jitter.
    draw: fn() -> f64,
}

/// One account at one SMSC.
pub struct SmppProvider {
    account: Arc<Account>,
    abilities: Abilities,
    link: Link,
}

impl fmt::Debug for SmppProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmppProvider")
            .field("name", &self.account.name)
            .field("settings", &self.account.settings)
            .finish_non_exhaustive()
    }
}

impl SmppProvider {
    /// Checks the settings and loads the root certificates; opens no connection. What `inbox` takes are receipts from the
    /// session.
    ///
    /// # Errors
    /// [`SmppError`] names the setting.
    pub fn build(
        name: ProviderName,
        settings: SmppSettings,
        index: Arc<IndexKey>,
        inbox: Inbox,
        draw: fn() -> f64,
    ) -> Result<Self, SmppError> {
        check(&settings)?;
        let requests = Requests::build(&settings)?;
        let host = ServerName::try_from(settings.host.clone()).map_err(|_| SmppError::Host)?;
        let tls = |host| Tls::build(host, settings.extra_roots.as_deref()).map_err(|_| SmppError::Roots);
        let tls = settings.tls.then(|| tls(host)).transpose()?;
        let abilities = abilities(&name, &settings, &index);
        let account = Arc::new(Account { name, settings, tls, requests, index, inbox, draw });
        Ok(Self { link: Link::new(account.clone()), account, abilities })
    }

    async fn attempt(&self, dispatch: &Dispatch, gate: &Gate) -> Result<Outcome, Outcome> {
        let bad = |reason| Outcome::new(OutcomeClass::RefusedMessage, reason);
        let Address::Sms(to) = &dispatch.to else { return Err(bad(Reason::BadAddress)) };
        let text = Text::new(dispatch.content.sms.as_ref().ok_or(bad(Reason::BadContent))?);
        gate.check()?;
        for _ in 0..HANDOVERS {
            let place = self.link.place().await?;
            let validity = text::validity(self.account.settings.validity, gate.now(), gate.remaining());
            let pdu = self.account.requests.submit(settings::digits(to), &text, &validity);
            let (answer, answered) = oneshot::channel();
            let submit = Submit {
                pdu: pdu.ok_or(bad(Reason::BadContent))?,
                gate: gate.clone(),
                reference: Reference::parse(&dispatch.reference).ok(),
                claim: Claim::default(),
                answer,
            };
            if let Some(outcome) = self.hand_over(place, submit, answered).await {
                return Ok(outcome);
            }
        }
        Err(Outcome::not_sent(Reason::LostBeforeCommit))
    }

    /// `None`: the session ended before the first octet left.
    async fn hand_over(
        &self,
        place: Place,
        submit: Submit,
        mut answered: oneshot::Receiver<Answer>,
    ) -> Option<Outcome> {
        let claim = submit.claim.clone();
        place.submits.send(submit).await.ok()?;
        let answer = match timeout(self.account.settings.timeouts.response, &mut answered).await {
            Ok(answer) => answer.ok(),
            // It never left the queue.
            Err(_) if claim.take() => Some(Answer::Ended(Outcome::not_sent(Reason::StalledBeforeCommit))),
            Err(_) => {
                // From here on the session takes it for late; what came just before is still ours.
                answered.close();
                place.doubt.notify_one();
                Some(answered.try_recv().unwrap_or(Answer::Ended(Outcome::unknown(Reason::AnswerTimeout))))
            }
        };
        match answer {
            Some(Answer::Ended(outcome)) => Some(outcome),
            Some(Answer::Untouched) => None,
            // The session is gone without a word.
            None => Some(Outcome::unknown(Reason::LostAnswer)),
        }
    }
}

fn check(settings: &SmppSettings) -> Result<(), SmppError> {
    let Timeouts { connect, command, response, enquire } = settings.timeouts;
    if settings.port == 0 {
        Err(SmppError::Port)
    } else if settings.window == 0 {
        Err(SmppError::Window)
    } else if [connect, command, response, enquire].iter().any(Duration::is_zero) {
        Err(SmppError::Timeout)
    } else {
        Ok(())
    }
}

fn abilities(name: &ProviderName, settings: &SmppSettings, index: &IndexKey) -> Abilities {
    let source = &settings.source;
    let account: [&[u8]; 4] = [
        settings.host.as_bytes(),
        settings.system_id.as_bytes(),
        settings.system_type.as_bytes(),
        source.address.as_bytes(),
    ];
    let account = index.hash(Purpose::Account, &account);
    let rev: [&[u8]; 8] = [
        name.as_str().as_bytes(),
        account.as_bytes(),
        &settings.port.to_be_bytes(),
        settings.service_type.as_bytes(),
        &[source.ton, source.npi, settings.tls.into()],
        settings.validity.code().as_bytes(),
        settings.message_id.code().as_bytes(),
        env!("CARGO_PKG_VERSION").as_bytes(),
    ];
    let t = settings.timeouts;
    let handover = t.connect.saturating_add(link::MARGIN).saturating_add(wire::WRITE);
    Abilities {
        account: *account.as_bytes(),
        rev: *index.hash(Purpose::Revision, &rev).as_bytes(),
        send_timeout: handover.saturating_add(t.response).saturating_mul(HANDOVERS),
        lookup: None,
        dedupe: None,
        receipts: true,
        receipts_by_id: true,
        identical_body: false,
    }
}

#[async_trait]
impl Provider for SmppProvider {
    fn name(&self) -> &ProviderName {
        &self.account.name
    }

    fn channel(&self) -> Channel {
        Channel::Sms
    }

    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    async fn send(&self, dispatch: &Dispatch, gate: &Gate) -> Outcome {
        match self.attempt(dispatch, gate).await {
            Ok(outcome) | Err(outcome) => outcome,
        }
    }

    async fn lookup(&self, _: &Inquiry) -> LookupAnswer {
        LookupAnswer::Unreadable
    }

    async fn receipts(&self, _: &ReceiptRequest, _: Timestamp) -> Result<Vec<Receipt>, ReceiptError> {
        Err(ReceiptError::NotOffered)
    }

    fn start(&self) {
        self.link.start();
    }

    async fn stop(&self) {
        self.link.stop().await;
    }
}
