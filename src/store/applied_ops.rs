//! Ops that a server has applied, noted at once.
//!
//! A server that knows no op ids shows an op twice that is sent twice. The journal learns of an op's end with its next
//! commit; whoever is killed before that would send the op again. So its id is appended to a file as soon as the server has
//! answered, and after a restart the op is known to be done. The file is not synced: what was written survives the end
//! of the process, and only the loss of power can lose it. It is bounded; the oldest notes go first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::collections::BoundedCache;
use crate::wire::OpId;

/// Ops that are remembered: many times what a commit takes.
const MAX_OPS: usize = 4096;

/// Ops that were applied.
#[derive(Debug)]
pub struct AppliedOps {
    path: PathBuf,
    file: File,
    /// With the message that each created, or an empty text.
    known: BoundedCache<OpId, String>,
    lines: usize,
}

impl AppliedOps {
    /// Reads the notes at `path`, if there are some, and goes on with them. The caller holds the state directory's lock.
    pub fn open(path: &Path) -> io::Result<Self> {
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let mut known = BoundedCache::new(MAX_OPS);
        // A line that was cut short by a kill names no op.
        for line in text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'))
        {
            if let Some((op, message)) = line.split_once(' ')
                && let Some(op) = OpId::parse(op)
            {
                known.insert(op, message.to_owned());
            }
        }
        let (file, lines) = rewrite(path, &known)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            known,
            lines,
        })
    }

    /// Notes that an op was applied, and the message that it created.
    pub fn note(&mut self, op: OpId, message: &str) -> io::Result<()> {
        let message: String = message.chars().filter(char::is_ascii_alphanumeric).collect();
        // One write, so that a kill leaves a whole line or a torn last one.
        self.file.write_all(format!("{op} {message}\n").as_bytes())?;
        self.known.insert(op, message);
        self.lines += 1;
        if self.lines > 2 * MAX_OPS {
            (self.file, self.lines) = rewrite(&self.path, &self.known)?;
        }
        Ok(())
    }

    /// The message that an applied op created, or an empty text; `None` if the op was not applied as far as is known.
    pub fn find(&self, op: OpId) -> Option<&str> {
        self.known.peek(&op).map(String::as_str)
    }
}

/// Writes the notes anew, the oldest first, and opens the file to append.
fn rewrite(path: &Path, known: &BoundedCache<OpId, String>) -> io::Result<(File, usize)> {
    let ops: Vec<&OpId> = known.recent_keys().collect();
    let lines = ops.iter().rev().map(|op| {
        let message = known.peek(*op).map_or("", String::as_str);
        format!("{op} {message}\n")
    });
    let text: String = lines.collect();
    let fresh = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&fresh)?.write_all(text.as_bytes())?;
    fs::rename(&fresh, path)?;
    Ok((OpenOptions::new().append(true).open(path)?, ops.len()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_was_noted_is_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("applied");
        let mut ops = AppliedOps::open(&path).unwrap();
        ops.note(OpId(1), "77").unwrap();
        ops.note(OpId(2), "a b\n3").unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        drop(ops);
        // A kill in the middle of a write.
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        write!(torn, "{} 5", OpId(3)).unwrap();
        let ops = AppliedOps::open(&path).unwrap();
        assert_eq!(
            (ops.find(OpId(1)), ops.find(OpId(2)), ops.find(OpId(3))),
            (Some("77"), Some("ab3"), None)
        );
    }

    #[test]
    fn notes_are_bounded_and_the_newest_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("applied");
        let mut ops = AppliedOps::open(&path).unwrap();
        for op in 0..20_000 {
            ops.note(OpId(op), "1").unwrap();
        }
        assert!(fs::metadata(&path).unwrap().len() < 64 * 2 * MAX_OPS as u64);
        let ops = AppliedOps::open(&path).unwrap();
        assert_eq!((ops.find(OpId(19_999)), ops.find(OpId(0))), (Some("1"), None));
    }
}
