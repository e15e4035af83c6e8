//! What the options of each kind of agent mean, for the reference. Their defaults are those of the settings themselves.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::agents::AgentEntry;
use crate::agent::PoolSettings;
use crate::agent::acp::AcpSettings;
use crate::agent::command::CommandSettings;
use crate::agent::hermes::HermesSettings;
use crate::agent::openai::OpenAiSettings;

/// The options of every kind.
#[rustfmt::skip]
const COMMON: &[(&str, &str)] = &[
    ("permission", "Who decides what the agent asks: ask (people in the chat), deny (nobody: it is denied) or allow (nobody: it is allowed)."),
    ("workdir", "Directory that it works in, unless a route or project names one; its `cwd`, else the relay's, if not set."),
    ("turn_timeout_secs", "Timeout of a turn, without the time in which it waits for a person; 0 for none. None if not set."),
    ("max_turns_at_once", "Maximum concurrent turns, at least 1; further turns wait. No limit of its own if not set (`sessions.max_concurrent_turns` counts all agents together)."),
    ("choosable", "People may choose it with /agent."),
];

/// The options of the kinds that programs, servers and pools have.
#[rustfmt::skip]
const OPTIONS: &[(&str, &[(&str, &str)])] = &[
    (
        "acp",
        &[
            ("argv", "The program and its arguments, without a shell; the preset's if empty."),
            ("preset", "A known agent: its program, limits and deviations hold where nothing else is set."),
            ("cwd", "Directory of sessions where neither a route nor `workdir` names one; the relay's if not set."),
            ("env", "Variables that are set for the program."),
            ("env_clear", "Inherit no variables but those of `env_pass` and of the preset."),
            ("env_pass", "Names of variables that are inherited although they sound like secrets, or although `env_clear` is set; a `*` at the end stands for any rest."),
            ("max_processes", "Maximum processes, at least 1; the preset's, or 1, if not set. Formerly `processes`, which is still read."),
            ("idle_close_secs", "Seconds without a turn after which a process ends, if the agent can continue its sessions: 1 to 604800; never if not set."),
            ("turns_per_process", "Maximum concurrent turns of a process, at least 1; further turns wait or use another process. The preset's, or no limit, if not set."),
            ("start_timeout_secs", "Timeout of the handshake, and of opening a session; at least 1. A conversation that the agent twice in a row does not continue in time starts over, and the chat is told."),
            ("cancel_grace_secs", "Seconds for a stopped turn to end, before its process is killed."),
            ("mode", "Mode of sessions, by the agent's own name for it. A turn fails if it cannot be set."),
            ("options", "Options of sessions, by the agent's own names for them: true, false or a value. A turn fails if one cannot be set."),
            ("system_hint", "Tell the agent at the beginning of a session what the platform can show."),
            ("permission_patience_secs", "The agent itself denies unanswered requests after this many seconds; its questions to people end shortly before. The preset's (hermes: 60), or none, if not set."),
            ("slash_commands", "Let people give the program commands of its own, by texts that start with a slash; unless the preset says otherwise, if not set."),
            ("image_bytes", "Size above which an image is handed over as a link to its file."),
        ],
    ),
    (
        "command",
        &[
            ("argv", "The program and its arguments, without a shell. Required."),
            ("cwd", "Directory that it starts in where neither a route nor `workdir` names one; the relay's if not set."),
            ("env", "Variables that are set for the program."),
            ("env_clear", "Inherit no variables but those of `env_pass`."),
            ("env_pass", "Names of variables that are inherited although they sound like secrets, or although `env_clear` is set; a `*` at the end stands for any rest."),
            ("input", "What it reads from standard input: text or json."),
            ("output", "What it writes to standard output: text or jsonl (docs/agents.md)."),
            ("timeout_secs", "Timeout of a turn; 0 for none."),
            ("idle_timeout_secs", "Seconds without output after which a turn is stopped; 0 for no limit. Waiting for a person does not count."),
            ("max_output_bytes", "Maximum bytes on standard output in a turn; above it the command is stopped and the answer is marked as cut."),
            ("kill_grace_secs", "Seconds between asking it to stop and killing it."),
            ("max_parallel", "Maximum concurrent processes, in all sessions together; further turns wait."),
            ("repeatable", "Running a turn again after a crash does no harm."),
        ],
    ),
    (
        "hermes",
        &[
            ("base_url", "Address of the API server."),
            ("api_key_env", "Variable with the server's key."),
            ("api_key_file", "File with the server's key."),
            ("allow_plaintext", "Allow an unencrypted connection to another machine."),
            ("mode", "runs (with approvals, tool progress and a real stop) or chat (Hermes keeps the conversation, and refuses what needs an approval)."),
            ("profile", "The Hermes profile that answers, where the gateway serves several."),
            ("model", "The model; the gateway's choice if not set."),
            ("instructions", "Instructions that are added to the agent's own."),
            ("max_turns_kept", "Maximum turns of a conversation that are sent again with `mode: runs`."),
            ("max_chars_kept", "Maximum characters of a conversation that are sent again with `mode: runs`."),
            ("first_token_timeout_secs", "Timeout of the first text with `mode: chat`."),
            ("idle_timeout_secs", "Seconds without anything on a stream after which it is lost; Hermes sends something every 30 seconds."),
            ("busy_wait_secs", "How long a busy or restarting gateway is waited for before a turn fails."),
            ("stop_grace_secs", "Seconds for a stopped run to end; then it counts as not known to have stopped."),
            ("approval_patience_secs", "Seconds for people to answer an approval: fewer than the gateway's own `approvals.timeout`."),
            ("lost_stream_wait_secs", "How long a run is watched by its status after its stream was lost."),
        ],
    ),
    (
        "openai",
        &[
            ("base_url", "Address below which `/chat/completions` is."),
            ("model", "The model. Required."),
            ("api_key_env", "Variable with the key."),
            ("api_key_file", "File with the key."),
            ("allow_plaintext", "Allow an unencrypted connection to another machine."),
            ("system_prompt", "System prompt."),
            ("system_prompt_file", "File with the system prompt, at most 256 KiB."),
            ("max_turns_kept", "Maximum turns of a conversation that are sent again."),
            ("max_chars_kept", "Maximum characters of a conversation that are sent again."),
            ("temperature", "Sampling temperature; the server's if not set."),
            ("max_tokens", "Maximum tokens of an answer; the server's limit if not set."),
            ("images", "Show attached images to the model."),
            ("stream_options", "Ask the server what an answer has cost: auto (until it has refused that), always or never."),
            ("first_token_timeout_secs", "Timeout of the first output."),
            ("idle_timeout_secs", "Seconds without output after which an answer has failed."),
            ("retries", "Retries if the server is busy or unreachable; never after output."),
            ("extra_headers", "Additional headers; not for secrets."),
        ],
    ),
    (
        "worker",
        &[
            ("pool", "The pool of workers that run its turns (docs/scaling.md). Required; it needs `nats.url`."),
            ("notice_after_secs", "Seconds without a worker after which the chat gets a line; 0 for never."),
            ("max_wait_secs", "How long a turn waits for a worker."),
            ("max_waiting", "Maximum turns that wait for a worker."),
        ],
    ),
];

/// The defaults of a kind, by option.
fn defaults(kind: &str) -> Map<String, Value> {
    fn shown(settings: &impl Serialize) -> Value {
        serde_json::to_value(settings).unwrap_or_default()
    }
    let defaults = match kind {
        "acp" => shown(&AcpSettings::default()),
        "command" => shown(&CommandSettings::default()),
        "hermes" => shown(&HermesSettings::default()),
        "openai" => shown(&OpenAiSettings::default()),
        "worker" => {
            let least = serde_json::from_value::<PoolSettings>(json!({"pool": ""}));
            least.map_or(Value::Null, |pool| shown(&pool))
        }
        _ => Value::Null,
    };
    match defaults {
        Value::Object(defaults) => defaults,
        _ => Map::new(),
    }
}

/// The defaults of the options of every kind.
fn common_defaults() -> Map<String, Value> {
    let Ok(entry) = serde_json::from_value::<AgentEntry>(json!({"kind": "echo"})) else {
        return Map::new();
    };
    let values = [
        ("permission", json!(entry.permission)),
        ("workdir", json!(entry.workdir)),
        ("turn_timeout_secs", json!(entry.turn_timeout_secs)),
        ("max_turns_at_once", json!(entry.max_turns_at_once)),
        ("choosable", json!(entry.choosable)),
    ];
    values
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

/// The tables of the reference.
pub(super) fn tables() -> String {
    let mut page = table("Every kind", COMMON, &common_defaults());
    for (kind, options) in OPTIONS {
        page.push_str(&table(&format!("`kind: {kind}`"), options, &defaults(kind)));
    }
    page
}

fn table(title: &str, options: &[(&str, &str)], defaults: &Map<String, Value>) -> String {
    let mut table = format!("### {title}\n\n| option | default | description |\n|---|---|---|\n");
    for (name, about) in options {
        let default = match defaults.get(*name) {
            None | Some(Value::Null) => "not set".to_owned(),
            Some(Value::String(text)) if text.is_empty() => "not set".to_owned(),
            Some(Value::String(text)) => format!("`{text}`"),
            Some(other) => format!("`{other}`"),
        };
        let _ = writeln!(table, "| `{name}` | {default} | {about} |");
    }
    table.push('\n');
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_an_agent_is_in_the_reference() {
        for (kind, options) in OPTIONS {
            let mut described: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
            described.sort_unstable();
            let defaults = defaults(kind);
            let mut known: Vec<&str> = defaults.keys().map(String::as_str).collect();
            known.sort_unstable();
            assert_eq!(described, known, "{kind}");
        }
        let page = include_str!("../../docs/configuration.md");
        assert!(page.contains(&tables()), "write it anew with `config reference`");
        for row in [
            "| `max_output_bytes` | `1048576` |",
            "| `kill_grace_secs` | `3` |",
            "| `cancel_grace_secs` | `5` |",
            "| `turns_per_process` | not set |",
            "| `permission` | `ask` |",
            "| `choosable` | `true` |",
            "| `max_wait_secs` | `3600` |",
        ] {
            assert!(page.contains(row), "{row}");
        }
    }
}
