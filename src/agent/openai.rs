//! A model behind an OpenAI-style address: Ollama, vLLM, LM Studio, llama.cpp, or a hosted service.
//!
//! The model has no side effects, so a turn may be run again. The conversation is kept here as a bounded transcript per
//! session and sent with every request. A turn is stopped by closing its connection. Requests are retried only before the
//! first output, and the key goes to its own address only.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt as _;

use super::completion::{CompletionReader, Ended, StreamTimeouts};
use super::http::{
    AgentHttp, AgentRequest, Endpoint, EndpointError, FailureTexts, is_transient, listed_models,
};
use super::prompt_text::{FileAccess, attachment_lines, turn_instructions};
use super::transcript::{AnswerExtent, Bounds, Transcript, TranscriptStore};
use super::{
    Agent, AgentEvent, AgentFuture, AgentHealth, AgentInfo, Failure, Preference, PreferenceAnswer,
    PreferenceRequest, Turn, TurnEnd,
};
use crate::agent::{Attachment, MediaLocation};
use crate::backoff::Backoff;
use crate::net::http::{Body, HttpEgress, HttpError, ResponseStream};
use crate::wire::SessionKey;

/// Maximum `Retry-After` that is waited for.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Delay before the first retry without `Retry-After`; doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Timeout of a health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the system prompt file.
const MAX_PROMPT_BYTES: u64 = 256 * 1024;
/// Headers that cannot be configured.
const OWN_HEADERS: &[&str] = &[
    "authorization",
    "accept",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "proxy-authorization",
    "transfer-encoding",
];

const FAILURES: FailureTexts = FailureTexts {
    who: "The model server",
    unreachable: "start it, or correct base_url",
    credentials: "put a valid key where api_key_env or api_key_file says",
    missing: "check base_url and model",
};

/// Why the settings make no agent.
#[derive(Debug, thiserror::Error)]
pub enum OpenAiError {
    /// No model is named.
    #[error("openai: no model is set; set model to a name that the server lists")]
    NoModel,
    /// The file of instructions cannot be read.
    #[error("openai: cannot read system_prompt_file {}: {reason}", path.display())]
    Prompt {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A header is not the operator's to set.
    #[error(
        "openai: the header {0} cannot be set by extra_headers; keys belong into api_key_env or api_key_file"
    )]
    Header(String),
    /// The address or the key cannot be used.
    #[error("openai: {0}")]
    Http(#[from] EndpointError),
}

/// An agent on a server with OpenAI's chat completions API.
#[derive(Debug)]
pub struct OpenAiAgent {
    settings: OpenAiSettings,
    http: AgentHttp,
    keyless: bool,
    instructions: String,
    transcripts: TranscriptStore,
    /// Whether the server has refused `stream_options`.
    plain_stream: AtomicBool,
}

impl OpenAiAgent {
    /// Creates an agent; the caller has read the key. Connects to nothing.
    pub fn new(
        settings: OpenAiSettings,
        key: Option<SecretString>,
        egress: &HttpEgress,
    ) -> Result<Self, OpenAiError> {
        if settings.model.trim().is_empty() {
            return Err(OpenAiError::NoModel);
        }
        let own = |name: &&String| OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str());
        if let Some(name) = settings.extra_headers.keys().find(own) {
            return Err(OpenAiError::Header(name.clone()));
        }
        let keyless = key.is_none();
        let endpoint = Endpoint {
            base_url: settings.base_url.clone(),
            key,
            allow_plaintext: settings.allow_plaintext,
        };
        Ok(Self {
            http: AgentHttp::new(endpoint, egress)?,
            keyless,
            instructions: instructions(&settings)?,
            transcripts: TranscriptStore::new(Bounds {
                turns: settings.max_turns_kept,
                chars: settings.max_chars_kept,
            }),
            plain_stream: AtomicBool::new(settings.stream_options == StreamOptions::Never),
            settings,
        })
    }

    async fn turn(&self, turn: Turn) -> TurnEnd {
        let shown = |a: &&Attachment| self.settings.images && is_image(a);
        let unseen = turn.input.attachments.iter().filter(|a| !shown(a));
        let prompt = turn.input.as_prompt() + &attachment_lines(unseen, FileAccess::None);
        let mut active = tokio::select! {
            biased;
            // Nothing was asked yet, and what was recalled is recalled again.
            () = turn.cancel.cancelled() => return TurnEnd::Cancelled { confirmed: true },
            active = self.transcripts.begin(&turn.session, &turn.events, &prompt) => active,
        };
        let timeouts = StreamTimeouts {
            first: Duration::from_secs(self.settings.first_token_timeout_secs),
            idle: Duration::from_secs(self.settings.idle_timeout_secs),
        };
        let mut reader = CompletionReader::new(&turn.events, timeouts, |_| None);
        let end = tokio::select! {
            biased;
            // Dropping the stream closes its connection, which stops the server.
            () = turn.cancel.cancelled() => TurnEnd::Cancelled { confirmed: true },
            end = self.answer(&turn, &active.transcript, &mut reader) => end,
        };
        let extent = match &end {
            TurnEnd::Completed => AnswerExtent::Whole,
            // What got no answer at all is not remembered, so that trying again does not ask twice.
            TurnEnd::Failed(_) | TurnEnd::Refused if reader.text.trim().is_empty() => return end,
            _ => AnswerExtent::Interrupted,
        };
        if end == TurnEnd::Completed && reader.text.trim().is_empty() {
            turn.say_no_reply().await;
        }
        active.transcript.answer(&reader.text, extent);
        self.transcripts.finish(&turn.session, &turn.events, active).await;
        end
    }

    async fn answer(
        &self,
        turn: &Turn,
        transcript: &Transcript,
        reader: &mut CompletionReader<'_>,
    ) -> TurnEnd {
        let images = if self.settings.images {
            load_images(&turn.input.attachments).await
        } else {
            Vec::new()
        };
        let instructions = turn_instructions(&self.instructions, &turn.input.origin);
        let body = request_body(&self.settings, &instructions, transcript, images);
        let ended = match self.open(body).await {
            Ok(reply) => reader.read(reply).await,
            Err(failure) => return TurnEnd::Failed(failure),
        };
        let silent = reader.text.trim().is_empty();
        match ended {
            Ended::Filtered if silent => TurnEnd::Refused,
            Ended::ToolCall => {
                let notice = "The model wanted to use a tool, but it has none here.";
                turn.events.emit(AgentEvent::Notice(notice.to_owned())).await;
                TurnEnd::Completed
            }
            ended => match FAILURES.end(ended, &self.http) {
                // Text that was sent cannot be taken back.
                TurnEnd::Failed(failure) if silent => TurnEnd::Failed(failure.without_side_effects()),
                end => end,
            },
        }
    }

    /// Sends the request until an answer begins.
    async fn open(&self, mut body: Map<String, Value>) -> Result<ResponseStream, Failure> {
        let mut backoff = Backoff::new(FIRST_WAIT, MAX_WAIT * 2);
        let mut tries_left = self.settings.retries;
        let mut plain = self.plain_stream.load(Ordering::Relaxed);
        loop {
            if plain {
                body.remove("stream_options");
            } else {
                body.insert("stream_options".to_owned(), json!({"include_usage": true}));
            }
            let (failure, asked) = match self.post(&body).await {
                Ok(reply) if reply.is_success() => {
                    self.plain_stream.store(plain, Ordering::Relaxed);
                    return Ok(reply);
                }
                Ok(reply) => {
                    let auto = self.settings.stream_options == StreamOptions::Auto;
                    if matches!(reply.status, 400 | 422) && !plain && auto {
                        plain = true;
                        continue;
                    }
                    let (is_transient, asked) = (is_transient(reply.status), reply.retry_after);
                    let failure = FAILURES.status(&self.http, reply).await;
                    if !is_transient {
                        return Err(failure);
                    }
                    (failure, asked)
                }
                Err(error @ HttpError::Connect { .. }) => (FAILURES.transport(&error), None),
                Err(error) => return Err(FAILURES.transport(&error).without_side_effects()),
            };
            let pause = asked.unwrap_or_else(|| backoff.next_delay());
            if tries_left == 0 || pause > MAX_WAIT {
                return Err(failure);
            }
            tries_left -= 1;
            tracing::debug!(
                detail = failure.detail,
                wait_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                "retrying the model server"
            );
            tokio::time::sleep(pause).await;
        }
    }

    async fn post(&self, body: &Map<String, Value>) -> Result<ResponseStream, HttpError> {
        let body = serde_json::to_vec(body).map_err(|error| HttpError::Setup(error.to_string()))?;
        let request = AgentRequest {
            path: "/chat/completions",
            body: Body::Json(body),
            headers: self.headers(),
            anonymous: false,
        };
        let timeouts = Duration::from_secs(self.settings.first_token_timeout_secs);
        self.http.send(request, timeouts).await
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        let own = self.settings.extra_headers.iter();
        let own = own.map(|(name, value)| (name.as_str(), value.as_str()));
        // Some servers require a key but ignore it.
        let any_key = self.keyless.then_some(("authorization", "Bearer none"));
        own.chain(any_key).collect()
    }

    /// Lists the server's models, or chooses one.
    async fn choose(&self, turn: Turn, request: PreferenceRequest) -> PreferenceAnswer {
        if request.preference != Preference::Model {
            return PreferenceAnswer::Unsupported;
        }
        let asked = AgentRequest {
            path: "/models",
            headers: self.headers(),
            ..AgentRequest::default()
        };
        let reply = match self.http.send(asked, HEALTH_TIMEOUT).await {
            Ok(reply) => reply,
            Err(error) => return PreferenceAnswer::Failed(FAILURES.transport(&error)),
        };
        let body = match reply.status {
            // Not every server lists its models.
            404 | 405 | 501 => return PreferenceAnswer::Unsupported,
            _ if !reply.is_success() => {
                return PreferenceAnswer::Failed(FAILURES.status(&self.http, reply).await);
            }
            _ => reply.body(HEALTH_TIMEOUT).await,
        };
        let models = match body {
            Ok(body) => listed_models(&body),
            Err(error) => return PreferenceAnswer::Failed(FAILURES.transport(&error)),
        };
        let default = Some(self.settings.model.as_str());
        self.transcripts
            .choose_model(&turn, request, (models, default))
            .await
    }

    async fn check_health(&self) -> AgentHealth {
        let request = AgentRequest {
            path: "/models",
            headers: self.headers(),
            ..AgentRequest::default()
        };
        let reply = match self.http.send(request, HEALTH_TIMEOUT).await {
            Ok(reply) => reply,
            Err(error) => return AgentHealth::Down(error.to_string()),
        };
        match reply.status {
            // Not every server lists its models.
            404 | 405 | 501 => AgentHealth::Ready,
            _ if !reply.is_success() => AgentHealth::Down(FAILURES.status(&self.http, reply).await.detail),
            _ => match reply.body(HEALTH_TIMEOUT).await {
                Ok(body) if lists_others_only(&body, &self.settings.model) => AgentHealth::Degraded(format!(
                    "the server does not list the model \"{}\"; check the name, or load it",
                    self.settings.model
                )),
                Ok(_) => AgentHealth::Ready,
                Err(error) => AgentHealth::Down(error.to_string()),
            },
        }
    }
}

impl Agent for OpenAiAgent {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: format!("openai ({})", self.settings.model).into(),
            kind: "openai",
            repeatable: true,
            remembers: true,
            sees_images: self.settings.images,
            ..AgentInfo::default()
        }
    }

    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        Box::pin(async {
            let looked = tokio::time::timeout(HEALTH_TIMEOUT, self.check_health()).await;
            looked
                .unwrap_or_else(|_| AgentHealth::Down("the model server does not answer in time".to_owned()))
        })
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(self.turn(turn))
    }

    fn prefer(&self, turn: Turn, request: PreferenceRequest) -> AgentFuture<'_, PreferenceAnswer> {
        Box::pin(self.choose(turn, request))
    }

    fn forget<'a>(&'a self, session: &'a SessionKey) -> AgentFuture<'a, ()> {
        self.transcripts.forget(session);
        Box::pin(async {})
    }

    fn reload(&self, session: &SessionKey) {
        self.transcripts.reload(session);
    }
}

fn instructions(settings: &OpenAiSettings) -> Result<String, OpenAiError> {
    let Some(path) = &settings.system_prompt_file else {
        return Ok(settings.system_prompt.clone().unwrap_or_default());
    };
    let wrong = |reason: String| OpenAiError::Prompt {
        path: path.clone(),
        reason,
    };
    let about = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if !about.is_file() || about.len() > MAX_PROMPT_BYTES {
        return Err(wrong("it must be a file of at most 256 KiB".to_owned()));
    }
    std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))
}

/// Whether a list of models was given, and this one is not on it.
fn lists_others_only(body: &[u8], model: &str) -> bool {
    let Ok(listed) = serde_json::from_slice::<Value>(body) else {
        return false;
    };
    let Some(listed) = listed.get("data").and_then(Value::as_array) else {
        return false;
    };
    let named = |entry: &Value| entry.get("id").and_then(Value::as_str).map(str::to_owned);
    // Ollama lists `name:latest` for what goes by `name`.
    let same = |id: String| id == model || id.strip_suffix(":latest") == Some(model);
    !listed.is_empty() && !listed.iter().filter_map(named).any(same)
}

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
    /// System prompt.
    pub system_prompt: Option<String>,
    /// File with the system prompt, instead of `system_prompt`; at most 256 KiB.
    pub system_prompt_file: Option<PathBuf>,
    /// Maximum turns of a session that are sent again; older ones are dropped.
    pub max_turns_kept: usize,
    /// Maximum characters of a session that are sent again; older turns are dropped first.
    pub max_chars_kept: usize,
    /// Sampling temperature; the server's default when not set.
    pub temperature: Option<f64>,
    /// Longest answer, in tokens; the server's own limit when not given.
    pub max_tokens: Option<u32>,
    /// Show attached images to the model.
    pub images: bool,
    /// Whether the server is asked what an answer has cost.
    pub stream_options: StreamOptions,
    /// Timeout for the first output: models load, long prompts are read.
    pub first_token_timeout_secs: u64,
    /// Idle timeout after the first output.
    pub idle_timeout_secs: u64,
    /// Retries when the server is busy or unreachable; never after output.
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

/// Most images of one message that the model is shown.
const MAX_IMAGES: usize = 8;
/// Most bytes of one message's images; those that do not fit are left out.
const MAX_IMAGE_BYTES: usize = 12 * 1024 * 1024;

/// A picture as models take it.
pub(super) struct Image(String);

/// Whether an attachment is a picture that can be read and shown.
pub(super) fn is_image(attachment: &Attachment) -> bool {
    let known = ["image/png", "image/jpeg", "image/gif", "image/webp"];
    matches!(attachment.location, MediaLocation::File(_)) && known.contains(&attachment.mime.as_str())
}

/// Reads the images among the attachments; one that cannot be read, or is too large, is left out.
pub(super) async fn load_images(attachments: &[Attachment]) -> Vec<Image> {
    let mut images = Vec::new();
    let mut room = MAX_IMAGE_BYTES;
    for attachment in attachments.iter().filter(|a| is_image(a)).take(MAX_IMAGES) {
        let MediaLocation::File(path) = &attachment.location else {
            continue;
        };
        let Ok(file) = tokio::fs::File::open(path).await else {
            continue;
        };
        let mut bytes = Vec::new();
        let limit = u64::try_from(room).unwrap_or(u64::MAX).saturating_add(1);
        let read = file.take(limit).read_to_end(&mut bytes).await;
        if read.is_err() || bytes.len() > room || bytes.is_empty() {
            continue;
        }
        room -= bytes.len();
        let encoded = STANDARD.encode(&bytes);
        images.push(Image(format!("data:{};base64,{encoded}", attachment.mime)));
    }
    images
}

/// The request without `stream_options`. The last message of `transcript` is the one to answer.
pub(super) fn request_body(
    settings: &OpenAiSettings,
    instructions: &str,
    transcript: &Transcript,
    images: Vec<Image>,
) -> Map<String, Value> {
    let mut messages = Vec::new();
    if !instructions.is_empty() {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    for (role, text) in transcript.messages() {
        messages.push(json!({"role": role.as_str(), "content": text}));
    }
    if let Some(last) = messages.last_mut().filter(|_| !images.is_empty()) {
        let text = last["content"].take();
        let shown = images
            .into_iter()
            .map(|Image(url)| json!({"type": "image_url", "image_url": {"url": url}}));
        let parts: Vec<Value> = std::iter::once(json!({"type": "text", "text": text}))
            .chain(shown)
            .collect();
        last["content"] = Value::Array(parts);
    }
    let mut body = Map::new();
    let model = transcript.model.as_ref().unwrap_or(&settings.model);
    body.insert("model".to_owned(), json!(model));
    body.insert("messages".to_owned(), Value::Array(messages));
    body.insert("stream".to_owned(), json!(true));
    if let Some(temperature) = settings.temperature {
        body.insert("temperature".to_owned(), json!(temperature));
    }
    if let Some(max_tokens) = settings.max_tokens {
        body.insert("max_tokens".to_owned(), json!(max_tokens));
    }
    body
}
