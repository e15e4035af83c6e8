//! The loads: what is sent, what must come back, and what is measured on the way.

use std::collections::VecDeque;
use std::io::Write as _;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::frames::{
    SESSIONS, Template, acknowledged, is_ack, is_send, push_interrupt, push_result, removes_reaction,
};
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

/// What a drain came to.
pub(crate) struct Drained {
    /// Acknowledgements per second.
    pub(crate) rate: f64,
    /// Processor time of the client for a message, in microseconds.
    pub(crate) micros: f64,
    /// The same of all threads but the journal's, beside the journal's.
    pub(crate) loop_beside_journal: f64,
}

/// Sends as long as `time`, never more than `window` unacknowledged, and waits for the rest.
pub(crate) fn drain(subject: &mut Subject, window: u32, text: usize, time: Duration) -> Drained {
    let template = Template::of_text_length(text);
    let (mut acked, mut sent, mut open) = (Seen::default(), 0, 0);
    let mut out = Vec::new();
    let before = subject.threads();
    let begun = Instant::now();
    loop {
        if begun.elapsed() < time {
            while open < window {
                template.push(&mut out, sent, sent % SESSIONS, sent % SESSIONS);
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
    let after = subject.threads();
    acked.check_all(sent, "acknowledged");
    let (all, journal) = (after.all - before.all, after.journal - before.journal);
    Drained {
        rate,
        micros: all / f64::from(sent) / 1000.0,
        loop_beside_journal: (all - journal) / journal,
    }
}

/// What a saturated echo came to.
pub(crate) struct Echoed {
    /// Per second.
    pub(crate) turns: f64,
    /// Processor time of the client for 100,000 turns, in seconds.
    pub(crate) cpu: f64,
}

/// How conversations are spread.
#[derive(Clone, Copy)]
pub(crate) enum Spread {
    /// Each in a chat of its own.
    Chats,
    /// Many people in few chats.
    Sessions,
}

impl Spread {
    fn chat(self, conversation: u32) -> u32 {
        match self {
            Self::Chats => conversation,
            Self::Sessions => conversation % BUSY,
        }
    }
}

/// When a load ends.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    Time(Duration),
    /// After so many messages.
    Turns(u32),
}

/// Who speaks, and how long.
pub(crate) struct Talk {
    pub(crate) text: usize,
    pub(crate) conversations: Range<u32>,
    pub(crate) spread: Spread,
    pub(crate) until: Until,
    /// The number of the first message: one process gets each number once.
    pub(crate) first: u32,
}

impl Talk {
    /// The usual conversations.
    pub(crate) fn usual(text: usize, until: Until) -> Self {
        Self {
            text,
            conversations: 0..SESSIONS,
            spread: Spread::Chats,
            until,
            first: 0,
        }
    }

    fn goes_on(&self, sent: u32, begun: Instant) -> bool {
        match self.until {
            Until::Time(time) => begun.elapsed() < time,
            Until::Turns(turns) => sent < turns,
        }
    }
}

/// Keeps some conversations busy: the next one speaks as soon as an answer has come.
pub(crate) fn echo(subject: &mut Subject, talk: &Talk) -> Echoed {
    let template = Template::of_text_length(talk.text);
    let (mut acked, mut answered, mut sent, mut open) = (Seen::default(), Seen::default(), 0, 0);
    let mut quiet: VecDeque<u32> = talk.conversations.clone().collect();
    let mut speaker = Vec::new();
    let mut out = Vec::new();
    let cpu_before = subject.cpu_seconds();
    let begun = Instant::now();
    let (mut took, mut acks) = (Duration::ZERO, 0);
    loop {
        while open < BUSY && talk.goes_on(sent, begun) {
            let conversation = quiet.pop_front().expect("more conversations than busy ones");
            template.push(
                &mut out,
                talk.first + sent,
                talk.spread.chat(conversation),
                conversation,
            );
            speaker.push(conversation);
            sent += 1;
            open += 1;
        }
        subject.wire.write(&mut out);
        if open == 0 && acks == sent {
            break;
        }
        let open_before = open;
        subject.wire.read(|frame| {
            if is_ack(frame) {
                acks += 1;
                return acked.note(acknowledged(frame) - talk.first, "acknowledged");
            }
            push_result(&mut out, frame);
            if !is_send(frame) {
                return;
            }
            let (number, chat) = template.echoed(frame);
            let number = number - talk.first;
            let conversation = speaker[number as usize];
            assert_eq!(
                talk.spread.chat(conversation),
                chat,
                "the echo went to another chat"
            );
            answered.note(number, "answered");
            quiet.push_back(conversation);
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

/// From the wish that a turn stops to the first thing that is seen of its end, in milliseconds; the median of several.
pub(crate) fn interrupt_ms(subject: &mut Subject, count: u32) -> f64 {
    let template = Template::of_text("sleep=600000 ########");
    let mut out = Vec::new();
    let mut waits: Vec<Duration> = Vec::new();
    for number in 0..count {
        template.push(&mut out, number, number, number);
        subject.wire.write(&mut out);
        // The reaction that says that the turn has begun, and the acknowledgement; then it is quiet.
        let (mut acked, mut begun) = (false, false);
        while !(acked && begun) {
            subject.wire.read(|frame| {
                if is_ack(frame) {
                    acked = true;
                } else {
                    begun = true;
                    push_result(&mut out, frame);
                }
            });
            subject.wire.write(&mut out);
        }
        std::thread::sleep(Duration::from_millis(50));
        push_interrupt(&mut out, number, number);
        let stop = Instant::now();
        subject.wire.write(&mut out);
        let mut ended = None;
        while ended.is_none() {
            subject.wire.read(|frame| {
                if !is_ack(frame) {
                    push_result(&mut out, frame);
                    if removes_reaction(frame) {
                        ended.get_or_insert_with(|| stop.elapsed());
                    }
                }
            });
            subject.wire.write(&mut out);
        }
        waits.extend(ended);
    }
    waits.sort_unstable();
    waits[waits.len() / 2].as_secs_f64() * 1000.0
}

/// From a message written to its answer read, at a pace that keeps nobody waiting.
pub(crate) struct Latency {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// The messages are numbered from `first` on; also returns how many there were.
pub(crate) fn reply_latency(
    subject: &mut Subject,
    text: usize,
    time: Duration,
    first: u32,
) -> (Latency, u32) {
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
            message.push(&mut out, first + number, number % SESSIONS, number % SESSIONS);
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
            if is_ack(frame) {
                return;
            }
            if !is_send(frame) {
                return push_result(&mut out, frame);
            }
            let (number, _) = template.echoed(frame);
            let number = number - first;
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
    let latency = Latency {
        p50_ms: at(50),
        p99_ms: at(99),
    };
    (latency, count)
}
