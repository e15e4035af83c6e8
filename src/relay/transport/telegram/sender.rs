//! The Bot API as the relay's sender of ops uses it; the answers to presses, and the menu of commands.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::direct::flood::MAX_RETRY_AFTER;
use crate::direct::telegram::{
    ApiAnswer, Call, CallFile, CallbackKey, FLOOD_RATES, FileAddress, Observation, OpCalls, OpRefusal,
    OpStep, OutboundCache, PressAnswer, PressNext, Presses, RichMessages, after_press, command_menu,
};
use crate::net::media::BotFiles;
use crate::net::telegram::{BotClient, FilePart};
use crate::relay::transport::bot_sender::{BotSender, BotStep, CallCost, PlatformApi};
use crate::wire::{Action, OpId, OpResult};
use crate::words::Language;

/// Timeout of an attempt to answer a press: the person who pressed waits for seconds only.
const PRESS_TIMEOUT: Duration = Duration::from_millis(1_100);
/// Presses that are answered at a time; further ones wait no longer than the person who pressed would.
const MAX_PRESSES: usize = 64;
const PRESS_WAIT: Duration = Duration::from_secs(3);
/// Presses that are answered or wait for it. Presses beyond it stay unanswered, but take effect all the same.
const MAX_WAITING_PRESSES: usize = 1024;
/// Attempts to send the command menu, and the first and the longest pause between two of them.
const MENU_ATTEMPTS: usize = 6;
const MENU_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The purpose for which the key of callback data is derived.
const CALLBACK_PURPOSE: &str = "hermes-relay callback data";

/// The sending half of a Telegram bot.
pub(super) type OpSender = BotSender<TelegramApi>;

/// The Bot API, and what is remembered between ops.
pub(super) struct TelegramApi {
    pub(super) client: Arc<BotClient>,
    pub(super) callbacks: CallbackKey,
    files: Arc<BotFiles>,
    state: Mutex<ApiState>,
    pressing: Semaphore,
    waiting_presses: Arc<Semaphore>,
}

/// The state behind one lock, which is held briefly and never across an await.
#[derive(Debug)]
struct ApiState {
    cache: OutboundCache,
    presses: Presses,
    /// The command menu, and whether it was sent to Telegram.
    commands: Option<(Vec<Value>, bool)>,
    connected: bool,
}

impl TelegramApi {
    /// A sender of ops through the Bot API.
    pub(super) fn sender(
        client: Arc<BotClient>,
        files: Arc<BotFiles>,
        rich: RichMessages,
        language: Language,
    ) -> OpSender {
        let mut cache = OutboundCache::new();
        cache.use_rich(rich);
        let api = Self {
            callbacks: CallbackKey::new(&client.derived_key(CALLBACK_PURPOSE)),
            client,
            files,
            state: Mutex::new(ApiState {
                cache,
                presses: Presses::new(language),
                commands: None,
                connected: false,
            }),
            pressing: Semaphore::new(MAX_PRESSES),
            waiting_presses: Arc::new(Semaphore::new(MAX_WAITING_PRESSES)),
        };
        BotSender::new(api, FLOOD_RATES)
    }

    fn lock(&self) -> MutexGuard<'_, ApiState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells people what an answer revealed; returns the time to wait if the server limits the chat.
    fn observe(observation: Observation) -> Option<Duration> {
        match observation {
            Observation::Migrated { from, to } => {
                tracing::info!(from, to, "a group became a supergroup; using its new id");
            }
            Observation::Limited { chat, retry_after } => {
                let secs = retry_after.as_secs();
                tracing::info!(chat, secs, "Telegram limits what is sent to a chat");
                return Some(retry_after);
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
        None
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
        let _ = Self::observe(Observation::NoRich);
        self.lock().cache.use_rich(RichMessages::Never);
    }
}

impl PlatformApi for TelegramApi {
    type Calls = OpCalls;
    type Call = Call;
    type Answer = ApiAnswer;

    fn begin(&self, _op: OpId, action: &Action) -> Result<OpCalls, OpResult> {
        let planned = OpCalls::new(action, &self.callbacks, &mut self.lock().cache);
        let calls = planned.map_err(OpRefusal::result)?;
        if let Action::Prompt { prompt_id, .. } = action {
            self.lock().presses.asked(prompt_id);
        }
        Ok(calls)
    }

    fn chat(calls: &OpCalls) -> i64 {
        calls.chat()
    }

    fn step(calls: &OpCalls) -> BotStep<Call> {
        match calls.step() {
            OpStep::Call(call) => BotStep::Call(call),
            OpStep::Done(outcome) => BotStep::Done(outcome),
            OpStep::NotSent => BotStep::NotSent,
        }
    }

    fn cost(call: &Call) -> CallCost {
        CallCost {
            chat: call.chat,
            kind: call.kind,
        }
    }

    /// Makes a call, with its files if it has some.
    async fn make(&self, call: Call) -> ApiAnswer {
        let Call {
            method,
            mut body,
            files,
            ..
        } = call;
        let mut parts = Vec::new();
        for (number, CallFile { field, source, name }) in files.into_iter().enumerate() {
            // Files of an album are named in a list; others are a parameter of their own.
            let in_list = body.get_mut(field).and_then(|list| list.get_mut(number));
            let reference = if let Some((path, kept_name)) = self.files.copy_of(&source) {
                let name = name.unwrap_or(kept_name);
                let field = match in_list {
                    Some(_) => format!("{field}{number}"),
                    None => field.to_owned(),
                };
                let reference = format!("attach://{field}");
                parts.push(FilePart {
                    field,
                    path,
                    name: if name.is_empty() { "file".to_owned() } else { name },
                });
                in_list.is_some().then_some(reference)
            } else {
                Some(FileAddress::parse(&source).map_or(source, |address| address.id))
            };
            match (in_list, reference) {
                (Some(item), Some(reference)) => item["media"] = reference.into(),
                (None, Some(reference)) => drop(body.insert(field.to_owned(), reference.into())),
                (_, None) => {}
            }
        }
        if parts.is_empty() {
            return self.client.call(method, &body).await;
        }
        self.client.upload(method, &body, &parts).await
    }

    fn answered(&self, calls: &mut OpCalls, answer: ApiAnswer) -> Option<Duration> {
        let observation = calls.answered(answer, &mut self.lock().cache);
        Self::observe(observation?)
    }

    fn dropped(&self, calls: &mut OpCalls) {
        calls.dropped(&mut self.lock().cache);
    }

    fn limited(&self, calls: &mut OpCalls, retry_after: Duration) {
        calls.limited(retry_after, &mut self.lock().cache);
    }

    fn edits_buttons(&self, action: &Action) -> bool {
        self.lock().cache.edits_buttons(action)
    }

    /// The copy of its file is not needed any more.
    async fn succeeded(&self, action: &Action) {
        self.files.sent(action).await;
    }
}

impl OpSender {
    /// Answers a press, once, so that the button stops spinning.
    pub(super) fn answer_press(
        self: &Arc<Self>,
        query_id: &str,
        event: Option<&Value>,
        button: Option<(i64, i64)>,
        client: Option<&str>,
    ) {
        let mut state = self.api.lock();
        let Some(answer) = state.presses.pressed(query_id, event, button, client) else {
            return;
        };
        drop(state);
        let Ok(place) = Arc::clone(&self.api.waiting_presses).try_acquire_owned() else {
            return;
        };
        let sender = Arc::clone(self);
        tokio::spawn(async move {
            let _place = place;
            if let Ok(Ok(_slot)) = timeout(PRESS_WAIT, sender.api.pressing.acquire()).await {
                sender.send_press_answer(&answer).await;
            }
        });
    }

    /// A question of an earlier run is still open.
    pub(super) fn expect_press(&self, prompt_id: &str) {
        self.api.lock().presses.asked(prompt_id);
    }

    async fn send_press_answer(&self, answer: &PressAnswer) {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let again = self.now() + PRESS_TIMEOUT;
            let calling = self.api.client.call("answerCallbackQuery", &answer.body);
            let response = timeout(PRESS_TIMEOUT, calling).await.ok();
            let until = match after_press(response.as_ref(), attempts) {
                PressNext::Over => break,
                PressNext::Now => continue,
                PressNext::Later => again,
                PressNext::After(wait) => self.now() + wait,
            };
            if !self.wait_until(until).await {
                return;
            }
        }
        if let Some(body) = &answer.without_buttons {
            let _ = self.api.client.call("editMessageReplyMarkup", body).await;
        }
    }

    /// Sets the command menu from now on.
    pub(super) fn offer_commands(self: &Arc<Self>, manifest: &[Value]) {
        self.api.lock().commands = Some((command_menu(manifest), false));
        self.announce_commands(false);
    }

    /// Sends the command menu to Telegram if it has changed. `connected` says that calls can be made now.
    pub(super) fn announce_commands(self: &Arc<Self>, connected: bool) {
        {
            let mut state = self.api.lock();
            state.connected |= connected;
            let is_connected = state.connected;
            let Some((_, told)) = &mut state.commands else {
                return;
            };
            if !is_connected || std::mem::replace(told, true) {
                return;
            }
        }
        let sender = Arc::clone(self);
        tokio::spawn(async move { sender.send_menu().await });
    }

    /// Sends the command menu until Telegram takes it. One that it does not take waits for the next connection.
    async fn send_menu(&self) {
        let mut backoff = Backoff::new(MENU_PAUSES.0, MENU_PAUSES.1);
        for _ in 0..MENU_ATTEMPTS {
            let commands = self.api.lock().commands.clone();
            let commands = commands.map(|(commands, _)| commands).unwrap_or_default();
            let body = Map::from_iter([("commands".to_owned(), Value::from(commands))]);
            let wait = match self.api.client.call("setMyCommands", &body).await {
                ApiAnswer::Ok(_) => return,
                ApiAnswer::Error {
                    retry_after: Some(secs),
                    ..
                } => Duration::from_secs(secs).min(MAX_RETRY_AFTER),
                ApiAnswer::Error { code: 400, .. } => break,
                ApiAnswer::Error { .. } | ApiAnswer::NotSent(_) | ApiAnswer::Unknown => backoff.next_delay(),
            };
            if !self.wait_until(self.now() + wait).await {
                return;
            }
        }
        tracing::info!("the bot's command menu was not changed");
        if let Some((_, told)) = &mut self.api.lock().commands {
            *told = false;
        }
    }
}
