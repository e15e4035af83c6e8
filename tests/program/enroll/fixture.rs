//! One run of the `enroll` verb in a home of its own, with everything it touches in view.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use axum::body::Body;
use axum::http::Response;
use clap::Parser;
use hermes_relay::cli::enroll::{
    DialOutcome, EnrollArgs, EnrollContext, EnrollOutcome, NewCredentials, PinnedSetting, Streams, run,
};
use hermes_relay::cli::prompt::SecretInput;
use hermes_relay::net::connector_http::ProvisionRequest;
use hermes_relay::net::identity::IdpSettings;
use secrecy::{ExposeSecret as _, SecretString};
use tempfile::TempDir;

use crate::support::http_stub::{Seen, Stub, client, reply};

pub(crate) const ACCEPTED: &str =
    r#"{"secret":"secret-hush","deliveryKey":"key-hush","tenant":"acme","gatewayId":"gw-theirs"}"#;
pub(crate) const OLD_ENV: &str = "# mine\nOTHER=1\nexport GATEWAY_RELAY_SECRET=before\n";

#[derive(Parser)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) args: EnrollArgs,
}

/// Someone at the keyboard, or a pipe.
#[derive(Default)]
pub(crate) struct Input {
    pub(crate) terminal: Option<&'static str>,
    pub(crate) pipe: &'static str,
    /// Answers to what is no secret, in order.
    pub(crate) lines: VecDeque<String>,
    pub(crate) questions: Vec<String>,
}

impl SecretInput for Input {
    fn piped(&mut self, _: &str) -> io::Result<SecretString> {
        Ok(self.pipe.trim().into())
    }

    fn asked(&mut self, _: &str) -> io::Result<Option<SecretString>> {
        Ok(self.terminal.map(Into::into))
    }

    fn line(&mut self, question: &str) -> io::Result<Option<String>> {
        self.questions.push(question.to_owned());
        Ok(self.lines.pop_front())
    }
}

/// One run of the verb in a home of its own, with an ambient identity unless told otherwise.
pub(crate) struct Fixture {
    pub(crate) home: TempDir,
    pub(crate) env: Vec<(&'static str, String)>,
    pub(crate) input: Input,
    pub(crate) identities: Vec<ProvisionRequest>,
    pub(crate) dial: Result<Vec<String>, String>,
    pub(crate) dialled: RefCell<Vec<NewCredentials>>,
    /// What the log was told to hide, by name and value.
    pub(crate) hidden: RefCell<Vec<(String, String)>>,
    pub(crate) relay_url: Option<String>,
    pub(crate) pinned: Vec<PinnedSetting>,
}

pub(crate) struct EnrollRun {
    pub(crate) outcome: EnrollOutcome,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Fixture {
    /// A home with an `.env`, and an identity provider that says yes.
    pub(crate) async fn new() -> Self {
        let idp = Stub::always(200, r#"{"access_token":"identity-hush"}"#).await;
        let home = TempDir::new().unwrap();
        let dotenv = home.path().join(".env");
        fs::write(&dotenv, OLD_ENV).unwrap();
        fs::set_permissions(&dotenv, fs::Permissions::from_mode(0o640)).unwrap();
        Self {
            home,
            env: vec![("GATEWAY_RELAY_IDP_TOKEN_URL", idp.base())],
            input: Input::default(),
            identities: vec![ProvisionRequest {
                platform: "discord".into(),
                ..ProvisionRequest::default()
            }],
            dial: Ok(Vec::new()),
            dialled: RefCell::default(),
            hidden: RefCell::default(),
            relay_url: None,
            pinned: Vec::new(),
        }
    }

    pub(crate) fn dotenv(&self) -> PathBuf {
        self.home.path().join(".env")
    }

    pub(crate) async fn run(&mut self, typed: &[&str]) -> EnrollRun {
        let args = Cli::try_parse_from(std::iter::once(&"enroll").chain(typed))
            .unwrap()
            .args;
        let http = client();
        let env = |name: &str| self.env.iter().find(|(k, _)| *k == name).map(|(_, v)| v.clone());
        let dial = |credentials: NewCredentials| {
            self.dialled.borrow_mut().push(credentials);
            let result = self.dial.clone();
            Box::pin(async move { result }) as std::pin::Pin<Box<dyn Future<Output = DialOutcome>>>
        };
        let around = EnrollContext {
            env: &env,
            home: self.home.path(),
            relay_url: self.relay_url.clone(),
            idp: IdpSettings::default(),
            hostname: Some("box".into()),
            identities: self.identities.clone(),
            pinned: self.pinned.clone(),
            http: &http,
            dial: &dial,
            add_secret: &|name, value| {
                let hidden = (name.to_owned(), value.expose_secret().to_owned());
                self.hidden.borrow_mut().push(hidden);
            },
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut streams = Streams {
            input: &mut self.input,
            out: &mut out,
            err: &mut err,
        };
        let outcome = run(&args, &around, &mut streams).await;
        EnrollRun {
            outcome,
            out: String::from_utf8(out).unwrap(),
            err: String::from_utf8(err).unwrap(),
        }
    }

    /// Runs it and asserts that it failed with `line`, a hint, exit code 1, and nothing changed or shown.
    pub(crate) async fn fails(&mut self, typed: &[&str], line: &str) {
        let output = self.run(typed).await;
        assert_eq!(output.outcome.exit_code(), 1, "{}", output.err);
        let cross = output
            .err
            .lines()
            .find(|l| l.starts_with('✗'))
            .expect("a cross mark");
        assert!(cross.starts_with(&format!("✗ {line}")), "{cross}");
        assert!(
            output.err.lines().any(|l| l.starts_with("hint: ")),
            "{}",
            output.err
        );
        assert_eq!(output.out, "");
        assert_discreet(&format!("{} {:?}", output.err, output.outcome));
        self.untouched();
    }

    pub(crate) fn untouched(&self) {
        assert_eq!(fs::read_to_string(self.dotenv()).unwrap(), OLD_ENV);
        assert_eq!(mode(&self.dotenv()), 0o640);
        let names: Vec<_> = fs::read_dir(self.home.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert!(
            names.iter().all(|name| name == ".env" || name == ".managed"),
            "{names:?}"
        );
    }
}

pub(crate) fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

pub(crate) fn assert_discreet(shown: &str) {
    assert!(!shown.contains("hush"), "{shown}");
}

/// A connector that accepts every enrolment and answers provisioning as told.
pub(crate) async fn connector(provision: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static) -> Stub {
    Stub::start(move |seen| match seen.uri.as_str() {
        "/relay/enroll" => reply(200, ACCEPTED),
        "/relay/provision" => provision(seen),
        _ => reply(404, ""),
    })
    .await
}
