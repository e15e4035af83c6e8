//! A worker: takes turns of a pool and runs them with an agent of its own.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::memory::StatesInMemory;
use super::protocol::{BEAT, Head, Heartbeat, MessageKind, Names, RELAY_LOST, decode, encode, new_id};
use super::task;
use crate::agent::Agent;
use crate::net::nats::{Bus, BusMessage, NatsError, QueuedMessage};
use crate::wire::SessionKey;

/// How long a pull waits at the server.
const PULL: Duration = Duration::from_secs(5);
/// How long a relay may take to answer whether a turn may begin.
const BEGIN_PATIENCE: Duration = Duration::from_secs(2);
/// When the server is asked again after an error.
const RETRY: Duration = Duration::from_millis(500);
/// Messages of one turn that wait; more are dropped, and sent again.
const MAX_MESSAGES: usize = 256;
/// Relays that are remembered.
const MAX_RELAYS: usize = 1024;

/// What a worker does.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Its pool.
    pub pool: String,
    /// Its name for people.
    pub name: String,
    /// Maximum concurrent turns.
    pub slots: usize,
    /// The prefix of subjects and streams.
    pub prefix: String,
    /// The directory that its agent works in.
    pub workdir: Option<PathBuf>,
    /// How long running turns may take after the worker was told to stop.
    pub drain: Duration,
    /// How long a stopped turn may take to end.
    pub grace: Duration,
}

/// A worker. Clones share it.
#[derive(Clone)]
pub struct Worker(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) settings: WorkerSettings,
    pub(super) agent: Arc<dyn Agent>,
    pub(super) bus: Bus,
    pub(super) names: Names,
    pub(super) id: String,
    state: Mutex<WorkerState>,
    memory: Mutex<StatesInMemory>,
    /// A slot became free, or a turn ended.
    freed: Notify,
}

#[derive(Default)]
struct WorkerState {
    draining: bool,
    turns: HashMap<String, mpsc::Sender<(Head, Vec<u8>)>>,
    relays: HashMap<String, Instant>,
}

/// A slot with the turn in it; dropping it frees the slot.
pub(super) struct TakenSlot {
    worker: Worker,
    pub(super) turn: String,
    pub(super) relay: String,
    pub(super) inbox: mpsc::Receiver<(Head, Vec<u8>)>,
}

impl Drop for TakenSlot {
    fn drop(&mut self) {
        self.worker.state().turns.remove(&self.turn);
        self.worker.0.freed.notify_waiters();
    }
}

impl Worker {
    /// A worker on this connection.
    pub fn new(settings: WorkerSettings, agent: Arc<dyn Agent>, bus: Bus) -> Self {
        Self(Arc::new(Shared {
            names: Names::new(&settings.prefix),
            settings,
            agent,
            bus,
            id: new_id(),
            state: Mutex::default(),
            memory: Mutex::default(),
            freed: Notify::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, WorkerState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which states its agent has in memory.
    pub(super) fn memory(&self) -> MutexGuard<'_, StatesInMemory> {
        self.0.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of turns that run.
    pub fn running(&self) -> usize {
        self.state().turns.len()
    }

    /// Whether the relay was heard lately.
    pub(super) fn hears(&self, relay: &str) -> bool {
        let state = self.state();
        state
            .relays
            .get(relay)
            .is_some_and(|at| at.elapsed() < RELAY_LOST)
    }

    /// Takes turns until `stop` is cancelled; then lets those that run end.
    pub async fn run(self, stop: CancellationToken) -> Result<(), NatsError> {
        let shared = Arc::clone(&self.0);
        let bus = &shared.bus;
        let mut own = bus.subscribe(shared.names.worker(&shared.id)).await?;
        let mut relays = bus.subscribe(shared.names.relays()).await?;
        let mut beat = tokio::time::interval(BEAT);
        let mut tasks = JoinSet::new();
        let (taken, mut offers) = mpsc::channel::<QueuedMessage>(1);
        // Dropped with this future, so that nobody pulls for a worker that is gone.
        let mut pulling = JoinSet::new();
        pulling.spawn(self.clone().pull(taken));
        let mut deadline = None;
        loop {
            tokio::select! {
                biased;
                // First: however much comes in, relays must hear that it is there.
                _ = beat.tick() => self.show().await,
                Some(message) = relays.next() => {
                    if let Ok(relay) = std::str::from_utf8(&message.payload) {
                        self.relay_heard(relay);
                    }
                }
                Some(message) = own.next() => self.handle(message, &mut tasks),
                Some(offer) = offers.recv() => self.offered(offer, &mut tasks).await,
                () = stop.cancelled(), if deadline.is_none() => {
                    deadline = Some(Instant::now() + shared.settings.drain);
                    self.state().draining = true;
                    pulling.abort_all();
                    self.show().await;
                }
                Some(_) = tasks.join_next() => {}
                () = shared.freed.notified() => {}
            }
            if let Some(deadline) = deadline
                && (self.running() == 0 || Instant::now() >= deadline)
            {
                break;
            }
        }
        let left = self.running();
        if left > 0 {
            tracing::warn!(turns = left, "turns did not end in time; they are interrupted");
        }
        tasks.shutdown().await;
        let _ = bus.flush().await;
        shared.agent.shutdown().await;
        Ok(())
    }

    /// Asks the queue for turns while there are free slots.
    async fn pull(self, taken: mpsc::Sender<QueuedMessage>) {
        let shared = &self.0;
        let (name, subject) = (
            shared.names.stream(&shared.settings.pool),
            shared.names.turns(&shared.settings.pool),
        );
        let mut warned = false;
        loop {
            let queue = match shared.bus.queue(&name, &subject).await {
                Ok(queue) => queue,
                Err(error) => {
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!(%error, "cannot use the pool's queue, trying again; start the NATS server with JetStream, or correct `nats.url`");
                    }
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            warned = false;
            loop {
                let freed = shared.freed.notified();
                let free = shared.settings.slots.saturating_sub(self.running());
                if free == 0 {
                    freed.await;
                    continue;
                }
                match queue.take(1, PULL).await {
                    Ok(messages) => {
                        for message in messages {
                            if taken.send(message).await.is_err() {
                                return;
                            }
                        }
                    }
                    Err(error) => {
                        tracing::debug!(%error, "no turn could be taken; trying again");
                        tokio::time::sleep(RETRY).await;
                        break;
                    }
                }
            }
        }
    }

    /// Shows that it is there.
    async fn show(&self) {
        let shared = &self.0;
        if !shared.bus.is_connected() {
            return;
        }
        let info = shared.agent.info();
        let commands = shared.agent.commands().into_iter().take(100);
        let beat = {
            let state = self.state();
            Heartbeat {
                id: shared.id.clone(),
                name: shared.settings.name.clone(),
                pool: shared.settings.pool.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                slots: shared.settings.slots,
                running: state.turns.keys().cloned().collect(),
                draining: state.draining,
                steers: info.steers,
                commands: commands
                    .map(|command| (command.name, command.description))
                    .collect(),
            }
        };
        let subject = shared.names.pool(&shared.settings.pool);
        let _ = shared.bus.publish(subject, encode(&beat, &[])).await;
    }

    /// A relay is there.
    fn relay_heard(&self, relay: &str) {
        let mut state = self.state();
        state.relays.retain(|_, at| at.elapsed() < RELAY_LOST * 10);
        if state.relays.len() < MAX_RELAYS || state.relays.contains_key(relay) {
            state.relays.insert(relay.to_owned(), Instant::now());
        }
    }

    /// A message for this worker.
    fn handle(&self, message: BusMessage, tasks: &mut JoinSet<()>) {
        let Some((head, blob)) = decode::<Head>(&message.payload) else {
            return;
        };
        match head.kind {
            MessageKind::Offer => {
                if let Some(slot) = self.take_slot(&head) {
                    tasks.spawn(begin(self.clone(), slot, None));
                }
            }
            MessageKind::Forget(session) => {
                let (agent, bus) = (Arc::clone(&self.0.agent), self.0.bus.clone());
                let reply = message.reply;
                tasks.spawn(async move {
                    agent.forget(&SessionKey::from_text(session)).await;
                    if let Some(reply) = reply {
                        let _ = bus.publish(reply, Vec::new()).await;
                    }
                });
            }
            MessageKind::No | MessageKind::Data { .. } => {
                let sender = self.state().turns.get(&head.turn).cloned();
                if let Some(sender) = sender {
                    // A full turn gets it again.
                    let _ = sender.try_send((head, blob.to_vec()));
                }
            }
            MessageKind::Begin | MessageKind::Go => {}
        }
    }

    /// A turn out of the queue.
    async fn offered(&self, offer: QueuedMessage, tasks: &mut JoinSet<()>) {
        match decode::<Head>(offer.payload()) {
            None => offer.done().await,
            Some((head, _)) => match self.take_slot(&head) {
                Some(slot) => drop(tasks.spawn(begin(self.clone(), slot, Some(offer)))),
                None if self.state().turns.contains_key(&head.turn) => offer.done().await,
                None => offer.give_back().await,
            },
        }
    }

    /// A slot for a turn, if one is free and the turn is not here already.
    fn take_slot(&self, head: &Head) -> Option<TakenSlot> {
        let mut state = self.state();
        let is_full = state.turns.len() >= self.0.settings.slots;
        if is_full || state.draining || state.turns.contains_key(&head.turn) {
            return None;
        }
        let (sender, inbox) = mpsc::channel(MAX_MESSAGES);
        state.turns.insert(head.turn.clone(), sender);
        Some(TakenSlot {
            worker: self.clone(),
            turn: head.turn.clone(),
            relay: head.from.clone(),
            inbox,
        })
    }
}

/// Asks the relay whether a turn may begin, and runs it.
async fn begin(worker: Worker, slot: TakenSlot, offer: Option<QueuedMessage>) {
    let shared = &worker.0;
    let ask = Head {
        turn: slot.turn.clone(),
        from: shared.id.clone(),
        kind: MessageKind::Begin,
    };
    let subject = shared.names.relay(&slot.relay);
    let mut answer = shared
        .bus
        .request(subject.clone(), encode(&ask, &[]), BEGIN_PATIENCE)
        .await;
    if matches!(answer, Err(NatsError::Timeout)) {
        // The relay answers the same again.
        answer = shared
            .bus
            .request(subject, encode(&ask, &[]), BEGIN_PATIENCE)
            .await;
    }
    // Whatever became of it: a relay that still wants it offers it again.
    if let Some(offer) = offer {
        offer.done().await;
    }
    let go = answer.ok().and_then(|bytes| Some(decode::<Head>(&bytes)?.0.kind));
    if matches!(go, Some(MessageKind::Go)) {
        worker.relay_heard(&slot.relay);
        task::run(&worker, slot).await;
    }
}
