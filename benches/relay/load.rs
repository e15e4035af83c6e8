//! The loads: what is sent, what must come back, and what is measured on the way.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::frames::{SESSIONS, Template, acknowledged, push_result};
use crate::subject::Subject;

/// Chats with a turn under way in a saturated echo.
const BUSY: u32 = 64;
/// Messages per second at low load.
const PACE: u32 = 200;

/// Which messages have come back; each may do so once.
#[derive(Default)]
struct Seen(Vec<bool>);

impl Seen {
    fn note(&mut self, number: u32, what: &str) {
        let number = number as usize;
        if self.0.len() <= number {
            self.0.resize(number + 1, false);
        }
        assert!(!self.0[number], "message {number} was {what} twice");
        self.0[number] = true;
    }

    fn check_all(&self, sent: u32, what: &str) {
        let seen = self.0.iter().filter(|seen| **seen).count();
        assert_eq!(seen, sent as usize, "not every message was {what}");
    }
}

/// Sends as long as `time`, never more than `window` unacknowledged, and waits for the rest. Acknowledgements per second.
pub(crate) fn drain(subject: &mut Subject, window: u32, text: usize, time: Duration) -> f64 {
    let template = Template::of_text_length(text);
    let (mut acked, mut sent, mut open) = (Seen::default(), 0, 0);
    let mut out = Vec::new();
    let begun = Instant::now();
    loop {
        if begun.elapsed() < time {
            while open < window {
                template.push(&mut out, sent, sent % SESSIONS);
                sent += 1;
                open += 1;
            }
        }
        subject.wire.write(&mut out);
        if open == 0 {
            break;
        }
        subject.wire.read(|frame| {
            acked.note(acknowledged(frame), "acknowledged");
            open -= 1;
        });
    }
    let rate = f64::from(sent) / begun.elapsed().as_secs_f64();
    acked.check_all(sent, "acknowledged");
    rate
}

/// What a saturated echo came to.
pub(crate) struct Echoed {
    /// Per second.
    pub(crate) turns: f64,
    /// Processor time of the client for 100,000 turns, in seconds.
    pub(crate) cpu: f64,
}

/// Keeps some chats busy for `time`: the next one speaks as soon as an answer has come.
pub(crate) fn echo(subject: &mut Subject, text: usize, time: Duration) -> Echoed {
    let template = Template::of_text_length(text);
    let (mut acked, mut answered, mut sent, mut open) = (Seen::default(), Seen::default(), 0, 0);
    let mut quiet: VecDeque<u32> = (0..SESSIONS).collect();
    let mut chat_of = Vec::new();
    let mut out = Vec::new();
    let cpu_before = subject.cpu_seconds();
    let begun = Instant::now();
    let (mut took, mut acks) = (Duration::ZERO, 0);
    loop {
        if begun.elapsed() < time {
            while open < BUSY {
                let chat = quiet.pop_front().expect("more chats than busy ones");
                template.push(&mut out, sent, chat);
                chat_of.push(chat);
                sent += 1;
                open += 1;
            }
        }
        subject.wire.write(&mut out);
        if open == 0 && acks == sent {
            break;
        }
        let open_before = open;
        subject.wire.read(|frame| {
            if frame.starts_with(b"{\"type\":\"inbound_ack\"") {
                acks += 1;
                return acked.note(acknowledged(frame), "acknowledged");
            }
            let (number, chat) = template.echoed(frame);
            assert_eq!(chat_of[number as usize], chat, "the echo went to another chat");
            answered.note(number, "answered");
            push_result(&mut out, frame);
            quiet.push_back(chat);
            open -= 1;
        });
        if open < open_before {
            took = begun.elapsed();
        }
    }
    acked.check_all(sent, "acknowledged");
    answered.check_all(sent, "answered");
    Echoed {
        turns: f64::from(sent) / took.as_secs_f64(),
        cpu: (subject.cpu_seconds() - cpu_before) * 100_000.0 / f64::from(sent),
    }
}

/// From a message written to its answer read, at a pace that keeps nobody waiting.
pub(crate) struct Latency {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

pub(crate) fn reply_latency(subject: &mut Subject, text: usize, time: Duration) -> Latency {
    let template = Template::of_text_length(text);
    let count = PACE * u32::try_from(time.as_millis()).unwrap() / 1000;
    let sent_at = Arc::new(Mutex::new(Vec::with_capacity(count as usize)));
    let writer = Arc::new(Mutex::new(subject.wire.stream.try_clone().unwrap()));
    let (times, pen) = (Arc::clone(&sent_at), Arc::clone(&writer));
    let message = Template::of_text_length(text);
    let sender = std::thread::spawn(move || {
        let begun = Instant::now();
        let mut out = Vec::new();
        for number in 0..count {
            let due = begun + Duration::from_secs(1) * number / PACE;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            message.push(&mut out, number, number % SESSIONS);
            times.lock().unwrap().push(Instant::now());
            pen.lock().unwrap().write_all(&out).unwrap();
            out.clear();
        }
    });
    let mut waits = Vec::with_capacity(count as usize);
    let mut answered = Seen::default();
    let mut out = Vec::new();
    while waits.len() < count as usize {
        subject.wire.read(|frame| {
            if frame.starts_with(b"{\"type\":\"inbound_ack\"") {
                return;
            }
            let (number, _) = template.echoed(frame);
            answered.note(number, "answered");
            waits.push(sent_at.lock().unwrap()[number as usize].elapsed());
            push_result(&mut out, frame);
        });
        writer.lock().unwrap().write_all(&out).unwrap();
        out.clear();
    }
    sender.join().unwrap();
    answered.check_all(count, "answered");
    waits.sort_unstable();
    let at = |part: usize| waits[(waits.len() * part / 100).min(waits.len() - 1)].as_secs_f64() * 1000.0;
    Latency {
        p50_ms: at(50),
        p99_ms: at(99),
    }
}
