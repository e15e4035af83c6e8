//! Dialling over TLS: whom we trust, and who trusts us.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use hermes_relay::net::proxy::ProxyRules;
use hermes_relay::net::socket::DialError;
use hermes_relay::net::tls::TlsSettings;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use crate::dial::server::{Answer, Server, assert_echoes, dialer, dialer_with, header, request};

/// A private CA, and the folder its files are in.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "a private authority");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a CA");
        let folder = tempfile::tempdir().expect("a folder");
        Self { issuer, folder }
    }

    fn issue(&self, names: &[&str]) -> (rcgen::Certificate, KeyPair) {
        let names = names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("names");
        (params.signed_by(&key, &self.issuer).expect("a certificate"), key)
    }

    fn write(&self, name: &str, pem: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, pem).expect("a file");
        path
    }

    fn ca_file(&self) -> PathBuf {
        self.write("ca.pem", &self.issuer.pem())
    }

    /// A TLS server's side, with a certificate for `names`; `wants_client` makes it ask for one of ours.
    fn acceptor(&self, names: &[&str], wants_client: bool) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let (certificate, key) = self.issue(names);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = if wants_client {
            let mut roots = RootCertStore::empty();
            roots
                .add(CertificateDer::from(self.issuer.der().to_vec()))
                .expect("our CA");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let config = builder
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a server");
        TlsAcceptor::from(Arc::new(config))
    }

    fn trusted(&self) -> TlsSettings {
        TlsSettings {
            ca_file: Some(self.ca_file()),
            ..TlsSettings::default()
        }
    }
}

fn tls_refusal(error: &DialError) -> String {
    assert!(matches!(error, DialError::Tls { .. }), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_private_ca_is_refused_without_ca_file_and_accepted_with_it() {
    let ca = Authority::new();
    let acceptor = ca.acceptor(&["localhost", "127.0.0.1"], false);
    let mut server = Server::start_with(Some(acceptor), Answer::Echo("")).await;
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("wss://{host}:{}/relay", server.port);
        let error = dialer().dial(request(&url)).await.expect_err("an unknown CA");
        assert!(tls_refusal(&error).contains("`tls.ca_file`"), "{error}");

        let trusting = dialer_with(&ca.trusted(), ProxyRules::none());
        let mut dialed = trusting.dial(request(&url)).await.expect("a trusted server");
        let authority = format!("{host}:{}", server.port);
        assert_eq!(header(&server.asked().await, "Host"), Some(authority.as_str()));
        assert_echoes(&mut dialed).await;
    }
    assert!(
        CryptoProvider::get_default().is_none(),
        "the library installs no global provider"
    );
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let ca = Authority::new();
    let acceptor = ca.acceptor(&["elsewhere.example"], false);
    let server = Server::start_with(Some(acceptor), Answer::Echo("")).await;
    let url = format!("wss://localhost:{}/relay", server.port);
    let trusting = dialer_with(&ca.trusted(), ProxyRules::none());
    let error = trusting.dial(request(&url)).await.expect_err("the wrong name");
    assert!(tls_refusal(&error).contains("another name"), "{error}");
}

#[tokio::test]
async fn a_client_certificate_is_presented_when_asked_for() {
    let ca = Authority::new();
    let acceptor = ca.acceptor(&["localhost"], true);
    let server = Server::start_with(Some(acceptor), Answer::Echo("")).await;
    let url = format!("wss://localhost:{}/relay", server.port);

    let anonymous = dialer_with(&ca.trusted(), ProxyRules::none());
    let error = anonymous.dial(request(&url)).await.expect_err("no certificate");
    assert!(tls_refusal(&error).contains("`client_cert`"), "{error}");

    let (certificate, key) = ca.issue(&["gateway"]);
    let settings = TlsSettings {
        client_cert: Some(ca.write("client.pem", &certificate.pem())),
        client_key: Some(ca.write("client.key", &key.serialize_pem())),
        ..ca.trusted()
    };
    let known = dialer_with(&settings, ProxyRules::none());
    let mut dialed = known.dial(request(&url)).await.expect("a known client");
    assert_echoes(&mut dialed).await;
}

#[tokio::test]
async fn a_port_without_tls_is_a_tls_error() {
    let server = Server::talking("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let url = format!("wss://localhost:{}/relay", server.port);
    let error = dialer().dial(request(&url)).await.expect_err("no TLS there");
    assert!(tls_refusal(&error).contains("speaks TLS"), "{error}");
}

#[tokio::test]
async fn tls_runs_inside_the_tunnel() {
    let ca = Authority::new();
    let acceptor = ca.acceptor(&["connector.invalid"], false);
    let mut server = Server::start_with(Some(acceptor), Answer::Echo("")).await;
    let mut proxy = Server::connect_proxy("HTTP/1.1 200 Connection established\r\n\r\n", server.port).await;
    let address = format!("http://127.0.0.1:{}", proxy.port);
    let rules = ProxyRules::from_env(&|name| (name == "https_proxy").then(|| address.clone()));
    let mut dialed = dialer_with(&ca.trusted(), rules)
        .dial(request("wss://connector.invalid/relay"))
        .await
        .expect("a secure tunnel");
    let asked = proxy.asked().await;
    assert!(
        asked.starts_with("CONNECT connector.invalid:443 HTTP/1.1\r\n"),
        "{asked}"
    );
    assert_eq!(header(&asked, "proxy-authorization"), None);
    assert_eq!(header(&server.asked().await, "Host"), Some("connector.invalid"));
    assert_echoes(&mut dialed).await;
}
