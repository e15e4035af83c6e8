//! Changes of the rules by verbs, and what they answer. The same for a running relay and for the files of one that does
//! not run.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::gate::{Gate, PAIRING, RULE, StoredRow, StoredRule, USAGE};
use super::identity::PersonId;
use super::pairing::{self, CODE_LIFETIME_MS, PendingPairing};
use super::settings::Role;

/// What a verb wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum AccessRequest {
    /// List all rules.
    List,
    /// Let a person in, or lift a denial.
    Allow {
        /// `PLATFORM:ID`.
        person: String,
        /// The role; the one of the settings file, else user, when not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<Role>,
        /// Only these agents.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agents: Option<Vec<String>>,
        /// Only these chats.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chats: Option<Vec<String>>,
    },
    /// Keep a person out.
    Deny {
        /// `PLATFORM:ID`.
        person: String,
    },
    /// Delete what is stored about a person: their rule, their code and what they used.
    Forget {
        /// `PLATFORM:ID`.
        person: String,
    },
    /// List the codes that wait for an approval.
    Pending,
    /// Approve a code.
    Approve {
        /// The code.
        code: String,
        /// The role; user when not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<Role>,
    },
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// It does not name a person.
    #[error("{0}")]
    Person(String),
    /// No such code waits.
    #[error("no such code is waiting: it is wrong, was used, or is older than an hour")]
    NoSuchCode,
    /// The settings file denies the person.
    #[error("the settings file denies {0}; remove the entry in `access.deny`")]
    DeniedByFile(PersonId),
    /// An id that may be the same person's is denied.
    #[error(
        "{0} is denied, and may be the same person; lift that first with `hermes-relay access allow {0}`"
    )]
    DeniedAlike(PersonId),
    /// A list is empty.
    #[error("an empty list allows nothing; leave it out to allow everything")]
    EmptyList,
}

impl AccessError {
    /// The reason for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Person(_) => "person",
            Self::NoSuchCode => "no_such_code",
            Self::DeniedByFile(_) => "denied_by_file",
            Self::DeniedAlike(_) => "denied_alike",
            Self::EmptyList => "empty_list",
        }
    }
}

/// The result of a request.
#[derive(Clone, Debug, Default)]
pub struct Handled {
    /// The answer.
    pub answer: Value,
    /// What the journal must store.
    pub rows: Vec<StoredRow>,
    /// Whether the answer must wait until the rows are stored: that codes are over is true without it.
    pub stored: bool,
    /// What changed, for the audit log.
    pub change: Option<AccessChange>,
    /// A code that was approved, and whose it was.
    pub paired: Option<(PersonId, PendingPairing)>,
}

impl Handled {
    /// No relay runs that could welcome whose code was approved: its next start does.
    pub fn leave_to_next_start(&mut self) {
        if let Some((person, mut pending)) = self.paired.take() {
            pending.is_approved = true;
            self.rows.push(pairing::row(&person, Some(&pending)));
        }
    }
}

/// A change of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessChange {
    /// In one word.
    pub what: &'static str,
    /// About whom.
    pub person: PersonId,
    /// The role that they were given.
    pub role: Option<Role>,
}

impl Gate {
    /// Handles a request of a verb.
    pub fn handle(&mut self, request: AccessRequest, now_ms: i64) -> Result<Handled, AccessError> {
        let mut handled = self.change(request, now_ms)?;
        if !handled.rows.is_empty() {
            let rows = std::mem::take(&mut handled.rows);
            handled.rows = std::mem::take(&mut self.renamed);
            handled.rows.extend(rows);
        }
        handled.stored = !handled.rows.is_empty();
        handled.rows.extend(self.pairings.expire(now_ms));
        if handled.change.is_some() && self.owner_warning().is_some() {
            handled.answer["has_owner"] = json!(false);
        }
        Ok(handled)
    }

    fn change(&mut self, request: AccessRequest, now_ms: i64) -> Result<Handled, AccessError> {
        match request {
            AccessRequest::List => Ok(Handled {
                answer: self.list(),
                ..Handled::default()
            }),
            AccessRequest::Pending => {
                let entry = |(person, pending): (&PersonId, &PendingPairing)| {
                    let left = CODE_LIFETIME_MS.saturating_sub(now_ms.saturating_sub(pending.asked_ms));
                    json!({
                        "person": person.to_string(), "platform": person.platform(), "user": person.user(),
                        "name": pending.name, "code": pending.code, "asked_at_ms": pending.asked_ms, "expires_in_secs": left / 1000,
                    })
                };
                let pending: Vec<Value> = self.pairings.pending(now_ms).map(entry).collect();
                Ok(Handled {
                    answer: json!({ "pending": pending, "has_owner": self.has_owner() }),
                    ..Handled::default()
                })
            }
            AccessRequest::Allow {
                person,
                role,
                agents,
                chats,
            } => {
                let person = PersonId::parse_admitted(&person).map_err(AccessError::Person)?;
                if [&agents, &chats].into_iter().flatten().any(Vec::is_empty) {
                    return Err(AccessError::EmptyList);
                }
                self.allow(person, role, agents, chats, now_ms)
            }
            AccessRequest::Deny { person } => {
                let person = PersonId::parse(&person).map_err(AccessError::Person)?;
                let is_known = self.is_known(&person);
                let mut rows: Vec<StoredRow> = self.pairings.drop_person(&person).into_iter().collect();
                rows.push(self.store(
                    &person,
                    StoredRule {
                        role: None,
                        chats: None,
                        agents: None,
                        origin: "command".to_owned(),
                        at_ms: now_ms,
                    },
                ));
                let mut answer = json!({ "denied": person.to_string() });
                if !is_known {
                    answer["known"] = json!(false);
                }
                Ok(Handled {
                    answer,
                    rows,
                    change: Some(AccessChange {
                        what: "deny",
                        person,
                        role: None,
                    }),
                    ..Handled::default()
                })
            }
            AccessRequest::Forget { person } => {
                let person = PersonId::parse(&person).map_err(AccessError::Person)?;
                Ok(self.forget(person))
            }
            AccessRequest::Approve { code, role } => {
                let waiting = self.pairings.find(&code, now_ms).ok_or(AccessError::NoSuchCode)?;
                self.check_denials(&waiting)?;
                let (person, pending) = self.pairings.take(&code, now_ms).ok_or(AccessError::NoSuchCode)?;
                Ok(self.pair(person, pending, role.unwrap_or_default(), now_ms))
            }
        }
    }

    /// Deletes what is stored about a person; the settings file keeps what it says.
    fn forget(&mut self, person: PersonId) -> Handled {
        let (mut rows, mut removed) = (Vec::new(), Vec::new());
        if let Some(rule) = self.stored.remove(&person) {
            rows.push(StoredRow::new(RULE, &person, None));
            removed.push(
                rule.role
                    .map_or("denial".to_owned(), |role| format!("role {}", role.as_str())),
            );
        }
        if let Some(row) = self.pairings.drop_person(&person) {
            rows.push(row);
            removed.push("request for access".to_owned());
        }
        rows.push(StoredRow::new(USAGE, &person, None));
        self.seen.remove(&person);
        let people = self.settings.people.iter();
        let roles = people
            .filter(|rule| person.is_named(&rule.platform, &rule.user))
            .map(|rule| rule.role.as_str());
        let is_denied = self.is_denied_by_settings(&person);
        let in_file: Vec<&str> = roles.chain(is_denied.then_some("denied")).collect();
        Handled {
            answer: json!({ "forgotten": person.to_string(), "removed": removed, "in_file": in_file }),
            rows,
            change: Some(AccessChange {
                what: "forget",
                person,
                role: None,
            }),
            ..Handled::default()
        }
    }

    /// A code was approved.
    fn pair(&mut self, person: PersonId, pending: PendingPairing, role: Role, now_ms: i64) -> Handled {
        let stored = StoredRule {
            role: Some(role),
            chats: None,
            agents: None,
            origin: "pairing".to_owned(),
            at_ms: now_ms,
        };
        let code = StoredRow::new(PAIRING, &person, None);
        Handled {
            answer: json!({ "approved": person.to_string(), "role": role }),
            rows: vec![code, self.store(&person, stored)],
            change: Some(AccessChange {
                what: "approve",
                person: person.clone(),
                role: Some(role),
            }),
            paired: Some((person, pending)),
            ..Handled::default()
        }
    }

    fn allow(
        &mut self,
        person: PersonId,
        role: Option<Role>,
        agents: Option<Vec<String>>,
        chats: Option<Vec<String>>,
        now_ms: i64,
    ) -> Result<Handled, AccessError> {
        self.check_denials(&person)?;
        let mut rows: Vec<StoredRow> = self.pairings.drop_person(&person).into_iter().collect();
        let mut in_file = self.settings.people.iter();
        let in_file = in_file.find(|rule| person.is_named(&rule.platform, &rule.user));
        let role = match in_file {
            // Lifts a denial: the rule of the settings file holds again, with its limits.
            Some(in_file) if role.is_none() && agents.is_none() && chats.is_none() => {
                let role = in_file.role;
                if self.stored.remove(&person).is_some() {
                    rows.push(StoredRow::new(RULE, &person, None));
                }
                role
            }
            _ => {
                let role = role.unwrap_or_default();
                let stored = StoredRule {
                    role: Some(role),
                    chats,
                    agents,
                    origin: "command".to_owned(),
                    at_ms: now_ms,
                };
                rows.push(self.store(&person, stored));
                role
            }
        };
        Ok(Handled {
            answer: json!({ "allowed": person.to_string(), "role": role }),
            rows,
            change: Some(AccessChange {
                what: "allow",
                person,
                role: Some(role),
            }),
            ..Handled::default()
        })
    }

    /// Whether a denial would hold against a rule that lets this person in: one of the settings file, or one of an id that may be
    /// theirs.
    fn check_denials(&self, person: &PersonId) -> Result<(), AccessError> {
        let alike = person.alike();
        let ids = [Some(person), alike.as_ref()];
        if let Some(denied) = ids
            .into_iter()
            .flatten()
            .find(|id| self.is_denied_by_settings(id))
        {
            return Err(AccessError::DeniedByFile(denied.clone()));
        }
        let stored = alike.filter(|alike| self.stored.get(alike).is_some_and(|rule| rule.role.is_none()));
        stored.map_or(Ok(()), |denied| Err(AccessError::DeniedAlike(denied)))
    }

    fn store(&mut self, person: &PersonId, mut rule: StoredRule) -> StoredRow {
        rule.canonicalize(person.platform());
        let row = rule.row(person);
        self.stored.insert(person.clone(), rule);
        row
    }

    fn list(&self) -> Value {
        let settings = &self.settings;
        let origin = if settings.from_hermes { "hermes" } else { "file" };
        let mut entries = Vec::new();
        let person = |platform: &str, user: &str| {
            json!({
                "kind": "person", "person": format!("{platform}:{user}"), "platform": platform, "user": user,
            })
        };
        let with = |mut entry: Value, role: Option<Role>, origin: &str, lists: [&Option<Vec<String>>; 2]| {
            entry["role"] = role.map_or(Value::Null, |role| json!(role));
            entry["denied"] = json!(role.is_none());
            entry["origin"] = json!(origin);
            for (key, list) in ["chats", "agents"].into_iter().zip(lists) {
                if let Some(list) = list {
                    entry[key] = json!(list);
                }
            }
            entry
        };
        for rule in &settings.people {
            let entry = match &rule.guild_role {
                Some(role) => json!({"kind": "guild_role", "platform": rule.platform, "guild_role": role}),
                None => person(&rule.platform, &rule.user),
            };
            entries.push(with(entry, Some(rule.role), origin, [&rule.chats, &rule.agents]));
        }
        for rule in &settings.chats {
            let entry = json!({"kind": "chat", "platform": rule.platform, "chat": rule.chat});
            entries.push(with(entry, Some(rule.role), origin, [&None, &rule.agents]));
        }
        for rule in &settings.deny {
            let entry = person(&rule.platform, &rule.user);
            entries.push(with(entry, None, origin, [&None, &None]));
        }
        for platform in &settings.everybody_on {
            let entry = json!({"kind": "platform", "platform": platform});
            entries.push(with(entry, Some(Role::User), origin, [&None, &None]));
        }
        for (id, rule) in &self.stored {
            let entry = person(id.platform(), id.user());
            entries.push(with(entry, rule.role, &rule.origin, [&rule.chats, &rule.agents]));
        }
        json!({
            "mode": settings.mode, "strangers": settings.strangers(), "has_owner": self.has_owner(), "entries": entries,
        })
    }
}
