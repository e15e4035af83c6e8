//! Who holds a claim: `host:pid:start:random`, unique per claim.
//!
//! Host, process id and start time together name a process, so that another process on the same machine can see whether it
//! still runs; the random part distinguishes two claims of one process.

use std::fmt;

/// The holder of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimOwner {
    /// The machine's name; no colon.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// When the process started, in a form that differs between boots; no colon.
    pub start: String,
    /// Distinguishes claims of one process.
    pub random: u64,
}

impl ClaimOwner {
    /// Reads a token; `None` if it is none of ours.
    pub fn parse(token: &str) -> Option<Self> {
        let mut parts = token.split(':');
        let owner = Self {
            host: parts.next()?.to_owned(),
            pid: parts.next()?.parse().ok()?,
            start: parts.next()?.to_owned(),
            random: u64::from_str_radix(parts.next()?, 16).ok()?,
        };
        parts.next().is_none().then_some(owner)
    }

    /// The same process, with another claim.
    #[must_use]
    pub fn with_random(&self, random: u64) -> Self {
        Self {
            random,
            ..self.clone()
        }
    }

    /// Whether both are claims of one process.
    pub fn is_same_process(&self, other: &Self) -> bool {
        (&self.host, self.pid, &self.start) == (&other.host, other.pid, &other.start)
    }
}

impl fmt::Display for ClaimOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}:{:016x}",
            self.host, self.pid, self.start, self.random
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_round_trips() {
        let owner = ClaimOwner {
            host: "box".into(),
            pid: 7,
            start: "ab12-99".into(),
            random: 255,
        };
        assert_eq!(owner.to_string(), "box:7:ab12-99:00000000000000ff");
        assert_eq!(ClaimOwner::parse(&owner.to_string()), Some(owner.clone()));
        assert!(owner.is_same_process(&owner.with_random(1)));
        for other in ["bag:7:ab12-99:ff", "box:8:ab12-99:ff", "box:7:ab12-98:ff"] {
            let other = ClaimOwner::parse(other).unwrap();
            assert!(!owner.is_same_process(&other), "{other}");
        }
        for other in ["", "m1", "host:1", "h:x:s:1", "h:1:s:1:2", "h:1:s:zz"] {
            assert_eq!(ClaimOwner::parse(other), None, "{other}");
        }
    }
}
