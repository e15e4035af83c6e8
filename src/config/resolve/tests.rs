//! Loading whole sets of layers from a home that exists only for the test.

use super::*;
use crate::config::LogLevel;
use crate::config::stage::Stage;

#[test]
fn with_nothing_written_everything_is_a_default() {
    let stage = Stage::new();
    let loaded = stage.load();
    let settings = &loaded.settings;
    assert_eq!(settings.connector.url, None);
    assert_eq!(settings.connector.identities, [Identity::new("relay", "")]);
    assert_eq!(settings.agent, "echo");
    assert_eq!(settings.sessions, Sessions::default());
    assert_eq!(settings.state_dir, stage.path("relay"));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert_eq!(loaded.hermes_yaml, serde_json::json!({}));
    for row in loaded.describe() {
        let from_env = row.key == "hermes_home";
        assert!(from_env || row.origin == Origin::Default, "{row:?}");
    }
}

#[test]
fn the_layers_speak_in_order() {
    let mut stage = Stage::new().file("config.yaml", "gateway: {relay_url: 'https://yaml '}\n");
    let url = |stage: &Stage| {
        let loaded = stage.load();
        (
            loaded.settings.connector.url.clone().unwrap(),
            loaded.origins.of("connector.url").clone(),
        )
    };
    assert_eq!(
        url(&stage),
        (
            "https://yaml".into(),
            Origin::HermesConfig(stage.path("config.yaml"))
        )
    );
    stage = stage.file(".env", "GATEWAY_RELAY_URL=https://dotenv\n");
    assert_eq!(
        url(&stage),
        ("https://dotenv".into(), Origin::HermesEnv(stage.path(".env")))
    );
    stage = stage.file("relay.yaml", "connector: {url: 'https://own'}\n");
    assert_eq!(
        url(&stage),
        ("https://own".into(), Origin::OwnFile(stage.path("relay.yaml")))
    );
    stage = stage.env("GATEWAY_RELAY_URL", "  https://env  ");
    assert_eq!(
        url(&stage),
        ("https://env".into(), Origin::Env("GATEWAY_RELAY_URL".into()))
    );
    stage.flags.url = Some("https://flag".into());
    assert_eq!(url(&stage), ("https://flag".into(), Origin::Flag));
    stage.flags.url = None;
    stage = stage.env("GATEWAY_RELAY_URL", "   ");
    assert_eq!(url(&stage).0, "https://own");
}

#[test]
fn our_own_file_is_the_first_that_is_there() {
    let mut stage = Stage::new().file("etc/config.yaml", "agent: system\n");
    assert_eq!(stage.load().settings.agent, "system");
    stage = stage.file("relay.yaml", "agent: home\n");
    assert_eq!(stage.load().settings.agent, "home");
    stage = stage.file("env.yaml", "agent: env\n");
    let path = stage.path("env.yaml");
    stage = stage.env("HERMES_RELAY_CONFIG", path.to_str().unwrap());
    assert_eq!(stage.load().settings.agent, "env");
    stage = stage.file("flag.yaml", "agent: flag\n");
    stage.flags.config = Some(stage.path("flag.yaml"));
    assert_eq!(stage.load().settings.agent, "flag");
    assert_eq!(stage.load().own_file, Some(stage.path("flag.yaml")));
    stage.flags.config = Some(stage.path("gone.yaml"));
    assert!(matches!(stage.try_load(), Err(ConfigError::Missing { .. })));
}

#[test]
fn hermes_can_veto_the_url() {
    for value in ["false", "'false'"] {
        let stage = Stage::new().env("GATEWAY_RELAY_URL", "https://c.example").file(
            "config.yaml",
            &format!("platforms: {{relay: {{enabled: {value}}}}}\n"),
        );
        let connector = stage.load().settings.connector;
        assert_eq!(connector.url, None);
        assert!(connector.url_veto.unwrap().contains("platforms.relay.enabled"));
    }
    let mut named = Stage::new().file("config.yaml", "platforms: {relay: {enabled: false}}\n");
    named.flags.url = Some("https://c.example".to_owned());
    assert_eq!(
        named.load().settings.connector.url.as_deref(),
        Some("https://c.example")
    );
    let without_url = Stage::new().file("config.yaml", "platforms: {relay: {enabled: false}}\n");
    assert_eq!(without_url.load().settings.connector.url_veto, None);
}

#[test]
fn identities_come_from_one_layer_whole() {
    let own = "connector:\n  identities:\n    - {platform: slack, bot_id: 77, username: '@me'}\n";
    let mut stage = Stage::new().file(
        ".env",
        "GATEWAY_RELAY_PLATFORMS=telegram\nGATEWAY_RELAY_BOT_IDS={\"telegram\":{\"botId\":5}}\n",
    );
    let pairs = |stage: &Stage| {
        let identities = stage.load().settings.connector.identities;
        identities
            .into_iter()
            .map(|identity| (identity.platform, identity.bot_id))
            .collect::<Vec<_>>()
    };
    assert_eq!(pairs(&stage), [("telegram".into(), "5".into())]);
    stage = stage.file("relay.yaml", own);
    assert_eq!(pairs(&stage), [("slack".into(), "77".into())]);
    assert_eq!(
        stage.load().settings.connector.identities[0].username.as_deref(),
        Some("me")
    );
    assert_eq!(
        *stage.load().origins.of("connector.identities"),
        Origin::OwnFile(stage.path("relay.yaml"))
    );
    stage = stage.env("GATEWAY_RELAY_PLATFORMS", "discord, telegram");
    assert_eq!(
        pairs(&stage),
        [("discord".into(), String::new()), ("telegram".into(), "5".into())]
    );
    stage = stage.env("GATEWAY_RELAY_BOT_IDS", "[1]");
    assert!(
        stage
            .load()
            .warnings
            .iter()
            .any(|warning| warning.contains("not a JSON object"))
    );
}

#[test]
fn busy_mode_is_ours_unless_someone_says_so() {
    let mut stage = Stage::new();
    let mode = |stage: &Stage| stage.load().settings.sessions.busy_mode;
    assert_eq!(mode(&stage), BusyMode::Queue);
    stage = stage.file("config.yaml", "display: {busy_input_mode: Interrupt}\n");
    assert_eq!(mode(&stage), BusyMode::Interrupt);
    stage = stage.file(".env", "HERMES_GATEWAY_BUSY_INPUT_MODE=steer\n");
    assert_eq!(mode(&stage), BusyMode::Steer);
    stage = stage.file("relay.yaml", "sessions: {busy_mode: queue}\n");
    assert_eq!(mode(&stage), BusyMode::Queue);
    stage = stage.env("HERMES_GATEWAY_BUSY_INPUT_MODE", "interrupt");
    assert_eq!(mode(&stage), BusyMode::Interrupt);
    stage = stage.env("HERMES_GATEWAY_BUSY_INPUT_MODE", "shout");
    assert_eq!(mode(&stage), BusyMode::Queue);
    assert!(
        stage
            .load()
            .warnings
            .iter()
            .any(|warning| warning.contains("`shout` is not one of"))
    );
}

#[test]
fn session_and_slack_switches_fall_to_hermes() {
    let stage = Stage::new()
        .file(
            "config.yaml",
            "group_sessions_per_user: no\ngateway: {thread_sessions_per_user: true, multiplex_profiles: on}\n\
             platforms: {relay: {extra: {reply_in_thread: 'off', slack: {dm_top_level_threads_as_sessions: no}}}}\n",
        )
        .file("relay.yaml", "sessions: {multiplex_profiles: false, interrupted_notice: ''}\n");
    let loaded = stage.load();
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
        *loaded.origins.of("slack.reply_in_thread"),
        Origin::HermesConfig(stage.path("config.yaml"))
    );
}

#[test]
fn the_state_directory_has_its_own_order() {
    let mut stage = Stage::new().file("relay.yaml", "state_dir: journal\n");
    let place = |stage: &Stage| stage.load().settings.state_dir;
    assert_eq!(place(&stage), stage.path("journal"));
    stage = stage.env("STATE_DIRECTORY", "/var/lib/a:/var/lib/b");
    assert_eq!(place(&stage), Path::new("/var/lib/a"));
    stage = stage.env("HERMES_RELAY_STATE_DIR", "/srv/relay");
    assert_eq!(place(&stage), Path::new("/srv/relay"));
    stage.flags.state_dir = Some("/flag".into());
    assert_eq!(place(&stage), Path::new("/flag"));

    let mut bare = Stage::new();
    bare.env.clear();
    assert!(matches!(bare.try_load(), Err(ConfigError::NoStateDir)));
    let user = bare.dir.path().to_str().unwrap().to_owned();
    let bare = bare.env("HOME", &user);
    assert_eq!(place(&bare), bare.path(".hermes/relay"));
}

#[test]
fn paths_of_our_own_file_are_taken_from_where_it_is() {
    let stage = Stage::new().env("HOME", "/home/me").file(
        "sub/relay.yaml",
        "tls: {ca_file: ca.pem, client_cert: /abs/cert.pem, client_key: ~/key.pem}\nmedia: {send_from: [out, /srv/out]}\n",
    );
    let mut stage = stage;
    stage.flags.config = Some(stage.path("sub/relay.yaml"));
    let settings = stage.load().settings;
    let tls = settings.tls;
    assert_eq!(
        settings.media.send_from,
        [stage.path("sub/out"), "/srv/out".into()]
    );
    assert_eq!(tls.ca_file, Some(stage.path("sub/ca.pem")));
    assert_eq!(tls.client_cert, Some("/abs/cert.pem".into()));
    assert_eq!(tls.client_key, Some("/home/me/key.pem".into()));
}

#[test]
fn policies_lay_our_word_over_the_block_that_counts() {
    let stage = Stage::new()
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
    let loaded = stage.load();
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
fn what_cannot_be_read_of_hermes_is_a_warning() {
    let stage = Stage::new()
        .file(".env", "A=\"open\nGATEWAY_RELAY_ID=gw\n")
        .file("config.yaml", "discord: [\n")
        .env("GATEWAY_RELAY_PLATFORM", "discord");
    let loaded = stage.load();
    assert_eq!(loaded.settings.connector.gateway_id.as_deref(), Some("gw"));
    assert_eq!(loaded.warnings.len(), 3, "{:?}", loaded.warnings);
}

#[test]
fn flags_reach_their_settings_and_a_long_name_is_cut() {
    let mut stage = Stage::new().file("relay.yaml", "log: {level: debug}\nlink: {stable_secs: 5}\n");
    assert_eq!(stage.load().settings.log.level, LogLevel::Debug);
    stage.flags.log_level = Some(LogLevel::Trace);
    stage.flags.agent = Some("mine".into());
    stage = stage.env("GATEWAY_RELAY_DISPLAY_NAME", &"é".repeat(70));
    let loaded = stage.load();
    assert_eq!(loaded.settings.log.level, LogLevel::Trace);
    assert_eq!(*loaded.origins.of("log.level"), Origin::Flag);
    assert_eq!(loaded.settings.agent, "mine");
    assert_eq!(loaded.settings.connector.display_name, Some("é".repeat(64)));
    assert_eq!(
        *loaded.origins.of("link.stable_secs"),
        Origin::OwnFile(stage.path("relay.yaml"))
    );
    assert_eq!(*loaded.origins.of("link.backoff_max_ms"), Origin::Default);
}
