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

mod access;
mod agents;
mod approvals;
mod attachments;
mod builder;
mod clock;
mod delivery_routing;
mod effects;
mod event_loop;
mod handle;
mod inbound;
mod job_routing;
mod journal_io;
mod lifecycle;
mod mailbox;
mod metrics;
mod ops;
mod outbox;
pub mod provisioning;
mod recovery;
mod reports;
mod routing;
mod scheduler;
mod slash_commands;
mod sleep;
mod status;
mod substrates;
mod suspend;
mod transport;
mod turn_task;
mod turns;

pub use agents::{
    AgentBuildError, AgentEnvironment, AgentSlot, STATE_DIR, agent_keys, build_agents, without_keys,
};
pub use builder::{BuildError, Relay, RelayBuilder, bot_client};
pub use event_loop::ExitReason;
pub use handle::{RelayHandle, SendError, StopOutcome};
pub use mailbox::{HandRefusal, HandedDelivery, TakenDelivery};
pub use metrics::{Histogram, LabelCounts, LinkMetrics, Metrics};
#[cfg(feature = "dev")]
pub(crate) use slash_commands::command_names;
pub use status::{
    AccessStatus, AgentStatus, CronStatus, DescriptorStatus, RefusedOp, SessionList, SessionStatus, Status,
    Tally,
};
pub use substrates::{SubstrateContext, build_connector, unhealthy};
pub use suspend::Suspender;
pub use transport::{
    ChatInfo, Credentials, DeliverError, Delivery, DeliveryBody, InboundReceiver, InboundSender,
    InterruptRequest, InterruptTarget, LinkStatus, MemoryConnector, MemoryTransport, Record, RelayGone,
    RelayTransport, ReplyMode, ResultSender, SeenOp, TelegramTransport, TransportFuture, USER_AGENT,
    WebSocketSettings, WebSocketTransport, inbound_channel,
};
