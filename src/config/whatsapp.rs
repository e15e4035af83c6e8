//! WhatsApp's alias files: which phone number and which opaque id are one person.

use std::path::{Path, PathBuf};

use crate::wire::WhatsAppAliases;

/// Largest alias file that is read.
const LARGEST_FILE: u64 = 64 * 1024;

/// The `lid-mapping-<id>.json` files that a WhatsApp bridge leaves in Hermes' home. Read on every question,
/// because the bridge adds to them at any time; unreadable ones count as absent.
#[derive(Clone, Debug)]
pub struct AliasFiles {
    directories: [PathBuf; 2],
}

impl AliasFiles {
    /// The alias files below Hermes' home, new and old place.
    pub fn below(hermes_home: &Path) -> Self {
        Self {
            directories: [
                hermes_home.join("platforms/whatsapp/session"),
                hermes_home.join("whatsapp/session"),
            ],
        }
    }
}

impl WhatsAppAliases for AliasFiles {
    fn aliases_of(&self, id: &str) -> Vec<String> {
        let names = [
            format!("lid-mapping-{id}.json"),
            format!("lid-mapping-{id}_reverse.json"),
        ];
        let paths = self
            .directories
            .iter()
            .flat_map(|dir| names.iter().map(|name| dir.join(name)));
        paths.filter_map(|path| read_alias(&path)).collect()
    }
}

fn read_alias(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > LARGEST_FILE {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
