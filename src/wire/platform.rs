//! Platform names that the contract knows.

use std::fmt;

/// A platform by its canonical lower-case name; everything unknown is `relay`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Platform(&'static str);

#[rustfmt::skip]
const KNOWN: &[&str] = &[
    "api_server", "bluebubbles", "dingtalk", "discord", "email", "feishu", "google_chat", "homeassistant",
    "irc", "line", "local", "matrix", "mattermost", "msgraph_webhook", "ntfy", "photon", "qqbot", "raft",
    "relay", "signal", "simplex", "slack", "sms", "teams", "telegram", "webhook", "wecom",
    "wecom_callback", "weixin", "whatsapp", "whatsapp_cloud", "yuanbao",
];

impl Platform {
    /// The placeholder for "no platform that we know".
    pub const RELAY: Self = Self("relay");
    /// Discord.
    pub const DISCORD: Self = Self("discord");
    /// Slack.
    pub const SLACK: Self = Self("slack");
    /// Telegram.
    pub const TELEGRAM: Self = Self("telegram");
    /// WhatsApp.
    pub const WHATSAPP: Self = Self("whatsapp");

    /// Reads a name from the wire; case and surrounding space do not count, unknown names are `relay`.
    pub fn from_wire(name: &str) -> Self {
        let find = |name: &str| KNOWN.binary_search(&name).ok().map(|at| Self(KNOWN[at]));
        find(name)
            .or_else(|| find(&name.trim().to_lowercase()))
            .unwrap_or(Self::RELAY)
    }

    /// The canonical name.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl serde::Serialize for Platform {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_sorted() {
        assert!(KNOWN.is_sorted());
        assert!(
            KNOWN
                .iter()
                .all(|name| Platform::from_wire(name).as_str() == *name)
        );
    }

    #[test]
    fn names_are_folded_and_unknown_ones_are_relay() {
        assert_eq!(Platform::from_wire(" Telegram "), Platform::TELEGRAM);
        assert_eq!(Platform::from_wire("myspace"), Platform::RELAY);
        assert_eq!(Platform::from_wire(""), Platform::RELAY);
    }
}
