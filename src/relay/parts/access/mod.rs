//! Access: asks the gate about every event, answers strangers, keeps the trail.
//!
//! The rules are [`Gate`]'s. Here its decisions are counted and written to the audit log, strangers get what the settings
//! say, and its changes become rows of the journal.

mod strangers;
mod trail;

use trail::event_name;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use smol_str::SmolStr;

use crate::access::{
    AccessError, AccessRequest, Author, ByRole, EventKind, Exceeded, Gate, Handled, JobMaker, KeptMessage,
    Limits, MessageTime, PendingPairing, PersonId, Reason, Role, StoredRow, Verdict,
};
use crate::adapter::ChatId;
use crate::config::{AliasFiles, Settings};
use crate::relay::effects::Effects;
use crate::relay::status::AccessStatus;
use crate::session::TurnId;
use crate::store::{AccessRow, AuditLog, Command, UsageRow};
use crate::text::instant;
use crate::wire::{NoAliases, Platform, SessionKey, SessionSource, WhatsAppAliases};
use crate::words::{ChatPhrase, Language, PhraseKey};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The gate of a running relay.
pub struct AccessControl {
    gate: Gate,
    /// WhatsApp ids that mean the same person.
    aliases: Option<Arc<AliasFiles>>,
    warning: Option<String>,
    audit: Option<AuditLog>,
    /// When strangers were answered during the last hour.
    notices: VecDeque<i64>,
    /// Strangers who were answered during the last hour.
    answered: BTreeMap<PersonId, i64>,
    limits: Limits,
    counts: BTreeMap<(bool, Reason), u64>,
}

/// What starts a turn, as far as its author is concerned.
#[derive(Clone, Copy)]
pub enum Starter<'s> {
    /// A message from this source.
    Message(&'s SessionSource),
    /// A job that was made here, if it was made in a chat.
    Job(Option<&'s MadeIn>),
    /// A program that knows the secret of the receiver.
    Program,
}

/// The chat that a job was made in, and by whom.
pub struct MadeIn {
    /// In the platform's own spelling.
    pub platform: Platform,
    pub chat_id: String,
    pub chat_type: Option<String>,
    pub parent_chat_id: Option<String>,
    pub user_id: Option<String>,
    pub other_ids: Vec<String>,
    /// Their roles in the server at that time.
    pub roles: Vec<String>,
}

impl AccessControl {
    /// The rules of the settings and of the journal.
    pub fn new(settings: &Settings, rows: &[AccessRow], usage: &[UsageRow], now_ms: i64) -> Self {
        let stored = rows.iter().map(|row| StoredRow {
            kind: row.kind.clone(),
            platform: row.platform.clone(),
            user: row.person.clone(),
            value: row.value.clone(),
        });
        let home = settings.hermes_home.as_deref();
        let mut access = Self {
            gate: Gate::new(settings.access.clone(), stored),
            aliases: home.map(|home: &Path| Arc::new(AliasFiles::new(home))),
            warning: settings.access_warning(),
            audit: None,
            notices: VecDeque::new(),
            answered: BTreeMap::new(),
            limits: Limits::new(
                settings.access.limits.clone(),
                settings.access.max_turns_without_human,
            ),
            counts: BTreeMap::new(),
        };
        for row in usage {
            let person = PersonId::new(&row.platform, &row.person);
            access.gate.saw(&person);
            let count = |number: i64| u64::try_from(number).unwrap_or(0);
            let (turns, tokens) = (count(row.turns), count(row.tokens));
            access.limits.restore(&person, row.day, turns, tokens);
        }
        match AuditLog::start(&settings.state_dir, settings.audit.keep_days) {
            Ok(audit) => access.audit = Some(audit),
            Err(error) => tracing::error!(%error, "cannot start the audit log"),
        }
        if let Some(warning) = access.owner_warning() {
            tracing::warn!("{warning}");
        }
        if access.gate.is_active() {
            access.append(&json!({
                "time": instant(now_ms.div_euclid(1000)), "event": "settings",
                "platform": "", "chat": "", "person": "", "decision": "started", "reason": access.gate.mode(),
            }));
        }
        access
    }

    /// The author of a turn, by all their ids: who wrote its message, who made its job, or the operator.
    pub fn author(&self, starter: Starter<'_>) -> Author {
        let aliases: &dyn WhatsAppAliases = self.aliases.as_deref().map_or(&NoAliases, |files| files);
        match starter {
            Starter::Message(source) => Author::from_source(source, aliases),
            // A job that nobody made in a chat is the operator's. Records of other programs may name a chat and nobody in it.
            Starter::Job(origin) => {
                match origin.filter(|origin| origin.user_id.is_some() || origin.chat_type.is_some()) {
                    None => Author::operator(),
                    Some(origin) => {
                        let ids = origin.user_id.iter().chain(&origin.other_ids);
                        let chats = std::iter::once(&origin.chat_id).chain(&origin.parent_chat_id);
                        let author = Author::new(
                            &origin.platform,
                            ids.filter(|id| !id.is_empty()).map(SmolStr::from),
                            chats.filter(|chat| !chat.is_empty()).map(SmolStr::from),
                            origin.chat_type.as_deref() == Some("dm"),
                            aliases,
                        );
                        author.with_roles(origin.roles.clone())
                    }
                }
            }
            Starter::Program => Author::operator(),
        }
    }

    /// Somebody has written before this process.
    pub fn remember(&mut self, person: &PersonId) {
        self.gate.saw(person);
    }

    /// What the rules say about an event that arrives. Nothing is counted yet: it may have come before.
    pub fn decide(&self, author: &Author, kind: EventKind) -> Verdict {
        self.gate.decide(author, kind, None)
    }

    /// An event is committed, and came for the first time: counts it. Returns whether its author may go on, now that limits
    /// were looked at too, and what they get to read if a limit refuses it.
    pub fn admit(
        &mut self,
        author: &Author,
        (kind, command): (EventKind, Option<&'static str>),
        mut verdict: Verdict,
        time: impl Into<MessageTime>,
    ) -> (Verdict, Option<&'static str>) {
        let time: MessageTime = time.into();
        for person in author.known_as() {
            self.gate.saw(person);
        }
        let mut notice = None;
        if verdict.allowed {
            // The rules may have changed meanwhile.
            verdict = self.gate.decide(author, kind, None);
        }
        if verdict.allowed
            && self.gate.has_section()
            && let Some(exceeded) = self.exceeded(author, verdict.role, kind, time)
        {
            (verdict.allowed, verdict.reason) = (false, exceeded.reason);
            notice = exceeded.notice;
        }
        // The reply to a command that somebody's role does not have counts like that to any other.
        let is_command = matches!(kind, EventKind::Stop | EventKind::Command | EventKind::Inquiry);
        if is_command
            && !verdict.allowed
            && verdict.reason == Reason::Role
            && let Some(exceeded) = self.exceeded(author, verdict.role, EventKind::Command, time)
        {
            verdict.reason = exceeded.reason;
            notice = exceeded.notice;
        }
        match kind {
            // Written when its turn begins, with the agent.
            EventKind::Message | EventKind::Interaction if verdict.allowed => self.count(verdict),
            _ => {
                self.count(verdict);
                self.write_decision(author, (event_name(kind), command), verdict, None, time.now_ms);
            }
        }
        (verdict, notice)
    }

    /// Whether the limits would refuse one more message of this author, if so many others were counted before it. None is.
    pub fn would_exceed(&mut self, author: &Author, others: u64, time: MessageTime) -> bool {
        let role = self.gate.role(author).filter(|_| self.gate.has_section());
        role.is_some_and(|role| self.limits.would_exceed(author, role, others, time))
    }

    fn exceeded(
        &mut self,
        author: &Author,
        role: Option<Role>,
        kind: EventKind,
        time: MessageTime,
    ) -> Option<Exceeded> {
        let is_message = matches!(kind, EventKind::Message | EventKind::Interaction);
        let bot = is_message.then(|| self.limits.check_bot(author)).flatten();
        let person = self.limits.person(author);
        bot.or_else(|| self.limits.check(&person?, role?, (kind, author.chat()), time))
    }

    /// A turn is about to begin with this agent, whatever its task: whether its author may do that now. The rules may have
    /// changed since its task came, and limits of the day count turns, not messages. A turn that `is_free` is not counted: one of a
    /// command that is answered in place of the agent, or one that goes on and was counted when it began.
    pub fn begin(
        &mut self,
        author: &Author,
        (turn, agent): (TurnId, &str),
        is_free: bool,
        now_ms: i64,
        effects: &mut Effects,
    ) -> Result<Option<Role>, Reason> {
        let mut verdict = self.gate.decide(author, EventKind::Message, Some(agent));
        if verdict.allowed
            && !is_free
            && self.gate.has_section()
            && let (Some(person), Some(role)) = (self.limits.person(author), verdict.role)
            && self.limits.is_day_used_up(&person, role, now_ms)
        {
            (verdict.allowed, verdict.reason) = (false, Reason::Limit);
        }
        if verdict.allowed {
            let turn = Some((agent, Some(turn.0)));
            self.write_decision(author, ("turn", None), verdict, turn, now_ms);
            if let Some(person) = self.counted(author).filter(|_| !is_free) {
                self.limits.turn_started(&person, now_ms);
                effects.write(usage_row(author, &person, agent, 1, 0, now_ms));
            }
            return Ok(verdict.role);
        }
        self.record(author, EventKind::Message, verdict, Some(agent), now_ms);
        Err(verdict.reason)
    }

    /// A message was handed to this turn, which runs: it begins none of its own.
    pub fn steered(&mut self, author: &Author, (turn, agent): (TurnId, &str), now_ms: i64) {
        let verdict = self.gate.decide(author, EventKind::Message, Some(agent));
        let ran = Some((agent, Some(turn.0)));
        self.write_decision(
            author,
            (event_name(EventKind::Message), None),
            verdict,
            ran,
            now_ms,
        );
    }

    /// What the author of a message gets to read whose turn may not begin with this agent.
    pub fn refusal_notice(&mut self, author: &Author, reason: Reason, agent: &str) -> Option<String> {
        match reason {
            Reason::Limit => {
                let person = self.limits.person(author)?;
                self.limits.day_notice(&person).map(str::to_owned)
            }
            Reason::Agent => Some(format!("You may not use {agent} here.")),
            _ => None,
        }
    }

    /// A turn of an author has ended, with so many tokens; `is_reply` if the agent answered a message.
    pub fn turn_ended(
        &mut self,
        author: &Author,
        agent: &str,
        (tokens, is_reply): (u64, bool),
        now_ms: i64,
        effects: &mut Effects,
    ) {
        if let Some(person) = self.counted(author) {
            let replied_in = is_reply.then(|| author.chat());
            self.limits.turn_ended(&person, tokens, replied_in, now_ms);
            if tokens > 0 {
                effects.write(usage_row(author, &person, agent, 0, tokens, now_ms));
            }
        }
    }

    /// An author starts a new conversation.
    pub fn resume(&mut self, author: &Author) {
        if let Some(person) = self.limits.person(author) {
            self.limits.resume(&person);
        }
    }

    /// Whom the use of an author is counted under, where something is counted.
    fn counted(&mut self, author: &Author) -> Option<PersonId> {
        self.gate
            .is_active()
            .then(|| self.limits.person(author))
            .flatten()
    }

    /// What `/usage` answers.
    pub fn describe_usage(&mut self, author: &Author, language: Language, now_ms: i64) -> String {
        let Some(person) = self.counted(author) else {
            return language.plain(PhraseKey::NothingCounted).to_owned();
        };
        let (turns, tokens) = self.limits.today(&person, now_ms);
        let role = self.gate.role(author).unwrap_or_default();
        let limits = &self.gate.settings().limits;
        let most = |limit: &Option<ByRole>| limit.as_ref().and_then(|limit| limit.of(role));
        let turns = match most(&limits.turns_per_day) {
            Some(count) => ChatPhrase::TurnsUsedOf { used: turns, count },
            None => ChatPhrase::TurnsUsed { count: turns },
        };
        let tokens = match most(&limits.tokens_per_day) {
            Some(count) => ChatPhrase::TokensUsedOf { used: tokens, count },
            None => ChatPhrase::TokensUsed { count: tokens },
        };
        let (turns, tokens) = (&language.say(turns), &language.say(tokens));
        language.say(ChatPhrase::UsedToday { turns, tokens })
    }

    /// Decides again about an event that the journal kept, or that meets a running turn of this agent: the rules may have
    /// changed since it came.
    pub fn decide_again(
        &mut self,
        author: &Author,
        kind: EventKind,
        agent: Option<&str>,
        now_ms: i64,
    ) -> Verdict {
        let verdict = self.gate.decide(author, kind, agent);
        if !verdict.allowed {
            self.record(author, kind, verdict, agent, now_ms);
        }
        verdict
    }

    /// Who may not do this any more, and why, as the operator reads it; none if they may.
    pub fn refusal(&self, author: &Author, kind: EventKind) -> Option<String> {
        self.gate.refusal(author, kind)
    }

    /// Whether somebody may still talk to the agent.
    pub fn may_talk(&self, author: &Author) -> bool {
        self.decide(author, EventKind::Message).allowed
    }

    /// Whether somebody may answer what the agent asks them.
    pub fn may_answer(&self, author: &Author) -> bool {
        self.decide(author, EventKind::Press).allowed
    }

    /// Whether somebody may stop a turn.
    pub fn may_stop(&self, author: &Author) -> bool {
        self.decide(author, EventKind::Stop).allowed
    }

    /// The agents that somebody may use; `None` for all.
    pub fn agents(&self, author: &Author) -> Option<Vec<String>> {
        self.gate.agents(author).map(<[String]>::to_vec)
    }

    /// Whoever's agent lists or changes jobs; nobody where that is the operator, or where there are no rules.
    pub fn maker(&self, author: &Author) -> Option<JobMaker> {
        let is_person = self.gate.is_active() && !author.is_operator();
        // Somebody who lost access counts as a guest.
        is_person.then(|| JobMaker::through_agent(author, self.gate.role(author).unwrap_or(Role::Guest)))
    }

    /// Whoever lists or changes jobs in a chat.
    pub fn maker_in(&self, author: &Author, chat: &ChatId) -> JobMaker {
        let role = self.gate.role(author).unwrap_or(Role::Guest);
        JobMaker::in_chat(author, role, &chat.platform, &chat.chat)
    }

    /// Whether anybody wrote rules.
    pub fn is_active(&self) -> bool {
        self.gate.is_active()
    }

    /// Whether somebody may act as an owner. Without rules, everybody may.
    pub fn acts_as_owner(&self, author: &Author) -> bool {
        !self.is_active() || self.is_owner(author)
    }

    /// Whether a person is an owner. The operator is no person who could be asked.
    pub fn is_owner(&self, author: &Author) -> bool {
        author.person().is_some() && self.gate.role(author) == Some(Role::Owner)
    }

    /// Those of these turns whose authors may not talk to an agent any more.
    pub fn refused<'t>(
        &self,
        turns: impl Iterator<Item = (TurnId, &'t SessionKey, &'t Author)>,
    ) -> Vec<(TurnId, SessionKey)> {
        turns
            .filter(|(_, _, author)| !self.may_talk(author))
            .map(|(turn, session, _)| (turn, session.clone()))
            .collect()
    }

    /// What `/whoami` answers.
    pub fn describe(&self, author: &Author, language: Language) -> String {
        let person = author.person().map_or_else(
            || language.plain(PhraseKey::PersonUnknown).to_owned(),
            PersonId::to_string,
        );
        let role = self.gate.role(author).map_or("none", Role::as_str);
        let person = &person;
        language.say(ChatPhrase::WhoYouAre { person, role })
    }

    /// Handles a request of a verb: its rows go to the journal.
    pub fn handle(
        &mut self,
        request: AccessRequest,
        now_ms: i64,
        effects: &mut Effects,
    ) -> Result<Handled, AccessError> {
        let mut handled = self.gate.handle(request, now_ms)?;
        write_rows(std::mem::take(&mut handled.rows), effects);
        if let Some(change) = &handled.change {
            // Whoever is let in again is no stranger any more.
            self.answered.remove(&change.person);
            let (person, role) = (&change.person, change.role);
            self.write(person, "", role, change.what, "command", now_ms);
        }
        Ok(handled)
    }

    /// The people whose codes were approved while no relay ran, with what they wrote.
    pub fn approved(&mut self) -> Vec<(PersonId, PendingPairing)> {
        let approved = self.gate.pairings().approved();
        approved
            .map(|(person, pending)| (person.clone(), pending.clone()))
            .collect()
    }

    /// A message was edited or deleted: if it is kept until its author's code is approved, it is what it says now, or nothing.
    /// Returns whether it is kept.
    pub fn change_kept(
        &mut self,
        chat: &ChatId,
        message_id: &str,
        message: Option<KeptMessage>,
        effects: &mut Effects,
    ) -> bool {
        let pairings = self.gate.pairings();
        let row = pairings.change_kept((&chat.platform, &chat.chat), message_id, message);
        let is_kept = row.is_some();
        write_rows(row.into_iter().collect(), effects);
        is_kept
    }

    /// Somebody was welcomed, and what they wrote is taken: nothing of their code is kept.
    pub fn welcomed(&mut self, person: &PersonId, effects: &mut Effects) {
        let row = self.gate.pairings().drop_person(person);
        write_rows(row.into_iter().collect(), effects);
    }

    /// What somebody wrote before their code was approved could not be stored: it is kept as if no relay had run.
    pub fn keep_on(&mut self, person: &PersonId, pending: PendingPairing, effects: &mut Effects) {
        let row = self.gate.pairings().keep_approved(person, pending);
        write_rows(vec![row], effects);
    }

    /// What the relay reports about access.
    pub fn status(&self) -> AccessStatus {
        AccessStatus {
            mode: self.gate.mode().as_str(),
            has_owner: self.gate.has_owner(),
            warning: self.warning.clone().or_else(|| self.owner_warning()),
        }
    }

    /// What to know while people are let in by codes and nobody is an owner.
    fn owner_warning(&self) -> Option<String> {
        self.gate.owner_warning().map(str::to_owned)
    }

    /// How often the gate decided what.
    pub fn counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        let counts = self.counts.iter();
        counts
            .map(|((allowed, reason), count)| (decision(*allowed), reason.as_str(), *count))
            .collect()
    }

    fn count(&mut self, verdict: Verdict) {
        *self.counts.entry((verdict.allowed, verdict.reason)).or_default() += 1;
    }
}

fn write_rows(rows: Vec<StoredRow>, effects: &mut Effects) {
    for row in rows {
        effects.write(Command::SetAccess(AccessRow {
            kind: row.kind,
            platform: row.platform,
            person: row.user,
            value: row.value,
        }));
    }
}

fn usage_row(
    author: &Author,
    person: &PersonId,
    agent: &str,
    turns: i64,
    tokens: u64,
    now_ms: i64,
) -> Command {
    Command::AddUsage(UsageRow {
        day: now_ms.div_euclid(DAY_MS),
        platform: person.platform().to_owned(),
        person: person.user().to_owned(),
        chat: author.chat().to_owned(),
        agent: agent.to_owned(),
        turns,
        tokens: i64::try_from(tokens).unwrap_or(i64::MAX),
    })
}

fn decision(allowed: bool) -> &'static str {
    if allowed { "allowed" } else { "refused" }
}

#[cfg(test)]
mod tests;
