//! The embedded connector: the connector's side of the contract on loopback, over real sockets.
//!
//! It authenticates dials, answers hellos, buffers and drains messages, carries out ops and keeps what was
//! said where anyone can look at it; and it can be told to misbehave in every way that real connectors and
//! networks do. It never listens on anything but loopback, never reaches out to anything but loopback, and
//! keeps everything in memory, bounded.

mod buffer;
mod chats;
mod connector;
mod faults;
mod hear;
mod http;
mod ledger;
mod media;
mod observe;
mod ops;
mod presets;
mod record;
mod script;
mod session;
mod settings;
mod state;
mod upgrade;
mod wake;

pub use buffer::{BufferFull, BufferId};
pub use connector::{Connector, text_event};
pub use faults::{DialRule, Route, RouteFault, When};
pub use ledger::{Sent, Thread};
pub use observe::{Mark, NotSeen};
pub use presets::Preset;
pub use record::{Ack, Closed, ClosedBy, ConnectionId, Dial, Direction, Record, Request, TokenVerdict};
pub use script::{Answer, ResultRule};
pub use settings::{ConnectorSettings, Credentials, SecondConnection};
