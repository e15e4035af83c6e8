//! Secrets within a value: the password in an address, and what the headers for a collector hold.
//!
//! Each is told by itself, as it is written and decoded, because a line may hold it without what stood around it.

use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use super::veil::Known;

/// Headers that hold no secret, and whose values are words of ordinary lines.
const OPEN: &[&str] = &["accept", "content-type", "user-agent"];

/// The password in an address.
pub(super) fn password(called: &str, address: &str) -> Vec<Known> {
    let written = || {
        let (_, rest) = address.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        // A password that should have been encoded may hold what ends an authority.
        let (login, _) = authority.rsplit_once('@').or_else(|| rest.rsplit_once('@'))?;
        login.split_once(':')
    };
    let name = format!("{called} (its password)");
    written().map_or_else(Vec::new, |(_, password)| forms(&name, password))
}

/// The value of each header in `name=value,name=value`, and what follows the name of a scheme in it.
pub(super) fn headers(called: &str, list: &SecretString) -> Vec<Known> {
    let pairs = list.expose_secret().split(',');
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    let mut found = Vec::new();
    for (name, value) in pairs.map(|(name, value)| (name.trim(), value.trim())) {
        if OPEN.iter().any(|open| name.eq_ignore_ascii_case(open)) {
            continue;
        }
        let name = format!("{called} ({name})");
        for whole in forms(&name, value) {
            found.extend(after_scheme(&whole));
            found.push(whole);
        }
    }
    found
}

fn after_scheme(whole: &Known) -> Option<Known> {
    let (scheme, rest) = whole.value.expose_secret().split_once(' ')?;
    let named = ["bearer", "basic"].contains(&scheme.to_ascii_lowercase().as_str());
    named.then(|| Known {
        name: whole.name.clone(),
        value: rest.trim().into(),
    })
}

/// A value as it is written, and decoded where that is another.
fn forms(name: &str, written: &str) -> Vec<Known> {
    let known = |value: &str| Known {
        name: name.to_owned(),
        value: value.into(),
    };
    let plain = decoded(written);
    let mut forms = vec![known(written)];
    forms.extend((*plain != written).then(|| known(&plain)));
    forms
}

/// Without percent-encoding; what is not encoded properly stays as it is.
fn decoded(written: &str) -> Zeroizing<String> {
    let bytes = written.as_bytes();
    let mut plain = Zeroizing::new(Vec::with_capacity(bytes.len()));
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        plain.push(value.unwrap_or(*byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    Zeroizing::new(String::from_utf8_lossy(&plain).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(found: &[Known]) -> Vec<&str> {
        found.iter().map(|known| known.value.expose_secret()).collect()
    }

    #[test]
    fn the_password_of_an_address_is_known_as_written_and_decoded() {
        let found = |address: &str| password("X", address);
        assert_eq!(values(&found("http://me:p%40ss@h:1/x")), ["p%40ss", "p@ss"]);
        assert_eq!(values(&found("http://me:pass@h/?mail=a@b")), ["pass"]);
        assert_eq!(values(&found("http://me:pa/ss@h")), ["pa/ss"]);
        assert_eq!(values(&found("http://me:50%@h")), ["50%"]);
        for none in ["", "h:1", "http://h:1/x", "http://me@h"] {
            assert!(found(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn each_header_is_known_by_itself_and_without_its_scheme() {
        let list = "authorization=Bearer%20abc%3Ddef, x-key=hunter2=,content-type=application/json".into();
        let found = headers("telemetry.headers", &list);
        assert_eq!(
            values(&found),
            ["Bearer%20abc%3Ddef", "abc=def", "Bearer abc=def", "hunter2="]
        );
        assert_eq!(found[0].name, "telemetry.headers (authorization)");
        assert!(headers("h", &"no pairs, at all".into()).is_empty());
    }
}
