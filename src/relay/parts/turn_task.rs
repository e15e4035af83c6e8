//! The task that runs one turn: the agent on one side, its chat on the other.
//!
//! It reads what the agent emits, lets the turn's [`ReplyStream`] decide what the chat is shown and when, and requests that from
//! the event loop. It never touches the link, the journal or another turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attachments::{FileToSend, Queued, TurnFiles, Uploads};
use crate::adapter::media::OutgoingAttachment;
use crate::adapter::stream::{HalfWritten, OpOutcome, PlanLine, PlannedOp, Position, ReplyStream, ToolLine};
use crate::adapter::{AnswerShaper, CodeFile, TurnChanges, TurnDiff};
use crate::agent::{
    Agent, AgentEvent, AgentSignal, Failure, FailureClass, Media, MediaLocation, PlanStep, Preference,
    PreferenceAnswer, PreferenceRequest, PromptAnswer, Question, ResumedTurn, SignalChannel, SignalReceiver,
    Turn, TurnEnd, Usage,
};
use crate::net::media::MediaClient;
use crate::relay::clock::Clock;
use crate::relay::ops::OutcomeSender;
use crate::relay::voice::{Speaker, Voice};
use crate::session::TurnId;
use crate::store::StartMark;
use crate::text::truncate_bytes;
use crate::wire::OpId;
use crate::words::PhraseKey;

/// Outcomes that wait for a turn's task; it has at most two ops in flight.
const MAX_OUTCOMES: usize = 8;
/// Signals read together before what they bring is shown.
const SIGNAL_BATCH: usize = 64;
/// How long the outcome of a last op is waited for after the turn; longer than any request lives.
const LAST_OUTCOME_TIMEOUT: Duration = Duration::from_secs(120);
/// How long to wait before repeating a request that the event loop had no room for.
const REQUEST_RETRY: Duration = Duration::from_millis(20);

/// How long an agent may take to say what it offers, or to switch.
const PREFERENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Kept of the beginning of a message.
const MAX_GIST_BYTES: usize = 1024;

/// What a turn's task asks of the event loop while it runs.
#[derive(Debug)]
pub enum TurnRequest {
    /// Send this op to the chat.
    Send(Box<PlannedOp>, OutcomeSender),
    /// Take back those of its ops that have not gone out.
    Withdraw(OutcomeSender),
    /// Ask people this.
    Ask(Box<Question>, oneshot::Sender<PromptAnswer>),
    /// The chat shows this of the answer, half-written; none when what it shows is complete.
    Shown(Option<HalfWritten>),
    /// Save this for the session.
    SaveState(Vec<u8>),
    /// Load whether the session wants spoken answers.
    LoadVoice(oneshot::Sender<Option<Vec<u8>>>),
    /// Load what was saved for the session.
    LoadState(oneshot::Sender<Option<Vec<u8>>>),
    /// The conversation has this title.
    Title(String),
    /// Send these attachments, which follow each other, and report when they have their places.
    Attach(Vec<OutgoingAttachment>, Queued),
}

/// How a turn went.
#[derive(Debug)]
pub struct TurnReport {
    pub turn: TurnId,
    /// Its answer, and how much of it the chat has seen.
    pub stream: Box<ReplyStream>,
    /// Whether there is any answer.
    pub has_text: bool,
    /// Whether the answer was longer than allowed.
    pub truncated: bool,
    /// The attachments that were not handed over.
    pub attachments: Vec<(Position, OutgoingAttachment)>,
    /// How it ended.
    pub end: TurnEnd,
    /// What it used.
    pub usage: Usage,
    /// How long the first text took.
    pub first_text: Option<Duration>,
    /// The whole answer of a turn that is not shown while it runs.
    pub collected: String,
    /// What the agent answered about its model or its mode, if it was asked for that.
    pub preference: Option<(Preference, PreferenceAnswer)>,
    /// The beginning of its last message.
    pub gist: String,
    /// What its agent changed; `None` if no agent ran.
    pub diff: Option<TurnDiff>,
}

impl TurnReport {
    /// A turn without an answer.
    pub fn without_text(turn: TurnId, stream: Box<ReplyStream>, end: TurnEnd) -> Box<Self> {
        Box::new(Self {
            turn,
            stream,
            has_text: false,
            truncated: false,
            attachments: Vec::new(),
            end,
            usage: Usage::default(),
            first_text: None,
            collected: String::new(),
            preference: None,
            gist: String::new(),
            diff: None,
        })
    }
}

/// What a turn's task is given beside the turn.
#[derive(Debug)]
pub struct TurnContext {
    pub stream: Box<ReplyStream>,
    /// Collect the answer instead of streaming it.
    pub collect: bool,
    /// When the turn begins.
    pub started: Duration,
    pub clock: Clock,
    /// How long a cancelled turn may take to end.
    pub grace: Duration,
    /// Maximum length of the answer, in bytes.
    pub max_output: usize,
    /// Cancelled when the agents have forgotten the session's last conversation.
    pub forgotten: Option<CancellationToken>,
    /// Downloads and uploads attachments.
    pub media: Option<Arc<MediaClient>>,
    /// Transcribes recordings and speaks answers.
    pub voice: Voice,
    /// Whether its platform accepts attachments.
    pub accepts_attachments: bool,
    /// Whether its platform shows several files as one message.
    pub has_albums: bool,
    /// Notes that the agent is given the turn.
    pub start_mark: Option<StartMark>,
    /// What is done in place of an answer.
    pub instead: Option<Box<InsteadOfAnswer>>,
    /// What an earlier process left of the turn.
    pub resumed: Option<ResumedTurn>,
    /// Rewrites the answer for its platform.
    pub shaper: Box<AnswerShaper>,
}

/// What a turn does in place of running its agent.
#[derive(Clone, Debug)]
pub enum InsteadOfAnswer {
    /// Asks the agent about its model or its mode.
    Prefer(PreferenceRequest),
    /// Says this, and sends a file.
    Show(String, Option<CodeFile>),
}

impl TurnContext {
    /// What may speak the answer: where it is shown to a chat that takes files.
    fn speaker(&self) -> Option<Arc<Speaker>> {
        let speaks =
            self.accepts_attachments && !self.collect && self.media.is_some() && self.instead.is_none();
        self.voice.speaker.clone().filter(|_| speaks)
    }
}

/// Runs the agent until it ends, or until it has not stopped within the grace period after being cancelled. Returns the channel
/// as well, so that another turn can have it.
pub async fn run_turn(
    agent: Arc<dyn Agent>,
    mut turn: Box<Turn>,
    mut channel: SignalChannel,
    requests: mpsc::Sender<(TurnId, TurnRequest)>,
    context: TurnContext,
) -> (Box<TurnReport>, SignalChannel) {
    let (cancel, grace) = (turn.cancel.clone(), context.grace);
    let (forgotten, transcriber) = (context.forgotten.clone(), context.voice.transcriber.clone());
    let (speaker, instead) = (context.speaker(), context.instead.clone());
    let has_answer = instead.is_none();
    let mut preference = None;
    let platform = turn.input.origin.platform.clone();
    let files = Arc::new(TurnFiles::new(
        context.media.clone(),
        platform,
        turn.workdir.clone(),
    ));
    let mut output = TurnOutput::new(turn.id, requests, context, Arc::clone(&files));
    output.changes = TurnChanges::new(turn.workdir.clone());
    if let Some(InsteadOfAnswer::Show(text, file)) = instead.as_deref() {
        output.show(text, file.clone());
    }
    let end = {
        let running = async {
            if let Some(forgotten) = forgotten {
                forgotten.cancelled().await;
            }
            match transcriber {
                // Its agent has had the message.
                _ if turn.resumed.is_some() => {}
                _ if turn.input.attachments.is_empty() => {}
                Some(transcriber) => Box::pin(transcriber.receive(&files, &mut turn)).await,
                None => {
                    let missing = Box::pin(files.download(&mut turn)).await;
                    Box::pin(files.tell_missing(&turn, missing)).await;
                }
            }
            if turn.cancel.is_cancelled() {
                return TurnEnd::Cancelled { confirmed: true };
            }
            if turn.events.awaits_start_mark() && !agent.info().marks_start {
                turn.events.mark_started();
            }
            match instead.map(|instead| *instead) {
                Some(InsteadOfAnswer::Show(..)) => TurnEnd::Completed,
                Some(InsteadOfAnswer::Prefer(request)) => {
                    let asked = request.preference;
                    let (end, answer) = Box::pin(choose(&*agent, *turn, request)).await;
                    preference = answer.map(|answer| (asked, answer));
                    end
                }
                None => agent.run(*turn).await,
            }
        };
        let overdue = async {
            cancel.cancelled().await;
            tokio::time::sleep(grace).await;
        };
        tokio::pin!(running, overdue);
        let mut next_poll = output.flush_at(output.started);
        loop {
            tokio::select! {
                biased;
                end = &mut running => break end,
                () = &mut overdue => break TurnEnd::Cancelled { confirmed: false },
                // Cancel-safe: nothing is taken out unless the branch is chosen.
                () = output.progress() => {}
                Some(signal) = channel.signals.recv() => output.handle_batch(signal, &mut channel.signals),
                () = until(next_poll) => {}
            }
            next_poll = output.flush();
        }
    };
    channel.end_turn();
    while let Ok(signal) = channel.signals.try_recv() {
        output.handle(signal);
    }
    output.end_text(output.clock.mono());
    if let Some(speaker) = speaker.filter(|_| end == TurnEnd::Completed) {
        Box::pin(output.speak(&speaker, &files, &cancel)).await;
    }
    output.finish_uploads(&cancel).await;
    output.flush_requests().await;
    output.wait_for_outcome().await;
    let report = Box::new(TurnReport {
        turn: output.turn,
        stream: output.stream,
        has_text: output.has_text,
        truncated: output.truncated,
        attachments: output.uploads.into_rest(),
        end,
        usage: output.usage,
        first_text: output.first_text,
        collected: output.collected,
        preference,
        gist: output.gist.text,
        diff: has_answer.then(|| output.changes.into_diff()),
    });
    if let Some(files) = Arc::into_inner(files) {
        files.clear().await;
    }
    (report, channel)
}

/// Asks an agent about its model or its mode, within a time limit.
async fn choose(
    agent: &dyn Agent,
    turn: Turn,
    request: PreferenceRequest,
) -> (TurnEnd, Option<PreferenceAnswer>) {
    let cancel = turn.cancel.clone();
    let chosen = tokio::time::timeout(PREFERENCE_TIMEOUT, agent.prefer(turn, request));
    tokio::select! {
        biased;
        () = cancel.cancelled() => (TurnEnd::Cancelled { confirmed: true }, None),
        chosen = chosen => match chosen {
            Ok(PreferenceAnswer::Failed(failure)) => (TurnEnd::Failed(failure), None),
            Ok(answer) => (TurnEnd::Completed, Some(answer)),
            Err(_) => {
                let public = "The agent did not answer in time. Please try again.";
                let failure = Failure::new(FailureClass::Timeout, public, "it did not answer what it offers");
                (TurnEnd::Failed(failure.without_side_effects()), None)
            }
        },
    }
}

/// A turn's output: its reply stream, and the way to the event loop.
struct TurnOutput {
    turn: TurnId,
    stream: Box<ReplyStream>,
    /// Rewrites the answer for the platform.
    shaper: Box<AnswerShaper>,
    /// The answer so far, instead of the stream.
    collect: bool,
    /// The answer so far, beside the stream.
    speaks: bool,
    collected: String,
    /// Where its last message begins.
    last_break: usize,
    /// Where the last files are, while nothing follows them.
    file_place: Option<Position>,
    /// What the agent changed.
    changes: TurnChanges,
    requests: mpsc::Sender<(TurnId, TurnRequest)>,
    clock: Clock,
    outcomes: Outcomes,
    /// What the event loop had no room for.
    unsent: VecDeque<TurnRequest>,
    /// The half-written message that the event loop knows of.
    half_written: Option<HalfWritten>,
    uploads: Uploads,
    upload_timeout: Duration,
    /// Bytes of output that are still allowed.
    room: usize,
    /// Bytes since the last break.
    since_break: usize,
    gist: Gist,
    has_text: bool,
    truncated: bool,
    usage: Usage,
    /// On the clock.
    started: Duration,
    first_text: Option<Duration>,
}

impl TurnOutput {
    fn new(
        turn: TurnId,
        requests: mpsc::Sender<(TurnId, TurnRequest)>,
        context: TurnContext,
        files: Arc<TurnFiles>,
    ) -> Self {
        Self {
            upload_timeout: files.upload_timeout(),
            uploads: Uploads::new(turn, files, context.accepts_attachments, context.has_albums),
            turn,
            speaks: context.speaker().is_some(),
            stream: context.stream,
            collect: context.collect,
            shaper: context.shaper,
            collected: String::new(),
            last_break: 0,
            file_place: None,
            changes: TurnChanges::default(),
            requests,
            started: context.started,
            clock: context.clock,
            outcomes: None,
            unsent: VecDeque::new(),
            half_written: None,
            room: context.max_output,
            since_break: 0,
            gist: Gist::default(),
            has_text: false,
            truncated: false,
            usage: Usage::default(),
            first_text: None,
        }
    }

    /// Requests what is due now; returns when to look again although nothing happened.
    fn flush(&mut self) -> Option<Instant> {
        self.flush_at(self.clock.mono())
    }

    fn flush_at(&mut self, now: Duration) -> Option<Instant> {
        for _ in 0..self.unsent.len() {
            if let Some(request) = self.unsent.pop_front()
                && let Err(request) = self.try_request(request)
            {
                self.unsent.push_front(request);
                break;
            }
        }
        while !self.collect && self.unsent.is_empty() && !self.uploads.is_queueing() {
            let is_shown = |position| self.stream.is_shown(position);
            if let Some((attachments, queued)) = self.uploads.next_ready(is_shown, self.file_place) {
                self.request(TurnRequest::Attach(attachments, queued));
                continue;
            }
            if self.delayed_until().is_some() {
                break;
            }
            let Some(op) = self.stream.poll(now) else {
                break;
            };
            // Most turns have no op before their end, and need no channel.
            let outcomes = &self.outcomes.get_or_insert_with(|| mpsc::channel(MAX_OUTCOMES)).0;
            let request = TurnRequest::Send(Box::new(op), outcomes.clone());
            self.request(request);
        }
        if !self.unsent.is_empty() {
            return Some(Instant::now() + REQUEST_RETRY);
        }
        if self.collect || self.uploads.is_queueing() {
            return None;
        }
        let poll = || self.stream.poll_timeout().map(|at| self.clock.instant(at));
        let poll = self.delayed_until().or_else(poll);
        let album = self.uploads.wait_until();
        poll.into_iter().chain(album).min()
    }

    /// Until when what the chat is shown next waits for a file before it.
    fn delayed_until(&self) -> Option<Instant> {
        self.uploads
            .delayed_until(|position| self.stream.is_shown(position))
    }

    /// Requests something, after what could not be requested before.
    fn request(&mut self, request: TurnRequest) {
        if !self.unsent.is_empty() {
            self.unsent.push_back(request);
        } else if let Err(request) = self.try_request(request) {
            self.unsent.push_back(request);
        }
    }

    fn try_request(&self, request: TurnRequest) -> Result<(), TurnRequest> {
        match self.requests.try_send((self.turn, request)) {
            Err(mpsc::error::TrySendError::Full((_, request))) => Err(request),
            // Closed: the relay is ending, and this turn with it.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }

    /// Requests what is left, however long that takes. Ops that nobody has seen yet are left to the turn's end.
    async fn flush_requests(&mut self) {
        while let Some(request) = self.unsent.pop_front() {
            if let TurnRequest::Send(op, _) = request {
                self.op_finished(op.id, &OpOutcome::NotSent);
            } else if self.requests.send((self.turn, request)).await.is_err() {
                return;
            }
        }
    }

    /// Waits for outcomes and uploads. Cancel-safe: what is waited for stays under way.
    async fn progress(&mut self) {
        let outcome = tokio::select! {
            biased;
            Some(outcome) = next_outcome(&mut self.outcomes) => Some(outcome),
            () = self.uploads.progress() => None,
        };
        if let Some((op, outcome)) = outcome {
            self.op_finished(op, &outcome);
        }
    }

    fn op_finished(&mut self, op: OpId, outcome: &OpOutcome) {
        self.stream.op_finished(op, outcome, self.clock.mono());
        let half_written = self.stream.half_written();
        if half_written != self.half_written {
            self.half_written.clone_from(&half_written);
            self.request(TurnRequest::Shown(half_written));
        }
    }

    fn handle_batch(&mut self, first: AgentSignal, signals: &mut SignalReceiver) {
        self.handle(first);
        for _ in 1..SIGNAL_BATCH {
            // What could not be requested comes first.
            if !self.unsent.is_empty() {
                return;
            }
            let Ok(signal) = signals.try_recv() else { return };
            self.handle(signal);
        }
    }

    fn handle(&mut self, signal: AgentSignal) {
        match signal {
            AgentSignal::Event(event) => self.handle_event(event),
            AgentSignal::Question(question, reply) => {
                self.file_place = None;
                // Text before the question stands above it, text after it below.
                self.break_message(self.clock.mono());
                self.uploads.end_delay();
                self.flush();
                self.request(TurnRequest::Ask(question, reply));
            }
            AgentSignal::SaveState(state) => self.request(TurnRequest::SaveState(state)),
            AgentSignal::LoadState(reply) => self.request(TurnRequest::LoadState(reply)),
        }
    }

    fn handle_event(&mut self, event: AgentEvent) {
        let now = self.clock.mono();
        match event {
            AgentEvent::Text(text) => self.push_text(text, now),
            AgentEvent::Replace(text) => {
                // It replaces the text since the last break.
                self.collected.truncate(self.last_break);
                self.room += std::mem::take(&mut self.since_break);
                self.truncated = false;
                let text = self.fit(&text, now);
                self.file_place = None;
                self.gist.end();
                self.gist.push(text);
                if self.collect || self.speaks {
                    self.collected.push_str(text);
                }
                if !self.collect {
                    let shaped = self.shaper.replace(text);
                    self.stream.replace_text(&shaped, now);
                }
            }
            AgentEvent::Break => self.break_message(now),
            AgentEvent::Tool(_) | AgentEvent::Plan(_) | AgentEvent::Notice(_) | AgentEvent::Title(_)
                if self.collect => {}
            AgentEvent::Tool(call) => {
                let held = self.shaper.pause();
                self.show_held(&held, now);
                self.gist.end();
                let line = ToolLine {
                    id: call.id,
                    title: call.title,
                    state: call.state,
                };
                self.stream.tool(&line, now);
            }
            AgentEvent::Plan(steps) => {
                let line = |step: PlanStep| PlanLine {
                    text: step.text,
                    state: step.state,
                };
                let lines: Vec<_> = steps.into_iter().map(line).collect();
                self.stream.plan(&lines, now);
            }
            AgentEvent::Notice(text) => {
                let text = self.stream.language().reword(&text).into_owned();
                self.stream.notice(&text, now);
            }
            AgentEvent::Title(title) => self.request(TurnRequest::Title(title)),
            AgentEvent::Usage(usage) => self.usage = usage.capped(),
            AgentEvent::Media(media) => self.attach(media, now),
            AgentEvent::Changed(change) => self.changes.add(&change.path, change.old, change.new),
            AgentEvent::Thought(_) => {}
        }
    }

    fn push_text(&mut self, mut text: String, now: Duration) {
        text.truncate(self.fit(&text, now).len());
        self.file_place = self.file_place.filter(|_| text.trim().is_empty());
        if self.collect || self.speaks {
            self.collected.push_str(&text);
        }
        if !self.collect {
            self.stream.push_text(&self.shaper.push(&text), now);
        }
        self.gist.push(text);
    }

    /// Says something of the relay's own, and sends a file.
    fn show(&mut self, text: &str, file: Option<CodeFile>) {
        let now = self.clock.mono();
        self.push_text(text.to_owned(), now);
        if let Some(file) = file {
            let position = self.file_place(now);
            // It is the first one, so there is room.
            let _ = self.uploads.add(FileToSend::Code(file), position);
        }
    }

    /// Shows what of the answer was held back.
    fn release_text(&mut self, now: Duration) {
        let held = self.shaper.finish();
        self.show_held(&held, now);
    }

    fn show_held(&mut self, held: &str, now: Duration) {
        if !self.collect && !held.is_empty() {
            self.file_place = None;
            self.stream.push_text(held, now);
        }
    }

    /// A message is over: shows what was held back, and sends its long code.
    fn end_text(&mut self, now: Duration) {
        self.release_text(now);
        for code in self.shaper.take_files() {
            let position = self.file_place(now);
            if let Some(text) = self.uploads.add(FileToSend::Code(code), position) {
                self.stream.push_text(&text, now);
                self.stream.break_message(now);
            }
        }
    }

    /// What follows is a message of its own.
    fn break_message(&mut self, now: Duration) {
        self.end_text(now);
        self.gist.end();
        self.since_break = 0;
        if !self.collect {
            self.stream.break_message(now);
        }
        if self.collected.len() > self.last_break {
            self.collected.push_str("\n\n");
            self.last_break = self.collected.len();
        }
    }

    fn attach(&mut self, media: Media, now: Duration) {
        if self.collect {
            // What is collected becomes a text, which holds no files.
            let text = FileToSend::Media(media).replacement();
            let text = self.stream.language().reword(&text).into_owned();
            self.break_message(now);
            self.push_text(text, now);
            return self.break_message(now);
        }
        let caption = self.fit(&media.caption, now).to_owned();
        let media = Media { caption, ..media };
        self.release_text(now);
        let position = self.file_place(now);
        if let Some(text) = self.uploads.add(FileToSend::Media(media), position) {
            self.push_text(text, now);
            self.break_message(now);
        }
    }

    /// Where a file belongs: beside the one before it if nothing is between them.
    fn file_place(&mut self, now: Duration) -> Position {
        *self.file_place.get_or_insert_with(|| self.stream.position(now))
    }

    /// As much of a text as there is room for.
    fn fit<'t>(&mut self, text: &'t str, now: Duration) -> &'t str {
        if !self.has_text && !text.trim().is_empty() {
            self.has_text = true;
            self.first_text = Some(now.saturating_sub(self.started));
        }
        let taken = text.len().min(self.room);
        self.room -= taken;
        self.since_break += taken;
        if taken == text.len() {
            return text;
        }
        self.truncated = true;
        truncate_bytes(text, taken)
    }

    /// Adds the answer as a recording, if the session wants that; not after a stop.
    async fn speak(&mut self, speaker: &Speaker, files: &TurnFiles, cancel: &CancellationToken) {
        let text = std::mem::take(&mut self.collected);
        if text.trim().is_empty() {
            return;
        }
        let (reply, wanted) = oneshot::channel();
        self.request(TurnRequest::LoadVoice(reply));
        let Some(Ok(Some(_))) = self.while_shown(wanted, cancel).await else {
            return;
        };
        if !self.truncated {
            // The text is complete: the chat need not wait until it is spoken.
            self.stream.break_message(self.clock.mono());
        }
        let turn = self.turn;
        let work = async {
            let spoken = speaker.speak(text.trim()).await;
            let spoken = spoken.map_err(|reason| reason.to_string());
            let file = match spoken {
                Ok((name, audio)) => files.put(turn, name, &audio).await.map_err(|e| e.to_string()),
                Err(reason) => Err(reason),
            };
            file.inspect_err(|reason| tracing::warn!(turn = turn.0, reason, "an answer was not spoken"))
        };
        let Some(spoken) = self.while_shown(work, cancel).await else {
            return;
        };
        let now = self.clock.mono();
        let Ok(path) = spoken else {
            let notice = self.stream.language().plain(PhraseKey::NotSpoken);
            return self.stream.notice(notice, now);
        };
        // Platforms play these in the chat; others are files.
        let plays = path
            .extension()
            .is_some_and(|end| ["ogg", "mp3", "m4a"].iter().any(|known| end == *known));
        let recording = Media {
            location: MediaLocation::File(path),
            caption: String::new(),
            kind: plays.then(|| "voice".to_owned()),
            name: None,
        };
        self.attach(recording, now);
    }

    /// What the work results in; meanwhile the answer is shown. Nothing after a stop.
    async fn while_shown<T>(
        &mut self,
        work: impl Future<Output = T>,
        cancel: &CancellationToken,
    ) -> Option<T> {
        tokio::pin!(work);
        loop {
            let next_poll = self.flush();
            tokio::select! {
                biased;
                () = cancel.cancelled() => return None,
                result = &mut work => return Some(result),
                () = self.progress() => {}
                () = until(next_poll) => {}
            }
        }
    }

    /// Waits for the uploads under way, within the time that one may take; not after a stop.
    async fn finish_uploads(&mut self, cancel: &CancellationToken) {
        if !self.uploads.is_uploading() {
            return;
        }
        let deadline = Instant::now() + self.upload_timeout;
        while self.uploads.is_uploading() {
            let next_poll = self.flush();
            tokio::select! {
                biased;
                () = cancel.cancelled() => self.uploads.cancel(),
                () = self.progress() => {}
                () = tokio::time::sleep_until(deadline) => self.uploads.time_out(),
                () = until(next_poll) => {}
            }
        }
    }

    /// Waits until the outcome is known that decides how the end is shown.
    async fn wait_for_outcome(&mut self) {
        if !self.stream.awaits_outcome() {
            return;
        }
        // An op that only waits in its lane need not be waited for: the end shows its text.
        if let Some((outcomes, _)) = &self.outcomes {
            let withdraw = TurnRequest::Withdraw(outcomes.clone());
            let _ = self.requests.send((self.turn, withdraw)).await;
        }
        let deadline = Instant::now() + LAST_OUTCOME_TIMEOUT;
        while self.stream.awaits_outcome() {
            match tokio::time::timeout_at(deadline, next_outcome(&mut self.outcomes)).await {
                Ok(Some((op, outcome))) => self.op_finished(op, &outcome),
                Ok(None) | Err(_) => return,
            }
        }
    }
}

/// The beginning of the last message of a turn.
#[derive(Debug, Default)]
struct Gist {
    text: String,
    /// Whether the next text begins another message.
    is_over: bool,
}

impl Gist {
    fn push(&mut self, text: impl AsRef<str> + Into<String>) {
        let more = text.as_ref();
        if self.is_over && !more.trim().is_empty() {
            self.is_over = false;
            self.text.clear();
        }
        let room = MAX_GIST_BYTES.saturating_sub(self.text.len());
        if self.text.is_empty() && more.len() <= room {
            self.text = text.into();
        } else {
            self.text.push_str(truncate_bytes(more, room));
        }
    }

    fn end(&mut self) {
        self.is_over = true;
    }
}

type Outcomes = Option<(OutcomeSender, mpsc::Receiver<(OpId, OpOutcome)>)>;

async fn next_outcome(outcomes: &mut Outcomes) -> Option<(OpId, OpOutcome)> {
    match outcomes {
        Some((_, outcomes)) => outcomes.recv().await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::adapter::stream::Priority;
    use crate::adapter::{Chat, ChatId, RelayAdapter};
    use crate::agent::{AgentFuture, AgentInfo, QuestionKind, TurnInput};
    use crate::wire::OpIds;

    /// The context of a turn that is shown in a chat without anything else.
    pub fn context() -> TurnContext {
        let adapter = RelayAdapter::new("slack", None, None, Arc::default());
        let chat = Chat::from(ChatId {
            platform: "slack".into(),
            chat: "C1".into(),
        });
        let ids = OpIds::new(7);
        let clock = Clock::start();
        let stream = adapter.stream_to(Arc::new(chat), "s1".into(), None, 1, ids, clock.mono());
        TurnContext {
            stream: Box::new(stream),
            collect: false,
            started: clock.mono(),
            clock,
            grace: Duration::from_secs(5),
            max_output: 4096,
            forgotten: None,
            media: None,
            voice: Voice::default(),
            accepts_attachments: false,
            has_albums: false,
            start_mark: None,
            instead: None,
            resumed: None,
            shaper: Box::default(),
        }
    }

    /// The output of a turn that sent a file and a text behind it.
    fn file_and_text() -> (TurnOutput, mpsc::Receiver<(TurnId, TurnRequest)>) {
        let (requests, requested) = mpsc::channel(8);
        let files = Arc::new(TurnFiles::new(None, "slack".into(), None));
        let mut output = TurnOutput::new(TurnId(1), requests, context(), files);
        let file = Media {
            location: MediaLocation::File("chart.png".into()),
            caption: String::new(),
            kind: None,
            name: None,
        };
        output.handle_event(AgentEvent::Media(file));
        output.handle_event(AgentEvent::Text("behind it".to_owned()));
        output.handle_event(AgentEvent::Break);
        (output, requested)
    }

    /// What was requested since the last look; files get their places.
    fn requested(requests: &mut mpsc::Receiver<(TurnId, TurnRequest)>) -> Vec<&'static str> {
        let mut seen = Vec::new();
        while let Ok((_, request)) = requests.try_recv() {
            match request {
                TurnRequest::Send(op, _) if op.priority == Priority::Text => seen.push("text"),
                TurnRequest::Attach(_, queued) => {
                    queued.send(Ok(())).expect("the turn waits");
                    seen.push("file");
                }
                TurnRequest::Ask(..) => seen.push("question"),
                _ => {}
            }
        }
        seen
    }

    #[tokio::test(start_paused = true)]
    async fn the_text_behind_a_file_waits_for_its_upload_but_not_for_long() {
        let second = Duration::from_secs(1);
        let (mut output, mut requests) = file_and_text();
        let later = output.clock.mono() + 60 * second;
        assert_eq!(output.flush_at(later), Some(Instant::now() + second));
        assert!(requested(&mut requests).is_empty(), "the upload is under way");
        output.progress().await;
        output.flush_at(later);
        assert_eq!(requested(&mut requests), ["file"]);
        output.progress().await;
        output.flush_at(later);
        assert_eq!(requested(&mut requests), ["text"]);

        let (mut slow, mut requests) = file_and_text();
        slow.flush_at(later);
        assert!(requested(&mut requests).is_empty());
        tokio::time::advance(second).await;
        slow.flush_at(later);
        assert_eq!(requested(&mut requests), ["text"], "the upload takes too long");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_comes_below_the_text_before_it_although_a_file_is_being_uploaded() {
        let (mut output, mut requests) = file_and_text();
        let question = Question {
            kind: QuestionKind::Approval,
            text: "May I?".to_owned(),
            detail: None,
            options: Vec::new(),
            timeout: None,
            resume: None,
        };
        let (reply, _answer) = oneshot::channel();
        output.handle(AgentSignal::Question(Box::new(question), reply));
        assert_eq!(requested(&mut requests), ["text", "question"]);
    }

    /// Answers with the number of start marks before it runs, and marks its start if it says so.
    struct CountingAgent {
        marks: Arc<AtomicUsize>,
        marks_start: bool,
    }

    impl Agent for CountingAgent {
        fn info(&self) -> AgentInfo {
            AgentInfo {
                marks_start: self.marks_start,
                ..AgentInfo::default()
            }
        }

        fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
            Box::pin(async move {
                let before = self.marks.load(Ordering::SeqCst);
                turn.events.text(before.to_string()).await;
                if self.marks_start {
                    turn.events.mark_started();
                }
                TurnEnd::Completed
            })
        }
    }

    /// What a turn answered, and its start marks.
    async fn answer(marks_start: bool, is_marked: bool, cancel: CancellationToken) -> (String, usize) {
        let marks = Arc::new(AtomicUsize::new(0));
        let channel = SignalChannel::new();
        let mut events = channel.sink();
        if is_marked {
            let marks = Arc::clone(&marks);
            events = events.with_start_mark(move || {
                marks.fetch_add(1, Ordering::SeqCst);
            });
        }
        let turn = Turn::alone(TurnInput::default(), events, cancel);
        let agent = CountingAgent {
            marks: Arc::clone(&marks),
            marks_start,
        };
        let (requests, _requested) = mpsc::channel(8);
        let (report, _) = run_turn(Arc::new(agent), Box::new(turn), channel, requests, context()).await;
        (report.gist, marks.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn a_start_is_marked_once_before_the_agent_runs_or_by_the_agent() {
        let answer_to = |marks_start, is_marked| answer(marks_start, is_marked, CancellationToken::new());
        assert_eq!(answer_to(false, true).await, ("1".to_owned(), 1));
        assert_eq!(answer_to(true, true).await, ("0".to_owned(), 1));
        assert_eq!(answer_to(false, false).await, ("0".to_owned(), 0));
        let stopped = CancellationToken::new();
        stopped.cancel();
        let stopped = answer(false, true, stopped).await;
        assert_eq!(stopped, (String::new(), 0), "its agent never ran");
    }
}
