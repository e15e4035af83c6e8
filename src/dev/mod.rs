//! The embedded connector: the connector's side of the contract on loopback, over real sockets.
//!
//! It authenticates dials, answers hellos, buffers and drains messages, carries out ops and keeps what was
//! said where anyone can look at it; and it can be told to misbehave in every way that real connectors and
//! networks do. It never listens on anything but loopback, never reaches out to anything but loopback, and
//! keeps everything in memory, bounded.
//!
//! ```no_run
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

mod buffer;
mod chats;
mod connector;
mod deeds;
mod faults;
mod feed;
mod hear;
mod http;
mod ledger;
mod media;
mod observe;
mod ops;
mod page;
mod presets;
mod record;
mod script;
mod session;
mod settings;
mod state;
mod trace;
mod upgrade;
mod wake;

pub use buffer::{BufferId, NotBuffered};
pub use connector::{Connector, text_event};
pub use faults::{DialRule, Route, RouteFault, When};
pub use ledger::{Sent, Thread};
pub use observe::{Mark, NotSeen};
pub use page::{HINTS, Hint, PageSettings};
pub use presets::Preset;
pub use record::{Ack, Closed, ClosedBy, ConnectionId, Dial, Direction, Record, Request, TokenVerdict};
pub use script::{Answer, ResultRule};
pub use settings::{ConnectorSettings, Credentials, SecondConnection, random_token};
pub use trace::{BadTrace, Recording, Trace, TraceLine, Traced};
