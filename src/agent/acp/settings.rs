//! What can be set about an agent that speaks ACP, and what that comes to with its preset.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::presets::{PRESETS, Preset, Quirks, preset};
use crate::agent::EnvAdditions;
use crate::agent::child::{BaseEnv, EnvPolicy, Program};

/// What can be set about an agent that speaks ACP. Either `argv` or `preset` must be given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcpSettings {
    /// The program and its arguments; the preset's when empty. No shell reads them.
    pub argv: Vec<String>,
    /// A known agent, whose command, limits and deviations are used where nothing else is set.
    pub preset: Option<String>,
    /// The directory that sessions work in, where the route names none; ours when not given.
    pub cwd: Option<PathBuf>,
    /// Variables to set besides.
    pub env: EnvAdditions,
    /// Nothing of our environment is inherited but what `env_pass` names.
    pub env_clear: bool,
    /// Names of variables that are inherited although they sound like secrets; `*` at the end for any rest. The
    /// preset's are added.
    pub env_pass: Vec<String>,
    /// Most processes at once; 1 unless the preset says more.
    pub processes: Option<usize>,
    /// Turns that one process runs at once; more wait, or go to another process.
    pub turns_per_process: Option<usize>,
    /// How long a process may take to say who it is, and a session to begin.
    pub start_timeout_secs: u64,
    /// How long a turn that was told to stop may take, before its process is given up.
    pub cancel_grace_secs: u64,
    /// The mode that sessions are put into, by the agent's own name for it; a turn fails when that cannot be done.
    pub mode: Option<String>,
    /// Options of sessions, by the agent's own names for them; a turn fails when one cannot be set.
    pub options: BTreeMap<String, OptionValue>,
    /// Whether a new session is told about the platform it speaks on.
    pub system_hint: bool,
    /// How long people may take over a question; less when the agent itself waits less.
    pub permission_patience_secs: u64,
    /// Whether people may give the program commands by texts that start with a slash. When not given, they may unless
    /// the preset says that this would let them steer other people's turns or change the program.
    pub slash_commands: Option<bool>,
    /// Largest picture that is handed over as such, in bytes; a larger one is handed over as a link to its file.
    pub image_bytes: u64,
}

/// The value of a session's option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// On or off.
    Flag(bool),
    /// One of the values that the agent offers, by its name.
    Value(String),
}

impl Default for AcpSettings {
    fn default() -> Self {
        Self {
            argv: Vec::new(),
            preset: None,
            cwd: None,
            env: EnvAdditions::default(),
            env_clear: false,
            env_pass: Vec::new(),
            processes: None,
            turns_per_process: None,
            start_timeout_secs: 60,
            cancel_grace_secs: 5,
            mode: None,
            options: BTreeMap::new(),
            system_hint: true,
            permission_patience_secs: 300,
            slash_commands: None,
            image_bytes: 5 * 1024 * 1024,
        }
    }
}

/// Settings that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcpSettingsError {
    /// Nothing says what to start.
    #[error("an acp agent needs `argv` (its command) or `preset` (one of: {})", names())]
    Nothing,
    /// There is no such preset.
    #[error(
        "there is no acp preset named \"{name}\"; known are: {}; for any other agent set `argv`",
        names()
    )]
    UnknownPreset {
        /// What was asked for.
        name: String,
    },
    /// A number that must not be zero is.
    #[error("`{0}` must be at least 1")]
    Zero(&'static str),
}

fn names() -> String {
    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    names.join(", ")
}

/// What the settings come to.
#[derive(Clone)]
pub(super) struct Launch {
    /// What is started.
    pub(super) program: Program,
    /// The known agent that it is.
    pub(super) preset: Option<&'static Preset>,
    /// Where it deviates.
    pub(super) quirks: Quirks,
    /// The directory of sessions without one of their own; absolute.
    pub(super) cwd: PathBuf,
    /// Most processes.
    pub(super) processes: usize,
    /// Turns at once in one process.
    pub(super) turns: Option<usize>,
    /// How long a start may take.
    pub(super) start_timeout: Duration,
    /// How long a stop may take.
    pub(super) cancel_grace: Duration,
    /// How long a question may take.
    pub(super) patience: Duration,
    /// Whether a slash at the start of a text is made harmless.
    pub(super) escape_slash: bool,
}

impl AcpSettings {
    /// Fills in what the preset says.
    pub(super) fn resolve(&self, base: &BaseEnv) -> Result<Launch, AcpSettingsError> {
        let known = match &self.preset {
            None => None,
            Some(name) => {
                Some(preset(name).ok_or_else(|| AcpSettingsError::UnknownPreset { name: name.clone() })?)
            }
        };
        let argv: Vec<OsString> = match known {
            _ if !self.argv.is_empty() => self.argv.iter().map(OsString::from).collect(),
            Some(known) => known.argv.iter().map(OsString::from).collect(),
            None => return Err(AcpSettingsError::Nothing),
        };
        for (name, value) in [
            ("processes", self.processes),
            ("turns_per_process", self.turns_per_process),
        ] {
            if value == Some(0) {
                return Err(AcpSettingsError::Zero(name));
            }
        }
        if self.start_timeout_secs == 0 {
            return Err(AcpSettingsError::Zero("start_timeout_secs"));
        }
        let quirks = known.map_or_else(Quirks::default, |known| known.quirks);
        let passed = known.map_or(&[][..], |known| known.env_pass);
        let policy = EnvPolicy {
            clear: self.env_clear,
            pass: passed
                .iter()
                .map(ToString::to_string)
                .chain(self.env_pass.clone())
                .collect(),
            add: self.env.0.clone(),
        };
        let patience = Duration::from_secs(self.permission_patience_secs);
        let cwd = self.cwd.clone().unwrap_or_else(|| PathBuf::from("."));
        Ok(Launch {
            program: Program {
                argv,
                cwd: self.cwd.clone(),
                env: policy.apply(base),
            },
            preset: known,
            quirks,
            cwd: std::path::absolute(&cwd).unwrap_or(cwd),
            processes: self.processes.or(known.map(|known| known.processes)).unwrap_or(1),
            turns: self
                .turns_per_process
                .or(known.and_then(|known| known.turns_per_process)),
            start_timeout: Duration::from_secs(self.start_timeout_secs),
            cancel_grace: Duration::from_secs(self.cancel_grace_secs),
            patience: quirks.patience.map_or(patience, |limit| limit.min(patience)),
            escape_slash: !self.slash_commands.unwrap_or(!quirks.escape_slash),
        })
    }
}

/// The environment may hold secrets: it is not printed.
impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("argv", &self.program.argv)
            .finish_non_exhaustive()
    }
}

impl Launch {
    /// The program's name, for people.
    pub(super) fn name(&self) -> String {
        self.program
            .argv
            .first()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(json: &str) -> Result<Launch, AcpSettingsError> {
        let settings: AcpSettings = serde_json::from_str(json).unwrap();
        settings.resolve(&BaseEnv::new([
            ("OPENAI_API_KEY".into(), "k".into()),
            ("PATH".into(), "/bin".into()),
        ]))
    }

    #[test]
    fn a_preset_fills_in_what_is_left_open() {
        let launch = resolve(r#"{"preset": "hermes"}"#).unwrap();
        assert_eq!(
            (launch.name().as_str(), launch.processes, launch.turns),
            ("hermes-acp", 2, Some(4))
        );
        assert_eq!(launch.patience, Duration::from_secs(55));
        assert!(launch.escape_slash && launch.cwd.is_absolute());
        let launch = resolve(
            r#"{"preset": "hermes", "argv": ["hermes", "acp"], "processes": 1, "slash_commands": true,
                "permission_patience_secs": 9, "turns_per_process": 7}"#,
        )
        .unwrap();
        assert_eq!(
            (launch.program.argv.len(), launch.processes, launch.turns),
            (2, 1, Some(7))
        );
        assert_eq!(
            (launch.patience, launch.escape_slash),
            (Duration::from_secs(9), false)
        );
        let launch = resolve(r#"{"argv": ["x"], "slash_commands": false}"#).unwrap();
        assert_eq!(
            (launch.processes, launch.turns, launch.escape_slash),
            (1, None, true)
        );
    }

    #[test]
    fn keys_reach_only_an_agent_that_needs_them() {
        let names = |json| resolve(json).unwrap().program.env.into_keys().collect::<Vec<_>>();
        assert_eq!(names(r#"{"preset": "codex"}"#), ["OPENAI_API_KEY", "PATH"]);
        assert_eq!(names(r#"{"preset": "claude"}"#), ["PATH"]);
    }

    #[test]
    fn what_cannot_be_used_says_what_to_write() {
        let says = |json| resolve(json).unwrap_err().to_string();
        assert!(says("{}").contains("`argv`"));
        assert!(says(r#"{"preset": "hermess"}"#).contains("known are: claude"));
        assert!(says(r#"{"argv": ["x"], "processes": 0}"#).contains("`processes`"));
        assert!(serde_json::from_str::<AcpSettings>(r#"{"argvs": []}"#).is_err());
        let settings: AcpSettings = serde_json::from_str(
            r#"{"argv": ["x"], "env": {"A": "hidden"}, "options": {"model": "m", "fast": true}}"#,
        )
        .unwrap();
        let agent = crate::agent::AcpAgent::new("x", settings.clone(), &BaseEnv::default()).unwrap();
        assert!(!format!("{settings:?} {agent:?}").contains("hidden"));
        assert_eq!(settings.options["fast"], OptionValue::Flag(true));
    }
}
