//! What the operator says about an SMTP server.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::domain::address::MailAddress;

/// How the connection is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// In clear up to `STARTTLS`, which the server must offer (RFC 3207). The usual port is 587.
    #[default]
    StartTls,
    /// TLS from the first byte (RFC 8314 section 3.3). The usual port is 465.
    Implicit,
    /// In clear. Never with credentials.
    None,
}

impl TlsMode {
    /// The name that stands in the configuration: `starttls`, `implicit` or `none`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::StartTls => "starttls",
            Self::Implicit => "implicit",
            Self::None => "none",
        }
    }
}

/// How long each stage may take. The defaults of the stages that RFC 5321 section 4.5.3.2 names are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTimeouts {
    /// Resolving the name and connecting, all addresses together. Ours: 30 s.
    pub connect: Duration,
    /// The 220 after connecting: 5 min (4.5.3.2.1).
    pub greeting: Duration,
    /// Each EHLO, as other commands: 5 min.
    pub hello: Duration,
    /// The reply to STARTTLS, and again the handshake. Ours: 1 min.
    pub tls: Duration,
    /// Each step of AUTH. Ours: 2 min.
    pub auth: Duration,
    /// MAIL: 5 min (4.5.3.2.2).
    pub mail: Duration,
    /// RCPT: 5 min (4.5.3.2.3).
    pub rcpt: Duration,
    /// The 354 after DATA: 2 min (4.5.3.2.4).
    pub data: Duration,
    /// Writing the message: 3 min (4.5.3.2.5).
    pub body: Duration,
    /// The reply to the final dot: 10 min (4.5.3.2.6: shorter ones "would typically result in delivery of multiple
    /// copies").
    pub dot: Duration,
    /// QUIT, after the message is settled and outside of its time. Ours: 5 s.
    pub quit: Duration,
}

impl Default for StageTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            greeting: Duration::from_secs(300),
            hello: Duration::from_secs(300),
            tls: Duration::from_secs(60),
            auth: Duration::from_secs(120),
            mail: Duration::from_secs(300),
            rcpt: Duration::from_secs(300),
            data: Duration::from_secs(120),
            body: Duration::from_secs(180),
            dot: Duration::from_secs(600),
            quit: Duration::from_secs(5),
        }
    }
}

impl StageTimeouts {
    /// All stages with the same limit.
    pub const fn uniform(limit: Duration) -> Self {
        Self {
            connect: limit,
            greeting: limit,
            hello: limit,
            tls: limit,
            auth: limit,
            mail: limit,
            rcpt: limit,
            data: limit,
            body: limit,
            dot: limit,
            quit: limit,
        }
    }

    /// The longest that a send can take, each stage as often as it can occur: a MAIL on a connection that turns out to be
    /// gone, two EHLOs around STARTTLS and its handshake, three steps of AUTH, a reply in the middle of the body.
    pub fn sum(&self) -> Duration {
        let once = [self.connect, self.greeting, self.rcpt, self.data, self.dot];
        let more = [(self.hello, 2), (self.tls, 2), (self.auth, 3), (self.mail, 2), (self.body, 2)];
        let more = more.into_iter().map(|(limit, times)| limit.saturating_mul(times));
        once.into_iter().chain(more).fold(Duration::ZERO, Duration::saturating_add)
    }
}

/// One SMTP server and how we use it.
#[derive(Clone)]
pub struct SmtpSettings {
    /// Host name, which is also the name that the certificate must bear; or an IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// How the connection is protected.
    pub tls: TlsMode,
    /// PEM file with roots to trust besides the system's.
    pub extra_roots: Option<PathBuf>,
    /// User and password for AUTH PLAIN or LOGIN.
    pub credentials: Option<(String, SecretString)>,
    /// The sender, in the envelope and in `From`.
    pub from: MailAddress,
    /// The name shown beside it.
    pub from_name: Option<String>,
    /// What stands behind the `@` of Message-IDs. The sender's domain where not given.
    pub message_id_domain: Option<String>,
    /// The name that we say in EHLO: a domain, or an address literal in brackets (RFC 5321 section 4.1.1.1).
    pub hello_name: String,
    /// How long a connection may wait for another message; 0 keeps none. Ours: 5 s.
    pub idle: Duration,
    /// The limits of the stages.
    pub timeouts: StageTimeouts,
}

impl SmtpSettings {
    /// Settings for `host` and `from`: STARTTLS on port 587, no credentials, RFC 5321's limits.
    pub fn new(host: impl Into<String>, from: MailAddress) -> Self {
        let hello_name = from.domain_ascii().to_owned();
        Self {
            host: host.into(),
            port: 587,
            tls: TlsMode::StartTls,
            extra_roots: None,
            credentials: None,
            from,
            from_name: None,
            message_id_domain: None,
            hello_name,
            idle: Duration::from_secs(5),
            timeouts: StageTimeouts::default(),
        }
    }
}

impl fmt::Debug for SmtpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpSettings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("tls", &self.tls)
            .field("credentials", &self.credentials.as_ref().map(|_| "***"))
            .field("hello_name", &self.hello_name)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

/// Why settings cannot be used, by the names that they have in the configuration. It never holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SmtpError {
    /// The host is neither a DNS name nor an IP address.
    #[error("host is neither a host name nor an IP address")]
    Host,
    /// Port 0.
    #[error("port must be 1 to 65535")]
    Port,
    /// The name for EHLO has characters that a domain or an address literal has not.
    #[error("hello_name is neither a domain nor an address literal")]
    HelloName,
    /// The sender has no ASCII form, which would make every message need SMTPUTF8.
    #[error("from must have an ASCII local part")]
    From,
    /// The sender's name has a control character.
    #[error("from's display name has a control character")]
    FromName,
    /// The domain for Message-IDs is none.
    #[error("message_id_domain is not a domain")]
    MessageIdDomain,
    /// Credentials without TLS would cross the network in clear.
    #[error("credentials need tls = \"starttls\" or \"implicit\"")]
    CredentialsInClear,
    /// The user or the password is empty or has a NUL, which AUTH PLAIN cannot carry (RFC 4616 section 2).
    #[error("user or password is empty or has a NUL character")]
    Credentials,
    /// A limit of zero would refuse every message.
    #[error("every time-out must be longer than zero")]
    Timeout,
    /// No root certificate could be read, from the system or from the file.
    #[error("no usable root certificate in the system's store or in ca_file")]
    Roots,
}
