//! The embedded connector: the connector's side of the contract on loopback, over real sockets. Beside it, the embedded
//! managed scheduler ([`EmbeddedScheduler`]), a fake Telegram Bot API ([`BotApi`]), and a fake Discord ([`FakeDiscord`]).
//!
//! It authenticates dials, answers hellos, buffers and delivers messages, performs ops and records frames. It never listens
//! on anything but loopback, never reaches out to anything but loopback, and keeps everything in memory, bounded.
//!
//! Tests stand in front of these servers (`tests/support/dev`): around a `router()` for everything that is HTTP, and around
//! [`ConnectorState::handle`] for what happens on sockets.
//!
#![cfg_attr(feature = "internals", doc = "```no_run")]
#![cfg_attr(not(feature = "internals"), doc = "```ignore")]
//! use std::time::Duration;
//! use hermes_relay::dev::{Connector, ConnectorSettings, text_event};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let connector = Connector::start(ConnectorSettings::default()).await?;
//! println!("dial {} as {:?}", connector.url(), connector.credentials());
//! connector.wait_connected(Duration::from_secs(30)).await?;
//! connector.deliver(&text_event("discord", "chat-1", "message-1", "hello"))?;
//! let reply = connector.reply_to(Duration::from_secs(30), "message-1").await?;
//! println!("{}", reply.text);
//! # Ok(())
//! # }
//! ```

mod actions;
mod bot_api;
mod buffer;
mod calls;
mod chat_contents;
mod connector;
mod connector_page;
mod embedded_scheduler;
mod fake_discord;
mod faults;
mod feed;
mod gateway_frames;
mod http;
mod listener;
mod ops;
mod page;
mod presets;
mod record;
mod scheduler_keys;
mod socket;
mod state;
mod trace;

pub use bot_api::{
    ApiChat, ApiChatKind, ApiParams, ApiPerson, ApiSpan, ApiText, BotApi, BotApiHub, BotApiNotSeen,
    BotApiSettings, BotStanding, MessageSender, PersonFile, PersonMessage, QueuedUpdate, UploadedFile,
    file_id, method_named, unix_now,
};
pub use buffer::{BufferId, NotBuffered};
pub use chat_contents::{OpenedThread, SentMessage};
pub use connector::{Connector, ConnectorSettings, GatewayCredentials, random_token, text_event};
pub use connector_page::{Hint, PageSettings};
pub use embedded_scheduler::{
    EmbeddedScheduler, FireAttempt, SchedulerSettings, SchedulerShared, SchedulerView,
};
pub use fake_discord::{
    DiscordPerson, DiscordRoom, FakeDiscord, FakeDiscordHub, FakeDiscordSettings, FakeDiscordState,
    GatewayFaults, MessageOrigin, RoomKind, RoomMessage,
};
pub use gateway_frames::{ReceivedFrame, SocketEvent};
pub use page::MAX_PAGE_PEOPLE;
pub use presets::PlatformPreset;
pub use record::{Closed, ClosedBy, ConnectionId, Direction, Mark, NotSeen, RecordedFrame, TokenCheck};
pub use scheduler_keys::SigningKeys;
pub use state::{ConnectorState, Hub, SocketEnd};
pub use trace::{BadTrace, Recording, Trace, TraceLine, Traced};
