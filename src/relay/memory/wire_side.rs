//! What lies between the halves: the connection, what is in flight on it, and what is kept for the next one.
//!
//! One lock guards it, held for moments and never across an await. The record and the view are told from
//! under it, so that what they say is in order; nobody who reads them takes the lock meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::connector::DeliverError;
use super::frames::{delivery, outcome, pump};
use super::record::{Answering, Record, SeenOp};
use crate::link::{Descriptors, DormancyRefused, End, Generation, NotSent, Op, SendResult};
use crate::relay::transport::{Delivery, LinkView, Settlements, token_of};
use crate::wire::{CapabilityDescriptor, Outcome};

/// Deliveries that wait for the relay on one connection.
const LINES: usize = 1024;
/// Deliveries that may be unacknowledged.
const MOST_KEPT: usize = 65_536;
/// Ops that may be in flight.
const MOST_IN_FLIGHT: usize = 65_536;

/// Whether a delivery outlives its connection.
#[derive(Debug)]
pub(super) enum Kept {
    /// It does not.
    No,
    /// It does, until this buffer id is acknowledged.
    Until(String),
}

#[derive(Debug)]
pub(super) struct Wire {
    descriptors: Vec<CapabilityDescriptor>,
    state: Mutex<State>,
    view: watch::Sender<LinkView>,
    record: watch::Sender<Record>,
}

#[derive(Debug)]
struct State {
    /// The relay's end, once it has asked for a connection.
    relay: Option<(Handle, mpsc::Sender<Vec<Delivery>>)>,
    line: Line,
    last: Option<Generation>,
    answering: Answering,
    next_op: u64,
    in_flight: BTreeMap<u64, (u64, Settlements)>,
    kept: VecDeque<(String, Vec<u8>)>,
    idle_held: bool,
    buffering: bool,
}

/// How the connection stands.
#[derive(Debug)]
enum Line {
    /// It may come about, and does when the relay asks.
    Open,
    /// It stands.
    Live(Live),
    /// The connector lets nobody in.
    Down,
    /// The relay closed it to sleep.
    Asleep,
    /// It is over for good.
    Closed,
}

#[derive(Debug)]
struct Live {
    generation: Generation,
    lines: mpsc::Sender<Delivery>,
    pump: AbortHandle,
}

impl Wire {
    pub(super) fn new(descriptors: Vec<CapabilityDescriptor>) -> Self {
        let view = LinkView {
            state: "starting".to_owned(),
            ..LinkView::default()
        };
        Self {
            descriptors,
            state: Mutex::new(State {
                relay: None,
                line: Line::Open,
                last: None,
                answering: Answering::default(),
                next_op: 0,
                in_flight: BTreeMap::new(),
                kept: VecDeque::new(),
                idle_held: false,
                buffering: false,
            }),
            view: watch::Sender::new(view),
            record: watch::Sender::new(Record::default()),
        }
    }

    pub(super) fn view(&self) -> watch::Receiver<LinkView> {
        self.view.subscribe()
    }

    pub(super) fn record(&self) -> watch::Receiver<Record> {
        self.record.subscribe()
    }

    pub(super) fn connect(&self, deliveries: mpsc::Sender<Vec<Delivery>>) {
        let mut state = self.lock();
        if state.relay.is_none() {
            state.relay = Some((Handle::current(), deliveries));
            self.establish(&mut state);
        }
    }

    pub(super) fn restore(&self) {
        let mut state = self.lock();
        if matches!(state.line, Line::Down) {
            state.line = Line::Open;
            self.establish(&mut state);
        }
    }

    pub(super) fn wake(&self) {
        let mut state = self.lock();
        if matches!(state.line, Line::Asleep) {
            state.line = Line::Open;
            self.establish(&mut state);
        }
    }

    pub(super) fn lose(&self) {
        let mut state = self.lock();
        match state.line {
            Line::Live(_) => self.end(&mut state, Line::Down, "waiting"),
            Line::Open | Line::Asleep => state.line = Line::Down,
            Line::Down | Line::Closed => {}
        }
    }

    pub(super) fn renew(&self) {
        let mut state = self.lock();
        if matches!(state.line, Line::Live(_)) {
            self.end(&mut state, Line::Open, "waiting");
            self.establish(&mut state);
        }
    }

    pub(super) fn close(&self) {
        let mut state = self.lock();
        self.end(&mut state, Line::Closed, "closed");
        state.relay = None;
        self.view.send_modify(|view| view.ended = Some(End::Closed));
        self.record.send_modify(|record| record.closed = true);
    }

    /// Waits until nothing is in flight.
    pub(super) async fn drained(&self) {
        // We hold the sender ourselves, so waiting cannot fail.
        let _ = self.record().wait_for(|record| record.in_flight == 0).await;
    }

    pub(super) fn go_dormant(&self) -> Result<(), DormancyRefused> {
        let mut state = self.lock();
        if !matches!(state.line, Line::Live(_)) {
            return Err(DormancyRefused::NotLive);
        }
        if !state.buffering {
            return Err(DormancyRefused::NotBuffering);
        }
        if !state.in_flight.is_empty() {
            return Err(DormancyRefused::Busy);
        }
        self.end(&mut state, Line::Asleep, "dormant");
        Ok(())
    }

    /// Whether the connector buffers; nothing while it has not said.
    pub(super) fn go_idle(&self) -> Option<bool> {
        let mut state = self.lock();
        if !matches!(state.line, Line::Live(_)) {
            return Some(false);
        }
        state.buffering |= !state.idle_held;
        self.record.send_modify(|record| {
            record.idles += 1;
            record.buffering = state.buffering;
        });
        state.buffering.then_some(true)
    }

    /// Waits until the connector says that it buffers; `false` when its connection goes first.
    pub(super) async fn idle_answered(&self) -> bool {
        let mut record = self.record();
        let answered = record
            .wait_for(|record| record.buffering || !record.connected)
            .await;
        answered.is_ok_and(|record| record.buffering)
    }

    pub(super) fn hold_idle(&self, held: bool) {
        let mut state = self.lock();
        state.idle_held = held;
        if matches!(state.line, Line::Live(_)) {
            self.record.send_modify(|record| {
                state.buffering |= !held && record.idles > 0;
                record.buffering = state.buffering;
            });
        }
    }

    pub(super) fn submit(&self, op: &Op, settlements: Settlements) {
        let mut state = self.lock();
        let refusal = match state.line {
            Line::Live(_) if state.in_flight.len() >= MOST_IN_FLIGHT => Some(NotSent::Full),
            Line::Live(_) => None,
            Line::Closed => Some(NotSent::Closing),
            Line::Open | Line::Down | Line::Asleep => Some(NotSent::NotLive),
        };
        if let Some(why) = refusal {
            // The asker keeps no more ops out than its channel holds.
            let _ = settlements.try_send((token_of(op.id), SendResult::NotSent(why)));
            return;
        }
        state.next_op += 1;
        let number = state.next_op;
        let result = match &state.answering {
            Answering::Apply => {
                Some(serde_json::json!({"success": true, "message_id": format!("out-{number}")}))
            }
            Answering::Refuse(why) => Some(serde_json::json!({"success": false, "error": why})),
            Answering::Hold => None,
        };
        state.in_flight.insert(number, (token_of(op.id), settlements));
        let seen = SeenOp {
            number,
            platform: op.platform.clone(),
            bot_id: op.bot_id.clone(),
            action: serde_json::from_str(op.action.as_str()).unwrap_or(Value::Null),
        };
        self.record.send_modify(|record| {
            Record::keep(&mut record.ops, seen);
            record.in_flight = state.in_flight.len();
        });
        if let Some(result) = result {
            self.settle(&mut state, number, outcome(number, &result));
        }
    }

    pub(super) fn answering(&self, answering: Answering) {
        self.lock().answering = answering;
    }

    pub(super) fn answer(&self, number: u64, result: &Value) -> bool {
        self.settle(&mut self.lock(), number, outcome(number, result))
    }

    pub(super) fn acknowledge(&self, generation: Generation, buffer_id: String) {
        let mut state = self.lock();
        if matches!(&state.line, Line::Live(live) if live.generation == generation) {
            state.kept.retain(|(kept, _)| *kept != buffer_id);
            self.record.send_modify(|record| {
                record.unacknowledged = state.kept.len();
                Record::keep(&mut record.acks, buffer_id);
            });
        }
    }

    pub(super) fn interrupt(&self, session_key: String) {
        let state = self.lock();
        if matches!(state.line, Line::Live(_)) {
            self.record
                .send_modify(|record| Record::keep(&mut record.interrupts, session_key));
        }
    }

    pub(super) async fn deliver(&self, line: Vec<u8>, kept: Kept) -> Result<(), DeliverError> {
        let (lines, delivery, lasts) = {
            let mut state = self.lock();
            let lasts = matches!(kept, Kept::Until(_));
            if matches!(state.line, Line::Closed) {
                return Err(DeliverError::Closed);
            }
            if let Kept::Until(buffer_id) = kept {
                if state.kept.len() >= MOST_KEPT {
                    return Err(DeliverError::Full);
                }
                state.kept.push_back((buffer_id, line.clone()));
                self.record
                    .send_modify(|record| record.unacknowledged = state.kept.len());
            }
            let Line::Live(open) = &state.line else {
                return if lasts {
                    Ok(())
                } else {
                    Err(DeliverError::NotConnected)
                };
            };
            (open.lines.clone(), delivery(open.generation, line), lasts)
        };
        let Some(delivery) = delivery else { return Ok(()) };
        match lines.send(delivery).await {
            Err(_) if !lasts => Err(DeliverError::NotConnected),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the connection, when both sides want it, and delivers again what is not acknowledged.
    fn establish(&self, state: &mut State) {
        let (Line::Open, Some((runtime, deliveries))) = (&state.line, &state.relay) else {
            return;
        };
        let generation = state.last.map_or(Generation::first(), Generation::next);
        let (lines, heard) = mpsc::channel(LINES.max(state.kept.len()));
        for again in state
            .kept
            .iter()
            .filter_map(|(_, line)| delivery(generation, line.clone()))
        {
            // There is room for all of them.
            let _ = lines.try_send(again);
        }
        let pump = runtime.spawn(pump(heard, deliveries.clone())).abort_handle();
        state.last = Some(generation);
        state.buffering = false;
        state.line = Line::Live(Live {
            generation,
            lines,
            pump,
        });
        self.record.send_modify(|record| {
            record.connections += 1;
            (record.connected, record.buffering) = (true, false);
        });
        self.view.send_modify(|view| {
            view.live = Some(generation);
            view.descriptors = Descriptors::new(generation, self.descriptors.iter().cloned());
            "live".clone_into(&mut view.state);
            view.counters.dials += 1;
            view.counters.handshakes += 1;
        });
    }

    /// Ends the connection; nothing is known of what was in flight on it.
    fn end(&self, state: &mut State, into: Line, said: &str) {
        if let Line::Live(live) = std::mem::replace(&mut state.line, into) {
            live.pump.abort();
        }
        state.buffering = false;
        while let Some(number) = state.in_flight.keys().next().copied() {
            self.settle(state, number, Outcome::Unknown);
        }
        self.view.send_modify(|view| {
            view.live = None;
            said.clone_into(&mut view.state);
            view.last_loss = Some("the connection broke".to_owned());
            view.counters.losses += 1;
        });
        self.record.send_modify(|record| {
            (record.connected, record.buffering) = (false, false);
        });
    }

    fn settle(&self, state: &mut State, number: u64, outcome: Outcome) -> bool {
        let Some((token, settlements)) = state.in_flight.remove(&number) else {
            return false;
        };
        self.record
            .send_modify(|record| record.in_flight = state.in_flight.len());
        let _ = settlements.try_send((token, SendResult::Answered(Box::new(outcome))));
        true
    }
}
