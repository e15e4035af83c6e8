//! Suspends the machine this program runs on, through its local API socket.
//!
//! It never leaves this machine, carries no credential, and reads no more of the answer than its status.

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Maximum length of a status line.
const MAX_STATUS: usize = 1024;

/// Why the machine was not suspended.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The socket cannot be used.
    #[error("the machine's socket cannot be used: {0}")]
    Socket(#[from] io::Error),
    /// The response is not HTTP.
    #[error("the machine's socket gave no HTTP answer")]
    NoAnswer,
    /// The request was rejected.
    #[error("the machine's socket answered with HTTP status {0}")]
    Refused(u16),
}

/// Asks for this machine to be suspended. The names go into the path as they are.
pub async fn suspend(socket: &Path, app: &str, machine: &str) -> Result<(), MachineError> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = format!(
        "POST /v1/apps/{app}/machines/{machine}/suspend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    let mut answer = stream.take(MAX_STATUS as u64);
    while !head.contains(&b'\n') && answer.read_buf(&mut head).await? > 0 {}
    match status(&head).ok_or(MachineError::NoAnswer)? {
        200..300 => Ok(()),
        other => Err(MachineError::Refused(other)),
    }
}

fn status(head: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(head.split(|byte| *byte == b'\n').next()?).ok()?;
    let mut words = line.trim_end().split(' ');
    words.next()?.strip_prefix("HTTP/1.")?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that gives one answer and returns the request.
    async fn asked(answer: &'static str) -> (Result<(), MachineError>, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let server = tokio::spawn(async move {
            let (mut peer, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                assert!(peer.read_buf(&mut request).await.unwrap() > 0);
            }
            peer.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        });
        let result = suspend(&path, "my-app", "m1").await;
        (result, server.await.unwrap())
    }

    #[tokio::test]
    async fn the_machine_is_asked_by_its_names_and_its_status_decides() {
        let (result, request) = asked("HTTP/1.1 200 OK\r\n\r\n{}").await;
        result.unwrap();
        assert!(
            request.starts_with("POST /v1/apps/my-app/machines/m1/suspend HTTP/1.1\r\n"),
            "{request}"
        );
        let (result, _) = asked("HTTP/1.1 412 Precondition Failed\r\n\r\n").await;
        assert!(matches!(result, Err(MachineError::Refused(412))));
        for nonsense in ["", "hello", "HTTP/1.1 \r\n", "HTTP/2 200\r\n"] {
            let (result, _) = asked(nonsense).await;
            assert!(matches!(result, Err(MachineError::NoAnswer)), "{nonsense:?}");
        }
        let nobody = suspend(Path::new("/no/such/socket"), "a", "m").await;
        assert!(matches!(nobody, Err(MachineError::Socket(_))));
    }
}
