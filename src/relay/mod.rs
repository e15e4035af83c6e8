//! The running relay: drives the link, the sessions, the journal and the agents; the only place that spawns.
//!
//! [`Relay`] is built from settings and agents and runs until it is asked to stop. Inside, one task runs the event loop, one
//! drives the link (`transport::driver`), two serve each socket (`transport::connection`), and one runs each turn
//! (`turn_task`). They communicate over bounded channels.
//!
//! The event loop holds the parts; each part owns its state and imports no other part. A part takes an event and pushes
//! effects, which are plain data (`effects`, `ops`) that the loop carries to the others:
//!
//! | part | what it owns |
//! |---|---|
//! | `inbound` | accepting, deduplicating and acknowledging deliveries; quarantine |
//! | `turns` | sessions, running turns, how each ends; `turn_task` runs one |
//! | `outbox` | durable and ephemeral ops: lanes, rate limits, what is in flight |
//! | `access` | who may drive an agent: rules in force, strangers, limits, the audit log |
//! | `approvals` | questions of agents to people |
//! | `slash_commands` | the relay's own commands |
//! | `agents` | the registry, which agent answers, how agents are built |
//! | `scheduler` | scheduled jobs: when to claim one, which run, what the managed scheduler should have |
//! | `mailbox` | context that others handed to an agent for its next turn, and who waits for an answer |
//! | `attachments` | downloads and uploads of a turn |
//! | `journal_io` | what was submitted to the journal, and who waits for it |
//! | `lifecycle`, `sleep`, `suspend` | serving, draining, asleep, over |
//! | `transport` | the contract's transport, over the network and in memory |
//!
//! `routing`, `job_routing`, `delivery_routing` and `recovery` say what each event means to the parts; `reports` asks them for status and metrics.

mod builder;
mod clock;
mod effects;
mod event_loop;
mod handle;
mod metrics;
mod not_running;
mod ops;
mod parts;
pub mod provisioning;
mod reports;
mod status;
mod transport;
mod walk;

pub use builder::{BuildError, Relay, RelayBuilder, bot_client};
pub use event_loop::ExitReason;
pub use handle::{RelayHandle, SendError, StopOutcome};
pub use metrics::{Histogram, LabelCounts, LinkMetrics, Metrics};
pub use not_running::NotRunning;
pub use parts::agents::{
    AgentBuildError, AgentEnvironment, AgentSlot, STATE_DIR, agent_keys, build_agents, without_keys,
};
pub use parts::handed::{HandedCounts, HandedItem, SubmitError, TakenItem};
#[cfg(feature = "dev")]
pub(crate) use parts::slash_commands::command_names;
pub use parts::suspend::Suspender;
pub use status::{
    AccessStatus, AgentStatus, CronStatus, DescriptorStatus, RefusedOp, SessionList, SessionStatus, Status,
    Tally,
};
pub use transport::{
    ChatInfo, Credentials, DeliverError, FrameBody, InboundFrame, InboundReceiver, InboundSender,
    InterruptRequest, InterruptTarget, LinkStatus, MemoryConnector, MemoryTransport, Record, RelayTransport,
    ReplyMode, ResultSender, SeenOp, TelegramTransport, TransportFuture, USER_AGENT, WebSocketSettings,
    WebSocketTransport, inbound_channel,
};
