//! WhatsApp's alias files: which phone number and which opaque id are one person.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::wire::WhatsAppAliases;

/// Largest alias file that is read.
const LARGEST_FILE: u64 = 64 * 1024;

/// How long an answer is good; the bridge adds to its files at any time.
const FRESH: Duration = Duration::from_secs(60);
/// Answers that are kept; at the bound all are forgotten and asked for again.
const MOST_ANSWERS: usize = 4096;

/// The `lid-mapping-<id>.json` files that a WhatsApp bridge leaves in Hermes' home. Unreadable ones count as
/// absent. Answers are kept for a minute, so that a slow disk is not asked for every message.
#[derive(Debug)]
pub struct AliasFiles {
    directories: [PathBuf; 2],
    answers: Mutex<HashMap<String, (Instant, Vec<String>)>>,
}

impl AliasFiles {
    /// The alias files below Hermes' home, new and old place.
    pub fn below(hermes_home: &Path) -> Self {
        Self {
            directories: [
                hermes_home.join("platforms/whatsapp/session"),
                hermes_home.join("whatsapp/session"),
            ],
            answers: Mutex::default(),
        }
    }
}

impl WhatsAppAliases for AliasFiles {
    fn aliases_of(&self, id: &str) -> Vec<String> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, known)) = answers.get(id)
            && since.elapsed() < FRESH
        {
            return known.clone();
        }
        if answers.len() >= MOST_ANSWERS {
            answers.clear();
        }
        let aliases = self.read(id);
        answers.insert(id.to_owned(), (Instant::now(), aliases.clone()));
        aliases
    }
}

impl AliasFiles {
    fn read(&self, id: &str) -> Vec<String> {
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
