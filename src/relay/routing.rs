//! What each event means: which part it goes to, and in which order parts are asked when it concerns several.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;

use super::agents::{Selection, choice_key, state_key};
use super::approvals::{Asking, OwnerChat};
use super::effects::{Accepting, CommandTarget, Effect, Intent, JobStep, Pending, QuestionResponse, Refusal};
use super::event_loop::{EventLoop, adapters};
use super::handle::{HandleRequest, SendError, SendTarget, StopOutcome};
use super::inbound::{NewMessage, accept, dedupe_key};
use super::ops::{DurableOp, EphemeralOp, OpBody, OpGroup, OpOwner};
use super::reports;
use super::scheduler::ArmWaiter;
use super::slash_commands::SlashCommand;
use super::sleep::SleepStep;
use super::status::HealthCheck;
use super::transport::{Delivery, DeliveryBody, InterruptRequest, InterruptTarget, LinkStatus};
use super::turn_task::{TurnContext, TurnReport, TurnRequest};
use super::turns::{Ending, Finished, Loaded, TurnOrigin, Turns, decode_row, message_span};
use crate::access::{AccessError, AccessRequest, Author, EventKind, PersonId, Reason};
use crate::adapter::media::OutgoingAttachment;
use crate::adapter::prompt::Approvers;
use crate::adapter::stream::{OpOutcome, Priority, ReplyStream, first_draft_id};
use crate::adapter::{ChatFacts, ChatId, RelayAdapter, interaction_event};
use crate::agent::{Meaning, PromptAnswer, Question, RouteInput, TurnInput};
use crate::config::BusyMode;
use crate::cron::fire::FireAdmission;
use crate::cron::job::JobOrigin;
use crate::link::{Generation, Moment, SendResult};
use crate::session::{Admission, StopReason, TurnId};
use crate::store::{
    Batch, ChatRow, Command, Committed, Completion, Failed, Fault, FaultKind, Health, InboxKind, InboxRow,
    InboxSeq, OpSeqs, Subject, TurnState as RowOutcome,
};
use crate::text::{printable, truncate};
use crate::wire::{Action, MessageEvent, OpId, Platform, Scalar, SessionKey, SessionSource};

/// How long an indicator at the end of a turn may delay what comes after it.
const FINAL_INDICATOR_TIMEOUT: Duration = Duration::from_millis(1500);
/// The least time that the answer to an op is waited for.
const MIN_OP_TIMEOUT: Duration = Duration::from_millis(50);
/// Maximum size of what an agent may save for a session.
const MAX_STATE_BYTES: usize = 1024 * 1024;
/// Messages sent without being asked that may wait for the journal.
const MAX_UNCOMMITTED_SENDS: usize = 1024;
/// What a chat reads whose question went to an owner.
const ASKED_OWNER: &str = "An owner has been asked to approve this.";
/// What a chat reads whose question nobody can answer.
const NO_OWNER: &str = "This needs an owner's approval, and no owner can be reached, so it is denied.";
/// Length of a person's name in a question.
const MAX_PERSON_CHARS: usize = 120;
/// What somebody reads whose role does not allow a command.
const NOT_YOUR_ROLE: &str = "Your role does not allow that.";
/// What somebody reads whose code was approved.
const WELCOME: &str = "You have access now. Send your message again.";
/// Marks a message that came through a Discord interaction.
const INTERACTION: &str = "discord_interaction_id";
/// The capability by which the connector answers such an interaction.
const FOLLOW_UP: &str = "discord.interaction_token";

/// Deliveries, and what they lead to.
impl EventLoop {
    pub(super) fn handle_deliveries(&mut self, deliveries: Vec<Delivery>) {
        let now = self.clock.now();
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.on_activity(now);
        }
        for Delivery {
            generation,
            body,
            line,
        } in deliveries
        {
            match body {
                DeliveryBody::Message { event, buffer_id } => {
                    self.accept(generation, InboxKind::Inbound, event, buffer_id, line, now);
                }
                DeliveryBody::Forward { forward, buffer_id } => {
                    if let Some(event) = interaction_event(&forward) {
                        let event = Box::new(event);
                        self.accept(generation, InboxKind::Forward, event, buffer_id, line, now);
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
                DeliveryBody::Undecodable { first, lines } => {
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

    fn accept(
        &mut self,
        generation: Generation,
        kind: InboxKind,
        mut event: Box<MessageEvent>,
        buffer_id: Option<String>,
        line: Vec<u8>,
        now: Moment,
    ) {
        self.inbound.count(kind);
        self.inbound.add_platform(event.source.platform.as_str());
        self.inbound.name_platform(&mut event);
        self.warn_if_undeclared(event.source.platform.as_str());
        self.threads.learn(&event.source);
        let session = self.inbound.session_of(&mut event);
        let dedupe = dedupe_key(&event, buffer_id.as_deref());
        let span = message_span(&session);
        let intent = self.intent(&session, kind, event, &span, now);
        let message = NewMessage {
            kind,
            buffer_id,
            line,
            dedupe,
            start: matches!(intent, Intent::Start(..)),
            now_ms: now.unix_ms,
        };
        let accepting = Accepting {
            generation,
            session,
            intent,
        };
        accept(accepting, message, &mut self.effects);
    }

    /// A connector that fronts a platform for a relay that did not announce it refuses the answers.
    fn warn_if_undeclared(&mut self, platform: &str) {
        let is_described = self.link.descriptors.iter().any(|(known, _)| known == platform);
        if !is_described && self.inbound.note_undeclared(platform) {
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
        span: &tracing::Span,
        now: Moment,
    ) -> Intent {
        let response = self.approvals.match_response(session, &event, now.mono);
        let command = match &response {
            None => self.commands.parse(event.text()),
            Some(_) => None,
        };
        let author = self.access.author(&event.source);
        let kind = match (&response, &command) {
            (Some(QuestionResponse::Typed(..) | QuestionResponse::Undecided(_)), _) => EventKind::TypedAnswer,
            (Some(QuestionResponse::Press(_) | QuestionResponse::Unreadable), _) => EventKind::Press,
            (None, command) => event_kind(inbox_kind, command.as_ref()),
        };
        let name = command.as_ref().map(SlashCommand::name);
        let (verdict, notice) = self.access.decide(&author, (kind, name), now.unix_ms);
        if !verdict.allowed {
            // A press says nothing: whoever sees a button may press it, again and again.
            let is_refused_command = kind == EventKind::Command && verdict.reason == Reason::Role;
            let notice = notice.or(is_refused_command.then_some(NOT_YOUR_ROLE));
            return Intent::Refused(Box::new(Refusal {
                author,
                reason: verdict.reason,
                notice,
                chat: ChatId::from_source(&event.source),
                facts: ChatFacts::from_source(&event.source),
            }));
        }
        if let Some(response) = response {
            return Intent::Answer(Box::new(response), author);
        }
        if let Some(command) = command {
            return Intent::Command {
                author,
                command,
                about: (self.turns.sessions().turn_of(session))
                    .map_or(CommandTarget::NoTurn, CommandTarget::Turn),
                chat: Box::new(ChatId::from_source(&event.source)),
                facts: Box::new(ChatFacts::from_source(&event.source)),
            };
        }
        let personal = self.inbound.is_personal(&event);
        match self.turns.admit(session, &event, personal, &author, span) {
            Admission::Start(turn) => Intent::Start(turn, event),
            Admission::Wait { behind } => {
                // Attachments are downloaded for a turn of their own.
                let has_files = self.media.is_some() && !event.media_urls.is_empty();
                let steers = self.settings.busy_mode == BusyMode::Steer && behind.is_some() && !has_files;
                Intent::Wait {
                    behind,
                    chat: Box::new(ChatId::from_source(&event.source)),
                    facts: Box::new(ChatFacts::from_source(&event.source)),
                    steer: steers.then_some(event),
                }
            }
        }
    }

    /// The journal has the message: acknowledge it, then act on it.
    fn message_accepted(&mut self, accepting: Accepting, row: InboxSeq, receipt: Committed) {
        let Accepting {
            generation,
            session,
            intent,
        } = accepting;
        self.lifecycle.accepted();
        self.acknowledge(generation, receipt);
        match intent {
            Intent::Start(turn, event) => {
                if let Some(origin) = self.turns.origin(turn) {
                    self.learn_chat(&origin.chat, &origin.facts);
                }
                self.start_turn(turn, row, *event);
            }
            Intent::Wait {
                behind,
                chat,
                facts,
                steer,
            } => {
                self.learn_chat(&chat, &facts);
                if let (Some(turn), Some(event)) = (behind, steer)
                    && self.steer(&session, turn, *event)
                {
                    self.turns.cancel_waiting(&session);
                    return self.end_message(row, RowOutcome::Done, Vec::new(), None);
                }
                if self.turns.enqueue(&session, row)
                    && let Some(notice) = self.settings.overflow_notice.clone()
                {
                    let group = self.outbox.notice_group();
                    let ops = self.plan_text(&notice, &session, &chat, &facts, group);
                    self.add_ops(ops, None);
                }
                if self.settings.busy_mode == BusyMode::Interrupt && behind.is_some() {
                    self.stop_turn(&session, behind, StopReason::Superseded);
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
                self.run_command(command, about, &session, row, (&chat, &facts), &author);
            }
            Intent::Refused(refusal) => self.answer_refused(&session, &refusal),
            Intent::Answer(response, author) => {
                let now = self.clock.mono();
                let effects = &mut self.effects;
                let decided = self.approvals.respond(&response, &self.adapters, now, effects);
                if let Some(question) = &decided {
                    let now_ms = self.clock.unix_ms();
                    self.access.record_question(
                        &author,
                        "answered",
                        &question.title,
                        &question.answer,
                        now_ms,
                    );
                }
                let outcome = if decided.is_some() {
                    RowOutcome::Done
                } else {
                    RowOutcome::Ignored
                };
                self.end_message(row, outcome, Vec::new(), None);
            }
        }
        self.run_effects();
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
            let group = self.outbox.notice_group();
            let ops = self.plan_text(&notice, session, chat, facts, group);
            self.add_ops(ops, None);
        }
    }

    /// Asks an owner with a button whether somebody is let in; without one who can be reached the verb is left.
    fn ask_owner_about(&mut self, person: &PersonId, code: String) {
        let Some(owner) = self.owner_chat(&person.platform) else {
            return;
        };
        let adapter = self.adapters.get(&owner.chat.platform);
        let (now, effects) = (self.clock.mono(), &mut self.effects);
        let person = printable(&person.to_string(), MAX_PERSON_CHARS);
        self.approvals
            .ask_about_pairing(&owner, &person, code, &adapter, now, effects);
    }

    /// The direct message of an owner, best on this platform: one who has written there.
    fn owner_chat(&self, platform: &str) -> Option<OwnerChat> {
        let is_owner = |chat: &ChatId, facts: &ChatFacts| {
            let author = self.access.author_of(chat, facts);
            self.access.is_owner(&author)
        };
        let mut owners = self.chats.direct().filter(|(chat, facts)| is_owner(chat, facts));
        let mut elsewhere = None;
        let found = owners.find(|(chat, facts)| {
            elsewhere.get_or_insert((*chat, *facts));
            chat.platform == platform
        });
        let (chat, facts) = found.or(elsewhere)?;
        let mut event = MessageEvent {
            source: source_of(chat, facts),
            ..MessageEvent::default()
        };
        self.inbound.name_platform(&mut event);
        Some(OwnerChat {
            session: self.inbound.session_of(&mut event),
            chat: chat.clone(),
            facts: facts.clone(),
        })
    }

    /// The message was not accepted: it holds no place any more.
    fn cancel(&mut self, accepting: &Accepting) {
        match accepting.intent {
            Intent::Start(turn, _) => self.turns.cancel_admission(&accepting.session, turn),
            Intent::Wait { .. } => self.turns.cancel_waiting(&accepting.session),
            Intent::Command { .. } | Intent::Answer(..) | Intent::Refused(_) => {}
        }
    }

    /// The journal could not take a message: it is not acknowledged, so that it comes again.
    fn message_rejected(&mut self, accepting: Option<&Accepting>, fault: &Fault) {
        self.inbound.count_rejected();
        if let Some(accepting) = accepting {
            self.cancel(accepting);
        }
        let health = self.journal.health();
        if fault.kind == FaultKind::Refused && health == Health::Ok {
            // Only this one, and so each time it comes: asking for it right away would never end.
            tracing::error!(%fault, "the journal refuses a message; it is not acknowledged");
        } else {
            self.journal.rejected();
            self.handle_health(health);
        }
    }

    fn acknowledge(&mut self, generation: Generation, receipt: Committed) {
        if self.inbound.acknowledge(generation, receipt, &mut self.effects)
            && let Some(sleeper) = &mut self.sleeper
        {
            sleeper.acknowledged(self.clock.now());
        }
    }

    /// Remembers what a message tells about its chat.
    fn learn_chat(&mut self, chat: &ChatId, facts: &ChatFacts) {
        let now_ms = self.clock.unix_ms();
        if self.chats.learn(chat, facts, now_ms)
            && let Ok(memory) = serde_json::to_vec(facts)
        {
            self.effects.write(Command::RememberChat(ChatRow {
                platform: chat.platform.as_str().into(),
                chat_id: chat.chat.as_str().into(),
                memory,
                last_used: now_ms,
            }));
        }
    }

    pub(super) fn handle_interrupt(&mut self, interrupt: InterruptRequest) {
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
    pub(super) fn stop_turn(
        &mut self,
        session: &SessionKey,
        only: Option<TurnId>,
        reason: StopReason,
    ) -> bool {
        let Some(turn) = self.turns.stop(session, only, reason) else {
            return false;
        };
        self.approvals
            .withdraw_turn(turn, &self.adapters, &mut self.effects);
        true
    }

    /// Asks the connector to stop a session's turn that does not run here; returns whether there is a connection to one. Never
    /// in answer to an interrupt: two instances would ask each other for ever.
    fn stop_elsewhere(&mut self, session: &SessionKey) -> bool {
        let live = self.settings.has_other_instances && self.is_live();
        if live {
            tracing::info!(
                session = session.as_str(),
                "asked the connector to stop a turn that does not run here"
            );
            self.transport
                .send_interrupt(session.as_str().to_owned(), Some("stop".to_owned()));
        }
        live
    }
}

/// Turns.
impl EventLoop {
    /// Starts a turn once it is known which agent answers it.
    fn start_turn(&mut self, turn: TurnId, row: InboxSeq, event: MessageEvent) {
        let Some(session) = self.turns.origin(turn).map(|origin| origin.session.clone()) else {
            return;
        };
        let allowed = self.allowed_agents(turn);
        if let Some(selection) = self.agents.select(&session, &event, allowed.as_deref()) {
            return self.begin_turn(turn, row, event, selection);
        }
        self.turns.choosing(turn, row, Box::new(event));
        let key = choice_key(&session);
        self.effects
            .request(Pending::AgentChoice(turn, session), |token| Command::LoadResume {
                token,
                session: key,
            });
    }

    /// The agents that the author of a turn may use; `None` for all.
    fn allowed_agents(&self, turn: TurnId) -> Option<Vec<String>> {
        self.access.agents(&self.turns.origin(turn)?.author)
    }

    /// The journal knows which agent people chose for a session.
    fn agent_chosen(&mut self, turn: TurnId, session: &SessionKey, choice: Option<Vec<u8>>) {
        self.agents.learn_choice(session, choice);
        let allowed = self.allowed_agents(turn);
        if let Some((row, event)) = self.turns.chosen(turn)
            && let Some(selection) = self.agents.select(session, &event, allowed.as_deref())
        {
            self.begin_turn(turn, row, *event, selection);
        }
    }

    fn begin_turn(&mut self, turn: TurnId, row: InboxSeq, event: MessageEvent, mut selection: Selection) {
        let Some(origin) = self.turns.origin(turn) else {
            return;
        };
        let now_ms = self.clock.unix_ms();
        let verdict = self
            .access
            .decide_again(&origin.author, Some(&selection.agent.name), now_ms);
        if !verdict.allowed {
            self.turns.abandon(turn);
            let ops = match verdict.reason {
                Reason::Agent => {
                    let notice = format!("You may not use {} here.", selection.agent.name);
                    let group = OpGroup::Message(row);
                    self.plan_text(&notice, &origin.session, &origin.chat, &origin.facts, group)
                }
                _ => Vec::new(),
            };
            return self.end_message(row, RowOutcome::Ignored, ops, None);
        }
        selection.agent.restrict(verdict.role);
        let effects = &mut self.effects;
        let started = (turn.0, &*selection.agent.name);
        self.access
            .turn_started(&origin.author, verdict, started, now_ms, effects);
        let adapter = self.adapters.get(&origin.chat.platform);
        let is_interaction = event.metadata.contains_key(INTERACTION);
        let context = TurnContext {
            stream: Box::new(self.stream(&adapter, &origin, row, is_interaction)),
            collect: false,
            clock: self.clock,
            grace: self.settings.grace,
            max_output: self.settings.max_output,
            forgotten: self.agents.pending_forget(&origin.session),
            media: self.media.clone(),
            accepts_attachments: adapter.accepts_attachments(),
            handover: None,
        };
        let mut input = turn_input(event, selection.text, &adapter);
        self.add_context(turn, &origin.session, &selection.agent.name, &mut input);
        self.turns.begin(turn, row, selection.agent, input, context);
    }

    /// How a turn's answer is shown in its chat.
    pub(super) fn stream(
        &mut self,
        adapter: &RelayAdapter,
        origin: &TurnOrigin,
        row: InboxSeq,
        is_interaction: bool,
    ) -> ReplyStream {
        adapter.stream(
            Arc::clone(&origin.chat),
            Arc::clone(&origin.facts),
            origin.session.shared(),
            is_interaction.then(|| FOLLOW_UP.to_owned()),
            first_draft_id(row.0.unsigned_abs()),
            self.outbox.split_ids(),
            self.clock.mono(),
        )
    }

    /// Hands a message to the turn that it met.
    fn steer(&mut self, session: &SessionKey, met: TurnId, event: MessageEvent) -> bool {
        let author = self.access.author(&event.source);
        let allowed = self.access.agents(&author);
        let Some(mut selection) = self.agents.select(session, &event, allowed.as_deref()) else {
            return false;
        };
        let now_ms = self.clock.unix_ms();
        let verdict = self
            .access
            .decide_again(&author, Some(&selection.agent.name), now_ms);
        if !verdict.allowed {
            return false;
        }
        selection.agent.restrict(verdict.role);
        let adapter = self.adapters.get(event.source.platform.as_str());
        let input = turn_input(event, selection.text, &adapter);
        self.turns.steer(session, met, &selection.agent, &input)
    }

    /// A row was read back: its turn runs, or it is reported as interrupted.
    fn row_loaded(&mut self, row: &InboxRow) {
        let turn = match self.turns.loaded(row, &mut self.effects) {
            Loaded::Nothing => return,
            Loaded::Interrupted => return self.turn_interrupted(row),
            Loaded::Turn(turn) => turn,
        };
        if row.kind == InboxKind::Job {
            let session = SessionKey::from_text(Arc::clone(&row.session));
            return self.job_row_loaded(&session, turn, row.seq);
        }
        if row.kind == InboxKind::Delivery {
            return self.delivery_row_loaded(turn, row);
        }
        let Some(mut event) = decode_row(row) else {
            tracing::error!(
                row = row.seq.0,
                "dropped a journaled message that cannot be read back"
            );
            self.turns.abandon(turn);
            return self.end_message(row.seq, RowOutcome::Failed, Vec::new(), None);
        };
        self.inbound.name_platform(&mut event);
        self.threads.learn(&event.source);
        let session = self.inbound.session_of(&mut event);
        // A message for the relay itself that was not acted on before a restart: what it was about is gone, and it is never
        // the agent's.
        let author = self.access.author(&event.source);
        let command = self.commands.parse(event.text());
        let kind = event_kind(row.kind, command.as_ref());
        let now_ms = self.clock.unix_ms();
        // The rules may have changed since it came.
        if event.prompt_response.is_some() || !self.access.decide_again_as(&author, kind, now_ms).allowed {
            self.turns.abandon(turn);
            return self.end_message(row.seq, RowOutcome::Ignored, Vec::new(), None);
        }
        if let Some(command) = command {
            self.turns.abandon(turn);
            let chat = ChatId::from_source(&event.source);
            let facts = ChatFacts::from_source(&event.source);
            return self.run_command(
                command,
                CommandTarget::Forgotten,
                &session,
                row.seq,
                (&chat, &facts),
                &author,
            );
        }
        let personal = self.inbound.is_personal(&event);
        self.turns.set_chat(turn, row, &event, personal, author, now_ms);
        self.start_turn(turn, row.seq, event);
    }

    pub(super) fn handle_turn_request(&mut self, turn: TurnId, request: TurnRequest) {
        let Some(origin) = self.turns.origin(turn) else {
            // The turn is over; whoever waits learns it from the dropped channel.
            return;
        };
        let now = self.clock.mono();
        match request {
            TurnRequest::Send(op, outcomes) => {
                if self.turns.is_turn_declined(turn) {
                    let _ = outcomes.try_send((op.id, OpOutcome::Declined));
                    return;
                }
                let adapter = self.adapters.get(&origin.chat.platform);
                let timeout = op.deadline.map(|at| at.saturating_sub(now).max(MIN_OP_TIMEOUT));
                let ephemeral = EphemeralOp {
                    id: op.id,
                    body: OpBody::new(&adapter, Arc::clone(&origin.lane), &op.action),
                    priority: op.priority,
                    timeout,
                    owner: OpOwner::Turn(turn, outcomes),
                };
                let live = self.is_live();
                self.outbox.queue(ephemeral, live, now, &mut self.effects);
            }
            TurnRequest::Withdraw(outcomes) => self.outbox.drop_reported_to(&outcomes),
            TurnRequest::Ask(question, reply) => {
                // A job without a chat has nobody to ask.
                let nobody = origin.chat.platform.is_empty();
                if nobody || !self.turns.may_ask(turn) || reply.is_closed() {
                    let _ = reply.send(PromptAnswer::Cancelled);
                    return;
                }
                let mut question = question;
                let is_owner = self.access.is_owner(&origin.author);
                if self.settings.approvers == Approvers::Owners && !is_owner {
                    return self.ask_owner(turn, &origin, *question, reply);
                }
                let is_answered_by_others = self.settings.anyone_in_group
                    && !origin.author.direct
                    && self.settings.approvers == Approvers::Author;
                if self.access.is_active() && (!is_owner || is_answered_by_others) {
                    question
                        .options
                        .retain(|choice| choice.meaning != Meaning::AllowAlways);
                }
                let adapter = self.adapters.get(&origin.chat.platform);
                let asking = Asking {
                    turn,
                    session: origin.session.clone(),
                    chat: Arc::clone(&origin.chat),
                    facts: Arc::clone(&origin.facts),
                    personal: origin.personal,
                    to_owner: false,
                };
                let effects = &mut self.effects;
                self.approvals
                    .ask(&asking, *question, reply, &adapter, now, effects);
            }
            TurnRequest::SaveState(state) => self.save_state(turn, &origin.session, state),
            TurnRequest::LoadState(reply) => {
                if let Some(agent) = self.turns.agent_name(turn) {
                    let session = state_key(&origin.session, agent);
                    self.effects
                        .request(Pending::AgentState(reply), |token| Command::LoadResume {
                            token,
                            session,
                        });
                }
            }
            TurnRequest::Title(title) => {
                let adapter = self.adapters.get(&origin.chat.platform);
                let rename = adapter.rename_thread(&mut self.threads, &origin.chat, &origin.facts, &title);
                if let Some(action) = rename {
                    let op = EphemeralOp {
                        id: self.outbox.next_id(),
                        body: OpBody::new(&adapter, Arc::clone(&origin.lane), &action),
                        priority: Priority::Indicator,
                        timeout: None,
                        owner: OpOwner::Nobody,
                    };
                    let live = self.is_live();
                    self.outbox.queue(op, live, now, &mut self.effects);
                }
            }
            TurnRequest::Attach(attachment, queued) => {
                if let Some(row) = self
                    .turns
                    .row_of(turn)
                    .filter(|_| !self.turns.is_turn_declined(turn))
                {
                    let ops = self.plan_attachment(&attachment, &origin, row);
                    self.add_ops(ops, Some(queued));
                }
            }
        }
        self.run_effects();
    }

    /// Puts a question of somebody else's turn to an owner, and notifies the chat; denies it when no owner can be reached.
    fn ask_owner(
        &mut self,
        turn: TurnId,
        origin: &TurnOrigin,
        mut question: Question,
        reply: oneshot::Sender<PromptAnswer>,
    ) {
        let person = printable(
            &format!("{}:{}", origin.author.platform, origin.author.user()),
            MAX_PERSON_CHARS,
        );
        let (now, now_ms) = (self.clock.mono(), self.clock.unix_ms());
        let title = printable(&question.text, MAX_PERSON_CHARS);
        let notice = if let Some(owner) = self.owner_chat(&origin.author.platform) {
            self.access
                .record_question(&origin.author, "asked", &title, "owner", now_ms);
            question.text = format!("{person} asks: {}", question.text);
            let adapter = self.adapters.get(&owner.chat.platform);
            let asking = Asking {
                turn,
                session: owner.session,
                chat: Arc::new(owner.chat),
                facts: Arc::new(owner.facts),
                personal: origin.personal,
                to_owner: true,
            };
            let effects = &mut self.effects;
            self.approvals
                .ask(&asking, question, reply, &adapter, now, effects);
            ASKED_OWNER
        } else {
            self.access
                .record_question(&origin.author, "denied", &title, "no_owner", now_ms);
            let denial = question
                .options
                .into_iter()
                .find(|choice| choice.meaning == Meaning::Deny);
            let answer = denial.map_or(PromptAnswer::Cancelled, |choice| PromptAnswer::Chosen(choice.id));
            let _ = reply.send(answer);
            NO_OWNER
        };
        let group = self.outbox.notice_group();
        let ops = self.plan_text(notice, &origin.session, &origin.chat, &origin.facts, group);
        self.add_ops(ops, None);
        self.run_effects();
    }

    fn plan_attachment(
        &mut self,
        attachment: &OutgoingAttachment,
        origin: &TurnOrigin,
        row: InboxSeq,
    ) -> Vec<DurableOp> {
        let adapter = self.adapters.get(&origin.chat.platform);
        let actions = adapter.attachment(attachment, &origin.chat, &origin.facts);
        let group = OpGroup::Message(row);
        let session = origin.session.shared();
        self.outbox
            .plan(&adapter, &session, &origin.lane, &actions, group, &origin.span)
    }

    fn save_state(&mut self, turn: TurnId, session: &SessionKey, state: Vec<u8>) {
        let Some(agent) = self
            .turns
            .agent_name(turn)
            .filter(|_| self.turns.keeps_state(turn))
        else {
            return;
        };
        let session = state_key(session, agent);
        if state.len() > MAX_STATE_BYTES {
            tracing::warn!(
                turn = turn.0,
                bytes = state.len(),
                max = MAX_STATE_BYTES,
                "the agent's state is too large to save"
            );
        } else if state.is_empty() {
            self.effects.write(Command::DropResume { session });
        } else {
            self.effects.write(Command::SetResume {
                session,
                blob: state,
                now_ms: self.clock.unix_ms(),
            });
        }
    }

    /// A turn has ended: its answer and its end are one commit; the ops go out after it.
    pub(super) fn finish_turn(&mut self, finished: Finished) {
        let report = match finished {
            Ok(report) => report,
            Err(turn) => {
                let Some(origin) = self.turns.origin(turn) else {
                    return;
                };
                let row = self.turns.row_of(turn).unwrap_or(InboxSeq(0));
                let adapter = self.adapters.get(&origin.chat.platform);
                let stream = Box::new(self.stream(&adapter, &origin, row, false));
                TurnReport::without_text(turn, stream, Turns::panicked(turn))
            }
        };
        self.approvals
            .withdraw_turn(report.turn, &self.adapters, &mut self.effects);
        let mut given = self.mailbox.finished(report.turn);
        let Some(ended) = self.turns.end(&report) else {
            return self.release(given);
        };
        let has_answered = report.has_text || ended.outcome == RowOutcome::Done;
        self.settle_contexts(&mut given, has_answered);
        self.offer_commands();
        let tokens = report
            .usage
            .input_tokens
            .saturating_add(report.usage.output_tokens);
        let (now_ms, effects) = (self.clock.unix_ms(), &mut self.effects);
        self.access
            .turn_ended(&ended.origin.author, &ended.agent, tokens, now_ms, effects);
        if let Some(run) = self.scheduler.end(&ended.origin.session) {
            return self.finish_job(&run, &ended, &report);
        }
        if self.finish_delivery(given, &ended, &report) {
            return;
        }
        if ended.declined {
            return self.end_message(ended.row, ended.outcome, Vec::new(), None);
        }
        let now = self.clock.mono();
        let mut stream = report.stream;
        if report.truncated {
            stream.push_text("\n\n[truncated: the answer is too long]", now);
        }
        if let Some(notice) = ended.notice {
            if report.has_text {
                stream.push_text("\n\n", now);
            }
            stream.push_text(&notice, now);
        }
        let origin = ended.origin;
        let adapter = self.adapters.get(&origin.chat.platform);
        let mut last = stream.finish(ended.result, now);
        for (position, attachment) in &report.attachments {
            let actions = adapter.attachment(attachment, &origin.chat, &origin.facts);
            last.insert(*position, actions);
        }
        let group = OpGroup::Message(ended.row);
        let session = origin.session.shared();
        let ops = self.outbox.plan(
            &adapter,
            &session,
            &origin.lane,
            &last.durable,
            group,
            &origin.span,
        );
        origin.span.record("ops", ops.len());
        self.end_message(
            ended.row,
            ended.outcome,
            ops,
            Some((Arc::clone(&origin.chat), last.indicators)),
        );
        self.run_effects();
    }

    /// Ends a message. Its ops go out after the commit, and then the indicators; without ops there is nothing that the
    /// indicators have to wait for.
    pub(super) fn end_message(
        &mut self,
        row: InboxSeq,
        outcome: RowOutcome,
        ops: Vec<DurableOp>,
        indicators: Option<(Arc<ChatId>, Vec<Action>)>,
    ) {
        let mut indicators = indicators.filter(|(_, actions)| !actions.is_empty());
        if ops.is_empty()
            && let Some((chat, actions)) = indicators.take()
        {
            self.send_indicators(&chat, &actions);
        }
        let ending = Ending {
            ops,
            indicators,
            declined: false,
        };
        let now_ms = self.clock.unix_ms();
        self.turns
            .end_row(row, outcome, ending, now_ms, &mut self.effects);
    }

    /// The end of a message is committed: its ops take their place, and behind them the indicators.
    fn message_ended(&mut self, row: InboxSeq, rows: OpSeqs) {
        self.handovers.forget(row);
        let Some(ending) = self.turns.committed(row) else {
            return;
        };
        self.outbox
            .commit(rows.iter(), ending.ops, ending.declined, &mut self.effects);
        if let Some((chat, actions)) = ending.indicators.filter(|_| !ending.declined) {
            self.send_indicators(&chat, &actions);
        }
    }

    fn send_indicators(&mut self, chat: &ChatId, actions: &[Action]) {
        let adapter = self.adapters.get(&chat.platform);
        let lane: Arc<str> = chat.key().into();
        for action in actions {
            let op = EphemeralOp {
                id: self.outbox.next_id(),
                body: OpBody::new(&adapter, Arc::clone(&lane), action),
                priority: Priority::Indicator,
                timeout: Some(FINAL_INDICATOR_TIMEOUT),
                owner: OpOwner::Nobody,
            };
            self.outbox.queue_in_order(op, self.link.live.is_some());
        }
    }

    /// Durable ops that deliver a text to a chat.
    pub(super) fn plan_text(
        &mut self,
        text: &str,
        session: &SessionKey,
        chat: &ChatId,
        facts: &ChatFacts,
        group: OpGroup,
    ) -> Vec<DurableOp> {
        let adapter = self.adapters.get(&chat.platform);
        let actions = adapter.reply(text, chat, facts);
        let span = tracing::Span::none();
        self.outbox.plan(
            &adapter,
            &session.shared(),
            &chat.key().into(),
            &actions,
            group,
            &span,
        )
    }

    /// Journals ops outside a turn's end; `reply` learns when they are committed.
    pub(super) fn add_ops(
        &mut self,
        ops: Vec<DurableOp>,
        reply: Option<oneshot::Sender<Result<(), SendError>>>,
    ) {
        let inbox = ops.first().and_then(DurableOp::answers);
        let rows = ops.iter().map(DurableOp::to_row).collect();
        let now_ms = self.clock.unix_ms();
        self.effects
            .request(Pending::Ops(ops, reply), |token| Command::AddOps {
                token,
                inbox,
                ops: rows,
                now_ms,
            });
    }

    /// Offers what can be typed after a slash, when that has changed.
    pub(super) fn offer_commands(&mut self) {
        let agents = &self.agents;
        if let Some((platform, manifest)) = self.commands.manifest(|| agents.commands()) {
            self.transport.offer_commands(platform, manifest);
        }
    }

    /// Runs one of the relay's own commands, now that it is committed, and answers it.
    fn run_command(
        &mut self,
        command: SlashCommand,
        about: CommandTarget,
        session: &SessionKey,
        row: InboxSeq,
        (chat, facts): (&ChatId, &ChatFacts),
        author: &Author,
    ) {
        let answer = match command {
            SlashCommand::Cron(text) => {
                return self.run_job_command(&text, session, row, (chat, facts), author);
            }
            SlashCommand::Stop => match about {
                CommandTarget::Turn(turn) if self.stop_turn(session, Some(turn), StopReason::Asked) => {
                    "Stopped."
                }
                CommandTarget::NoTurn if self.stop_elsewhere(session) => {
                    "Nothing is running here. If another instance is working on this, it was asked to stop."
                }
                CommandTarget::Turn(_) | CommandTarget::NoTurn | CommandTarget::Forgotten => {
                    "Nothing is running."
                }
            }
            .to_owned(),
            SlashCommand::New => {
                if let CommandTarget::Turn(turn) = about {
                    self.stop_turn(session, Some(turn), StopReason::Asked);
                }
                self.access.resume(author);
                let running = self.turns.forget(session);
                self.agents.forget(session, running, &mut self.effects);
                "Started a new conversation.".to_owned()
            }
            SlashCommand::Status => self.describe_session(session, &route_input(chat, facts)),
            SlashCommand::Agent(name) => {
                let (now_ms, effects) = (self.clock.unix_ms(), &mut self.effects);
                let input = route_input(chat, facts);
                let allowed = self.access.agents(author);
                self.agents.choose(
                    session,
                    name.as_deref(),
                    allowed.as_deref(),
                    &input,
                    now_ms,
                    effects,
                )
            }
            SlashCommand::WhoAmI => self.access.describe(author),
            SlashCommand::Usage => self.access.describe_usage(author, self.clock.unix_ms()),
            SlashCommand::Help => self.commands.help(),
        };
        self.answer_command(&answer, session, row, (chat, facts));
    }

    /// Answers a message that was for the relay itself.
    pub(super) fn answer_command(
        &mut self,
        answer: &str,
        session: &SessionKey,
        row: InboxSeq,
        (chat, facts): (&ChatId, &ChatFacts),
    ) {
        let ops = self.plan_text(answer, session, chat, facts, OpGroup::Message(row));
        self.end_message(row, RowOutcome::Done, ops, None);
    }

    fn describe_session(&mut self, session: &SessionKey, input: &RouteInput<'_>) -> String {
        let sessions = self.turns.sessions();
        let state = match sessions.turn_of(session) {
            Some(_) => "working on a message",
            None => "idle",
        };
        let queued = match sessions.waiting(session) {
            0 => String::new(),
            waiting => format!(", {waiting} waiting"),
        };
        let agent = self.agents.current(session, input);
        format!("{agent}: {state}{queued}.")
    }
}

/// Ops and the link.
impl EventLoop {
    pub(super) fn handle_result(&mut self, op: OpId, result: SendResult) {
        let (live, now) = (self.is_live(), self.clock.now());
        self.outbox.on_result(op, result, live, now, &mut self.effects);
        self.run_effects();
    }

    /// Carries the parts' effects to the others, until none are left.
    pub(super) fn run_effects(&mut self) {
        while let Some(effect) = self.effects.next() {
            match effect {
                Effect::Send(op) => self.transport.submit(op, self.results.clone()),
                Effect::Acknowledge(generation, buffer_id) => {
                    self.transport.acknowledge(generation, buffer_id);
                }
                Effect::Queue(op) => {
                    let (live, now) = (self.is_live(), self.clock.mono());
                    self.outbox.queue(op, live, now, &mut self.effects);
                }
                Effect::Withdraw(op) => self.outbox.withdraw(op),
                Effect::QuestionOp(question, prompt, result) => {
                    let (now, effects) = (self.clock.mono(), &mut self.effects);
                    self.approvals
                        .op_finished(question, prompt, &result, &self.adapters, now, effects);
                }
                Effect::QuestionOpRenamed(question, op) => self.approvals.op_renamed(question, op),
                Effect::Declined(group) => self.decline(group),
                Effect::Undelivered {
                    chat,
                    session,
                    reason,
                    is_reply,
                } => {
                    if is_reply {
                        self.notify_undelivered(&chat, &session);
                    }
                    self.job_undelivered(&chat, &session, &reason);
                }
                Effect::TurnDeclined(turn) => {
                    if let Some(row) = self.turns.row_of(turn) {
                        self.decline(OpGroup::Message(row));
                    }
                }
                Effect::PairingDecided { code, approved } => {
                    if approved {
                        // A code that was used or is over changes nothing.
                        let _ = self.change_access(AccessRequest::Approve { code, role: None });
                    }
                }
                Effect::ThreadOpened { chat, thread, name } => {
                    if let Some(ChatId { platform, chat }) = ChatId::from_key(&chat) {
                        self.threads.opened(&platform, thread, chat, name);
                    }
                }
            }
        }
    }

    /// Notifies a chat that an answer was not delivered. If the notice is not delivered either, the log and the journal show it.
    fn notify_undelivered(&mut self, chat: &str, session: &Arc<str>) {
        let Some(notice) = self.settings.undelivered_notice.clone() else {
            return;
        };
        let Some(chat) = ChatId::from_key(chat) else {
            return;
        };
        let Some(facts) = self.chats.facts(&chat).cloned() else {
            return;
        };
        let facts = ChatFacts {
            message_id: None,
            ..facts
        };
        let group = self.outbox.notice_group();
        let session = SessionKey::from_text(Arc::clone(session));
        let ops = self.plan_text(&notice, &session, &chat, &facts, group);
        self.add_ops(ops, None);
    }

    /// The connector declined an op: nothing else of its group is sent, whatever part it is.
    fn decline(&mut self, group: OpGroup) {
        self.outbox.drop_group(group, &mut self.effects);
        let OpGroup::Message(row) = group else { return };
        let now_ms = self.clock.unix_ms();
        if let Some(turn) = self.turns.decline(row, now_ms, &mut self.effects) {
            self.outbox.drop_turn(turn, &OpOutcome::Declined);
        }
    }

    pub(super) fn handle_link(&mut self, status: LinkStatus) {
        let changed = status.live != self.link.live;
        if changed {
            self.outbox.disconnected();
        }
        if status.state != self.link.state {
            self.link_since_ms = self.clock.unix_ms();
        }
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.on_link(&status, self.clock.now());
        }
        if status.descriptors != self.link.descriptors {
            self.adapters = adapters(&self.settings, &status);
            for (platform, _) in status.descriptors.iter() {
                self.inbound.add_platform(platform);
            }
        }
        self.link = status;
        if changed && self.is_live() {
            self.outbox.connected();
        }
    }

    pub(super) fn handle_health(&mut self, health: Health) {
        if self.journal.on_health(health) {
            self.lifecycle.plan_reconnect(self.clock.mono());
        }
    }
}

/// The journal.
impl EventLoop {
    pub(super) fn handle_batch(&mut self, batch: Batch) {
        for commit in batch.commits {
            self.commits.committed(commit);
        }
        for completion in batch.completions {
            self.handle_completion(completion);
        }
    }

    pub(super) fn handle_completion(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted { token, seq, receipt } => match self.journal.take(token) {
                Some(Pending::Message(accepting)) => self.message_accepted(*accepting, seq, receipt),
                Some(Pending::Job(JobStep::Accept(session, turn))) => self.run_accepted(&session, turn, seq),
                _ => {}
            },
            Completion::Cron { token, reply } => {
                if let Some(Pending::Job(step)) = self.journal.take(token) {
                    self.handle_job_reply(step, reply);
                }
            }
            Completion::Delivery { token, reply } => {
                if let Some(Pending::Delivery(handing)) = self.journal.take(token) {
                    self.handle_delivery_reply(handing, reply);
                }
            }
            Completion::Duplicate { token, receipt } => {
                self.inbound.count_duplicate();
                if let Some(Pending::Message(accepting)) = self.journal.take(token) {
                    self.acknowledge(accepting.generation, receipt);
                    self.cancel(&accepting);
                }
            }
            Completion::Quarantined { token, receipt } => {
                if let Some(Pending::Quarantine(generation)) = self.journal.take(token) {
                    self.lifecycle.accepted();
                    self.acknowledge(generation, receipt);
                }
            }
            Completion::Ended { seq, ops } => self.message_ended(seq, ops),
            Completion::OpsAdded { token, ops } => match self.journal.take(token) {
                Some(Pending::Access(reply, answer)) => drop(reply.send(Ok(answer))),
                Some(Pending::Ops(added, reply)) => {
                    if let Some(reply) = reply {
                        let _ = reply.send(Ok(()));
                    }
                    let group = added.first().map(|op| op.group);
                    let declined = group.is_some_and(|group| self.turns.is_declined(group));
                    self.outbox.commit(ops.iter(), added, declined, &mut self.effects);
                }
                _ => {}
            },
            Completion::Loaded(row) => self.row_loaded(&row),
            Completion::Missing { seq } => self.turns.missing(seq, &mut self.effects),
            Completion::Started { seq, .. } => self.turns.started(seq, &mut self.effects),
            Completion::Queued { token, rows } => {
                if let Some(Pending::SessionRows(session)) = self.journal.take(token) {
                    self.turns.refilled(session, Some(&rows));
                }
            }
            Completion::Resume { token, blob } => self.state_read(token, blob),
            Completion::Waiting { token, rows } => {
                if let Some(Pending::WaitingRows(after)) = self.journal.take(token) {
                    self.turns.reloaded(after, Some(&rows));
                }
            }
            // Only recovery reads these, before the loop runs.
            Completion::Ops { .. } => {}
            Completion::Failed(failed) => self.command_failed(&failed),
        }
    }

    fn state_read(&mut self, token: u64, blob: Option<Vec<u8>>) {
        match self.journal.take(token) {
            Some(Pending::AgentChoice(turn, session)) => self.agent_chosen(turn, &session, blob),
            Some(Pending::AgentState(reply)) => {
                let _ = reply.send(blob);
            }
            _ => {}
        }
    }

    fn command_failed(&mut self, failed: &Failed) {
        match failed.subject {
            Subject::Token(token) => match self.journal.take(token) {
                Some(Pending::Message(accepting)) => self.message_rejected(Some(&accepting), &failed.fault),
                Some(Pending::Quarantine(_)) => self.message_rejected(None, &failed.fault),
                Some(Pending::SessionRows(session)) => self.turns.refilled(session, None),
                Some(Pending::WaitingRows(after)) => self.turns.reloaded(after, None),
                Some(Pending::Ops(_, reply)) => {
                    tracing::error!("dropped a message that the journal refused");
                    if let Some(reply) = reply {
                        let _ = reply.send(Err(SendError::Refused));
                    }
                }
                // The verb notices that it was dropped.
                Some(Pending::Access(..)) => {
                    tracing::error!("the journal refused a change of the access rules");
                }
                // What cannot be read is as if nothing had been saved.
                Some(Pending::AgentChoice(turn, session)) => self.agent_chosen(turn, &session, None),
                Some(Pending::AgentState(reply)) => {
                    let _ = reply.send(None);
                }
                Some(Pending::Job(step)) => self.job_command_failed(step),
                Some(Pending::Delivery(handing)) => self.delivery_failed(handing),
                None => {}
            },
            Subject::Message(row) => self.turns.row_failed(row),
            Subject::Op(_) | Subject::None => {}
        }
    }
}

/// Requests of handles.
impl EventLoop {
    pub(super) fn handle_request(&mut self, request: HandleRequest) {
        match request {
            HandleRequest::Status(reply) => {
                let _ = reply.send(reports::status(self));
            }
            HandleRequest::Sessions(limit, reply) => {
                let _ = reply.send(reports::sessions(self, limit));
            }
            HandleRequest::Metrics(reply) => {
                let _ = reply.send(reports::metrics(self));
            }
            HandleRequest::Agents(reply) => {
                let _ = reply.send(HealthCheck::new(self.agents.agents()));
            }
            HandleRequest::Wake(reply) => {
                let now = self.clock.now();
                let step = self.sleeper.as_mut().map(|sleeper| sleeper.wake(now));
                if step != Some(SleepStep::Nothing) {
                    self.transport.wake();
                }
                let _ = reply.send(());
            }
            HandleRequest::StopTurn(session, reply) => {
                let stopped = self.stop_turn(&session, None, StopReason::Asked);
                let outcome = match stopped {
                    true => StopOutcome::Stopped,
                    false if self.stop_elsewhere(&session) => StopOutcome::Elsewhere,
                    false => StopOutcome::NotRunning,
                };
                let _ = reply.send(outcome);
            }
            HandleRequest::Fire(_, reply) if !self.lifecycle.is_serving() => {
                let _ = reply.send(FireAdmission::Draining);
            }
            HandleRequest::Fire(fire, reply) => {
                let now = self.clock.now();
                self.scheduler.fire(fire, reply, now, &mut self.effects);
                // A fire may be what woke this process: it is up to deliver the answer.
                if let Some(sleeper) = &mut self.sleeper {
                    sleeper.on_activity(now);
                }
            }
            HandleRequest::Hand(delivery, reply) => {
                self.hand(*delivery, reply);
                let now = self.clock.now();
                if let Some(sleeper) = &mut self.sleeper {
                    sleeper.on_activity(now);
                }
            }
            HandleRequest::Activity(agent, reply) => drop(reply.send(self.agent_activity(&agent))),
            HandleRequest::Deliveries(number, reply) => drop(reply.send(self.mailbox.after(number))),
            HandleRequest::JobsChanged(reply) => {
                self.scheduler.changed(ArmWaiter::Verb(reply), self.clock.mono());
            }
            HandleRequest::TurnOrigin(session, reply) => {
                let origin = self.turns.origin_of(&session);
                let _ = reply.send(origin.and_then(|origin| job_origin(&origin)));
            }
            HandleRequest::Access(request, reply) => {
                match self.change_access(request) {
                    // A revocation is confirmed only once it would survive a crash.
                    Ok((answer, true)) => self.answer_when_stored(reply, answer),
                    Ok((answer, false)) => drop(reply.send(Ok(answer))),
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            HandleRequest::Send(target, text, reply) => match self.plan_send(&target, &text) {
                Ok(ops) => self.add_ops(ops, Some(reply)),
                Err(error) => {
                    let _ = reply.send(Err(error));
                }
            },
        }
        self.run_effects();
    }

    /// Changes who may drive an agent. Whoever may not any more is stopped.
    /// Returns the answer, and whether there is something to store.
    fn change_access(&mut self, request: AccessRequest) -> Result<(Value, bool), AccessError> {
        let now_ms = self.clock.unix_ms();
        let handled = self.access.handle(request, now_ms, &mut self.effects)?;
        let refused: Vec<(TurnId, SessionKey)> = (self.turns.authors())
            .filter(|(_, _, author)| !self.access.may_talk(author))
            .map(|(turn, session, _)| (turn, session.clone()))
            .collect();
        for (turn, session) in refused {
            self.stop_turn(&session, Some(turn), StopReason::Asked);
        }
        let access = &self.access;
        let is_gone = |chat: &ChatId, facts: &ChatFacts| !access.is_owner(&access.author_of(chat, facts));
        self.approvals
            .withdraw_from_owners(is_gone, &self.adapters, &mut self.effects);
        if let Some((person, pending)) = handled.paired {
            let chat = ChatId {
                platform: person.platform,
                chat: pending.chat,
            };
            let facts: ChatFacts = serde_json::from_value(pending.facts).unwrap_or_default();
            let group = self.outbox.notice_group();
            let ops = self.plan_text(WELCOME, &SessionKey::from_text(""), &chat, &facts, group);
            self.add_ops(ops, None);
        }
        Ok((handled.answer, handled.stored))
    }

    /// Answers a verb once everything that was written before is stored.
    fn answer_when_stored(&mut self, reply: oneshot::Sender<Result<Value, AccessError>>, answer: Value) {
        let now_ms = self.clock.unix_ms();
        self.effects
            .request(Pending::Access(reply, answer), |token| Command::AddOps {
                token,
                inbox: None,
                ops: Vec::new(),
                now_ms,
            });
    }

    fn plan_send(&mut self, target: &SendTarget, text: &str) -> Result<Vec<DurableOp>, SendError> {
        if text.trim().is_empty() {
            return Err(SendError::Empty);
        }
        if self.journal.adding() >= MAX_UNCOMMITTED_SENDS {
            return Err(SendError::Busy);
        }
        let chat = match &target.platform {
            Some(platform) => ChatId {
                platform: platform.clone(),
                chat: target.chat.clone(),
            },
            None => self
                .chats
                .find(&target.chat)
                .ok_or(SendError::UnknownChat)?
                .clone(),
        };
        let facts = ChatFacts {
            message_id: None,
            ..self.chats.facts(&chat).ok_or(SendError::UnknownChat)?.clone()
        };
        let group = self.outbox.notice_group();
        Ok(self.plan_text(text, &SessionKey::from_text(""), &chat, &facts, group))
    }
}

/// The source of a message in a chat, as far as it is known.
fn source_of(chat: &ChatId, facts: &ChatFacts) -> SessionSource {
    let text = |field: &Option<String>| field.as_deref().map(Scalar::from);
    SessionSource {
        platform: Platform::from_wire(&chat.platform),
        chat_id: Some(chat.chat.as_str().into()),
        chat_type: text(&facts.chat_type),
        user_id: text(&facts.user_id),
        thread_id: text(&facts.thread_id),
        scope_id: text(&facts.scope_id),
        profile: text(&facts.profile),
        ..SessionSource::default()
    }
}

/// What a person tries to do with a message that answers no question.
fn event_kind(kind: InboxKind, command: Option<&SlashCommand>) -> EventKind {
    match (command, kind) {
        (Some(command), _) if command.is_inquiry() => EventKind::Inquiry,
        (Some(_), _) => EventKind::Command,
        (None, InboxKind::Forward) => EventKind::Interaction,
        (None, InboxKind::Inbound | InboxKind::Job | InboxKind::Delivery) => EventKind::Message,
    }
}

/// What routes look at, of a message that is one of the relay's own commands.
pub(super) fn route_input<'c>(chat: &'c ChatId, facts: &'c ChatFacts) -> RouteInput<'c> {
    RouteInput {
        platform: &chat.platform,
        chat: &chat.chat,
        user: facts.user_id.as_deref().unwrap_or_default(),
        profile: facts.profile.as_deref().unwrap_or_default(),
        text: "",
    }
}

/// Where a job is made that the agent of this turn makes; `None` for a turn without a chat.
fn job_origin(origin: &TurnOrigin) -> Option<JobOrigin> {
    let (chat, facts) = (&origin.chat, &origin.facts);
    (!chat.platform.is_empty() && !chat.chat.is_empty()).then(|| JobOrigin {
        platform: chat.platform.clone(),
        chat_id: chat.chat.clone(),
        chat_name: None,
        thread_id: facts.thread_id.clone(),
        user_id: facts.user_id.clone(),
    })
}

/// What an agent learns of a message, with what the platform says of itself.
pub(super) fn turn_input(event: MessageEvent, text: Option<String>, adapter: &RelayAdapter) -> TurnInput {
    let mut input = TurnInput::from_event(event);
    if let Some(text) = text {
        input.text = text;
    }
    adapter.platform_hint().clone_into(&mut input.origin.hint);
    adapter.markdown_dialect().clone_into(&mut input.origin.markdown);
    if adapter.is_pii_safe() {
        input.hide_people();
    }
    input
}
