//! Chats: how a message and its session are named, which chat a session has, what is remembered of each chat, and the
//! threads that the connector opened.
//!
//! A message is named here before anything is derived from it, whether it is fresh or read back from the journal. A platform
//! of the connector's own keeps its name in every way that leads to a turn.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::access::{Author, PersonId};
use crate::adapter::{
    Adapters, Chat, ChatFacts, ChatId, ChatMemory, LabelMemory, SessionNames, ThreadRegistry,
};
use crate::collections::BoundedCache;
use crate::config::{AliasFiles, Settings};
use crate::cron::job::JobOrigin;
use crate::cron::target::Target;
use crate::relay::effects::Effects;
use crate::relay::origin::TurnOrigin;
use crate::store::{ChatRow, Command};
use crate::text::truncate;
use crate::wire::{
    Action, MessageEvent, NoAliases, Platform, Scalar, SessionKey, SessionSource, WhatsAppAliases,
};

/// Threads of the connector's own that are remembered.
const MAX_THREADS: usize = 1024;
/// Longest title that is kept for a thread, in characters; its name has fewer.
const MAX_TITLE: usize = 400;

/// What is known of chats.
#[derive(Debug)]
pub struct Chats {
    /// Knows the platforms of our identities, of descriptors, and of chats that are remembered.
    names: SessionNames,
    labels: LabelMemory,
    /// WhatsApp ids that mean the same person.
    aliases: Option<Arc<AliasFiles>>,
    memory: ChatMemory,
    threads: ThreadRegistry,
    /// Titles for threads that the connector has yet to open.
    titles: BoundedCache<ChatId, (Chat, String)>,
}

impl Chats {
    pub fn new(settings: &Settings) -> Self {
        let home = settings.hermes_home.as_deref();
        Self {
            names: settings.session_names(),
            labels: LabelMemory::default(),
            aliases: home.map(|home| Arc::new(AliasFiles::new(home))),
            memory: ChatMemory::new(settings.journal.chat_memory),
            threads: ThreadRegistry::new(MAX_THREADS),
            titles: BoundedCache::new(MAX_THREADS),
        }
    }

    /// Number of chats that are remembered.
    pub fn len(&self) -> usize {
        self.memory.count()
    }

    /// A descriptor declared this platform, or a chat on it is remembered.
    pub fn add_platform(&mut self, name: &str) {
        self.names.add_platform(name);
    }

    /// A platform's name in its own spelling.
    pub fn platform(&self, name: &str) -> Platform {
        self.names.platform(name)
    }

    /// Names a message: its platform, its thread, and its session, which is returned.
    pub fn name(&mut self, event: &mut MessageEvent) -> SessionKey {
        let is_in_thread = event.source.thread().is_some();
        let session = self.session_of(event);
        if is_in_thread {
            self.threads.learn(&event.source);
        }
        self.labels.learn(&event.source);
        session
    }

    fn session_of(&self, event: &mut MessageEvent) -> SessionKey {
        let aliases: &dyn WhatsAppAliases = self.aliases.as_deref().map_or(&NoAliases, |files| files);
        self.names.name(event, aliases)
    }

    /// What messages told about chats and people, for interactions.
    pub fn labels(&self) -> &LabelMemory {
        &self.labels
    }

    /// Whether a message, as [`Self::name`] names it, is outside threads where each such message is a session of its own.
    pub fn is_separate(&self, event: &MessageEvent) -> bool {
        self.names.is_separate(event)
    }

    /// [`Self::is_separate`] of the message that the chat's facts are of: what is said there is for the chat.
    pub fn is_separate_in(&self, chat: &Chat) -> bool {
        self.names.is_separate_in(chat)
    }

    /// Whether the session of a message, as [`Self::name`] names it, belongs to one person.
    pub fn is_personal(&self, source: &SessionSource) -> bool {
        self.names.is_personal(source)
    }

    /// The source of a message in a chat, as far as the chat is known.
    pub fn source(&self, Chat { id, facts }: &Chat) -> SessionSource {
        let text = |field: &Option<SmolStr>| field.as_deref().map(Scalar::from);
        SessionSource {
            platform: self.platform(&id.platform),
            chat_id: Some(id.chat.as_str().into()),
            chat_type: text(&facts.chat_type),
            user_id: text(&facts.user_id),
            thread_id: text(&facts.thread_id),
            scope_id: text(&facts.scope_id),
            profile: text(&facts.profile),
            language_code: text(&facts.language),
            ..SessionSource::default()
        }
    }

    /// The session of a message in a chat.
    pub fn session(&self, chat: &Chat) -> SessionKey {
        let mut event = MessageEvent {
            source: self.source(chat),
            ..MessageEvent::default()
        };
        self.session_of(&mut event)
    }

    /// The chat itself, for a message that is outside threads where each such message is a session of its own.
    pub fn outside_of(&self, chat: &Chat) -> Option<Chat> {
        self.is_separate_in(chat).then(|| {
            chat.with_facts(ChatFacts {
                thread_id: None,
                message_id: None,
                ..chat.facts.clone()
            })
        })
    }

    /// The session of a chat itself, for such a message.
    pub fn session_of_chat(&self, chat: &Chat) -> Option<SessionKey> {
        Some(self.session(&self.outside_of(chat)?))
    }

    /// The session that a choice counts for: that of the chat itself for such a message, else the own one of the message.
    pub fn chosen_for(&self, origin: &TurnOrigin) -> SessionKey {
        let of_chat = self.session_of_chat(&origin.chat);
        of_chat.unwrap_or_else(|| origin.session.clone())
    }

    /// The chat of a session, as far as one is known: the one whose own key the session's begins with.
    pub fn of_session(&self, session: &SessionKey) -> Option<Chat> {
        let key = session.as_str();
        let own = |chat: &Chat| {
            let own = self.session(&of_anybody(chat));
            let rest = key.strip_prefix(own.as_str())?;
            (rest.is_empty() || rest.starts_with(':')).then(|| (own.as_str().len(), rest.to_owned()))
        };
        let (_, rest, mut chat) = (self.memory.all())
            .filter_map(|chat| {
                let (length, rest) = own(&chat)?;
                Some((length, rest, chat))
            })
            .max_by_key(|(length, ..)| *length)?;
        let last = chat.facts.thread_id.clone();
        let last = last.filter(|thread| rest.split(':').any(|part| part == thread));
        chat.facts.thread_id = last.or_else(|| self.thread_of(session, &rest, &chat));
        chat.facts.message_id = None;
        Some(chat)
    }

    /// The thread that a session is of, if what follows its chat in its key can be nothing else.
    fn thread_of(&self, session: &SessionKey, rest: &str, chat: &Chat) -> Option<SmolStr> {
        let id = rest.strip_prefix(':').filter(|id| !id.contains(':'));
        let id = SmolStr::from(id?);
        let is_of = |user_id: Option<&SmolStr>, thread_id: Option<&SmolStr>| {
            let there = chat.with_facts(ChatFacts {
                user_id: user_id.cloned(),
                thread_id: thread_id.cloned(),
                ..chat.facts.clone()
            });
            self.session(&there) == *session
        };
        (is_of(None, Some(&id)) && !is_of(Some(&id), None)).then_some(id)
    }

    /// The chat of a session with the thread and the person that the session belongs to, for routes and projects: whoever wrote last
    /// in the chat may have done so elsewhere in it.
    pub fn terms_of_session(&self, session: &SessionKey) -> Option<Chat> {
        let chat = self.of_session(session)?;
        let is_direct = chat.facts.is_direct();
        let anybody = of_anybody(&chat);
        let own = self.session(&anybody);
        let rest = session.as_str().strip_prefix(own.as_str()).unwrap_or_default();
        let user = chat.facts.user_id.as_deref().unwrap_or_default();
        let in_thread = rest.strip_suffix(user).filter(|_| !is_direct && !user.is_empty());
        let in_thread = in_thread.filter(|rest| rest.ends_with(':'));
        // Where the person is not known, what follows the chat is a thread or a person: it is compared as both.
        let thread = in_thread.unwrap_or(rest).trim_matches(':');
        let is_user_known = is_direct || in_thread.is_some();
        let user = if is_user_known { user } else { thread };
        let [user_id, thread_id] = [user, thread].map(|id| (!id.is_empty()).then(|| SmolStr::from(id)));
        Some(Chat {
            facts: ChatFacts {
                user_id,
                thread_id,
                ..anybody.facts
            },
            id: chat.id,
        })
    }

    /// The chat of a session that belongs to one person, with that person, if they are known.
    pub fn person_of_session(&self, session: &SessionKey) -> Option<Chat> {
        let chat = self.terms_of_session(session)?;
        let outside = outside_of_threads(chat.clone());
        let mut places = [chat, outside].into_iter();
        let chat = places.find(|chat| self.session(chat) == *session)?;
        self.is_personal(&self.source(&chat)).then_some(chat)
    }

    /// The chat that gets a job's answer; it need not have spoken before.
    pub fn of_target(&self, target: &Target) -> Chat {
        let id = ChatId {
            platform: self.platform(&target.platform).as_str().into(),
            chat: target.chat.as_str().into(),
        };
        let mut chat = self.known(id.clone()).unwrap_or_else(|| id.into());
        chat.facts.thread_id = target.thread.as_deref().map(SmolStr::from);
        chat
    }

    /// A chat that wrote before, for text that answers none of its messages.
    pub fn known(&self, id: ChatId) -> Option<Chat> {
        let facts = ChatFacts {
            message_id: None,
            ..self.memory.facts(&id)?.clone()
        };
        Some(Chat { id, facts })
    }

    /// A chat that wrote before, for text that is for the chat itself: not for the thread that somebody wrote in last.
    pub fn outside_threads(&self, id: ChatId) -> Option<Chat> {
        self.known(id).map(outside_of_threads)
    }

    /// The chat with that id on any platform, the most recently used one if there are several.
    pub fn find(&self, chat: &str) -> Option<ChatId> {
        self.memory.find(chat).cloned()
    }

    /// The direct messages of those for whom `is_wanted` holds, the most recently used first.
    pub fn direct(&self, is_wanted: impl Fn(&SessionSource) -> bool) -> impl Iterator<Item = Chat> {
        let direct = self.memory.direct();
        direct.filter(move |chat| is_wanted(&self.source(chat)))
    }

    /// Remembers what a message tells about its chat.
    pub fn learn(&mut self, chat: &Chat, now_ms: i64, effects: &mut Effects) {
        if self.memory.learn(chat, now_ms) {
            effects.write(Command::RememberChat(ChatRow {
                platform: chat.id.platform.clone(),
                chat_id: chat.id.chat.clone(),
                memory: chat.facts.to_json().into_bytes(),
                last_used: now_ms,
            }));
        }
    }

    /// Takes a chat from the journal; call it for the least recently used chat first. Returns who wrote there last.
    pub fn restore(&mut self, row: &ChatRow) -> Option<PersonId> {
        self.add_platform(&row.platform);
        let facts = serde_json::from_slice::<ChatFacts>(&row.memory).ok();
        let user = facts.as_ref().and_then(|facts| facts.user_id.as_deref());
        let person = user.map(|user| PersonId::new(&row.platform, user));
        if let Some(facts) = facts {
            let id = ChatId {
                platform: row.platform.clone(),
                chat: row.chat_id.clone(),
            };
            self.memory.restore(Chat { id, facts }, row.last_used);
        }
        person
    }

    /// The connector opened a thread for an op to the chat with this key. Returns the op that gives it the title that waits for it.
    pub fn thread_opened(
        &mut self,
        adapters: &Adapters,
        chat: &str,
        thread: String,
        name: Option<String>,
    ) -> Option<(ChatId, Action)> {
        let ChatId { platform, chat } = ChatId::from_key(chat)?;
        let id = ChatId {
            platform: platform.clone(),
            chat: thread.as_str().into(),
        };
        self.threads.opened(&platform, thread, chat.into(), name);
        let (chat, title) = self.titles.remove(&id)?;
        let action = self.rename_thread(adapters, &chat, &title)?;
        Some((chat.id, action))
    }

    /// Gives a turn's thread a title: the op that renames it, once, if it is the connector's own. A thread that the connector will
    /// open for the answer gets its title then.
    pub fn entitle_thread(
        &mut self,
        adapters: &Adapters,
        origin: &TurnOrigin,
        title: &str,
    ) -> Option<Action> {
        let prospective = origin.prospective_thread.as_ref();
        let Some(thread) = prospective.filter(|_| origin.chat.facts.thread_id.is_none()) else {
            return self.rename_thread(adapters, &origin.chat, title);
        };
        let chat = origin.chat.with_facts(ChatFacts {
            thread_id: Some(thread.clone()),
            ..origin.chat.facts.clone()
        });
        let renamed = self.rename_thread(adapters, &chat, title);
        if renamed.is_none() {
            let id = ChatId {
                platform: chat.id.platform.clone(),
                chat: thread.clone(),
            };
            self.titles
                .insert(id, (chat, truncate(title, MAX_TITLE).to_owned()));
        }
        renamed
    }

    fn rename_thread(&mut self, adapters: &Adapters, chat: &Chat, title: &str) -> Option<Action> {
        let adapter = adapters.get(&chat.id.platform);
        adapter.rename_thread(&mut self.threads, &chat.id, &chat.facts, title)
    }
}

/// A chat, whoever writes there in whichever thread.
fn of_anybody(chat: &Chat) -> Chat {
    chat.with_facts(ChatFacts {
        user_id: None,
        thread_id: None,
        ..chat.facts.clone()
    })
}

/// A chat itself, whichever of its threads was written in.
fn outside_of_threads(mut chat: Chat) -> Chat {
    chat.facts.thread_id = None;
    chat
}

/// Where a job is made that the agent of this author's turn makes: in the author's chat; for the operator's turns in the chat
/// of the turn.
pub fn job_origin(author: &Author, Chat { id, facts }: &Chat) -> Option<JobOrigin> {
    let made_in = if author.is_operator() {
        JobOrigin {
            platform: id.platform.to_string(),
            chat_id: id.chat.to_string(),
            ..JobOrigin::default()
        }
    } else {
        JobOrigin {
            platform: author.platform.to_string(),
            chat_id: author.chat().to_owned(),
            parent_chat_id: author.chats.get(1).map(SmolStr::to_string),
            chat_type: Some(if author.direct { "dm" } else { "group" }.to_owned()),
            user_id: author.ids.first().map(SmolStr::to_string),
            other_ids: author.ids.iter().skip(1).map(SmolStr::to_string).collect(),
            roles: author.roles.clone(),
            ..JobOrigin::default()
        }
    };
    let is_here = made_in.platform == id.platform && made_in.chat_id == id.chat;
    let origin = JobOrigin {
        thread_id: facts
            .thread_id
            .as_ref()
            .map(SmolStr::to_string)
            .filter(|_| is_here),
        ..made_in
    };
    (!origin.platform.is_empty() && !origin.chat_id.is_empty()).then_some(origin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: i64 = 1_790_000_000_000;

    fn source(user: &str, chat: &str, chat_type: &str) -> SessionSource {
        let source = json!({
            "platform": "slack", "user_id": user, "chat_id": chat, "chat_type": chat_type, "message_id": "m1",
        });
        SessionSource::from_value(&source).unwrap()
    }

    #[test]
    fn a_chat_is_remembered_found_and_restored() {
        let settings = Settings::embedded("/nowhere");
        let (mut chats, mut effects) = (Chats::new(&settings), Effects::default());
        assert_eq!((chats.len(), chats.find("D1")), (0, None));
        for (user, chat, kind) in [("ann", "D1", "dm"), ("bob", "C1", "channel")] {
            let chat = Chat::from_source(&source(user, chat, kind));
            chats.learn(&chat, NOW, &mut effects);
        }
        let (commands, _) = effects.take_commands();
        assert_eq!((chats.len(), commands.len()), (2, 2));
        let chat = Chat::from_source(&source("ann", "D1", "dm"));
        chats.learn(&chat, NOW, &mut effects);
        assert_eq!(effects.commands(), 0, "that is known");
        let known = chats.known(chats.find("D1").unwrap()).unwrap();
        assert_eq!((known.id.chat.as_str(), known.facts.message_id), ("D1", None));
        let direct: Vec<_> = chats.direct(|_| true).collect();
        assert_eq!((direct.len(), direct[0].id.chat.as_str()), (1, "D1"));
        let is_bob = |source: &SessionSource| source.user_id.as_ref().map(Scalar::as_str) == Some("bob");
        assert_eq!(chats.direct(is_bob).count(), 0);
        let session = chats.session(&chat);
        assert_eq!(chats.of_session(&session).unwrap().id.chat, "D1");
        assert!(chats.of_session(&SessionKey::from_text("elsewhere")).is_none());
        let mut next = Chats::new(&settings);
        let people: Vec<_> = (commands.into_iter())
            .filter_map(|command| match command {
                Command::RememberChat(row) => next.restore(&row),
                _ => None,
            })
            .collect();
        assert_eq!(people, ["ann", "bob"].map(|user| PersonId::new("slack", user)));
        assert_eq!((next.len(), next.find("C1").is_some()), (2, true));
        let target = |thread: Option<&str>| Target {
            platform: "slack".to_owned(),
            chat: "C1".to_owned(),
            thread: thread.map(str::to_owned),
        };
        let found = next.of_target(&target(Some("t")));
        assert_eq!(found.facts.thread_id.as_deref(), Some("t"));
        assert_eq!(found.facts.user_id.as_deref(), Some("bob"), "what is known of it");
        assert_eq!(next.of_target(&target(None)).facts.thread_id, None);
    }

    #[test]
    fn a_chat_itself_is_none_of_its_threads() {
        let mut chats = Chats::new(&Settings::embedded("/nowhere"));
        for thread in [None, Some("t0")] {
            let said = json!({
                "text": "hi", "message_id": "m1",
                "source": {"platform": "slack", "chat_id": "C2", "user_id": "bob", "scope_id": "T1", "thread_id": thread},
            });
            let mut event = MessageEvent::from_value(&said).unwrap();
            chats.name(&mut event);
            let chat = Chat::from_source(&event.source);
            chats.learn(&chat, NOW, &mut Effects::default());
            let itself = chats.outside_threads(chat.id).unwrap().facts;
            assert_eq!((itself.thread_id, itself.message_id), (None, None));
            assert_eq!(itself.scope_id.as_deref(), Some("T1"), "what is known of it");
        }
        let other = ChatId {
            platform: "slack".into(),
            chat: "C9".into(),
        };
        assert!(chats.outside_threads(other).is_none(), "it never wrote");
    }

    #[test]
    fn the_terms_of_a_session_are_those_of_its_thread_and_its_person_whoever_wrote_last() {
        let mut chats = Chats::new(&Settings::embedded("/nowhere"));
        let mut effects = Effects::default();
        let named = |user: &str, chat: &str, kind: &str, thread: Option<&str>| {
            let source = SessionSource {
                thread_id: thread.map(Scalar::from),
                platform: Platform::TELEGRAM,
                ..source(user, chat, kind)
            };
            Chat::from_source(&source)
        };
        let sessions = [
            named("ann", "D1", "dm", None),
            named("ann", "D1", "dm", Some("t1")),
            named("ann", "C1", "group", None),
            named("bob", "C1", "group", Some("t1")),
            named("cid", "C1", "group", Some("t2")),
            named("dan", "C1", "group", None),
        ]
        .map(|chat| {
            chats.learn(&chat, NOW, &mut effects);
            chats.session(&chat)
        });
        let terms = sessions.map(|session| {
            let facts = chats.terms_of_session(&session).unwrap().facts;
            let [thread, user] = [facts.thread_id, facts.user_id].map(Option::unwrap_or_default);
            (thread.to_string(), user.to_string())
        });
        let terms = terms
            .each_ref()
            .map(|(thread, user)| (thread.as_str(), user.as_str()));
        let expected = [
            ("", "ann"),
            ("t1", "ann"),
            ("ann", "ann"),
            ("t1", "t1"),
            ("t2", "t2"),
            ("", "dan"),
        ];
        assert_eq!(terms, expected);
    }

    #[test]
    fn a_job_is_made_in_the_chat_of_its_author_or_of_the_operators_turn() {
        let mut chat = Chat::from_source(&source("ann", "C1", "channel"));
        chat.facts.thread_id = Some("t".into());
        let author = |chat: &str, kind: &str| Author::from_source(&source("ann", chat, kind), &NoAliases);
        let here = job_origin(&author("C1", "channel"), &chat).unwrap();
        assert_eq!(
            (here.chat_id.as_str(), here.thread_id.as_deref()),
            ("C1", Some("t"))
        );
        assert_eq!(
            (here.user_id.as_deref(), here.chat_type.as_deref()),
            (Some("ann"), Some("group"))
        );
        let away = job_origin(&author("D1", "dm"), &chat).unwrap();
        assert_eq!((away.chat_id.as_str(), away.thread_id), ("D1", None));
        assert_eq!(away.chat_type.as_deref(), Some("dm"));
        let operator = job_origin(&Author::operator(), &chat).unwrap();
        assert_eq!((operator.chat_id.as_str(), operator.user_id), ("C1", None));
        chat.id.chat = "".into();
        assert_eq!(job_origin(&Author::operator(), &chat), None);
    }
}
