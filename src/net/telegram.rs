//! The client of the Bot API: the only place that holds a bot's token.
//!
//! The API puts the token into the path of every address, so no address is ever logged, returned or quoted in an error. Polls
//! have connections of their own: a poll that hangs delays no answer, and the other way round.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::multipart::{Form, Part};
use reqwest::{Method, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};
use sha2::Sha256;
use url::Url;

use super::http::{
    Body, HttpClient, HttpEgress, HttpError, HttpPolicy, HttpResponse, Request, ResponseStream,
};
use crate::direct::telegram::ApiAnswer;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a call without a file.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of an upload or a download: lines are slow, and a server may transcode a video before it answers.
const FILE_TIMEOUT: Duration = Duration::from_secs(110);
/// How much longer than the poll itself its exchange may take.
const POLL_MARGIN: Duration = Duration::from_secs(15);
/// Maximum size of an answer: a poll returns at most about 4 MiB.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// A client of the Bot API for one bot.
pub struct BotClient {
    base: Url,
    token: SecretString,
    egress: HttpEgress,
    calls: HttpClient,
    polls: Mutex<HttpClient>,
}

impl std::fmt::Debug for BotClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BotClient")
            .field("base", &self.base.as_str())
            .finish_non_exhaustive()
    }
}

impl BotClient {
    /// A client for the API at `base`. Connects to nothing.
    pub fn new(base: &str, token: SecretString, egress: HttpEgress) -> Result<Self, HttpError> {
        let mut base = Url::parse(base).map_err(|_| HttpError::Address("it does not parse"))?;
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let calls = HttpClient::for_url(&egress, policy(), &base)?;
        let polls = Mutex::new(HttpClient::for_url(&egress, policy(), &base)?);
        Ok(Self {
            base,
            token,
            egress,
            calls,
            polls,
        })
    }

    /// A key that only holders of the token can compute, for `purpose`.
    pub fn derived_key(&self, purpose: &str) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.token.expose_secret().as_bytes())
            .expect("HMAC takes a key of any length");
        mac.update(purpose.as_bytes());
        mac.finalize().into_bytes().into()
    }

    /// Host of the API, for people.
    pub fn host(&self) -> String {
        self.base.host_str().unwrap_or_default().to_owned()
    }

    /// Calls a method.
    pub async fn call(&self, method: &str, body: &Map<String, Value>) -> ApiAnswer {
        let url = self.address("", method);
        self.answer(post(&self.calls, &url, body).await)
    }

    /// Asks for updates; the server waits up to `wait` for one.
    pub async fn poll(&self, body: &Map<String, Value>, wait: Duration) -> ApiAnswer {
        let url = self.address("", "getUpdates");
        let client = self.polls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let client = client.with_timeout(wait + POLL_MARGIN);
        self.answer(post(&client, &url, body).await)
    }

    /// Polls on a connection of its own from now on: the last one may be dead without knowing it.
    pub fn renew_polls(&self) {
        if let Ok(client) = HttpClient::for_url(&self.egress, policy(), &self.base) {
            *self.polls.lock().unwrap_or_else(PoisonError::into_inner) = client;
        }
    }

    /// Calls a method with files of this machine in their fields.
    pub async fn upload(&self, method: &str, body: &Map<String, Value>, files: &[FilePart]) -> ApiAnswer {
        let url = self.address("", method);
        let Ok(parsed) = self.calls.check(&Request::new(&url, Body::Json(Vec::new()))) else {
            return ApiAnswer::NotSent("the address cannot be used".to_owned());
        };
        let mut form = Form::new();
        for file in files {
            match Part::file(&file.path).await {
                Ok(part) => form = form.part(file.field.clone(), part.file_name(file.name.clone())),
                // Trying again would not bring it back.
                Err(error) => {
                    return ApiAnswer::Error {
                        code: 400,
                        description: format!("the file cannot be read: {error}"),
                        retry_after: None,
                        migrate_to: None,
                    };
                }
            }
        }
        for (name, value) in body {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            form = form.text(name.clone(), text);
        }
        let client = self.calls.clone().with_timeout(FILE_TIMEOUT);
        let request = client.request(Method::POST, &parsed);
        let request = request.multipart(form);
        let response = match client.execute(request, &parsed).await {
            Ok(response) => response,
            Err(error) => return failed(&error),
        };
        let status = response.status().as_u16();
        let body = ResponseStream::new(response, policy()).body(CALL_TIMEOUT).await;
        self.answer(body.map(|body| HttpResponse {
            status,
            body,
            date: None,
        }))
    }

    /// Requests a file by the path that `getFile` returned.
    pub(super) async fn file(&self, path: &str) -> Result<Response, HttpError> {
        let url = self.address("file/", path);
        let parsed = self.calls.check(&Request::new(&url, Body::Get))?;
        let client = self.calls.clone().with_timeout(FILE_TIMEOUT);
        let request = client.request(Method::GET, &parsed);
        client.execute(request, &parsed).await
    }

    /// What a response says; a server or proxy that quotes the address gives the token away to nobody.
    fn answer(&self, response: Result<HttpResponse, HttpError>) -> ApiAnswer {
        let mut answer = match response {
            Ok(response) => ApiAnswer::read(response.status, &response.body),
            Err(error) => failed(&error),
        };
        if let ApiAnswer::Error { description, .. } = &mut answer {
            let token = self.token.expose_secret();
            if description.contains(token) {
                *description = description.replace(token, "<hidden>");
            }
        }
        answer
    }

    fn address(&self, folder: &str, rest: &str) -> String {
        format!("{}{folder}bot{}/{rest}", self.base, self.token.expose_secret())
    }
}

/// A file of this machine in a call.
#[derive(Clone, Debug)]
pub struct FilePart {
    /// The parameter that holds the file.
    pub field: String,
    /// The path of the file.
    pub path: PathBuf,
    /// The file name to show.
    pub name: String,
}

fn policy() -> HttpPolicy {
    HttpPolicy {
        connect_timeout: Some(CONNECT_TIMEOUT),
        timeout: Some(CALL_TIMEOUT),
        max_body: MAX_ANSWER,
        ..HttpPolicy::default()
    }
}

async fn post(client: &HttpClient, url: &str, body: &Map<String, Value>) -> Result<HttpResponse, HttpError> {
    let body = serde_json::to_vec(body).unwrap_or_default();
    let request = Request::new(url, Body::Json(body)).accept("application/json");
    client.send(request).await
}

/// What a call without a response means. Only what never left this machine may be repeated safely.
fn failed(error: &HttpError) -> ApiAnswer {
    match error {
        HttpError::Broken(_) | HttpError::TimedOut(_) | HttpError::TooLarge(_) | HttpError::Events(_) => {
            ApiAnswer::Unknown
        }
        HttpError::Redirect { .. } => ApiAnswer::Error {
            code: 0,
            description: error.to_string(),
            retry_after: None,
            migrate_to: None,
        },
        HttpError::Setup(_)
        | HttpError::Address(_)
        | HttpError::Plaintext { .. }
        | HttpError::Credential
        | HttpError::Header(_)
        | HttpError::NotActive
        | HttpError::Connect { .. } => ApiAnswer::NotSent(error.to_string()),
    }
}
