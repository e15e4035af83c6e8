//! The connector's end of the wire, written for speed: frames made once and patched, one read and one write per wake-up.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Sessions that messages are spread over.
pub(crate) const SESSIONS: u32 = 1_000;

/// What the platform can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Platform {
    Plain,
    /// Messages take reactions: three more ops a turn.
    Reactions,
}

impl Platform {
    /// The answer to a hello.
    pub(crate) fn descriptor(self) -> String {
        let more = match self {
            Self::Plain => "",
            Self::Reactions => r#","react""#,
        };
        format!(
            concat!(
                r#"{{"type":"descriptor","descriptor":{{"contract_version":1,"platform":"discord","label":"Discord","#,
                r#""max_message_length":100000,"len_unit":"chars","supports_draft_streaming":false,"supports_edit":true,"#,
                r#""supports_threads":true,"markdown_dialect":"discord","supported_ops":["send","edit","typing"{}]}}}}"#,
                "\n"
            ),
            more
        )
    }
}

/// A message as it goes over the wire, header included, with places for its number, its chat and who wrote it.
pub(crate) struct Template {
    bytes: Vec<u8>,
    numbers: Vec<usize>,
    chats: Vec<usize>,
    users: Vec<usize>,
    content: Vec<u8>,
}

const NUMBER: &str = "########";
const CHAT: &str = "@@@@@@";
const USER: &str = "~~~~~~";
/// What an echo says before the text.
const ECHO: &str = "echo: ";

impl Template {
    /// A message whose text is so long. Quotes and line breaks stand in it about as often as in prose.
    pub(crate) fn of_text_length(length: usize) -> Self {
        let prose = "The \"quick\" brown fox jumps over the lazy dog, then sleeps.\n";
        let mut text = format!("{NUMBER} ");
        text.extend(prose.chars().cycle().take(length - text.len()));
        Self::of_text(&text)
    }

    /// A message that says this.
    pub(crate) fn of_text(text: &str) -> Self {
        let text = serde_json::to_string(&text).unwrap();
        let line = format!(
            concat!(
                r#"{{"type":"inbound","event":{{"text":{},"message_type":"text","source":{{"platform":"discord","#,
                r#""chat_id":"11{}","chat_type":"group","chat_name":"general","user_id":"22{}","user_name":"someone","#,
                r#""thread_id":null,"scope_id":"330000000000000001","message_id":"44{}"}},"message_id":"44{}"}},"#,
                r#""bufferId":"b{}"}}"#,
                "\n"
            ),
            text, CHAT, USER, NUMBER, NUMBER, NUMBER
        );
        let mut bytes = Vec::new();
        push_frame(&mut bytes, line.as_bytes());
        let places = |of: &str| memchr::memmem::find_iter(&bytes, of).collect();
        let (numbers, chats, users) = (places(NUMBER), places(CHAT), places(USER));
        Self {
            numbers,
            chats,
            users,
            content: text.as_bytes()[1..].to_vec(),
            bytes,
        }
    }

    /// Appends the message of that number, from that chat and that person.
    pub(crate) fn push(&self, out: &mut Vec<u8>, number: u32, chat: u32, user: u32) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        for at in &self.numbers {
            digits(&mut out[start + at..start + at + NUMBER.len()], number);
        }
        for at in &self.chats {
            digits(&mut out[start + at..start + at + CHAT.len()], chat);
        }
        for at in &self.users {
            digits(&mut out[start + at..start + at + USER.len()], user);
        }
    }

    /// The number and chat of the message that an outbound frame echoes, which must be an exact echo.
    pub(crate) fn echoed(&self, frame: &[u8]) -> (u32, u32) {
        let content = after(frame, b"\"content\":\"").expect("a send has content");
        let text = content
            .strip_prefix(ECHO.as_bytes())
            .expect("an echo begins as one");
        let number = number(&text[..NUMBER.len()]);
        assert_eq!(
            &text[NUMBER.len()..self.content.len()],
            &self.content[NUMBER.len()..],
            "the echo of message {number} is not what was said"
        );
        let chat = after(frame, b"\"chat_id\":\"11").expect("a send has a chat");
        let to = after(frame, b"\"reply_to\":\"44").expect("an echo answers a message");
        assert_eq!(
            self::number(&to[..NUMBER.len()]),
            number,
            "an echo answers its message"
        );
        (number, self::number(&chat[..CHAT.len()]))
    }
}

/// The number of the message that an acknowledgement names.
pub(crate) fn acknowledged(frame: &[u8]) -> u32 {
    let id = after(frame, b"\"bufferId\":\"b").expect("an acknowledgement names its delivery");
    number(&id[..NUMBER.len()])
}

/// Whether a frame acknowledges a message.
pub(crate) fn is_ack(frame: &[u8]) -> bool {
    frame.starts_with(b"{\"type\":\"inbound_ack\"")
}

/// Whether an outbound frame sends a message; other ops are indicators.
pub(crate) fn is_send(frame: &[u8]) -> bool {
    after(frame, b"\"op\":\"").is_some_and(|op| op.starts_with(b"send\""))
}

/// Whether an outbound frame takes a reaction back, with which a turn that says nothing ends.
pub(crate) fn removes_reaction(frame: &[u8]) -> bool {
    after(frame, b"\"op\":\"react\"").is_some_and(|rest| after(rest, b"\"remove\":true").is_some())
}

/// Appends the wish that the turn of somebody in a chat stops.
pub(crate) fn push_interrupt(out: &mut Vec<u8>, chat: u32, user: u32) {
    let line = format!(
        "{{\"type\":\"interrupt_inbound\",\"session_key\":\"agent:main:discord:group:11{chat:06}:22{user:06}\",\"chat_id\":\"11{chat:06}\"}}\n"
    );
    push_frame(out, line.as_bytes());
}

/// Appends the answer to an outbound frame.
pub(crate) fn push_result(out: &mut Vec<u8>, frame: &[u8]) {
    const BEFORE: &[u8] = br#"{"type":"outbound_result","requestId":""#;
    const AFTER: &[u8] = b"\",\"result\":{\"success\":true,\"message_id\":\"990000000000000001\"}}\n";
    let id = after(frame, b"\"requestId\":\"").expect("an outbound frame has a request id");
    push_header(out, BEFORE.len() + 32 + AFTER.len());
    out.extend_from_slice(BEFORE);
    out.extend_from_slice(&id[..32]);
    out.extend_from_slice(AFTER);
}

/// Appends one text message.
pub(crate) fn push_frame(out: &mut Vec<u8>, payload: &[u8]) {
    push_header(out, payload.len());
    out.extend_from_slice(payload);
}

fn push_header(out: &mut Vec<u8>, length: usize) {
    out.push(0x81);
    let length = u16::try_from(length).expect("no benchmark message is that long");
    if let Ok(short @ 0..126) = u8::try_from(length) {
        out.push(short);
    } else {
        out.push(126);
        out.extend_from_slice(&length.to_be_bytes());
    }
}

fn after<'a>(frame: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    memchr::memmem::find(frame, key).map(|at| &frame[at + key.len()..])
}

fn number(text: &[u8]) -> u32 {
    text.iter().fold(0, |number, digit| {
        assert!(digit.is_ascii_digit(), "a number was changed on the way");
        number * 10 + u32::from(digit - b'0')
    })
}

fn digits(place: &mut [u8], mut number: u32) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap();
        number /= 10;
    }
}

/// An upgraded socket, read without a library.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: vec![0; 1 << 20],
            filled: 0,
        }
    }

    /// Reads once and hands on every message that is complete.
    pub(crate) fn read(&mut self, mut on_message: impl FnMut(&[u8])) {
        let count = self.stream.read(&mut self.buffer[self.filled..]);
        let count = count.expect("something comes within the time allowed");
        assert!(count > 0, "the client went away");
        self.filled += count;
        let mut start = 0;
        while let Some(length) = open_frame(&mut self.buffer[start..self.filled]) {
            if self.buffer[start] == 0x81 {
                on_message(&self.buffer[start + length.header..start + length.whole]);
            }
            start += length.whole;
        }
        self.buffer.copy_within(start..self.filled, 0);
        self.filled -= start;
    }

    pub(crate) fn write(&mut self, out: &mut Vec<u8>) {
        if !out.is_empty() {
            self.stream.write_all(out).expect("the client reads");
            out.clear();
        }
    }
}

struct Length {
    header: usize,
    whole: usize,
}

/// Unmasks the first frame when all of it is there.
fn open_frame(bytes: &mut [u8]) -> Option<Length> {
    let short = usize::from(bytes.get(1)? & 0x7f);
    assert!(bytes[1] & 0x80 != 0, "clients mask their frames");
    let (length, at) = match short {
        126 => (
            usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().unwrap())),
            4,
        ),
        127 => panic!("no benchmark message is that long"),
        short => (short, 2),
    };
    let mask: [u8; 4] = bytes.get(at..at + 4)?.try_into().unwrap();
    let header = at + 4;
    let whole = header + length;
    let payload = bytes.get_mut(header..whole)?;
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut words = payload.chunks_exact_mut(8);
    for word in &mut words {
        let value = u64::from_ne_bytes((&*word).try_into().unwrap()) ^ wide;
        word.copy_from_slice(&value.to_ne_bytes());
    }
    for (byte, mask) in words.into_remainder().iter_mut().zip(mask) {
        *byte ^= mask;
    }
    Some(Length { header, whole })
}
