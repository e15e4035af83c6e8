//! Voice messages: a recording that came with a message is transcribed before the agent gets the message.
//!
//! What cannot be transcribed is told to the chat and noted for the agent, which then gets the recording itself.

use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{SpeechEngine, VoiceEnvironment, VoiceError};
use crate::adapter::media::{MediaKind, media_kind};
use crate::agent::child::FilterError;
use crate::agent::{AgentEvent, Attachment, MediaLocation, Turn};
use crate::config::{Settings, TranscribeConfig};
use crate::net::http::HttpError;
use crate::net::media::recording_length;
use crate::net::speech::{SpeechError, SpokenFile};
use crate::relay::parts::attachments::TurnFiles;
use crate::text::truncate_bytes;

/// Longest transcript of one recording, in bytes; the rest is cut off.
const MAX_TRANSCRIPT: usize = 64 * 1024;
/// Maximum size of an API's answer: a transcript with what surrounds it.
const MAX_ANSWER: usize = 1024 * 1024;
/// Recordings of one message that are transcribed.
const MAX_RECORDINGS: usize = 4;
/// The agent's note about a message that was spoken.
const SPOKEN: &str = "(this message was spoken; its text is a transcript and may contain mistakes)";
/// The agent's note about a recording without a transcript.
const NOT_TRANSCRIBED: &str = "(a recording could not be transcribed; the chat was told)";

/// Why one recording was not transcribed.
#[derive(Debug, thiserror::Error)]
enum Untranscribed {
    #[error("the recording could not be downloaded")]
    NotDownloaded,
    #[error("the recording is longer than {0} s")]
    TooLong(u64),
    #[error("there are more than {MAX_RECORDINGS} recordings")]
    TooMany,
    #[error("no words were recognised")]
    Silence,
    #[error("too many transcriptions are under way")]
    Busy,
    #[error("the transcription took longer than {0} s")]
    TimedOut(u64),
    #[error("{0}")]
    Api(#[from] SpeechError),
    #[error("{0}")]
    Program(#[from] FilterError),
}

impl Untranscribed {
    /// The reason for the chat: what went wrong on this machine is in the log.
    fn for_chat(&self) -> String {
        match self {
            Self::Api(_) | Self::Program(_) => "the transcription failed".to_owned(),
            Self::NotDownloaded
            | Self::TooLong(_)
            | Self::TooMany
            | Self::Silence
            | Self::Busy
            | Self::TimedOut(_) => self.to_string(),
        }
    }
}

/// Transcribes recordings; one per relay, shared by its turns.
#[derive(Debug)]
pub struct Transcriber {
    settings: TranscribeConfig,
    engine: SpeechEngine,
    slots: Semaphore,
}

impl Transcriber {
    /// The transcriber of the settings; none if they name none.
    pub(super) fn new(
        settings: &Settings,
        around: &VoiceEnvironment<'_>,
    ) -> Result<Option<Self>, VoiceError> {
        let own = &settings.transcribe;
        let engine = SpeechEngine::new(&own.source(), settings, around, MAX_ANSWER)?;
        Ok(engine.map(|engine| Self {
            engine,
            slots: Semaphore::new(own.parallel.max(1)),
            settings: own.clone(),
        }))
    }

    /// Downloads what came with a message and replaces recordings by their text. Without text of its own, the message is its
    /// transcript; otherwise it keeps the recording, with the transcript below its text. Ends soon after the turn is
    /// cancelled.
    pub async fn receive(&self, files: &TurnFiles, turn: &mut Turn) {
        let expected = recordings(&turn.input.attachments).count();
        let missing = files.download(turn).await;
        let heard = recordings(&turn.input.attachments).count();
        // Those that are missing are told below.
        let others = missing.saturating_sub(expected.saturating_sub(heard));
        files.tell_missing(turn, others).await;
        if expected == 0 && recordings(&turn.input.attachments).next().is_none() {
            return;
        }
        let cancel = turn.cancel.clone();
        // Dropping the work closes its connection, or kills its program.
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = self.transcribe_all(turn, expected) => {}
        }
    }

    async fn transcribe_all(&self, turn: &mut Turn, expected: usize) {
        let is_spoken = turn.input.text.trim().is_empty();
        let (mut texts, mut failures, mut kept, mut count) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for attachment in std::mem::take(&mut turn.input.attachments) {
            if !is_recording(&attachment) {
                kept.push(attachment);
                continue;
            }
            count += 1;
            let transcript = if count > MAX_RECORDINGS {
                Err(Untranscribed::TooMany)
            } else {
                self.transcribe(&attachment).await
            };
            match transcript {
                Ok(text) => {
                    texts.push(text);
                    if is_spoken {
                        continue;
                    }
                }
                Err(reason) => {
                    tracing::warn!(turn = turn.id.0, %reason, "a recording was not transcribed");
                    failures.push(reason.for_chat());
                }
            }
            kept.push(attachment);
        }
        turn.input.attachments = kept;
        // What could not be downloaded at all is not among the attachments any more.
        failures.extend((count..expected).map(|_| Untranscribed::NotDownloaded.for_chat()));
        if !texts.is_empty() {
            let transcript = texts.join("\n\n");
            if self.settings.show {
                let shown = AgentEvent::Notice(format!("🎤 {transcript}"));
                turn.events.emit(shown).await;
            }
            if is_spoken {
                turn.input.text = transcript;
                turn.input.notes.push(SPOKEN.to_owned());
            } else {
                turn.input.text = format!(
                    "{}\n\nTranscript of the attached recording:\n{transcript}",
                    turn.input.text
                );
            }
        }
        failures.dedup();
        for reason in failures {
            turn.input.notes.push(NOT_TRANSCRIBED.to_owned());
            let told = format!("I could not transcribe this recording: {reason}.");
            turn.events.emit(AgentEvent::Notice(told)).await;
        }
    }

    async fn transcribe(&self, attachment: &Attachment) -> Result<String, Untranscribed> {
        let MediaLocation::File(path) = &attachment.location else {
            return Err(Untranscribed::NotDownloaded);
        };
        let (max, limit) = (self.settings.max_secs, self.settings.timeout_secs);
        if recording_length(path).await.is_some_and(|secs| secs > max) {
            return Err(Untranscribed::TooLong(max));
        }
        let time = Duration::from_secs(limit);
        let _slot = timeout(time, self.slots.acquire())
            .await
            .map_err(|_| Untranscribed::Busy)?;
        let text = match &self.engine {
            SpeechEngine::Api(api) => {
                let recording = SpokenFile {
                    path,
                    name: &attachment.name,
                    mime: &attachment.mime,
                };
                let language = self.settings.language.as_deref();
                api.transcribe(recording, &self.settings.model, language)
                    .await
                    .map_err(|error| match error {
                        SpeechError::Http(HttpError::TimedOut(_)) => Untranscribed::TimedOut(limit),
                        error => error.into(),
                    })?
            }
            SpeechEngine::Command(program) => {
                let mut program = program.clone();
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                program.argv.push(path.into());
                let output = program
                    .filter(Vec::new(), MAX_TRANSCRIPT, time)
                    .await
                    .map_err(|error| match error {
                        FilterError::TimedOut { .. } => Untranscribed::TimedOut(limit),
                        error => error.into(),
                    })?;
                String::from_utf8_lossy(&output).into_owned()
            }
        };
        match truncate_bytes(text.trim(), MAX_TRANSCRIPT) {
            "" => Err(Untranscribed::Silence),
            text => Ok(text.to_owned()),
        }
    }
}

fn recordings(attachments: &[Attachment]) -> impl Iterator<Item = &Attachment> {
    attachments.iter().filter(|attachment| is_recording(attachment))
}

fn is_recording(attachment: &Attachment) -> bool {
    let kind = media_kind(&attachment.mime, &attachment.name);
    matches!(kind, MediaKind::Voice | MediaKind::Audio)
}
