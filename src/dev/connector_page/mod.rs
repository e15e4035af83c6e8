//! The page of the embedded connector: people of a simulated platform, every frame, and faults to cause.

mod commands;
mod deliveries;
mod export;
mod jobs;
mod personas;
mod view;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::response::Response;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::connector::Connector;
use super::page::{ActionError, PageBackend, PageDoor, PageFile, PageNews};
use super::presets::PlatformPreset;
use super::state::Hub;
use crate::adapter::SessionNames;
use personas::Personas;
use view::FeedCursor;

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
/// What else it understands.
const ECHO_MORE: [&str; 3] = ["ask Deploy now?", "tools=3 look around", "long=3000"];

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
    door: PageDoor,
    settings: PageSettings,
    personas: Mutex<Personas>,
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
        let (mut sessions, relay) = (settings.sessions.clone(), settings.relay.clone());
        sessions.add_platform(&settings.platform);
        let page = self.hub.page.get_or_init(|| {
            if let Some(status) = relay {
                notify_of(&self.hub, status);
            }
            Page {
                door: PageDoor::new(),
                personas: Mutex::new(Personas::new(
                    PlatformPreset::named(&settings.platform),
                    &settings.platform,
                )),
                settings,
                named: AtomicU64::new(0),
            }
        });
        self.hub.change(|state| state.feed.open(sessions));
        format!("{}{}", self.hub.http_base(), page.door.path())
    }
}

/// Wakes those who wait for a change when the relay's status changes.
fn notify_of(hub: &Arc<Hub>, mut status: watch::Receiver<Value>) {
    let hub = Arc::clone(hub);
    let runtime = hub.runtime.clone();
    runtime.spawn(async move {
        let changes = async {
            while status.changed().await.is_ok() {
                hub.changed.notify_waiters();
            }
        };
        tokio::select! {
            () = hub.stop.cancelled() => {}
            () = changes => {}
        }
    });
}

impl PageBackend for Hub {
    type Cursor = FeedCursor;

    fn door(&self) -> Option<&PageDoor> {
        Some(&self.page.get()?.door)
    }

    fn port(&self) -> u16 {
        self.addr.port()
    }

    fn changed(&self) -> &Notify {
        &self.changed
    }

    fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    fn setup(&self) -> Value {
        self.page
            .get()
            .map(|page| view::setup(self, page))
            .unwrap_or_default()
    }

    fn status(&self) -> Value {
        let relay = self.page.get().and_then(|page| page.settings.relay.as_ref());
        let relay = relay.map(|relay| relay.borrow().clone());
        view::status(&self.lock(), &relay.unwrap_or_default())
    }

    fn cursor(&self, after: Option<&str>) -> FeedCursor {
        after
            .and_then(FeedCursor::parse)
            .unwrap_or_else(|| FeedCursor::of_new_page(&self.lock()))
    }

    fn news(&self, cursor: &mut FeedCursor) -> PageNews {
        cursor.news(&self.lock())
    }

    fn row(&self, number: u64) -> Option<Value> {
        let state = self.lock();
        let record = state.frames.since(number).next()?;
        (record.sequence == number).then(|| view::row(&state, record, usize::MAX))
    }

    fn file(&self, id: &str) -> Option<PageFile> {
        let medium = self.lock().media.find(id)?.clone();
        Some(PageFile {
            mime: medium.mime,
            name: medium.filename,
            bytes: medium.bytes,
        })
    }

    fn keep(&self, file: PageFile) -> String {
        self.change(|state| {
            let owner = state.primary.clone();
            state
                .media
                .put(&owner, &file.mime, file.name.as_deref(), file.bytes)
        })
    }

    async fn act(self: &Arc<Self>, action: &str, body: &[u8]) -> Result<Value, ActionError> {
        match (action, self.page.get()) {
            ("fire", _) => jobs::fire(self, body).await,
            ("hand", _) => deliveries::hand(self, body).await,
            (_, Some(page)) => commands::perform(self, page, action, body),
            (_, None) => Err(ActionError::unknown(action)),
        }
    }

    async fn read(self: &Arc<Self>, name: &str) -> Option<Response> {
        match name {
            "export" => self.page.get().map(|page| export::recording(self, page)),
            "jobs" => Some(jobs::list(self)),
            "agents" => Some(deliveries::agents(self).await),
            _ => None,
        }
    }
}
