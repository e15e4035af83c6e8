//! The `access` section of the settings.

use std::fmt;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::identity::{PersonId, canonical_id, canonical_platform};
use crate::setting::section;
use crate::wire::Platform;

/// The platform of a rule that holds on every platform. Not accepted in the settings file.
pub const ANY: &str = "*";
/// An unknown platform that differs from a known one by so many letters is a mistake.
const MAX_TYPOS: usize = 1;

/// Whom the gate lets through who has no rule of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Everybody whom the connector lets through.
    #[default]
    Upstream,
    /// Nobody.
    List,
    /// Nobody, until an owner approves them.
    Pair,
    /// Everybody.
    Open,
}

impl Mode {
    /// The mode as written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::List => "list",
            Self::Pair => "pair",
            Self::Open => "open",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a person may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything: also approves pairings and may answer "always".
    Owner,
    /// Talks to agents, and stops and restarts conversations.
    #[default]
    User,
    /// Talks to agents, which may not ask for approval.
    Guest,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Owner, Self::User, Self::Guest];

    /// The role as written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::User => "user",
            Self::Guest => "guest",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What people get to read whom the gate does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strangers {
    /// Nothing.
    #[default]
    Silent,
    /// Once an hour, that they may not.
    Notice,
    /// Once an hour, a code that an owner can approve.
    Pair,
}

/// One person, or everybody with one role of a Discord server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersonRule {
    /// The platform.
    pub platform: String,
    /// Their id on it; empty in a rule about a role of a server.
    #[serde(default, deserialize_with = "id", skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The id of the role, instead of `user`.
    #[serde(
        default,
        deserialize_with = "some_id",
        skip_serializing_if = "Option::is_none"
    )]
    pub guild_role: Option<String>,
    /// What they may do.
    #[serde(default)]
    pub role: Role,
    /// Only in these chats.
    #[serde(default, deserialize_with = "ids", skip_serializing_if = "Option::is_none")]
    pub chats: Option<Vec<String>>,
    /// Only with these agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
}

impl PersonRule {
    /// Whom the rule is about, which must be clear, and the role of a server by its id.
    fn violation(&self) -> Option<&'static str> {
        let role = self.guild_role.as_deref()?;
        if !self.user.is_empty() {
            return Some("must name a `user` or a `guild_role` in each entry, not both");
        }
        if canonical_platform(self.platform.trim()) != Platform::DISCORD.as_str() {
            return Some("has a `guild_role` on another platform than discord; name people by `user` there");
        }
        let is_id =
            role.bytes().all(|byte| byte.is_ascii_digit()) && role.parse().is_ok_and(|id: u64| id > 0);
        (!is_id).then_some(
            "has a `guild_role` that is not the id of a role: a number, which Discord copies for you in its \
             developer mode (Server Settings, Roles, Copy Role ID)",
        )
    }
}

/// Whoever writes in one chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatRule {
    /// The platform.
    pub platform: String,
    /// The chat's id on it; its threads are covered.
    #[serde(deserialize_with = "id")]
    pub chat: String,
    /// What they may do.
    #[serde(default)]
    pub role: Role,
    /// Only with these agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
}

/// A person who may do nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Denial {
    /// The platform.
    pub platform: String,
    /// Their id on it.
    #[serde(deserialize_with = "id")]
    pub user: String,
}

/// A number for everybody, or one for each role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ByRole {
    /// For everybody.
    All(u64),
    /// By role; no limit where none is given.
    Each {
        /// For owners.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<u64>,
        /// For users.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<u64>,
        /// For guests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        guest: Option<u64>,
    },
}

impl ByRole {
    /// The number for a role.
    pub fn of(&self, role: Role) -> Option<u64> {
        match (self, role) {
            (Self::All(number), _) => Some(*number),
            (Self::Each { owner, .. }, Role::Owner) => *owner,
            (Self::Each { user, .. }, Role::User) => *user,
            (Self::Each { guest, .. }, Role::Guest) => *guest,
        }
    }
}

section! {
    /// Limits per person.
    #[derive(PartialEq, Eq)]
    pub struct LimitSettings {
        /// Messages per minute.
        pub per_user_per_minute: Option<ByRole> = Some(ByRole::All(20));
        /// Turns per day.
        pub turns_per_day: Option<ByRole>;
        /// Tokens per day, where the agent reports them.
        pub tokens_per_day: Option<ByRole>;
    }
}

section! {
    /// Who may drive an agent.
    #[derive(PartialEq, Eq)]
    pub struct AccessSettings {
        /// Whom the gate lets through who has no rule.
        pub mode: Mode = Mode::Upstream;
        /// People.
        #[serde(deserialize_with = "list")]
        pub people: Vec<PersonRule>;
        /// Chats.
        #[serde(deserialize_with = "list")]
        pub chats: Vec<ChatRule>;
        /// People who may do nothing.
        #[serde(deserialize_with = "list")]
        pub deny: Vec<Denial>;
        /// What people get to read who have no rule; `pair` in mode `pair`, else `silent`, when not set.
        pub strangers: Option<Strangers>;
        /// Limits per person.
        pub limits: LimitSettings, fields(LimitSettings::FIELDS);
        /// Turns of bots in a chat without a message of a person between them.
        pub max_turns_without_human: u64 = 6;
    } resolved {
        /// Platforms on which everybody is a user; from Hermes' variables only.
        #[serde(skip_serializing)]
        pub everybody_on: Vec<String>;
        /// Whether the rules come from Hermes' variables.
        #[serde(skip_serializing)]
        pub from_hermes: bool;
        /// Whether the settings file has this section.
        #[serde(skip_serializing)]
        pub is_set: bool;
    }
}

impl AccessSettings {
    /// Whether somebody wrote rules; else the connector alone decides, as by the contract.
    pub fn is_active(&self) -> bool {
        self.is_set || self.from_hermes || *self != Self::default()
    }

    /// Whether there is such a section: limits hold only then, and not for the people of Hermes' variables.
    pub fn has_section(&self) -> bool {
        self.is_set || (!self.from_hermes && *self != Self::default())
    }

    /// What people get to read who have no rule.
    pub fn strangers(&self) -> Strangers {
        match (self.mode, self.strangers) {
            (Mode::Pair, _) => Strangers::Pair,
            (_, set) => set.unwrap_or_default(),
        }
    }

    /// Whether somebody without a rule is let through, on some platform.
    pub fn lets_everybody_in(&self) -> bool {
        matches!(self.mode, Mode::Upstream | Mode::Open) || !self.everybody_on.is_empty()
    }

    /// Whether a rule names a role of a server.
    pub fn names_guild_roles(&self) -> bool {
        self.people.iter().any(|rule| rule.guild_role.is_some())
    }

    /// The first key that breaks a rule, and the rule.
    pub fn violation(&self, agents: &dyn Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
        if let Some(rule) = self.people.iter().find_map(PersonRule::violation) {
            return Some(("access.people", rule.to_owned()));
        }
        let people = self.people.iter();
        let people = people.map(|rule| (&rule.platform, rule.guild_role.as_ref().unwrap_or(&rule.user)));
        let chats = self.chats.iter().map(|rule| (&rule.platform, &rule.chat));
        let denied = self.deny.iter().map(|rule| (&rule.platform, &rule.user));
        for (key, platform, id) in people
            .map(|(platform, id)| ("access.people", platform, id))
            .chain(chats.map(|(platform, id)| ("access.chats", platform, id)))
            .chain(denied.map(|(platform, id)| ("access.deny", platform, id)))
        {
            if id.trim() == ANY || platform.trim() == ANY {
                return Some((
                    key,
                    "must name each by its id, not `*`; to let everybody in, set `access.mode: open`"
                        .to_owned(),
                ));
            }
            if id.trim().is_empty() {
                return Some((key, "must have an id in every entry".to_owned()));
            }
            if let Err(rule) = platform_name(platform) {
                return Some((key, rule));
            }
        }
        let lists = (self.people.iter().map(|rule| ("access.people", &rule.agents)))
            .chain(self.people.iter().map(|rule| ("access.people", &rule.chats)))
            .chain(self.chats.iter().map(|rule| ("access.chats", &rule.agents)));
        for (key, list) in lists {
            match list {
                Some(list) if list.is_empty() => {
                    let rule = "has an empty list, which would allow nothing; remove the list to allow everything, or list what is allowed";
                    return Some((key, rule.to_owned()));
                }
                Some(list) if list.iter().any(|entry| entry.trim() == ANY) => {
                    return Some((
                        key,
                        "must not list `*`; remove the list to allow everything".to_owned(),
                    ));
                }
                _ => {}
            }
        }
        let named = (self.people.iter().map(|rule| ("access.people", &rule.agents)))
            .chain(self.chats.iter().map(|rule| ("access.chats", &rule.agents)));
        for (key, list) in named {
            if let Some(unknown) = list.iter().flatten().find_map(|name| agents(name)) {
                return Some((key, format!("names an agent that does not exist: {unknown}")));
            }
        }
        if self.mode == Mode::List && self.people.is_empty() && self.chats.is_empty() {
            let rule = "is `list`, but `access.people` and `access.chats` are empty, so nobody could write; list people, or set `pair` to approve them one by one";
            return Some(("access.mode", rule.to_owned()));
        }
        if self.mode == Mode::Pair && self.strangers.is_some_and(|set| set != Strangers::Pair) {
            let rule = "must be `pair` or unset in mode `pair`; set `access.mode: list` to answer strangers otherwise";
            return Some(("access.strangers", rule.to_owned()));
        }
        if self.max_turns_without_human == 0 {
            let rule =
                "must be at least 1; to keep bots out, set `policy.<platform>.allow_other_bots: false`";
            return Some(("access.max_turns_without_human", rule.to_owned()));
        }
        let limits = [
            (
                "access.limits.per_user_per_minute",
                &self.limits.per_user_per_minute,
                60_000,
            ),
            ("access.limits.turns_per_day", &self.limits.turns_per_day, 1 << 32),
            (
                "access.limits.tokens_per_day",
                &self.limits.tokens_per_day,
                1 << 48,
            ),
        ];
        for (key, limit, max) in limits {
            let numbers = limit
                .iter()
                .flat_map(|limit| Role::ALL.map(|role| limit.of(role)));
            if let Some(number) = numbers.flatten().find(|number| !(1..=max).contains(number)) {
                return Some((key, format!("must be between 1 and {max}, not {number}")));
            }
        }
        None
    }

    /// The same with platforms and ids in their canonical form. The id of a rule for every platform depends on the platform.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        let person = |platform: &mut String, user: &mut String| {
            if platform == ANY {
                *user = user.trim().to_owned();
            } else {
                *platform = canonical_platform(platform).into();
                *user = canonical_id(platform, user).into();
            }
        };
        for rule in &mut self.people {
            person(&mut rule.platform, &mut rule.user);
            for chat in rule.chats.iter_mut().flatten() {
                *chat = canonical_id(&rule.platform, chat).into();
            }
        }
        for rule in &mut self.chats {
            person(&mut rule.platform, &mut rule.chat);
        }
        for rule in &mut self.deny {
            person(&mut rule.platform, &mut rule.user);
        }
        self
    }
}

impl AccessSettings {
    /// What to know of people who are listed by a name that nobody is known by.
    pub fn name_warnings(&self) -> impl Iterator<Item = String> {
        let people = self
            .people
            .iter()
            .map(|rule| PersonId::new(&rule.platform, &rule.user));
        people.filter(PersonId::is_name).map(|person| {
            let shown = crate::text::printable(&person.to_string(), 80);
            format!(
                "`access.people`: `{shown}` is a name, and holds for nobody: write the number that the platform gave them; \
                 /whoami in a chat shows it"
            )
        })
    }
}

/// The canonical name of a platform; else why it is none. Connectors may have platforms of their own, so that only what
/// looks like a mistake is one.
pub(super) fn platform_name(name: &str) -> Result<String, String> {
    let name = name.trim();
    let lower = canonical_platform(name);
    if Platform::names().contains(&lower.as_str()) {
        return Ok(lower.into());
    }
    let near = Platform::names()
        .iter()
        .find(|known| strsim::damerau_levenshtein(known, &lower) <= MAX_TYPOS);
    let shown = crate::text::printable(name, 40);
    match near {
        Some(near) => Err(format!(
            "names the unknown platform `{shown}`; did you mean `{near}`?"
        )),
        None if name.is_empty() || name.contains(':') => {
            Err("must name a platform in every entry".to_owned())
        }
        None => Ok(lower.into()),
    }
}

/// An id that may be written without quotes.
struct Id;

impl Visitor<'_> for Id {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    deserializer.deserialize_any(Id)
}

fn some_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    id(deserializer).map(Some)
}

#[derive(Deserialize)]
struct AnyId(#[serde(deserialize_with = "id")] String);

fn ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let ids = Option::<Vec<AnyId>>::deserialize(deserializer)?;
    Ok(ids.map(|ids| ids.into_iter().map(|AnyId(id)| id).collect()))
}

/// A list; one that is written without a value is an error, because it would mean nobody.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::<Vec<T>>::deserialize(deserializer)?
        .ok_or_else(|| D::Error::custom("must be a list; write [] for none"))
}
