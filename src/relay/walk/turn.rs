//! The life of a turn: accepted, loaded, prepared, begun, interrupted, finished. It is the same for a message, a run of a job
//! and a handed-over item; where they differ, these functions match on the [`Task`].

use std::sync::Arc;

use crate::adapter::stream::{HalfWritten, ReplyStream, first_draft_id};
use crate::adapter::{Chat, RelayAdapter};
use crate::agent::{Permission, TurnInput};
use crate::cron::target;
use crate::relay::effects::{
    AboutTurn, Accepting, AgentWaiter, CommandCall, OwnMessage, Place, QuietWaiter, SelectedAgent, Task, Work,
};
use crate::relay::event_loop::EventLoop;
use crate::relay::ops::{DurableOps, OpGroup, OpOwner};
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::access::Starter;
use crate::relay::parts::agents::{Selection, Unknown};
use crate::relay::parts::chats::Chats;
use crate::relay::parts::handed::SubmitError;
use crate::relay::parts::messages::{MessageKey, MessageLine};
use crate::relay::parts::slash_commands::{SlashCommand, SlashCommands};
use crate::relay::parts::turn_task::TurnContext;
use crate::relay::parts::turns::{Loaded, decode_row};
use crate::relay::spans::MessageSpan;
use crate::session::TurnId;
use crate::store::{Command, Fault, FaultKind, Health, InboxKind, InboxRow, InboxSeq, RowState};
use crate::wire::{MessageEvent, SessionKey};
use crate::words::PhraseKey;

use super::arrival::event_kind;
use super::turn_requests::asker;

/// Marks a message that came through a Discord interaction.
const INTERACTION: &str = "discord_interaction_id";
/// The capability by which the connector answers such an interaction.
const FOLLOW_UP: &str = "discord.interaction_token";

/// Replaces a half-written answer that is begun again.
const ANSWERING_AGAIN: &str = PhraseKey::AnsweringAgain.english();

/// A turn that an earlier process left running.
pub struct LeftTurn {
    /// Whether running it again does no harm.
    pub is_repeatable: bool,
    /// Whether its author may still read what becomes of it. If not, a half-written message is closed, and that is all.
    pub may_read: bool,
    pub reply_to: ReplyPlace,
}

/// Where people learn what became of a turn.
pub enum ReplyPlace {
    /// The chat of its session.
    Chat(SessionKey, Chat),
    /// Targets in the settings, for a session without a chat.
    Targets(SessionKey, String),
    Nowhere,
}

/// Accepting.
impl EventLoop {
    /// The journal has taken work: it begins, or waits for its session.
    pub fn work_accepted(&mut self, accepting: Accepting, row: InboxSeq) {
        let Accepting { session, place, work } = accepting;
        match work {
            Work::Message(_, arrival) => self.act_on_message(&session, place, arrival, row),
            Work::Job(_) => match place {
                Place::Turn(turn) => self.prepare_turn(turn, row),
                Place::Queue(_) | Place::Change | Place::None => {
                    self.turns.enqueue(&session, row);
                }
            },
            Work::Handed(submission) => self.item_stored(&session, place, *submission, Some(row)),
        }
    }

    /// The journal could not take work: it holds no place any more. A message is not acknowledged, so that it comes again; one that was
    /// kept for its author is kept on.
    pub fn work_rejected(&mut self, accepting: Accepting, fault: &Fault) {
        let Accepting { session, place, work } = accepting;
        self.turns.release(&session, place);
        match work {
            Work::Message(_, arrival) => match arrival.own {
                Some(OwnMessage::Kept(kept)) => self.kept_rejected(*kept, fault),
                Some(OwnMessage::Retried) | None => self.frame_rejected(fault),
            },
            Work::Job(run) => self.fail_run(run, "the journal could not store the run"),
            Work::Handed(submission) => submission.reply.refuse(SubmitError::NotStored),
        }
    }

    /// The journal could not take a frame: it has to come again, unless it would be refused each time.
    pub fn frame_rejected(&mut self, fault: &Fault) {
        self.inbound.count_rejected();
        let health = self.journal.health();
        if fault.kind == FaultKind::Refused && health == Health::Ok {
            // Only this one, and so each time it comes: asking for it right away would never end.
            tracing::error!(%fault, "the journal refuses a message; it is not acknowledged");
        } else {
            self.journal.rejected();
            self.handle_health(health);
        }
    }
}

/// Loading.
impl EventLoop {
    /// A row was read back: its turn goes on, or it is reported as interrupted.
    pub fn row_loaded(&mut self, row: &InboxRow) {
        let turn = match self.turns.loaded(row, &mut self.effects) {
            Loaded::Nothing => return,
            Loaded::Interrupted => return self.turn_interrupted(row),
            Loaded::Turn(turn) => turn,
        };
        let loaded = match row.kind {
            InboxKind::Inbound | InboxKind::Forward => self.load_message(turn, row),
            InboxKind::Job => self.load_run(turn, row),
            InboxKind::Handed => self.load_item(turn, row),
        };
        if let Some((origin, task)) = loaded {
            let now_ms = self.clock.unix_ms();
            self.turns.assign(turn, row, origin, task, now_ms);
            self.prepare_turn(turn, row.seq);
        }
    }

    /// The message of a row. One that is not the agent's, or that its author may not write any more, ends here.
    fn load_message(&mut self, turn: TurnId, row: &InboxRow) -> Option<(TurnOrigin, Task)> {
        let Some(mut event) = decode_row(row, self.chats.labels()) else {
            tracing::error!(
                row = row.seq.0,
                "dropped a journaled message that cannot be read back"
            );
            self.end_unstarted(turn, row.seq, RowState::Failed, "", None);
            return None;
        };
        let session = self.chats.name(&mut event);
        self.note_awaited(row, &event);
        // A message for the relay itself that was not acted on before a restart: what it was about is gone, and it is never
        // the agent's.
        let author = self.access.author(Starter::Message(&event.source));
        let command = self.commands.of(&event);
        let kind = event_kind(row.kind, command.as_ref());
        let now_ms = self.clock.unix_ms();
        // The rules may have changed since it came.
        let is_over =
            event.prompt_response.is_some() || !self.access.decide_again(&author, kind, None, now_ms).allowed;
        if is_over {
            self.end_unstarted(turn, row.seq, RowState::Ignored, "", None);
            return None;
        }
        let span = self.turns.span(turn, &session);
        let personal = self.chats.is_personal(&event.source);
        let origin = TurnOrigin::new(session, &event.source, personal, author, span);
        let own = (command.clone()).filter(|command| !self.takes_turn(command, &origin.chat));
        if let Some(command) = own {
            self.turns.abandon(turn);
            self.run_command(&CommandCall {
                command,
                about: AboutTurn::Forgotten,
                row: row.seq,
                origin: Arc::new(origin),
            });
            return None;
        }
        let key = self.messages.key(&event);
        self.messages.learn(key, &origin.session, row.seq, None);
        if command.is_none() {
            self.set_last(&origin, key, row);
        }
        // A kill may have come between the message and what it tells about its chat.
        self.learn_chat(&origin.chat);
        Some((origin, Task::Message(Some(Box::new(event)))))
    }

    /// The message of a row has its turn, or had it.
    fn set_last(&mut self, origin: &TurnOrigin, key: MessageKey, row: &InboxRow) {
        if let Some(line) = row.line.clone() {
            let message = MessageLine { kind: row.kind, line };
            let turn = (row.seq, row.attempt);
            self.messages.set_last(
                &origin.session,
                (&origin.chat.id, &origin.author),
                key,
                turn,
                message,
            );
        }
    }

    /// The message of a row was read back.
    fn note_awaited(&mut self, row: &InboxRow, event: &MessageEvent) {
        let chat = Chat::from_source(&event.source);
        self.messages.await_answer(row.seq, row.kind, &chat);
    }

    /// Rows of a session that wait were read, because they were not in memory.
    pub fn rows_refilled(&mut self, session: &SessionKey, rows: &[InboxRow], more: &[InboxSeq]) {
        self.learn_rows(session, rows);
        self.turns.refilled(session.clone(), Some((rows, more)));
        for wake in rows.iter().filter(|row| Self::is_wake(row)) {
            self.turns.move_ahead(session, wake.seq);
        }
    }

    /// Learns what rows are that wait, for edits of them and for `/queue`: an earlier process may have taken them.
    pub fn learn_rows(&mut self, session: &SessionKey, rows: &[InboxRow]) {
        for row in rows {
            let is_known = self.messages.gist(row.seq).is_some() || self.turns.is_over(row.seq);
            match row.kind {
                InboxKind::Inbound | InboxKind::Forward => {
                    if is_known && row.kind == InboxKind::Inbound {
                        continue;
                    }
                    let Some(mut event) = decode_row(row, self.chats.labels()) else {
                        continue;
                    };
                    self.chats.name(&mut event);
                    self.note_awaited(row, &event);
                    if !is_known {
                        let key = self.messages.key(&event);
                        self.messages
                            .learn(key, session, row.seq, Some(self.messages.waiting(&event)));
                    }
                }
                InboxKind::Handed if !is_known => {
                    if let Some(text) = Self::item_text(row) {
                        self.messages.learn_gist(row.seq, &text);
                    }
                }
                InboxKind::Handed | InboxKind::Job => {}
            }
        }
    }

    /// Runs a message again that had its turn, because that does no harm, or because somebody asked for it.
    pub fn run_again(&mut self, row: &InboxRow) {
        self.learn_rows(
            &SessionKey::from_text(Arc::clone(&row.session)),
            std::slice::from_ref(row),
        );
        let now_ms = self.clock.unix_ms();
        self.turns.run_again(row, now_ms, &mut self.effects);
    }

    /// A row does not exist: somebody dropped it, or it had ended.
    pub fn row_missing(&mut self, row: InboxSeq) {
        self.turns.missing(row, &mut self.effects);
        self.handed.answer(row, None, self.clock.unix_ms());
    }
}

/// Beginning.
impl EventLoop {
    /// The task of a turn is committed: asks for what it still needs, and begins once that is there.
    pub fn prepare_turn(&mut self, turn: TurnId, row: InboxSeq) {
        let Some((origin, task)) = self.turns.prepare(turn, row) else {
            return;
        };
        match task {
            Task::Message(Some(event)) => {
                if let Some(key) = self.quiet.first_unknown(&origin.author) {
                    return self.load_quiet_hours(key, QuietWaiter::Turn(turn));
                }
                let allowed = self.access.agents(&origin.author);
                match self.agents.select(&origin.session, event, allowed.as_deref()) {
                    Ok(selection) => self.begin_turn(turn, selection),
                    Err(Unknown::Project(place)) => self.read_project(place, AgentWaiter::Turn(turn)),
                    Err(Unknown::NewThread(place)) => self.ask_about_thread(turn, &place),
                    Err(Unknown::Choice) => self.read_choice(origin.session.clone(), AgentWaiter::Turn(turn)),
                }
            }
            Task::Message(None) => {}
            Task::Job(job) => {
                let run = job.run;
                self.prepare_run(turn, run);
            }
            Task::Handed(item) => {
                let agent = item.agent.clone();
                self.prepare_item(turn, row, &origin, &agent);
            }
        }
    }

    /// Something that a turn waited for is there.
    pub fn prepare_again(&mut self, turn: TurnId) {
        if let Some((row, ..)) = self.turns.preparing(turn) {
            self.prepare_turn(turn, row);
        }
    }

    /// Starts the agent of a turn that has everything it needs, if its author may still use it.
    pub fn begin_turn(&mut self, turn: TurnId, mut selection: Selection) {
        if self.awaits_conversations(turn, &selection) {
            return;
        }
        let ran_before = self.turns.ran_before(turn);
        let Some((row, origin, task)) = self.turns.preparing(turn) else {
            return;
        };
        let now_ms = self.clock.unix_ms();
        let agent = Arc::clone(&selection.agent.name);
        let command = turn_command(&self.commands, task);
        let (begins, effects) = ((turn, &*agent), &mut self.effects);
        let is_free = command.is_some() || ran_before;
        let begun = (self.access).begin(&origin.author, begins, is_free, now_ms, effects);
        match begun {
            Ok(role) => selection.agent.restrict(role),
            Err(reason) => {
                if let Task::Job(job) = task {
                    let run = job.run;
                    return self.refuse_run(turn, row, (run, &origin.author), (reason, &agent));
                }
                let notice = self.access.refusal_notice(&origin.author, reason, &agent);
                return self.end_unstarted(turn, row, RowState::Ignored, "", notice);
            }
        }
        let adapter = self.adapters.get(&origin.chat.id.platform);
        let asked = (&selection.agent, asker(&self.access, &origin.author));
        let Ok(resumed) = (self.approvals).begin_restored(row, turn, asked, adapter.holds_answers()) else {
            let notice = self.settings.interrupted_notice.clone();
            return self.end_unstarted(turn, row, RowState::Interrupted, "", notice);
        };
        let has_chat = origin.has_chat();
        let is_message = matches!(task, Task::Message(_));
        if !has_chat && !is_message && selection.agent.permission == Permission::Ask {
            // Nobody could be asked.
            selection.agent.permission = Permission::Deny;
        }
        let (mut collect, mut start_mark, mut is_interaction) = (false, None, false);
        let mut input = match task {
            Task::Message(event) => {
                let event = event.take().unwrap_or_default();
                is_interaction = event.metadata.contains_key(INTERACTION);
                turn_input(*event, selection.text, &adapter)
            }
            Task::Job(job) => {
                collect = true;
                // Every run is a conversation of its own.
                self.agents.forget(&origin.session, None, &mut self.effects);
                let event = empty_event(&self.chats, &origin);
                let prompt = std::mem::take(&mut job.prompt);
                let mut input = turn_input(event, Some(prompt), &adapter);
                let hint = format!("{} {}", adapter.platform_hint(), target::HINT);
                input.origin.hint = hint.trim().into();
                input
            }
            Task::Handed(item) => {
                collect = !has_chat || self.handed.is_awaited(row);
                item.is_collected = collect;
                item.mark = self.handed.mark(row);
                start_mark.clone_from(&item.mark);
                let event = empty_event(&self.chats, &origin);
                turn_input(event, Some(std::mem::take(&mut item.text)), &adapter)
            }
        };
        let is_job = matches!(task, Task::Job(_));
        let (conversation, is_new) = if is_job {
            (origin.session.clone(), false)
        } else {
            let said = command.is_none().then_some(&input.text);
            self.enter_conversation(&origin, &selection.agent, said)
        };
        if !is_job && resumed.is_none() {
            self.note_repeatable(row, &selection.agent);
        }
        if !is_job && resumed.is_none() && command.is_none() {
            // Context waits for the conversation, which a job is not part of, and for a prompt, which a command is not.
            self.add_context((turn, &agent), &origin.session, &mut input);
        }
        let accepts_attachments = !collect && adapter.accepts_attachments();
        let sends_files = accepts_attachments && self.media.is_some();
        let instead = command.and_then(|command| {
            self.instead_of_answer(command, &conversation, &origin, &selection.agent, sends_files)
                .map(Box::new)
        });
        let context = TurnContext {
            resumed,
            stream: Box::new(self.stream(&adapter, &origin, row, is_interaction)),
            collect,
            started: self.clock.mono(),
            clock: self.clock.live(),
            grace: self.settings.grace,
            max_output: self.settings.max_output,
            forgotten: self.agents.pending_forget(&conversation),
            media: self.media.clone(),
            voice: self.voice.clone(),
            accepts_attachments,
            has_albums: adapter.has_albums(),
            start_mark,
            instead,
            shaper: Box::new(self.answer_shaper(&adapter, &origin, sends_files, is_new)),
        };
        self.turns
            .begin(turn, row, selection.agent, input, conversation, context);
    }

    /// Puts what waits for the agent in a session before the text of a turn.
    fn add_context(&mut self, (turn, agent): (TurnId, &str), session: &SessionKey, input: &mut TurnInput) {
        let mut texts = self.handed.give(turn, session.as_str(), agent);
        if !texts.is_empty() {
            texts.push(&input.text);
            input.text = texts.join("\n\n");
        }
    }

    /// Notes that a turn can be run again after a crash: its agent does nothing but answer. Where that holds for every agent, its start
    /// says so.
    fn note_repeatable(&mut self, row: InboxSeq, agent: &SelectedAgent) {
        if !self.agents.are_repeatable() && agent.agent.info().repeatable {
            self.effects.write(Command::SetRepeatable { seq: row });
        }
    }

    /// How a turn's answer is shown in its chat.
    pub fn stream(
        &mut self,
        adapter: &RelayAdapter,
        origin: &TurnOrigin,
        row: InboxSeq,
        is_interaction: bool,
    ) -> ReplyStream {
        adapter.stream_to(
            Arc::clone(&origin.chat),
            origin.session.shared(),
            is_interaction.then(|| FOLLOW_UP.to_owned()),
            first_draft_id(row.0.unsigned_abs()),
            self.outbox.split_ids(),
            self.clock.mono(),
        )
    }

    /// A turn that never ran is over. Its author reads the notice if they wrote a message; the job's targets read why.
    pub fn end_unstarted(
        &mut self,
        turn: TurnId,
        row: InboxSeq,
        outcome: RowState,
        why: &str,
        notice: Option<String>,
    ) {
        self.approvals.abandon_restored(row);
        let origin = self.turns.origin(turn);
        let task = self.turns.abandon(turn);
        let mut ops = DurableOps::new();
        match task {
            Some(Task::Message(_)) => {
                if let (Some(notice), Some(origin)) = (notice, origin) {
                    let group = OpGroup::Message(row);
                    ops = self.plan_words(&notice, &origin.session, &origin.chat, group);
                }
            }
            Some(Task::Job(job)) => self.fail_run(job.run, why),
            Some(Task::Handed(_)) => {
                self.handed.answer(row, None, self.clock.unix_ms());
            }
            None => {}
        }
        self.end_row(row, outcome, ops, None);
    }
}

/// Being interrupted by the end of the process.
impl EventLoop {
    /// A turn was running when an earlier process ended. The agent may have acted, so it is not run again but reported to the
    /// chat, unless running it twice does no harm.
    pub fn turn_interrupted(&mut self, row: &InboxRow) {
        let left = match row.kind {
            // Its claim says what becomes of it.
            InboxKind::Job => return self.end_row(row.seq, RowState::Interrupted, DurableOps::new(), None),
            InboxKind::Inbound | InboxKind::Forward => self.left_message(row),
            InboxKind::Handed => self.left_item(row),
        };
        if let ReplyPlace::Chat(_, known) = &left.reply_to {
            self.turns.leave_shown(known.clone());
            self.put_away_left();
        }
        let shown = row.shown.as_deref();
        let half = shown.and_then(|shown| serde_json::from_slice::<HalfWritten>(shown).ok());
        if left.may_read
            && self.approvals.is_restored(row.seq)
            && let ReplyPlace::Chat(session, known) = &left.reply_to
        {
            if let Some(half) = half {
                // What follows is a message of its own.
                let group = self.outbox.notice_group();
                let ops = self.plan_half_written(&half, None, session, known, group);
                self.add_ops(ops, None);
            }
            let now_ms = self.clock.unix_ms();
            return self.turns.run_again(row, now_ms, &mut self.effects);
        }
        self.approvals.abandon_restored(row.seq);
        if left.is_repeatable && left.may_read {
            if let (Some(mut half), ReplyPlace::Chat(session, known)) = (half, &left.reply_to) {
                // The new answer is a message of its own, and has this text too.
                ANSWERING_AGAIN.clone_into(&mut half.text);
                let group = self.outbox.notice_group();
                let ops = self.plan_half_written(&half, None, session, known, group);
                self.add_ops(ops, None);
            }
            return self.run_again(row);
        }
        self.turns.count_interrupted();
        tracing::warn!(
            row = row.seq.0,
            "a turn was interrupted by the end of the last run"
        );
        let notice = self.settings.interrupted_notice.clone();
        let notice = notice.filter(|_| left.may_read);
        let group = OpGroup::Message(row.seq);
        let ops = match (&left.reply_to, half, notice) {
            (ReplyPlace::Chat(session, known), Some(half), notice) => {
                self.plan_half_written(&half, notice.as_deref(), session, known, group)
            }
            (place, _, Some(notice)) => self.plan_reply(place, &notice, group),
            (_, _, None) => DurableOps::new(),
        };
        self.end_row(row.seq, RowState::Interrupted, ops, None);
    }

    /// Puts away what turns of an earlier process have shown of their running, once there is a connection and it is known what the
    /// platforms can do. From there on the outbox keeps it, also when the connection ends before it is answered.
    pub fn put_away_left(&mut self) {
        if !self.link.is_live() {
            return;
        }
        for chat in self.turns.take_left_shown(&self.link.status().undescribed) {
            let actions = self
                .adapters
                .get(&chat.id.platform)
                .left_indicators(&chat.id, &chat.facts);
            self.queue_indicators(&chat.id, &actions, || OpOwner::LeftTurn);
        }
    }

    /// The message of a turn that ended with an earlier process is the last of its author, who reads that they should ask again. Returns
    /// where it belongs.
    pub fn remember_left(&mut self, row: &InboxRow) -> Option<TurnOrigin> {
        let mut event = decode_row(row, self.chats.labels())?;
        let session = self.chats.name(&mut event);
        let author = self.access.author(Starter::Message(&event.source));
        let origin = TurnOrigin::new(session, &event.source, false, author, MessageSpan::default());
        if self.commands.of(&event).is_none() {
            self.set_last(&origin, self.messages.key(&event), row);
        }
        Some(origin)
    }

    fn left_message(&mut self, row: &InboxRow) -> LeftTurn {
        let Some(origin) = self.remember_left(row) else {
            return LeftTurn {
                is_repeatable: false,
                may_read: false,
                reply_to: ReplyPlace::Nowhere,
            };
        };
        self.messages.await_answer(row.seq, row.kind, &origin.chat);
        let chat = Chat::clone(&origin.chat);
        LeftTurn {
            is_repeatable: row.repeatable,
            may_read: self.access.may_talk(&origin.author),
            reply_to: ReplyPlace::Chat(origin.session, chat),
        }
    }
}

/// The command that a turn answers in place of its agent.
fn turn_command(commands: &SlashCommands, task: &Task) -> Option<SlashCommand> {
    let Task::Message(Some(event)) = task else {
        return None;
    };
    commands.of(event).filter(SlashCommand::is_for_agent)
}

/// A message of nobody, in the chat of a turn.
fn empty_event(chats: &Chats, origin: &TurnOrigin) -> MessageEvent {
    MessageEvent {
        source: chats.source(&origin.chat),
        ..MessageEvent::default()
    }
}

/// What an agent learns of a message, with what the platform says of itself.
pub fn turn_input(event: MessageEvent, text: Option<String>, adapter: &RelayAdapter) -> TurnInput {
    let mut input = TurnInput::from_event(event);
    if let Some(text) = text {
        input.text = text;
    }
    input.origin.hint = adapter.platform_hint().into();
    input.origin.markdown = adapter.markdown_dialect().into();
    if adapter.is_pii_safe() {
        input.hide_people();
    }
    input
}
