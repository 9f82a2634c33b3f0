//! How the connection to the server is protected.

use tokio_rustls::rustls::pki_types::ServerName;

use super::settings::{SmtpError, SmtpSettings, TlsMode};
use crate::provider::net::Tls;

/// How a connection is protected, with what it takes to do so.
pub(super) enum Security {
    /// Not at all.
    Clear,
    /// In clear up to STARTTLS.
    StartTls(Tls),
    /// From the first byte.
    Implicit(Tls),
}

impl Security {
    pub(super) fn build(settings: &SmtpSettings) -> Result<Self, SmtpError> {
        let name = ServerName::try_from(settings.host.clone()).map_err(|_| SmtpError::Host)?;
        let tls = |name| Tls::build(name, settings.extra_roots.as_deref()).map_err(|_| SmtpError::Roots);
        Ok(match settings.tls {
            TlsMode::None => Self::Clear,
            TlsMode::StartTls => Self::StartTls(tls(name)?),
            TlsMode::Implicit => Self::Implicit(tls(name)?),
        })
    }
}
