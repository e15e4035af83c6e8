//! Ops: what the connector does when the gateway asks, and what it refuses.
//!
//! An op that the descriptor does not list, a text over the platform's limit, more answers than it can show and a
//! message that is not there are refused as a platform would, so that a gateway which does not keep to the rules is
//! noticed.

use serde_json::{Value, json};

use super::chats::Chats;
use super::ledger::{Ledger, Origin};
use super::presets::Preset;
use crate::wire::{Action, CapabilityDescriptor, LenUnit};

/// What an outbound frame asks for, as far as it can be read.
pub(super) enum Asked {
    /// An op of the contract.
    Op(Box<Action>),
    /// Something that is none.
    Not {
        /// What it calls itself.
        op: String,
        /// Why it is refused.
        error: String,
    },
}

impl Asked {
    /// Reads an action.
    pub(super) fn read(action: &str) -> Self {
        match serde_json::from_str::<Action>(action) {
            Ok(action) => Self::Op(Box::new(action)),
            Err(error) => {
                let action: Value = serde_json::from_str(action).unwrap_or_default();
                let op = action["op"].as_str().unwrap_or_default().to_owned();
                let error = if Action::OPS.contains(&op.as_str()) {
                    format!("malformed action: {error}")
                } else {
                    unsupported(&op)
                };
                Self::Not { op, error }
            }
        }
    }

    /// The op's name.
    pub(super) fn op(&self) -> &str {
        match self {
            Self::Op(action) => action.op(),
            Self::Not { op, .. } => op,
        }
    }

    /// The chat it is about.
    pub(super) fn chat_id(&self) -> Option<&str> {
        match self {
            Self::Op(action) => action.chat_id(),
            Self::Not { .. } => None,
        }
    }
}

/// Does what is asked, or says why not.
pub(super) fn carry_out(
    asked: &Asked,
    ledger: &mut Ledger,
    chats: &Chats,
    descriptor: Option<&CapabilityDescriptor>,
    origin: &Origin<'_>,
) -> Result<Value, String> {
    let action = match asked {
        Asked::Op(action) => &**action,
        Asked::Not { error, .. } => return Err(error.clone()),
    };
    if let Some(descriptor) = descriptor {
        if !descriptor.supports_op(action.op()) {
            return Err(unsupported(action.op()));
        }
        fits(action, descriptor)?;
        suits(action, origin.platform)?;
    }
    match action {
        Action::Send { .. } | Action::SendMedia { .. } | Action::Prompt { .. } | Action::FollowUp { .. } => {
            post(action, ledger, origin)
        }
        Action::Edit { .. } | Action::Delete { .. } => change(action, ledger),
        Action::Draft { .. } => stream(action, ledger, origin),
        Action::Typing { .. } | Action::TaskCard { .. } | Action::TaskCardStop { .. } => Ok(done()),
        Action::React {
            chat_id,
            message_id,
            emoji,
            remove,
            ..
        } => {
            ledger.react(chat_id, message_id, emoji, *remove);
            Ok(done())
        }
        Action::GetChatInfo { chat_id } => Ok(json!({ "success": true, "chat_info": chats.info(chat_id) })),
        Action::ThreadCreate { .. } | Action::ThreadRename { .. } => thread(action, ledger),
    }
}

fn post(action: &Action, ledger: &mut Ledger, origin: &Origin<'_>) -> Result<Value, String> {
    let (text, reply_to, metadata) = match action {
        Action::Send {
            chat_id,
            content,
            reply_to,
            metadata,
        } => {
            if origin.platform == "telegram" {
                ledger.clear_previews(chat_id);
            }
            (content, reply_to.as_ref(), metadata)
        }
        Action::SendMedia {
            content,
            reply_to,
            metadata,
            ..
        }
        | Action::Prompt {
            content,
            reply_to,
            metadata,
            ..
        } => (content, reply_to.as_ref(), metadata),
        Action::FollowUp {
            session_key,
            kind,
            content,
            metadata,
        } => {
            if !ledger.is_granted(session_key, kind) {
                return Err(format!("no {kind} is held for this session"));
            }
            (content, None, metadata)
        }
        _ => return Err(unsupported(action.op())),
    };
    Ok(made(&ledger.post(action, text, reply_to, metadata, origin)))
}

fn change(action: &Action, ledger: &mut Ledger) -> Result<Value, String> {
    match action {
        Action::Edit {
            chat_id,
            message_id,
            content,
            ..
        } => {
            let sent = ledger.standing(chat_id, message_id).ok_or_else(gone)?;
            content.clone_into(&mut sent.text);
            sent.edits += 1;
            Ok(made(message_id))
        }
        Action::Delete {
            chat_id, message_id, ..
        } => {
            ledger.standing(chat_id, message_id).ok_or_else(gone)?.deleted = true;
            Ok(done())
        }
        _ => Err(unsupported(action.op())),
    }
}

fn stream(action: &Action, ledger: &mut Ledger, origin: &Origin<'_>) -> Result<Value, String> {
    let Action::Draft {
        chat_id,
        draft_id,
        content,
        r#final,
        metadata,
    } = action
    else {
        return Err(unsupported(action.op()));
    };
    if ledger.is_sealed(chat_id, *draft_id) {
        return Err("the draft is a message already".to_owned());
    }
    if *r#final {
        ledger.seal(chat_id, *draft_id);
        return Ok(made(&ledger.post(action, content, None, metadata, origin)));
    }
    if ledger.draft(chat_id, *draft_id, content) {
        Ok(done())
    } else {
        Err("too many drafts are open".to_owned())
    }
}

fn thread(action: &Action, ledger: &mut Ledger) -> Result<Value, String> {
    match action {
        Action::ThreadCreate {
            chat_id, thread_name, ..
        } => {
            named(thread_name)?;
            let thread_id = ledger.open_thread(chat_id, thread_name);
            Ok(json!({ "success": true, "thread_id": thread_id }))
        }
        Action::ThreadRename {
            message_id,
            thread_name,
            only_if_current_name,
            ..
        } => {
            named(thread_name)?;
            let thread = ledger
                .threads
                .iter_mut()
                .find(|thread| thread.thread_id == *message_id)
                .ok_or("no such thread was opened here")?;
            if only_if_current_name
                .as_ref()
                .is_some_and(|name| *name != thread.name)
            {
                return Err("the thread has another name".to_owned());
            }
            thread_name.clone_into(&mut thread.name);
            Ok(done())
        }
        _ => Err(unsupported(action.op())),
    }
}

fn named(name: &str) -> Result<(), String> {
    match name.chars().count() {
        1..=100 => Ok(()),
        length => Err(format!(
            "a thread name of {length} characters: 1 to 100 are allowed"
        )),
    }
}

fn fits(action: &Action, descriptor: &CapabilityDescriptor) -> Result<(), String> {
    let (text, may_be_empty) = match action {
        Action::Send { content, .. }
        | Action::Edit { content, .. }
        | Action::FollowUp { content, .. }
        | Action::Prompt { content, .. } => (content, false),
        Action::Draft { content, .. } | Action::SendMedia { content, .. } => (content, true),
        _ => return Ok(()),
    };
    if text.is_empty() && !may_be_empty {
        return Err("an empty message".to_owned());
    }
    let length = descriptor.length_unit().measure(text) as u64;
    if length > descriptor.max_message_length {
        return Err(format!(
            "message too long: {length} of {}",
            descriptor.max_message_length
        ));
    }
    Ok(())
}

/// What a descriptor does not tell, and the platform minds all the same.
fn suits(action: &Action, platform: &str) -> Result<(), String> {
    let preset = Preset::named(platform);
    match action {
        Action::Prompt { options, .. }
            if preset != Preset::Plain && options.len() > preset.most_options() =>
        {
            Err(format!(
                "{} answers: at most {} can be shown",
                options.len(),
                preset.most_options()
            ))
        }
        Action::SendMedia { content, .. } => match preset.longest_caption() {
            Some(most) if LenUnit::Utf16.measure(content) as u64 > most => {
                Err(format!("caption too long: at most {most}"))
            }
            _ => Ok(()),
        },
        Action::React { emoji, .. } if !preset.takes_reaction(emoji) => {
            Err("this is not among the platform's reactions".to_owned())
        }
        Action::ThreadRename {
            only_if_current_name: Some(_),
            ..
        } if !preset.tells_thread_names() => Err("the platform does not tell a thread's name".to_owned()),
        _ => Ok(()),
    }
}

fn unsupported(op: &str) -> String {
    format!("unsupported op: {op}")
}

fn gone() -> String {
    "no such message of this bot is in the chat".to_owned()
}

fn done() -> Value {
    json!({ "success": true })
}

fn made(message_id: &str) -> Value {
    json!({ "success": true, "message_id": message_id })
}

#[cfg(test)]
mod tests;
