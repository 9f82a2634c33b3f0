//! What a test tells the SMTP server to do.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;

/// Where in the dialogue an [`Act`] takes the place of the normal reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Greeting,
    Ehlo,
    StartTls,
    /// Instead of the handshake, after the 220.
    Tls,
    /// The reply to `AUTH`, or the last one of its exchange.
    Auth,
    Mail,
    Rcpt,
    Data,
    /// When the first line of the message has come.
    Body,
    /// When the final dot has come; the message counts as received.
    Dot,
    Quit,
}

/// What the server does. Replies are given without their last CRLF.
#[derive(Clone, Debug)]
pub enum Act {
    /// As a good server does.
    Normal,
    /// This reply.
    Reply(&'static str),
    /// This reply, and then the connection is closed.
    ReplyClose(&'static str),
    /// This reply, so much later.
    Late(Duration, &'static str),
    /// The normal reply and these bytes in the same packet.
    Inject(&'static str),
    /// The normal reply, and this one when the client says its next words, before the reply to those.
    Behind(&'static str),
    /// The normal reply, with a line more before it.
    Wordy,
    /// The normal reply's code on a line that promises more, and then a line with another code.
    Mixed,
    /// These bytes as they are, and then silence.
    Half(&'static str),
    /// These bytes as they are, and then the connection is closed.
    HalfClose(&'static str),
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Says nothing more.
    Stall,
    /// Says and reads nothing more.
    Deaf,
}

/// What the server offers and when it misbehaves.
#[derive(Clone)]
pub struct Script {
    pub(super) starttls: Option<Arc<ServerConfig>>,
    pub(super) implicit: Option<Arc<ServerConfig>>,
    pub(super) login: Option<(String, String)>,
    pub(super) mechanisms: &'static str,
    pub(super) capabilities: Vec<&'static str>,
    pub(super) always: HashMap<Stage, Act>,
    pub(super) queued: HashMap<Stage, VecDeque<Act>>,
}

impl Script {
    /// A good server without TLS.
    pub fn plain() -> Self {
        Self {
            starttls: None,
            implicit: None,
            login: None,
            mechanisms: "PLAIN LOGIN",
            capabilities: vec!["8BITMIME", "ENHANCEDSTATUSCODES"],
            always: HashMap::new(),
            queued: HashMap::new(),
        }
    }

    /// A good server with STARTTLS.
    pub fn starttls(tls: Arc<ServerConfig>) -> Self {
        Self { starttls: Some(tls), ..Self::plain() }
    }

    /// A good server with TLS from the first byte.
    pub fn implicit(tls: Arc<ServerConfig>) -> Self {
        Self { implicit: Some(tls), ..Self::plain() }
    }

    /// Asks for these credentials.
    pub fn login(mut self, user: &str, password: &str) -> Self {
        self.login = Some((user.to_owned(), password.to_owned()));
        self
    }

    /// The mechanisms that it offers, instead of `PLAIN LOGIN`.
    pub fn mechanisms(mut self, mechanisms: &'static str) -> Self {
        self.mechanisms = mechanisms;
        self
    }

    /// One more keyword in EHLO.
    pub fn capability(mut self, keyword: &'static str) -> Self {
        self.capabilities.push(keyword);
        self
    }

    /// Does `act` every time that `stage` is reached.
    pub fn on(mut self, stage: Stage, act: Act) -> Self {
        self.always.insert(stage, act);
        self
    }

    /// Does `act` the next time; several queue up, one for each time, on any connection.
    pub fn once(mut self, stage: Stage, act: Act) -> Self {
        self.queued.entry(stage).or_default().push_back(act);
        self
    }
}
