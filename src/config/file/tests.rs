//! The example file, and error messages.

use super::*;
use crate::config::describe::open_example;
use crate::config::{DirectConfig, DiscordBotConfig, ResendUnknown, TelegramConfig};

const EXAMPLE: &str = include_str!("../../../config.example.yaml");

fn refusal(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.yaml");
    std::fs::write(&path, text).unwrap();
    let shown = check_file(&path, None).unwrap_err()[0].to_string();
    let prefix = format!("{}", path.display());
    assert!(shown.starts_with(&prefix), "{shown}");
    shown[prefix.len()..].to_owned()
}

#[test]
fn the_example_has_every_key_with_its_default() {
    let read: Settings = yaml::strict(EXAMPLE).unwrap();
    assert_eq!(format!("{read:#?}"), format!("{:#?}", Settings::default()));
    // The bots are comments, because their sections are what switches them on.
    let example = open_example();
    let mut read: Settings = yaml::strict(&example).unwrap();
    let direct = std::mem::take(&mut read.direct);
    assert_eq!(
        format!("{direct:#?}"),
        format!(
            "{:#?}",
            DirectConfig {
                telegram: Some(TelegramConfig::default()),
                discord: Some(DiscordBotConfig::default()),
            }
        )
    );
    assert_eq!(format!("{read:#?}"), format!("{:#?}", Settings::default()));
    let mut written = Vec::new();
    walk(&yaml::lenient(&example).unwrap(), "", &mut |key, _| {
        written.push(key.to_owned());
    });
    let mut keys = known_keys();
    assert!(keys.len() > 50, "{keys:?}");
    written.sort_unstable();
    keys.sort_unstable();
    assert_eq!(written, keys);
}

#[test]
fn every_option_of_the_example_has_a_comment() {
    let mut has_comment = false;
    for line in open_example().lines().map(str::trim) {
        if line.starts_with('#') {
            has_comment = true;
        } else if line.contains(':') {
            assert!(has_comment || line.contains(" # "), "no comment for {line}");
            has_comment = false;
        }
    }
}

#[test]
fn the_samples_of_the_example_are_valid() {
    let open = open_example()
        .replace("#| ", "")
        .replace(": [] #", ": #")
        .replace(": {} #", ": #");
    let read: Settings = yaml::strict(&open).unwrap();
    let identity = serde_json::to_value(&read.connector.identities[0]).unwrap();
    let policy = serde_json::to_value(read.policy.values().next().unwrap()).unwrap();
    for entry in [identity, policy] {
        walk(&entry, "", &mut |key, value| {
            assert!(!value.is_null(), "the example lacks {key}");
        });
    }
    assert!(!read.slack.command_map.is_empty());
    assert!(!read.connector.route_keys.is_empty());
    assert!(!read.serve.allowed_hosts.is_empty());
}

#[test]
fn an_unknown_key_names_the_line_and_the_nearest_key() {
    assert_eq!(
        refusal("link:\n  backof_min_ms: 5\n"),
        ":2: unknown key `backof_min_ms`; did you mean `backoff_min_ms`?"
    );
    assert_eq!(
        refusal("# x\nconector:\n  url: x\n"),
        ":2: unknown key `conector`; did you mean `connector`?"
    );
    assert_eq!(
        refusal("link:\n  stable_secs: 1\n  grace_secs: 5\n"),
        ":3: unknown key `grace_secs` here; use `sessions.grace_secs`"
    );
    assert_eq!(
        refusal("tls:\n  agents: {}\n"),
        ":2: unknown key `agents` here; it belongs to the top level of the file"
    );
    assert!(refusal("tls:\n  zzzzzzzz: 1\n").ends_with("valid keys: ca_file, client_cert, client_key"));
}

#[test]
fn a_literal_secret_is_refused_without_being_shown() {
    for (text, remedy) in [
        ("connector:\n  secret: hunter2\n", "GATEWAY_RELAY_SECRET"),
        ("idp:\n  client_secret: hunter2\n", "client_secret_file"),
        ("direct:\n  telegram: {token: '1:hunter2'}\n", "`token_file`"),
        ("direct:\n  telegram: {token: hunter2}\n", "TELEGRAM_BOT_TOKEN"),
        ("direct:\n  discord: {token: hunter2}\n", "DISCORD_BOT_TOKEN"),
    ] {
        let shown = refusal(text);
        assert!(
            shown.starts_with(":2: ") && shown.contains(remedy) && !shown.contains("hunter2"),
            "{shown}"
        );
    }
    let nats = refusal("nats:\n  token: hunter2\n");
    assert!(nats.ends_with("name that with `token_file`"), "{nats}");
}

#[test]
fn invalid_values_name_the_line_and_the_choices() {
    assert_eq!(
        refusal("sessions:\n  busy_mode: stear\n"),
        ":2: `stear` is not one of: queue, interrupt, steer; did you mean `steer`?"
    );
    for value in ["soon", "-1", "1.5"] {
        let shown = refusal(&format!("link:\n  backoff_min_ms: {value}\n"));
        assert_eq!(shown, ":2: `backoff_min_ms`: expected a whole number, 0 or more");
    }
    assert_eq!(
        refusal("sessions:\n  resend_unknown: maybe\n"),
        ":2: `maybe` is not one of: answers, never, all"
    );
    for (text, expected) in [
        ("never", ResendUnknown::Never),
        ("true", ResendUnknown::All),
        ("false", ResendUnknown::Never),
    ] {
        let settings: Settings = yaml::strict(&format!("sessions:\n  resend_unknown: {text}\n")).unwrap();
        assert_eq!(settings.sessions.resend_unknown, expected, "{text}");
    }
    assert_eq!(refusal("link: 5\n"), ":1: `link`: expected keys with values");
    assert_eq!(
        refusal("tls: {ca_file: [a]}\n"),
        ":1: `tls`: expected a single value"
    );
    assert_eq!(
        refusal("connector:\n  identities: [{bot_id: 1}]\n"),
        ":2: `identities`: `platform` is missing"
    );
    assert!(refusal("link: {}\nlink: {}\n").starts_with(":2: the key `link` appears twice"));
    assert!(refusal("connector: [\n").starts_with(':'));
    assert_eq!(
        refusal("journal:\n  keep_days: 1\nlink:\n  # less\n  ping_interval_secs: 90\n"),
        ":5: `link.ping_interval_secs` must be shorter than `link.dead_after_secs` (60)"
    );
}

#[test]
fn empty_files_and_empty_sections_are_defaults() {
    for text in [
        "",
        "# only a comment\n",
        "connector:\n  # url: x\nlink:\npolicy:\n",
        "connector: {identities: , url: }\n",
    ] {
        assert_eq!(
            format!("{:?}", yaml::strict::<Settings>(text).unwrap()),
            format!("{:?}", Settings::default()),
            "{text:?}"
        );
    }
}

#[test]
fn a_missing_file_is_an_error() {
    let gone = &check_file(Path::new("/nonexistent/relay.yaml"), None).unwrap_err()[0];
    assert!(matches!(gone, ConfigError::Missing { .. }));
}

#[test]
fn an_unknown_key_of_an_agent_gets_the_one_that_was_meant() {
    let refused = |entry: &str| refusal(&format!("agents:\n  a: {entry}\n"));
    for (entry, part) in [
        (
            "{kind: openai, api_key: sk-hush}",
            "must not contain secrets; name a variable with `api_key_env`",
        ),
        ("{kind: hermes, token: sk-hush}", "`api_key_env`"),
        ("{kind: openai, modle: m}", "did you mean `model`?"),
        (
            "{kind: openai, url: 'http://127.0.0.1'}",
            "did you mean `base_url`?",
        ),
        ("{kind: command, command: [x]}", "did you mean `argv`?"),
        (
            "{kind: acp, argv: [x], turn_timout_secs: 3}",
            "did you mean `turn_timeout_secs`?",
        ),
        ("{kind: echo, choosabel: true}", "did you mean `choosable`?"),
        ("{kind: noop, api_key: sk-hush}", "valid keys: kind, permission"),
    ] {
        let error = refused(entry);
        assert!(
            error.starts_with(":2: ") && error.contains(part),
            "{entry}: {error}"
        );
        assert!(!error.contains("sk-hush"), "{error}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.yaml");
    let mistakes = |text: &str| -> Vec<String> {
        std::fs::write(&path, text).unwrap();
        let mistakes = check_file(&path, None).unwrap_err();
        let prefix = path.display().to_string();
        let shown = mistakes
            .iter()
            .map(|mistake| mistake.to_string().replace(&prefix, ""));
        shown.collect()
    };
    let unreadable = mistakes(
        "link:\n  max_in_flihgt: 3\n  stable_secs: soon\nagents:\n  a:\n    kind: ehco\n    workdir: /x\nsesions: {}\n",
    );
    let wanted = [
        ":2: unknown key `max_in_flihgt`; did you mean `max_in_flight`?",
        ":3: `stable_secs`:",
        "unknown kind `ehco`",
        "unknown key `sesions`; did you mean `sessions`?",
    ];
    assert_eq!(unreadable.len(), wanted.len(), "{unreadable:#?}");
    for wanted in wanted {
        assert!(
            unreadable.iter().any(|mistake| mistake.contains(wanted)),
            "{wanted}: {unreadable:#?}"
        );
    }
    let broken = mistakes(
        "link: {max_in_flight: 0}\nprompts: {max_open: 0}\nagent: nobody\nconnector: {url: 'wss://c.example', identities: \
         [{platform: slack}, {platform: telegram}]}\ndirect:\n  telegram:\nroutes: [{agent: none}]\n",
    );
    for wanted in [
        "`link.max_in_flight` must be between",
        "`prompts.max_open` must be between",
        "`agent`: there is no agent `nobody`",
        "`routes`: there is no agent `none`",
        "`connector.identities` and `direct.telegram` both name telegram",
    ] {
        assert!(
            broken.iter().any(|mistake| mistake.contains(wanted)),
            "{wanted}: {broken:#?}"
        );
    }
}

#[test]
fn paths_of_command_lines_are_relative_to_the_file() {
    let home = crate::config::test_home::TestHome::new().file(
        "relay.yaml",
        "agents:\n  a: {kind: command, argv: [bin/answer, --from, ./notes.md, plain/word, ../up]}\n  b: {kind: acp, argv: [gemini, --acp]}\n\
         notify: {targets: {page: {kind: command, agents: {x: {argv: [./page]}}}}}\n\
         transcribe: {argv: [./hear]}\nspeak: {argv: [./say]}\n",
    );
    let loaded = home.load();
    let folder = loaded.own_file.as_deref().and_then(Path::parent).unwrap();
    let at = |path: &str| folder.join(path).to_string_lossy().into_owned();
    let mut settings = loaded.settings.clone();
    let argvs: Vec<Vec<String>> = settings.argvs_mut().map(|argv| argv.clone()).collect();
    let wanted = [
        vec![
            at("bin/answer"),
            "--from".to_owned(),
            at("./notes.md"),
            "plain/word".to_owned(),
            at("../up"),
        ],
        vec!["gemini".to_owned(), "--acp".to_owned()],
        vec![at("./page")],
        vec![at("./hear")],
        vec![at("./say")],
    ];
    assert_eq!(argvs, wanted);
}

#[test]
fn a_working_directory_that_does_not_exist_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.yaml");
    let text = "agents:\n  a: {kind: command, argv: [cat], workdir: gone}\n  b: {kind: echo, workdir: gone}\n  \
                c: {kind: command, argv: [cat], workdir: .}\nroutes: [{agent: c, workdir: ./too}]\n";
    std::fs::write(&path, text).unwrap();
    let warnings = check_file(&path, None).unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].starts_with("`agents.a`: the working directory"),
        "{warnings:?}"
    );
    assert!(
        warnings[1].starts_with("`routes: entry 1`: the working directory"),
        "{warnings:?}"
    );
}

#[test]
fn a_certificate_that_cannot_be_used_here_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.yaml");
    let warnings = |text: &str| {
        std::fs::write(&path, text).unwrap();
        check_file(&path, None).unwrap()
    };
    let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(dir.path().join("ca.pem"), authority.cert.pem()).unwrap();
    assert_eq!(warnings("tls: {ca_file: ca.pem}\n"), [""; 0]);
    let found = warnings("tls: {ca_file: cb.pem}\n");
    let named = dir.path().join("cb.pem").display().to_string();
    assert!(
        found.len() == 1
            && found[0].starts_with("`tls`: cannot read the ca_file")
            && found[0].contains(&named),
        "{found:?}"
    );
}

#[test]
fn context_of_groups_with_a_connector_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.yaml");
    let warnings = |text: &str| {
        std::fs::write(&path, text).unwrap();
        check_file(&path, None).unwrap()
    };
    let found = warnings("connector: {url: wss://connector.example}\nchat: {group_context: 10}\n");
    assert!(
        found.len() == 1 && found[0].starts_with("`chat.group_context` has no effect"),
        "{found:?}"
    );
    assert_eq!(
        warnings("direct: {telegram: {}}\nchat: {group_context: 10}\n"),
        [""; 0]
    );
}
