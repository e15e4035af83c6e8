//! The running relay: drives the link, the sessions, the journal and the agents.
//!
//! [`Relay`] is built from settings and agents and runs until it is asked to stop. Inside, one task runs the event loop, one
//! drives the link (`transport::driver`), two serve each socket (`transport::connection`), and one runs each turn
//! (`parts::turn_task`). They communicate over bounded channels.
//!
//! The event loop holds the parts; each part owns its state and imports no other part. A part takes an event and pushes
//! effects, which are plain data (`effects`, `ops`) that the loop carries to the others:
//!
//! | part | what it owns |
//! |---|---|
//! | `inbound` | deduplicating and acknowledging messages; interrupts that passed them; quarantine |
//! | `chats` | the names of platforms and sessions, which chat a session has, the memory of chats and threads |
//! | `access` | who the author of a turn is and what they may do: rules in force, strangers, limits, the audit log |
//! | `turns` | sessions, turns and their tasks, how each ends; `turn_task` runs one |
//! | `outbox` | durable and ephemeral ops: those that wait for a commit, lanes, rate limits, what is in flight |
//! | `approvals` | questions of agents to people: who is asked, with which options |
//! | `slash_commands` | the relay's own commands |
//! | `agents` | the registry, which agent answers |
//! | `conversations`, `listings` | which conversation a chat is in, and what agents list of theirs |
//! | `scheduler` | scheduled jobs: when to claim one, which run, what the managed scheduler should have |
//! | `job_files` | the skills that runs read and the outputs that they leave |
//! | `handed` | context that programs handed over for an agent's next turn, and who waits for an answer |
//! | `attachments` | downloads and uploads of a turn; `voice` beside the parts transcribes and speaks |
//! | `changes` | what agents changed in the last turn of each conversation |
//! | `journal_io` | what was submitted to the journal, and who waits for it |
//! | `link` | the transport, and what it reported last |
//! | `lifecycle`, `sleep`, `suspend` | serving, draining, asleep, over |
//!
//! `walk` says what each event means to the parts, in the order in which things happen to a message; `transport` is the
//! contract's transport, over the network and in memory; `origin` is what a message shares with its turn; `reports` asks the parts
//! for status and metrics.

mod build_agents;
mod builder;
mod clock;
#[cfg(feature = "nats")]
pub mod cluster;
mod effects;
mod event_loop;
mod handle;
mod metrics;
mod not_running;
mod ops;
mod origin;
mod parts;
pub mod provisioning;
mod reports;
mod spans;
mod status;
mod transport;
mod voice;
mod walk;

#[cfg(feature = "nats")]
pub use build_agents::nats_settings;
pub use build_agents::{AgentBuildError, AgentEnvironment, agent_keys, build_agents, without_keys};
#[cfg(feature = "nats")]
pub(crate) use builder::journal_settings;
pub use builder::{BuildError, Relay, RelayBuilder, bot_client, check_bot_tokens, discord_client};
pub(crate) use clock::now_ms;
pub use event_loop::ExitReason;
pub use handle::{RelayHandle, SendError, StopOutcome};
pub use metrics::{Histogram, LabelCounts, LinkMetrics, Metrics};
pub use not_running::NotRunning;
pub use parts::agents::AgentSlot;
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
pub(crate) use voice::{Voice, VoiceEnvironment, voice_keys};
