//! The source of a message: platform, chat, user and thread.

use super::decode::{DecodeError, Object, object_parts};
use super::scalar::{Loose, Scalar};
use crate::text::is_unprintable;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// A message's origin. Absent and `null` fields are `None`.
///
/// `scope_id` of today and `guild_id` of the contract's first text are one slot; `scope_id` wins when both
/// are there. Trust is not a field: what came over the authenticated link is trusted, whatever it claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSource {
    /// The platform: a name that the contract knows, or one of our own.
    pub platform: Platform,
    /// The id of the channel or chat; `Some("")` when the key is missing, `None` when it is `null`.
    pub chat_id: Option<Scalar>,
    /// `dm`, `group`, `channel`, `thread`, `forum` or anything else, verbatim; `dm` when missing.
    pub chat_type: Option<Scalar>,
    /// The chat's name, for labels.
    pub chat_name: Option<Scalar>,
    /// The author's id on the platform.
    pub user_id: Option<Scalar>,
    /// The author's name to show: display name, else user name, else handle.
    pub user_name: Option<Scalar>,
    /// The id of the thread or forum topic.
    pub thread_id: Option<Scalar>,
    /// The chat's topic text.
    pub chat_topic: Option<Scalar>,
    /// A stabler author id where the platform has one; wins over `user_id` in session keys.
    pub user_id_alt: Option<Scalar>,
    /// Another id of the chat.
    pub chat_id_alt: Option<Scalar>,
    /// Guild, workspace or server.
    pub scope_id: Option<Scalar>,
    /// The channel that a thread belongs to.
    pub parent_chat_id: Option<Scalar>,
    /// The id of the message, to reply or react to.
    pub message_id: Option<Scalar>,
    /// Agent profile that the connector routed to.
    pub profile: Option<Scalar>,
    /// Whether the connector opened the thread for this conversation.
    pub auto_thread_created: bool,
    /// The name that the connector gave the thread.
    pub auto_thread_initial_name: Option<Scalar>,
    /// Whether the author is a bot.
    pub is_bot: bool,
    /// The thread that a reply will open; keys the session as if it were open already.
    pub prospective_thread_id: Option<Scalar>,
    /// The language of the author's client, where the platform names it: a tag such as `de` or `pt-BR`.
    pub language_code: Option<Scalar>,
    /// Whether the event repeats a message that was edited, under the same id.
    pub message_is_edit: bool,
    /// Whether the event says that a message was deleted.
    pub message_is_deleted: bool,
    /// The ids of the author's roles in the server, where the event names them.
    pub user_roles: Vec<String>,
}

impl SessionSource {
    /// The thread that it is in; an empty id names none.
    pub fn thread(&self) -> Option<&Scalar> {
        named(self.thread_id.as_ref())
    }

    /// The thread that a reply will open.
    pub fn prospective_thread(&self) -> Option<&Scalar> {
        named(self.prospective_thread_id.as_ref())
    }

    /// Reads a `source` object that is already a JSON value.
    pub fn from_value(value: &Value) -> Result<Self, DecodeError> {
        match Object::<Box<SourceParts>>::deserialize(value).map_err(|error| DecodeError::json(&error))? {
            Object::Is(parts) => parts.assemble(None),
            Object::Null => Ok(Self::default()),
            Object::Not(_) => Err(DecodeError::WrongType {
                field: "source",
                wanted: "an object",
            }),
        }
    }
}

impl Default for SessionSource {
    fn default() -> Self {
        Box::<SourceParts>::default()
            .assemble(None)
            .expect("an empty source is a source")
    }
}

/// An id that names something: the empty one does not.
pub(super) fn named(id: Option<&Scalar>) -> Option<&Scalar> {
    id.filter(|id| !id.as_str().is_empty())
}

object_parts! {
    /// The raw fields of a source.
    pub(super) struct SourceParts {
        platform: Loose = "platform",
        chat_id: Loose = "chat_id",
        chat_type: Loose = "chat_type",
        chat_name: Loose = "chat_name",
        user_id: Loose = "user_id",
        user_name: Loose = "user_name",
        user_display_name: Loose = "user_display_name",
        user_handle: Loose = "user_handle",
        thread_id: Loose = "thread_id",
        chat_topic: Loose = "chat_topic",
        user_id_alt: Loose = "user_id_alt",
        chat_id_alt: Loose = "chat_id_alt",
        guild_id: Loose = "guild_id",
        scope_id: Loose = "scope_id",
        parent_chat_id: Loose = "parent_chat_id",
        message_id: Loose = "message_id",
        profile: Loose = "profile",
        auto_thread_created: Loose = "auto_thread_created",
        auto_thread_initial_name: Loose = "auto_thread_initial_name",
        prospective_thread_id: Loose = "prospective_thread_id",
        is_bot: Loose = "is_bot",
        language_code: Loose = "language_code",
        message_is_edit: Loose = "message_is_edit",
        message_is_deleted: Loose = "message_is_deleted",
        user_roles: Value = "user_roles",
    }
}

/// Most roles of one person.
const MAX_ROLES: usize = 500;

/// The ids in a list of roles.
pub fn role_ids(roles: &Value) -> Vec<String> {
    let ids = roles.as_array().map_or(&[][..], Vec::as_slice).iter();
    ids.filter_map(Value::as_str)
        .take(MAX_ROLES)
        .map(str::to_owned)
        .collect()
}

impl SourceParts {
    /// Applies the contract's rules. Fields that name a conversation must be scalars; the rest is dropped
    /// when it is not.
    pub(super) fn assemble(
        self: Box<Self>,
        event_message_id: Option<&Scalar>,
    ) -> Result<SessionSource, DecodeError> {
        let chat_id = match self.chat_id {
            Loose::Missing => Some("".into()),
            other => id_field(other, "source.chat_id")?,
        };
        let chat_type = match self.chat_type {
            Loose::Missing => Some("dm".into()),
            other => id_field(other, "source.chat_type")?,
        };
        let shown_name = if self.user_display_name.is_truthy() {
            self.user_display_name
        } else if !self.user_name.is_truthy() && self.user_handle.is_truthy() {
            self.user_handle
        } else {
            self.user_name
        };
        let message_id = id_field(self.message_id, "source.message_id")?;
        Ok(SessionSource {
            platform: match self.platform {
                Loose::Scalar(name) => Platform::from_wire(name.as_str()),
                _ => Platform::RELAY,
            },
            chat_id,
            chat_type,
            chat_name: self.chat_name.into_scalar(),
            user_id: id_field(self.user_id, "source.user_id")?,
            user_name: shown_name.into_scalar(),
            thread_id: id_field(self.thread_id, "source.thread_id")?,
            chat_topic: self.chat_topic.into_scalar(),
            user_id_alt: id_field(self.user_id_alt, "source.user_id_alt")?,
            chat_id_alt: self.chat_id_alt.into_scalar(),
            scope_id: match id_field(self.scope_id, "source.scope_id")? {
                Some(scope) => Some(scope),
                None => id_field(self.guild_id, "source.guild_id")?,
            },
            parent_chat_id: self.parent_chat_id.into_scalar(),
            message_id: message_id
                .filter(Scalar::is_truthy)
                .or_else(|| event_message_id.cloned()),
            profile: id_field(self.profile, "source.profile")?,
            is_bot: self.is_bot.is_truthy(),
            auto_thread_created: self.auto_thread_created.is_truthy(),
            auto_thread_initial_name: self.auto_thread_initial_name.into_scalar(),
            prospective_thread_id: id_field(self.prospective_thread_id, "source.prospective_thread_id")?,
            language_code: self.language_code.into_scalar(),
            message_is_edit: self.message_is_edit.is_truthy(),
            message_is_deleted: self.message_is_deleted.is_truthy(),
            user_roles: role_ids(&self.user_roles),
        })
    }
}

/// An id field: text, number, boolean or nothing; a container is an error. Not inlined, so that the code of
/// decoding stays in the processor's first-level cache.
#[inline(never)]
pub(super) fn id_field(value: Loose, field: &'static str) -> Result<Option<Scalar>, DecodeError> {
    match value {
        Loose::Missing | Loose::Null => Ok(None),
        Loose::Scalar(scalar) => Ok(Some(scalar)),
        Loose::Container { .. } => Err(DecodeError::WrongType {
            field,
            wanted: "text",
        }),
        Loose::Unbounded => Err(DecodeError::NumberTooLarge { field }),
    }
}

/// The contract's own field names, with `guild_id` as the mirror of `scope_id`.
impl Serialize for SessionSource {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut out = serializer.serialize_struct("SessionSource", 20)?;
        out.serialize_field("platform", &self.platform)?;
        out.serialize_field("chat_id", &self.chat_id)?;
        out.serialize_field("chat_type", &self.chat_type)?;
        out.serialize_field("chat_name", &self.chat_name)?;
        out.serialize_field("user_id", &self.user_id)?;
        out.serialize_field("user_name", &self.user_name)?;
        out.serialize_field("thread_id", &self.thread_id)?;
        out.serialize_field("chat_topic", &self.chat_topic)?;
        out.serialize_field("user_id_alt", &self.user_id_alt)?;
        out.serialize_field("chat_id_alt", &self.chat_id_alt)?;
        out.serialize_field("scope_id", &self.scope_id)?;
        out.serialize_field("guild_id", &self.scope_id)?;
        out.serialize_field("parent_chat_id", &self.parent_chat_id)?;
        out.serialize_field("message_id", &self.message_id)?;
        out.serialize_field("profile", &self.profile)?;
        out.serialize_field("auto_thread_created", &self.auto_thread_created)?;
        out.serialize_field("auto_thread_initial_name", &self.auto_thread_initial_name)?;
        out.serialize_field("prospective_thread_id", &self.prospective_thread_id)?;
        out.serialize_field("is_bot", &false)?;
        out.serialize_field("delivered_via_upstream_relay", &true)?;
        out.end()
    }
}

/// A platform by its canonical name. A name that the contract does not know is `relay`, until it is
/// [adopted](Self::adopt) as a platform of its own.
#[derive(Clone)]
pub struct Platform {
    name: Cow<'static, str>,
    /// The name on the wire, where it was mapped to `relay`.
    mapped: Option<Box<str>>,
}

/// Lists names, and finds one of them.
macro_rules! known {
    ($($name:literal)*) => {
        const KNOWN: &[&str] = &[$($name),*];

        fn find_exactly(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some($name),)*
                _ => None,
            }
        }
    };
}

known! {
    "api_server" "bluebubbles" "dingtalk" "discord" "email" "feishu" "google_chat" "homeassistant" "irc" "line" "local" "matrix"
    "mattermost" "msgraph_webhook" "ntfy" "photon" "qqbot" "raft" "relay" "signal" "simplex" "slack" "sms" "teams" "telegram"
    "webhook" "wecom" "wecom_callback" "weixin" "whatsapp" "whatsapp_cloud" "yuanbao"
}

impl Platform {
    /// The placeholder for "no platform that we know".
    pub const RELAY: Self = Self::known("relay");
    /// Discord.
    pub const DISCORD: Self = Self::known("discord");
    /// Slack.
    pub const SLACK: Self = Self::known("slack");
    /// Telegram.
    pub const TELEGRAM: Self = Self::known("telegram");
    /// WhatsApp.
    pub const WHATSAPP: Self = Self::known("whatsapp");

    const fn known(name: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            mapped: None,
        }
    }

    /// Reads a name from the wire; case and surrounding space do not count, unknown names are `relay`.
    pub fn from_wire(name: &str) -> Self {
        find_known(name).map_or_else(
            || Self {
                mapped: is_usable(name.trim()).then(|| name.trim().into()),
                ..Self::RELAY
            },
            Self::known,
        )
    }

    /// A platform by a name that this relay wrote down itself: one of the contract's, one of these in its own spelling, or
    /// the name as it is.
    pub fn named(name: &str, own: &OwnPlatforms) -> Self {
        let known = find_known(name).map(Self::known);
        known.unwrap_or_else(|| Self {
            name: Cow::Owned(own.find(name).unwrap_or(name).to_owned()),
            mapped: None,
        })
    }

    /// Makes the name on the wire a platform of its own, if it is one of these.
    pub fn adopt(&mut self, own: &OwnPlatforms) {
        if let Some(name) = self.mapped.as_deref().and_then(|name| own.find(name)) {
            self.name = Cow::Owned(name.to_owned());
            self.mapped = None;
        }
    }

    /// The name on the wire: the platform's own, unless it is mapped to `relay`.
    pub fn wire_name(&self) -> &str {
        self.mapped.as_deref().unwrap_or(&self.name)
    }

    /// The names of all platforms.
    pub fn names() -> &'static [&'static str] {
        KNOWN
    }

    /// The canonical name.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

/// The name of the contract's that this is, whatever its case.
fn find_known(name: &str) -> Option<&'static str> {
    find_exactly(name).or_else(|| find_exactly(&name.trim().to_lowercase()))
}

/// Whether a platform can have this name: it is a part of keys that `:` separates.
fn is_usable(name: &str) -> bool {
    const MAX_BYTES: usize = 64;
    !name.is_empty() && name.len() <= MAX_BYTES && !name.contains(|c| c == ':' || is_unprintable(c))
}

/// The platforms that the contract does not know but this relay does: its identities, and what descriptors declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnPlatforms(Vec<Box<str>>);

impl OwnPlatforms {
    /// Names that are kept; further ones stay `relay`.
    const MAX: usize = 256;

    /// Adds a name, unless the contract knows it or it cannot be one.
    pub fn add(&mut self, name: &str) {
        let is_new = !self.0.iter().any(|known| **known == *name);
        if is_new && is_usable(name) && find_known(name).is_none() && self.0.len() < Self::MAX {
            self.0.push(name.into());
        }
    }

    /// The platform that a name on the wire means, in its own spelling; case does not count.
    fn find(&self, name: &str) -> Option<&str> {
        let mut names = self.0.iter().map(|known| &**known);
        let folded = |known: &&str| known.to_lowercase() == name.to_lowercase();
        names
            .clone()
            .find(|known| *known == name)
            .or_else(|| names.find(folded))
    }
}

impl PartialEq for Platform {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Platform {}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Serialize for Platform {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_sorted() {
        assert!(KNOWN.is_sorted());
        assert!(
            KNOWN
                .iter()
                .all(|name| Platform::from_wire(name).as_str() == *name)
        );
    }

    #[test]
    fn names_are_folded_and_unknown_ones_are_relay() {
        assert_eq!(Platform::from_wire(" Telegram "), Platform::TELEGRAM);
        assert_eq!(Platform::from_wire("myspace"), Platform::RELAY);
        assert_eq!(Platform::from_wire(""), Platform::RELAY);
    }

    fn adopted(wire: &str, own: &OwnPlatforms) -> String {
        let mut platform = Platform::from_wire(wire);
        platform.adopt(own);
        platform.as_str().to_owned()
    }

    #[test]
    fn a_name_of_ours_is_a_platform_of_its_own() {
        let mut own = OwnPlatforms::default();
        for name in [
            "MySpace",
            "intranet",
            "Telegram",
            "relay",
            "",
            "a:b",
            "x\u{202e}",
            "intranet",
        ] {
            own.add(name);
        }
        assert_eq!(own.0, ["MySpace".into(), "intranet".into()]);
        for (wire, platform) in [
            ("MySpace", "MySpace"),
            (" myspace ", "MySpace"),
            ("INTRANET", "intranet"),
            ("Telegram", "telegram"),
            ("elsewhere", "relay"),
            ("relay", "relay"),
            ("a:b", "relay"),
            ("", "relay"),
        ] {
            assert_eq!(adopted(wire, &own), platform, "{wire:?}");
        }
        own.add("myspace");
        assert_eq!(adopted("myspace", &own), "myspace", "the exact name first");
        for n in 0..1000 {
            own.add(&format!("own-{n}"));
        }
        assert_eq!(own.0.len(), OwnPlatforms::MAX);
        assert_eq!(adopted("own-999", &own), "relay");
    }
}
