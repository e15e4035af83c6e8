//! Sends: ops as calls, in the pace that the server allows. Each op runs in a task of its own; the relay keeps their order.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::direct::telegram::{
    ApiAnswer, Call, CallFile, CallKind, CallbackKey, ChatFailures, FileAddress, Flood, FloodPermit,
    LatestReactions, Learnt, PressAnswer, PressNext, Presses, RichMessages, Speech, SpeechStep, Spoken,
    after_press, command_menu, is_noted, wait_to_repeat,
};
use crate::link::{NotSent, Op, SendResult};
use crate::net::media::BotFiles;
use crate::net::telegram::{BotClient, FilePart};
use crate::relay::clock::Clock;
use crate::relay::transport::ResultSender;
use crate::store::AppliedOps;
use crate::wire::{Action, OpId, OpResult, Outcome};

/// Calls under way that say something; further ones wait.
const MAX_SPEAKING: usize = 16;
/// Calls under way that are only for show; further ones are dropped.
const MAX_SHOWING: usize = 4;
/// How long an attempt to answer a press may take: whoever pressed waits for seconds only.
const PRESS_TIMEOUT: Duration = Duration::from_millis(1_100);
/// Presses that are being answered at a time; further ones wait this long, which is as long as whoever pressed.
const MAX_PRESSES: usize = 64;
const PRESS_WAIT: Duration = Duration::from_secs(3);
/// Presses that are answered or wait for it; in a flood of more, the rest stays unanswered, and is decided all the same.
const MAX_WAITING_PRESSES: usize = 1024;
/// What the callback data of buttons is signed for.
const CALLBACK_PURPOSE: &str = "hermes-relay callback data";

/// The sending half of a bot.
pub(super) struct Speaker {
    pub(super) client: Arc<BotClient>,
    pub(super) callbacks: CallbackKey,
    files: Arc<BotFiles>,
    clock: Clock,
    state: Mutex<SpeakerState>,
    speaking: Semaphore,
    showing: Semaphore,
    pressing: Semaphore,
    waiting_presses: Arc<Semaphore>,
    /// Ops under way.
    under_way: watch::Sender<usize>,
    /// The relay ends: nothing waits any more.
    closing: CancellationToken,
}

impl std::fmt::Debug for Speaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Speaker")
            .field("under_way", &*self.under_way.borrow())
            .finish_non_exhaustive()
    }
}

/// One lock, held for moments and never across an await.
#[derive(Debug)]
struct SpeakerState {
    spoken: Spoken,
    flood: Flood,
    failures: ChatFailures,
    reactions: LatestReactions,
    presses: Presses,
    /// Ops that Telegram has applied, also in earlier runs; `None` before the start, or when they cannot be noted.
    applied: Option<AppliedOps>,
    /// Ops that wait and of which nothing has left this process.
    unsent: HashSet<OpId>,
    /// The commands to offer, and whether Telegram has them.
    commands: Option<(Vec<Value>, bool)>,
    connected: bool,
}

impl Speaker {
    pub(super) fn new(client: Arc<BotClient>, files: Arc<BotFiles>, rich: RichMessages) -> Self {
        let mut spoken = Spoken::new();
        spoken.use_rich(rich);
        Self {
            callbacks: CallbackKey::new(&client.derived_key(CALLBACK_PURPOSE)),
            client,
            files,
            clock: Clock::start(),
            state: Mutex::new(SpeakerState {
                spoken,
                flood: Flood::new(),
                failures: ChatFailures::default(),
                reactions: LatestReactions::default(),
                presses: Presses::default(),
                applied: None,
                unsent: HashSet::new(),
                commands: None,
                connected: false,
            }),
            speaking: Semaphore::new(MAX_SPEAKING),
            showing: Semaphore::new(MAX_SHOWING),
            pressing: Semaphore::new(MAX_PRESSES),
            waiting_presses: Arc::new(Semaphore::new(MAX_WAITING_PRESSES)),
            under_way: watch::channel(0).0,
            closing: CancellationToken::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SpeakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs an op in a task of its own.
    pub(super) fn submit(self: &Arc<Self>, op: &Op, results: ResultSender) {
        let action = serde_json::from_str::<Action>(op.action.as_str()).ok();
        {
            let mut state = self.lock();
            state.unsent.insert(op.id);
            if let Some(action) = &action {
                state.reactions.submitted(op.id, action);
            }
        }
        self.under_way.send_modify(|count| *count += 1);
        let (speaker, id, within) = (Arc::clone(self), op.id, op.timeout);
        tokio::spawn(async move {
            let performing = speaker.perform(id, action);
            // Every call has a timeout; an op of many parts may take many of them.
            let result = match within {
                Some(within) => timeout(within, performing).await,
                None => Ok(performing.await),
            };
            let result = match result {
                Ok(result) => result,
                Err(_) if speaker.has_left(id) => SendResult::Answered(Box::new(Outcome::Unknown)),
                Err(_) => SendResult::NotSent(NotSent::Expired),
            };
            speaker.lock().unsent.remove(&id);
            let _ = results.try_send((id, result));
            speaker.under_way.send_modify(|count| *count -= 1);
        });
    }

    /// Whether a call of an op has been made.
    pub(super) fn has_left(&self, op: OpId) -> bool {
        !self.lock().unsent.contains(&op)
    }

    /// Waits for the ops under way, at most this long. What waits for its turn ends at once.
    pub(super) async fn drain(&self, within: Duration) {
        self.closing.cancel();
        let mut under_way = self.under_way.subscribe();
        let _ = timeout(within, under_way.wait_for(|count| *count == 0)).await;
    }

    async fn perform(&self, op: OpId, action: Option<Action>) -> SendResult {
        let Some(action) = action else {
            return answered(OpResult {
                error: Some("the op cannot be read".into()),
                ..OpResult::default()
            });
        };
        if self.lock().reactions.is_superseded(op, &action) {
            return answered(OpResult {
                success: true,
                ..OpResult::default()
            });
        }
        if let Some(message) = self.lock().applied.as_ref().and_then(|applied| applied.find(op)) {
            tracing::info!(%op, "an op was applied before the restart");
            return answered(OpResult {
                success: true,
                message_id: (!message.is_empty()).then(|| message.into()),
                ..OpResult::default()
            });
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let result = self.attempt(op, &action).await;
            let outcome = match &result {
                SendResult::Answered(outcome) => &**outcome,
                SendResult::Lost => &Outcome::Unknown,
                SendResult::NotSent(_) => return result,
            };
            let edits_buttons = self.lock().spoken.edits_buttons(&action);
            let wait = wait_to_repeat(&action, edits_buttons, outcome, attempts);
            match wait.map(|wait| self.clock.mono() + wait) {
                Some(at) if self.wait_until(at).await => {}
                Some(_) | None => return result,
            }
        }
    }

    async fn attempt(&self, op: OpId, action: &Action) -> SendResult {
        let begun = Speech::new(action, &self.callbacks, &mut self.lock().spoken);
        let mut speech = match begun {
            Ok(speech) => speech,
            Err(refused) => return answered(refused.into()),
        };
        if let Action::Prompt { prompt_id, .. } = action {
            self.lock().presses.asked(prompt_id);
        }
        let mut kind = CallKind::Show;
        loop {
            let call = match speech.step() {
                SpeechStep::Call(call) => call,
                SpeechStep::Done(Outcome::Unknown) if kind == CallKind::Speak => {
                    self.wait_after_failure(speech.chat()).await;
                    return SendResult::Lost;
                }
                SpeechStep::Done(outcome) => {
                    if let Outcome::Applied(result) = &outcome {
                        self.note(op, action, result);
                        self.succeeded(action, speech.chat()).await;
                    }
                    return SendResult::Answered(Box::new(outcome));
                }
                SpeechStep::NotSent => {
                    if kind == CallKind::Speak {
                        self.wait_after_failure(speech.chat()).await;
                    }
                    return SendResult::NotSent(NotSent::NotLive);
                }
            };
            kind = call.kind;
            let permit = self.lock().flood.admit(call.chat, call.kind, self.clock.mono());
            match permit {
                FloodPermit::Now => {}
                FloodPermit::At(at) => {
                    if !self.wait_until(at).await {
                        return SendResult::NotSent(NotSent::Closing);
                    }
                    continue;
                }
                FloodPermit::Drop => {
                    speech.dropped(&mut self.lock().spoken);
                    continue;
                }
                FloodPermit::Limited { retry_after } => {
                    speech.limited(retry_after, &mut self.lock().spoken);
                    continue;
                }
            }
            let Some(_slot) = self.slot(call.kind).await else {
                speech.dropped(&mut self.lock().spoken);
                continue;
            };
            self.lock().unsent.remove(&op);
            let answer = self.make(call).await;
            let learnt = speech.answered(answer, &mut self.lock().spoken);
            if let Some(learnt) = learnt {
                self.learn(learnt);
            }
        }
    }

    /// A place among the calls under way; none for what is only for show when all are taken.
    async fn slot(&self, kind: CallKind) -> Option<SemaphorePermit<'_>> {
        match kind {
            CallKind::Show => self.showing.try_acquire().ok(),
            CallKind::Speak => self.speaking.acquire().await.ok(),
        }
    }

    /// Makes a call.
    async fn make(&self, call: Call) -> ApiAnswer {
        let Call {
            method,
            mut body,
            file,
            ..
        } = call;
        let Some(CallFile { field, source, name }) = file else {
            return self.client.call(method, &body).await;
        };
        if let Some((path, kept_name)) = self.files.copy_of(&source) {
            let name = name.unwrap_or(kept_name);
            let part = FilePart {
                field,
                path: &path,
                name: if name.is_empty() { "file" } else { &name },
            };
            return self.client.upload(method, &body, part).await;
        }
        let by_reference = FileAddress::parse(&source).map_or(source, |address| address.id);
        body.insert(field.to_owned(), by_reference.into());
        self.client.call(method, &body).await
    }

    fn learn(&self, learnt: Learnt) {
        match learnt {
            Learnt::Migrated { from, to } => {
                tracing::info!(from, to, "a group became a supergroup; using its new id");
            }
            Learnt::Limited { chat, retry_after } => {
                let secs = retry_after.as_secs();
                tracing::info!(chat, secs, "Telegram limits what is sent to a chat");
                self.lock().flood.limited(chat, retry_after, self.clock.mono());
            }
            Learnt::Closed { chat, reason } => {
                tracing::warn!(chat, reason, "the bot can say nothing in a chat any more");
            }
            Learnt::RichRefused => {
                tracing::info!("Telegram did not take a rich message; sending it as formatted text");
            }
            Learnt::NoRich => {
                tracing::info!("the Bot API server has no rich messages; sending formatted text");
            }
            Learnt::MarkupRefused => {
                tracing::warn!("Telegram did not understand the markup of a text; sending it as plain text");
            }
        }
    }

    /// Reads which ops were applied in earlier runs. Telegram knows no op ids and would show an op twice that is sent twice.
    pub(super) fn recall(&self, path: &Path) {
        let applied = AppliedOps::open(path)
            .inspect_err(|error| tracing::warn!(%error, "a kill may make the bot repeat an answer"));
        self.lock().applied = applied.ok();
    }

    /// Notes that an op was applied: the journal learns of it with its next commit only.
    fn note(&self, op: OpId, action: &Action, result: &OpResult) {
        let message = result.message_id.as_ref().map_or("", |id| id.as_str());
        let mut state = self.lock();
        if let Some(applied) = state.applied.as_mut().filter(|_| is_noted(action))
            && let Err(error) = applied.note(op, message)
        {
            tracing::warn!(%error, "a kill may make the bot repeat an answer");
            state.applied = None;
        }
    }

    /// An op was done: its chat works, and the copy of its file is not needed any more.
    async fn succeeded(&self, action: &Action, chat: i64) {
        self.lock().failures.succeeded(chat);
        if let Action::SendMedia { source_url, .. } = action
            && let Some((path, _)) = self.files.copy_of(source_url)
        {
            let _ = tokio::fs::remove_file(path).await;
        }
    }

    /// Waits after a failure, before the relay learns of it and sends the op again.
    async fn wait_after_failure(&self, chat: i64) {
        let wait = self.lock().failures.failed(chat);
        self.wait_until(self.clock.mono() + wait).await;
    }

    /// Waits until a time; `false` if the relay ends first.
    async fn wait_until(&self, at: Duration) -> bool {
        tokio::select! {
            () = self.closing.cancelled() => false,
            () = sleep_until(self.clock.instant(at)) => true,
        }
    }

    /// Answers a press, once, so that the button stops waiting.
    pub(super) fn answer_press(
        self: &Arc<Self>,
        query_id: &str,
        event: Option<&Value>,
        button: Option<(i64, i64)>,
    ) {
        let Some(answer) = self.lock().presses.pressed(query_id, event, button) else {
            return;
        };
        let Ok(place) = Arc::clone(&self.waiting_presses).try_acquire_owned() else {
            return;
        };
        let speaker = Arc::clone(self);
        tokio::spawn(async move {
            let _place = place;
            if let Ok(Ok(_slot)) = timeout(PRESS_WAIT, speaker.pressing.acquire()).await {
                speaker.send_press_answer(&answer).await;
            }
        });
    }

    async fn send_press_answer(&self, answer: &PressAnswer) {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let again = self.clock.mono() + PRESS_TIMEOUT;
            let calling = self.client.call("answerCallbackQuery", &answer.body);
            let brought = timeout(PRESS_TIMEOUT, calling).await.ok();
            let until = match after_press(brought.as_ref(), attempts) {
                PressNext::Over => break,
                PressNext::Now => continue,
                PressNext::Later => again,
                PressNext::After(wait) => self.clock.mono() + wait,
            };
            if !self.wait_until(until).await {
                return;
            }
        }
        if let Some(body) = &answer.without_buttons {
            let _ = self.client.call("editMessageReplyMarkup", body).await;
        }
    }

    /// A group became a supergroup.
    pub(super) fn migrated(&self, from: i64, to: i64) {
        tracing::info!(from, to, "a group became a supergroup; using its new id");
        self.lock().spoken.chat_moved(from, to);
    }

    /// The server has no drafts.
    pub(super) fn no_drafts(&self) {
        self.lock().spoken.no_drafts();
    }

    /// Whether some texts are sent as rich messages.
    pub(super) fn has_rich(&self) -> bool {
        self.lock().spoken.has_rich()
    }

    /// The server has no rich messages.
    pub(super) fn no_rich(&self) {
        self.learn(Learnt::NoRich);
        self.lock().spoken.use_rich(RichMessages::Never);
    }

    /// The commands to offer from now on.
    pub(super) fn offer_commands(self: &Arc<Self>, manifest: &[Value]) {
        self.lock().commands = Some((command_menu(manifest), false));
        self.announce_commands(false);
    }

    /// Sends the command menu to Telegram if it has changed; `connected` once calls can be made.
    pub(super) fn announce_commands(self: &Arc<Self>, connected: bool) {
        let body = {
            let mut state = self.lock();
            state.connected |= connected;
            let is_connected = state.connected;
            let Some((commands, told)) = &mut state.commands else {
                return;
            };
            if !is_connected || std::mem::replace(told, true) {
                return;
            }
            Map::from_iter([("commands".to_owned(), Value::from(commands.clone()))])
        };
        let speaker = Arc::clone(self);
        tokio::spawn(async move {
            if !matches!(
                speaker.client.call("setMyCommands", &body).await,
                ApiAnswer::Ok(_)
            ) {
                tracing::info!("the bot's command menu was not changed");
            }
        });
    }
}

fn answered(result: OpResult) -> SendResult {
    SendResult::Answered(Box::new(result.into()))
}
