//! Local files: directories for downloads, and files that agents send.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open, openat};
use tempfile::TempDir;

use super::MediaSettings;
use super::disk::{DiskBudget, DiskShare};
use super::error::MediaError;

/// Prefix of turn directories.
const PREFIX: &str = "turn-";

/// The directory that holds turn directories.
#[derive(Debug)]
pub(super) struct MediaDir {
    path: PathBuf,
    budget: Arc<DiskBudget>,
}

impl MediaDir {
    /// Creates the directory for the owner only, and removes what earlier runs left there. The caller holds the state
    /// directory's lock.
    pub(super) fn open(path: &Path, settings: &MediaSettings) -> Result<Self, MediaError> {
        prepared(path).map_err(|cause| MediaError::Folder {
            path: path.to_owned(),
            cause,
        })?;
        Ok(Self {
            path: path.to_owned(),
            budget: DiskBudget::new(path.to_owned(), settings.total_bytes, settings.min_free_bytes),
        })
    }

    /// Creates a directory for a turn.
    pub(super) fn create(&self, turn: u64) -> io::Result<TurnDir> {
        tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{turn}-"))
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&self.path)
            .map(|dir| TurnDir {
                dir,
                share: self.budget.share(),
            })
    }
}

fn prepared(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            "it is not a directory",
        ));
    }
    if found.permissions().mode() & 0o777 != 0o700 {
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX));
        if ours && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// A turn's directory; removed with its contents on drop, before its share of the disk is given back.
#[derive(Debug)]
pub struct TurnDir {
    dir: TempDir,
    share: DiskShare,
}

impl TurnDir {
    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// What its files take of the disk.
    pub(super) fn share(&self) -> &DiskShare {
        &self.share
    }
}

/// An open file that may be sent, with its length when it was opened.
#[derive(Debug)]
pub(super) struct OutgoingFile {
    pub(super) file: File,
    pub(super) length: u64,
}

/// Opens `path` if, with every link resolved, it is inside one of `roots` or `also`; the innermost counts. A relative
/// path starts at the first of `roots`.
///
/// The resolved path is then walked from that root, one directory at a time and without following links, so that a
/// link added after the check is not followed. Opening never blocks on a pipe or device.
pub(super) fn open_inside(
    path: &Path,
    roots: &[PathBuf],
    also: &[PathBuf],
    max: u64,
) -> Result<OutgoingFile, MediaError> {
    let meant = match roots.first() {
        Some(home) => home.join(path),
        None if path.is_absolute() => path.to_owned(),
        None => return Err(MediaError::Nowhere),
    };
    let real = meant.canonicalize().map_err(MediaError::Disk)?;
    let inside = roots
        .iter()
        .chain(also)
        .filter_map(|root| root.canonicalize().ok())
        .filter(|root| real.starts_with(root))
        .max_by_key(|root| root.components().count());
    let root = inside.ok_or(MediaError::Outside)?;
    let rest = real.strip_prefix(&root).map_err(|_| MediaError::Outside)?;
    let file = walk(&root, rest)?;
    let found = file.metadata().map_err(MediaError::Disk)?;
    match found.size() {
        _ if !found.is_file() => Err(MediaError::NotAFile),
        0 => Err(MediaError::Empty),
        length if length > max => Err(MediaError::TooLarge { max }),
        length => Ok(OutgoingFile { file, length }),
    }
}

fn walk(root: &Path, rest: &Path) -> Result<File, MediaError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let folder = flags | OFlags::DIRECTORY;
    let mut at = open(root, folder, Mode::empty()).map_err(|cause| MediaError::Disk(cause.into()))?;
    let mut steps = rest.components().peekable();
    while let Some(step) = steps.next() {
        let Component::Normal(name) = step else {
            return Err(MediaError::Outside);
        };
        if name.as_encoded_bytes().first() == Some(&b'.') {
            return Err(MediaError::Hidden);
        }
        let last = steps.peek().is_none();
        let how = if last {
            flags | OFlags::NONBLOCK | OFlags::NOCTTY
        } else {
            folder
        };
        at = openat(&at, name, how, Mode::empty()).map_err(|cause| MediaError::Disk(cause.into()))?;
    }
    Ok(at.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_leftover_turn_directories_are_removed() {
        let state = tempfile::tempdir().unwrap();
        let base = state.path().join("media");
        fs::create_dir_all(base.join("turn-9-abc/deep")).unwrap();
        fs::write(base.join("turn-9-abc/deep/x"), "x").unwrap();
        fs::create_dir(base.join("mine")).unwrap();
        fs::create_dir(state.path().join("elsewhere")).unwrap();
        symlink(state.path().join("elsewhere"), base.join("turn-link")).unwrap();
        fs::set_permissions(&base, Permissions::from_mode(0o755)).unwrap();

        let folder = MediaDir::open(&base, &MediaSettings::default()).unwrap();
        assert_eq!(mode(&base), 0o700);
        assert!(!base.join("turn-9-abc").exists() && base.join("mine").exists());
        assert!(state.path().join("elsewhere").exists());

        let (one, two) = (folder.create(1).unwrap(), folder.create(1).unwrap());
        assert_ne!(one.path(), two.path());
        assert_eq!(mode(one.path()), 0o700);
        fs::write(one.path().join("f"), "x").unwrap();
        let gone = one.path().to_owned();
        drop(one);
        assert!(!gone.exists() && two.path().exists());
    }

    #[test]
    fn a_symlink_is_not_a_directory() {
        let state = tempfile::tempdir().unwrap();
        symlink("/tmp", state.path().join("media")).unwrap();
        assert!(MediaDir::open(&state.path().join("media"), &MediaSettings::default()).is_err());
    }

    #[test]
    fn only_ordinary_files_inside_the_roots_are_opened() {
        let all = tempfile::tempdir().unwrap();
        let (work, other) = (all.path().join("work"), all.path().join("other"));
        for folder in [work.join("deep"), work.join(".ssh"), other.clone()] {
            fs::create_dir_all(folder).unwrap();
        }
        for (path, text) in [
            (work.join("deep/a.txt"), "abc"),
            (work.join(".ssh/id"), "key"),
            (work.join(".env"), "key"),
            (work.join("empty"), ""),
            (work.join("large"), "123456"),
            (other.join("secret"), "key"),
        ] {
            fs::write(path, text).unwrap();
        }
        symlink(other.join("secret"), work.join("link")).unwrap();
        symlink(&other, work.join("links")).unwrap();
        symlink(work.join("deep/a.txt"), other.join("back")).unwrap();
        symlink(work.join(".env"), work.join("seen")).unwrap();
        let pipe = std::process::Command::new("mkfifo")
            .arg(work.join("pipe"))
            .status();
        assert!(pipe.unwrap().success());

        let tried = |path: PathBuf| open_inside(&path, std::slice::from_ref(&work), &[], 5);
        assert_eq!(tried(work.join("deep/a.txt")).unwrap().length, 3);
        assert_eq!(tried(work.join("deep/../deep/./a.txt")).unwrap().length, 3);
        assert_eq!(tried(other.join("back")).unwrap().length, 3);
        assert_eq!(tried(PathBuf::from("deep/a.txt")).unwrap().length, 3);
        let both = [work.clone(), work.join(".ssh")];
        assert_eq!(
            open_inside(&work.join(".ssh/id"), &both, &[], 5).unwrap().length,
            3
        );
        for outside in [
            other.join("secret"),
            work.join("link"),
            work.join("links/secret"),
            work.join("../other/secret"),
            PathBuf::from("/etc/passwd"),
            PathBuf::from("../other/secret"),
            PathBuf::from("deep/../../other/secret"),
            PathBuf::from("links/../other/secret"),
        ] {
            assert!(
                matches!(tried(outside.clone()), Err(MediaError::Outside)),
                "{outside:?}"
            );
        }
        for hidden in [work.join(".env"), work.join(".ssh/id"), work.join("seen")] {
            assert!(
                matches!(tried(hidden.clone()), Err(MediaError::Hidden)),
                "{hidden:?}"
            );
        }
        assert!(matches!(tried(work.join("empty")), Err(MediaError::Empty)));
        assert!(matches!(
            tried(work.join("large")),
            Err(MediaError::TooLarge { max: 5 })
        ));
        for odd in [work.join("pipe"), work.join("deep"), work.clone()] {
            assert!(matches!(tried(odd.clone()), Err(MediaError::NotAFile)), "{odd:?}");
        }
        assert!(matches!(tried(work.join("none")), Err(MediaError::Disk(_))));
        assert!(matches!(
            open_inside(&work.join("deep/a.txt"), &[], &[], 5),
            Err(MediaError::Outside)
        ));
    }

    #[test]
    fn relative_paths_start_at_the_workdir_only() {
        let all = tempfile::tempdir().unwrap();
        let [work, folder, listed] = ["work", "folder", "listed"].map(|name| all.path().join(name));
        for place in [&work, &folder, &listed] {
            fs::create_dir(place).unwrap();
        }
        fs::write(folder.join("photo"), "photo").unwrap();
        fs::write(listed.join("chart"), "chart").unwrap();
        let also = std::slice::from_ref(&listed);
        let both = [work.clone(), folder.clone()];
        // It is not looked for in one place after the other: what is found would depend on what others have put there.
        for name in ["photo", "chart"] {
            assert!(
                matches!(
                    open_inside(Path::new(name), &both, also, 9),
                    Err(MediaError::Disk(_))
                ),
                "{name}"
            );
        }
        assert!(open_inside(Path::new("photo"), &both[1..], also, 9).is_ok());
        assert!(open_inside(Path::new("../listed/chart"), &both, also, 9).is_ok());
        assert!(matches!(
            open_inside(Path::new("chart"), &[], also, 9),
            Err(MediaError::Nowhere)
        ));
        for whole in [folder.join("photo"), listed.join("chart")] {
            assert!(open_inside(&whole, &both, also, 9).is_ok(), "{whole:?}");
        }
        assert!(open_inside(&listed.join("chart"), &[], also, 9).is_ok());
    }

    #[test]
    fn a_link_added_after_the_check_is_not_followed() {
        let all = tempfile::tempdir().unwrap();
        fs::create_dir_all(all.path().join("out")).unwrap();
        fs::write(all.path().join("out/a"), "key").unwrap();
        fs::create_dir(all.path().join("work")).unwrap();
        symlink(all.path().join("out"), all.path().join("work/deep")).unwrap();
        symlink(all.path().join("out/a"), all.path().join("work/a")).unwrap();
        let work = all.path().join("work");
        assert!(matches!(
            walk(&work, Path::new("deep/a")),
            Err(MediaError::Disk(_))
        ));
        assert!(matches!(walk(&work, Path::new("a")), Err(MediaError::Disk(_))));
    }
}
