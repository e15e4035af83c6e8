//! The client of Discord's REST API, and the dialler of its gateway. It holds the bot's token.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::multipart::{Form, Part};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use url::Url;

use super::http::{
    Body, HttpClient, HttpEgress, HttpError, HttpPolicy, Request, ResponseStream, retry_after,
};
use super::media::recording_length;
use super::socket::{DialError, DialRequest, Dialed, Dialer};
use crate::direct::discord::{RateHeaders, RestAnswer, RestMethod, RestRequest};

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a request.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a request that uploads a file.
const FILE_TIMEOUT: Duration = Duration::from_secs(110);
/// Maximum size of an answer: a hundred messages.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// Maximum size of a payload of the gateway: a large server has many channels.
const MAX_PAYLOAD: usize = 16 * 1024 * 1024;
/// Bytes that may wait to be written to the gateway.
const MAX_WRITE_BUFFER: usize = 1024 * 1024;
/// The picture of a voice message: a flat line, in Base64.
const WAVEFORM: &str = "QEBAQEBAQEBAQEBA";

/// A file of this machine in a request.
#[derive(Clone, Debug)]
pub struct DiscordFile {
    /// Where it is.
    pub path: PathBuf,
    /// The name to show.
    pub name: String,
    /// Whether it is a voice message, whose length is told.
    pub is_voice: bool,
}

/// A client of Discord for one bot.
pub struct DiscordClient {
    base: Url,
    token: SecretString,
    http: HttpClient,
    dialer: Dialer,
    user_agent: String,
}

impl std::fmt::Debug for DiscordClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiscordClient")
            .field("base", &self.base.as_str())
            .finish_non_exhaustive()
    }
}

impl DiscordClient {
    /// A client for the API at `base`. Connects to nothing.
    pub fn new(base: &str, token: SecretString, egress: HttpEgress) -> Result<Self, HttpError> {
        let mut base = Url::parse(base).map_err(|_| HttpError::Address("it does not parse"))?;
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let http = HttpClient::for_url(&egress, policy(), &base)?;
        let dialer = Dialer::new(egress.tls.clone(), egress.proxies.clone(), CONNECT_TIMEOUT);
        Ok(Self {
            base,
            token,
            http,
            dialer,
            user_agent: egress.user_agent,
        })
    }

    /// The bot's token, for the gateway's handshake.
    pub fn token(&self) -> &SecretString {
        &self.token
    }

    /// Host of the API, for people.
    pub fn host(&self) -> String {
        self.base.host_str().unwrap_or_default().to_owned()
    }

    /// Opens a socket to the gateway.
    pub async fn dial(&self, url: &str) -> Result<Dialed, DialError> {
        let request = DialRequest {
            url,
            bearer: None,
            user_agent: &self.user_agent,
            allow_plaintext: false,
            max_message_bytes: MAX_PAYLOAD,
            max_write_buffer_bytes: MAX_WRITE_BUFFER,
        };
        self.dialer.dial(request).await
    }

    /// Makes a request; returns its answer, the status, and what the headers say about limits.
    pub async fn request(&self, request: &RestRequest) -> (RestAnswer, u16, RateHeaders) {
        self.answer_to(request, None).await
    }

    async fn answer_to(&self, request: &RestRequest, form: Option<Form>) -> (RestAnswer, u16, RateHeaders) {
        match self.exchange(request, form).await {
            Ok((status, mut headers, body)) => {
                let answer = RestAnswer::read(status, &body, &mut headers);
                (answer, status, headers)
            }
            Err(error) => (failed(&error), 0, RateHeaders::default()),
        }
    }

    /// Makes a request that uploads files.
    pub async fn upload(
        &self,
        request: &RestRequest,
        files: &[DiscordFile],
    ) -> (RestAnswer, u16, RateHeaders) {
        let (mut parts, mut attachments) = (Vec::new(), Vec::new());
        for (id, file) in files.iter().enumerate() {
            match Part::file(&file.path).await {
                Ok(part) => parts.push(part.file_name(file.name.clone())),
                // Trying again would not bring it back.
                Err(error) => {
                    let answer = RestAnswer::Error {
                        status: 400,
                        code: 0,
                        message: format!("the file cannot be read: {error}"),
                        retry_after: None,
                    };
                    return (answer, 0, RateHeaders::default());
                }
            }
            let mut attachment = json!({ "id": id, "filename": file.name });
            if file.is_voice {
                let secs = recording_length(&file.path).await.unwrap_or(1).max(1);
                attachment["duration_secs"] = secs.into();
                attachment["waveform"] = WAVEFORM.into();
            }
            attachments.push(attachment);
        }
        let mut body = request.body.clone().unwrap_or_default();
        body["attachments"] = attachments.into();
        let mut form = Form::new().text("payload_json", body.to_string());
        for (id, part) in parts.into_iter().enumerate() {
            form = form.part(format!("files[{id}]"), part);
        }
        self.answer_to(request, Some(form)).await
    }

    async fn exchange(
        &self,
        request: &RestRequest,
        form: Option<Form>,
    ) -> Result<(u16, RateHeaders, Vec<u8>), HttpError> {
        let url = format!("{}{}", self.base, request.path);
        let url = self.http.check(&Request::new(&url, Body::Get))?;
        let method = match request.method {
            RestMethod::Get => Method::GET,
            RestMethod::Post => Method::POST,
            RestMethod::Put => Method::PUT,
            RestMethod::Patch => Method::PATCH,
            RestMethod::Delete => Method::DELETE,
        };
        let mut bearer = HeaderValue::from_str(&format!("Bot {}", self.token.expose_secret()))
            .map_err(|_| HttpError::Credential)?;
        bearer.set_sensitive(true);
        let http = match form {
            Some(_) => self.http.clone().with_timeout(FILE_TIMEOUT),
            None => self.http.clone(),
        };
        let mut builder = http.request(method, &url).header(AUTHORIZATION, bearer);
        builder = match (form, &request.body) {
            (Some(form), _) => builder.multipart(form),
            (None, Some(body)) => builder
                .header(CONTENT_TYPE, "application/json")
                .body(body.to_string()),
            (None, None) => builder,
        };
        let response = http.execute(builder, &url).await?;
        let (status, headers) = (response.status().as_u16(), rate_headers(response.headers()));
        let body = ResponseStream::new(response, policy()).body(CALL_TIMEOUT).await?;
        Ok((status, headers, body))
    }
}

fn rate_headers(headers: &HeaderMap) -> RateHeaders {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let secs = |name: &str| {
        let secs = text(name)?.parse::<f64>().ok()?;
        Duration::try_from_secs_f64(secs).ok()
    };
    RateHeaders {
        remaining: text("x-ratelimit-remaining").and_then(|count| count.parse().ok()),
        reset_after: secs("x-ratelimit-reset-after"),
        retry_after: retry_after(headers),
        is_global: text("x-ratelimit-global") == Some("true"),
        is_shared: text("x-ratelimit-scope") == Some("shared"),
    }
}

fn policy() -> HttpPolicy {
    HttpPolicy {
        connect_timeout: Some(CONNECT_TIMEOUT),
        timeout: Some(CALL_TIMEOUT),
        max_body: MAX_ANSWER,
        ..HttpPolicy::default()
    }
}

/// What a request without a response means. Only what never left this machine may be repeated safely.
fn failed(error: &HttpError) -> RestAnswer {
    match error {
        HttpError::Broken(_) | HttpError::TimedOut(_) | HttpError::TooLarge(_) | HttpError::Events(_) => {
            RestAnswer::Unknown
        }
        _ => RestAnswer::NotSent(error.to_string()),
    }
}
