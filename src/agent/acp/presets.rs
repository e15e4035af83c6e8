//! Agents that are known by name: how they are started, installed and signed in to, and where they deviate.
//!
//! One table. A preset only fills in what the settings leave open; it never overrides what someone wrote.

use std::time::Duration;

/// A known agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name in the settings.
    pub name: &'static str,
    /// How it is started.
    pub argv: &'static [&'static str],
    /// The command that installs it, to show to people.
    pub install: &'static str,
    /// How to sign in, to show to people.
    pub sign_in: &'static str,
    /// Variables that it needs although they sound like secrets.
    pub env_pass: &'static [&'static str],
    /// Most processes.
    pub processes: usize,
    /// Turns that one process runs at once; any number when not given.
    pub turns_per_process: Option<usize>,
    /// Where it deviates from the protocol.
    pub quirks: Quirks,
}

/// Where an agent deviates from the protocol, or has limits of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// It denies by itself what was not answered in this time.
    pub patience: Option<Duration>,
    /// A text that starts with a slash is a command to the program, not to the model.
    pub escape_slash: bool,
    /// What a permission's option means stands in its id; its kind is too coarse.
    pub choose_by_option_id: bool,
    /// It says that a session was restored when there was none.
    pub doubtful_restore: bool,
    /// It refuses a prompt to a session that it does not know, as if the model had refused.
    pub refusal_is_unknown: bool,
}

/// No deviation that is known.
const PLAIN: Quirks = Quirks {
    patience: None,
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
            // It gives up after 60 s; the answer must be there before.
            patience: Some(Duration::from_secs(55)),
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
