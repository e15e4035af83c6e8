//! The gate: whether a person may do what they try to do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pairing::Pairings;
use super::settings::{ANY, AccessSettings, Mode, Role, Strangers, platform_name};
use crate::wire::{Scalar, SessionSource, WhatsAppAliases, whatsapp_ids};

/// A person on a platform, as verbs and the journal name them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersonId {
    /// The platform.
    pub platform: String,
    /// Their id on it.
    pub user: String,
}

impl PersonId {
    /// Reads `PLATFORM:ID`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "write a person as PLATFORM:ID, such as telegram:123456".to_owned();
        let (platform, user) = text.split_once(':').ok_or_else(wrong)?;
        let user = user.trim();
        if user.is_empty() || user.len() > MAX_ID_BYTES || user.chars().any(char::is_control) {
            return Err(wrong());
        }
        if user == ANY {
            return Err("name one person; `*` is not accepted".to_owned());
        }
        let platform = platform_name(platform).map_err(|rule| format!("`{text}` {rule}"))?;
        Ok(Self {
            platform,
            user: user.to_owned(),
        })
    }
}

impl std::fmt::Display for PersonId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.platform, self.user)
    }
}

/// Maximum length of an id that a rule may name.
const MAX_ID_BYTES: usize = 512;

/// Who causes an event, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    /// The platform.
    pub platform: String,
    /// Every id that the person is known by there, the platform's own first; empty when the event names nobody.
    pub ids: Vec<String>,
    /// The chat, and the one that it is a thread of.
    pub chats: Vec<String>,
    /// Whether it is a direct message.
    pub direct: bool,
    /// Whether the event says that a bot wrote it.
    pub is_bot: bool,
}

impl Author {
    /// The author of a message.
    pub fn from_source(source: &SessionSource, aliases: &dyn WhatsAppAliases) -> Self {
        let text = |field: &Option<Scalar>| {
            let text = field.as_ref().map(|field| field.as_str().to_owned());
            text.filter(|text| !text.is_empty())
        };
        let mut ids = Vec::new();
        for id in [&source.user_id, &source.user_id_alt]
            .into_iter()
            .filter_map(text)
        {
            let others = match source.platform.as_str() {
                "whatsapp" | "whatsapp_cloud" => whatsapp_ids(&id, aliases).into_iter().collect(),
                _ => Vec::new(),
            };
            for id in std::iter::once(id).chain(others) {
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
        let chats = [
            text(&source.chat_id),
            source.parent_chat_id.as_ref().map(|id| id.as_str().to_owned()),
        ];
        Self {
            platform: source.platform.as_str().to_owned(),
            ids,
            chats: chats.into_iter().flatten().collect(),
            direct: source.chat_type.as_ref().map(Scalar::as_str) == Some("dm"),
            is_bot: source.is_bot,
        }
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
    pub fn person(&self) -> Option<PersonId> {
        Some(PersonId {
            platform: self.platform.clone(),
            user: self.ids.first()?.clone(),
        })
    }

    /// Their id on the platform; empty when the event names nobody.
    pub fn user(&self) -> &str {
        self.ids.first().map_or("", String::as_str)
    }

    /// The chat's id.
    pub fn chat(&self) -> &str {
        self.chats.first().map_or("", String::as_str)
    }

    fn is(&self, platform: &str, user: &str) -> bool {
        let bare = || user.trim_start_matches('+');
        (platform == ANY || platform.eq_ignore_ascii_case(&self.platform))
            && self.ids.iter().any(|id| id == user || id.as_str() == bare())
    }

    fn is_in(&self, platform: &str, chat: &str) -> bool {
        platform.eq_ignore_ascii_case(&self.platform) && self.chats.iter().any(|own| own == chat)
    }
}

/// What a person tries to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// Talk to the agent.
    Message,
    /// Talk to the agent through a command of the platform.
    Interaction,
    /// Press a button of a question.
    Press,
    /// Type an answer to a question.
    TypedAnswer,
    /// Change a conversation: `/stop`, `/new`, `/agent`.
    Command,
    /// Read about it: `/status`, `/help`, `/whoami`, `/usage`.
    Inquiry,
}

/// Why the gate decided so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The person has a rule.
    Person,
    /// The chat has a rule.
    Chat,
    /// The connector let them through, and nothing here says otherwise.
    Upstream,
    /// Everybody may.
    Open,
    /// The operator may.
    Operator,
    /// The person is denied.
    Denied,
    /// Nobody knows them.
    Stranger,
    /// Their rule is for other chats.
    OtherChat,
    /// Their role does not allow it.
    Role,
    /// Their rule is for other agents.
    Agent,
    /// They have used up a limit.
    Limit,
    /// They answer each other with the agent.
    Loop,
}

impl Reason {
    /// The reason in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Chat => "chat",
            Self::Upstream => "upstream",
            Self::Open => "open",
            Self::Operator => "operator",
            Self::Denied => "denied",
            Self::Stranger => "stranger",
            Self::OtherChat => "other_chat",
            Self::Role => "role",
            Self::Agent => "agent",
            Self::Limit => "limit",
            Self::Loop => "loop",
        }
    }
}

/// What the gate decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether they may.
    pub allowed: bool,
    /// Why.
    pub reason: Reason,
    /// Their role; none for people without one.
    pub role: Option<Role>,
}

/// What a rule grants somebody in a chat.
struct RuleGrant<'g> {
    role: Role,
    reason: Reason,
    agents: Option<&'g [String]>,
}

/// A rule that a verb made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredRule {
    /// What they may do; nothing when there is none.
    pub(super) role: Option<Role>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) chats: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) agents: Option<Vec<String>>,
    /// `command` or `pairing`.
    pub(super) origin: String,
    /// When, in Unix milliseconds.
    pub(super) at_ms: i64,
}

/// A row of what the gate keeps in the journal: written when it has a value, else deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// `rule` or `pairing`.
    pub kind: String,
    /// The person.
    pub person: PersonId,
    /// What is stored, as JSON.
    pub value: Option<String>,
}

/// The kind of row that holds a rule.
pub(super) const RULE: &str = "rule";
/// The kind of row that holds a pairing.
pub(super) const PAIRING: &str = "pairing";

/// All rules.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    pub(super) settings: AccessSettings,
    pub(super) stored: BTreeMap<PersonId, StoredRule>,
    pub(super) pairings: Pairings,
}

impl Gate {
    /// The rules of the settings and those of the journal. A row that cannot be read denies its person.
    pub fn new(settings: AccessSettings, rows: impl IntoIterator<Item = StoredRow>) -> Self {
        let mut gate = Self {
            settings: settings.normalized(),
            ..Self::default()
        };
        for row in rows {
            let value = row.value.unwrap_or_default();
            match row.kind.as_str() {
                RULE => {
                    let unreadable = || StoredRule {
                        role: None,
                        chats: None,
                        agents: None,
                        origin: "unreadable".to_owned(),
                        at_ms: 0,
                    };
                    let rule = serde_json::from_str(&value).unwrap_or_else(|_| unreadable());
                    gate.stored.insert(row.person, rule);
                }
                PAIRING => gate.pairings.restore(row.person, &value),
                _ => {}
            }
        }
        gate
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.settings.mode
    }

    /// What strangers get to read.
    pub fn strangers(&self) -> Strangers {
        self.settings.strangers()
    }

    /// Whether anybody wrote rules. Without any, everything is as the connector decides.
    pub fn is_active(&self) -> bool {
        self.settings.is_active() || !self.stored.is_empty()
    }

    /// The settings.
    pub fn settings(&self) -> &AccessSettings {
        &self.settings
    }

    /// The codes that wait for an approval.
    pub fn pairings(&mut self) -> &mut Pairings {
        &mut self.pairings
    }

    /// Decides about an event. The agent is looked at where it is known.
    pub fn decide(&self, author: &Author, kind: EventKind, agent: Option<&str>) -> Verdict {
        let refused = |reason, role| Verdict {
            allowed: false,
            reason,
            role,
        };
        let grant = match self.grant(author) {
            Ok(grant) => grant,
            Err(reason) => return refused(reason, None),
        };
        let role = Some(grant.role);
        let within_role = match kind {
            EventKind::Message | EventKind::Interaction | EventKind::Inquiry => true,
            EventKind::Press | EventKind::TypedAnswer | EventKind::Command => grant.role != Role::Guest,
        };
        if !within_role {
            return refused(Reason::Role, role);
        }
        let may_use = |agent: &str| {
            grant
                .agents
                .is_none_or(|list| list.iter().any(|own| own == agent))
        };
        if agent.is_some_and(|agent| !may_use(agent)) {
            return refused(Reason::Agent, role);
        }
        Verdict {
            allowed: true,
            reason: grant.reason,
            role,
        }
    }

    /// The role of somebody in a chat; none for those who may nothing there.
    pub fn role(&self, author: &Author) -> Option<Role> {
        self.grant(author).ok().map(|grant| grant.role)
    }

    /// The agents that somebody may use in a chat; `None` for all.
    pub fn agents(&self, author: &Author) -> Option<&[String]> {
        self.grant(author).ok()?.agents
    }

    pub(super) fn is_denied_by_settings(&self, person: &PersonId) -> bool {
        let denies = |platform: &str, user: &str| {
            (platform == ANY || platform == person.platform) && user == person.user
        };
        self.settings
            .deny
            .iter()
            .any(|rule| denies(&rule.platform, &rule.user))
    }

    fn grant(&self, author: &Author) -> Result<RuleGrant<'_>, Reason> {
        let settings = &self.settings;
        if author.is_operator() {
            return Ok(RuleGrant {
                role: Role::Owner,
                reason: Reason::Operator,
                agents: None,
            });
        }
        if settings
            .deny
            .iter()
            .any(|rule| author.is(&rule.platform, &rule.user))
        {
            return Err(Reason::Denied);
        }
        let mut stored = None;
        if !self.stored.is_empty() {
            for id in &author.ids {
                let person = PersonId {
                    platform: author.platform.clone(),
                    user: id.clone(),
                };
                if let Some(rule) = self.stored.get(&person) {
                    // Whatever a person's other ids are: one that is denied denies the person.
                    let Some(role) = rule.role else {
                        return Err(Reason::Denied);
                    };
                    stored = stored.or(Some((role, &rule.chats, &rule.agents)));
                }
            }
        }
        let file = || {
            let found = settings
                .people
                .iter()
                .find(|rule| author.is(&rule.platform, &rule.user))?;
            Some((found.role, &found.chats, &found.agents))
        };
        let own = stored.or_else(file);
        if let Some((role, chats, agents)) = own
            && chats
                .as_ref()
                .is_none_or(|chats| chats.iter().any(|chat| author.chats.contains(chat)))
        {
            return Ok(RuleGrant {
                role,
                reason: Reason::Person,
                agents: agents.as_deref(),
            });
        }
        let chat = settings
            .chats
            .iter()
            .find(|rule| author.is_in(&rule.platform, &rule.chat));
        if let Some(rule) = chat {
            return Ok(RuleGrant {
                role: rule.role,
                reason: Reason::Chat,
                agents: rule.agents.as_deref(),
            });
        }
        if own.is_some() {
            return Err(Reason::OtherChat);
        }
        let reason = match settings.mode {
            Mode::Upstream => Reason::Upstream,
            Mode::Open => Reason::Open,
            Mode::List | Mode::Pair if settings.everybody_on.contains(&author.platform) => Reason::Open,
            Mode::List | Mode::Pair => return Err(Reason::Stranger),
        };
        Ok(RuleGrant {
            role: Role::User,
            reason,
            agents: None,
        })
    }
}
