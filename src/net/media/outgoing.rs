//! Opening a file that an agent wants sent: an ordinary one, not hidden, inside the directories it may send from.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, openat};

use super::error::MediaError;

/// A file that may be sent, and how long it was when it was opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) length: u64,
}

/// Opens `path` when, with every link followed, it is in one of `roots` or of `also`; the innermost of them counts. A
/// relative path is meant from the first of `roots`, and without one from nowhere.
///
/// The path is walked again from the root, one directory at a time and without following links, so that nothing can
/// be put in its way after it was judged. Something that would block or act when it is opened is not waited for.
pub(super) fn open_inside(
    path: &Path,
    roots: &[PathBuf],
    also: &[PathBuf],
    max: u64,
) -> Result<Opened, MediaError> {
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
        length => Ok(Opened { file, length }),
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
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

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
        rustix::fs::mknodat(
            rustix::fs::CWD,
            work.join("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();

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
    fn a_relative_name_is_meant_from_where_the_agent_works_and_from_nowhere_else() {
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
    fn a_link_put_in_the_way_later_is_not_followed() {
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
