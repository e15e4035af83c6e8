//! Speech to text and text to speech through an OpenAI-style API (`/audio/transcriptions`, `/audio/speech`).
//!
//! The key goes to the configured address only. What a server answers is bounded, and an error never quotes a recording.

use std::path::Path;
use std::time::Duration;

use http::header::AUTHORIZATION;
use reqwest::Method;
use reqwest::multipart::{Form, Part};
use secrecy::SecretString;
use serde_json::json;
use url::Url;

use super::http::{
    Body, HttpClient, HttpEgress, HttpError, HttpPolicy, HttpResponse, Request, ResponseStream, bearer,
    excerpt, without_key,
};

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the API is.
#[derive(Clone, Debug)]
pub struct SpeechEndpoint<'a> {
    /// Its address; paths are appended to it.
    pub base_url: &'a str,
    /// The key of the `Authorization` header.
    pub key: Option<SecretString>,
    /// Whether recordings and the key may cross the network unencrypted.
    pub allow_plaintext: bool,
    /// Timeout of one exchange.
    pub timeout: Duration,
    /// Maximum size of an answer.
    pub max_answer: usize,
}

/// A recording on disk.
#[derive(Clone, Copy, Debug)]
pub struct SpokenFile<'a> {
    /// The path of the file.
    pub path: &'a Path,
    /// Its name; servers read the format from its extension.
    pub name: &'a str,
    /// Its MIME type; may be empty.
    pub mime: &'a str,
}

/// Why there is no transcript, or no recording.
#[derive(Debug, thiserror::Error)]
pub enum SpeechError {
    /// The request got no response.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The recording cannot be read.
    #[error("the recording cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// The server reported an error.
    #[error("HTTP status {status}{}{text}", if text.is_empty() { "" } else { ": " })]
    Status {
        /// HTTP status.
        status: u16,
        /// What the server reported, shortened.
        text: String,
    },
    /// The response has no transcript.
    #[error("the response is not a transcription; check base_url")]
    NotATranscript,
}

/// A client of one API.
#[derive(Clone, Debug)]
pub struct SpeechApi {
    client: HttpClient,
    base: String,
    key: Option<SecretString>,
    policy: HttpPolicy,
}

impl SpeechApi {
    /// A client for the API at `endpoint`. Connects to nothing.
    pub fn new(endpoint: SpeechEndpoint<'_>, egress: &HttpEgress) -> Result<Self, HttpError> {
        let base =
            Url::parse(endpoint.base_url).map_err(|_| HttpError::Address("the address does not parse"))?;
        endpoint.key.as_ref().map(bearer).transpose()?;
        let policy = HttpPolicy {
            connect_timeout: Some(CONNECT_TIMEOUT),
            timeout: Some(endpoint.timeout),
            max_body: endpoint.max_answer,
            reuse_connections: false,
            allow_plaintext: endpoint.allow_plaintext,
            ..HttpPolicy::default()
        };
        Ok(Self {
            client: HttpClient::for_url(egress, policy, &base)?,
            base: base.as_str().trim_end_matches('/').to_owned(),
            key: endpoint.key,
            policy,
        })
    }

    /// The text of a recording.
    pub async fn transcribe(
        &self,
        recording: SpokenFile<'_>,
        model: &str,
        language: Option<&str>,
    ) -> Result<String, SpeechError> {
        let url = format!("{}/audio/transcriptions", self.base);
        let url = self.client.check(&Request::new(&url, Body::Json(Vec::new())))?;
        let file = Part::file(recording.path)
            .await
            .map_err(SpeechError::Unreadable)?
            .file_name(recording.name.to_owned());
        // A MIME type that cannot be sent is left out: servers read the extension.
        let file = match reqwest::header::HeaderValue::from_str(recording.mime) {
            Ok(_) if !recording.mime.is_empty() => with_mime(file, recording).await?,
            _ => file,
        };
        let mut form = Form::new()
            .text("model", model.to_owned())
            .text("response_format", "json");
        if let Some(language) = language {
            form = form.text("language", language.to_owned());
        }
        let mut request = self
            .client
            .request(Method::POST, &url)
            .multipart(form.part("file", file));
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, bearer(key)?);
        }
        let response = ResponseStream::new(self.client.execute(request, &url).await?, self.policy);
        let (status, is_json) = (response.status, response.is_json());
        // The client's own timeout covers the body too.
        let body = response.body(Duration::MAX).await?;
        let response = HttpResponse {
            status,
            body,
            date: None,
        };
        read_transcript(&response, is_json).map_err(|error| self.without_key(error))
    }

    /// A text as a recording, in Ogg Opus where the server has that.
    pub async fn speak(&self, text: &str, model: &str, voice: &str) -> Result<Vec<u8>, SpeechError> {
        let body = json!({"model": model, "voice": voice, "input": text, "response_format": "opus"});
        let url = format!("{}/audio/speech", self.base);
        let request = Request::new(&url, Body::Json(body.to_string().into_bytes()));
        let response = self.client.send(request.bearer(self.key.as_ref())).await?;
        if response.is_success() {
            return Ok(response.body);
        }
        Err(self.without_key(SpeechError::Status {
            status: response.status,
            text: error_text(&response),
        }))
    }

    /// The same error without the key, which the server may have quoted.
    fn without_key(&self, error: SpeechError) -> SpeechError {
        match error {
            SpeechError::Status { status, text } => SpeechError::Status {
                status,
                text: without_key(&text, self.key.as_ref()),
            },
            other => other,
        }
    }
}

/// The same part with its type, if that is one.
async fn with_mime(file: Part, recording: SpokenFile<'_>) -> Result<Part, SpeechError> {
    match file.mime_str(recording.mime) {
        Ok(file) => Ok(file),
        Err(_) => Part::file(recording.path)
            .await
            .map(|file| file.file_name(recording.name.to_owned()))
            .map_err(SpeechError::Unreadable),
    }
}

/// The text of a response: `{"text": ..}`, or plain text.
fn read_transcript(response: &HttpResponse, is_json: bool) -> Result<String, SpeechError> {
    if !response.is_success() {
        return Err(SpeechError::Status {
            status: response.status,
            text: error_text(response),
        });
    }
    let text = match response.object() {
        Some(object) => object
            .get("text")
            .and_then(|text| text.as_str())
            .map(str::to_owned),
        None if is_json => None,
        None => String::from_utf8(response.body.clone()).ok(),
    };
    let text = text.ok_or(SpeechError::NotATranscript)?;
    Ok(text.trim().to_owned())
}

/// What a server reports: `{"error": ".."}` or `{"error": {"message": ".."}}`.
fn error_text(response: &HttpResponse) -> String {
    let object = response.object().unwrap_or_default();
    let error = object.get("error");
    let message = error.and_then(|error| error.get("message").or(Some(error))?.as_str());
    message.map(excerpt).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> HttpResponse {
        HttpResponse {
            status,
            body: body.as_bytes().to_vec(),
            date: None,
        }
    }

    #[test]
    fn transcripts_are_read_from_json_and_from_text() {
        let read = |body, is_json| read_transcript(&answer(200, body), is_json).ok();
        assert_eq!(read(r#"{"text": " hello \n"}"#, true).as_deref(), Some("hello"));
        assert_eq!(read("hello\n", false).as_deref(), Some("hello"));
        for nothing in [r#"{"txt": "x"}"#, "[1]", "not json"] {
            assert_eq!(read(nothing, true), None, "{nothing}");
        }
    }

    #[test]
    fn errors_quote_what_the_server_reports() {
        let wrong = |status, body| {
            read_transcript(&answer(status, body), true)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(wrong(500, ""), "HTTP status 500");
        assert_eq!(
            wrong(401, r#"{"error": {"message": "wrong key"}}"#),
            "HTTP status 401: wrong key"
        );
        assert_eq!(
            wrong(400, r#"{"error": "bad\naudio"}"#),
            "HTTP status 400: bad audio"
        );
    }
}
