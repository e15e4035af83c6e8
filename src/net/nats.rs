//! The connection to a NATS server with `JetStream`: subjects, requests and work queues. This file and `nats_cluster` are the only ones that name the crate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::{self, AckKind, stream};
use async_nats::{Client, ConnectOptions, RequestErrorKind, ServerAddr, Subscriber, connection::State};
use futures_util::StreamExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::tls::{Tls, TlsError};

/// How often the server is asked whether it is there.
const PING: Duration = Duration::from_secs(5);
/// Longest delay before a reconnect.
const MAX_DELAY_MS: u64 = 2000;
/// Timeout of requests to `JetStream`, and of a publish that waits for room.
const PATIENCE: Duration = Duration::from_secs(5);
/// Messages of a subscription that wait in memory.
const SUBSCRIPTION_CAPACITY: usize = 16_384;
/// Turns that a queue holds; more are refused.
const MAX_QUEUED: i64 = 100_000;
/// Largest message in a queue: ids only.
const MAX_QUEUED_BYTES: i32 = 4096;
/// How long a message stays in a queue.
const MAX_QUEUE_AGE: Duration = Duration::from_secs(24 * 3600);
/// When a message that was taken and not confirmed is given to another worker.
const ACK_WAIT: Duration = Duration::from_secs(10);
/// The name of the consumer that the workers of a pool share.
const CONSUMER: &str = "workers";

/// Where the server is, and how to log in.
#[derive(Clone, Debug, Default)]
pub struct NatsSettings {
    /// The addresses.
    pub urls: Vec<String>,
    /// The token.
    pub token: Option<SecretString>,
    /// The credentials: JWT and seed.
    pub credentials: Option<SecretString>,
    /// The seed of an `NKey`.
    pub nkey: Option<SecretString>,
}

/// Why something did not work.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// An address is invalid.
    #[error("an address in `nats.url` is invalid")]
    Address,
    /// The TLS settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The credentials cannot be read.
    #[error("the file in `nats.creds_file` holds no credentials; it must have a JWT and a seed")]
    Credentials,
    /// The server did not answer in time.
    #[error("the NATS server did not answer in time")]
    Timeout,
    /// There is no connection.
    #[error("{servers}: {why}")]
    Unreachable {
        /// Where the servers should be.
        servers: String,
        /// Why, and what to do.
        why: &'static str,
    },
    /// Nobody listens on the subject.
    #[error("nobody listens there")]
    NoResponders,
    /// The server refused something.
    #[error("the NATS server: {0}")]
    Server(String),
}

pub(super) fn server(error: impl std::fmt::Display) -> NatsError {
    NatsError::Server(error.to_string())
}

/// A connection; it is made again by itself when it is lost. Clones share it.
#[derive(Clone, Debug)]
pub struct Bus {
    client: Client,
    jetstream: jetstream::Context,
    /// Why the last attempt to connect failed.
    trouble: Arc<Mutex<Option<String>>>,
    uses_tls: bool,
    /// Host and port of each server, for messages.
    servers: String,
}

/// A subscription.
#[derive(Debug)]
pub struct Subscription(Subscriber);

/// A message of a subscription.
#[derive(Debug)]
pub struct BusMessage {
    /// The payload.
    pub payload: Vec<u8>,
    /// Where an answer goes.
    pub reply: Option<String>,
}

impl Subscription {
    /// The next message; `None` when the connection was closed. Cancel-safe.
    pub async fn next(&mut self) -> Option<BusMessage> {
        let message = self.0.next().await?;
        Some(BusMessage {
            payload: message.payload.into(),
            reply: message.reply.map(|reply| reply.to_string()),
        })
    }
}

/// Logs what happened to a connection.
fn report(event: &async_nats::Event) {
    match event {
        async_nats::Event::Connected => tracing::info!("connected to the NATS server"),
        async_nats::Event::Disconnected => {
            tracing::warn!("the connection to the NATS server was lost");
        }
        other => tracing::debug!(%other, "NATS"),
    }
}

impl Bus {
    /// Connects in the background; the first connection need not succeed.
    pub async fn connect(settings: &NatsSettings, tls: &Tls, name: &str) -> Result<Self, NatsError> {
        let addresses: Result<Vec<ServerAddr>, _> = settings.urls.iter().map(|url| url.parse()).collect();
        let addresses = addresses.map_err(|_| NatsError::Address)?;
        let servers = addresses
            .iter()
            .map(|address| format!("{}:{}", address.host(), address.port()));
        let servers = servers.collect::<Vec<_>>().join(", ");
        let trouble = Arc::new(Mutex::new(None));
        let last = Arc::clone(&trouble);
        let mut options = ConnectOptions::new()
            .name(name)
            .ping_interval(PING)
            .retry_on_initial_connect()
            .subscription_capacity(SUBSCRIPTION_CAPACITY)
            .reconnect_delay_callback(|attempts| {
                let longest = MAX_DELAY_MS.min(50u64 << attempts.min(8));
                // Spread, so that many do not come back in the same instant.
                let mut byte = [0];
                let _ = getrandom::fill(&mut byte);
                Duration::from_millis(longest / 2 + longest * u64::from(byte[0]) / 512)
            })
            .event_callback(move |event| {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                match &event {
                    async_nats::Event::Connected => *last = None,
                    async_nats::Event::ClientError(error) => *last = Some(error.to_string()),
                    async_nats::Event::ServerError(error) => *last = Some(error.to_string()),
                    _ => {}
                }
                drop(last);
                async move { report(&event) }
            });
        let uses_tls = settings.urls.iter().any(|url| url.starts_with("tls:"));
        if uses_tls {
            options = options
                .require_tls(true)
                .tls_client_config((*tls.config()?).clone());
        }
        if let Some(token) = &settings.token {
            options = options.token(token.expose_secret().to_owned());
        }
        if let Some(seed) = &settings.nkey {
            options = options.nkey(seed.expose_secret().to_owned());
        }
        if let Some(credentials) = &settings.credentials {
            // The crate wants the end of the last line, which is not part of a secret.
            let text = Zeroizing::new(format!("{}\n", credentials.expose_secret()));
            options = options.credentials(&text).map_err(|_| NatsError::Credentials)?;
        }
        let client = options.connect(addresses).await.map_err(server)?;
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(PATIENCE);
        Ok(Self {
            client,
            jetstream,
            trouble,
            uses_tls,
            servers,
        })
    }

    pub(super) fn jetstream(&self) -> jetstream::Context {
        self.jetstream.clone()
    }

    /// Whether the server is reachable at the moment.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Why the server is not reachable, and what to do about it.
    pub fn trouble(&self) -> &'static str {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match trouble.as_deref() {
            Some(why) if why.contains("authorization") || why.contains("nonce") => {
                "the NATS server refuses these credentials (authorization violation); correct the token, credentials or NKey in `nats`"
            }
            _ if self.uses_tls => {
                "the NATS server cannot be reached, or its certificate is not trusted; start it, or correct `nats.url` or `tls.ca_file`"
            }
            _ => "the NATS server cannot be reached; start it, or correct `nats.url`",
        }
    }

    /// Waits until the server is reachable.
    pub async fn connected(&self, patience: Duration) -> Result<(), NatsError> {
        let wait = async {
            while !self.is_connected() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        (timeout(patience, wait).await).map_err(|_| NatsError::Unreachable {
            servers: self.servers.clone(),
            why: self.trouble(),
        })
    }

    /// The server's version and largest payload, once it was reached.
    pub fn server(&self) -> Option<(String, usize)> {
        let info = self.client.try_server_info()?;
        Some((info.version, info.max_payload))
    }

    /// Publishes without waiting for anybody.
    pub async fn publish(&self, subject: String, payload: Vec<u8>) -> Result<(), NatsError> {
        let published = self.client.publish(subject, payload.into());
        timeout(PATIENCE, published)
            .await
            .map_err(|_| NatsError::Timeout)?
            .map_err(server)
    }

    /// Publishes and waits for one answer.
    pub async fn request(
        &self,
        subject: String,
        payload: Vec<u8>,
        patience: Duration,
    ) -> Result<Vec<u8>, NatsError> {
        let request = async_nats::Request::new()
            .payload(payload.into())
            .timeout(Some(patience));
        match self.client.send_request(subject, request).await {
            Ok(answer) => Ok(answer.payload.into()),
            Err(error) => Err(match error.kind() {
                RequestErrorKind::TimedOut => NatsError::Timeout,
                RequestErrorKind::NoResponders => NatsError::NoResponders,
                _ => server(error),
            }),
        }
    }

    /// Subscribes.
    pub async fn subscribe(&self, subject: String) -> Result<Subscription, NatsError> {
        let subscribed = timeout(PATIENCE, self.client.subscribe(subject)).await;
        Ok(Subscription(
            subscribed.map_err(|_| NatsError::Timeout)?.map_err(server)?,
        ))
    }

    /// Sends everything that was published.
    pub async fn flush(&self) -> Result<(), NatsError> {
        timeout(PATIENCE, self.client.flush())
            .await
            .map_err(|_| NatsError::Timeout)?
            .map_err(server)
    }

    /// The work queue of that name; made if there is none.
    pub async fn queue(&self, name: &str, subject: &str) -> Result<WorkQueue, NatsError> {
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            retention: stream::RetentionPolicy::WorkQueue,
            discard: stream::DiscardPolicy::New,
            max_messages: MAX_QUEUED,
            max_message_size: MAX_QUEUED_BYTES,
            max_age: MAX_QUEUE_AGE,
            ..stream::Config::default()
        };
        let stream = self
            .jetstream
            .get_or_create_stream(config)
            .await
            .map_err(server)?;
        let config = pull::Config {
            durable_name: Some(CONSUMER.to_owned()),
            ack_wait: ACK_WAIT,
            max_ack_pending: MAX_QUEUED,
            ..pull::Config::default()
        };
        let consumer = stream
            .get_or_create_consumer(CONSUMER, config)
            .await
            .map_err(server)?;
        Ok(WorkQueue {
            stream,
            consumer,
            jetstream: self.jetstream.clone(),
            subject: subject.to_owned(),
        })
    }
}

/// A work queue: each message goes to one of those who take from it.
#[derive(Clone, Debug)]
pub struct WorkQueue {
    stream: stream::Stream,
    consumer: Consumer<pull::Config>,
    jetstream: jetstream::Context,
    subject: String,
}

/// A message that was taken from a queue.
#[derive(Debug)]
pub struct QueuedMessage(jetstream::Message);

impl QueuedMessage {
    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.0.payload
    }

    /// It is done with.
    pub async fn done(&self) {
        // When it gets lost the message comes again, and is refused.
        let _ = self.0.ack().await;
    }

    /// Somebody else may have it.
    pub async fn give_back(&self) {
        let _ = self.0.ack_with(AckKind::Nak(None)).await;
    }
}

impl WorkQueue {
    /// Appends a message; returns its number once the server has stored it.
    pub async fn put(&self, payload: Vec<u8>) -> Result<u64, NatsError> {
        let published = async {
            let ack = self.jetstream.publish(self.subject.clone(), payload.into()).await;
            ack.map_err(server)?.await.map_err(server)
        };
        let ack = timeout(PATIENCE, published)
            .await
            .map_err(|_| NatsError::Timeout)??;
        Ok(ack.sequence)
    }

    /// Removes a message that nobody has taken.
    pub async fn remove(&self, number: u64) {
        let _ = timeout(PATIENCE, self.stream.delete_message(number)).await;
    }

    /// Takes up to so many messages; waits at most `patience` for the first.
    pub async fn take(&self, most: usize, patience: Duration) -> Result<Vec<QueuedMessage>, NatsError> {
        let batch = self
            .consumer
            .batch()
            .max_messages(most)
            .expires(patience)
            .messages();
        let mut batch = timeout(PATIENCE, batch)
            .await
            .map_err(|_| NatsError::Timeout)?
            .map_err(server)?;
        let mut taken = Vec::new();
        let all = async {
            while let Some(message) = batch.next().await {
                taken.push(QueuedMessage(message.map_err(server)?));
                if taken.len() >= most {
                    break;
                }
            }
            Ok::<(), NatsError>(())
        };
        match timeout(patience + PATIENCE, all).await {
            Ok(Err(error)) if taken.is_empty() => Err(error),
            Ok(_) | Err(_) => Ok(taken),
        }
    }
}
