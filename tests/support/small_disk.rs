//! A small file system for tests that fill the disk or make it read-only.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::skip::skip;

/// A tmpfs, unmounted when dropped.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one with room for so many KiB; skips the test where mounting is not allowed.
    pub(crate) fn mount(at: &Path, kib: u32) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kib}k,mode=700"), "tmpfs"])
            .arg(at)
            .output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            refused => {
                skip(&format!(
                    "mounting a small tmpfs is not allowed here: {refused:?}"
                ));
                None
            }
        }
    }

    pub(crate) fn make_read_only(&self) {
        let remount = Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(&self.0)
            .status();
        assert!(remount.unwrap().success());
    }

    /// Gives it room for so many KiB.
    pub(crate) fn resize(&self, kib: u32) {
        let remount = Command::new("mount")
            .args(["-o", &format!("remount,size={kib}k")])
            .arg(&self.0)
            .status();
        assert!(remount.unwrap().success());
    }

    /// Writes a file until nothing more fits.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.filler()).unwrap();
        for size in [65_536, 4_096, 512, 1] {
            while file.write_all(&vec![b'x'; size]).is_ok() {}
        }
    }

    /// Removes that file.
    pub(crate) fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    /// Hidden, so that the state directory does not look like somebody else's.
    fn filler(&self) -> PathBuf {
        self.0.join(".filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
