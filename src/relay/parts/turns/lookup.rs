//! Questions about turns: where one belongs, who runs it, what it answers.

use std::sync::Arc;
use std::time::Duration;

use super::{LiveTurn, RowWait, Running, SessionSnapshot, TurnPhase, Turns};
use crate::access::Author;
use crate::adapter::ChatId;
use crate::adapter::stream::ShownDraft;
use crate::relay::effects::{RunSeq, SelectedAgent, Task};
use crate::relay::origin::TurnOrigin;
use crate::relay::spans::MessageSpan;
use crate::session::TurnId;
use crate::store::InboxSeq;
use crate::wire::SessionKey;

impl Turns {
    /// Sessions with a turn before sessions that wait, the longest-running first.
    pub fn snapshot(&self, now: Duration) -> impl Iterator<Item = SessionSnapshot<'_>> {
        let mut live: Vec<&LiveTurn> = self.live.values().collect();
        let started = |turn: &LiveTurn| match &turn.state {
            TurnPhase::Running(running) => Some(running.started),
            TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Preparing(_) => None,
        };
        live.sort_by_key(|turn| (started(turn).is_none(), started(turn)));
        let turns = live.into_iter().map(move |turn| {
            let running = match &turn.state {
                TurnPhase::Running(running) => Some(running),
                TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Preparing(_) => None,
            };
            SessionSnapshot {
                session: &turn.origin.session,
                state: match (turn.stop, running) {
                    (Some(_), _) => "stopping",
                    (None, Some(_)) => "running",
                    (None, None) => "starting",
                },
                agent: running.map(|running| &*running.agent.name),
                running_for: running.map(|running| now.saturating_sub(running.started)),
                waiting: self.sessions.waiting(&turn.origin.session),
            }
        });
        let waiting = self.sessions.idle().map(|(session, waiting)| SessionSnapshot {
            session,
            state: "waiting",
            agent: None,
            running_for: None,
            waiting,
        });
        turns.chain(waiting)
    }

    /// Where a turn belongs.
    pub fn origin(&self, turn: TurnId) -> Option<Arc<TurnOrigin>> {
        self.live.get(&turn).map(|live| Arc::clone(&live.origin))
    }

    /// Where the turn of a session belongs, if it has one and that is known.
    pub fn origin_of(&self, session: &SessionKey) -> Option<Arc<TurnOrigin>> {
        let mut live = self.live.values();
        live.find(|live| live.origin.session == *session)?.known_origin()
    }

    /// Where all live turns belong, if they have one author: whoever cannot say which of them it is.
    pub fn only_origin(&self) -> Option<Arc<TurnOrigin>> {
        let mut live = self.live.values().map(LiveTurn::known_origin);
        let first = live.next()??;
        live.all(|origin| origin.is_some_and(|origin| origin.author == first.author))
            .then_some(first)
    }

    /// The span of the message of a turn that holds its place.
    pub fn span(&self, turn: TurnId, session: &SessionKey) -> MessageSpan {
        self.live.get(&turn).map_or_else(
            || MessageSpan::new(session.as_str()),
            |live| live.origin.span.clone(),
        )
    }

    /// Whether a turn of this agent runs.
    pub fn is_agent_running(&self, agent: &str) -> bool {
        let runs = |live: &LiveTurn| match &live.state {
            TurnPhase::Running(running) => &*running.agent.name == agent,
            TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Preparing(_) => false,
        };
        self.live.values().any(runs)
    }

    /// The turn of a run, and its session.
    pub fn of_run(&self, run: RunSeq) -> Option<(TurnId, SessionKey)> {
        let is_it = |live: &LiveTurn| matches!(&live.task, Some(Task::Job(job)) if job.run == run);
        let (turn, live) = self.live.iter().find(|(_, live)| is_it(live))?;
        Some((*turn, live.origin.session.clone()))
    }

    /// The turn that shows a draft, while it runs, and its session.
    pub fn showing(&self, draft: &ShownDraft) -> Option<(TurnId, SessionKey)> {
        let (turn, live) = self.live.iter().find(|(_, live)| match &live.state {
            TurnPhase::Running(running) => draft.is_of(&live.origin.chat.id, running.row.0.unsigned_abs()),
            TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Preparing(_) => false,
        })?;
        Some((*turn, live.origin.session.clone()))
    }

    /// Every turn of a person: its session and its author.
    pub fn authors(&self) -> impl Iterator<Item = (TurnId, &SessionKey, &Author)> {
        let live = self
            .live
            .iter()
            .filter(|(_, live)| !live.origin.author.is_operator());
        live.map(|(turn, live)| (*turn, &live.origin.session, &live.origin.author))
    }

    /// The turns of messages that an author wrote in a chat, and their sessions.
    pub fn started_by(&self, author: &Author, chat: &ChatId) -> Vec<(TurnId, SessionKey)> {
        let is_theirs = |origin: &TurnOrigin| {
            let is_message = !origin.author.is_operator() && !origin.session.is_job();
            is_message && origin.chat.id == *chat && origin.author.person() == author.person()
        };
        let live = self.live.iter().filter(|(_, live)| is_theirs(&live.origin));
        live.map(|(turn, live)| (*turn, live.origin.session.clone()))
            .collect()
    }

    /// The agent that runs a turn; none before it runs.
    pub(super) fn running(&self, turn: TurnId) -> Option<&Running> {
        match &self.live.get(&turn)?.state {
            TurnPhase::Running(running) => Some(running),
            TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Preparing(_) => None,
        }
    }

    /// The name of the agent that runs a turn, when what it saves is kept.
    pub fn agent_name(&self, turn: TurnId) -> Option<&Arc<str>> {
        self.running(turn).map(|running| &running.agent.name)
    }

    /// The key of a turn's conversation at the agent.
    pub fn conversation(&self, turn: TurnId) -> Option<&SessionKey> {
        self.running(turn).map(|running| &running.conversation)
    }

    /// Whether what a turn saves is kept: not once its session starts a new conversation.
    pub fn keeps_state(&self, turn: TurnId) -> bool {
        self.running(turn).is_some_and(|running| !running.forgotten)
    }

    /// Whether the connector declined what a turn answers.
    pub fn is_turn_declined(&self, turn: TurnId) -> bool {
        self.running(turn).is_some_and(|running| running.declined)
    }

    /// The message that a turn answers.
    pub fn row_of(&self, turn: TurnId) -> Option<InboxSeq> {
        self.running(turn).map(|running| running.row)
    }

    /// What a turn is for.
    pub fn task(&self, turn: TurnId) -> Option<&Task> {
        self.live.get(&turn)?.task.as_ref()
    }

    /// The turn of a session that answers this row, whether its agent runs yet or not.
    pub fn answering(&self, session: &SessionKey, row: InboxSeq) -> Option<TurnId> {
        let turn = self.sessions.turn_of(session)?;
        let is_it = match &self.live.get(&turn)?.state {
            TurnPhase::Accepting => false,
            TurnPhase::Loading => {
                matches!(self.rows.get(&row), Some(RowWait::Loading { turn: of, .. }) if *of == turn)
            }
            TurnPhase::Preparing(of) => *of == row,
            TurnPhase::Running(running) => running.row == row,
        };
        is_it.then_some(turn)
    }

    /// Whether the message of a turn is not committed yet.
    pub fn is_accepting(&self, turn: TurnId) -> bool {
        let live = self.live.get(&turn);
        live.is_some_and(|live| matches!(live.state, TurnPhase::Accepting))
    }

    /// Whether the agent of a turn does not run yet.
    pub fn is_unstarted(&self, turn: TurnId) -> bool {
        let live = self.live.get(&turn);
        live.is_some_and(|live| !matches!(live.state, TurnPhase::Running(_)))
    }

    /// The agent that runs for a turn.
    pub fn agent_of(&self, turn: TurnId) -> Option<&SelectedAgent> {
        match &self.live.get(&turn)?.state {
            TurnPhase::Running(running) => Some(&running.agent),
            TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Preparing(_) => None,
        }
    }

    /// Whether a turn answers a message.
    pub fn is_message(&self, turn: TurnId) -> bool {
        matches!(self.task(turn), Some(Task::Message(_)))
    }

    /// A turn runs on without this process, and is the next one's.
    pub fn leave(&mut self, turn: TurnId) {
        self.live.remove(&turn);
    }

    /// The turn of this row has yet to begin, and is the next process's.
    pub fn leave_row(&mut self, row: InboxSeq) {
        if let Some(RowWait::Loading { turn, .. }) = self.rows.get(&row) {
            self.live.remove(turn);
            self.rows.remove(&row);
        }
        self.live
            .retain(|_, live| !matches!(live.state, TurnPhase::Preparing(of) if of == row));
    }

    /// Whether a turn may still ask people.
    pub fn may_ask(&self, turn: TurnId) -> bool {
        self.live.get(&turn).is_some_and(|live| live.stop.is_none())
    }
}
