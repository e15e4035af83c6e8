//! The REST API as the relay's sender of ops uses it; what people do by other means than messages, and the menu of commands.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, sleep_until, timeout};

use super::missed::MessageSource;
use crate::direct::discord::{
    DISCORD_RATES, DeferredAnswers, DeferredCommand, DiscordCalls, FetchFailure, Interaction,
    InteractionKind, RateHeaders, RestAnswer, RestFile, RestLimits, RestMethod, RestRequest, SentMessages,
    is_registered, registration,
};
use crate::direct::flood::{CallKind, FloodPermit};
use crate::net::discord::{DiscordClient, DiscordFile};
use crate::net::media::BotFiles;
use crate::relay::clock::Clock;
use crate::relay::transport::bot_sender::{BotSender, BotStep, CallCost, PlatformApi};
use crate::wire::{Action, OpId, OpResult};
use crate::words::{Language, PhraseKey};

/// Discord waits three seconds for an acknowledgement.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_millis(2_500);
/// Acknowledgements under way; people beyond them read that the bot did not answer.
const MAX_ACKNOWLEDGING: usize = 1024;
/// Discord has said already that it knows of the acknowledgement.
const ACKNOWLEDGED_BEFORE: i64 = 40_060;

/// Attempts to do something that is no op, and the pause after one that failed.
const MAX_ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_secs(2);

/// A silence of the whole bot that is worth a line in the log.
const LONG_SILENCE: Duration = Duration::from_secs(60);

/// Why a request failed.
#[derive(Debug)]
pub(super) struct FailedRequest {
    pub(super) why: String,
    pub(super) failure: FetchFailure,
}

impl FailedRequest {
    fn for_now(why: &str) -> Self {
        Self {
            why: why.to_owned(),
            failure: FetchFailure::ForNow,
        }
    }
}

/// The sending half of a Discord bot.
pub(super) type DiscordSender = BotSender<DiscordApi>;

/// The REST API, and what is remembered between ops.
pub(super) struct DiscordApi {
    pub(super) client: Arc<DiscordClient>,
    clock: Clock,
    files: Arc<BotFiles>,
    state: Mutex<ApiMemory>,
    /// An acknowledgement has ended.
    acknowledged: Notify,
    acknowledging: Arc<Semaphore>,
    /// The language of people whose clients have none that is known.
    language: Language,
}

/// The state behind one lock, which is held briefly and never across an await.
#[derive(Debug, Default)]
struct ApiMemory {
    sent: SentMessages,
    limits: RestLimits,
    deferred: DeferredAnswers,
    /// The menu of commands, and whether Discord has it.
    commands: Option<(Vec<Value>, bool)>,
    /// The application whose commands they are, once the bot is connected.
    application: Option<String>,
}

impl ApiMemory {
    /// Learns what an op has made of its command.
    fn learn_of(&mut self, calls: &mut DiscordCalls) {
        if let Some(command) = calls.answered_command() {
            self.deferred.over(&command);
        }
        if let Some(command) = calls.released_command() {
            self.deferred.release(&command);
        }
    }
}

impl DiscordApi {
    /// A sender of ops through the REST API.
    pub(super) fn sender(
        client: Arc<DiscordClient>,
        files: Arc<BotFiles>,
        language: Language,
    ) -> DiscordSender {
        let api = Self {
            client,
            clock: Clock::start(),
            files,
            state: Mutex::default(),
            acknowledged: Notify::new(),
            acknowledging: Arc::new(Semaphore::new(MAX_ACKNOWLEDGING)),
            language,
        };
        BotSender::new(api, DISCORD_RATES)
    }

    fn lock(&self) -> MutexGuard<'_, ApiMemory> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a request and learns from its headers.
    pub(super) async fn request(&self, request: &RestRequest) -> RestAnswer {
        self.lock().limits.took(&request.route);
        let copies: Option<Vec<DiscordFile>> = request.files.iter().map(|file| self.copy_of(file)).collect();
        let (answer, status, mut headers) = match copies {
            Some(copies) if copies.is_empty() => self.client.request(request).await,
            Some(copies) => self.client.upload(request, &copies).await,
            None => (no_file(), 0, RateHeaders::default()),
        };
        if let RestAnswer::Error { retry_after, .. } = &answer {
            // It counts fractions of a second, and a limit always has one.
            headers.retry_after = *retry_after;
        }
        let now = self.clock.mono();
        let limits = &mut self.lock().limits;
        let before = limits.silent_until().max(now);
        limits.learn(&request.route, status, &headers, now);
        let silent = limits.silent_until().saturating_sub(before);
        if silent >= LONG_SILENCE {
            let secs = silent.as_secs();
            tracing::warn!(
                secs,
                "Discord takes no requests of this bot or from this address for now"
            );
        }
        answer
    }

    /// The relay's copy of a file, if it is still there.
    fn copy_of(&self, file: &RestFile) -> Option<DiscordFile> {
        let (path, kept_name) = self.files.copy_of(&file.source)?;
        let name = file.name.clone().unwrap_or(kept_name);
        Some(DiscordFile {
            path,
            name: if name.is_empty() { "file".to_owned() } else { name },
            is_voice: file.is_voice,
        })
    }

    /// Reads something, unless the bot has to be silent.
    pub(super) async fn get(&self, path: &str, route: &str) -> RestAnswer {
        if self.clock.mono() < self.lock().limits.silent_until() {
            return RestAnswer::NotSent("Discord takes no requests of this bot for now".to_owned());
        }
        self.request(&RestRequest::get(path, route)).await
    }

    /// Makes a request once the server has room for it; the error says why it failed.
    async fn patiently(&self, request: &RestRequest) -> Result<Value, FailedRequest> {
        for _ in 0..MAX_ATTEMPTS {
            let here = self.clock.mono();
            let room = self.lock().limits.room(&request.route, CallKind::Required, here);
            if let FloodPermit::At(at) = room {
                sleep_until(self.clock.instant(at)).await;
            }
            match self.request(request).await {
                RestAnswer::Ok(found) => return Ok(found),
                RestAnswer::Error { status: 429, .. } => {}
                RestAnswer::Error { code, message, .. } => {
                    return Err(FailedRequest {
                        why: message,
                        failure: FetchFailure::of(code),
                    });
                }
                RestAnswer::NotSent(_) | RestAnswer::Unknown => sleep(PAUSE).await,
            }
        }
        Err(FailedRequest::for_now("Discord does not answer"))
    }

    /// Reads something once the server has room for it.
    async fn get_patiently(&self, path: &str, route: &str) -> Result<Value, FailedRequest> {
        self.patiently(&RestRequest::get(path, route)).await
    }

    /// The commands that wait for their answers, to be stored.
    pub(super) fn deferred(&self) -> Vec<DeferredCommand> {
        self.lock().deferred.waiting().cloned().collect()
    }

    /// Acknowledges what a person did; says so to that person if it has no effect.
    async fn acknowledge(&self, interaction: &Interaction) {
        let DeferredCommand { id, token, .. } = &interaction.command;
        let body = match interaction.kind {
            InteractionKind::Command => json!({ "type": 5 }),
            InteractionKind::Press => json!({ "type": 6 }),
            InteractionKind::Stray => {
                let language = Language::of_client(interaction.locale.as_deref(), self.language);
                let content = language.plain(PhraseKey::UnusedButton);
                json!({ "type": 4, "data": { "content": content, "flags": 64 } })
            }
            InteractionKind::Completion => json!({ "type": 8, "data": { "choices": [] } }),
        };
        let path = format!("interactions/{id}/{token}/callback");
        let request = RestRequest::with_body(RestMethod::Post, path, &format!("callback {id}"), body);
        let is_shown = match timeout(ACKNOWLEDGE_TIMEOUT, self.request(&request)).await {
            Ok(RestAnswer::Ok(_)) => true,
            Ok(RestAnswer::Error { code, .. }) => code == ACKNOWLEDGED_BEFORE,
            Ok(RestAnswer::NotSent(_) | RestAnswer::Unknown) | Err(_) => false,
        };
        if !is_shown {
            tracing::info!("a command or a press was not acknowledged in time");
        }
        self.lock().deferred.acknowledged(id, is_shown);
        self.acknowledged.notify_waiters();
    }

    /// Waits until Discord shows the placeholder of a command.
    async fn placeholder(&self, id: &str) {
        let shown = async {
            loop {
                let ended = self.acknowledged.notified();
                tokio::pin!(ended);
                // From here on no end is missed.
                ended.as_mut().enable();
                if !self.lock().deferred.is_new(id) {
                    return;
                }
                ended.await;
            }
        };
        // What did not show up by then is refused, and a message of its own takes its place.
        let _ = timeout(2 * ACKNOWLEDGE_TIMEOUT, shown).await;
    }

    /// Takes the placeholder of a command away, once Discord shows it.
    async fn discard(&self, command: &DeferredCommand) {
        let DeferredCommand {
            id,
            token,
            application,
            ..
        } = command;
        self.placeholder(id).await;
        if self.lock().deferred.unanswered(id).is_none() {
            return;
        }
        let path = format!("webhooks/{application}/{token}/messages/@original");
        let request = RestRequest::delete(&path, &format!("placeholder {id}"));
        if let Err(FailedRequest { why, .. }) = self.patiently(&request).await {
            tracing::info!(why, "the placeholder of a command stays");
        }
        self.lock().deferred.forget(id);
    }

    /// Registers the commands that are offered, if Discord has others.
    async fn register(&self, application: &str, commands: Vec<Value>) -> Result<(), FailedRequest> {
        let path = format!("applications/{application}/commands");
        let known = self.get_patiently(&path, "commands").await?;
        if is_registered(known.as_array().map_or(&[], Vec::as_slice), &commands) {
            return Ok(());
        }
        let request = RestRequest::with_body(RestMethod::Put, path, "commands", commands.into());
        self.patiently(&request).await.map(drop)
    }
}

/// The answer to an upload of a file that is not there any more.
fn no_file() -> RestAnswer {
    RestAnswer::Error {
        status: 400,
        code: 0,
        message: "the file is not there any more".to_owned(),
        retry_after: None,
    }
}

impl DiscordSender {
    /// Acknowledges what a person did, in a task of its own.
    pub(super) fn acknowledge(self: &Arc<Self>, interaction: Interaction) {
        let Ok(place) = Arc::clone(&self.api.acknowledging).try_acquire_owned() else {
            return;
        };
        let is_answered = matches!(
            interaction.kind,
            InteractionKind::Command | InteractionKind::Press
        );
        if is_answered {
            self.api.lock().deferred.came(interaction.command.clone());
        }
        let sender = Arc::clone(self);
        tokio::spawn(async move {
            let _place = place;
            sender.api.acknowledge(&interaction).await;
        });
    }

    /// Nothing comes of a command: takes its placeholder away, in a task of its own.
    pub(super) fn discard(self: &Arc<Self>, id: &str) {
        let Some(command) = self.api.lock().deferred.leave_unanswered(id) else {
            return;
        };
        let Ok(place) = Arc::clone(&self.api.acknowledging).try_acquire_owned() else {
            return;
        };
        let sender = Arc::clone(self);
        tokio::spawn(async move {
            let _place = place;
            sender.api.discard(&command).await;
        });
    }

    /// Takes the commands of an earlier run.
    pub(super) fn restore(self: &Arc<Self>, commands: Vec<DeferredCommand>) {
        let left = self.api.lock().deferred.restore(commands);
        for id in left {
            self.discard(&id);
        }
    }

    /// What answers a command is for its author alone.
    pub(super) fn keep_private(&self, id: &str) {
        self.api.lock().deferred.keep_private(id);
    }

    /// Sets the menu of commands from now on.
    pub(super) fn offer_commands(self: &Arc<Self>, manifest: &[Value]) {
        self.api.lock().commands = Some((registration(manifest), false));
        self.register_commands(None);
    }

    /// Registers the menu of commands if it has changed. `application` says that requests can be made now.
    pub(super) fn register_commands(self: &Arc<Self>, application: Option<&str>) {
        let (application, commands) = {
            let mut state = self.api.lock();
            if let Some(application) = application.filter(|id| !id.is_empty()) {
                state.application = Some(application.to_owned());
            }
            let application = state.application.clone();
            match (&mut state.commands, application) {
                (Some((commands, told @ false)), Some(application)) => {
                    *told = true;
                    (application, commands.clone())
                }
                _ => return,
            }
        };
        let sender = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(FailedRequest { why, .. }) = sender.api.register(&application, commands).await {
                tracing::warn!(why, "the bot's commands were not registered");
            }
        });
    }
}

/// Messages of a list as the gateway sends them: the oldest first, and with the server, which a list does not name. Without it a
/// message in a channel would count as a direct one. Each has its channel, too, which may not be known.
fn as_gateway_sends(mut messages: Vec<Value>, channel: &Value, most: usize) -> Vec<Value> {
    let id = |message: &Value| message["id"].as_str().and_then(|id| id.parse::<u64>().ok());
    messages.sort_by_key(|message| id(message).unwrap_or_default());
    messages.truncate(most);
    for message in messages.iter_mut().filter(|message| message.is_object()) {
        message["channel"] = channel.clone();
        if let Some(guild) = channel.get("guild_id").filter(|guild| guild.is_string()) {
            message["guild_id"] = guild.clone();
        }
    }
    messages
}

impl MessageSource for DiscordSender {
    async fn messages_after(&self, chat: &str, last: u64, most: usize) -> Result<Vec<Value>, FailedRequest> {
        let chat: u64 = chat.parse().map_err(|_| FailedRequest {
            why: "it is not an id of Discord".to_owned(),
            failure: FetchFailure::ForGood,
        })?;
        let path = format!("channels/{chat}");
        let channel = self.api.get_patiently(&path, "channel").await?;
        let path = format!("{path}/messages?after={last}&limit={most}");
        let route = format!("messages {chat}");
        let Value::Array(messages) = self.api.get_patiently(&path, &route).await? else {
            return Err(FailedRequest::for_now("the answer is not a list"));
        };
        Ok(as_gateway_sends(messages, &channel, most))
    }

    async fn member(&self, guild: u64, user: u64) -> Result<Value, FailedRequest> {
        let path = format!("guilds/{guild}/members/{user}");
        self.api.get_patiently(&path, &format!("member {guild}")).await
    }
}

impl PlatformApi for DiscordApi {
    type Calls = DiscordCalls;
    type Call = RestRequest;
    type Answer = RestAnswer;

    fn begin(&self, op: OpId, action: &Action) -> Result<DiscordCalls, OpResult> {
        let now_ms = self.clock.unix_ms();
        let state = &mut *self.lock();
        DiscordCalls::new(op, action, &mut state.sent, &mut state.deferred, now_ms)
    }

    fn chat(calls: &DiscordCalls) -> i64 {
        calls.chat()
    }

    fn step(calls: &DiscordCalls) -> BotStep<RestRequest> {
        match (calls.request(), calls.outcome()) {
            (Some(request), _) => BotStep::Call(request.clone()),
            (None, Some(outcome)) => BotStep::Done(outcome),
            (None, None) => BotStep::NotSent,
        }
    }

    fn cost(call: &RestRequest) -> CallCost {
        CallCost {
            chat: call.chat,
            kind: call.kind,
        }
    }

    fn room(&self, call: &RestRequest, now: Duration) -> FloodPermit {
        let here = self.clock.mono();
        match self.lock().limits.room(&call.route, call.kind, here) {
            // Both clocks run alike, from different starts.
            FloodPermit::At(at) => FloodPermit::At(now + at.saturating_sub(here)),
            permit => permit,
        }
    }

    async fn make(&self, call: RestRequest) -> RestAnswer {
        if let Some(command) = &call.command {
            self.placeholder(command).await;
        }
        self.request(&call).await
    }

    fn answered(&self, calls: &mut DiscordCalls, answer: RestAnswer) -> Option<Duration> {
        let limited = {
            let state = &mut *self.lock();
            let limited = calls.answered(answer, &mut state.sent);
            state.learn_of(calls);
            limited?
        };
        tracing::info!(
            chat = calls.chat(),
            secs = limited.as_secs(),
            "Discord limits what is sent to a chat"
        );
        Some(limited)
    }

    fn dropped(&self, calls: &mut DiscordCalls) {
        let state = &mut *self.lock();
        calls.dropped(&mut state.sent);
        state.learn_of(calls);
    }

    fn limited(&self, calls: &mut DiscordCalls, retry_after: Duration) {
        let state = &mut *self.lock();
        calls.limited(retry_after, &mut state.sent);
        state.learn_of(calls);
    }

    fn edits_buttons(&self, action: &Action) -> bool {
        self.lock().sent.edits_buttons(action)
    }

    async fn succeeded(&self, action: &Action) {
        self.files.sent(action).await;
    }
}
