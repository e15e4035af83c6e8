//! Messages that arrive: deduplicated, journaled, and only then acknowledged.
//!
//! A message that the journal could not take is not acknowledged, so that it comes again; one that it had before is
//! acknowledged again and not run again. A line that nobody can use is quarantined, so that it cannot stop the rest.

use std::collections::{BTreeSet, VecDeque};

use crate::adapter::prompt::ButtonPress;
use crate::config::Settings;
use crate::link::Generation;
use crate::relay::effects::{Accepting, Effect, Effects, Intent, NewMessage, Pending, Work};
use crate::relay::transport::{InterruptRequest, InterruptTarget};
use crate::store::{Command, Committed, DedupeKey, InboxKind, KeyHash};
use crate::wire::{MessageEvent, Platform, Scalar, SessionKey, Undecodable};

/// Interrupts that wait for the frames before them; further ones stop only what runs already.
const MAX_PASSED: usize = 4096;
/// Platforms that are remembered as not announced.
const MAX_UNDECLARED: usize = 16;

/// What has arrived so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct InboundCounters {
    pub messages: u64,
    pub forwards: u64,
    pub interrupts: u64,
    pub undecodable: u64,
    pub quarantined: u64,
    pub duplicates: u64,
    pub acks: u64,
    pub rejected: u64,
    pub empty: u64,
}

/// What whoever sent a frame calls it: the same when it comes again.
#[derive(Clone, Copy, Debug)]
pub struct SentFrame<'f> {
    pub name: &'f str,
    /// The bot that sent it, beside others that send frames.
    pub bot: Option<&'static str>,
}

/// Accepts messages.
#[derive(Debug)]
pub struct Inbound {
    /// How the journal makes the keys of messages.
    key_hash: KeyHash,
    /// How keys name Telegram; set if the journal began with another bot there.
    telegram: Option<String>,
    /// Platforms that this relay announces.
    announced: Vec<String>,
    /// Platforms of messages that are not among those, up to [`MAX_UNDECLARED`].
    undeclared: BTreeSet<String>,
    /// Frames taken from the current connection.
    taken: Option<(Generation, u64)>,
    /// Interrupts that passed frames of their own session.
    passed: VecDeque<InterruptRequest>,
    /// Whether frames wait to be taken.
    has_waiting: bool,
    counters: InboundCounters,
}

impl Inbound {
    /// `first_bot` is the Telegram bot that the journal began with.
    pub fn new(settings: &Settings, key_hash: KeyHash, first_bot: i64) -> Self {
        let announced = settings.identities();
        let bot = settings.direct.telegram_bot();
        Self {
            key_hash,
            // Every bot counts the messages of its private chats from 1.
            telegram: (bot != first_bot).then(|| format!("{}:{bot}", Platform::TELEGRAM.as_str())),
            announced: announced.map(|identity| identity.platform.clone()).collect(),
            undeclared: BTreeSet::new(),
            taken: None,
            passed: VecDeque::new(),
            has_waiting: false,
            counters: InboundCounters::default(),
        }
    }

    /// Whether frames wait to be taken.
    pub fn has_waiting(&self) -> bool {
        self.has_waiting
    }

    /// Notes whether frames wait to be taken.
    pub fn set_waiting(&mut self, has_waiting: bool) {
        self.has_waiting = has_waiting;
    }

    pub fn counters(&self) -> InboundCounters {
        self.counters
    }

    /// A message or a forwarded request is taken.
    pub fn count(&mut self, kind: InboxKind) {
        match kind {
            InboxKind::Inbound => self.counters.messages += 1,
            InboxKind::Forward => self.counters.forwards += 1,
            InboxKind::Job | InboxKind::Handed => {}
        }
    }

    /// A message has nothing to act on; `true` the first time.
    pub fn count_empty(&mut self) -> bool {
        self.counters.empty += 1;
        self.counters.empty == 1
    }

    /// Notes the platform of a message if this relay does not announce it; `true` the first time.
    pub fn note_undeclared(&mut self, platform: &str) -> bool {
        let is_known = platform == Platform::RELAY.as_str()
            || self.announced.iter().any(|name| name == platform)
            || self.undeclared.len() >= MAX_UNDECLARED;
        !is_known && self.undeclared.insert(platform.to_owned())
    }

    /// Platforms of messages that this relay does not announce.
    pub fn undeclared(&self) -> impl Iterator<Item = &str> {
        self.undeclared.iter().map(String::as_str)
    }

    /// Journals a line that cannot be decoded, where the connector waits for its acknowledgement.
    pub fn undecodable(
        &mut self,
        generation: Generation,
        first: Undecodable,
        lines: u64,
        line: &[u8],
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
    pub fn quarantine(
        &mut self,
        generation: Generation,
        reason: String,
        buffer_id: Option<String>,
        line: &[u8],
        now_ms: i64,
        effects: &mut Effects,
    ) {
        self.counters.quarantined += 1;
        effects.request(Pending::Quarantine(generation), |token| Command::Quarantine {
            token,
            reason,
            buffer_id,
            line: line.to_vec(),
            now_ms,
        });
    }

    /// Acknowledges a frame; only the journal's receipt leads here. Returns whether the connector waits for it.
    pub fn acknowledge(
        &mut self,
        generation: Generation,
        receipt: &mut Committed,
        effects: &mut Effects,
    ) -> bool {
        let Some(buffer_id) = receipt.take_ack_id() else {
            return false;
        };
        self.counters.acks += 1;
        effects.push(Effect::Acknowledge(generation, buffer_id));
        true
    }

    /// The journal had the message before.
    pub fn count_duplicate(&mut self) {
        self.counters.duplicates += 1;
    }

    /// The journal could not take the message.
    pub fn count_rejected(&mut self) {
        self.counters.rejected += 1;
    }

    /// An interrupt came. Interrupts pass other frames; one that found no turn is kept until the frames that came
    /// before it are taken, because one of them may start the turn that it is about. One that names a draft is not: its
    /// turn ran before the draft was shown.
    pub fn interrupted(&mut self, interrupt: InterruptRequest, stopped: bool) {
        self.counters.interrupts += 1;
        let may_come = matches!(interrupt.target, InterruptTarget::Session(_));
        if may_come && !stopped && !self.has_taken(&interrupt) && self.passed.len() < MAX_PASSED {
            self.passed.push_back(interrupt);
        }
    }

    /// A frame was taken. Returns the sessions of interrupts that it was ahead of.
    pub fn taken(&mut self, generation: Generation) -> Vec<SessionKey> {
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

    /// The key of a message that came in a frame.
    pub fn dedupe_key(&self, event: &MessageEvent, frame: Option<SentFrame<'_>>) -> Option<DedupeKey> {
        let platform = event.source.platform.as_str();
        let platform = match &self.telegram {
            Some(telegram) if platform == Platform::TELEGRAM.as_str() => telegram,
            _ => platform,
        };
        dedupe_key(platform, event, frame, self.key_hash)
    }

    /// The key of a message that the relay makes, by what it is made from.
    pub fn own_key(&self, parts: &[&str]) -> DedupeKey {
        self.key_hash.key(parts)
    }

    /// Whether every frame that came before an interrupt was taken.
    fn has_taken(&self, interrupt: &InterruptRequest) -> bool {
        match self.taken {
            Some((current, count)) if current == interrupt.generation => count >= interrupt.after,
            Some((current, _)) => current > interrupt.generation || interrupt.after == 0,
            None => interrupt.after == 0,
        }
    }
}

/// Journals a message; one that the gate refused or that has nothing to act on without its text.
pub fn accept(accepting: Accepting, message: NewMessage, effects: &mut Effects) {
    let session = accepting.session.shared();
    let NewMessage {
        kind,
        buffer_id,
        line,
        dedupe,
        start,
        repeatable,
        now_ms,
    } = message;
    let ignored = match &accepting.work {
        Work::Message(_, arrival) => {
            matches!(
                arrival.intent,
                Intent::Refused { .. } | Intent::Empty | Intent::Delete(_)
            )
        }
        Work::Job(_) | Work::Handed(_) => false,
    };
    effects.request(Pending::Accept(Box::new(accepting)), |token| {
        if ignored {
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
            repeatable,
            now_ms,
        }
    });
}

/// What makes a message the same when it comes again: its id in its chat, else the name of its frame.
fn dedupe_key(
    platform: &str,
    event: &MessageEvent,
    frame: Option<SentFrame<'_>>,
    hash: KeyHash,
) -> Option<DedupeKey> {
    fn text(field: Option<&Scalar>) -> Option<&str> {
        field.map(Scalar::as_str).filter(|text| !text.is_empty())
    }
    let chat = text(event.source.chat_id.as_ref());
    let message = text(event.message_id.as_ref());
    // Presses may have the id of the message with the buttons; they differ by who pressed which.
    if let (Some(message), Some(press)) = (message, ButtonPress::from_event(event)) {
        let (chat, by) = (chat.unwrap_or_default(), press.by.id.unwrap_or_default());
        let mut parts = vec![
            "press",
            platform,
            chat,
            message,
            &by,
            &press.prompt_id,
            &press.option_id,
        ];
        // The same button may be pressed again.
        let is_of_buttons = press.message_id.as_deref() == Some(message);
        parts.extend(frame.filter(|_| is_of_buttons).map(|frame| frame.name));
        return Some(hash.key(&parts));
    }
    if let (Some(chat), Some(message)) = (chat, message) {
        if event.is_deleted {
            return Some(hash.key(&["deleted", platform, chat, message]));
        }
        if event.is_edit {
            // The same text may come back with a later edit.
            let (kind, which) = match frame {
                Some(frame) => ("edit", frame.name),
                None => ("edit to", event.text()),
            };
            return Some(hash.key(&[kind, platform, chat, message, which]));
        }
    }
    match (chat, message, frame) {
        (Some(chat), Some(message), _) => Some(hash.key(&["message", platform, chat, message])),
        (_, _, Some(SentFrame { name, bot: None })) => Some(hash.key(&["delivery", name])),
        (_, _, Some(SentFrame { name, bot: Some(bot) })) => Some(hash.key(&["delivery of a bot", bot, name])),
        (_, _, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::ChatId;
    use crate::adapter::stream::ShownDraft;
    use crate::config::TelegramConfig;

    fn frame(name: &str) -> SentFrame<'_> {
        SentFrame { name, bot: None }
    }

    #[test]
    fn what_has_no_id_of_its_own_is_known_by_who_sent_it_and_its_frame() {
        let wire = serde_json::json!({"text": "hi", "source": {"platform": "discord", "chat_id": "c"}});
        let event = MessageEvent::from_value(&wire).unwrap();
        let key = |bot| {
            let sent_as = Some(SentFrame { name: "7", bot });
            dedupe_key("discord", &event, sent_as, KeyHash::Blake2s).unwrap()
        };
        let earlier = KeyHash::Blake2s.key(&["delivery", "7"]);
        assert_eq!(
            key(None),
            earlier,
            "a connector's key is that of earlier versions"
        );
        assert_eq!(key(Some("discord")), key(Some("discord")));
        assert_ne!(key(Some("discord")), earlier);
        assert_ne!(key(Some("discord")), key(Some("telegram")));
    }

    #[test]
    fn a_message_has_the_key_that_its_journal_makes() {
        let wire = serde_json::json!({
            "text": "hi", "message_id": "m", "source": {"platform": "discord", "chat_id": "c"}
        });
        let event = MessageEvent::from_value(&wire).unwrap();
        for hash in [KeyHash::Sha256, KeyHash::Blake2s] {
            let inbound = Inbound::new(&Settings::embedded("/nowhere"), hash, 0);
            let key = hash.key(&["message", "discord", "c", "m"]);
            assert_eq!(inbound.dedupe_key(&event, Some(frame("b"))), Some(key));
            assert_eq!(inbound.own_key(&["approved", "x"]), hash.key(&["approved", "x"]));
        }
    }

    #[test]
    fn the_bot_that_a_journal_began_with_keeps_its_keys_and_another_one_has_its_own() {
        let wire = |platform| {
            let source = serde_json::json!({"platform": platform, "chat_id": "100"});
            let wire = serde_json::json!({"text": "/start", "message_id": "1", "source": source});
            MessageEvent::from_value(&wire).unwrap()
        };
        let key = |bot: i64, first_bot, platform| {
            let mut settings = Settings::embedded("/nowhere");
            let token = format!("{bot}:secret");
            settings.direct.telegram = (bot != 0).then(|| TelegramConfig::new(Some(token.into())));
            Inbound::new(&settings, KeyHash::Blake2s, first_bot).dedupe_key(&wire(platform), Some(frame("7")))
        };
        let plain = KeyHash::Blake2s.key(&["message", "telegram", "100", "1"]);
        assert_eq!(key(5, 5, "telegram"), Some(plain));
        assert_eq!(key(0, 0, "telegram"), Some(plain), "a connector's");
        for (bot, first_bot) in [(6, 5), (5, 0), (0, 5)] {
            assert_ne!(
                key(bot, first_bot, "telegram"),
                Some(plain),
                "{bot} after {first_bot}"
            );
            assert_eq!(key(bot, first_bot, "discord"), key(0, 0, "discord"));
        }
        assert_ne!(key(6, 5, "telegram"), key(7, 5, "telegram"));
    }

    #[test]
    fn a_press_with_the_id_of_its_buttons_is_told_from_the_next_one_by_its_delivery() {
        let key = |id: &str, option: &str, buffer_id: Option<&str>| {
            let wire = serde_json::json!({
                "text": "/o0", "message_id": id, "source": {"platform": "discord", "chat_id": "c", "user_id": "u"},
                "prompt_response": {"prompt_id": "p", "option_id": option, "prompt_message_id": "m"},
            });
            let event = MessageEvent::from_value(&wire).unwrap();
            dedupe_key("discord", &event, buffer_id.map(frame), KeyHash::Blake2s)
        };
        assert_eq!(
            key("m", "o0", Some("1")),
            key("m", "o0", Some("1")),
            "delivered again"
        );
        assert_ne!(
            key("m", "o0", Some("1")),
            key("m", "o0", Some("3")),
            "pressed again"
        );
        assert_ne!(key("m", "o0", Some("1")), key("m", "o1", Some("1")));
        assert_eq!(key("m", "o0", None), key("m", "o0", None));
        assert_eq!(
            key("i1", "o0", Some("1")),
            key("i1", "o0", Some("3")),
            "an id of its own"
        );
        assert_ne!(key("i1", "o0", None), key("i2", "o0", None));
    }

    fn interrupt(after: u64) -> InterruptRequest {
        InterruptRequest {
            generation: Generation::first(),
            after,
            target: InterruptTarget::Session("s".to_owned()),
        }
    }

    #[test]
    fn an_interrupt_that_passed_its_message_is_applied_once_more_when_that_is_taken() {
        let mut inbound = Inbound::new(&Settings::embedded("/nowhere"), KeyHash::Blake2s, 0);
        inbound.interrupted(interrupt(2), false);
        assert!(inbound.taken(Generation::first()).is_empty(), "the first of two");
        assert_eq!(inbound.taken(Generation::first()), [SessionKey::from_text("s")]);
        assert!(inbound.taken(Generation::first()).is_empty(), "once");
    }

    #[test]
    fn everything_that_arrives_is_counted_by_what_it_is() {
        let mut inbound = Inbound::new(&Settings::embedded("/nowhere"), KeyHash::Blake2s, 0);
        for kind in [
            InboxKind::Inbound,
            InboxKind::Forward,
            InboxKind::Forward,
            InboxKind::Job,
        ] {
            inbound.count(kind);
        }
        inbound.count_duplicate();
        inbound.count_rejected();
        assert!(inbound.count_empty() && !inbound.count_empty(), "the first time");
        let counters = inbound.counters();
        assert_eq!((counters.messages, counters.forwards), (1, 2));
        assert_eq!(
            (counters.duplicates, counters.rejected, counters.empty),
            (1, 1, 2)
        );
        assert!(!inbound.has_waiting());
        inbound.set_waiting(true);
        assert!(inbound.has_waiting());
    }

    #[test]
    fn a_platform_that_is_not_announced_is_noted_once_and_only_some_are() {
        let mut inbound = Inbound::new(&Settings::embedded("/nowhere"), KeyHash::Blake2s, 0);
        assert!(!inbound.note_undeclared(Platform::RELAY.as_str()));
        for number in 0..MAX_UNDECLARED {
            let name = format!("platform-{number}");
            assert!(inbound.note_undeclared(&name), "{name}");
            assert!(!inbound.note_undeclared(&name), "{name}");
        }
        assert!(!inbound.note_undeclared("one-too-many"));
        assert_eq!(inbound.undeclared().count(), MAX_UNDECLARED);
    }

    #[test]
    fn an_interrupt_that_stopped_a_turn_or_passed_nothing_is_not_kept() {
        let mut inbound = Inbound::new(&Settings::embedded("/nowhere"), KeyHash::Blake2s, 0);
        inbound.interrupted(interrupt(2), true);
        inbound.interrupted(interrupt(0), false);
        for _ in 0..3 {
            assert!(inbound.taken(Generation::first()).is_empty());
        }
    }

    #[test]
    fn an_interrupt_that_names_a_draft_waits_for_no_later_turn() {
        let mut inbound = Inbound::new(&Settings::embedded("/nowhere"), KeyHash::Blake2s, 0);
        let chat = ChatId {
            platform: "telegram".into(),
            chat: "1".into(),
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
        let mut inbound = Inbound::new(&Settings::embedded("/nowhere"), KeyHash::Blake2s, 0);
        inbound.interrupted(interrupt(9), false);
        assert_eq!(
            inbound.taken(Generation::first().next()),
            [SessionKey::from_text("s")]
        );
    }
}
