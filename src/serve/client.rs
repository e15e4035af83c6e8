//! The client of a control socket. Every call has a timeout.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};
use serde_json::Value;

use super::protocol::{
    ControlError, ControlRequest, DENIED, SocketPath, decode_response, max_bytes, socket_file,
};

/// Timeout of a call; longer than any timeout of the relay itself.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of a response, in bytes.
const MAX_RESPONSE_BYTES: u64 = 16 * 1024 * 1024;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No relay runs with this state directory, or it has no control socket.
    #[error("no relay is running here: nobody listens on {}", .0.display())]
    NotRunning(PathBuf),
    /// This user may not use the socket.
    #[error("no permission to use the control socket {}: {source}", path.display())]
    Denied {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The relay listens but did not answer in time.
    #[error("the relay does not answer: nothing came on {} within {} s", path.display(), within.as_secs())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// How long the answer was waited for.
        within: Duration,
    },
    /// The connection to the relay failed.
    #[error("the relay does not respond on {}: {source}", path.display())]
    NoResponse {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The response is invalid.
    #[error("invalid response of the relay on {}; is it another version?", .0.display())]
    InvalidResponse(PathBuf),
    /// The request is too long.
    #[error("the request is too long: {0} bytes, maximum {1}")]
    TooLong(usize, usize),
    /// The relay refused the request.
    #[error(transparent)]
    Refused(#[from] ControlError),
}

/// Sends a request to the relay with this state directory and returns its response.
pub fn call(state_dir: &Path, request: &ControlRequest) -> Result<Value, ClientError> {
    call_within(state_dir, request, CALL_TIMEOUT)
}

/// The same with another timeout, for a request that waits for an agent.
pub fn call_within(
    state_dir: &Path,
    request: &ControlRequest,
    within: Duration,
) -> Result<Value, ClientError> {
    let path = socket_file(state_dir);
    let request = request.encode();
    let limit = max_bytes(request.as_bytes());
    if request.len() > limit {
        return Err(ClientError::TooLong(request.len(), limit));
    }
    let mut socket = connect(state_dir, within).map_err(|source| match source.kind() {
        // So many wait to be accepted that there is no room for another.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Silent {
            path: path.clone(),
            within: within.min(CALL_TIMEOUT),
        },
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::ConnectionRefused => {
            ClientError::NotRunning(path.clone())
        }
        io::ErrorKind::PermissionDenied => ClientError::Denied {
            path: path.clone(),
            source,
        },
        _ => ClientError::NoResponse {
            path: path.clone(),
            source,
        },
    })?;
    let line = exchange(&mut socket, &request).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Silent {
            path: path.clone(),
            within,
        },
        _ => ClientError::NoResponse {
            path: path.clone(),
            source,
        },
    })?;
    match decode_response(&line) {
        Some(Err(error)) if error.code == DENIED => Err(ClientError::Denied {
            path,
            source: io::Error::new(io::ErrorKind::PermissionDenied, error),
        }),
        Some(result) => Ok(result?),
        None => Err(ClientError::InvalidResponse(path)),
    }
}

fn connect(state_dir: &Path, within: Duration) -> io::Result<UnixStream> {
    let at = SocketPath::new(state_dir)?;
    let address = SocketAddrUnix::new(&at.path)?;
    let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    // Not every system can open it so.
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    let socket = UnixStream::from(socket);
    // Connecting waits as long as writing does.
    socket.set_write_timeout(Some(within.min(CALL_TIMEOUT)))?;
    net::connect(&socket, &address)?;
    socket.set_read_timeout(Some(within))?;
    socket.set_write_timeout(Some(CALL_TIMEOUT))?;
    Ok(socket)
}

fn exchange(socket: &mut UnixStream, request: &str) -> io::Result<Vec<u8>> {
    let sent = socket
        .write_all(request.as_bytes())
        .and_then(|()| socket.shutdown(Shutdown::Write));
    match sent {
        // It closed before it read everything, but may have sent the reason.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
        _ => {}
    }
    let mut line = Vec::new();
    BufReader::new(socket.take(MAX_RESPONSE_BYTES)).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "connection closed"));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_relay_that_reads_nothing_does_not_answer() {
        let dir = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(socket_file(dir.path())).unwrap();
        assert_silent(dir.path());
    }

    /// Elsewhere a full queue refuses.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_relay_that_accepts_nobody_does_not_answer() {
        let dir = tempfile::tempdir().unwrap();
        let listener = net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let address = SocketAddrUnix::new(socket_file(dir.path())).unwrap();
        net::bind(&listener, &address).unwrap();
        net::listen(&listener, 0).unwrap();
        let _waits = UnixStream::connect(socket_file(dir.path())).unwrap();
        assert_silent(dir.path());
    }

    fn assert_silent(state_dir: &Path) {
        let silent = call_within(state_dir, &ControlRequest::Status, Duration::from_millis(1)).unwrap_err();
        assert!(matches!(silent, ClientError::Silent { .. }), "{silent:?}");
        let said = silent.to_string();
        assert!(
            said.starts_with("the relay does not answer") && !said.contains("os error"),
            "{said}"
        );
    }
}
