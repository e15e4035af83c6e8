//! Server-sent events from a response body, however it was split into reads.
//!
//! The parser works on bytes, so a character or a line end may be split anywhere. Lines end with `\n`, `\r\n` or `\r`;
//! several `data` lines of one event are joined with `\n`; comments, ids and retry times are skipped. Memory never exceeds
//! the limit per line and per event, plus what one read completes.

use std::collections::VecDeque;

use memchr::memchr2;

/// Bytes of the longest line, and of the longest event, that are accepted.
pub const MAX_EVENT_BYTES: usize = 1024 * 1024;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field; empty if there is none.
    pub name: String,
    /// The `data` fields, joined by newlines.
    pub data: String,
}

/// Why a stream of events cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line or an event is over the limit.
    #[error("an event is longer than {MAX_EVENT_BYTES} bytes")]
    TooLong,
}

/// Cuts a stream of chunks into events; one per body.
#[derive(Debug)]
pub struct SseParser {
    line: Vec<u8>,
    first_line: bool,
    after_cr: bool,
    name: String,
    data: Option<String>,
    ready: VecDeque<SseEvent>,
    broken: Option<SseError>,
    limit: usize,
}

impl Default for SseParser {
    fn default() -> Self {
        Self::new(MAX_EVENT_BYTES)
    }
}

impl SseParser {
    /// A parser that refuses lines and events over `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            first_line: true,
            after_cr: false,
            name: String::new(),
            data: None,
            ready: VecDeque::new(),
            broken: None,
            limit,
        }
    }

    /// Adds a chunk of the body. Ignored after an error.
    pub fn feed(&mut self, mut chunk: &[u8]) {
        while self.broken.is_none() && !chunk.is_empty() {
            if std::mem::take(&mut self.after_cr) && chunk[0] == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let end = memchr2(b'\n', b'\r', chunk);
            let piece = &chunk[..end.unwrap_or(chunk.len())];
            if self.line.len() + piece.len() > self.limit {
                self.fail();
                return;
            }
            self.line.extend_from_slice(piece);
            let Some(end) = end else { return };
            self.after_cr = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            self.end_line();
        }
    }

    /// The body has ended: completes the last event.
    pub fn finish(&mut self) {
        if self.broken.is_none() {
            if !self.line.is_empty() {
                self.end_line();
            }
            self.dispatch();
        }
    }

    /// The next event, in order; the error once there is one.
    pub fn next_event(&mut self) -> Option<Result<SseEvent, SseError>> {
        self.ready.pop_front().map(Ok).or_else(|| self.broken.map(Err))
    }

    fn end_line(&mut self) {
        let bytes = std::mem::take(&mut self.line);
        let mut line = bytes.as_slice();
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch();
        } else {
            self.field(line);
        }
        self.line = bytes;
        self.line.clear();
    }

    fn field(&mut self, line: &[u8]) {
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                let text = String::from_utf8_lossy(value);
                let data = match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data
                    }
                    None => self.data.insert(String::new()),
                };
                if data.len() + text.len() > self.limit {
                    self.fail();
                } else {
                    data.push_str(&text);
                }
            }
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            // Comments have no name; ids and retry times are for clients that reconnect.
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let name = std::mem::take(&mut self.name);
        if let Some(data) = self.data.take() {
            self.ready.push_back(SseEvent { name, data });
        }
    }

    fn fail(&mut self) {
        self.broken = Some(SseError::TooLong);
        self.line = Vec::new();
        self.data = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Read = Result<SseEvent, SseError>;

    fn read(chunks: &[&[u8]], limit: usize) -> Vec<Read> {
        let mut parser = SseParser::new(limit);
        let mut events = Vec::new();
        let mut drain = |parser: &mut SseParser| {
            while let Some(event) = parser.next_event() {
                let broken = event.is_err();
                events.push(event);
                if broken {
                    return true;
                }
            }
            false
        };
        for chunk in chunks {
            parser.feed(chunk);
            if drain(&mut parser) {
                return events;
            }
        }
        parser.finish();
        drain(&mut parser);
        events
    }

    fn whole(text: &str) -> Vec<(String, String)> {
        let events = read(&[text.as_bytes()], 1000).into_iter();
        events
            .map(|event| event.map(|event| (event.name, event.data)).unwrap())
            .collect()
    }

    fn event(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn every_line_end_counts_and_one_space_after_the_colon_does_not() {
        let want = [event("", "a"), event("", " b"), event("", "c")];
        assert_eq!(whole("data:a\n\ndata:  b\r\n\r\ndata: c\r\r"), want);
        assert_eq!(whole("data:a\r\n\ndata:  b\n\r\ndata: c\n\r"), want);
    }

    #[test]
    fn data_lines_join_and_names_belong_to_their_event() {
        let text = "event: tool\ndata: 1\ndata\ndata: 2\n\nevent: lost\n\ndata: 3\n\n";
        for end in ["\n", "\r\n", "\r"] {
            let text = text.replace('\n', end);
            assert_eq!(whole(&text), [event("tool", "1\n\n2"), event("", "3")], "{end:?}");
        }
    }

    #[test]
    fn comments_ids_and_strangers_are_passed_over() {
        let text = ": keepalive\n\nid: 7\nretry: 5\nfoo: x\n:\n\ndata: [DONE]\nid\n\n";
        assert_eq!(whole(text), [event("", "[DONE]")]);
    }

    #[test]
    fn a_byte_order_mark_is_legal_at_the_start_only() {
        assert_eq!(whole("\u{FEFF}data: a\n\n"), [event("", "a")]);
        assert_eq!(whole("\n\u{FEFF}data: a\n\n"), []);
    }

    #[test]
    fn the_last_event_needs_no_blank_line() {
        assert_eq!(whole("data: a\n\ndata: b"), [event("", "a"), event("", "b")]);
        assert_eq!(whole("data: a\r\n"), [event("", "a")]);
        assert_eq!(whole("event: only a name"), []);
    }

    #[test]
    fn what_is_not_utf8_is_replaced() {
        let events = read(&[b"data: a\xFF\xE2\x82\n\n"], 100);
        assert_eq!(events[0].as_ref().unwrap().data, "a\u{FFFD}\u{FFFD}");
    }

    #[test]
    fn too_long_a_line_or_event_is_an_error_after_what_came_before() {
        let long_line = format!("data: ok\n\ndata: {}\n\ndata: later\n\n", "x".repeat(50));
        let long_event = format!("data: ok\n\n{}\ndata: later\n\n", "data: 123456789\n".repeat(5));
        for text in [long_line, long_event, format!("data: ok\n\n:{}", "x".repeat(60))] {
            let events = read(&[text.as_bytes()], 40);
            let [Ok(first), Err(SseError::TooLong)] = events.as_slice() else {
                panic!("{events:?}");
            };
            assert_eq!(first.data, "ok");
        }
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"data: ".to_vec()),
            Just(b"data".to_vec()),
            Just(b"event: e".to_vec()),
            Just(b": c".to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\r".to_vec()),
            Just(BOM.to_vec()),
            Just("grüße €".as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            body in stream(),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20),
            limit in 8usize..60,
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&body[from..cut]);
                from = cut;
            }
            chunks.push(&body[from..]);
            let single: Vec<&[u8]> = body.chunks(1).collect();
            let want = read(&[&body], limit);
            prop_assert_eq!(&read(&chunks, limit), &want);
            prop_assert_eq!(&read(&single, limit), &want);
        }
    }
}
