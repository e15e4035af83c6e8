//! `hermes-relay doctor` and the NATS server.

use serde_json::Value;

use crate::Server;
use crate::security::{NKEY_PUBLIC, NKEY_SEED, Way};
use crate::support::dev::{Connector, ConnectorSettings};
use crate::support::port::free_port;
use crate::support::relay_process::Setup;

/// What the doctor found.
pub(crate) struct Examined {
    pub(crate) code: Option<i32>,
    pub(crate) rows: Vec<Value>,
}

pub(crate) async fn doctor(setup: &Setup) -> Examined {
    let output = setup.verb(&["doctor", "--json"]).output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(stderr, "", "nothing beside the report");
    Examined {
        code: output.status.code(),
        rows: serde_json::from_slice(&output.stdout).unwrap(),
    }
}

impl Examined {
    /// The finding of a probe about a subject.
    #[track_caller]
    pub(crate) fn row(&self, id: &str, subject: Option<&str>) -> &Value {
        let is_it = |row: &&Value| row["id"] == id && row["subject"].as_str() == subject;
        let found = self.rows.iter().find(is_it);
        found.unwrap_or_else(|| panic!("no {id} about {subject:?} in {:#?}", self.rows))
    }

    #[track_caller]
    pub(crate) fn detail(&self, id: &str, subject: Option<&str>) -> &str {
        self.row(id, subject)["detail"].as_str().unwrap()
    }

    /// The findings about the server, as `subject outcome`.
    fn server(&self) -> Vec<String> {
        let rows = self.rows.iter().filter(|row| row["id"] == "nats");
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        rows.map(|row| text(row, "subject") + " " + &text(row, "outcome"))
            .collect()
    }

    /// One finding about the server is a failure for this reason and with this remedy.
    #[track_caller]
    fn blames(&self, subject: &str, cause: &str, remedy: &str) {
        let row = self.row("nats", Some(subject));
        let has = |key: &str, part: &str| row[key].as_str().is_some_and(|text| text.contains(part));
        assert_eq!((self.code, &row["outcome"]), (Some(1), &"failed".into()), "{row}");
        assert!(has("detail", cause) && has("remedy", remedy), "{row}");
    }
}

/// A worker's file.
fn worker(url: &str) -> Setup {
    Setup::new()
        .setting("nats.url", url)
        .setting("worker.pool", "p")
        .setting("worker.agent", "echo")
}

const ALL_WELL: [&str; 4] = ["connection ok", "version ok", "JetStream ok", "clock ok"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_works_is_found_so_by_relays_and_workers() {
    let Some(server) = Server::start() else { return };
    let url = &server.settings().urls[0];
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let relay = || Setup::for_connector(&connector).setting("nats.url", url);
    let with_pool = doctor(&relay().setting("agents.code", "{kind: worker, pool: p}")).await;
    assert_eq!(with_pool.server(), ALL_WELL, "{:#?}", with_pool.rows);
    assert_eq!(with_pool.row("upgrade", None)["outcome"], "ok");
    let member = doctor(&relay().setting("cluster.name", "home")).await;
    assert_eq!(
        (member.code, member.server().as_slice()),
        (Some(0), ALL_WELL.map(str::to_owned).as_slice())
    );
    // It would take the link from the active member.
    assert_eq!(member.row("upgrade", None)["outcome"], "skipped");
    assert!(member.detail("upgrade", None).contains("another member"));
    // Nobody uses it.
    assert!(doctor(&relay()).await.server().is_empty());
    // A worker has no connector, no journal and no people.
    let worker = doctor(&worker(url)).await;
    assert_eq!(
        (worker.code, worker.server().as_slice()),
        (Some(0), ALL_WELL.map(str::to_owned).as_slice())
    );
    let others = worker.rows.iter().filter(|row| row["id"] != "nats");
    let others: Vec<_> = others
        .map(|row| (row["id"].clone(), row["outcome"].clone()))
        .collect();
    let expected = [("settings", "ok"), ("agent", "ok")];
    assert_eq!(others, expected.map(|(id, outcome)| (id.into(), outcome.into())));
    assert_eq!(worker.row("agent", Some("echo"))["outcome"], "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_or_refuses_is_named_with_the_reason() {
    let url = format!("nats://127.0.0.1:{}", free_port());
    doctor(&worker(&url)).await.blames(
        "connection",
        &format!("{url}: the NATS server cannot be reached"),
        "nats.url",
    );
    let Some(server) = Server::start_with("authorization { token: \"open-sesame\" }") else {
        return;
    };
    let way = Way {
        url: &server.settings().urls[0],
        files: &[("nats-token", "open-sesam")],
        settings: &[("nats.token_file", "./nats-token")],
    };
    let examined = doctor(&way.apply(worker(way.url))).await;
    examined.blames("connection", "authorization violation", "correct the token");
    assert!(!format!("{:?}", examined.rows).contains("open-sesam"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_jetstream_is_told_from_an_account_without_it() {
    let Some(server) = Server::start_only_with("") else {
        return;
    };
    doctor(&worker(&server.settings().urls[0])).await.blames(
        "JetStream",
        "without JetStream",
        "nats-server -js",
    );
    let accounts = format!("accounts {{ team {{ users = [{{ nkey: {NKEY_PUBLIC} }}] }} }}");
    let server = Server::start_with(&accounts).unwrap();
    let examined = doctor(&with_nkey(&server)).await;
    examined.blames("JetStream", "not enabled for account", "for the account");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permissions_that_the_manual_lists_are_enough_for_all_but_the_clock() {
    let allowed = "[\"hermes.>\", \"_INBOX.>\", \"$JS.API.>\", \"$JS.ACK.>\"]";
    let user = format!("nkey: {NKEY_PUBLIC}, permissions: {{ publish: {allowed}, subscribe: {allowed} }}");
    let Some(server) = Server::start_with(&format!("authorization {{ users = [{{ {user} }}] }}")) else {
        return;
    };
    let examined = doctor(&with_nkey(&server)).await;
    let expected = ["connection ok", "version ok", "JetStream ok", "clock skipped"];
    assert_eq!(examined.server(), expected, "{:#?}", examined.rows);
    assert_eq!(examined.code, Some(0));
}

fn with_nkey(server: &Server) -> Setup {
    let way = Way {
        url: &server.settings().urls[0],
        files: &[("nkey", NKEY_SEED)],
        settings: &[("nats.nkey_file", "./nkey")],
    };
    way.apply(worker(way.url))
}
