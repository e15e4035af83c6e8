//! Discord's gateway and REST API, without I/O and clock.
//!
//! [`DiscordGateway`] is the connection as a state machine; [`TakenEvents`] says up to where a session's events were committed, which
//! message of each chat was last, and which chats have missed some. [`EventReader`] turns events into the contract's events. [`DiscordCalls`] is one op as a
//! sequence of requests, [`DeferredAnswers`] the commands that wait for theirs, [`RestLimits`] says when a request may go out, and [`write_markdown`] writes a text in Discord's markup.

mod bot;
mod calls;
mod close;
mod commands;
mod deferred;
mod event;
mod gateway;
mod limits;
mod markup;
mod plan;
mod request;
mod taken;

pub use bot::{DiscordBot, INTENTS, descriptor, invite_link, reads_content};
pub use calls::{DISCORD_RATES, DiscordCalls, SentMessages};
pub use close::{AfterGatewayClose, GatewayEnd, after_close};
pub use commands::{is_registered, registration};
pub use deferred::{DeferredAnswers, DeferredCommand, interaction_of};
pub use event::{DiscordMeaning, DiscordRelevance, EventReader, Interaction, InteractionKind, deletions};
pub use gateway::{DiscordGateway, GatewayStep};
pub use limits::{RateHeaders, RestLimits};
pub use markup::{discord_parts, write_markdown};
pub use request::{DiscordFault, FetchFailure, RestAnswer, RestFile, RestMethod, RestRequest};
pub use taken::{HeldEvent, StoredSession, TakenEvents};
