//! How a message is named: its platform, its thread and its session. The relay and the embedded connector name alike.

use super::chats::Chat;
use super::discord::keep_parent_of_threads;
use super::slack::SlackConfig;
use crate::wire::{
    CommandMap, Grouping, MessageEvent, OwnPlatforms, Platform, Scalar, SessionKey, SessionSource,
    WhatsAppAliases,
};

/// The rules by which messages are named.
#[derive(Clone, Debug, Default)]
pub struct SessionNames {
    grouping: Grouping,
    multiplex_profiles: bool,
    slack: SlackConfig,
    commands: CommandMap,
    /// Platforms by names that the contract does not know.
    platforms: OwnPlatforms,
}

impl SessionNames {
    /// The rules of these settings.
    pub fn new(grouping: Grouping, multiplex_profiles: bool, slack: SlackConfig) -> Self {
        Self {
            grouping,
            multiplex_profiles,
            commands: CommandMap::default().with(slack.command_map.clone()),
            slack,
            platforms: OwnPlatforms::default(),
        }
    }

    /// Messages may come from this platform.
    pub fn add_platform(&mut self, name: &str) {
        self.platforms.add(name);
    }

    /// A platform's name in its own spelling.
    pub fn platform(&self, name: &str) -> Platform {
        Platform::named(name, &self.platforms)
    }

    /// Names a message: its platform, its thread, and its session, which is returned.
    pub fn name(&self, event: &mut MessageEvent, aliases: &dyn WhatsAppAliases) -> SessionKey {
        event.source.platform.adopt(&self.platforms);
        self.commands.rewrite(event);
        keep_parent_of_threads(&mut event.source);
        let source = &mut event.source;
        if source.thread().is_none() && self.separates_messages_of(source) {
            source.thread_id.clone_from(&event.message_id);
        }
        let profile = source
            .profile
            .as_ref()
            .map(Scalar::as_str)
            .filter(|_| self.multiplex_profiles);
        SessionKey::build(source, self.grouping, profile, aliases)
    }

    /// Whether messages outside threads are sessions of their own in this chat.
    fn separates(&self, platform: &str, chat: &str) -> bool {
        platform == Platform::SLACK.as_str() && self.slack.separates(chat)
    }

    fn separates_messages_of(&self, source: &SessionSource) -> bool {
        let chat = source.chat_id.as_ref().map_or("", Scalar::as_str);
        self.separates(source.platform.as_str(), chat)
    }

    /// Whether a message, as [`Self::name`] names it, is outside threads where each such message is a session of its own: its thread
    /// is the one of its replies. What has no id, as a command of Slack's own, has no thread either.
    pub fn is_separate(&self, event: &MessageEvent) -> bool {
        event.source.thread_id == event.message_id && self.separates_messages_of(&event.source)
    }

    /// [`Self::is_separate`] of the message that the chat's facts are of.
    pub fn is_separate_in(&self, Chat { id, facts }: &Chat) -> bool {
        facts.thread_id == facts.message_id && self.separates(&id.platform, &id.chat)
    }

    /// Whether the session of a message, as [`Self::name`] names it, belongs to one person.
    pub fn is_personal(&self, source: &SessionSource) -> bool {
        self.grouping.is_personal(source)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::NoAliases;

    fn named(names: &SessionNames, source: &serde_json::Value) -> (String, bool, MessageEvent) {
        named_with_id(names, source, Some("m1"))
    }

    fn named_with_id(
        names: &SessionNames,
        source: &serde_json::Value,
        id: Option<&str>,
    ) -> (String, bool, MessageEvent) {
        let event = json!({"text": "hi", "message_id": id, "source": source});
        let mut event = MessageEvent::from_value(&event).unwrap();
        let key = names.name(&mut event, &NoAliases).as_str().to_owned();
        let is_separate = names.is_separate(&event);
        let chat = Chat::from_source(&event.source);
        assert_eq!(names.is_separate_in(&chat), is_separate);
        (key, is_separate, event)
    }

    #[test]
    fn only_slack_messages_outside_threads_are_sessions_of_their_own() {
        let mut names = SessionNames::default();
        names.add_platform("Plain");
        for (source, key, separate) in [
            (
                json!({"platform": "slack", "chat_id": "D1", "scope_id": "T1"}),
                "agent:main:slack:dm:T1:D1:m1",
                true,
            ),
            (
                json!({"platform": "slack", "chat_id": "D1", "thread_id": "t0"}),
                "agent:main:slack:dm:D1:t0",
                false,
            ),
            (
                json!({"platform": "slack", "chat_id": "D1", "scope_id": "T1", "thread_id": ""}),
                "agent:main:slack:dm:T1:D1:m1",
                true,
            ),
            (
                json!({"platform": "discord", "chat_id": "D1"}),
                "agent:main:discord:dm:D1",
                false,
            ),
            (
                json!({"platform": "plain", "chat_id": "D1"}),
                "agent:main:Plain:dm:D1",
                false,
            ),
        ] {
            let (found, is_separate, _) = named(&names, &source);
            assert_eq!((found.as_str(), is_separate), (key, separate));
        }
        let flat = SlackConfig {
            reply_in_thread: false,
            ..SlackConfig::default()
        };
        let names = SessionNames::new(Grouping::default(), false, flat);
        let (key, separate, _) = named(&names, &json!({"platform": "slack", "chat_id": "D1"}));
        assert_eq!((key.as_str(), separate), ("agent:main:slack:dm:D1", false));
    }

    #[test]
    fn what_has_no_id_is_outside_threads_unless_it_names_one() {
        let flat = SlackConfig {
            reply_in_thread: false,
            ..SlackConfig::default()
        };
        let flat = SessionNames::new(Grouping::default(), false, flat);
        let (direct, discord) = (
            json!({"platform": "slack", "chat_id": "D1"}),
            json!({"platform": "discord", "chat_id": "D1"}),
        );
        let in_thread = json!({"platform": "slack", "chat_id": "D1", "thread_id": "t0"});
        let names = SessionNames::default();
        for (names, source, separate) in [
            (&names, &direct, true),
            (&names, &in_thread, false),
            (&names, &discord, false),
            (&flat, &direct, false),
        ] {
            let (_, is_separate, _) = named_with_id(names, source, None);
            assert_eq!(is_separate, separate, "{source}");
        }
    }

    #[test]
    fn on_discord_only_a_thread_has_a_parent() {
        let names = SessionNames::default();
        for (source, parent) in [
            (
                json!({"platform": "discord", "chat_id": "c1", "chat_type": "group", "parent_chat_id": "category"}),
                None,
            ),
            (
                json!({"platform": "discord", "chat_id": "c1", "chat_type": "group", "thread_id": "", "parent_chat_id": "category"}),
                None,
            ),
            (
                json!({"platform": "discord", "chat_id": "t1", "chat_type": "thread", "parent_chat_id": "c1"}),
                Some("c1"),
            ),
            (
                json!({"platform": "discord", "chat_id": "c1", "chat_type": "group", "thread_id": "t1", "parent_chat_id": "c1"}),
                Some("c1"),
            ),
            (
                json!({"platform": "matrix", "chat_id": "r1", "chat_type": "group", "parent_chat_id": "space"}),
                Some("space"),
            ),
        ] {
            let (_, _, event) = named(&names, &source);
            let kept = event.source.parent_chat_id.as_ref().map(Scalar::as_str);
            assert_eq!(kept, parent, "{source}");
        }
    }
}
