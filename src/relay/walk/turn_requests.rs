//! Requests of running turns: ops to show, questions to ask, files to send, state to keep.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::access::Author;
use crate::adapter::ChatId;
use crate::adapter::media::OutgoingAttachment;
use crate::adapter::stream::{OpOutcome, Priority};
use crate::agent::{PromptAnswer, Question};
use crate::relay::effects::Pending;
use crate::relay::event_loop::EventLoop;
use crate::relay::ops::{DurableOps, EphemeralOp, OpBody, OpGroup, OpOwner};
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::access::{AccessControl, Starter};
use crate::relay::parts::agents::state_key;
use crate::relay::parts::approvals::{
    Approvals, Asker, AskerStanding, Asking, KeptTurn, OwnerChat, Questioner,
};
use crate::relay::parts::turn_task::TurnRequest;
use crate::relay::voice::voice_key;
use crate::session::TurnId;
use crate::store::{Command, InboxSeq};
use crate::wire::Action;

/// The least time that the answer to an op is waited for.
const MIN_OP_TIMEOUT: Duration = Duration::from_millis(50);
/// How long the renaming of a thread may keep what is behind it in its chat.
const RENAME_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of what an agent may save for a session.
const MAX_STATE_BYTES: usize = 1024 * 1024;

impl EventLoop {
    pub fn handle_turn_request(&mut self, turn: TurnId, request: TurnRequest) {
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
                let adapter = self.adapters.get(&origin.chat.id.platform);
                let timeout = op.deadline.map(|at| at.saturating_sub(now).max(MIN_OP_TIMEOUT));
                let ephemeral = EphemeralOp {
                    id: op.id,
                    body: OpBody::new(&adapter, origin.chat.id.key().into(), &op.action),
                    priority: op.priority,
                    timeout,
                    owner: OpOwner::Turn(turn, outcomes),
                };
                let live = self.link.is_live();
                self.outbox.queue(ephemeral, live, now, &mut self.effects);
            }
            TurnRequest::Withdraw(outcomes) => self.outbox.drop_reported_to(&outcomes),
            TurnRequest::Ask(question, reply) => self.ask(turn, &origin, *question, reply),
            TurnRequest::Shown(half) => {
                let shown = half.and_then(|half| serde_json::to_vec(&half).ok());
                if let Some(seq) = self.turns.row_of(turn) {
                    self.effects.write(Command::SetShown { seq, shown });
                }
            }
            TurnRequest::SaveState(state) => self.save_state(turn, state),
            TurnRequest::LoadVoice(reply) => {
                // A message outside threads has what was set for the chat, and its thread keeps that.
                let of_chat = self.chats.session_of_chat(&origin.chat);
                let of_chat = of_chat.filter(|_| self.turns.is_message(turn));
                let read = voice_key(of_chat.as_ref().unwrap_or(&origin.session));
                let kept = vec![Arc::clone(&read), voice_key(&origin.session)];
                self.effects
                    .request(Pending::Voice(kept, reply), |token| Command::LoadResume {
                        token,
                        session: read,
                    });
            }
            TurnRequest::LoadState(reply) => {
                if let (Some(agent), Some(key)) = (self.turns.agent_name(turn), self.turns.conversation(turn))
                {
                    let session = state_key(key, agent);
                    self.effects
                        .request(Pending::AgentState(reply), |token| Command::LoadResume {
                            token,
                            session,
                        });
                }
            }
            TurnRequest::Title(title) => {
                self.entitle_conversation(&origin, &title);
                if let Some(action) = self.chats.entitle_thread(&self.adapters, &origin, &title) {
                    self.queue_rename(&origin.chat.id, &action, Priority::Indicator);
                }
            }
            TurnRequest::Attach(attachments, queued) => {
                let row = self.turns.row_of(turn);
                if let Some(row) = row.filter(|_| !self.turns.is_turn_declined(turn)) {
                    let ops = self.plan_attachments(&attachments, &origin, row);
                    self.add_ops(ops, Some(queued));
                }
            }
        }
    }

    /// Queues the op that renames a thread of a chat.
    pub fn queue_rename(&mut self, chat: &ChatId, action: &Action, priority: Priority) {
        let adapter = self.adapters.get(&chat.platform);
        let op = EphemeralOp {
            id: self.outbox.next_id(),
            body: OpBody::new(&adapter, chat.key().into(), action),
            priority,
            timeout: Some(RENAME_TIMEOUT),
            owner: OpOwner::Nobody,
        };
        let (live, now) = (self.link.is_live(), self.clock.mono());
        self.outbox.queue(op, live, now, &mut self.effects);
    }

    /// Puts the question of a turn to whoever may decide it.
    fn ask(
        &mut self,
        turn: TurnId,
        origin: &TurnOrigin,
        mut question: Question,
        reply: oneshot::Sender<PromptAnswer>,
    ) {
        if !self.turns.may_ask(turn) || reply.is_closed() {
            let _ = reply.send(PromptAnswer::Cancelled);
            return;
        }
        let now = self.clock.mono();
        let from = asker(&self.access, &origin.author);
        let asking = Asking {
            turn,
            session: origin.session.clone(),
            chat: Arc::clone(&origin.chat),
            personal: origin.personal,
            is_quiet: self.is_quiet(&origin.chat),
            kept: self.kept_turn(turn, question.resume.take()),
        };
        match self.approvals.standing(from) {
            AskerStanding::Denied => {
                let (title, now_ms) = (Approvals::deny(question, reply), self.clock.unix_ms());
                self.access
                    .record_question(&origin.author, "denied", &title, "role", now_ms);
            }
            AskerStanding::Once | AskerStanding::Always => {
                let adapter = self.adapters.get(&origin.chat.id.platform);
                let effects = &mut self.effects;
                self.approvals
                    .ask(&asking, from, question, reply, &adapter, now, effects);
            }
            AskerStanding::OwnerDecides => {
                let owner = self.owner_chat(&origin.author.platform);
                let job = |run| self.scheduler.run(run).map(|run| run.job.name());
                let questioner = Questioner::of(&origin.author, self.turns.task(turn), job);
                let (adapters, effects) = (&self.adapters, &mut self.effects);
                let asked = self.approvals.ask_owner(
                    &asking,
                    (questioner, owner),
                    question,
                    reply,
                    adapters,
                    now,
                    effects,
                );
                let now_ms = self.clock.unix_ms();
                let (decision, reason) = asked.recorded;
                self.access
                    .record_question(&origin.author, decision, &asked.title, reason, now_ms);
                self.notify(asked.notice, &origin.session, &origin.chat);
            }
        }
    }

    /// What the next process takes a turn up from, if its agent can.
    fn kept_turn(&self, turn: TurnId, state: Option<String>) -> Option<KeptTurn> {
        let state = state.filter(|_| self.turns.is_message(turn))?;
        let agent = self.turns.agent_name(turn)?;
        self.agents.resumes(agent).then_some(KeptTurn {
            row: self.turns.row_of(turn)?.0,
            agent: agent.to_string(),
            state,
        })
    }

    /// The direct chat of an owner who has written in it, preferably on this platform.
    pub fn owner_chat(&self, platform: &str) -> Option<OwnerChat> {
        let access = &self.access;
        let owners = (self.chats).direct(|source| access.is_owner(&access.author(Starter::Message(source))));
        let chat = OwnerChat::best(owners, platform)?;
        Some(OwnerChat {
            session: self.chats.session(&chat),
            is_quiet: self.is_quiet(&chat),
            chat,
        })
    }

    fn plan_attachments(
        &mut self,
        attachments: &[OutgoingAttachment],
        origin: &TurnOrigin,
        row: InboxSeq,
    ) -> DurableOps {
        let adapter = self.adapters.get(&origin.chat.id.platform);
        let attachments: Vec<&OutgoingAttachment> = attachments.iter().collect();
        let mut actions = adapter.attachments(&attachments, &origin.chat.id, &origin.chat.facts);
        self.hush(&mut actions, &origin.chat);
        let group = OpGroup::Message(row);
        let session = origin.session.shared();
        self.outbox.plan(
            &adapter,
            &session,
            &origin.chat.id,
            &actions,
            group,
            &origin.span.get(),
        )
    }

    fn save_state(&mut self, turn: TurnId, state: Vec<u8>) {
        let agent = self
            .turns
            .agent_name(turn)
            .filter(|_| self.turns.keeps_state(turn));
        let (Some(agent), Some(key)) = (agent, self.turns.conversation(turn)) else {
            return;
        };
        let session = state_key(key, agent);
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
}

/// The author of a turn that asks, as the rules have them now.
pub fn asker(access: &AccessControl, author: &Author) -> Asker {
    Asker {
        is_owner: access.is_owner(author),
        may_answer: access.may_answer(author),
        is_direct: author.direct,
        has_rules: access.is_active(),
    }
}
