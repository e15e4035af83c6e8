//! Verbs with no relay to ask, with a typo, and those that need none.

use std::os::unix::net::UnixListener;

use crate::relay_process::Setup;
use crate::{connected, connector, verb};

#[tokio::test]
async fn with_nothing_running_every_verb_says_so_and_how_to_start_one() {
    let setup = Setup::bare();
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["status", "--watch"],
        &["sessions"],
        &["stop", "agent:main:discord:dm:c1"],
        &["send", "--chat", "c1", "hi"],
        &["reload"],
        &["wake"],
    ] {
        let spoken = verb(&setup, args).await;
        assert_eq!(spoken.code, 69, "{args:?}: {spoken:?}");
        assert_eq!(spoken.out, "", "{args:?}");
        for part in ["no relay is running", "hermes-relay run", "--state-dir"] {
            assert!(spoken.err.contains(part), "{args:?}: {spoken:?}");
        }
    }
    let health = verb(&setup, &["health"]).await;
    assert_eq!(health.code, 1);
    assert!(
        health.out.starts_with("not ready: no relay is running"),
        "{health:?}"
    );
}

#[tokio::test]
async fn a_socket_that_a_dead_relay_left_is_no_relay_and_is_replaced() {
    let connector = connector().await;
    let setup = Setup::against(&connector);
    std::fs::create_dir(setup.state_dir()).unwrap();
    let socket = setup.state_dir().join("control.sock");
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    assert_eq!(verb(&setup, &["status"]).await.code, 69);
    let relay = connected(&setup).await;
    assert_eq!(verb(&setup, &["status"]).await.code, 0);
    relay.stops().await;
    assert!(!socket.exists(), "it goes with the relay");
    assert_eq!(verb(&setup, &["status"]).await.code, 69);
}

#[tokio::test]
async fn something_else_in_the_sockets_place_is_left_alone_and_the_relay_runs() {
    let connector = connector().await;
    let setup = Setup::against(&connector);
    std::fs::create_dir(setup.state_dir()).unwrap();
    let socket = setup.state_dir().join("control.sock");
    std::fs::write(&socket, "precious").unwrap();
    let relay = connected(&setup).await;
    relay.says("no control socket").await;
    relay.stops().await;
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "precious");
}

#[tokio::test]
async fn a_relay_without_a_control_socket_says_how_to_get_one() {
    let connector = connector().await;
    let setup = Setup::against(&connector).setting("serve.control", "false");
    let relay = connected(&setup).await;
    assert!(!setup.state_dir().join("control.sock").exists());
    let spoken = verb(&setup, &["status"]).await;
    assert_eq!(spoken.code, 69);
    assert!(spoken.err.contains("serve.control"), "{spoken:?}");
    relay.stops().await;
}

#[tokio::test]
async fn a_typo_is_usage_and_told_what_was_meant() {
    let setup = Setup::bare();
    for (args, meant) in [
        (&["staus"][..], "status"),
        (&["status", "--jsn"], "--json"),
        (&["completions", "bahs"], "bash"),
        (&["send", "hi"], "--chat"),
        (&["stop"], "<SESSION>"),
    ] {
        let spoken = verb(&setup, args).await;
        assert_eq!(spoken.code, 2, "{args:?}: {spoken:?}");
        assert!(spoken.err.contains(meant), "{args:?}: {spoken:?}");
    }
    let spoken = verb(&setup, &["man", "sned"]).await;
    assert!(spoken.code == 1 && spoken.err.contains("`send`"), "{spoken:?}");
}

#[tokio::test]
async fn every_verb_explains_itself_with_an_example_and_in_the_manual() {
    let setup = Setup::bare();
    for name in [
        "status",
        "sessions",
        "stop",
        "send",
        "reload",
        "wake",
        "health",
        "completions",
        "man",
    ] {
        let help = verb(&setup, &[name, "--help"]).await;
        assert_eq!(help.code, 0);
        assert!(help.out.contains("Examples:"), "{name}: {}", help.out);
        let page = verb(&setup, &["man", name]).await;
        assert_eq!(page.code, 0);
        assert!(
            page.out.contains(&format!(".TH hermes-relay-{name} 1")),
            "{}",
            page.out
        );
    }
    let page = verb(&setup, &["man"]).await.out;
    assert!(
        page.contains(".TH hermes-relay 1") && page.contains("sessions"),
        "{page}"
    );
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = verb(&setup, &["completions", shell]).await;
        assert_eq!(script.code, 0);
        assert!(
            script.out.contains("sessions") && script.out.contains("state-dir"),
            "{shell}"
        );
    }
}

#[cfg(not(feature = "otlp"))]
#[tokio::test]
async fn a_program_that_sends_no_traces_says_so_when_it_is_told_to() {
    let setup = Setup::bare().setting("telemetry.otlp_endpoint", "http://127.0.0.1:4318");
    let file = setup.home().join("relay.yaml").display().to_string();
    let checked = verb(&setup, &["config", "check", &file]).await;
    assert!(
        checked.code == 0 && checked.out.ends_with("is sound\n"),
        "{checked:?}"
    );
    let (code, ran) = setup.args(&["run"]).ends().await;
    assert_eq!(code, 78, "{ran}");
    for told in [checked.err, ran] {
        for part in ["warn", "built without `otlp`", "--features otlp"] {
            assert!(told.to_lowercase().contains(part), "{told}");
        }
    }
}
