//! Telegram's Bot API, without I/O and clock.
//!
//! `inbound`: [`read_batch`] reads the updates of one poll, each separately, so that an unreadable update harms no other.
//! [`ReceivedUpdates`] forwards them in order, collects albums, and names the offset of the next poll: it confirms only what
//! the relay has committed.
//!
//! `outbound`: [`OpCalls`] is one op as a sequence of calls; [`FloodBudget`](super::flood::FloodBudget) says when a call may go out, and
//! [`OutboundCache`] is the memory between ops.
//!
//! `text`: [`render`](super::text::render) turns Markdown into Telegram's formatting, and [`rich_markdown`] decides which text becomes a rich
//! message.

mod bot;
mod call;
mod callback;
mod chat;
mod file;
mod inbound;
mod outbound;
mod text;
mod topics;

pub use bot::{Bot, descriptor};
pub use call::{ApiAnswer, Call, CallFile};
pub use callback::{CallbackKey, MAX_CALLBACK_BYTES, PressedButton};
pub use file::{FileAddress, FilePlace};
pub use inbound::{
    ALLOWED_UPDATES, BatchReader, Incoming, IncomingMessage, MAX_DOWNLOAD_BYTES, NextPoll, PollRetry,
    PollStep, PollTrouble, Polling, PressAnswer, PressNext, Presses, ReceivedUpdates, RecentInTopics,
    Relevance, TakenMessages, UpdateMeaning, after_press, read_batch,
};
pub use outbound::{
    ALLOWED_REACTIONS, ApiFault, FLOOD_RATES, Observation, OpCalls, OpRefusal, OpStep, OutboundCache,
    allowed_reaction, command_menu,
};
pub use text::{CAPTION_CHARS, MESSAGE_CHARS, RichMessages, rich_markdown};
pub use topics::TopicNames;
