//! The length of a recording on this machine.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use crate::adapter::media::recording_secs;

/// Bytes at either end of a file that are looked at for the length of the recording.
const LOOK_BYTES: u64 = 64 * 1024;

/// The length of a recording in seconds, where its file states it.
pub async fn recording_length(path: &Path) -> Option<u64> {
    let path = path.to_owned();
    // Cancel-safe: the blocking task reads two pieces and closes the file.
    let read = tokio::task::spawn_blocking(move || {
        let mut file = std::fs::File::open(path).ok()?;
        let size = file.metadata().ok()?.len();
        let mut piece = |from: u64| {
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(from)).ok()?;
            (&file).take(LOOK_BYTES).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        };
        let (head, tail) = (piece(0)?, piece(size.saturating_sub(LOOK_BYTES))?);
        recording_secs(&head, &tail, size)
    });
    read.await.ok()?
}
