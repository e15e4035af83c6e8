//! Why an attachment did not come in or go out.

use std::io;
use std::path::PathBuf;

use crate::adapter::media::MediaUrlError;

/// Why an attachment did not come in or go out. Says neither the address nor a path of what was meant, except for
/// the folder of the relay's own and the host that is refused.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// The folder for attachments cannot be used.
    #[error("cannot use the folder for attachments {}: {cause}; check who owns it and that the disk is not full", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// An entry of `allow_hosts` is no host.
    #[error("media.allow_hosts has \"{0}\"; write host or host:port")]
    AllowHosts(String),
    /// The connector's own address cannot hold files.
    #[error("the connector's address cannot be used for attachments: {0}")]
    Connector(MediaUrlError),
    /// The address cannot be used.
    #[error("{0}")]
    Address(#[from] MediaUrlError),
    /// The host is not on the public internet.
    #[error(
        "{host} is not on the public internet; list it in media.allow_hosts if attachments may come from there"
    )]
    NotPublic {
        /// The host that was refused.
        host: String,
    },
    /// The bearer would cross the network unencrypted.
    #[error("refusing to show the connector our token unencrypted; use https")]
    Plaintext,
    /// There are no credentials for the connector yet.
    #[error("there are no credentials for the connector; enrol first")]
    NoCredentials,
    /// The HTTP client could not be set up.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
    /// The connection could not be made or broke.
    #[error("the connection failed: {0}")]
    Unreachable(String),
    /// The connector redirected; its own files are never fetched elsewhere.
    #[error("the connector redirected, which is not followed with our token")]
    Redirect,
    /// A redirect that leads nowhere safe: too many, unreadable, or from https to http.
    #[error("the redirect was not followed: {0}")]
    BadRedirect(&'static str),
    /// Any status that is not a success.
    #[error("the answer was HTTP {0}")]
    Status(u16),
    /// The file is larger than allowed.
    #[error("the file is larger than {max} bytes")]
    TooLarge {
        /// The bound.
        max: u64,
    },
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// The body is compressed although nobody asked for it.
    #[error("the answer is compressed, which was not asked for")]
    Encoded,
    /// It took too long, or nothing came for too long.
    #[error("it took too long")]
    TimedOut,
    /// Too many other downloads were under way for too long.
    #[error("too many other downloads were under way")]
    Busy,
    /// The turn was stopped.
    #[error("the turn was stopped")]
    Cancelled,
    /// A file could not be written or read.
    #[error("the file could not be written or read: {0}")]
    Disk(io::Error),
    /// What is to be sent is not an ordinary file.
    #[error("it is not an ordinary file")]
    NotAFile,
    /// What is to be sent is outside of where files may be sent from.
    #[error("it is outside the directories that files may be sent from; see media.send_from")]
    Outside,
    /// What is to be sent is named from a directory, and the agent works in none that is known.
    #[error(
        "its name is relative, and the agent has no workdir; set one, or name the file with its whole path"
    )]
    Nowhere,
    /// What is to be sent is hidden, or in a hidden directory.
    #[error("hidden files are not sent")]
    Hidden,
    /// The connector answered an upload with something that is no id.
    #[error("the connector's answer has no usable id")]
    NoId,
}
