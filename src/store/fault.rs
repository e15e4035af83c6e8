//! The journal's errors. They never contain message text.

use super::log::BatchError;
use super::replication::NotReplicated;
use rusqlite::ErrorCode;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

/// The journal's health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Commits succeed.
    Ok,
    /// Commits fail; the journal retries.
    Failing {
        /// The reason, for people.
        reason: Arc<str>,
    },
}

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// No space left.
    Full,
    /// The disk reported an error.
    Io,
    /// The file or directory cannot be written.
    ReadOnly,
    /// The database is damaged.
    Corrupt,
    /// Another process held it for too long.
    Busy,
    /// This command is impossible; others are not affected.
    Refused,
    /// The stream of the cluster did not take it.
    NotReplicated,
    /// A newer program wrote what it is about.
    Newer,
}

/// A failed commit or command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {detail}", what = Self::what(*kind))]
pub struct Fault {
    /// Which kind.
    pub kind: FaultKind,
    /// The database's message.
    pub detail: Arc<str>,
}

impl Fault {
    /// A command that cannot be carried out, and would not be the next time.
    pub fn refused(detail: &str) -> Self {
        Self {
            kind: FaultKind::Refused,
            detail: detail.into(),
        }
    }

    pub(super) fn from_error(error: &rusqlite::Error) -> Self {
        if let rusqlite::Error::ToSqlConversionFailure(cause) = error {
            let own = if cause.is::<NotReplicated>() {
                Some(FaultKind::NotReplicated)
            } else if cause.is::<BatchError>() {
                Some(FaultKind::Newer)
            } else {
                None
            };
            if let Some(kind) = own {
                let detail = cause.to_string().into();
                return Self { kind, detail };
            }
        }
        let kind = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => FaultKind::Full,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => FaultKind::ReadOnly,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => FaultKind::Corrupt,
            Some(
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed,
            ) => FaultKind::Busy,
            Some(
                ErrorCode::TooBig
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::ParameterOutOfRange,
            )
            | None => FaultKind::Refused,
            // Anything unexpected is treated like a disk error: nothing is acknowledged, nothing is lost.
            Some(_) => FaultKind::Io,
        };
        Self {
            kind,
            detail: error.to_string().into(),
        }
    }

    /// Whether the whole commit failed rather than one impossible command.
    pub(super) fn fails_commit(&self) -> bool {
        self.kind != FaultKind::Refused
    }

    fn what(kind: FaultKind) -> &'static str {
        match kind {
            FaultKind::Full => "the disk of the state directory is full, free some space",
            FaultKind::Io => "the state directory's disk reported an error, check it",
            FaultKind::ReadOnly => "the journal cannot be written, check the state directory's permissions",
            FaultKind::Corrupt => "the journal is damaged, restart to have it checked",
            FaultKind::Busy => "another program keeps the journal locked, close it",
            FaultKind::Refused => "the journal refused the record",
            FaultKind::NotReplicated => "the cluster did not take the record",
            FaultKind::Newer => "a newer version of this program wrote it, upgrade this one",
        }
    }
}

/// Why the journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another relay uses it.
    #[error("state directory {} is in use by process {pid}", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// That process.
        pid: Holder,
    },
    /// The directory belongs to another user.
    #[error("{} belongs to user {owner}; this is user {user}, and its state directory must be its own", dir.display())]
    OtherUser {
        /// The directory.
        dir: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who we are.
        user: u32,
    },
    /// The directory holds something else than a journal.
    #[error("{} is not a state directory: it holds `{found}` and no journal", dir.display())]
    NotOurs {
        /// The directory.
        dir: PathBuf,
        /// A name in it.
        found: String,
    },
    /// The directory or a file in it cannot be created or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Directory {
        /// The action that failed.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The file can be read but not written.
    #[error("journal {} is read-only; give its owner write permission, or choose another state directory", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The database is damaged.
    #[error(
        "journal {} is damaged ({detail}); move it aside, or allow a fresh start on corruption",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The database's message.
        detail: String,
    },
    /// A newer program wrote it.
    #[error("journal {} has format {found}, this program knows up to {known}; upgrade it", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest known here.
        known: i64,
    },
    /// A newer program wrote its log.
    #[error("journal {} cannot be read: {detail}; upgrade this program", path.display())]
    NewerLog {
        /// The file.
        path: PathBuf,
        /// What this program does not know.
        detail: String,
    },
    /// It is part of a cluster, and no active member uses it.
    #[error(
        "journal {} is part of a cluster and cannot be changed here; use the machine whose relay is active",
        path.display()
    )]
    Replicated {
        /// The file.
        path: PathBuf,
    },
    /// Any other database error.
    #[error("cannot open journal {}: {fault}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The error.
        fault: Fault,
    },
    /// The writer thread could not be started.
    #[error("cannot start the journal's thread: {0}")]
    Thread(io::Error),
}

/// The process that holds a state directory, if its lock file says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(pub(super) Option<u32>);

impl Holder {
    /// Its process id, if known.
    pub fn pid(self) -> Option<u32> {
        self.0
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => pid.fmt(f),
            None => f.write_str("(unknown)"),
        }
    }
}
