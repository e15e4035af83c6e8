//! Telegram's Bot API, without I/O and clock.
//!
//! Inbound: [`read_batch`] reads the updates of one poll, each on its own, so that one that cannot be read hurts no other.
//! [`Intake`] hands them on in order, puts albums together, and says what the next poll confirms: nothing that the relay
//! has not committed.
//!
//! Outbound: a [`Speech`] is one op as calls and answers; [`Flood`] says when a call may go out, and [`Spoken`] is what
//! is remembered between ops. [`Presses`] says how a press is answered, [`LatestReactions`] which reaction counts, and
//! [`rich_markdown`] which text becomes a rich message.

mod album;
mod bot;
mod call;
mod callback;
mod content;
mod entity;
mod event;
mod failures;
mod fault;
mod field;
mod file;
mod flood;
mod intake;
mod latest_reaction;
mod markdown;
mod menu;
mod plan;
mod poll;
mod press;
mod reaction;
mod relevance;
mod repeat;
mod rich;
mod sender;
mod speak;
mod split;
mod spoken;
mod styled;
mod table;
mod topics;
mod update;

pub use bot::{Bot, descriptor};
pub use call::{ApiAnswer, Call, CallFile, CallKind};
pub use callback::{CallbackKey, MAX_CALLBACK_BYTES, Pressed};
pub use content::MAX_DOWNLOAD_BYTES;
pub use failures::ChatFailures;
pub use fault::ApiFault;
pub use file::{FileAddress, FilePlace};
pub use flood::{Flood, FloodPermit};
pub use intake::{Intake, NextPoll};
pub use latest_reaction::LatestReactions;
pub use markdown::render;
pub use menu::command_menu;
pub use plan::SpeechRefused;
pub use poll::{PollRetry, PollStep, PollTrouble, Polling};
pub use press::{PressAnswer, PressNext, Presses, after_press};
pub use reaction::{ALLOWED_REACTIONS, allowed_reaction};
pub use relevance::Relevance;
pub use repeat::{is_noted, wait_to_repeat};
pub use rich::{RichMessages, rich_markdown};
pub use speak::{Learnt, Speech, SpeechStep};
pub use split::{CAPTION_CHARS, MAX_ENTITIES, MESSAGE_CHARS};
pub use spoken::Spoken;
pub use styled::{Styled, TextSpan, TextStyle};
pub use topics::TopicNames;
pub use update::{
    ALLOWED_UPDATES, BatchReader, Incoming, IncomingMessage, OpenedCallback, UpdateMeaning, read_batch,
};

#[cfg(test)]
mod tests;
