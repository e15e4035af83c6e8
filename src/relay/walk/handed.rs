//! What differs for an item that a program hands over: how it is submitted, and who gets its answer.
//!
//! A submission is answered only once it is committed. An item that is a turn is a row of the inbox like a message, for an agent
//! that its sender named: it waits for its session, can be stopped, and after a crash it runs if no agent had been given it. Its
//! answer goes to the session's chat, or to the target in the settings if it has none. An item that is context waits for the
//! session's next turn.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::agent_connector::DispatchRoute;
use crate::agent_connector::contract::{AgentActivity, DeliveryKind, DeliveryReceipt};
use crate::relay::effects::{
    Accepting, AgentWaiter, Effects, HandedTask, Pending, Place, PlaceKey, Submission, Task, Work,
};
use crate::relay::event_loop::EventLoop;
use crate::relay::ops::{DurableOps, OpGroup};
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::access::Starter;
use crate::relay::parts::agents::Selection;
use crate::relay::parts::handed::{HandedItem, ResponseWaiter, SubmissionReply, SubmitError, activity};
use crate::relay::parts::turn_task::TurnReport;
use crate::relay::parts::turns::EndedTurn;
use crate::relay::spans::MessageSpan;
use crate::session::{Admission, StopReason, TurnId};
use crate::store::{
    Command, HandedBody, HandedCommand, HandedReply, InboxKind, InboxRow, InboxSeq, MAX_CONTEXT_BYTES,
    NewHandedItem, PendingContext, RowState,
};
use crate::wire::SessionKey;

use super::command::route_input;
use super::turn::{LeftTurn, ReplyPlace};
use super::turn_end::whole_answer;

/// An item as its row keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ItemLine {
    agent: String,
    text: String,
    /// Where its answer goes if the session has no chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deliver: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    wake: bool,
    /// The sender's own fields, for those who look into the journal.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    meta: Map<String, Value>,
}

impl ItemLine {
    fn decode(row: &InboxRow) -> Option<Self> {
        serde_json::from_slice(row.line.as_deref()?).ok()
    }

    fn into_task(self) -> Task {
        Task::Handed(Box::new(HandedTask {
            agent: self.agent,
            text: self.text,
            deliver: self.deliver,
            is_collected: false,
            mark: None,
        }))
    }
}

impl Submission {
    /// Whether the item is a turn of its own.
    fn is_turn(&self) -> bool {
        self.item.wake
            || self.item.payload.kind == DeliveryKind::Template
            || matches!(self.reply, SubmissionReply::Response(_))
    }

    /// How the item came.
    fn route(&self) -> DispatchRoute {
        match (&self.reply, self.item.wake) {
            (SubmissionReply::Response(_), _) => DispatchRoute::RequestResponse,
            (SubmissionReply::Receipt(_), true) => DispatchRoute::Wake,
            (SubmissionReply::Receipt(_), false) => DispatchRoute::Deliver,
        }
    }

    fn dispatch_id(&self) -> &str {
        self.item.payload.meta.dispatch_id()
    }
}

impl EventLoop {
    /// Takes an item for an agent.
    pub fn submit(&mut self, item: HandedItem, reply: SubmissionReply) {
        if !self.lifecycle.is_serving() {
            return reply.refuse(SubmitError::Draining);
        }
        if self.agents.called(&item.agent, None).is_none() {
            return reply.refuse(SubmitError::UnknownAgent);
        }
        let session = match &item.session {
            Some(session) => SessionKey::from_text(session.clone()),
            None => SessionKey::from_text(format!("delivery:{}", item.agent)),
        };
        let submission = Submission {
            item,
            reply,
            received_at: self.clock.unix_ms(),
        };
        let payload = &submission.item.payload;
        let (body, place) = if submission.is_turn() {
            let line = ItemLine {
                agent: submission.item.agent.clone(),
                text: payload.text.clone(),
                deliver: self.settings.deliver.clone(),
                wake: submission.item.wake,
                meta: payload.meta.as_object().clone(),
            };
            let body = HandedBody::Turn(serde_json::to_vec(&line).unwrap_or_default());
            let admission = self.turns.admit(&session);
            if let Admission::Start(turn) = admission {
                let origin = self.item_origin(session.clone(), MessageSpan::new(session.as_str()));
                self.turns.hold_place(turn, Arc::new(origin), line.into_task());
            }
            (body, admission.into())
        } else {
            if payload.text.len() > MAX_CONTEXT_BYTES {
                return submission.reply.refuse(SubmitError::TooLarge);
            }
            let body = HandedBody::Context {
                text: payload.text.clone(),
                meta: serde_json::to_string(payload.meta.as_object()).unwrap_or_default(),
            };
            (body, Place::None)
        };
        let new = NewHandedItem {
            dispatch_id: submission.dispatch_id().to_owned(),
            agent: submission.item.agent.clone(),
            session: session.as_str().to_owned(),
            has_session: submission.item.session.is_some(),
            body,
            now_ms: submission.received_at,
        };
        let accepting = Accepting {
            session,
            place,
            work: Work::Handed(Box::new(submission)),
        };
        let command = Box::new(HandedCommand::Take(new));
        self.effects
            .request(Pending::Accept(Box::new(accepting)), |token| Command::Handed {
                token,
                command,
            });
    }

    /// Where an item belongs: to the operator, in the chat that its session has.
    fn item_origin(&self, session: SessionKey, span: MessageSpan) -> TurnOrigin {
        let source = self.chats.of_session(&session).map(|mut chat| {
            chat.facts.user_id = None;
            self.chats.source(&chat)
        });
        let source = source.unwrap_or_default();
        TurnOrigin::new(session, &source, true, self.access.author(Starter::Program), span)
    }

    /// The item of a row.
    pub fn load_item(&mut self, turn: TurnId, row: &InboxRow) -> Option<(TurnOrigin, Task)> {
        let Some(line) = ItemLine::decode(row) else {
            tracing::error!(
                row = row.seq.0,
                "dropped a journaled item that cannot be read back"
            );
            self.end_unstarted(turn, row.seq, RowState::Failed, "", None);
            return None;
        };
        let session = SessionKey::from_text(Arc::clone(&row.session));
        let span = self.turns.span(turn, &session);
        let origin = self.item_origin(session, span);
        Some((origin, line.into_task()))
    }

    /// The text of an item's row.
    pub fn item_text(row: &InboxRow) -> Option<String> {
        ItemLine::decode(row).map(|line| line.text)
    }

    /// Whether a row is a wake.
    pub fn is_wake(row: &InboxRow) -> bool {
        row.kind == InboxKind::Handed && ItemLine::decode(row).is_some_and(|line| line.wake)
    }

    /// Begins the turn of an item.
    pub fn prepare_item(&mut self, turn: TurnId, row: InboxSeq, origin: &TurnOrigin, agent: &str) {
        match self.item_agent(&origin.session, agent) {
            Err(place) => self.read_project(place, AgentWaiter::Turn(turn)),
            Ok(Some(selection)) => self.begin_turn(turn, selection),
            Ok(None) => {
                tracing::warn!(agent, "an item was handed over for an agent that is gone");
                self.end_unstarted(turn, row, RowState::Failed, "", None);
            }
        }
    }

    /// The agent of an item, on the terms that the chat of its session has for it; the place whose project is to be read first.
    pub fn item_agent(&self, session: &SessionKey, agent: &str) -> Result<Option<Selection>, PlaceKey> {
        let chat = self.chats.terms_of_session(session);
        let input = chat.as_ref().map(route_input);
        match input.as_ref().and_then(|input| self.agents.unknown_place(input)) {
            Some(place) => Err(place),
            None => Ok(self.agents.called(agent, input.as_ref())),
        }
    }

    /// Reads the context that waits, at the start.
    pub fn read_contexts(effects: &mut Effects) {
        change_items(HandedCommand::Contexts, effects);
    }

    /// The journal has answered about a submission.
    pub fn handle_submission_reply(&mut self, accepting: Accepting, reply: HandedReply) {
        let Accepting {
            session,
            place,
            work: Work::Handed(submission),
        } = accepting
        else {
            return self.waiter_mismatched(Pending::Accept(Box::new(accepting)));
        };
        match reply {
            HandedReply::Stored(row) => self.item_stored(&session, place, *submission, row),
            HandedReply::Known {
                agent,
                received_at,
                session: named,
            } => {
                self.turns.release(&session, place);
                if agent != submission.item.agent {
                    return submission.reply.refuse(SubmitError::OtherAgent);
                }
                self.note_item(&session, &submission, true);
                let id = submission.dispatch_id().to_owned();
                match submission.reply {
                    SubmissionReply::Receipt(reply) => drop(reply.send(Ok(receipt(id, received_at, named)))),
                    // Whoever asked first gets the answer.
                    SubmissionReply::Response(reply) => drop(reply.send(Err(SubmitError::NoAnswer))),
                }
            }
            HandedReply::Full => {
                self.turns.release(&session, place);
                submission.reply.refuse(SubmitError::Full);
            }
            HandedReply::Contexts(_) | HandedReply::Done => {
                let work = Work::Handed(submission);
                let accepting = Accepting { session, place, work };
                self.waiter_mismatched(Pending::Accept(Box::new(accepting)));
            }
        }
    }

    /// The journal has answered about items that wait or are over.
    pub fn handle_items_reply(&mut self, reply: HandedReply) {
        match reply {
            HandedReply::Contexts(contexts) => {
                for context in contexts {
                    self.handed.add(context);
                }
            }
            HandedReply::Done => {}
            HandedReply::Stored(_) | HandedReply::Known { .. } | HandedReply::Full => {
                tracing::error!("the journal stored an item that nobody submitted");
            }
        }
    }

    fn note_item(&mut self, session: &SessionKey, submission: &Submission, is_duplicate: bool) {
        let noted = (submission.received_at, is_duplicate);
        self.handed
            .note(&submission.item, session.as_str(), submission.route(), noted);
    }

    /// An item is stored; the row of its turn, if it is one.
    pub fn item_stored(
        &mut self,
        session: &SessionKey,
        place: Place,
        submission: Submission,
        row: Option<InboxSeq>,
    ) {
        self.note_item(session, &submission, false);
        if let Some(row) = row {
            // Before anybody has a receipt.
            self.handed.expect(row);
        }
        let id = submission.dispatch_id().to_owned();
        let Submission {
            item,
            reply,
            received_at,
        } = submission;
        tracing::info!(
            agent = item.agent,
            session = session.as_str(),
            kind = item.payload.kind.as_str(),
            wake = item.wake,
            "took an item for an agent"
        );
        match (reply, row) {
            (SubmissionReply::Receipt(reply), _) => {
                drop(reply.send(Ok(receipt(id.clone(), received_at, item.session.clone()))));
            }
            (SubmissionReply::Response(reply), Some(row)) => {
                let correlation_id = item.payload.meta.correlation_id().unwrap_or(&id).to_owned();
                let waiter = ResponseWaiter {
                    correlation_id,
                    reply,
                };
                self.handed.wait(row, waiter);
            }
            (SubmissionReply::Response(reply), None) => drop(reply.send(Err(SubmitError::NoAnswer))),
        }
        match (row, place) {
            (None, _) => self.handed.add(PendingContext {
                dispatch_id: id,
                session: session.as_str().to_owned(),
                agent: item.agent,
                text: item.payload.text,
            }),
            // Whoever has a receipt has it before the turn is marked as running: a crash in between loses nothing.
            (Some(row), Place::Turn(turn)) => {
                let now_ms = self.clock.unix_ms();
                self.turns.start_stored(turn, row, now_ms, &mut self.effects);
            }
            (Some(row), Place::Queue(met)) if item.wake => {
                self.messages.learn_gist(row, &item.payload.text);
                self.turns.enqueue_wake(session, row);
                // A turn that began since it came is not stopped.
                if met.is_some() {
                    self.stop_turn(session, met, StopReason::Woken);
                }
            }
            (Some(row), Place::Queue(_) | Place::Change | Place::None) => {
                self.messages.learn_gist(row, &item.payload.text);
                self.turns.enqueue(session, row);
            }
        }
    }

    /// An item's turn was running when an earlier process ended. It runs again if no agent had been given it, or if that does
    /// no harm.
    pub fn left_item(&mut self, row: &InboxRow) -> LeftTurn {
        let session = SessionKey::from_text(Arc::clone(&row.session));
        let line = ItemLine::decode(row);
        LeftTurn {
            may_read: true,
            is_repeatable: line.is_some() && (row.repeatable || self.handed.is_left(row.seq)),
            reply_to: match (
                self.chats.of_session(&session),
                line.and_then(|line| line.deliver),
            ) {
                (Some(chat), _) => ReplyPlace::Chat(session, chat),
                (None, Some(deliver)) => ReplyPlace::Targets(session, deliver),
                (None, None) => ReplyPlace::Nowhere,
            },
        }
    }

    /// A turn is over that may have been given context. Context that the agent has answered is done with; other context waits
    /// for the session's next turn, also after a crash.
    pub fn settle_contexts(&mut self, turn: TurnId, has_answered: bool) {
        let ids = self.handed.settle(turn, has_answered);
        if !ids.is_empty() {
            change_items(HandedCommand::Taken(ids), &mut self.effects);
        }
    }

    /// The turn of an item has ended: the program that waits gets the answer, and so does the chat or the target in the
    /// settings. One that has not begun before the relay stops runs at the next start.
    pub fn finish_item(&mut self, ended: EndedTurn, report: Box<TurnReport>) {
        let Task::Handed(item) = &ended.task else {
            return self.show_end(ended, report);
        };
        let now_ms = self.clock.unix_ms();
        if ended.outcome == RowState::Interrupted && item.is_unbegun() {
            self.handed.answer(ended.row, None, now_ms);
            return change_items(HandedCommand::PutBack(ended.row), &mut self.effects);
        }
        if !item.is_collected {
            self.handed.answer(ended.row, None, now_ms);
            return self.show_end(ended, report);
        }
        let text = report.collected.trim();
        let origin = &ended.origin;
        let language = self.language(&origin.chat);
        let shown = whole_answer(text, report.truncated, ended.notice.as_deref(), language);
        // An agent that said nothing may have declined: who waits learns that, too.
        let content = if text.is_empty() { &shown } else { text };
        let answer = (ended.outcome == RowState::Done).then_some((&*ended.agent, content));
        let is_answered = self.handed.answer(ended.row, answer, now_ms);
        let ops = if shown.is_empty() {
            DurableOps::new()
        } else if origin.has_chat() {
            let group = OpGroup::Message(ended.row);
            self.plan_text(&shown, &origin.session, &origin.chat, group)
        } else if let Some(deliver) = item.deliver.clone().filter(|_| !is_answered) {
            self.plan_deliver(&deliver, &origin.session, &shown)
        } else {
            DurableOps::new()
        };
        self.end_row(ended.row, ended.outcome, ops, None);
    }

    /// Whether an agent works; `None` if there is no such agent.
    pub fn agent_activity(&self, agent: &str) -> Option<AgentActivity> {
        self.agents.called(agent, None)?;
        Some(activity(self.turns.is_agent_running(agent)))
    }
}

/// Asks the journal for a change of items that nobody waits for.
fn change_items(command: HandedCommand, effects: &mut Effects) {
    effects.request(Pending::Handed, |token| Command::Handed {
        token,
        command: Box::new(command),
    });
}

fn receipt(dispatch_id: String, received_at: i64, session: Option<String>) -> DeliveryReceipt {
    DeliveryReceipt {
        delivered_at: received_at,
        delivery_id: Some(dispatch_id),
        session_id: session,
        ..DeliveryReceipt::default()
    }
}
