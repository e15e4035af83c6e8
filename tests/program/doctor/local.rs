//! What is wrong on this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::doctor::rig::{connector, doctor};
use crate::support::relay_process::{SOON, Setup};

const NETWORK: [&str; 7] = ["dns", "tcp", "tls", "clock", "upgrade", "token", "handshake"];

#[tokio::test]
async fn no_url_is_named_and_everything_toward_the_connector_is_skipped() {
    let report = doctor(Setup::new(), &[]).await;
    report
        .blames("url", "no connector URL is configured", "hermes-relay enroll")
        .blames(
            "url",
            "no connector URL is configured",
            "`hermes-relay init --telegram` or `--discord`",
        )
        .skips(&["proxy"])
        .skips(&NETWORK)
        .passes(&["settings", "journal", "agent"]);
}

#[tokio::test]
async fn a_scheme_that_cannot_be_dialled_is_named_with_where_it_was_written() {
    let report = doctor(Setup::with_url("ftp://connector.example"), &[]).await;
    report
        .blames("url", "ftp", "GATEWAY_RELAY_URL")
        .blames("url", "ftp", "wss://")
        .skips(&NETWORK);
}

#[tokio::test]
async fn a_network_without_encryption_needs_permission() {
    let report = doctor(Setup::with_url("ws://connector.invalid"), &[]).await;
    report.blames("url", "not encrypted", "wss://").skips(&NETWORK);
}

#[tokio::test]
async fn an_unknown_key_is_named_with_its_line_and_the_nearest_key() {
    let setup = Setup::with_url("wss://connector.invalid").setting("link.backof_min_ms", "100");
    let report = doctor(setup, &[]).await;
    report
        .blames("settings", "backof_min_ms", "hermes-relay config check")
        .blames("settings", "backoff_min_ms", "relay.yaml")
        .skips(&["url", "state_dir", "lock", "journal", "policy", "agent", "unit"])
        .skips(&NETWORK);
}

#[tokio::test]
async fn a_secret_file_that_others_may_read_is_named_and_not_printed() {
    let setup = Setup::with_url("wss://connector.invalid").env("GATEWAY_RELAY_ID", "gw-1");
    let path = setup.home().join("secret");
    fs::write(&path, "hush-hush").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let shown = path.display().to_string();
    let report = doctor(setup.env("GATEWAY_RELAY_SECRET_FILE", &shown), &[]).await;
    report.blames(
        "settings",
        "accessible to every user",
        &format!("chmod 600 {shown}"),
    );
    assert!(
        !report
            .rows
            .iter()
            .any(|row| row.to_string().contains("hush-hush"))
    );
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_made_is_named_and_the_rest_goes_on() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    setup.write("file", "in the way");
    let place = setup.home().join("file/state").display().to_string();
    let report = doctor(setup.env("HERMES_RELAY_STATE_DIR", &place), &[]).await;
    report
        .blames("state_dir", "file/state cannot be created", "--state-dir")
        .passes(&["tcp", "token", "handshake"]);
}

#[tokio::test]
async fn a_state_directory_that_nobody_may_write_is_named() {
    let connector = connector().await;
    // Not even root makes files there.
    let setup = Setup::for_connector(&connector).env("HERMES_RELAY_STATE_DIR", "/proc");
    let report = doctor(setup, &[]).await;
    report.blames("state_dir", "/proc cannot be written", "--state-dir");
}

#[tokio::test]
async fn a_damaged_journal_is_distinguished_from_one_with_lines_quarantined() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let state = setup.state_dir().display().to_string();
    let relay = setup.start();
    connector.deliver(&serde_json::json!("no event")).unwrap();
    let taken = connector.until("the poison is acknowledged", SOON, |connector| {
        (connector.waiting() == 0).then_some(())
    });
    taken.await.unwrap();
    relay.stop().await;
    let again = || Setup::for_connector(&connector).env("HERMES_RELAY_STATE_DIR", &state);
    let report = doctor(again(), &[]).await;
    report
        .warns("journal", "1 quarantined", "hermes-relay journal list")
        .passes(&["lock", "handshake"]);

    fs::write(format!("{state}/journal.db"), "no database ".repeat(1000)).unwrap();
    let kept = fs::read(format!("{state}/journal.db")).unwrap();
    let report = doctor(again(), &[]).await;
    report.blames("journal", "journal.db", "--fresh-journal-if-corrupt");
    assert_eq!(
        fs::read(format!("{state}/journal.db")).unwrap(),
        kept,
        "looking changes nothing"
    );
}

#[tokio::test]
async fn a_variable_that_hermes_would_read_differently_is_reported_without_its_value() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    setup.write(
        ".env",
        "GATEWAY_RELAY_SECRET=hush-hush\nGATEWAY_RELAY_ID=gw-dev\n",
    );
    let report = doctor(setup, &[]).await;
    report
        .warns(
            "settings",
            "GATEWAY_RELAY_SECRET differs",
            "hermes-relay config show",
        )
        .passes(&["token", "handshake"])
        .keeps_secret(&connector);
    assert_eq!(report.of("settings").len(), 1, "what agrees is not named");
    assert!(
        !report
            .rows
            .iter()
            .any(|row| row.to_string().contains("hush-hush"))
    );
}

#[tokio::test]
async fn a_state_directory_that_is_a_file_is_named() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    fs::write(setup.state_dir(), "a file").unwrap();
    let report = doctor(setup, &[]).await;
    report.blames("state_dir", "not a directory", "--state-dir");
}

#[tokio::test]
async fn a_directory_open_to_others_and_a_unit_that_kills_too_early_are_reported() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    fs::create_dir(setup.state_dir()).unwrap();
    fs::set_permissions(setup.state_dir(), fs::Permissions::from_mode(0o755)).unwrap();
    let units = setup.home().join(".config/systemd/user");
    fs::create_dir_all(&units).unwrap();
    fs::write(
        units.join("hermes-relay.service"),
        "[Service]\nTimeoutStopSec=5\n",
    )
    .unwrap();
    let report = doctor(setup, &[]).await;
    report
        .blames("unit", "kills the relay after 5 s", "TimeoutStopSec=")
        .warns("state_dir", "open to other users (mode 0755)", "chmod 700");
}

#[tokio::test]
async fn a_running_relay_is_left_its_connection_unless_the_dial_is_asked_for() {
    let connector = connector().await;
    let relay = Setup::for_connector(&connector);
    let running = relay.start();
    connector.wait_connected(SOON).await.unwrap();
    let before = connector.dials().len();
    let pid = running.pid().to_string();

    let state = relay.state_dir().display().to_string();
    let again = || Setup::for_connector(&connector).env("HERMES_RELAY_STATE_DIR", &state);
    let report = doctor(again(), &[]).await;
    assert_eq!(report.code, 0, "a running relay is no failure");
    report
        .skips(&["token", "handshake"])
        .passes(&["state_dir", "lock", "journal", "tcp", "clock", "agent"]);
    let detail = report.row("lock")["detail"].as_str().unwrap();
    assert_eq!(detail, format!("process {pid}, link live"));
    let upgrade = report.row("upgrade");
    assert_eq!(upgrade["outcome"], "skipped", "{upgrade}");
    assert!(
        upgrade["detail"].as_str().unwrap().contains("a relay is running"),
        "{upgrade}"
    );
    assert_eq!(connector.dials().len(), before, "nobody was displaced");

    let report = doctor(again(), &["--dial"]).await;
    report.passes(&["upgrade", "token", "handshake"]);
    assert!(connector.dials().len() > before);
    running.stop().await;
}

#[tokio::test]
async fn an_agent_that_is_not_installed_is_named() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    setup.write(
        "relay.yaml",
        "agents: {code: {kind: command, argv: [no-such-program]}, spare: {kind: command, argv: [nor-this]}}\nagent: code\n",
    );
    let report = doctor(setup, &[]).await;
    report
        .blames("agent", "no-such-program", "hermes-relay agents test code")
        .warns("agent", "nor-this", "hermes-relay agents test spare")
        .passes(&["handshake"]);
    let subjects: Vec<&str> = report
        .of("agent")
        .iter()
        .map(|row| row["subject"].as_str().unwrap())
        .collect();
    assert_eq!(subjects, ["code", "spare"]);
}

#[tokio::test]
async fn the_agent_of_a_project_is_used_and_a_route_to_it_needs_no_other() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    setup.write(
        "relay.yaml",
        "agents: {code: {kind: command, argv: [no-such-program]}}\nagent: echo\n\
         projects: {site: {workdir: /, agent: code}}\nroutes:\n- {thread: \"1700000000.000100\", project: site}\n",
    );
    let report = doctor(setup, &[]).await;
    report.blames("agent", "no-such-program", "hermes-relay agents test code");
    let setup = Setup::for_connector(&connector);
    setup.write(
        "relay.yaml",
        "agent: echo\nprojects: {site: {workdir: /}}\nroutes:\n- {chat: c1, project: site}\n",
    );
    doctor(setup, &[]).await.passes(&["agent"]);
}

#[tokio::test]
async fn a_running_relay_that_is_not_connected_is_asked_why_and_the_doctor_looks_for_itself() {
    let connector = connector().await;
    let relay = Setup::for_connector(&connector).env("GATEWAY_RELAY_SECRET", "another");
    let running = relay.start();
    running.wait_for_log("does not accept our credentials").await;
    let state = relay.state_dir().display().to_string();
    let report = doctor(
        Setup::for_connector(&connector).env("HERMES_RELAY_STATE_DIR", &state),
        &[],
    )
    .await;
    report
        .blames("lock", "does not receive messages", "it retries")
        .passes(&["upgrade", "token", "handshake"]);
    running.stop().await;
}

#[tokio::test]
async fn an_agent_that_can_act_for_everybody_is_a_warning() {
    let agent = "{kind: command, argv: [/bin/cat]}";
    let open = Setup::with_url("wss://connector.invalid").setting("agents.script", agent);
    let report = doctor(open, &[]).await;
    report.warns("access", "may drive script (command)", "access.mode: pair");
    let paired = Setup::with_url("wss://connector.invalid")
        .setting("agents.script", agent)
        .setting("access.mode", "pair")
        .setting("access.people", "[{platform: discord, user: u1, role: owner}]");
    doctor(paired, &[]).await.passes(&["access"]);
    let ownerless = Setup::with_url("wss://connector.invalid").setting("access.mode", "pair");
    let report = doctor(ownerless, &[]).await;
    report.warns("access", "nobody is an owner", "hermes-relay access owner");
}
