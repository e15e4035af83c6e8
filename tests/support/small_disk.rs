//! A disk that is soon full.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::skip::skip;

/// A small file system, taken away again when dropped.
pub(crate) struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// Mounts one; nothing, and a loud word, where that is not allowed.
    pub(crate) fn mount(at: &'a Path) -> Option<Self> {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs"])
            .arg(at)
            .status();
        if mount.is_ok_and(|status| status.success()) {
            return Some(Self(at));
        }
        skip("mounting a small tmpfs needs root");
        None
    }

    /// Takes all space that is left.
    pub(crate) fn fill(&self) {
        let mut file = fs::File::create(self.filler()).unwrap();
        let mut size = 1 << 20;
        while size > 0 {
            if file.write_all(&vec![0; size]).is_err() {
                size /= 2;
            }
        }
    }

    /// Gives it back.
    pub(crate) fn empty(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
