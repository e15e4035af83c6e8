//! The control socket: a file in the state directory through which its owner controls a running relay.
//!
//! Only the relay's own user and root are served. A request is one line of bounded length with a timeout, answered by one
//! line; a slow or invalid client loses its own connection only.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Interest, Ready};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::ACCEPT_RETRY;
use super::protocol::{
    ControlError, ControlRequest, DENIED, MAX_REQUEST_BYTES, SocketPath, encode_response, max_bytes,
    socket_file,
};
use super::service::ControlService;

/// Maximum number of connections; more wait to be accepted.
const MAX_CLIENTS: usize = 16;
/// Timeout for reading a request and for writing its response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two looks at whether a client still waits.
const CLIENT_CHECK: Duration = Duration::from_secs(1);

/// The socket's file, removed when dropped.
#[derive(Debug)]
pub(super) struct ControlSocket {
    socket: SocketPath,
    /// Device and inode of our socket: a file of somebody else in its place is kept.
    inode: (u64, u64),
}

impl ControlSocket {
    /// Creates the socket and replaces one that an earlier run left.
    pub(super) fn bind(state_dir: &Path) -> io::Result<(Self, UnixListener)> {
        let (file, socket) = (socket_file(state_dir), SocketPath::new(state_dir)?);
        if socket.directory.is_some() {
            tracing::warn!(
                socket = %file.display(),
                "the path of the control socket is long; only `hermes-relay` itself can connect to it"
            );
        }
        let path = &socket.path;
        match fs::symlink_metadata(path) {
            Ok(old) if old.file_type().is_socket() => fs::remove_file(path)?,
            Ok(_) => {
                let what = format!("{} exists and is not a socket", file.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let inode = inode(path)?;
        Ok((Self { socket, inode }, listener))
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if inode(&self.socket.path).is_ok_and(|inode| inode == self.inode) {
            let _ = fs::remove_file(&self.socket.path);
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Serves until dropped.
pub(super) async fn serve(listener: UnixListener, service: Arc<ControlService>) {
    let mut clients = JoinSet::new();
    loop {
        // Cancel-safe: nothing is accepted or joined unless its branch is chosen.
        tokio::select! {
            biased;
            _ = clients.join_next(), if !clients.is_empty() => {}
            accepted = listener.accept(), if clients.len() < MAX_CLIENTS => match accepted {
                Ok((client, _)) => {
                    clients.spawn(serve_client(client, Arc::clone(&service)));
                }
                Err(error) => {
                    tracing::warn!(%error, "the control socket cannot accept a connection");
                    sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
}

async fn serve_client(mut client: UnixStream, service: Arc<ControlService>) {
    let result = if is_owner(&client) {
        match timeout(CLIENT_TIMEOUT, read_request(&mut client)).await {
            // The client is gone or sent nothing.
            Err(_) | Ok(Ok(None) | Err(_)) => return,
            Ok(Ok(Some(Err(error)))) => Err(error),
            Ok(Ok(Some(Ok(request)))) => {
                let waits_for_agent = matches!(request, ControlRequest::Hand { wait_ms: Some(_), .. });
                tokio::select! {
                    biased;
                    result = service.handle(request) => result,
                    // The answer goes elsewhere then. Other requests take effect whoever reads their response.
                    () = gone(&client), if waits_for_agent => return,
                }
            }
        }
    } else {
        tracing::warn!("refused a request of another user on the control socket");
        Err(ControlError::new(
            DENIED,
            "only the user that runs the relay and root may use this socket",
        ))
    };
    let line = encode_response(result);
    let _ = timeout(CLIENT_TIMEOUT, async {
        client.write_all(line.as_bytes()).await?;
        client.shutdown().await
    })
    .await;
}

/// Waits until the client is gone. After its request it only reads, so that the end of what it sends says nothing.
async fn gone(client: &UnixStream) {
    loop {
        sleep(CLIENT_CHECK).await;
        let ready = client.ready(Interest::WRITABLE).await;
        if ready.is_ok_and(Ready::is_write_closed) {
            return;
        }
    }
}

/// Whether the client runs as our own user or as root.
fn is_owner(client: &UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    client
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0)
}

/// Reads one request; `None` if the client closed without one.
async fn read_request(client: &mut UnixStream) -> io::Result<Option<Result<ControlRequest, ControlError>>> {
    let mut line = Vec::new();
    let mut bounded = BufReader::new(client.take(MAX_REQUEST_BYTES as u64 + 1));
    bounded.read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Ok(None);
    }
    let limit = max_bytes(&line);
    if line.len() > MAX_REQUEST_BYTES && limit > MAX_REQUEST_BYTES && !line.ends_with(b"\n") {
        bounded.get_mut().set_limit((limit - MAX_REQUEST_BYTES) as u64);
        bounded.read_until(b'\n', &mut line).await?;
    }
    if line.len() > limit {
        let message = format!("a request has at most {limit} bytes");
        return Ok(Some(Err(ControlError::new("too_long", message))));
    }
    Ok(Some(ControlRequest::decode(&line)))
}
