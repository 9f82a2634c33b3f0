//! Mail by SMTP submission (RFC 5321, RFC 6409), one message a transaction, driven stage by stage.
//!
//! The client is our own, because three things must hold that lettre's (0.11) does not let us hold: what came before the
//! TLS handshake is not kept, nothing is waiting to be read when a command is sent, and the gate is asked after the body
//! and before the final dot, so that everything up to the dot is certain. A connection about which there is any doubt is
//! dropped; one is used again only after a complete 2yz to the dot.

mod classify;
mod session;
mod settings;
mod tls;

pub mod reply;
pub mod wire;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

use super::gate::Gate;
use super::mime::{MailEnvelope, mime};
use super::{Abilities, Dispatch, Inquiry, Provider, ReceiptError, ReceiptRequest};
use crate::domain::address::Address;
use crate::domain::content::Channel;
use crate::domain::ids::{NotificationId, ProviderMessageId, ProviderName};
use crate::domain::outcome::{LookupAnswer, Outcome, OutcomeClass, Reason};
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::vault::{IndexKey, Purpose};
use session::{Letter, Session};
pub use settings::{SmtpError, SmtpSettings, StageTimeouts, TlsMode};
use tls::Security;

/// At most so many connections wait for another message.
const MAX_IDLE: usize = 4;

/// The connections that wait, each with a serial number so that its timer ends no other.
#[derive(Default)]
struct Idle {
    serial: u64,
    waiting: Vec<(u64, Session)>,
}

/// One SMTP server.
pub struct SmtpProvider {
    name: ProviderName,
    settings: SmtpSettings,
    security: Security,
    message_id_domain: String,
    abilities: Abilities,
    idle: Arc<Mutex<Idle>>,
}

impl fmt::Debug for SmtpProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpProvider")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// RFC 5321 section 4.1.1.10: a client does not close the connection before it has said QUIT.
impl Drop for SmtpProvider {
    fn drop(&mut self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, session) in idle.waiting.drain(..) {
            session.leave();
        }
    }
}

impl SmtpProvider {
    /// Checks the settings and loads the root certificates; opens no connection.
    ///
    /// # Errors
    /// [`SmtpError`] names the setting.
    pub fn build(name: ProviderName, settings: SmtpSettings, index: &IndexKey) -> Result<Self, SmtpError> {
        check(&settings)?;
        let message_id_domain =
            settings.message_id_domain.clone().unwrap_or_else(|| settings.from.domain_ascii().to_owned());
        if !is_domain(&message_id_domain) {
            return Err(SmtpError::MessageIdDomain);
        }
        let security = Security::build(&settings)?;
        if settings.tls == TlsMode::None {
            tracing::warn!(provider = %name, "mail crosses the network in clear, with its links and codes: tls = none");
        }
        let abilities = abilities(&name, &settings, &message_id_domain, index);
        Ok(Self { name, settings, security, message_id_domain, abilities, idle: Arc::default() })
    }

    fn letter(&self, dispatch: &Dispatch) -> Result<Letter, Outcome> {
        let bad = |reason| Outcome::new(OutcomeClass::RefusedMessage, reason);
        let Address::Email(to) = &dispatch.to else { return Err(bad(Reason::BadAddress)) };
        let mail = dispatch.content.mail.as_ref().ok_or(bad(Reason::BadContent))?;
        let id = message_id(dispatch.id, &self.message_id_domain);
        let from = &self.settings.from;
        let from_name = self.settings.from_name.as_deref();
        let envelope = MailEnvelope { from_name, from, to, message_id: &id, date: dispatch.admitted_at };
        let bytes = Zeroizing::new(mime(mail, &envelope).map_err(|_| bad(Reason::BadContent))?);
        let letter = Letter { from: from.envelope(), to: to.envelope(), bytes };
        // Admission lets no such address in; a command line must not depend on that.
        let breaks_out = |address: &str| address.contains(|c: char| c.is_control() || matches!(c, '<' | '>'));
        if breaks_out(&letter.to) { Err(bad(Reason::BadAddress)) } else { Ok(letter) }
    }

    fn take_idle(&self) -> Option<Session> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.waiting.pop().map(|(_, session)| session)
    }

    /// Keeps a session for the next message, for as long as the settings say; then it ends with QUIT.
    fn park(&self, session: Session) {
        let serial = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.waiting.len() >= MAX_IDLE || self.settings.idle.is_zero() {
                drop(idle);
                tokio::spawn(session.quit());
                return;
            }
            idle.serial += 1;
            let serial = idle.serial;
            idle.waiting.push((serial, session));
            serial
        };
        let (idle, wait) = (Arc::clone(&self.idle), self.settings.idle);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let session = {
                let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
                let at = idle.waiting.iter().position(|(s, _)| *s == serial);
                at.map(|at| idle.waiting.swap_remove(at).1)
            };
            if let Some(session) = session {
                session.quit().await;
            }
        });
    }

    /// A session that has taken MAIL. A waiting one that the server has given up costs nothing: a new one is opened.
    async fn begin(&self, letter: &Letter) -> Result<Session, Outcome> {
        if let Some(mut session) = self.take_idle() {
            match session.mail(letter).await {
                Ok(()) => return Ok(session),
                Err(failure) if failure.stale => {}
                Err(failure) => return Err(failure.outcome),
            }
        }
        let mut session = Session::open(&self.settings, &self.security).await?;
        session.mail(letter).await.map_err(|failure| failure.outcome)?;
        Ok(session)
    }

    async fn attempt(&self, dispatch: &Dispatch, gate: &Gate) -> Result<Outcome, Outcome> {
        let letter = self.letter(dispatch)?;
        gate.check()?;
        let mut session = self.begin(&letter).await?;
        let reply = session.deliver(&letter, gate).await?;
        let queue_id = reply.queue_id().and_then(|id| ProviderMessageId::parse(id).ok());
        self.park(session);
        Ok(Outcome { message_id: queue_id, ..Outcome::new(OutcomeClass::Accepted, Reason::Ok) })
    }
}

/// The Message-ID, without brackets: the same on every attempt, so that mail stores which collapse copies can.
fn message_id(id: NotificationId, domain: &str) -> String {
    let id = id.to_string();
    format!("{}@{domain}", id.trim_start_matches("ntf_"))
}

fn is_domain(text: &str) -> bool {
    (1..=200).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
}

fn check(settings: &SmtpSettings) -> Result<(), SmtpError> {
    let literal = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b':'));
    let hello = settings.hello_name.as_str();
    let hello_ok = is_domain(hello) || hello.strip_prefix('[').and_then(|h| h.strip_suffix(']')).is_some_and(literal);
    let t = &settings.timeouts;
    let limits = [t.connect, t.greeting, t.hello, t.tls, t.auth, t.mail, t.rcpt, t.data, t.body, t.dot, t.quit];
    if settings.port == 0 {
        Err(SmtpError::Port)
    } else if !hello_ok {
        Err(SmtpError::HelloName)
    } else if settings.from.needs_smtputf8() {
        Err(SmtpError::From)
    } else if settings.from_name.as_ref().is_some_and(|n| n.contains(char::is_control)) {
        Err(SmtpError::FromName)
    } else if limits.iter().any(|limit| limit.is_zero()) {
        Err(SmtpError::Timeout)
    } else if let Some((user, password)) = &settings.credentials {
        let broken = |text: &str| text.is_empty() || text.contains('\0');
        if settings.tls == TlsMode::None {
            Err(SmtpError::CredentialsInClear)
        } else if broken(user) || broken(password.expose_secret()) {
            Err(SmtpError::Credentials)
        } else {
            Ok(())
        }
    } else {
        Ok(())
    }
}

fn abilities(name: &ProviderName, settings: &SmtpSettings, id_domain: &str, index: &IndexKey) -> Abilities {
    let user = settings.credentials.as_ref().map_or("", |(user, _)| user);
    let from = settings.from.envelope();
    let account = index.hash(Purpose::Account, &[settings.host.as_bytes(), user.as_bytes(), from.as_bytes()]);
    let rev: [&[u8]; 8] = [
        name.as_str().as_bytes(),
        account.as_bytes(),
        &settings.port.to_be_bytes(),
        settings.tls.code().as_bytes(),
        settings.from_name.as_deref().unwrap_or_default().as_bytes(),
        id_domain.as_bytes(),
        settings.hello_name.as_bytes(),
        env!("CARGO_PKG_VERSION").as_bytes(),
    ];
    Abilities {
        account: *account.as_bytes(),
        rev: *index.hash(Purpose::Revision, &rev).as_bytes(),
        send_timeout: settings.timeouts.sum(),
        lookup: None,
        dedupe: None,
        receipts: false,
        receipts_by_id: false,
        identical_body: false,
    }
}

#[async_trait]
impl Provider for SmtpProvider {
    fn name(&self) -> &ProviderName {
        &self.name
    }

    fn channel(&self) -> Channel {
        Channel::Email
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
}
