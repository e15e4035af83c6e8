//! What others hand to the agents on its way through the relay: into the journal, then to a session's next turn as context, or
//! as a turn of its own.
//!
//! A delivery is answered only once it is committed. One that is a turn is a row of the inbox like a message, for an agent that its
//! sender named: it waits for its session, is stoppable, and after a crash it runs if it had not begun. Its answer goes to the
//! session's chat, or to the target in the settings if it has none.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::effects::{Effects, Handing, Pending};
use super::event_loop::EventLoop;
use super::mailbox::{
    GivenTurn, HandRefusal, HandReply, HandedDelivery, ResponseWaiter, RunningDelivery, activity,
};
use super::ops::{DurableOp, OpGroup};
use super::routing::turn_input;
use super::turn_task::{TurnContext, TurnReport};
use super::turns::{EndedTurn, message_span};
use crate::adapter::{ChatFacts, ChatId};
use crate::agent::{Permission, TurnInput};
use crate::agent_connector::DispatchRoute;
use crate::agent_connector::contract::{AgentActivity, AgentResponse, DeliveryKind, DeliveryReceipt};
use crate::cron::delivery;
use crate::session::{Admission, StopReason, TurnId};
use crate::store::{
    Command, DeliveryBody, DeliveryCommand, DeliveryReply, InboxRow, InboxSeq, MAX_CONTEXT_BYTES,
    NewDelivery, TurnState as RowOutcome,
};
use crate::wire::{JOB_SESSION, MessageEvent, Platform, Scalar, SessionKey, SessionSource};

/// A delivery as its row keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct DeliveryLine {
    agent: String,
    text: String,
    /// Where its answer goes if the session has no chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deliver: Option<String>,
    /// What its sender said of it, for those who look into the journal.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    meta: Map<String, Value>,
}

impl Handing {
    /// Whether it is a turn of its own.
    fn is_turn(&self) -> bool {
        self.delivery.wake
            || self.delivery.payload.kind == DeliveryKind::Template
            || matches!(self.reply, HandReply::Response(_))
    }

    /// How it came.
    fn route(&self) -> DispatchRoute {
        match (&self.reply, self.delivery.wake) {
            (HandReply::Response(_), _) => DispatchRoute::RequestResponse,
            (HandReply::Receipt(_), true) => DispatchRoute::Wake,
            (HandReply::Receipt(_), false) => DispatchRoute::Deliver,
        }
    }
}

impl EventLoop {
    /// Takes what was handed to an agent.
    pub(super) fn hand(&mut self, delivery: HandedDelivery, reply: HandReply) {
        if !self.lifecycle.is_serving() {
            return reply.refuse(HandRefusal::Draining);
        }
        if self.agents.for_job(Some(&delivery.agent), None).is_none() {
            return reply.refuse(HandRefusal::UnknownAgent);
        }
        // The end of a job's turn is known by its session.
        if delivery
            .session
            .as_deref()
            .is_some_and(|session| session.starts_with(JOB_SESSION))
        {
            return reply.refuse(HandRefusal::ReservedSession);
        }
        let key = match &delivery.session {
            Some(session) => session.clone(),
            None => format!("delivery:{}", delivery.agent),
        };
        let mut handing = Handing {
            session: SessionKey::from_text(key),
            delivery,
            turn: None,
            reply,
            received_at: self.clock.unix_ms(),
        };
        if !handing.is_turn() && handing.delivery.payload.text.len() > MAX_CONTEXT_BYTES {
            return handing.reply.refuse(HandRefusal::TooLarge);
        }
        let body = if handing.is_turn() {
            let event = self.delivery_event(&handing.session, &handing.delivery.payload.text);
            let span = message_span(&handing.session);
            let admission = (self.turns).admit(&handing.session, &event, true, &Arc::default(), &span);
            if let Admission::Start(turn) = admission {
                handing.turn = Some(turn);
            }
            let line = self.line(&handing.delivery);
            DeliveryBody::Turn(serde_json::to_vec(&line).unwrap_or_default())
        } else {
            let payload = &handing.delivery.payload;
            DeliveryBody::Context {
                text: payload.text.clone(),
                meta: serde_json::to_string(payload.meta.as_object()).unwrap_or_default(),
            }
        };
        let new = NewDelivery {
            dispatch_id: handing.delivery.payload.meta.dispatch_id().to_owned(),
            agent: handing.delivery.agent.clone(),
            session: handing.session.as_str().to_owned(),
            has_session: handing.delivery.session.is_some(),
            body,
            now_ms: handing.received_at,
        };
        let command = Box::new(DeliveryCommand::Take(new));
        self.effects
            .request(Pending::Delivery(Some(Box::new(handing))), |token| {
                Command::Delivery { token, command }
            });
    }

    /// Reads the context that waits, at the start.
    pub(super) fn read_contexts(effects: &mut Effects) {
        effects.request(Pending::Delivery(None), |token| Command::Delivery {
            token,
            command: Box::new(DeliveryCommand::Contexts),
        });
    }

    /// The journal has answered about a delivery.
    pub(super) fn handle_delivery_reply(&mut self, handing: Option<Box<Handing>>, reply: DeliveryReply) {
        match (handing, reply) {
            (_, DeliveryReply::Contexts(contexts)) => {
                for context in contexts {
                    self.mailbox.add(context);
                }
            }
            (Some(handing), DeliveryReply::Stored(row)) => self.delivery_stored(*handing, row),
            (Some(handing), DeliveryReply::Known { agent, .. }) if agent != handing.delivery.agent => {
                self.cancel_delivery(&handing);
                handing.reply.refuse(HandRefusal::OtherAgent);
            }
            (
                Some(handing),
                DeliveryReply::Known {
                    received_at, session, ..
                },
            ) => {
                self.note_delivery(&handing, true);
                self.cancel_delivery(&handing);
                let id = handing.delivery.payload.meta.dispatch_id().to_owned();
                match handing.reply {
                    HandReply::Receipt(reply) => drop(reply.send(Ok(receipt(id, received_at, session)))),
                    // Whoever asked first gets the answer.
                    HandReply::Response(reply) => drop(reply.send(Err(HandRefusal::NoAnswer))),
                }
            }
            (Some(handing), DeliveryReply::Full) => {
                self.cancel_delivery(&handing);
                handing.reply.refuse(HandRefusal::Full);
            }
            (Some(_) | None, _) => {}
        }
        self.run_effects();
    }

    /// The journal could not take a delivery.
    pub(super) fn delivery_failed(&mut self, handing: Option<Box<Handing>>) {
        match handing {
            Some(handing) => {
                self.cancel_delivery(&handing);
                handing.reply.refuse(HandRefusal::NotStored);
            }
            None => {
                tracing::error!("cannot read the context that waits for turns; it is read at the next start");
            }
        }
    }

    fn cancel_delivery(&mut self, handing: &Handing) {
        match handing.turn {
            Some(turn) => self.turns.cancel_admission(&handing.session, turn),
            None if handing.is_turn() => self.turns.cancel_waiting(&handing.session),
            None => {}
        }
    }

    fn note_delivery(&mut self, handing: &Handing, is_duplicate: bool) {
        let (session, at) = (handing.session.as_str(), handing.received_at);
        self.mailbox
            .note(&handing.delivery, session, handing.route(), (at, is_duplicate));
    }

    fn delivery_stored(&mut self, handing: Handing, row: Option<InboxSeq>) {
        self.note_delivery(&handing, false);
        if let Some(row) = row {
            // Before anybody has a receipt.
            self.handovers.expect(row);
        }
        let Handing {
            delivery,
            session,
            turn,
            reply,
            received_at,
        } = handing;
        let id = delivery.payload.meta.dispatch_id().to_owned();
        tracing::info!(
            agent = delivery.agent,
            session = session.as_str(),
            kind = delivery.payload.kind.as_str(),
            wake = delivery.wake,
            "took a delivery"
        );
        match (reply, row) {
            (HandReply::Receipt(reply), _) => {
                drop(reply.send(Ok(receipt(id.clone(), received_at, delivery.session.clone()))));
            }
            (HandReply::Response(reply), Some(row)) => {
                let correlation_id = delivery.payload.meta.correlation_id().unwrap_or(&id).to_owned();
                let waiter = ResponseWaiter {
                    correlation_id,
                    reply,
                };
                self.mailbox.wait(row, waiter);
            }
            (HandReply::Response(reply), None) => drop(reply.send(Err(HandRefusal::NoAnswer))),
        }
        match (row, turn) {
            (None, _) => self.mailbox.add(crate::store::PendingContext {
                dispatch_id: id,
                session: session.as_str().to_owned(),
                agent: delivery.agent,
                text: delivery.payload.text,
            }),
            // Whoever has a receipt has it before the turn is marked as running: a crash in between loses nothing.
            (Some(row), Some(turn)) => {
                let now_ms = self.clock.unix_ms();
                self.turns.start_stored(turn, row, now_ms, &mut self.effects);
            }
            (Some(row), None) => {
                self.turns.enqueue(&session, row);
                if delivery.wake {
                    self.stop_turn(&session, None, StopReason::Superseded);
                }
            }
        }
    }

    /// A delivery's row was read back.
    pub(super) fn delivery_row_loaded(&mut self, turn: TurnId, row: &InboxRow) {
        let Some(line) = decode(row) else {
            self.turns.abandon(turn);
            return self.end_message(row.seq, RowOutcome::Failed, Vec::new(), None);
        };
        let session = SessionKey::from_text(Arc::clone(&row.session));
        let event = self.delivery_event(&session, &line.text);
        let now_ms = self.clock.unix_ms();
        self.turns
            .set_chat(turn, row, &event, true, Arc::default(), now_ms);
        self.begin_delivery(turn, row.seq, line);
    }

    /// A delivery as its row keeps it.
    fn line(&self, delivery: &HandedDelivery) -> DeliveryLine {
        DeliveryLine {
            agent: delivery.agent.clone(),
            text: delivery.payload.text.clone(),
            deliver: self.settings.deliver.clone(),
            meta: delivery.payload.meta.as_object().clone(),
        }
    }

    /// A delivery's turn was running when an earlier run ended. It runs again if no agent had been given it, or if that does no
    /// harm.
    pub(super) fn delivery_interrupted(&mut self, row: &InboxRow) {
        let line = decode(row);
        let agent = line.as_ref().map(|line| line.agent.as_str());
        let agent = agent.and_then(|agent| self.agents.for_job(Some(agent), None));
        let is_repeatable = agent.is_some_and(|selection| selection.agent.agent.info().repeatable);
        if line.is_some() && (is_repeatable || self.handovers.is_left(row.seq)) {
            let now_ms = self.clock.unix_ms();
            return self.turns.run_again(row, now_ms, &mut self.effects);
        }
        self.turns.count_interrupted();
        tracing::warn!(
            row = row.seq.0,
            "a delivery was interrupted by the end of the last run"
        );
        let session = SessionKey::from_text(Arc::clone(&row.session));
        let ops = match (self.chat_of(&session), self.settings.interrupted_notice.clone()) {
            (Some((chat, facts)), Some(notice)) => {
                self.plan_text(&notice, &session, &chat, &facts, OpGroup::Message(row.seq))
            }
            (None, Some(notice)) => {
                let deliver = line.and_then(|line| line.deliver);
                self.plan_target(deliver.as_deref(), &session, &notice)
            }
            (_, None) => Vec::new(),
        };
        self.end_message(row.seq, RowOutcome::Interrupted, ops, None);
    }

    /// Starts the agent that a delivery is for.
    fn begin_delivery(&mut self, turn: TurnId, row: InboxSeq, line: DeliveryLine) {
        let Some(origin) = self.turns.origin(turn) else {
            return;
        };
        let Some(mut selection) = self.agents.for_job(Some(&line.agent), None) else {
            tracing::warn!(agent = line.agent, "a delivery is for an agent that is gone");
            self.turns.abandon(turn);
            self.answer_waiter(row, None);
            return self.end_message(row, RowOutcome::Failed, Vec::new(), None);
        };
        let has_chat = !origin.chat.chat.is_empty();
        if !has_chat && selection.agent.permission == Permission::Ask {
            // Nobody could be asked.
            selection.agent.permission = Permission::Deny;
        }
        let adapter = self.adapters.get(&origin.chat.platform);
        let event = self.delivery_event(&origin.session, &line.text);
        let mut input = turn_input(event, None, &adapter);
        self.add_context(turn, &origin.session, &line.agent, &mut input);
        let context = TurnContext {
            stream: Box::new(self.stream(&adapter, &origin, row, false)),
            collect: !has_chat || self.mailbox.is_awaited(row),
            clock: self.clock,
            grace: self.settings.grace,
            max_output: self.settings.max_output,
            forgotten: self.agents.pending_forget(&origin.session),
            media: self.media.clone(),
            accepts_attachments: has_chat && adapter.accepts_attachments(),
            handover: self.handovers.mark(row),
        };
        let delivery = RunningDelivery {
            row,
            is_collected: context.collect,
            deliver: line.deliver,
            handover: context.handover.clone(),
        };
        self.mailbox.begun(turn, delivery);
        self.turns.begin(turn, row, selection.agent, input, context);
    }

    /// Puts the context that waits for an agent's turn in a session before the turn's text.
    pub(super) fn add_context(
        &mut self,
        turn: TurnId,
        session: &SessionKey,
        agent: &str,
        input: &mut TurnInput,
    ) {
        let mut texts = self.mailbox.give(turn, session.as_str(), agent);
        if !texts.is_empty() {
            texts.push(&input.text);
            input.text = texts.join("\n\n");
        }
    }

    /// A turn has ended, with what it was given. Context that the agent has answered is done with; other context waits for the
    /// session's next turn, also after a crash.
    pub(super) fn settle_contexts(&mut self, given: &mut GivenTurn, has_answered: bool) {
        let contexts = std::mem::take(&mut given.contexts);
        let ids = self.mailbox.settle(contexts, has_answered);
        if ids.is_empty() {
            return;
        }
        let command = Box::new(DeliveryCommand::Taken(ids));
        self.effects
            .request(Pending::Delivery(None), |token| Command::Delivery {
                token,
                command,
            });
    }

    /// A turn is gone that never ran: nobody gets an answer of it, and its context waits again.
    pub(super) fn release(&mut self, mut given: GivenTurn) {
        self.settle_contexts(&mut given, false);
        if let Some(delivery) = given.delivery {
            self.answer_waiter(delivery.row, None);
        }
    }

    /// A delivery's turn has ended whose text was collected, or which has not begun before the relay stops; `false` if this was
    /// none.
    pub(super) fn finish_delivery(
        &mut self,
        given: GivenTurn,
        ended: &EndedTurn,
        report: &TurnReport,
    ) -> bool {
        let Some(delivery) = given.delivery else {
            return false;
        };
        if ended.outcome == RowOutcome::Interrupted && delivery.is_unbegun() {
            // The relay stops: it runs at the next start.
            self.answer_waiter(ended.row, None);
            let command = Box::new(DeliveryCommand::PutBack(ended.row));
            self.effects
                .request(Pending::Delivery(None), |token| Command::Delivery {
                    token,
                    command,
                });
            self.run_effects();
            return true;
        }
        if !delivery.is_collected {
            self.answer_waiter(ended.row, None);
            return false;
        }
        let text = report.collected.trim();
        let answered = ended.outcome == RowOutcome::Done;
        let has_waited = self.answer_waiter(ended.row, answered.then_some((&*ended.agent, text)));
        let origin = &ended.origin;
        let shown = match (&ended.notice, text) {
            (Some(notice), "") => notice.clone(),
            (Some(notice), text) => format!("{text}\n\n{notice}"),
            (None, text) => text.to_owned(),
        };
        let ops = if shown.is_empty() {
            Vec::new()
        } else if !origin.chat.chat.is_empty() {
            let group = OpGroup::Message(ended.row);
            self.plan_text(&shown, &origin.session, &origin.chat, &origin.facts, group)
        } else if has_waited {
            Vec::new()
        } else {
            self.plan_target(delivery.deliver.as_deref(), &origin.session, &shown)
        };
        self.end_message(ended.row, ended.outcome, ops, None);
        self.run_effects();
        true
    }

    /// Ops that send a text to the target for sessions without a chat.
    fn plan_target(&mut self, deliver: Option<&str>, session: &SessionKey, text: &str) -> Vec<DurableOp> {
        let Some(deliver) = deliver else {
            return Vec::new();
        };
        let home_channels = &self.scheduler.settings().home_channels;
        let (targets, error) = delivery::targets(deliver, None, home_channels);
        if let Some(error) = error {
            tracing::warn!(
                error,
                "cannot send the answer of a delivery to all of `serve.receiver.deliver`"
            );
        }
        self.plan_targets(&targets, session, text)
    }

    /// Answers whoever waits for a turn's answer; `false` if nobody does.
    fn answer_waiter(&mut self, row: InboxSeq, answer: Option<(&str, &str)>) -> bool {
        let Some(waiter) = self.mailbox.ended(row) else {
            return false;
        };
        let response = answer.map(|(agent, text)| AgentResponse {
            correlation_id: waiter.correlation_id,
            content: text.to_owned(),
            sent_at: self.clock.unix_ms(),
            agent_id: agent.to_owned(),
        });
        waiter.reply.send(response.ok_or(HandRefusal::NoAnswer)).is_ok()
    }

    /// Whether an agent works; `None` if there is no such agent.
    pub(super) fn agent_activity(&self, agent: &str) -> Option<AgentActivity> {
        self.agents.for_job(Some(agent), None)?;
        Some(activity(self.turns.is_agent_running(agent)))
    }

    /// The chat of a session, as far as one is known: the one whose own key the session's begins with.
    fn chat_of(&self, session: &SessionKey) -> Option<(ChatId, ChatFacts)> {
        let key = session.as_str();
        let of_chat = |chat: &ChatId, facts: &ChatFacts| {
            let mut event = MessageEvent {
                source: source(chat, facts, None),
                ..MessageEvent::default()
            };
            let own = self.inbound.session_of(&mut event);
            let rest = key.strip_prefix(own.as_str())?;
            (rest.is_empty() || rest.starts_with(':')).then(|| (own.as_str().len(), rest.to_owned()))
        };
        let (_, rest, chat, facts) = (self.chats.all())
            .filter_map(|(chat, facts)| {
                let (length, rest) = of_chat(chat, facts)?;
                Some((length, rest, chat, facts))
            })
            .max_by_key(|(length, ..)| *length)?;
        let thread = facts.thread_id.clone();
        let in_thread = thread.filter(|thread| rest.split(':').any(|part| part == thread));
        let facts = ChatFacts {
            message_id: None,
            thread_id: in_thread,
            ..facts.clone()
        };
        Some((chat.clone(), facts))
    }

    /// A delivery as if it had been written in the session's chat.
    fn delivery_event(&self, session: &SessionKey, text: &str) -> MessageEvent {
        let source = match self.chat_of(session) {
            Some((chat, facts)) => source(&chat, &facts, facts.thread_id.as_deref()),
            None => SessionSource::default(),
        };
        MessageEvent {
            text: Some(Scalar::from(text)),
            source,
            ..MessageEvent::default()
        }
    }
}

fn decode(row: &InboxRow) -> Option<DeliveryLine> {
    serde_json::from_slice(row.line.as_deref()?).ok()
}

fn source(chat: &ChatId, facts: &ChatFacts, thread: Option<&str>) -> SessionSource {
    let text = |text: Option<&str>| text.map(Scalar::from);
    SessionSource {
        platform: Platform::from_wire(&chat.platform),
        chat_id: text(Some(&chat.chat)),
        chat_type: text(facts.chat_type.as_deref()),
        scope_id: text(facts.scope_id.as_deref()),
        profile: text(facts.profile.as_deref()),
        thread_id: text(thread),
        ..SessionSource::default()
    }
}

fn receipt(dispatch_id: String, received_at: i64, session: Option<String>) -> DeliveryReceipt {
    DeliveryReceipt {
        delivered_at: received_at,
        delivery_id: Some(dispatch_id),
        session_id: session,
        ..DeliveryReceipt::default()
    }
}
