//! The REST API as the relay's sender of ops uses it, and the answers to presses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, sleep_until, timeout};

use crate::direct::discord::{
    DISCORD_RATES, DiscordCalls, PressedComponent, RestAnswer, RestLimits, RestMethod, RestRequest,
    SentMessages,
};
use crate::direct::flood::{CallKind, FloodPermit};
use crate::net::discord::DiscordClient;
use crate::relay::clock::Clock;
use crate::relay::transport::bot_sender::{BotSender, BotStep, CallCost, PlatformApi};
use crate::wire::{Action, OpId, OpResult};

/// A press must be answered within three seconds.
const PRESS_TIMEOUT: Duration = Duration::from_millis(2_500);

/// Attempts to read something, and the pause after one that failed.
const MAX_READS: usize = 5;
const READ_PAUSE: Duration = Duration::from_secs(2);

/// The sending half of a Discord bot.
pub(super) type DiscordSender = BotSender<DiscordApi>;

/// The REST API, and what is remembered between ops.
pub(super) struct DiscordApi {
    pub(super) client: Arc<DiscordClient>,
    clock: Clock,
    state: Mutex<ApiMemory>,
}

#[derive(Debug, Default)]
struct ApiMemory {
    sent: SentMessages,
    limits: RestLimits,
}

impl DiscordApi {
    /// A sender of ops through the REST API.
    pub(super) fn sender(client: Arc<DiscordClient>) -> DiscordSender {
        let api = Self {
            client,
            clock: Clock::start(),
            state: Mutex::default(),
        };
        BotSender::new(api, DISCORD_RATES)
    }

    fn lock(&self) -> MutexGuard<'_, ApiMemory> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a request and learns from its headers.
    pub(super) async fn request(&self, request: &RestRequest) -> RestAnswer {
        self.lock().limits.took(&request.route);
        let (answer, status, headers) = self.client.request(request).await;
        let now = self.clock.mono();
        self.lock().limits.learn(&request.route, status, &headers, now);
        answer
    }

    /// Reads something.
    pub(super) async fn get(&self, path: &str, route: &str) -> RestAnswer {
        self.request(&RestRequest::get(path, route)).await
    }

    /// Reads something once the server has room for it; the error says why it cannot be read.
    async fn get_patiently(&self, path: &str, route: &str) -> Result<Value, String> {
        for _ in 0..MAX_READS {
            let here = self.clock.mono();
            let room = self
                .lock()
                .limits
                .room(&format!("Get {route}"), CallKind::Required, here);
            if let FloodPermit::At(at) = room {
                sleep_until(self.clock.instant(at)).await;
            }
            match self.get(path, route).await {
                RestAnswer::Ok(found) => return Ok(found),
                RestAnswer::Error { status: 429, .. } => {}
                RestAnswer::Error { message, .. } => return Err(message),
                RestAnswer::NotSent(_) | RestAnswer::Unknown => sleep(READ_PAUSE).await,
            }
        }
        Err("Discord does not answer".to_owned())
    }

    /// The messages of a chat after this one, the oldest first, as the gateway would have sent them.
    pub(super) async fn messages_after(
        &self,
        chat: &str,
        last: u64,
        most: usize,
    ) -> Result<Vec<Value>, String> {
        let chat: u64 = chat
            .parse()
            .map_err(|_| "it is not an id of Discord".to_owned())?;
        let channel = self.get_patiently(&format!("channels/{chat}"), "channel").await?;
        let path = format!("channels/{chat}/messages?after={last}&limit={most}");
        let Value::Array(messages) = self.get_patiently(&path, &format!("messages {chat}")).await? else {
            return Err("the answer is not a list".to_owned());
        };
        Ok(as_gateway_sends(messages, &channel, most))
    }

    /// Answers a press, so that the button stops waiting; tells the person if it is of no use.
    pub(super) async fn answer_press(&self, press: &PressedComponent) {
        let is_plain = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if !is_plain(&press.id) || !is_plain(&press.token) {
            return;
        }
        let body: Value = if press.is_known {
            json!({ "type": 6 })
        } else {
            json!({ "type": 4, "data": { "content": "This button is not in use any more.", "flags": 64 } })
        };
        let request = RestRequest {
            method: RestMethod::Post,
            path: format!("interactions/{}/{}/callback", press.id, press.token),
            route: format!("Post callback {}", press.id),
            body: Some(body),
            chat: 0,
            kind: CallKind::Required,
        };
        if !matches!(
            timeout(PRESS_TIMEOUT, self.request(&request)).await,
            Ok(RestAnswer::Ok(_))
        ) {
            tracing::info!("a press of a button was not answered in time");
        }
    }
}

/// Messages of a list as the gateway sends them: the oldest first, and with the server, which a list does not name. Without it a
/// message in a channel would count as a direct one.
fn as_gateway_sends(mut messages: Vec<Value>, channel: &Value, most: usize) -> Vec<Value> {
    let id = |message: &Value| message["id"].as_str().and_then(|id| id.parse::<u64>().ok());
    messages.sort_by_key(|message| id(message).unwrap_or_default());
    messages.truncate(most);
    if let Some(guild) = channel.get("guild_id").filter(|guild| guild.is_string()) {
        for message in messages.iter_mut().filter(|message| message.is_object()) {
            message["guild_id"] = guild.clone();
        }
    }
    messages
}

impl PlatformApi for DiscordApi {
    type Calls = DiscordCalls;
    type Call = RestRequest;
    type Answer = RestAnswer;

    fn begin(&self, op: OpId, action: &Action) -> Result<DiscordCalls, OpResult> {
        DiscordCalls::new(op, action, &mut self.lock().sent)
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
        self.request(&call).await
    }

    fn answered(&self, calls: &mut DiscordCalls, answer: RestAnswer) -> Option<Duration> {
        let limited = calls.answered(answer, &mut self.lock().sent)?;
        tracing::info!(
            chat = calls.chat(),
            secs = limited.as_secs(),
            "Discord limits what is sent to a chat"
        );
        Some(limited)
    }

    fn dropped(&self, calls: &mut DiscordCalls) {
        calls.dropped();
    }

    fn limited(&self, calls: &mut DiscordCalls, retry_after: Duration) {
        calls.limited(retry_after);
    }

    fn edits_buttons(&self, action: &Action) -> bool {
        self.lock().sent.edits_buttons(action)
    }

    async fn succeeded(&self, _action: &Action) {}
}
