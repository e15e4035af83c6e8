//! `getUpdates`: the only method that waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::params::ApiParams;
use super::refusal::{ApiRefusal, ApiResult};
use super::server::{BotApiHub, unix_now};
use super::state::{BotApiState, OTHER_POLL};

/// The longest wait that counts, in seconds.
const MAX_TIMEOUT_SECS: i64 = 50;
/// A poll that repeats the offset of the last one within this gets one update.
const HOT: Duration = Duration::from_millis(500);
/// A poll that repeats the offset of the last one within this waits as long if it would not wait.
const WARM: Duration = Duration::from_secs(3);

const WEBHOOK_IS_SET: &str =
    "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first";

/// A poll that waits; dropped, it waits no more.
struct PollWaiting {
    hub: Arc<BotApiHub>,
    number: u64,
}

impl Drop for PollWaiting {
    fn drop(&mut self) {
        let mut state = self.hub.lock();
        if state.poll.number == self.number {
            state.poll.is_waiting = false;
        }
        drop(state);
        self.hub.changed.notify_waiters();
    }
}

/// What a poll asks for.
struct PollRequest {
    offset: i64,
    limit: usize,
    wait: Duration,
}

impl PollRequest {
    fn read(params: &ApiParams, state: &mut BotApiState, now: Instant) -> Self {
        let offset = params.integer("offset").unwrap_or(0);
        let limit = params.integer("limit").unwrap_or(100).clamp(1, 100);
        let wait = params.integer("timeout").unwrap_or(0).clamp(0, MAX_TIMEOUT_SECS);
        let mut asked = Self {
            offset,
            limit: usize::try_from(limit).unwrap_or(100),
            wait: Duration::from_secs(wait.unsigned_abs()),
        };
        if let Some((previous, at)) = state.poll.previous
            && state.settings.hot_loop_guard
            && previous == offset
        {
            let since = now.saturating_duration_since(at);
            if since < WARM && asked.wait < WARM {
                asked.wait = WARM;
            }
            if since < HOT {
                asked.limit = 1;
            }
        }
        state.poll.previous = Some((offset, now));
        asked
    }
}

/// Answers with updates, waits for them, or is ended by another poll.
pub(super) async fn get_updates(hub: &Arc<BotApiHub>, params: &ApiParams) -> ApiResult {
    let begun = {
        let mut state = hub.lock();
        if state.webhook.is_some() {
            None
        } else {
            state.updates.allow(&params.json("allowed_updates"));
            let asked = PollRequest::read(params, &mut state, Instant::now());
            state.poll.number += 1;
            state.poll.is_waiting = true;
            Some((asked, state.poll.number))
        }
    };
    let Some((asked, number)) = begun else {
        return conflict(hub, WEBHOOK_IS_SET).await;
    };
    // The older poll ends now.
    hub.changed.notify_waiters();
    let waiting = PollWaiting {
        hub: Arc::clone(hub),
        number,
    };
    let deadline = tokio::time::Instant::now() + asked.wait;
    loop {
        let mut changed = std::pin::pin!(hub.changed.notified());
        changed.as_mut().enable();
        let ended = {
            let mut state = hub.lock();
            let ended = match &state.poll.ended {
                Some((ended, why)) if *ended == number => Some(why.clone()),
                _ if state.poll.number != number => Some(OTHER_POLL.to_owned()),
                _ => None,
            };
            if ended.is_none() {
                let batch = state.updates.take(asked.offset, asked.limit, unix_now());
                if !batch.is_empty() || tokio::time::Instant::now() >= deadline {
                    return Ok(Value::Array(batch));
                }
            }
            ended
        };
        if let Some(why) = ended {
            drop(waiting);
            return conflict(hub, &why).await;
        }
        let _ = tokio::time::timeout_at(deadline, changed).await;
    }
}

async fn conflict(hub: &BotApiHub, why: &str) -> ApiResult {
    let delay = hub.lock().conflict_delay(Instant::now());
    tokio::time::sleep(delay).await;
    Err(ApiRefusal::conflict(why))
}
