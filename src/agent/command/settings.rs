//! How a command is started and read, as it is written in the settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::agent::child::{EnvPolicy, PIPE_GRACE, StopSchedule, StopSignal};
use crate::agent::guard::{Guards, TimeLimits};

/// A command that answers one turn per process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CommandSettings {
    /// The program and its arguments; no shell reads them, and nothing that people write is put among them.
    pub argv: Vec<String>,
    /// The directory it starts in; a route's directory wins.
    pub cwd: Option<PathBuf>,
    /// Variables that are set for it.
    pub env: EnvAdditions,
    /// Whether it inherits no variables but those of `env_pass`.
    pub env_clear: bool,
    /// Names of variables that it inherits although they sound like secrets, or although `env_clear` is set; a `*` at
    /// the end stands for any rest.
    pub env_pass: Vec<String>,
    /// What it reads from standard input.
    pub input: CommandInput,
    /// What it writes to standard output.
    pub output: CommandOutput,
    /// Seconds that a turn may take; 0 for any time.
    pub timeout_secs: u64,
    /// Seconds that a turn may say nothing; 0 for any time. Waiting for a person's answer does not count.
    pub idle_timeout_secs: u64,
    /// Bytes that it may write to standard output in one turn; at more it is stopped and the answer ends there.
    pub max_output_bytes: usize,
    /// Seconds between asking it to stop and killing it.
    pub kill_grace_secs: u64,
    /// Processes at the same time, over all sessions; more turns wait.
    pub max_parallel: usize,
    /// Whether running a turn again after a crash does no harm.
    pub repeatable: bool,
}

impl Default for CommandSettings {
    fn default() -> Self {
        Self {
            argv: Vec::new(),
            cwd: None,
            env: EnvAdditions::default(),
            env_clear: false,
            env_pass: Vec::new(),
            input: CommandInput::Text,
            output: CommandOutput::Text,
            timeout_secs: 900,
            idle_timeout_secs: 0,
            max_output_bytes: 1024 * 1024,
            kill_grace_secs: 3,
            max_parallel: 4,
            repeatable: false,
        }
    }
}

/// What a command reads from standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandInput {
    /// The message as text, then the end of input.
    #[default]
    Text,
    /// One JSON object in one line; then the end of input, unless the output is `jsonl`.
    Json,
}

/// What a command writes to standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandOutput {
    /// The answer.
    #[default]
    Text,
    /// One JSON object per line.
    Jsonl,
}

/// Variables and their values. Values are neither printed nor serialised: they may be secrets.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct EnvAdditions(pub BTreeMap<String, String>);

impl fmt::Debug for EnvAdditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Serialize for EnvAdditions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.keys().map(|name| (name, "<hidden>")))
    }
}

impl CommandSettings {
    /// Whether the command can be answered while it runs.
    pub(super) fn converses(&self) -> bool {
        self.input == CommandInput::Json && self.output == CommandOutput::Jsonl
    }

    pub(super) fn environment(&self) -> EnvPolicy {
        EnvPolicy {
            clear: self.env_clear,
            pass: self.env_pass.clone(),
            add: self.env.0.clone(),
        }
    }

    /// The limits that are kept around it.
    pub fn guards(&self) -> Guards {
        let seconds = |limit: u64| (limit > 0).then(|| Duration::from_secs(limit));
        let spare = Duration::from_secs(2) + PIPE_GRACE;
        Guards {
            parallel: Some(self.max_parallel),
            time: Some(TimeLimits {
                wall: seconds(self.timeout_secs),
                idle: seconds(self.idle_timeout_secs),
                grace: Duration::from_secs(self.kill_grace_secs) + spare,
            }),
            ..Guards::default()
        }
    }

    /// How it is stopped in the middle.
    pub(super) fn schedule(&self) -> StopSchedule {
        StopSchedule {
            eof: Duration::ZERO,
            signal: StopSignal::Terminate,
            grace: Duration::from_secs(self.kill_grace_secs),
        }
    }

    /// How it is stopped when it says that it is done: it may end by itself first.
    pub(super) fn farewell(&self) -> StopSchedule {
        StopSchedule {
            eof: Duration::from_secs(self.kill_grace_secs),
            ..self.schedule()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_variables_are_not_shown_and_unknown_fields_are_refused() {
        let written = r#"{"argv": ["llm"], "env": {"LLM_KEY": "hidden-value"}, "output": "jsonl"}"#;
        let settings: CommandSettings = serde_json::from_str(written).unwrap();
        assert_eq!(settings.output, CommandOutput::Jsonl);
        let shown = format!("{settings:?} {}", serde_json::to_string(&settings).unwrap());
        assert!(
            shown.contains("LLM_KEY") && !shown.contains("hidden-value"),
            "{shown}"
        );
        assert!(serde_json::from_str::<CommandSettings>(r#"{"shell": "llm"}"#).is_err());
    }
}
