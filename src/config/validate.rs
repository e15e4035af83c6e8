//! Validation of the settings file: ranges, consistency, and names of agents and presets.
//!
//! Every time and size has a maximum, so that no sum of them can overflow.

use super::agents::{AgentChoice, Backend};
use super::connectors;
use super::cron::zone_error;
use super::file::{FileTree, nearest};
use crate::adapter::media::AllowedHosts;
use crate::agent::acp::PRESETS;
use crate::agent::{BUILT_IN, check_base_url};
use crate::wire::ConnectorUrl;

const MAX_SECS: u64 = 7 * 24 * 3600;
const MAX_SIZE: u64 = 1 << 30;

/// A violated rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// The dotted key.
    pub(super) key: &'static str,
    /// The rule.
    pub(super) rule: String,
}

/// The first violated rule.
pub(super) fn violation(tree: &FileTree) -> Option<Violation> {
    out_of_range(tree)
        .or_else(|| out_of_order(tree))
        .or_else(|| incomplete(tree))
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn out_of_range(tree: &FileTree) -> Option<Violation> {
    let (link, sessions, journal, shutdown) = (&tree.link, &tree.sessions, &tree.journal, &tree.shutdown);
    let size = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
    let ranges = [
        ("link.backoff_min_ms", link.backoff_min_ms, 10, MAX_SECS * 1000),
        ("link.backoff_max_ms", link.backoff_max_ms, 10, MAX_SECS * 1000),
        ("link.stable_secs", link.stable_secs, 0, MAX_SECS),
        ("link.refused_retry_secs", link.refused_retry_secs, 1, MAX_SECS),
        (
            "link.handshake_timeout_secs",
            link.handshake_timeout_secs,
            1,
            MAX_SECS,
        ),
        (
            "link.request_timeout_secs",
            link.request_timeout_secs,
            1,
            MAX_SECS,
        ),
        (
            "link.connect_timeout_secs",
            link.connect_timeout_secs,
            1,
            MAX_SECS,
        ),
        ("link.ping_interval_secs", link.ping_interval_secs, 1, MAX_SECS),
        ("link.dead_after_secs", link.dead_after_secs, 1, MAX_SECS),
        ("link.max_line_bytes", size(link.max_line_bytes), 4096, MAX_SIZE),
        (
            "link.max_message_bytes",
            size(link.max_message_bytes),
            4096,
            MAX_SIZE,
        ),
        (
            "link.max_write_buffer_bytes",
            size(link.max_write_buffer_bytes),
            262_144,
            MAX_SIZE,
        ),
        ("link.max_in_flight", size(link.max_in_flight), 1, 1 << 20),
        ("sessions.max_queue", size(sessions.max_queue), 1, 1 << 20),
        ("sessions.max_waiting", size(sessions.max_waiting), 1, 1 << 24),
        (
            "sessions.max_concurrent_turns",
            size(sessions.max_concurrent_turns),
            1,
            1 << 20,
        ),
        ("sessions.grace_secs", sessions.grace_secs, 0, MAX_SECS),
        (
            "sessions.resend_max_attempts",
            sessions.resend_max_attempts.into(),
            1,
            1000,
        ),
        (
            "sessions.resend_max_age_secs",
            sessions.resend_max_age_secs,
            0,
            MAX_SECS,
        ),
        ("sessions.refused_retries", sessions.refused_retries.into(), 0, 10),
        ("journal.dedupe_days", journal.dedupe_days, 1, 3650),
        ("journal.keep_days", journal.keep_days, 0, 3650),
        ("journal.max_bytes", journal.max_bytes, 1 << 20, 1 << 50),
        ("journal.resume_days", journal.resume_days, 0, 3650),
        ("journal.resume_bytes", journal.resume_bytes, 1 << 20, 1 << 50),
        ("journal.chat_memory", size(journal.chat_memory), 1, 1 << 24),
        ("budget.per_minute", tree.budget.per_minute.into(), 1, 60_000),
        ("budget.burst", tree.budget.burst.into(), 1, 60_000),
        (
            "budget.max_retry_after_secs",
            tree.budget.max_retry_after_secs,
            0,
            MAX_SECS,
        ),
        ("prompts.timeout_secs", tree.prompts.timeout_secs, 1, MAX_SECS),
        ("prompts.max_open", size(tree.prompts.max_open), 1, 1 << 14),
        ("prompts.remembered", size(tree.prompts.remembered), 0, 1 << 14),
        ("media.max_bytes", tree.media.max_bytes, 1, MAX_SIZE),
        ("media.timeout_secs", tree.media.timeout_secs, 1, 3600),
        ("media.parallel", size(tree.media.parallel), 1, 1024),
        ("media.max_attachments", size(tree.media.max_attachments), 0, 1024),
        ("media.total_bytes", tree.media.total_bytes, 1, 1 << 50),
        ("media.min_free_bytes", tree.media.min_free_bytes, 0, 1 << 50),
        ("audit.keep_days", tree.audit.keep_days, 1, 3650),
        (
            "cron.misfire_grace_minutes",
            tree.cron.misfire_grace_minutes,
            0,
            1 << 20,
        ),
        (
            "cron.max_parallel_jobs",
            size(tree.cron.max_parallel_jobs),
            1,
            1 << 10,
        ),
        (
            "cron.output_retention",
            size(tree.cron.output_retention),
            0,
            1 << 20,
        ),
        ("cron.job_timeout_secs", tree.cron.job_timeout_secs, 1, MAX_SECS),
        ("shutdown.budget_secs", shutdown.budget_secs, 1, MAX_SECS),
        ("shutdown.going_idle_secs", shutdown.going_idle_secs, 0, MAX_SECS),
        ("shutdown.drain_secs", shutdown.drain_secs, 0, MAX_SECS),
        ("log.file_bytes", tree.log.file_bytes, 1 << 16, 1 << 40),
        ("log.file_count", tree.log.file_count.into(), 0, 1000),
        ("log.repeat_burst", tree.log.repeat_burst.into(), 0, 1 << 20),
        ("log.repeat_window_secs", tree.log.repeat_window_secs, 0, MAX_SECS),
        ("sleep.idle_secs", tree.sleep.idle_secs, 1, MAX_SECS),
        ("sleep.max_secs", tree.sleep.max_secs, 1, MAX_SECS),
    ];
    let (key, value, min, max) = ranges
        .into_iter()
        .find(|(_, value, min, max)| !(min..=max).contains(&value))?;
    Some(Violation {
        key,
        rule: format!("must be between {min} and {max}, not {value}"),
    })
}

fn out_of_order(tree: &FileTree) -> Option<Violation> {
    let (link, shutdown) = (&tree.link, &tree.shutdown);
    if link.backoff_min_ms > link.backoff_max_ms {
        let rule = format!("must not exceed `link.backoff_max_ms` ({})", link.backoff_max_ms);
        return Some(Violation {
            key: "link.backoff_min_ms",
            rule,
        });
    }
    if link.ping_interval_secs >= link.dead_after_secs {
        let rule = format!(
            "must be shorter than `link.dead_after_secs` ({})",
            link.dead_after_secs
        );
        return Some(Violation {
            key: "link.ping_interval_secs",
            rule,
        });
    }
    if link.max_line_bytes > link.max_message_bytes {
        let rule = format!(
            "must not exceed `link.max_message_bytes` ({})",
            link.max_message_bytes
        );
        return Some(Violation {
            key: "link.max_line_bytes",
            rule,
        });
    }
    if shutdown.going_idle_secs + shutdown.drain_secs > shutdown.budget_secs {
        let rule = format!(
            "must be at least `going_idle_secs` plus `drain_secs` ({})",
            shutdown.going_idle_secs + shutdown.drain_secs
        );
        return Some(Violation {
            key: "shutdown.budget_secs",
            rule,
        });
    }
    None
}

fn incomplete(tree: &FileTree) -> Option<Violation> {
    if let Some((key, rule)) = tree.telemetry.violation() {
        return Some(Violation { key, rule });
    }
    if let Some((key, rule)) = tree.cron.violation() {
        return Some(Violation { key, rule });
    }
    // Port 0 is another one each time.
    let (fires, monitoring) = (tree.cron.listen_address(), tree.serve.http_address());
    if let (Ok(Some(fires)), Ok(Some(monitoring))) = (fires, monitoring)
        && fires == monitoring
        && fires.port() != 0
    {
        return Some(Violation {
            key: "cron.listen",
            rule: "is the address of `serve.http`, which serves fires too; remove one of them".to_owned(),
        });
    }
    if let Some(error) = tree.timezone.as_deref().and_then(zone_error) {
        return Some(Violation {
            key: "timezone",
            rule: format!("cannot be used: {error}"),
        });
    }
    if let Some((key, rule)) = tree.direct.violation() {
        return Some(Violation { key, rule });
    }
    if let Some((key, rule)) = connectors::violation(&tree.connectors) {
        return Some(Violation { key, rule });
    }
    if let Some((key, rule)) = tree.skills.violation() {
        return Some(Violation { key, rule });
    }
    let unknown = |name: &str| unknown_agent(tree, name);
    if let Some((key, rule)) = tree.access.violation(&unknown) {
        return Some(Violation { key, rule });
    }
    if let Err(rule) = tree.serve.http_address() {
        return Some(Violation {
            key: "serve.http",
            rule,
        });
    }
    if let Some((key, rule)) = tree.serve.receiver_violation() {
        return Some(Violation { key, rule });
    }
    if tree
        .connector
        .identities
        .iter()
        .any(|identity| identity.platform.trim().is_empty())
    {
        let rule = "must name a platform in every entry".to_owned();
        return Some(Violation {
            key: "connector.identities",
            rule,
        });
    }
    if let Err(entry) = AllowedHosts::parse(&tree.media.allow_hosts) {
        return Some(Violation {
            key: "media.allow_hosts",
            rule: format!("has `{entry}`; write host or host:port"),
        });
    }
    if tree.sleep.command.iter().any(|part| part.contains('\0'))
        || tree
            .sleep
            .command
            .first()
            .is_some_and(|program| program.trim().is_empty())
    {
        let rule = "must start with a program and contain no NUL character".to_owned();
        return Some(Violation {
            key: "sleep.command",
            rule,
        });
    }
    match (&tree.tls.client_cert, &tree.tls.client_key) {
        (Some(_), None) => {
            let rule = "needs `tls.client_key`".to_owned();
            Some(Violation {
                key: "tls.client_cert",
                rule,
            })
        }
        (None, Some(_)) => {
            let rule = "needs `tls.client_cert`".to_owned();
            Some(Violation {
                key: "tls.client_key",
                rule,
            })
        }
        _ => None,
    }
}

/// The first key whose value names an agent or preset that does not exist, or an invalid URL, with the error.
pub(super) fn missing_name(tree: &FileTree) -> Option<(&'static str, String)> {
    match tree.connector.url.as_deref().map(ConnectorUrl::parse) {
        Some(Err(error)) => return Some(("connector.url", error.to_string())),
        Some(Ok(url)) if url.is_plaintext() && !url.is_loopback() && !tree.connector.allow_plaintext => {
            let what = format!("{url} is not encrypted; use wss:// or set `connector.allow_plaintext: true`");
            return Some(("connector.url", what));
        }
        Some(Ok(_)) | None => {}
    }
    let inline = match &tree.agent {
        AgentChoice::Inline(entry) => Some(("agent", &**entry)),
        AgentChoice::Named(_) => None,
    };
    let entries = tree.agents.iter().map(|(name, entry)| (name.as_str(), entry));
    let addresses = entries.chain(inline).find_map(|(name, entry)| {
        let (address, allow_plaintext) = match &entry.backend {
            Backend::OpenAi(settings) => (&settings.base_url, settings.allow_plaintext),
            Backend::Hermes(settings) => (&settings.base_url, settings.allow_plaintext),
            Backend::Echo | Backend::Noop | Backend::Command(_) | Backend::Acp(_) => return None,
        };
        let error = check_base_url(address, allow_plaintext).err()?;
        Some(format!("`{name}`: `base_url`: {error}"))
    });
    if let Some(what) = addresses {
        return Some(("agents", what));
    }
    let presets = tree.agents.iter().find_map(|(name, entry)| match &entry.backend {
        Backend::Acp(settings) => {
            let preset = settings.preset.as_deref()?;
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
    let unknown = |name: &str| unknown_agent(tree, name);
    let default = match &tree.agent {
        AgentChoice::Named(name) => unknown(name),
        AgentChoice::Inline(_) => None,
    };
    default.map(|what| ("agent", what)).or_else(|| {
        let mut routes = tree.routes.iter();
        routes.find_map(|route| Some(("routes", unknown(&route.agent)?)))
    })
}

/// Why there is no agent with this name; `None` if there is one.
fn unknown_agent(tree: &FileTree, name: &str) -> Option<String> {
    let inline = match &tree.agent {
        AgentChoice::Inline(entry) => Some(entry.default_name()),
        AgentChoice::Named(_) => None,
    };
    let agents = || {
        let named = tree.agents.keys().map(String::as_str);
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
        assert_eq!(violation(&FileTree::default()), None);
    }

    #[test]
    fn each_rule_names_its_key() {
        type Change = fn(&mut FileTree);
        let cases: [(&str, Change); 16] = [
            ("link.max_in_flight", |tree| tree.link.max_in_flight = 0),
            ("link.stable_secs", |tree| tree.link.stable_secs = u64::MAX),
            ("link.backoff_min_ms", |tree| tree.link.backoff_min_ms = 40_000),
            ("link.max_line_bytes", |tree| tree.link.max_line_bytes = 64 << 20),
            ("budget.per_minute", |tree| tree.budget.per_minute = 0),
            ("prompts.timeout_secs", |tree| tree.prompts.timeout_secs = 0),
            ("prompts.max_open", |tree| tree.prompts.max_open = 0),
            ("media.timeout_secs", |tree| tree.media.timeout_secs = 0),
            ("media.allow_hosts", |tree| {
                tree.media.allow_hosts = vec!["http://h/".into()];
            }),
            ("shutdown.budget_secs", |tree| tree.shutdown.budget_secs = 11),
            ("serve.http", |tree| {
                tree.serve.http = Some("0.0.0.0:80".to_owned());
            }),
            ("serve.receiver", |tree| {
                tree.serve.http = Some("127.0.0.1:0".to_owned());
                tree.serve.receiver = Some(ReceiverConfig::default());
            }),
            ("serve.receiver", |tree| {
                tree.serve.receiver = Some(ReceiverConfig {
                    bearer_file: Some("key".into()),
                    ..ReceiverConfig::default()
                });
            }),
            ("sleep.idle_secs", |tree| tree.sleep.idle_secs = 0),
            ("sleep.command", |tree| tree.sleep.command = vec![String::new()]),
            ("tls.client_cert", |tree| {
                tree.tls.client_cert = Some("a.pem".into());
            }),
        ];
        for (key, change) in cases {
            let mut tree = FileTree::default();
            change(&mut tree);
            assert_eq!(violation(&tree).map(|violation| violation.key), Some(key));
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
