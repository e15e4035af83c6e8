//! Frames that arrive: what each is, who wrote it, and whether they may do that. Accepted messages go on in
//! [`turn`](super::turn).

use std::sync::Arc;

use crate::access::{EventKind, PersonId, Reason};
use crate::adapter::{ChatFacts, ChatId, labelled_interaction};
use crate::config::BusyMode;
use crate::link::{Generation, Moment};
use crate::relay::effects::{AboutTurn, Accepting, Intent, Place, QuestionResponse, Refusal, Task, Work};
use crate::relay::event_loop::EventLoop;
use crate::relay::parts::access::Starter;
use crate::relay::parts::chats::KnownChat;
use crate::relay::parts::inbound::{NewMessage, accept, dedupe_key};
use crate::relay::parts::slash_commands::SlashCommand;
use crate::relay::parts::turns::{TurnOrigin, message_span};
use crate::relay::transport::{FrameBody, InboundFrame, InterruptRequest, InterruptTarget};
use crate::session::{Admission, StopReason, TurnId};
use crate::store::{InboxKind, InboxSeq, RowState};
use crate::text::truncate;
use crate::wire::{MessageEvent, SessionKey};

/// What somebody reads whose role does not allow a command.
const NOT_YOUR_ROLE: &str = "Your role does not allow that.";

impl EventLoop {
    pub fn handle_frames(&mut self, frames: Vec<InboundFrame>) {
        let now = self.clock.now();
        self.note_activity(now);
        for InboundFrame {
            generation,
            body,
            line,
        } in frames
        {
            match body {
                FrameBody::Message { event, buffer_id } => {
                    self.accept_message(generation, InboxKind::Inbound, event, buffer_id, line, now);
                }
                FrameBody::Forward { forward, buffer_id } => {
                    if let Some(event) = labelled_interaction(&forward, self.chats.labels()) {
                        let event = Box::new(event);
                        self.accept_message(generation, InboxKind::Forward, event, buffer_id, line, now);
                    } else {
                        self.inbound.count(InboxKind::Forward);
                        let platform = truncate(&forward.platform, 40);
                        tracing::warn!(platform, "quarantined a forwarded request that has no use here");
                        let reason = "a forwarded request that has no use here".to_owned();
                        let effects = &mut self.effects;
                        self.inbound
                            .quarantine(generation, reason, buffer_id, line, now.unix_ms, effects);
                    }
                }
                FrameBody::Undecodable { first, lines } => {
                    let effects = &mut self.effects;
                    self.inbound
                        .undecodable(generation, first, lines, line, now.unix_ms, effects);
                }
            }
            for session in self.inbound.taken(generation) {
                self.stop_turn(&session, None, StopReason::Asked);
            }
        }
    }

    fn accept_message(
        &mut self,
        generation: Generation,
        kind: InboxKind,
        mut event: Box<MessageEvent>,
        buffer_id: Option<String>,
        line: Vec<u8>,
        now: Moment,
    ) {
        self.inbound.count(kind);
        let session = self.chats.name(&mut event);
        self.warn_if_undeclared(event.source.platform.as_str());
        let dedupe = dedupe_key(&event, buffer_id.as_deref());
        // An interaction is something to act on by itself.
        let (place, intent) = if kind == InboxKind::Inbound && event.is_empty() {
            self.note_empty(event.source.platform.as_str());
            (Place::None, Intent::Empty)
        } else {
            self.intent(&session, kind, event, now)
        };
        let message = NewMessage {
            kind,
            buffer_id,
            line,
            dedupe,
            start: matches!(place, Place::Turn(_)),
            now_ms: now.unix_ms,
        };
        let accepting = Accepting {
            session,
            place,
            work: Work::Message(generation, intent),
        };
        accept(accepting, message, &mut self.effects);
    }

    fn note_empty(&mut self, platform: &str) {
        if self.inbound.count_empty() {
            tracing::warn!(
                platform,
                "a message has neither text nor anything else to act on (it may be encrypted for another device); it and \
                 others like it are acknowledged and counted, and start no turn"
            );
        }
    }

    /// A connector that fronts a platform for a relay that did not announce it refuses the answers.
    fn warn_if_undeclared(&mut self, platform: &str) {
        if !self.link.describes(platform) && self.inbound.note_undeclared(platform) {
            tracing::warn!(
                platform,
                "a message came from a platform that this relay does not announce; add it to GATEWAY_RELAY_PLATFORMS \
                 or `connector.identities`, or the connector may refuse the answers"
            );
        }
    }

    /// What a message is: an answer to a question, else one of the relay's commands, else for the agent; and nothing of that
    /// when the gate refuses it. Everything that comes from a chat passes here.
    fn intent(
        &mut self,
        session: &SessionKey,
        inbox_kind: InboxKind,
        event: Box<MessageEvent>,
        now: Moment,
    ) -> (Place, Intent) {
        let response = self.approvals.match_response(session, &event, now.mono);
        let command = match &response {
            None => self.commands.parse(event.text()),
            Some(_) => None,
        };
        let author = self.access.author(Starter::Message(&event.source));
        let kind = match (&response, &command) {
            (Some(QuestionResponse::Typed(..) | QuestionResponse::Undecided(_)), _) => EventKind::TypedAnswer,
            (Some(QuestionResponse::Press(_) | QuestionResponse::Unreadable), _) => EventKind::Press,
            (None, command) => event_kind(inbox_kind, command.as_ref()),
        };
        let name = command.as_ref().map(SlashCommand::name);
        let (verdict, notice) = self.access.decide(&author, (kind, name), now.unix_ms);
        let here = |event: &MessageEvent| KnownChat {
            chat: ChatId::from_source(&event.source),
            facts: ChatFacts::from_source(&event.source),
        };
        if !verdict.allowed {
            // A press says nothing: whoever sees a button may press it, again and again.
            let is_refused_command = kind == EventKind::Command && verdict.reason == Reason::Role;
            let KnownChat { chat, facts } = here(&event);
            let refusal = Refusal {
                author,
                reason: verdict.reason,
                notice: notice.or(is_refused_command.then_some(NOT_YOUR_ROLE)),
                chat,
                facts,
            };
            return (Place::None, Intent::Refused(Box::new(refusal)));
        }
        if let Some(response) = response {
            return (Place::None, Intent::Answer(Box::new(response), author));
        }
        if let Some(command) = command {
            let KnownChat { chat, facts } = here(&event);
            let about = if command == SlashCommand::Stop && self.chats.is_separate(&event) {
                // Nothing else runs in a session of its own: the writer means what they started in this chat.
                self.turns.started_by(&author, &chat)
            } else {
                let running = self.turns.sessions().turn_of(session);
                running.map(|turn| (turn, session.clone())).into_iter().collect()
            };
            let intent = Intent::Command {
                author,
                command,
                about: AboutTurn::Running(about),
                chat: Box::new(chat),
                facts: Box::new(facts),
            };
            return (Place::None, intent);
        }
        let admission = self.turns.admit(session);
        let intent = match admission {
            Admission::Start(turn) => {
                let personal = self.chats.is_personal(&event.source);
                let span = message_span(session);
                let origin = TurnOrigin::new(session.clone(), &event.source, personal, author, span);
                self.turns.hold_place(turn, origin, Task::Message(Some(event)));
                Intent::Start
            }
            Admission::Wait { behind } => {
                // Attachments are downloaded for a turn of their own.
                let has_files = self.media.is_some() && !event.media_urls.is_empty();
                // A press or a slash command is a request of its own, and is not added to what the turn was asked.
                let is_text = inbox_kind == InboxKind::Inbound;
                let steers =
                    self.settings.busy_mode == BusyMode::Steer && behind.is_some() && is_text && !has_files;
                let KnownChat { chat, facts } = here(&event);
                Intent::Wait {
                    chat: Box::new(chat),
                    facts: Box::new(facts),
                    steer: steers.then_some(event),
                }
            }
        };
        (admission.into(), intent)
    }

    /// The journal has a message, and it is acknowledged: act on it.
    pub fn act_on_message(&mut self, session: &SessionKey, place: Place, intent: Intent, row: InboxSeq) {
        match intent {
            Intent::Start => {
                if let Place::Turn(turn) = place {
                    if let Some(origin) = self.turns.origin(turn) {
                        self.learn_chat(&origin.chat, &origin.facts);
                    }
                    self.prepare_turn(turn, row);
                }
            }
            Intent::Wait { chat, facts, steer } => {
                self.learn_chat(&chat, &facts);
                let behind = match place {
                    Place::Queue(behind) => behind,
                    Place::Turn(_) | Place::None => None,
                };
                if let (Some(turn), Some(event)) = (behind, steer)
                    && self.steer(session, turn, *event)
                {
                    self.turns.release(session, place);
                    return self.end_row(row, RowState::Done, Vec::new(), None);
                }
                if self.turns.enqueue(session, row)
                    && let Some(notice) = self.settings.overflow_notice.clone()
                {
                    self.notify(&notice, session, &chat, &facts);
                }
                if self.settings.busy_mode == BusyMode::Interrupt && behind.is_some() {
                    self.stop_turn(session, behind, StopReason::Superseded);
                }
            }
            Intent::Command {
                command,
                about,
                chat,
                facts,
                author,
            } => {
                self.learn_chat(&chat, &facts);
                self.run_command(command, about, session, row, (&chat, &facts), &author);
            }
            Intent::Refused(refusal) => self.answer_refused(session, &refusal),
            Intent::Empty => {}
            Intent::Answer(response, author) => {
                let now = self.clock.mono();
                let effects = &mut self.effects;
                let decided = self.approvals.respond(&response, &self.adapters, now, effects);
                if let Some(question) = &decided {
                    let (title, answer) = (&question.title, &question.answer);
                    let now_ms = self.clock.unix_ms();
                    self.access
                        .record_question(&author, "answered", title, answer, now_ms);
                }
                let outcome = match decided {
                    Some(_) => RowState::Done,
                    None => RowState::Ignored,
                };
                self.end_row(row, outcome, Vec::new(), None);
            }
        }
    }

    /// A refused message is committed: strangers get what the settings say, and people what they cannot do.
    fn answer_refused(&mut self, session: &SessionKey, refusal: &Refusal) {
        let Refusal {
            author,
            reason,
            notice,
            chat,
            facts,
        } = refusal;
        let notice = match reason {
            Reason::Stranger => {
                let known_facts = serde_json::to_value(facts).unwrap_or_default();
                let (random, now_ms) = (self.clock.seed(), self.clock.unix_ms());
                let effects = &mut self.effects;
                let reply = self
                    .access
                    .answer_stranger(author, known_facts, random, now_ms, effects);
                if let (Some(code), Some(person)) = (
                    reply.as_ref().and_then(|reply| reply.code.clone()),
                    author.person(),
                ) {
                    self.ask_owner_about(&person, code);
                }
                reply.map(|reply| reply.text)
            }
            _ => notice.map(str::to_owned),
        };
        if let Some(notice) = notice {
            self.notify(&notice, session, chat, facts);
        }
    }

    /// Asks an owner with a button whether somebody is let in; without one who can be reached the command line is left.
    fn ask_owner_about(&mut self, person: &PersonId, code: String) {
        if let Some(owner) = self.owner_chat(&person.platform) {
            let adapter = self.adapters.get(&owner.chat.platform);
            let (now, effects) = (self.clock.mono(), &mut self.effects);
            self.approvals
                .ask_about_pairing(&owner, person, code, &adapter, now, effects);
        }
    }

    /// Hands a message to the turn that it met.
    fn steer(&mut self, session: &SessionKey, met: TurnId, event: MessageEvent) -> bool {
        let author = self.access.author(Starter::Message(&event.source));
        let allowed = self.access.agents(&author);
        let Some(mut selection) = self.agents.select(session, &event, allowed.as_deref()) else {
            return false;
        };
        let (now_ms, agent) = (self.clock.unix_ms(), Arc::clone(&selection.agent.name));
        let verdict = self
            .access
            .decide_again(&author, EventKind::Message, Some(&agent), now_ms);
        if !verdict.allowed {
            return false;
        }
        selection.agent.restrict(verdict.role);
        let adapter = self.adapters.get(event.source.platform.as_str());
        let input = super::turn::turn_input(event, selection.text, &adapter);
        self.turns.steer(session, met, &selection.agent, &input)
    }

    pub fn handle_interrupt(&mut self, interrupt: InterruptRequest) {
        let stopped = match &interrupt.target {
            InterruptTarget::Session(key) => {
                let session = SessionKey::from_text(key.clone());
                self.stop_turn(&session, None, StopReason::Asked)
            }
            InterruptTarget::Draft(draft) => {
                let shown = self.turns.showing(draft);
                let stopped = shown
                    .is_some_and(|(turn, session)| self.stop_turn(&session, Some(turn), StopReason::Asked));
                tracing::debug!(draft = draft.draft_id, stopped, "a draft was stopped");
                stopped
            }
        };
        self.inbound.interrupted(interrupt, stopped);
    }

    /// Stops a session's turn: the one given, or whichever runs.
    pub fn stop_turn(&mut self, session: &SessionKey, only: Option<TurnId>, reason: StopReason) -> bool {
        let Some(turn) = self.turns.stop(session, only, reason) else {
            return false;
        };
        self.approvals
            .withdraw_turn(turn, &self.adapters, &mut self.effects);
        true
    }

    /// Remembers what a message tells about its chat.
    pub fn learn_chat(&mut self, chat: &ChatId, facts: &ChatFacts) {
        let now_ms = self.clock.unix_ms();
        self.chats.learn(chat, facts, now_ms, &mut self.effects);
    }
}

/// What a person tries to do with a message that answers no question.
pub fn event_kind(kind: InboxKind, command: Option<&SlashCommand>) -> EventKind {
    match (command, kind) {
        (Some(command), _) if command.is_inquiry() => EventKind::Inquiry,
        (Some(_), _) => EventKind::Command,
        (None, InboxKind::Forward) => EventKind::Interaction,
        (None, InboxKind::Inbound | InboxKind::Job | InboxKind::Handed) => EventKind::Message,
    }
}
