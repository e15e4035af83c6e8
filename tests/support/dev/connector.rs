//! The embedded connector, with a script for its sockets and its routes.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::middleware::from_fn_with_state;
use hermes_relay::dev::{
    self, BufferId, ConnectionId, ConnectorSettings, Direction, Mark, NotBuffered, NotSeen, RecordedFrame,
    SocketEnd,
};
use hermes_relay::wire::{Action, Metadata};
use http::StatusCode;
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;
use url::Url;

use super::connector_http::{
    self, Dial, DialRule, Front, HttpRoute, HttpRouteFault, HttpScript, RecordedRequest,
};
use super::rules::Rule;
use super::server::{Server, bind};
use super::socket_script::{
    self, Ack, ClosedConnection, MessageOrigin, ResultRule, SocketScript, When, unauthorized,
};

/// A connector on 127.0.0.1.
pub(crate) struct Connector {
    inner: dev::Connector,
    server: Server,
    sockets: Arc<Mutex<SocketScript>>,
    http: Arc<Mutex<HttpScript>>,
    clock_offset: Arc<AtomicI64>,
}

impl Deref for Connector {
    type Target = dev::Connector;

    fn deref(&self) -> &dev::Connector {
        &self.inner
    }
}

impl Connector {
    pub(crate) async fn start(settings: ConnectorSettings) -> io::Result<Self> {
        let (listener, addr) = bind(settings.port).await?;
        let sockets = Arc::new(Mutex::new(SocketScript {
            keeps_acks: settings.record_limit > 0,
            ..SocketScript::default()
        }));
        let clock_offset = Arc::new(AtomicI64::new(0));
        let (script, offset) = (Arc::clone(&sockets), Arc::clone(&clock_offset));
        let settings = ConnectorSettings {
            handler: Arc::new(move |state, id, event| locked(&script).handle(state, id, event)),
            clock: Arc::new(move || shifted(offset.load(Ordering::Relaxed))),
            ..settings
        };
        let inner = dev::Connector::new(settings, addr);
        let http = Arc::new(Mutex::new(HttpScript::default()));
        let front = Front {
            hub: Arc::clone(&inner.hub),
            script: Arc::clone(&http),
        };
        let router = inner
            .router()
            .layer(from_fn_with_state(front, connector_http::handle));
        let server = Server::start(listener, addr, router, inner.hub.stop.clone());
        Ok(Self {
            inner,
            server,
            sockets,
            http,
            clock_offset,
        })
    }

    /// Closes every connection with 1001 and frees the port.
    pub(crate) async fn stop(self) {
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
    pub(crate) async fn take_down(&self) {
        self.server.take_down().await;
        self.drop_sockets();
    }

    /// Takes [`take_down`](Self::take_down) back, on the same port.
    pub(crate) async fn bring_up(&self) -> io::Result<()> {
        self.server.bring_up().await
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    pub(crate) fn port(&self) -> u16 {
        self.addr().port()
    }

    fn sockets(&self) -> MutexGuard<'_, SocketScript> {
        locked(&self.sockets)
    }

    fn http(&self) -> MutexGuard<'_, HttpScript> {
        locked(&self.http)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shifted(offset: i64) -> SystemTime {
    let shift = Duration::from_secs(offset.unsigned_abs());
    if offset < 0 {
        SystemTime::now() - shift
    } else {
        SystemTime::now() + shift
    }
}

/// What is sent.
impl Connector {
    /// Pokes this URL when something is buffered for the gateway while it is away.
    pub(crate) fn set_wake_url(&self, url: Url) {
        self.hub.change(|state| {
            let primary = state.primary.clone();
            if let Some(gateway) = state.gateways.get_mut(&primary) {
                gateway.wake_url = Some(url);
            }
        });
    }

    /// Buffers an event for a gateway by name.
    pub(crate) fn deliver_to(&self, gateway_id: &str, event: &Value) -> Result<BufferId, NotBuffered> {
        let make_primary = |gateway_id: &str| {
            self.hub
                .change(|state| std::mem::replace(&mut state.primary, gateway_id.to_owned()))
        };
        let primary = make_primary(gateway_id);
        let buffered = self.deliver(event);
        make_primary(&primary);
        buffered
    }

    /// Sends a binary message as it is. Returns whether a gateway is connected.
    pub(crate) fn send_binary(&self, bytes: &[u8]) -> bool {
        self.hub.send(Message::binary(bytes.to_vec()))
    }

    /// Answers a request by hand. Returns whether a gateway is connected.
    pub(crate) fn answer(&self, request_id: &str, result: &Value) -> bool {
        self.hub.send(socket_script::answer(request_id, result))
    }

    /// Binds a capability to a session, for `follow_up` to use.
    pub(crate) fn grant_follow_up(&self, session_key: &str, kind: &str) {
        self.hub.change(|state| state.contents.grant(session_key, kind));
    }

    /// Keeps a file for the gateway to fetch, and returns its URL.
    pub(crate) fn put_media(&self, mime: &str, filename: Option<&str>, bytes: Vec<u8>) -> String {
        let id = self.hub.change(|state| {
            let owner = state.primary.clone();
            state.media.put(&owner, mime, filename, bytes.into())
        });
        format!("{}/relay/media/{id}", self.http_base())
    }
}

/// Faults. Those of sockets concern the ones that are open now; the others last until they are taken back.
impl Connector {
    /// Adds a rule for the answers to ops.
    pub(crate) fn script(&self, rule: ResultRule) {
        self.sockets().rules.add(rule);
    }

    /// Takes every rule away.
    pub(crate) fn clear_script(&self) {
        self.sockets().rules.clear();
    }

    /// Resets every open socket, as a dying machine or middlebox does.
    pub(crate) fn drop_sockets(&self) {
        self.hub.end_all(&SocketEnd::Abort);
    }

    /// Closes every open socket with a close frame.
    pub(crate) fn close_with(&self, code: u16, reason: &str) {
        self.hub.end_all(&SocketEnd::Close {
            code,
            reason: reason.to_owned(),
        });
    }

    /// Closes a second connection of the same gateway with 1008, instead of the first with 4000. Both happen in the wild.
    pub(crate) fn refuse_second_connections(&self) {
        self.sockets().refuse_second = true;
    }

    /// Answers every further dial by a rule.
    pub(crate) fn answer_dials(&self, rule: DialRule) {
        self.http().dial_rule = rule;
    }

    /// Answers the next `count` dials by a rule.
    pub(crate) fn answer_next_dials(&self, count: usize, rule: &DialRule) {
        self.http()
            .next_dials
            .add(Rule::on_all(rule.clone()).times(count));
    }

    /// Refuses every further dial with a status and perhaps a `Retry-After` in seconds.
    pub(crate) fn refuse_dials(&self, status: StatusCode, retry_after: Option<u64>) {
        self.answer_dials(DialRule::Refuse { status, retry_after });
    }

    /// Accepts dials again.
    pub(crate) fn accept_dials(&self) {
        let mut http = self.http();
        http.dial_rule = DialRule::Accept;
        http.next_dials.clear();
    }

    /// Closes the next `count` connections with 4401 and this reason, though their token is good.
    pub(crate) fn unauthorized_next(&self, count: usize, reason: &str, when: When) {
        let denial = (when, reason.to_owned());
        self.sockets().denials.extend(std::iter::repeat_n(denial, count));
    }

    /// Closes everything with 4401 `unauthorized` and accepts no token any more.
    pub(crate) fn revoke(&self) {
        self.hub.change(|state| state.faults.revoked = true);
        self.hub.end_all(&unauthorized("unauthorized"));
    }

    /// Takes [`revoke`](Self::revoke) back.
    pub(crate) fn reinstate(&self) {
        self.hub.change(|state| state.faults.revoked = false);
    }

    /// Whether hellos get no answer.
    pub(crate) fn ignore_hellos(&self, ignore: bool) {
        self.sockets().mute_hello = ignore;
    }

    /// Whether `going_idle` gets no answer.
    pub(crate) fn ignore_going_idle(&self, ignore: bool) {
        self.sockets().mute_idle = ignore;
    }

    /// Forgets acknowledgements.
    pub(crate) fn ignore_acks(&self) {
        self.sockets().ignore_acks = true;
    }

    /// Refuses tokens with another close code than 4401.
    pub(crate) fn refuse_tokens_with(&self, code: u16) {
        self.sockets().denial_code = Some(code);
    }

    /// Tears the next `count` frames to the gateway in half.
    pub(crate) fn corrupt_next(&self, count: usize) {
        self.sockets().corrupt = count;
    }

    /// Makes the connector's clock wrong by so many seconds: its `Date` headers and its view of tokens.
    pub(crate) fn set_clock_offset(&self, seconds: i64) {
        self.clock_offset.store(seconds, Ordering::Relaxed);
    }

    /// Makes a route fail. Faults of one route are used up in the order they were given.
    pub(crate) fn fail_route(&self, route: HttpRoute, fault: HttpRouteFault) {
        let times = fault.times;
        let rule = Rule::on(route.name(), fault);
        self.http().routes.add(match times {
            Some(times) => rule.times(times),
            None => rule,
        });
    }

    /// Makes a route work again.
    pub(crate) fn mend_route(&self, route: HttpRoute) {
        self.http().routes.remove(route.name());
    }
}

/// A message that the gateway put in a chat.
#[derive(Clone, Debug)]
pub(crate) struct SentMessage {
    pub(crate) message_id: String,
    pub(crate) op: &'static str,
    pub(crate) platform: String,
    /// The bot that the frame named.
    pub(crate) bot_id: Option<String>,
    pub(crate) chat_id: String,
    /// Its text now, with every edit.
    pub(crate) text: String,
    pub(crate) reply_to: Option<String>,
    /// Extras of the op that made it.
    pub(crate) metadata: Metadata,
    pub(crate) edits: usize,
    pub(crate) deleted: bool,
    /// The op that made it, as it came.
    pub(crate) action: Action,
    pub(crate) at: Instant,
    pub(crate) connection: ConnectionId,
}

impl SentMessage {
    fn new(sent: dev::SentMessage, origins: &[MessageOrigin]) -> Self {
        let number: usize = sent.message_id[1..].parse().expect("ids are `m` and a number");
        let origin = origins[number - 1].clone();
        Self {
            op: sent.action.op(),
            metadata: metadata(&sent.action),
            message_id: sent.message_id,
            platform: sent.platform,
            bot_id: origin.bot_id,
            chat_id: sent.chat_id,
            text: sent.text,
            reply_to: sent.reply_to,
            edits: sent.edits,
            deleted: sent.deleted,
            action: sent.action,
            at: origin.at,
            connection: origin.connection,
        }
    }
}

fn metadata(action: &Action) -> Metadata {
    match action {
        Action::Send { metadata, .. }
        | Action::SendMedia { metadata, .. }
        | Action::Prompt { metadata, .. }
        | Action::FollowUp { metadata, .. }
        | Action::Draft { metadata, .. } => metadata.clone(),
        _ => Metadata::default(),
    }
}

/// What a frame is.
pub(crate) trait FrameKinds {
    /// Whether it came from the gateway and has the given type.
    fn is_from_gateway(&self, kind: &str) -> bool;
    /// Whether it went to the gateway and has the given type.
    fn is_to_gateway(&self, kind: &str) -> bool;
    /// Whether it is an outbound frame that asks for `op`.
    fn asks_for(&self, op: &str) -> bool;
}

impl FrameKinds for RecordedFrame {
    fn is_from_gateway(&self, kind: &str) -> bool {
        self.direction == Direction::FromGateway && self.kind() == kind
    }

    fn is_to_gateway(&self, kind: &str) -> bool {
        self.direction == Direction::ToGateway && self.kind() == kind
    }

    fn asks_for(&self, op: &str) -> bool {
        self.is_from_gateway("outbound") && self.json()["action"]["op"] == op
    }
}

/// Observations.
impl Connector {
    /// The recorded frames since a mark.
    pub(crate) fn frames_since(&self, mark: Mark) -> Vec<RecordedFrame> {
        self.hub.lock().frames.since(mark.0).cloned().collect()
    }

    /// Waits until something is so, and gives what `look` found. It looks again after every change, so
    /// `look` should change nothing itself.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, NotSeen> {
        self.inner.until(what, deadline, |_| look(self)).await
    }

    /// The first recorded frame that is as wanted, waiting for it if it has not come yet.
    pub(crate) async fn wait_for(
        &self,
        what: &str,
        deadline: Duration,
        wanted: impl FnMut(&RecordedFrame) -> bool,
    ) -> Result<RecordedFrame, NotSeen> {
        self.wait_after(Mark(0), what, deadline, wanted).await
    }

    /// The same for frames since a mark.
    pub(crate) async fn wait_after(
        &self,
        mark: Mark,
        what: &str,
        deadline: Duration,
        mut wanted: impl FnMut(&RecordedFrame) -> bool,
    ) -> Result<RecordedFrame, NotSeen> {
        let mut looked = mark.0;
        self.until(what, deadline, |connector| {
            let state = connector.hub.lock();
            let found = state.frames.since(looked).find(|record| wanted(record));
            looked = state.frames.pushed();
            found.cloned()
        })
        .await
    }

    /// Waits for a message in a chat that is as wanted, and returns it.
    pub(crate) async fn wait_for_sent(
        &self,
        what: &str,
        deadline: Duration,
        mut wanted: impl FnMut(&SentMessage) -> bool,
    ) -> Result<SentMessage, NotSeen> {
        self.until(what, deadline, |connector| {
            connector.sent_messages().into_iter().find(|sent| wanted(sent))
        })
        .await
    }

    /// The first message that answers `message_id`.
    pub(crate) async fn reply_to(
        &self,
        deadline: Duration,
        message_id: &str,
    ) -> Result<SentMessage, NotSeen> {
        let reply = self.inner.reply_to(deadline, message_id).await?;
        Ok(SentMessage::new(reply, &self.sockets().origins))
    }

    /// Every message in the chats, in order, as they are now.
    pub(crate) fn sent_messages(&self) -> Vec<SentMessage> {
        let sent: Vec<_> = self.hub.lock().contents.messages.iter().cloned().collect();
        let script = self.sockets();
        sent.into_iter()
            .map(|sent| SentMessage::new(sent, &script.origins))
            .collect()
    }

    /// The messages in one chat, in order, as they are now.
    pub(crate) fn messages_in(&self, chat_id: &str) -> Vec<SentMessage> {
        let mut messages = self.sent_messages();
        messages.retain(|sent| sent.chat_id == chat_id);
        messages
    }

    /// The reactions on a message now.
    pub(crate) fn reactions(&self, chat_id: &str, message_id: &str) -> Vec<String> {
        let mut reactions = std::collections::BTreeSet::new();
        for frame in self.frames().iter().filter(|frame| frame.asks_for("react")) {
            let action = &frame.json()["action"];
            if action["chat_id"] != chat_id || action["message_id"] != message_id {
                continue;
            }
            let emoji = action["emoji"].as_str().unwrap_or_default().to_owned();
            if action["remove"] == true {
                reactions.remove(&emoji);
            } else {
                reactions.insert(emoji);
            }
        }
        reactions.into_iter().collect()
    }

    /// Every dial, accepted or not.
    pub(crate) fn dials(&self) -> Vec<Dial> {
        self.http().dials.clone()
    }

    /// Requests to the HTTP routes.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.http().requests.clone()
    }

    /// Connections that are open now.
    pub(crate) fn open_connections(&self) -> Vec<ConnectionId> {
        self.hub.lock().connections.keys().copied().collect()
    }

    /// Sockets that were opened since the start.
    pub(crate) fn accepted(&self) -> u64 {
        self.hub.lock().accepted
    }

    /// Connections that ended, and how.
    pub(crate) fn closed(&self) -> Vec<ClosedConnection> {
        self.sockets().closed.clone()
    }

    /// Acknowledgements, while frames are kept.
    pub(crate) fn acks(&self) -> Vec<Ack> {
        self.sockets().acks.clone()
    }

    /// Lines from gateways that were no frame.
    pub(crate) fn undecodable(&self) -> u64 {
        self.hub.lock().undecodable
    }
}
