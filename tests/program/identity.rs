//! Where the identity token comes from, against real servers and a real home directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::http_stub::{Stub, client, nobody, reply, trace};
use crate::support::relay_process::Setup;
use crate::support::wait::eventually;
use hermes_relay::net::identity::{IdentityError, IdentitySource, IdpSettings};
use hermes_relay::net::portal_login::{PortalError, PortalLogin};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tempfile::TempDir;

type Env = Vec<(&'static str, String)>;

fn lookup(env: &Env) -> impl Fn(&str) -> Option<String> {
    |name| {
        env.iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.clone())
    }
}

async fn token(env: &Env, home: &Path) -> Result<SecretString, IdentityError> {
    IdentitySource::choose(&lookup(env), &IdpSettings::default(), home)?
        .token(&client())
        .await
}

fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// A home whose login ends `secs` from now.
fn home_with_login(secs: i64) -> TempDir {
    let home = TempDir::new().unwrap();
    let ends = i64::try_from(unix_now()).unwrap() + secs;
    write(
        &home.path().join("auth.json"),
        &json!({
            "version": 1,
            "active_provider": "other",
            "providers": {
                "other": {"key": "keep-me"},
                "nous": {
                    "access_token": "old-access-hush",
                    "refresh_token": "old-refresh-hush",
                    "expires_at": ends,
                    "client_id": "hermes-cli-vps",
                    "tls": {"insecure": false, "ca_bundle": null},
                    "unknown": [1, 2],
                },
            },
        }),
    );
    home
}

fn write(path: &Path, value: &Value) {
    fs::write(path, value.to_string()).unwrap();
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

const GRANT: &str =
    r#"{"access_token":"new-access","refresh_token":"new-refresh","expires_in":900,"scope":"s"}"#;

fn portal_env(stub: &Stub) -> Env {
    vec![("HERMES_PORTAL_BASE_URL", format!("{}/", stub.base()))]
}

/// The access token that the portal's login in this home comes to.
async fn portal_token(stub: &Stub, home: &Path) -> String {
    let token = token(&portal_env(stub), home).await.unwrap();
    token.expose_secret().to_owned()
}

fn assert_discreet(error: &dyn std::fmt::Debug) {
    assert!(!format!("{error:?}").contains("hush"), "{error:?}");
}

#[tokio::test]
async fn client_credentials_are_posted_as_the_trace_shows() {
    let stub = Stub::always(200, r#"{"access_token":" tok "}"#).await;
    let env: Env = vec![
        ("GATEWAY_RELAY_IDP_TOKEN_URL", format!("{}/token", stub.base())),
        ("GATEWAY_RELAY_IDP_CLIENT_ID", "cid".into()),
        ("GATEWAY_RELAY_IDP_CLIENT_SECRET", "csec".into()),
        ("GATEWAY_RELAY_IDP_SCOPE", "s1 s2".into()),
    ];
    assert_eq!(
        token(&env, Path::new("/nowhere")).await.unwrap().expose_secret(),
        "tok"
    );
    let (seen, expected) = (stub.only(), &trace()["idp"]);
    assert_eq!((seen.method.as_str(), seen.uri.as_str()), ("POST", "/token"));
    assert_eq!(Some(seen.body.as_str()), expected["body"].as_str());
    for name in ["Content-Type", "Accept"] {
        assert_eq!(seen.header(name), expected["headers"][name].as_str());
    }
    assert_eq!(seen.header("authorization"), None);
}

#[tokio::test]
async fn an_ambient_source_is_asked_with_a_get() {
    let stub = Stub::always(200, "aaa.bbb.ccc\n").await;
    let env: Env = vec![("GATEWAY_RELAY_IDP_TOKEN_URL", stub.base())];
    assert_eq!(
        token(&env, Path::new("/nowhere")).await.unwrap().expose_secret(),
        "aaa.bbb.ccc"
    );
    let seen = stub.only();
    assert_eq!((seen.method.as_str(), seen.body.as_str()), ("GET", ""));
    assert_eq!(seen.header("accept"), Some("application/json, text/plain"));
}

#[tokio::test]
async fn half_a_credential_makes_no_request() {
    let stub = Stub::always(200, "{}").await;
    let env: Env = vec![
        ("GATEWAY_RELAY_IDP_TOKEN_URL", stub.base()),
        ("GATEWAY_RELAY_IDP_CLIENT_SECRET", "hush".into()),
    ];
    let error = token(&env, Path::new("/nowhere")).await.unwrap_err();
    assert!(matches!(
        error,
        IdentityError::PartialCredentials {
            missing: "gateway.idp.client_id",
            ..
        }
    ));
    assert_discreet(&error);
    assert!(stub.seen().is_empty());
}

#[tokio::test]
async fn what_goes_wrong_at_the_identity_provider_is_reported() {
    for (status, body, expected) in [
        (
            400,
            r#"{"error":"invalid_client"}"#,
            "the identity provider returned HTTP 400: invalid_client",
        ),
        (502, "<html>", "the identity provider returned HTTP 502"),
        (
            200,
            "<html>",
            "the identity provider's answer holds no access_token",
        ),
        (
            200,
            r#"{"access_token":["x"]}"#,
            "the identity provider's answer holds no access_token",
        ),
    ] {
        let stub = Stub::always(status, body).await;
        let env: Env = vec![("GATEWAY_RELAY_IDP_TOKEN_URL", stub.base())];
        let error = token(&env, Path::new("/nowhere")).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(!error.needs_login());
    }
    let env: Env = vec![("GATEWAY_RELAY_IDP_TOKEN_URL", nobody())];
    let error = token(&env, Path::new("/nowhere")).await.unwrap_err();
    assert!(matches!(error, IdentityError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn a_login_that_still_lasts_is_used_as_it_is() {
    let stub = Stub::always(200, GRANT).await;
    let home = home_with_login(600);
    let before = fs::read(home.path().join("auth.json")).unwrap();
    assert_eq!(portal_token(&stub, home.path()).await, "old-access-hush");
    assert!(stub.seen().is_empty());
    assert_eq!(fs::read(home.path().join("auth.json")).unwrap(), before);
}

#[tokio::test]
async fn a_login_about_to_end_is_refreshed_and_the_rotated_tokens_are_kept() {
    let stub = Stub::always(200, GRANT).await;
    let home = home_with_login(60);
    let path = home.path().join("auth.json");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(portal_token(&stub, home.path()).await, "new-access");

    let seen = stub.only();
    assert_eq!(
        (seen.method.as_str(), seen.uri.as_str()),
        ("POST", "/api/oauth/token")
    );
    assert_eq!(seen.body, "grant_type=refresh_token&client_id=hermes-cli-vps");
    assert_eq!(seen.header("x-nous-refresh-token"), Some("old-refresh-hush"));

    let stored = read(&path);
    let nous = &stored["providers"]["nous"];
    assert_eq!(
        (&nous["access_token"], &nous["refresh_token"]),
        (&json!("new-access"), &json!("new-refresh"))
    );
    assert_eq!(nous["unknown"], json!([1, 2]));
    assert_eq!(stored["providers"]["other"]["key"], "keep-me");
    assert_eq!(stored["active_provider"], "other");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut left: Vec<_> = fs::read_dir(home.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["auth.json", "auth.lock"]);

    // What was written is understood when read again: no second refresh.
    assert_eq!(portal_token(&stub, home.path()).await, "new-access");
    assert_eq!(stub.seen().len(), 1);
}

#[tokio::test]
async fn a_login_at_the_top_of_the_file_works_too() {
    let stub = Stub::always(200, GRANT).await;
    let home = TempDir::new().unwrap();
    let path = home.path().join("auth.json");
    write(
        &path,
        &json!({"access_token": "a", "refresh_token": "r", "expires_at": "2020-01-01T00:00:00+00:00", "x": 1}),
    );
    assert_eq!(portal_token(&stub, home.path()).await, "new-access");
    let stored = read(&path);
    assert_eq!(
        (&stored["refresh_token"], &stored["x"]),
        (&json!("new-refresh"), &json!(1))
    );
    assert_eq!(stub.only().body, "grant_type=refresh_token&client_id=hermes-cli");
}

#[tokio::test]
async fn two_concurrent_requests_spend_the_refresh_token_once() {
    let stub = Stub::always(200, GRANT).await;
    let home = home_with_login(0);
    let env = portal_env(&stub);
    let (one, two) = tokio::join!(token(&env, home.path()), token(&env, home.path()));
    assert_eq!(one.unwrap().expose_secret(), "new-access");
    assert_eq!(two.unwrap().expose_secret(), "new-access");
    assert_eq!(stub.seen().len(), 1);
}

#[tokio::test]
async fn what_the_lock_holder_wrote_is_used() {
    let stub = Stub::always(200, GRANT).await;
    let home = home_with_login(0);
    let lock = fs::File::create(home.path().join("auth.lock")).unwrap();
    lock.lock().unwrap();
    let env = portal_env(&stub);
    let mut waiting = Box::pin(token(&env, home.path()));
    let early = tokio::time::timeout(Duration::from_millis(200), &mut waiting).await;
    assert!(early.is_err(), "it did not wait for the lock");
    write(
        &home.path().join("auth.json"),
        &json!({"providers": {"nous": {"access_token": "theirs", "refresh_token": "r2", "expires_at": unix_now() + 900}}}),
    );
    lock.unlock().unwrap();
    assert_eq!(waiting.await.unwrap().expose_secret(), "theirs");
    assert!(stub.seen().is_empty());
}

#[tokio::test]
async fn the_copy_shared_between_profiles_is_honoured_and_kept_in_step() {
    let stub = Stub::always(200, GRANT).await;
    let home = home_with_login(0);
    let shared = home.path().join("shared/nous_auth.json");
    fs::create_dir(home.path().join("shared")).unwrap();
    // Another profile rotated the token since: ours is spent, theirs is the one to use.
    write(
        &shared,
        &json!({"_schema": 1, "access_token": "x", "refresh_token": "rotated", "expires_at": "2020-01-01T00:00:00Z"}),
    );
    assert_eq!(portal_token(&stub, home.path()).await, "new-access");
    assert_eq!(stub.only().header("x-nous-refresh-token"), Some("rotated"));
    let (own, copy) = (read(&home.path().join("auth.json")), read(&shared));
    for stored in [&own["providers"]["nous"], &copy] {
        assert_eq!(
            (&stored["access_token"], &stored["refresh_token"]),
            (&json!("new-access"), &json!("new-refresh"))
        );
    }
    assert_eq!(copy["_schema"], 1);
    assert_eq!(fs::metadata(&shared).unwrap().permissions().mode() & 0o777, 0o600);

    // And one that another profile has just refreshed is taken over without a request.
    let home = home_with_login(0);
    fs::create_dir(home.path().join("shared")).unwrap();
    write(
        &home.path().join("shared/nous_auth.json"),
        &json!({"access_token": "theirs", "refresh_token": "r9", "expires_at": "2199-01-01T00:00:00Z"}),
    );
    assert_eq!(portal_token(&stub, home.path()).await, "theirs");
    assert_eq!(
        read(&home.path().join("auth.json"))["providers"]["nous"]["refresh_token"],
        "r9"
    );
    assert_eq!(stub.seen().len(), 1);
}

#[tokio::test]
async fn a_profile_uses_and_updates_its_roots_login() {
    let stub = Stub::always(200, GRANT).await;
    let root = home_with_login(0);
    let profile = root.path().join("profiles/coder");
    fs::create_dir_all(&profile).unwrap();
    write(
        &profile.join("auth.json"),
        &json!({"version": 1, "providers": {}}),
    );
    assert_eq!(portal_token(&stub, &profile).await, "new-access");
    assert_eq!(
        read(&root.path().join("auth.json"))["providers"]["nous"]["refresh_token"],
        "new-refresh"
    );
    assert_eq!(
        read(&profile.join("auth.json")),
        json!({"version": 1, "providers": {}})
    );
}

#[tokio::test]
async fn a_linked_login_stays_a_link() {
    let stub = Stub::always(200, GRANT).await;
    let (real, home) = (home_with_login(0), TempDir::new().unwrap());
    std::os::unix::fs::symlink(real.path().join("auth.json"), home.path().join("auth.json")).unwrap();
    token(&portal_env(&stub), home.path()).await.unwrap();
    assert!(
        fs::symlink_metadata(home.path().join("auth.json"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(
        read(&real.path().join("auth.json"))["providers"]["nous"]["refresh_token"],
        "new-refresh"
    );
}

#[tokio::test]
async fn a_stored_portal_outside_nous_research_is_never_told_the_refresh_token() {
    let stub = Stub::always(200, GRANT).await;
    for portal in [
        stub.base(),
        "https://evil.example".into(),
        "http://portal.nousresearch.com".into(),
        "https://nousresearch.com.evil.example".into(),
        "https://evilnousresearch.com".into(),
    ] {
        let home = TempDir::new().unwrap();
        write(
            &home.path().join("auth.json"),
            &json!({"refresh_token": "r-hush", "access_token": "a-hush", "portal_base_url": portal}),
        );
        let error = token(&vec![], home.path()).await.unwrap_err();
        assert!(
            matches!(error, IdentityError::Portal(PortalError::ForeignPortal { .. })),
            "{portal}: {error:?}"
        );
        assert_discreet(&error);
    }
    assert!(stub.seen().is_empty());
}

#[tokio::test]
async fn a_refused_refresh_changes_no_file_and_reports_whether_to_log_in() {
    for (status, body, login) in [
        (400, r#"{"error":"invalid_grant"}"#, true),
        (400, r#"{"error":"refresh_token_reused"}"#, true),
        (400, r#"{"error":"slow_down"}"#, false),
        (503, r#"{"error":"temporarily_unavailable"}"#, false),
        (502, "<html>", false),
        (401, "", true),
        (200, "{}", true),
    ] {
        let stub = Stub::always(status, body).await;
        let home = home_with_login(0);
        let before = fs::read(home.path().join("auth.json")).unwrap();
        let error = token(&portal_env(&stub), home.path()).await.unwrap_err();
        assert_eq!(error.needs_login(), login, "{status} {body}: {error}");
        assert_discreet(&error);
        assert_eq!(fs::read(home.path().join("auth.json")).unwrap(), before);
    }
}

#[tokio::test]
async fn no_login_an_empty_one_and_a_broken_file_are_distinguished() {
    let home = TempDir::new().unwrap();
    let login = PortalLogin::new(home.path(), &|_| None);
    assert!(matches!(
        login.access_token(&client()).await,
        Err(PortalError::NotLoggedIn)
    ));
    write(
        &home.path().join("auth.json"),
        &json!({"providers": {"nous": {"access_token": "a"}}}),
    );
    assert!(matches!(
        login.access_token(&client()).await,
        Err(PortalError::Expired)
    ));
    fs::write(home.path().join("auth.json"), "{\"access_token\": \"hush").unwrap();
    let error = login.access_token(&client()).await.unwrap_err();
    assert!(
        matches!(error, PortalError::Store(_)) && !error.needs_login(),
        "{error:?}"
    );
    assert_discreet(&error);
}

#[tokio::test]
async fn a_relay_that_is_stopped_stores_the_new_refresh_token_first() {
    let slowly = Duration::from_millis(500);
    let portal = Stub::at("127.0.0.1:0", slowly, |_| {
        let granted = json!({"access_token": "new", "refresh_token": "rotated", "expires_in": 3600});
        reply(200, granted.to_string())
    })
    .await;
    let setup = Setup::with_url("ws://127.0.0.1:1/relay").env("HERMES_PORTAL_BASE_URL", &portal.base());
    let expired = json!({"access_token": "old", "refresh_token": "single-use", "expires_at": 1});
    setup.write("auth.json", &json!({"providers": {"nous": expired}}).to_string());
    let relay = setup.start();
    eventually("the token is spent", async || !portal.seen().is_empty()).await;
    relay.stop().await;
    let stored = read(&setup.home().join("auth.json"));
    assert_eq!(stored["providers"]["nous"]["refresh_token"], "rotated");
}
