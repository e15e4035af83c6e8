//! Who somebody is: one form of a platform's name and of a person's id, whoever wrote them and however.
//!
//! The parser of commands, the settings file, stored rules and the authors of messages and jobs all make a [`PersonId`], so
//! that a rule which names a person in one spelling holds for every other.
//!
//! | platform | the same person |
//! |---|---|
//! | every one | its name in any case; `+49151234` and `49151234`, also `+49 151-234` |
//! | WhatsApp | `49151234`, `49151234@s.whatsapp.net`, `49151234:12@s.whatsapp.net`; `9000@lid` is somebody else than `9000` |
//! | Signal, SMS, `bluebubbles`, e-mail | numbers with and without `+`, addresses in any case |
//! | a connector's own | addresses (`name@host.example`) in any case |

use std::fmt;

use smol_str::{SmolStr, StrExt as _};

use super::settings::{ANY, platform_name};
use crate::wire::Platform;

/// Maximum length of an id that a rule may name.
const MAX_ID_BYTES: usize = 512;
/// What people write between the digits of a telephone number.
const SEPARATORS: [char; 7] = [' ', '-', '(', ')', '.', '/', '\u{a0}'];
/// The domain of WhatsApp's ids that are no telephone numbers.
const LID: &str = "lid";

/// A person on a platform, in the one form that rules are compared in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersonId {
    platform: SmolStr,
    user: SmolStr,
}

impl PersonId {
    /// The person with this id on this platform.
    pub fn new(platform: &str, id: &str) -> Self {
        let platform = canonical_platform(platform);
        let user = canonical_id(&platform, id);
        Self { platform, user }
    }

    /// Reads `PLATFORM:ID`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "write a person as PLATFORM:ID, such as telegram:123456".to_owned();
        let (platform, user) = text.split_once(':').ok_or_else(wrong)?;
        let user = user.trim();
        if user.is_empty() || user.len() > MAX_ID_BYTES || user.chars().any(char::is_control) {
            return Err(wrong());
        }
        if user == ANY {
            return Err("name one person; `*` is not accepted".to_owned());
        }
        let platform = platform_name(platform).map_err(|rule| format!("`{text}` {rule}"))?;
        Ok(Self::new(&platform, user))
    }

    /// Reads the person whom a rule is to let in: no name, which nobody who writes is known by.
    pub fn parse_admitted(text: &str) -> Result<Self, String> {
        let person = Self::parse(text)?;
        if person.is_name() {
            return Err(format!(
                "`{person}` is a name, and names can change: write the number that the platform gave them, such as {}:123456; \
                 /whoami in a chat shows it",
                person.platform
            ));
        }
        Ok(person)
    }

    /// Whether this is a name where the platform gives numbers: a rule about it holds for nobody.
    pub fn is_name(&self) -> bool {
        self.should_be_number() && (self.user.starts_with('@') || self.user.contains('#'))
    }

    /// Whether this is no number where the platform gives numbers. A connector may give others.
    pub fn is_unusual(&self) -> bool {
        let number = self.user.strip_prefix('-').unwrap_or(&self.user);
        self.should_be_number() && !number.bytes().all(|byte| byte.is_ascii_digit())
    }

    fn should_be_number(&self) -> bool {
        matches!(self.platform.as_str(), "telegram" | "discord")
    }

    /// The platform.
    pub fn platform(&self) -> &str {
        &self.platform
    }

    /// Their id on it.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Another id that may be this person's: a denial of it holds for them too.
    pub(super) fn alike(&self) -> Option<Self> {
        if !matches!(self.platform.as_str(), "whatsapp" | "whatsapp_cloud") {
            return None;
        }
        let alike = Self::new(&self.platform, &bare_whatsapp_id(&self.user));
        (alike != *self).then_some(alike)
    }

    /// Whether a rule of the settings, in its canonical form, names this person.
    pub(super) fn is_named(&self, platform: &str, user: &str) -> bool {
        if platform == ANY {
            return canonical_id(&self.platform, user) == self.user;
        }
        self.platform == platform && self.user == user
    }
}

impl fmt::Display for PersonId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.platform, self.user)
    }
}

/// The name of a platform in the form that rules are compared in.
pub(super) fn canonical_platform(name: &str) -> SmolStr {
    if name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
        return name.into();
    }
    name.trim().to_lowercase_smolstr()
}

/// The id of a person or a chat in the form that rules are compared in, on a platform by its canonical name.
pub(super) fn canonical_id(platform: &str, id: &str) -> SmolStr {
    let id = id.trim();
    let international = || id.starts_with('+').then(|| digits(id)).flatten();
    let found = match platform {
        "whatsapp" | "whatsapp_cloud" => return whatsapp_id(id).into(),
        "signal" | "sms" | "bluebubbles" | "email" => digits(id).or_else(|| Some(id.to_lowercase())),
        _ if id.bytes().all(|byte| byte.is_ascii_digit()) => None,
        known if Platform::names().contains(&known) => international(),
        _ => international().or_else(|| is_address(id).then(|| id.to_lowercase())),
    };
    found.map_or_else(|| id.into(), SmolStr::from)
}

/// The form of a WhatsApp id without its domain and device, which may mean one person or another.
pub(super) fn bare_whatsapp_id(id: &str) -> String {
    let id = whatsapp_id(id.trim());
    id.split('@').next().unwrap_or_default().to_owned()
}

/// The form of an id that is known to be one of WhatsApp's ids that are no telephone numbers.
pub(super) fn lid(id: &str) -> String {
    format!("{}@{LID}", bare_whatsapp_id(id))
}

fn whatsapp_id(id: &str) -> String {
    let id = id.to_lowercase();
    let (name, domain) = id.split_once('@').unwrap_or((&id, ""));
    let mut name = name.split(':').next().unwrap_or_default();
    if !domain.is_empty() {
        // The number of an agent, in ids of some libraries.
        name = name.split('_').next().unwrap_or_default();
    }
    let name = digits(name).unwrap_or_else(|| name.to_owned());
    match domain {
        _ if name.is_empty() => id,
        "" | "s.whatsapp.net" | "c.us" | "hosted" => name,
        LID | "hosted.lid" => format!("{name}@{LID}"),
        domain => format!("{name}@{domain}"),
    }
}

/// The digits of a telephone number, if it is one.
fn digits(text: &str) -> Option<String> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits = text.replace(SEPARATORS, "");
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(digits)
}

/// Whether an id has the form of an e-mail address.
fn is_address(id: &str) -> bool {
    id.split_once('@')
        .is_some_and(|(name, host)| !name.is_empty() && host.contains('.') && !host.contains('@'))
}
