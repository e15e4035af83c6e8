//! Files of a bot: downloads by Telegram's file ids, and files of agents that wait on this machine until they are uploaded.
//!
//! An op that sends a file outlives the turn and the process, so the file is copied at once. The copy is removed when it was
//! sent; what is left of ops that never were is removed by age.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::Response;
use serde_json::{Map, Value};

use super::error::MediaError;
use super::files::OutgoingFile;
use crate::direct::telegram::{ApiAnswer, FileAddress, FilePlace};
use crate::net::telegram::BotClient;
use crate::text::percent_encode;
use crate::wire::{Action, AlbumFile};

/// The directory of copies, beside those of turns.
const DIRECTORY: &str = "outgoing";
/// How long a copy that was not sent is kept.
const KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Maximum bytes of copies; further files are not sent.
const MAX_TOTAL: u64 = 512 * 1024 * 1024;

/// The files of a bot.
#[derive(Debug)]
pub struct BotFiles {
    /// The server of files that have no public address, if the platform has one.
    client: Option<Arc<BotClient>>,
    /// The platforms of the bots.
    platforms: Vec<&'static str>,
    outgoing: PathBuf,
}

impl BotFiles {
    /// Files in `media`, the directory of attachments. Creates nothing yet.
    pub fn new(client: Option<Arc<BotClient>>, platforms: Vec<&'static str>, media: &Path) -> Self {
        let outgoing = media.join(DIRECTORY);
        Self {
            client,
            platforms,
            outgoing,
        }
    }

    /// Whether one of the bots is on this platform.
    pub(super) fn serve(&self, platform: &str) -> bool {
        self.platforms.contains(&platform)
    }

    /// Creates the directory for the owner only, and removes copies that nobody sends any more.
    pub(super) fn open(&self) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.outgoing)?;
        self.sweep()
    }

    fn sweep(&self) -> io::Result<()> {
        let old = SystemTime::now().checked_sub(KEEP);
        for entry in fs::read_dir(&self.outgoing)? {
            let entry = entry?;
            let modified = entry.metadata().and_then(|found| found.modified());
            if modified.is_ok_and(|modified| Some(modified) < old) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Requests a file from Telegram's servers.
    pub(super) async fn fetch(&self, id: &str) -> Result<Response, MediaError> {
        let body = Map::from_iter([("file_id".to_owned(), Value::from(id))]);
        let client = self.client.as_ref().ok_or(MediaError::NoId)?;
        let path = match client.call("getFile", &body).await {
            ApiAnswer::Ok(file) => file.get("file_path").and_then(Value::as_str).map(str::to_owned),
            ApiAnswer::Error { code, .. } => {
                return Err(MediaError::Status(u16::try_from(code).unwrap_or_default()));
            }
            ApiAnswer::NotSent(why) => return Err(MediaError::Unreachable(why)),
            ApiAnswer::Unknown => return Err(MediaError::Unreachable("no usable answer".to_owned())),
        };
        let path = path.as_deref().and_then(encoded).ok_or(MediaError::NoId)?;
        let response = client.file(&path).await?;
        if !response.status().is_success() {
            return Err(MediaError::Status(response.status().as_u16()));
        }
        Ok(response)
    }

    /// Copies a file of an agent and returns the address of the copy. Blocks on the disk.
    pub(super) fn keep(&self, outgoing: OutgoingFile, name: &str) -> Result<String, MediaError> {
        let disk = MediaError::Disk;
        self.sweep().map_err(disk)?;
        let mut total = outgoing.length;
        for entry in fs::read_dir(&self.outgoing).map_err(disk)? {
            total = total.saturating_add(entry.and_then(|entry| entry.metadata()).map_err(disk)?.len());
        }
        if total > MAX_TOTAL {
            return Err(MediaError::TooLarge { max: MAX_TOTAL });
        }
        // Owner-only, and removed again when the copy fails.
        let mut copy = tempfile::Builder::new()
            .prefix("")
            .rand_bytes(32)
            .tempfile_in(&self.outgoing)
            .map_err(disk)?;
        let mut source = io::Read::take(outgoing.file, outgoing.length);
        io::copy(&mut source, &mut copy).map_err(disk)?;
        copy.as_file().sync_all().map_err(disk)?;
        let (_, path) = copy.keep().map_err(|error| disk(error.error))?;
        let address = FileAddress {
            place: FilePlace::Outgoing,
            id: path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            name: name.to_owned(),
        };
        Ok(address.to_string())
    }

    /// Where the copy behind an address is, and the name to show; `None` for other addresses.
    pub fn copy_of(&self, address: &str) -> Option<(PathBuf, String)> {
        let address = FileAddress::parse(address).filter(|address| address.place == FilePlace::Outgoing)?;
        Some((self.outgoing.join(&address.id), address.name))
    }

    /// An op succeeded: the copies of its files are not needed any more.
    pub async fn sent(&self, action: &Action) {
        let Action::SendMedia { source_url, .. } = action else {
            return;
        };
        let album = AlbumFile::of(action).into_iter().map(|file| file.source_url);
        for address in album.chain([source_url.clone()]) {
            if let Some((path, _)) = self.copy_of(&address) {
                let _ = tokio::fs::remove_file(path).await;
            }
        }
    }
}

/// A path of the server, encoded for an address; `None` if it leads out of its folder.
fn encoded(path: &str) -> Option<String> {
    let mut encoded = String::with_capacity(path.len());
    for (index, segment) in path.split('/').enumerate() {
        if segment.is_empty() || segment.bytes().all(|byte| byte == b'.') {
            return None;
        }
        encoded.push_str(if index == 0 { "" } else { "/" });
        encoded.extend(percent_encode(segment));
    }
    Some(encoded)
}

#[cfg(test)]
mod tests {
    use super::encoded;

    #[test]
    fn a_path_from_the_server_leads_nowhere_else() {
        for (path, address) in [
            ("photos/file_1.jpg", "photos/file_1.jpg"),
            ("a b/Zürich+1?.pdf", "a%20b/Z%C3%BCrich%2B1%3F.pdf"),
            ("a%2e%2e/b\\c", "a%252e%252e/b%5Cc"),
        ] {
            assert_eq!(encoded(path).as_deref(), Some(address));
        }
        for bad in ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/.", "a/"] {
            assert_eq!(encoded(bad), None, "{bad}");
        }
    }
}
