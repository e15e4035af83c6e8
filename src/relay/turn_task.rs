//! The task that runs one turn: the agent on one side, its chat on the other.
//!
//! It hears what the agent says, lets the turn's [`ReplyStream`] decide what of it is shown when, and wishes that from the
//! relay. It never touches the link, the journal or another turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::desk::Desk;
use super::parcels::Parcels;
pub(super) use super::turn_exchange::{FateSender, Stage, TurnReport, Wish};
use crate::adapter::ReplyStream;
use crate::adapter::stream::{OpOutcome, PlanLine, ToolLine};
use crate::agent::{Agent, AgentEvent, AgentSignal, Media, PlanStep, SignalReceiver, Turn, TurnEnd, Usage};
use crate::session::TurnId;
use crate::wire::OpId;

/// What waits for a turn's task of what became of its ops; it has at most two out.
const FATES: usize = 8;
/// Signals taken together before what they say is shown.
const HEARD_TOGETHER: usize = 64;
/// How long the fate of a first message is waited for after the turn; longer than any request lives.
const LAST_FATE: Duration = Duration::from_secs(120);
/// Before what the relay had no room for is wished again.
const CROWDED: Duration = Duration::from_millis(20);

/// Runs the agent until it ends, or until it has not stopped within the grace after being told to.
pub(super) async fn run_turn(
    agent: Arc<dyn Agent>,
    mut turn: Turn,
    mut signals: SignalReceiver,
    stage: Stage,
) -> TurnReport {
    let (cancel, grace) = (turn.cancel.clone(), stage.grace);
    let forgotten = stage.forgotten.clone();
    let desk = Arc::new(Desk::new(stage.room.clone(), turn.workdir.clone()));
    let mut voice = Voice::new(turn.id, stage, Arc::clone(&desk));
    let end = {
        let running = async {
            if let Some(forgotten) = forgotten {
                forgotten.cancelled().await;
            }
            desk.take_in(&mut turn).await;
            if turn.cancel.is_cancelled() {
                return TurnEnd::Cancelled { confirmed: true };
            }
            agent.run(turn).await
        };
        let overdue = async {
            cancel.cancelled().await;
            tokio::time::sleep(grace).await;
        };
        tokio::pin!(running, overdue);
        loop {
            let pause = voice.speak();
            tokio::select! {
                biased;
                end = &mut running => break end,
                () = &mut overdue => break TurnEnd::Cancelled { confirmed: false },
                // Cancel-safe: nothing is taken out unless the branch is chosen.
                () = voice.news() => {}
                Some(signal) = signals.recv() => voice.hear_all(signal, &mut signals),
                () = until(pause) => {}
            }
        }
    };
    signals.close();
    while let Some(signal) = signals.recv().await {
        voice.hear(signal);
    }
    voice.wait_for_parcels(&cancel).await;
    voice.wish_the_rest().await;
    voice.wait_for_fate().await;
    let report = TurnReport {
        turn: voice.turn,
        speech: voice.speech,
        spoke: voice.spoke,
        cut: voice.cut,
        parcels: voice.parcels.into_rest(),
        end,
        usage: voice.usage,
        first_word: voice.first_word,
    };
    if let Some(desk) = Arc::into_inner(desk) {
        desk.clear().await;
    }
    report
}

/// A turn's voice: its speech, and the way to the relay.
struct Voice {
    turn: TurnId,
    speech: Box<ReplyStream>,
    wishes: mpsc::Sender<(TurnId, Wish)>,
    clock: Clock,
    /// Made with the first op; most turns have none.
    fates: Fates,
    /// What the relay had no room for.
    unwished: VecDeque<Wish>,
    parcels: Parcels,
    /// How long those that are not ready are waited for after the turn.
    patience: Duration,
    room: usize,
    /// Bytes since the last break.
    since_break: usize,
    spoke: bool,
    cut: bool,
    usage: Usage,
    began: Instant,
    first_word: Option<Duration>,
}

impl Voice {
    fn new(turn: TurnId, stage: Stage, desk: Arc<Desk>) -> Self {
        Self {
            patience: stage.room.map(|room| room.transfer_timeout()).unwrap_or_default(),
            parcels: Parcels::new(turn, desk, stage.takes_media),
            turn,
            speech: stage.speech,
            wishes: stage.wishes,
            clock: stage.clock,
            fates: None,
            unwished: VecDeque::new(),
            room: stage.most,
            since_break: 0,
            spoke: false,
            cut: false,
            usage: Usage::default(),
            began: Instant::now(),
            first_word: None,
        }
    }

    /// Wishes what is to be shown now; tells when to look again although nothing happened.
    fn speak(&mut self) -> Option<Instant> {
        for _ in 0..self.unwished.len() {
            if let Some(wish) = self.unwished.pop_front()
                && let Err(wish) = self.try_wish(wish)
            {
                self.unwished.push_front(wish);
                break;
            }
        }
        let now = self.clock.mono();
        while self.unwished.is_empty() && !self.parcels.is_posting() {
            if let Some((parcel, posted)) = self.parcels.post_next(|mark| self.speech.is_shown(mark)) {
                self.wish(Wish::Media(Box::new(parcel), posted));
                continue;
            }
            let Some(utterance) = self.speech.poll(now) else {
                break;
            };
            let fates = &self.fates.get_or_insert_with(|| mpsc::channel(FATES)).0;
            let wish = Wish::Utter(Box::new(utterance), fates.clone());
            self.wish(wish);
        }
        if !self.unwished.is_empty() {
            return Some(Instant::now() + CROWDED);
        }
        if self.parcels.is_posting() {
            return None;
        }
        self.speech.poll_timeout().map(|at| self.clock.instant(at))
    }

    /// Wishes something after what could not be wished before.
    fn wish(&mut self, wish: Wish) {
        if !self.unwished.is_empty() {
            self.unwished.push_back(wish);
        } else if let Err(wish) = self.try_wish(wish) {
            self.unwished.push_back(wish);
        }
    }

    fn try_wish(&self, wish: Wish) -> Result<(), Wish> {
        match self.wishes.try_send((self.turn, wish)) {
            Err(mpsc::error::TrySendError::Full((_, wish))) => Err(wish),
            // Closed: the relay is at its end, and so is this turn.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }

    /// Wishes what is left, however long that takes; ops that nobody has seen yet are left to the end's own.
    async fn wish_the_rest(&mut self) {
        while let Some(wish) = self.unwished.pop_front() {
            if let Wish::Utter(utterance, _) = wish {
                self.settled(utterance.id, &OpOutcome::NotSent);
            } else if self.wishes.send((self.turn, wish)).await.is_err() {
                return;
            }
        }
    }

    /// Waits for what becomes of its ops and files, and takes it. Cancel-safe: what is waited for stays where it is.
    async fn news(&mut self) {
        let fate = tokio::select! {
            biased;
            Some(fate) = next_fate(&mut self.fates) => Some(fate),
            () = self.parcels.news() => None,
        };
        if let Some((ticket, fate)) = fate {
            self.settled(ticket, &fate);
        }
    }

    fn settled(&mut self, ticket: OpId, fate: &OpOutcome) {
        self.speech.op_finished(ticket, fate, self.clock.mono());
    }

    fn hear_all(&mut self, first: AgentSignal, signals: &mut SignalReceiver) {
        self.hear(first);
        for _ in 1..HEARD_TOGETHER {
            // What could not be wished comes first.
            if !self.unwished.is_empty() {
                return;
            }
            let Ok(signal) = signals.try_recv() else { return };
            self.hear(signal);
        }
    }

    fn hear(&mut self, signal: AgentSignal) {
        match signal {
            AgentSignal::Event(event) => self.hear_event(event),
            AgentSignal::Question(question, answer) => {
                // What was said before the question stands above it, and what is said after it below.
                self.speech.break_message(self.clock.mono());
                self.speak();
                self.wish(Wish::Ask(question, answer));
            }
            AgentSignal::SaveState(memory) => self.wish(Wish::Keep(memory)),
            AgentSignal::LoadState(answer) => self.wish(Wish::Recall(answer)),
        }
    }

    fn hear_event(&mut self, event: AgentEvent) {
        let now = self.clock.mono();
        match event {
            AgentEvent::Text(text) => {
                let text = self.fitting(&text);
                self.speech.push_text(text, now);
            }
            AgentEvent::Replace(text) => {
                // It takes the place of what was said since the last break.
                self.room += std::mem::take(&mut self.since_break);
                self.cut = false;
                let text = self.fitting(&text);
                self.speech.replace_text(text, now);
            }
            AgentEvent::Break => {
                self.since_break = 0;
                self.speech.break_message(now);
            }
            AgentEvent::Tool(call) => {
                let line = ToolLine {
                    id: call.id,
                    title: call.title,
                    state: call.state,
                };
                self.speech.tool(&line, now);
            }
            AgentEvent::Plan(steps) => {
                let line = |step: PlanStep| PlanLine {
                    text: step.text,
                    state: step.state,
                };
                let lines: Vec<_> = steps.into_iter().map(line).collect();
                self.speech.plan(&lines, now);
            }
            AgentEvent::Notice(text) => self.speech.notice(&text, now),
            AgentEvent::Title(title) => self.wish(Wish::Title(title)),
            AgentEvent::Usage(usage) => self.usage = usage,
            AgentEvent::Media(media) => self.hear_media(media, now),
            AgentEvent::Thought(_) => {}
        }
    }

    fn hear_media(&mut self, media: Media, now: Duration) {
        let caption = self.fitting(&media.caption).to_owned();
        let media = Media { caption, ..media };
        let mark = self.speech.position(now);
        if let Some(words) = self.parcels.hear(media, mark) {
            let words = self.fitting(&words);
            self.speech.push_text(words, now);
            self.speech.break_message(now);
        }
    }

    /// As much of a text as there is room for.
    fn fitting<'t>(&mut self, text: &'t str) -> &'t str {
        if !self.spoke && !text.trim().is_empty() {
            self.spoke = true;
            self.first_word = Some(self.began.elapsed());
        }
        if text.len() <= self.room {
            self.room -= text.len();
            self.since_break += text.len();
            return text;
        }
        let end = (0..=self.room)
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0);
        self.since_break += self.room;
        self.room = 0;
        self.cut = true;
        &text[..end]
    }

    /// Waits for the files that are not ready, within the time that one may take; not after a stop.
    async fn wait_for_parcels(&mut self, cancel: &CancellationToken) {
        if !self.parcels.is_packing() {
            return;
        }
        let late = Instant::now() + self.patience;
        while self.parcels.is_packing() {
            let pause = self.speak();
            tokio::select! {
                biased;
                () = cancel.cancelled() => self.parcels.give_up(),
                () = self.news() => {}
                () = tokio::time::sleep_until(late) => self.parcels.run_out(),
                () = until(pause) => {}
            }
        }
    }

    /// Waits until it is known how the end can be told.
    async fn wait_for_fate(&mut self) {
        if !self.speech.awaits_outcome() {
            return;
        }
        // What only waits in its lane need not be waited for: the end tells it.
        if let Some((fates, _)) = &self.fates {
            let wish = Wish::Withdraw(fates.clone());
            let _ = self.wishes.send((self.turn, wish)).await;
        }
        let late = Instant::now() + LAST_FATE;
        while self.speech.awaits_outcome() {
            match tokio::time::timeout_at(late, next_fate(&mut self.fates)).await {
                Ok(Some((ticket, fate))) => self.settled(ticket, &fate),
                Ok(None) | Err(_) => return,
            }
        }
    }
}

type Fates = Option<(FateSender, mpsc::Receiver<(OpId, OpOutcome)>)>;

async fn next_fate(fates: &mut Fates) -> Option<(OpId, OpOutcome)> {
    match fates {
        Some((_, fates)) => fates.recv().await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
