//! WhatsApp alias files: which phone number and which opaque id belong to one person.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::wire::WhatsAppAliases;

/// Maximum size of an alias file.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// How long a result is cached; the bridge may add files at any time.
const CACHE_TIME: Duration = Duration::from_secs(60);
/// Maximum number of cached results; then the cache is cleared.
const MAX_CACHED: usize = 4096;

/// The `lid-mapping-<id>.json` files of a WhatsApp bridge in Hermes' home. Unreadable ones are ignored. Results are cached
/// for a minute, so that not every message reads the disk.
#[derive(Debug)]
pub struct AliasFiles {
    directories: [PathBuf; 2],
    cache: Mutex<HashMap<String, (Instant, Vec<String>)>>,
}

impl AliasFiles {
    /// The alias files in Hermes' home, in the new and the old directory.
    pub fn new(hermes_home: &Path) -> Self {
        Self {
            directories: [
                hermes_home.join("platforms/whatsapp/session"),
                hermes_home.join("whatsapp/session"),
            ],
            cache: Mutex::default(),
        }
    }
}

impl WhatsAppAliases for AliasFiles {
    fn aliases_of(&self, id: &str) -> Vec<String> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, known)) = cache.get(id)
            && since.elapsed() < CACHE_TIME
        {
            return known.clone();
        }
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        let aliases = self.read(id);
        cache.insert(id.to_owned(), (Instant::now(), aliases.clone()));
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
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
