//! TLS in front of the connector, with a certificate of a private authority.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Speaks TLS under this name and hands on to who is behind it. Its certificate lasts that many days.
/// Gives its port and the authority's certificate.
pub(crate) async fn terminator(name: &str, behind: SocketAddr, days: u64) -> (u16, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params
        .distinguished_name
        .push(DnType::CommonName, "a private authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut names = CertificateParams::new(vec![name.to_owned()]).unwrap();
    names.not_after = (SystemTime::now() + Duration::from_secs(days * 24 * 60 * 60)).into();
    let certificate = names.signed_by(&key, &authority).unwrap();
    let port = serve(&certificate, &key, behind).await;
    (port, authority.pem())
}

/// The same with a certificate as `openssl req -x509` makes it: self-signed, and an authority. Gives its port and the
/// certificate.
pub(crate) async fn self_signed_terminator(name: &str, behind: SocketAddr) -> (u16, String) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (serve(&certificate, &key, behind).await, certificate.pem())
}

async fn serve(certificate: &Certificate, key: &KeyPair, behind: SocketAddr) -> u16 {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate.der().to_vec())],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(hand_on(acceptor.clone(), socket, behind));
        }
    });
    port
}

async fn hand_on(acceptor: TlsAcceptor, socket: TcpStream, behind: SocketAddr) {
    if let (Ok(mut front), Ok(mut back)) = (acceptor.accept(socket).await, TcpStream::connect(behind).await) {
        let _ = tokio::io::copy_bidirectional(&mut front, &mut back).await;
    }
}
