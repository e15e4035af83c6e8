//! Speech: recordings that come with messages become text, and answers become recordings.
//!
//! Both run in the turn's own task, so that other chats go on, and are bounded in size, time, and how many run at once. No
//! recording, transcript or answer is logged.

mod speak;
mod transcribe;

pub use speak::{Speaker, voice_key};
pub use transcribe::Transcriber;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use super::build_agents::{KeyError, find_key, without_keys};
use crate::agent::child::{BaseEnv, EnvPolicy, Program};
use crate::config::{Settings, SpeechSource};
use crate::net::http::{HttpEgress, HttpError};
use crate::net::speech::{SpeechApi, SpeechEndpoint};

/// Why the settings of a section cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VoiceError {
    /// The key cannot be read.
    #[error("{0}: {1}")]
    Key(&'static str, KeyError),
    /// The API cannot be used.
    #[error("{0}: {1}")]
    Http(&'static str, HttpError),
    /// The command cannot be started.
    #[error("{0}.argv: {1}")]
    Program(&'static str, String),
}

/// What turns a recording into text, or text into a recording.
enum SpeechEngine {
    Api(SpeechApi),
    Command(Program),
}

/// The environment of a program may hold secrets: it is not printed.
impl std::fmt::Debug for SpeechEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Api(_) => "Api(..)",
            Self::Command(_) => "Command(..)",
        })
    }
}

impl SpeechEngine {
    /// The engine of a section; none if it names none.
    fn new(
        source: &SpeechSource<'_>,
        settings: &Settings,
        around: &VoiceEnvironment<'_>,
        max_answer: usize,
    ) -> Result<Option<Self>, VoiceError> {
        let section = source.section;
        if let Some(base_url) = source.base_url {
            let key = find_key(source.key, around.env).map_err(|error| VoiceError::Key(section, error))?;
            let endpoint = SpeechEndpoint {
                base_url,
                key,
                allow_plaintext: source.allow_plaintext,
                timeout: Duration::from_secs(source.timeout_secs),
                max_answer,
            };
            let api = SpeechApi::new(endpoint, around.egress);
            return Ok(Some(Self::Api(
                api.map_err(|error| VoiceError::Http(section, error))?,
            )));
        }
        if source.argv.is_empty() {
            return Ok(None);
        }
        let program = Program {
            argv: source.argv.iter().map(OsString::from).collect(),
            cwd: None,
            env: EnvPolicy::default().apply(&without_keys(settings, around.base)),
            agent: None,
        };
        match program.find() {
            Ok(_) => Ok(Some(Self::Command(program))),
            Err(error) => Err(VoiceError::Program(section, error.to_string())),
        }
    }
}

/// What both are built with.
pub struct VoiceEnvironment<'e> {
    /// One variable of the environment.
    pub env: &'e dyn Fn(&str) -> Option<String>,
    /// What child processes inherit.
    pub base: &'e BaseEnv,
    /// How requests leave this machine.
    pub egress: &'e HttpEgress,
}

/// What hears and speaks for the turns of a relay, as far as the settings name it.
#[derive(Clone, Debug, Default)]
pub struct Voice {
    /// Transcribes recordings.
    pub transcriber: Option<Arc<Transcriber>>,
    /// Speaks answers.
    pub speaker: Option<Arc<Speaker>>,
}

impl Voice {
    /// What the settings name. Starts and dials nothing.
    pub fn from_settings(settings: &Settings, around: &VoiceEnvironment<'_>) -> Result<Self, VoiceError> {
        Ok(Self {
            transcriber: Transcriber::new(settings, around)?.map(Arc::new),
            speaker: Speaker::new(settings, around)?.map(Arc::new),
        })
    }
}

/// The keys of the APIs by section, as far as they can be read.
pub fn voice_keys(
    settings: &Settings,
    env: &dyn Fn(&str) -> Option<String>,
) -> impl Iterator<Item = (&'static str, SecretString)> {
    let sources = [settings.transcribe.source(), settings.speak.source()];
    sources
        .into_iter()
        .filter_map(move |source| Some((source.section, find_key(source.key, env).ok()??)))
}
