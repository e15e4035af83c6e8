//! What the Hermes backend is told.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of an agent that is a Hermes gateway's API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HermesSettings {
    /// Address of the API server.
    pub base_url: String,
    /// Name of the variable that holds the key: the server's own `API_SERVER_KEY`.
    pub api_key_env: Option<String>,
    /// File that holds the key.
    pub api_key_file: Option<PathBuf>,
    /// Let the conversation and the key cross the network unencrypted, to another machine.
    pub allow_plaintext: bool,
    /// How turns are run.
    pub mode: HermesMode,
    /// The Hermes profile that answers, where the gateway serves several.
    pub profile: Option<String>,
    /// The model's name; the gateway's own choice when not given.
    pub model: Option<String>,
    /// What the agent is told besides its own instructions.
    pub instructions: Option<String>,
    /// Most turns of a session that the agent is told again (`mode: runs`); older ones are forgotten.
    pub max_turns_kept: usize,
    /// Most characters of a session that the agent is told again (`mode: runs`); older turns are forgotten first.
    pub max_chars_kept: usize,
    /// Longest silence before the first word in `mode: chat`.
    pub first_token_timeout_secs: u64,
    /// Longest silence of a stream; Hermes breaks it every 30 seconds.
    pub idle_timeout_secs: u64,
    /// How long a busy or restarting gateway is waited for before a turn fails.
    pub busy_wait_secs: u64,
    /// How long a stopped run may take to end; after that it counts as not known to have stopped.
    pub stop_grace_secs: u64,
    /// How long people may take over an approval: less than the gateway's own `approvals.timeout`. Where that is shorter,
    /// the gateway has denied by itself what is answered too late.
    pub approval_patience_secs: u64,
    /// How long a run is watched by asking for its status after its stream was lost.
    pub lost_stream_wait_secs: u64,
}

/// How turns are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HermesMode {
    /// As runs: with approvals, tool progress and a real stop; the conversation is kept here.
    #[default]
    Runs,
    /// As chat completions: Hermes keeps the conversation, and refuses whatever needs an approval.
    Chat,
}

impl Default for HermesSettings {
    fn default() -> Self {
        Self {
            base_url: "http://127.0.0.1:8642".to_owned(),
            api_key_env: Some("API_SERVER_KEY".to_owned()),
            api_key_file: None,
            allow_plaintext: false,
            mode: HermesMode::Runs,
            profile: None,
            model: None,
            instructions: None,
            max_turns_kept: 40,
            max_chars_kept: 96_000,
            first_token_timeout_secs: 300,
            idle_timeout_secs: 120,
            busy_wait_secs: 60,
            stop_grace_secs: 5,
            approval_patience_secs: 55,
            lost_stream_wait_secs: 1800,
        }
    }
}
