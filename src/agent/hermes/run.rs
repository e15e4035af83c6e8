//! One accepted run: its stream of events, its approvals, its stop, and its status when the stream is lost.
//!
//! The stream has one reader and is not repeated, so after a break the run is only watched by its status until it ends.
//! A run is never started again.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::approvals::Approvals;
use super::event::{RunEnd, RunEvent, status_of, tool_event};
use super::start::Leash;
use super::{HermesAgent, SHORT};
use crate::agent::http::AgentRequest;
use crate::agent::{AgentEvent, EventSink, Failure, FailureClass, PromptAnswer, StepState, Turn, TurnEnd};
use crate::net::http::{Body, HttpError, ResponseStream};

/// The first wait between two looks at the status; it grows to [`LONGEST_LOOK`].
const FIRST_LOOK: Duration = Duration::from_millis(250);
const LONGEST_LOOK: Duration = Duration::from_secs(5);
/// Looks in a row that may fail before the run counts as lost.
const MOST_BLIND_LOOKS: u32 = 8;
/// Tools that may run at once and still be told apart.
const MOST_TOOLS: usize = 64;

type Asking<'a> = Pin<Box<dyn Future<Output = PromptAnswer> + Send + 'a>>;

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) hermes: &'a HermesAgent,
    pub(super) turn: &'a Turn,
    pub(super) leash: Leash,
    said: &'a mut Said,
    /// Tools that run, oldest first.
    tools: VecDeque<Use>,
    tools_seen: u64,
    pub(super) approvals: Approvals,
    /// Whether it is not known what Hermes waits for, and Hermes could not be told to deny it.
    pub(super) out_of_step: bool,
    /// How far the stream was read, in Hermes' seconds; `None` while no event has told its time.
    pub(super) read_up_to: Option<f64>,
    /// When the status is asked again whether a yes can be handed over; any event that is read comes before.
    pub(super) look_again: Option<Instant>,
}

/// One use of a tool.
struct Use {
    tool: String,
    /// What it is used for, which Hermes says only when it begins.
    preview: String,
    /// The id that we gave it.
    id: String,
}

/// What the stream came to.
enum Streamed {
    Ended(RunEnd),
    Lost,
    Cancelled(Option<Box<ResponseStream>>),
}

impl<'a> Run<'a> {
    pub(super) fn new(hermes: &'a HermesAgent, turn: &'a Turn, leash: Leash, said: &'a mut Said) -> Self {
        let patience = Duration::from_secs(hermes.settings.approval_patience_secs);
        Self {
            hermes,
            turn,
            leash,
            said,
            tools: VecDeque::new(),
            tools_seen: 0,
            approvals: Approvals::new(patience),
            out_of_step: false,
            read_up_to: None,
            look_again: None,
        }
    }

    /// Follows the run to its end.
    pub(super) async fn drive(mut self) -> TurnEnd {
        match self.stream().await {
            Streamed::Ended(end) => {
                self.leash.settled = true;
                self.finish(end, false).await
            }
            Streamed::Cancelled(stream) => self.stop(stream).await,
            Streamed::Lost => self.watch().await,
        }
    }

    async fn stream(&mut self) -> Streamed {
        let path = format!("/v1/runs/{}/events", self.leash.id);
        let request = AgentRequest {
            path: &path,
            ..AgentRequest::default()
        };
        let opened = tokio::select! {
            biased;
            // The run goes on without a reader until it is stopped.
            () = self.turn.cancel.cancelled() => return Streamed::Cancelled(None),
            opened = self.hermes.http.send(request, self.hermes.idle()) => opened,
        };
        let mut stream = match opened {
            Ok(reply) if reply.is_success() => reply,
            Ok(_) | Err(_) => return Streamed::Lost,
        };
        let turn = self.turn;
        let mut asking: Option<Asking<'_>> = None;
        loop {
            let now = Instant::now();
            if asking.is_none() && !self.out_of_step {
                let question = self.approvals.next_question(now);
                asking = question.map(|question| Box::pin(turn.approver.ask(question)) as Asking<'_>);
            }
            let due = self.approvals.due(now);
            if let Some(due) = due.filter(|_| !self.out_of_step && self.look_again.is_none()) {
                tokio::select! {
                    biased;
                    // The stop that follows voids the approval.
                    () = turn.cancel.cancelled() => return Streamed::Cancelled(Some(Box::new(stream))),
                    () = self.hand_over(due) => {}
                }
                if self.approvals.is_empty() || self.out_of_step {
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
                    let Ok(Some(event)) = read else { return Streamed::Lost };
                    let Some((event, at)) = RunEvent::decode(&event) else {
                        tracing::debug!("an event of a run is no JSON object");
                        continue;
                    };
                    self.read_up_to = self.read_up_to.into_iter().chain(at).reduce(f64::max);
                    self.look_again = None;
                    match event {
                        RunEvent::Ended(end) => return Streamed::Ended(end),
                        RunEvent::Approval(approval) => {
                            let fits = self.approvals.hear(approval, Instant::now());
                            if !fits || self.out_of_step {
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
                        event => self.hear(event).await,
                    }
                }
                () = until(self.look_again) => self.look_again = None,
            }
        }
    }

    async fn hear(&mut self, event: RunEvent) {
        let events = &self.turn.events;
        match event {
            RunEvent::Delta(delta) => self.said.delta(events, &delta).await,
            RunEvent::ToolStarted { tool, preview } => {
                self.said.tool();
                self.tools_seen += 1;
                let id = format!("tool-{}", self.tools_seen);
                events.progress(tool_event(id.clone(), &tool, &preview, StepState::Running));
                if self.tools.len() >= MOST_TOOLS {
                    self.tools.pop_front();
                }
                self.tools.push_back(Use { tool, preview, id });
            }
            RunEvent::ToolCompleted { tool, failed } => {
                self.said.tool();
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
        let stopped = tokio::time::timeout(self.hermes.stop_grace(), self.stopped(stream)).await;
        TurnEnd::Cancelled {
            confirmed: stopped.unwrap_or(false),
        }
    }

    async fn stopped(&mut self, stream: Option<Box<ResponseStream>>) -> bool {
        let asked = self.control("stop", "{}".to_owned()).await;
        // Whoever drops a run that may still go on has it stopped once more.
        self.leash.settled = matches!(asked, Ok(200..=299 | 404));
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
            if let Look::Ended(_) | Look::Unknown = self.look().await {
                return true;
            }
            tokio::time::sleep(FIRST_LOOK).await;
        }
    }

    /// Follows a run whose stream was lost, by its status.
    async fn watch(&mut self) -> TurnEnd {
        let turn = self.turn;
        let give_up = Instant::now() + Duration::from_secs(self.hermes.settings.lost_stream_wait_secs);
        let (mut pause, mut blind) = (FIRST_LOOK, 0);
        tracing::debug!("the stream of a run was lost; its status is watched");
        loop {
            let looked = tokio::select! {
                biased;
                () = turn.cancel.cancelled() => return self.stop(None).await,
                // A look changes nothing, so dropping it is harmless.
                looked = self.look() => looked,
            };
            match looked {
                Look::Ended(end) => {
                    self.leash.settled = true;
                    return self.finish(end, true).await;
                }
                Look::Running => blind = 0,
                Look::Blind => blind += 1,
                Look::Unknown => {
                    self.leash.settled = true;
                    return failed(
                        FailureClass::Crashed,
                        "Hermes no longer knows what it was doing; it was probably restarted. Please ask again.",
                        "the run is not known any more",
                    );
                }
            }
            if blind >= MOST_BLIND_LOOKS {
                return failed(
                    FailureClass::Unavailable,
                    "Hermes cannot be reached any more. Start it with `hermes gateway run`, and ask again.",
                    "the stream of the run was lost, and its status cannot be read",
                );
            }
            if Instant::now() >= give_up {
                return failed(
                    FailureClass::Timeout,
                    "The connection to Hermes was lost, and it has not finished since. It may still be working.",
                    "the run did not end within lost_stream_wait_secs",
                );
            }
            tokio::select! {
                biased;
                () = turn.cancel.cancelled() => return self.stop(None).await,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_LOOK);
        }
    }

    async fn look(&self) -> Look {
        let path = format!("/v1/runs/{}", self.leash.id);
        let request = AgentRequest {
            path: &path,
            ..AgentRequest::default()
        };
        let body = match self.hermes.http.send(request, SHORT).await {
            Ok(reply) if reply.status == 404 => return Look::Unknown,
            Ok(reply) if reply.is_success() => reply.short_body(SHORT).await,
            Ok(_) | Err(_) => return Look::Blind,
        };
        match body.map(|body| status_of(&body)) {
            Ok(Ok(Some(end))) => Look::Ended(end),
            Ok(Ok(None)) => Look::Running,
            Ok(Err(_)) | Err(_) => Look::Blind,
        }
    }

    async fn finish(&mut self, end: RunEnd, lost: bool) -> TurnEnd {
        let events = &self.turn.events;
        match end {
            RunEnd::Completed { output, usage } => {
                if lost {
                    self.said.replace(events, &output).await;
                } else {
                    self.said.complete(events, &output).await;
                }
                if let Some(usage) = usage {
                    events.emit(AgentEvent::Usage(usage)).await;
                }
                TurnEnd::Completed
            }
            RunEnd::Failed(error) => failed(
                FailureClass::Reported,
                "Hermes failed while it answered. Please try again; the relay's log says why.",
                &self.hermes.http.redact(&error),
            ),
            RunEnd::Cancelled => TurnEnd::Cancelled { confirmed: true },
        }
    }

    pub(super) async fn control(&self, what: &str, body: String) -> Result<u16, HttpError> {
        let path = format!("/v1/runs/{}/{what}", self.leash.id);
        let request = AgentRequest {
            path: &path,
            body: Body::Json(body.into_bytes()),
            ..AgentRequest::default()
        };
        self.hermes
            .http
            .send(request, SHORT)
            .await
            .map(|reply| reply.status)
    }
}

/// What one look at a run's status shows.
enum Look {
    Running,
    Ended(RunEnd),
    /// Hermes does not know the run.
    Unknown,
    /// Nothing could be seen.
    Blind,
}

fn failed(class: FailureClass, public: &str, detail: &str) -> TurnEnd {
    TurnEnd::Failed(Failure::new(class, public, detail))
}

async fn answered(asking: &mut Option<Asking<'_>>) -> PromptAnswer {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Longest answer that is passed on, in bytes; the rest is not said.
const MOST_TEXT: usize = 4 * 1024 * 1024;

/// What was said, in messages that tools stand between.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The messages before the current one.
    before: String,
    /// The current message.
    message: String,
    /// Whether what comes next is a message of its own.
    pending_break: bool,
}

impl Said {
    /// Says more of the answer.
    pub(super) async fn delta(&mut self, events: &EventSink, delta: &str) {
        // Hermes begins what it says after a tool with an empty line, also when it has said nothing before.
        let delta = if self.pending_break || self.message.is_empty() {
            delta.trim_start()
        } else {
            delta
        };
        if delta.is_empty() || self.before.len() + self.message.len() + delta.len() > MOST_TEXT {
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

    /// A tool runs: what follows is a message of its own.
    pub(super) fn tool(&mut self) {
        self.pending_break = !self.message.trim().is_empty();
    }

    /// The run's own final answer, after a stream that was whole: what is missing at its end is said.
    pub(super) async fn complete(&mut self, events: &EventSink, output: &str) {
        let missing = if self.text().trim().is_empty() {
            Some(output)
        } else {
            output.strip_prefix(self.message.as_str())
        };
        if let Some(missing) = missing.filter(|missing| !missing.trim().is_empty()) {
            self.pending_break = false;
            self.delta(events, missing).await;
        }
    }

    /// The run's own final answer, after a stream that was lost: it stands for the current message.
    pub(super) async fn replace(&mut self, events: &EventSink, output: &str) {
        if output.trim().is_empty() || output.trim() == self.message.trim() || output.len() > MOST_TEXT {
            return;
        }
        output.clone_into(&mut self.message);
        self.pending_break = false;
        events.emit(AgentEvent::Replace(output.to_owned())).await;
    }

    /// Everything that was said.
    pub(super) fn text(&self) -> String {
        format!("{}{}", self.before, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentSignal;

    async fn events(play: impl AsyncFnOnce(&mut Said, &EventSink)) -> (String, Vec<AgentEvent>) {
        let (sink, mut signals) = EventSink::new();
        let mut said = Said::default();
        play(&mut said, &sink).await;
        drop(sink);
        let mut heard = Vec::new();
        while let Some(AgentSignal::Event(event)) = signals.recv().await {
            heard.push(event);
        }
        (said.text(), heard)
    }

    fn text(text: &str) -> AgentEvent {
        AgentEvent::Text(text.to_owned())
    }

    #[tokio::test]
    async fn tools_stand_between_messages() {
        let (whole, heard) = events(async |said, sink| {
            said.tool();
            said.delta(sink, "Let me look.").await;
            said.tool();
            said.tool();
            said.delta(sink, "\n\n").await;
            said.delta(sink, "It is 4.").await;
            said.complete(sink, "It is 4.").await;
        })
        .await;
        assert_eq!(whole, "Let me look.\n\nIt is 4.");
        assert_eq!(heard, [text("Let me look."), AgentEvent::Break, text("It is 4.")]);
        let (_, heard) = events(async |said, sink| {
            said.tool();
            said.delta(sink, "\n\nIt is 4.").await;
            said.complete(sink, "It is 4.").await;
        })
        .await;
        assert_eq!(heard, [text("It is 4.")]);
    }

    #[tokio::test]
    async fn the_final_answer_fills_in_and_never_repeats() {
        let (_, heard) = events(async |said, sink| said.complete(sink, "all").await).await;
        assert_eq!(heard, [text("all")]);
        let (_, heard) = events(async |said, sink| {
            said.delta(sink, "al").await;
            said.complete(sink, "all").await;
        })
        .await;
        assert_eq!(heard, [text("al"), text("l")]);
        let (_, heard) = events(async |said, sink| {
            said.delta(sink, "something else").await;
            said.complete(sink, "all").await;
        })
        .await;
        assert_eq!(heard, [text("something else")]);
    }

    #[tokio::test]
    async fn after_a_lost_stream_the_final_answer_stands() {
        let (whole, heard) = events(async |said, sink| {
            said.delta(sink, "al").await;
            said.replace(sink, "all of it").await;
            said.replace(sink, "all of it").await;
            said.replace(sink, "").await;
        })
        .await;
        assert_eq!(whole, "all of it");
        assert_eq!(heard, [text("al"), AgentEvent::Replace("all of it".to_owned())]);
    }
}
