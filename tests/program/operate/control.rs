//! The control socket: whose it is, and what strangers can do with it, which is nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::operate::{answered, connected, connector, verb};
use crate::support::executable::copy_program;
use crate::support::relay_process::{SOON, Setup};

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// Says this to the socket and gives everything that comes back.
async fn send_line(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    // The relay may hang up in the middle of what is too long.
    let _ = stream.write_all(bytes).await;
    let mut response = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut response))
        .await
        .expect("an end in time");
    String::from_utf8(response).unwrap()
}

#[tokio::test]
async fn only_the_owner_can_reach_it() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    let socket = setup.state_dir().join("control.sock");
    assert_eq!((mode(&setup.state_dir()), mode(&socket)), (0o700, 0o600));
    relay.stop().await;
    assert!(!socket.exists());
}

#[tokio::test]
async fn what_is_no_request_gets_a_reason_or_nothing() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    let socket = setup.state_dir().join("control.sock");
    for (said, code) in [
        (&b"hello\n"[..], "bad_request"),
        (b"\xff\xfe\x00\n", "bad_request"),
        (b"{}\n", "bad_request"),
        (b"[[[[[[[[[[[[[[[[[[\n", "bad_request"),
        (b"{\"v\":1,\"op\":\"explode\"}\n", "bad_request"),
        (b"{\"v\":1,\"op\":\"stop\"}\n", "bad_request"),
        (b"{\"v\":7,\"op\":\"status\"}\n", "version"),
    ] {
        let answer: Value = serde_json::from_str(&send_line(&socket, said).await).unwrap();
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert_eq!(answer["v"], 1);
    }
    let response = send_line(&socket, "x".repeat(200_000).as_bytes()).await;
    assert!(response.is_empty() || response.contains("too_long"), "{response}");
    let response = send_line(&socket, b"{\"v\":1,\"op\":\"health\"}\nand more\n").await;
    assert!(
        response.contains(r#""ready":true"#) && response.lines().count() == 1,
        "{response}"
    );
    drop(UnixStream::connect(&socket).await.unwrap());
    assert_eq!(verb(&setup, &["status"]).await.code, 0);
    relay.stop().await;
}

#[tokio::test]
async fn clients_that_send_nothing_keep_nobody_else_out_for_long() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    let socket = setup.state_dir().join("control.sock");
    let mut silent = Vec::new();
    for _ in 0..40 {
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        stream.write_all(b"{\"v\":1,").await.unwrap();
        silent.push(stream);
    }
    // Messages are answered meanwhile, and those who ask properly soon after.
    timeout(Duration::from_secs(4), answered(&connector, "m1", "hello"))
        .await
        .expect("chats do not wait for the control socket");
    assert_eq!(verb(&setup, &["status"]).await.code, 0);
    let mut response = Vec::new();
    let gone = timeout(SOON, silent[0].read_to_end(&mut response)).await;
    assert!(gone.is_ok() && response.is_empty(), "it hung up on the silent");
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_that_runs_is_reached_although_its_settings_cannot_be_loaded_any_more() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let mut relay = connected(&setup).await;
    setup.write("relay.yaml", "link:\n  backof_min_ms: 5\n");
    let dir = setup.state_dir();
    let dir = dir.to_str().unwrap();
    for args in [
        &["status", "--json"][..],
        &["health"],
        &["sessions"],
        &["access", "list"],
        &["access", "deny", "discord:u9"],
        &["access", "log"],
        &["journal", "list"],
        &["wake"],
        &["status", "--state-dir", dir],
        &["stop"],
    ] {
        let done = verb(&setup, args).await;
        assert_eq!(done.code, 0, "{args:?}: {done:?}");
        assert!(
            done.err.starts_with("warning: ") && done.err.contains("backoff_min_ms"),
            "{done:?}"
        );
    }
    assert_eq!(relay.exit_code(SOON).await, 0);
    // Without it, the mistake is what is to be mended.
    for args in [
        &["status"][..],
        &["access", "deny", "discord:u9"],
        &["journal", "list"],
    ] {
        let refused = verb(&setup, args).await;
        assert_eq!(refused.code, 78, "{refused:?}");
        assert!(refused.err.contains("backoff_min_ms"), "{refused:?}");
    }
}

#[tokio::test]
async fn a_relay_that_is_not_ready_yet_is_no_missing_one() {
    // It accepts connections and never answers who asks for credentials.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let setup = Setup::with_url(&url)
        .env("GATEWAY_RELAY_IDP_TOKEN_URL", &format!("{url}/token"))
        .env("GATEWAY_RELAY_IDP_CLIENT_ID", "id")
        .env("GATEWAY_RELAY_IDP_CLIENT_SECRET", "secret");
    let relay = setup.start();
    let pid = relay.pid().to_string();
    let (asked, _) = timeout(SOON, silent.accept()).await.unwrap().unwrap();
    for (args, code) in [
        (&["status"][..], 69),
        (&["stop"], 69),
        (&["access", "deny", "discord:u9"], 75),
    ] {
        let refused = verb(&setup, args).await;
        assert_eq!(refused.code, code, "{args:?}: {refused:?}");
        for part in [&format!("process {pid} holds"), "starting or ending"] {
            assert!(refused.err.contains(part), "{args:?}: {refused:?}");
        }
    }
    drop(asked);
    relay.terminate();
}

#[tokio::test]
async fn a_state_directory_with_a_long_path_works_too() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let long = setup.home().join("d".repeat(90)).join("e".repeat(90));
    let setup = setup.env("HERMES_RELAY_STATE_DIR", &long.display().to_string());
    let relay = connected(&setup).await;
    relay.wait_for_log("the path of the control socket is long").await;
    let health = verb(&setup, &["health"]).await;
    assert_eq!((health.code, health.out.as_str()), (0, "live\n"), "{health:?}");
    assert_eq!(mode(&long.join("control.sock")), 0o600);
    relay.stop().await;
    assert!(!long.join("control.sock").exists());
}

/// Only root can become somebody else; elsewhere the modes, tested above, keep others out.
#[tokio::test]
async fn somebody_else_is_turned_away_even_where_the_modes_let_them_in() {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    let (state, home) = (setup.state_dir(), setup.home());
    let folder = home.parent().unwrap();
    let binary = folder.join("hermes-relay");
    copy_program(Path::new(env!("CARGO_BIN_EXE_hermes-relay")), &binary);
    let open = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(folder, 0o755);
    open(&state, 0o755);
    open(&state.join("control.sock"), 0o666);
    let as_nobody = async |args: &[&str]| {
        let asked = tokio::process::Command::new(&binary)
            .args(args)
            .arg("--state-dir")
            .arg(&state)
            .env_clear()
            .current_dir("/")
            .uid(NOBODY)
            .gid(NOBODY)
            .stdin(Stdio::null())
            .output();
        let output = timeout(SOON, asked).await.unwrap().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (code, text) = as_nobody(&["status"]).await;
    assert_eq!(code, Some(78), "{text}");
    assert!(text.contains("only the user that runs the relay"), "{text}");
    relay.wait_for_log("refused a request of another user").await;
    let (code, text) = as_nobody(&["journal", "list"]).await;
    assert_eq!(code, Some(78), "{text}");
    assert!(
        text.contains("run this as the user that runs the relay"),
        "{text}"
    );
    let (code, text) = as_nobody(&["doctor"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("it belongs to user 0: run the doctor as"), "{text}");
    assert!(
        !text.contains("--fresh-journal"),
        "a journal of somebody else is not damaged: {text}"
    );
    relay.stop().await;
}
