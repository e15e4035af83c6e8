//! What a bot remembers between runs, as one small file that is replaced as a whole. It is not synced: what was written survives the
//! end of the process, and the loss of power makes it older, never broken.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::Value;

/// Largest file that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// Reads the state; `null` if there is none that can be read.
pub fn read_bot_state(path: &Path) -> Value {
    let is_small = fs::metadata(path).is_ok_and(|found| found.len() <= MAX_BYTES);
    let bytes = is_small.then(|| fs::read(path).ok()).flatten();
    bytes
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

/// Replaces the state. The caller holds the state directory's lock.
pub fn write_bot_state(path: &Path, state: &Value) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&fresh)?.write_all(state.to_string().as_bytes())?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_written_is_read_and_a_broken_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert_eq!(read_bot_state(&path), Value::Null);
        write_bot_state(&path, &json!({"a": 1})).unwrap();
        assert_eq!(read_bot_state(&path), json!({"a": 1}));
        fs::write(&path, "{").unwrap();
        assert_eq!(read_bot_state(&path), Value::Null);
    }
}
