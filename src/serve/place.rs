//! Where the control socket is, and a way to it that fits into a socket's address.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The socket's name in the state directory.
const NAME: &str = "control.sock";

/// The socket's file.
pub(super) fn socket_file(state_dir: &Path) -> PathBuf {
    state_dir.join(NAME)
}

/// A path that fits into a socket's address.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) path: PathBuf,
    /// Keeps the path good, where it leads through an open directory.
    pub(super) through: Option<File>,
}

/// The way to the socket of a state directory. An address holds about a hundred bytes; a longer path is taken through
/// the open directory, where the system has a name for that.
pub(super) fn way_to(state_dir: &Path) -> io::Result<Way> {
    let path = socket_file(state_dir);
    if SocketAddr::from_pathname(&path).is_ok() {
        return Ok(Way { path, through: None });
    }
    let directory = File::open(state_dir)?;
    let through = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    if !through.exists() {
        let what = format!(
            "the path {} is too long for a socket; use a shorter state directory",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(Way {
        path: through.join(NAME),
        through: Some(directory),
    })
}
