//! Actions: the ops that the relay sends to the connector.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Metadata of an op: tenant, thread, hints.
pub type Metadata = Map<String, Value>;

/// An op on a chat. Field names are the contract's; optional fields are left out when unset, except
/// `reply_to`, which is `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Action {
    /// A new message.
    Send {
        /// Where to.
        chat_id: String,
        /// What.
        content: String,
        /// The message it answers.
        #[serde(default)]
        reply_to: Option<String>,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
    },
    /// Replaces a message's text.
    Edit {
        /// Where.
        chat_id: String,
        /// Which message.
        message_id: String,
        /// Its whole new text.
        content: String,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
    },
    /// Shows a typing indicator.
    Typing {
        /// Where.
        chat_id: String,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
        /// A status phrase, or `""` to clear it (Slack).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<String>,
    },
    /// Deletes a message.
    Delete {
        /// Where.
        chat_id: String,
        /// Which message.
        message_id: String,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
    },
    /// Asks for a chat's name and type.
    GetChatInfo {
        /// Which chat.
        chat_id: String,
    },
    /// Uses a capability that the connector holds for this session, such as an interaction's answer slot.
    FollowUp {
        /// The session that the capability is bound to.
        session_key: String,
        /// Which capability.
        kind: String,
        /// Text to send through it.
        content: String,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
    },
    /// The growing text of a native stream.
    Draft {
        /// Where.
        chat_id: String,
        /// Which stream.
        draft_id: u64,
        /// The whole text so far.
        content: String,
        /// Whether this is its last state.
        r#final: bool,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
    },
    /// A progress card.
    TaskCard {
        /// Where.
        chat_id: String,
        /// Which card.
        card_id: String,
        /// Its content.
        chunks: Vec<Value>,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
    },
    /// The end of a progress card.
    TaskCardStop {
        /// Where.
        chat_id: String,
        /// Which card.
        card_id: String,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
    },
    /// An attachment by reference.
    SendMedia {
        /// Where to.
        chat_id: String,
        /// `image`, `voice`, `video`, `audio` or `document`.
        media_kind: String,
        /// Where the connector finds the bytes.
        source_url: String,
        /// Caption; may be empty.
        content: String,
        /// The message it answers.
        #[serde(default)]
        reply_to: Option<String>,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
        /// Name to show.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
    },
    /// A question with buttons.
    Prompt {
        /// Where to.
        chat_id: String,
        /// The question.
        content: String,
        /// `approval` or `clarify`.
        prompt_kind: String,
        /// The relay's id, with this process's nonce.
        prompt_id: String,
        /// The buttons.
        options: Vec<PromptButton>,
        /// The message it answers.
        #[serde(default)]
        reply_to: Option<String>,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
        /// Timeout in seconds; advisory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<u64>,
    },
    /// Adds or removes a reaction.
    React {
        /// Where.
        chat_id: String,
        /// Which message.
        message_id: String,
        /// Which reaction.
        emoji: String,
        /// Whether to remove it.
        remove: bool,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
    },
    /// Opens a thread.
    ThreadCreate {
        /// Parent chat.
        chat_id: String,
        /// Its name, at most 100 characters.
        thread_name: String,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
    },
    /// Renames a thread.
    ThreadRename {
        /// Parent chat, else the thread itself.
        chat_id: String,
        /// The thread.
        message_id: String,
        /// Its new name, at most 100 characters.
        thread_name: String,
        /// Extras.
        #[serde(default)]
        metadata: Metadata,
        /// Only when the connector opened it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only_if_connector_created: Option<bool>,
        /// Only while it still has this name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only_if_current_name: Option<String>,
    },
}

/// A button of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptButton {
    /// Letters, digits, `_ . -`, at most 32.
    pub id: String,
    /// Its label.
    pub label: String,
    /// `primary`, `danger`, or another word that the connector knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<String>,
}

impl Action {
    /// Every op's wire name.
    pub const OPS: [&'static str; 14] = [
        "send",
        "edit",
        "typing",
        "delete",
        "get_chat_info",
        "follow_up",
        "draft",
        "task_card",
        "task_card_stop",
        "send_media",
        "prompt",
        "react",
        "thread_create",
        "thread_rename",
    ];

    /// The op's wire name.
    pub fn op(&self) -> &'static str {
        match self {
            Self::Send { .. } => "send",
            Self::Edit { .. } => "edit",
            Self::Typing { .. } => "typing",
            Self::Delete { .. } => "delete",
            Self::GetChatInfo { .. } => "get_chat_info",
            Self::FollowUp { .. } => "follow_up",
            Self::Draft { .. } => "draft",
            Self::TaskCard { .. } => "task_card",
            Self::TaskCardStop { .. } => "task_card_stop",
            Self::SendMedia { .. } => "send_media",
            Self::Prompt { .. } => "prompt",
            Self::React { .. } => "react",
            Self::ThreadCreate { .. } => "thread_create",
            Self::ThreadRename { .. } => "thread_rename",
        }
    }

    /// The chat it acts on; a follow-up acts on a session instead.
    pub fn chat_id(&self) -> Option<&str> {
        match self {
            Self::FollowUp { .. } => None,
            Self::Send { chat_id, .. }
            | Self::Edit { chat_id, .. }
            | Self::Typing { chat_id, .. }
            | Self::Delete { chat_id, .. }
            | Self::GetChatInfo { chat_id }
            | Self::Draft { chat_id, .. }
            | Self::TaskCard { chat_id, .. }
            | Self::TaskCardStop { chat_id, .. }
            | Self::SendMedia { chat_id, .. }
            | Self::Prompt { chat_id, .. }
            | Self::React { chat_id, .. }
            | Self::ThreadCreate { chat_id, .. }
            | Self::ThreadRename { chat_id, .. } => Some(chat_id),
        }
    }
}
