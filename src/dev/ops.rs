//! Ops: what the connector does when the gateway asks, and what it refuses.
//!
//! An op that the descriptor does not list, a text over the platform's limit, more answers than it can show and a
//! message that is not there are refused as a platform would, so that a gateway which does not keep to the rules is
//! noticed.

use serde_json::{Value, json};

use super::chat_contents::{ChatContents, DevChats};
use super::presets::PlatformPreset;
use crate::wire::{Action, CapabilityDescriptor, LenUnit};

/// What an outbound frame asks for, as far as it can be read.
pub(super) enum RequestedOp {
    /// An op of the contract.
    Known(Box<Action>),
    /// Anything else.
    Invalid {
        /// Its name.
        op: String,
        /// Why it is refused.
        error: String,
    },
}

impl RequestedOp {
    /// Reads an action.
    pub(super) fn read(action: &str) -> Self {
        match serde_json::from_str::<Action>(action) {
            Ok(action) => Self::Known(Box::new(action)),
            Err(error) => {
                let action: Value = serde_json::from_str(action).unwrap_or_default();
                let op = action["op"].as_str().unwrap_or_default().to_owned();
                let error = if Action::OPS.contains(&op.as_str()) {
                    format!("malformed action: {error}")
                } else {
                    unsupported(&op)
                };
                Self::Invalid { op, error }
            }
        }
    }

    /// The op's name.
    pub(super) fn op(&self) -> &str {
        match self {
            Self::Known(action) => action.op(),
            Self::Invalid { op, .. } => op,
        }
    }

    /// The chat it is about.
    pub(super) fn chat_id(&self) -> Option<&str> {
        match self {
            Self::Known(action) => action.chat_id(),
            Self::Invalid { .. } => None,
        }
    }
}

/// Performs an op, or returns why it is refused.
pub(super) fn perform_op(
    asked: &RequestedOp,
    contents: &mut ChatContents,
    chats: &DevChats,
    descriptor: Option<&CapabilityDescriptor>,
    platform: &str,
) -> Result<Value, String> {
    let action = match asked {
        RequestedOp::Known(action) => &**action,
        RequestedOp::Invalid { error, .. } => return Err(error.clone()),
    };
    if let Some(descriptor) = descriptor {
        if !descriptor.supports_op(action.op()) {
            return Err(unsupported(action.op()));
        }
        check_length(action, descriptor)?;
        check_platform(action, platform)?;
    }
    match action {
        Action::Send { .. } | Action::SendMedia { .. } | Action::Prompt { .. } | Action::FollowUp { .. } => {
            post(action, contents, platform)
        }
        Action::Edit { .. } | Action::Delete { .. } => change(action, contents),
        Action::Draft { .. } => stream(action, contents, platform),
        Action::Typing { chat_id, .. } => {
            contents.type_in(chat_id);
            Ok(done())
        }
        Action::React { .. } | Action::TaskCard { .. } | Action::TaskCardStop { .. } => Ok(done()),
        Action::GetChatInfo { chat_id } => Ok(json!({ "success": true, "chat_info": chats.info(chat_id) })),
        Action::ThreadCreate { .. } | Action::ThreadRename { .. } => thread(action, contents),
    }
}

fn post(action: &Action, contents: &mut ChatContents, platform: &str) -> Result<Value, String> {
    let (text, reply_to, metadata) = match action {
        Action::Send {
            chat_id,
            content,
            reply_to,
            metadata,
        } => {
            if platform == "telegram" {
                contents.clear_previews(chat_id);
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
            if !contents.is_granted(session_key, kind) {
                return Err(format!("no {kind} is held for this session"));
            }
            (content, None, metadata)
        }
        _ => return Err(unsupported(action.op())),
    };
    Ok(made(&contents.post(action, text, reply_to, metadata, platform)))
}

fn change(action: &Action, contents: &mut ChatContents) -> Result<Value, String> {
    match action {
        Action::Edit {
            chat_id,
            message_id,
            content,
            metadata,
        } => {
            if contents.edit(chat_id, message_id, content, metadata) {
                Ok(made(message_id))
            } else {
                Err(gone())
            }
        }
        Action::Delete {
            chat_id, message_id, ..
        } => {
            contents.standing(chat_id, message_id).ok_or_else(gone)?.deleted = true;
            Ok(done())
        }
        _ => Err(unsupported(action.op())),
    }
}

fn stream(action: &Action, contents: &mut ChatContents, platform: &str) -> Result<Value, String> {
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
    if contents.is_sealed(chat_id, *draft_id) {
        return Err("the draft is a message already".to_owned());
    }
    if *r#final {
        contents.seal(chat_id, *draft_id);
        return Ok(made(&contents.post(action, content, None, metadata, platform)));
    }
    if contents.draft(chat_id, *draft_id, content) {
        Ok(done())
    } else {
        Err("too many drafts are open".to_owned())
    }
}

fn thread(action: &Action, contents: &mut ChatContents) -> Result<Value, String> {
    match action {
        Action::ThreadCreate {
            chat_id, thread_name, ..
        } => {
            check_thread_name(thread_name)?;
            let thread_id = contents.open_thread(chat_id, thread_name);
            Ok(json!({ "success": true, "thread_id": thread_id }))
        }
        Action::ThreadRename {
            message_id,
            thread_name,
            only_if_current_name,
            ..
        } => {
            check_thread_name(thread_name)?;
            let thread = contents
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

fn check_thread_name(name: &str) -> Result<(), String> {
    match name.chars().count() {
        1..=100 => Ok(()),
        length => Err(format!(
            "a thread name of {length} characters: 1 to 100 are allowed"
        )),
    }
}

fn check_length(action: &Action, descriptor: &CapabilityDescriptor) -> Result<(), String> {
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

/// Limits of the platform that its descriptor does not state.
fn check_platform(action: &Action, platform: &str) -> Result<(), String> {
    let preset = PlatformPreset::named(platform);
    match action {
        Action::Prompt { options, .. }
            if preset != PlatformPreset::Plain && options.len() > preset.max_options() =>
        {
            Err(format!(
                "{} answers: at most {} can be shown",
                options.len(),
                preset.max_options()
            ))
        }
        Action::SendMedia { content, .. } => match preset.longest_caption() {
            Some(max_length) if LenUnit::Utf16.measure(content) as u64 > max_length => {
                Err(format!("caption too long: at most {max_length}"))
            }
            _ => Ok(()),
        },
        Action::React { emoji, .. } if !preset.takes_reaction(emoji) => {
            Err("this is not among the platform's reactions".to_owned())
        }
        Action::ThreadRename {
            only_if_current_name: Some(_),
            ..
        } if !preset.reports_thread_names() => Err("the platform does not report thread names".to_owned()),
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
mod tests {
    use super::super::presets::PlatformPreset;
    use super::*;

    struct FakePlatform {
        contents: ChatContents,
        preset: PlatformPreset,
    }

    impl FakePlatform {
        fn new(preset: PlatformPreset) -> Self {
            Self {
                contents: ChatContents::new(),
                preset,
            }
        }

        fn ask(&mut self, action: &Value) -> Result<Value, String> {
            let descriptor = self.preset.descriptor(self.preset.name());
            let asked = RequestedOp::read(&action.to_string());
            perform_op(
                &asked,
                &mut self.contents,
                &DevChats::default(),
                Some(&descriptor),
                self.preset.name(),
            )
        }
    }

    fn send(text: &str) -> Value {
        json!({ "op": "send", "chat_id": "c", "content": text })
    }

    #[test]
    fn messages_are_made_edited_and_deleted() {
        let mut platform = FakePlatform::new(PlatformPreset::Discord);
        assert_eq!(platform.ask(&send("one")).unwrap()["message_id"], "m1");
        assert_eq!(platform.ask(&send("two")).unwrap()["message_id"], "m2");
        platform
            .ask(&json!({ "op": "edit", "chat_id": "c", "message_id": "m1", "content": "uno" }))
            .unwrap();
        platform
            .ask(&json!({ "op": "edit", "chat_id": "other", "message_id": "m1", "content": "x" }))
            .unwrap_err();
        let delete = json!({ "op": "delete", "chat_id": "c", "message_id": "m2" });
        platform.ask(&delete).unwrap();
        platform.ask(&delete).unwrap_err();
        let texts: Vec<_> = platform
            .contents
            .messages
            .iter()
            .map(|sent| &*sent.text)
            .collect();
        assert_eq!(texts, ["uno", "two"]);
    }

    #[test]
    fn a_message_grows_until_its_last_text_whether_that_rings_or_not() {
        for rings in [true, false] {
            let mut platform = FakePlatform::new(PlatformPreset::Discord);
            let mut first = send("on");
            first["metadata"] = json!({ "expect_edits": true });
            platform.ask(&first).unwrap();
            let mut edit = json!({ "op": "edit", "chat_id": "c", "message_id": "m1", "content": "one" });
            platform.ask(&edit).unwrap();
            assert!(platform.contents.messages.iter().all(|sent| sent.growing));
            edit["metadata"] = json!({ "notify": rings });
            platform.ask(&edit).unwrap();
            assert!(!platform.contents.messages.iter().any(|sent| sent.growing));
        }
    }

    #[test]
    fn what_is_not_listed_or_not_known_is_unsupported() {
        let mut platform = FakePlatform::new(PlatformPreset::Plain);
        let edit = json!({ "op": "edit", "chat_id": "c", "message_id": "m1", "content": "x" });
        assert_eq!(platform.ask(&edit).unwrap_err(), "unsupported op: edit");
        assert_eq!(
            platform.ask(&json!({ "op": "dance" })).unwrap_err(),
            "unsupported op: dance"
        );
        assert_eq!(platform.ask(&json!({})).unwrap_err(), "unsupported op: ");
        let half = platform.ask(&json!({ "op": "send" })).unwrap_err();
        assert!(half.starts_with("malformed action: "), "{half}");
        let mut legacy = FakePlatform::new(PlatformPreset::Legacy);
        legacy.ask(&send("x")).unwrap();
        legacy.ask(&edit).unwrap();
        legacy
            .ask(&json!({ "op": "get_chat_info", "chat_id": "c" }))
            .unwrap_err();
    }

    #[test]
    fn length_is_measured_in_the_platforms_unit() {
        let mut telegram = FakePlatform::new(PlatformPreset::Telegram);
        telegram.ask(&send(&"\u{1f600}".repeat(2048))).unwrap();
        let over = telegram.ask(&send(&"\u{1f600}".repeat(2049))).unwrap_err();
        assert_eq!(over, "message too long: 4098 of 4096");
        FakePlatform::new(PlatformPreset::Discord)
            .ask(&send(&"\u{1f600}".repeat(2000)))
            .unwrap();
        telegram.ask(&send("")).unwrap_err();
    }

    #[test]
    fn a_draft_grows_and_is_sealed_once() {
        let mut platform = FakePlatform::new(PlatformPreset::Slack);
        let draft = |text: &str, last: bool| json!({ "op": "draft", "chat_id": "c", "draft_id": 7, "content": text, "final": last });
        assert!(
            platform
                .ask(&draft("a", false))
                .unwrap()
                .get("message_id")
                .is_none()
        );
        platform.ask(&draft("ab", false)).unwrap();
        assert_eq!(platform.contents.drafts.values().next().unwrap(), "ab");
        assert_eq!(platform.ask(&draft("abc", true)).unwrap()["message_id"], "m1");
        assert!(platform.contents.drafts.is_empty());
        platform.ask(&draft("abcd", true)).unwrap_err();
    }

    #[test]
    fn a_follow_up_needs_its_capability() {
        let mut platform = FakePlatform::new(PlatformPreset::Discord);
        let follow_up =
            json!({ "op": "follow_up", "session_key": "k", "kind": "discord.token", "content": "x" });
        platform.ask(&follow_up).unwrap_err();
        platform.contents.grant("k", "discord.token");
        assert_eq!(platform.ask(&follow_up).unwrap()["message_id"], "m1");
    }

    #[test]
    fn threads_are_opened_and_renamed_under_their_guard() {
        let mut platform = FakePlatform::new(PlatformPreset::Discord);
        let opened = platform
            .ask(&json!({ "op": "thread_create", "chat_id": "c", "thread_name": "a" }))
            .unwrap();
        let rename = |guard: &str| {
            json!({ "op": "thread_rename", "chat_id": "c", "message_id": opened["thread_id"], "thread_name": "b",
            "only_if_current_name": guard })
        };
        platform.ask(&rename("z")).unwrap_err();
        platform.ask(&rename("a")).unwrap();
        assert_eq!(platform.contents.threads.iter().next().unwrap().name, "b");
    }

    #[test]
    fn what_a_platform_cannot_show_is_refused() {
        let prompt = |options: usize| {
            let options: Vec<_> = (0..options)
                .map(|option| json!({ "id": format!("o{option}"), "label": "x" }))
                .collect();
            json!({ "op": "prompt", "chat_id": "c", "content": "May I?", "prompt_kind": "approval", "prompt_id": "p",
            "options": options })
        };
        let media = |caption: &str| {
            json!({ "op": "send_media", "chat_id": "c", "media_kind": "image", "source_url": "https://x/y",
            "content": caption })
        };
        for (preset, max_length) in [
            (PlatformPreset::WhatsApp, 10),
            (PlatformPreset::Discord, 25),
            (PlatformPreset::Slack, 25),
            (PlatformPreset::Telegram, 100),
        ] {
            let mut platform = FakePlatform::new(preset);
            platform.ask(&prompt(max_length)).unwrap();
            platform.ask(&prompt(max_length + 1)).unwrap_err();
            let long = platform.ask(&media(&"x".repeat(1025)));
            let short = matches!(preset, PlatformPreset::WhatsApp | PlatformPreset::Telegram);
            assert_eq!(long.is_err(), short, "{preset:?}");
            platform.ask(&media(&"x".repeat(1024))).unwrap();
            let react = json!({ "op": "react", "chat_id": "c", "message_id": "m", "emoji": "\u{2705}", "remove": false });
            assert_eq!(platform.ask(&react).is_err(), preset == PlatformPreset::Telegram);
            let typing = json!({ "op": "typing", "chat_id": "c" });
            assert_eq!(platform.ask(&typing).is_err(), preset == PlatformPreset::WhatsApp);
        }
        let mut telegram = FakePlatform::new(PlatformPreset::Telegram);
        let opened = telegram
            .ask(&json!({ "op": "thread_create", "chat_id": "c", "thread_name": "a" }))
            .unwrap();
        let mut rename = json!({ "op": "thread_rename", "chat_id": "c", "message_id": opened["thread_id"], "thread_name": "b" });
        telegram.ask(&rename).unwrap();
        rename["only_if_current_name"] = json!("b");
        telegram.ask(&rename).unwrap_err();
    }
}
