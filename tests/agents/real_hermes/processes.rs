//! Which processes belong to a test: those that name its folder in their command line, environment or directory.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use crate::support::wait::eventually_within;

/// How long processes may take to be gone after whoever started them has ended.
pub(crate) const LEAVING: Duration = Duration::from_secs(10);

/// The processes that name a folder, with their command lines. What has ended and only waits to be noticed is not there.
pub(crate) fn around(folder: &Path) -> Vec<String> {
    let ours = std::process::id().to_string();
    let entries = fs::read_dir("/proc").expect("procfs").flatten();
    let ids = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        name.iter().all(u8::is_ascii_digit) && name != ours.as_bytes()
    });
    ids.filter_map(|process| named(&process, folder)).collect()
}

fn named(process: &Path, folder: &Path) -> Option<String> {
    let folder = folder.as_os_str().as_bytes();
    let command = fs::read(process.join("cmdline"))
        .ok()
        .filter(|line| !line.is_empty())?;
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    let directory = fs::read_link(process.join("cwd")).unwrap_or_default();
    let names = [&command, &environment, directory.as_os_str().as_bytes()]
        .iter()
        .any(|bytes| memchr::memmem::find(bytes, folder).is_some());
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    names.then(|| format!("{}: {command}", process.display()))
}

/// Waits until no process of a folder has this in its command line.
pub(crate) async fn gone(folder: &Path, part: &str, timeout: Duration) {
    eventually_within(timeout, "no process is left", async || {
        let mut left = around(folder);
        left.retain(|line| line.contains(part));
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}
