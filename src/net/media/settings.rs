//! The `media` section: how attachments come in and go out.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How attachments come in and go out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MediaSettings {
    /// Whether attachments are downloaded; else agents get the addresses of those that anybody can open.
    pub download: bool,
    /// Bytes of the largest file, in either direction; a larger one is given up as soon as that is known.
    pub max_bytes: u64,
    /// Seconds that one download or upload may take, and that a download may wait for its place.
    pub timeout_secs: u64,
    /// Downloads at once, over all turns.
    pub parallel: usize,
    /// Attachments of one message that are downloaded; the rest stay as addresses.
    pub max_attachments: usize,
    /// Hosts (`host` or `host:port`) that attachments may come from although they are not on the public internet.
    pub allow_hosts: Vec<String>,
    /// Directories from which agents may send files, besides the one they work in.
    pub send_from: Vec<PathBuf>,
}

impl Default for MediaSettings {
    fn default() -> Self {
        Self {
            download: true,
            max_bytes: 25 * 1024 * 1024,
            timeout_secs: 30,
            parallel: 4,
            max_attachments: 16,
            allow_hosts: Vec::new(),
            send_from: Vec::new(),
        }
    }
}

impl MediaSettings {
    /// How long one download or upload may take; at least a second.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_secs.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_read_over_the_defaults_and_knows_its_keys() {
        let read = |json| serde_json::from_str::<MediaSettings>(json);
        assert_eq!(read("{}").unwrap(), MediaSettings::default());
        let some = read(r#"{"max_bytes": 7, "allow_hosts": ["h:1"]}"#).unwrap();
        assert_eq!((some.max_bytes, some.parallel), (7, 4));
        assert!(read(r#"{"max_byte": 7}"#).is_err());
    }
}
