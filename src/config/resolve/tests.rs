//! Loads settings from a temporary home.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use secrecy::ExposeSecret as _;

use super::*;
use crate::adapter::SlackReplyMode;
use crate::config::test_home::TestHome;
use crate::config::{Flags, LogLevel};

#[test]
fn without_settings_everything_is_a_default() {
    let home = TestHome::new();
    let loaded = home.load();
    let settings = &loaded.settings;
    assert_eq!(settings.connector.url, None);
    assert_eq!(settings.connector.identities, [BotIdentity::new("relay", "")]);
    assert_eq!(settings.agent, "echo");
    assert_eq!(settings.sessions, SessionsConfig::default());
    assert_eq!(settings.state_dir, home.path("relay"));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert_eq!(loaded.hermes_yaml, serde_json::json!({}));
    for row in loaded.describe() {
        let from_env = row.key == "hermes_home";
        assert!(from_env || row.origin == Origin::Default, "{row:?}");
    }
}

#[test]
fn layers_have_an_order() {
    let mut home = TestHome::new().file("config.yaml", "gateway: {relay_url: 'https://yaml '}\n");
    let url = |home: &TestHome| {
        let loaded = home.load();
        (
            loaded.settings.connector.url.clone().unwrap(),
            loaded.origins.of("connector.url").clone(),
        )
    };
    assert_eq!(
        url(&home),
        (
            "https://yaml".into(),
            Origin::HermesConfig(home.path("config.yaml"))
        )
    );
    home = home.file(".env", "GATEWAY_RELAY_URL=https://dotenv\n");
    assert_eq!(
        url(&home),
        ("https://dotenv".into(), Origin::HermesEnv(home.path(".env")))
    );
    home = home.file("relay.yaml", "connector: {url: 'https://own'}\n");
    assert_eq!(
        url(&home),
        ("https://own".into(), Origin::OwnFile(home.path("relay.yaml")))
    );
    home = home.env("GATEWAY_RELAY_URL", "  https://env  ");
    assert_eq!(
        url(&home),
        ("https://env".into(), Origin::Env("GATEWAY_RELAY_URL".into()))
    );
    home.flags.url = Some("https://flag".into());
    assert_eq!(url(&home), ("https://flag".into(), Origin::Flag));
    home.flags.url = None;
    home = home.env("GATEWAY_RELAY_URL", "   ");
    assert_eq!(url(&home).0, "https://own");
}

#[test]
fn the_first_existing_file_is_used() {
    let mut home = TestHome::new().file("etc/config.yaml", "agent: system\n");
    assert_eq!(home.load().settings.agent, "system");
    home = home.file("relay.yaml", "agent: home\n");
    assert_eq!(home.load().settings.agent, "home");
    home = home.file("env.yaml", "agent: env\n");
    let path = home.path("env.yaml");
    home = home.env("HERMES_RELAY_CONFIG", path.to_str().unwrap());
    assert_eq!(home.load().settings.agent, "env");
    home = home.file("flag.yaml", "agent: flag\n");
    home.flags.config = Some(home.path("flag.yaml"));
    assert_eq!(home.load().settings.agent, "flag");
    assert_eq!(home.load().own_file, Some(home.path("flag.yaml")));
    home.flags.config = Some(home.path("gone.yaml"));
    assert!(matches!(home.try_load(), Err(ConfigError::Missing { .. })));
}

#[test]
fn hermes_can_disable_the_relay() {
    for value in ["false", "'false'"] {
        let home = TestHome::new()
            .env("GATEWAY_RELAY_URL", "https://c.example")
            .file(
                "config.yaml",
                &format!("platforms: {{relay: {{enabled: {value}}}}}\n"),
            );
        let connector = home.load().settings.connector;
        assert_eq!(connector.url, None);
        assert!(connector.url_veto.unwrap().contains("platforms.relay.enabled"));
    }
    let mut named = TestHome::new().file("config.yaml", "platforms: {relay: {enabled: false}}\n");
    named.flags.url = Some("https://c.example".to_owned());
    assert_eq!(
        named.load().settings.connector.url.as_deref(),
        Some("https://c.example")
    );
    let without_url = TestHome::new().file("config.yaml", "platforms: {relay: {enabled: false}}\n");
    assert_eq!(without_url.load().settings.connector.url_veto, None);
}

#[test]
fn identities_come_from_one_layer() {
    let own = "connector:\n  identities:\n    - {platform: slack, bot_id: 77, username: '@me'}\n";
    let mut home = TestHome::new().file(
        ".env",
        "GATEWAY_RELAY_PLATFORMS=telegram\nGATEWAY_RELAY_BOT_IDS={\"telegram\":{\"botId\":5}}\n",
    );
    let pairs = |home: &TestHome| {
        let identities = home.load().settings.connector.identities;
        identities
            .into_iter()
            .map(|identity| (identity.platform, identity.bot_id))
            .collect::<Vec<_>>()
    };
    assert_eq!(pairs(&home), [("telegram".into(), "5".into())]);
    home = home.file("relay.yaml", own);
    assert_eq!(pairs(&home), [("slack".into(), "77".into())]);
    assert_eq!(
        home.load().settings.connector.identities[0].username.as_deref(),
        Some("me")
    );
    assert_eq!(
        *home.load().origins.of("connector.identities"),
        Origin::OwnFile(home.path("relay.yaml"))
    );
    home = home.env("GATEWAY_RELAY_PLATFORMS", "discord, telegram");
    assert_eq!(
        pairs(&home),
        [("discord".into(), String::new()), ("telegram".into(), "5".into())]
    );
    home = home.env("GATEWAY_RELAY_BOT_IDS", "[1]");
    assert!(
        home.load()
            .warnings
            .iter()
            .any(|warning| warning.contains("not a JSON object"))
    );
}

#[test]
fn the_busy_mode_has_layers() {
    let mut home = TestHome::new();
    let mode = |home: &TestHome| home.load().settings.sessions.busy_mode;
    assert_eq!(mode(&home), BusyMode::Queue);
    home = home.file("config.yaml", "display: {busy_input_mode: Interrupt}\n");
    assert_eq!(mode(&home), BusyMode::Interrupt);
    home = home.file(".env", "HERMES_GATEWAY_BUSY_INPUT_MODE=steer\n");
    assert_eq!(mode(&home), BusyMode::Steer);
    home = home.file("relay.yaml", "sessions: {busy_mode: queue}\n");
    assert_eq!(mode(&home), BusyMode::Queue);
    home = home.env("HERMES_GATEWAY_BUSY_INPUT_MODE", "interrupt");
    assert_eq!(mode(&home), BusyMode::Interrupt);
    home = home.env("HERMES_GATEWAY_BUSY_INPUT_MODE", "shout");
    assert_eq!(mode(&home), BusyMode::Queue);
    assert!(
        home.load()
            .warnings
            .iter()
            .any(|warning| warning.contains("`shout` is not one of"))
    );
}

#[test]
fn session_and_slack_switches_fall_back_to_hermes() {
    let home = TestHome::new()
        .file(
            "config.yaml",
            "group_sessions_per_user: no\ngateway: {thread_sessions_per_user: true, multiplex_profiles: on}\n\
             platforms: {relay: {extra: {reply_in_thread: 'off', slack: {dm_top_level_threads_as_sessions: no, \
             channel_reply_modes: {C1: channel, C2: Thread, C3: project}}}}}\n",
        )
        .file("relay.yaml", "sessions: {multiplex_profiles: false, interrupted_notice: ''}\n");
    let loaded = home.load();
    let sessions = &loaded.settings.sessions;
    assert!(
        !sessions.group_sessions_per_user
            && sessions.thread_sessions_per_user
            && !sessions.multiplex_profiles
    );
    assert_eq!(sessions.interrupted_notice, None);
    assert!(sessions.overflow_notice.is_some());
    assert!(
        !loaded.settings.slack.reply_in_thread && !loaded.settings.slack.dm_top_level_threads_as_sessions
    );
    assert_eq!(
        loaded.settings.slack.channel_reply_modes,
        [
            ("C1".to_owned(), SlackReplyMode::Channel),
            ("C2".to_owned(), SlackReplyMode::Thread)
        ]
        .into()
    );
    assert_eq!(
        *loaded.origins.of("slack.reply_in_thread"),
        Origin::HermesConfig(home.path("config.yaml"))
    );
}

#[test]
fn a_variable_overrides_whether_profiles_are_multiplexed() {
    let file = |value: &str| format!("sessions: {{multiplex_profiles: {value}}}\n");
    let hermes = "multiplex_profiles: true\n";
    let read = |home: TestHome| home.load().settings.sessions.multiplex_profiles;
    let with = |value: &str| TestHome::new().env("GATEWAY_MULTIPLEX_PROFILES", value);
    for (word, wanted) in [
        ("1", true),
        (" TRUE ", true),
        ("on", true),
        ("0", false),
        ("No", false),
    ] {
        let other = if wanted { "false" } else { "true" };
        assert_eq!(
            read(with(word).file("relay.yaml", &file(other))),
            wanted,
            "{word}"
        );
    }
    for word in ["", " ", "perhaps", "2"] {
        assert!(
            read(with(word).file("config.yaml", hermes)),
            "{word}: the settings decide"
        );
        assert!(!read(with(word)), "{word}");
    }
    // Hermes' own file of variables counts less than our settings, and more than Hermes' settings.
    let dotenv = |value: &str| TestHome::new().file(".env", &format!("GATEWAY_MULTIPLEX_PROFILES={value}\n"));
    assert!(read(dotenv("true")));
    assert!(!read(dotenv("true").file("relay.yaml", &file("false"))));
    assert!(!read(dotenv("off").file("config.yaml", hermes)));
    let home = with("on");
    assert_eq!(
        *home.load().origins.of("sessions.multiplex_profiles"),
        Origin::Env("GATEWAY_MULTIPLEX_PROFILES".to_owned())
    );
}

#[test]
fn the_state_directory_has_its_own_order() {
    let mut home = TestHome::new().file("relay.yaml", "state_dir: journal\n");
    let place = |home: &TestHome| home.load().settings.state_dir;
    assert_eq!(place(&home), home.path("journal"));
    home = home.env("STATE_DIRECTORY", "/var/lib/a:/var/lib/b");
    assert_eq!(place(&home), Path::new("/var/lib/a"));
    home = home.env("HERMES_RELAY_STATE_DIR", "/srv/relay");
    assert_eq!(place(&home), Path::new("/srv/relay"));
    home.flags.state_dir = Some("/flag".into());
    assert_eq!(place(&home), Path::new("/flag"));

    let mut bare = TestHome::new();
    bare.env.clear();
    assert!(matches!(bare.try_load(), Err(ConfigError::NoStateDir)));
    let user = bare.dir.path().to_str().unwrap().to_owned();
    let bare = bare.env("HOME", &user);
    assert_eq!(place(&bare), bare.path(".hermes/relay"));
}

#[test]
fn the_state_directory_is_found_without_the_rest_of_the_settings() {
    let place = |home: &TestHome| {
        let env = |name: &str| home.env.get(name).cloned();
        let flags = home.flags.clone();
        let found = place_from(&Sources { flags, env: &env }, &home.path("etc/config.yaml"));
        found.map(|loaded| (loaded.settings.state_dir, loaded.settings.access.is_active()))
    };
    let mut home = TestHome::new()
        .file(
            "relay.yaml",
            "state_dir: journal\nlink: {backof_min_ms: 5}\naccess: {mode: pair}\n",
        )
        .file(".env", "TELEGRAM_ALLOWED_USERS: 1\n");
    assert!(home.try_load().is_err());
    assert_eq!(place(&home).unwrap(), (home.path("journal"), false));
    // Then it may be another directory.
    for text in ["state_dir: [\n", "state_dir: [a]\n"] {
        home = home.file("relay.yaml", text);
        assert!(place(&home).is_err(), "{text}");
    }
    home.flags.state_dir = Some("/flag".into());
    assert_eq!(place(&home).unwrap().0, Path::new("/flag"));
    home.flags.state_dir = None;
    home = home.file("relay.yaml", "agent: 5\n");
    assert_eq!(place(&home).unwrap().0, home.path("relay"));
}

#[test]
fn a_command_in_an_agents_shell_finds_the_relay_that_started_it_unless_it_names_another() {
    let home = TestHome::new()
        .file("relay.yaml", "state_dir: own\nagent: noop\n")
        .file("other.yaml", "state_dir: named-in-file\n");
    let other = home.path("other.yaml").display().to_string();
    let mut home = home
        .env("RELAY_CONFIG", &other)
        .env("RELAY_STATE_DIR", "/of-parent")
        .env("HERMES_RELAY_STATE_DIR", "/variable");
    let found = |home: &TestHome| {
        let loaded = home.load();
        let origin = loaded.origins.of("state_dir").clone();
        (loaded.own_file, loaded.settings.state_dir, origin)
    };
    let (own, variable) = (
        Some(home.path("relay.yaml")),
        Origin::Env("HERMES_RELAY_STATE_DIR".into()),
    );
    // What starts a relay is not told by another one where.
    assert_eq!(found(&home), (own.clone(), "/variable".into(), variable.clone()));
    home.flags = Flags::of_relay(None, None);
    let parent = Origin::Env("RELAY_STATE_DIR".into());
    let other = Some(home.path("other.yaml"));
    assert_eq!(found(&home), (other, "/of-parent".into(), parent));
    home.flags = Flags::of_relay(own.clone(), None);
    assert_eq!(found(&home), (own.clone(), "/variable".into(), variable));
    home.flags = Flags::of_relay(None, Some("/flag".into()));
    assert_eq!(found(&home), (own, "/flag".into(), Origin::Flag));
}

#[test]
fn paths_are_relative_to_the_file() {
    let home = TestHome::new().env("HOME", "/home/me").file(
        "sub/relay.yaml",
        "tls: {ca_file: ca.pem, client_cert: /abs/cert.pem, client_key: ~/key.pem}\nmedia: {send_from: [out, /srv/out]}\n\
         serve: {http: '127.0.0.1:0', receiver: {bearer_file: key, hmac_secret_file: /abs/hmac}}\n",
    );
    let mut home = home;
    home.flags.config = Some(home.path("sub/relay.yaml"));
    let settings = home.load().settings;
    let receiver = settings.serve.receiver.unwrap();
    assert_eq!(receiver.bearer_file, Some(home.path("sub/key")));
    assert_eq!(receiver.hmac_secret_file, Some("/abs/hmac".into()));
    let tls = settings.tls;
    assert_eq!(
        settings.media.send_from,
        [home.path("sub/out"), "/srv/out".into()]
    );
    assert_eq!(tls.ca_file, Some(home.path("sub/ca.pem")));
    assert_eq!(tls.client_cert, Some("/abs/cert.pem".into()));
    assert_eq!(tls.client_key, Some("/home/me/key.pem".into()));
}

#[test]
fn a_certificate_that_cannot_be_used_counts_as_missing() {
    let home = TestHome::new().file("relay.yaml", "tls: {ca_file: nowhere.pem}\n");
    let error = home.load().check_names().unwrap_err().to_string();
    let file = home.path("nowhere.pem").display().to_string();
    assert!(
        error.contains("`tls`: cannot read the ca_file") && error.contains(&file),
        "{error}"
    );
}

#[test]
fn policies_override_hermes() {
    let home = TestHome::new()
        .env("GATEWAY_RELAY_PLATFORMS", "discord,slack")
        .env("DISCORD_ALLOW_BOTS", " mentions ")
        .file(".env", "SLACK_ALLOW_BOTS=all\nDISCORD_ALLOW_BOTS=none\n")
        .file(
            "config.yaml",
            "platforms: {discord: {require_mention: true, other: 1}}\n",
        )
        .file(
            "relay.yaml",
            "policy: {discord: {free_response_channels: [a]}, slack: {allow_other_bots: false}}\n",
        );
    let loaded = home.load();
    assert_eq!(loaded.allow_bots("discord").as_deref(), Some("mentions"));
    assert_eq!(loaded.allow_bots("slack").as_deref(), Some("none"));
    assert_eq!(loaded.allow_bots("telegram"), None);
    assert_eq!(
        loaded.policy_yaml("discord")["discord"],
        serde_json::json!({"require_mention": true, "free_response_channels": ["a"]})
    );
    assert_eq!(loaded.policy_yaml("telegram"), loaded.hermes_yaml);
}

#[test]
fn invalid_hermes_files_are_warnings() {
    let home = TestHome::new()
        .file(".env", "A=\"open\nGATEWAY_RELAY_ID=gw\n")
        .file("config.yaml", "discord: [\n")
        .env("GATEWAY_RELAY_PLATFORM", "discord");
    let loaded = home.load();
    assert_eq!(loaded.settings.connector.gateway_id.as_deref(), Some("gw"));
    assert_eq!(loaded.warnings.len(), 3, "{:?}", loaded.warnings);
}

#[test]
fn rules_that_cannot_be_read_are_no_missing_rules() {
    let dotenv = |home: &TestHome| home.path(".env");
    // A directory, and more than is read of a file.
    let directory = TestHome::new();
    fs::create_dir(dotenv(&directory)).unwrap();
    let large = TestHome::new().file(".env", &"#".repeat(1024 * 1024 + 1));
    let dangling = TestHome::new();
    std::os::unix::fs::symlink("gone", dotenv(&dangling)).unwrap();
    for home in [directory, large, dangling] {
        let error = home.try_load().unwrap_err();
        assert!(matches!(error, ConfigError::UnreadableRules { .. }), "{error}");
        // What the settings file says counts instead.
        let home = home.file("relay.yaml", "access: {mode: pair}\n");
        assert_eq!(home.load().warnings.len(), 1);
    }
    for line in [
        "TELEGRAM_ALLOWED_USERS: 123",
        "TELEGRAM_ALLOWED_USERS:123",
        "SLACK_ALLOW_BOTS='none",
    ] {
        let home = TestHome::new().file(".env", &format!("A=1\n{line}\n"));
        let error = home.try_load().unwrap_err();
        assert!(
            matches!(error, ConfigError::UnreadRule { line: 2, .. }),
            "{error}"
        );
        home.file("relay.yaml", "access: {mode: pair}\n").load();
    }
    // There is nothing at all where a home is no directory.
    let home = TestHome::new().file("none", "");
    let none = home.path("none").display().to_string();
    let home = home.env("HERMES_HOME", &none).env("HERMES_RELAY_STATE_DIR", "/x");
    assert_eq!(home.load().settings.access.mode, Mode::Upstream);
}

#[test]
fn a_settings_file_that_cannot_be_read_is_no_missing_file() {
    for name in ["relay.yaml", "etc/config.yaml"] {
        let home = TestHome::new().file("etc/other", "");
        std::os::unix::fs::symlink("gone", home.path(name)).unwrap();
        let error = home.try_load().unwrap_err();
        assert!(
            matches!(&error, ConfigError::Unreadable { path, .. } if *path == home.path(name)),
            "{error}"
        );
    }
}

#[test]
fn flags_are_applied_and_a_long_name_is_truncated() {
    let mut home = TestHome::new().file("relay.yaml", "log: {level: debug}\nlink: {stable_secs: 5}\n");
    assert_eq!(home.load().settings.log.level, LogLevel::Debug);
    home.flags.log_level = Some(LogLevel::Trace);
    home.flags.agent = Some("mine".into());
    home = home.env("GATEWAY_RELAY_DISPLAY_NAME", &"é".repeat(70));
    let loaded = home.load();
    assert_eq!(loaded.settings.log.level, LogLevel::Trace);
    assert_eq!(*loaded.origins.of("log.level"), Origin::Flag);
    assert_eq!(loaded.settings.agent, "mine");
    assert_eq!(loaded.settings.connector.display_name, Some("é".repeat(64)));
    assert_eq!(
        *loaded.origins.of("link.stable_secs"),
        Origin::OwnFile(home.path("relay.yaml"))
    );
    assert_eq!(*loaded.origins.of("link.backoff_max_ms"), Origin::Default);
}

fn secret(home: &TestHome) -> (Option<String>, Origin) {
    let loaded = home.load();
    let secret = loaded
        .settings
        .connector
        .secret
        .as_ref()
        .map(|secret| secret.expose_secret().to_owned());
    (secret, loaded.origins.of("connector.secret").clone())
}

#[test]
fn id_and_secret_are_resolved_separately() {
    let home = TestHome::new().env("GATEWAY_RELAY_ID", "gw-env").file(
        "config.yaml",
        "gateway: {relay_id: gw-yaml, relay_secret: yaml-secret}\n",
    );
    let loaded = home.load();
    assert_eq!(loaded.settings.connector.gateway_id.as_deref(), Some("gw-env"));
    assert!(
        !format!("{loaded:?}").contains("yaml-secret"),
        "not kept in plain text"
    );
    assert_eq!(secret(&home).0.as_deref(), Some("yaml-secret"));
}

#[test]
fn the_secret_has_six_sources_in_order() {
    let mut home = TestHome::new().file("config.yaml", "gateway: {relay_secret: from-yaml}\n");
    assert_eq!(
        secret(&home),
        (
            Some("from-yaml".into()),
            Origin::HermesConfig(home.path("config.yaml"))
        )
    );
    home = home.file(".env", "GATEWAY_RELAY_SECRET=p@$$w0rd\n");
    assert_eq!(
        secret(&home),
        (Some("p@$$w0rd".into()), Origin::HermesEnv(home.path(".env")))
    );
    home = home.file("credentials/relay-secret", "from-credential\n");
    let credentials = home.path("credentials");
    home = home.env("CREDENTIALS_DIRECTORY", credentials.to_str().unwrap());
    assert_eq!(
        secret(&home),
        (
            Some("from-credential".into()),
            Origin::Credential(credentials.join("relay-secret"))
        )
    );
    home = home
        .file("own-secret", " from-own \n")
        .file("relay.yaml", "connector: {secret_file: own-secret}\n");
    assert_eq!(
        secret(&home),
        (Some("from-own".into()), Origin::OwnFile(home.path("relay.yaml")))
    );
    home = home.file("env-secret", "from-file");
    let named = home.path("env-secret");
    home = home.env("GATEWAY_RELAY_SECRET_FILE", named.to_str().unwrap());
    assert_eq!(
        secret(&home),
        (
            Some("from-file".into()),
            Origin::Env("GATEWAY_RELAY_SECRET_FILE".into())
        )
    );
    home = home.env("GATEWAY_RELAY_SECRET", "from-env");
    assert_eq!(
        secret(&home),
        (
            Some("from-env".into()),
            Origin::Env("GATEWAY_RELAY_SECRET".into())
        )
    );
    home = home.env("GATEWAY_RELAY_SECRET", " \t ");
    assert_eq!(secret(&home).0.as_deref(), Some("from-file"));
    fs::set_permissions(&named, Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(home.try_load(), Err(ConfigError::Secret(_))));
}

#[test]
fn no_secret_is_ever_shown() {
    let home = TestHome::new()
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
    let loaded = home.load();
    let rows = loaded.describe();
    let row = |key: &str| rows.iter().find(|row| row.key == key).unwrap();
    assert_eq!(row("connector.secret").value_shown, "<hidden>");
    assert_eq!(
        row("connector.delivery_key").origin,
        Origin::HermesEnv(home.path(".env"))
    );
    let everything = format!(
        "{rows:?}{:?}{:?}",
        loaded.warnings, loaded.settings.connector.secret
    );
    assert!(!everything.contains("hunter2"), "{everything}");
    let warned = |part: &str| loaded.warnings.iter().any(|warning| warning.contains(part));
    assert!(warned("GATEWAY_RELAY_SECRET differs"), "{:?}", loaded.warnings);
    assert!(
        warned("a gateway secret is set (") && warned("but no gateway id"),
        "{:?}",
        loaded.warnings
    );
    assert_eq!(loaded.warnings.len(), 2);
}

#[test]
fn the_secret_itself_as_the_bearer_is_not_supported_which_is_a_warning() {
    for (mode, warned) in [("raw", true), (" RAW ", true), ("token", false), ("", false)] {
        for home in [
            TestHome::new().env("GATEWAY_RELAY_AUTH_MODE", mode),
            TestHome::new().file(".env", &format!("GATEWAY_RELAY_AUTH_MODE='{mode}'\n")),
        ] {
            let warnings = home.load().warnings;
            assert_eq!(warnings.len(), usize::from(warned), "{mode}: {warnings:?}");
            assert!(!warned || warnings[0].contains("GATEWAY_RELAY_AUTH_MODE=raw"));
        }
    }
}

#[test]
fn a_token_url_in_the_environment_overrides_the_files() {
    let hermes = "gateway: {idp: {token_url: 'https://yaml', client_id: yaml-id, client_secret: yaml-secret, scope: s}}\n";
    let mut home = TestHome::new()
        .file("config.yaml", hermes)
        .env("GATEWAY_RELAY_IDP_SCOPE", "env-scope");
    let idp = home.load().settings.idp;
    assert_eq!(idp.token_url.as_deref(), Some("https://yaml"));
    assert_eq!(
        (idp.client_id.as_deref(), idp.scope.as_deref()),
        (Some("yaml-id"), Some("env-scope"))
    );
    assert_eq!(idp.client_secret.unwrap().expose_secret(), "yaml-secret");

    home = home.file("idp-secret", "own-secret").file(
        "relay.yaml",
        "idp: {token_url: 'https://own', client_secret_file: idp-secret}\n",
    );
    let idp = home.load().settings.idp;
    assert_eq!(
        (idp.token_url.as_deref(), idp.client_id),
        (Some("https://own"), None)
    );
    assert_eq!(idp.client_secret.unwrap().expose_secret(), "own-secret");

    home = home.env("GATEWAY_RELAY_IDP_TOKEN_URL", "https://env");
    let idp = home.load().settings.idp;
    assert_eq!(idp.token_url.as_deref(), Some("https://env"));
    assert!(idp.client_id.is_none() && idp.client_secret.is_none());
    assert_eq!(idp.scope.as_deref(), Some("env-scope"));
}

#[test]
fn only_positive_minutes_are_valid() {
    for (text, wanted) in [
        ("2", Some(120)),
        ("0.5", Some(30)),
        ("0.001", Some(1)),
        ("1e300", Some(604_800)),
    ] {
        assert_eq!(seconds(text), wanted, "{text}");
    }
    for text in ["0", "-3", "NaN", "soon", ""] {
        assert_eq!(seconds(text), None, "{text}");
    }
}

#[test]
fn sleep_has_layers() {
    let home = TestHome::new()
        .file(
            "config.yaml",
            "gateway: {relay_wake_url: 'https://w', scale_to_zero: {idle_timeout_minutes: 2}}\n",
        )
        .file(".env", "HERMES_SCALE_TO_ZERO=Yes\n");
    let loaded = home.load();
    assert!(loaded.settings.sleep.enabled && loaded.warnings.is_empty());
    assert_eq!(loaded.settings.sleep.idle_secs, 120);
    assert_eq!(
        loaded.origins.of("sleep.enabled"),
        &Origin::HermesEnv(home.path(".env"))
    );
    assert_eq!(
        loaded.origins.of("sleep.idle_secs"),
        &Origin::HermesConfig(home.path("config.yaml"))
    );
    let home = home.file("relay.yaml", "sleep: {enabled: false, idle_secs: 7}\n");
    let loaded = home.load();
    assert!(!loaded.settings.sleep.enabled);
    assert_eq!(loaded.settings.sleep.idle_secs, 7);
    let loaded = home.env("HERMES_SCALE_TO_ZERO", "1").load();
    assert!(loaded.settings.sleep.enabled);
    assert_eq!(
        loaded.origins.of("sleep.enabled"),
        &Origin::Env("HERMES_SCALE_TO_ZERO".into())
    );
}

#[test]
fn sleep_without_a_wake_url_is_a_warning() {
    let home = TestHome::new().env("HERMES_SCALE_TO_ZERO", "please");
    assert!(!home.load().settings.sleep.enabled);
    let loaded = home.env("HERMES_SCALE_TO_ZERO", "ON").load();
    assert!(
        loaded.warnings[0].contains("connector.wake_url"),
        "{:?}",
        loaded.warnings
    );
}

#[test]
fn a_person_who_is_listed_by_a_name_is_a_warning() {
    let home = TestHome::new().file(
        "relay.yaml",
        "access: {mode: list, people: [{platform: telegram, user: '@ann'}, {platform: telegram, user: 7}]}\n",
    );
    let warnings = home.load().warnings;
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("telegram:@ann"), "{warnings:?}");
}
