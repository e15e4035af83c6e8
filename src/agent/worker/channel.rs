//! One end of the conversation about a turn: numbered frames both ways, repeated until they are acknowledged, in order and once.
//!
//! No I/O: packets come in with the time, and packets to send come out. Frames are at most one piece long, so that a message of any
//! size travels in pieces.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// When an unacknowledged frame is sent again.
const RESEND: Duration = Duration::from_millis(400);
/// Bytes that may be sent without an acknowledgement.
const WINDOW: usize = 2 << 20;
/// Bytes that may wait in a channel; beyond them the agent waits.
const MAX_QUEUED: usize = 4 << 20;
/// Largest message.
pub const MAX_MESSAGE: usize = 64 << 20;

/// Numbered frames, and what was received so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// The number of the first frame.
    pub seq: u64,
    /// All frames below this number have arrived.
    pub ack: u64,
    /// Whether frames are missing: send again from `ack`.
    pub again: bool,
    /// The frames: the bytes, and whether more of the same message follow.
    pub frames: Vec<(Vec<u8>, bool)>,
}

/// A message was larger than [`MAX_MESSAGE`].
#[derive(Debug, PartialEq, Eq)]
pub struct TooLarge;

/// One end of a conversation.
#[derive(Debug)]
pub struct Channel {
    piece: usize,
    /// Frames that are not acknowledged; the first has the number `first`.
    unacked: VecDeque<(Vec<u8>, bool)>,
    first: u64,
    /// The number of the next frame to send.
    next: u64,
    queued: usize,
    resend_at: Option<Instant>,
    /// The value of `first` at which frames were sent again because the other end asked: once is enough, the timer does the rest.
    /// Otherwise each packet behind a gap would send everything again.
    rewound_at: Option<u64>,
    /// The number of the next frame that is expected.
    expected: u64,
    partial: Vec<u8>,
    ack_due: bool,
    again: bool,
}

impl Channel {
    /// A channel whose frames have at most `piece` bytes.
    pub fn new(piece: usize) -> Self {
        Self {
            piece: piece.max(1),
            unacked: VecDeque::new(),
            first: 0,
            next: 0,
            queued: 0,
            resend_at: None,
            rewound_at: None,
            expected: 0,
            partial: Vec::new(),
            ack_due: false,
            again: false,
        }
    }

    /// Queues a message.
    pub fn send(&mut self, message: &[u8]) {
        let mut rest = message;
        loop {
            let (frame, after) = rest.split_at(rest.len().min(self.piece));
            self.queued += frame.len();
            self.unacked.push_back((frame.to_vec(), !after.is_empty()));
            if after.is_empty() {
                return;
            }
            rest = after;
        }
    }

    /// Whether the sender may go on without waiting.
    pub fn has_room(&self) -> bool {
        self.queued < MAX_QUEUED
    }

    /// Whether the other end has everything.
    pub fn is_settled(&self) -> bool {
        self.unacked.is_empty()
    }

    /// When [`Channel::packet`] has something although nothing happened.
    pub fn deadline(&self) -> Option<Instant> {
        self.resend_at
    }

    /// The next packet to send; ask until there is none.
    pub fn packet(&mut self, now: Instant) -> Option<Packet> {
        if self.resend_at.is_some_and(|at| at <= now) {
            self.next = self.first;
            self.resend_at = None;
        }
        let mut packet = Packet {
            seq: self.next,
            ack: self.expected,
            again: self.again,
            frames: Vec::new(),
        };
        let sent = usize::try_from(self.next - self.first).unwrap_or(usize::MAX);
        let in_flight: usize = self.unacked.iter().take(sent).map(|(frame, _)| frame.len()).sum();
        let mut size = 0;
        for frame in self.unacked.iter().skip(sent) {
            let is_first = packet.frames.is_empty();
            if !is_first && size + frame.0.len() > self.piece || in_flight > 0 && in_flight + size > WINDOW {
                break;
            }
            size += frame.0.len();
            packet.frames.push(frame.clone());
        }
        if packet.frames.is_empty() && !self.ack_due {
            return None;
        }
        self.next += packet.frames.len() as u64;
        (self.ack_due, self.again) = (false, false);
        if !self.unacked.is_empty() && self.resend_at.is_none() {
            self.resend_at = Some(now + RESEND);
        }
        Some(packet)
    }

    /// Takes a packet in; returns the messages that are complete with it.
    pub fn receive(&mut self, packet: Packet, now: Instant) -> Result<Vec<Vec<u8>>, TooLarge> {
        if packet.ack > self.first && packet.ack <= self.first + self.unacked.len() as u64 {
            while self.first < packet.ack {
                if let Some((frame, _)) = self.unacked.pop_front() {
                    self.queued -= frame.len();
                }
                self.first += 1;
            }
            self.next = self.next.max(self.first);
            self.resend_at = (!self.unacked.is_empty()).then(|| now + RESEND);
        }
        if packet.again && packet.ack == self.first && self.rewound_at != Some(self.first) {
            self.rewound_at = Some(self.first);
            self.next = self.first;
        }
        let mut complete = Vec::new();
        for (at, (frame, more)) in packet.frames.into_iter().enumerate() {
            self.ack_due = true;
            match (packet.seq + at as u64).cmp(&self.expected) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Greater => self.again = true,
                std::cmp::Ordering::Equal => {
                    self.expected += 1;
                    if self.partial.len() + frame.len() > MAX_MESSAGE {
                        return Err(TooLarge);
                    }
                    if self.partial.is_empty() {
                        self.partial = frame;
                    } else {
                        self.partial.extend_from_slice(&frame);
                    }
                    if !more {
                        complete.push(std::mem::take(&mut self.partial));
                    }
                }
            }
        }
        Ok(complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator; the same seed gives the same walk.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % n as u64).unwrap()
        }
    }

    #[test]
    fn whatever_is_lost_doubled_or_late_messages_arrive_once_and_in_order() {
        for seed in 1..400 {
            let mut random = Random(0x9E37_79B9_7F4A_7C15u64.wrapping_mul(seed));
            let mut now = Instant::now();
            let (mut left, mut right) = (Channel::new(7), Channel::new(7));
            let sent: Vec<Vec<u8>> = (0..40u8).map(|n| vec![n; random.below(30)]).collect();
            let mut received = Vec::new();
            let mut queue = sent.iter();
            let mut wire: Vec<(bool, Packet)> = Vec::new();
            for step in 0..20_000 {
                if random.below(3) == 0
                    && let Some(message) = queue.next()
                {
                    left.send(message);
                }
                let calm = step > 10_000;
                for (from_left, end) in [(true, &mut left), (false, &mut right)] {
                    while let Some(packet) = end.packet(now) {
                        if calm || random.below(4) > 0 {
                            wire.push((from_left, packet.clone()));
                        }
                        if !calm && random.below(5) == 0 {
                            wire.push((from_left, packet));
                        }
                    }
                }
                // Some of what is on the way arrives, in any order; when it is calm everything does, in order.
                let most = wire.len();
                let arrive = if calm { most } else { random.below(most + 1) };
                for _ in 0..arrive {
                    let at = if calm { 0 } else { random.below(wire.len()) };
                    let (from_left, packet) = wire.remove(at);
                    let end = if from_left { &mut right } else { &mut left };
                    received.extend(end.receive(packet, now).unwrap());
                }
                now += Duration::from_millis(random.below(100) as u64);
                if received.len() == sent.len() && left.is_settled() && wire.is_empty() {
                    break;
                }
            }
            assert_eq!(received, sent, "seed {seed}");
            assert!(left.is_settled(), "seed {seed}");
        }
    }

    #[test]
    fn a_gap_in_a_burst_sends_everything_again_once() {
        let now = Instant::now();
        let (mut left, mut right) = (Channel::new(4), Channel::new(4));
        (0..50u8).for_each(|n| left.send(&[n; 4]));
        let mut packets: Vec<Packet> = std::iter::from_fn(|| left.packet(now)).collect();
        packets.remove(0);
        let mut again = 0;
        for packet in packets {
            assert!(right.receive(packet, now).unwrap().is_empty());
            left.receive(right.packet(now).unwrap(), now).unwrap();
            again += std::iter::from_fn(|| left.packet(now)).count();
        }
        assert_eq!(again, 50);
    }

    #[test]
    fn a_gap_is_repaired_without_waiting() {
        let now = Instant::now();
        let (mut left, mut right) = (Channel::new(100), Channel::new(100));
        left.send(b"one");
        drop(left.packet(now));
        left.send(b"two");
        let two = left.packet(now).unwrap();
        assert!(right.receive(two, now).unwrap().is_empty());
        let gap = right.packet(now).unwrap();
        assert!(gap.again);
        left.receive(gap, now).unwrap();
        let both = left.packet(now).unwrap();
        assert_eq!(
            right.receive(both, now).unwrap(),
            [b"one".to_vec(), b"two".to_vec()]
        );
    }
}
