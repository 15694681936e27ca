//! Servers behind TLS: a certificate authority of a test's own, and an end of TLS before a server that speaks none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// An authority that nobody trusts by themselves.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

impl Authority {
    /// A new one, with a key of its own.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key can be made");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("it can sign itself");
        let directory = TempDir::new().expect("a temporary directory can be made");
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).expect("the directory can be written");
        Self { issuer, directory }
    }

    /// Its certificate, in PEM.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// A file beside it with this text.
    pub fn file_with(&self, text: &str) -> PathBuf {
        let path: &Path = self.directory.path();
        let path = path.join("other.pem");
        std::fs::write(&path, text).expect("the directory can be written");
        path
    }

    /// Puts an end of TLS before the server on this port, with a certificate for this name, and says where it listens.
    pub async fn before(&self, port: u16, name: &str) -> TlsEnd {
        let key = KeyPair::generate().expect("a key can be made");
        let params = CertificateParams::new([name.to_owned()]).expect("the name is one");
        let certificate = params.signed_by(&key, &self.issuer).expect("the authority signs");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider knows the usual versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).expect("our own key is one"),
            )
            .expect("key and certificate belong together");
        TlsEnd::start(TlsAcceptor::from(Arc::new(config)), port).await
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

/// Listens with TLS, and carries to a server without. It ends when this is dropped.
pub struct TlsEnd {
    /// Where it listens.
    pub port: u16,
    server: JoinHandle<()>,
}

impl TlsEnd {
    async fn start(acceptor: TlsAcceptor, upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port can be had");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(acceptor.clone(), client, upstream));
            }
        });
        Self { port, server }
    }
}

impl Drop for TlsEnd {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A client that does not trust us hangs up during the handshake.
async fn carry(acceptor: TlsAcceptor, client: TcpStream, upstream: u16) {
    let Ok(mut client) = acceptor.accept(client).await else { return };
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", upstream)).await else { return };
    let _ = copy_bidirectional(&mut client, &mut server).await;
}
