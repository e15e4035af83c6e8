//! Why an attachment was not transferred.

use std::io;
use std::path::PathBuf;

use crate::adapter::media::MediaUrlError;
use crate::net::http::HttpError;

/// Why an attachment was not transferred. Contains no address or path of an attachment, except a refused host.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// The attachment directory cannot be used.
    #[error("cannot use the attachment directory {}: {cause}; check who owns it and that the disk is not full", path.display())]
    Folder {
        /// The path of the directory.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// An entry of `allow_hosts` is not a host.
    #[error("`media.allow_hosts` has `{0}`; write host or host:port")]
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
    /// The token would cross the network unencrypted.
    #[error("refusing to send the token unencrypted; use https")]
    Plaintext,
    /// Nobody serves the platform.
    #[error("neither a connector nor a bot serves this platform")]
    NoHost,
    /// There are no credentials for the connector yet.
    #[error("no credentials for the connector; enroll first")]
    NoCredentials,
    /// The HTTP client could not be set up.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
    /// The connection could not be made or broke.
    #[error("the connection failed: {0}")]
    Unreachable(String),
    /// The connector answered with a redirect.
    #[error("the connector redirected, which is not followed with a token")]
    Redirect,
    /// Too many redirects, or one that is malformed or leads from https to http.
    #[error("the redirect was not followed: {0}")]
    BadRedirect(&'static str),
    /// Any status that is not a success.
    #[error("the server responded with HTTP {0}")]
    Status(u16),
    /// The file is larger than allowed.
    #[error("the file is larger than {max} bytes")]
    TooLarge {
        /// The largest size in bytes.
        max: u64,
    },
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The body is compressed without being requested.
    #[error("the response is compressed, which was not requested")]
    Encoded,
    /// The transfer timed out.
    #[error("timed out")]
    TimedOut,
    /// No download slot became free in time.
    #[error("too many other downloads were in progress")]
    Busy,
    /// The turn was stopped.
    #[error("the turn was stopped")]
    Cancelled,
    /// A file could not be written or read.
    #[error("the file could not be written or read: {0}")]
    Disk(io::Error),
    /// All turns' files together are as large as allowed.
    #[error("the attachments of all turns together may take {total} bytes; see media.total_bytes")]
    NoRoom {
        /// `media.total_bytes`.
        total: u64,
    },
    /// The disk has too little space left.
    #[error("less than {min} bytes are free on the disk of the state directory; see media.min_free_bytes")]
    LowDisk {
        /// `media.min_free_bytes`.
        min: u64,
    },
    /// The path is not a regular file.
    #[error("it is not a regular file")]
    NotAFile,
    /// The path is outside the directories that files may be sent from.
    #[error("it is outside the directories that files may be sent from; see media.send_from")]
    Outside,
    /// The path is relative, and the agent has no working directory.
    #[error("the path is relative, and the agent has no workdir; set one, or use an absolute path")]
    Nowhere,
    /// The file is hidden, or in a hidden directory.
    #[error("hidden files are not sent")]
    Hidden,
    /// The connector's response to an upload has no id.
    #[error("the connector's response has no usable id")]
    NoId,
}

impl From<HttpError> for MediaError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::TimedOut(_) => Self::TimedOut,
            HttpError::Connect { reason, .. } | HttpError::Broken(reason) => Self::Unreachable(reason),
            error @ HttpError::NotActive => Self::Unreachable(error.to_string()),
            error => Self::Setup(error.to_string()),
        }
    }
}
