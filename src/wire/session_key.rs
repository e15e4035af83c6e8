//! Session keys: the names of conversations.
//!
//! Keys are built only here and never parsed. They have no escaping, so an id that contains `:` (as Matrix rooms do) is
//! used verbatim. Two chats could share a key only on a platform where people choose ids with `:`, which no supported
//! platform allows.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::scalar::Scalar;
use super::source::{Platform, SessionSource, named};

/// A conversation's name: `agent:<profile>:<platform>:<chat type>[:scope][:chat][:thread][:person]`.
/// Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct SessionKey(Arc<str>);

impl From<String> for SessionKey {
    fn from(text: String) -> Self {
        Self::from_text(text)
    }
}

impl From<SessionKey> for String {
    fn from(key: SessionKey) -> Self {
        key.as_str().to_owned()
    }
}

/// Whether people who share a chat share the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// Each person in a group has a conversation of their own (default).
    pub group_sessions_per_user: bool,
    /// The same inside threads (default: a thread is shared).
    pub thread_sessions_per_user: bool,
}

impl Default for Grouping {
    fn default() -> Self {
        Self {
            group_sessions_per_user: true,
            thread_sessions_per_user: false,
        }
    }
}

impl Grouping {
    /// Whether the conversation that `source` belongs to is one person's: a direct message, or a group or thread where
    /// each person has their own.
    pub fn is_personal(self, source: &SessionSource) -> bool {
        if source.chat_type.as_ref().map(Scalar::as_str) == Some("dm") {
            return true;
        }
        let thread = source.thread().or(source.prospective_thread());
        let person = named(source.user_id.as_ref()).or(named(source.user_id_alt.as_ref()));
        person.is_some() && self.isolates(thread.is_some())
    }

    /// Whether people outside direct messages have conversations of their own.
    fn isolates(self, in_thread: bool) -> bool {
        self.group_sessions_per_user && (!in_thread || self.thread_sessions_per_user)
    }
}

/// Other names of one WhatsApp identity.
pub trait WhatsAppAliases {
    /// Ids that `id` is directly known to be the same person as.
    fn aliases_of(&self, id: &str) -> Vec<String>;
}

/// Knows no aliases.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAliases;

impl WhatsAppAliases for NoAliases {
    fn aliases_of(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// What the keys of scheduled jobs begin with.
pub const JOB_SESSION: &str = "cron:";

/// Bytes that nearly every key has room in.
const ROOM: usize = 128;

impl SessionKey {
    /// Whether a scheduled job runs in it.
    pub fn is_job(&self) -> bool {
        self.as_str().starts_with(JOB_SESSION)
    }

    /// Builds the key of the conversation that `source` belongs to.
    pub fn build(
        source: &SessionSource,
        grouping: Grouping,
        profile: Option<&str>,
        aliases: &dyn WhatsAppAliases,
    ) -> Self {
        let namespace = match profile {
            None | Some("" | "default") => "main",
            Some("main") => "main~",
            Some(name) => name,
        };
        let whatsapp = source.platform == Platform::WHATSAPP;
        let canonical = |id| {
            let canonical = whatsapp.then(|| canonical_whatsapp_id(id, aliases));
            match canonical.filter(|canonical| !canonical.is_empty()) {
                Some(canonical) => Cow::Owned(canonical),
                None => Cow::Borrowed(id),
            }
        };
        let chat_type = source.chat_type.as_ref().map_or("None", Scalar::as_str);
        let is_dm = chat_type == "dm";
        let scope = (source.platform == Platform::SLACK)
            .then(|| set(source.scope_id.as_ref()))
            .flatten();
        let chat = set(source.chat_id.as_ref());
        let person = set(source.user_id_alt.as_ref())
            .or(set(source.user_id.as_ref()))
            .map(canonical);
        let real_thread = source.thread();
        let prospective = (source.prospective_thread()).filter(|_| !is_dm && real_thread.is_none());
        let thread = real_thread.or(prospective).map(Scalar::as_str);

        let slot = if prospective.is_some() {
            "thread"
        } else {
            chat_type
        };
        let mut key = SmallVec::<[u8; ROOM]>::new();
        for part in ["agent:", namespace, ":", source.platform.as_str(), ":", slot] {
            key.extend_from_slice(part.as_bytes());
        }
        let mut append = |part: &str| {
            key.push(b':');
            key.extend_from_slice(part.as_bytes());
        };
        scope.into_iter().for_each(&mut append);
        if is_dm {
            let who = chat.map(canonical).or(person);
            who.as_deref().into_iter().for_each(&mut append);
            thread.into_iter().for_each(&mut append);
        } else {
            chat.into_iter().for_each(&mut append);
            thread.into_iter().for_each(&mut append);
            person
                .as_deref()
                .filter(|_| grouping.isolates(thread.is_some()))
                .into_iter()
                .for_each(&mut append);
        }
        Self(str::from_utf8(&key).expect("made of texts").into())
    }

    /// A complete key, from an interrupt frame, the journal or a person.
    pub fn from_text(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key's text, shared.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn set(id: Option<&Scalar>) -> Option<&str> {
    named(id).map(Scalar::as_str)
}

/// The shortest, then first, of all names of a WhatsApp identity, stripped of device and domain.
pub fn canonical_whatsapp_id(id: &str, aliases: &dyn WhatsAppAliases) -> String {
    whatsapp_ids(id, aliases)
        .into_iter()
        .min_by_key(|id| id.chars().count())
        .unwrap_or_default()
}

/// All names of a WhatsApp identity, stripped of device and domain.
pub fn whatsapp_ids(id: &str, aliases: &dyn WhatsAppAliases) -> BTreeSet<String> {
    const MAX_ALIASES: usize = 64;
    let start = bare_whatsapp_id(id);
    let mut known = BTreeSet::from([start.clone()]);
    let mut to_visit = vec![start];
    while let Some(next) = to_visit.pop() {
        if !next
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "@.+-".contains(c))
        {
            continue;
        }
        for alias in aliases.aliases_of(&next) {
            let alias = bare_whatsapp_id(&alias);
            if !alias.is_empty() && known.len() < MAX_ALIASES && known.insert(alias.clone()) {
                to_visit.push(alias);
            }
        }
    }
    known
}

fn bare_whatsapp_id(id: &str) -> String {
    let id = id.trim().replacen('+', "", 1);
    id.split([':', '@']).next().unwrap_or_default().to_owned()
}
