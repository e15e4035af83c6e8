//! Sends ops as calls, at the pace that the server allows. Each op runs in a task of its own; the relay keeps their order.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::direct::telegram::{
    ApiAnswer, Call, CallFile, CallKind, CallbackKey, FileAddress, FloodBudget, FloodPermit, Observation,
    OpCalls, OpStep, OutboundCache, PressAnswer, PressNext, Presses, RichMessages, after_press, command_menu,
};
use crate::direct::{ChatBackoff, LatestReactions, is_recorded, wait_to_repeat};
use crate::link::{NotSent, Op, SendResult};
use crate::net::media::BotFiles;
use crate::net::telegram::{BotClient, FilePart};
use crate::relay::clock::Clock;
use crate::relay::transport::ResultSender;
use crate::store::AppliedOps;
use crate::wire::{Action, OpId, OpResult, Outcome};

/// Required calls under way; further ones wait.
const MAX_REQUIRED_CALLS: usize = 16;
/// Droppable calls under way; further ones are dropped.
const MAX_DROPPABLE_CALLS: usize = 4;
/// Timeout of an attempt to answer a press: the person who pressed waits for seconds only.
const PRESS_TIMEOUT: Duration = Duration::from_millis(1_100);
/// Presses that are answered at a time; further ones wait no longer than the person who pressed would.
const MAX_PRESSES: usize = 64;
const PRESS_WAIT: Duration = Duration::from_secs(3);
/// Presses that are answered or wait for it. Presses beyond it stay unanswered, but take effect all the same.
const MAX_WAITING_PRESSES: usize = 1024;
/// The purpose for which the key of callback data is derived.
const CALLBACK_PURPOSE: &str = "hermes-relay callback data";

/// The sending half of a bot.
pub(super) struct OpSender {
    pub(super) client: Arc<BotClient>,
    pub(super) callbacks: CallbackKey,
    files: Arc<BotFiles>,
    clock: Clock,
    state: Mutex<SenderState>,
    required_calls: Semaphore,
    droppable_calls: Semaphore,
    pressing: Semaphore,
    waiting_presses: Arc<Semaphore>,
    /// Ops under way.
    under_way: watch::Sender<usize>,
    /// Cancelled when the relay ends: waits end at once.
    closing: CancellationToken,
}

impl std::fmt::Debug for OpSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpSender")
            .field("under_way", &*self.under_way.borrow())
            .finish_non_exhaustive()
    }
}

/// The state behind one lock, which is held briefly and never across an await.
#[derive(Debug)]
struct SenderState {
    cache: OutboundCache,
    flood: FloodBudget,
    backoff: ChatBackoff<i64>,
    reactions: LatestReactions,
    presses: Presses,
    /// Ops that Telegram has applied, also in earlier runs; `None` before the start, or when they cannot be recorded.
    applied: Option<AppliedOps>,
    /// Ops of which no call has been made yet.
    unsent: HashSet<OpId>,
    /// The command menu, and whether it was sent to Telegram.
    commands: Option<(Vec<Value>, bool)>,
    connected: bool,
}

impl OpSender {
    pub(super) fn new(client: Arc<BotClient>, files: Arc<BotFiles>, rich: RichMessages) -> Self {
        let mut cache = OutboundCache::new();
        cache.use_rich(rich);
        Self {
            callbacks: CallbackKey::new(&client.derived_key(CALLBACK_PURPOSE)),
            client,
            files,
            clock: Clock::start(),
            state: Mutex::new(SenderState {
                cache,
                flood: FloodBudget::new(),
                backoff: ChatBackoff::default(),
                reactions: LatestReactions::default(),
                presses: Presses::default(),
                applied: None,
                unsent: HashSet::new(),
                commands: None,
                connected: false,
            }),
            required_calls: Semaphore::new(MAX_REQUIRED_CALLS),
            droppable_calls: Semaphore::new(MAX_DROPPABLE_CALLS),
            pressing: Semaphore::new(MAX_PRESSES),
            waiting_presses: Arc::new(Semaphore::new(MAX_WAITING_PRESSES)),
            under_way: watch::channel(0).0,
            closing: CancellationToken::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SenderState> {
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
        let (sender, id, within) = (Arc::clone(self), op.id, op.timeout);
        tokio::spawn(async move {
            let performing = sender.perform(id, action);
            // Every call has a timeout; an op of many parts may take many of them.
            let result = match within {
                Some(within) => timeout(within, performing).await,
                None => Ok(performing.await),
            };
            let result = match result {
                Ok(result) => result,
                Err(_) if sender.has_left(id) => SendResult::Answered(Box::new(Outcome::Unknown)),
                Err(_) => SendResult::NotSent(NotSent::Expired),
            };
            sender.lock().unsent.remove(&id);
            let _ = results.try_send((id, result));
            sender.under_way.send_modify(|count| *count -= 1);
        });
    }

    /// Whether a call of an op has been made.
    pub(super) fn has_left(&self, op: OpId) -> bool {
        !self.lock().unsent.contains(&op)
    }

    /// Waits for the ops under way, at most this long. Ops that wait for a retry or a budget end at once.
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
            let edits_buttons = self.lock().cache.edits_buttons(&action);
            let wait = wait_to_repeat(&action, edits_buttons, outcome, attempts);
            match wait.map(|wait| self.clock.mono() + wait) {
                Some(at) if self.wait_until(at).await => {}
                Some(_) | None => return result,
            }
        }
    }

    async fn attempt(&self, op: OpId, action: &Action) -> SendResult {
        let planned = OpCalls::new(action, &self.callbacks, &mut self.lock().cache);
        let mut calls = match planned {
            Ok(calls) => calls,
            Err(refused) => return answered(refused.result()),
        };
        if let Action::Prompt { prompt_id, .. } = action {
            self.lock().presses.asked(prompt_id);
        }
        let mut kind = CallKind::Droppable;
        loop {
            let call = match calls.step() {
                OpStep::Call(call) => call,
                OpStep::Done(Outcome::Unknown) if kind == CallKind::Required => {
                    self.wait_after_failure(calls.chat()).await;
                    return SendResult::Lost;
                }
                OpStep::Done(outcome) => {
                    if let Outcome::Applied(result) = &outcome {
                        self.record(op, action, result);
                        self.succeeded(action, calls.chat()).await;
                    }
                    return SendResult::Answered(Box::new(outcome));
                }
                OpStep::NotSent => {
                    if kind == CallKind::Required {
                        self.wait_after_failure(calls.chat()).await;
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
                    calls.dropped(&mut self.lock().cache);
                    continue;
                }
                FloodPermit::Limited { retry_after } => {
                    calls.limited(retry_after, &mut self.lock().cache);
                    continue;
                }
            }
            let Some(_slot) = self.slot(call.kind).await else {
                calls.dropped(&mut self.lock().cache);
                continue;
            };
            self.lock().unsent.remove(&op);
            let answer = self.make(call).await;
            let observation = calls.answered(answer, &mut self.lock().cache);
            if let Some(observation) = observation {
                self.observe(observation);
            }
        }
    }

    /// A place among the calls under way; `None` for a droppable call when all are taken.
    async fn slot(&self, kind: CallKind) -> Option<SemaphorePermit<'_>> {
        match kind {
            CallKind::Droppable => self.droppable_calls.try_acquire().ok(),
            CallKind::Required => self.required_calls.acquire().await.ok(),
        }
    }

    /// Makes a call, with its file if it has one.
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

    fn observe(&self, observation: Observation) {
        match observation {
            Observation::Migrated { from, to } => {
                tracing::info!(from, to, "a group became a supergroup; using its new id");
            }
            Observation::Limited { chat, retry_after } => {
                let secs = retry_after.as_secs();
                tracing::info!(chat, secs, "Telegram limits what is sent to a chat");
                self.lock().flood.limited(chat, retry_after, self.clock.mono());
            }
            Observation::Closed { chat, reason } => {
                tracing::warn!(chat, reason, "the bot cannot send to a chat any more");
            }
            Observation::RichRefused => {
                tracing::info!("Telegram did not take a rich message; sending it as formatted text");
            }
            Observation::NoRich => {
                tracing::info!("the Bot API server has no rich messages; sending formatted text");
            }
            Observation::MarkupRefused => {
                tracing::warn!("Telegram did not understand the markup of a text; sending it as plain text");
            }
        }
    }

    /// Reads which ops were applied in earlier runs. Telegram knows no op ids and would show an op twice that is sent twice.
    pub(super) fn load_applied(&self, path: &Path) {
        let applied = AppliedOps::open(path)
            .inspect_err(|error| tracing::warn!(%error, "a kill may make the bot repeat an answer"));
        self.lock().applied = applied.ok();
    }

    /// Records that an op was applied: the journal has its result only after the next commit.
    fn record(&self, op: OpId, action: &Action, result: &OpResult) {
        let message = result.message_id.as_ref().map_or("", |id| id.as_str());
        let mut state = self.lock();
        if let Some(applied) = state.applied.as_mut().filter(|_| is_recorded(action))
            && let Err(error) = applied.note(op, message)
        {
            tracing::warn!(%error, "a kill may make the bot repeat an answer");
            state.applied = None;
        }
    }

    /// An op succeeded: its chat works, and the copy of its file is not needed any more.
    async fn succeeded(&self, action: &Action, chat: i64) {
        self.lock().backoff.succeeded(&chat);
        if let Action::SendMedia { source_url, .. } = action
            && let Some((path, _)) = self.files.copy_of(source_url)
        {
            let _ = tokio::fs::remove_file(path).await;
        }
    }

    /// Delays the result of a failed op, because the relay sends the op again at once.
    async fn wait_after_failure(&self, chat: i64) {
        let wait = self.lock().backoff.failed(chat);
        self.wait_until(self.clock.mono() + wait).await;
    }

    /// Waits until a time; `false` if the relay ends first.
    async fn wait_until(&self, at: Duration) -> bool {
        tokio::select! {
            () = self.closing.cancelled() => false,
            () = sleep_until(self.clock.instant(at)) => true,
        }
    }

    /// Answers a press, once, so that the button stops spinning.
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
        let sender = Arc::clone(self);
        tokio::spawn(async move {
            let _place = place;
            if let Ok(Ok(_slot)) = timeout(PRESS_WAIT, sender.pressing.acquire()).await {
                sender.send_press_answer(&answer).await;
            }
        });
    }

    async fn send_press_answer(&self, answer: &PressAnswer) {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let again = self.clock.mono() + PRESS_TIMEOUT;
            let calling = self.client.call("answerCallbackQuery", &answer.body);
            let response = timeout(PRESS_TIMEOUT, calling).await.ok();
            let until = match after_press(response.as_ref(), attempts) {
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
        self.lock().cache.chat_moved(from, to);
    }

    /// The server has no drafts.
    pub(super) fn no_drafts(&self) {
        self.lock().cache.no_drafts();
    }

    /// Whether some texts are sent as rich messages.
    pub(super) fn has_rich(&self) -> bool {
        self.lock().cache.has_rich()
    }

    /// The server has no rich messages.
    pub(super) fn no_rich(&self) {
        self.observe(Observation::NoRich);
        self.lock().cache.use_rich(RichMessages::Never);
    }

    /// Sets the command menu from now on.
    pub(super) fn offer_commands(self: &Arc<Self>, manifest: &[Value]) {
        self.lock().commands = Some((command_menu(manifest), false));
        self.announce_commands(false);
    }

    /// Sends the command menu to Telegram if it has changed. `connected` says that calls can be made now.
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
        let sender = Arc::clone(self);
        tokio::spawn(async move {
            if !matches!(sender.client.call("setMyCommands", &body).await, ApiAnswer::Ok(_)) {
                tracing::info!("the bot's command menu was not changed");
            }
        });
    }
}

fn answered(result: OpResult) -> SendResult {
    SendResult::Answered(Box::new(result.into()))
}
