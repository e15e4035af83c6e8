//! Fetches the messages that the gateway will not send, because their session was lost.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::sender::FailedRequest;
use crate::backoff::Backoff;
use crate::direct::discord::FetchFailure;
use crate::relay::clock::Clock;

/// Messages of one request; Discord gives no more.
const PAGE: usize = 100;
/// Messages of a chat that are fetched, and how old they may be.
const MAX_OF_CHAT: usize = 1000;
const MAX_AGE_MS: i64 = 24 * 3600 * 1000;
/// The time from which Discord counts, in Unix milliseconds.
const EPOCH_MS: i64 = 1_420_070_400_000;
/// The first and the longest wait before what failed is tried again.
const RETRY: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(300));

/// What was fetched.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fetched {
    /// A message.
    Message(Value),
    /// All messages of a chat were sent.
    All(String),
    /// The messages of a chat could not be had.
    Failed(String, FetchFailure),
}

/// Where messages are fetched from.
pub(super) trait MessageSource: Send + Sync + 'static {
    /// The messages of a chat after this one, the oldest first and at most so many, as the gateway would have sent them.
    fn messages_after(
        &self,
        chat: &str,
        last: u64,
        most: usize,
    ) -> impl Future<Output = Result<Vec<Value>, FailedRequest>> + Send;

    /// A member of a server.
    fn member(&self, guild: u64, user: u64) -> impl Future<Output = Result<Value, FailedRequest>> + Send;
}

/// A chat whose messages were missed.
struct UnfetchedChat {
    id: String,
    /// The last message before those that are to be fetched.
    after: u64,
    /// Messages that were fetched.
    count: usize,
}

/// Fetches missed messages, until it is dropped.
pub(super) struct MissedMessages<S> {
    pub(super) source: Arc<S>,
    pub(super) results: mpsc::Sender<Fetched>,
    pub(super) clock: Clock,
    /// Whether messages need the roles of their authors: the REST API leaves them out.
    pub(super) needs_roles: bool,
}

impl<S: MessageSource> MissedMessages<S> {
    /// Fetches the messages of chats, each after one. The chats with the newest messages come first: people may be writing there. What
    /// cannot be had now is tried again.
    pub(super) async fn fetch(self, chats: BTreeMap<String, u64>) {
        let missed = chats
            .into_iter()
            .map(|(id, after)| UnfetchedChat { id, after, count: 0 });
        let mut chats: Vec<UnfetchedChat> = missed.collect();
        chats.sort_by_key(|chat| std::cmp::Reverse(chat.after));
        let mut members = HashMap::new();
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        while !chats.is_empty() {
            chats = self.pass(chats, &mut members).await;
            if !chats.is_empty() {
                let wait = backoff.next_delay();
                tracing::warn!(
                    chats = chats.len(),
                    retry_secs = wait.as_secs(),
                    "messages that came during the outage cannot be fetched now; trying again"
                );
                sleep(wait).await;
            }
        }
    }

    /// Fetches what chats missed; returns those that are to be tried again.
    async fn pass(
        &self,
        chats: Vec<UnfetchedChat>,
        members: &mut HashMap<(u64, u64), Value>,
    ) -> Vec<UnfetchedChat> {
        let mut failed = Vec::new();
        for mut chat in chats {
            let end = match self.chat(&mut chat, members).await {
                Ok(()) => Fetched::All(chat.id),
                Err(FailedRequest { why, failure }) => {
                    let id = chat.id.clone();
                    match failure {
                        FetchFailure::ForNow => {
                            tracing::info!(
                                chat = id,
                                why,
                                "the missed messages of a chat cannot be fetched now"
                            );
                            failed.push(chat);
                        }
                        FetchFailure::ForGood => {
                            tracing::warn!(chat = id, why, "the missed messages of a chat cannot be fetched");
                        }
                    }
                    Fetched::Failed(id, failure)
                }
            };
            self.send(end).await;
        }
        failed
    }

    /// Fetches what one chat missed, page by page.
    async fn chat(
        &self,
        chat: &mut UnfetchedChat,
        members: &mut HashMap<(u64, u64), Value>,
    ) -> Result<(), FailedRequest> {
        loop {
            let after = chat.after.max(self.oldest());
            let page = self.source.messages_after(&chat.id, after, PAGE).await?;
            let is_full = page.len() >= PAGE;
            for mut message in page {
                if self.needs_roles {
                    self.add_member(&mut message, members).await?;
                }
                chat.after = chat.after.max(number(&message["id"]).unwrap_or_default());
                chat.count += 1;
                self.send(Fetched::Message(message)).await;
            }
            if !is_full {
                return Ok(());
            }
            if chat.count >= MAX_OF_CHAT {
                tracing::warn!(
                    chat = chat.id,
                    fetched = chat.count,
                    "a chat missed more messages than are fetched; the newest of them are lost"
                );
                return Ok(());
            }
        }
    }

    /// Adds who wrote a message to it, as a member of its server.
    async fn add_member(
        &self,
        message: &mut Value,
        known: &mut HashMap<(u64, u64), Value>,
    ) -> Result<(), FailedRequest> {
        let ids = (number(&message["guild_id"]), number(&message["author"]["id"]));
        let (Some(guild), Some(user)) = ids else {
            return Ok(());
        };
        let member = match known.get(&(guild, user)) {
            Some(member) => member.clone(),
            None => match self.source.member(guild, user).await {
                Ok(member) => member,
                // Whoever left has no roles.
                Err(failed) if failed.failure == FetchFailure::ForGood => Value::Null,
                // Without roles it would be refused, and known as refused when it comes again.
                Err(failed) => return Err(failed),
            },
        };
        if member.is_object() {
            message["member"] = member.clone();
        }
        known.insert((guild, user), member);
        Ok(())
    }

    /// The first id of a message that is not too old.
    fn oldest(&self) -> u64 {
        let oldest_ms = self.clock.unix_ms().saturating_sub(MAX_AGE_MS);
        u64::try_from(oldest_ms.saturating_sub(EPOCH_MS)).unwrap_or_default() << 22
    }

    async fn send(&self, fetched: Fetched) {
        // Whoever closes it stops this, too.
        let _ = self.results.send(fetched).await;
    }
}

fn number(id: &Value) -> Option<u64> {
    id.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;

    /// A recent id.
    const FIRST: u64 = 1 << 62;

    /// Chats with so many messages each, and how the next requests fail.
    #[derive(Default)]
    struct FakeSource {
        chats: HashMap<&'static str, u64>,
        pages: Mutex<VecDeque<Option<FetchFailure>>>,
        members: Mutex<VecDeque<Option<FetchFailure>>>,
    }

    fn outcome(failures: &Mutex<VecDeque<Option<FetchFailure>>>) -> Result<(), FailedRequest> {
        let failure = failures.lock().unwrap().pop_front().flatten();
        failure.map_or(Ok(()), |failure| {
            Err(FailedRequest {
                why: "no".to_owned(),
                failure,
            })
        })
    }

    impl MessageSource for FakeSource {
        async fn messages_after(
            &self,
            chat: &str,
            last: u64,
            most: usize,
        ) -> Result<Vec<Value>, FailedRequest> {
            outcome(&self.pages)?;
            let ids = (last + 1).max(FIRST)..FIRST + self.chats[chat];
            let message = |id: u64| json!({"id": id.to_string(), "guild_id": "9", "author": {"id": "2"}});
            Ok(ids.take(most).map(message).collect())
        }

        async fn member(&self, _guild: u64, _user: u64) -> Result<Value, FailedRequest> {
            outcome(&self.members)?;
            Ok(json!({ "roles": ["7"] }))
        }
    }

    /// What comes of a source, each message as the difference of its id to the first.
    async fn fetched(source: FakeSource, needs_roles: bool) -> Vec<Result<(u64, Value), Fetched>> {
        let (results, mut fetched) = mpsc::channel(16);
        let chats = source.chats.keys().map(|chat| ((*chat).to_owned(), 5)).collect();
        let missed = MissedMessages {
            source: Arc::new(source),
            results,
            clock: Clock::start(),
            needs_roles,
        };
        let fetching = tokio::spawn(missed.fetch(chats));
        let mut all = Vec::new();
        while let Some(fetched) = fetched.recv().await {
            all.push(match fetched {
                Fetched::Message(message) => {
                    Ok((number(&message["id"]).unwrap() - FIRST, message["member"].clone()))
                }
                end @ (Fetched::All(_) | Fetched::Failed(..)) => Err(end),
            });
        }
        fetching.await.unwrap();
        all
    }

    fn messages(range: std::ops::Range<u64>) -> Vec<Result<(u64, Value), Fetched>> {
        range.map(|id| Ok((id, Value::Null))).collect()
    }

    fn all() -> Vec<Result<(u64, Value), Fetched>> {
        vec![Err(Fetched::All("c".to_owned()))]
    }

    fn failed(failure: FetchFailure) -> Vec<Result<(u64, Value), Fetched>> {
        vec![Err(Fetched::Failed("c".to_owned(), failure))]
    }

    #[tokio::test]
    async fn pages_are_fetched_until_one_is_not_full_up_to_a_number() {
        for (count, most) in [(0, 0), (100, 100), (250, 250), (1500, 1000)] {
            let source = FakeSource {
                chats: HashMap::from([("c", count)]),
                ..FakeSource::default()
            };
            let wanted = [messages(0..most), all()].concat();
            assert_eq!(fetched(source, false).await, wanted, "{count}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_had_now_is_tried_again_from_where_it_was() {
        let now = Some(FetchFailure::ForNow);
        let source = FakeSource {
            chats: HashMap::from([("c", 150)]),
            pages: Mutex::new([None, now, now, None].into()),
            ..FakeSource::default()
        };
        let failed = || failed(FetchFailure::ForNow);
        let wanted = [messages(0..100), failed(), failed(), messages(100..150), all()].concat();
        assert_eq!(fetched(source, false).await, wanted);
        let source = FakeSource {
            chats: HashMap::from([("c", 150)]),
            pages: Mutex::new([Some(FetchFailure::ForGood)].into()),
            ..FakeSource::default()
        };
        assert_eq!(fetched(source, false).await, self::failed(FetchFailure::ForGood));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_comes_with_the_roles_of_its_author_or_later() {
        let with = |member: Value| vec![Ok((0, member.clone())), Ok((1, member))];
        for (failure, wanted) in [
            (None, [with(json!({ "roles": ["7"] })), all()].concat()),
            (Some(FetchFailure::ForGood), [with(Value::Null), all()].concat()),
            (
                Some(FetchFailure::ForNow),
                [
                    failed(FetchFailure::ForNow),
                    with(json!({ "roles": ["7"] })),
                    all(),
                ]
                .concat(),
            ),
        ] {
            let source = FakeSource {
                chats: HashMap::from([("c", 2)]),
                members: Mutex::new([failure].into()),
                ..FakeSource::default()
            };
            assert_eq!(fetched(source, true).await, wanted, "{failure:?}");
        }
    }
}
