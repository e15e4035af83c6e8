//! What arrives: into the journal first, then acknowledged, then acted on.

use super::commands::RelayCommand;
use super::core::Core;
use super::prompts::Response;
use super::traces::Seen;
use super::transport::{Cargo, Delivery};
use super::turns::LiveTurn;
use crate::adapter::prompt::ButtonPress;
use crate::adapter::{ChatFacts, ChatId, ChatMemory, interaction_event};
use crate::config::BusyMode;
use crate::link::Generation;
use crate::session::{Admission, Interrupt, StopReason, TurnId};
use crate::store::{ChatRow, Command, Committed, DedupeKey, Fault, FaultKind, Health, InboxKind, TurnState};
use crate::wire::{MessageEvent, NoAliases, Platform, Scalar, SessionKey, Undecodable, WhatsAppAliases};

/// A message on its way into the journal.
#[derive(Debug)]
pub(super) struct Arrival {
    generation: Generation,
    key: SessionKey,
    intent: Intent,
    seen: Seen,
}

/// What a message will do once it is committed.
#[derive(Debug)]
enum Intent {
    /// Start this turn, whose place it holds.
    Start(TurnId, Box<MessageEvent>),
    /// Wait behind a turn, possibly stopping it, or be handed to it.
    Wait(
        Option<TurnId>,
        Box<ChatId>,
        Box<ChatFacts>,
        Option<Box<MessageEvent>>,
    ),
    /// Have the relay do something, with the turn that it met.
    Obey(RelayCommand, Option<TurnId>, Box<ChatId>, Box<ChatFacts>),
    /// Say something to a question, or nothing; never the agent's, and in no turn's way.
    Respond(Box<Response>),
    /// Nothing: the line was set aside.
    SetAside,
}

impl Core {
    pub(super) fn take_deliveries(&mut self, deliveries: Vec<Delivery>) {
        let now_ms = self.now_ms();
        let now = self.clock.now();
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.stir(now);
        }
        for Delivery {
            generation,
            cargo,
            line,
        } in deliveries
        {
            match cargo {
                Cargo::Inbound { event, buffer_id } => {
                    self.tally.inbound += 1;
                    self.take_message(generation, InboxKind::Inbound, event, buffer_id, line, now_ms);
                }
                Cargo::Forward { forward, buffer_id } => {
                    self.tally.forwards += 1;
                    if let Some(event) = interaction_event(&forward).map(Box::new) {
                        self.take_message(generation, InboxKind::Forward, event, buffer_id, line, now_ms);
                    } else {
                        let platform = forward.platform.chars().take(40).collect::<String>();
                        tracing::warn!(platform, "a forwarded request has no use here and is set aside");
                        self.set_aside(
                            generation,
                            "a forward without a use here".to_owned(),
                            buffer_id,
                            line,
                            now_ms,
                        );
                    }
                }
                Cargo::Interrupt { session_key, .. } => {
                    self.tally.interrupts += 1;
                    self.interrupt(&SessionKey::from_text(session_key), None);
                }
                Cargo::Unusable { unusable, lines } => {
                    let Undecodable {
                        kind,
                        buffer_id,
                        error,
                    } = unusable;
                    self.tally.undecodable += lines;
                    tracing::warn!(kind, lines, %error, buffered = buffer_id.is_some(), "a frame cannot be used and is set aside");
                    if buffer_id.is_some() {
                        self.set_aside(generation, error.to_string(), buffer_id, line, now_ms);
                    }
                }
            }
        }
    }

    /// Stops a session's turn: the one given, or whichever runs. Tells whether there was one.
    pub(super) fn interrupt(&mut self, key: &SessionKey, only: Option<TurnId>) -> bool {
        if only.is_some() && self.sessions.turn_of(key) != only {
            return false;
        }
        match self.sessions.interrupt(key) {
            Interrupt::Cancel(turn) => {
                self.cancel_turn(turn, StopReason::Asked);
                true
            }
            Interrupt::Nothing => false,
        }
    }

    fn take_message(
        &mut self,
        generation: Generation,
        kind: InboxKind,
        mut event: Box<MessageEvent>,
        buffer_id: Option<String>,
        line: Vec<u8>,
        now_ms: i64,
    ) {
        let key = self.understand(&mut event);
        let dedupe = dedupe_key(&event, buffer_id.as_deref());
        let intent = self.intent(&key, event);
        let start = matches!(intent, Intent::Start(..));
        let token = self.token();
        let session = key.shared();
        let seen = self.traces.arrived();
        self.arrivals.insert(
            token,
            Arrival {
                generation,
                key,
                intent,
                seen,
            },
        );
        self.writes.push(Command::Accept {
            token,
            kind,
            session,
            dedupe,
            buffer_id,
            line,
            start,
            now_ms,
        });
    }

    /// Applies the settings to a message and names its session. The same for a fresh message and for one
    /// read back from the journal.
    pub(super) fn understand(&mut self, event: &mut MessageEvent) -> SessionKey {
        self.own_threads.learn(&event.source);
        self.settings.commands.rewrite(event);
        let source = &mut event.source;
        if self.settings.slack_threads && source.platform == Platform::SLACK && source.thread_id.is_none() {
            source.thread_id.clone_from(&event.message_id);
        }
        let profile = source
            .profile
            .as_ref()
            .map(Scalar::as_str)
            .filter(|_| self.settings.multiplex_profiles);
        let aliases: &dyn WhatsAppAliases =
            self.settings.aliases.as_deref().map_or(&NoAliases, |files| files);
        SessionKey::build(source, self.settings.grouping, profile, aliases)
    }

    fn intent(&mut self, key: &SessionKey, event: Box<MessageEvent>) -> Intent {
        if let Some(response) = self.response_in(key, &event) {
            return Intent::Respond(Box::new(response));
        }
        let chat = || Box::new(ChatId::from_source(&event.source));
        let facts = || Box::new(ChatFacts::from_source(&event.source));
        if let Some(command) = self.command_in(&event) {
            return Intent::Obey(command, self.sessions.turn_of(key), chat(), facts());
        }
        match self.sessions.admit(key) {
            Admission::Start(turn) => {
                self.turns.insert(turn, LiveTurn::new(key.clone(), &event));
                Intent::Start(turn, event)
            }
            Admission::Wait { behind } => {
                // What came with a message is downloaded for a turn of its own.
                let bare = self.media.is_none() || event.media_urls.is_empty();
                let steers = self.settings.busy_mode == BusyMode::Steer && behind.is_some() && bare;
                Intent::Wait(behind, chat(), facts(), Some(event).filter(|_| steers))
            }
        }
    }

    fn set_aside(
        &mut self,
        generation: Generation,
        reason: String,
        buffer_id: Option<String>,
        line: Vec<u8>,
        now_ms: i64,
    ) {
        self.tally.quarantined += 1;
        let token = self.token();
        let key = SessionKey::from_text("");
        let seen = self.traces.arrived();
        self.arrivals.insert(
            token,
            Arrival {
                generation,
                key,
                intent: Intent::SetAside,
                seen,
            },
        );
        self.writes.push(Command::Quarantine {
            token,
            reason,
            buffer_id,
            line,
            now_ms,
        });
    }

    /// The journal has it: acknowledge, then act.
    pub(super) fn take_accepted(&mut self, token: u64, seq: i64, receipt: Committed) {
        let Some(Arrival {
            generation,
            key,
            intent,
            seen,
        }) = self.arrivals.remove(&token)
        else {
            return;
        };
        self.renewal.accepted();
        self.acknowledge(generation, receipt);
        match intent {
            Intent::Start(turn, event) => {
                self.remember(turn);
                self.traces.accepted(seen, seq);
                self.start_turn(turn, seq, *event);
            }
            Intent::Wait(behind, chat, facts, event) => {
                let now_ms = self.now_ms();
                self.writes.extend(learn(&mut self.chats, &chat, &facts, now_ms));
                if event.is_some_and(|event| self.is_steered(&key, behind, *event)) {
                    self.sessions.cancel_waiting(&key);
                    return self.end_row(seq, TurnState::Done, Vec::new(), None);
                }
                self.traces.accepted(seen, seq);
                if self.sessions.enqueue(&key, seq) {
                    self.tell_overflow(&key, &chat, &facts);
                }
                self.when_busy(&key, behind);
            }
            Intent::Obey(command, met, chat, facts) => {
                self.obey(command, met, &key, seq, (&chat, &facts));
            }
            Intent::Respond(response) => {
                let state = self.take_response(&response);
                self.end_row(seq, state, Vec::new(), None);
            }
            Intent::SetAside => {}
        }
    }

    /// A message for the relay itself that was committed but not acted on before a restart: what it was about is
    /// gone, and it is never the agent's.
    pub(super) fn answer_late(&mut self, key: &SessionKey, seq: i64, event: &MessageEvent) {
        let (chat, facts) = (
            ChatId::from_source(&event.source),
            ChatFacts::from_source(&event.source),
        );
        match self.command_in(event) {
            Some(command) if event.prompt_response.is_none() => {
                self.obey(command, None, key, seq, (&chat, &facts));
            }
            _ => self.end_row(seq, TurnState::Ignored, Vec::new(), None),
        }
    }

    /// The journal has had it before: acknowledge again, and act on nothing.
    pub(super) fn take_duplicate(&mut self, token: u64, receipt: Committed) {
        self.tally.duplicates += 1;
        let Some(arrival) = self.arrivals.remove(&token) else {
            return;
        };
        self.acknowledge(arrival.generation, receipt);
        self.retract(&arrival);
    }

    /// The journal could not take it: no acknowledgement, so that it comes again.
    pub(super) fn take_unaccepted(&mut self, token: u64, fault: &Fault) {
        let Some(arrival) = self.arrivals.remove(&token) else {
            return;
        };
        self.tally.refused_by_journal += 1;
        self.retract(&arrival);
        let health = self.health.borrow().clone();
        if fault.kind == FaultKind::Refused && health == Health::Ok {
            // Only this one, and so each time it comes: to ask for it at once would be to ask for ever.
            tracing::error!(%fault, "the journal refuses a message; it is not acknowledged");
        } else {
            self.turned_away = true;
            self.take_health(health);
        }
    }

    fn retract(&mut self, arrival: &Arrival) {
        match arrival.intent {
            Intent::Start(turn, _) => {
                if let Some(live) = self.turns.remove(&turn) {
                    live.tell_end();
                }
                self.sessions.cancel_admission(&arrival.key, turn);
            }
            Intent::Wait(..) => self.sessions.cancel_waiting(&arrival.key),
            Intent::Obey(..) | Intent::Respond(_) | Intent::SetAside => {}
        }
    }

    /// Only a receipt of the journal leads here.
    pub(super) fn acknowledge(&mut self, generation: Generation, receipt: Committed) {
        if let Some(buffer_id) = receipt.into_ack_id() {
            self.tally.acks += 1;
            self.transport.acknowledge(generation, buffer_id);
            self.note_acknowledged();
        }
    }

    /// Hands a message to the turn that it met, if that still runs, nothing older waits, and the message is for the
    /// same agent on the same terms: one that a route sends elsewhere waits for a turn of its own, and so does one that
    /// meets a turn of which the connector will hear no more. What a turn has taken is the turn's business: its row is
    /// done, and the turn's own end tells the chat.
    fn is_steered(&mut self, key: &SessionKey, met: Option<TurnId>, event: MessageEvent) -> bool {
        if self.sessions.running_turn(key) != met || self.sessions.has_waiting(key) || self.is_undecided(key)
        {
            return false;
        }
        let pick = self.crew.pick(&event, self.chosen(key).as_deref());
        let same = |live: &LiveTurn| {
            let agent = live.agent.as_ref().is_some_and(|(name, _)| *name == pick.name);
            agent && live.terms == Some(pick.member.terms()) && !self.is_declined(live)
        };
        if !met.and_then(|turn| self.turns.get(&turn)).is_some_and(same) {
            return false;
        }
        let input = self.input_of(event, pick.text);
        let taken = met
            .and_then(|turn| self.agent_of(turn))
            .is_some_and(|agent| agent.info().steers && agent.steer(key, &input));
        self.tally.steered += u64::from(taken);
        if taken {
            self.traces.steered(|| self.turns.get(&met?)?.seq);
        }
        taken
    }

    fn when_busy(&mut self, key: &SessionKey, behind: Option<TurnId>) {
        if let (BusyMode::Interrupt, Some(turn)) = (self.settings.busy_mode, behind)
            && self.sessions.turn_of(key) == Some(turn)
            && let Interrupt::Cancel(turn) = self.sessions.interrupt(key)
        {
            self.cancel_turn(turn, StopReason::Superseded);
        }
    }

    /// Remembers the chat that a turn answers.
    fn remember(&mut self, turn: TurnId) {
        let now_ms = self.now_ms();
        if let Some(live) = self.turns.get(&turn) {
            let written = learn(&mut self.chats, &live.chat, &live.facts, now_ms);
            self.writes.extend(written);
        }
    }
}

/// Learns what a message tells about its chat, and what to write down about it, if anything.
fn learn(chats: &mut ChatMemory, chat: &ChatId, facts: &ChatFacts, now_ms: i64) -> Option<Command> {
    if !chats.learn(chat, facts, now_ms) {
        return None;
    }
    Some(Command::RememberChat(ChatRow {
        platform: chat.platform.as_str().into(),
        chat_id: chat.chat.as_str().into(),
        memory: serde_json::to_vec(facts).ok()?,
        last_used: now_ms,
    }))
}

/// What makes a message the same when it comes again: its id in its chat, else the delivery's name.
fn dedupe_key(event: &MessageEvent, buffer_id: Option<&str>) -> Option<DedupeKey> {
    let chat = event
        .source
        .chat_id
        .as_ref()
        .map(Scalar::as_str)
        .filter(|chat| !chat.is_empty());
    let message = event
        .message_id
        .as_ref()
        .map(Scalar::as_str)
        .filter(|id| !id.is_empty());
    // Presses may bear the id of the message that has the buttons; they differ by who pressed which.
    if let (Some(message), Some(press)) = (message, ButtonPress::from_event(event)) {
        let (chat, by) = (chat.unwrap_or_default(), press.by.id.unwrap_or_default());
        let (prompt, option) = (press.prompt_id, press.option_id);
        let platform = event.source.platform.as_str();
        let parts = ["press", platform, chat, message, &by, &prompt, &option];
        return Some(DedupeKey::new(&parts));
    }
    match (chat, message, buffer_id) {
        (Some(chat), Some(message), _) => Some(DedupeKey::new(&[
            "message",
            event.source.platform.as_str(),
            chat,
            message,
        ])),
        (_, _, Some(buffer_id)) => Some(DedupeKey::new(&["delivery", buffer_id])),
        _ => None,
    }
}
