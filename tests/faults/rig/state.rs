//! What the rig's connector knows: messages and their acknowledgements, ops and what became of them.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::{Rng, line};

/// What becomes of an op that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Answered at once.
    Answer,
    /// Answered after a while.
    After(Duration),
    /// Never answered.
    Never,
}

/// How a dial is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DialFate {
    /// With an upgrade.
    Accept,
    /// With an HTTP status.
    Refuse(u16),
    /// With a reset of the socket.
    Reset,
}

/// How lines are put into WebSocket messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// One each.
    Single,
    /// Several in one message, and cut anywhere over several messages.
    Rough,
}

/// How a connection is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The socket is reset.
    Reset,
    /// With a close frame.
    Close(u16),
    /// In the middle of a frame.
    HalfFrame,
}

/// A message for the gateway.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) chat: usize,
    pub(crate) text: String,
    pub(crate) acked: bool,
    pub(crate) replies: Vec<Reply>,
    line: String,
}

/// One op that answered a message.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) connection: u64,
    pub(crate) request_id: String,
    pub(crate) chat: String,
    pub(crate) content: String,
    pub(crate) at: Instant,
    /// Place among all ops.
    pub(crate) order: usize,
    /// Which of the lines of its connection the result is, once it is handed to the socket.
    pub(crate) result_line: Option<u64>,
}

/// What decides on ops: the chat and the text.
pub(crate) type Judge = Box<dyn FnMut(&str, &str) -> Fate + Send>;

pub(crate) struct State {
    pub(crate) messages: Vec<Message>,
    pub(crate) window: usize,
    pub(crate) packing: Packing,
    pub(crate) repeat_percent: u64,
    /// Nothing is read from the sockets.
    pub(crate) reads_paused: bool,
    pub(crate) rng: Rng,
    pub(crate) judge: Judge,
    pub(crate) dials: VecDeque<DialFate>,
    pub(crate) dialed: u64,
    pub(crate) greeted: u64,
    pub(crate) open: HashMap<u64, Live>,
    /// Connections that have ended, and how many of their lines the gateway is known to have read.
    pub(crate) ended: HashMap<u64, u64>,
    pub(crate) strange_ops: Vec<String>,
    pub(crate) acked: usize,
    ops: usize,
    /// Everything before it is acknowledged.
    floor: usize,
}

/// An open connection.
pub(crate) struct Live {
    pub(crate) greeted: bool,
    pub(crate) ending: Option<Ending>,
    cursor: usize,
    in_flight: usize,
    outgoing: VecDeque<Outgoing>,
    /// Lines that were handed to the socket.
    lines: u64,
    /// The line with which each message was first delivered here.
    delivered: HashMap<usize, u64>,
    /// The line with the last result of each chat.
    results: HashMap<String, u64>,
    /// Lines that the gateway has surely read: it acknowledged the last of them, or sent the next op of a chat, for which it waits
    /// for the result of the one before. It reads in order.
    lines_read: u64,
}

struct Outgoing {
    line: String,
    /// The message and reply that this answers.
    answers: Option<(usize, usize)>,
}

impl State {
    pub(crate) fn new(window: usize, seed: u64) -> Self {
        Self {
            messages: Vec::new(),
            window,
            packing: Packing::Single,
            repeat_percent: 0,
            reads_paused: false,
            rng: Rng::new(seed),
            judge: Box::new(|_, _| Fate::Answer),
            dials: VecDeque::new(),
            dialed: 0,
            greeted: 0,
            open: HashMap::new(),
            ended: HashMap::new(),
            strange_ops: Vec::new(),
            acked: 0,
            ops: 0,
            floor: 0,
        }
    }

    pub(crate) fn push(&mut self, chat: usize, text: String) -> usize {
        let number = self.messages.len();
        self.messages.push(Message {
            chat,
            line: line::inbound(chat, number, &text),
            text,
            acked: false,
            replies: Vec::new(),
        });
        number
    }

    pub(crate) fn open_connection(&mut self) -> u64 {
        self.dialed += 1;
        self.open.insert(
            self.dialed,
            Live {
                greeted: false,
                ending: None,
                cursor: self.floor,
                in_flight: 0,
                outgoing: VecDeque::new(),
                lines: 0,
                delivered: HashMap::new(),
                results: HashMap::new(),
                lines_read: 0,
            },
        );
        self.dialed
    }

    pub(crate) fn close_connection(&mut self, connection: u64) {
        if let Some(live) = self.open.remove(&connection) {
            self.ended.insert(connection, live.lines_read);
        }
    }

    pub(crate) fn hello(&mut self, connection: u64, platform: &str) {
        self.greeted += 1;
        if let Some(live) = self.open.get_mut(&connection) {
            live.greeted = true;
        }
        self.say(connection, line::descriptor(platform));
    }

    pub(crate) fn ack(&mut self, connection: u64, buffer_id: &str) {
        let Some(number) = line::number(buffer_id) else {
            return;
        };
        if let Some(live) = self.open.get_mut(&connection)
            && let Some(line) = live.delivered.get(&number)
        {
            live.lines_read = live.lines_read.max(*line);
        }
        let Some(message) = self.messages.get_mut(number) else {
            return;
        };
        if std::mem::replace(&mut message.acked, true) {
            return;
        }
        self.acked += 1;
        while self.messages.get(self.floor).is_some_and(|message| message.acked) {
            self.floor += 1;
        }
        if let Some(live) = self.open.get_mut(&connection) {
            live.in_flight = live.in_flight.saturating_sub(1);
        }
    }

    /// Takes an op; tells how long its answer is to wait, and which it answers, if it is to be answered.
    pub(crate) fn op(
        &mut self,
        connection: u64,
        request_id: &str,
        chat: &str,
        reply_to: Option<&str>,
        content: &str,
    ) -> Option<(Duration, Option<(usize, usize)>)> {
        self.ops += 1;
        if let Some(live) = self.open.get_mut(&connection)
            && let Some(line) = live.results.get(chat)
        {
            live.lines_read = live.lines_read.max(*line);
        }
        let number = reply_to.and_then(line::number);
        let answers = if let Some(message) = number.and_then(|number| self.messages.get_mut(number)) {
            message.replies.push(Reply {
                connection,
                request_id: request_id.to_owned(),
                chat: chat.to_owned(),
                content: content.to_owned(),
                at: Instant::now(),
                order: self.ops,
                result_line: None,
            });
            number.map(|number| (number, message.replies.len() - 1))
        } else {
            self.strange_ops.push(content.to_owned());
            None
        };
        match (self.judge)(chat, content) {
            Fate::Answer => Some((Duration::ZERO, answers)),
            Fate::After(delay) => Some((delay, answers)),
            Fate::Never => None,
        }
    }

    pub(crate) fn answer(&mut self, connection: u64, line: String, answers: Option<(usize, usize)>) {
        if let Some(live) = self.open.get_mut(&connection) {
            live.outgoing.push_back(Outgoing { line, answers });
        }
    }

    pub(crate) fn say(&mut self, connection: u64, line: String) {
        self.answer(connection, line, None);
    }

    /// The messages to write now, as texts.
    pub(crate) fn outgoing(&mut self, connection: u64) -> Vec<String> {
        let Some(live) = self.open.get_mut(&connection) else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        for outgoing in live.outgoing.drain(..) {
            lines.push(outgoing.line);
            live.lines += 1;
            if let Some((message, reply)) = outgoing.answers {
                let reply = &mut self.messages[message].replies[reply];
                reply.result_line = Some(live.lines);
                live.results.insert(reply.chat.clone(), live.lines);
            }
        }
        while live.greeted && live.in_flight < self.window && lines.len() < 1024 {
            let Some(message) = self.messages.get(live.cursor) else {
                break;
            };
            let number = live.cursor;
            live.cursor += 1;
            if !message.acked {
                live.in_flight += 1;
                lines.push(message.line.clone());
                live.lines += 1;
                live.delivered.insert(number, live.lines);
                if self.rng.percent(self.repeat_percent) {
                    lines.push(message.line.clone());
                    live.lines += 1;
                }
            }
        }
        self.pack(lines)
    }

    fn pack(&mut self, lines: Vec<String>) -> Vec<String> {
        if self.packing == Packing::Single {
            return lines;
        }
        let mut all = lines.concat();
        let mut texts = Vec::new();
        while !all.is_empty() {
            let mut cut = 1 + self.rng.index(all.len().min(600));
            while !all.is_char_boundary(cut) {
                cut += 1;
            }
            let rest = all.split_off(cut);
            texts.push(std::mem::replace(&mut all, rest));
        }
        texts
    }
}
