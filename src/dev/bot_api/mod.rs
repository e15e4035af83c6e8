//! A fake Telegram Bot API on loopback: what bots see of Telegram, over real HTTP.
//!
//! It takes calls as the real server does, with its limits, its refusals and its queue of updates, and records them without
//! the token. People write, press and react through its handle or its page. It can be made to fail as networks and the real
//! server do. It keeps everything in memory, bounded, and reaches out to nobody: a file that is sent by URL is not fetched,
//! a webhook is not called.
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
//! let answer = api.wait_for_answer(100, "an answer", Duration::from_secs(30), |_| true).await?;
//! println!("{}", answer.html);
//! # Ok(())
//! # }
//! ```

mod calls;
mod chats;
mod files;
mod flood_control;
mod html;
mod markup;
mod methods;
mod page;
mod params;
mod people;
mod polling;
mod refusal;
mod rules;
mod server;
mod settings;
mod state;
mod updates;
mod view;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

pub use calls::BotApiCall;
pub use chats::{ApiChatKind, ApiPerson, BotStanding};
pub use flood_control::{FloodLimits, FloodViolation};
pub use people::{PersonFile, PersonMessage};
pub use rules::{BotApiAnswer, BotApiRule};
pub use settings::BotApiSettings;
pub use view::{BotApiNotSeen, SeenButton, SeenDraft, SeenFile, SeenMessage, SeenPress};

use super::listener::{ServerPort, accept};
use server::{BotApiHub, router};
use state::{BotApiState, OTHER_POLL};

/// A running fake Bot API on 127.0.0.1. Dropping it cuts its connections and frees its port.
pub struct BotApi {
    hub: Arc<BotApiHub>,
    port: Mutex<ServerPort>,
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
        let addr = listener.local_addr()?;
        let hub = Arc::new(BotApiHub::new(addr, BotApiState::new(settings)));
        let port = listen(&hub, listener);
        Ok(Self {
            hub,
            port: Mutex::new(port),
        })
    }

    /// Closes the port and cuts every connection. The port is not given to anybody else; chats and updates stay.
    pub async fn take_down(&self) {
        self.port.lock().await.close(self.hub.addr).await;
    }

    /// Takes [`take_down`](Self::take_down) back, on the same port.
    pub async fn bring_up(&self) -> io::Result<()> {
        let mut port = self.port.lock().await;
        if let Some(listener) = port.reopen(self.hub.addr).await? {
            *port = listen(&self.hub, listener);
        }
        Ok(())
    }

    /// The address that a bot is given instead of `https://api.telegram.org`.
    pub fn base(&self) -> String {
        format!("http://{}", self.hub.addr)
    }

    /// The bot's token.
    pub fn token(&self) -> SecretString {
        self.hub.lock().settings.token.clone()
    }

    /// The bot's id.
    pub fn bot_id(&self) -> i64 {
        self.hub.lock().bot.id
    }

    /// Adds a rule for what goes wrong.
    pub fn script(&self, rule: BotApiRule) {
        self.hub.change(|state| state.rules.add(rule));
    }

    /// Takes every rule away.
    pub fn clear_script(&self) {
        self.hub.change(|state| state.rules.clear());
    }

    /// Refuses the token from now on, or accepts it again.
    pub fn set_revoked(&self, is_revoked: bool) {
        self.hub.change(|state| state.is_revoked = is_revoked);
    }

    /// Ends the poll that waits, as another poller with the same token does. Returns whether one waited.
    pub fn steal_poll(&self) -> bool {
        self.hub.change(|state| state.end_poll(OTHER_POLL))
    }

    /// Gives the last `count` delivered updates once more with the next poll.
    pub fn repeat_updates(&self, count: usize) {
        self.hub.change(|state| state.updates.repeat(count));
    }

    /// Turns the next `count` batches around that have several updates.
    pub fn reverse_batches(&self, count: usize) {
        self.hub.change(|state| state.updates.reverse(count));
    }

    /// Lets the ids of updates go on from here, as after a quiet week. Refused while updates wait.
    pub fn restart_update_ids(&self, id: i64) -> bool {
        self.hub.change(|state| state.updates.restart_at(id))
    }

    /// Forgets the updates that wait.
    pub fn forget_updates(&self) {
        self.hub.change(|state| state.updates.clear());
    }

    /// Makes updates that wait and messages older.
    pub fn age(&self, by: Duration) {
        let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
        self.hub.change(|state| {
            state.updates.age(seconds);
            for message in state
                .chats
                .values_mut()
                .flat_map(|chat| chat.messages.values_mut())
            {
                message.sent_at = message.sent_at.saturating_sub(seconds);
            }
        });
    }

    /// Sets a webhook, as somebody else with the token does; `None` takes it away.
    pub fn set_webhook(&self, url: Option<&str>) {
        self.hub.change(|state| {
            state.webhook = url.map(str::to_owned);
            if url.is_some() {
                state.end_poll("terminated by setWebhook request");
            }
        });
    }

    /// The webhook that is set.
    pub fn webhook(&self) -> Option<String> {
        self.hub.lock().webhook.clone()
    }

    /// Holds calls to limits from now on; `None` holds them to none.
    pub fn set_flood_limits(&self, limits: Option<FloodLimits>) {
        self.hub.change(|state| state.flood.set(limits));
    }
}

fn listen(hub: &Arc<BotApiHub>, listener: TcpListener) -> ServerPort {
    let down = hub.stop.child_token();
    let task = tokio::spawn(accept(listener, router(hub), down.clone()));
    ServerPort::Open { down, task }
}
