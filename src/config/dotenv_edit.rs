//! Edits Hermes' `.env`: sets or removes a few keys and keeps every other line.
//!
//! The file is replaced atomically, under a lock of its directory that every editor here takes, and only after the new text
//! was parsed and verified and the file was seen to be unchanged. It never prints a value and never widens the file's mode.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::dotenv::{self, BindingKind, Dotenv, is_space};

/// Maximum number of symbolic links.
const MAX_LINKS: usize = 16;
/// Edits that start again because another program changed the file.
const MAX_ATTEMPTS: usize = 3;

/// Why the file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The key is not a variable name.
    #[error("{0:?} is not a valid name of an environment variable")]
    Key(String),
    /// The value contains a NUL character.
    #[error("the value of {0} contains a NUL character")]
    Value(String),
    /// The file is not UTF-8.
    #[error("{path} is not UTF-8 text: convert it, then try again", path = .0.display())]
    NotText(PathBuf),
    /// The edited file would not have the intended values.
    #[error("{path} has an unterminated quote that would include new lines: fix line {line}, then try again", path = .path.display())]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The first invalid line.
        line: usize,
    },
    /// The symbolic links form a cycle.
    #[error("{path} is a cycle of symbolic links", path = .0.display())]
    Links(PathBuf),
    /// Another process holds the lock.
    #[error("{path} is being changed by another process", path = .0.display())]
    Locked(PathBuf),
    /// Another program, which does not take the lock, keeps changing the file.
    #[error("{path} keeps changing while it is edited", path = .0.display())]
    Changing(PathBuf),
    /// An I/O error.
    #[error("cannot write {path}: {source}", path = .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// The right to change an `.env` file, held until dropped; it cannot outlive the process.
///
/// It is a lock of the directory, so that no further file stays behind. Where directories cannot be locked, as on some
/// network file systems, only the check before the replacement protects the file.
#[derive(Debug)]
pub struct EditLock {
    target: PathBuf,
    _directory: Option<File>,
}

/// Locks the `.env` file at `path`; [`EditError::Locked`] if another process has.
pub fn lock(path: &Path) -> Result<EditLock, EditError> {
    let target = follow(path)?;
    let existing = directory_of(&target).ancestors().find(|dir| dir.is_dir());
    let directory = File::open(existing.unwrap_or(Path::new("."))).ok();
    match directory.as_ref().map(File::try_lock) {
        Some(Err(TryLockError::WouldBlock)) => Err(EditError::Locked(target)),
        Some(Ok(()) | Err(TryLockError::Error(_))) | None => Ok(EditLock {
            target,
            _directory: directory,
        }),
    }
}

/// Sets `entries` in the `.env` file at `path`.
#[cfg(test)]
fn update(path: &Path, entries: &[(&str, &str)]) -> Result<(), EditError> {
    lock(path)?.update(entries)
}

impl EditLock {
    /// Sets `entries`, and creates the file (0600, in a 0700 directory) if necessary.
    ///
    /// The first assignment of a key is replaced and later ones are removed; new keys are appended. Line breaks in values
    /// are removed. Mode, owner and symbolic links are kept.
    pub fn update(&self, entries: &[(&str, &str)]) -> Result<(), EditError> {
        check_entries(entries)?;
        self.edit(|before| {
            let after = Zeroizing::new(compose(before, entries));
            check_updated(&self.target, before, &after, entries)?;
            Ok(after)
        })
    }

    /// Removes every assignment of `keys`. Mode, owner and symbolic links are kept. Does nothing if there is no file or no
    /// such key.
    pub fn remove(&self, keys: &[&str]) -> Result<(), EditError> {
        self.edit(|before| {
            let after = Zeroizing::new(without(before, keys));
            if *after != *before {
                check_removed(&self.target, before, &after, keys)?;
            }
            Ok(after)
        })
    }

    /// Replaces the text by what `change` makes of it, unless another program changes the file at the same time.
    fn edit(&self, change: impl Fn(&str) -> Result<Zeroizing<String>, EditError>) -> Result<(), EditError> {
        let failed = |source| EditError::Io {
            path: self.target.clone(),
            source,
        };
        for _ in 0..MAX_ATTEMPTS {
            let before = read_text(&self.target)?;
            let text = before.as_ref().map_or("", |text| text.as_str());
            let after = change(text)?;
            if *after == *text || replace(&self.target, before.as_deref(), &after).map_err(failed)? {
                return Ok(());
            }
        }
        Err(EditError::Changing(self.target.clone()))
    }
}

fn check_entries(entries: &[(&str, &str)]) -> Result<(), EditError> {
    for (key, value) in entries {
        let mut chars = key.chars();
        let is_name = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name {
            return Err(EditError::Key((*key).to_owned()));
        }
        if value.contains('\0') {
            return Err(EditError::Value((*key).to_owned()));
        }
    }
    Ok(())
}

/// `entries` as the text of a new file.
pub fn render(entries: &[(&str, &str)]) -> String {
    compose("", entries)
}

/// The text with `entries` set.
fn compose(present: &str, entries: &[(&str, &str)]) -> String {
    let newline = if present.contains("\r\n") { "\r\n" } else { "\n" };
    let mut written = vec![false; entries.len()];
    let mut text = String::with_capacity(present.len() + 256);
    let mut kept = 0;
    for binding in dotenv::bindings(present) {
        let BindingKind::Assignment { key, .. } = binding.kind else {
            continue;
        };
        // The last of two entries for one key wins.
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

/// The value as written: bare if it parses to the same text, else in double quotes.
fn quoted(value: &str) -> String {
    // `${` would be a reference; a reference without a name and with the default `$` is a literal `$`.
    let value = one_line(value).replace("${", "${:-$}{");
    if !value.contains(|c| matches!(c, '#' | '"' | '\'') || is_space(c)) {
        return value;
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

fn one_line(value: &str) -> String {
    value.replace(['\r', '\n'], "")
}

/// Checks that the text has the new values and that no other key changed.
fn check_updated(path: &Path, present: &str, text: &str, entries: &[(&str, &str)]) -> Result<(), EditError> {
    let none = |_: &str| None;
    let (before, after) = (Dotenv::parse(present, &none), Dotenv::parse(text, &none));
    let entry = |key: &str| entries.iter().rev().find(|(name, _)| *name == key);
    // A key that refers to an updated one changes with it, so compare only without references.
    let has_references = present.contains("${");
    let is_same = has_references
        || before
            .keys()
            .filter(|key| entry(key).is_none())
            .all(|key| before.value(key) == after.value(key));
    let is_set = entries.iter().all(|(key, _)| {
        entry(key).is_some_and(|(_, value)| after.value(key) == Some(one_line(value).as_str()))
    });
    if is_same && is_set && after.skipped_lines().len() == before.skipped_lines().len() {
        return Ok(());
    }
    let line = before
        .skipped_lines()
        .first()
        .or(after.skipped_lines().first())
        .copied()
        .unwrap_or(1);
    Err(EditError::Ambiguous {
        path: path.to_owned(),
        line,
    })
}

/// The target of the symbolic links at `path`.
fn follow(path: &Path) -> Result<PathBuf, EditError> {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(EditError::Links(path.to_owned()))
}

fn directory_of(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Replaces the file if its text is still `before` (`None`: if there is still no file). Returns whether it was.
fn replace(target: &Path, before: Option<&String>, text: &str) -> io::Result<bool> {
    let directory = directory_of(target);
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
    match before {
        None => match file.persist_noclobber(target) {
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            created => drop(created.map_err(|error| error.error)?),
        },
        Some(before) => match fs::read(target).map(Zeroizing::new) {
            Ok(now) if now.as_slice() == before.as_bytes() => {
                file.persist(target).map_err(|error| error.error)?;
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => return Ok(false),
        },
    }
    File::open(directory)?.sync_all()?;
    Ok(true)
}

/// Which of `keys` the `.env` file at `path` assigns.
pub fn present(path: &Path, keys: &[&'static str]) -> Result<Vec<&'static str>, EditError> {
    let text = read_text(path)?.unwrap_or_default();
    let assigned: Vec<String> = dotenv::bindings(&text)
        .filter_map(|binding| match binding.kind {
            BindingKind::Assignment { key, .. } => Some(key.to_string()),
            BindingKind::Invalid => None,
        })
        .collect();
    let is_assigned = |key: &&&str| assigned.iter().any(|name| name == **key);
    Ok(keys.iter().filter(is_assigned).copied().collect())
}

/// Removes every assignment of `keys` from the `.env` file at `path`.
pub fn remove(path: &Path, keys: &[&str]) -> Result<(), EditError> {
    lock(path)?.remove(keys)
}

/// The file's text; `None` if there is no file.
fn read_text(path: &Path) -> Result<Option<Zeroizing<String>>, EditError> {
    match fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(Zeroizing::new(text))),
            Err(_) => Err(EditError::NotText(path.to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(EditError::Io {
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
        let BindingKind::Assignment { key, .. } = binding.kind else {
            continue;
        };
        if !keys.contains(&key) {
            continue;
        }
        // Remove its indentation too.
        let lead = &present[kept..binding.span.start];
        let lead = lead.trim_end_matches(|c| is_space(c) && !matches!(c, '\n' | '\r'));
        text.push_str(lead);
        kept = binding.span.end;
    }
    text.push_str(&present[kept..]);
    text
}

/// Checks that the keys are gone and that no other key changed.
fn check_removed(path: &Path, before: &str, after: &str, keys: &[&str]) -> Result<(), EditError> {
    let none = |_: &str| None;
    let (old, new) = (Dotenv::parse(before, &none), Dotenv::parse(after, &none));
    // A key that refers to a removed one changes with it, so compare only without references.
    let has_references = before.contains("${");
    let others = |key: &&str| !keys.contains(key);
    let is_same = has_references
        || old
            .keys()
            .filter(others)
            .all(|key| old.value(key) == new.value(key));
    let is_removed = keys.iter().all(|key| new.value(key).is_none());
    if is_same && is_removed && new.skipped_lines().len() == old.skipped_lines().len() {
        return Ok(());
    }
    Err(EditError::Ambiguous {
        path: path.to_owned(),
        line: old.skipped_lines().first().copied().unwrap_or(1),
    })
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
    fn other_lines_are_kept_and_duplicates_removed() {
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
    fn a_symbolic_link_is_kept() {
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
        assert!(matches!(update(&circle, &[("A", "2")]), Err(EditError::Links(_))));
    }

    #[test]
    fn an_unterminated_quote_is_refused() {
        let dir = home();
        let path = dir.path().join(".env");
        let text = "A=1\nB=\"open\n";
        fs::write(&path, text).unwrap();
        let refused = update(&path, &[("S", "needs \"quotes\"")]).unwrap_err();
        assert!(
            matches!(refused, EditError::Ambiguous { line: 2, .. }),
            "{refused}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        update(&path, &[("S", "bare")]).unwrap();
        assert_eq!(read(&path).value("S"), Some("bare"));
    }

    #[test]
    fn editors_at_the_same_time_lose_nothing_and_leave_no_file_behind() {
        let dir = home();
        let path = dir.path().join(".env");
        fs::write(&path, "A=1\n").unwrap();
        std::thread::scope(|scope| {
            for editor in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    let key = format!("KEY_{editor}");
                    for round in 0..10 {
                        let value = round.to_string();
                        while let Err(error) = update(path, &[(&key, &value)]) {
                            assert!(matches!(error, EditError::Locked(_)), "{error}");
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        let file = read(&path);
        for editor in 0..8 {
            assert_eq!(file.value(&format!("KEY_{editor}")), Some("9"));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_lock_keeps_others_out_until_it_is_dropped() {
        let dir = home();
        let path = dir.path().join("fresh/.env");
        let held = lock(&path).unwrap();
        assert!(matches!(update(&path, &[("A", "2")]), Err(EditError::Locked(_))));
        held.update(&[("A", "1")]).unwrap();
        drop(held);
        update(&path, &[("B", "2")]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "A=1\nB=2\n");
    }

    #[test]
    fn a_file_that_another_program_changed_is_not_replaced() {
        let dir = home();
        let path = dir.path().join(".env");
        let before = "A=1\n".to_owned();
        assert!(!replace(&path, Some(&before), "A=2\n").unwrap(), "it has gone");
        fs::write(&path, "A=1\nTHEIRS=1\n").unwrap();
        assert!(!replace(&path, Some(&before), "A=2\n").unwrap());
        assert!(!replace(&path, None, "A=2\n").unwrap(), "it is new");
        assert_eq!(fs::read_to_string(&path).unwrap(), "A=1\nTHEIRS=1\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

        // The edit starts again with what the other program wrote.
        let rounds = std::cell::Cell::new(0);
        lock(&path)
            .unwrap()
            .edit(|text| {
                rounds.set(rounds.get() + 1);
                if rounds.get() == 1 {
                    fs::write(&path, "THEIRS=2\n").unwrap();
                }
                Ok(Zeroizing::new(compose(text, &[("A", "2")])))
            })
            .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "THEIRS=2\nA=2\n");
        assert_eq!(rounds.get(), 2);
        let never = lock(&path).unwrap().edit(|text| {
            fs::write(&path, format!("{text}X=1\n")).unwrap();
            Ok(Zeroizing::new(compose(text, &[("A", "3")])))
        });
        assert!(matches!(never, Err(EditError::Changing(_))), "{never:?}");
    }

    #[test]
    fn a_failure_keeps_the_file_and_leaves_no_temporary_file() {
        let dir = home();
        let path = dir.path().join(".env");
        fs::write(&path, b"# caf\xe9\nA=1\n").unwrap();
        assert!(matches!(update(&path, &[("A", "2")]), Err(EditError::NotText(_))));
        assert!(matches!(update(&path, &[("A B", "2")]), Err(EditError::Key(_))));
        assert!(matches!(update(&path, &[("A", "\0")]), Err(EditError::Value(_))));
        assert_eq!(fs::read(&path).unwrap(), b"# caf\xe9\nA=1\n");

        let taken = dir.path().join("directory");
        fs::create_dir(&taken).unwrap();
        assert!(matches!(update(&taken, &[("A", "2")]), Err(EditError::Io { .. })));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    proptest::proptest! {
        #[test]
        fn written_values_round_trip(
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

    const KEYS: [&str; 2] = ["ID", "SECRET"];

    fn removed_from(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".env");
        fs::write(&path, text).unwrap();
        remove(&path, &KEYS).unwrap();
        assert_eq!(present(&path, &KEYS).unwrap(), Vec::<&str>::new());
        fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn every_assignment_is_removed_and_the_rest_kept() {
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
            assert_eq!(removed_from(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn removing_keeps_mode_and_links_and_creates_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real.env");
        fs::write(&real, "ID=1\nA=1\n").unwrap();
        fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
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
    fn removing_refuses_a_file_that_is_not_utf8() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".env");
        fs::write(&path, b"# caf\xe9\nID=1\n").unwrap();
        assert!(matches!(remove(&path, &KEYS), Err(EditError::NotText(_))));
        assert_eq!(fs::read(&path).unwrap(), b"# caf\xe9\nID=1\n");
    }
}
