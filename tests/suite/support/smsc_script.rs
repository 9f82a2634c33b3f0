//! What a test tells the SMSC to do.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;

/// What an [`Act`] takes the place of the normal answer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// `bind_transceiver`.
    Bind,
    /// `submit_sm`.
    Submit,
    /// `enquire_link`.
    Enquire,
    /// `unbind`.
    Unbind,
}

/// What the SMSC does.
#[derive(Clone, Debug)]
pub enum Act {
    /// As a good one does.
    Normal,
    /// The answer with this `command_status`.
    Status(u32),
    /// `generic_nack` with this status, under the request's sequence number.
    Nack(u32),
    /// `generic_nack` under the sequence number 0.
    NackNobody,
    /// No answer to this request; to others as ever.
    Silent,
    /// The first octets of the answer, and nothing more on this connection.
    Half,
    /// The first octets of the answer, and then FIN.
    HalfClose,
    /// FIN.
    Close,
    /// RST.
    Reset,
    /// The normal answer, and then FIN.
    ThenClose,
    /// The normal answer, and then `unbind`.
    ThenUnbind,
    /// The normal answer under a sequence number that was never used.
    OtherSequence,
    /// `enquire_link_resp` under the request's sequence number.
    OtherCommand,
    /// The normal answer, twice.
    Twice,
    /// The answer without a body.
    Bare,
    /// The normal answer, so much later.
    Late(Duration),
    /// Octets that are no PDU.
    Noise,
    /// `unbind` instead of an answer, and then FIN.
    UnbindInstead,
    /// `enquire_link`, and then the normal answer.
    EnquireFirst,
    /// A receipt "delivered" for this message, and so much later the normal answer.
    ReceiptFirst(Duration),
}

/// How the SMSC writes ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    Same,
    HexInResponse,
    HexInReceipt,
}

/// Whom it lets in and when it misbehaves.
#[derive(Clone)]
pub struct Script {
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) password: Option<String>,
    pub(super) ids: Ids,
    pub(super) always: HashMap<Stage, Act>,
    pub(super) queued: HashMap<Stage, VecDeque<Act>>,
}

impl Script {
    /// A good SMSC in clear.
    pub fn plain() -> Self {
        Self { tls: None, password: None, ids: Ids::Same, always: HashMap::new(), queued: HashMap::new() }
    }

    /// With TLS from the first octet.
    pub fn tls(tls: Arc<ServerConfig>) -> Self {
        Self { tls: Some(tls), ..Self::plain() }
    }

    /// Lets in whoever has this password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Writes ids so.
    pub fn ids(mut self, ids: Ids) -> Self {
        self.ids = ids;
        self
    }

    /// Does `act` at every request of this kind.
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
