//! Where a turn's files are: what came with its message, downloaded for as long as the turn is, and the directories
//! that its agent may send from.
//!
//! It never keeps a file longer than the turn, and never fails one: what cannot be had is told to the agent.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use tokio::sync::watch;

use super::clock::unix_ms;
use super::live::{Credentials, USER_AGENT};
use super::transport::LinkView;
use crate::agent::{Attachment, MediaLocation, Turn};
use crate::config::Settings;
use crate::net::media::{
    DownloadLocation, DownloadRequest, Downloaded, MediaAccess, MediaClient, TokenMinter, TurnDir,
};
use crate::net::proxy::ProxyRules;
use crate::net::tls::Tls;
use crate::wire::{ConnectorUrl, TOKEN_TTL_SECS, UpgradeToken};

/// The folder for attachments in the state directory.
const FOLDER: &str = "media";
/// A connector's clock that is further from ours is not believed.
const MOST_SKEW_MS: u64 = 24 * 60 * 60 * 1000;

/// Makes the room for attachments; none, and a warning, when it cannot be made. The caller holds the state
/// directory's lock.
pub(super) fn open_room(
    settings: &Settings,
    tls: Tls,
    proxies: ProxyRules,
    credentials: watch::Receiver<Option<Credentials>>,
    link: watch::Receiver<LinkView>,
) -> Option<Arc<MediaClient>> {
    let connector = ConnectorUrl::parse(settings.connector.url.as_deref()?).ok()?;
    let access = MediaAccess {
        connector,
        mint: mint(credentials, link),
        allow_plaintext: settings.connector.allow_plaintext,
        tls,
        proxies,
        user_agent: USER_AGENT.to_owned(),
    };
    MediaClient::open(&settings.state_dir.join(FOLDER), settings.media.clone(), access)
        .inspect_err(|error| tracing::warn!(%error, "attachments stay where they are, and none can be sent"))
        .ok()
        .map(Arc::new)
}

/// Mints tokens by the connector's clock, as far as it is known.
fn mint(credentials: watch::Receiver<Option<Credentials>>, link: watch::Receiver<LinkView>) -> TokenMinter {
    Arc::new(move || {
        let who = credentials.borrow().clone()?;
        let skew_ms = link.borrow().clock_skew_ms;
        let skew_ms = skew_ms.filter(|skew| skew.unsigned_abs() <= MOST_SKEW_MS);
        let now_ms = unix_ms(SystemTime::now()).saturating_add(skew_ms.unwrap_or(0));
        Some(UpgradeToken::mint(
            &who.gateway_id,
            &who.secret,
            TOKEN_TTL_SECS,
            now_ms / 1000,
        ))
    })
}

/// A turn's files.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) room: Option<Arc<MediaClient>>,
    workdir: Option<PathBuf>,
    folder: OnceLock<TurnDir>,
}

impl Desk {
    pub(super) fn new(room: Option<Arc<MediaClient>>, workdir: Option<PathBuf>) -> Self {
        Self {
            room,
            workdir,
            folder: OnceLock::new(),
        }
    }

    /// Puts files in place of the addresses of what came with the message. Ends soon after the turn is told to stop;
    /// dropping this leaves nothing behind.
    pub(super) async fn take_in(&self, turn: &mut Turn) {
        let Some(room) = self.room.as_ref().filter(|_| !turn.input.attachments.is_empty()) else {
            return;
        };
        let mut wanted = Vec::new();
        for attachment in std::mem::take(&mut turn.input.attachments) {
            match attachment.location {
                MediaLocation::Url(url) => wanted.push(DownloadRequest {
                    url,
                    mime: attachment.mime,
                }),
                MediaLocation::File(_) => turn.input.attachments.push(attachment),
            }
        }
        let mut fetched = room.download(turn.id.0, wanted, &turn.cancel).await;
        turn.input.notes.extend(fetched.note());
        turn.input
            .attachments
            .extend(fetched.files.drain(..).map(attached));
        if let Some(folder) = fetched.dir.take() {
            // A turn takes in once; a second folder would go at once, and with it its files.
            let _ = self.folder.set(folder);
        }
    }

    /// The directories that the turn's agent may send from. The first is the one that relative names are meant from:
    /// where the agent works, else where the files are that came with the message.
    pub(super) fn roots(&self) -> Vec<PathBuf> {
        let folder = self.folder.get().map(|folder| folder.path().to_owned());
        self.workdir.clone().into_iter().chain(folder).collect()
    }

    /// Removes the turn's files. When this is dropped, they are removed all the same.
    pub(super) async fn clear(self) {
        if let Some(folder) = self.folder.into_inner() {
            let _ = tokio::task::spawn_blocking(move || drop(folder)).await;
        }
    }
}

fn attached(received: Downloaded) -> Attachment {
    Attachment {
        location: match received.location {
            DownloadLocation::File(path) => MediaLocation::File(path),
            DownloadLocation::Url(url) => MediaLocation::Url(url),
        },
        mime: received.mime,
        name: received.name,
    }
}
