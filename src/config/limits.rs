//! The bounds of our own file's numbers: what may be written, checked in one place.
//!
//! Every time and size has an upper bound, so that no sum of them can overflow later.

use super::file::FileTree;
use crate::adapter::media::AllowedHosts;

const MAX_SECS: u64 = 7 * 24 * 3600;
const MAX_SIZE: u64 = 1 << 30;

/// A rule that the file breaks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// The dotted key.
    pub(super) key: &'static str,
    /// What it must be.
    pub(super) rule: String,
}

/// The first rule that the file breaks.
pub(super) fn broken(tree: &FileTree) -> Option<Broken> {
    out_of_range(tree)
        .or_else(|| out_of_order(tree))
        .or_else(|| incomplete(tree))
}

fn out_of_range(tree: &FileTree) -> Option<Broken> {
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
        (
            "sessions.max_concurrent_turns",
            size(sessions.max_concurrent_turns),
            1,
            1 << 20,
        ),
        ("sessions.grace_secs", sessions.grace_secs, 0, MAX_SECS),
        ("journal.dedupe_days", journal.dedupe_days, 1, 3650),
        ("journal.keep_days", journal.keep_days, 0, 3650),
        ("journal.max_bytes", journal.max_bytes, 1 << 20, 1 << 50),
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
        ("shutdown.budget_secs", shutdown.budget_secs, 1, MAX_SECS),
        ("shutdown.going_idle_secs", shutdown.going_idle_secs, 0, MAX_SECS),
        ("shutdown.drain_secs", shutdown.drain_secs, 0, MAX_SECS),
        ("log.repeat_burst", tree.log.repeat_burst.into(), 0, 1 << 20),
        ("log.repeat_window_secs", tree.log.repeat_window_secs, 0, MAX_SECS),
        ("sleep.idle_secs", tree.sleep.idle_secs, 1, MAX_SECS),
        ("sleep.max_secs", tree.sleep.max_secs, 1, MAX_SECS),
    ];
    let (key, value, least, most) = ranges
        .into_iter()
        .find(|(_, value, least, most)| !(least..=most).contains(&value))?;
    Some(Broken {
        key,
        rule: format!("must be between {least} and {most}, not {value}"),
    })
}

fn out_of_order(tree: &FileTree) -> Option<Broken> {
    let (link, shutdown) = (&tree.link, &tree.shutdown);
    if link.backoff_min_ms > link.backoff_max_ms {
        let rule = format!(
            "must not be longer than `link.backoff_max_ms` ({})",
            link.backoff_max_ms
        );
        return Some(Broken {
            key: "link.backoff_min_ms",
            rule,
        });
    }
    if link.ping_interval_secs >= link.dead_after_secs {
        let rule = format!(
            "must be shorter than `link.dead_after_secs` ({})",
            link.dead_after_secs
        );
        return Some(Broken {
            key: "link.ping_interval_secs",
            rule,
        });
    }
    if link.max_line_bytes > link.max_message_bytes {
        let rule = format!(
            "must not be larger than `link.max_message_bytes` ({})",
            link.max_message_bytes
        );
        return Some(Broken {
            key: "link.max_line_bytes",
            rule,
        });
    }
    if shutdown.going_idle_secs + shutdown.drain_secs > shutdown.budget_secs {
        let rule = format!(
            "must leave room for `going_idle_secs` and `drain_secs`, which are {} together",
            shutdown.going_idle_secs + shutdown.drain_secs
        );
        return Some(Broken {
            key: "shutdown.budget_secs",
            rule,
        });
    }
    None
}

fn incomplete(tree: &FileTree) -> Option<Broken> {
    if let Some((key, rule)) = tree.telemetry.broken() {
        return Some(Broken { key, rule });
    }
    if let Err(rule) = tree.serve.http_address() {
        return Some(Broken {
            key: "serve.http",
            rule,
        });
    }
    if tree
        .connector
        .identities
        .iter()
        .any(|identity| identity.platform.trim().is_empty())
    {
        let rule = "must name a platform in every entry".to_owned();
        return Some(Broken {
            key: "connector.identities",
            rule,
        });
    }
    if let Err(entry) = AllowedHosts::parse(&tree.media.allow_hosts) {
        return Some(Broken {
            key: "media.allow_hosts",
            rule: format!("has `{entry}`; write host or host:port"),
        });
    }
    if tree.sleep.command.iter().any(|word| word.contains('\0'))
        || tree
            .sleep
            .command
            .first()
            .is_some_and(|program| program.trim().is_empty())
    {
        let rule = "must begin with a program and hold no NUL character".to_owned();
        return Some(Broken {
            key: "sleep.command",
            rule,
        });
    }
    match (&tree.tls.client_cert, &tree.tls.client_key) {
        (Some(_), None) => {
            let rule = "needs `tls.client_key` beside it".to_owned();
            Some(Broken {
                key: "tls.client_cert",
                rule,
            })
        }
        (None, Some(_)) => {
            let rule = "needs `tls.client_cert` beside it".to_owned();
            Some(Broken {
                key: "tls.client_key",
                rule,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_break_no_rule() {
        assert_eq!(broken(&FileTree::default()), None);
    }

    #[test]
    fn each_rule_names_its_key() {
        type Spoil = fn(&mut FileTree);
        let cases: [(&str, Spoil); 14] = [
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
            ("sleep.idle_secs", |tree| tree.sleep.idle_secs = 0),
            ("sleep.command", |tree| tree.sleep.command = vec![String::new()]),
            ("tls.client_cert", |tree| {
                tree.tls.client_cert = Some("a.pem".into());
            }),
        ];
        for (key, spoil) in cases {
            let mut tree = FileTree::default();
            spoil(&mut tree);
            assert_eq!(broken(&tree).map(|broken| broken.key), Some(key));
        }
    }
}
