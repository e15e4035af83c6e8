//! Asking a relay that runs in another process, through its control socket. It never waits for ever.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::place::{socket_file, way_to};
use super::request::{Ask, DENIED, LONGEST_REQUEST, Refusal, read_answer};

/// How long an answer may take; longer than the relay itself waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest answer that is read.
const LONGEST_ANSWER: u64 = 16 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No relay runs with this state directory, or it has no control socket.
    #[error("no relay is running here: nobody listens on {}", .0.display())]
    NotRunning(PathBuf),
    /// The socket is not ours to use.
    #[error("the control socket {} is not ours to use: {source}", path.display())]
    Denied {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It listens and does not answer.
    #[error("the relay does not answer on {}: {source}", path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// What happened instead.
        source: io::Error,
    },
    /// What it answers cannot be understood.
    #[error("the answer of the relay on {} cannot be understood; is it another version?", .0.display())]
    Garbled(PathBuf),
    /// The request is too long.
    #[error("this is too long to be sent at once: {0} bytes, of {LONGEST_REQUEST} at most")]
    TooLong(usize),
    /// It answers no.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Asks the relay whose state directory this is.
pub fn ask(state_dir: &Path, ask: &Ask) -> Result<Value, AskError> {
    let path = socket_file(state_dir);
    let request = ask.to_line();
    if request.len() > LONGEST_REQUEST {
        return Err(AskError::TooLong(request.len()));
    }
    let mut socket = connect(state_dir).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::ConnectionRefused => {
            AskError::NotRunning(path.clone())
        }
        io::ErrorKind::PermissionDenied => AskError::Denied {
            path: path.clone(),
            source,
        },
        _ => AskError::Silent {
            path: path.clone(),
            source,
        },
    })?;
    let line = exchange(&mut socket, &request).map_err(|source| AskError::Silent {
        path: path.clone(),
        source,
    })?;
    match read_answer(&line) {
        Some(Err(refusal)) if refusal.code == DENIED => Err(AskError::Denied {
            path,
            source: io::Error::new(io::ErrorKind::PermissionDenied, refusal),
        }),
        Some(answer) => Ok(answer?),
        None => Err(AskError::Garbled(path)),
    }
}

fn connect(state_dir: &Path) -> io::Result<UnixStream> {
    let way = way_to(state_dir)?;
    let socket = UnixStream::connect(&way.path)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn exchange(socket: &mut UnixStream, request: &str) -> io::Result<Vec<u8>> {
    let asked = socket
        .write_all(request.as_bytes())
        .and_then(|()| socket.shutdown(Shutdown::Write));
    match asked {
        // It hung up without hearing us out, but may have said why.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
        _ => {}
    }
    let mut line = Vec::new();
    BufReader::new(socket.take(LONGEST_ANSWER)).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up"));
    }
    Ok(line)
}
