//! The ways to the journal: its socket, and beside it the standard error that the system may read as well.
//!
//! Neither is waited for: a journal that hung once is not given time again for some seconds, and standard error, which
//! may be the very same journal's, is written to only while it has room. What finds no way is dropped and counted, and
//! that is told when there is one again.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a journal that is busy may hold us up.
const PATIENCE: Duration = Duration::from_millis(50);
/// For so long after that it gets no time at all.
const HASTE: Duration = Duration::from_secs(5);

/// A way to the journal.
#[derive(Debug)]
pub(in crate::cli::logging) struct Journal {
    /// Waits for a moment.
    patient: UnixDatagram,
    /// Waits for nothing.
    hasty: UnixDatagram,
    path: PathBuf,
    standing: Mutex<Standing>,
}

/// How the journal has been doing.
#[derive(Debug)]
enum Standing {
    /// It takes what it is given.
    Well,
    /// It hung; before this moment it is not waited for.
    Hung(Instant),
}

impl Journal {
    /// Opens it at a path; fails when nobody listens there.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        UnixDatagram::unbound()?.connect(path)?;
        let (patient, hasty) = (UnixDatagram::unbound()?, UnixDatagram::unbound()?);
        patient.set_write_timeout(Some(PATIENCE))?;
        hasty.set_nonblocking(true)?;
        Ok(Self {
            patient,
            hasty,
            path: path.to_owned(),
            standing: Mutex::new(Standing::Well),
        })
    }

    /// By its path each time: a journal that was started again listens on a new socket.
    pub(super) fn send(&self, entry: &[u8]) -> io::Result<()> {
        let hangs = matches!(&*locked(&self.standing), Standing::Hung(until) if Instant::now() < *until);
        let socket = if hangs { &self.hasty } else { &self.patient };
        let sent = socket.send_to(entry, &self.path).map(drop);
        match &sent {
            Ok(()) => *locked(&self.standing) = Standing::Well,
            Err(error) if !hangs && error.kind() == io::ErrorKind::WouldBlock => {
                *locked(&self.standing) = Standing::Hung(Instant::now() + HASTE);
            }
            Err(_) => {}
        }
        sent
    }
}

/// Where lines go that the journal does not take.
#[derive(Debug)]
pub(super) struct Beside(Option<File>);

impl Beside {
    /// Standard error.
    pub(super) fn standard_error() -> Self {
        Self(io::stderr().as_fd().try_clone_to_owned().ok().map(File::from))
    }

    /// A file in its place.
    #[cfg(test)]
    pub(super) fn of(file: std::os::fd::OwnedFd) -> Self {
        Self(Some(file.into()))
    }

    /// Writes a line, unless that would have to be waited for; says whether it was written. The line is to be no longer
    /// than what a pipe with any room takes at once.
    pub(super) fn write(&self, line: &str) -> bool {
        let file = self.0.as_ref().filter(|file| has_room(file));
        file.is_some_and(|mut file| file.write_all(line.as_bytes()).is_ok())
    }
}

/// Whether something can be written at once.
pub(super) fn has_room(file: impl AsFd) -> bool {
    let mut asked = [PollFd::new(&file, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut asked, Some(&now)).is_ok() && asked[0].revents() == PollFlags::OUT
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
