//! The running thing: drives the link, the sessions, the journal and the agent; the only place that spawns.
//!
//! [`Relay`] is built from settings and an agent and runs until it is told to stop. Inside, one task owns the
//! link (`drive`), two own each socket (`connection`), one owns everything else (`core`), and one runs each
//! turn (`turn_task`) that does not end at once (`at_once`). They speak over bounded channels. Decisions are made in the pure layers; what is here
//! performs them.

mod arrival;
mod at_once;
pub mod boot;
mod builder;
mod choices;
mod clock;
mod commands;
mod connection;
mod core;
mod crew;
mod declined;
mod desk;
mod drive;
mod egress;
mod endings;
mod frames;
mod handle;
pub mod hiring;
mod inquiry;
mod lever;
mod live;
mod memory;
mod metrics;
mod owed;
mod owed_op;
mod parcels;
mod progress;
mod prompts;
mod recovery;
mod renewal;
mod serve;
mod sessions;
mod settings;
mod shutdown;
mod sleep;
mod status;
mod tell;
#[cfg(feature = "otlp")]
mod traces;
#[cfg(not(feature = "otlp"))]
#[path = "untraced.rs"]
mod traces;
mod transport;
mod turn_exchange;
mod turn_task;
mod turns;
mod wishes;

pub use self::core::Ended;
pub use builder::{BuildError, Relay, RelayBuilder};
pub use crew::Member;
pub use handle::{RelayHandle, SendError};
pub use lever::Lever;
pub use live::{Credentials, LiveSettings, LiveTransport, USER_AGENT};
pub use memory::{Answering, DeliverError, MemoryConnector, MemoryTransport, Record, SeenOp};
pub use metrics::{Counts, Histogram, LinkMeasures, Metrics};
pub use sessions::{SessionList, SessionStatus};
pub use status::{AgentStatus, DescriptorStatus, Status, Tally};
pub use transport::{Cargo, ChatInfo, Delivery, LinkView, RelayTransport, Settlements, TransportFuture};
