//! Where secrets come from, and that they stay unseen.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use secrecy::ExposeSecret as _;

use super::*;
use crate::config::stage::Stage;

fn secret(stage: &Stage) -> (Option<String>, Origin) {
    let loaded = stage.load();
    let secret = loaded
        .settings
        .connector
        .secret
        .as_ref()
        .map(|secret| secret.expose_secret().to_owned());
    (secret, loaded.origins.of("connector.secret").clone())
}

#[test]
fn id_and_secret_are_settled_separately() {
    let stage = Stage::new().env("GATEWAY_RELAY_ID", "gw-env").file(
        "config.yaml",
        "gateway: {relay_id: gw-yaml, relay_secret: yaml-secret}\n",
    );
    let loaded = stage.load();
    assert_eq!(loaded.settings.connector.gateway_id.as_deref(), Some("gw-env"));
    assert!(
        !format!("{loaded:?}").contains("yaml-secret"),
        "nothing of it is kept in the open"
    );
    assert_eq!(secret(&stage).0.as_deref(), Some("yaml-secret"));
}

#[test]
fn the_secret_has_six_sources_in_order() {
    let mut stage = Stage::new().file("config.yaml", "gateway: {relay_secret: from-yaml}\n");
    assert_eq!(
        secret(&stage),
        (
            Some("from-yaml".into()),
            Origin::HermesConfig(stage.path("config.yaml"))
        )
    );
    stage = stage.file(".env", "GATEWAY_RELAY_SECRET=p@$$w0rd\n");
    assert_eq!(
        secret(&stage),
        (Some("p@$$w0rd".into()), Origin::HermesEnv(stage.path(".env")))
    );
    stage = stage.file("credentials/relay-secret", "from-credential\n");
    let credentials = stage.path("credentials");
    stage = stage.env("CREDENTIALS_DIRECTORY", credentials.to_str().unwrap());
    assert_eq!(
        secret(&stage),
        (
            Some("from-credential".into()),
            Origin::Credential(credentials.join("relay-secret"))
        )
    );
    stage = stage
        .file("own-secret", " from-own \n")
        .file("relay.yaml", "connector: {secret_file: own-secret}\n");
    assert_eq!(
        secret(&stage),
        (Some("from-own".into()), Origin::OwnFile(stage.path("relay.yaml")))
    );
    stage = stage.file("env-secret", "from-file");
    let named = stage.path("env-secret");
    stage = stage.env("GATEWAY_RELAY_SECRET_FILE", named.to_str().unwrap());
    assert_eq!(
        secret(&stage),
        (
            Some("from-file".into()),
            Origin::Env("GATEWAY_RELAY_SECRET_FILE".into())
        )
    );
    stage = stage.env("GATEWAY_RELAY_SECRET", "from-env");
    assert_eq!(
        secret(&stage),
        (
            Some("from-env".into()),
            Origin::Env("GATEWAY_RELAY_SECRET".into())
        )
    );
    stage = stage.env("GATEWAY_RELAY_SECRET", " \t ");
    assert_eq!(secret(&stage).0.as_deref(), Some("from-file"));
    fs::set_permissions(&named, Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(stage.try_load(), Err(ConfigError::Secret(_))));
}

#[test]
fn no_secret_is_ever_shown() {
    let stage = Stage::new()
        .env("GATEWAY_RELAY_SECRET", "hunter2-a")
        .env("GATEWAY_RELAY_IDP_CLIENT_SECRET", "hunter2-b")
        .env(
            "GATEWAY_RELAY_URL",
            "https://user:hunter2-c@connector.example/relay",
        )
        .file(
            ".env",
            "GATEWAY_RELAY_SECRET=hunter2-d\nGATEWAY_RELAY_DELIVERY_KEY=hunter2-e\n",
        );
    let loaded = stage.load();
    let rows = loaded.describe();
    let row = |key: &str| rows.iter().find(|row| row.key == key).unwrap();
    assert_eq!(row("connector.secret").value_shown, "<hidden>");
    assert_eq!(
        row("connector.delivery_key").origin,
        Origin::HermesEnv(stage.path(".env"))
    );
    let everything = format!(
        "{rows:?}{:?}{:?}",
        loaded.warnings, loaded.settings.connector.secret
    );
    assert!(!everything.contains("hunter2"), "{everything}");
    assert_eq!(loaded.warnings.len(), 1);
    assert!(
        loaded.warnings[0].contains("GATEWAY_RELAY_SECRET differs"),
        "{:?}",
        loaded.warnings
    );
}

#[test]
fn a_token_url_in_the_environment_silences_the_files() {
    let hermes = "gateway: {idp: {token_url: 'https://yaml', client_id: yaml-id, client_secret: yaml-secret, scope: s}}\n";
    let mut stage = Stage::new()
        .file("config.yaml", hermes)
        .env("GATEWAY_RELAY_IDP_SCOPE", "env-scope");
    let idp = stage.load().settings.idp;
    assert_eq!(idp.token_url.as_deref(), Some("https://yaml"));
    assert_eq!(
        (idp.client_id.as_deref(), idp.scope.as_deref()),
        (Some("yaml-id"), Some("env-scope"))
    );
    assert_eq!(idp.client_secret.unwrap().expose_secret(), "yaml-secret");

    stage = stage.file("idp-secret", "own-secret").file(
        "relay.yaml",
        "idp: {token_url: 'https://own', client_secret_file: idp-secret}\n",
    );
    let idp = stage.load().settings.idp;
    assert_eq!(
        (idp.token_url.as_deref(), idp.client_id),
        (Some("https://own"), None)
    );
    assert_eq!(idp.client_secret.unwrap().expose_secret(), "own-secret");

    stage = stage.env("GATEWAY_RELAY_IDP_TOKEN_URL", "https://env");
    let idp = stage.load().settings.idp;
    assert_eq!(idp.token_url.as_deref(), Some("https://env"));
    assert!(idp.client_id.is_none() && idp.client_secret.is_none());
    assert_eq!(idp.scope.as_deref(), Some("env-scope"));
}
