//! One accepted run: its stream of events, its approvals, its stop, and its status when the stream is lost.
//!
//! The stream has one reader and is not repeated, so after a break the run is only watched by its status until it ends.
//! A run is never started again. One that waits for an approval when the relay ends is taken up by the next process, which watches
//! it in the same way.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::approvals::{Due, PendingApprovals};
use super::event::{Approval, RunEnd, RunEvent, awaits_approval, is_run_id, run_end, tool_event};
use super::start::RunHandle;
use super::{HermesAgent, REQUEST_TIMEOUT};
use crate::agent::http::AgentRequest;
use crate::agent::{
    AgentEvent, EventSink, Failure, FailureClass, PromptAnswer, ResumedTurn, StepState, Turn, TurnEnd,
};
use crate::backoff::Backoff;
use crate::net::http::{Body, HttpError, ResponseStream};

/// First delay between status polls; doubles up to [`MAX_POLL`].
const FIRST_POLL: Duration = Duration::from_millis(250);
const MAX_POLL: Duration = Duration::from_secs(5);
/// Failed polls in a row after which the run counts as lost.
const MAX_FAILED_POLLS: u32 = 8;
/// Most bytes that are kept for the next process.
const MAX_SAVED: usize = 64 * 1024;
/// Maximum tools that are tracked.
const MAX_TOOLS: usize = 64;

const UNKNOWN_RUN: &str =
    "Hermes no longer knows what it was doing; it was probably restarted. Please ask again.";

/// A question that people are asked.
struct AskedApproval<'a> {
    answer: Pin<Box<dyn Future<Output = PromptAnswer> + Send + 'a>>,
    /// Whether the next process can take the run up with it.
    is_saved: bool,
}

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) hermes: &'a HermesAgent,
    pub(super) turn: &'a Turn,
    pub(super) handle: RunHandle,
    reply: &'a mut RunText,
    /// Tools that run, oldest first.
    tools: VecDeque<ToolUse>,
    tools_seen: u64,
    pub(super) approvals: PendingApprovals,
    /// Whether it is unknown what Hermes waits for, and denying all has failed.
    pub(super) desynced: bool,
    /// Time up to which the stream was read, in Hermes' seconds; `None` without timestamps.
    pub(super) read_up_to: Option<f64>,
    /// When to check again whether a grant can be sent; any event comes first.
    pub(super) recheck_at: Option<Instant>,
    /// Whether the stream cannot be read any more.
    pub(super) is_unread: bool,
}

/// One use of a tool.
struct ToolUse {
    tool: String,
    /// The purpose of the call, which Hermes sends only at the start.
    preview: String,
    /// The relay's id of the call.
    id: String,
}

/// What a run is taken up from by the next process.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SavedRun {
    /// The run's id.
    pub(super) run: String,
    /// What it was asked.
    pub(super) prompt: String,
    /// What it had said.
    said: String,
    /// Up to when the stream was read; see [`Run::read_up_to`].
    #[serde(default)]
    read_up_to: Option<f64>,
}

impl SavedRun {
    /// Reads what [`Run::save`] wrote; `None` if it is unusable.
    pub(super) fn read(state: &str) -> Option<Self> {
        let saved: Self = serde_json::from_str(state).ok()?;
        is_run_id(&saved.run).then_some(saved)
    }
}

/// How the stream ended.
enum Streamed<'a> {
    Ended(RunEnd),
    /// With what people are asked.
    Lost(Option<AskedApproval<'a>>),
    Cancelled(Option<Box<ResponseStream>>),
}

impl<'a> Run<'a> {
    pub(super) fn new(
        hermes: &'a HermesAgent,
        turn: &'a Turn,
        handle: RunHandle,
        reply: &'a mut RunText,
    ) -> Self {
        let approval_timeout = Duration::from_secs(hermes.settings.approval_patience_secs);
        Self {
            hermes,
            turn,
            handle,
            reply,
            tools: VecDeque::new(),
            tools_seen: 0,
            approvals: PendingApprovals::new(approval_timeout),
            desynced: false,
            read_up_to: None,
            recheck_at: None,
            is_unread: false,
        }
    }

    /// Follows a run to its end that an earlier process began, and that waits for the answer to an approval.
    pub(super) async fn resume(mut self, saved: &SavedRun, resumed: ResumedTurn) -> TurnEnd {
        self.read_up_to = saved.read_up_to;
        self.reply
            .resume(&self.turn.events, &saved.said, resumed.is_unseen)
            .await;
        // There is room for it: it is the first.
        let _ = self.approvals.add(Approval::default(), Instant::now());
        let asking = AskedApproval {
            answer: Box::pin(resumed.answer()),
            is_saved: true,
        };
        let lost = failed(
            FailureClass::Lost,
            UNKNOWN_RUN,
            "the run that waited for an answer is not known any more",
        );
        self.poll_until_end(Some(asking), lost).await
    }

    /// What the next process takes the run up from; `None` if that is too much to keep.
    fn save(&self) -> Option<String> {
        let saved = SavedRun {
            run: self.handle.id.clone(),
            prompt: super::prompt(self.turn),
            said: self.reply.text(),
            read_up_to: self.read_up_to,
        };
        let state = serde_json::to_string(&saved).ok()?;
        (state.len() <= MAX_SAVED).then_some(state)
    }

    /// Follows the run to its end.
    pub(super) async fn drive(mut self) -> TurnEnd {
        match self.stream().await {
            Streamed::Ended(end) => {
                self.handle.settled = true;
                self.finish(end, false).await
            }
            Streamed::Cancelled(stream) => self.stop(stream).await,
            Streamed::Lost(asking) => {
                let gone = failed(
                    FailureClass::Crashed,
                    UNKNOWN_RUN,
                    "the run is not known any more",
                );
                self.poll_until_end(asking, gone).await
            }
        }
    }

    /// Asks people about the next approval that is not answered.
    fn ask_next(&mut self) -> Option<AskedApproval<'a>> {
        if self.desynced || !self.approvals.has_unanswered() {
            return None;
        }
        let saved = self.save();
        let question = self.approvals.next_question(Instant::now(), || saved)?;
        Some(AskedApproval {
            is_saved: question.resume.is_some(),
            answer: Box::pin(self.turn.approver.ask(question)),
        })
    }

    /// A relay that ends while people are asked leaves the run to the next one, if that can take it up.
    fn leave_while(&mut self, asking: Option<&AskedApproval<'_>>) {
        self.handle.settled = asking.is_some_and(|asking| asking.is_saved);
    }

    async fn stream(&mut self) -> Streamed<'a> {
        let path = format!("/v1/runs/{}/events", self.handle.id);
        let request = AgentRequest {
            path: &path,
            ..AgentRequest::default()
        };
        let opened = tokio::select! {
            biased;
            // The run continues without a reader until it is stopped.
            () = self.turn.cancel.cancelled() => return Streamed::Cancelled(None),
            opened = self.hermes.http.send(request, self.hermes.idle()) => opened,
        };
        let mut stream = match opened {
            Ok(reply) if reply.is_success() => reply,
            Ok(_) | Err(_) => return Streamed::Lost(None),
        };
        let turn = self.turn;
        let mut asking: Option<AskedApproval<'a>> = None;
        loop {
            if asking.is_none() {
                asking = self.ask_next();
            }
            self.leave_while(asking.as_ref());
            let due = self.approvals.due(Instant::now());
            if let Some(due) = due.filter(|_| !self.desynced && self.recheck_at.is_none()) {
                tokio::select! {
                    biased;
                    // The stop that follows voids the approval.
                    () = turn.cancel.cancelled() => return Streamed::Cancelled(Some(Box::new(stream))),
                    () = self.deliver_answer(due) => {}
                }
                if self.approvals.is_empty() || self.desynced {
                    // What was asked about was denied with the rest.
                    asking = None;
                }
                continue;
            }
            tokio::select! {
                biased;
                () = turn.cancel.cancelled() => return Streamed::Cancelled(Some(Box::new(stream))),
                answer = answered(&mut asking) => {
                    asking = None;
                    self.approvals.answer(&answer);
                }
                // Dropping the read loses nothing.
                read = stream.next_event(self.hermes.idle()) => {
                    let Ok(Some(event)) = read else { return Streamed::Lost(asking) };
                    let Some((event, at)) = RunEvent::decode(&event) else {
                        tracing::debug!("a run event is not a JSON object");
                        continue;
                    };
                    self.read_up_to = self.read_up_to.into_iter().chain(at).reduce(f64::max);
                    self.recheck_at = None;
                    match event {
                        RunEvent::Ended(end) => return Streamed::Ended(end),
                        RunEvent::Approval(approval) => {
                            let fits = self.approvals.add(approval, Instant::now());
                            if !fits || self.desynced {
                                asking = None;
                                tokio::select! {
                                    biased;
                                    () = turn.cancel.cancelled() => return Streamed::Cancelled(Some(Box::new(stream))),
                                    () = self.deny_all() => {}
                                }
                            }
                        }
                        RunEvent::Responded(resolved) => {
                            // Someone else has answered: the question is taken back.
                            if self.approvals.responded(resolved) {
                                asking = None;
                            }
                        }
                        event => self.handle(event).await,
                    }
                }
                () = until(self.recheck_at) => self.recheck_at = None,
            }
        }
    }

    async fn handle(&mut self, event: RunEvent) {
        let events = &self.turn.events;
        match event {
            RunEvent::Delta(delta) => self.reply.delta(events, &delta).await,
            RunEvent::ToolStarted { tool, preview } => {
                self.reply.tool();
                self.tools_seen += 1;
                let id = format!("tool-{}", self.tools_seen);
                events.progress(tool_event(id.clone(), &tool, &preview, StepState::Running));
                if self.tools.len() >= MAX_TOOLS {
                    self.tools.pop_front();
                }
                self.tools.push_back(ToolUse { tool, preview, id });
            }
            RunEvent::ToolCompleted { tool, failed } => {
                self.reply.tool();
                // Events name no use of a tool: the oldest of that name is taken to be the one.
                if let Some(at) = self.tools.iter().position(|used| used.tool == tool)
                    && let Some(used) = self.tools.remove(at)
                {
                    let state = if failed {
                        StepState::Failed
                    } else {
                        StepState::Done
                    };
                    events.progress(tool_event(used.id, &tool, &used.preview, state));
                }
            }
            RunEvent::Approval(_) | RunEvent::Responded(_) | RunEvent::Ended(_) | RunEvent::Other => {}
        }
    }

    /// Stops the run, and waits for it to have stopped.
    async fn stop(&mut self, stream: Option<Box<ResponseStream>>) -> TurnEnd {
        self.handle.settled = false;
        let stopped = tokio::time::timeout(self.hermes.stop_grace(), self.stopped(stream)).await;
        TurnEnd::Cancelled {
            confirmed: stopped.unwrap_or(false),
        }
    }

    async fn stopped(&mut self, stream: Option<Box<ResponseStream>>) -> bool {
        let asked = self.control("stop", "{}".to_owned()).await;
        // Dropping a run that may still be active stops it again.
        self.handle.settled = matches!(asked, Ok(200..=299 | 404));
        // A run that is not known any more has ended.
        if let Ok(404) = asked {
            return true;
        }
        if let Some(mut stream) = stream {
            while let Ok(Some(event)) = stream.next_event(self.hermes.idle()).await {
                if let Some((RunEvent::Ended(_), _)) = RunEvent::decode(&event) {
                    return true;
                }
            }
        }
        loop {
            if let StatusCheck::Ended(_) | StatusCheck::NotFound = self.check_status().await {
                return true;
            }
            tokio::time::sleep(FIRST_POLL).await;
        }
    }

    /// Polls the status of a run whose stream was lost or belonged to an earlier process, asks about the approvals that were read,
    /// and hands over the answers. `unknown` is the end of a run that Hermes does not know.
    async fn poll_until_end(&mut self, mut asking: Option<AskedApproval<'a>>, unknown: TurnEnd) -> TurnEnd {
        let turn = self.turn;
        let give_up = Instant::now() + Duration::from_secs(self.hermes.settings.lost_stream_wait_secs);
        let mut backoff = Backoff::new(FIRST_POLL, MAX_POLL);
        let mut failed_polls = 0;
        self.is_unread = true;
        self.recheck_at = None;
        tracing::debug!("the stream of a run is not there any more; polling its status");
        loop {
            self.leave_while(asking.as_ref());
            let checked = tokio::select! {
                biased;
                () = turn.cancel.cancelled() => return self.stop(None).await,
                // A look changes nothing, so dropping it is harmless.
                checked = self.check_status() => checked,
            };
            match checked {
                StatusCheck::Ended(end) => {
                    self.handle.settled = true;
                    return self.finish(end, true).await;
                }
                StatusCheck::Running { is_waiting } => {
                    failed_polls = 0;
                    // Hermes or somebody else has answered: the question is taken back.
                    if !is_waiting && self.approvals.take_back() {
                        asking = None;
                    }
                }
                StatusCheck::Failed => failed_polls += 1,
                StatusCheck::NotFound => {
                    self.handle.settled = true;
                    return unknown;
                }
            }
            if failed_polls >= MAX_FAILED_POLLS {
                return failed(
                    FailureClass::Unavailable,
                    "Hermes cannot be reached any more. Please ask again later.",
                    "the stream of the run was lost, and its status cannot be read; start it with `hermes gateway run`",
                );
            }
            if asking.is_none() {
                asking = self.ask_next();
            }
            self.leave_while(asking.as_ref());
            let due = self.approvals.due(Instant::now());
            if let Some(due) = due.filter(|_| !self.desynced) {
                tokio::select! {
                    biased;
                    () = turn.cancel.cancelled() => return self.stop(None).await,
                    () = self.deliver_unread(due) => {}
                }
                if self.approvals.is_empty() || self.desynced {
                    // What was asked about was denied with the rest.
                    asking = None;
                }
                backoff = Backoff::new(FIRST_POLL, MAX_POLL);
                continue;
            }
            if asking.is_none() && Instant::now() >= give_up {
                return failed(
                    FailureClass::Timeout,
                    "The connection to Hermes was lost, and it has not finished since. It may still be working.",
                    "the run did not end within lost_stream_wait_secs",
                );
            }
            tokio::select! {
                biased;
                () = turn.cancel.cancelled() => return self.stop(None).await,
                answer = answered(&mut asking) => {
                    asking = None;
                    self.approvals.answer(&answer);
                }
                () = tokio::time::sleep(backoff.next_delay()) => {}
            }
        }
    }

    /// Sends an answer to a run whose stream cannot be read: what Hermes has asked since is not known.
    async fn deliver_unread(&mut self, due: Due) {
        self.deliver_answer(due).await;
        if self.recheck_at.take().is_some() {
            self.deny_all().await;
        }
    }

    async fn check_status(&self) -> StatusCheck {
        let path = format!("/v1/runs/{}", self.handle.id);
        let request = AgentRequest {
            path: &path,
            ..AgentRequest::default()
        };
        let body = match self.hermes.http.send(request, REQUEST_TIMEOUT).await {
            Ok(reply) if reply.status == 404 => return StatusCheck::NotFound,
            Ok(reply) if reply.is_success() => reply.short_body(REQUEST_TIMEOUT).await,
            Ok(_) | Err(_) => return StatusCheck::Failed,
        };
        let Ok(body) = body else {
            return StatusCheck::Failed;
        };
        match run_end(&body) {
            Ok(Some(end)) => StatusCheck::Ended(end),
            Ok(None) => StatusCheck::Running {
                is_waiting: awaits_approval(&body),
            },
            Err(_) => StatusCheck::Failed,
        }
    }

    async fn finish(&mut self, end: RunEnd, lost: bool) -> TurnEnd {
        let events = &self.turn.events;
        match end {
            RunEnd::Completed { output, usage } => {
                if lost {
                    self.reply.replace(events, &output).await;
                } else {
                    self.reply.complete(events, &output).await;
                }
                if let Some(usage) = usage {
                    events.emit(AgentEvent::Usage(usage)).await;
                }
                TurnEnd::Completed
            }
            RunEnd::Failed(error) => failed(
                FailureClass::Reported,
                "Hermes failed while it answered. Please try again.",
                &self.hermes.http.redact(&error),
            ),
            RunEnd::Cancelled => TurnEnd::Cancelled { confirmed: true },
        }
    }

    pub(super) async fn control(&self, what: &str, body: String) -> Result<u16, HttpError> {
        let path = format!("/v1/runs/{}/{what}", self.handle.id);
        let request = AgentRequest {
            path: &path,
            body: Body::Json(body.into_bytes()),
            ..AgentRequest::default()
        };
        self.hermes
            .http
            .send(request, REQUEST_TIMEOUT)
            .await
            .map(|reply| reply.status)
    }
}

/// Result of reading a run's status.
enum StatusCheck {
    Running {
        /// Whether Hermes waits for an approval.
        is_waiting: bool,
    },
    Ended(RunEnd),
    /// Hermes does not know the run.
    NotFound,
    /// The status could not be read.
    Failed,
}

fn failed(class: FailureClass, public: &str, detail: &str) -> TurnEnd {
    TurnEnd::Failed(Failure::new(class, public, detail))
}

async fn answered(asking: &mut Option<AskedApproval<'_>>) -> PromptAnswer {
    match asking {
        Some(asking) => asking.answer.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Maximum length of an answer, in bytes; the rest is dropped.
const MAX_TEXT: usize = 4 * 1024 * 1024;

/// The text of a run, split into messages by tools.
#[derive(Debug, Default)]
pub(super) struct RunText {
    /// The messages before the current one.
    before: String,
    /// The text of the current message.
    message: String,
    /// Whether the next text starts a new message.
    pending_break: bool,
}

impl RunText {
    /// Appends text.
    pub(super) async fn delta(&mut self, events: &EventSink, delta: &str) {
        // Hermes starts text after a tool with an empty line, even when there was none before.
        let delta = if self.pending_break || self.message.is_empty() {
            delta.trim_start()
        } else {
            delta
        };
        if delta.is_empty() || self.before.len() + self.message.len() + delta.len() > MAX_TEXT {
            return;
        }
        if std::mem::take(&mut self.pending_break) {
            self.before.push_str(&std::mem::take(&mut self.message));
            self.before.push_str("\n\n");
            events.emit(AgentEvent::Break).await;
        }
        self.message.push_str(delta);
        events.text(delta).await;
    }

    /// A tool runs: text that follows is a new message.
    pub(super) fn tool(&mut self) {
        self.pending_break = !self.message.trim().is_empty();
    }

    /// Completes the text with the run's final output, after a complete stream.
    pub(super) async fn complete(&mut self, events: &EventSink, output: &str) {
        let said = self.text();
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        if bare(&said).ends_with(&bare(output)) {
            return;
        }
        let missing = if said.trim().is_empty() {
            Some(output)
        } else if let Some(rest) = output.strip_prefix(self.message.as_str()) {
            self.pending_break = false;
            Some(rest)
        } else {
            // Nothing was streamed after the last tool: the output is the message that follows it.
            Some(output).filter(|_| self.pending_break)
        };
        if let Some(missing) = missing.filter(|missing| !missing.trim().is_empty()) {
            self.delta(events, missing).await;
        }
    }

    /// Goes on after what an earlier process received, which the chat may not have seen.
    async fn resume(&mut self, events: &EventSink, said: &str, is_unseen: bool) {
        said.trim_end().clone_into(&mut self.before);
        if is_unseen && !self.before.is_empty() {
            events.text(self.before.as_str()).await;
            events.emit(AgentEvent::Break).await;
        }
    }

    /// Replaces the current message with the run's final output, after a lost stream.
    pub(super) async fn replace(&mut self, events: &EventSink, output: &str) {
        if self.message.is_empty() && !self.before.is_empty() {
            // An earlier process received the beginning.
            let rest = output.strip_prefix(self.before.as_str()).unwrap_or(output);
            self.before.push_str("\n\n");
            return self.delta(events, rest).await;
        }
        if output.trim().is_empty() || output.trim() == self.message.trim() || output.len() > MAX_TEXT {
            return;
        }
        output.clone_into(&mut self.message);
        self.pending_break = false;
        events.emit(AgentEvent::Replace(output.to_owned())).await;
    }

    /// The text of all messages.
    pub(super) fn text(&self) -> String {
        format!("{}{}", self.before, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentSignal;

    async fn events(play: impl AsyncFnOnce(&mut RunText, &EventSink)) -> (String, Vec<AgentEvent>) {
        let (sink, mut signals) = EventSink::new();
        let mut reply = RunText::default();
        play(&mut reply, &sink).await;
        drop(sink);
        let mut events_seen = Vec::new();
        while let Some(AgentSignal::Event(event)) = signals.recv().await {
            events_seen.push(event);
        }
        (reply.text(), events_seen)
    }

    fn text(text: &str) -> AgentEvent {
        AgentEvent::Text(text.to_owned())
    }

    #[tokio::test]
    async fn tools_stand_between_messages() {
        let (whole, events_seen) = events(async |reply, sink| {
            reply.tool();
            reply.delta(sink, "Let me look.").await;
            reply.tool();
            reply.tool();
            reply.delta(sink, "\n\n").await;
            reply.delta(sink, "It is 4.").await;
            reply.complete(sink, "It is 4.").await;
        })
        .await;
        assert_eq!(whole, "Let me look.\n\nIt is 4.");
        assert_eq!(
            events_seen,
            [text("Let me look."), AgentEvent::Break, text("It is 4.")]
        );
        let (_, events_seen) = events(async |reply, sink| {
            reply.tool();
            reply.delta(sink, "\n\nIt is 4.").await;
            reply.complete(sink, "It is 4.").await;
        })
        .await;
        assert_eq!(events_seen, [text("It is 4.")]);
    }

    #[tokio::test]
    async fn an_answer_that_follows_a_tool_and_was_not_streamed_is_shown() {
        for (output, wanted) in [
            ("It is 4.", Some("It is 4.")),
            ("Let me look.", None),
            ("Let me look. It is 4.", Some(" It is 4.")),
            ("", None),
        ] {
            let (_, events_seen) = events(async |reply, sink| {
                reply.delta(sink, "Let me look.").await;
                reply.tool();
                reply.complete(sink, output).await;
            })
            .await;
            let shown = events_seen.iter().rev().find_map(|event| match event {
                AgentEvent::Text(text) if text != "Let me look." => Some(text.as_str()),
                _ => None,
            });
            assert_eq!(shown, wanted, "{output:?}");
            let breaks = events_seen.contains(&AgentEvent::Break);
            assert_eq!(breaks, output == "It is 4.", "{output:?}");
        }
    }

    #[tokio::test]
    async fn the_final_answer_fills_in_and_never_repeats() {
        let (_, events_seen) = events(async |reply, sink| reply.complete(sink, "all").await).await;
        assert_eq!(events_seen, [text("all")]);
        let (_, events_seen) = events(async |reply, sink| {
            reply.delta(sink, "al").await;
            reply.complete(sink, "all").await;
        })
        .await;
        assert_eq!(events_seen, [text("al"), text("l")]);
        let (_, events_seen) = events(async |reply, sink| {
            reply.delta(sink, "something else").await;
            reply.complete(sink, "all").await;
        })
        .await;
        assert_eq!(events_seen, [text("something else")]);
    }

    #[tokio::test]
    async fn after_a_lost_stream_the_final_answer_stands() {
        let (whole, events_seen) = events(async |reply, sink| {
            reply.delta(sink, "al").await;
            reply.replace(sink, "all of it").await;
            reply.replace(sink, "all of it").await;
            reply.replace(sink, "").await;
        })
        .await;
        assert_eq!(whole, "all of it");
        assert_eq!(
            events_seen,
            [text("al"), AgentEvent::Replace("all of it".to_owned())]
        );
    }
}
