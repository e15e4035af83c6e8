//! How the handle waits for what happens in the chats.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::BotApi;

/// Something that was waited for did not happen.
#[derive(Debug, thiserror::Error)]
#[error("{what}: not seen within {waited:?}; last calls: {last}")]
pub struct BotApiNotSeen {
    /// What was waited for.
    pub what: String,
    /// How long.
    pub waited: Duration,
    last: String,
}

/// How the handle waits.
impl BotApi {
    /// Waits until something is so, and gives what `look` found. It looks again after every change, so
    /// `look` should change nothing itself.
    pub async fn until<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, BotApiNotSeen> {
        let end = Instant::now() + deadline;
        loop {
            let mut changed = std::pin::pin!(self.hub.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = look(self) {
                return Ok(found);
            }
            // Others first: a look that changes something would otherwise keep the thread to itself.
            tokio::task::yield_now().await;
            if Instant::now() >= end || timeout_at(end, changed).await.is_err() {
                return Err(self.not_seen(what, deadline));
            }
        }
    }

    /// The text of the first message of the bot in a chat.
    #[cfg(feature = "internals")]
    pub async fn wait_for_answer(&self, chat_id: i64, deadline: Duration) -> Result<String, BotApiNotSeen> {
        self.until("an answer", deadline, |api| {
            let state = api.hub.lock();
            let mut messages = state.chats.get(&chat_id)?.messages.values();
            messages
                .find(|message| message.is_by_bot)
                .map(|message| message.text.text())
        })
        .await
    }

    /// Waits until a poll waits for updates.
    pub async fn wait_polled(&self, deadline: Duration) -> Result<(), BotApiNotSeen> {
        self.until("a poll that waits", deadline, |api| {
            api.hub.lock().poll.is_waiting.then_some(())
        })
        .await
    }

    fn not_seen(&self, what: &str, waited: Duration) -> BotApiNotSeen {
        let state = self.hub.lock();
        let calls: Vec<_> = state.calls.since(0).collect();
        let last = calls.iter().rev().take(8).rev().map(|call| {
            let params = call.params.to_string();
            let status = call
                .status
                .map_or("no answer".to_owned(), |status| status.to_string());
            format!("{} {} {status}", call.method, crate::text::truncate(&params, 200))
        });
        BotApiNotSeen {
            what: what.to_owned(),
            waited,
            last: last.collect::<Vec<_>>().join("; "),
        }
    }
}

/// The id of the file that a message has.
pub fn file_id(object: &Value) -> Option<&str> {
    if let Some(sizes) = object["photo"].as_array() {
        return sizes.last()?["file_id"].as_str();
    }
    [
        "animation",
        "document",
        "voice",
        "video",
        "audio",
        "video_note",
        "sticker",
    ]
    .iter()
    .find_map(|kind| object[*kind]["file_id"].as_str())
}
