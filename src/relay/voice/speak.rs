//! Spoken answers: the text of an answer as a recording, for chats that asked for it with `/voice on`.
//!
//! The text itself is always sent. What cannot be spoken is told, and fails nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{SpeechEngine, VoiceEnvironment, VoiceError};
use crate::agent::child::FilterError;
use crate::config::{Settings, SpeakConfig};
use crate::net::speech::SpeechError;
use crate::text::truncate;
use crate::wire::SessionKey;

/// Why an answer was not spoken.
#[derive(Debug, thiserror::Error)]
pub enum Unspoken {
    #[error("too many answers are being spoken")]
    Busy,
    #[error("{0}")]
    Api(#[from] SpeechError),
    #[error("{0}")]
    Program(#[from] FilterError),
    #[error("what came is not an audio file")]
    NotAudio,
    #[error("the recording is larger than {0} bytes")]
    TooLarge(u64),
}

/// Speaks answers; one per relay, shared by its turns.
#[derive(Debug)]
pub struct Speaker {
    settings: SpeakConfig,
    engine: SpeechEngine,
    slots: Semaphore,
    max_bytes: u64,
}

impl Speaker {
    /// The speaker of the settings; none if they name none.
    pub(super) fn new(
        settings: &Settings,
        around: &VoiceEnvironment<'_>,
    ) -> Result<Option<Self>, VoiceError> {
        let (own, max_bytes) = (&settings.speak, settings.media.max_bytes);
        let max_answer = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        let engine = SpeechEngine::new(&own.source(), settings, around, max_answer)?;
        Ok(engine.map(|engine| Self {
            engine,
            slots: Semaphore::new(own.parallel.max(1)),
            settings: own.clone(),
            max_bytes,
        }))
    }

    /// An answer as a recording, and the name of its file.
    pub async fn speak(&self, text: &str) -> Result<(&'static str, Vec<u8>), Unspoken> {
        let text = truncate(text, self.settings.max_chars);
        let time = Duration::from_secs(self.settings.timeout_secs);
        let _slot = timeout(time, self.slots.acquire())
            .await
            .map_err(|_| Unspoken::Busy)?;
        let audio = match &self.engine {
            SpeechEngine::Api(api) => {
                api.speak(text, &self.settings.model, &self.settings.voice)
                    .await?
            }
            SpeechEngine::Command(program) => {
                let max = usize::try_from(self.max_bytes).unwrap_or(usize::MAX);
                let input = text.as_bytes().to_vec();
                program.filter(input, max.saturating_add(1), time).await?
            }
        };
        if audio.len() as u64 > self.max_bytes {
            return Err(Unspoken::TooLarge(self.max_bytes));
        }
        let name = file_name(&audio).ok_or(Unspoken::NotAudio)?;
        Ok((name, audio))
    }
}

/// The name of an audio file, by how it begins.
fn file_name(audio: &[u8]) -> Option<&'static str> {
    match audio {
        [b'O', b'g', b'g', b'S', ..] => Some("answer.ogg"),
        [b'R', b'I', b'F', b'F', ..] => Some("answer.wav"),
        [b'f', b'L', b'a', b'C', ..] => Some("answer.flac"),
        [b'I', b'D', b'3', ..] | [0xFF, 0xE0..=0xFF, ..] => Some("answer.mp3"),
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => Some("answer.m4a"),
        _ => None,
    }
}

/// Where the journal keeps whether a conversation wants spoken answers.
pub fn voice_key(session: &SessionKey) -> Arc<str> {
    format!("{}#voice", session.as_str()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audio_files_are_known_by_how_they_begin() {
        let cases: [(&[u8], Option<&str>); 8] = [
            (b"OggS...", Some("answer.ogg")),
            (b"RIFF....WAVE", Some("answer.wav")),
            (b"fLaC", Some("answer.flac")),
            (b"ID3\x03", Some("answer.mp3")),
            (b"\xff\xfb\x90", Some("answer.mp3")),
            (b"\0\0\0\x18ftypM4A ", Some("answer.m4a")),
            (b"no such voice\n", None),
            (b"", None),
        ];
        for (audio, name) in cases {
            assert_eq!(file_name(audio), name, "{audio:?}");
        }
    }
}
