//! A bare client: sends lines, reads lines, keeps nothing.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::dev::{Connector, ConnectorSettings, GatewayCredentials};
use futures_util::{SinkExt as _, StreamExt as _};
use hermes_relay::wire::UpgradeToken;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::{Error, Message};

pub(crate) use crate::support::wait::SOON;
/// How long nothing must come before it is believed that nothing comes.
pub(crate) const QUIET: Duration = Duration::from_millis(150);

pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<TcpStream>,
    pub(crate) upgrade: Response,
}

pub(crate) async fn connector() -> Connector {
    Connector::start(ConnectorSettings::default()).await.unwrap()
}

pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_secs().try_into().unwrap()
}

pub(crate) fn token(credentials: &GatewayCredentials) -> String {
    let token = UpgradeToken::mint(&credentials.gateway_id, &credentials.secret, 300, now());
    token.expose().to_owned()
}

/// A dial with whatever bearer.
pub(crate) async fn dial_as(connector: &Connector, bearer: Option<&str>) -> Result<Client, Error> {
    dial_at(connector.addr(), bearer).await
}

/// The same at an address of its own.
pub(crate) async fn dial_at(addr: SocketAddr, bearer: Option<&str>) -> Result<Client, Error> {
    let mut request = format!("ws://{addr}/relay").into_client_request().unwrap();
    if let Some(bearer) = bearer {
        let value = format!("Bearer {bearer}").try_into().unwrap();
        request.headers_mut().insert("authorization", value);
    }
    let socket = TcpStream::connect(addr).await?;
    let (socket, upgrade) = tokio_tungstenite::client_async(request, socket).await?;
    Ok(Client { socket, upgrade })
}

/// A dial of the gateway that may.
pub(crate) async fn dial(connector: &Connector) -> Client {
    let bearer = token(&connector.credentials().unwrap());
    dial_as(connector, Some(&bearer)).await.unwrap()
}

/// A dial, greeted.
pub(crate) async fn greeted(connector: &Connector, platform: &str) -> Client {
    let mut client = dial(connector).await;
    client.hello(platform).await;
    assert_eq!(client.line().await["descriptor"]["platform"], platform);
    client
}

impl Client {
    pub(crate) async fn say(&mut self, frame: Value) {
        let line = format!("{frame}\n");
        self.socket.send(Message::text(line)).await.unwrap();
    }

    pub(crate) async fn hello(&mut self, platform: &str) {
        self.say(json!({ "type": "hello", "platform": platform, "botId": "" }))
            .await;
    }

    pub(crate) async fn ack(&mut self, buffer_id: &Value) {
        let text = buffer_id.as_str().map_or(buffer_id.to_string(), str::to_owned);
        self.say(json!({ "type": "inbound_ack", "bufferId": text })).await;
    }

    pub(crate) async fn ask(&mut self, request_id: &str, action: Value) {
        self.say(json!({ "type": "outbound", "requestId": request_id, "action": action }))
            .await;
    }

    /// Asks and gives the result.
    pub(crate) async fn asked(&mut self, request_id: &str, action: Value) -> Value {
        self.ask(request_id, action).await;
        let frame = self.line().await;
        assert_eq!(frame["type"], "outbound_result", "{frame}");
        assert_eq!(frame["requestId"], request_id);
        frame["result"].clone()
    }

    /// The next message, whatever it is.
    pub(crate) async fn message(&mut self) -> Option<Result<Message, Error>> {
        loop {
            let message = timeout(SOON, self.socket.next()).await.expect("a message");
            if !matches!(message, Some(Ok(Message::Ping(_) | Message::Pong(_)))) {
                return message;
            }
        }
    }

    /// The next message's text.
    pub(crate) async fn text(&mut self) -> String {
        match self.message().await {
            Some(Ok(Message::Text(text))) => text.as_str().to_owned(),
            other => panic!("not a text: {other:?}"),
        }
    }

    /// The next frame; each comes as one message and one line.
    pub(crate) async fn line(&mut self) -> Value {
        let text = self.text().await;
        assert!(
            text.ends_with('\n') && text.matches('\n').count() == 1,
            "{text:?}"
        );
        serde_json::from_str(&text).unwrap()
    }

    /// Nothing comes.
    pub(crate) async fn quiet(&mut self) {
        if let Ok(message) = timeout(QUIET, self.socket.next()).await {
            panic!("something came: {message:?}");
        }
    }

    /// The close that comes next.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        match self.message().await {
            Some(Ok(Message::Close(Some(frame)))) => (frame.code.into(), frame.reason.as_str().to_owned()),
            other => panic!("not a close: {other:?}"),
        }
    }

    /// Reads, and so answers pings, for so many of them, between which no frame comes.
    pub(crate) async fn answer_pings(&mut self, pings: usize) {
        for _ in 0..pings {
            let next = timeout(SOON, self.socket.next()).await.expect("a ping");
            assert!(matches!(next, Some(Ok(Message::Ping(_)))), "not a ping: {next:?}");
        }
    }
}
