//! What a message shares with its turn: where they belong, and who wrote it. A job and a handed-over item have the same.

use std::sync::Arc;

use smol_str::SmolStr;

use super::spans::MessageSpan;
use crate::access::Author;
use crate::adapter::Chat;
use crate::wire::{Scalar, SessionKey, SessionSource};

/// Where a message or a turn belongs, and who it is from.
#[derive(Debug)]
pub struct TurnOrigin {
    pub session: SessionKey,
    pub chat: Arc<Chat>,
    /// The thread that the connector will open for the answer.
    pub prospective_thread: Option<SmolStr>,
    /// Whether the session belongs to one person.
    pub personal: bool,
    /// Who wrote the message or made the job; the operator for a handed-over item.
    pub author: Author,
    /// Follows the message through the log.
    pub span: MessageSpan,
}

impl TurnOrigin {
    pub fn new(
        session: SessionKey,
        source: &SessionSource,
        personal: bool,
        author: Author,
        span: MessageSpan,
    ) -> Self {
        Self {
            session,
            chat: Arc::new(Chat::from_source(source)),
            prospective_thread: source.prospective_thread().map(Scalar::to_smolstr),
            personal,
            author,
            span,
        }
    }

    /// Whether people read along who could be asked.
    pub fn has_chat(&self) -> bool {
        !self.chat.id.chat.is_empty()
    }
}
