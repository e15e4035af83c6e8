//! Attachments in and out: files from a message to the disk for one turn, and files of an agent to the connector.
//!
//! The bearer is shown to the connector's own shelf and to nobody else, redirects included. Every other address is
//! one that a stranger wrote into a chat: it reaches the public internet or the hosts in `allow_hosts`, and never
//! the machines around this one. A file that cannot be had never takes its message with it. Nothing here follows a
//! link out of the directories that files may be sent from, keeps a file longer than its turn, or logs an address.

mod download;
mod error;
mod folder;
mod outgoing;
mod reach;
mod settings;
mod upload;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use url::Url;

use download::Drawer;
use folder::Folder;
use reach::Reach;

use super::proxy::{ProxyRules, is_loopback};
use super::tls::Tls;
use crate::adapter::media::{
    AllowedHosts, MediaKind, MediaUrls, UrlOwner, clean_mime, media_kind, mime_for, missing_note, parse_url,
    safe_file_name,
};
use crate::wire::{ConnectorUrl, UpgradeToken};

pub use error::MediaError;
pub use folder::TurnDir;
pub use reach::{AddressRule, Looking, Lookup, SystemLookup};
pub use settings::MediaSettings;

/// Mints a fresh token for one request, valid for [`crate::wire::TOKEN_TTL_SECS`]; nothing while there are no
/// credentials.
pub type TokenMinter = Arc<dyn Fn() -> Option<UpgradeToken> + Send + Sync>;

/// How the network is reached, and as whom.
pub struct MediaAccess {
    /// The connector.
    pub connector: ConnectorUrl,
    /// Mints the bearer.
    pub mint: TokenMinter,
    /// Show the connector our token unencrypted over a network.
    pub allow_plaintext: bool,
    /// Whom we trust.
    pub tls: Tls,
    /// The proxies in between.
    pub proxies: ProxyRules,
    /// What we call ourselves; some file servers refuse those who say nothing.
    pub user_agent: String,
}

/// A file that came with a message, by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadRequest {
    /// Where it is.
    pub url: String,
    /// Its mime type as the message has it; empty when unknown.
    pub mime: String,
}

/// A file that a turn is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downloaded {
    /// Where it is.
    pub location: DownloadLocation,
    /// Its mime type; empty when unknown.
    pub mime: String,
    /// A name that is safe to use as a file's; may be empty when it is only an address.
    pub name: String,
}

/// Where a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DownloadLocation {
    /// On this machine, as long as the turn's folder is.
    File(PathBuf),
    /// Where it was.
    Url(String),
}

/// What became of a message's files.
#[derive(Debug, Default)]
#[must_use = "the files go when this is dropped"]
pub struct Downloads {
    /// The files, in the message's order.
    pub files: Vec<Downloaded>,
    /// Files on the connector's shelf that could not be had, and that nobody else can open.
    pub missing: usize,
    /// Holds the files; dropping it removes them. None when nothing was downloaded.
    pub dir: Option<TurnDir>,
}

impl Downloads {
    /// What the agent is told about files that are missing.
    pub fn note(&self) -> Option<String> {
        missing_note(self.missing)
    }
}

/// A file on the connector's shelf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// Where the connector finds it.
    pub url: String,
    /// The name to show.
    pub name: String,
    /// Its mime type.
    pub mime: String,
    /// How it is shown, unless the agent says otherwise.
    pub kind: MediaKind,
}

/// Where attachments come in and go out; one for each relay, shared by its turns.
pub struct MediaClient {
    settings: MediaSettings,
    shelf: MediaUrls,
    mint: TokenMinter,
    allow_plaintext: bool,
    reach: Reach,
    folder: Folder,
    places: Semaphore,
}

impl std::fmt::Debug for MediaClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediaClient")
            .field("settings", &self.settings)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl MediaClient {
    /// Makes the owner-only `folder`, removes what an earlier run left there, and connects to nothing. Whoever calls
    /// this holds the state directory's lock.
    pub fn open(folder: &Path, settings: MediaSettings, access: MediaAccess) -> Result<Self, MediaError> {
        let mut reach = Reach::new(access.tls, access.proxies, access.user_agent, settings.timeout());
        reach.allowed = AllowedHosts::parse(&settings.allow_hosts).map_err(MediaError::AllowHosts)?;
        Ok(Self {
            shelf: MediaUrls::new(&access.connector).map_err(MediaError::Connector)?,
            mint: access.mint,
            allow_plaintext: access.allow_plaintext,
            reach,
            folder: Folder::prepare(folder)?,
            places: Semaphore::new(settings.parallel.clamp(1, Semaphore::MAX_PERMITS)),
            settings,
        })
    }

    /// Resolves names in another way than the system does.
    #[must_use]
    pub fn with_lookup(mut self, lookup: Arc<dyn Lookup>) -> Self {
        self.reach.lookup = lookup;
        self
    }

    /// Judges addresses by another rule than [`crate::adapter::media::is_public_ip`].
    #[must_use]
    pub fn with_address_rule(mut self, rule: AddressRule) -> Self {
        self.reach.rule = rule;
        self
    }

    /// Downloads a message's files into a folder for `turn`. Takes about twice the timeout at most, and ends soon
    /// after `cancel`. What cannot be had stays as an address when anybody could open it, and is counted as missing
    /// when only the connector's gateways could. Dropping this future removes what it has downloaded.
    pub async fn download(
        &self,
        turn: u64,
        wanted: Vec<DownloadRequest>,
        cancel: &CancellationToken,
    ) -> Downloads {
        let folder = if self.settings.download && !wanted.is_empty() {
            self.folder
                .turn(turn)
                .inspect_err(|cause| tracing::warn!(%cause, "no folder for attachments could be made"))
                .ok()
        } else {
            None
        };
        let drawer = folder.as_ref().map(|folder| Drawer::new(folder.path()));
        let obtained = join_all(wanted.iter().enumerate().map(async |(index, one)| {
            let drawer = drawer
                .as_ref()
                .filter(|_| index < self.settings.max_attachments)?;
            self.obtain(one, drawer, cancel)
                .await
                .inspect_err(
                    |reason| tracing::info!(turn, index, %reason, "an attachment was not downloaded"),
                )
                .ok()
        }))
        .await;
        let mut downloads = Downloads::default();
        for (one, received) in wanted.into_iter().zip(obtained) {
            match received {
                Some(received) => downloads.files.push(received),
                None if self.is_hosted(&one.url) => downloads.missing += 1,
                None => downloads.files.push(left_there(one)),
            }
        }
        let has_file = |received: &Downloaded| matches!(received.location, DownloadLocation::File(_));
        downloads.dir = folder.filter(|_| downloads.files.iter().any(has_file));
        downloads
    }

    /// Puts a file of an agent's on the connector's shelf. It must be an ordinary file, not hidden, and with every
    /// link followed lie in one of `roots` or of the settings' `send_from`. A relative path is meant from the first of
    /// `roots`, where the agent works.
    pub async fn upload(
        &self,
        path: &Path,
        name: Option<&str>,
        mime: Option<&str>,
        roots: &[PathBuf],
    ) -> Result<Uploaded, MediaError> {
        let own_name = path.file_name().map(|name| name.to_string_lossy());
        let name = name
            .and_then(safe_file_name)
            .or_else(|| own_name.as_deref().and_then(safe_file_name))
            .unwrap_or_else(|| "file".to_owned());
        let mime = mime
            .and_then(clean_mime)
            .unwrap_or_else(|| mime_for(&name).to_owned());
        let (path, max) = (path.to_owned(), self.settings.max_bytes);
        let (roots, also) = (roots.to_owned(), self.settings.send_from.clone());
        // Dropping the wait leaves a few system calls to finish, and what they opened closed.
        let opened = tokio::task::spawn_blocking(move || outgoing::open_inside(&path, &roots, &also, max))
            .await
            .map_err(|cause| MediaError::Disk(cause.into()))??;
        let url = self.shelf.upload_url();
        let token = self.token(url)?;
        let put = upload::put(&self.reach, url, &token, opened, &name, &mime);
        let id = timeout(self.settings.timeout(), put)
            .await
            .map_err(|_| MediaError::TimedOut)??;
        Ok(Uploaded {
            url: self.shelf.file_url(&id),
            kind: media_kind(&mime, &name),
            name,
            mime,
        })
    }

    /// How long one download or upload may take.
    pub fn transfer_timeout(&self) -> std::time::Duration {
        self.settings.timeout()
    }

    /// Whether an address is a file on the connector's shelf.
    pub fn is_hosted(&self, url: &str) -> bool {
        parse_url(url).is_ok_and(|url| self.shelf.owner(&url) == UrlOwner::Connector)
    }

    async fn obtain(
        &self,
        wanted: &DownloadRequest,
        drawer: &Drawer<'_>,
        cancel: &CancellationToken,
    ) -> Result<Downloaded, MediaError> {
        let patience = self.settings.timeout();
        let url = parse_url(&wanted.url)?;
        let work = async {
            let _place = timeout(patience, self.places.acquire())
                .await
                .map_err(|_| MediaError::Busy)?;
            timeout(patience, self.get(&url, &wanted.mime, drawer))
                .await
                .map_err(|_| MediaError::TimedOut)?
        };
        // Dropping the work closes its connection; its unfinished file goes with the folder.
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(MediaError::Cancelled),
            done = work => done,
        }
    }

    async fn get(&self, url: &Url, mime: &str, drawer: &Drawer<'_>) -> Result<Downloaded, MediaError> {
        let (response, from) = match self.shelf.owner(url) {
            UrlOwner::Connector => {
                let token = self.token(url)?;
                let response = download::ask_connector(&self.reach, url, &token).await?;
                (response, url.clone())
            }
            UrlOwner::Other => download::ask_anyone(&self.reach, url).await?,
        };
        download::keep(response, &from, mime, drawer, self.settings.max_bytes).await
    }

    /// A fresh bearer for one request to the connector.
    fn token(&self, url: &Url) -> Result<UpgradeToken, MediaError> {
        let here = url.host().is_some_and(|host| is_loopback(&host));
        if url.scheme() != "https" && !here && !self.allow_plaintext {
            return Err(MediaError::Plaintext);
        }
        (self.mint)().ok_or(MediaError::NoCredentials)
    }
}

/// A file that stays where it is.
fn left_there(wanted: DownloadRequest) -> Downloaded {
    let name = parse_url(&wanted.url)
        .ok()
        .and_then(|url| safe_file_name(&download::last_segment(&url)));
    Downloaded {
        location: DownloadLocation::Url(wanted.url),
        mime: clean_mime(&wanted.mime).unwrap_or_default(),
        name: name.unwrap_or_default(),
    }
}
