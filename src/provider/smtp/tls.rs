//! TLS towards the server: 1.2 or later, chain and host name verified, no way around it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::settings::SmtpError;
use super::wire::Io;
use crate::domain::outcome::{Outcome, OutcomeClass, Reason};

/// How to speak TLS with one host.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// Trusts the system's roots and those in `extra_roots` (PEM).
    pub(super) fn build(host: &str, extra_roots: Option<&Path>) -> Result<Self, SmtpError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| SmtpError::Host)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(file) = extra_roots {
            let extra = CertificateDer::pem_file_iter(file).map_err(|_| SmtpError::Roots)?;
            let before = roots.len();
            for cert in extra {
                roots.add(cert.map_err(|_| SmtpError::Roots)?).map_err(|_| SmtpError::Roots)?;
            }
            if roots.len() == before {
                return Err(SmtpError::Roots);
            }
        }
        if roots.is_empty() {
            return Err(SmtpError::Roots);
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|_| SmtpError::Roots)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    /// The handshake. No byte of a message has left, so every failure is certain.
    pub(super) async fn handshake(&self, stream: Box<dyn Io>, limit: Duration) -> Result<Box<dyn Io>, Outcome> {
        match timeout(limit, self.connector.connect(self.name.clone(), stream)).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(outcome(&error)),
            Err(_) => Err(Outcome::not_sent(Reason::StalledBeforeCommit)),
        }
    }
}

/// A certificate or a version that we do not accept stays so until somebody changes a setting, here or there: the
/// channel is at fault, not the message. Anything else passes.
fn outcome(error: &std::io::Error) -> Outcome {
    let cause = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(_)) => Outcome::new(OutcomeClass::RefusedAccount, Reason::Tls),
        Some(
            rustls::Error::PeerIncompatible(_)
            // What answers there does not speak TLS at all.
            | rustls::Error::InvalidMessage(_)
            | rustls::Error::AlertReceived(
                rustls::AlertDescription::ProtocolVersion
                | rustls::AlertDescription::HandshakeFailure
                | rustls::AlertDescription::InsufficientSecurity,
            ),
        ) => Outcome::new(OutcomeClass::RefusedAccount, Reason::TlsRequired),
        _ => Outcome::not_sent(Reason::Tls),
    }
}
