//! Lines of bytes with a bound. A line that is too long is skipped as a whole; it never ends the reading.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Cuts what it reads into lines.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    longest: usize,
    skipped: u64,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads lines of at most `longest` bytes.
    pub(super) fn new(reader: R, longest: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(16 * 1024, reader),
            line: Vec::new(),
            longest,
            skipped: 0,
        }
    }

    /// Lines that were too long so far.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next line without its end; `None` at the end of input. A last line without an end is a line.
    pub(super) async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        // What a long line left behind is given back.
        self.line.shrink_to(64 * 1024);
        let mut too_long = false;
        loop {
            let bytes = self.reader.fill_buf().await?;
            if bytes.is_empty() {
                return Ok((!too_long && !self.line.is_empty()).then_some(self.line.as_slice()));
            }
            let end = memchr::memchr(b'\n', bytes);
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            too_long |= self.line.len() + piece.len() > self.longest;
            if too_long {
                self.line.clear();
            } else {
                self.line.extend_from_slice(piece);
            }
            let used = end.map_or(bytes.len(), |end| end + 1);
            self.reader.consume(used);
            match end {
                Some(_) if too_long => {
                    self.skipped += 1;
                    too_long = false;
                }
                Some(_) => return Ok(Some(&self.line)),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(input: &[u8], longest: usize) -> (Vec<String>, u64) {
        let mut lines = Lines::new(input, longest);
        let mut seen = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            seen.push(String::from_utf8(line.to_vec()).unwrap());
        }
        (seen, lines.skipped())
    }

    #[tokio::test]
    async fn long_lines_are_skipped_and_the_next_is_read() {
        let (seen, skipped) = all(b"one\n12345678\n\ntwo", 5).await;
        assert_eq!(
            (seen, skipped),
            (vec!["one".into(), String::new(), "two".into()], 1)
        );
        assert_eq!(all(b"12345\n123456\n", 5).await, (vec!["12345".to_owned()], 1));
        assert_eq!(all(b"", 5).await.0, Vec::<String>::new());
        assert_eq!(all(b"123456", 5).await.0, Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_line_longer_than_the_buffer_is_whole() {
        let long = "x".repeat(100_000);
        let (seen, _) = all(format!("{long}\n{long}y\nz\n").as_bytes(), 100_000).await;
        assert_eq!(seen, [long, "z".to_owned()]);
    }
}
