//! What arrives: named, deduplicated, journaled, and only then acknowledged.
//!
//! A message that the journal could not take is not acknowledged, so that it comes again; one that it had before is
//! acknowledged again and not run again. A line that nobody can use is quarantined, so that it cannot stop the rest.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::effects::{Accepting, Effect, Effects, Intent, Pending};
use super::transport::{InterruptRequest, InterruptTarget};
use crate::adapter::prompt::ButtonPress;
use crate::config::{AliasFiles, Settings};
use crate::link::Generation;
use crate::store::{Command, Committed, DedupeKey, InboxKind};
use crate::wire::{
    CommandMap, Grouping, MessageEvent, NoAliases, OwnPlatforms, Platform, Scalar, SessionKey, Undecodable,
    WhatsAppAliases,
};

/// Interrupts that wait for the deliveries before them; further ones stop only what runs already.
const MAX_PASSED: usize = 4096;
/// Platforms that are remembered as not announced.
const MAX_UNDECLARED: usize = 16;

/// What has arrived so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InboundCounters {
    pub(super) messages: u64,
    pub(super) forwards: u64,
    pub(super) interrupts: u64,
    pub(super) undecodable: u64,
    pub(super) quarantined: u64,
    pub(super) duplicates: u64,
    pub(super) acks: u64,
    pub(super) rejected: u64,
}

/// Accepts deliveries.
#[derive(Debug)]
pub(super) struct Inbound {
    grouping: Grouping,
    multiplex_profiles: bool,
    /// A top-level Slack message is a conversation of its own.
    slack_threads: bool,
    commands: CommandMap,
    /// Platforms by the names of our identities, of descriptors, and of chats that are remembered.
    platforms: OwnPlatforms,
    /// Platforms that this relay announces.
    announced: Vec<String>,
    /// Platforms of messages that are not among those, up to [`MAX_UNDECLARED`].
    undeclared: BTreeSet<String>,
    /// WhatsApp ids that mean the same person.
    aliases: Option<Arc<AliasFiles>>,
    /// Deliveries taken from the current connection.
    taken: Option<(Generation, u64)>,
    /// Interrupts that passed deliveries of their own session.
    passed: VecDeque<InterruptRequest>,
    counters: InboundCounters,
}

/// A delivery that is about to be journaled.
pub(super) struct NewMessage {
    pub(super) kind: InboxKind,
    pub(super) buffer_id: Option<String>,
    pub(super) line: Vec<u8>,
    pub(super) dedupe: Option<DedupeKey>,
    /// Its turn starts as soon as it is committed.
    pub(super) start: bool,
    pub(super) now_ms: i64,
}

impl Inbound {
    pub(super) fn new(settings: &Settings) -> Self {
        let sessions = &settings.sessions;
        let mut platforms = OwnPlatforms::default();
        for identity in &settings.connector.identities {
            platforms.add(&identity.platform);
        }
        let identities = settings.connector.identities.iter();
        Self {
            platforms,
            announced: identities.map(|identity| identity.platform.clone()).collect(),
            undeclared: BTreeSet::new(),
            grouping: Grouping {
                group_sessions_per_user: sessions.group_sessions_per_user,
                thread_sessions_per_user: sessions.thread_sessions_per_user,
            },
            multiplex_profiles: sessions.multiplex_profiles,
            slack_threads: settings.slack.reply_in_thread && settings.slack.dm_top_level_threads_as_sessions,
            commands: CommandMap::default().with(settings.slack.command_map.clone()),
            aliases: settings
                .hermes_home
                .as_deref()
                .map(|home| Arc::new(AliasFiles::new(home))),
            taken: None,
            passed: VecDeque::new(),
            counters: InboundCounters::default(),
        }
    }

    pub(super) fn counters(&self) -> InboundCounters {
        self.counters
    }

    /// A message or a forwarded request is taken.
    pub(super) fn count(&mut self, kind: InboxKind) {
        match kind {
            InboxKind::Inbound => self.counters.messages += 1,
            InboxKind::Forward => self.counters.forwards += 1,
            InboxKind::Job | InboxKind::Delivery => {}
        }
    }

    /// A descriptor declared this platform, or a chat on it is remembered.
    pub(super) fn add_platform(&mut self, name: &str) {
        self.platforms.add(name);
    }

    /// Names a message's platform, before anything is derived from it.
    pub(super) fn name_platform(&self, event: &mut MessageEvent) {
        event.source.platform.adopt(&self.platforms);
    }

    /// Notes the platform of a message if this relay does not announce it; `true` the first time.
    pub(super) fn note_undeclared(&mut self, platform: &str) -> bool {
        let is_known = platform == Platform::RELAY.as_str()
            || self.announced.iter().any(|name| name == platform)
            || self.undeclared.len() >= MAX_UNDECLARED;
        !is_known && self.undeclared.insert(platform.to_owned())
    }

    /// Platforms of messages that this relay does not announce.
    pub(super) fn undeclared(&self) -> impl Iterator<Item = &str> {
        self.undeclared.iter().map(String::as_str)
    }

    /// Applies the settings to a message and names its session: the same for a fresh message and for one that is read
    /// back from the journal.
    pub(super) fn session_of(&self, event: &mut MessageEvent) -> SessionKey {
        self.commands.rewrite(event);
        let source = &mut event.source;
        if self.slack_threads && source.platform == Platform::SLACK && source.thread_id.is_none() {
            source.thread_id.clone_from(&event.message_id);
        }
        let profile = source
            .profile
            .as_ref()
            .map(Scalar::as_str)
            .filter(|_| self.multiplex_profiles);
        let aliases: &dyn WhatsAppAliases = self.aliases.as_deref().map_or(&NoAliases, |files| files);
        SessionKey::build(source, self.grouping, profile, aliases)
    }

    /// Whether the session of a message, as [`Self::session_of`] names it, belongs to one person.
    pub(super) fn is_personal(&self, event: &MessageEvent) -> bool {
        self.grouping.is_personal(&event.source)
    }

    /// Journals a line that cannot be decoded, where the connector waits for its acknowledgement.
    pub(super) fn undecodable(
        &mut self,
        generation: Generation,
        first: Undecodable,
        lines: u64,
        line: Vec<u8>,
        now_ms: i64,
        effects: &mut Effects,
    ) {
        let Undecodable {
            kind,
            buffer_id,
            error,
        } = first;
        self.counters.undecodable += lines;
        let buffered = buffer_id.is_some();
        tracing::warn!(kind, lines, %error, buffered, "cannot decode a frame");
        if buffered {
            self.quarantine(generation, error.to_string(), buffer_id, line, now_ms, effects);
        }
    }

    /// Journals a line that nobody can use, so that it can be acknowledged.
    pub(super) fn quarantine(
        &mut self,
        generation: Generation,
        reason: String,
        buffer_id: Option<String>,
        line: Vec<u8>,
        now_ms: i64,
        effects: &mut Effects,
    ) {
        self.counters.quarantined += 1;
        effects.request(Pending::Quarantine(generation), |token| Command::Quarantine {
            token,
            reason,
            buffer_id,
            line,
            now_ms,
        });
    }

    /// Acknowledges a delivery; only the journal's receipt leads here. Returns whether the connector waits for it.
    pub(super) fn acknowledge(
        &mut self,
        generation: Generation,
        receipt: Committed,
        effects: &mut Effects,
    ) -> bool {
        let Some(buffer_id) = receipt.into_ack_id() else {
            return false;
        };
        self.counters.acks += 1;
        effects.push(Effect::Acknowledge(generation, buffer_id));
        true
    }

    /// The journal had the message before.
    pub(super) fn count_duplicate(&mut self) {
        self.counters.duplicates += 1;
    }

    /// The journal could not take the message.
    pub(super) fn count_rejected(&mut self) {
        self.counters.rejected += 1;
    }

    /// An interrupt came. Interrupts pass deliveries; one that found no turn is kept until the deliveries that came
    /// before it are taken, because one of them may start the turn that it is about. One that names a draft is not: its
    /// turn ran before the draft was shown.
    pub(super) fn interrupted(&mut self, interrupt: InterruptRequest, stopped: bool) {
        self.counters.interrupts += 1;
        let may_come = matches!(interrupt.target, InterruptTarget::Session(_));
        if may_come && !stopped && !self.has_taken(&interrupt) && self.passed.len() < MAX_PASSED {
            self.passed.push_back(interrupt);
        }
    }

    /// A delivery was taken. Returns the sessions of interrupts that it was ahead of.
    pub(super) fn taken(&mut self, generation: Generation) -> Vec<SessionKey> {
        self.taken = match self.taken {
            Some((current, count)) if current == generation => Some((current, count + 1)),
            _ => Some((generation, 1)),
        };
        let mut due = Vec::new();
        while let Some(first) = self.passed.front()
            && self.has_taken(first)
        {
            due.extend(self.passed.pop_front());
        }
        due.into_iter()
            .filter_map(|interrupt| match interrupt.target {
                InterruptTarget::Session(key) => Some(SessionKey::from_text(key)),
                InterruptTarget::Draft(_) => None,
            })
            .collect()
    }

    /// Whether every delivery that came before an interrupt was taken.
    fn has_taken(&self, interrupt: &InterruptRequest) -> bool {
        match self.taken {
            Some((current, count)) if current == interrupt.generation => count >= interrupt.after,
            Some((current, _)) => current > interrupt.generation || interrupt.after == 0,
            None => interrupt.after == 0,
        }
    }
}

/// Journals a message; one that the gate refused without its text.
pub(super) fn accept(accepting: Accepting, message: NewMessage, effects: &mut Effects) {
    let session = accepting.session.shared();
    let NewMessage {
        kind,
        buffer_id,
        line,
        dedupe,
        start,
        now_ms,
    } = message;
    let refused = matches!(accepting.intent, Intent::Refused(_));
    effects.request(Pending::Message(Box::new(accepting)), |token| {
        if refused {
            return Command::Ignore {
                token,
                kind,
                session,
                dedupe,
                buffer_id,
                now_ms,
            };
        }
        Command::Accept {
            token,
            kind,
            session,
            dedupe,
            buffer_id,
            line,
            start,
            now_ms,
        }
    });
}

/// What makes a message the same when it comes again: its id in its chat, else the delivery's buffer id.
pub(super) fn dedupe_key(event: &MessageEvent, buffer_id: Option<&str>) -> Option<DedupeKey> {
    let text = |field: &'_ Option<Scalar>| {
        let text = field.as_ref().map(|field| field.as_str().to_owned());
        text.filter(|text| !text.is_empty())
    };
    let platform = event.source.platform.as_str();
    let (chat, message) = (text(&event.source.chat_id), text(&event.message_id));
    // Presses may have the id of the message with the buttons; they differ by who pressed which.
    if let (Some(message), Some(press)) = (&message, ButtonPress::from_event(event)) {
        let (chat, by) = (chat.unwrap_or_default(), press.by.id.unwrap_or_default());
        let parts = [
            "press",
            platform,
            &chat,
            message,
            &by,
            &press.prompt_id,
            &press.option_id,
        ];
        return Some(DedupeKey::new(&parts));
    }
    match (chat, message, buffer_id) {
        (Some(chat), Some(message), _) => Some(DedupeKey::new(&["message", platform, &chat, &message])),
        (_, _, Some(buffer_id)) => Some(DedupeKey::new(&["delivery", buffer_id])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::ChatId;
    use crate::adapter::stream::ShownDraft;

    fn interrupt(after: u64) -> InterruptRequest {
        InterruptRequest {
            generation: Generation::first(),
            after,
            target: InterruptTarget::Session("s".to_owned()),
        }
    }

    #[test]
    fn an_interrupt_that_passed_its_message_is_applied_once_more_when_that_is_taken() {
        let mut inbound = Inbound::new(&Settings::embedded("/nowhere"));
        inbound.interrupted(interrupt(2), false);
        assert!(inbound.taken(Generation::first()).is_empty(), "the first of two");
        assert_eq!(inbound.taken(Generation::first()), [SessionKey::from_text("s")]);
        assert!(inbound.taken(Generation::first()).is_empty(), "once");
    }

    #[test]
    fn an_interrupt_that_stopped_a_turn_or_passed_nothing_is_not_kept() {
        let mut inbound = Inbound::new(&Settings::embedded("/nowhere"));
        inbound.interrupted(interrupt(2), true);
        inbound.interrupted(interrupt(0), false);
        for _ in 0..3 {
            assert!(inbound.taken(Generation::first()).is_empty());
        }
    }

    #[test]
    fn an_interrupt_that_names_a_draft_waits_for_no_later_turn() {
        let mut inbound = Inbound::new(&Settings::embedded("/nowhere"));
        let chat = ChatId {
            platform: "telegram".to_owned(),
            chat: "1".to_owned(),
        };
        let target = InterruptTarget::Draft(ShownDraft { chat, draft_id: 1024 });
        inbound.interrupted(
            InterruptRequest {
                target,
                ..interrupt(2)
            },
            false,
        );
        assert!(inbound.passed.is_empty());
        assert_eq!(inbound.counters().interrupts, 1);
    }

    #[test]
    fn an_interrupt_of_an_earlier_connection_does_not_wait_for_ever() {
        let mut inbound = Inbound::new(&Settings::embedded("/nowhere"));
        inbound.interrupted(interrupt(9), false);
        assert_eq!(
            inbound.taken(Generation::first().next()),
            [SessionKey::from_text("s")]
        );
    }
}
