//! The sections `transcribe` and `speak`: how voice messages become text, and answers become voice messages.

use std::path::PathBuf;

use super::validate::Violation;
use crate::agent::check_base_url;
use crate::setting::{MAX_SECS, section};

section! {
    /// Transcription of voice messages and audio files; off without `base_url` and `argv`.
    #[derive(PartialEq, Eq)]
    pub struct TranscribeConfig {
        /// URL of an OpenAI-style API.
        pub base_url: Option<String>;
        /// Model of that API.
        pub model: String = "whisper-1".to_owned();
        /// Language of the recordings, as ISO 639-1 has it; the model detects it if unset.
        pub language: Option<String>;
        /// Variable with the API key.
        pub api_key_env: Option<String>;
        /// File with the API key.
        pub api_key_file: Option<PathBuf>;
        /// Allow `http://` to another host.
        pub allow_plaintext: bool;
        /// Command that transcribes, without a shell, instead of an API: the file's path is its last argument, the text its
        /// standard output.
        pub argv: Vec<String>;
        /// Show the chat what was understood.
        pub show: bool = true;
        /// Maximum length of a recording, where its file states it.
        pub max_secs: u64 = 600, range(1..=MAX_SECS);
        /// Timeout of one transcription, and of its wait for a free slot.
        pub timeout_secs: u64 = 120, range(1..=3600);
        /// Maximum concurrent transcriptions.
        pub parallel: usize = 2, range(1..=64);
    }
}

section! {
    /// Spoken answers, for conversations with `/voice on`; off without `base_url` and `argv`.
    #[derive(PartialEq, Eq)]
    pub struct SpeakConfig {
        /// URL of an OpenAI-style API.
        pub base_url: Option<String>;
        /// Model of that API.
        pub model: String = "tts-1".to_owned();
        /// Voice of that API.
        pub voice: String = "alloy".to_owned();
        /// Variable with the API key.
        pub api_key_env: Option<String>;
        /// File with the API key.
        pub api_key_file: Option<PathBuf>;
        /// Allow `http://` to another host.
        pub allow_plaintext: bool;
        /// Command that speaks, without a shell, instead of an API: the text on its standard input, an audio file on its
        /// standard output.
        pub argv: Vec<String>;
        /// Maximum characters of an answer that are spoken; the text is always sent whole.
        pub max_chars: usize = 4000, range(1..=100_000);
        /// Timeout of one answer, and of its wait for a free slot.
        pub timeout_secs: u64 = 30, range(1..=3600);
        /// Maximum concurrent answers.
        pub parallel: usize = 2, range(1..=64);
    }
}

/// What both sections have: an API or a command.
#[derive(Clone, Copy, Debug)]
pub struct SpeechSource<'s> {
    /// The name of the section.
    pub section: &'static str,
    /// URL of an API.
    pub base_url: Option<&'s str>,
    /// The variable and the file of its key.
    pub key: (Option<&'s str>, Option<&'s PathBuf>),
    /// Allow `http://` to another host.
    pub allow_plaintext: bool,
    /// A command instead.
    pub argv: &'s [String],
    /// Timeout of one use.
    pub timeout_secs: u64,
}

impl TranscribeConfig {
    /// Whether recordings are transcribed.
    pub fn is_on(&self) -> bool {
        self.base_url.is_some() || !self.argv.is_empty()
    }

    /// What transcribes.
    pub fn source(&self) -> SpeechSource<'_> {
        SpeechSource {
            section: "transcribe",
            base_url: self.base_url.as_deref(),
            key: (self.api_key_env.as_deref(), self.api_key_file.as_ref()),
            allow_plaintext: self.allow_plaintext,
            argv: &self.argv,
            timeout_secs: self.timeout_secs,
        }
    }

    /// The first violated rule of the section.
    pub(super) fn violation(&self) -> Option<Violation> {
        let keys = ["transcribe.base_url", "transcribe.model", "transcribe.argv"];
        violation(&self.source(), &self.model, keys)
    }
}

impl SpeakConfig {
    /// What speaks.
    pub fn source(&self) -> SpeechSource<'_> {
        SpeechSource {
            section: "speak",
            base_url: self.base_url.as_deref(),
            key: (self.api_key_env.as_deref(), self.api_key_file.as_ref()),
            allow_plaintext: self.allow_plaintext,
            argv: &self.argv,
            timeout_secs: self.timeout_secs,
        }
    }

    /// Whether answers can be spoken.
    pub fn is_on(&self) -> bool {
        self.base_url.is_some() || !self.argv.is_empty()
    }

    /// The first violated rule of the section.
    pub(super) fn violation(&self) -> Option<Violation> {
        let keys = ["speak.base_url", "speak.model", "speak.argv"];
        violation(&self.source(), &self.model, keys)
    }
}

fn violation(
    source: &SpeechSource<'_>,
    model: &str,
    [base_url, model_key, argv]: [&'static str; 3],
) -> Option<Violation> {
    if let Some(url) = source.base_url {
        if !source.argv.is_empty() {
            let rule = "cannot be used together with `base_url`; remove one of them".to_owned();
            return Some((argv, rule));
        }
        if let Err(error) = check_base_url(url, source.allow_plaintext) {
            return Some((base_url, format!("cannot be used: {error}")));
        }
        if model.trim().is_empty() {
            return Some((model_key, "must name a model of the API".to_owned()));
        }
    }
    let has_nul = source.argv.iter().any(|part| part.contains('\0'));
    let is_blank = (source.argv.first()).is_some_and(|program| program.trim().is_empty());
    (has_nul || is_blank).then(|| {
        let rule = "must start with a program and contain no NUL character".to_owned();
        (argv, rule)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_that_cannot_work_names_its_key() {
        let api = |url: &str| TranscribeConfig {
            base_url: Some(url.to_owned()),
            ..TranscribeConfig::default()
        };
        let command = |program: &str| SpeakConfig {
            argv: vec![program.to_owned()],
            ..SpeakConfig::default()
        };
        assert_eq!(TranscribeConfig::default().violation(), None);
        assert_eq!(SpeakConfig::default().violation(), None);
        assert_eq!(api("http://127.0.0.1:9000/v1").violation(), None);
        assert_eq!(command("say").violation(), None);
        let both = TranscribeConfig {
            argv: vec!["whisper".to_owned()],
            ..api("https://whisper.example/v1")
        };
        let nameless = TranscribeConfig {
            model: " ".to_owned(),
            ..api("https://whisper.example/v1")
        };
        let wrong = [
            ("transcribe.base_url", api("whisper").violation()),
            (
                "transcribe.base_url",
                api("http://whisper.example/v1").violation(),
            ),
            ("transcribe.argv", both.violation()),
            ("transcribe.model", nameless.violation()),
            ("speak.argv", command("").violation()),
            ("speak.argv", command("a\0b").violation()),
        ];
        for (key, found) in wrong {
            assert_eq!(found.map(|(key, _)| key), Some(key));
        }
    }
}
