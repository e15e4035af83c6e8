//! A fake Telegram Bot API on loopback: what bots see of Telegram, over real HTTP.
//!
//! It takes calls as the real server does, with its limits, its refusals and its queue of updates, and records them without
//! the token. People write, press and react on its page. It keeps everything in memory, bounded, and reaches out to nobody:
//! a file that is sent by URL is not fetched, a webhook is not called.
//!
#![cfg_attr(feature = "internals", doc = "```no_run")]
#![cfg_attr(not(feature = "internals"), doc = "```ignore")]
//! use std::time::Duration;
//! use hermes_relay::dev::{ApiPerson, BotApi, BotApiSettings};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let api = BotApi::start(BotApiSettings::default()).await?;
//! api.add_person(ApiPerson::named(100, "Ada"));
//! println!("a bot at {} with the token of `token()`", api.base());
//! api.wait_polled(Duration::from_secs(30)).await?;
//! api.say(100, 100, "hello");
//! println!("{}", api.wait_for_answer(100, Duration::from_secs(30)).await?);
//! # Ok(())
//! # }
//! ```

mod chats;
mod files;
mod html;
mod markup;
mod methods;
mod page;
mod params;
mod people;
mod polling;
mod refusal;
mod server;
mod settings;
mod state;
mod updates;
mod view;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use secrecy::SecretString;
use tokio::net::TcpListener;

pub use chats::{ApiChat, ApiChatKind, ApiPerson, BotStanding};
pub(in crate::dev) use files::ApiFiles;
pub use markup::{ApiSpan, ApiText};
pub use methods::method_named;
pub use params::{ApiParams, UploadedFile};
pub use people::{PersonFile, PersonMessage};
pub use server::{BotApiHub, unix_now};
pub use settings::BotApiSettings;
pub use state::MessageSender;
pub use updates::QueuedUpdate;
pub use view::{BotApiNotSeen, file_id};

use super::listener::accept;
use server::router;
use state::BotApiState;

/// A fake Bot API on 127.0.0.1. Dropping it cuts its connections.
pub struct BotApi {
    /// What its tasks share.
    pub hub: Arc<BotApiHub>,
}

impl Drop for BotApi {
    fn drop(&mut self) {
        self.hub.stop.cancel();
    }
}

impl BotApi {
    /// Binds the port and starts serving.
    pub async fn start(settings: BotApiSettings) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, settings.port)).await?;
        let api = Self::new(settings, listener.local_addr()?);
        tokio::spawn(accept(listener, api.router(), api.hub.stop.clone()));
        Ok(api)
    }

    /// A fake whose [`router`](Self::router) is served at this address.
    pub fn new(settings: BotApiSettings, addr: SocketAddr) -> Self {
        Self {
            hub: Arc::new(BotApiHub::new(addr, BotApiState::new(settings))),
        }
    }

    /// Its routes.
    pub fn router(&self) -> Router {
        router(&self.hub)
    }

    /// The address that a bot is given instead of `https://api.telegram.org`.
    pub fn base(&self) -> String {
        format!("http://{}", self.hub.addr)
    }

    /// The bot's token.
    pub fn token(&self) -> SecretString {
        self.hub.lock().settings.token.clone()
    }

    /// Forgets the updates that wait.
    pub fn forget_updates(&self) {
        self.hub.change(|state| state.updates.clear());
    }
}
