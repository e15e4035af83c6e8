//! The relay's connection to its workers: who is there, and which message belongs to which turn.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{OnceCell, mpsc};

use super::protocol::{BEAT, Head, Heartbeat, MAX_PIECE, MessageKind, Names, decode, encode, new_id};
use super::remote_turn::Roster;
use crate::agent::{AgentCommand, PoolWorker};
use crate::net::nats::{Bus, BusMessage, NatsError, NatsSettings, Subscription, WorkQueue};
use crate::net::tls::Tls;
use crate::wire::SessionKey;

/// Messages of one turn that wait; more are dropped, and sent again.
const MAX_MESSAGES: usize = 256;
/// How long workers may take to forget a session.
const FORGET_PATIENCE: Duration = Duration::from_secs(2);

/// What a worker sent about a turn: its head, what is behind it, and where an answer goes.
pub type FromWorker = (Head, Vec<u8>, Option<String>);

/// A relay's side of all its pools. Connects when it is first used.
pub struct WorkerHub {
    settings: NatsSettings,
    tls: Tls,
    /// The subjects.
    pub names: Names,
    /// This relay's id, another one for each start.
    pub id: String,
    link: OnceCell<Bus>,
    queues: tokio::sync::Mutex<BTreeMap<String, WorkQueue>>,
    state: Mutex<HubState>,
}

#[derive(Default)]
struct HubState {
    roster: Roster,
    turns: HashMap<String, mpsc::Sender<FromWorker>>,
}

impl WorkerHub {
    /// Dials nothing yet.
    pub fn new(settings: NatsSettings, tls: Tls, prefix: &str) -> Arc<Self> {
        Arc::new(Self {
            settings,
            tls,
            names: Names::new(prefix),
            id: new_id(),
            link: OnceCell::new(),
            queues: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        })
    }

    /// The connection; the first call starts it.
    pub async fn bus(self: &Arc<Self>) -> Result<&Bus, NatsError> {
        self.link
            .get_or_try_init(|| async {
                let bus = Bus::connect(&self.settings, &self.tls, "hermes-relay").await?;
                let own = bus.subscribe(self.names.relay(&self.id)).await?;
                let pools = bus.subscribe(self.names.pool("*")).await?;
                tokio::spawn(listen(Arc::downgrade(self), bus.clone(), own, pools));
                Ok(bus)
            })
            .await
    }

    /// The queue of a pool.
    pub async fn queue(self: &Arc<Self>, pool: &str) -> Result<WorkQueue, NatsError> {
        let bus = self.bus().await?;
        let mut queues = self.queues.lock().await;
        if let Some(queue) = queues.get(pool) {
            return Ok(queue.clone());
        }
        let queue = bus
            .queue(&self.names.stream(pool), &self.names.turns(pool))
            .await?;
        queues.insert(pool.to_owned(), queue.clone());
        Ok(queue)
    }

    /// Looks a queue up again: its stream may be gone.
    pub async fn forget_queue(&self, pool: &str) {
        self.queues.lock().await.remove(pool);
    }

    /// The largest piece that the server takes.
    pub fn piece(&self) -> usize {
        let server = self.link.get().and_then(Bus::server);
        server.map_or(MAX_PIECE / 8, |(_, largest)| MAX_PIECE.min(largest / 2))
    }

    /// Registers a turn; its messages come out here until it is removed.
    pub fn add(&self, turn: &str) -> mpsc::Receiver<FromWorker> {
        let (sender, receiver) = mpsc::channel(MAX_MESSAGES);
        self.state().turns.insert(turn.to_owned(), sender);
        receiver
    }

    /// A turn is over: whoever asks for it is refused.
    pub fn remove(&self, turn: &str) {
        self.state().turns.remove(turn);
    }

    /// Looks at the workers.
    pub fn with_roster<T>(&self, look: impl FnOnce(&Roster) -> T) -> T {
        look(&self.state().roster)
    }

    /// The commands of a pool's agents.
    pub fn commands(&self, pool: &str) -> Vec<AgentCommand> {
        self.with_roster(|roster| {
            let workers = roster.of(pool, Instant::now());
            let commands = workers.last().map(|beat| beat.commands.clone());
            let command = |(name, description)| AgentCommand { name, description };
            commands.into_iter().flatten().map(command).collect()
        })
    }

    /// The workers of a pool, by name.
    pub fn workers(&self, pool: &str) -> Vec<PoolWorker> {
        let worker = |beat: &Heartbeat| PoolWorker {
            name: beat.name.clone(),
            version: beat.version.clone(),
            slots: beat.slots,
            running: beat.running.len(),
            draining: beat.draining,
        };
        let mut workers: Vec<_> =
            self.with_roster(|roster| roster.of(pool, Instant::now()).map(worker).collect());
        workers.sort_by(|a, b| a.name.cmp(&b.name));
        workers
    }

    /// Lets every worker of a pool forget a session.
    pub async fn forget(self: &Arc<Self>, pool: &str, session: &SessionKey) {
        let Ok(bus) = self.bus().await else { return };
        let workers: Vec<String> = self.with_roster(|roster| {
            let there = roster.of(pool, Instant::now());
            there.map(|beat| beat.id.clone()).collect()
        });
        let forget = encode(
            &self.head("", MessageKind::Forget(session.as_str().to_owned())),
            &[],
        );
        let requests = workers.iter().map(|worker| {
            let subject = self.names.worker(worker);
            bus.request(subject, forget.clone(), FORGET_PATIENCE)
        });
        futures_util::future::join_all(requests).await;
    }

    /// The head of a message about a turn.
    pub fn head(&self, turn: &str, kind: MessageKind) -> Head {
        Head {
            turn: turn.to_owned(),
            from: self.id.clone(),
            kind,
        }
    }

    fn state(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a worker's message to its turn; returns the refusal if there is no such turn.
    fn dispatch(&self, message: BusMessage) -> Option<(String, Vec<u8>)> {
        let (head, blob) = decode::<Head>(&message.payload)?;
        let (turn, is_begin) = (head.turn.clone(), matches!(head.kind, MessageKind::Begin));
        let sender = self.state().turns.get(&turn).cloned();
        match sender {
            Some(sender) => {
                // A full turn gets it again.
                let _ = sender.try_send((head, blob.to_vec(), message.reply));
                None
            }
            None if is_begin => Some((message.reply?, encode(&self.head(&turn, MessageKind::No), &[]))),
            // The turn is over here: it must stop there.
            None if !head.from.bytes().all(|byte| byte.is_ascii_alphanumeric()) => None,
            None => Some((
                self.names.worker(&head.from),
                encode(&self.head(&turn, MessageKind::No), &[]),
            )),
        }
    }
}

/// Listens for as long as there is a hub.
async fn listen(hub: Weak<WorkerHub>, bus: Bus, mut own: Subscription, mut pools: Subscription) {
    let mut beat = tokio::time::interval(BEAT);
    loop {
        tokio::select! {
            biased;
            // First: however much comes in, workers must hear that this relay is there.
            _ = beat.tick() => {
                let Some(hub) = hub.upgrade() else { return };
                if bus.is_connected() {
                    let _ = bus.publish(hub.names.relays(), hub.id.clone().into_bytes()).await;
                }
            }
            Some(message) = own.next() => {
                let Some(hub) = hub.upgrade() else { return };
                if let Some((subject, refusal)) = hub.dispatch(message) {
                    let _ = bus.publish(subject, refusal).await;
                }
            }
            Some(message) = pools.next() => {
                let Some(hub) = hub.upgrade() else { return };
                if let Some((beat, _)) = decode::<Heartbeat>(&message.payload) {
                    hub.state().roster.heard(beat, Instant::now());
                }
            }
            else => return,
        }
    }
}
