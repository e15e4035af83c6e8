//! The one interface between the relay and a platform: what the platform can do, and how a reply, an
//! attachment or a thread's name becomes ops.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use smol_str::SmolStr;

use super::action_builder::{ActionBuilder, TextKind};
use super::answer_shaper::AnswerShaper;
use super::chat_settings::ChatSettings;
use super::chats::{Chat, ChatFacts, ChatId};
use super::long_code::CodeShaper;
use super::media::{OutgoingAttachment, attachments_ops};
use super::slack::SlackConfig;
use super::stream::{
    DurableAction, HalfWritten, ReplyStream, StreamMode, StreamSettings, StreamTarget, left_indicators,
};
use super::tables::TableShaper;
use super::threads::{ThreadRegistry, open_thread};
use crate::collections::TextMap;
use crate::wire::{ALBUMS, Action, CapabilityDescriptor, MessageEvent, OpIds, Platform, TABLES};
use crate::words::{Language, PhraseKey};

/// Dialects of Markdown with code blocks and without tables.
const WITHOUT_TABLES: [&str; 4] = ["discord", "markdown_v2", "slack_mrkdwn", "whatsapp"];

/// One identity's platform, as the connector declared it at the last handshake. Cheap to clone.
///
/// It performs nothing; an embedder can use it alone over a transport:
///
/// ```
/// use std::sync::Arc;
/// use hermes_relay::chat::{CapabilityDescriptor, ChatFacts, ChatId, RelayAdapter};
/// use hermes_relay::transport::{MemoryTransport, RelayTransport, inbound_channel};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let (transport, connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
/// let (inbound, _receiver) = inbound_channel();
/// transport.connect(inbound);
/// let descriptor = transport.handshake().await?;
///
/// let adapter = RelayAdapter::new("discord", None, Some(descriptor), Arc::default());
/// let chat = ChatId { platform: "discord".into(), chat: "c1".into() };
/// for op in adapter.reply("Hello.", &chat, &ChatFacts::default()) {
///     let (platform, bot_id) = adapter.tags();
///     transport.send_outbound(&op.action, platform, bot_id).await;
/// }
/// assert_eq!(connector.record().borrow().ops[0].text(), Some("Hello."));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RelayAdapter(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    platform: String,
    bot_id: Option<SmolStr>,
    descriptor: Option<Arc<CapabilityDescriptor>>,
    settings: Arc<StreamSettings>,
    slack: Arc<SlackConfig>,
    chat: Arc<ChatSettings>,
}

impl RelayAdapter {
    /// An adapter for one identity. Without a descriptor it plans plain sends only.
    pub fn new(
        platform: &str,
        bot_id: Option<String>,
        descriptor: Option<Arc<CapabilityDescriptor>>,
        settings: Arc<StreamSettings>,
    ) -> Self {
        Self::with_slack(platform, bot_id, descriptor, settings, Arc::default())
    }

    /// [`Self::new`] with settings of Slack, which say where replies go there.
    pub fn with_slack(
        platform: &str,
        bot_id: Option<String>,
        descriptor: Option<Arc<CapabilityDescriptor>>,
        settings: Arc<StreamSettings>,
        slack: Arc<SlackConfig>,
    ) -> Self {
        Self(Arc::new(Inner {
            platform: platform.to_owned(),
            bot_id: bot_id.filter(|bot_id| !bot_id.is_empty()).map(SmolStr::from),
            descriptor,
            settings,
            slack,
            chat: Arc::default(),
        }))
    }

    /// With settings of what people meet in a chat.
    #[must_use]
    pub fn with_chat(self, chat: Arc<ChatSettings>) -> Self {
        Self(Arc::new(Inner {
            chat,
            ..Arc::unwrap_or_clone(self.0)
        }))
    }

    /// The language in which the relay's own words are said to the author of a chat's last message.
    pub(crate) fn language(&self, facts: &ChatFacts) -> Language {
        Language::of_client(facts.language.as_deref(), self.0.chat.language)
    }

    /// Builds the ops of a chat on this platform.
    pub(super) fn builder(&self, chat: Arc<Chat>) -> ActionBuilder {
        let language = self.language(&chat.facts);
        let (settings, slack) = (&self.0.settings, &self.0.slack);
        ActionBuilder::new(chat, self.descriptor(), settings, slack, language)
    }

    pub(super) fn builder_of(&self, chat: &ChatId, facts: &ChatFacts) -> ActionBuilder {
        let (id, facts) = (chat.clone(), facts.clone());
        self.builder(Arc::new(Chat { id, facts }))
    }

    /// Whether nothing of an answer is shown before its end.
    pub fn holds_answers(&self) -> bool {
        self.0.settings.mode == StreamMode::Off
    }

    /// The platform's name.
    pub fn platform(&self) -> &str {
        &self.0.platform
    }

    /// The bot that ops are sent as.
    pub fn bot_id(&self) -> Option<&str> {
        self.0.bot_id.as_deref()
    }

    /// What the connector declared; `None` before the first handshake.
    pub fn descriptor(&self) -> Option<&CapabilityDescriptor> {
        self.0.descriptor.as_deref()
    }

    /// Whether the platform supports an op; `false` while undeclared.
    pub fn supports(&self, op: &str) -> bool {
        self.descriptor()
            .is_some_and(|descriptor| descriptor.supports_op(op))
    }

    /// Whether a message in a group can start a thread. Slack has settings of its own for that; a topic of Telegram is no thread under
    /// a message.
    pub(crate) fn opens_threads(&self) -> bool {
        let has_threads = self.descriptor().is_some_and(|known| known.supports_threads);
        let is_other = [Platform::SLACK, Platform::TELEGRAM]
            .iter()
            .all(|other| other.as_str() != self.platform());
        has_threads && is_other && self.supports("thread_create")
    }

    /// The op that opens a thread for a message; its name begins with the project, if one is given.
    pub(crate) fn open_thread(&self, event: &MessageEvent, project: Option<&str>) -> Action {
        let language = self.language(&ChatFacts::from_source(&event.source));
        open_thread(event, project, language.plain(PhraseKey::Untitled))
    }

    /// Whether the platform accepts attachments; `true` while undeclared.
    pub fn accepts_attachments(&self) -> bool {
        self.descriptor().is_none() || self.supports("send_media")
    }

    /// Whether the platform shows several files as one message.
    pub fn has_albums(&self) -> bool {
        self.supports(ALBUMS)
    }

    /// Whether people's data is kept out of what the agent reads.
    pub fn is_pii_safe(&self) -> bool {
        self.descriptor().is_some_and(|descriptor| descriptor.pii_safe)
    }

    /// A hint for the agent's instructions; empty when there is none.
    pub fn platform_hint(&self) -> &str {
        self.descriptor()
            .map_or("", |descriptor| &descriptor.platform_hint)
    }

    /// The Markdown dialect; empty when there is none.
    pub fn markdown_dialect(&self) -> &str {
        let descriptor = self.descriptor();
        descriptor
            .and_then(|descriptor| descriptor.markdown_dialect.as_deref())
            .unwrap_or_default()
    }

    /// What rewrites the tables of an agent, where the platform shows code blocks and no tables.
    fn table_shaper(&self) -> Option<TableShaper> {
        let width = self.0.chat.table_width;
        let has_no_tables = WITHOUT_TABLES.contains(&self.markdown_dialect()) && !self.supports(TABLES);
        (width > 0 && has_no_tables).then(|| TableShaper::new(width))
    }

    /// What rewrites an answer for a chat. `sends_files` says whether the answer's code can go as a file, as far as that is not up
    /// to the platform.
    pub(crate) fn answer_shaper(&self, facts: &ChatFacts, sends_files: bool) -> AnswerShaper {
        let max_lines = self.0.chat.code_file_lines;
        let sends_code = max_lines > 0 && sends_files && self.supports("send_media");
        AnswerShaper {
            code: sends_code.then(|| CodeShaper::new(max_lines, self.language(facts))),
            tables: self.table_shaper(),
            header: None,
        }
    }

    /// The platform and bot id that every op to it carries; neither on a platform that is not known.
    pub fn tags(&self) -> (Option<SmolStr>, Option<SmolStr>) {
        let platform = self.platform();
        if platform.is_empty() || platform == Platform::RELAY.as_str() {
            return (None, None);
        }
        (Some(platform.into()), self.0.bot_id.clone())
    }

    /// The sends that deliver a text; none for a blank one. Every part replies to the same message, because a send
    /// that replies to nothing is read as progress.
    pub fn reply(&self, text: &str, chat: &ChatId, facts: &ChatFacts) -> Vec<DurableAction> {
        let builder = self.builder_of(chat, facts);
        let text = match self.table_shaper() {
            Some(tables) => tables.shape(text),
            None => text.to_owned(),
        };
        let actions = reply(&text, &builder).into_iter();
        actions.map(DurableAction::from).collect()
    }

    /// Streams one turn's reply. `draft_id` is the first of the turn's own draft ids ([`first_draft_id`](super::stream::first_draft_id)).
    #[expect(
        clippy::too_many_arguments,
        reason = "a chat, a turn and its ids; none of them is optional"
    )]
    pub fn stream(
        &self,
        chat: Arc<ChatId>,
        facts: Arc<ChatFacts>,
        session: Arc<str>,
        follow_up: Option<String>,
        draft_id: u64,
        ids: OpIds,
        now: Duration,
    ) -> ReplyStream {
        let (id, facts) = (Arc::unwrap_or_clone(chat), Arc::unwrap_or_clone(facts));
        self.stream_to(
            Arc::new(Chat { id, facts }),
            session,
            follow_up,
            draft_id,
            ids,
            now,
        )
    }

    /// [`Self::stream`] to a chat that is shared already.
    pub(crate) fn stream_to(
        &self,
        chat: Arc<Chat>,
        session: Arc<str>,
        follow_up: Option<String>,
        draft_id: u64,
        ids: OpIds,
        now: Duration,
    ) -> ReplyStream {
        let builder = self.builder(Arc::clone(&chat));
        let target = self.target(chat, session, follow_up);
        let stream = ReplyStream::new(Arc::clone(&self.0.settings), builder, target, draft_id, ids, now);
        match self.0.chat.progress_after_secs {
            0 => stream,
            secs => stream.showing_time(Duration::from_secs(secs), now),
        }
    }

    fn target(&self, chat: Arc<Chat>, session: Arc<str>, follow_up: Option<String>) -> StreamTarget {
        StreamTarget {
            chat,
            session,
            descriptor: self.0.descriptor.clone(),
            follow_up,
        }
    }

    /// The indicators that take back what a turn has shown that ended with its process.
    pub fn left_indicators(&self, chat: &ChatId, facts: &ChatFacts) -> Vec<Action> {
        let builder = self.builder_of(chat, facts);
        let target = self.target(Arc::clone(&builder.chat), "".into(), None);
        left_indicators(&self.0.settings, &builder, &target)
    }

    /// The ops for a message that an ended process left half-written: it loses its cursor, or is sealed, and gets the notice below its
    /// text. Where the platform refuses that, the notice is a message of its own.
    pub fn close_half_written(
        &self,
        half: &HalfWritten,
        notice: Option<&str>,
        chat: &ChatId,
        facts: &ChatFacts,
    ) -> Vec<DurableAction> {
        let builder = self.builder_of(chat, facts);
        let edit = |text: String| match half.draft_id {
            Some(draft) => builder.draft(draft, text, true, TextKind::Final),
            None => builder.edit(&half.message_id, text, TextKind::Final),
        };
        let Some(notice) = notice else {
            return vec![edit(half.text.clone()).into()];
        };
        let whole = format!("{}\n\n{notice}", half.text);
        let reply = builder.reply(notice.to_owned(), TextKind::Final);
        if builder.unit.measure(&whole) > builder.limit {
            return vec![edit(half.text.clone()).into(), reply.into()];
        }
        vec![DurableAction {
            action: edit(whole),
            fallback: vec![reply],
            then: Vec::new(),
        }]
    }

    /// The ops that deliver an attachment, with a text as the fallback; the text alone where the platform accepts no
    /// attachments.
    pub fn attachment(
        &self,
        attachment: &OutgoingAttachment,
        chat: &ChatId,
        facts: &ChatFacts,
    ) -> Vec<DurableAction> {
        self.attachments(&[attachment], chat, facts)
    }

    /// The same for attachments that follow each other: albums where the platform has them.
    pub fn attachments(
        &self,
        attachments: &[&OutgoingAttachment],
        chat: &ChatId,
        facts: &ChatFacts,
    ) -> Vec<DurableAction> {
        let builder = self.builder_of(chat, facts);
        attachments_ops(attachments, &builder, self.descriptor(), self.language(facts))
    }

    /// The op that names the chat's thread, when the connector opened the thread and it has no name from us yet.
    pub fn rename_thread(
        &self,
        threads: &mut ThreadRegistry,
        chat: &ChatId,
        facts: &ChatFacts,
        title: &str,
    ) -> Option<Action> {
        self.supports("thread_rename")
            .then(|| threads.rename(chat, facts, title))?
    }
}

/// The adapters of all platforms, rebuilt at every handshake.
#[derive(Clone, Debug, Default)]
pub struct Adapters {
    by_platform: TextMap<String, RelayAdapter>,
    primary: Option<Arc<CapabilityDescriptor>>,
    settings: Arc<StreamSettings>,
    slack: Arc<SlackConfig>,
    chat: Arc<ChatSettings>,
}

impl Adapters {
    /// One adapter per platform, from the identities (platform and bot id, which may be empty; the first of a platform
    /// counts) and the declared descriptors (platform and descriptor; the last of a platform counts). The first
    /// descriptor is the primary one: it is used for platforms that have none.
    pub fn new(
        identities: impl Iterator<Item = (String, String)>,
        descriptors: impl Iterator<Item = (String, Arc<CapabilityDescriptor>)>,
        settings: Arc<StreamSettings>,
        slack: Arc<SlackConfig>,
        chat: Arc<ChatSettings>,
    ) -> Self {
        let mut primary = None;
        let mut declared = TextMap::default();
        for (platform, descriptor) in descriptors {
            primary.get_or_insert_with(|| Arc::clone(&descriptor));
            declared.insert(platform, descriptor);
        }
        let mut bots: HashMap<String, String> = HashMap::new();
        for (platform, bot_id) in identities {
            bots.entry(platform).or_insert(bot_id);
        }
        let platforms: Vec<String> = bots.keys().chain(declared.keys()).cloned().collect();
        let by_platform = platforms.into_iter().map(|platform| {
            let bot_id = bots.get(&platform).cloned();
            let descriptor = declared.get(&platform).or(primary.as_ref()).cloned();
            let (settings, slack) = (Arc::clone(&settings), Arc::clone(&slack));
            let adapter = RelayAdapter::with_slack(&platform, bot_id, descriptor, settings, slack)
                .with_chat(Arc::clone(&chat));
            (platform, adapter)
        });
        Self {
            by_platform: by_platform.collect(),
            primary,
            settings,
            slack,
            chat,
        }
    }

    /// The adapter of a platform; for an unknown one, an adapter with the primary descriptor and without a bot.
    pub fn get(&self, platform: &str) -> RelayAdapter {
        self.by_platform.get(platform).cloned().unwrap_or_else(|| {
            let (settings, slack) = (Arc::clone(&self.settings), Arc::clone(&self.slack));
            RelayAdapter::with_slack(platform, None, self.primary.clone(), settings, slack)
                .with_chat(Arc::clone(&self.chat))
        })
    }
}

/// The sends that deliver a text, split to the platform's limit.
pub(super) fn reply(text: &str, builder: &ActionBuilder) -> Vec<Action> {
    let parts = builder.parts(text.to_owned()).into_iter();
    parts.map(|part| builder.reply(part, TextKind::Final)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::media::MediaKind;

    fn chat() -> ChatId {
        ChatId {
            platform: "discord".into(),
            chat: "c".into(),
        }
    }

    fn facts() -> ChatFacts {
        ChatFacts {
            message_id: Some("m".into()),
            ..ChatFacts::default()
        }
    }

    fn descriptor(ops: &[&str]) -> CapabilityDescriptor {
        let mut descriptor = CapabilityDescriptor::placeholder("discord");
        descriptor.supported_ops = ops.iter().map(|op| (*op).to_owned()).collect();
        descriptor
    }

    fn adapter(descriptor: Option<CapabilityDescriptor>) -> RelayAdapter {
        RelayAdapter::new(
            "discord",
            Some("b".into()),
            descriptor.map(Arc::new),
            Arc::default(),
        )
    }

    #[test]
    fn every_part_of_a_reply_fits_and_answers_the_same_message() {
        let mut descriptor = descriptor(&[]);
        descriptor.max_message_length = 50;
        let ops = adapter(Some(descriptor)).reply(&"word ".repeat(40), &chat(), &facts());
        assert!(ops.len() > 1);
        for op in ops {
            let Action::Send {
                content, reply_to, ..
            } = op.action
            else {
                panic!()
            };
            assert!(content.chars().count() <= 50 && reply_to.as_deref() == Some("m"));
        }
        assert!(adapter(None).reply(" \n", &chat(), &facts()).is_empty());
    }

    #[test]
    fn an_undeclared_platform_gets_plain_sends_and_may_take_attachments() {
        let undeclared = adapter(None);
        assert!(
            !undeclared.supports("send") && undeclared.accepts_attachments() && !undeclared.is_pii_safe()
        );
        assert_eq!(
            (undeclared.platform_hint(), undeclared.markdown_dialect()),
            ("", "")
        );
        assert_eq!(undeclared.reply("hi", &chat(), &facts()).len(), 1);
        let declared = adapter(Some(descriptor(&["send"])));
        assert!(declared.supports("send") && !declared.accepts_attachments());
        assert!(adapter(Some(descriptor(&["send", "send_media"]))).accepts_attachments());
    }

    #[test]
    fn ops_carry_platform_and_bot_unless_the_platform_is_unknown() {
        let tags = |platform: &str, bot: &str| {
            RelayAdapter::new(platform, Some(bot.to_owned()), None, Arc::default()).tags()
        };
        assert_eq!(tags("discord", "b"), (Some("discord".into()), Some("b".into())));
        assert_eq!(tags("discord", ""), (Some("discord".into()), None));
        assert_eq!((tags("relay", "b"), tags("", "b")), ((None, None), (None, None)));
    }

    #[test]
    fn an_attachment_falls_back_to_text() {
        let file = |is_public| OutgoingAttachment::File {
            kind: MediaKind::Image,
            source_url: "https://c.example/1.png".into(),
            caption: "look".into(),
            name: Some("1.png".into()),
            is_public,
            instead: None,
        };
        let texts = |ops: &[Action]| -> Vec<String> {
            let text = |op: &Action| match op {
                Action::Send { content, .. } => content.clone(),
                other => panic!("{other:?}"),
            };
            ops.iter().map(text).collect()
        };
        let able = adapter(Some(descriptor(&["send", "send_media"])));
        for (is_public, fallback) in [
            (true, "look\nhttps://c.example/1.png"),
            (false, "look\n(could not deliver 1.png)"),
        ] {
            let ops = able.attachment(&file(is_public), &chat(), &facts());
            assert!(matches!(&ops[..], [op] if op.action.op() == "send_media"));
            assert_eq!(texts(&ops[0].fallback), [fallback]);
            let ops = adapter(None).attachment(&file(is_public), &chat(), &facts());
            let actions: Vec<Action> = ops.into_iter().map(|op| op.action).collect();
            assert_eq!(texts(&actions), [fallback]);
        }
        let code = OutgoingAttachment::File {
            kind: MediaKind::Document,
            source_url: "https://c.example/2".into(),
            caption: String::new(),
            name: Some("code-1.rs".into()),
            is_public: false,
            instead: Some("the code".into()),
        };
        assert_eq!(
            texts(&able.attachment(&code, &chat(), &facts())[0].fallback),
            ["the code"]
        );
        let text = OutgoingAttachment::Text("instead".into());
        assert_eq!(able.attachment(&text, &chat(), &facts()).len(), 1);
    }

    #[test]
    fn a_half_written_draft_is_sealed_with_the_notice_below_its_text() {
        let half = |text: &str| HalfWritten {
            message_id: String::new(),
            draft_id: Some(7),
            text: text.into(),
        };
        let slack = adapter(Some(descriptor(&["send", "draft"])));
        let closed = |half: &HalfWritten, notice| {
            let ops = slack.close_half_written(half, notice, &chat(), &facts());
            let sealed = |op: &DurableAction| match &op.action {
                Action::Draft {
                    draft_id,
                    content,
                    r#final,
                    ..
                } => format!("{draft_id} {final} {content}"),
                other => format!("{} {}", other.op(), op.fallback.len()),
            };
            let fallback = ops[0].fallback.len();
            (ops.iter().map(sealed).collect::<Vec<_>>(), fallback)
        };
        assert_eq!(closed(&half("Half"), None), (vec!["7 true Half".to_owned()], 0));
        let both = "7 true Half\n\ncut".to_owned();
        assert_eq!(closed(&half("Half"), Some("cut")), (vec![both], 1));
        let stored = serde_json::to_vec(&half("Half")).unwrap();
        assert_eq!(
            serde_json::from_slice::<HalfWritten>(&stored).unwrap(),
            half("Half")
        );
        let of_message: HalfWritten = serde_json::from_str(r#"{"id":"m","text":"a"}"#).unwrap();
        assert_eq!(of_message.draft_id, None);
    }

    #[test]
    fn a_thread_is_renamed_only_where_the_platform_can() {
        let facts = ChatFacts {
            thread_id: Some("t".into()),
            ..ChatFacts::default()
        };
        let mut threads = ThreadRegistry::new(8);
        threads.opened("discord", "t".into(), "c".into(), None);
        let mut rename =
            |adapter: &RelayAdapter| adapter.rename_thread(&mut threads, &chat(), &facts, "Plans");
        assert!(rename(&adapter(None)).is_none() && rename(&adapter(Some(descriptor(&["send"])))).is_none());
        let able = adapter(Some(descriptor(&["send", "thread_rename"])));
        assert!(rename(&able).is_some() && rename(&able).is_none());
    }

    #[test]
    fn each_platform_has_its_own_descriptor_and_bot_or_the_primary_one() {
        let declared = ["slack", "discord"].map(|platform| {
            let descriptor = CapabilityDescriptor::placeholder(platform);
            (platform.to_owned(), Arc::new(descriptor))
        });
        let identities = [
            ("discord", "d1"),
            ("discord", "d2"),
            ("telegram", "t"),
            ("slack", ""),
        ]
        .map(|(platform, bot)| (platform.to_owned(), bot.to_owned()));
        let adapters = Adapters::new(
            identities.into_iter(),
            declared.into_iter(),
            Arc::default(),
            Arc::default(),
            Arc::default(),
        );
        for (platform, bot_id, descriptor) in [
            ("discord", Some("d1"), "discord"),
            ("telegram", Some("t"), "slack"),
            ("slack", None, "slack"),
            ("matrix", None, "slack"),
        ] {
            let adapter = adapters.get(platform);
            assert_eq!((adapter.platform(), adapter.bot_id()), (platform, bot_id));
            assert_eq!(adapter.descriptor().unwrap().platform, descriptor, "{platform}");
        }
        assert!(Adapters::default().get("discord").descriptor().is_none());
    }

    #[test]
    fn formatting_hints_follow_the_destination_whichever_platform_is_the_primary_one() {
        let settings = StreamSettings {
            rich_blocks: true,
            ..StreamSettings::default()
        };
        for primary_has_blocks in [true, false] {
            let mut declared = ["slack", "discord"].map(|platform| {
                let mut descriptor = CapabilityDescriptor::placeholder(platform);
                descriptor.supports_block_formatting = platform == "slack";
                (platform.to_owned(), Arc::new(descriptor))
            });
            if !primary_has_blocks {
                declared.reverse();
            }
            let settings = Arc::new(settings.clone());
            let adapters = Adapters::new(
                std::iter::empty(),
                declared.into_iter(),
                settings,
                Arc::default(),
                Arc::default(),
            );
            for (platform, hinted) in [("slack", true), ("discord", false)] {
                let chat = ChatId {
                    platform: platform.into(),
                    chat: "c".into(),
                };
                let ops = adapters.get(platform).reply("hi", &chat, &facts());
                let Action::Send { metadata, .. } = &ops[0].action else {
                    panic!("{ops:?}")
                };
                assert_eq!(metadata.get("format_hints").is_some(), hinted, "{platform}");
            }
        }
    }
}
