//! Validation of the settings file: ranges, consistency, and names of agents and presets.

use super::agents::{AgentChoice, Backend};
use super::cron::zone_error;
use super::file::nearest;
use super::nats::{cluster_violation, worker_violation};
use super::notify;
use super::settings::Settings;
use crate::adapter::media::AllowedHosts;
use crate::agent::acp::{AcpSettingsError, PRESETS};
use crate::agent::{BUILT_IN, check_base_url};
use crate::setting;
use crate::wire::ConnectorUrl;

/// The dotted key of a violated rule, and the rule.
pub(super) type Violation = (&'static str, String);

/// The violated rules: numbers out of their range, rules of a section, rules between sections. At most one of each section.
pub(super) fn violations(settings: &Settings) -> Vec<(String, String)> {
    let shown = serde_json::to_value(settings).unwrap_or_default();
    let mut broken = setting::out_of_range(Settings::FIELDS, &shown);
    let rules = broken_rules(settings).into_iter().flatten();
    broken.extend(rules.map(|(key, rule)| (key.to_owned(), rule)));
    broken
}

fn broken_rules(settings: &Settings) -> [Option<Violation>; 20] {
    let unknown = |name: &str| unknown_agent(settings, name);
    let zone = settings.timezone.as_deref().and_then(zone_error);
    let mut identities = settings.connector.identities.iter();
    let is_nameless = identities.any(|identity| identity.platform.trim().is_empty());
    let hosts = AllowedHosts::parse(&settings.media.allow_hosts).err();
    [
        settings.link.violation(),
        settings.shutdown.violation(),
        settings.telemetry.violation(),
        settings.cron.violation(),
        shared_address(settings),
        zone.map(|error| ("timezone", format!("cannot be used: {error}"))),
        settings.direct.violation(),
        notify::violation(settings),
        settings.skills.violation(),
        settings.access.violation(&unknown),
        settings.serve.violation(),
        is_nameless.then(|| {
            let rule = "must name a platform in every entry".to_owned();
            ("connector.identities", rule)
        }),
        hosts.map(|entry| {
            (
                "media.allow_hosts",
                format!("has `{entry}`; write host or host:port"),
            )
        }),
        settings.sleep.violation(),
        settings.tls.violation(),
        settings.transcribe.violation(),
        settings.speak.violation(),
        settings.nats.violation(),
        worker_violation(settings),
        cluster_violation(settings),
    ]
}

/// One address for two listeners. Port 0 is another one each time.
fn shared_address(settings: &Settings) -> Option<Violation> {
    let fires = settings.cron.listen_address().ok()??;
    let monitoring = settings.serve.http_address().ok()??;
    (fires == monitoring && fires.port() != 0).then(|| {
        let rule =
            "is the address of `serve.http`, which already takes the scheduler's calls; remove one of them";
        ("cron.listen", rule.to_owned())
    })
}

/// The keys whose values name an agent or preset that does not exist, an agent that cannot be made, or an invalid URL, each with the
/// error.
pub(super) fn missing_names(settings: &Settings) -> Vec<Violation> {
    let inline = match &settings.agent_choice {
        AgentChoice::Inline(entry) => Some(("agent", &**entry)),
        AgentChoice::Named(_) => None,
    };
    let entries = settings.agents.iter().map(|(name, entry)| (name.as_str(), entry));
    let addresses = entries
        .clone()
        .chain(inline)
        .filter_map(|(name, entry)| Some(("agents", wrong_address(name, &entry.backend)?)));
    let unusable =
        entries.filter_map(|(name, entry)| Some(("agents", unusable_agent(name, &entry.backend)?)));
    let unknown = |name: &str| unknown_agent(settings, name);
    let default = match &settings.agent_choice {
        AgentChoice::Named(name) => unknown(name),
        AgentChoice::Inline(_) => None,
    };
    let routes = settings.routes.iter();
    let routes = routes.filter_map(|route| match &route.project {
        Some(project) if !settings.projects.contains_key(project) => {
            let what = format!("there is no project named `{project}`; name one of `projects`");
            Some(("routes", what))
        }
        Some(_) if route.agent.is_empty() => None,
        _ => Some(("routes", unknown(&route.agent)?)),
    });
    let projects = settings.projects.values();
    let projects = projects.filter_map(|project| Some(("projects", unknown(project.agent.as_deref()?)?)));
    wrong_url(settings)
        .into_iter()
        .chain(addresses)
        .chain(unusable)
        .chain(default.map(|what| ("agent", what)))
        .chain(routes)
        .chain(projects)
        .collect()
}

fn wrong_url(settings: &Settings) -> Option<Violation> {
    let what = match ConnectorUrl::parse(settings.connector.url.as_deref()?) {
        Err(error) => error.to_string(),
        Ok(url) if url.is_plaintext() && !url.is_loopback() && !settings.connector.allow_plaintext => {
            format!("{url} is not encrypted; use wss:// or set `connector.allow_plaintext: true`")
        }
        Ok(_) => return None,
    };
    Some(("connector.url", what))
}

fn wrong_address(name: &str, backend: &Backend) -> Option<String> {
    let (address, allow_plaintext) = match backend {
        Backend::OpenAi(openai) => (&openai.base_url, openai.allow_plaintext),
        Backend::Hermes(hermes) => (&hermes.base_url, hermes.allow_plaintext),
        Backend::Echo | Backend::Noop | Backend::Command(_) | Backend::Acp(_) | Backend::Worker(_) => {
            return None;
        }
    };
    let error = check_base_url(address, allow_plaintext).err()?;
    Some(format!("`{name}`: `base_url`: {error}"))
}

/// Why no agent can be made of its settings.
fn unusable_agent(name: &str, backend: &Backend) -> Option<String> {
    let error = match backend {
        Backend::Command(command) => command.check().err()?.to_string(),
        Backend::Acp(acp) => match acp.check().err()? {
            AcpSettingsError::UnknownPreset { name: preset } => {
                let known = || PRESETS.iter().map(|preset| preset.name);
                let what = format!("`{name}` has the unknown preset `{preset}`; valid presets: ");
                let list = known().collect::<Vec<_>>().join(", ");
                return Some(what + &list + &suggestion(&preset, known()));
            }
            error => error.to_string(),
        },
        _ => return None,
    };
    Some(format!("`{name}`: {error}"))
}

/// Why there is no agent with this name; `None` if there is one.
fn unknown_agent(settings: &Settings, name: &str) -> Option<String> {
    let inline = match &settings.agent_choice {
        AgentChoice::Inline(entry) => Some(entry.default_name()),
        AgentChoice::Named(_) => None,
    };
    let agents = || {
        let named = settings.agents.keys().map(String::as_str);
        named.chain(inline.as_deref()).chain(BUILT_IN.iter().copied())
    };
    let what = format!("there is no agent `{name}` in `agents` and no built-in one");
    (!agents().any(|known| known == name)).then(|| what + &suggestion(name, agents()))
}

fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ReceiverConfig, yaml};

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(violations(&Settings::default()), []);
    }

    #[test]
    fn each_rule_names_its_key() {
        type Change = fn(&mut Settings);
        let cases: [(&str, Change); 16] = [
            ("link.max_in_flight", |settings| settings.link.max_in_flight = 0),
            ("link.stable_secs", |settings| {
                settings.link.stable_secs = u64::MAX;
            }),
            ("link.backoff_min_ms", |settings| {
                settings.link.backoff_min_ms = 40_000;
            }),
            ("link.max_line_bytes", |settings| {
                settings.link.max_line_bytes = 64 << 20;
            }),
            ("budget.per_minute", |settings| settings.budget.per_minute = 0),
            ("prompts.timeout_secs", |settings| {
                settings.prompts.timeout_secs = setting::MAX_SECS + 1;
            }),
            ("prompts.max_open", |settings| settings.prompts.max_open = 0),
            ("media.timeout_secs", |settings| settings.media.timeout_secs = 0),
            ("media.allow_hosts", |settings| {
                settings.media.allow_hosts = vec!["http://h/".into()];
            }),
            ("shutdown.budget_secs", |settings| {
                settings.shutdown.budget_secs = 11;
            }),
            ("serve.http", |settings| {
                settings.serve.http = Some("0.0.0.0:80".to_owned());
            }),
            ("serve.receiver", |settings| {
                settings.serve.http = Some("127.0.0.1:0".to_owned());
                settings.serve.receiver = Some(ReceiverConfig::default());
            }),
            ("serve.receiver", |settings| {
                settings.serve.receiver = Some(ReceiverConfig {
                    bearer_file: Some("key".into()),
                    ..ReceiverConfig::default()
                });
            }),
            ("sleep.idle_secs", |settings| settings.sleep.idle_secs = 0),
            ("sleep.command", |settings| {
                settings.sleep.command = vec![String::new()];
            }),
            ("tls.client_cert", |settings| {
                settings.tls.client_cert = Some("a.pem".into());
            }),
        ];
        for (key, change) in cases {
            let mut settings = Settings::default();
            change(&mut settings);
            let broken = violations(&settings);
            assert_eq!(
                broken.first().map(|(key, _)| key.as_str()),
                Some(key),
                "{broken:?}"
            );
        }
    }

    fn error(text: &str) -> Option<(&'static str, String)> {
        missing_names(&yaml::strict(text).unwrap()).into_iter().next()
    }

    #[test]
    fn named_agents_and_presets_must_exist() {
        let valid = "agents: {code: {preset: claude}, other: {kind: acp, argv: [x]}}\nagent: code\n\
                     routes: [{agent: echo}, {agent: other}]\nconnector: {url: https://connector.example}\n";
        assert_eq!(error(valid), None);
        assert_eq!(error("agent: {kind: echo}"), None);
        assert_eq!(error("connector: {url: 'ws://127.0.0.1:80'}"), None);
        assert_eq!(
            error("connector: {url: 'ws://connector.example', allow_plaintext: true}"),
            None
        );
        let wrong = [
            ("agent: ecko", "agent", "did you mean `echo`?"),
            (
                "agents: {code: {preset: claud}}",
                "agents",
                "did you mean `claude`?",
            ),
            (
                "agents: {code: {preset: claude, permission_patience_secs: 0}}",
                "agents",
                "`code`: `permission_patience_secs` must be at least 1",
            ),
            (
                "agents: {tool: {kind: command, argv: ['']}}",
                "agents",
                "`tool`: the command has no program",
            ),
            (
                "agents: {code: {kind: acp}}",
                "agents",
                "an acp agent needs `argv`",
            ),
            ("routes: [{agent: nobody}]", "routes", "`nobody`"),
            (
                "connector: {url: 'ftp://connector.example'}",
                "connector.url",
                "ftp",
            ),
            (
                "connector: {url: 'ws://connector.example'}",
                "connector.url",
                "connector.allow_plaintext",
            ),
            (
                "agents: {llm: {kind: openai, model: m, base_url: 'http://model.example/v1'}}",
                "agents",
                "`llm`: `base_url`: refusing to talk to model.example unencrypted",
            ),
        ];
        for (text, key, part) in wrong {
            let (named, what) = error(text).unwrap_or_else(|| panic!("{text}"));
            assert!(named == key && what.contains(part), "{text}: {named}: {what}");
        }
    }
}
