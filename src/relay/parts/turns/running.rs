//! Running turns: how an agent is started, how its task is waited for, and what its end means.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::{JoinError, unconstrained};
use tokio_util::sync::ReusableBoxFuture;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::{EndedTurn, Finished, InlineTask, Running, TurnPhase, Turns};
use crate::adapter::stream::TurnResult;
use crate::agent::{
    Approver, Failure, FailureClass, SignalChannel, Truncation, Turn, TurnEnd, TurnInput, Usage,
};
use crate::relay::effects::{SelectedAgent, Task};
use crate::relay::parts::turn_task::{TurnContext, TurnReport, run_turn};
use crate::relay::spans::is_observed;
use crate::session::{StopReason, TurnId};
use crate::store::{InboxSeq, RowState};
use crate::wire::SessionKey;
use crate::words::PhraseKey;

/// Tasks and channels of turns that ended inline which are kept for the next ones.
const MAX_IDLE: usize = 8;

impl Turns {
    /// Runs the agent for a committed message. A turn that was stopped before it began ends right away.
    pub fn begin(
        &mut self,
        id: TurnId,
        row: InboxSeq,
        agent: SelectedAgent,
        input: TurnInput,
        conversation: SessionKey,
        mut context: TurnContext,
    ) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        let inline = agent.agent.answers_inline();
        // A turn that is answered inline logs nothing: it has spans, with its outcome, for whoever debugs or traces.
        let is_traced = !inline || is_observed();
        let span = if is_traced {
            tracing::info_span!(
                parent: live.origin.span.open(live.origin.session.as_str()),
                "turn",
                turn = id.0,
                agent = &*agent.name,
                platform = live.origin.chat.id.platform.as_str(),
                failure = Empty,
                first_text_ms = Empty,
                input_tokens = Empty,
                output_tokens = Empty,
            )
        } else {
            tracing::Span::none()
        };
        live.state = TurnPhase::Running(Box::new(Running {
            row,
            agent: agent.clone(),
            conversation: conversation.clone(),
            started: context.started,
            span: span.clone(),
            is_traced,
            steered: 0,
            ended: None,
            forgotten: false,
            declined: false,
        }));
        let cancel = live.cancel.get_or_insert_default().clone();
        if cancel.is_cancelled() {
            let end = TurnEnd::Cancelled { confirmed: true };
            self.ended_inline
                .push_back(Ok(TurnReport::without_text(id, context.stream, end)));
            return;
        }
        let channel = self.idle_channels.pop().unwrap_or_else(SignalChannel::new);
        let mut events = channel.sink();
        if let Some(mark) = context.start_mark.take() {
            events = events.with_start_mark(move || mark.note());
        }
        let turn = Box::new(Turn {
            id,
            session: conversation,
            input,
            approver: Approver::new(&events, agent.permission),
            events,
            cancel,
            workdir: agent.workdir,
            resumed: context.resumed.take(),
        });
        self.counters.started += 1;
        let running = run_turn(agent.agent, turn, channel, self.requests.clone(), context);
        if inline {
            let task = match self.idle_tasks.pop() {
                Some(mut task) => {
                    task.set(running);
                    task
                }
                None => ReusableBoxFuture::new(running),
            };
            self.inline.push_back((id, task, span));
        } else {
            self.spawn(id, running.map(|(report, _)| report).instrument(span));
        }
    }

    /// Runs the turns that answer inline.
    pub fn run_inline(&mut self) {
        while let Some((turn, task, span)) = self.inline.pop_front() {
            self.poll_once(turn, task, span);
        }
    }

    /// Polls a turn once, and goes on in a task when it is not done by then.
    fn poll_once(&mut self, turn: TurnId, mut task: InlineTask, span: tracing::Span) {
        // However many turns begin together, the event loop's budget must not make one of them wait.
        let poll_once = || span.in_scope(|| unconstrained(&mut task).now_or_never());
        match catch_unwind(AssertUnwindSafe(poll_once)) {
            Ok(Some((report, channel))) => {
                self.ended_inline.push_back(Ok(report));
                if self.idle_tasks.len() < MAX_IDLE {
                    self.idle_tasks.push(task);
                }
                if self.idle_channels.len() < MAX_IDLE && channel.is_reusable() {
                    self.idle_channels.push(channel);
                }
            }
            Ok(None) => {
                // It takes its time, and whatever goes wrong meanwhile is logged.
                let span = match self.live.get(&turn) {
                    Some(live) if span.is_none() => {
                        live.origin.span.open(live.origin.session.as_str()).clone()
                    }
                    Some(_) | None => span,
                };
                self.spawn(turn, task.map(|(report, _)| report).instrument(span));
            }
            Err(_) => self.ended_inline.push_back(Err(turn)),
        }
    }

    pub(super) fn spawn(
        &mut self,
        turn: TurnId,
        running: impl Future<Output = Box<TurnReport>> + Send + 'static,
    ) {
        let task = self.tasks.spawn(running);
        self.by_task.insert(task.id(), turn);
    }

    /// Whether turns have ended inline.
    pub fn have_ended_inline(&self) -> bool {
        !self.ended_inline.is_empty()
    }

    /// The next turn that ended inline.
    pub fn next_inline(&mut self) -> Option<Finished> {
        self.ended_inline.pop_front()
    }

    /// Waits for the next task to end; never resolves while there is none. Cancel-safe.
    pub async fn next_finished(&mut self) -> Finished {
        loop {
            match self.tasks.join_next_with_id().await {
                Some(joined) => {
                    if let Some(finished) = self.joined(joined) {
                        return finished;
                    }
                }
                None => std::future::pending().await,
            }
        }
    }

    /// A task that has ended already.
    pub fn try_finished(&mut self) -> Option<Finished> {
        loop {
            let joined = self.tasks.try_join_next_with_id()?;
            if let Some(finished) = self.joined(joined) {
                return Some(finished);
            }
        }
    }

    pub(super) fn joined(
        &mut self,
        joined: Result<(tokio::task::Id, Box<TurnReport>), JoinError>,
    ) -> Option<Finished> {
        match joined {
            Ok((task, report)) => {
                self.by_task.remove(&task);
                Some(Ok(report))
            }
            Err(error) => self.by_task.remove(&error.id()).map(Err),
        }
    }

    /// A turn has ended: its session is free. `None` for a turn that is not there, or never ran.
    pub fn end(&mut self, report: &TurnReport, now: Duration) -> Option<EndedTurn> {
        let live = self.live.remove(&report.turn)?;
        self.sessions.ended(&live.origin.session, report.turn);
        let TurnPhase::Running(running) = live.state else {
            return None;
        };
        if let Some(ended) = running.ended {
            ended.cancel();
        }
        let took = now.saturating_sub(running.started);
        self.metrics.ended(took, report.first_text);
        let counters = &mut self.counters;
        counters.input_tokens = counters.input_tokens.saturating_add(report.usage.input_tokens);
        counters.output_tokens = counters.output_tokens.saturating_add(report.usage.output_tokens);
        let (outcome, result, notice) = self.conclude(report, live.stop);
        // A turn that was stopped before it said anything stays silent, because whoever stopped it reads something else in its place.
        // A program that woke the session says nothing to the author of a message.
        let is_message = matches!(live.task, None | Some(Task::Message(_)));
        let is_told = is_message && live.stop == Some(StopReason::Woken);
        let span = live.origin.span.get();
        let outcome_name = if running.declined {
            "declined"
        } else {
            outcome_label(outcome)
        };
        if running.is_traced {
            record_report(&running.span, report);
            tracing::record_all!(span, steered = running.steered, outcome = outcome_name);
        }
        tracing::info!(
            parent: &span,
            // Else its span names it.
            session = span.is_none().then_some(live.origin.session.as_str()),
            agent = &*running.agent.name,
            platform = live.origin.chat.id.platform.as_str(),
            outcome = outcome_name,
            ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "turn ended"
        );
        Some(EndedTurn {
            origin: live.origin,
            task: live.task.unwrap_or(Task::Message(None)),
            row: running.row,
            agent: running.agent.name,
            outcome,
            result,
            notice: notice.filter(|_| report.has_text || outcome != RowState::Stopped || is_told),
            declined: running.declined,
            is_traced: running.is_traced,
            took,
        })
    }

    /// The agent panicked: what its turn ends with.
    pub fn panicked(turn: TurnId) -> TurnEnd {
        tracing::error!(turn = turn.0, "the agent panicked");
        TurnEnd::Failed(Failure::new(
            FailureClass::Internal,
            PhraseKey::AgentBroke.english(),
            "it panicked",
        ))
    }

    /// What a turn's end means: for the journal, for the chat's indicators, and as the turn's last text.
    pub(super) fn conclude(
        &mut self,
        report: &TurnReport,
        stop: Option<StopReason>,
    ) -> (RowState, TurnResult, Option<String>) {
        let turn = report.turn;
        match &report.end {
            TurnEnd::Completed => {
                self.counters.done += 1;
                (RowState::Done, TurnResult::Done, None)
            }
            // The report says so already.
            TurnEnd::Truncated(Truncation::Size) if report.truncated => {
                self.counters.done += 1;
                (RowState::Done, TurnResult::Done, None)
            }
            TurnEnd::Truncated(why) => {
                self.counters.done += 1;
                let notice = match why {
                    Truncation::Tokens => PhraseKey::CutByTokens,
                    Truncation::Steps => PhraseKey::CutBySteps,
                    Truncation::Filter => PhraseKey::CutByFilter,
                    Truncation::Size => PhraseKey::CutBySize,
                };
                let notice = notice.english().to_owned();
                (RowState::Done, TurnResult::Done, Some(notice))
            }
            TurnEnd::Refused => {
                self.counters.done += 1;
                let notice = PhraseKey::AgentDeclined.english().to_owned();
                (RowState::Done, TurnResult::Failed, Some(notice))
            }
            TurnEnd::Cancelled { confirmed } => {
                self.counters.stopped += 1;
                if !confirmed {
                    tracing::warn!(
                        turn = turn.0,
                        "the agent did not stop in time; its turn was dropped"
                    );
                }
                if stop == Some(StopReason::Shutdown) {
                    let notice = self.interrupted_notice.clone();
                    return (RowState::Interrupted, TurnResult::Stopped, notice);
                }
                (
                    RowState::Stopped,
                    TurnResult::Stopped,
                    Some(PhraseKey::StoppedMark.english().to_owned()),
                )
            }
            TurnEnd::Failed(failure) if failure.class == FailureClass::Lost => {
                self.counters.interrupted += 1;
                tracing::warn!(
                    turn = turn.0,
                    detail = failure.detail,
                    "the turn could not be taken up again"
                );
                let notice = self.interrupted_notice.clone();
                (RowState::Interrupted, TurnResult::Failed, notice)
            }
            TurnEnd::Failed(failure) => {
                self.counters.failed += 1;
                tracing::warn!(turn = turn.0, class = ?failure.class, detail = failure.detail, "the turn failed");
                let notice = failure.public_text.clone();
                (RowState::Failed, TurnResult::Failed, Some(notice))
            }
        }
    }

    /// Counts a turn that an earlier run left running.
    pub fn count_interrupted(&mut self) {
        self.counters.interrupted += 1;
    }

    /// Asks all tasks to end, and waits for that.
    pub async fn abort_all(&mut self, within: Duration) {
        self.tasks.abort_all();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(within, ended).await.is_err() {
            tracing::warn!(left = self.tasks.len(), "some turns did not end in time");
        }
    }
}

/// Adds to a turn's span what its agent reported.
fn record_report(span: &tracing::Span, report: &TurnReport) {
    if let TurnEnd::Failed(failure) = &report.end {
        span.record("failure", failure.class.label());
    }
    if let Some(after) = report.first_text {
        span.record(
            "first_text_ms",
            u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
        );
    }
    if report.usage != Usage::default() {
        span.record("input_tokens", report.usage.input_tokens);
        span.record("output_tokens", report.usage.output_tokens);
    }
}

/// How a turn ended, for its span.
fn outcome_label(outcome: RowState) -> &'static str {
    match outcome {
        RowState::Done => "done",
        RowState::Stopped => "stopped",
        RowState::Failed => "failed",
        RowState::Interrupted => "interrupted",
        _ => "other",
    }
}
