//! Attachments: downloads of a message's files for one turn, and uploads of an agent's files to the connector.
//!
//! The token goes to the connector's own media routes only, redirects included. Every other address comes from a chat: it
//! may reach the public internet or the hosts in `allow_hosts`, never private networks. A failed download never drops
//! its message. Nothing here follows a link out of the directories that files may be sent from, keeps a file longer than
//! its turn, or logs an address.

mod bot_files;
mod disk;
mod error;
mod files;
mod guard;
mod recording;
mod transfer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use url::Url;

use files::MediaDir;
use guard::AddressGuard;
use transfer::FileNames;

use super::http::HttpEgress;
use super::proxy::is_loopback;
use crate::adapter::media::{
    AllowedHosts, MediaKind, MediaUrls, MissingReason, UrlOwner, carries_secret, clean_mime, media_kind,
    mime_for, missing_note, parse_url, safe_file_name,
};
use crate::direct::telegram::FileAddress;
use crate::setting::{MAX_SIZE, section};
use crate::wire::{ConnectorUrl, UpgradeToken};

pub use bot_files::BotFiles;
pub use error::MediaError;
pub use files::TurnDir;
pub use guard::{AddressRule, Looking, Lookup, SystemLookup};
pub use recording::recording_length;

section! {
    /// The `media` section of the configuration.
    #[derive(PartialEq, Eq)]
    pub struct MediaSettings {
        /// Whether attachments are downloaded; otherwise agents get the addresses of those that are public.
        pub download: bool = true;
        /// Maximum file size in bytes, in either direction.
        pub max_bytes: u64 = 25 * 1024 * 1024, range(1..=MAX_SIZE);
        /// Timeout in seconds of one download or upload, and of the wait for a free download slot.
        pub timeout_secs: u64 = 30, range(1..=3600);
        /// Maximum concurrent downloads, over all turns.
        pub parallel: usize = 4, range(1..=1024);
        /// Maximum attachments of one message that are downloaded; the rest count as missing.
        pub max_attachments: usize = 16, range(0..=1024);
        /// Maximum bytes of downloaded attachments on disk, over all turns; further ones are not downloaded.
        pub total_bytes: u64 = 1024 * 1024 * 1024, range(1..=1 << 50);
        /// Free bytes on the disk below which nothing is downloaded.
        pub min_free_bytes: u64 = 128 * 1024 * 1024, range(0..=1 << 50);
        /// Hosts (`host` or `host:port`) outside the public internet that attachments may come from.
        pub allow_hosts: Vec<String>;
        /// Directories from which agents may send files, besides their working directory.
        pub send_from: Vec<PathBuf>;
    }
}

impl MediaSettings {
    /// Timeout of one download or upload; at least a second.
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_secs.max(1))
    }
}

/// Mints a token for one request, valid for [`crate::wire::TOKEN_TTL_SECS`]; `None` without credentials.
pub type TokenMinter = Arc<dyn Fn() -> Option<UpgradeToken> + Send + Sync>;

/// A connector that keeps files of messages.
pub struct MediaConnector {
    /// The connector's address.
    pub url: ConnectorUrl,
    /// Mints tokens for requests to the connector.
    pub mint: TokenMinter,
    /// Whether the token may cross the network unencrypted.
    pub allow_plaintext: bool,
}

/// Access to the network and to those who keep the files.
pub struct MediaAccess {
    /// The connector, if there is one.
    pub connector: Option<MediaConnector>,
    /// The files of bots: theirs and the copies that they upload.
    pub bots: Option<Arc<BotFiles>>,
    /// How requests leave this machine.
    pub egress: HttpEgress,
}

/// A file to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadRequest {
    /// The address of the file.
    pub url: String,
    /// The MIME type according to the message; empty if it is unknown.
    pub mime: String,
}

/// A file of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downloaded {
    /// The file on disk, or its address.
    pub location: DownloadLocation,
    /// Its mime type; empty when unknown.
    pub mime: String,
    /// A safe file name; may be empty for an address.
    pub name: String,
}

/// The place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DownloadLocation {
    /// On disk, as long as the turn's directory exists.
    File(PathBuf),
    /// The address of a file that was not downloaded.
    Url(String),
}

/// A message's files.
#[derive(Debug, Default)]
#[must_use = "dropping this removes the files"]
pub struct Downloads {
    /// The files, in the message's order.
    pub files: Vec<Downloaded>,
    /// Files that could not be downloaded, and those whose addresses are not passed on.
    pub missing: usize,
    /// Why they are missing.
    pub reason: MissingReason,
    /// The directory of the files; dropping it removes them. `None` when nothing was downloaded.
    pub dir: Option<TurnDir>,
}

impl Downloads {
    /// A note to the agent about missing files.
    pub fn note(&self) -> Option<String> {
        missing_note(self.missing, self.reason)
    }
}

/// A file that was uploaded to the connector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// The file's address at the connector.
    pub url: String,
    /// The file name to show.
    pub name: String,
    /// Its mime type.
    pub mime: String,
    /// How it is shown by default.
    pub kind: MediaKind,
}

/// Downloads and uploads attachments; one per relay, shared by its turns.
pub struct MediaClient {
    settings: MediaSettings,
    connector: Option<ConnectorFiles>,
    bots: Option<Arc<BotFiles>>,
    guard: AddressGuard,
    dir: MediaDir,
    downloads: Semaphore,
}

/// The files that a connector keeps for this gateway.
struct ConnectorFiles {
    urls: MediaUrls,
    mint: TokenMinter,
    allow_plaintext: bool,
}

impl ConnectorFiles {
    /// Mints a token for one request.
    fn token(&self, url: &Url) -> Result<UpgradeToken, MediaError> {
        let local = url.host().is_some_and(|host| is_loopback(&host));
        if url.scheme() != "https" && !local && !self.allow_plaintext {
            return Err(MediaError::Plaintext);
        }
        (self.mint)().ok_or(MediaError::NoCredentials)
    }
}

impl std::fmt::Debug for MediaClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediaClient")
            .field("settings", &self.settings)
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl MediaClient {
    /// Creates the owner-only directory `dir` and removes what an earlier run left there. Connects to nothing. The caller
    /// holds the state directory's lock.
    pub fn open(dir: &Path, settings: MediaSettings, access: MediaAccess) -> Result<Self, MediaError> {
        let allowed = AllowedHosts::parse(&settings.allow_hosts).map_err(MediaError::AllowHosts)?;
        let connector = match access.connector {
            Some(connector) => Some(ConnectorFiles {
                urls: MediaUrls::new(&connector.url).map_err(MediaError::Connector)?,
                mint: connector.mint,
                allow_plaintext: connector.allow_plaintext,
            }),
            None => None,
        };
        let turns = MediaDir::open(dir, &settings)?;
        if let Some(files) = &access.bots {
            files.open().map_err(MediaError::Disk)?;
        }
        Ok(Self {
            connector,
            bots: access.bots,
            guard: AddressGuard::new(access.egress, settings.timeout(), allowed),
            dir: turns,
            downloads: Semaphore::new(settings.parallel.clamp(1, Semaphore::MAX_PERMITS)),
            settings,
        })
    }

    /// Replaces the system resolver.
    #[must_use]
    #[cfg(feature = "internals")]
    pub fn with_lookup(mut self, lookup: Arc<dyn Lookup>) -> Self {
        self.guard.lookup = lookup;
        self
    }

    /// Replaces the rule [`crate::adapter::media::is_public_ip`].
    #[must_use]
    #[cfg(feature = "internals")]
    pub fn with_address_rule(mut self, rule: AddressRule) -> Self {
        self.guard.rule = rule;
        self
    }

    /// Why files of messages are missing.
    pub fn missing_reason(&self) -> MissingReason {
        if self.settings.download {
            MissingReason::NotDownloaded
        } else {
            MissingReason::Withheld
        }
    }

    /// Downloads a message's files into a directory for `turn`. Takes at most about twice the timeout, and ends soon
    /// after `cancel`. A file that could not be downloaded counts as missing. Without downloads, the addresses of public files are
    /// passed on, if they carry no secret, and all others count as missing. Dropping this future removes what was downloaded.
    pub async fn download(
        &self,
        turn: u64,
        requests: Vec<DownloadRequest>,
        cancel: &CancellationToken,
    ) -> Downloads {
        let dir = if self.settings.download && !requests.is_empty() {
            self.dir
                .create(turn)
                .inspect_err(|cause| tracing::warn!(%cause, "could not create a directory for attachments"))
                .ok()
        } else {
            None
        };
        let names = dir.as_ref().map(FileNames::new);
        let files = join_all(requests.iter().enumerate().map(async |(index, request)| {
            let names = names.as_ref().filter(|_| index < self.settings.max_attachments)?;
            self.download_one(request, names, cancel)
                .await
                .inspect_err(
                    |reason| tracing::info!(turn, index, %reason, "an attachment was not downloaded"),
                )
                .ok()
        }))
        .await;
        let mut downloads = Downloads {
            reason: self.missing_reason(),
            ..Downloads::default()
        };
        for (request, file) in requests.into_iter().zip(files) {
            match file.or_else(|| self.not_downloaded(&request)) {
                Some(file) => downloads.files.push(file),
                None => downloads.missing += 1,
            }
        }
        let is_file = |file: &Downloaded| matches!(file.location, DownloadLocation::File(_));
        downloads.dir = dir.filter(|_| downloads.files.iter().any(is_file));
        downloads
    }

    /// Makes an agent's file reachable for whoever serves the platform: a copy for its bot, an upload to the connector. It must be a regular file, not hidden, and with every link resolved lie
    /// inside one of `roots` or the settings' `send_from`. A relative path starts at the first of `roots`, the agent's
    /// working directory.
    pub async fn upload(
        &self,
        platform: &str,
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
        // Cancel-safe: the blocking task finishes its few system calls and closes the file.
        let outgoing = tokio::task::spawn_blocking(move || files::open_inside(&path, &roots, &also, max))
            .await
            .map_err(|cause| MediaError::Disk(cause.into()))??;
        let bot = self.bots.as_ref().filter(|bots| bots.serve(platform));
        let url = match (bot, &self.connector) {
            (None, None) => return Err(MediaError::NoHost),
            (None, Some(files)) => {
                let url = files.urls.upload_url();
                let token = files.token(url)?;
                let upload = transfer::upload(&self.guard, url, &token, outgoing, &name, &mime);
                let id = timeout(self.settings.timeout(), upload)
                    .await
                    .map_err(|_| MediaError::TimedOut)??;
                files.urls.file_url(&id)
            }
            (Some(files), _) => {
                let (files, name) = (Arc::clone(files), name.clone());
                // Cancel-safe: a copy that nobody sends is removed by age.
                tokio::task::spawn_blocking(move || files.keep(outgoing, &name))
                    .await
                    .map_err(|cause| MediaError::Disk(cause.into()))??
            }
        };
        Ok(Uploaded {
            url,
            kind: media_kind(&mime, &name),
            name,
            mime,
        })
    }

    /// Creates a directory for the files of `turn`.
    pub fn create_dir(&self, turn: u64) -> std::io::Result<TurnDir> {
        self.dir.create(turn)
    }

    /// Timeout of one download or upload.
    pub fn transfer_timeout(&self) -> Duration {
        self.settings.timeout()
    }

    /// Whether an address is a file that only the connector, or Telegram, can serve.
    pub fn is_hosted(&self, url: &str) -> bool {
        (self.bots.is_some() && FileAddress::is_address(url))
            || parse_url(url).is_ok_and(|url| self.connector_of(&url).is_some())
    }

    /// A file that is not wanted on disk, by its address, if agents may get that.
    fn not_downloaded(&self, request: &DownloadRequest) -> Option<Downloaded> {
        let url = parse_url(&request.url).ok()?;
        let is_passed_on = !self.settings.download && !self.is_hosted(&request.url);
        let is_passed_on = is_passed_on && self.guard.passes_on(&url) && !carries_secret(&url);
        is_passed_on.then(|| Downloaded {
            name: safe_file_name(&transfer::last_segment(&url)).unwrap_or_default(),
            mime: clean_mime(&request.mime).unwrap_or_default(),
            location: DownloadLocation::Url(url.into()),
        })
    }

    /// The connector, if it keeps the file at this address.
    fn connector_of(&self, url: &Url) -> Option<&ConnectorFiles> {
        let is_its = |files: &&ConnectorFiles| files.urls.owner(url) == UrlOwner::Connector;
        self.connector.as_ref().filter(is_its)
    }

    async fn download_one(
        &self,
        request: &DownloadRequest,
        names: &FileNames<'_>,
        cancel: &CancellationToken,
    ) -> Result<Downloaded, MediaError> {
        let limit = self.settings.timeout();
        let work = async {
            let _permit = timeout(limit, self.downloads.acquire())
                .await
                .map_err(|_| MediaError::Busy)?;
            timeout(limit, self.fetch(&request.url, &request.mime, names))
                .await
                .map_err(|_| MediaError::TimedOut)?
        };
        // Dropping the work closes its connection; a partial file is removed with the directory.
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(MediaError::Cancelled),
            done = work => done,
        }
    }

    async fn fetch(&self, url: &str, mime: &str, names: &FileNames<'_>) -> Result<Downloaded, MediaError> {
        if let Some(files) = &self.bots
            && let Some(address) = FileAddress::parse(url)
        {
            let response = files.fetch(&address.id).await?;
            // The name in the message is the person's; the server's is a number.
            let from = match Url::parse(&address.to_string()) {
                Ok(url) if !address.name.is_empty() => url,
                _ => response.url().clone(),
            };
            return transfer::save(response, &from, mime, names, self.settings.max_bytes).await;
        }
        let url = parse_url(url)?;
        let (response, from) = match self.connector_of(&url) {
            Some(files) => {
                let token = files.token(&url)?;
                let response = transfer::get_from_connector(&self.guard, &url, &token).await?;
                (response, url)
            }
            None => transfer::get_from_anyone(&self.guard, &url).await?,
        };
        transfer::save(response, &from, mime, names, self.settings.max_bytes).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::proxy::ProxyRules;
    use crate::net::tls::{Tls, TlsSettings};

    #[test]
    fn settings_have_defaults_and_reject_unknown_keys() {
        let read = |json| serde_json::from_str::<MediaSettings>(json);
        assert_eq!(read("{}").unwrap(), MediaSettings::default());
        let some = read(r#"{"max_bytes": 7, "allow_hosts": ["h:1"]}"#).unwrap();
        assert_eq!((some.max_bytes, some.parallel), (7, 4));
        assert!(read(r#"{"max_byte": 7}"#).is_err());
    }

    fn client(dir: &Path, download: bool) -> MediaClient {
        let settings = MediaSettings {
            download,
            allow_hosts: vec!["10.0.0.2".to_owned()],
            ..MediaSettings::default()
        };
        let access = MediaAccess {
            connector: None,
            bots: None,
            egress: HttpEgress {
                tls: Tls::new(TlsSettings::default()),
                proxies: ProxyRules::none(),
                user_agent: "test".to_owned(),
                lease: None,
            },
        };
        MediaClient::open(&dir.join("media"), settings, access).unwrap()
    }

    fn requests(urls: &[&str]) -> Vec<DownloadRequest> {
        let request = |url: &&str| DownloadRequest {
            url: (*url).to_owned(),
            mime: String::new(),
        };
        urls.iter().map(request).collect()
    }

    /// Addresses that are no public file.
    const REFUSED: [&str; 6] = [
        "http://10.0.0.1/x.png",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/x.png",
        "file:///etc/passwd",
        "ftp://files.example/x.png",
        "not an address",
    ];

    #[tokio::test]
    async fn what_cannot_be_downloaded_is_missing_and_not_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let cancel = CancellationToken::new();
        let downloads = client(dir.path(), true)
            .download(1, requests(&REFUSED), &cancel)
            .await;
        assert_eq!((downloads.files.len(), downloads.missing), (0, REFUSED.len()));
        assert!(downloads.note().is_some() && downloads.dir.is_none());
        cancel.cancel();
        let public = requests(&["https://files.example/x.png"]);
        let downloads = client(dir.path(), true).download(2, public, &cancel).await;
        assert_eq!((downloads.files.len(), downloads.missing), (0, 1));
    }

    #[tokio::test]
    async fn without_downloads_only_the_addresses_of_public_and_allowed_hosts_are_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let client = client(dir.path(), false);
        let passed_on = ["https://files.example/x.png", "http://10.0.0.2/y.png"];
        let also_refused = [
            "http://localhost/x.png",
            "http://router/x.png",
            "https://files.example/x.png?token=1",
            "http://10.0.0.2/x.png?token=1",
        ];
        let urls = [&passed_on[..], &REFUSED, &also_refused].concat();
        let downloads = client
            .download(1, requests(&urls), &CancellationToken::new())
            .await;
        let files = downloads.files.iter();
        let files: Vec<_> = files.map(|file| (file.name.as_str(), &file.location)).collect();
        let location = |url: &str| DownloadLocation::Url(url.to_owned());
        let expected = passed_on.map(location);
        assert_eq!(files, [("x.png", &expected[0]), ("y.png", &expected[1])]);
        assert_eq!(downloads.missing, REFUSED.len() + also_refused.len());
        assert!(downloads.note().unwrap().contains("downloads are off"));
    }
}
