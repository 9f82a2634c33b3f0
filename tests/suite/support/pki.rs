//! Certificates for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A private certificate authority and servers under it. Clients trust [`Pki::roots`].
pub struct Pki {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: tempfile::TempDir,
}

impl Pki {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("roots.pem"), issuer.pem()).expect("a file");
        Self { issuer, dir }
    }

    /// A PEM file with the authority's certificate.
    pub fn roots(&self) -> PathBuf {
        self.dir.path().join("roots.pem")
    }

    /// A certificate for `localhost`.
    pub fn good(&self) -> Arc<ServerConfig> {
        self.server("localhost", 2100)
    }

    /// A certificate for another host.
    pub fn wrong_host(&self) -> Arc<ServerConfig> {
        self.server("elsewhere.test", 2100)
    }

    /// A certificate for `localhost` whose time is over.
    pub fn expired(&self) -> Arc<ServerConfig> {
        self.server("localhost", 2001)
    }

    /// Writes the certificate and the key of a good server as PEM files, for servers that are not ours.
    pub fn write_good(&self, dir: &Path) -> (PathBuf, PathBuf) {
        let (cert, key) = self.leaf("localhost", 2100);
        let (cert_file, key_file) = (dir.join("cert.pem"), dir.join("key.pem"));
        std::fs::write(&cert_file, cert.pem()).expect("a file");
        std::fs::write(&key_file, key.serialize_pem()).expect("a file");
        (cert_file, key_file)
    }

    fn leaf(&self, host: &str, until: i32) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.issuer).expect("a certificate"), key)
    }

    fn server(&self, host: &str, until: i32) -> Arc<ServerConfig> {
        let (cert, key) = self.leaf(host, until);
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("a key that fits");
        Arc::new(config)
    }
}
