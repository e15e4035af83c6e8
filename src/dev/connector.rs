//! The embedded connector's settings and its handle.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio_tungstenite::tungstenite::Message;
use url::Url;

use super::buffer::{BufferId, BufferedDelivery, NotBuffered};
use super::faults::ResultRule;
use super::gateway_frames::{answer, text};
use super::http::router;
use super::listener::{ServerPort, accept};
use super::nas::Nas;
use super::state::Hub;
use crate::relay::{RelayHandle, TakenItem};

/// A running connector on 127.0.0.1. Dropping it resets its sockets and frees its port.
pub struct Connector {
    pub(super) hub: Arc<Hub>,
    port: Mutex<ServerPort>,
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
        let addr = listener.local_addr()?;
        let hub = Arc::new(Hub::new(settings, addr, tokio::runtime::Handle::current()));
        let port = listen(&hub, listener);
        Ok(Self {
            hub,
            port: Mutex::new(port),
        })
    }

    /// Closes every connection with 1001 and frees the port.
    pub async fn stop(self) {
        self.close_with(1001, "going away");
        let gone = self
            .until("every socket closed", Duration::from_secs(2), |connector| {
                connector.open_connections().is_empty().then_some(())
            })
            .await;
        drop(gone);
        self.take_down().await;
    }

    /// Closes the port and resets every socket: dials are refused by the system. The port is not given to anybody else, and
    /// what is buffered stays.
    pub async fn take_down(&self) {
        self.port.lock().await.close(self.hub.addr).await;
        self.drop_sockets();
    }

    /// Takes [`take_down`](Self::take_down) back, on the same port.
    pub async fn bring_up(&self) -> io::Result<()> {
        let mut port = self.port.lock().await;
        if let Some(listener) = port.reopen(self.hub.addr).await? {
            *port = listen(&self.hub, listener);
        }
        Ok(())
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.hub.addr
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.hub.addr.port()
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
    pub fn show_jobs_of(&self, nas: Arc<Nas>) {
        // Refused only if there is one already.
        let _ = self.hub.nas.set(nas);
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

    /// Allows one more enrolment.
    pub fn add_enrol_token(&self, token: &str) {
        self.hub
            .change(|state| state.enrol_tokens.insert(token.to_owned()));
    }

    /// Answers further hellos of a platform with this descriptor, whatever it is.
    pub fn set_descriptor(&self, platform: &str, descriptor: Value) {
        self.hub
            .change(|state| state.descriptors.insert(platform.to_owned(), descriptor));
    }

    /// Pokes this URL when something is buffered for the gateway while it is away. Only loopback is poked.
    pub fn set_wake_url(&self, url: Url) {
        self.hub.change(|state| {
            let primary = state.primary.clone();
            if let Some(gateway) = state.gateways.get_mut(&primary) {
                gateway.wake_url = Some(url);
            }
        });
    }

    /// Buffers an event for the gateway, whether it listens or not: delivered in order, again on every new
    /// connection, until it is acknowledged. The gateway is the one last enrolled or greeted, else the first.
    pub fn deliver(&self, event: &Value) -> Result<BufferId, NotBuffered> {
        self.hub.buffer(None, BufferedDelivery::Event(event))
    }

    /// The same for a gateway by name.
    pub fn deliver_to(&self, gateway_id: &str, event: &Value) -> Result<BufferId, NotBuffered> {
        self.hub.buffer(Some(gateway_id), BufferedDelivery::Event(event))
    }

    /// Sends an event once, without a buffer id, ahead of what is buffered. Returns whether a gateway is connected
    /// that has not gone idle; one that has is given live events again when its buffer is empty.
    pub fn deliver_live(&self, event: &Value) -> bool {
        self.hub.change(|state| state.chats.learn(event));
        self.hub.send_live(BufferedDelivery::Event(event))
    }

    /// Buffers a provider request.
    pub fn forward(&self, forward: &Value) -> Result<BufferId, NotBuffered> {
        self.hub.buffer(None, BufferedDelivery::Forward(forward))
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

    /// Sends a binary message as it is. Returns whether a gateway is connected.
    pub fn send_binary(&self, bytes: &[u8]) -> bool {
        self.hub.send(Message::binary(bytes.to_vec()))
    }

    /// Answers a request by hand. Returns whether a gateway is connected.
    pub fn answer(&self, request_id: &str, result: &Value) -> bool {
        self.hub.send(text(&answer(request_id, result)))
    }

    /// Presses a button of a prompt that the gateway put in a chat. `None` when there is no such button.
    pub fn press(&self, prompt_id: &str, option_id: &str) -> Option<Result<BufferId, NotBuffered>> {
        let event = self.hub.press(prompt_id, option_id, None)?;
        Some(self.deliver(&event))
    }

    /// Binds a capability to a session, for `follow_up` to use.
    pub fn grant_follow_up(&self, session_key: &str, kind: &str) {
        self.hub.change(|state| state.contents.grant(session_key, kind));
    }

    /// Keeps a file for the gateway to fetch, and returns its URL.
    pub fn put_media(&self, mime: &str, filename: Option<&str>, bytes: Vec<u8>) -> String {
        let id = self.hub.change(|state| {
            let owner = state.primary.clone();
            state.media.put(&owner, mime, filename, bytes.into())
        });
        format!("{}/relay/media/{id}", self.http_base())
    }

    /// Adds a rule for the answers to ops.
    pub fn script(&self, rule: ResultRule) {
        self.hub.change(|state| state.result_rules.add(rule));
    }

    /// Takes every rule away.
    pub fn clear_script(&self) {
        self.hub.change(|state| state.result_rules.clear());
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

fn listen(hub: &Arc<Hub>, listener: TcpListener) -> ServerPort {
    let down = hub.stop.child_token();
    let task = hub.runtime.spawn(accept(listener, router(hub), down.clone()));
    ServerPort::Open { down, task }
}

/// A gateway that may dial, and the secret it signs with.
#[derive(Clone, Debug)]
pub struct GatewayCredentials {
    /// Its name.
    pub gateway_id: String,
    /// Its secret.
    pub secret: SecretString,
}

/// What becomes of a second connection of the same gateway. Both happen in the wild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondConnection {
    /// The old one is closed with 4000.
    NewestWins,
    /// The new one is closed with 1008.
    RefuseNew,
}

/// How an embedded connector behaves from its start; faults and result rules change it later.
#[derive(Clone, Debug)]
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
    /// Whether ops are answered. When not, every one is carried out and waits for
    /// [`Connector::answer`](super::Connector::answer).
    pub auto_answer: bool,
    /// How often the connector pings; a gateway silent for two of these is dropped. `None` never pings.
    pub ping_interval: Option<Duration>,
    /// Buffered frames that may be on their way unacknowledged. The contract's connectors use one.
    pub drain_window: usize,
    /// Buffer ids go out as JSON numbers instead of text.
    pub numeric_buffer_ids: bool,
    /// Who stays when a gateway dials twice.
    pub second_connection: SecondConnection,
    /// Least time between two wake pokes of one gateway.
    pub wake_cooldown: Duration,
    /// Whether frames are recorded from the start.
    pub recording: bool,
    /// Frames that are kept on record; the oldest go first.
    pub record_limit: usize,
    /// Messages that are buffered for one gateway; further ones are refused.
    pub buffer_limit: usize,
    /// Longest WebSocket message that is accepted from a gateway.
    pub max_message_bytes: usize,
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
            auto_answer: true,
            ping_interval: Some(Duration::from_secs(30)),
            drain_window: 1,
            numeric_buffer_ids: false,
            second_connection: SecondConnection::NewestWins,
            wake_cooldown: Duration::from_secs(60),
            recording: true,
            record_limit: 50_000,
            buffer_limit: 100_000,
            max_message_bytes: 1024 * 1024,
        }
    }
}

/// 32 random bytes in hex.
pub fn random_token() -> String {
    use std::fmt::Write as _;
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes.iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
