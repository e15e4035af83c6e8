//! Session keys as Hermes takes them in headers and bodies.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::wire::SessionKey;

/// Longest name that Hermes takes.
const MOST_CHARS: usize = 256;

/// The session's name at Hermes: its key where Hermes takes it, else a digest of it.
pub(super) fn session_name(key: &SessionKey) -> String {
    let key = key.as_str();
    if is_taken(key) {
        return key.to_owned();
    }
    let digest = Sha256::digest(key.as_bytes());
    let mut name = "relay-".to_owned();
    for byte in digest {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn is_taken(key: &str) -> bool {
    let drive = matches!(key.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic());
    // Visible ASCII only: a header carries nothing else safely.
    let plain = key.bytes().all(|byte| byte.is_ascii_graphic());
    !key.is_empty()
        && key.len() <= MOST_CHARS
        && plain
        && !drive
        && !key.contains("..")
        && !key.contains(['/', '\\'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_hermes_refuses_become_digests() {
        let name = |key: &str| session_name(&SessionKey::from_text(key.to_owned()));
        assert_eq!(name("agent:main:discord:dm:42"), "agent:main:discord:dm:42");
        for odd in [
            "",
            "a/b",
            "a\\b",
            "a..b",
            "c:x",
            "a b",
            "a\r\nX: y",
            "grüße",
            &"x".repeat(257),
        ] {
            let named = name(odd);
            assert!(
                named.starts_with("relay-") && named.len() == 70,
                "{odd:?}: {named}"
            );
        }
        assert_ne!(name("a/b"), name("a/c"));
        assert_eq!(name("a/b"), name("a/b"));
    }
}
