//! The connector's memory, behind one lock that is held briefly and never across an await.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::RandomState;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::buffer::{BufferId, BufferedDelivery, DeliveryBuffer, NotBuffered};
use super::chat_contents::ChatContents;
use super::chat_contents::DevChats;
use super::connector::ConnectorSettings;
use super::connector_page::Page;
use super::embedded_scheduler::EmbeddedScheduler;
use super::faults::Faults;
use super::feed::Feed;
use super::gateway_frames::{SocketEvent, SocketHandler};
use super::http::MediaStore;
use super::record::{BoundedLog, ConnectionId, RecordedFrame, TokenCheck};
use crate::collections::BoundedCache;
use crate::relay::RelayHandle;
use crate::wire::{CapabilityDescriptor, UpgradeToken, close_code};

/// Gateways that are known at most; enrolment and provisioning refuse further ones.
pub const MAX_GATEWAYS: usize = 1_000;
/// Sockets that are open at most; further dials are answered 503.
pub const MAX_CONNECTIONS: usize = 64;
/// Frames queued for one socket beyond its buffer: further ones are refused, and reading waits.
pub const MAX_OUTGOING: usize = 16_384;

/// Ops whose results are remembered.
const MAX_PERFORMED: usize = 4_096;

/// What every task of one connector shares.
pub struct Hub {
    pub settings: ConnectorSettings,
    pub addr: SocketAddr,
    /// The chat page, once it was opened.
    pub page: OnceLock<Page>,
    /// The managed scheduler whose jobs the page shows.
    pub managed: OnceLock<Arc<EmbeddedScheduler>>,
    /// The relay in this process, to whose agents the page hands something.
    pub relay: OnceLock<watch::Receiver<Option<RelayHandle>>>,
    /// Notified after every change that someone may wait for.
    pub changed: Notify,
    pub stop: CancellationToken,
    pub runtime: Handle,
    state: Mutex<ConnectorState>,
}

impl Hub {
    pub fn new(settings: ConnectorSettings, addr: SocketAddr, runtime: Handle) -> Self {
        let state = ConnectorState::new(&settings);
        Self {
            settings,
            addr,
            page: OnceLock::new(),
            managed: OnceLock::new(),
            relay: OnceLock::new(),
            changed: Notify::new(),
            stop: CancellationToken::new(),
            runtime,
            state: Mutex::new(state),
        }
    }

    /// The base of the HTTP routes.
    pub fn http_base(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, ConnectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and notifies those who wait.
    pub fn change<T>(&self, change: impl FnOnce(&mut ConnectorState) -> T) -> T {
        let out = change(&mut self.lock());
        self.changed.notify_waiters();
        out
    }

    /// Checks a bearer, and returns the gateway that signed it.
    pub fn verify(&self, bearer: Option<&str>) -> (TokenCheck, Option<String>) {
        let now = (self.settings.clock)()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        self.lock().verify(bearer, now)
    }
}

/// A gateway that may dial.
pub struct Gateway {
    pub secrets: Vec<SecretString>,
    pub mailbox: DeliveryBuffer,
    pub current: Option<ConnectionId>,
    /// The connection on which it went idle: nothing more is delivered there.
    pub idle_since: Option<ConnectionId>,
    pub wake_url: Option<Url>,
    pub woken_at: Option<Instant>,
}

/// How a socket is to end.
#[derive(Clone, Debug)]
pub enum SocketEnd {
    /// With a close frame.
    Close { code: u16, reason: String },
    /// Without a close frame.
    Abort,
}

/// An identity that a connection announced.
pub struct AnnouncedIdentity {
    pub platform: String,
    pub descriptor: Option<CapabilityDescriptor>,
}

/// An open socket.
pub struct GatewayConnection {
    pub gateway_id: Option<String>,
    pub identities: Vec<AnnouncedIdentity>,
    pub outgoing: VecDeque<Message>,
    /// Answers that are due later, in order.
    pub later: BTreeMap<(Instant, u64), Message>,
    pub deferred: u64,
    /// Why its token is not accepted.
    pub denial: Option<String>,
    pub last_read: Instant,
    pub wake: Arc<Notify>,
    pub ending: watch::Sender<Option<SocketEnd>>,
}

impl GatewayConnection {
    /// Queues a message; returns whether there was room.
    pub fn push(&mut self, message: Message) -> bool {
        let room = self.outgoing.len() < MAX_OUTGOING;
        if room {
            self.outgoing.push_back(message);
            self.wake.notify_one();
        }
        room
    }

    pub fn end(&self, ending: SocketEnd) {
        self.ending.send_if_modified(|slot| {
            let first = slot.is_none();
            slot.get_or_insert(ending);
            first
        });
    }
}

/// What the task of an open socket holds.
pub struct SocketHandle {
    pub id: ConnectionId,
    pub wake: Arc<Notify>,
    pub ending: watch::Receiver<Option<SocketEnd>>,
}

/// The connector's state.
pub struct ConnectorState {
    pub gateways: BTreeMap<String, Gateway>,
    /// The gateway that deliveries without an address go to: the one last enrolled or greeted.
    pub primary: String,
    pub connections: BTreeMap<ConnectionId, GatewayConnection>,
    pub descriptors: BTreeMap<String, Value>,
    pub enrol_tokens: BTreeSet<String>,
    pub chats: DevChats,
    pub contents: ChatContents,
    /// Results of ops, by requestId and the hash of their line: another op under a used requestId is another op.
    pub performed: BoundedCache<(String, u64), Value>,
    pub hasher: RandomState,
    pub faults: Faults,
    pub media: MediaStore,
    pub handler: SocketHandler,
    /// The frames of both directions.
    pub frames: BoundedLog<RecordedFrame>,
    /// Sockets that were opened since the start.
    pub accepted: u64,
    pub feed: Feed,
    pub undecodable: u64,
    mailbox: (usize, usize, bool),
}

impl ConnectorState {
    fn new(settings: &ConnectorSettings) -> Self {
        let mut state = Self {
            gateways: BTreeMap::new(),
            primary: String::new(),
            connections: BTreeMap::new(),
            descriptors: settings.descriptors.clone(),
            enrol_tokens: settings.enrol_tokens.iter().cloned().collect(),
            chats: DevChats::default(),
            contents: ChatContents::new(),
            performed: BoundedCache::new(MAX_PERFORMED),
            hasher: RandomState::new(),
            faults: Faults::default(),
            media: MediaStore::default(),
            handler: Arc::clone(&settings.handler),
            frames: BoundedLog::new(settings.record_limit),
            accepted: 0,
            feed: Feed::new(),
            undecodable: 0,
            mailbox: (
                settings.drain_window,
                settings.buffer_limit,
                settings.numeric_buffer_ids,
            ),
        };
        for credentials in &settings.gateways {
            state.add_secret(&credentials.gateway_id, credentials.secret.clone());
        }
        if let Some(first) = settings.gateways.first() {
            state.primary.clone_from(&first.gateway_id);
        }
        state
    }

    /// Gives a gateway one more secret; its previous one stays good.
    pub fn add_secret(&mut self, gateway_id: &str, secret: SecretString) {
        const ROTATION: usize = 4;
        let (window, limit, numeric) = self.mailbox;
        let gateway = self
            .gateways
            .entry(gateway_id.to_owned())
            .or_insert_with(|| Gateway {
                secrets: Vec::new(),
                mailbox: DeliveryBuffer::new(window, limit, numeric),
                current: None,
                idle_since: None,
                wake_url: None,
                woken_at: None,
            });
        gateway.secrets.push(secret);
        if gateway.secrets.len() > ROTATION {
            gateway.secrets.remove(0);
        }
    }

    fn verify(&self, bearer: Option<&str>, now: i64) -> (TokenCheck, Option<String>) {
        let Some(bearer) = bearer.filter(|bearer| !bearer.is_empty()) else {
            return (TokenCheck::Missing, None);
        };
        let expiry = UpgradeToken::expiry(bearer);
        let in_time = expiry.map_or(now, |expiry| expiry.min(now));
        let owner = self.gateways.iter().find_map(|(gateway_id, gateway)| {
            let secrets = gateway.secrets.iter().map(ExposeSecret::expose_secret);
            UpgradeToken::verify(bearer, secrets, in_time).filter(|signed| signed == gateway_id)
        });
        let verdict = match (&owner, expiry) {
            (None, _) => TokenCheck::Unauthorized,
            (Some(_), _) if self.faults.revoked => TokenCheck::Unauthorized,
            (Some(_), Some(expiry)) if now > expiry => TokenCheck::Expired,
            (Some(_), _) => TokenCheck::Valid,
        };
        (verdict, owner)
    }

    /// Registers a socket whose upgrade was accepted.
    pub fn open_connection(&mut self, gateway_id: Option<String>, denial: Option<String>) -> SocketHandle {
        self.accepted += 1;
        let id = ConnectionId(self.accepted);
        let (ending, ending_seen) = watch::channel(None);
        let wake = Arc::new(Notify::new());
        let live = GatewayConnection {
            gateway_id,
            identities: Vec::new(),
            outgoing: VecDeque::new(),
            later: BTreeMap::new(),
            deferred: 0,
            denial,
            last_read: Instant::now(),
            wake: Arc::clone(&wake),
            ending,
        };
        self.connections.insert(id, live);
        self.on(id, SocketEvent::Opened);
        SocketHandle {
            id,
            wake,
            ending: ending_seen,
        }
    }

    /// Makes a new connection its gateway's current one, unless its token is not accepted.
    pub(super) fn admit(&mut self, id: ConnectionId) {
        let Some(live) = self.connections.get(&id) else {
            return;
        };
        if let Some(reason) = &live.denial {
            return live.end(unauthorized(reason));
        }
        let gateway = live.gateway_id.as_ref();
        let Some(gateway) = gateway.and_then(|gateway_id| self.gateways.get_mut(gateway_id)) else {
            return;
        };
        let old = gateway.current.and_then(|old| self.connections.get(&old));
        if let Some(old) = old {
            old.end(SocketEnd::Close {
                code: close_code::REPLACED,
                reason: "replaced by a new dial".to_owned(),
            });
        }
        gateway.current = Some(id);
    }

    /// Removes a closed socket; returns what was queued for it.
    pub fn close_connection(&mut self, id: ConnectionId) -> VecDeque<Message> {
        for gateway in self.gateways.values_mut() {
            if gateway.current == Some(id) {
                gateway.current = None;
            }
        }
        let live = self.connections.remove(&id);
        live.map(|live| live.outgoing).unwrap_or_default()
    }

    /// The current connection of a gateway, once it sent a hello.
    pub fn live_connection(&mut self, gateway_id: &str) -> Option<&mut GatewayConnection> {
        let id = self.gateways.get(gateway_id)?.current?;
        let live = self.connections.get_mut(&id)?;
        (!live.identities.is_empty()).then_some(live)
    }

    /// Buffers a delivery for a gateway. Also returns its wake URL when it should be woken.
    pub fn buffer(
        &mut self,
        gateway_id: &str,
        delivery: BufferedDelivery<'_>,
        cooldown: Duration,
    ) -> Result<(BufferId, Option<Url>), NotBuffered> {
        if let BufferedDelivery::Event(event) = delivery {
            self.chats.learn(event);
        }
        let gateway = self
            .gateways
            .get_mut(gateway_id)
            .ok_or_else(|| NotBuffered::UnknownGateway(gateway_id.to_owned()))?;
        let id = gateway.mailbox.push(delivery)?;
        self.feed.delivery(delivery, Some(id));
        if let Some(live) = gateway.current.and_then(|id| self.connections.get(&id)) {
            live.wake.notify_one();
            return Ok((id, None));
        }
        let cooled_down = gateway
            .woken_at
            .is_none_or(|woken_at| woken_at.elapsed() >= cooldown);
        let wake_url_due = gateway.wake_url.clone().filter(|_| cooled_down);
        if wake_url_due.is_some() {
            gateway.woken_at = Some(Instant::now());
        }
        Ok((id, wake_url_due))
    }
}

/// The close that refuses a token.
pub fn unauthorized(reason: &str) -> SocketEnd {
    SocketEnd::Close {
        code: close_code::UNAUTHORIZED,
        reason: reason.to_owned(),
    }
}
