//! Ops on their way out, their results, and what parts ask of each other.

use std::sync::Arc;
use std::time::Duration;

use smol_str::SmolStr;
use tokio::sync::oneshot;

use crate::adapter::prompt::PromptOp;
use crate::adapter::stream::{DurableAction, HalfWritten, OpOutcome, Priority};
use crate::adapter::{Chat, ChatId};
use crate::cron::target::{self, Target};
use crate::link::SendResult;
use crate::relay::effects::{Effect, Pending};
use crate::relay::event_loop::{EventLoop, adapters};
use crate::relay::handle::SendError;
use crate::relay::ops::{DurableOps, EphemeralOp, OpBody, OpGroup, OpOwner};
use crate::relay::parts::outbox::OpsCommit;
use crate::relay::transport::LinkStatus;
use crate::store::{Command, Health};
use crate::wire::{Action, OpId, SessionKey};
use crate::words::PhraseKey;

use super::turn::ReplyPlace;

/// How long an indicator at the end of a turn may delay what comes after it.
const FINAL_INDICATOR_TIMEOUT: Duration = Duration::from_millis(1500);

/// Planning and queueing.
impl EventLoop {
    /// Durable ops that deliver a text to a chat.
    pub fn plan_text(&mut self, text: &str, session: &SessionKey, chat: &Chat, group: OpGroup) -> DurableOps {
        let adapter = self.adapters.get(&chat.id.platform);
        let mut actions = adapter.reply(text, &chat.id, &chat.facts);
        self.hush(&mut actions, chat);
        self.plan_actions(&actions, session, &chat.id, group)
    }

    /// Durable ops of no turn's span.
    pub fn plan_actions(
        &mut self,
        actions: &[DurableAction],
        session: &SessionKey,
        chat: &ChatId,
        group: OpGroup,
    ) -> DurableOps {
        let adapter = self.adapters.get(&chat.platform);
        let span = tracing::Span::none();
        self.outbox
            .plan(&adapter, &session.shared(), chat, actions, group, &span)
    }

    /// Durable ops that say something of the relay's own to a chat, in its reader's language.
    pub fn plan_words(
        &mut self,
        english: &str,
        session: &SessionKey,
        chat: &Chat,
        group: OpGroup,
    ) -> DurableOps {
        let text = self.language(chat).reword(english);
        self.plan_text(&text, session, chat, group)
    }

    /// Ops that close a message which an earlier process left half-written.
    pub fn plan_half_written(
        &mut self,
        half: &HalfWritten,
        notice: Option<&str>,
        session: &SessionKey,
        chat: &Chat,
        group: OpGroup,
    ) -> DurableOps {
        let adapter = self.adapters.get(&chat.id.platform);
        let notice = notice.map(|notice| adapter.language(&chat.facts).reword(notice));
        let actions = adapter.close_half_written(half, notice.as_deref(), &chat.id, &chat.facts);
        self.plan_actions(&actions, session, &chat.id, group)
    }

    /// Ops that deliver a text of a session to targets.
    pub fn plan_targets(&mut self, targets: &[Target], session: &SessionKey, text: &str) -> DurableOps {
        let mut ops = DurableOps::new();
        for target in targets {
            let chat = self.chats.of_target(target);
            let group = self.outbox.notice_group();
            ops.extend(self.plan_text(text, session, &chat, group));
        }
        ops
    }

    /// Ops that deliver a text to the targets in the settings, for sessions without a chat.
    pub fn plan_deliver(&mut self, deliver: &str, session: &SessionKey, text: &str) -> DurableOps {
        let home_channels = &self.scheduler.settings().home_channels;
        let (targets, error) = target::targets(deliver, None, home_channels);
        if let Some(error) = error {
            tracing::warn!(
                error,
                "cannot send the answer of a handed-over item to all of `serve.receiver.deliver`"
            );
        }
        self.plan_targets(&targets, session, text)
    }

    /// Ops that tell people what became of a turn.
    pub fn plan_reply(&mut self, place: &ReplyPlace, text: &str, group: OpGroup) -> DurableOps {
        match place {
            ReplyPlace::Chat(session, chat) => self.plan_words(text, session, chat, group),
            ReplyPlace::Targets(session, deliver) => self.plan_deliver(deliver, session, text),
            ReplyPlace::Nowhere => DurableOps::new(),
        }
    }

    /// Says something of the relay's own to a chat that answers none of its messages.
    pub fn notify(&mut self, text: &str, session: &SessionKey, chat: &Chat) {
        let group = self.outbox.notice_group();
        let ops = self.plan_words(text, session, chat, group);
        self.add_ops(ops, None);
    }

    /// Journals ops outside a turn's end; `reply` learns when they are committed.
    pub fn add_ops(&mut self, ops: DurableOps, reply: Option<oneshot::Sender<Result<(), SendError>>>) {
        let inbox = ops.first().and_then(|op| op.answers());
        let rows = ops.iter().map(|op| op.to_row()).collect();
        let now_ms = self.clock.unix_ms();
        let token = self
            .effects
            .request(Pending::Ops(reply), |token| Command::AddOps {
                token,
                inbox,
                ops: rows,
                now_ms,
            });
        self.outbox.hold_uncommitted(OpsCommit::Token(token), ops, None);
    }

    /// The last indicators of a turn.
    pub fn send_indicators(&mut self, chat: &ChatId, actions: &[Action]) {
        self.queue_indicators(chat, actions, || OpOwner::Nobody);
    }

    pub fn queue_indicators(&mut self, chat: &ChatId, actions: &[Action], owner: impl Fn() -> OpOwner) {
        let adapter = self.adapters.get(&chat.platform);
        let lane: Arc<str> = chat.key().into();
        for action in actions {
            let op = EphemeralOp {
                id: self.outbox.next_id(),
                body: OpBody::new(&adapter, Arc::clone(&lane), action),
                priority: Priority::Indicator,
                timeout: Some(FINAL_INDICATOR_TIMEOUT),
                owner: owner(),
            };
            self.outbox.queue_in_order(op, self.link.is_live());
        }
    }
}

/// Results and effects.
impl EventLoop {
    pub fn handle_result(&mut self, op: OpId, result: SendResult) {
        let (live, now) = (self.link.is_live(), self.clock.now());
        self.outbox.on_result(op, result, live, now, &mut self.effects);
    }

    /// Carries the parts' effects to the others, until none are left. The loop calls it after every event.
    pub fn run_effects(&mut self) {
        while let Some(effect) = self.effects.next() {
            match effect {
                Effect::Send(op) => self.link.submit(op),
                Effect::Acknowledge(generation, buffer_id) => self.link.acknowledge(generation, buffer_id),
                Effect::Queue(op) => {
                    let (live, now) = (self.link.is_live(), self.clock.mono());
                    self.outbox.queue(op, live, now, &mut self.effects);
                }
                Effect::Deliver(op) => self.deliver_about(*op),
                Effect::Withdraw(op) => self.outbox.withdraw(op),
                Effect::QuestionOp(question, prompt, result) => {
                    let (now, effects) = (self.clock.mono(), &mut self.effects);
                    self.approvals
                        .op_finished(question, prompt, &result, &self.adapters, now, effects);
                    if let Some(session) = self.approvals.visible_in(question) {
                        self.pickers.passed(session);
                    }
                }
                Effect::QuestionOpRenamed(question, op) => self.approvals.op_renamed(question, op),
                Effect::Declined(group) => self.decline(group),
                Effect::Undelivered {
                    chat,
                    thread,
                    session,
                    reason,
                    notify,
                } => {
                    if notify {
                        self.notify_undelivered(&chat, thread, &session);
                    }
                    self.job_undelivered(&chat, &session, &reason);
                }
                Effect::TurnDeclined(turn) => {
                    if let Some(row) = self.turns.row_of(turn) {
                        self.decline(OpGroup::Message(row));
                    }
                }
                Effect::DropWaiting {
                    session,
                    row,
                    done,
                    end,
                } => {
                    let op = if self.drop_waiting(&session, row) {
                        end.done(&done)
                    } else {
                        let language = end.language();
                        end.not_done(language.plain(PhraseKey::NotWaiting))
                    };
                    self.deliver_about(op);
                }
                Effect::PairingDecided { code, approved, end } => {
                    let op = self.decide_pairing(code, approved, *end);
                    self.deliver_about(op);
                }
                Effect::ThreadOpened { chat, thread, name } => {
                    let renamed = self.chats.thread_opened(&self.adapters, &chat, thread, name);
                    if let Some((chat, action)) = renamed {
                        // Right after an answer a chat is busy, which an indicator would not survive.
                        self.queue_rename(&chat, &action, Priority::Text);
                    }
                }
                Effect::GroupThread(key, thread) => self.thread_answered(key, thread),
            }
        }
    }

    /// Delivers an op about a question, whether there is a connection or not.
    pub fn deliver_about(&mut self, op: PromptOp) {
        let actions = [DurableAction::from(op.action)];
        let group = self.outbox.notice_group();
        let ops = self.plan_actions(&actions, &op.session, &op.chat, group);
        self.add_ops(ops, None);
    }

    /// Notifies a chat, in the thread of the answer, that an answer was not delivered. If the notice is not delivered either, the log
    /// and the journal show it.
    fn notify_undelivered(&mut self, chat: &str, thread_id: Option<SmolStr>, session: &Arc<str>) {
        let known = ChatId::from_key(chat).and_then(|chat| self.chats.known(chat));
        if let (Some(notice), Some(mut chat)) = (self.settings.undelivered_notice.clone(), known) {
            let session = SessionKey::from_text(Arc::clone(session));
            // Somebody else may have written in another thread since.
            chat.facts.thread_id = thread_id;
            self.notify(&notice, &session, &chat);
        }
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
}

/// The link and the journal's health.
impl EventLoop {
    pub fn handle_link(&mut self, status: LinkStatus) {
        let now = self.clock.now();
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.on_link(&status, now);
        }
        let change = self.link.changed(status, now.unix_ms);
        if change.connection {
            self.outbox.disconnected();
        }
        if change.descriptors {
            self.adapters = adapters(&self.settings, self.link.status());
            for (platform, _) in self.link.status().descriptors.iter() {
                self.chats.add_platform(platform);
            }
        }
        if change.connection && self.link.is_live() {
            self.outbox.connected();
        }
        if change.connection || change.descriptors {
            self.put_away_left();
        }
    }

    pub fn handle_health(&mut self, health: Health) {
        if health == Health::Ok {
            self.take_kept();
        }
        if self.journal.on_health(health) {
            self.lifecycle.plan_reconnect(self.clock.mono());
        }
    }
}
