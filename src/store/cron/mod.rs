//! Jobs, their runs and claims in the journal's database.
//!
//! [`CronCommand`]s are applied inside a transaction: by the journal's writer while a relay runs, by [`CronFiles`] in any other process.
//! Both may do so at the same time; SQLite lets one write after the other. A claim is a row of `cron_runs` that has not ended: the
//! database allows one per job and one per occurrence.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rusqlite::{Connection, Result, params};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

mod jobs;
mod runs;

use self::jobs::{all_jobs, file_fields, jobs, make_change, not_delivered, put};
use self::runs::{claim_occurrence, claim_requested, finish, interrupted, recover, runs, with_status};
use super::fault::{Holder, OpenError};
use super::inspect::InspectError;
use super::journal::JournalSettings;
use super::lock::{self, StateLock};
use super::replication;
use super::schema;
use crate::access::{JobAction, JobMaker};
use crate::cron::claim::{self, NextRun};
use crate::cron::job::{Job, JobEdit, JobError, NewJob, RunOutcome};
use crate::cron::owner::ClaimOwner;

/// Maximum jobs; further ones are refused.
pub const MAX_JOBS: usize = 1_000;
/// Maximum jobs that were made in one chat and will run; further ones are refused there.
const MAX_CHAT_JOBS: usize = 50;
/// Maximum characters of a stored error.
const MAX_ERROR_CHARS: usize = 500;
/// Maximum runs in one answer.
pub const MAX_LISTED_RUNS: u32 = 1_000;

/// The name under which the fields of imported files are kept.
pub(super) const FILE_FIELDS: &str = "cron_file";

pub(super) const SCHEMA: &str = "
    CREATE TABLE cron_jobs (
        id TEXT PRIMARY KEY,
        record TEXT NOT NULL,
        consumed INTEGER,
        armed TEXT,
        arm_error TEXT
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE cron_runs (
        seq INTEGER PRIMARY KEY,
        job TEXT NOT NULL,
        name TEXT NOT NULL,
        occurrence INTEGER,
        source TEXT NOT NULL,
        status TEXT NOT NULL,
        owner TEXT,
        requested_at INTEGER NOT NULL,
        renewed_at INTEGER NOT NULL,
        began_at INTEGER,
        ended_at INTEGER,
        error TEXT,
        delivery_error TEXT,
        output TEXT
    ) STRICT;
    CREATE UNIQUE INDEX cron_runs_occurrence ON cron_runs (job, occurrence) WHERE occurrence IS NOT NULL;
    CREATE UNIQUE INDEX cron_runs_claim ON cron_runs (job) WHERE status IN ('claimed', 'running');
    CREATE INDEX cron_runs_open ON cron_runs (status) WHERE status IN ('requested', 'claimed', 'running');
";

/// What started a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunSource {
    /// The relay's own timer.
    Builtin,
    /// The managed scheduler.
    Chronos,
    /// The relay, because the managed scheduler did not.
    Misfire,
    /// Somebody.
    Manual,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobRunStatus {
    /// Somebody asked for it; no relay has taken it yet.
    Requested,
    /// A relay has taken it and not begun.
    Claimed,
    /// The agent was started.
    Running,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
    /// Its relay ended while it ran.
    Unknown,
}

macro_rules! words {
    ($name:ident { $($variant:ident = $text:literal),+ } else $other:ident) => {
        impl $name {
            /// As it is stored and printed.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            fn from_word(word: &str) -> Self {
                match word { $($text => Self::$variant,)+ _ => Self::$other }
            }
        }
    };
}

words!(RunSource { Builtin = "builtin", Chronos = "chronos", Misfire = "misfire", Manual = "manual" } else Builtin);
words!(JobRunStatus {
    Requested = "requested", Claimed = "claimed", Running = "running", Completed = "completed",
    Failed = "failed", Unknown = "unknown"
} else Unknown);

/// A job as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// The job.
    pub job: Job,
    /// The latest occurrence that was claimed.
    pub consumed: Option<Timestamp>,
    /// The `fire_at` that the managed scheduler has, as it was sent.
    pub armed: Option<String>,
    /// Why it could not be armed.
    pub arm_error: Option<String>,
    /// Whether it runs now.
    pub is_running: bool,
}

impl JobRow {
    /// When it runs next.
    pub fn next_run(&self, now: Timestamp, default_zone: &TimeZone) -> NextRun {
        claim::next_run(&self.job, self.consumed, now, default_zone)
    }

    /// What its next run has to be if the stored one cannot be used.
    pub fn repair(&self, now: Timestamp, default_zone: &TimeZone) -> Option<Timestamp> {
        claim::repair(&self.job, self.consumed, now, default_zone)
    }

    /// The stored time of the next run, if nothing has consumed it.
    pub fn pending_run(&self, default_zone: &TimeZone) -> Option<Timestamp> {
        let next = self.job.next_run_at(default_zone)?;
        let is_pending = self.job.is_active() && self.consumed.is_none_or(|consumed| next > consumed);
        is_pending.then_some(next)
    }

    /// What the managed scheduler should have: the same, byte for byte.
    pub fn wanted_arm(&self, default_zone: &TimeZone) -> Option<&str> {
        self.pending_run(default_zone)?;
        self.job.next_run_text()
    }
}

/// A job whose record cannot be read: it does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnreadableJob {
    /// Its id.
    pub id: String,
    /// Why.
    pub reason: String,
}

/// A run of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Its number.
    pub seq: i64,
    /// The job's id.
    pub job: String,
    /// The job's name then.
    pub name: String,
    /// The occurrence; none if somebody asked for the run.
    pub occurrence: Option<Timestamp>,
    /// What started it.
    pub source: RunSource,
    /// Its state.
    pub status: JobRunStatus,
    /// Who holds it.
    pub owner: Option<String>,
    /// When it was asked for or claimed.
    pub requested_at: Timestamp,
    /// When the agent was started.
    pub began_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Why it failed.
    pub error: Option<String>,
    /// Why its answer was not delivered.
    pub delivery_error: Option<String>,
    /// The file with its output.
    pub output: Option<String>,
}

/// A change of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobChange {
    /// Make one. The answer's job has the id.
    Add {
        /// What to make.
        new: Box<NewJob>,
        /// Where its id comes from. The same number for the same prompt from the same chat is the same request, made again.
        random: u64,
    },
    /// Change one.
    Edit {
        /// Id or name.
        job: String,
        /// What to change.
        edit: Box<JobEdit>,
    },
    /// Pause one.
    Pause {
        /// Id or name.
        job: String,
        /// Why, if it was not somebody's wish.
        reason: Option<String>,
    },
    /// Resume one.
    Resume {
        /// Id or name.
        job: String,
    },
    /// Delete one; a run in progress continues.
    Remove {
        /// Id or name.
        job: String,
    },
    /// Run one as soon as a relay can.
    Run {
        /// Id or name.
        job: String,
    },
    /// Store these records, in place of those with the same id; a record that cannot be used is skipped.
    Import {
        /// The records.
        records: Vec<Value>,
        /// The fields of their file beside the jobs; kept for an export.
        rest: Map<String, Value>,
    },
}

impl JobChange {
    /// The id or name of the job that it changes, which must be there.
    pub fn job(&self) -> Option<&str> {
        match self {
            Self::Edit { job, .. }
            | Self::Pause { job, .. }
            | Self::Resume { job }
            | Self::Remove { job }
            | Self::Run { job } => Some(job),
            Self::Add { .. } | Self::Import { .. } => None,
        }
    }

    /// What it does with a job, as the rules of access see it.
    fn action(&self) -> JobAction {
        match self {
            Self::Pause { .. } | Self::Resume { .. } | Self::Remove { .. } => JobAction::Hold,
            Self::Add { .. } | Self::Edit { .. } | Self::Run { .. } | Self::Import { .. } => {
                JobAction::Change
            }
        }
    }
}

/// What is done to jobs. `zone` holds for jobs that have none of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CronCommand {
    /// All jobs: [`CronReply::Jobs`].
    Jobs,
    /// The newest runs of one job or of all, newest first: [`CronReply::Runs`].
    Runs {
        /// The job's id.
        job: Option<String>,
        /// Maximum.
        limit: u32,
    },
    /// The fields of imported files beside the jobs: [`CronReply::FileFields`].
    FileFields,
    /// Runs that somebody asked for and nobody has taken, oldest first: [`CronReply::Runs`].
    Requested,
    /// A person's change: [`CronReply::Changed`] or [`CronReply::Refused`]. Jobs that they may not see do not exist.
    Change {
        /// The change.
        change: JobChange,
        /// Who makes it; the operator if nobody is named.
        maker: Option<JobMaker>,
        /// The default zone.
        zone: TimeZone,
        /// Now.
        now: Timestamp,
    },
    /// Claim the occurrence that a fire means: [`CronReply::Claim`].
    Claim {
        /// The job's id.
        job: String,
        /// The occurrence that the fire names.
        fire_at: Option<Timestamp>,
        /// What fires it.
        source: RunSource,
        /// The claim's owner, with a random part of its own.
        owner: ClaimOwner,
        /// The default zone.
        zone: TimeZone,
        /// Now.
        now: Timestamp,
    },
    /// Claim a run that somebody asked for: [`CronReply::Claim`].
    ClaimRequested {
        /// The run.
        seq: i64,
        /// The claim's owner.
        owner: ClaimOwner,
        /// Now.
        now: Timestamp,
    },
    /// Note that the agent is about to be started; from here on the occurrence stays consumed: [`CronReply::Held`].
    Begin {
        /// The run.
        seq: i64,
        /// Its owner.
        owner: ClaimOwner,
        /// Now.
        now: Timestamp,
    },
    /// Renew claims: [`CronReply::Held`], false if any of them is lost.
    Renew {
        /// The runs with their owners.
        claims: Vec<(i64, ClaimOwner)>,
        /// Now.
        now: Timestamp,
    },
    /// Note how a run ended and compute the job's next run, if the claim is still this owner's: [`CronReply::Finished`].
    Finish {
        /// The run.
        seq: i64,
        /// Its owner.
        owner: ClaimOwner,
        /// How it ended.
        outcome: RunOutcome,
        /// The default zone.
        zone: TimeZone,
        /// Now.
        now: Timestamp,
    },
    /// At the start of the relay, which holds the state directory's lock, so that no other relay runs: find the runs that earlier
    /// ones left, and take over those that had not begun: [`CronReply::Recovered`].
    Recover {
        /// This process; each claim that is taken over gets a random part of its own from this one on.
        owner: ClaimOwner,
        /// Now.
        now: Timestamp,
    },
    /// Note that a run ended with an earlier process: [`CronReply::Finished`]. It is committed together with the
    /// notices, so that a relay that dies before finds the run again.
    Interrupted {
        /// The run.
        seq: i64,
        /// The default zone.
        zone: TimeZone,
        /// Now.
        now: Timestamp,
    },
    /// Repair next runs that cannot be used: [`CronReply::Jobs`].
    Repair {
        /// The default zone.
        zone: TimeZone,
        /// Now.
        now: Timestamp,
    },
    /// Note that the answer of a job's last run did not reach a target: [`CronReply::Held`].
    NotDelivered {
        /// The job's id.
        job: String,
        /// The target, and why.
        error: String,
    },
    /// Note what the managed scheduler has for a job: [`CronReply::Held`].
    SetArmed {
        /// The job's id.
        job: String,
        /// The `fire_at` that it has.
        armed: Option<String>,
        /// Why it could not be armed.
        error: Option<String>,
    },
}

impl CronCommand {
    /// Whether it changes nothing.
    pub fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Jobs | Self::Runs { .. } | Self::Requested | Self::FileFields
        )
    }

    /// Whether it must not be lost when the disk fails. What an earlier process left is taken in once, and before anything is claimed.
    pub(super) fn must_last(&self) -> bool {
        matches!(
            self,
            Self::Finish { .. } | Self::Interrupted { .. } | Self::Recover { .. }
        )
    }
}

/// The answer to a [`CronCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CronReply {
    /// Jobs, by id, and those that cannot be read.
    Jobs(Vec<JobRow>, Vec<UnreadableJob>),
    /// Runs.
    Runs(Vec<RunRow>),
    /// Fields of imported files.
    FileFields(Map<String, Value>),
    /// The change is made.
    Changed {
        /// The job after it; before it, if it was deleted. None for an import.
        job: Option<Box<JobRow>>,
        /// What an import did with each record: its id, or why it was skipped.
        imported: Vec<std::result::Result<String, String>>,
    },
    /// The change is not made.
    Refused(ChangeRefusal),
    /// What became of a fire.
    Claim(ClaimReply),
    /// Whether the claims are held.
    Held(bool),
    /// How a run's end was noted.
    Finished {
        /// Whether the claim was still this owner's; if not, nothing was noted.
        held: bool,
        /// The job after it; none if it was deleted meanwhile.
        job: Option<Box<JobRow>>,
    },
    /// What a start found.
    Recovered {
        /// Runs that ended with their process, still to be noted as [`CronCommand::Interrupted`]; with their job, unless it was
        /// deleted.
        interrupted: Vec<(RunRow, Option<JobRow>)>,
        /// Runs that had not begun, now claimed by this process: run them.
        taken_over: Vec<(RunRow, JobRow)>,
    },
}

/// What became of a fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimReply {
    /// It is claimed, and runs.
    Claimed {
        /// The run.
        run: Box<RunRow>,
        /// The job after the claim.
        job: Box<JobRow>,
    },
    /// This occurrence ran already or runs now, or the job is paused.
    Duplicate,
    /// The job runs now, but not for this occurrence, which nothing has consumed.
    Busy {
        /// The occurrence.
        occurrence: Timestamp,
    },
    /// There is no such job any more.
    Gone,
    /// It is too early.
    Early {
        /// The occurrence.
        occurrence: Timestamp,
    },
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefusal {
    /// There is no such job.
    #[error("there is no job `{0}`")]
    NoSuchJob(String),
    /// Several jobs have this name.
    #[error("several jobs have this name; use an id: {}", .0.join(", "))]
    Ambiguous(Vec<String>),
    /// The job cannot be like this.
    #[error(transparent)]
    Invalid(#[from] JobError),
    /// There are too many.
    #[error("there are {MAX_JOBS} jobs already; remove some first")]
    Full,
    /// A chat has too many.
    #[error("this chat has {MAX_CHAT_JOBS} jobs already; remove some first")]
    ChatFull,
    /// Somebody else made it.
    #[error("somebody else made this job; only they and owners may change or run it")]
    NotTheirs,
    /// A run was asked for already.
    #[error("this job is already about to run")]
    AlreadyRequested,
}

/// The jobs of a state directory, for any process: also while a relay runs.
#[derive(Debug)]
pub struct CronFiles {
    db: Connection,
    dir: PathBuf,
}

impl CronFiles {
    /// Opens the journal of a state directory. Creates or migrates it only if no relay runs. `assigned`: see
    /// [`JournalSettings::assigned_dir`].
    pub fn open(dir: &Path, assigned: bool, now_ms: i64) -> std::result::Result<Self, OpenError> {
        let path = schema::path_in(dir);
        let settings = JournalSettings::default();
        let lock = if schema::is_current(&path) {
            None
        } else {
            Some(StateLock::take(dir, assigned, now_ms)?)
        };
        let db = schema::open(&path, &settings)?;
        drop(lock);
        db.busy_timeout(Duration::from_secs(20))
            .map_err(|error| schema::to_open_error(&path, &error))?;
        let dir = dir.to_owned();
        Ok(Self { db, dir })
    }

    /// Runs a command in a transaction of its own; it is on disk when this returns.
    pub fn run(&mut self, command: &CronCommand) -> std::result::Result<CronReply, InspectError> {
        let behavior = if command.only_reads() {
            rusqlite::TransactionBehavior::Deferred
        } else {
            rusqlite::TransactionBehavior::Immediate
        };
        if !command.only_reads() {
            let holder = lock::held_by(&self.dir).ok().flatten().and_then(Holder::pid);
            if !replication::may_change_jobs(&self.db, holder) {
                let path = schema::path_in(&self.dir);
                return Err(InspectError::Open(OpenError::Replicated { path }));
            }
        }
        let mut run = || {
            let transaction = self.db.transaction_with_behavior(behavior)?;
            let reply = apply(&transaction, command)?;
            transaction.commit()?;
            Ok(reply)
        };
        run().map_err(|error| {
            if command.only_reads() {
                InspectError::from(error)
            } else {
                InspectError::of_change(&error)
            }
        })
    }
}

/// Runs a command inside the caller's transaction.
pub(super) fn apply(db: &Connection, command: &CronCommand) -> Result<CronReply> {
    Ok(match command {
        CronCommand::Jobs => all_jobs(db)?,
        CronCommand::Runs { job, limit } => CronReply::Runs(runs(db, job.as_deref(), *limit)?),
        CronCommand::FileFields => CronReply::FileFields(file_fields(db)?),
        CronCommand::NotDelivered { job, error } => CronReply::Held(not_delivered(db, job, &clip(error))?),
        CronCommand::Requested => CronReply::Runs(with_status(db, "status = 'requested'")?),
        CronCommand::Change {
            change,
            maker,
            zone,
            now,
        } => match make_change(db, change, maker.as_ref(), zone, *now)? {
            Ok((job, imported)) => CronReply::Changed {
                job: job.map(Box::new),
                imported,
            },
            Err(refusal) => CronReply::Refused(refusal),
        },
        CronCommand::Claim {
            job,
            fire_at,
            source,
            owner,
            zone,
            now,
        } => CronReply::Claim(claim_occurrence(db, job, *fire_at, *source, owner, zone, *now)?),
        CronCommand::ClaimRequested { seq, owner, now } => {
            CronReply::Claim(claim_requested(db, *seq, owner, *now)?)
        }
        CronCommand::Begin { seq, owner, now } => CronReply::Held(
            db.prepare_cached(
                "UPDATE cron_runs SET status = 'running', began_at = ?3, renewed_at = ?3
                 WHERE seq = ?1 AND owner = ?2 AND status = 'claimed'",
            )?
            .execute(params![seq, owner.to_string(), now.as_microsecond()])?
                == 1,
        ),
        CronCommand::Renew { claims, now } => {
            let mut renew = db.prepare_cached(
                "UPDATE cron_runs SET renewed_at = ?3 WHERE seq = ?1 AND owner = ?2 AND status IN ('claimed', 'running')",
            )?;
            let mut held = true;
            for (seq, owner) in claims {
                held &= renew.execute(params![seq, owner.to_string(), now.as_microsecond()])? == 1;
            }
            CronReply::Held(held)
        }
        CronCommand::Finish {
            seq,
            owner,
            outcome,
            zone,
            now,
        } => finish(db, *seq, owner, outcome, zone, *now)?,
        CronCommand::Recover { owner, now } => recover(db, owner, *now)?,
        CronCommand::Interrupted { seq, zone, now } => interrupted(db, *seq, zone, *now)?,
        CronCommand::Repair { zone, now } => {
            for mut row in jobs(db)? {
                if row
                    .consumed
                    .take_if(|consumed| !claim::is_plausible(*consumed, *now))
                    .is_some()
                {
                    db.prepare_cached("UPDATE cron_jobs SET consumed = NULL WHERE id = ?1")?
                        .execute([row.job.id()])?;
                }
                if let Some(next) = row.repair(*now, zone) {
                    row.job.set_next_run(Some(next), zone);
                    put(db, &row.job)?;
                }
            }
            all_jobs(db)?
        }
        CronCommand::SetArmed { job, armed, error } => CronReply::Held(
            db.prepare_cached("UPDATE cron_jobs SET armed = ?2, arm_error = ?3 WHERE id = ?1")?
                .execute(params![job, armed, error.as_deref().map(clip)])?
                == 1,
        ),
    })
}

fn instant(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn clip(text: &str) -> String {
    text.chars().take(MAX_ERROR_CHARS).collect()
}

#[cfg(test)]
mod tests;
