//! The log file: a private, redacted copy of the log, which never stops the relay.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use crate::operate::{answered, connected, connector, verb};
use crate::support::relay_process::Setup;
use crate::support::small_disk::SmallDisk;
use crate::support::wait::eventually;

#[tokio::test]
async fn a_copy_of_the_log_is_written_redacted_and_private() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("log.file", "relay.log");
    let file = setup.home().join("relay.log");
    let relay = connected(&setup).await;
    let text = || fs::read_to_string(&file).unwrap_or_default();
    eventually("the line in the file", async || {
        text().contains("connected to the connector")
    })
    .await;
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Moved away by another program: reloading opens it again.
    fs::rename(&file, setup.home().join("moved.log")).unwrap();
    relay.signal(Signal::HUP);
    eventually("a new file", async || text().contains("settings reloaded")).await;
    relay.stop().await;
    let moved = fs::read_to_string(setup.home().join("moved.log")).unwrap();
    let stderr = fs::read_to_string(&file).unwrap() + &moved;
    assert!(!stderr.contains('\x1b'), "{stderr}");
    // A secret that gets into a line is redacted there, too.
    let secret = "a-secret-in-the-wrong-place";
    let setup = setup.env("A_SERVICE_TOKEN", secret).setting("log.level", "info");
    let setup = setup.env("GATEWAY_RELAY_PLATFORMS", secret);
    let relay = setup.start();
    relay.wait_for_log("<hidden>").await;
    eventually("the same in the file", async || text().contains("<hidden>")).await;
    assert!(!text().contains(secret), "{}", text());
    relay.terminate();
}

#[tokio::test]
async fn a_full_disk_stops_neither_the_relay_nor_the_log_on_standard_error() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("log.file", "logs/relay.log")
        .setting("log.level", "debug");
    let Some(disk) = SmallDisk::mount(&setup.home().join("logs"), 256) else {
        return;
    };
    let relay = connected(&setup).await;
    disk.fill();
    // The last page of the file has room for some lines.
    let mut message = 0;
    while relay.count("cannot write the log file") == 0 {
        assert!(message < 200, "{}", relay.stderr());
        answered(&connector, &format!("m{message}"), "hello").await;
        message += 1;
    }
    disk.free();
    let before = relay.count("turn ended");
    answered(&connector, "last", "hello").await;
    eventually("a line on standard error", async || {
        relay.count("turn ended") > before
    })
    .await;
    let file = setup.home().join("logs/relay.log");
    let ended = || fs::read_to_string(&file).unwrap().matches("turn ended").count();
    let lines = ended();
    answered(&connector, "very-last", "hello").await;
    eventually("lines in the file again", async || ended() > lines).await;
    assert_eq!(relay.count("cannot write the log file"), 1, "reported once");
    relay.stop().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_a_warning() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("log.file", "missing/relay.log");
    let relay = connected(&setup).await;
    assert!(
        relay.stderr().contains("cannot open the log file"),
        "{}",
        relay.stderr()
    );
    assert_eq!(verb(&setup, &["health"]).await.code, 0);
    relay.stop().await;
}
