//! TLS end to end: a terminator in front of the connector, with a certificate of a private authority.

use std::net::SocketAddr;
use std::sync::Arc;

use hermes_relay::dev::{Connector, text_event};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::handshake::connector;
use crate::relay_process::{SOON, Setup};

/// Speaks TLS as `localhost` and hands on to the connector. Gives its port and the authority's certificate.
async fn terminator(connector: &Connector) -> (u16, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = names.signed_by(&key, &authority).unwrap();
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
    let behind = connector.addr();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(hand_on(acceptor.clone(), socket, behind));
        }
    });
    (port, authority.pem())
}

async fn hand_on(acceptor: TlsAcceptor, socket: TcpStream, behind: SocketAddr) {
    if let (Ok(mut front), Ok(mut back)) = (acceptor.accept(socket).await, TcpStream::connect(behind).await) {
        let _ = tokio::io::copy_bidirectional(&mut front, &mut back).await;
    }
}

#[tokio::test]
async fn a_private_authority_is_trusted_by_its_file_for_the_link_and_the_policy_alike() {
    let connector = connector().await;
    let (port, pem) = terminator(&connector).await;
    let setup = Setup::toward(&format!("https://localhost:{port}"))
        .enrolled_with(&connector)
        .setting("tls.ca_file", "authority.pem");
    setup.write("authority.pem", &pem);
    setup.write("config.yaml", "require_mention: true\n");
    let relay = setup.start();
    connector
        .deliver(&text_event("discord", "c1", "m1", "sealed"))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    relay.says("has taken the relevance policy").await;
    relay.stops().await;
}

#[tokio::test]
async fn an_unknown_authority_is_named_as_the_reason_and_the_relay_keeps_trying() {
    let connector = connector().await;
    let (port, _) = terminator(&connector).await;
    let mut relay = Setup::toward(&format!("wss://localhost:{port}"))
        .enrolled_with(&connector)
        .start();
    let line = relay.says("cannot reach the connector").await;
    assert!(line.to_lowercase().contains("certificate"), "{line}");
    assert!(line.contains("retry_ms"), "{line}");
    assert!(connector.dials().is_empty(), "no token goes to a stranger");
    assert!(!relay.has_ended());
    relay.stops().await;
}

#[tokio::test]
async fn an_authority_file_that_is_not_there_is_a_configuration_error() {
    let setup = Setup::toward("wss://localhost:1").setting("tls.ca_file", "nowhere.pem");
    let (code, said) = setup.ends().await;
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("nowhere.pem"), "{said}");
}
