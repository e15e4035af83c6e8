//! Folders for downloaded files: one for all, one in it for each turn, owner-only, gone when the turn is.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::error::MediaError;

/// What the names of turns' folders begin with.
const PREFIX: &str = "turn-";

/// The folder in which turns' folders are made.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder where it is missing, takes it from everybody else, and removes what earlier runs left. The
    /// caller holds the state directory's lock: nobody else's turns are in there.
    pub(super) fn prepare(path: &Path) -> Result<Self, MediaError> {
        prepared(path).map_err(|cause| MediaError::Folder {
            path: path.to_owned(),
            cause,
        })?;
        Ok(Self(path.to_owned()))
    }

    /// A new folder for a turn.
    pub(super) fn turn(&self, turn: u64) -> io::Result<TurnDir> {
        tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{turn}-"))
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&self.0)
            .map(TurnDir)
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

/// A turn's own folder. It goes, with everything in it, when this is dropped.
#[derive(Debug)]
pub struct TurnDir(TempDir);

impl TurnDir {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn leftovers_go_and_only_they() {
        let state = tempfile::tempdir().unwrap();
        let base = state.path().join("media");
        fs::create_dir_all(base.join("turn-9-abc/deep")).unwrap();
        fs::write(base.join("turn-9-abc/deep/x"), "x").unwrap();
        fs::create_dir(base.join("mine")).unwrap();
        fs::create_dir(state.path().join("elsewhere")).unwrap();
        symlink(state.path().join("elsewhere"), base.join("turn-link")).unwrap();
        fs::set_permissions(&base, Permissions::from_mode(0o755)).unwrap();

        let folder = Folder::prepare(&base).unwrap();
        assert_eq!(mode(&base), 0o700);
        assert!(!base.join("turn-9-abc").exists() && base.join("mine").exists());
        assert!(state.path().join("elsewhere").exists());

        let (one, two) = (folder.turn(1).unwrap(), folder.turn(1).unwrap());
        assert_ne!(one.path(), two.path());
        assert_eq!(mode(one.path()), 0o700);
        fs::write(one.path().join("f"), "x").unwrap();
        let gone = one.path().to_owned();
        drop(one);
        assert!(!gone.exists() && two.path().exists());
    }

    #[test]
    fn a_link_is_no_folder() {
        let state = tempfile::tempdir().unwrap();
        symlink("/tmp", state.path().join("media")).unwrap();
        assert!(Folder::prepare(&state.path().join("media")).is_err());
    }
}
