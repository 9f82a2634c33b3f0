//! Connections of providers that speak a protocol of their own: TCP, and TLS 1.2 or later with chain and host name
//! verified, no way around it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::domain::outcome::{Outcome, OutcomeClass, Reason};

/// A byte stream, in clear or under TLS.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// No root certificate could be read, from the system or from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoots;

/// Resolves `host` and connects, all within `limit`. No byte of a message has left, so every failure is certain.
pub(super) async fn connect(host: &str, port: u16, limit: Duration) -> Result<Box<dyn Io>, Outcome> {
    let connecting = async {
        let found = lookup_host((host, port)).await;
        let addresses: Vec<_> = found.map_err(|_| Outcome::not_sent(Reason::Dns))?.collect();
        if addresses.is_empty() {
            return Err(Outcome::not_sent(Reason::Dns));
        }
        let stream = TcpStream::connect(&addresses[..]).await;
        stream.and_then(|s| s.set_nodelay(true).map(|()| s)).map_err(|_| Outcome::not_sent(Reason::Connect))
    };
    match timeout(limit, connecting).await {
        Ok(stream) => Ok(Box::new(stream?)),
        Err(_) => Err(Outcome::not_sent(Reason::Connect)),
    }
}

/// How to speak TLS with one host.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// Trusts the system's roots and those in `extra_roots` (PEM).
    ///
    /// # Errors
    /// [`NoRoots`].
    pub(super) fn build(name: ServerName<'static>, extra_roots: Option<&Path>) -> Result<Self, NoRoots> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(file) = extra_roots {
            let extra = CertificateDer::pem_file_iter(file).map_err(|_| NoRoots)?;
            let before = roots.len();
            for cert in extra {
                roots.add(cert.map_err(|_| NoRoots)?).map_err(|_| NoRoots)?;
            }
            if roots.len() == before {
                return Err(NoRoots);
            }
        }
        if roots.is_empty() {
            return Err(NoRoots);
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|_| NoRoots)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    /// The handshake. No byte of a message has left, so every failure is certain.
    pub(super) async fn handshake(&self, stream: Box<dyn Io>, limit: Duration) -> Result<Box<dyn Io>, Outcome> {
        match timeout(limit, self.connector.connect(self.name.clone(), stream)).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(handshake_failed(tls_error(&error))),
            Err(_) => Err(Outcome::not_sent(Reason::StalledBeforeCommit)),
        }
    }
}

/// What the TLS library says in an error of the network.
pub(super) fn tls_error(error: &std::io::Error) -> Option<&rustls::Error> {
    let inner = error.get_ref()?;
    inner.downcast_ref::<rustls::Error>().or_else(|| tls_error(inner.downcast_ref::<std::io::Error>()?))
}

/// What a failed handshake proves; none of a message had left. A certificate or a version that we do not accept stays so
/// until somebody changes a setting, here or there: the channel is at fault, not the message. Anything else passes.
pub(super) fn handshake_failed(error: Option<&rustls::Error>) -> Outcome {
    match error {
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
