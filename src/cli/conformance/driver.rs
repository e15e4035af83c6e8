//! Drives a connector through the scenes of the contract, and notes what comes. Whether that is right is decided in
//! [`super::checks`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use super::seen::{Ending, Message, OpRequest, Seen, SeenConnection};
use crate::agent::child::{Child, Exit, Program, StopSchedule};
use crate::config::Settings;
use crate::net::http::{excerpt, unix_secs};
use crate::net::socket::{DialError, DialRequest, Dialer};
use crate::net::ws_io::{ReadEvent, SocketReader, SocketWriter, split};
use crate::relay::{Credentials, USER_AGENT};
use crate::wire::{
    ConnectorUrl, GatewayFrame, Line, LineFramer, OpIds, TOKEN_TTL_SECS, UpgradeToken, close_code,
};

/// How long it is watched for what must not come.
const QUIET: Duration = Duration::from_secs(1);
/// Frames of one connection that are kept.
const MAX_FRAMES: usize = 10_000;
/// How far in the past the expired token ended.
const EXPIRED_SECS: i64 = 3_600;
/// An op that no contract has.
const UNKNOWN_OP: &str = "conformance_unknown";
/// A chat and a session that nobody has.
const NOWHERE: &str = "conformance-nowhere";
/// What is sent to the chat of the message.
const GREETING: &str = "hermes-relay conformance: your message came. You see this once.";

/// Where and how to drive.
pub(super) struct Plan<'p> {
    pub(super) url: &'p ConnectorUrl,
    pub(super) credentials: &'p Credentials,
    pub(super) settings: &'p Settings,
    pub(super) dialer: Dialer,
    /// Timeout for everything that the connector answers by itself.
    pub(super) timeout: Duration,
    /// Timeout for a message from a person.
    pub(super) wait: Duration,
    /// A shell command that writes a message.
    pub(super) deliver: Option<&'p str>,
    /// Its environment.
    pub(super) env: BTreeMap<OsString, OsString>,
}

/// Plays every scene. `tell` tells the tester what to do.
pub(super) async fn drive(plan: &Plan<'_>, mut tell: impl FnMut(String)) -> Seen {
    let mut ids = OpIds::new(seed());
    let identities = &plan.settings.connector.identities;
    let mut seen = Seen {
        platforms: identities
            .iter()
            .map(|identity| identity.platform.clone())
            .collect(),
        ..Seen::default()
    };
    let wrong = SecretString::from(format!("{}-wrong", plan.credentials.secret.expose_secret()));
    seen.without_token = plan.play_stranger(None).await;
    seen.wrong_token = plan.play_stranger(Some(plan.token(&wrong, 0))).await;
    let expired = plan.token(&plan.credentials.secret, -EXPIRED_SECS);
    seen.expired_token = plan.play_stranger(Some(expired)).await;
    plan.play_first(&mut seen, &mut ids, &mut tell).await;
    if !seen.is_connected() {
        return seen;
    }
    if seen.message.is_some() {
        plan.play_second(&mut seen, &mut ids).await;
    }
    plan.play_third(&mut seen, &mut tell).await;
    plan.play_two(&mut seen).await;
    seen
}

/// Request ids must not repeat from run to run.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| {
        now.as_secs().rotate_left(32) ^ u64::from(now.subsec_nanos())
    }) ^ u64::from(std::process::id()).rotate_left(48)
}

impl Plan<'_> {
    fn token(&self, secret: &SecretString, shift_secs: i64) -> UpgradeToken {
        let now = unix_secs(SystemTime::now()).saturating_add(shift_secs);
        UpgradeToken::mint(&self.credentials.gateway_id, secret, TOKEN_TTL_SECS, now)
    }

    async fn dial(&self, token: Option<UpgradeToken>) -> DrivenConnection {
        let link = &self.settings.link;
        let dialed = self.dialer.dial(DialRequest {
            url: self.url.dial_url(),
            bearer: token.as_ref().map(UpgradeToken::as_secret),
            user_agent: USER_AGENT,
            allow_plaintext: self.settings.connector.allow_plaintext,
            max_message_bytes: link.max_message_bytes,
            max_write_buffer_bytes: link.max_write_buffer_bytes,
        });
        let mut connection = DrivenConnection {
            socket: None,
            framer: LineFramer::new(link.max_line_bytes),
            session: SeenConnection::default(),
        };
        match dialed.await {
            Ok(dialed) => {
                connection.socket = Some(split(dialed.socket));
                connection.session.ending = Ending::Open;
                for identity in &self.settings.connector.identities {
                    let hello = GatewayFrame::Hello {
                        platform: identity.platform.clone(),
                        bot_id: identity.bot_id.clone(),
                        command_manifest: None,
                    };
                    connection.send(hello.to_line()).await;
                }
            }
            Err(error) => {
                let status = match &error {
                    DialError::Refused { status, .. } | DialError::Redirected { status, .. } => Some(*status),
                    _ => None,
                };
                let error = error.to_string();
                connection.session.ending = Ending::NotOpened { status, error };
            }
        }
        connection
    }

    /// A connection with a good token, once every hello is answered.
    async fn handshake(&self) -> DrivenConnection {
        let token = self.token(&self.credentials.secret, 0);
        let mut connection = self.dial(Some(token)).await;
        let hellos = self.settings.connector.identities.len();
        connection
            .until(self.timeout, |session| {
                session.of_type("descriptor").count() >= hellos
            })
            .await;
        connection
    }

    async fn play_stranger(&self, token: Option<UpgradeToken>) -> SeenConnection {
        let mut connection = self.dial(token).await;
        connection
            .until(self.timeout, |session| {
                session.of_type("descriptor").next().is_some()
            })
            .await;
        // One that answers may still close.
        connection.until(QUIET, |_| false).await;
        connection.close(self.timeout).await
    }

    async fn play_first(&self, seen: &mut Seen, ids: &mut OpIds, tell: &mut impl FnMut(String)) {
        let mut connection = self.handshake().await;
        if connection.session.of_type("descriptor").next().is_some() {
            let unknown = OpRequest::new(ids, UNKNOWN_OP);
            let action = json!({"op": UNKNOWN_OP, "chat_id": NOWHERE});
            connection.request(&unknown, &action, self.platform()).await;
            connection
                .until(self.timeout, |session| {
                    session.results(&unknown.id).next().is_some()
                })
                .await;
            connection
                .send("{\"type\":\"conformance_unknown\"}\n".to_owned())
                .await;
            let next = OpRequest::new(ids, "get_chat_info");
            let action = json!({"op": next.op, "chat_id": NOWHERE});
            connection.request(&next, &action, self.platform()).await;
            connection
                .until(self.timeout, |session| session.results(&next.id).next().is_some())
                .await;
            let interrupt = GatewayFrame::Interrupt {
                session_key: format!("agent:main:{NOWHERE}:dm:{}", unknown.id),
                reason: Some("conformance".to_owned()),
            };
            connection.send(interrupt.to_line()).await;
            if let GatewayFrame::Interrupt { session_key, .. } = interrupt {
                seen.interrupted = Some(session_key);
            }
            connection.until(QUIET, |_| false).await;
            (seen.unknown_op, seen.after_unknown_frame) = (Some(unknown), Some(next));
            self.find_message(&mut connection, seen, tell).await;
        }
        seen.first = connection.close(self.timeout).await;
    }

    /// A message that waits, or one that somebody writes now.
    async fn find_message(
        &self,
        connection: &mut DrivenConnection,
        seen: &mut Seen,
        tell: &mut impl FnMut(String),
    ) {
        if connection.session.messages().next().is_none() && connection.session.is_open() {
            if let Err(why) = self.write_message(tell).await {
                seen.no_message = why;
                return;
            }
            connection
                .until(self.wait, |session| session.messages().next().is_some())
                .await;
        }
        seen.no_message = format!("no message came within {} s", self.wait.as_secs());
        seen.message = connection
            .session
            .messages()
            .next()
            .map(|(buffer_id, event)| Message {
                buffer_id,
                event: event.clone(),
            });
    }

    /// Runs the command that writes a message, or asks a person for one.
    async fn write_message(&self, tell: &mut impl FnMut(String)) -> Result<(), String> {
        let Some(command) = self.deliver else {
            let seconds = self.wait.as_secs();
            tell(format!("Write a message to the bot within {seconds} s."));
            return Ok(());
        };
        let program = Program {
            argv: ["/bin/sh", "-c", command].map(OsString::from).to_vec(),
            cwd: None,
            env: self.env.clone(),
            agent: None,
        };
        let spawned = Child::spawn_detached_output(&program);
        let mut child =
            spawned.map_err(|error| format!("the command of --deliver did not start: {error}"))?;
        if timeout(self.wait, child.exited()).await.is_err() {
            child.stop(StopSchedule::default()).await;
            return Err(format!(
                "the command of --deliver did not end within {} s",
                self.wait.as_secs()
            ));
        }
        match child.finish().await {
            Exit::Code(0) => Ok(()),
            exit => {
                let words = excerpt(&child.last_words().await);
                Err(format!("the command of --deliver {exit}: {words}"))
            }
        }
    }

    async fn play_second(&self, seen: &mut Seen, ids: &mut OpIds) {
        let Some(message) = seen.message.clone() else {
            return;
        };
        let mut connection = self.handshake().await;
        if let Some(buffer_id) = &message.buffer_id {
            connection
                .until(self.timeout, |session| session.has_message(buffer_id))
                .await;
            let ack = GatewayFrame::InboundAck {
                buffer_id: buffer_id.clone(),
            };
            connection.send(ack.to_line()).await;
        }
        let mut request = OpRequest::new(ids, "send");
        let (action, platform) = reply(&message.event);
        let platform = platform.as_deref().or(self.platform());
        connection.request(&request, &action, platform).await;
        let answered = |session: &SeenConnection, times: usize| session.results(&request.id).count() >= times;
        if connection
            .until(self.timeout, |session| answered(session, 1))
            .await
        {
            connection.request(&request, &action, platform).await;
            connection
                .until(self.timeout, |session| answered(session, 2))
                .await;
            request.sent += 1;
        }
        connection.until(QUIET, |_| false).await;
        seen.send = Some(request);
        seen.second = connection.close(self.timeout).await;
    }

    async fn play_third(&self, seen: &mut Seen, tell: &mut impl FnMut(String)) {
        let mut connection = self.handshake().await;
        connection.until(QUIET, |_| false).await;
        connection.send(GatewayFrame::GoingIdle.to_line()).await;
        let idle = connection
            .until(self.timeout, |session| {
                session.of_type("going_idle_ack").next().is_some()
            })
            .await;
        if idle && self.deliver.is_some() {
            match self.write_message(tell).await {
                Ok(()) => seen.wrote_while_idle = true,
                Err(why) => tell(why),
            }
            connection.until(QUIET, |_| false).await;
        }
        seen.third = connection.close(self.timeout).await;
        if seen.wrote_while_idle {
            let known = seen
                .message
                .as_ref()
                .and_then(|message| message.buffer_id.clone());
            let is_new = |id: &Option<String>| id.is_some() && *id != known;
            let mut connection = self.handshake().await;
            connection
                .until(self.timeout, |session| {
                    session.messages().any(|(id, _)| is_new(&id))
                })
                .await;
            let new: Vec<String> = connection.session.messages().filter_map(|(id, _)| id).collect();
            for buffer_id in new {
                let ack = GatewayFrame::InboundAck { buffer_id };
                connection.send(ack.to_line()).await;
            }
            seen.fourth = connection.close(self.timeout).await;
        }
    }

    async fn play_two(&self, seen: &mut Seen) {
        let mut older = self.handshake().await;
        let mut newer = self.handshake().await;
        let is_over = |session: &SeenConnection| !session.is_open();
        older.until(QUIET, is_over).await;
        if older.session.is_open() {
            newer.until(QUIET, is_over).await;
        }
        seen.older = older.close(self.timeout).await;
        seen.newer = newer.close(self.timeout).await;
    }

    /// The platform of ops without a chat.
    fn platform(&self) -> Option<&str> {
        let first = self.settings.connector.identities.first()?;
        Some(first.platform.as_str()).filter(|platform| *platform != "relay")
    }
}

/// A `send` to the chat of a message, and the chat's platform.
fn reply(event: &Value) -> (Value, Option<String>) {
    let source = &event["source"];
    let mut metadata = json!({});
    for key in ["thread_id", "scope_id", "user_id"] {
        if let Some(text) = source[key].as_str() {
            metadata[key] = json!(text);
        }
    }
    let text = |value: &Value| match value {
        Value::String(text) => json!(text),
        Value::Number(number) => json!(number.to_string()),
        _ => Value::Null,
    };
    let action = json!({
        "op": "send",
        "chat_id": text(&source["chat_id"]),
        "content": GREETING,
        "reply_to": text(&event["message_id"]),
        "metadata": metadata,
    });
    (action, source["platform"].as_str().map(str::to_owned))
}

impl OpRequest {
    fn new(ids: &mut OpIds, op: &'static str) -> Self {
        Self {
            id: ids.next().to_string(),
            op,
            sent: 1,
        }
    }
}

/// An open connection.
struct DrivenConnection {
    socket: Option<(SocketReader, SocketWriter)>,
    framer: LineFramer,
    session: SeenConnection,
}

impl DrivenConnection {
    /// Sends a line. If that fails, reading tells why.
    async fn send(&mut self, line: String) {
        if let Some((_, writer)) = &mut self.socket
            && writer.write_line(line).await.is_ok()
        {
            let _ = writer.flush().await;
        }
    }

    async fn request(&mut self, request: &OpRequest, action: &Value, platform: Option<&str>) {
        let mut frame = json!({"type": "outbound", "requestId": request.id, "action": action});
        if let Some(platform) = platform {
            frame["platform"] = json!(platform);
        }
        self.send(format!("{frame}\n")).await;
    }

    /// Reads until the session is as wanted; returns whether it is.
    async fn until(&mut self, within: Duration, wanted: impl Fn(&SeenConnection) -> bool) -> bool {
        let deadline = Instant::now() + within;
        loop {
            if wanted(&self.session) {
                return true;
            }
            let Some((reader, _)) = &mut self.socket else {
                return false;
            };
            let Ok(event) = timeout_at(deadline, reader.read()).await else {
                return false;
            };
            self.note(event);
        }
    }

    fn note(&mut self, event: ReadEvent) {
        let ending = match event {
            ReadEvent::Alive => return,
            ReadEvent::Data(bytes) => {
                let session = &mut self.session;
                self.framer.feed(&bytes, |line| session.add(&line));
                return;
            }
            ReadEvent::Closed(close) => {
                let (code, reason) =
                    close.map_or((None, String::new()), |(code, reason)| (Some(code), reason));
                Ending::Closed { code, reason }
            }
            ReadEvent::TooLarge(bytes) => Ending::Broken(format!("a message of {bytes} bytes is too large")),
            ReadEvent::Failed(error) => Ending::Broken(error),
        };
        self.session.ending = ending;
        self.socket = None;
    }

    /// Closes with 1000 and waits for the answer.
    async fn close(mut self, within: Duration) -> SeenConnection {
        if let Some((mut reader, mut writer)) = self.socket.take() {
            let closing = async {
                let _ = writer.close(close_code::NORMAL, "conformance").await;
                loop {
                    match reader.read().await {
                        ReadEvent::Closed(_) => return true,
                        ReadEvent::Data(_) | ReadEvent::Alive => {}
                        ReadEvent::TooLarge(_) | ReadEvent::Failed(_) => return false,
                    }
                }
            };
            self.session.close_answered = Some(timeout(within, closing).await.unwrap_or(false));
        }
        self.session
    }
}

impl SeenConnection {
    fn add(&mut self, line: &Line<'_>) {
        let bytes = match line {
            Line::Whole(bytes) => bytes,
            Line::TooLong { start, .. } => start,
        };
        if self.frames.len() + self.unreadable.len() >= MAX_FRAMES {
            return;
        }
        match serde_json::from_slice::<Value>(bytes) {
            Ok(frame) if frame.is_object() => self.frames.push(frame),
            _ => self.unreadable.push(excerpt(&String::from_utf8_lossy(bytes))),
        }
    }
}
