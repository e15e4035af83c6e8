//! Actions: the ops that the relay sends to the connector.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::SmolStr;

use super::metadata::Metadata;

/// An op on a chat. Field names are the contract's; optional fields are left out when unset, except
/// `reply_to`, which is `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Action {
    /// A new message.
    Send {
        /// The id of the chat.
        chat_id: SmolStr,
        /// The text of the message.
        content: String,
        /// The message that this one replies to.
        #[serde(default)]
        reply_to: Option<SmolStr>,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
    },
    /// Replaces a message's text.
    Edit {
        /// The id of the chat.
        chat_id: SmolStr,
        /// The message to edit.
        message_id: SmolStr,
        /// The whole new text of the message.
        content: String,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
    },
    /// Shows a typing indicator.
    Typing {
        /// The id of the chat.
        chat_id: SmolStr,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
        /// A status phrase, or `""` to clear it (Slack).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<String>,
    },
    /// Deletes a message.
    Delete {
        /// The id of the chat.
        chat_id: SmolStr,
        /// The message to delete.
        message_id: SmolStr,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
    },
    /// Asks for a chat's name and type.
    GetChatInfo {
        /// The id of the chat.
        chat_id: SmolStr,
    },
    /// Uses a capability that the connector holds for this session, such as an interaction's answer slot.
    FollowUp {
        /// The session that the capability is bound to.
        session_key: String,
        /// The kind of capability.
        kind: String,
        /// The text to send through the capability.
        content: String,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
    },
    /// The growing text of a native stream.
    Draft {
        /// The id of the chat.
        chat_id: SmolStr,
        /// The id of the stream.
        draft_id: u64,
        /// The whole text so far.
        content: String,
        /// Whether the text is complete.
        r#final: bool,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
    },
    /// A progress card.
    TaskCard {
        /// The id of the chat.
        chat_id: SmolStr,
        /// The id of the card.
        card_id: String,
        /// The parts of the card.
        chunks: Vec<Value>,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
    },
    /// The end of a progress card.
    TaskCardStop {
        /// The id of the chat.
        chat_id: SmolStr,
        /// The id of the card.
        card_id: String,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
    },
    /// An attachment by reference.
    SendMedia {
        /// The id of the chat.
        chat_id: SmolStr,
        /// `image`, `voice`, `video`, `audio` or `document`.
        media_kind: String,
        /// The URL from which the connector fetches the file.
        source_url: String,
        /// The caption; may be empty.
        content: String,
        /// The message that this one replies to.
        #[serde(default)]
        reply_to: Option<SmolStr>,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
        /// The file name to show.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
    },
    /// A question with buttons.
    Prompt {
        /// The id of the chat.
        chat_id: SmolStr,
        /// The text of the question.
        content: String,
        /// `approval` or `clarify`.
        prompt_kind: String,
        /// The relay's id of the question, with this process's nonce.
        prompt_id: String,
        /// One button per answer.
        options: Vec<PromptButton>,
        /// The message that this one replies to.
        #[serde(default)]
        reply_to: Option<SmolStr>,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
        /// Timeout in seconds; advisory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<u64>,
    },
    /// Adds or removes a reaction.
    React {
        /// The id of the chat.
        chat_id: SmolStr,
        /// The message to react to.
        message_id: SmolStr,
        /// The emoji of the reaction.
        emoji: String,
        /// Whether to remove the reaction.
        remove: bool,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
    },
    /// Opens a thread.
    ThreadCreate {
        /// The parent chat.
        chat_id: SmolStr,
        /// The name of the thread, at most 100 characters.
        thread_name: String,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
        /// The message that the thread is opened on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_id: Option<SmolStr>,
    },
    /// Renames a thread.
    ThreadRename {
        /// The parent chat, else the thread itself.
        chat_id: SmolStr,
        /// The id of the thread.
        message_id: SmolStr,
        /// The new name of the thread, at most 100 characters.
        thread_name: String,
        /// Hints for the connector, such as the thread.
        #[serde(default)]
        metadata: Metadata,
        /// Rename only a thread that the connector opened.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only_if_connector_created: Option<bool>,
        /// Rename only a thread that still has this name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only_if_current_name: Option<String>,
    },
}

/// What the token of a prompt's button begins with: `hp1:<prompt id>:<option id>`.
pub const PROMPT_TOKEN: &str = "hp1:";

/// The field of a press that names what a private answer to it replies to.
pub const PRIVATE_REPLY: &str = "private_reply";

/// A button of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptButton {
    /// At most 32 letters, digits and `_ . -`.
    pub id: String,
    /// The text on the button.
    pub label: String,
    /// `primary`, `danger`, or another word that the connector knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<String>,
}

impl Action {
    /// Has a message ring nobody. An edit that does not say whether it rings does not, and does not have the last text.
    pub fn silence(&mut self) {
        if let Self::Edit { metadata, .. } = self
            && !metadata.has_last_text()
        {
            return;
        }
        if let Self::Send { metadata, .. }
        | Self::Edit { metadata, .. }
        | Self::Draft { metadata, .. }
        | Self::SendMedia { metadata, .. }
        | Self::Prompt { metadata, .. }
        | Self::FollowUp { metadata, .. } = self
        {
            metadata.insert("notify", false);
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_edit_without_the_last_text_is_not_made_one_by_silence() {
        let silenced = |mut op: Value, metadata| {
            op["metadata"] = metadata;
            let mut action: Action = serde_json::from_value(op).unwrap();
            action.silence();
            serde_json::to_value(&action).unwrap()["metadata"]["notify"].clone()
        };
        let edit = json!({"op": "edit", "chat_id": "c", "message_id": "m", "content": "x"});
        assert_eq!(silenced(edit.clone(), json!({})), json!(null));
        assert_eq!(silenced(edit, json!({"notify": true})), json!(false));
        let send = json!({"op": "send", "chat_id": "c", "content": "x"});
        assert_eq!(silenced(send, json!({})), json!(false));
    }
}
