//! Somebody with several ids, for tests.

use crate::wire::WhatsAppAliases;

/// Ann on WhatsApp: the telephone number 491701111 and the id 9000 are one person.
pub(crate) struct Ann;

impl Ann {
    /// How her ids are spelled.
    pub(crate) const SPELLINGS: [&str; 4] = [
        "491701111@s.whatsapp.net",
        "491701111:12@s.whatsapp.net",
        "+491701111",
        "9000@lid",
    ];
}

impl WhatsAppAliases for Ann {
    fn aliases_of(&self, id: &str) -> Vec<String> {
        match id {
            "491701111" => vec!["9000".to_owned()],
            "9000" => vec!["491701111".to_owned()],
            _ => Vec::new(),
        }
    }
}
