//! Validation of the settings file: ranges, consistency, and names of agents and presets.

use super::agents::{AgentChoice, Backend};
use super::cron::zone_error;
use super::file::nearest;
use super::notify;
use super::settings::Settings;
use crate::adapter::media::AllowedHosts;
use crate::agent::acp::PRESETS;
use crate::agent::{BUILT_IN, check_base_url};
use crate::setting;
use crate::wire::ConnectorUrl;

/// The dotted key of a violated rule, and the rule.
pub(super) type Violation = (&'static str, String);

/// The first violated rule: a number out of its range, else a rule of a section, else one between sections.
pub(super) fn violation(settings: &Settings) -> Option<(String, String)> {
    let shown = serde_json::to_value(settings).unwrap_or_default();
    setting::out_of_range(Settings::FIELDS, &shown).or_else(|| {
        let (key, rule) = broken_rule(settings)?;
        Some((key.to_owned(), rule))
    })
}

fn broken_rule(settings: &Settings) -> Option<Violation> {
    let unknown = |name: &str| unknown_agent(settings, name);
    (settings.link.violation())
        .or_else(|| settings.shutdown.violation())
        .or_else(|| settings.telemetry.violation())
        .or_else(|| settings.cron.violation())
        .or_else(|| shared_address(settings))
        .or_else(|| {
            let error = settings.timezone.as_deref().and_then(zone_error)?;
            Some(("timezone", format!("cannot be used: {error}")))
        })
        .or_else(|| settings.direct.violation())
        .or_else(|| notify::violation(settings))
        .or_else(|| settings.skills.violation())
        .or_else(|| settings.access.violation(&unknown))
        .or_else(|| settings.serve.violation())
        .or_else(|| {
            let mut identities = settings.connector.identities.iter();
            let is_nameless = identities.any(|identity| identity.platform.trim().is_empty());
            is_nameless.then(|| {
                let rule = "must name a platform in every entry".to_owned();
                ("connector.identities", rule)
            })
        })
        .or_else(|| {
            let entry = AllowedHosts::parse(&settings.media.allow_hosts).err()?;
            Some((
                "media.allow_hosts",
                format!("has `{entry}`; write host or host:port"),
            ))
        })
        .or_else(|| settings.sleep.violation())
        .or_else(|| settings.tls.violation())
}

/// One address for two listeners. Port 0 is another one each time.
fn shared_address(settings: &Settings) -> Option<Violation> {
    let fires = settings.cron.listen_address().ok()??;
    let monitoring = settings.serve.http_address().ok()??;
    (fires == monitoring && fires.port() != 0).then(|| {
        let rule = "is the address of `serve.http`, which serves fires too; remove one of them";
        ("cron.listen", rule.to_owned())
    })
}

/// The first key whose value names an agent or preset that does not exist, or an invalid URL, with the error.
pub(super) fn missing_name(settings: &Settings) -> Option<Violation> {
    match settings.connector.url.as_deref().map(ConnectorUrl::parse) {
        Some(Err(error)) => return Some(("connector.url", error.to_string())),
        Some(Ok(url)) if url.is_plaintext() && !url.is_loopback() && !settings.connector.allow_plaintext => {
            let what = format!("{url} is not encrypted; use wss:// or set `connector.allow_plaintext: true`");
            return Some(("connector.url", what));
        }
        Some(Ok(_)) | None => {}
    }
    let inline = match &settings.agent_choice {
        AgentChoice::Inline(entry) => Some(("agent", &**entry)),
        AgentChoice::Named(_) => None,
    };
    let entries = settings.agents.iter().map(|(name, entry)| (name.as_str(), entry));
    let addresses = entries.chain(inline).find_map(|(name, entry)| {
        let (address, allow_plaintext) = match &entry.backend {
            Backend::OpenAi(openai) => (&openai.base_url, openai.allow_plaintext),
            Backend::Hermes(hermes) => (&hermes.base_url, hermes.allow_plaintext),
            Backend::Echo | Backend::Noop | Backend::Command(_) | Backend::Acp(_) => return None,
        };
        let error = check_base_url(address, allow_plaintext).err()?;
        Some(format!("`{name}`: `base_url`: {error}"))
    });
    if let Some(what) = addresses {
        return Some(("agents", what));
    }
    let presets = settings
        .agents
        .iter()
        .find_map(|(name, entry)| match &entry.backend {
            Backend::Acp(acp) => {
                let preset = acp.preset.as_deref()?;
                let known = || PRESETS.iter().map(|preset| preset.name);
                let what = format!("`{name}` has the unknown preset `{preset}`; valid presets: ");
                (!known().any(|name| name == preset))
                    .then(|| what + &known().collect::<Vec<_>>().join(", ") + &suggestion(preset, known()))
            }
            _ => None,
        });
    if let Some(what) = presets {
        return Some(("agents", what));
    }
    let unknown = |name: &str| unknown_agent(settings, name);
    let default = match &settings.agent_choice {
        AgentChoice::Named(name) => unknown(name),
        AgentChoice::Inline(_) => None,
    };
    default.map(|what| ("agent", what)).or_else(|| {
        let mut routes = settings.routes.iter();
        routes.find_map(|route| Some(("routes", unknown(&route.agent)?)))
    })
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
        assert_eq!(violation(&Settings::default()), None);
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
                settings.prompts.timeout_secs = 0;
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
            assert_eq!(violation(&settings).map(|(key, _)| key).as_deref(), Some(key));
        }
    }

    fn error(text: &str) -> Option<(&'static str, String)> {
        missing_name(&yaml::strict(text).unwrap())
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
