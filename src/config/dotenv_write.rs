//! The writer for Hermes' `.env`: sets a few keys and leaves every other line as it stands.
//!
//! The file is replaced whole or not at all, and only after the new text has been read back and gives
//! the values asked for. It never prints a value and never widens a mode.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::dotenv::{self, Dotenv, Kind, is_space};

/// How many symbolic links are followed to the real file.
const MAX_LINKS: usize = 16;

/// Why the file was not updated; it is untouched in every case.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The key is not a variable name.
    #[error("{0:?} is not a name for an environment variable")]
    Key(String),
    /// The value holds a NUL, which no environment can carry.
    #[error("the value for {0} holds a NUL character")]
    Value(String),
    /// The present file is not text this writer may rewrite.
    #[error("{path} is not UTF-8 text: convert it, then try again", path = .0.display())]
    NotText(PathBuf),
    /// With the new lines in place the file would read differently than asked for.
    #[error("{path} has an unfinished quote that would swallow new lines: fix line {line}, then try again", path = .path.display())]
    Unsettled {
        /// The file.
        path: PathBuf,
        /// The first line that cannot be read.
        line: usize,
    },
    /// The symbolic links at the path do not end.
    #[error("{path} is a circle of symbolic links", path = .0.display())]
    Links(PathBuf),
    /// The system refused.
    #[error("cannot write {path}: {source}", path = .path.display())]
    Io {
        /// The file or directory concerned.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Sets `entries` in the `.env` file at `path`, creating it (0600, in a 0700 directory) if need be.
///
/// An existing assignment is replaced where its first one stands and later ones go; new keys go to the
/// end. Line breaks in values are removed. Mode and owner of an existing file are kept, and a symbolic
/// link stays one.
pub fn update(path: &Path, entries: &[(&str, &str)]) -> Result<(), WriteError> {
    for (key, value) in entries {
        let mut chars = key.chars();
        let named = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !named {
            return Err(WriteError::Key((*key).to_owned()));
        }
        if value.contains('\0') {
            return Err(WriteError::Value((*key).to_owned()));
        }
    }
    let target = follow(path)?;
    let present = match fs::read(&target) {
        Ok(bytes) => Some(String::from_utf8(bytes).map_err(|_| WriteError::NotText(target.clone()))?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(WriteError::Io { path: target, source }),
    };
    let text = compose(present.as_deref().unwrap_or_default(), entries);
    settle(&target, present.as_deref().unwrap_or_default(), &text, entries)?;
    replace(&target, &text).map_err(|source| WriteError::Io {
        path: target.clone(),
        source,
    })
}

/// `entries` as the lines of a new file, for whoever keeps them elsewhere.
pub fn render(entries: &[(&str, &str)]) -> String {
    compose("", entries)
}

/// The text of the file after `entries` are set.
fn compose(present: &str, entries: &[(&str, &str)]) -> String {
    let newline = if present.contains("\r\n") { "\r\n" } else { "\n" };
    let mut written = vec![false; entries.len()];
    let mut text = String::with_capacity(present.len() + 256);
    let mut kept = 0;
    for binding in dotenv::bindings(present) {
        let Kind::Assignment { key, .. } = binding.kind else {
            continue;
        };
        // The last of two entries for one key is the one that holds.
        let Some(index) = entries.iter().rposition(|(name, _)| *name == key) else {
            continue;
        };
        text.push_str(&present[kept..binding.span.start]);
        kept = binding.span.end;
        if !std::mem::replace(&mut written[index], true) {
            let exported = present[binding.span].starts_with("export");
            push_line(&mut text, exported, entries[index], newline);
        }
    }
    text.push_str(&present[kept..]);
    for (index, entry) in entries.iter().enumerate() {
        let superseded = entries[index + 1..].iter().any(|(name, _)| *name == entry.0);
        if !written[index] && !superseded {
            if !text.is_empty() && text != "\u{feff}" && !text.ends_with('\n') {
                text.push_str(newline);
            }
            push_line(&mut text, false, *entry, newline);
        }
    }
    text
}

fn push_line(text: &mut String, exported: bool, (key, value): (&str, &str), newline: &str) {
    if exported {
        text.push_str("export ");
    }
    text.push_str(key);
    text.push('=');
    text.push_str(&quoted(value));
    text.push_str(newline);
}

/// The value as it is written: bare where that reads back the same, else in double quotes.
fn quoted(value: &str) -> String {
    // `${` would be taken for a reference; a reference to no name with the default `$` is a plain `$`.
    let value = one_line(value).replace("${", "${:-$}{");
    if !value.contains(|c| matches!(c, '#' | '"' | '\'') || is_space(c)) {
        return value;
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

fn one_line(value: &str) -> String {
    value.replace(['\r', '\n'], "")
}

/// Refuses a text that would not read back as asked, or that would change any other key.
fn settle(path: &Path, present: &str, text: &str, entries: &[(&str, &str)]) -> Result<(), WriteError> {
    let none = |_: &str| None;
    let (before, after) = (Dotenv::parse(present, &none), Dotenv::parse(text, &none));
    let asked = |key: &str| entries.iter().rev().find(|(name, _)| *name == key);
    // Another key that refers to an updated one follows it, so only what is plain must stay the same.
    let refers = present.contains("${");
    let same = refers
        || before
            .keys()
            .filter(|key| asked(key).is_none())
            .all(|key| before.value(key) == after.value(key));
    let set = entries.iter().all(|(key, _)| {
        asked(key).is_some_and(|(_, value)| after.value(key) == Some(one_line(value).as_str()))
    });
    if same && set && after.skipped_lines().len() == before.skipped_lines().len() {
        return Ok(());
    }
    let line = before
        .skipped_lines()
        .first()
        .or(after.skipped_lines().first())
        .copied()
        .unwrap_or(1);
    Err(WriteError::Unsettled {
        path: path.to_owned(),
        line,
    })
}

/// The file that `path` finally names, existing or not.
pub(super) fn follow(path: &Path) -> Result<PathBuf, WriteError> {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(WriteError::Links(path.to_owned()))
}

pub(super) fn replace(target: &Path, text: &str) -> io::Result<()> {
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !directory.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = tempfile::Builder::new()
        .prefix(".env.")
        .suffix(".tmp")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    if let Ok(present) = fs::metadata(target) {
        let mine = file.as_file().metadata()?;
        if (mine.uid(), mine.gid()) != (present.uid(), present.gid()) {
            std::os::unix::fs::fchown(file.as_file(), Some(present.uid()), Some(present.gid()))?;
        }
        file.as_file()
            .set_permissions(Permissions::from_mode(present.mode() & 0o7777))?;
    }
    file.as_file().sync_all()?;
    file.persist(target).map_err(|error| error.error)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn home() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn read(path: &Path) -> Dotenv {
        Dotenv::read(path, &|_| None).unwrap().unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_new_file_is_private_in_a_private_directory() {
        let dir = home();
        let path = dir.path().join("fresh/.env");
        update(
            &path,
            &[("GATEWAY_RELAY_ID", "gw-1"), ("GATEWAY_RELAY_SECRET", "abc")],
        )
        .unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "GATEWAY_RELAY_ID=gw-1\nGATEWAY_RELAY_SECRET=abc\n"
        );
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
    }

    #[test]
    fn other_lines_stay_and_duplicates_collapse_to_the_first() {
        let dir = home();
        let path = dir.path().join(".env");
        fs::write(
            &path,
            "# top\nA=1\n\n  export S=old # note\nB='two'\nS=older\n#S=comment\nS\nlast=x",
        )
        .unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        update(&path, &[("S", "new value"), ("T", "t")]).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "# top\nA=1\n\n  export S=\"new value\"\nB='two'\n#S=comment\nlast=x\nT=t\n"
        );
        assert_eq!(mode(&path), 0o640);
    }

    #[test]
    fn multi_line_values_byte_order_mark_and_crlf_are_respected() {
        let dir = home();
        let path = dir.path().join(".env");
        fs::write(&path, "\u{feff}S=\"one\r\ntwo\"\r\nB=1\r\n").unwrap();
        update(&path, &[("S", "x")]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "\u{feff}S=x\r\nB=1\r\n");
    }

    #[test]
    fn line_breaks_are_removed_and_the_last_entry_for_a_key_holds() {
        let dir = home();
        let path = dir.path().join(".env");
        update(&path, &[("A", "1"), ("A", "x\r\ny\n")]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "A=xy\n");
    }

    #[test]
    fn a_symbolic_link_stays_and_its_target_changes() {
        let dir = home();
        let real = dir.path().join("real.env");
        fs::write(&real, "A=1\n").unwrap();
        let link = dir.path().join(".env");
        symlink("real.env", &link).unwrap();
        update(&link, &[("A", "2")]).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "A=2\n");

        let circle = dir.path().join("circle");
        symlink("circle", &circle).unwrap();
        assert!(matches!(
            update(&circle, &[("A", "2")]),
            Err(WriteError::Links(_))
        ));
    }

    #[test]
    fn an_open_quote_that_would_swallow_the_new_line_is_refused_and_nothing_changes() {
        let dir = home();
        let path = dir.path().join(".env");
        let text = "A=1\nB=\"open\n";
        fs::write(&path, text).unwrap();
        let refused = update(&path, &[("S", "needs \"quotes\"")]).unwrap_err();
        assert!(
            matches!(refused, WriteError::Unsettled { line: 2, .. }),
            "{refused}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        update(&path, &[("S", "bare")]).unwrap();
        assert_eq!(read(&path).value("S"), Some("bare"));
    }

    #[test]
    fn a_failure_leaves_the_file_and_no_litter() {
        let dir = home();
        let path = dir.path().join(".env");
        fs::write(&path, b"# caf\xe9\nA=1\n").unwrap();
        assert!(matches!(
            update(&path, &[("A", "2")]),
            Err(WriteError::NotText(_))
        ));
        assert!(matches!(update(&path, &[("A B", "2")]), Err(WriteError::Key(_))));
        assert!(matches!(update(&path, &[("A", "\0")]), Err(WriteError::Value(_))));
        assert_eq!(fs::read(&path).unwrap(), b"# caf\xe9\nA=1\n");

        let taken = dir.path().join("directory");
        fs::create_dir(&taken).unwrap();
        assert!(matches!(
            update(&taken, &[("A", "2")]),
            Err(WriteError::Io { .. })
        ));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_reads_back(
            value in "[a-zA-Z0-9$#'\"\\\\{}:= \t\u{a0}\u{1c}é-]{0,24}",
            other in "[a-z$#'\"\\\\ ]{0,8}",
        ) {
            let text = compose("", &[("OTHER", &other), ("KEY", &value), ("LAST", &value)]);
            let read = Dotenv::parse(&text, &|_| Some("wrong".to_owned()));
            proptest::prop_assert_eq!(read.value("KEY"), Some(value.as_str()), "{}", text);
            proptest::prop_assert_eq!(read.value("LAST"), Some(value.as_str()));
            proptest::prop_assert_eq!(read.value("OTHER"), Some(other.as_str()));
            let again = compose(&text, &[("KEY", "x")]);
            let read = Dotenv::parse(&again, &|_| None);
            proptest::prop_assert_eq!(read.value("KEY"), Some("x"));
            proptest::prop_assert_eq!(read.value("LAST"), Some(value.as_str()));
        }
    }
}
