//! Events: what the driver reports, and the link's one next deadline.

use super::action::{ControlFrame, LinkEvent};
use super::clock::{Deadline, Moment};
use super::close_reason::{CloseReason, DialFailure, End};
use super::state::{Generation, IdleRequest, Link, LinkState, Live, Liveness, ReaderState, WriterLoad};
use super::transitions::{CloseFrame, GOING_AWAY};
use crate::wire::{CapabilityDescriptor, GatewayFrame, OpResult, close_code};
use serde_json::json;
use std::time::Duration;

/// For a socket that the other end has closed.
const CLOSED_ALREADY: CloseFrame = (close_code::NORMAL, "");
/// For a message over the size limit.
const TOO_LARGE: CloseFrame = (close_code::TOO_LARGE, "message too large");

impl Link {
    /// The socket is open: sends the hellos of all identities, in order.
    pub fn handle_dialed(&mut self, generation: Generation, server_date_unix_ms: Option<i64>, now: Moment) {
        let now = self.enter(now);
        if matches!(self.state, LinkState::Dialing { .. }) && self.is_current(generation) {
            self.learn_date(server_date_unix_ms, now);
            self.state = LinkState::Greeting {
                generation,
                until: Deadline::after(now, self.settings.handshake_timeout),
            };
            for index in 0..self.identities.len() {
                let identity = self.identities[index].clone();
                let hello = GatewayFrame::Hello {
                    platform: identity.platform,
                    bot_id: identity.bot_id,
                    command_manifest: identity.command_manifest,
                };
                self.write(generation, &hello);
            }
        } else {
            self.counters.stale_events += 1;
        }
        self.dial_if_due(now);
    }

    /// The driver could not open the socket.
    pub fn handle_dial_failed(
        &mut self,
        generation: Generation,
        failure: DialFailure,
        server_date_unix_ms: Option<i64>,
        now: Moment,
    ) {
        let now = self.enter(now);
        if matches!(self.state, LinkState::Dialing { .. }) && self.is_current(generation) {
            self.learn_date(server_date_unix_ms, now);
            self.lose(CloseReason::Dial(failure), None, now);
        } else {
            self.counters.stale_events += 1;
        }
        self.dial_if_due(now);
    }

    /// Anything was received, pings and pongs included.
    pub fn handle_traffic(&mut self, generation: Generation, now: Moment) {
        let now = self.enter(now);
        self.note_traffic(generation, now);
        self.dial_if_due(now);
    }

    /// A frame for the link was received. Counts as traffic.
    pub fn handle_frame(&mut self, generation: Generation, frame: ControlFrame, now: Moment) {
        let now = self.enter(now);
        if self.note_traffic(generation, now) {
            match frame {
                ControlFrame::Descriptor(descriptor) => self.take_descriptor(*descriptor, now),
                ControlFrame::OutboundResult { request_id, result } => {
                    self.take_result(&request_id, result.map(|result| *result));
                }
                ControlFrame::GoingIdleAck => self.take_idle_ack(),
                ControlFrame::LinkRequest { request_id } => self.refuse_request(generation, request_id),
            }
        }
        self.dial_if_due(now);
    }

    /// Nothing here serves requests of the connector. One that asks faster than it reads is not answered.
    fn refuse_request(&mut self, generation: Generation, request_id: String) {
        if self.writer == WriterLoad::Normal {
            let refusal = GatewayFrame::LinkResult {
                request_id,
                ok: false,
                body: json!({ "error": "this gateway serves no link requests" }),
            };
            self.write(generation, &refusal);
        }
    }

    /// So many lines wait to be written to the current socket.
    pub fn note_unwritten(&mut self, lines: usize) {
        self.writer = if lines >= self.settings.max_unwritten {
            WriterLoad::Crowded
        } else {
            WriterLoad::Normal
        };
    }

    /// The socket closed, with the connector's close frame or without one.
    pub fn handle_closed(&mut self, generation: Generation, close: Option<(u16, &str)>, now: Moment) {
        let now = self.enter(now);
        if self.is_current(generation) {
            let departure = match close {
                Some((code, reason)) => CloseReason::Closed {
                    code,
                    reason: reason.to_owned(),
                },
                None => CloseReason::Broken,
            };
            self.lose(departure, Some(CLOSED_ALREADY), now);
        } else {
            self.counters.stale_events += 1;
        }
        self.dial_if_due(now);
    }

    /// A message exceeded the size limit; nothing after it can be read.
    pub fn handle_too_large(&mut self, generation: Generation, bytes: usize, now: Moment) {
        let now = self.enter(now);
        if self.is_current(generation) {
            self.lose(CloseReason::TooLarge { bytes }, Some(TOO_LARGE), now);
        } else {
            self.counters.stale_events += 1;
        }
        self.dial_if_due(now);
    }

    /// The socket's reader stopped reading because the relay cannot take more. Until it resumes, silence does not mean
    /// that the connector is gone.
    pub fn handle_reader_blocked(&mut self, generation: Generation, now: Moment) {
        let now = self.enter(now);
        if self.note_traffic(generation, now) {
            self.reader = ReaderState::Blocked;
        }
        self.dial_if_due(now);
    }

    /// The socket's reader reads again. Counts as traffic.
    pub fn handle_reader_resumed(&mut self, generation: Generation, now: Moment) {
        let now = self.enter(now);
        if self.note_traffic(generation, now) {
            self.reader = ReaderState::Reading;
            if let LinkState::Greeting { until, .. } = &mut self.state {
                *until = Deadline::after(now, self.settings.handshake_timeout);
            }
        }
        self.dial_if_due(now);
    }

    fn is_current(&self, generation: Generation) -> bool {
        self.generation() == Some(generation)
    }

    fn learn_date(&mut self, server_date_unix_ms: Option<i64>, now: Moment) {
        let warning = server_date_unix_ms.and_then(|date| self.clock.learn(date, now));
        if let Some(ms) = warning {
            self.emit(LinkEvent::SkewWarning { ms });
        }
    }

    /// Notes traffic; `false` for an old generation.
    fn note_traffic(&mut self, generation: Generation, now: Moment) -> bool {
        match &mut self.state {
            LinkState::Live(live) if live.generation == generation => {
                live.silent_at = Deadline::after(now, self.settings.dead_after);
                live.liveness = Liveness::Alive;
                true
            }
            LinkState::Greeting {
                generation: current, ..
            }
            | LinkState::Closing {
                generation: current, ..
            } if *current == generation => true,
            LinkState::Waiting { .. }
            | LinkState::Dialing { .. }
            | LinkState::Greeting { .. }
            | LinkState::Live(_)
            | LinkState::Dormant { .. }
            | LinkState::Closing { .. }
            | LinkState::Ended(_) => {
                self.counters.stale_events += 1;
                false
            }
        }
    }

    fn take_descriptor(&mut self, descriptor: CapabilityDescriptor, now: Moment) {
        match &self.state {
            LinkState::Greeting { generation, until } => {
                let (generation, until) = (*generation, *until);
                let primary = self
                    .descriptors
                    .begin(generation, descriptor, self.settings.max_platforms);
                self.handshaken = true;
                self.counters.handshakes += 1;
                self.state = LinkState::Live(Live {
                    generation,
                    since: now,
                    ping_at: now.mono.saturating_add(self.settings.ping_interval),
                    silent_at: Deadline::after(now, self.settings.dead_after),
                    liveness: Liveness::Alive,
                    worked: false,
                    idle: IdleRequest::Awake,
                    older_until: Some(until),
                });
                self.drop_older_if_all_answered();
                self.emit(LinkEvent::Live { generation, primary });
            }
            LinkState::Live(live) => {
                let generation = live.generation;
                let most = self.settings.max_platforms;
                if self.descriptors.add(generation, descriptor, most) {
                    self.emit(LinkEvent::Described { generation });
                } else {
                    self.counters.unexpected_frames += 1;
                }
                self.drop_older_if_all_answered();
            }
            LinkState::Waiting { .. }
            | LinkState::Dialing { .. }
            | LinkState::Dormant { .. }
            | LinkState::Closing { .. }
            | LinkState::Ended(_) => self.counters.unexpected_frames += 1,
        }
    }

    fn drop_older_if_all_answered(&mut self) {
        if let LinkState::Live(live) = &mut self.state
            && live.older_until.is_some()
            && self.descriptors.answered() >= self.identities.len()
        {
            live.older_until = None;
            self.descriptors.drop_older(live.generation);
        }
    }

    fn take_result(&mut self, request_id: &str, result: Option<OpResult>) {
        match self.pending.answer(request_id, result) {
            Some(completed) => {
                if let LinkState::Live(live) = &mut self.state {
                    live.worked = true;
                }
                self.complete(completed);
            }
            None => self.counters.late_results += 1,
        }
        self.close_if_drained();
    }

    fn take_idle_ack(&mut self) {
        if let LinkState::Live(live) = &mut self.state
            && let IdleRequest::Asked { .. } | IdleRequest::Unanswered = live.idle
        {
            let late = live.idle == IdleRequest::Unanswered;
            live.idle = IdleRequest::Acked;
            self.emit(LinkEvent::IdleAcked { late });
        } else {
            self.counters.unexpected_frames += 1;
        }
    }
}

const TOO_SLOW: CloseFrame = (close_code::SILENT, "handshake timeout");
const SILENT: CloseFrame = (close_code::SILENT, "keepalive timeout");

/// The link's next deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// When to call [`Link::handle_timeout`], on the monotonic clock. At most [`Self::due`], and sooner if that is far
    /// away, to detect a suspend.
    pub wake_at: Duration,
    /// The deadline, on the monotonic clock.
    pub due: Duration,
    /// The reason for the deadline.
    pub reason: TimerReason,
}

/// The reason for a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerReason {
    /// The next dial is due.
    Redial,
    /// A hold ends, and the next dial is due.
    HoldCeiling,
    /// The dial times out.
    DialTimeout,
    /// The handshake times out.
    HandshakeTimeout,
    /// The next ping is due.
    Ping,
    /// The connector counts as dead.
    Silence,
    /// A blocked reader is checked again.
    ReaderBlocked,
    /// An op times out.
    Request,
    /// `going_idle` times out.
    IdleAnswer,
    /// Descriptors of the previous connection are dropped.
    OlderDescriptors,
    /// A closing link ends.
    CloseBy,
}

impl Link {
    /// When it dials next, while it waits for that.
    pub fn next_dial(&self) -> Option<Deadline> {
        match self.state {
            LinkState::Waiting { until, .. } | LinkState::Dormant { until } => {
                Some(self.held_after(until).unwrap_or(until))
            }
            LinkState::Dialing { .. }
            | LinkState::Greeting { .. }
            | LinkState::Live(_)
            | LinkState::Closing { .. }
            | LinkState::Ended(_) => None,
        }
    }

    /// Until when dials are held, if that is later than the one that is due.
    fn held_after(&self, due: Deadline) -> Option<Deadline> {
        let seen = self.clock.seen();
        self.hold.filter(|hold| hold.on_mono(seen) > due.on_mono(seen))
    }

    /// The next deadline; `None` only if the link has ended.
    pub fn poll_timeout(&self) -> Option<Timer> {
        let seen = self.clock.seen();
        let at = |deadline: Deadline| deadline.on_mono(seen);
        let glance = seen.mono.saturating_add(self.settings.glance);
        let (due, reason) = match &self.state {
            LinkState::Waiting { until, .. } | LinkState::Dormant { until } => {
                match self.held_after(*until) {
                    Some(hold) => (at(hold), TimerReason::HoldCeiling),
                    None => (at(*until), TimerReason::Redial),
                }
            }
            LinkState::Dialing { until, .. } => (at(*until), TimerReason::DialTimeout),
            LinkState::Greeting { .. } if self.is_blocked() => (glance, TimerReason::ReaderBlocked),
            LinkState::Greeting { until, .. } => (at(*until), TimerReason::HandshakeTimeout),
            LinkState::Live(live) => self.next_of_live(live, seen),
            LinkState::Closing { until, .. } => self.or_request((at(*until), TimerReason::CloseBy)),
            LinkState::Ended(_) => return None,
        };
        Some(Timer {
            wake_at: due.min(glance),
            due,
            reason,
        })
    }

    /// Time has passed. Harmless when nothing is due.
    pub fn handle_timeout(&mut self, now: Moment) {
        let now = self.enter(now);
        while let Some(expired) = self.pending.expire_next(now.mono) {
            self.complete(expired);
        }
        match &self.state {
            LinkState::Dialing { until, .. } if until.passed(now) => {
                self.lose(CloseReason::DialTimeout, Some(TOO_SLOW), now);
            }
            LinkState::Greeting { until, .. } if until.passed(now) && !self.is_blocked() => {
                self.lose(CloseReason::HandshakeTimeout, Some(TOO_SLOW), now);
            }
            LinkState::Live(live) if live.silent_at.passed(now) && !self.is_blocked() => {
                self.lose(CloseReason::Silent, Some(SILENT), now);
            }
            LinkState::Live(_) => self.maintain_live(now),
            LinkState::Closing { until, .. } if until.passed(now) => {
                self.end(End::Closed, Some(GOING_AWAY));
            }
            LinkState::Closing { .. } => self.close_if_drained(),
            LinkState::Waiting { .. }
            | LinkState::Dialing { .. }
            | LinkState::Greeting { .. }
            | LinkState::Dormant { .. }
            | LinkState::Ended(_) => {}
        }
        self.dial_if_due(now);
    }

    fn is_blocked(&self) -> bool {
        self.reader == ReaderState::Blocked
    }

    fn next_of_live(&self, live: &Live, seen: Moment) -> (Duration, TimerReason) {
        let mut next = match self.reader {
            ReaderState::Reading => (live.ping_at, TimerReason::Ping),
            ReaderState::Blocked => (
                seen.mono.saturating_add(self.settings.glance),
                TimerReason::ReaderBlocked,
            ),
        };
        let mut consider = |deadline: Deadline, reason| {
            let at = deadline.on_mono(seen);
            if at < next.0 {
                next = (at, reason);
            }
        };
        if self.reader == ReaderState::Reading {
            consider(live.silent_at, TimerReason::Silence);
        }
        if let IdleRequest::Asked { until } = live.idle {
            consider(until, TimerReason::IdleAnswer);
        }
        if let Some(until) = live.older_until {
            consider(until, TimerReason::OlderDescriptors);
        }
        self.or_request(next)
    }

    fn or_request(&self, next: (Duration, TimerReason)) -> (Duration, TimerReason) {
        match self.pending.deadline() {
            Some(at) if at < next.0 => (at, TimerReason::Request),
            _ => next,
        }
    }

    fn maintain_live(&mut self, now: Moment) {
        self.ping_if_due(now);
        let LinkState::Live(live) = &mut self.state else {
            return;
        };
        if live.older_until.is_some_and(|until| until.passed(now)) {
            live.older_until = None;
            let generation = live.generation;
            if self.descriptors.drop_older(generation) {
                self.emit(LinkEvent::Described { generation });
            }
        }
        if let LinkState::Live(live) = &self.state
            && let IdleRequest::Asked { until } = live.idle
            && until.passed(now)
        {
            self.end_idle_request();
        }
    }
}
