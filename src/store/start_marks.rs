//! Which handed items have reached their agent.
//!
//! The journal marks a turn as running before its agent starts. A kill in between leaves a turn that never began and looks like
//! one whose agent may have acted. So every handed item that becomes a turn has a place in a small file, which says that it
//! waits; one byte of it is overwritten right before the agent gets the text. The file is not synced: what was written survives
//! the end of the process, and after a loss of power (another boot) the file is ignored. An item without a place counts as begun.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::completion::InboxSeq;
use crate::collections::IdMap;

/// The file in the state directory that says which handed-over items no agent has been given.
pub const START_MARKS: &str = "start-marks";
/// Places in the file; an item beyond them counts as begun as soon as it runs.
const MAX_PLACES: u64 = 65_536;
/// The beginning of the file, with the boot that it belongs to.
const HEADER: usize = 64;
/// A place: the row, its state, and zeros.
const PLACE: usize = 16;
/// Where the state is in a place.
const STATE: u64 = 8;
/// States of a place; any other is a free one.
const FREE: u8 = 0;
const WAITS: u8 = 1;
const GIVEN: u8 = 2;

/// The items that no agent has been given yet.
#[derive(Debug, Default)]
pub struct StartMarks {
    /// None if notes cannot be kept.
    notes: Option<Arc<Notes>>,
    places: IdMap<InboxSeq, NotePlace>,
    free: Vec<u64>,
    /// Places that the file has.
    length: u64,
}

#[derive(Debug)]
struct NotePlace {
    number: u64,
    /// An earlier run left it waiting.
    is_left: bool,
}

#[derive(Debug)]
struct Notes {
    file: File,
    path: PathBuf,
}

/// Marks one item as given to its agent.
#[derive(Clone, Debug)]
pub struct StartMark {
    notes: Arc<Notes>,
    place: u64,
    is_given: Arc<AtomicBool>,
}

impl StartMarks {
    /// Reads the notes at `path` that an earlier run of the same boot left, and goes on with them. The caller holds the state
    /// directory's lock. Without a boot's id, or without a file, no notes are kept.
    pub fn open(path: &Path) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let opened = boot.and_then(|boot| Self::of_boot(path, boot.trim()));
        opened.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot note which items have begun");
            let _ = fs::remove_file(path);
            Self::default()
        })
    }

    fn of_boot(path: &Path, boot: &str) -> io::Result<Self> {
        let mut header = boot.as_bytes().to_vec();
        header.resize(HEADER, b'\n');
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let file = options.open(path)?;
        let bytes = fs::read(path)?;
        let mut places = IdMap::default();
        let (mut free, mut length) = (Vec::new(), 0);
        if bytes.starts_with(&header) {
            let (whole, _) = bytes[HEADER..].as_chunks::<PLACE>();
            for place in whole
                .iter()
                .take(usize::try_from(MAX_PLACES).unwrap_or(usize::MAX))
            {
                let (row, state) = (
                    u64::from_le_bytes(*place.first_chunk().unwrap_or(&[0; 8])),
                    place[8],
                );
                // What was given is as good as not noted.
                if state == WAITS {
                    let row = InboxSeq(row.cast_signed());
                    let number = length;
                    places.insert(
                        row,
                        NotePlace {
                            number,
                            is_left: true,
                        },
                    );
                } else {
                    free.push(length);
                }
                length += 1;
            }
        } else {
            file.set_len(0)?;
            file.write_all_at(&header, 0)?;
        }
        let path = path.to_owned();
        Ok(Self {
            notes: Some(Arc::new(Notes { file, path })),
            places,
            free,
            length,
        })
    }

    /// An item is stored and waits for its agent.
    pub fn expect(&mut self, row: InboxSeq) {
        let Some(notes) = &self.notes else { return };
        let known = self.places.get(&row).map(|place| place.number);
        let number = match known.or_else(|| self.free.pop()) {
            Some(number) => number,
            None if self.length < MAX_PLACES => {
                self.length += 1;
                self.length - 1
            }
            None => return,
        };
        let mut place = [0; PLACE];
        place[..8].copy_from_slice(&row.0.to_le_bytes());
        place[8] = WAITS;
        if let Err(error) = notes.file.write_all_at(&place, offset(number)) {
            tracing::warn!(%error, "cannot write the start marks: after a crash, an item that was about to begin is reported as interrupted");
            return self.give_up();
        }
        self.places.insert(
            row,
            NotePlace {
                number,
                is_left: false,
            },
        );
    }

    /// The mark of this item; none if it has no place.
    pub fn mark(&self, row: InboxSeq) -> Option<StartMark> {
        Some(StartMark {
            place: self.places.get(&row)?.number,
            notes: Arc::clone(self.notes.as_ref()?),
            is_given: Arc::default(),
        })
    }

    /// Whether an earlier run left this item before any agent was given it.
    pub fn is_left(&self, row: InboxSeq) -> bool {
        self.places.get(&row).is_some_and(|place| place.is_left)
    }

    /// An item is over.
    pub fn forget(&mut self, row: InboxSeq) {
        let Some(place) = self.places.remove(&row) else {
            return;
        };
        let Some(notes) = &self.notes else { return };
        match notes.file.write_all_at(&[FREE], offset(place.number) + STATE) {
            Ok(()) => self.free.push(place.number),
            Err(_) => self.give_up(),
        }
    }

    /// No notes are kept any more, and none are read later.
    fn give_up(&mut self) {
        if let Some(notes) = self.notes.take() {
            let _ = fs::remove_file(&notes.path);
        }
        self.places.clear();
    }
}

/// Another relay goes on with the journal and hands its items to agents: what is noted here says nothing any more.
#[cfg(feature = "nats")]
pub(super) fn discard(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(START_MARKS)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl StartMark {
    /// Whether the agent was given the item.
    pub fn is_given(&self) -> bool {
        self.is_given.load(Ordering::SeqCst)
    }

    /// The agent is given the item now.
    pub fn note(&self) {
        self.is_given.store(true, Ordering::SeqCst);
        if let Err(error) = (self.notes.file).write_all_at(&[GIVEN], offset(self.place) + STATE) {
            tracing::warn!(%error, "cannot write the start marks: after a crash, every item counts as begun");
            let _ = fs::remove_file(&self.notes.path);
        }
    }
}

fn offset(place: u64) -> u64 {
    HEADER as u64 + place * PLACE as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> StartMarks {
        StartMarks::of_boot(path, "this-boot").unwrap()
    }

    #[test]
    fn what_was_not_given_is_known_after_a_kill_and_only_that() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("start-marks");
        let mut start_marks = open(&path);
        for row in 1..=4 {
            start_marks.expect(InboxSeq(row));
            assert!(!start_marks.is_left(InboxSeq(row)), "of this run");
        }
        start_marks.mark(InboxSeq(2)).unwrap().note();
        start_marks.forget(InboxSeq(3));
        assert!(start_marks.mark(InboxSeq(3)).is_none() && start_marks.mark(InboxSeq(9)).is_none());
        let left = |start_marks: &StartMarks| -> Vec<i64> {
            (0..10)
                .filter(|row| start_marks.is_left(InboxSeq(*row)))
                .collect()
        };
        let mut again = open(&path);
        assert_eq!(left(&again), [1, 4]);
        // It is still known after another kill, until it is given or over.
        again.mark(InboxSeq(1)).unwrap().note();
        again.expect(InboxSeq(7));
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            64 + 4 * 16,
            "places are used again"
        );
        let mut again = open(&path);
        assert_eq!(left(&again), [4, 7]);
        again.forget(InboxSeq(4));
        again.forget(InboxSeq(7));
        assert_eq!(left(&open(&path)), [0; 0]);
    }

    #[test]
    fn another_boot_or_a_torn_file_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("start-marks");
        open(&path).expect(InboxSeq(1));
        let other = StartMarks::of_boot(&path, "other-boot").unwrap();
        assert!(!other.is_left(InboxSeq(1)));
        assert!(!open(&path).is_left(InboxSeq(1)));
        for torn in [&b""[..], b"this", &[0xff; 200]] {
            fs::write(&path, torn).unwrap();
            let mut start_marks = open(&path);
            assert!(start_marks.places.is_empty());
            start_marks.expect(InboxSeq(5));
            assert!(open(&path).is_left(InboxSeq(5)));
        }
        // Where nothing can be kept, nothing is said.
        let mut none = StartMarks::open(&folder.path().join("missing/start-marks"));
        none.expect(InboxSeq(1));
        assert!(none.mark(InboxSeq(1)).is_none() && !none.is_left(InboxSeq(1)));
    }
}
