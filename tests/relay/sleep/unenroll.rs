//! `unenroll`: what is taken out, what stays byte for byte, and what is said to remain.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::relay_process::Setup;

const DOTENV: &str = "# mine\nOPENAI_API_KEY='k#1'\n\n  export GATEWAY_RELAY_ID=gw-1\nGATEWAY_RELAY_SECRET=hush\n\
                      GATEWAY_RELAY_DELIVERY_KEY=dk\nGATEWAY_RELAY_URL=https://c.example\r\n\
                      GATEWAY_RELAY_WAKE_URL=https://w.example\nGATEWAY_RELAY_PLATFORMS=discord\nLAST=\"a\nb\"";
const LEFT: &str = "# mine\nOPENAI_API_KEY='k#1'\n\nGATEWAY_RELAY_PLATFORMS=discord\nLAST=\"a\nb\"";

fn enrolled() -> Setup {
    let setup = Setup::new();
    setup.write(".env", DOTENV);
    let path = setup.home().join(".env");
    fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
    setup
}

async fn run(setup: &Setup) -> (i32, String, String) {
    let mut relay = setup.start();
    let code = relay.exit_code(crate::support::relay_process::SOON).await;
    (code, relay.stdout(), relay.stderr())
}

#[tokio::test]
async fn the_five_keys_go_the_rest_stays_and_what_remains_is_named() {
    let setup = enrolled()
        .args(&["unenroll", "--yes"])
        .env("GATEWAY_RELAY_SECRET_FILE", "/nonexistent");
    let (code, _, log) = run(&setup).await;
    assert_eq!(code, 78, "settings that cannot be read say so first: {log}");

    let secret = setup.home().join("secret");
    fs::write(&secret, "hush-too").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let setup = setup.env("GATEWAY_RELAY_SECRET_FILE", secret.to_str().unwrap());
    let (code, printed, log) = run(&setup).await;
    assert_eq!((code, log.as_str()), (0, ""));
    let path = setup.home().join(".env");
    assert_eq!(fs::read_to_string(&path).unwrap(), LEFT);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
    for part in [
        "GATEWAY_RELAY_ID, GATEWAY_RELAY_SECRET, GATEWAY_RELAY_DELIVERY_KEY, GATEWAY_RELAY_URL, GATEWAY_RELAY_WAKE_URL",
        "the secret file",
        "the gateway `gw-1`: revoke it there",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(!printed.contains("hush"), "{printed}");

    let (code, printed, _) = run(&setup).await;
    assert_eq!(code, 0);
    assert!(printed.contains("Nothing to remove"), "{printed}");
    assert_eq!(fs::read_to_string(&path).unwrap(), LEFT);
}

#[tokio::test]
async fn without_a_terminal_and_without_yes_nothing_is_removed() {
    let setup = enrolled().args(&["unenroll"]);
    let (code, printed, log) = run(&setup).await;
    assert_eq!((code, printed.as_str()), (1, ""));
    assert!(log.contains("--yes"), "{log}");
    assert_eq!(fs::read_to_string(setup.home().join(".env")).unwrap(), DOTENV);
}

#[tokio::test]
async fn a_managed_install_is_left_alone() {
    let setup = enrolled()
        .args(&["gateway", "unenroll", "--yes"])
        .env("HERMES_MANAGED", "1");
    let (code, _, log) = run(&setup).await;
    assert_eq!(code, 1);
    assert!(log.contains("managed"), "{log}");
    assert_eq!(fs::read_to_string(setup.home().join(".env")).unwrap(), DOTENV);
}
