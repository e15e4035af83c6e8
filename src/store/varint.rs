//! Numbers as bytes: seven bits a byte, the lowest first; signed ones zigzag.

/// Appends a number.
pub(super) fn put(bytes: &mut impl Extend<u8>, mut number: u64) {
    while number >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "the lowest seven bits")]
        bytes.extend([number as u8 | 0x80]);
        number >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "fewer than eight bits are left")]
    bytes.extend([number as u8]);
}

/// Appends a signed number.
pub(super) fn put_signed(bytes: &mut Vec<u8>, number: i64) {
    put(bytes, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

/// Takes a number off the front; `None` if there is none.
pub(super) fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Takes a signed number off the front; `None` if there is none.
pub(super) fn take_signed(rest: &mut &[u8]) -> Option<i64> {
    let number = take(rest)?;
    Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
}
