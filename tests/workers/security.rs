//! Servers that let in only whom they know: a token, an `NKey`, TLS of a private authority.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;

use crate::Server;
use crate::support::dev::{Connector, ConnectorSettings, text_event};
use crate::support::relay_process::{SOON, Setup};
use crate::support::wait::eventually;

/// A pair made for these tests.
pub(crate) const NKEY_SEED: &str = "SUAC743BVGRYTPOS34HFBMEWMBIO7QCCX5LXKHL22KGS4IUGLTRTBIPF7Y";
pub(crate) const NKEY_PUBLIC: &str = "UDFQ3TXAPFJ2GMPARZQ22JLEWH4YL46J2X2ZR7GPQ4OCCM654KGJBXD4";

/// The settings of the server, which relay and worker share; files are written into each home.
pub(crate) struct Way<'a> {
    pub(crate) url: &'a str,
    pub(crate) files: &'a [(&'a str, &'a str)],
    pub(crate) settings: &'a [(&'a str, &'a str)],
}

impl Way<'_> {
    pub(crate) fn apply(&self, setup: Setup) -> Setup {
        for (name, text) in self.files {
            setup.write(name, text);
            let private = fs::Permissions::from_mode(0o600);
            fs::set_permissions(setup.home().join(name), private).unwrap();
        }
        let setup = setup.setting("nats.url", self.url);
        let settings = self.settings.iter();
        settings.fold(setup, |setup, (key, value)| setup.setting(key, value))
    }

    /// A message goes to a worker and its answer comes back.
    async fn works(&self) {
        let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
        let relay = self.relay(&connector).start();
        let worker = self.apply(Setup::new().args(&["worker"]));
        let worker = worker.setting("worker.pool", "p").setting("worker.agent", "echo");
        let worker = worker.start();
        relay.wait_for_log("connected to the connector").await;
        let event = text_event("discord", "c1", "m1", "hello");
        connector.deliver(&event).unwrap();
        connector.reply_to(SOON, "m1").await.unwrap();
        for process in [relay, worker] {
            for (_, secret) in self.files.iter().filter(|(name, _)| *name != "ca.pem") {
                assert!(!process.stderr().contains(secret), "{}", process.stderr());
            }
            process.stop().await;
        }
    }

    /// The agent is down, and says why.
    async fn is_refused(&self, why: &str) {
        let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
        let setup = self.relay(&connector);
        let relay = setup.start();
        eventually("the reason", async || {
            let output = setup.verb(&["status", "--json"]).output().await.unwrap();
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let agent = status["agents"].as_array().into_iter().flatten();
            let is_down = |agent: &&Value| {
                agent["state"] == "down" && agent["why"].as_str().is_some_and(|text| text.contains(why))
            };
            agent.clone().find(is_down).map(|_| ()).ok_or(status)
        })
        .await;
        relay.stop().await;
    }

    fn relay(&self, connector: &Connector) -> Setup {
        self.apply(Setup::for_connector(connector))
            .setting("agents.code", "{kind: worker, pool: p}")
            .args(&["run", "--agent", "code"])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_wants_a_token() {
    let Some(server) = Server::start_with("authorization { token: \"open-sesame\" }") else {
        return;
    };
    let url = &server.settings().urls[0];
    let settings = &[("nats.token_file", "./nats-token")];
    let files = &[("nats-token", "open-sesame")];
    Way { url, files, settings }.works().await;
    let files = &[("nats-token", "open-sesam")];
    Way { url, files, settings }.is_refused("authorization").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_wants_an_nkey() {
    let users = format!("authorization {{ users = [{{ nkey: {NKEY_PUBLIC} }}] }}");
    let Some(server) = Server::start_with(&users) else {
        return;
    };
    let way = Way {
        url: &server.settings().urls[0],
        files: &[("nkey", NKEY_SEED)],
        settings: &[("nats.nkey_file", "./nkey")],
    };
    way.works().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_an_operator_wants_credentials() {
    // An operator, two accounts and a user, made for this test.
    let Some(server) = Server::start_with(include_str!("operator/nats.conf")) else {
        return;
    };
    let credentials = include_str!("operator/user.creds");
    let url = &server.settings().urls[0];
    let settings = &[("nats.creds_file", "./user.creds")];
    let files = &[("user.creds", credentials)];
    Way { url, files, settings }.works().await;
    // The user's JWT with the seed of another one.
    let seed = credentials
        .lines()
        .find(|line| line.starts_with("SU"))
        .expect("a seed");
    let wrong = credentials.replace(seed, NKEY_SEED);
    let files = &[("user.creds", wrong.as_str())];
    Way { url, files, settings }.is_refused("authorization").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_speaks_tls_of_a_private_authority() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = names.signed_by(&key, &authority).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (cert_file, key_file) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    fs::write(&cert_file, certificate.pem()).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let tls = format!(
        "tls {{ cert_file: {:?}, key_file: {:?} }}",
        cert_file.display().to_string(),
        key_file.display().to_string()
    );
    let Some(server) = Server::start_with(&tls) else {
        return;
    };
    let url = &server.settings().urls[0].replace("nats:", "tls:");
    let ca = authority.pem();
    let way = Way {
        url,
        files: &[("ca.pem", &ca)],
        settings: &[("tls.ca_file", "./ca.pem")],
    };
    way.works().await;
    let strangers = Way {
        url,
        files: &[],
        settings: &[],
    };
    strangers.is_refused("certificate").await;
}
