//! The author of an event: who they are by every id, and where they write.

use smallvec::SmallVec;
use smol_str::SmolStr;

use super::gate::Reason;
use super::identity::{PersonId, bare_whatsapp_id, canonical_id, canonical_platform, lid};
use crate::wire::{Platform, Scalar, SessionSource, WhatsAppAliases, whatsapp_ids};

/// Who causes an event, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    /// The platform, in its own spelling.
    pub platform: SmolStr,
    /// Every id that the person is known by there, the platform's own first, in its spelling; empty when the event names
    /// nobody.
    pub ids: SmallVec<[SmolStr; 1]>,
    /// The chat, and the one that it is a thread of.
    pub chats: SmallVec<[SmolStr; 1]>,
    /// Whether it is a direct message.
    pub direct: bool,
    /// Whether the event says that a bot wrote it.
    pub is_bot: bool,
    /// The ids of their roles in the server, where the event names them.
    pub roles: Vec<String>,
    /// The person by each of their ids.
    pub(super) people: SmallVec<[PersonId; 1]>,
    /// People by an id that may be theirs: denials hold for these too.
    pub(super) alike: SmallVec<[PersonId; 1]>,
}

impl Author {
    /// The author of a message.
    pub fn from_source(source: &SessionSource, aliases: &dyn WhatsAppAliases) -> Self {
        let text = |field: &Option<Scalar>| {
            let text = field.as_ref().map(Scalar::to_smolstr);
            text.filter(|text| !text.is_empty())
        };
        let ids = [text(&source.user_id), text(&source.user_id_alt)];
        let chats = [text(&source.chat_id), text(&source.parent_chat_id)];
        let direct = source.chat_type.as_ref().map(Scalar::as_str) == Some("dm");
        Self {
            is_bot: source.is_bot,
            roles: source.user_roles.clone(),
            ..Self::new(
                &source.platform,
                ids.into_iter().flatten(),
                chats.into_iter().flatten(),
                direct,
                aliases,
            )
        }
    }

    /// Somebody with these ids, the platform's own first, in a chat and the one that it is a thread of.
    pub fn new(
        platform: &Platform,
        ids: impl IntoIterator<Item = SmolStr>,
        chats: impl IntoIterator<Item = SmolStr>,
        direct: bool,
        aliases: &dyn WhatsAppAliases,
    ) -> Self {
        let is_whatsapp = matches!(platform.as_str(), "whatsapp" | "whatsapp_cloud");
        let mut ids: SmallVec<[SmolStr; 1]> = ids.into_iter().collect();
        let (mut people, mut alike, mut known) =
            (SmallVec::new(), SmallVec::new(), SmallVec::<[SmolStr; 1]>::new());
        if is_whatsapp {
            for id in &ids {
                known.push(id.clone());
                let bare = bare_whatsapp_id(id);
                for alias in whatsapp_ids(id, aliases) {
                    // An alias file does not say of which kind the id in it is.
                    if bare_whatsapp_id(&alias) != bare {
                        known.extend([lid(&alias).into(), SmolStr::from(alias)]);
                    }
                }
                add(&mut alike, PersonId::new(platform.as_str(), &bare));
            }
            for id in &known {
                if !ids.contains(id) {
                    ids.push(id.clone());
                }
            }
        }
        // Elsewhere a person is known by no other ids. A rule may name a platform that the connector has not declared yet.
        let known = if is_whatsapp { &known } else { &ids };
        let (name, wire_name) = (platform.as_str(), platform.wire_name());
        for name in std::iter::once(name).chain((wire_name != name).then_some(wire_name)) {
            for id in known {
                add(&mut people, PersonId::new(name, id));
            }
        }
        Self {
            platform: platform.as_str().into(),
            ids,
            chats: chats.into_iter().collect(),
            direct,
            is_bot: false,
            roles: Vec::new(),
            people,
            alike,
        }
    }

    /// The same person with these roles in the server.
    #[must_use]
    pub fn with_roles(self, roles: Vec<String>) -> Self {
        Self { roles, ..self }
    }

    /// Whoever runs the relay: its own jobs, and what programs with its secret hand over. No rule is about the operator.
    pub fn operator() -> Self {
        Self::default()
    }

    /// Whether this is the operator. Every event of a chat has a platform.
    pub fn is_operator(&self) -> bool {
        self.platform.is_empty()
    }

    /// The person, when the event names one.
    pub fn person(&self) -> Option<&PersonId> {
        self.people.first()
    }

    /// The person by each of their ids, the one that the event names first; empty when it names nobody. Who is looked up by all of
    /// them is the same person in every spelling.
    pub fn people(&self) -> &[PersonId] {
        &self.people
    }

    /// Whether this is an id of the person, in any spelling.
    pub fn has_id(&self, id: &str) -> bool {
        self.people.contains(&PersonId::new(&self.platform, id))
    }

    /// The person by each of their ids, and by those that may be theirs.
    pub fn known_as(&self) -> impl Iterator<Item = &PersonId> {
        self.people.iter().chain(&self.alike)
    }

    /// The person as people read it; without an id when the event names nobody, and `operator` for whoever runs the relay.
    pub fn name(&self) -> String {
        match self.person() {
            Some(person) => person.to_string(),
            None if self.is_operator() => Reason::Operator.as_str().to_owned(),
            None => format!("{}:", self.platform),
        }
    }

    /// The chat's id.
    pub fn chat(&self) -> &str {
        self.chats.first().map_or("", SmolStr::as_str)
    }

    /// Whether a rule of the settings names this person.
    pub(super) fn is(&self, platform: &str, user: &str) -> bool {
        self.people.iter().any(|person| person.is_named(platform, user))
    }

    /// Whether this person has the role of a server that a rule of the settings names.
    pub(super) fn has_role(&self, platform: &str, role: &str) -> bool {
        platform == canonical_platform(&self.platform) && self.roles.iter().any(|own| own == role)
    }

    /// Whether a rule of the settings may mean this person.
    pub(super) fn may_be(&self, platform: &str, user: &str) -> bool {
        self.known_as().any(|person| person.is_named(platform, user))
    }

    /// Whether a rule of the settings is about the chat, or about the one that it is a thread of.
    pub(super) fn is_in(&self, platform: &str, chat: &str) -> bool {
        platform == canonical_platform(&self.platform) && self.writes_in(chat)
    }

    /// Whether the chat, or the one that it is a thread of, is this one, in its canonical form.
    pub(super) fn writes_in(&self, chat: &str) -> bool {
        let platform = canonical_platform(&self.platform);
        self.chats.iter().any(|own| canonical_id(&platform, own) == chat)
    }
}

fn add(people: &mut SmallVec<[PersonId; 1]>, person: PersonId) {
    if !people.contains(&person) {
        people.push(person);
    }
}
