//! How long a recording is, as far as its file says so.

/// Samples per second that positions in an Ogg Opus file count, whatever the recording has.
const OPUS_RATE: u64 = 48_000;

/// The length of a recording in seconds, rounded up, from the beginning and the end of its file and the file's size: Ogg
/// (Opus, Vorbis), WAV and MP4. `None` for other files.
pub fn recording_secs(head: &[u8], tail: &[u8], size: u64) -> Option<u64> {
    if head.starts_with(b"OggS") {
        let rate = match find(head, b"OpusHead") {
            Some(_) => OPUS_RATE,
            None => u64::from(u32_le(head, find(head, b"\x01vorbis")? + 12)?),
        };
        let page = tail.windows(4).rposition(|window| window == b"OggS")?;
        let samples = tail.get(page + 6..page + 14)?;
        let samples = u64::from_le_bytes(samples.try_into().ok()?);
        // All bits are set on a page where nothing ends.
        return (samples != u64::MAX && rate > 0).then(|| samples.div_ceil(rate));
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WAVE") {
        let bytes_per_sec = u64::from(u32_le(head, find(head, b"fmt ")? + 16)?);
        return (bytes_per_sec > 0).then(|| size.div_ceil(bytes_per_sec));
    }
    if head.get(4..8) == Some(b"ftyp") {
        let (bytes, at) = [head, tail]
            .into_iter()
            .find_map(|bytes| Some((bytes, find(bytes, b"mvhd")?)))?;
        let (rate, units) = if *bytes.get(at + 4)? == 0 {
            (u32_be(bytes, at + 16)?, u64::from(u32_be(bytes, at + 20)?))
        } else {
            let units = bytes.get(at + 28..at + 36)?;
            (
                u32_be(bytes, at + 24)?,
                u64::from_be_bytes(units.try_into().ok()?),
            )
        };
        return (rate > 0).then(|| units.div_ceil(u64::from(rate)));
    }
    None
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn u32_le(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u32_be(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first page of an Ogg file with this codec header, and the last one at this position.
    fn ogg(codec: &[u8], samples: u64) -> Vec<u8> {
        let mut file = b"OggS\0\x02".to_vec();
        file.extend(0u64.to_le_bytes());
        file.extend(codec);
        file.extend(b"OggS\0\x04");
        file.extend(samples.to_le_bytes());
        file.extend(*b"and the rest");
        file
    }

    fn secs(file: &[u8]) -> Option<u64> {
        recording_secs(file, file, file.len() as u64)
    }

    #[test]
    fn files_say_how_long_they_are() {
        assert_eq!(secs(&ogg(b"OpusHead", 48_000 * 90 + 1)), Some(91));
        let mut vorbis = b"\x01vorbis\0\0\0\0\x01".to_vec();
        vorbis.extend(16_000u32.to_le_bytes());
        assert_eq!(secs(&ogg(&vorbis, 32_000)), Some(2));
        let mut wav = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        wav.extend(8_000u32.to_le_bytes());
        wav.extend(16_000u32.to_le_bytes());
        assert_eq!(recording_secs(&wav, &wav, 16_000 * 7), Some(7));
        let mut mp4 = b"\0\0\0\x18ftypM4A mvhd\0\0\0\0".to_vec();
        mp4.extend([0; 8]);
        mp4.extend(1000u32.to_be_bytes());
        mp4.extend(61_000u32.to_be_bytes());
        assert_eq!(secs(&mp4), Some(61));
    }

    #[test]
    fn other_files_and_broken_ones_say_nothing() {
        let whole = ogg(b"OpusHead", 48_000);
        for length in 0..whole.len() - 12 {
            let _ = secs(&whole[..length]);
        }
        assert_eq!(secs(b"OggS OpusHead"), None);
        assert_eq!(secs(&ogg(b"OpusHead", u64::MAX)), None);
        assert_eq!(
            secs(b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\0\0\0\0\0\0\0\0"),
            None
        );
        assert_eq!(secs(b"\0\0\0\x18ftypM4A "), None);
        assert_eq!(secs(b"ID3 mp3"), None);
        assert_eq!(secs(b""), None);
    }
}
