//! `hermes-relay`: the dial-out half of the Hermes relay contract.
//!
//! One program, one socket, many conversations. The relay dials out to a *connector* (which holds the bots and their
//! secrets), learns from capability descriptors what each platform can do, and turns every message into one turn of an
//! *agent*: durably, in order, stoppable. Whatever is acknowledged is answered, or reported as interrupted. It holds no platform secret, except the token of a Telegram or
//! Discord bot when it is asked to be one itself, without a connector. It listens on no port unless asked to.
//!
//! # Embedding
//!
//! The names at the root are those that one meets first; every other name of a public signature is in one of the modules below:
//! [`agent`] for what an agent says, asks and returns, [`settings`], [`builder`] and [`handle`] for the relay around it, [`chat`] and
//! [`transport`] for those who plan ops or connect by themselves, [`notify`], [`skill`] and [`data`]. All other modules are internal. The
//! cargo feature `internals` makes them public for this crate's own tests, benches and fuzz targets; it is not covered by any promise.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use hermes_relay::chat::CapabilityDescriptor;
//! use hermes_relay::{Agent, AgentFuture, AgentInfo, MemoryTransport, Relay, Settings, Turn, TurnEnd};
//! use serde_json::json;
//!
//! /// Repeats what it reads, louder.
//! struct Shout;
//!
//! impl Agent for Shout {
//!     fn info(&self) -> AgentInfo {
//!         AgentInfo { name: "shout".into(), ..AgentInfo::default() }
//!     }
//!
//!     fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
//!         Box::pin(async move {
//!             turn.events.text(turn.input.text.to_uppercase()).await;
//!             TurnEnd::Completed
//!         })
//!     }
//! }
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let state = tempfile::tempdir()?;
//! let (transport, connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
//! let relay = Relay::builder(Settings::embedded(state.path()))
//!     .agent("shout", Shout)
//!     .transport(Arc::new(transport))
//!     .build()?;
//! let handle = relay.handle();
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let running = tokio::spawn(relay.run(async { drop(stopped.await) }));
//!
//! let source = json!({"platform": "discord", "chat_id": "c1", "chat_type": "dm", "user_id": "u1"});
//! connector.deliver_buffered("b1", json!({"text": "hello", "message_id": "m1", "source": source})).await?;
//! let seen = connector.wait_for(Duration::from_secs(10), |seen| !seen.ops.is_empty()).await;
//! assert_eq!(seen.expect("an answer").ops[0].text(), Some("HELLO"));
//! assert_eq!(handle.status().await.expect("it runs").tally.inbound, 1);
//!
//! drop(stop);
//! running.await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Without `transport`, the relay dials `settings.connector.url`. `examples/embed.rs` is an agent that shows its work, asks and sends
//! a picture; `examples/dial.rs` dials. [`RelayAdapter`] plans what a platform is sent, with or without a relay around it.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | relay, connector | this program; the other end, which holds the bots |
//! | link, generation | the connection to the connector; the number of one such connection |
//! | frame, event | a line of the wire; the message in it |
//! | chat, identity | platform and chat id; platform and bot id |
//! | session | one conversation, named by its session key |
//! | agent, turn, task | who answers; one run of the agent; what it is for: a message, a job or a handed-over item |
//! | author | whose turn it is: who wrote the message or made the job, else the operator |
//! | journal, row | the durable inbox and outbox; a message, run or item in it |
//! | op, lane | an outbound action, durable or ephemeral; the order of the ops of one chat |
//! | draft, indicator | a message that grows while the agent writes; typing, a reaction: an op that may be dropped |
//! | notice | a text of the relay's own to a chat, or of a program to an agent |
//! | job, run, claim, fire | a prompt on a schedule; one execution of it; the right to that; the managed scheduler's call for it |
//! | managed scheduler | the service that fires jobs while the relay sleeps (the contract calls it Chronos) |
//! | handed-over item, target | what a program submits for an agent; a chat that gets a job's answer, or a way to reach an agent |
//! | substrate | the contract's word for the kind of such a way; people read "kind" |
//! | skill | an approved playbook that a job runs |
//!
//! # Map
//!
//! Imports point down only; `tests/pure/layers` reads the sources and fails on an arrow that points up.
//!
//! | | module | what it is |
//! |---|---|---|
//! | L6 | `cli` | one file per verb: what was typed, what is done, what is printed; the probes of `doctor`; the log, its redaction, and with `otlp` its traces |
//! | | `dev` | the embedded connector, a fake Telegram Bot API, a fake Discord, and the page that shows any of them |
//! | L5 | `relay` | the running relay: an event loop over parts, and the tasks around it |
//! | | `serve` | the owner's control socket, and the optional HTTP listener |
//! | L4 | `config` | settings and where each came from; every option and variable in one list |
//! | L3 | `store` | the journal, skills and data on SQLite, and a bot's applied ops; the only module that names the database crate |
//! | | `net` | dialling, TLS, proxies, HTTP; the only module that names those crates |
//! | | `agent` | the agent trait, one file per backend, and the process supervision they share |
//! | | `agent_connector` | ways to hand an agent something: webhooks, terminals, directories, this relay |
//! | | `cron` | scheduled jobs: when they run (*pure*), what they are, who may run them |
//! | L2 | [`skill`], [`data`] | the contracts of the stores for playbooks and for what is remembered, and their conformance suites · *pure* |
//! | | `link` | the connection as a state machine · *pure* |
//! | | `session` | turns, lanes and idleness as state machines · *pure* |
//! | | `cluster` | which of several relays is active: lease, fence and roles as a state machine · *pure* |
//! | | `access` | who may drive an agent: the rules, the gate, pairing · *pure* |
//! | | `direct` | platforms without a connector: updates become events, ops become calls · *pure* |
//! | | `adapter` | [`RelayAdapter`]: streaming, splitting, prompts, rate limits, attachments, chat memory · *pure* |
//! | L1 | `wire` | frames, events, session keys, actions, op ids, tokens, lines · *pure* |
//! | L0 | `collections`, `backoff`, `setting`, `text`, `words` | maps by id, a bounded cache, one backoff, the declaration of settings, text and time in one form, what the relay says in chats · *pure* |
//!
//! The pure modules do no I/O and read no clock: time comes in as `now`, randomness as a seed. The parts of `relay` are listed
//! there. `docs/architecture.md` has the walks of a message, an interrupt, a job and a handed-over item as lists of functions, and
//! where each thing is decided.
//!
//! # A message, from socket to reply
//!
//! 1. The reader decodes each line. Frames of the link go to the link's driver, interrupts to the event loop past everything
//!    else, other frames to the event loop in order. A frame that cannot be decoded is counted, and quarantined in the journal
//!    when the connector waits for its acknowledgement.
//! 2. The loop asks in order: is it an answer to a question, a slash command, or a message for the agent, and may its author
//!    do that? It goes to the journal's writer, which commits everything that waits with one fsync; a refused message goes
//!    there without its text.
//! 3. Committed: only now is it acknowledged, and then acted on. The acknowledgement needs a `store::Committed`, which only the
//!    store can make. A duplicate is acknowledged again and not run again.
//! 4. The turn runs in a task of its own, with the agent that a route, a person's choice or the settings name. An agent that
//!    answers inline is polled once where it begins. Messages of the same session wait in the journal, by row.
//! 5. What the agent emits goes to the turn's reply stream, which plans what the chat is shown and when: drafts, edits,
//!    messages, typing, reactions. Those ops are ephemeral. Questions become prompts; their answers are messages too.
//! 6. The turn ends: its durable ops and "done" are one commit, and then the ops go out, one at a time per chat. Offline they
//!    wait, and go out in order after the next handshake. Text whose outcome is unknown is
//!    sent again under the same id, what is refused a few times under new ones. When the connector declines one op of an
//!    answer, or one cannot be delivered, the rest of it is not sent.
//!
//! After a crash, rows that were not started run; a turn that was running is reported as interrupted and not run again,
//! because agents act on the world (an agent that only answers is asked again; one that goes on without the relay and waits for an
//! answer is taken up where it is); a half-written message is closed; durable ops go
//! out. Before all that, processes of agents that outlived the crash are killed (`agent::child::leftovers`). A panic is such a crash in the program, which aborts; in a build that unwinds, an agent's panic fails its own turn and nothing else.
//!
//! # An interrupt
//!
//! `interrupt_inbound` names a session. Its turn's cancellation token is cancelled, its open questions are withdrawn, and the
//! turn is dropped when it has not stopped within the grace period; it ends once, either way. A stale or unknown key does
//! nothing. Messages that wait stay, and run.
//!
//! # Sleep
//!
//! Where someone can wake it and the settings allow it, an idle relay asks the connector to buffer, waits for the
//! acknowledgement, looks for work again, closes the socket, looks again, and then exits, suspends the machine or waits.
//! Whatever calls a sleep off reconnects, because a connector that was asked to buffer delivers on a new connection only.
//!
//! # Invariants
//!
//! 1. Nothing is acknowledged before it is committed (`store`, `tests/relay/sessions`).
//! 2. Outside `Ended`, the link has a timer armed: it cannot hang (`link` random walks).
//! 3. Every turn ends exactly once, and nobody who was denied starts one (`session` random walks, `tests/relay/walk`).
//! 4. Every queue, buffer, cache and line has a bound and a stated behaviour at it.
//! 5. The library takes no process-wide liberty: no signal handler, no global subscriber, no exit, no environment.
//! 6. Secrets are never printed, logged, put on a command line or handed to a child; message text is never logged
//!    (`tests/relay/link`). The log redacts known secrets all the same (`cli`).
//! 7. The bearer goes to the connector's own origin and nowhere else (`tests/relay/dial`, `tests/relay/media`), an agent's key
//!    to the agent's (`tests/agents/http_agents`).
//! 8. It never listens on the network unless `serve.http` is set, and on loopback alone unless `serve.allow_remote` is; the
//!    embedded connector of `dev` listens on loopback (`tests/program/operate`).
//!
//! # Where things are added
//!
//! | to add | declare | what catches you |
//! |---|---|---|
//! | a frame or op | a variant in `wire`, `docs/wire.md` and its schema | exhaustive matches; the golden files; `tests/pure` compares page and types |
//! | a check of connectors | a line of the table in `cli::conformance` | its section must be on the page |
//! | a backend | a file in `agent`, a kind in `config`, a line in `relay::parts::agents` | `tests/agents/conformance` runs it through every case |
//! | what a platform can do | the descriptor's flag or op in `adapter::stream` | its tables of exact ops, and `tests/relay/adapter` |
//! | a task of turns | a variant of `relay::effects::Task` | exhaustive matches in `relay::walk`; `tests/relay/walk` |
//! | a part of the relay | a file in `relay::parts`, a field of the event loop | the list of outstanding work names every field, `tests/pure/layers` every part |
//! | a simulated platform | a `PageBackend` of `dev::page`, which declares what it can do | `tests/page` uses it in a browser |
//! | a way to hear or speak | a variant of `SpeechEngine` in `relay::voice` | exhaustive matches; `tests/relay/media/relay/voice.rs` |
//! | a metric | `relay::metrics`, the page in `serve`, `docs/metrics.md` | page and document are compared |
//! | a verb | a file in `cli`, a variant, and its group in `cli::help` | help is checked |
//! | a probe | a function and a line of the table in `cli::doctor` | its id must be unique, its remedy not empty |
//! | an option | its line in a `section!`, `config.example.yaml` | the example must show every option |

#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![cfg_attr(not(feature = "internals"), warn(unnameable_types))]
#![cfg_attr(
    not(feature = "internals"),
    expect(unused_imports, reason = "modules name what their tests use, too")
)]

#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod access;
#[cfg(not(feature = "internals"))]
mod access;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod adapter;
#[cfg(not(feature = "internals"))]
mod adapter;
pub mod agent;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod agent_connector;
#[cfg(not(feature = "internals"))]
mod agent_connector;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod backoff;
#[cfg(not(feature = "internals"))]
mod backoff;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod cli;
#[cfg(not(feature = "internals"))]
mod cli;
#[cfg(all(feature = "nats", feature = "internals"))]
#[doc(hidden)]
pub mod cluster;
#[cfg(all(feature = "nats", not(feature = "internals")))]
mod cluster;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod collections;
#[cfg(not(feature = "internals"))]
mod collections;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod config;
#[cfg(not(feature = "internals"))]
mod config;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod cron;
#[cfg(not(feature = "internals"))]
mod cron;
pub mod data;
#[cfg(all(feature = "dev", feature = "internals"))]
#[doc(hidden)]
pub mod dev;
#[cfg(all(feature = "dev", not(feature = "internals")))]
mod dev;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod direct;
#[cfg(not(feature = "internals"))]
mod direct;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod link;
#[cfg(not(feature = "internals"))]
mod link;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod net;
#[cfg(not(feature = "internals"))]
mod net;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod relay;
#[cfg(not(feature = "internals"))]
mod relay;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod serve;
#[cfg(not(feature = "internals"))]
mod serve;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod session;
#[cfg(not(feature = "internals"))]
mod session;
mod setting;
pub mod skill;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod store;
#[cfg(not(feature = "internals"))]
mod store;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod text;
#[cfg(not(feature = "internals"))]
mod text;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod wire;
#[cfg(not(feature = "internals"))]
mod wire;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod words;
#[cfg(not(feature = "internals"))]
mod words;

pub use agent::{Agent, AgentFuture, AgentInfo, EchoAgent, Turn, TurnEnd};
pub use builder::{BuildError, ExitReason, Relay, RelayBuilder};
pub use chat::RelayAdapter;
pub use handle::{NotRunning, RelayHandle};
pub use settings::Settings;
pub use store::{FileSkillStore, SqliteDataStore, SqliteSkillStore};
pub use transport::{MemoryTransport, RelayTransport, WebSocketTransport};

/// What a relay is built from, why that fails, and why it ends.
pub mod builder {
    pub use crate::agent::UnknownAgent;
    pub use crate::net::proxy::ProxyRules;
    pub use crate::net::tls::{PemFile, TlsError};
    pub use crate::relay::{AgentSlot, BuildError, Credentials, ExitReason, Relay, RelayBuilder, Suspender};
    pub use crate::store::{Fault, FaultKind, Holder, OpenError};
    pub use crate::wire::{ConnectorUrl, UrlError};
}

/// Chats: what a platform can do, which session a message belongs to, and what [`RelayAdapter`] plans to send.
pub mod chat {
    pub use crate::adapter::media::{MediaKind, OutgoingAttachment};
    pub use crate::adapter::stream::{
        DurableAction, FinalOps, HalfWritten, OpOutcome, PlanLine, PlannedOp, Position, Priority,
        ReplyStream, StepState, ToolLine, TurnResult, first_draft_id,
    };
    pub use crate::adapter::{ChatFacts, ChatId, RelayAdapter, ThreadRegistry};
    pub use crate::wire::{
        Action, CapabilityDescriptor, Grouping, LenUnit, Metadata, NoAliases, OpId, OpIds, Platform,
        PromptButton, SessionKey, SessionSource, WhatsAppAliases,
    };
    /// A text that is cheap to copy: ids and names.
    pub use smol_str::SmolStr;
}

/// A running relay: what its [`RelayHandle`] is asked, and what it answers.
pub mod handle {
    pub use crate::access::{AccessError, AccessRequest, PersonId, Role};
    pub use crate::cron::chronos::{ArmReport, ArmState, ArmedAs};
    pub use crate::relay::{
        AccessStatus, AgentStatus, CronStatus, DescriptorStatus, HandedCounts, Histogram, LabelCounts,
        LinkMetrics, Metrics, NotRunning, RefusedOp, RelayHandle, SendError, SessionList, SessionStatus,
        Status, StopOutcome, Tally,
    };
}

/// Hand an agent something, from any program: the contract `AgentConnector` as a trait, the bundled connectors, and [`dispatch`],
/// which routes one notice to the targets that have the agent. [`RelayHandle::submit`] takes a [`HandedItem`] for an agent of a relay in
/// this process.
///
/// [`HandedItem`]: notify::HandedItem
/// [`dispatch`]: notify::dispatch
pub mod notify {
    #[cfg(feature = "conformance")]
    pub use crate::agent_connector::conformance;
    pub use crate::agent_connector::contract;
    pub use crate::agent_connector::{
        AgentConnector, AuthValue, CommandConnector, CommandTarget, Delivering, DispatchOutcome,
        DispatchRoute, Dispatched, DispatchedTo, FileConnector, FileTarget, MAX_NOTICE_BYTES, NamedTarget,
        NoopConnector, NoopTarget, Notice, NotifyTarget, ProgramAgent, RegistrationError, RelayTarget,
        TargetRegistry, TargetSetupError, TmuxAgent, TmuxConnector, TmuxTarget, WebhookAgent,
        WebhookConnector, WebhookCredentials, WebhookTarget, dispatch, new_dispatch_id,
    };
    pub use crate::relay::{HandedItem, SubmitError, TakenItem};
}

/// [`Settings`], its sections and their values. The fields have the names of the options in
/// `docs/configuration.md`.
pub mod settings {
    pub use crate::access::{
        AccessSettings, ByRole, ChatRule, Denial, LimitSettings, Mode, PersonRule, Role, Strangers,
    };
    pub use crate::adapter::prompt::{Approvers, PromptSettings};
    pub use crate::adapter::stream::{StreamMode, StreamSettings};
    pub use crate::adapter::{
        ChatSettings, NoHours, OfferedCommand, PlatformRateLimit, QuietHours, RateLimitSettings, SlackConfig,
        SlackReplyMode, TextWaits,
    };
    pub use crate::agent::Permission;
    pub use crate::agent::acp::{AcpSettings, OptionValue};
    pub use crate::agent::command::{CommandInput, CommandOutput, CommandSettings, EnvAdditions};
    pub use crate::agent::hermes::{HermesMode, HermesSettings};
    pub use crate::agent::openai::{OpenAiSettings, StreamOptions};
    pub use crate::agent::pool::PoolSettings;
    pub use crate::agent::route::{Project, Route};
    pub use crate::config::{
        AgentChoice, AgentEntries, AgentEntry, AuditConfig, Backend, BotIdentity, BusyMode, ChronosConfig,
        ClusterConfig, ConnectorConfig, CronConfig, CronProvider, DirectConfig, DiscordBotConfig,
        DiscordConfig, Durability, IdpConfig, JournalConfig, LinkConfig, LogConfig, LogFormat, LogLevel,
        NatsConfig, NotifyConfig, OnRevoked, PolicyOverride, ReceiverConfig, ResendUnknown, RichMessages,
        ServeConfig, ServerAbsence, ServerList, SessionsConfig, Settings, ShutdownConfig, SkillStoreKind,
        SkillsConfig, SleepAction, SleepConfig, SpeakConfig, SpeechSource, TelegramConfig, TelemetryConfig,
        TlsConfig, TranscribeConfig, UnknownChoice, WorkerConfig,
    };
    pub use crate::net::media::MediaSettings;
    pub use crate::words::Language;
}

/// Connections to a connector: over the network, in memory, or your own. [`RelayTransport`] is the trait;
/// the other types are those of its methods.
pub mod transport {
    pub use crate::adapter::stream::ShownDraft;
    pub use crate::link::{Counters, Descriptors, DormancyRefused, End, Generation, NotSent, Op, SendResult};
    pub use crate::relay::{
        ChatInfo, DeliverError, FrameBody, InboundFrame, InboundReceiver, InboundSender, InterruptRequest,
        InterruptTarget, LinkStatus, MemoryConnector, MemoryTransport, Record, RelayTransport, ReplyMode,
        ResultSender, SeenOp, TransportFuture, WebSocketTransport, inbound_channel,
    };
    pub use crate::wire::{
        ActionText, DecodeError, MessageEvent, MessageType, OpResult, Outcome, OwnPlatforms,
        PassthroughForward, Scalar, Undecodable,
    };
}

/// The program behind the `hermes-relay` binary; returns its exit code.
#[doc(hidden)]
pub fn program(
    env: &dyn Fn(&str) -> Option<String>,
    vars: impl IntoIterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
) -> std::process::ExitCode {
    cli::main(env, vars)
}
