//! The chat page: a person's view of the connector, served on loopback to whoever holds its token.
//!
//! Files are part of the binary. What happens goes to the page as server-sent events, what a person does comes
//! back as requests. It never answers a request whose `Host` is not this loopback address, whose origin is another
//! page, or whose token is wrong, and the page it serves may load nothing from anywhere else.

pub(super) mod assets;
mod commands;
mod deliveries;
mod events;
mod export;
mod jobs;
mod personas;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::any;
use axum::{Router, body::Body};
use http::{Method, StatusCode, header};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use super::connector::Connector;
use super::connector::random_token;
use super::http::{is_token, plain, reply};
use super::presets::PlatformPreset;
use super::state::Hub;
use crate::adapter::SessionNames;
use personas::Personas;

/// Maximum pages open at the same time.
const MAX_LISTENERS: usize = 8;
/// Letters of the token in the address.
const TOKEN_LENGTH: usize = 32;

/// Something to type, and what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// What to type.
    pub say: &'static str,
    /// What can be seen then.
    pub shows: &'static str,
}

impl Hint {
    /// Three things to try first with an agent of this kind, in the terminal and on the page.
    pub fn for_agent(kind: &str) -> &'static [Self; 3] {
        if kind == "echo" { &ECHO_HINTS } else { &HINTS }
    }
}

/// The built-in agent does what the text says.
const ECHO_HINTS: [Hint; 3] = [
    Hint {
        say: "hello",
        shows: "an answer over a real link",
    },
    Hint {
        say: "stream=200 words that are written one after the other",
        shows: "an answer that grows",
    },
    Hint {
        say: "sleep=20000 slow",
        shows: "a turn to stop: Ctrl-C here, Stop on the page",
    },
];

const HINTS: [Hint; 3] = [
    Hint {
        say: "hello",
        shows: "an answer over a real link",
    },
    Hint {
        say: "Count to one hundred in words.",
        shows: "a turn to stop: Ctrl-C here, Stop on the page",
    },
    Hint {
        say: "/help",
        shows: "the commands that the relay itself answers",
    },
];

/// What the page shows about its surroundings.
#[derive(Debug)]
pub struct PageSettings {
    /// The platform that the chats are on.
    pub platform: String,
    /// Who answers.
    pub agent: String,
    /// What to try first.
    pub hints: &'static [Hint],
    /// How the relay names sessions, so that Stop names the right ones.
    pub sessions: SessionNames,
    /// The relay's status, when it runs in this process; `null` while it does not.
    pub relay: Option<watch::Receiver<Value>>,
}

/// An opened page.
pub struct Page {
    token: String,
    settings: PageSettings,
    personas: Mutex<Personas>,
    listeners: Arc<Semaphore>,
    named: AtomicU64,
}

impl Page {
    /// A name for a message, never given twice.
    fn message_id(&self) -> String {
        format!("p{}", self.named.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn personas(&self) -> std::sync::MutexGuard<'_, Personas> {
        self.personas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn preset(&self) -> PlatformPreset {
        PlatformPreset::named(&self.settings.platform)
    }
}

impl Connector {
    /// Opens the chat page and returns its address, token included. A second call returns the same address.
    pub fn open_page(&self, settings: PageSettings) -> String {
        let mut sessions = settings.sessions.clone();
        sessions.add_platform(&settings.platform);
        let page = self.hub.page.get_or_init(|| Page {
            token: random_token()[..TOKEN_LENGTH].to_owned(),
            personas: Mutex::new(Personas::new(
                PlatformPreset::named(&settings.platform),
                &settings.platform,
            )),
            settings,
            listeners: Arc::new(Semaphore::new(MAX_LISTENERS)),
            named: AtomicU64::new(0),
        });
        self.hub.change(|state| state.feed.open(sessions));
        format!("{}/dev/{}/", self.hub.http_base(), page.token)
    }
}

/// The page's routes.
pub(super) fn routes() -> Router<Arc<Hub>> {
    let root = |state: State<Arc<Hub>>, Path(token): Path<String>, request: Request| {
        serve(state.0, token, String::new(), request)
    };
    let below = |state: State<Arc<Hub>>, Path((token, rest)): Path<(String, String)>, request: Request| {
        serve(state.0, token, rest, request)
    };
    Router::new()
        .route("/dev/{token}", any(root))
        .route("/dev/{token}/", any(root))
        .route("/dev/{token}/{*rest}", any(below))
}

async fn serve(hub: Arc<Hub>, token: String, rest: String, request: Request) -> Response {
    let response = match hub.page.get().filter(|page| is_token(&page.token, &token)) {
        None => plain(StatusCode::NOT_FOUND, "there is no such page"),
        Some(page) => match assets::check(hub.addr.port(), request.method(), &rest, request.headers()) {
            Err(refusal) => plain(StatusCode::FORBIDDEN, &refusal.to_string()),
            Ok(()) => route(&hub, page, &rest, request).await,
        },
    };
    assets::harden(response)
}

async fn route(hub: &Arc<Hub>, page: &Page, rest: &str, request: Request) -> Response {
    let get = request.method() == Method::GET || request.method() == Method::HEAD;
    let post = request.method() == Method::POST;
    match rest.split_once('/').unwrap_or((rest, "")) {
        ("", _) if get && !request.uri().path().ends_with('/') => Response::builder()
            .status(StatusCode::PERMANENT_REDIRECT)
            .header(header::LOCATION, format!("/dev/{}/", page.token))
            .body(Body::empty())
            .expect("the token is hex"),
        ("events", "") if get => events::stream(hub, page, &request),
        ("export", "") if get => export::recording(hub, page),
        ("alive", "") if get => reply(&Value::Bool(true)),
        ("frame", number) if get => events::frame(hub, number),
        ("media", id) if get => commands::medium(hub, id),
        ("jobs", "") if get => jobs::list(hub),
        ("fire", "") if post => jobs::fire(hub, request).await,
        ("agents", "") if get => deliveries::agents(hub).await,
        ("hand", "") if post => deliveries::hand(hub, request).await,
        ("upload", "") if post => commands::upload(hub, request).await,
        (command, "") if post => commands::run_command(hub, page, command, request).await,
        _ if get => assets::file(rest),
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "this page answers GET and POST"),
    }
}
