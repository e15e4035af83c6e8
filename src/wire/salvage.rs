//! Slow paths for lines that strict JSON refuses.

/// Replaces escaped halves of surrogate pairs by U+FFFD; `None` when there are none.
///
/// Peers that cut text by UTF-16 units send such halves; their frames are otherwise sound.
pub(super) fn without_lone_surrogates(line: &[u8]) -> Option<Vec<u8>> {
    let mut mended = line.to_vec();
    let mut changed = false;
    let mut at = 0;
    while at + 1 < mended.len() {
        if mended[at] != b'\\' {
            at += 1;
            continue;
        }
        match (escape_at(&mended, at), escape_at(&mended, at + 6)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => at += 12,
            (Some(0xd800..0xe000), _) => {
                mended[at + 2..at + 6].copy_from_slice(b"fffd");
                changed = true;
                at += 6;
            }
            _ => at += 2,
        }
    }
    changed.then_some(mended)
}

/// The `\uXXXX` escape that starts at `at`.
fn escape_at(line: &[u8], at: usize) -> Option<u32> {
    let digits = line.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The `bufferId` of a line that does not parse, or of its end, found by its key. An escaped quote cannot pass
/// for the key's own, so message text cannot forge one.
pub(super) fn buffer_id(line: &[u8]) -> Option<String> {
    const KEY: &[u8] = b"\"bufferId\"";
    const LONGEST: usize = 256;
    let at = memchr::memmem::rfind(line, KEY)?;
    // Whatever was cut off before the first byte may have been the backslash.
    if at == 0 || line[at - 1] == b'\\' {
        return None;
    }
    let rest = line[at + KEY.len()..]
        .trim_ascii_start()
        .strip_prefix(b":")?
        .trim_ascii_start();
    if rest.first() == Some(&b'"') {
        let value = &rest[..rest.len().min(LONGEST)];
        let mut values = serde_json::Deserializer::from_slice(value).into_iter::<String>();
        return values.next()?.ok().filter(|id| !id.is_empty());
    }
    let digits: Vec<u8> = rest
        .iter()
        .copied()
        .take_while(u8::is_ascii_digit)
        .take(LONGEST)
        .collect();
    String::from_utf8(digits)
        .ok()
        .filter(|id| !id.is_empty() && id != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lone_halves_are_replaced() {
        let mend =
            |text: &str| without_lone_surrogates(text.as_bytes()).map(|b| String::from_utf8(b).unwrap());
        assert_eq!(mend(r#""\ud83d\ude00""#), None);
        assert_eq!(mend(r#""\\ud83d""#), None);
        assert_eq!(mend(r#""a\ud83d""#).as_deref(), Some(r#""a\ufffd""#));
        assert_eq!(
            mend(r#""\ude00\ud83d\ud83d\ude00""#).as_deref(),
            Some(r#""\ufffd\ufffd\ud83d\ude00""#)
        );
        assert_eq!(mend(r#""\ud8"#), None);
    }

    #[test]
    fn the_buffer_id_is_found_by_its_own_key_only() {
        assert_eq!(buffer_id(br#"{"x":NaN,"bufferId":"b1"}"#).as_deref(), Some("b1"));
        assert_eq!(buffer_id(br#"{"bufferId": 12, "x": nope"#).as_deref(), Some("12"));
        assert_eq!(buffer_id(br#"{"text":"\"bufferId\":\"forged\"" x"#), None);
        assert_eq!(buffer_id(br#"{"bufferId":"#), None);
        assert_eq!(buffer_id(br#""bufferId":"cut"}"#), None);
    }
}
