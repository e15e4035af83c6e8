//! Numbers as bytes: seven bits a byte, the lowest first; signed ones zigzag.

/// Maximum bytes of a number.
const MAX_BYTES: usize = 10;

/// Appends a number.
pub(super) fn put(bytes: &mut impl Extend<u8>, mut number: u64) {
    if let Ok(small @ 0..0x80) = u8::try_from(number) {
        return bytes.extend([small]);
    }
    // Collected first, so that there is one check for room.
    let mut digits = [0; MAX_BYTES];
    let mut count = 0;
    for digit in &mut digits {
        #[expect(clippy::cast_possible_truncation, reason = "the lowest seven bits")]
        let low = number as u8 | 0x80;
        (*digit, number, count) = (low, number >> 7, count + 1);
        if number == 0 {
            *digit &= 0x7f;
            break;
        }
    }
    bytes.extend(digits[..count].iter().copied());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_takes_as_many_bytes_as_it_needs_and_comes_back() {
        let powers = (0..u64::BITS).map(|bit| 1 << bit);
        for number in powers.flat_map(|power: u64| [power - 1, power]).chain([u64::MAX]) {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            let bits = (u64::BITS - number.leading_zeros()).max(1);
            assert_eq!(bytes.len(), bits.div_ceil(7) as usize, "{number}");
            let mut rest = bytes.as_slice();
            assert_eq!(take(&mut rest), Some(number));
            assert!(rest.is_empty());
        }
    }
}
