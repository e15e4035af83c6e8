//! A fire: the managed scheduler's request to run a job now, and how it is admitted.

use std::pin::Pin;
use std::time::Duration;

/// An authentic fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FireRequest {
    /// The job.
    pub job_id: String,
    /// The occurrence, as it was armed; the scheduler may leave it out.
    pub fire_at: Option<String>,
}

/// What became of a fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FireAdmission {
    /// The job is claimed, durably, and runs.
    Accepted,
    /// This occurrence ran already or runs now, or the job is paused.
    Duplicate,
    /// There is no such job any more.
    Gone,
    /// It came long before the occurrence, which nothing has consumed.
    Early {
        /// When to try again.
        retry_after: Duration,
    },
    /// The relay is shutting down.
    Draining,
    /// The claim could not be stored.
    Failed,
}

impl FireAdmission {
    /// A fire long before its occurrence: it may come again when it is early enough to own it.
    pub fn early(occurrence: jiff::Timestamp, now: jiff::Timestamp) -> Self {
        let secs = occurrence.as_second() - now.as_second() - super::claim::EARLY_SECS;
        Self::Early {
            retry_after: Duration::from_secs(u64::try_from(secs).unwrap_or(0).max(1)),
        }
    }
}

/// Whoever claims and runs jobs.
pub trait AdmitFire: std::fmt::Debug + Send + Sync {
    /// Claims the job and starts it. [`FireAdmission::Accepted`] means that the claim is on disk.
    fn admit(&self, fire: FireRequest) -> Pin<Box<dyn Future<Output = FireAdmission> + Send + '_>>;
}
