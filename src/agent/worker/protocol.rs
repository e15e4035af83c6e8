//! What relays and workers say to each other, and on which subjects. No text of people and no secret is in a subject.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::channel::Packet;
use crate::agent::{
    AgentEvent, Permission, PreferenceAnswer, PreferenceRequest, PromptAnswer, Question, TurnEnd, TurnInput,
};
use crate::text::hex;

/// How often relays and workers show that they are there.
pub const BEAT: Duration = Duration::from_secs(1);
/// A worker stops the turns of a relay that it has not heard for this long.
pub const RELAY_LOST: Duration = Duration::from_secs(4);
/// A relay reports a turn as interrupted when its worker was silent for this long: longer than [`RELAY_LOST`], so that the worker
/// has stopped it by then.
pub const WORKER_LOST: Duration = Duration::from_secs(6);
/// Largest piece of a message, whatever more the server allows.
pub const MAX_PIECE: usize = 256 << 10;

/// The subjects and streams of one prefix.
#[derive(Clone, Debug)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// Names that begin with `prefix`.
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    /// To one relay.
    pub fn relay(&self, id: &str) -> String {
        format!("{}.relay.{id}", self.prefix)
    }

    /// To one worker.
    pub fn worker(&self, id: &str) -> String {
        format!("{}.worker.{id}", self.prefix)
    }

    /// That relays are there.
    pub fn relays(&self) -> String {
        format!("{}.relays", self.prefix)
    }

    /// That workers of a pool are there; `*` for all pools.
    pub fn pool(&self, pool: &str) -> String {
        format!("{}.pool.{pool}", self.prefix)
    }

    /// The subject of a pool's queue.
    pub fn turns(&self, pool: &str) -> String {
        format!("{}.turns.{pool}", self.prefix)
    }

    /// The stream of a pool's queue.
    pub fn stream(&self, pool: &str) -> String {
        format!("{}_turns_{pool}", self.prefix)
    }
}

/// The head of a message between a relay and a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The turn; empty if it is about none.
    pub turn: String,
    /// Who sent it.
    pub from: String,
    /// What it is.
    pub kind: MessageKind,
}

/// Kinds of messages between a relay and a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MessageKind {
    /// From a relay: there is a turn for you.
    Offer,
    /// From a worker: may I begin this turn?
    Begin,
    /// The answer: begin.
    Go,
    /// The answer: it runs elsewhere, or is no longer wanted.
    No,
    /// From a relay: forget this session.
    Forget(String),
    /// Frames of a turn, as their lengths and whether more follow; the bytes are behind the head.
    Data {
        /// The number of the first frame.
        seq: u64,
        /// See [`Packet`].
        ack: u64,
        /// See [`Packet`].
        again: bool,
        /// The frames.
        frames: Vec<(usize, bool)>,
    },
}

/// That a worker is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Its id, another one for each start.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Its version.
    pub version: String,
    /// Maximum concurrent turns.
    pub slots: usize,
    /// The turns that it runs.
    pub running: Vec<String>,
    /// Whether it takes no more turns.
    pub draining: bool,
    /// Whether its agent accepts messages for a running turn.
    pub steers: bool,
    /// The commands of its agent: names and descriptions.
    pub commands: Vec<(String, String)>,
}

/// What a relay tells the worker of a turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Down {
    /// A file that came with the message, by its place in the list of attachments; its content is behind.
    File(usize),
    /// The turn. All its files came before.
    Start {
        /// The session.
        session: String,
        /// The message.
        input: Box<TurnInput>,
        /// Who decides what the agent asks.
        permission: Permission,
        /// The digest of the saved state; empty if what the worker has in memory is not the latest, whatever was saved.
        #[serde(default)]
        state: Option<String>,
    },
    /// Instead of a turn: what the agent lets people choose, or a choice.
    Prefer {
        /// The session.
        session: String,
        /// The message that asks.
        input: Box<TurnInput>,
        /// Who decides what the agent asks.
        permission: Permission,
        /// What is asked.
        request: PreferenceRequest,
        /// As of a turn.
        #[serde(default)]
        state: Option<String>,
    },
    /// Stop it.
    Stop,
    /// The answer to a question.
    Answer(u64, PromptAnswer),
    /// The saved state, which is behind; or none.
    State(u64, bool),
    /// A message for the running turn.
    Steer(u64, Box<TurnInput>),
}

/// What a worker tells the relay of a turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Up {
    /// Output or progress. The content of a file is behind.
    Event(AgentEvent),
    /// A question.
    Question(u64, Box<Question>),
    /// Nobody waits for the answer any more.
    Withdraw(u64),
    /// State to save, which is behind.
    SaveState,
    /// A request for the saved state.
    LoadState(u64),
    /// Whether the agent took a message.
    Steered(u64, bool),
    /// What the agent offers, or what it made of a choice.
    Preferred(Box<PreferenceAnswer>),
    /// The turn has ended; nothing comes after it.
    End(TurnEnd),
}

/// A head, and what is behind it.
pub fn encode(head: &impl Serialize, blob: &[u8]) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(head).unwrap_or_default();
    bytes.push(b'\n');
    bytes.extend_from_slice(blob);
    bytes
}

/// Reads what [`encode`] wrote.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let end = memchr::memchr(b'\n', bytes)?;
    Some((serde_json::from_slice(&bytes[..end]).ok()?, &bytes[end + 1..]))
}

/// A message with the frames of a turn.
pub fn encode_packet(turn: &str, from: &str, packet: &Packet) -> Vec<u8> {
    let head = Head {
        turn: turn.to_owned(),
        from: from.to_owned(),
        kind: MessageKind::Data {
            seq: packet.seq,
            ack: packet.ack,
            again: packet.again,
            frames: packet
                .frames
                .iter()
                .map(|(frame, more)| (frame.len(), *more))
                .collect(),
        },
    };
    let blob: Vec<u8> = packet
        .frames
        .iter()
        .flat_map(|(frame, _)| frame.iter().copied())
        .collect();
    encode(&head, &blob)
}

/// The frames of a [`MessageKind::Data`]; `None` if it is something else, or damaged.
pub fn packet(kind: MessageKind, mut blob: &[u8]) -> Option<Packet> {
    let MessageKind::Data {
        seq,
        ack,
        again,
        frames,
    } = kind
    else {
        return None;
    };
    let mut packet = Packet {
        seq,
        ack,
        again,
        frames: Vec::with_capacity(frames.len().min(1024)),
    };
    for (length, more) in frames {
        let (frame, rest) = blob.split_at_checked(length)?;
        packet.frames.push((frame.to_vec(), more));
        blob = rest;
    }
    blob.is_empty().then_some(packet)
}

/// A new id: 128 random bits.
pub fn new_id() -> String {
    let mut bytes = [0; 16];
    // Without randomness the time must do; ids only have to differ.
    if getrandom::fill(&mut bytes).is_err() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        bytes = now.unwrap_or_default().as_nanos().to_be_bytes();
    }
    hex(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_of_an_older_relay_is_understood() {
        let input = serde_json::to_value(TurnInput::default()).unwrap();
        let start = serde_json::json!({"Start": {"session": "s", "input": input, "permission": "ask"}});
        let sent = encode(&start, b"");
        let Some((Down::Start { state, .. }, _)) = decode::<Down>(&sent) else {
            panic!("{start}");
        };
        assert_eq!(state, None);
    }

    #[test]
    fn packets_survive_the_way_and_damage_is_noticed() {
        let sent = Packet {
            seq: 3,
            ack: 9,
            again: true,
            frames: vec![(b"a\nb".to_vec(), true), (Vec::new(), false)],
        };
        let bytes = encode_packet("t", "w", &sent);
        let (head, blob) = decode::<Head>(&bytes).unwrap();
        assert_eq!(packet(head.kind.clone(), blob), Some(sent));
        assert_eq!(packet(head.kind.clone(), &blob[1..]), None);
        assert_eq!(packet(MessageKind::Go, blob), None);
        assert!(decode::<Head>(b"no head").is_none());
    }
}
