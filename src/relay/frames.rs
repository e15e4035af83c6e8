//! How many frames of each type passed, counted by the tasks that hear and speak.
//!
//! Bare counters that several tasks raise; nobody waits for anybody, and nothing of a frame is kept.

use std::sync::atomic::{AtomicU64, Ordering};

use super::metrics::Counts;
use crate::wire::{ConnectorFrame, GatewayFrame};

/// Types of frames that come, and what cannot be read at all.
const RECEIVED: [&str; 8] = [
    "descriptor",
    "inbound",
    "outbound_result",
    "interrupt_inbound",
    "passthrough_forward",
    "going_idle_ack",
    "undecodable",
    "unknown",
];

/// Counts frames.
#[derive(Debug, Default)]
pub(super) struct FrameMeter {
    received: [AtomicU64; RECEIVED.len()],
    sent: [AtomicU64; GatewayFrame::KINDS.len()],
}

impl FrameMeter {
    /// A line came; nothing when it could not be read.
    pub(super) fn received(&self, frame: Option<&ConnectorFrame>) {
        let place = match frame {
            Some(ConnectorFrame::Descriptor(_)) => 0,
            Some(ConnectorFrame::Inbound { .. }) => 1,
            Some(ConnectorFrame::OutboundResult { .. }) => 2,
            Some(ConnectorFrame::InterruptInbound { .. }) => 3,
            Some(ConnectorFrame::PassthroughForward { .. }) => 4,
            Some(ConnectorFrame::GoingIdleAck) => 5,
            None => 6,
            Some(ConnectorFrame::Unknown { .. }) => 7,
        };
        self.received[place].fetch_add(1, Ordering::Relaxed);
    }

    /// A frame of this type goes out.
    pub(super) fn sent(&self, kind: &str) {
        if let Some(place) = GatewayFrame::KINDS.iter().position(|known| *known == kind) {
            self.sent[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What came and what went so far.
    pub(super) fn counts(&self) -> (Counts, Counts) {
        let read = |names: &'static [&'static str], counters: &[AtomicU64]| {
            let mut counts = Counts::new(names);
            for (name, counter) in names.iter().zip(counters) {
                counts.add(name, counter.load(Ordering::Relaxed));
            }
            counts
        };
        (
            read(&RECEIVED, &self.received),
            read(&GatewayFrame::KINDS, &self.sent),
        )
    }
}

/// No frames at all, for transports that have none.
pub(super) fn none() -> (Counts, Counts) {
    FrameMeter::default().counts()
}
