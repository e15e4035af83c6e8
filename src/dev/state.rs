//! The connector's memory, behind one lock that is held briefly and never across an await.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::RandomState;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::buffer::{BufferId, BufferedDelivery, DeliveryBuffer, NotBuffered};
use super::chat_contents::ChatContents;
use super::chat_contents::Chats;
use super::connector::{ConnectorSettings, SecondConnection};
use super::faults::ResultRules;
use super::faults::{Faults, TokenDenial, When};
use super::feed::Feed;
use super::http::MediaStore;
use super::nas::Nas;
use super::page::Page;
use super::record::{Closed, ClosedBy, ConnectionId, Log, TokenCheck};
use crate::collections::BoundedCache;
use crate::relay::RelayHandle;
use crate::wire::{CapabilityDescriptor, UpgradeToken};

/// Gateways that are known at most; enrolment and provisioning refuse further ones.
pub(super) const MAX_GATEWAYS: usize = 1_000;
/// Sockets that are open at most; further dials are answered 503.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// Frames queued for one socket beyond its buffer: further ones are refused, and reading waits.
pub(super) const MAX_OUTGOING: usize = 16_384;

/// Ops whose results are remembered.
const MAX_PERFORMED: usize = 4_096;

/// What every task of one connector shares.
pub(super) struct Hub {
    pub(super) settings: ConnectorSettings,
    pub(super) addr: SocketAddr,
    /// The chat page, once it was opened.
    pub(super) page: OnceLock<Page>,
    /// The managed scheduler whose jobs the page shows.
    pub(super) nas: OnceLock<Arc<Nas>>,
    /// The relay in this process, to whose agents the page hands something.
    pub(super) relay: OnceLock<watch::Receiver<Option<RelayHandle>>>,
    /// Notified after every change that someone may wait for.
    pub(super) changed: Notify,
    pub(super) stop: CancellationToken,
    pub(super) runtime: Handle,
    state: Mutex<ConnectorState>,
}

impl Hub {
    pub(super) fn new(settings: ConnectorSettings, addr: SocketAddr, runtime: Handle) -> Self {
        let state = ConnectorState::new(&settings);
        Self {
            settings,
            addr,
            page: OnceLock::new(),
            nas: OnceLock::new(),
            relay: OnceLock::new(),
            changed: Notify::new(),
            stop: CancellationToken::new(),
            runtime,
            state: Mutex::new(state),
        }
    }

    /// The base of the HTTP routes.
    pub(super) fn http_base(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Locks the state.
    pub(super) fn lock(&self) -> MutexGuard<'_, ConnectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and notifies those who wait.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut ConnectorState) -> T) -> T {
        let out = change(&mut self.lock());
        self.changed.notify_waiters();
        out
    }

    /// The connector's clock, which a fault can shift.
    pub(super) fn clock(&self) -> SystemTime {
        let offset = self.lock().faults.clock_offset;
        let shift = Duration::from_secs(offset.unsigned_abs());
        let now = SystemTime::now();
        let shifted = if offset < 0 {
            now.checked_sub(shift)
        } else {
            now.checked_add(shift)
        };
        shifted.unwrap_or(now)
    }

    /// Checks a bearer, and returns the gateway that signed it.
    pub(super) fn verify(&self, bearer: Option<&str>) -> (TokenCheck, Option<String>) {
        let now = self.clock().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        self.lock().verify(bearer, now)
    }
}

/// A gateway that may dial.
pub(super) struct Gateway {
    pub(super) secrets: Vec<SecretString>,
    pub(super) mailbox: DeliveryBuffer,
    pub(super) current: Option<ConnectionId>,
    /// The connection on which it went idle: nothing more is delivered there.
    pub(super) idle_since: Option<ConnectionId>,
    pub(super) wake_url: Option<Url>,
    pub(super) woken_at: Option<Instant>,
}

/// How a socket is to end.
#[derive(Clone, Debug)]
pub(super) enum SocketEnd {
    /// With a close frame.
    Close { code: u16, reason: String },
    /// Without a close frame.
    Abort,
}

/// An identity that a connection announced.
pub(super) struct AnnouncedIdentity {
    pub(super) platform: String,
    pub(super) descriptor: Option<CapabilityDescriptor>,
}

/// An open socket.
pub(super) struct GatewayConnection {
    pub(super) gateway_id: Option<String>,
    pub(super) identities: Vec<AnnouncedIdentity>,
    pub(super) outgoing: VecDeque<Message>,
    /// Answers that are due later, in order.
    pub(super) later: BTreeMap<(Instant, u64), Message>,
    pub(super) deferred: u64,
    pub(super) denial: Option<TokenDenial>,
    pub(super) last_read: Instant,
    pub(super) wake: Arc<Notify>,
    pub(super) ending: watch::Sender<Option<SocketEnd>>,
    pub(super) stalled: watch::Sender<bool>,
}

impl GatewayConnection {
    /// Queues a message; returns whether there was room.
    pub(super) fn push(&mut self, message: Message) -> bool {
        let room = self.outgoing.len() < MAX_OUTGOING;
        if room {
            self.outgoing.push_back(message);
            self.wake.notify_one();
        }
        room
    }

    pub(super) fn end(&self, ending: SocketEnd) {
        self.ending.send_if_modified(|slot| {
            let first = slot.is_none();
            slot.get_or_insert(ending);
            first
        });
    }
}

/// What the task of an open socket holds.
pub(super) struct SocketHandle {
    pub(super) id: ConnectionId,
    pub(super) wake: Arc<Notify>,
    pub(super) ending: watch::Receiver<Option<SocketEnd>>,
    pub(super) stalled: watch::Receiver<bool>,
}

/// The connector's state.
pub(super) struct ConnectorState {
    pub(super) gateways: BTreeMap<String, Gateway>,
    /// The gateway that deliveries without an address go to: the one last enrolled or greeted.
    pub(super) primary: String,
    pub(super) connections: BTreeMap<ConnectionId, GatewayConnection>,
    pub(super) descriptors: BTreeMap<String, Value>,
    pub(super) enrol_tokens: BTreeSet<String>,
    pub(super) chats: Chats,
    pub(super) contents: ChatContents,
    pub(super) result_rules: ResultRules,
    /// Results of ops, by requestId and the hash of their line: another op under a used requestId is another op.
    pub(super) performed: BoundedCache<(String, u64), Value>,
    pub(super) hasher: RandomState,
    pub(super) faults: Faults,
    pub(super) media: MediaStore,
    pub(super) log: Log,
    pub(super) feed: Feed,
    pub(super) undecodable: u64,
    second: SecondConnection,
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
            chats: Chats::default(),
            contents: ChatContents::new(),
            result_rules: ResultRules::default(),
            performed: BoundedCache::new(MAX_PERFORMED),
            hasher: RandomState::new(),
            faults: Faults::default(),
            media: MediaStore::default(),
            log: Log::new(settings.recording, settings.record_limit),
            feed: Feed::new(),
            undecodable: 0,
            second: settings.second_connection,
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
    pub(super) fn add_secret(&mut self, gateway_id: &str, secret: SecretString) {
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
    pub(super) fn open_connection(
        &mut self,
        gateway_id: Option<String>,
        denial: Option<TokenDenial>,
    ) -> SocketHandle {
        self.log.accepted += 1;
        let id = ConnectionId(self.log.accepted);
        let (ending, ending_seen) = watch::channel(None);
        let (stalled, stalled_seen) = watch::channel(false);
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
            stalled,
        };
        let duplicate = self.make_current(id, &live);
        if let Some(TokenDenial { reason, .. }) =
            live.denial.as_ref().filter(|denial| denial.when == When::AtOnce)
        {
            live.end(unauthorized(reason));
        } else if duplicate {
            live.end(SocketEnd::Close {
                code: 1008,
                reason: "duplicate session".to_owned(),
            });
        }
        self.connections.insert(id, live);
        SocketHandle {
            id,
            wake,
            ending: ending_seen,
            stalled: stalled_seen,
        }
    }

    /// Makes the connection its gateway's current one; returns true when it is a refused duplicate.
    fn make_current(&mut self, id: ConnectionId, live: &GatewayConnection) -> bool {
        let denied = live
            .denial
            .as_ref()
            .is_some_and(|denial| denial.when == When::AtOnce);
        let Some(gateway) = live
            .gateway_id
            .as_ref()
            .filter(|_| !denied)
            .and_then(|gateway_id| self.gateways.get_mut(gateway_id))
        else {
            return false;
        };
        let old = gateway.current.and_then(|old| self.connections.get(&old));
        if let Some(old) = old {
            match self.second {
                SecondConnection::RefuseNew => return true,
                SecondConnection::NewestWins => old.end(SocketEnd::Close {
                    code: 4000,
                    reason: "replaced by a new dial".to_owned(),
                }),
            }
        }
        gateway.current = Some(id);
        false
    }

    /// Removes a closed socket; returns what was queued for it.
    pub(super) fn close_connection(
        &mut self,
        id: ConnectionId,
        by: ClosedBy,
        code: Option<u16>,
        reason: String,
    ) -> VecDeque<Message> {
        let closed = Closed {
            at: Instant::now(),
            connection: id,
            by,
            code,
            reason,
        };
        self.feed.closed(&closed);
        self.log.closed.push(closed);
        for gateway in self.gateways.values_mut() {
            if gateway.current == Some(id) {
                gateway.current = None;
            }
        }
        let live = self.connections.remove(&id);
        live.map(|live| live.outgoing).unwrap_or_default()
    }

    /// The current connection of a gateway, once it sent a hello.
    pub(super) fn live_connection(&mut self, gateway_id: &str) -> Option<&mut GatewayConnection> {
        let id = self.gateways.get(gateway_id)?.current?;
        let live = self.connections.get_mut(&id)?;
        (!live.identities.is_empty()).then_some(live)
    }

    /// Buffers a delivery for a gateway. Also returns its wake URL when it should be woken.
    pub(super) fn buffer(
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
pub(super) fn unauthorized(reason: &str) -> SocketEnd {
    SocketEnd::Close {
        code: 4401,
        reason: reason.to_owned(),
    }
}
