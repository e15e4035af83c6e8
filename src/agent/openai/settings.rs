//! What an OpenAI-style backend is told.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of an agent that is a model behind an OpenAI-style address: Ollama, vLLM, LM Studio, llama.cpp, or a
/// hosted service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenAiSettings {
    /// Address below which `/chat/completions` is; Ollama's by default.
    pub base_url: String,
    /// The model's name.
    pub model: String,
    /// Name of the variable that holds the key.
    pub api_key_env: Option<String>,
    /// File that holds the key.
    pub api_key_file: Option<PathBuf>,
    /// Let the conversation and the key cross the network unencrypted, to another machine.
    pub allow_plaintext: bool,
    /// What the model is told first.
    pub system_prompt: Option<String>,
    /// File that holds what the model is told first, instead of `system_prompt`; at most 256 KiB.
    pub system_prompt_file: Option<PathBuf>,
    /// Most turns of a session that the model is told again; older ones are forgotten.
    pub max_turns_kept: usize,
    /// Most characters of a session that the model is told again; older turns are forgotten first.
    pub max_chars_kept: usize,
    /// How freely the model chooses its words; the server's own choice when not given.
    pub temperature: Option<f64>,
    /// Longest answer, in tokens; the server's own limit when not given.
    pub max_tokens: Option<u32>,
    /// Show attached pictures to the model.
    pub images: bool,
    /// Whether the server is asked what an answer has cost.
    pub stream_options: StreamOptions,
    /// Longest silence before the first word: models load, long prompts are read.
    pub first_token_timeout_secs: u64,
    /// Longest silence after the first word.
    pub idle_timeout_secs: u64,
    /// Tries after the first, when the server is busy or cannot be reached; never after it said a word.
    pub retries: u32,
    /// Further headers; not for secrets.
    pub extra_headers: BTreeMap<String, String>,
}

/// Whether `stream_options` is sent, which some servers refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamOptions {
    /// Until the server has refused it once.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Default for OpenAiSettings {
    fn default() -> Self {
        Self {
            base_url: "http://127.0.0.1:11434/v1".to_owned(),
            model: String::new(),
            api_key_env: None,
            api_key_file: None,
            allow_plaintext: false,
            system_prompt: None,
            system_prompt_file: None,
            max_turns_kept: 40,
            max_chars_kept: 48_000,
            temperature: None,
            max_tokens: None,
            images: false,
            stream_options: StreamOptions::Auto,
            first_token_timeout_secs: 300,
            idle_timeout_secs: 120,
            retries: 2,
            extra_headers: BTreeMap::new(),
        }
    }
}
