//! Secret files.
//!
//! A file that other users can access is refused. The text never appears in an error or a log.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde_json::Value;
use zeroize::{Zeroize as _, Zeroizing};

/// Maximum size of a secret file.
const MAX_BYTES: u64 = 64 * 1024;

/// Why a secret file was refused.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be read.
    #[error("cannot read the secret file {path}: {source}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is a directory or a device.
    #[error("the secret file {path} is not a regular file", path = .0.display())]
    NotAFile(PathBuf),
    /// Other users can access it.
    #[error(
        "the secret file {path} is accessible to every user (mode {mode:04o}): run `chmod 600 {path}`, \
         or mount it with mode 0400",
        path = .path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is too large.
    #[error("the secret file {path} is larger than {MAX_BYTES} bytes: is it the right file?", path = .0.display())]
    TooLarge(PathBuf),
    /// It is not text.
    #[error("the secret file {path} is not UTF-8 text: is it the right file?", path = .0.display())]
    NotText(PathBuf),
    /// It is empty.
    #[error("the secret file {path} is empty: write the secret into it, or remove the setting", path = .0.display())]
    Empty(PathBuf),
}

/// Reads the secret file at `path`; trims white space.
pub fn read(path: &Path) -> Result<SecretString, SecretError> {
    let unreadable = |source| SecretError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let meta = std::fs::metadata(path).map_err(unreadable)?;
    if !meta.is_file() {
        return Err(SecretError::NotAFile(path.to_owned()));
    }
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(SecretError::Open {
            path: path.to_owned(),
            mode,
        });
    }
    let bytes = read_all(file, MAX_BYTES).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(SecretError::TooLarge(path.to_owned()));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| SecretError::NotText(path.to_owned()))?;
    parse(text.trim_start_matches('\u{feff}')).ok_or_else(|| SecretError::Empty(path.to_owned()))
}

/// Reads at most one byte more than `limit` into a buffer that is wiped when it is dropped.
pub(super) fn read_all(file: File, limit: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    // Allocate everything at the start: a buffer that grows leaves copies behind.
    let length = file.metadata()?.len().min(limit).saturating_add(1);
    let room = usize::try_from(length).unwrap_or_default().saturating_add(64);
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Converts a text to a secret and wipes the text.
pub(super) fn into_secret(text: String) -> SecretString {
    SecretString::from(Zeroizing::new(text).as_str())
}

/// Wipes every text in a value.
pub(super) fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    *value = Value::Null;
}

/// The trimmed text as a secret; `None` if it is empty.
pub fn parse(text: &str) -> Option<SecretString> {
    let text = text.trim();
    (!text.is_empty()).then(|| SecretString::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    fn file(dir: &tempfile::TempDir, bytes: &[u8], mode: u32) -> PathBuf {
        let path = dir.path().join("secret");
        let _ = fs::remove_file(&path);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_private_file_is_read_and_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [0o600, 0o400, 0o440] {
            let path = file(&dir, b"  s3cret value\n\n", mode);
            assert_eq!(read(&path).unwrap().expose_secret(), "s3cret value");
        }
    }

    #[test]
    fn a_file_is_read_into_one_buffer_and_values_are_wiped() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir, &[b'x'; 5000], 0o600);
        let bytes = read_all(File::open(&path).unwrap(), 8000).unwrap();
        assert_eq!((bytes.len(), bytes.capacity()), (5000, 5065), "it did not grow");
        assert_eq!(read_all(File::open(&path).unwrap(), 100).unwrap().len(), 101);
        let mut value = serde_json::json!({"a": ["s3cret", {"b": "s3cret"}], "c": 1});
        wipe(&mut value);
        assert_eq!(value, Value::Null);
    }

    #[test]
    fn a_file_accessible_to_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [0o644, 0o604, 0o602] {
            let path = file(&dir, b"s3cret", mode);
            let refused = read(&path).unwrap_err();
            assert!(matches!(refused, SecretError::Open { .. }));
            let text = refused.to_string();
            assert!(text.contains("chmod 600") && !text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn invalid_secret_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            read(&file(&dir, b" \n\t", 0o600)),
            Err(SecretError::Empty(_))
        ));
        assert!(matches!(
            read(&file(&dir, &[0xff, 0xfe], 0o600)),
            Err(SecretError::NotText(_))
        ));
        let huge = vec![b'x'; usize::try_from(MAX_BYTES).unwrap() + 1];
        assert!(matches!(
            read(&file(&dir, &huge, 0o600)),
            Err(SecretError::TooLarge(_))
        ));
        assert!(matches!(read(dir.path()), Err(SecretError::NotAFile(_))));
        assert!(matches!(
            read(&dir.path().join("none")),
            Err(SecretError::Unreadable { .. })
        ));
    }
}
