//! The remover for Hermes' `.env`: takes a few keys out and leaves every other byte as it stands.
//!
//! The file is replaced whole or not at all, and only when every other key still reads the same. It never creates a
//! file, never prints a value and never widens a mode.

use std::fs;
use std::io;
use std::path::Path;

use zeroize::Zeroizing;

use super::dotenv::{self, Dotenv, Kind, is_space};
use super::dotenv_write::{WriteError, follow, replace};

/// The `keys` that the `.env` file at `path` assigns, in the order in which they are asked for.
pub fn present(path: &Path, keys: &[&'static str]) -> Result<Vec<&'static str>, WriteError> {
    let text = read(path)?;
    let held: Vec<String> = dotenv::bindings(&text)
        .filter_map(|binding| match binding.kind {
            Kind::Assignment { key, .. } => Some(key.to_string()),
            Kind::Unreadable => None,
        })
        .collect();
    let there = |key: &&&str| held.iter().any(|held| held == **key);
    Ok(keys.iter().filter(there).copied().collect())
}

/// Removes every assignment of `keys` from the `.env` file at `path`. Mode and owner are kept, and a symbolic link stays
/// one. A file that is not there, or holds none of them, is left alone.
pub fn remove(path: &Path, keys: &[&str]) -> Result<(), WriteError> {
    let target = follow(path)?;
    let before = read(&target)?;
    let after = Zeroizing::new(without(&before, keys));
    if *after == *before {
        return Ok(());
    }
    settle(&target, &before, &after, keys)?;
    replace(&target, &after).map_err(|source| WriteError::Io {
        path: target.clone(),
        source,
    })
}

fn read(path: &Path) -> Result<Zeroizing<String>, WriteError> {
    match fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Zeroizing::new(text)),
            Err(_) => Err(WriteError::NotText(path.to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Zeroizing::default()),
        Err(source) => Err(WriteError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The text without the lines that assign `keys`.
fn without(present: &str, keys: &[&str]) -> String {
    let mut text = String::with_capacity(present.len());
    let mut kept = 0;
    for binding in dotenv::bindings(present) {
        let Kind::Assignment { key, .. } = binding.kind else {
            continue;
        };
        if !keys.contains(&key) {
            continue;
        }
        // The indentation of the line goes with it.
        let lead = &present[kept..binding.span.start];
        let lead = lead.trim_end_matches(|c| is_space(c) && !matches!(c, '\n' | '\r'));
        text.push_str(lead);
        kept = binding.span.end;
    }
    text.push_str(&present[kept..]);
    text
}

/// Refuses a text that still assigns a key, or that would change any other.
fn settle(path: &Path, before: &str, after: &str, keys: &[&str]) -> Result<(), WriteError> {
    let none = |_: &str| None;
    let (old, new) = (Dotenv::parse(before, &none), Dotenv::parse(after, &none));
    // Another key that refers to a removed one loses what it referred to; only what is plain must stay the same.
    let refers = before.contains("${");
    let others = |key: &&str| !keys.contains(key);
    let same = refers
        || old
            .keys()
            .filter(others)
            .all(|key| old.value(key) == new.value(key));
    let gone = keys.iter().all(|key| new.value(key).is_none());
    if same && gone && new.skipped_lines().len() == old.skipped_lines().len() {
        return Ok(());
    }
    Err(WriteError::Unsettled {
        path: path.to_owned(),
        line: old.skipped_lines().first().copied().unwrap_or(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    const KEYS: [&str; 2] = ["ID", "SECRET"];

    fn removed(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".env");
        fs::write(&path, text).unwrap();
        remove(&path, &KEYS).unwrap();
        assert_eq!(present(&path, &KEYS).unwrap(), Vec::<&str>::new());
        fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn every_assignment_goes_and_every_other_byte_stays() {
        for (text, wanted) in [
            (
                "# top\nA=1\n\n  export ID=old # note\nB='two'\nSECRET=x\n#ID=comment\nID=again\nlast=x",
                "# top\nA=1\n\nB='two'\n#ID=comment\nlast=x",
            ),
            ("\u{feff}SECRET=\"one\r\ntwo\"\r\nB=1\r\n", "\u{feff}B=1\r\n"),
            ("ID=1\nSECRET=2", ""),
            ("IDS=1\nMY_SECRET=2\n", "IDS=1\nMY_SECRET=2\n"),
            ("A=1 # ID=2\nB='\nID=3\n'\n", "A=1 # ID=2\nB='\nID=3\n'\n"),
            ("A=1\n\n\tID=2\n\n  B=3\n", "A=1\n\n\n  B=3\n"),
        ] {
            assert_eq!(removed(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn mode_and_links_stay_and_a_missing_file_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real.env");
        fs::write(&real, "ID=1\nA=1\n").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join(".env");
        symlink("real.env", &link).unwrap();
        assert_eq!(present(&link, &KEYS).unwrap(), ["ID"]);
        remove(&link, &KEYS).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "A=1\n");
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o7777, 0o640);
        let none = dir.path().join("none");
        remove(&none, &KEYS).unwrap();
        assert!(!none.exists());
    }

    #[test]
    fn a_file_that_cannot_be_rewritten_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".env");
        fs::write(&path, b"# caf\xe9\nID=1\n").unwrap();
        assert!(matches!(remove(&path, &KEYS), Err(WriteError::NotText(_))));
        assert_eq!(fs::read(&path).unwrap(), b"# caf\xe9\nID=1\n");
    }
}
