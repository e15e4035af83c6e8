//! Line framing: newline-delimited JSON from WebSocket messages, however it was split into messages.
//!
//! The framer works on bytes, so a character may be split anywhere and a line that is not UTF-8 affects only itself. Each
//! byte is scanned once and copied at most once; memory never exceeds the line limit.

use memchr::memchr;

/// Default maximum bytes of a line.
pub const DEFAULT_MAX_LINE_BYTES: usize = 1024 * 1024;

/// Bytes kept of the start and of the end of a line over the limit.
const KEPT_BYTES: usize = 512;

/// A line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// One line without its newline; never blank.
    Whole(&'a [u8]),
    /// A line over the limit; only its start and its end were kept.
    TooLong {
        /// At most its first 512 bytes.
        start: &'a [u8],
        /// At most its last 512 bytes.
        end: &'a [u8],
    },
}

/// Cuts a stream of chunks into lines; one per connection.
#[derive(Debug)]
pub struct LineFramer {
    partial: Vec<u8>,
    /// The start of a line over the limit, while the rest of it comes.
    discarding: Option<Vec<u8>>,
    max_line: usize,
}

impl LineFramer {
    /// A framer that refuses lines over `max_line` bytes, newline not counted.
    pub fn new(max_line: usize) -> Self {
        Self {
            partial: Vec::new(),
            discarding: None,
            max_line,
        }
    }

    /// Adds a chunk and passes every completed line to `on_line`, in order.
    pub fn feed(&mut self, chunk: &[u8], mut on_line: impl FnMut(Line<'_>)) {
        self.feed_while(chunk, |line| {
            on_line(line);
            true
        });
    }

    /// Like [`Self::feed`], until `on_line` returns `false`; returns how many bytes of the chunk were consumed.
    pub fn feed_while(&mut self, whole: &[u8], mut on_line: impl FnMut(Line<'_>) -> bool) -> usize {
        self.feed_places(whole, |line, _| on_line(line))
    }

    /// Like [`Self::feed_while`], with the place in the chunk of each line that is all in it.
    pub fn feed_places(
        &mut self,
        whole: &[u8],
        mut on_line: impl FnMut(Line<'_>, Option<usize>) -> bool,
    ) -> usize {
        let mut chunk = whole;
        let mut wants_more = true;
        while let Some(end) = memchr(b'\n', chunk) {
            if !wants_more {
                return whole.len() - chunk.len();
            }
            let place = whole.len() - chunk.len();
            let (piece, rest) = (&chunk[..end], &chunk[end + 1..]);
            chunk = rest;
            if self.discarding.is_some() || self.partial.len() + piece.len() > self.max_line {
                self.discard(piece);
                let start = self.discarding.take().unwrap_or_default();
                let line = Line::TooLong {
                    start: &start,
                    end: &self.partial,
                };
                wants_more = on_line(line, None);
                self.partial.clear();
            } else if self.partial.is_empty() {
                wants_more = emit(piece, Some(place), &mut on_line);
            } else {
                self.partial.extend_from_slice(piece);
                wants_more = emit(&self.partial, None, &mut on_line);
                self.partial.clear();
            }
        }
        if chunk.is_empty() {
            self.release_spare();
        } else if self.discarding.is_some() || self.partial.len() + chunk.len() > self.max_line {
            self.discard(chunk);
        } else {
            self.partial.extend_from_slice(chunk);
        }
        whole.len()
    }

    /// Bytes held for a line whose newline has not come yet.
    #[cfg(any(test, feature = "internals"))]
    pub fn held(&self) -> usize {
        self.partial.len()
    }

    /// Keeps the end of the line so far and, the first time, its start.
    fn discard(&mut self, piece: &[u8]) {
        let keep = KEPT_BYTES.min(self.max_line);
        let held = std::mem::take(&mut self.partial);
        if self.discarding.is_none() {
            let start = held.iter().chain(piece).take(keep);
            self.discarding = Some(start.copied().collect());
        }
        let piece = &piece[piece.len().saturating_sub(keep)..];
        let held = &held[held.len().saturating_sub(keep - piece.len())..];
        self.partial = [held, piece].concat();
    }

    fn release_spare(&mut self) {
        const KEEP: usize = 16 * 1024;
        if self.partial.is_empty() && self.partial.capacity() > KEEP {
            self.partial = Vec::new();
        }
    }
}

/// Passes on a line unless it is blank; returns whether another is wanted.
fn emit(
    line: &[u8],
    place: Option<usize>,
    on_line: &mut impl FnMut(Line<'_>, Option<usize>) -> bool,
) -> bool {
    let from_start = line.trim_ascii_start();
    let place = place.map(|place| place + line.len() - from_start.len());
    let line = from_start.trim_ascii_end();
    line.is_empty() || on_line(Line::Whole(line), place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is whole, and of what is too long the start and the end.
    type Seen = Result<Vec<u8>, (Vec<u8>, Vec<u8>)>;

    fn lines(framer: &mut LineFramer, chunks: &[&[u8]]) -> Vec<Seen> {
        let mut seen = Vec::new();
        for chunk in chunks {
            framer.feed(chunk, |line| {
                seen.push(match line {
                    Line::Whole(bytes) => Ok(bytes.to_vec()),
                    Line::TooLong { start, end } => Err((start.to_vec(), end.to_vec())),
                });
            });
        }
        seen
    }

    fn framer() -> LineFramer {
        LineFramer::new(16)
    }

    #[test]
    fn a_line_that_is_all_in_a_chunk_has_its_place_there() {
        let mut framer = framer();
        let mut places = Vec::new();
        for chunk in [&b"ab\r\n \n  cd \nef"[..], b"gh\nij\n"] {
            framer.feed_places(chunk, |line, place| {
                if let (Line::Whole(line), Some(place)) = (&line, place) {
                    assert_eq!(&chunk[place..place + line.len()], *line);
                }
                places.push(place);
                true
            });
        }
        assert_eq!(places, [Some(0), Some(8), None, Some(3)]);
    }

    #[test]
    fn frames_are_joined_split_and_ended_by_crlf_alike() {
        let seen = lines(
            &mut framer(),
            &[b"{\"a\":1}\r\n\n  \n{\"b", b"\":2", b"}\n{}", b"\n"],
        );
        assert_eq!(
            seen,
            [
                Ok(b"{\"a\":1}".to_vec()),
                Ok(b"{\"b\":2}".to_vec()),
                Ok(b"{}".to_vec())
            ]
        );
    }

    #[test]
    fn a_character_cut_between_messages_is_whole_again() {
        let (a, b) = "é\n".as_bytes().split_at(1);
        assert_eq!(lines(&mut framer(), &[a, b]), [Ok("é".as_bytes().to_vec())]);
    }

    #[test]
    fn the_limit_loses_only_that_line_and_keeps_its_start_and_its_end() {
        let long = [b'x'; 40];
        let seen = lines(
            &mut framer(),
            &[
                b"ok\n",
                b"the start",
                &long,
                &long,
                b"the end\nok\n",
                &long[..17],
                b"\n",
                &long[..16],
                b"\n",
            ],
        );
        assert_eq!(
            seen,
            [
                Ok(b"ok".to_vec()),
                Err((
                    [b"the start", &long[..7]].concat(),
                    [&long[..9], b"the end"].concat()
                )),
                Ok(b"ok".to_vec()),
                Err((vec![b'x'; 16], vec![b'x'; 16])),
                Ok(vec![b'x'; 16])
            ]
        );
    }

    #[test]
    fn an_endless_line_holds_no_memory() {
        let mut framer = LineFramer::new(1000);
        for _ in 0..10_000 {
            framer.feed(&[b'x'; 333], |_| ());
            assert!(framer.held() <= 1000 && framer.partial.capacity() <= 2048);
        }
    }

    #[test]
    fn a_chunk_can_be_taken_a_few_lines_at_a_time() {
        let chunk = b"a\n\nb\nlonger than sixteen bytes\nc\nrest";
        let (mut framer, mut rest, mut seen) = (framer(), &chunk[..], Vec::new());
        while !rest.is_empty() {
            let mut room = 2;
            let taken = framer.feed_while(rest, |line| {
                seen.push(matches!(line, Line::Whole(_)));
                room -= 1;
                room > 0
            });
            assert!(taken > 0 && room >= 0, "{rest:?}");
            rest = &rest[taken..];
        }
        assert_eq!((seen, framer.held()), (vec![true, true, false, true], 4));
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_lines(
            bytes in proptest::collection::vec(prop_oneof![3 => Just(b'\n'), 1 => Just(b'\r'), 8 => any::<u8>()], 0..400),
            cuts in proptest::collection::vec(0usize..400, 0..20),
        ) {
            let whole = lines(&mut framer(), &[&bytes]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(lines(&mut framer(), &chunks), whole);
        }
    }
}
