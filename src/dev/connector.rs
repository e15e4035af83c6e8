//! The embedded connector's settings and its handle.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;

use super::buffer::{BufferId, BufferedDelivery, NotBuffered};
use super::embedded_scheduler::EmbeddedScheduler;
use super::gateway_frames::SocketHandler;
use super::http::router;
use super::listener::accept;
use super::state::{ConnectorState, Hub};
use crate::relay::{RelayHandle, TakenItem};
use crate::text::hex;

/// A connector on 127.0.0.1. Dropping it ends its sockets.
pub struct Connector {
    /// What its tasks share.
    pub hub: Arc<Hub>,
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.hub.stop.cancel();
    }
}

impl Connector {
    /// Binds the port and starts serving.
    pub async fn start(settings: ConnectorSettings) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, settings.port)).await?;
        let connector = Self::new(settings, listener.local_addr()?);
        tokio::spawn(accept(listener, connector.router(), connector.hub.stop.clone()));
        Ok(connector)
    }

    /// A connector whose [`router`](Self::router) is served at this address.
    pub fn new(settings: ConnectorSettings, addr: SocketAddr) -> Self {
        let hub = Arc::new(Hub::new(settings, addr, tokio::runtime::Handle::current()));
        Self { hub }
    }

    /// Its routes.
    pub fn router(&self) -> Router {
        router(&self.hub)
    }

    /// The address that a relay is configured with.
    pub fn url(&self) -> String {
        format!("ws://{}", self.hub.addr)
    }

    /// The base of the HTTP routes.
    pub fn http_base(&self) -> String {
        self.hub.http_base()
    }

    /// A gateway that may dial: the first of the settings.
    pub fn credentials(&self) -> Option<GatewayCredentials> {
        self.hub.settings.gateways.first().cloned()
    }

    /// Shows the jobs of this managed scheduler on the page. The first one stays.
    pub fn show_jobs_of(&self, managed: Arc<EmbeddedScheduler>) {
        // Refused only if there is one already.
        let _ = self.hub.managed.set(managed);
    }

    /// Lets people hand something to the agents of this relay on the page. The first one stays.
    pub fn show_agents_of(&self, relay: watch::Receiver<Option<RelayHandle>>) {
        // Refused only if there is one already.
        let _ = self.hub.relay.set(relay);
    }

    /// Shows on the page what was handed to an agent.
    pub fn show_delivery(&self, taken: &TakenItem) {
        let what = serde_json::to_value(taken).unwrap_or_default();
        self.hub.change(|state| state.feed.publish("handed", what));
    }

    /// The URL at which it issues an identity token, as an identity provider without a client secret.
    pub fn identity_url(&self) -> Option<String> {
        let key = self.hub.settings.identity_key.as_ref()?;
        Some(format!("{}/identity/{key}", self.http_base()))
    }

    /// Answers further hellos of a platform with this descriptor, whatever it is.
    pub fn set_descriptor(&self, platform: &str, descriptor: Value) {
        self.hub
            .change(|state| state.descriptors.insert(platform.to_owned(), descriptor));
    }

    /// Buffers an event for the gateway, whether it listens or not: delivered in order, again on every new
    /// connection, until it is acknowledged. The gateway is the one last enrolled or greeted, else the first.
    pub fn deliver(&self, event: &Value) -> Result<BufferId, NotBuffered> {
        self.hub.buffer(BufferedDelivery::Event(event))
    }

    /// Sends an event once, without a buffer id, ahead of what is buffered. Returns whether a gateway is connected
    /// that has not gone idle; one that has is given live events again when its buffer is empty.
    pub fn deliver_live(&self, event: &Value) -> bool {
        self.hub.change(|state| state.chats.learn(event));
        self.hub.send_live(BufferedDelivery::Event(event))
    }

    /// Buffers a provider request.
    pub fn forward(&self, forward: &Value) -> Result<BufferId, NotBuffered> {
        self.hub.buffer(BufferedDelivery::Forward(forward))
    }

    /// Sends a provider request once. Returns whether a gateway is connected that has not gone idle.
    pub fn forward_live(&self, forward: &Value) -> bool {
        self.hub.send_live(BufferedDelivery::Forward(forward))
    }

    /// Asks for a session's turn to stop. Returns whether a gateway is connected.
    pub fn interrupt(&self, session_key: &str, chat_id: &str) -> bool {
        self.hub.interrupt(session_key, chat_id)
    }

    /// Sends a text message as it is, newline and all or not. Returns whether a gateway is connected.
    pub fn send_raw(&self, raw: &str) -> bool {
        self.hub.send(Message::text(raw))
    }

    /// Presses a button of a prompt that the gateway put in a chat. `None` when there is no such button.
    pub fn press(&self, prompt_id: &str, option_id: &str) -> Option<Result<BufferId, NotBuffered>> {
        let event = self.hub.press(prompt_id, option_id, None)?;
        Some(self.deliver(&event))
    }

    /// Whether no token is accepted.
    pub fn is_revoked(&self) -> bool {
        self.hub.lock().faults.revoked
    }
}

/// A direct message from the user `u1`, as an event.
pub fn text_event(platform: &str, chat_id: &str, message_id: &str, text: &str) -> Value {
    json!({
        "text": text,
        "message_type": "text",
        "message_id": message_id,
        "source": {
            "platform": platform,
            "chat_id": chat_id,
            "chat_type": "dm",
            "user_id": "u1",
            "user_name": "User One",
            "message_id": message_id,
        },
    })
}

/// A gateway that may dial, and the secret it signs with.
#[derive(Clone, Debug)]
pub struct GatewayCredentials {
    /// Its name.
    pub gateway_id: String,
    /// Its secret.
    pub secret: SecretString,
}

/// How an embedded connector behaves.
#[derive(Clone)]
pub struct ConnectorSettings {
    /// Port on 127.0.0.1; 0 takes a free one.
    pub port: u16,
    /// Gateways that may dial. Several entries with one id are one gateway whose secret is being rotated.
    /// The first is the one that [`Connector::credentials`](super::Connector::credentials) returns.
    pub gateways: Vec<GatewayCredentials>,
    /// Descriptors by platform, as they go on the wire; platforms that are not here get their preset.
    pub descriptors: BTreeMap<String, Value>,
    /// Enrolment tokens, each good once.
    pub enrol_tokens: Vec<String>,
    /// Identity tokens that enrolment and provisioning accept; `None` accepts any that is not empty.
    pub identity_tokens: Option<Vec<String>>,
    /// Where it also is an identity provider: the last part of the URL at which it issues the first of those tokens to
    /// whoever knows that URL.
    pub identity_key: Option<String>,
    /// Names besides this machine's loopback ones under which it is addressed; a request with any other `Host` is
    /// refused.
    pub hosts: Vec<String>,
    /// The tenant that enrolled gateways get.
    pub tenant: String,
    /// Platforms that the answer to an enrolment names; without any it names none, as the contract has it.
    pub platforms: Vec<String>,
    /// How often the connector pings; a gateway silent for two of these is dropped. `None` never pings.
    pub ping_interval: Option<Duration>,
    /// Buffered frames that may be on their way unacknowledged. The contract's connectors use one.
    pub drain_window: usize,
    /// Buffer ids go out as JSON numbers instead of text.
    pub numeric_buffer_ids: bool,
    /// Least time between two wake pokes of one gateway.
    pub wake_cooldown: Duration,
    /// Frames that are kept on record; the oldest go first.
    pub record_limit: usize,
    /// Messages that are buffered for one gateway; further ones are refused.
    pub buffer_limit: usize,
    /// Longest WebSocket message that is accepted from a gateway.
    pub max_message_bytes: usize,
    /// The connector's clock.
    pub clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
    /// Handles what happens on sockets.
    pub handler: SocketHandler,
}

impl Default for ConnectorSettings {
    fn default() -> Self {
        Self {
            port: 0,
            gateways: vec![GatewayCredentials {
                gateway_id: "gw-dev".to_owned(),
                secret: random_token().into(),
            }],
            descriptors: BTreeMap::new(),
            enrol_tokens: Vec::new(),
            identity_tokens: None,
            identity_key: None,
            hosts: Vec::new(),
            tenant: "dev".to_owned(),
            platforms: Vec::new(),
            ping_interval: Some(Duration::from_secs(30)),
            drain_window: 1,
            numeric_buffer_ids: false,
            wake_cooldown: Duration::from_secs(60),
            record_limit: 50_000,
            buffer_limit: 100_000,
            max_message_bytes: 1024 * 1024,
            clock: Arc::new(SystemTime::now),
            handler: Arc::new(ConnectorState::handle),
        }
    }
}

/// 32 random bytes in hex.
pub fn random_token() -> String {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    hex(&bytes)
}
