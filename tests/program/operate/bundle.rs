//! `doctor --bundle`: a file for a bug report, with nothing secret in it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::operate::{answered, connected, connector, verb};
use crate::support::relay_process::Setup;
use crate::support::wait::eventually;

#[tokio::test]
async fn a_bundle_has_everything_and_nothing_secret() {
    let connector = connector().await;
    let planted = "planted-model-key-0123456789";
    let setup = Setup::for_connector(&connector)
        .env("MODEL_API_KEY", planted)
        .setting("log.file", "relay.log");
    let secret = {
        use secrecy::ExposeSecret as _;
        let credentials = connector.credentials().unwrap();
        credentials.secret.expose_secret().to_owned()
    };
    let relay = connected(&setup).await;
    answered(&connector, "m1", "what was said").await;
    let log = setup.home().join("relay.log");
    eventually("the log", async || {
        fs::read_to_string(&log)
            .unwrap_or_default()
            .contains("turn ended")
    })
    .await;
    // What another program or an older version may have written there.
    let text = fs::read_to_string(&log).unwrap();
    let text = format!(
        "{text}a line with {secret} and {planted}\nAuthorization: Bearer abcdefghijklmnopqrstuvwxyz012345\n\
         wss://someone:hunter2hunter2@connector.example/relay\n"
    );
    fs::write(&log, text).unwrap();
    let file = setup.home().join("report.txt");
    let name = file.to_str().unwrap();
    let written = verb(&setup, &["doctor", "--bundle", name]).await;
    assert_eq!(written.code, 0, "{written:?}");
    assert!(written.out.contains(name) && written.out.contains("before you post it"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let report = fs::read_to_string(&file).unwrap();
    for part in [
        concat!("hermes-relay ", env!("CARGO_PKG_VERSION")),
        "== doctor ==",
        "== settings ==",
        "log.file: ",
        "== status ==",
        "turns_running=0",
        "== log ==",
        "turn ended",
        "a line with",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    for hidden in [
        secret.as_str(),
        planted,
        "abcdefghijklmnopqrstuvwxyz012345",
        "hunter2hunter2",
        "what was said",
    ] {
        assert!(!report.contains(hidden), "{hidden}: {report}");
    }
    let again = verb(&setup, &["doctor", "--bundle", name]).await;
    assert!(
        again.code == 1 && again.err.contains("exists already"),
        "{again:?}"
    );
    relay.stop().await;
}
