//! Text out of a stream of bytes: characters that were cut are put together, terminal colours are taken off.

use anstream::adapter::StripBytes;

/// Reads standard output as text, chunk by chunk. Invalid bytes become U+FFFD; carriage returns and the newlines at
/// the very end are left out.
#[derive(Debug, Default)]
pub(super) struct TextReader {
    strip: StripBytes,
    /// The start of a character whose rest has not come: at most three bytes.
    cut: Vec<u8>,
    /// Newlines that count only when something follows.
    newlines: usize,
}

impl TextReader {
    /// The text that a chunk completes; may be empty.
    pub(super) fn push(&mut self, chunk: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.cut);
        bytes.extend_from_slice(chunk);
        let mut decoded = String::with_capacity(bytes.len());
        let mut left = bytes.len();
        for piece in bytes.utf8_chunks() {
            left -= piece.valid().len() + piece.invalid().len();
            decoded.push_str(piece.valid());
            match piece.invalid() {
                [] => {}
                invalid if left == 0 && is_cut(invalid) => self.cut = invalid.to_vec(),
                _ => decoded.push(char::REPLACEMENT_CHARACTER),
            }
        }
        self.plain(&decoded)
    }

    /// What is left when nothing more comes.
    pub(super) fn end(&mut self) -> String {
        if std::mem::take(&mut self.cut).is_empty() {
            String::new()
        } else {
            self.plain("\u{FFFD}")
        }
    }

    /// Takes off what is for a terminal. Decoding comes first: the stripper would drop bytes that are no text.
    fn plain(&mut self, decoded: &str) -> String {
        let plain: Vec<u8> = self
            .strip
            .strip_next(decoded.as_bytes())
            .flatten()
            .copied()
            .collect();
        let mut text = String::with_capacity(plain.len());
        self.put(&String::from_utf8_lossy(&plain), &mut text);
        text
    }

    fn put(&mut self, piece: &str, text: &mut String) {
        for character in piece.chars() {
            match character {
                '\r' => {}
                '\n' => self.newlines += 1,
                _ => {
                    text.extend(std::iter::repeat_n('\n', std::mem::take(&mut self.newlines)));
                    text.push(character);
                }
            }
        }
    }
}

/// Whether these bytes are the start of a character, rather than wrong.
fn is_cut(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
        let mut reader = TextReader::default();
        let mut text: String = chunks
            .into_iter()
            .map(|chunk| reader.push(chunk.as_ref()))
            .collect();
        text.push_str(&reader.end());
        text
    }

    #[test]
    fn however_it_is_cut_it_reads_the_same() {
        let said = "grüße \u{1b}[1;31m日本\u{1b}[0m\n\n\u{1b}]0;title\u{7}🎉 end\r\n\n".as_bytes();
        let whole = read([said]);
        assert_eq!(whole, "grüße 日本\n\n🎉 end");
        for size in 1..said.len() {
            assert_eq!(read(said.chunks(size)), whole, "in chunks of {size}");
        }
    }

    #[test]
    fn wrong_bytes_are_replaced_and_nothing_is_lost_around_them() {
        assert_eq!(
            read([&b"a\xffb"[..], b"\xe6\x97", b"c", b"\xf0\x9f"]),
            "a\u{FFFD}b\u{FFFD}c\u{FFFD}"
        );
        assert_eq!(read([b"\n\n"]), "");
        assert_eq!(read([&b""[..]]), "");
        assert_eq!(read([&b"\n"[..], b"x\n"]), "\nx");
    }
}
