//! Frames that arrive: what each is, who wrote it, and whether they may do that. Accepted messages go on in
//! [`turn`](super::turn).

use std::sync::Arc;

use crate::access::{
    Author, EventKind, KeptMessage, MessageTime, PairingRequest, PendingPairing, PersonId, Reason, Verdict,
};
use crate::adapter::{Chat, labelled_interaction};
use crate::config::BusyMode;
use crate::link::{Generation, Moment};
use crate::relay::effects::{
    AboutTurn, Accepting, Arrival, CommandCall, HeldMessage, Intent, MessageChange, NewMessage, OwnMessage,
    Place, QuestionResponse, SelectedAgent, Steering, SteeringKind, Task, Work,
};
use crate::relay::event_loop::{EventLoop, STEP_BATCH};
use crate::relay::ops::{DurableOps, OpGroup};
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::access::Starter;
use crate::relay::parts::agents::Selection;
use crate::relay::parts::inbound::{SentFrame, accept};
use crate::relay::parts::messages::MessageLine;
use crate::relay::parts::slash_commands::SlashCommand;
use crate::relay::parts::turns::decode_line;
use crate::relay::spans::MessageSpan;
use crate::relay::transport::{FrameBody, InboundFrame, InterruptRequest, InterruptTarget};
use crate::session::{Admission, StopReason, TurnId};
use crate::store::{InboxKind, InboxSeq, RowState};
use crate::text::truncate;
use crate::wire::{MessageEvent, SessionKey};
use crate::words::PhraseKey;

/// What somebody reads whose role does not allow a command.
const NOT_YOUR_ROLE: &str = PhraseKey::NotYourRole.english();

/// Who answers a message, next to the agent of the turn that it met.
enum MetAgent {
    /// The same agent with the same options.
    Same(Box<Selection>),
    Other,
    /// It is not known yet who answers one of them.
    Unknown,
}

impl EventLoop {
    pub fn handle_frames(&mut self, frames: Vec<InboundFrame>) {
        let now = self.clock.now();
        self.note_activity(now);
        let mut frames = frames.into_iter();
        let mut slice = Vec::with_capacity(frames.len().min(STEP_BATCH));
        while frames.len() > 0 {
            slice.extend(
                frames
                    .by_ref()
                    .take(STEP_BATCH)
                    .map(|frame| (frame.generation, self.hold_message(frame, now))),
            );
            for (generation, held) in slice.drain(..) {
                if let Some(held) = held {
                    self.take_message(held, now);
                }
                for session in self.inbound.taken(generation) {
                    self.stop_turn(&session, None, StopReason::Asked);
                }
                self.journal.submit_early(&mut self.effects);
            }
        }
    }

    /// The message of a frame, with its session and its key. A frame without one goes to quarantine.
    fn hold_message(&mut self, frame: InboundFrame, now: Moment) -> Option<HeldMessage> {
        let InboundFrame {
            generation,
            body,
            line,
        } = frame;
        let (kind, mut event, buffer_id) = match body {
            FrameBody::Message { event, buffer_id } => (InboxKind::Inbound, event, buffer_id),
            FrameBody::Forward { forward, buffer_id } => {
                let Some(event) = labelled_interaction(&forward, self.chats.labels()) else {
                    self.inbound.count(InboxKind::Forward);
                    let platform = truncate(&forward.platform, 40);
                    tracing::warn!(platform, "quarantined a forwarded request that has no use here");
                    let reason = "a forwarded request that has no use here".to_owned();
                    let effects = &mut self.effects;
                    self.inbound
                        .quarantine(generation, reason, buffer_id, &line, now.unix_ms, effects);
                    return None;
                };
                (InboxKind::Forward, Box::new(event), buffer_id)
            }
            FrameBody::Undecodable { first, lines } => {
                let effects = &mut self.effects;
                self.inbound
                    .undecodable(generation, first, lines, &line, now.unix_ms, effects);
                return None;
            }
        };
        self.inbound.count(kind);
        let session = self.chats.name(&mut event);
        self.warn_if_undeclared(event.source.platform.as_str());
        let transport = self.link.transport();
        let sent_as = buffer_id.as_deref().map(|id| SentFrame {
            name: transport.own_name(id),
            bot: transport.bot_of(id),
        });
        let message = NewMessage {
            kind,
            dedupe: self.inbound.dedupe_key(&event, sent_as),
            buffer_id,
            line,
            start: false,
            repeatable: false,
            now_ms: now.unix_ms,
        };
        Some(HeldMessage {
            generation,
            session,
            event,
            message,
            own: None,
        })
    }

    /// Takes the message that was kept while its author had no access, if there is one. The code that let them in makes it the same
    /// message if that happens twice.
    pub fn accept_kept(&mut self, person: PersonId, pending: PendingPairing) {
        let Some(kept) = pending.message.clone() else {
            return;
        };
        let kind = if kept.is_forward {
            InboxKind::Forward
        } else {
            InboxKind::Inbound
        };
        let line = kept.line.into_bytes();
        let Some(mut event) = decode_line(kind, &line, self.chats.labels()).map(Box::new) else {
            tracing::error!("dropped a kept message that cannot be read back");
            return;
        };
        let now = self.clock.now();
        let session = self.chats.name(&mut event);
        let message = NewMessage {
            kind,
            dedupe: Some(self.inbound.own_key(&["approved", &pending.code])),
            buffer_id: None,
            line: line.into(),
            start: false,
            repeatable: false,
            now_ms: now.unix_ms,
        };
        let own = OwnMessage::Kept(Box::new((person, pending)));
        self.take_own_message(session, event, (message, own), now);
    }

    /// Takes a message that came in no frame.
    pub fn take_own_message(
        &mut self,
        session: SessionKey,
        event: Box<MessageEvent>,
        (message, own): (NewMessage, OwnMessage),
        now: Moment,
    ) {
        let held = HeldMessage {
            generation: Generation::first(),
            session,
            event,
            message,
            own: Some(own),
        };
        self.take_message(held, now);
    }

    /// Takes a message, once it is where it belongs.
    pub fn take_message(&mut self, mut held: HeldMessage, now: Moment) {
        self.take_choice(&mut held.session, &mut held.event, &mut held.message, now);
        let Some(held) = self.in_its_thread(held, now) else {
            return;
        };
        let HeldMessage {
            generation,
            session,
            event,
            mut message,
            own,
        } = held;
        let (place, arrival) = self.arrive(&session, message.kind, (event, own), &message.line, now);
        message.start = matches!(place, Place::Turn(_));
        message.repeatable = self.agents.are_repeatable();
        if matches!(
            arrival.intent,
            Intent::Start { .. } | Intent::Wait { .. } | Intent::Edit(_)
        ) {
            // Read together with the commit of the message, so that its turn need not wait.
            self.ask_quiet_hours(&arrival.origin.chat);
        }
        let accepting = Accepting {
            session,
            place,
            work: Work::Message(generation, arrival),
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

    /// What a message says to a question, if it is an answer.
    pub fn response(
        &self,
        session: &SessionKey,
        (event, author): (&MessageEvent, &Author),
        now: Moment,
    ) -> Option<QuestionResponse> {
        // Nobody is asked in a session of its own: the writer means what they are asked in this chat.
        let asked_in = (!self.chats.is_separate(event)).then_some(session);
        (self.approvals).match_response(asked_in, (event, author), now.mono)
    }

    /// What a message is, who wrote it, and whether the rules let them. Everything that comes from a chat passes here.
    fn arrive(
        &mut self,
        session: &SessionKey,
        inbox_kind: InboxKind,
        (event, own): (Box<MessageEvent>, Option<OwnMessage>),
        line: &Arc<[u8]>,
        now: Moment,
    ) -> (Place, Arrival) {
        // A message that is changed or gone is no answer.
        let is_new = !event.is_edit && !event.is_deleted;
        let author = self.access.author(Starter::Message(&event.source));
        let personal = self.chats.is_personal(&event.source);
        let (session, span) = (session.clone(), MessageSpan::default());
        let origin = Arc::new(TurnOrigin::new(session, &event.source, personal, author, span));
        let (session, author) = (&origin.session, &origin.author);
        let response = is_new.then(|| self.response(session, (&event, author), now));
        let response = response.flatten();
        let command = match &response {
            None => self.commands.of(&event),
            Some(_) => None,
        };
        let kind = match (&response, &command) {
            (Some(QuestionResponse::Typed(..) | QuestionResponse::Undecided(_)), _) => EventKind::TypedAnswer,
            (Some(QuestionResponse::Press(_) | QuestionResponse::Unreadable), _) => EventKind::Press,
            (None, command) => event_kind(inbox_kind, command.as_ref()),
        };
        let verdict = self.access.decide(author, kind);
        // An edit is written now, and so is what somebody has run again.
        let written_ms = event.written_ms().filter(|_| !event.is_edit && own.is_none());
        let name = command.as_ref().map(SlashCommand::name);
        let (place, intent) = if event.is_deleted {
            (self.turns.await_change(session), Intent::Delete(event))
        } else if event.is_empty() {
            self.note_empty(event.source.platform.as_str());
            (Place::None, Intent::Empty)
        } else if verdict.allowed {
            let (is_text, is_change) = (inbox_kind == InboxKind::Inbound, event.is_edit && own.is_none());
            self.intent((event, is_text, is_change), &origin, response, command)
        } else {
            let is_for_agent = matches!(kind, EventKind::Message | EventKind::Interaction);
            let is_kept = is_for_agent
                && verdict.reason == Reason::Stranger
                && line.len() <= KeptMessage::MAX_BYTES
                && self.access.keeps_message(author);
            let kept = is_kept.then(|| String::from_utf8(line.to_vec()).ok()).flatten();
            let intent = Intent::Refused {
                name: event
                    .source
                    .user_name
                    .as_ref()
                    .map(|name| name.as_str().to_owned()),
                message: kept.map(|line| KeptMessage {
                    line,
                    is_forward: inbox_kind == InboxKind::Forward,
                    message_id: origin.chat.facts.message_id.as_deref().map(str::to_owned),
                }),
            };
            (Place::None, intent)
        };
        let arrival = Arrival {
            origin,
            kind,
            command: name,
            verdict,
            written_ms,
            message: MessageLine {
                kind: inbox_kind,
                line: Arc::clone(line),
            },
            own,
            intent,
        };
        (place, arrival)
    }

    /// What a message that the rules allow does: it answers a question, else it is one of the relay's commands, else it is for
    /// the agent.
    fn intent(
        &mut self,
        (event, is_text, is_change): (Box<MessageEvent>, bool, bool),
        origin: &Arc<TurnOrigin>,
        response: Option<QuestionResponse>,
        command: Option<SlashCommand>,
    ) -> (Place, Intent) {
        if let Some(response) = response {
            return (Place::None, Intent::Answer(Box::new(response)));
        }
        let TurnOrigin {
            session,
            chat,
            author,
            ..
        } = &**origin;
        // What is about the agent's conversation takes its turn, as a message does.
        let is_for_agent = (command.as_ref()).is_some_and(|command| self.takes_turn(command, chat));
        if let Some(command) = command.filter(|_| !is_for_agent) {
            let about = if command == SlashCommand::Stop && self.chats.is_separate(&event) {
                // Nothing else runs in a session of its own: the writer means what they started in this chat.
                self.turns.started_by(author, &chat.id)
            } else {
                let running = self.turns.sessions().turn_of(session);
                running.map(|turn| (turn, session.clone())).into_iter().collect()
            };
            let about = AboutTurn::Running(about);
            return (Place::None, Intent::Command { command, about });
        }
        if is_change {
            return (self.turns.await_change(session), Intent::Edit(event));
        }
        let key = self.messages.key(&event);
        let admission = self.turns.admit(session);
        let intent = match admission {
            Admission::Start(turn) => {
                origin.span.open_if_observed(session.as_str());
                self.turns
                    .hold_place(turn, Arc::clone(origin), Task::Message(Some(event)));
                Intent::Start { key }
            }
            Admission::Wait { behind } => {
                // Attachments are downloaded for a turn of their own.
                let has_files = self.media.is_some() && !event.media_urls.is_empty();
                // A slash command is a request of its own, and neither stops a turn nor is added to what it was asked; a press is
                // not added either.
                let may_meet = match self.settings.busy_mode {
                    BusyMode::Queue => false,
                    BusyMode::Steer => is_text && !has_files,
                    // What comes together with the message before it does not come during its turn.
                    BusyMode::Interrupt => behind.is_some_and(|turn| !self.turns.is_accepting(turn)),
                };
                let may_meet = may_meet && behind.is_some() && !is_for_agent;
                Intent::Wait {
                    key,
                    waiting: self.messages.waiting(&event),
                    event: may_meet.then_some(event),
                }
            }
        };
        (admission.into(), intent)
    }

    /// The journal has a message, and it is acknowledged: act on it, unless it exceeds a limit.
    pub fn act_on_message(&mut self, session: &SessionKey, place: Place, arrival: Arrival, row: InboxSeq) {
        let place = match place {
            Place::Change => {
                self.turns.release(session, place);
                Place::None
            }
            Place::Turn(_) | Place::Queue(_) | Place::None => place,
        };
        let origin = &arrival.origin;
        match &arrival.intent {
            Intent::Empty => return self.leave_unanswered(&origin.chat),
            // They ended when they were committed.
            Intent::Delete(_) | Intent::Refused { .. } => {}
            _ => (self.messages).await_answer(row, arrival.message.kind, &origin.chat),
        }
        if let Intent::Delete(event) = arrival.intent {
            self.change_kept(origin, None);
            return self.change_message(session, MessageChange::Deletion(event));
        }
        let now_ms = self.clock.unix_ms();
        let event = (arrival.kind, arrival.command);
        let time = MessageTime {
            now_ms,
            written_ms: arrival.written_ms,
        };
        let (verdict, notice) = self.access.admit(&origin.author, event, arrival.verdict, time);
        if !verdict.allowed {
            return self.refuse_message(session, place, arrival, (verdict, notice), row);
        }
        let Arrival { origin, message, .. } = arrival;
        let TurnOrigin { chat, author, .. } = &*origin;
        let is_command = arrival.command.is_some();
        match arrival.intent {
            Intent::Start { key } => {
                self.messages.learn(key, session, row, None);
                if !is_command {
                    self.messages
                        .set_last(session, (&chat.id, author), key, (row, 1), message);
                }
                if let Place::Turn(turn) = place {
                    self.learn_chat(chat);
                    self.turns.note_committed(turn, row);
                }
            }
            Intent::Edit(event) => {
                self.learn_chat(chat);
                let key = self.messages.key(&event);
                self.messages.edit_last(session, author, key, message.clone());
                let change = MessageChange::Edit { row, event, message };
                self.change_message(session, change);
            }
            Intent::Wait { key, waiting, event } => {
                self.messages.learn(key, session, row, Some(waiting));
                self.learn_chat(chat);
                let met = match place {
                    Place::Queue(behind) => behind.zip(event),
                    Place::Turn(_) | Place::Change | Place::None => None,
                };
                if self.turns.enqueue(session, row)
                    && let Some(notice) = self.settings.overflow_notice.clone()
                {
                    self.notify(&notice, session, chat);
                }
                if let Some((met, event)) = met {
                    let steering = Steering {
                        session: session.clone(),
                        met,
                        key,
                        event,
                        kind: SteeringKind::Message(Arc::clone(&origin), message),
                    };
                    self.meet(row, steering);
                }
            }
            Intent::Command { command, about } => {
                self.learn_chat(chat);
                self.run_command(&CommandCall {
                    command,
                    about,
                    row,
                    origin,
                });
            }
            Intent::Refused { .. } | Intent::Empty | Intent::Delete(_) => {}
            Intent::Answer(response) => {
                let now = self.clock.mono();
                let effects = &mut self.effects;
                let decided = self.approvals.respond(&response, &self.adapters, now, effects);
                if let Some(question) = &decided {
                    let (title, answer) = (&question.title, &question.answer);
                    self.access
                        .record_question(author, "answered", title, answer, now_ms);
                }
                let outcome = match decided {
                    Some(_) => RowState::Done,
                    None => RowState::Ignored,
                };
                self.end_row(row, outcome, DurableOps::new(), None);
            }
        }
    }

    /// A message that its author may not write, or that exceeds a limit, is committed: people read what they cannot do, and
    /// strangers what the settings say. A press says nothing: whoever sees a button may press it, again and again.
    fn refuse_message(
        &mut self,
        session: &SessionKey,
        place: Place,
        arrival: Arrival,
        (verdict, limit): (Verdict, Option<&'static str>),
        row: InboxSeq,
    ) {
        let TurnOrigin { chat, author, .. } = &*arrival.origin;
        let is_command = matches!(arrival.kind, EventKind::Stop | EventKind::Command);
        let by_role = (is_command && verdict.reason == Reason::Role).then_some(NOT_YOUR_ROLE);
        let notice = limit.or(by_role);
        match (arrival.intent, place) {
            // It ended when it was committed.
            (Intent::Refused { name, message }, _) => {
                let notice = if self.change_kept(&arrival.origin, message.as_ref()) {
                    None
                } else if verdict.reason == Reason::Stranger {
                    let request = PairingRequest {
                        chat: chat.id.chat.to_string(),
                        facts: serde_json::to_value(&chat.facts).unwrap_or_default(),
                        name,
                        message,
                    };
                    self.answer_stranger(author, request, chat)
                } else {
                    notice.map(str::to_owned)
                };
                match notice {
                    Some(notice) => {
                        self.answer_privately(chat);
                        self.notify(&notice, session, chat);
                    }
                    None => self.leave_unanswered(chat),
                }
            }
            (_, Place::Turn(turn)) => {
                if notice.is_some() {
                    self.answer_privately(chat);
                }
                let notice = notice.map(str::to_owned);
                self.end_unstarted(turn, row, RowState::Ignored, "", notice);
            }
            (_, Place::Queue(_) | Place::Change | Place::None) => {
                self.turns.release(session, place);
                if notice.is_some() {
                    self.answer_privately(chat);
                }
                let group = OpGroup::Message(row);
                let ops = notice.map(|notice| self.plan_words(notice, session, chat, group));
                self.end_row(row, RowState::Ignored, ops.unwrap_or_default(), None);
            }
        }
    }

    /// Whoever wrote a message that has no row any more reads nothing, not even that it is being answered.
    fn leave_unanswered(&self, chat: &Chat) {
        if let Some(message) = &chat.facts.message_id {
            self.link.leave_unanswered(&chat.id.platform, message);
        }
    }

    /// Whoever wrote a message that is refused reads why, alone where the platform can do that.
    fn answer_privately(&self, chat: &Chat) {
        if let Some(message) = &chat.facts.message_id {
            self.link.answer_privately(&chat.id.platform, message);
        }
    }

    /// A stranger's message may be one that is kept for them, edited or deleted; returns whether it is.
    fn change_kept(&mut self, origin: &TurnOrigin, message: Option<&KeptMessage>) -> bool {
        let Some(id) = &origin.chat.facts.message_id else {
            return false;
        };
        self.access
            .change_kept(&origin.chat.id, id, message.cloned(), &mut self.effects)
    }

    /// What a stranger gets to read. An owner is asked about one who got a code.
    fn answer_stranger(&mut self, author: &Author, request: PairingRequest, chat: &Chat) -> Option<String> {
        let (random, now_ms) = (self.clock.live().seed(), self.clock.unix_ms());
        let language = self.language(chat);
        let effects = &mut self.effects;
        let reply = self
            .access
            .answer_stranger(author, request, language, (random, now_ms), effects)?;
        if let (Some(code), Some(person)) = (reply.code, author.person()) {
            self.ask_owner_about(&author.platform, person, code);
        }
        Some(reply.text)
    }

    /// Asks an owner with a button whether somebody is let in; without one who can be reached the command line is left.
    fn ask_owner_about(&mut self, platform: &str, person: &PersonId, code: String) {
        if let Some(owner) = self.owner_chat(platform) {
            let adapter = self.adapters.get(&owner.chat.id.platform);
            let (now, effects) = (self.clock.mono(), &mut self.effects);
            self.approvals
                .ask_about_pairing(&owner, person, code, &adapter, now, effects);
        }
    }

    /// Who answers a message that met a turn, next to the agent of that turn.
    fn met_agent(&mut self, session: &SessionKey, met: TurnId, event: &MessageEvent) -> MetAgent {
        let author = self.access.author(Starter::Message(&event.source));
        let allowed = self.access.agents(&author);
        let Ok(mut selection) = self.agents.select(session, event, allowed.as_deref()) else {
            return MetAgent::Unknown;
        };
        let (now_ms, agent) = (self.clock.unix_ms(), Arc::clone(&selection.agent.name));
        let verdict = self
            .access
            .decide_again(&author, EventKind::Message, Some(&agent), now_ms);
        if !verdict.allowed {
            return MetAgent::Other;
        }
        selection.agent.restrict(verdict.role);
        match self.agent_of_turn(session, met) {
            Some(agent) if agent.is_same(&selection.agent) => MetAgent::Same(Box::new(selection)),
            Some(_) => MetAgent::Other,
            None => MetAgent::Unknown,
        }
    }

    /// The agent that runs for a turn, or will run as far as that is known yet.
    fn agent_of_turn(&mut self, session: &SessionKey, turn: TurnId) -> Option<SelectedAgent> {
        if let Some(agent) = self.turns.agent_of(turn) {
            return Some(agent.clone());
        }
        let (_, origin, task) = self.turns.preparing(turn)?;
        let selection = match task {
            Task::Message(Some(asked)) => {
                let allowed = self.access.agents(&origin.author);
                self.agents.select(session, asked, allowed.as_deref()).ok()
            }
            Task::Handed(item) => {
                let agent = item.agent.clone();
                self.item_agent(session, &agent).ok().flatten()
            }
            Task::Message(None) | Task::Job(_) => None,
        };
        selection.map(|selection| selection.agent)
    }

    /// A message that waits met a turn: it is handed to it, stops it, or goes on waiting, as `sessions.busy_mode` says.
    pub fn meet(&mut self, row: InboxSeq, steering: Steering) {
        let Steering {
            session, met, event, ..
        } = &steering;
        match self.settings.busy_mode {
            BusyMode::Queue => {}
            BusyMode::Interrupt => self.supersede(session, *met, event),
            BusyMode::Steer => {
                if let MetAgent::Same(selection) = self.met_agent(session, *met, event)
                    && self.turns.may_steer(session, (*met, row), &selection.agent)
                {
                    let now_ms = self.clock.unix_ms();
                    self.turns.mark_steering(row, steering, now_ms, &mut self.effects);
                }
            }
        }
    }

    /// The journal has written that a message runs: if it waits to be handed to a turn, it is now.
    pub fn row_started(&mut self, row: InboxSeq) {
        let Some(steering) = self.turns.started(row, &mut self.effects) else {
            return;
        };
        if !self.steer(row, &steering) {
            return self.turns.wait_again(row, &mut self.effects);
        }
        let Steering {
            session, key, kind, ..
        } = *steering;
        self.turns.withdraw_waiting(&session, row);
        match kind {
            SteeringKind::Message(origin, message) => {
                let writer = (&origin.chat.id, &origin.author);
                self.messages.set_last(&session, writer, key, (row, 1), message);
            }
            // A further edit finds the turn that runs.
            SteeringKind::Edit(original) => self.messages.learn(key, &session, original, None),
        }
        self.end_row(row, RowState::Done, DurableOps::new(), None);
    }

    /// Hands a message to the turn that it met, if that still runs and its author may still do that.
    fn steer(&mut self, row: InboxSeq, steering: &Steering) -> bool {
        let Steering {
            session, met, event, ..
        } = steering;
        let MetAgent::Same(selection) = self.met_agent(session, *met, event) else {
            return false;
        };
        let adapter = self.adapters.get(event.source.platform.as_str());
        let input = super::turn::turn_input(MessageEvent::clone(event), selection.text, &adapter);
        let is_taken = self.turns.steer(session, (*met, row), &selection.agent, &input);
        if is_taken {
            let author = self.access.author(Starter::Message(&event.source));
            let (agent, now_ms) = (&selection.agent.name, self.clock.unix_ms());
            self.access.steered(&author, (*met, agent), now_ms);
        }
        is_taken
    }

    /// Stops the turn that a message met, if its author may do that. Any other message waits, as one
    /// does that comes before it is known which agent the turn is for.
    fn supersede(&mut self, session: &SessionKey, met: TurnId, event: &MessageEvent) {
        let author = self.access.author(Starter::Message(&event.source));
        if self.access.may_stop(&author) && matches!(self.met_agent(session, met, event), MetAgent::Same(_)) {
            self.stop_turn(session, Some(met), StopReason::Superseded);
        }
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
        self.approvals.withdraw_turn(turn, &mut self.effects);
        true
    }

    /// Remembers what a message tells about its chat.
    pub fn learn_chat(&mut self, chat: &Chat) {
        let now_ms = self.clock.unix_ms();
        self.chats.learn(chat, now_ms, &mut self.effects);
    }
}

/// What a person tries to do with a message that answers no question.
pub fn event_kind(kind: InboxKind, command: Option<&SlashCommand>) -> EventKind {
    match (command, kind) {
        (Some(SlashCommand::Stop | SlashCommand::New(_)), _) => EventKind::Stop,
        (Some(command), _) if command.is_inquiry() => EventKind::Inquiry,
        (Some(_), _) => EventKind::Command,
        (None, InboxKind::Forward) => EventKind::Interaction,
        (None, InboxKind::Inbound | InboxKind::Job | InboxKind::Handed) => EventKind::Message,
    }
}
