//! Lines of any bytes, of a bounded length: of a longer one the rest is passed over, and said so.

use std::io::{self, BufRead};

/// The longest line that is held.
pub(super) const MAX_LINE: usize = 1024 * 1024;

/// One line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Without its end.
    pub(super) text: Vec<u8>,
    /// More of it was passed over.
    pub(super) is_cut: bool,
    /// A line end came after it.
    pub(super) is_ended: bool,
}

/// The lines of a stream.
pub(super) struct Lines<R> {
    from: R,
    drained: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, drained: false }
    }

    /// Whether the next line has to be waited for.
    pub(super) fn is_drained(&self) -> bool {
        self.drained
    }

    /// The next line; none at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        let mut line = Line::default();
        let mut anything = false;
        loop {
            let bytes = match self.from.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if bytes.is_empty() {
                self.drained = true;
                return Ok(anything.then_some(line));
            }
            anything = true;
            let end = memchr::memchr(b'\n', bytes);
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let room = MAX_LINE - line.text.len();
            line.is_cut |= part.len() > room;
            line.text.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(end.is_some());
            self.drained = used == bytes.len();
            self.from.consume(used);
            if end.is_some() {
                line.is_ended = true;
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn lines(bytes: &[u8]) -> Vec<Line> {
        let mut lines = Lines::new(BufReader::with_capacity(7, bytes));
        std::iter::from_fn(|| lines.next().unwrap()).collect()
    }

    #[test]
    fn lines_are_cut_at_their_ends_and_nowhere_else() {
        let line = |text: &[u8], is_ended| Line {
            text: text.to_vec(),
            is_cut: false,
            is_ended,
        };
        assert_eq!(lines(b""), []);
        assert_eq!(
            lines(b"one, longer than the buffer\n\n\xff\x00\r\nlast"),
            [
                line(b"one, longer than the buffer", true),
                line(b"", true),
                line(b"\xff\x00\r", true),
                line(b"last", false)
            ]
        );
    }

    #[test]
    fn a_line_without_end_takes_no_more_memory_than_it_may() {
        let mut long = vec![b'x'; 3 * MAX_LINE];
        long.extend_from_slice(b"\nnext\n");
        let found = lines(&long);
        assert_eq!((found[0].text.len(), found[0].is_cut), (MAX_LINE, true));
        assert_eq!((&*found[1].text, found[1].is_cut), (b"next".as_slice(), false));
    }
}
