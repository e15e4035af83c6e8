//! The gate: whether a person may do what they try to do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::author::Author;
use super::identity::{PersonId, canonical_id};
use super::pairing::Pairings;
use super::settings::{AccessSettings, Mode, PersonRule, Role, Strangers};
use crate::collections::BoundedCache;

/// What to know while strangers get codes and there is no owner.
const NO_OWNER: &str = "nobody is an owner, so nobody can approve people in a chat; make yourself one with \
                        `hermes-relay access owner PLATFORM:ID`, or write to the bot and approve your code with \
                        `hermes-relay access approve CODE --role owner`";
/// People who are remembered as having written.
const MAX_SEEN: usize = 10_000;

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
    /// End what runs, or begin anew: `/stop`, `/new`.
    Stop,
    /// Change something else: `/agent`, `/cron add`.
    Command,
    /// Read about it: `/status`, `/help`, `/whoami`, `/usage`.
    Inquiry,
}

/// Why the gate decided so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The person has a rule.
    Person,
    /// One of the person's roles in the server has a rule.
    GuildRole,
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
            Self::GuildRole => "guild_role",
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

impl StoredRule {
    /// Chats in the form that rules are compared in.
    pub(super) fn canonicalize(&mut self, platform: &str) {
        for chat in self.chats.iter_mut().flatten() {
            *chat = canonical_id(platform, chat).into();
        }
    }

    pub(super) fn row(&self, person: &PersonId) -> StoredRow {
        StoredRow::new(RULE, person, serde_json::to_string(self).ok())
    }
}

/// A row of what the gate keeps in the journal: written when it has a value, else deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// `rule` or `pairing`.
    pub kind: String,
    /// The platform, as it is stored.
    pub platform: String,
    /// The person's id on it, as it is stored.
    pub user: String,
    /// What is stored, as JSON.
    pub value: Option<String>,
}

impl StoredRow {
    pub(super) fn new(kind: &str, person: &PersonId, value: Option<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            platform: person.platform().to_owned(),
            user: person.user().to_owned(),
            value,
        }
    }
}

/// The kind of row that holds a rule.
pub(super) const RULE: &str = "rule";
/// The kind of row that holds a pairing.
pub(super) const PAIRING: &str = "pairing";
/// Kind of a row that deletes what a person has used.
pub(super) const USAGE: &str = "usage";

/// All rules.
#[derive(Debug)]
pub struct Gate {
    pub(super) settings: AccessSettings,
    /// Whether the settings have rules.
    has_settings: bool,
    /// Whether the settings have the section at all.
    has_section: bool,
    pub(super) stored: BTreeMap<PersonId, StoredRule>,
    pub(super) pairings: Pairings,
    /// Brings rows that an earlier version stored into their canonical form; written with the next change.
    pub(super) renamed: Vec<StoredRow>,
    pub(super) seen: BoundedCache<PersonId, ()>,
}

impl Gate {
    /// The rules of the settings and those of the journal. A row that cannot be read denies its person. Of two rows about one
    /// person, which an earlier version stored in two spellings, the newer holds.
    pub fn new(settings: AccessSettings, rows: impl IntoIterator<Item = StoredRow>) -> Self {
        let settings = settings.normalized();
        let mut gate = Self {
            has_settings: settings.is_active(),
            has_section: settings.has_section(),
            settings,
            stored: BTreeMap::new(),
            pairings: Pairings::default(),
            renamed: Vec::new(),
            seen: BoundedCache::new(MAX_SEEN),
        };
        let mut renamed = Vec::new();
        for row in rows {
            let person = PersonId::new(&row.platform, &row.user);
            let value = row.value.clone().unwrap_or_default();
            match row.kind.as_str() {
                RULE => gate.restore(&person, &value),
                PAIRING => gate.pairings.restore(person.clone(), &value),
                _ => continue,
            }
            if (person.platform(), person.user()) != (&*row.platform, &*row.user) {
                renamed.push(person);
                gate.renamed.push(StoredRow { value: None, ..row });
            }
        }
        for person in renamed {
            let rule = gate.stored.get(&person);
            let rows = [rule.map(|rule| rule.row(&person)), gate.pairings.row(&person)];
            gate.renamed.extend(rows.into_iter().flatten());
        }
        gate
    }

    fn restore(&mut self, person: &PersonId, value: &str) {
        let platform = person.platform();
        let mut rule: StoredRule = serde_json::from_str(value).unwrap_or_else(|_| StoredRule {
            role: None,
            chats: None,
            agents: None,
            origin: "unreadable".to_owned(),
            at_ms: i64::MAX,
        });
        rule.canonicalize(platform);
        let age = |rule: &StoredRule| (rule.at_ms, rule.role.is_none());
        if self
            .stored
            .get(person)
            .is_none_or(|known| age(known) <= age(&rule))
        {
            self.stored.insert(person.clone(), rule);
        }
    }

    /// Somebody wrote, or has written.
    pub fn saw(&mut self, person: &PersonId) {
        if self.seen.get_mut(person).is_none() {
            self.seen.insert(person.clone(), ());
        }
    }

    /// Whether anything here is about this person: a rule, a code, or something that they wrote.
    pub(super) fn is_known(&self, person: &PersonId) -> bool {
        let settings = &self.settings;
        let people = settings.people.iter().map(|rule| (&rule.platform, &rule.user));
        let denied = settings.deny.iter().map(|rule| (&rule.platform, &rule.user));
        self.stored.contains_key(person)
            || self.seen.peek(person).is_some()
            || self.pairings.row(person).is_some()
            || (people.chain(denied)).any(|(platform, user)| person.is_named(platform, user))
    }

    /// What to know while strangers get codes and there is no owner.
    pub fn owner_warning(&self) -> Option<&'static str> {
        let is_missing = self.strangers() == Strangers::Pair && !self.has_owner();
        is_missing.then_some(NO_OWNER)
    }

    /// Whether somebody may do everything: a person, or whoever writes in a chat.
    pub fn has_owner(&self) -> bool {
        let is_owner = |role: Option<Role>| role == Some(Role::Owner);
        let in_file = self.settings.people.iter().any(|rule| {
            let person = PersonId::new(&rule.platform, &rule.user);
            let stored = self.stored.get(&person).map(|stored| stored.role);
            is_owner(stored.unwrap_or(Some(rule.role))) && !self.is_denied_by_settings(&person)
        });
        in_file
            || self.settings.chats.iter().any(|rule| rule.role == Role::Owner)
            || (self.stored.iter())
                .any(|(person, rule)| is_owner(rule.role) && !self.is_denied_by_settings(person))
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
        self.has_settings || !self.stored.is_empty()
    }

    /// Whether limits hold: see [`AccessSettings::has_section`].
    pub fn has_section(&self) -> bool {
        self.has_section
    }

    /// The settings.
    pub fn settings(&self) -> &AccessSettings {
        &self.settings
    }

    /// The codes that wait for an approval.
    pub fn pairings(&mut self) -> &mut Pairings {
        &mut self.pairings
    }

    /// Whose code waits for an approval.
    pub fn person_with(&self, code: &str, now_ms: i64) -> Option<PersonId> {
        self.pairings.find(code, now_ms)
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
            EventKind::Press | EventKind::TypedAnswer | EventKind::Stop | EventKind::Command => {
                grant.role != Role::Guest
            }
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

    /// Who may not do this, and why, as the operator reads it; none if they may.
    pub fn refusal(&self, author: &Author, kind: EventKind) -> Option<String> {
        let verdict = self.decide(author, kind, None);
        let why = match verdict.reason {
            _ if verdict.allowed => return None,
            Reason::Denied => "is denied",
            Reason::OtherChat => "is let in in other chats only",
            Reason::Role => "has a role that does not allow this",
            _ => "is not let in",
        };
        let who = author.person();
        let who = who.map_or_else(|| "its author".to_owned(), PersonId::to_string);
        Some(format!("{who} {why}"))
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
        let mut denied = self.settings.deny.iter();
        denied.any(|rule| person.is_named(&rule.platform, &rule.user))
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
            .any(|rule| author.may_be(&rule.platform, &rule.user))
        {
            return Err(Reason::Denied);
        }
        let mut stored = None;
        if !self.stored.is_empty() {
            // Whatever a person's other ids are: one that is denied denies the person.
            let mut rules = author.known_as().filter_map(|person| self.stored.get(person));
            if rules.any(|rule| rule.role.is_none()) {
                return Err(Reason::Denied);
            }
            let rule = author.people.iter().find_map(|person| self.stored.get(person));
            stored = rule.and_then(|rule| Some((rule.role?, &rule.chats, &rule.agents)));
        }
        let file = || {
            let found = settings
                .people
                .iter()
                .find(|rule| author.is(&rule.platform, &rule.user))?;
            Some((found.role, &found.chats, &found.agents))
        };
        let is_here = |chats: &Option<Vec<String>>| {
            let chats = chats.as_ref();
            chats.is_none_or(|chats| chats.iter().any(|chat| author.writes_in(chat)))
        };
        let by_role = || {
            let has = |rule: &&PersonRule| {
                let role = rule.guild_role.as_deref();
                role.is_some_and(|role| author.has_role(&rule.platform, role))
            };
            let rules = || settings.people.iter().filter(has);
            let found = rules()
                .find(|rule| is_here(&rule.chats))
                .or_else(|| rules().next())?;
            Some((found.role, &found.chats, &found.agents))
        };
        let person = stored.or_else(file).map(|rule| (Reason::Person, rule));
        let own = person.or_else(|| by_role().map(|rule| (Reason::GuildRole, rule)));
        if let Some((reason, (role, chats, agents))) = own
            && is_here(chats)
        {
            return Ok(RuleGrant {
                role,
                reason,
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
            Mode::List | Mode::Pair if settings.everybody_on.iter().any(|open| *open == *author.platform) => {
                Reason::Open
            }
            Mode::List | Mode::Pair => return Err(Reason::Stranger),
        };
        Ok(RuleGrant {
            role: Role::User,
            reason,
            agents: None,
        })
    }
}
