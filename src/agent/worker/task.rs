//! One turn on a worker: its agent on one side, the relay's channel on the other.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::channel::Channel;
use super::protocol::{Down, Head, MAX_PIECE, MessageKind, Up, decode, encode, encode_packet, packet};
use super::relay_side::read_bounded;
use super::serve::{TakenSlot, Worker};
use crate::agent::{
    AgentEvent, AgentSignal, Approver, EventSink, MediaLocation, Permission, PreferenceRequest, PromptAnswer,
    SignalReceiver, Turn, TurnEnd, TurnId, TurnInput,
};
use crate::wire::SessionKey;

/// How often it looks whether the relay is there.
const LOOK: Duration = Duration::from_millis(500);
/// How long the end of a turn is repeated to a relay that is there.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// A turn on this worker.
struct WorkerTask<'a> {
    worker: &'a Worker,
    turn: String,
    relay: String,
    channel: Channel,
    cancel: CancellationToken,
    session: Option<SessionKey>,
    start: Option<(Box<TurnInput>, Permission)>,
    /// What people want to choose, instead of a turn.
    preference: Option<PreferenceRequest>,
    /// The files that came, by their place.
    files: HashMap<usize, PathBuf>,
    directory: Option<tempfile::TempDir>,
    next_ask: u64,
    questions: HashMap<u64, oneshot::Sender<PromptAnswer>>,
    states: HashMap<u64, oneshot::Sender<Option<Vec<u8>>>>,
    /// Whether the relay no longer wants it.
    refused: bool,
}

/// Runs the turn in a slot, which the relay let begin.
pub(super) async fn run(worker: &Worker, mut slot: TakenSlot) {
    let shared = &worker.0;
    let piece = shared
        .bus
        .server()
        .map_or(MAX_PIECE, |(_, largest)| MAX_PIECE.min(largest / 2));
    let mut task = WorkerTask {
        worker,
        turn: slot.turn.clone(),
        relay: slot.relay.clone(),
        channel: Channel::new(piece),
        cancel: CancellationToken::new(),
        session: None,
        start: None,
        preference: None,
        files: HashMap::new(),
        directory: None,
        next_ask: 0,
        questions: HashMap::new(),
        states: HashMap::new(),
        refused: false,
    };
    while task.start.is_none() {
        if !task.wait(&mut slot).await {
            return;
        }
    }
    let Some(turn) = task.turn() else { return };
    let (turn, signals) = turn;
    let end = task.run(&mut slot, turn, signals).await;
    if task.refused || !worker.hears(&task.relay) {
        return;
    }
    task.say(&Up::End(end), &[]);
    let patience = Instant::now() + END_PATIENCE;
    while !task.channel.is_settled() && Instant::now() < patience {
        if !task.wait(&mut slot).await {
            return;
        }
    }
    task.flush().await;
}

impl WorkerTask<'_> {
    /// Waits for the relay's next message; `false` when the relay is gone or no longer wants the turn.
    async fn wait(&mut self, slot: &mut TakenSlot) -> bool {
        self.flush().await;
        let look = Instant::now() + LOOK;
        let deadline = self.channel.deadline().map_or(look, |at| at.min(look));
        tokio::select! {
            Some(message) = slot.inbox.recv() => self.receive(message).await,
            () = tokio::time::sleep_until(deadline.into()) => {}
        }
        !self.refused && self.worker.hears(&self.relay)
    }

    async fn flush(&mut self) {
        let shared = &self.worker.0;
        while let Some(packet) = self.channel.packet(Instant::now()) {
            let bytes = encode_packet(&self.turn, &shared.id, &packet);
            if shared
                .bus
                .publish(shared.names.relay(&self.relay), bytes)
                .await
                .is_err()
            {
                return;
            }
        }
    }

    fn say(&mut self, up: &Up, blob: &[u8]) {
        self.channel.send(&encode(up, blob));
    }

    /// The turn for the agent.
    fn turn(&mut self) -> Option<(Turn, SignalReceiver)> {
        let (mut input, permission) = self.start.take()?;
        for (at, attachment) in input.attachments.iter_mut().enumerate() {
            if let (MediaLocation::File(_), Some(file)) = (&attachment.location, self.files.get(&at)) {
                attachment.location = MediaLocation::File(file.clone());
            }
        }
        let files = &self.files;
        let mut at = 0;
        input.attachments.retain(|attachment| {
            at += 1;
            matches!(attachment.location, MediaLocation::Url(_)) || files.contains_key(&(at - 1))
        });
        let (events, signals) = EventSink::new();
        let turn = Turn {
            id: TurnId(0),
            session: self.session.clone()?,
            input: *input,
            approver: Approver::new(&events, permission),
            events,
            cancel: self.cancel.clone(),
            workdir: self.worker.0.settings.workdir.clone(),
            resumed: None,
        };
        Some((turn, signals))
    }

    /// Runs the agent to its end, and forwards everything both ways.
    async fn run(&mut self, slot: &mut TakenSlot, turn: Turn, mut signals: SignalReceiver) -> TurnEnd {
        let agent = std::sync::Arc::clone(&self.worker.0.agent);
        let (preferred, mut answer) = oneshot::channel();
        let mut running = match self.preference.take() {
            None => agent.run(turn),
            Some(request) => {
                let choosing = agent.prefer(turn, request);
                Box::pin(async move {
                    let _ = preferred.send(choosing.await);
                    TurnEnd::Completed
                })
            }
        };
        let mut withdrawals: FuturesUnordered<BoxFuture<'static, u64>> = FuturesUnordered::new();
        let mut overdue: Option<tokio::time::Instant> = None;
        let end = loop {
            self.flush().await;
            if overdue.is_none() && self.cancel.is_cancelled() {
                overdue = Some(tokio::time::Instant::now() + self.worker.0.settings.grace);
            }
            let look = Instant::now() + LOOK;
            let deadline = self.channel.deadline().map_or(look, |at| at.min(look));
            let has_room = self.channel.has_room();
            tokio::select! {
                biased;
                Some(message) = slot.inbox.recv() => self.receive(message).await,
                Some(signal) = signals.recv(), if has_room => self.forward(signal, &mut withdrawals).await,
                end = &mut running => break end,
                Some(ask) = withdrawals.next(), if !withdrawals.is_empty() => {
                    if self.questions.remove(&ask).is_some() {
                        self.say(&Up::Withdraw(ask), &[]);
                    }
                }
                () = until(overdue) => break TurnEnd::Cancelled { confirmed: false },
                () = tokio::time::sleep_until(deadline.into()) => {}
            }
            if self.refused || !self.worker.hears(&self.relay) {
                if !self.cancel.is_cancelled() {
                    tracing::warn!("the relay of a turn is gone, or no longer wants it; the turn is stopped");
                }
                self.cancel.cancel();
            }
        };
        drop(running);
        signals.close();
        while let Some(signal) = signals.recv().await {
            self.forward(signal, &mut withdrawals).await;
        }
        if let Ok(answer) = answer.try_recv() {
            self.say(&Up::Preferred(Box::new(answer)), &[]);
        }
        end
    }

    async fn forward(
        &mut self,
        signal: AgentSignal,
        withdrawals: &mut FuturesUnordered<BoxFuture<'static, u64>>,
    ) {
        match signal {
            AgentSignal::Event(AgentEvent::Media(media)) => {
                let content = match &media.location {
                    MediaLocation::Url(_) => Some(Vec::new()),
                    MediaLocation::File(path) => {
                        let path = match &self.worker.0.settings.workdir {
                            Some(workdir) => workdir.join(path),
                            None => path.clone(),
                        };
                        read_bounded(&path).await
                    }
                };
                if let Some(content) = content {
                    self.say(&Up::Event(AgentEvent::Media(media)), &content);
                } else {
                    let lost = "A file of the agent is too large or cannot be read.".to_owned();
                    self.say(&Up::Event(AgentEvent::Notice(lost)), &[]);
                }
            }
            AgentSignal::Event(event) => self.say(&Up::Event(event), &[]),
            AgentSignal::Question(question, answer) => {
                let ask = self.next_ask;
                self.next_ask += 1;
                // The relay's answer goes through a channel of its own, so that a withdrawn question is noticed.
                let (sender, answered) = oneshot::channel();
                self.questions.insert(ask, sender);
                let mut answer = answer;
                withdrawals.push(Box::pin(async move {
                    tokio::select! {
                        () = answer.closed() => {}
                        given = answered => {
                            let _ = answer.send(given.unwrap_or(PromptAnswer::Cancelled));
                        }
                    }
                    ask
                }));
                self.say(&Up::Question(ask, question), &[]);
            }
            AgentSignal::SaveState(state) => {
                self.keep_in_mind(&state);
                self.say(&Up::SaveState, &state);
            }
            AgentSignal::LoadState(answer) => {
                let ask = self.next_ask;
                self.next_ask += 1;
                self.states.insert(ask, answer);
                self.say(&Up::LoadState(ask), &[]);
            }
        }
    }

    /// A message of the relay.
    async fn receive(&mut self, (head, blob): (Head, Vec<u8>)) {
        if head.from != self.relay {
            return;
        }
        if matches!(head.kind, MessageKind::No) {
            self.refused = true;
            return;
        }
        let Some(packet) = packet(head.kind, &blob) else {
            return;
        };
        let Ok(messages) = self.channel.receive(packet, Instant::now()) else {
            self.refused = true;
            return;
        };
        for message in messages {
            if let Some((down, blob)) = decode::<Down>(&message) {
                self.take(down, blob).await;
            }
        }
    }

    async fn take(&mut self, down: Down, blob: &[u8]) {
        match down {
            Down::File(at) => {
                if let Some(path) = self.keep(at, blob).await {
                    self.files.insert(at, path);
                }
            }
            Down::Start {
                session,
                input,
                permission,
                state,
            } => {
                self.begin(session, state.as_deref());
                self.start = Some((input, permission));
            }
            Down::Prefer {
                session,
                input,
                permission,
                request,
                state,
            } => {
                self.begin(session, state.as_deref());
                (self.start, self.preference) = (Some((input, permission)), Some(request));
            }
            Down::Stop => self.cancel.cancel(),
            Down::Answer(ask, answer) => {
                if let Some(waiting) = self.questions.remove(&ask) {
                    let _ = waiting.send(answer);
                }
            }
            Down::State(ask, found) => {
                if let Some(waiting) = self.states.remove(&ask) {
                    self.keep_in_mind(blob);
                    let _ = waiting.send(found.then(|| blob.to_vec()));
                }
            }
            Down::Steer(id, input) => {
                let session = self.session.as_ref();
                let taken = session.is_some_and(|session| self.worker.0.agent.steer(session, &input));
                self.say(&Up::Steered(id, taken), &[]);
            }
        }
    }

    /// The session of the turn. What the agent has in memory of it counts only if it is the latest state.
    fn begin(&mut self, session: String, latest: Option<&str>) {
        let session = SessionKey::from_text(session);
        if !self.worker.memory().has(&session, latest) {
            self.worker.0.agent.reload(&session);
        }
        self.session = Some(session);
    }

    /// The agent has saved or loaded this state.
    fn keep_in_mind(&self, state: &[u8]) {
        if let Some(session) = &self.session {
            self.worker.memory().set(session, state);
        }
    }

    /// Keeps a file of the message for as long as the turn lasts.
    async fn keep(&mut self, at: usize, content: &[u8]) -> Option<PathBuf> {
        if self.directory.is_none() {
            self.directory = tempfile::tempdir().ok();
        }
        let path = self.directory.as_ref()?.path().join(at.to_string());
        tokio::fs::write(&path, content).await.ok()?;
        Some(path)
    }
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
