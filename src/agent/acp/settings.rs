//! Settings of an ACP agent, and the presets of known agents.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::agent::EnvAdditions;
use crate::agent::child::{BaseEnv, EnvPolicy, Program};
use crate::setting::MAX_SECS;

/// Settings of an ACP agent. Either `argv` or `preset` is required.
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
    /// Maximum processes; the preset's, or 1, when not set. `processes` is its former name.
    #[serde(alias = "processes")]
    pub max_processes: Option<usize>,
    /// Seconds without a turn after which a process ends, if the agent can continue its sessions; the next message starts it
    /// again. Never when not set.
    pub idle_close_secs: Option<u64>,
    /// Maximum concurrent turns of a process; further turns wait or use another process.
    pub turns_per_process: Option<usize>,
    /// Timeout for the handshake, and for opening a session.
    pub start_timeout_secs: u64,
    /// Time for a cancelled turn to end, before its process is killed.
    pub cancel_grace_secs: u64,
    /// The mode that sessions are put into, by the agent's own name for it; a turn fails when that cannot be done.
    pub mode: Option<String>,
    /// Options of sessions, by the agent's own names for them; a turn fails when one cannot be set.
    pub options: BTreeMap<String, OptionValue>,
    /// Whether a new session gets the platform's hint.
    pub system_hint: bool,
    /// How long the agent waits for the answer to a permission request; as long as the preset's does, or for ever, when not set.
    pub permission_patience_secs: Option<u64>,
    /// Whether people may give the program commands by texts that start with a slash. When not given, they may unless
    /// the preset says that this would let them steer other people's turns or change the program.
    pub slash_commands: Option<bool>,
    /// Largest image that is handed over as such, in bytes; a larger one is handed over as a link to its file.
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
            max_processes: None,
            idle_close_secs: None,
            turns_per_process: None,
            start_timeout_secs: 60,
            cancel_grace_secs: 5,
            mode: None,
            options: BTreeMap::new(),
            system_hint: true,
            permission_patience_secs: None,
            slash_commands: None,
            image_bytes: 5 * 1024 * 1024,
        }
    }
}

/// Settings that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcpSettingsError {
    /// Neither `argv` nor `preset` is set.
    #[error("an acp agent needs `argv` (its command) or `preset` (one of: {})", names())]
    Nothing,
    /// Unknown preset.
    #[error(
        "there is no acp preset named \"{name}\"; known are: {}; for any other agent set `argv`",
        names()
    )]
    UnknownPreset {
        /// The name that no preset has.
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

/// Settings resolved with the preset.
#[derive(Clone)]
pub(super) struct Launch {
    /// The program to start.
    pub(super) program: Program,
    /// The preset of a known agent.
    pub(super) preset: Option<&'static Preset>,
    /// The agent's deviations from the protocol.
    pub(super) quirks: Quirks,
    /// The directory of sessions without one of their own; absolute.
    pub(super) cwd: PathBuf,
    /// Most processes.
    pub(super) processes: usize,
    /// Maximum concurrent turns of a process.
    pub(super) turns: Option<usize>,
    /// How long a process may be idle.
    pub(super) idle_close: Option<Duration>,
    /// How long a start may take.
    pub(super) start_timeout: Duration,
    /// How long a stop may take.
    pub(super) cancel_grace: Duration,
    /// How long the agent waits for an answer; for ever if there is none.
    pub(super) question_timeout: Option<Duration>,
    /// Whether a slash at the start of a text is made harmless.
    pub(super) escape_slash: bool,
}

impl AcpSettings {
    /// Whether an agent can be made of the settings; returns the preset, if they name one.
    pub(crate) fn check(&self) -> Result<Option<&'static Preset>, AcpSettingsError> {
        let known = match &self.preset {
            None if self.argv.is_empty() => return Err(AcpSettingsError::Nothing),
            None => None,
            Some(name) => {
                Some(preset(name).ok_or_else(|| AcpSettingsError::UnknownPreset { name: name.clone() })?)
            }
        };
        for (name, value) in [
            ("max_processes", self.max_processes),
            ("turns_per_process", self.turns_per_process),
        ] {
            if value == Some(0) {
                return Err(AcpSettingsError::Zero(name));
            }
        }
        for (name, value) in [
            ("idle_close_secs", self.idle_close_secs),
            ("permission_patience_secs", self.permission_patience_secs),
        ] {
            if value == Some(0) {
                return Err(AcpSettingsError::Zero(name));
            }
        }
        if self.start_timeout_secs == 0 {
            return Err(AcpSettingsError::Zero("start_timeout_secs"));
        }
        Ok(known)
    }

    /// Resolves the settings with the preset.
    pub(super) fn resolve(&self, base: &BaseEnv) -> Result<Launch, AcpSettingsError> {
        let known = self.check()?;
        let argv: Vec<OsString> = match known {
            Some(known) if self.argv.is_empty() => known.argv.iter().map(OsString::from).collect(),
            _ => self.argv.iter().map(OsString::from).collect(),
        };
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
        let patience = self.permission_patience_secs;
        let patience = patience.map(|secs| Duration::from_secs(secs.min(MAX_SECS)));
        let cwd = self.cwd.clone().unwrap_or_else(|| PathBuf::from("."));
        Ok(Launch {
            program: Program {
                argv,
                cwd: self.cwd.clone(),
                env: policy.apply(base),
                agent: None,
            },
            preset: known,
            quirks,
            cwd: std::path::absolute(&cwd).unwrap_or(cwd),
            processes: (self.max_processes)
                .or(known.map(|known| known.processes))
                .unwrap_or(1),
            idle_close: self
                .idle_close_secs
                .map(|secs| Duration::from_secs(secs.min(MAX_SECS))),
            turns: self
                .turns_per_process
                .or(known.and_then(|known| known.turns_per_process)),
            start_timeout: Duration::from_secs(self.start_timeout_secs),
            cancel_grace: Duration::from_secs(self.cancel_grace_secs),
            question_timeout: patience.or(quirks.question_timeout),
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

/// A known agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The preset's name in the settings.
    pub name: &'static str,
    /// The command that starts the agent.
    pub argv: &'static [&'static str],
    /// The command that installs it, to show to people.
    pub install: &'static str,
    /// How to sign in, to show to people.
    pub sign_in: &'static str,
    /// Variables that the agent needs although they sound like secrets.
    pub env_pass: &'static [&'static str],
    /// Most processes.
    pub processes: usize,
    /// Maximum concurrent turns of a process; `None` for no limit.
    pub turns_per_process: Option<usize>,
    /// The agent's deviations from the protocol.
    pub quirks: Quirks,
}

impl Preset {
    /// The title of the program that the command only adapts, if it is an adapter; that program has the preset's name.
    pub fn adapted(&self) -> Option<&'static str> {
        match self.name {
            "claude" => Some("Claude Code"),
            "codex" => Some("Codex"),
            _ => None,
        }
    }
}

/// Where an agent deviates from the protocol, or has limits of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// It denies by itself after this time.
    pub question_timeout: Option<Duration>,
    /// A text that starts with a slash is a command to the program, not to the model.
    pub escape_slash: bool,
    /// A permission option's meaning is in its id; its kind is too coarse.
    pub choose_by_option_id: bool,
    /// It reports unknown sessions as restored.
    pub doubtful_restore: bool,
    /// It answers a prompt to an unknown session with `refusal`.
    pub refusal_is_unknown: bool,
}

/// No deviation that is known.
const PLAIN: Quirks = Quirks {
    question_timeout: None,
    escape_slash: false,
    choose_by_option_id: false,
    doubtful_restore: false,
    refusal_is_unknown: false,
};

/// A preset without deviations.
const fn plain(
    name: &'static str,
    argv: &'static [&'static str],
    install: &'static str,
    sign_in: &'static str,
    env_pass: &'static [&'static str],
) -> Preset {
    Preset {
        name,
        argv,
        install,
        sign_in,
        env_pass,
        processes: 1,
        turns_per_process: None,
        quirks: PLAIN,
    }
}

/// The known agents, by name.
pub const PRESETS: &[Preset] = &[
    plain(
        "claude",
        &["claude-agent-acp"],
        "npm install -g @agentclientprotocol/claude-agent-acp",
        "run `claude` and sign in, or pass ANTHROPIC_API_KEY",
        &[
            "ANTHROPIC_*",
            "CLAUDE_*",
            "AWS_*",
            "GOOGLE_APPLICATION_CREDENTIALS",
        ],
    ),
    plain(
        "codex",
        &["codex-acp"],
        "npm install -g @zed-industries/codex-acp",
        "run `codex login`, or pass OPENAI_API_KEY",
        &["OPENAI_*", "CODEX_*"],
    ),
    plain(
        "gemini",
        &["gemini", "--acp"],
        "npm install -g @google/gemini-cli",
        "run `gemini` and sign in, or pass GEMINI_API_KEY",
        &["GEMINI_*", "GOOGLE_*"],
    ),
    plain(
        "goose",
        &["goose", "acp"],
        "see https://block.github.io/goose/docs/getting-started/installation",
        "run `goose configure`",
        &["GOOSE_*", "ANTHROPIC_*", "OPENAI_*", "GOOGLE_*", "OPENROUTER_*"],
    ),
    plain(
        "opencode",
        &["opencode", "acp"],
        "npm install -g opencode-ai",
        "run `opencode auth login`",
        &["OPENCODE_*", "ANTHROPIC_*", "OPENAI_*"],
    ),
    plain(
        "copilot",
        &["copilot", "--acp"],
        "npm install -g @github/copilot",
        "run `copilot` and sign in with /login",
        &["GH_TOKEN", "GITHUB_TOKEN", "COPILOT_*"],
    ),
    Preset {
        name: "hermes",
        argv: &["hermes-acp"],
        install: "pip install 'hermes-agent[acp]'",
        sign_in: "run `hermes setup`",
        env_pass: &[
            "OPENROUTER_*",
            "ANTHROPIC_*",
            "OPENAI_*",
            "NOUS_*",
            "GOOGLE_*",
            "GEMINI_*",
        ],
        processes: 2,
        turns_per_process: Some(4),
        quirks: Quirks {
            question_timeout: Some(Duration::from_secs(60)),
            escape_slash: true,
            choose_by_option_id: true,
            doubtful_restore: true,
            refusal_is_unknown: true,
        },
    },
    plain(
        "qwen",
        &["qwen", "--acp"],
        "npm install -g @qwen-code/qwen-code",
        "run `qwen` and sign in",
        &["QWEN_*", "OPENAI_*", "DASHSCOPE_*"],
    ),
    plain(
        "kimi",
        &["kimi", "acp"],
        "uv tool install kimi-cli",
        "run `kimi` and sign in with /login",
        &["KIMI_*", "MOONSHOT_*"],
    ),
];

/// The preset of that name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
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
        assert_eq!(launch.question_timeout, Some(Duration::from_secs(60)));
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
            (launch.question_timeout, launch.escape_slash),
            (Some(Duration::from_secs(9)), false)
        );
        let launch = resolve(r#"{"argv": ["x"], "slash_commands": false}"#).unwrap();
        assert_eq!(
            (launch.processes, launch.turns, launch.escape_slash),
            (1, None, true)
        );
    }

    #[test]
    fn a_question_waits_as_long_as_people_need_unless_the_agent_is_known_to_wait_less() {
        let timeout = |json| {
            resolve(json)
                .unwrap()
                .question_timeout
                .map(|limit| limit.as_secs())
        };
        assert_eq!(timeout(r#"{"argv": ["x"]}"#), None);
        assert_eq!(timeout(r#"{"preset": "claude"}"#), None);
        assert_eq!(
            timeout(r#"{"argv": ["x"], "permission_patience_secs": 900}"#),
            Some(900)
        );
        assert_eq!(
            timeout(r#"{"preset": "hermes", "permission_patience_secs": 900}"#),
            Some(900)
        );
        let zero = resolve(r#"{"argv": ["x"], "permission_patience_secs": 0}"#).unwrap_err();
        assert_eq!(zero, AcpSettingsError::Zero("permission_patience_secs"));
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
        assert!(says(r#"{"argv": ["x"], "max_processes": 0}"#).contains("`max_processes`"));
        assert!(serde_json::from_str::<AcpSettings>(r#"{"argvs": []}"#).is_err());
        let settings: AcpSettings = serde_json::from_str(
            r#"{"argv": ["x"], "env": {"A": "hidden"}, "options": {"model": "m", "fast": true}}"#,
        )
        .unwrap();
        let agent = crate::agent::AcpAgent::new("x", settings.clone(), &BaseEnv::default()).unwrap();
        assert!(!format!("{settings:?} {agent:?}").contains("hidden"));
        assert_eq!(settings.options["fast"], OptionValue::Flag(true));
    }

    #[test]
    fn every_preset_can_be_started_and_says_how_to_get_it() {
        let mut names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        for found in PRESETS {
            assert!(
                !found.argv.is_empty() && !found.argv[0].is_empty(),
                "{}",
                found.name
            );
            assert!(
                !found.install.is_empty() && !found.sign_in.is_empty(),
                "{}",
                found.name
            );
            assert!(
                found.processes > 0 && found.turns_per_process != Some(0),
                "{}",
                found.name
            );
            assert_eq!(preset(found.name), Some(found));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PRESETS.len());
        assert_eq!(preset("nobody"), None);
    }
}
