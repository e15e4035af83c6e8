//! The control socket: a file in the state directory by which its owner asks and tells a running relay.
//!
//! Only the relay's own user and root are heard. A request is one line of bounded length that must come soon, and is
//! answered by one line; a client that is slow, silent or talks nonsense costs its own connection and nothing else.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::desk::Desk;
use super::place::{Way, socket_file, way_to};
use super::request::{Ask, DENIED, LONGEST_REQUEST, Refusal, answer_line};

/// Connections at once; more wait to be accepted.
const MOST_CLIENTS: usize = 16;
/// How long a client may take to say what it wants, or to take its answer.
const CLIENT: Duration = Duration::from_secs(5);
/// Before accepting is tried again after it failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket's file, which goes when this is dropped.
#[derive(Debug)]
pub(super) struct ControlSocket {
    file: PathBuf,
    way: Way,
    /// Which file it was when it was made: somebody else's in its place is left alone.
    identity: (u64, u64),
}

impl ControlSocket {
    /// Makes the socket, in place of one that an earlier run left.
    pub(super) fn bind(state_dir: &Path) -> io::Result<(Self, UnixListener)> {
        let (file, way) = (socket_file(state_dir), way_to(state_dir)?);
        if way.through.is_some() {
            tracing::warn!(
                socket = %file.display(),
                "the control socket's path is long; only `hermes-relay` itself will find a way to it"
            );
        }
        match fs::symlink_metadata(&way.path) {
            Ok(old) if old.file_type().is_socket() => fs::remove_file(&way.path)?,
            Ok(_) => {
                let what = format!("{} is in the way and is not a socket", file.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(&way.path)?;
        fs::set_permissions(&way.path, Permissions::from_mode(0o600))?;
        let made = fs::symlink_metadata(&way.path)?;
        let identity = (made.dev(), made.ino());
        Ok((Self { file, way, identity }, listener))
    }

    pub(super) fn path(&self) -> &Path {
        &self.file
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Ok(there) = fs::symlink_metadata(&self.way.path)
            && (there.dev(), there.ino()) == self.identity
        {
            let _ = fs::remove_file(&self.way.path);
        }
    }
}

/// Answers until it is dropped.
pub(super) async fn serve(listener: UnixListener, desk: Arc<Desk>) {
    let mut clients = JoinSet::new();
    loop {
        // Cancel-safe: nothing is accepted or joined unless its branch is chosen.
        tokio::select! {
            biased;
            _ = clients.join_next(), if !clients.is_empty() => {}
            accepted = listener.accept(), if clients.len() < MOST_CLIENTS => match accepted {
                Ok((client, _)) => {
                    clients.spawn(attend(client, Arc::clone(&desk)));
                }
                Err(error) => {
                    tracing::warn!(%error, "the control socket cannot accept");
                    sleep(PAUSE).await;
                }
            },
        }
    }
}

async fn attend(mut client: UnixStream, desk: Arc<Desk>) {
    let answer = if is_owner(&client) {
        match timeout(CLIENT, request(&mut client)).await {
            // It went away, or never said anything: there is nobody to answer.
            Err(_) | Ok(Ok(None) | Err(_)) => return,
            Ok(Ok(Some(Err(refusal)))) => Err(refusal),
            Ok(Ok(Some(Ok(ask)))) => desk.answer(ask).await,
        }
    } else {
        tracing::warn!("somebody else tried the control socket and was turned away");
        Err(Refusal::new(
            DENIED,
            "only the relay's own user and root are answered",
        ))
    };
    let line = answer_line(answer);
    let _ = timeout(CLIENT, async {
        client.write_all(line.as_bytes()).await?;
        client.shutdown().await
    })
    .await;
}

/// Whether the other end runs as our own user, or as root.
fn is_owner(client: &UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    client
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0)
}

/// One request; nothing when the client only came and went.
async fn request(client: &mut UnixStream) -> io::Result<Option<Result<Ask, Refusal>>> {
    let mut line = Vec::new();
    let mut bounded = BufReader::new(client.take(LONGEST_REQUEST as u64 + 1));
    bounded.read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() > LONGEST_REQUEST {
        let message = format!("a request has at most {LONGEST_REQUEST} bytes");
        return Ok(Some(Err(Refusal::new("too_long", message))));
    }
    Ok(Some(Ask::from_line(&line)))
}
