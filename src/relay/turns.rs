//! Turns, from their start to their end.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::core::Core;
use super::crew::Terms;
use super::turn_task::{Stage, TurnReport, run_turn};
use crate::adapter::stream::StreamTarget;
use crate::adapter::{ChatFacts, ChatId, ReplyStream, interaction_event};
use crate::agent::{Agent, Approver, EventSink, Turn, TurnEnd, TurnInput};
use crate::session::{StopReason, TurnId};
use crate::store::{Command, InboxKind, InboxRow, InboxSeq, TurnState};
use crate::wire::{ConnectorFrame, MessageEvent, OpIds, SessionKey};

/// How long the agents may take to forget a session.
const LONGEST_FORGETTING: Duration = Duration::from_secs(60);
/// What marks a message that came by a Discord interaction.
const INTERACTION: &str = "discord_interaction_id";
/// The capability by which the connector answers such an interaction.
const FOLLOW_UP: &str = "discord.interaction_token";
/// Rows of one session that are fetched at a time.
const FETCHED_ROWS: u32 = 32;

/// A turn that runs, or holds its place until its message is there.
pub(super) struct LiveTurn {
    pub(super) key: SessionKey,
    pub(super) seq: Option<i64>,
    pub(super) stop: Option<StopReason>,
    pub(super) chat: Arc<ChatId>,
    pub(super) facts: Arc<ChatFacts>,
    pub(super) lane: Arc<str>,
    /// When its agent was started.
    pub(super) began: Option<Instant>,
    /// Who answers it, once that is decided.
    pub(super) agent: Option<(Arc<str>, Arc<dyn Agent>)>,
    cancel: CancellationToken,
    /// Cancelled when it is over; made when somebody waits for that.
    over: Option<CancellationToken>,
    /// The session was told to forget while it ran: what it wants kept is not.
    pub(super) forgotten: bool,
    /// Who decides what its agent asks, and where that works, once that is decided.
    pub(super) terms: Option<Terms>,
}

impl LiveTurn {
    pub(super) fn new(key: SessionKey, event: &MessageEvent) -> Self {
        let chat = ChatId::from_source(&event.source);
        Self {
            key,
            lane: chat.key().into(),
            began: None,
            agent: None,
            over: None,
            forgotten: false,
            terms: None,
            seq: None,
            stop: None,
            cancel: CancellationToken::new(),
            chat: Arc::new(chat),
            facts: Arc::new(ChatFacts::from_source(&event.source)),
        }
    }

    /// Tells whoever waits for its end.
    pub(super) fn tell_end(&self) {
        if let Some(over) = &self.over {
            over.cancel();
        }
    }

    /// Where the journal keeps what its agent remembers of its session.
    pub(super) fn memory_key(&self) -> Option<Arc<str>> {
        let (name, _) = self.agent.as_ref()?;
        Some(memory_key(&self.key, name))
    }
}

impl Core {
    /// Fetches rows for sessions whose queue in memory ran dry.
    pub(super) fn fetch_waiting(&mut self) {
        while let Some((key, after)) = self.sessions.next_refill() {
            let token = self.token();
            let session = key.shared();
            self.refilling.insert(token, key);
            self.writes.push(Command::NextQueued {
                token,
                session,
                after: InboxSeq(after),
                limit: FETCHED_ROWS,
            });
        }
    }

    pub(super) fn take_fetched(&mut self, token: u64, rows: &[InboxRow]) {
        if let Some(key) = self.refilling.remove(&token) {
            // Fewer than asked for may also mean that their lines were long; only none means no more.
            self.sessions
                .refill(&key, rows.iter().map(|row| row.seq.0), rows.is_empty());
        }
    }

    /// Starts what waits and may: marked as running and read back in one commit, then run.
    pub(super) fn start_waiting(&mut self) {
        let now_ms = self.now_ms();
        while let Some((key, row, turn)) = self.sessions.next_start() {
            self.turns
                .insert(turn, LiveTurn::new(key, &MessageEvent::default()));
            self.loading.insert(row, turn);
            let seq = InboxSeq(row);
            self.writes.push(Command::Start { seq, now_ms });
            self.writes.push(Command::Load { seq });
        }
    }

    pub(super) fn take_loaded(&mut self, row: &InboxRow) {
        if self.cut_short.front() == Some(&row.seq) {
            self.cut_short.pop_front();
            self.take_cut_short(row);
            return self.read_cut_short();
        }
        // A sick disk still reads: an agent must not act on a message that would be run again after a restart.
        if row.state != TurnState::Running && self.loading.contains_key(&row.seq.0) {
            self.unstarted.insert(row.seq.0);
            return;
        }
        let Some(turn) = self.loading.remove(&row.seq.0) else {
            return;
        };
        let event = row.line.as_deref().and_then(|line| read_back(row.kind, line));
        if let Some(mut event) = event {
            let key = self.understand(&mut event);
            if event.prompt_response.is_some() || self.command_in(&event).is_some() {
                self.abandon(turn);
                return self.answer_late(&key, row.seq.0, &event);
            }
            if let Some(live) = self.turns.get_mut(&turn) {
                live.chat = Arc::new(ChatId::from_source(&event.source));
                live.lane = live.chat.key().into();
                live.facts = Arc::new(ChatFacts::from_source(&event.source));
            }
            self.traces.loaded(row.seq.0, row.attempt, row.received_at);
            self.start_turn(turn, row.seq.0, event);
        } else {
            tracing::error!(
                row = row.seq.0,
                "a journaled message cannot be read back and is given up"
            );
            self.abandon(turn);
            self.end_row(row.seq.0, TurnState::Failed, Vec::new(), None);
        }
    }

    /// The row is gone: somebody dropped it, or it had ended.
    pub(super) fn take_missing(&mut self, row: i64) {
        self.ending.remove(&row);
        self.traces.close(row);
        self.unstarted.remove(&row);
        if self.cut_short.front() == Some(&InboxSeq(row)) {
            self.cut_short.pop_front();
            self.read_cut_short();
        }
        if let Some(turn) = self.loading.remove(&row) {
            self.abandon(turn);
        }
        self.declined.remove(&row);
    }

    fn abandon(&mut self, turn: TurnId) {
        if let Some(live) = self.turns.remove(&turn) {
            live.tell_end();
            self.sessions.ended(&live.key, turn);
        }
    }

    /// The agent that runs a turn.
    pub(super) fn agent_of(&self, turn: TurnId) -> Option<&Arc<dyn Agent>> {
        self.turns.get(&turn)?.agent.as_ref().map(|(_, agent)| agent)
    }

    /// Runs the agent for a committed message, unless the turn was stopped before it began.
    pub(super) fn begin_turn(&mut self, id: TurnId, seq: i64, event: MessageEvent) {
        let speech = match self.turns.get_mut(&id) {
            Some(live) => {
                live.seq = Some(seq);
                Box::new(self.speech_for(id, seq, &event))
            }
            None => return,
        };
        let pick = self
            .turns
            .get(&id)
            .map(|live| self.crew.pick(&event, self.chosen(&live.key).as_deref()));
        let (Some(pick), Some(live)) = (pick, self.turns.get_mut(&id)) else {
            return;
        };
        self.traces.began(seq, &live.chat.platform, &pick.name);
        live.terms = Some(pick.member.terms());
        live.agent = Some((pick.name, Arc::clone(&pick.member.agent)));
        live.began = Some(Instant::now());
        let (key, cancel, chat) = (live.key.clone(), live.cancel.clone(), Arc::clone(&live.chat));
        if cancel.is_cancelled() {
            let end = TurnEnd::Cancelled { confirmed: true };
            return self.end_turn(TurnReport::unspoken(id, speech, end));
        }
        let (events, heard) = EventSink::new();
        let turn = Turn {
            id,
            session: key.clone(),
            input: self.input_of(event, pick.text),
            approver: Approver::new(&events, pick.member.permission),
            events,
            cancel,
            workdir: pick.member.workdir,
        };
        let stage = Stage {
            speech,
            wishes: self.wishes.clone(),
            clock: self.clock,
            grace: self.settings.grace,
            most: self.settings.max_output_bytes,
            forgotten: self.forgetting.remove(&key),
            room: self.media.clone(),
            takes_media: self.takes_media(&chat),
        };
        self.tally.turns_started += 1;
        let at_once = pick.member.agent.answers_inline();
        let running = run_turn(pick.member.agent, turn, heard, stage);
        if at_once {
            self.run_at_once(id, running);
        } else {
            self.run_in_task(id, running);
        }
    }

    /// How a turn will speak in its chat.
    pub(super) fn speech_for(&self, turn: TurnId, seq: i64, event: &MessageEvent) -> ReplyStream {
        let (key, chat, facts) = match self.turns.get(&turn) {
            Some(live) => (live.key.shared(), Arc::clone(&live.chat), Arc::clone(&live.facts)),
            None => (
                "".into(),
                Arc::new(ChatId::from_source(&event.source)),
                Arc::new(ChatFacts::from_source(&event.source)),
            ),
        };
        let descriptor = self.view.descriptors.for_platform(&chat.platform).cloned();
        let follow_up = event
            .metadata
            .contains_key(INTERACTION)
            .then(|| FOLLOW_UP.to_owned());
        let place = StreamTarget {
            chat,
            facts,
            session: key,
            descriptor,
            follow_up,
        };
        let draft = seq.unsigned_abs().wrapping_mul(ReplyStream::DRAFT_IDS);
        ReplyStream::new(
            Arc::clone(&self.settings.speech),
            place,
            draft,
            OpIds::new(draft),
            self.clock.mono(),
        )
    }

    /// What an agent is told of a message, with what the platform says of itself.
    pub(super) fn input_of(&self, event: MessageEvent, text: Option<String>) -> TurnInput {
        let mut input = TurnInput::from_event(event);
        if let Some(text) = text {
            input.text = text;
        }
        if let Some(descriptor) = self.view.descriptors.for_platform(&input.origin.platform) {
            input.origin.hint.clone_from(&descriptor.platform_hint);
            input.origin.markdown = descriptor.markdown_dialect.clone().unwrap_or_default();
            if descriptor.pii_safe {
                input.hide_people();
            }
        }
        input
    }

    pub(super) fn cancel_turn(&mut self, turn: TurnId, why: StopReason) {
        if let Some(live) = self.turns.get_mut(&turn) {
            live.stop.get_or_insert(why);
            live.cancel.cancel();
        }
        self.withdraw_questions(turn);
    }

    /// Has the agent forget a session: after the turn that runs in it, and before the next.
    pub(super) fn forget_session(&mut self, key: &SessionKey) {
        let agents: Vec<_> = self
            .crew
            .agents()
            .map(|(name, agent)| (memory_key(key, name), Arc::clone(agent)))
            .collect();
        for (session, _) in &agents {
            self.writes.push(Command::DropResume {
                session: Arc::clone(session),
            });
        }
        let running = self
            .sessions
            .turn_of(key)
            .and_then(|turn| self.turns.get_mut(&turn));
        // One that has not begun waits for the forgetting itself.
        let over = running.filter(|live| live.began.is_some()).map(|live| {
            live.forgotten = true;
            live.over.get_or_insert_default().clone()
        });
        while self.forgets.try_join_next().is_some() {}
        let forgotten = CancellationToken::new();
        self.forgetting.insert(key.clone(), forgotten.clone());
        let key = key.clone();
        self.forgets.spawn(async move {
            if let Some(over) = over {
                over.cancelled().await;
            }
            let forget = async {
                for (_, agent) in &agents {
                    agent.forget(&key).await;
                }
            };
            if tokio::time::timeout(LONGEST_FORGETTING, forget).await.is_err() {
                tracing::warn!("the agent did not forget a conversation in time");
            }
            forgotten.cancel();
        });
    }
}

/// Where the journal keeps what an agent remembers of a session.
pub(super) fn memory_key(key: &SessionKey, agent: &str) -> Arc<str> {
    format!("{}#memory:{agent}", key.as_str()).into()
}

/// Reads a journaled line again.
pub(super) fn read_back(kind: InboxKind, line: &[u8]) -> Option<MessageEvent> {
    match (kind, ConnectorFrame::decode(line).ok()?) {
        (InboxKind::Inbound, ConnectorFrame::Inbound { event, .. }) => Some(*event),
        (InboxKind::Forward, ConnectorFrame::PassthroughForward { forward, .. }) => {
            interaction_event(&forward)
        }
        _ => None,
    }
}
