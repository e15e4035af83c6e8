//! Jobs, their runs and claims in the journal's database.
//!
//! [`CronCommand`]s are applied inside a transaction: by the journal's writer while a relay runs, by [`CronFiles`] in any other process.
//! Both may do so at the same time; SQLite lets one write after the other. A claim is a row of `cron_runs` that has not ended: the
//! database allows one per job and one per occurrence.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fault::{Holder, OpenError};
use super::inspect::InspectError;
use super::journal::JournalSettings;
use super::lock::{self, StateLock};
use super::process;
use super::replication;
use super::schema;
use crate::access::{JobAction, JobMaker};
use crate::cron::claim::{self, ClaimVerdict, Held, NextRun, STALE_SECS};
use crate::cron::job::{self, Job, JobEdit, JobError, JobState, MAX_RECORD_BYTES, NewJob, RunOutcome};
use crate::cron::owner::ClaimOwner;

/// Maximum jobs; further ones are refused.
pub const MAX_JOBS: usize = 1_000;
/// Maximum jobs that were made in one chat and will run; further ones are refused there.
const MAX_CHAT_JOBS: usize = 50;
/// Jobs that have run for the last time and are kept; the oldest are deleted.
const MAX_COMPLETED: usize = 100;
/// Ended runs that are kept; the oldest are deleted.
const MAX_RUNS: i64 = 1_000;
/// Maximum characters of a stored error.
const MAX_ERROR_CHARS: usize = 500;
/// Maximum runs in one answer.
pub const MAX_LISTED_RUNS: u32 = 1_000;

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

    /// What the managed scheduler should have: the stored time of the next run, byte for byte.
    pub fn wanted_arm(&self, default_zone: &TimeZone) -> Option<&str> {
        let next = self.job.next_run_at(default_zone)?;
        let is_pending = self.job.is_active() && self.consumed.is_none_or(|consumed| next > consumed);
        self.job.next_run_text().filter(|_| is_pending)
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

    /// Whether it must not be lost when the disk fails.
    pub(super) fn must_last(&self) -> bool {
        matches!(self, Self::Finish { .. } | Self::Interrupted { .. })
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
    /// This occurrence ran already, or the job runs now, or is paused.
    Duplicate,
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
        let transaction = self.db.transaction_with_behavior(behavior)?;
        let reply = apply(&transaction, command)?;
        transaction.commit()?;
        Ok(reply)
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

type Change = (Option<JobRow>, Vec<std::result::Result<String, String>>);

fn make_change(
    db: &Connection,
    change: &JobChange,
    maker: Option<&JobMaker>,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<std::result::Result<Change, ChangeRefusal>> {
    let wanted = match change {
        JobChange::Add { new, random } => {
            let of_chat = maker.map_or(Ok(0), |maker| count_active_of(db, maker))?;
            if of_chat >= MAX_CHAT_JOBS {
                return Ok(Err(ChangeRefusal::ChatFull));
            }
            return add(db, new, *random, zone, now);
        }
        JobChange::Import { .. } if maker.is_some_and(|maker| !maker.is_owner()) => {
            return Ok(Err(ChangeRefusal::NotTheirs));
        }
        JobChange::Import { records, rest } => {
            keep_file_fields(db, rest)?;
            return import(db, records);
        }
        JobChange::Edit { job, .. }
        | JobChange::Pause { job, .. }
        | JobChange::Resume { job }
        | JobChange::Remove { job }
        | JobChange::Run { job } => job,
    };
    if let (JobChange::Remove { .. }, None) = (change, maker)
        && let Some(removed) = remove_unreadable(db, wanted)?
    {
        return Ok(Ok((Some(removed), Vec::new())));
    }
    let all = jobs(db)?;
    let visible: Vec<&Job> = (all.iter().map(|row| &row.job))
        .filter(|job| job.allows(JobAction::See, maker))
        .collect();
    let id = match job::find(visible.into_iter(), wanted) {
        Ok(job) if !job.allows(change.action(), maker) => return Ok(Err(ChangeRefusal::NotTheirs)),
        Ok(job) => job.id().to_owned(),
        Err(ids) if ids.is_empty() => return Ok(Err(ChangeRefusal::NoSuchJob(wanted.clone()))),
        Err(ids) => return Ok(Err(ChangeRefusal::Ambiguous(ids))),
    };
    let Some(mut row) = one(db, &id)? else {
        return Ok(Err(ChangeRefusal::NoSuchJob(wanted.clone())));
    };
    let consumed = row
        .consumed
        .filter(|consumed| claim::is_plausible(*consumed, now));
    let base = consumed.map_or(now, |consumed| consumed.max(now));
    let changed = match change {
        JobChange::Edit { edit, .. } => row.job.edit(edit, base, zone),
        JobChange::Pause { reason, .. } => {
            row.job.pause(reason.as_deref(), now, zone);
            Ok(())
        }
        JobChange::Resume { .. } => row.job.resume(base, zone),
        JobChange::Remove { .. } => {
            db.execute("DELETE FROM cron_jobs WHERE id = ?1", [&id])?;
            db.execute(
                "DELETE FROM cron_runs WHERE job = ?1 AND status = 'requested'",
                [&id],
            )?;
            return Ok(Ok((Some(row), Vec::new())));
        }
        JobChange::Run { .. } => {
            let waits: bool = db.query_row(
                "SELECT EXISTS (SELECT 1 FROM cron_runs WHERE job = ?1 AND status = 'requested')",
                [&id],
                |row| row.get(0),
            )?;
            if waits {
                return Ok(Err(ChangeRefusal::AlreadyRequested));
            }
            insert_run(
                db,
                &row.job,
                None,
                RunSource::Manual,
                JobRunStatus::Requested,
                None,
                now,
            )?;
            return Ok(Ok((Some(row), Vec::new())));
        }
        JobChange::Add { .. } | JobChange::Import { .. } => Ok(()),
    };
    if let Err(error) = changed {
        return Ok(Err(error.into()));
    }
    put(db, &row.job)?;
    Ok(Ok((one(db, &id)?, Vec::new())))
}

/// Deletes a job whose record cannot be read; returns what is left of it, or nothing if it can be read.
fn remove_unreadable(db: &Connection, id: &str) -> Result<Option<JobRow>> {
    let mut find = db.prepare_cached(&format!("{JOB} WHERE id = ?1"))?;
    let Some(Err(unreadable)) = find.query_row([id], job_row).optional()? else {
        return Ok(None);
    };
    let name = "unreadable";
    let Ok(job) = Job::from_record(serde_json::json!({"id": unreadable.id, "name": name})) else {
        return Ok(None);
    };
    db.execute("DELETE FROM cron_jobs WHERE id = ?1", [id])?;
    Ok(Some(JobRow {
        job,
        consumed: None,
        armed: None,
        arm_error: None,
        is_running: false,
    }))
}

/// Jobs that were made in somebody's chat and will run.
fn count_active_of(db: &Connection, maker: &JobMaker) -> Result<usize> {
    let is_here = |job: &Job| (job.origin()).is_some_and(|origin| maker.is_here(origin.owner()));
    let counted = |row: &&JobRow| row.job.state() != JobState::Completed && is_here(&row.job);
    Ok(jobs(db)?.iter().filter(counted).count())
}

fn add(
    db: &Connection,
    new: &NewJob,
    random: u64,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<std::result::Result<Change, ChangeRefusal>> {
    if count(db)? >= MAX_JOBS {
        return Ok(Err(ChangeRefusal::Full));
    }
    let mut random = random;
    let mut id = job::new_id(random);
    while let Some(row) = one(db, &id)? {
        if row.job.prompt() == new.prompt.trim() && new.origin.is_some() && row.job.origin() == new.origin {
            return Ok(Ok((Some(row), Vec::new())));
        }
        random = random.wrapping_add(1);
        id = job::new_id(random);
    }
    match Job::create(new, &id, now, zone) {
        Ok(job) => {
            put(db, &job)?;
            Ok(Ok((one(db, &id)?, Vec::new())))
        }
        Err(error) => Ok(Err(error.into())),
    }
}

fn import(db: &Connection, records: &[Value]) -> Result<std::result::Result<Change, ChangeRefusal>> {
    let mut imported = Vec::with_capacity(records.len());
    let mut total = count(db)?;
    for record in records {
        imported.push(match Job::from_record(record.clone()) {
            Err(error) => Err(error.to_string()),
            Ok(job) if text_of(&job).len() > MAX_RECORD_BYTES => {
                let id = job.id();
                Err(format!("`{id}` is larger than {} KiB", MAX_RECORD_BYTES >> 10))
            }
            Ok(job) => {
                let is_new = one(db, job.id())?.is_none();
                if is_new && total >= MAX_JOBS {
                    Err(format!("`{}`: {}", job.id(), ChangeRefusal::Full))
                } else {
                    total += usize::from(is_new);
                    put(db, &job)?;
                    Ok(job.id().to_owned())
                }
            }
        });
    }
    Ok(Ok((None, imported)))
}

/// The name under which the fields of imported files are kept.
pub(super) const FILE_FIELDS: &str = "cron_file";

fn file_fields(db: &Connection) -> Result<Map<String, Value>> {
    let text: Option<String> = db
        .prepare_cached("SELECT value FROM meta WHERE name = ?1")?
        .query_row([FILE_FIELDS], |row| row.get(0))
        .optional()?;
    Ok(text
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default())
}

fn keep_file_fields(db: &Connection, rest: &Map<String, Value>) -> Result<()> {
    if rest.is_empty() {
        return Ok(());
    }
    let mut fields = file_fields(db)?;
    fields.extend(rest.clone());
    let text = Value::Object(fields).to_string();
    // A second file can bring other fields; the newest count.
    let text = if text.len() > MAX_RECORD_BYTES {
        Value::Object(rest.clone()).to_string()
    } else {
        text
    };
    db.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?
        .execute(params![FILE_FIELDS, text])?;
    Ok(())
}

/// Adds an error to the last run that ended and to the job; false if there is no such job.
fn not_delivered(db: &Connection, id: &str, error: &str) -> Result<bool> {
    let last: Option<(i64, Option<String>)> = db
        .prepare_cached(
            "SELECT seq, delivery_error FROM cron_runs WHERE job = ?1 AND ended_at IS NOT NULL
             ORDER BY ended_at DESC, seq DESC LIMIT 1",
        )?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((seq, before)) = last {
        db.prepare_cached("UPDATE cron_runs SET delivery_error = ?2 WHERE seq = ?1")?
            .execute(params![seq, clip(&job::joined(before.as_deref(), error))])?;
    }
    let Some(mut row) = one(db, id)? else {
        return Ok(false);
    };
    row.job.note_undelivered(error);
    put(db, &row.job)?;
    Ok(true)
}

fn claim_occurrence(
    db: &Connection,
    id: &str,
    fire_at: Option<Timestamp>,
    source: RunSource,
    owner: &ClaimOwner,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<ClaimReply> {
    let row = one(db, id)?;
    let held_run = open_run(db, id)?;
    let held = held_run.as_ref().map(|(run, renewed_at)| Held {
        occurrence: run.occurrence,
        began: run.status == JobRunStatus::Running,
        is_dead: is_dead(run, *renewed_at, owner, now),
    });
    let (job, consumed) = match &row {
        Some(row) => (Some(&row.job), row.consumed),
        None => (None, None),
    };
    let verdict = claim::decide(job, consumed, held, fire_at, now, zone);
    match (verdict, row, held_run) {
        (ClaimVerdict::Gone, ..) | (_, None, _) => Ok(ClaimReply::Gone),
        (ClaimVerdict::Early { occurrence }, ..) => Ok(ClaimReply::Early { occurrence }),
        (ClaimVerdict::TakeOver, _, Some((run, _))) => take_over(db, run.seq, owner, now),
        (ClaimVerdict::Duplicate | ClaimVerdict::TakeOver, ..) => Ok(ClaimReply::Duplicate),
        (ClaimVerdict::Claim { occurrence, next }, Some(mut row), held_run) => {
            let ran: bool = db
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM cron_runs WHERE job = ?1 AND occurrence = ?2)")?
                .query_row(params![id, occurrence.as_microsecond()], |row| row.get(0))?;
            if ran {
                // The job was deleted and imported again since: it goes on with the occurrence after this one.
                consume(db, id, occurrence)?;
                return Ok(ClaimReply::Duplicate);
            }
            if let Some((run, _)) = held_run {
                end_unknown(db, run.seq, now)?;
            }
            if let Some(next) = next {
                row.job.set_next_run(Some(next), zone);
                put(db, &row.job)?;
            }
            consume(db, id, occurrence)?;
            let status = JobRunStatus::Claimed;
            let seq = insert_run(db, &row.job, Some(occurrence), source, status, Some(owner), now)?;
            claimed(db, seq)
        }
    }
}

fn consume(db: &Connection, id: &str, occurrence: Timestamp) -> Result<()> {
    db.prepare_cached("UPDATE cron_jobs SET consumed = max(ifnull(consumed, ?2), ?2) WHERE id = ?1")?
        .execute(params![id, occurrence.as_microsecond()])?;
    Ok(())
}

fn claim_requested(db: &Connection, seq: i64, owner: &ClaimOwner, now: Timestamp) -> Result<ClaimReply> {
    let Some(run) = run_at(db, seq)?.filter(|run| run.status == JobRunStatus::Requested) else {
        return Ok(ClaimReply::Duplicate);
    };
    if one(db, &run.job)?.is_none() {
        db.execute("DELETE FROM cron_runs WHERE seq = ?1", [seq])?;
        return Ok(ClaimReply::Gone);
    }
    if let Some((held, renewed_at)) = open_run(db, &run.job)? {
        if !is_dead(&held, renewed_at, owner, now) {
            return Ok(ClaimReply::Duplicate);
        }
        end_unknown(db, held.seq, now)?;
    }
    db.prepare_cached("UPDATE cron_runs SET status = 'claimed', owner = ?2, renewed_at = ?3 WHERE seq = ?1")?
        .execute(params![seq, owner.to_string(), now.as_microsecond()])?;
    claimed(db, seq)
}

fn take_over(db: &Connection, seq: i64, owner: &ClaimOwner, now: Timestamp) -> Result<ClaimReply> {
    db.prepare_cached(
        "UPDATE cron_runs SET owner = ?2, renewed_at = ?3 WHERE seq = ?1 AND status = 'claimed'",
    )?
    .execute(params![seq, owner.to_string(), now.as_microsecond()])?;
    claimed(db, seq)
}

fn claimed(db: &Connection, seq: i64) -> Result<ClaimReply> {
    let Some(run) = run_at(db, seq)? else {
        return Ok(ClaimReply::Duplicate);
    };
    match one(db, &run.job)? {
        Some(job) => Ok(ClaimReply::Claimed {
            run: Box::new(run),
            job: Box::new(job),
        }),
        None => Ok(ClaimReply::Gone),
    }
}

fn finish(
    db: &Connection,
    seq: i64,
    owner: &ClaimOwner,
    outcome: &RunOutcome,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<CronReply> {
    let status = match outcome.error {
        None => JobRunStatus::Completed,
        Some(_) => JobRunStatus::Failed,
    };
    let held =
        db.prepare_cached(
            "UPDATE cron_runs SET status = ?3, ended_at = ?4, error = ?5, delivery_error = ?6, output = ?7
             WHERE seq = ?1 AND owner = ?2 AND status IN ('claimed', 'running')",
        )?
        .execute(params![
            seq,
            owner.to_string(),
            status.as_str(),
            now.as_microsecond(),
            outcome.error.as_deref().map(clip),
            outcome.delivery_error.as_deref().map(clip),
            outcome.output,
        ])? == 1;
    let run = run_at(db, seq)?;
    let Some(run) = run.filter(|_| held) else {
        return Ok(CronReply::Finished {
            held: false,
            job: None,
        });
    };
    note_end(db, &run, outcome, zone, now)?;
    prune(db)?;
    let job = one(db, &run.job)?.map(Box::new);
    Ok(CronReply::Finished { held, job })
}

/// Writes the end of a run into its job.
fn note_end(
    db: &Connection,
    run: &RunRow,
    outcome: &RunOutcome,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<()> {
    let Some(mut row) = one(db, &run.job)? else {
        return Ok(());
    };
    let clipped = RunOutcome {
        error: outcome.error.as_deref().map(clip),
        delivery_error: outcome.delivery_error.as_deref().map(clip),
        output: None,
    };
    let consumed = row
        .consumed
        .filter(|consumed| claim::is_plausible(*consumed, now));
    row.job
        .finish(&clipped, run.occurrence.is_some(), consumed, now, zone);
    put(db, &row.job)
}

fn recover(db: &Connection, owner: &ClaimOwner, now: Timestamp) -> Result<CronReply> {
    let (mut interrupted, mut taken_over) = (Vec::new(), Vec::new());
    let mut random = owner.random;
    for run in with_status(db, "status IN ('claimed', 'running')")? {
        if run.status == JobRunStatus::Claimed {
            let claim = owner.with_random(random);
            random = random.wrapping_add(1);
            if let ClaimReply::Claimed { run, job } = take_over(db, run.seq, &claim, now)? {
                taken_over.push((*run, *job));
                continue;
            }
        }
        let job = one(db, &run.job)?;
        interrupted.push((run, job));
    }
    Ok(CronReply::Recovered {
        interrupted,
        taken_over,
    })
}

fn interrupted(db: &Connection, seq: i64, zone: &TimeZone, now: Timestamp) -> Result<CronReply> {
    // A fire may have found that its process is gone, and ended it.
    let run = run_at(db, seq)?;
    let Some(run) = run.filter(|run| matches!(run.status, JobRunStatus::Claimed | JobRunStatus::Running))
    else {
        return Ok(CronReply::Finished {
            held: false,
            job: None,
        });
    };
    end_unknown(db, seq, now)?;
    let outcome = RunOutcome {
        error: Some(INTERRUPTED.to_owned()),
        ..RunOutcome::default()
    };
    note_end(db, &run, &outcome, zone, now)?;
    let job = one(db, &run.job)?.map(Box::new);
    Ok(CronReply::Finished { held: true, job })
}

const INTERRUPTED: &str = "the relay ended while this ran";

fn end_unknown(db: &Connection, seq: i64, now: Timestamp) -> Result<()> {
    db.prepare_cached("UPDATE cron_runs SET status = 'unknown', ended_at = ?2, error = ?3 WHERE seq = ?1")?
        .execute(params![seq, now.as_microsecond(), INTERRUPTED])?;
    Ok(())
}

/// Whether the holder of a claim is gone. On this machine the process itself is looked at, elsewhere only the age is known.
fn is_dead(run: &RunRow, renewed_at: Timestamp, asking: &ClaimOwner, now: Timestamp) -> bool {
    let age = now.as_second() - renewed_at.as_second();
    match run.owner.as_deref().and_then(ClaimOwner::parse) {
        Some(owner) if owner.host == asking.host => {
            !owner.is_same_process(asking) && !process::is_running(&owner)
        }
        _ => age.abs() >= STALE_SECS,
    }
}

const JOB: &str = "SELECT id, record, consumed, armed, arm_error,
    EXISTS (SELECT 1 FROM cron_runs WHERE job = cron_jobs.id AND status IN ('claimed', 'running')) FROM cron_jobs";

/// Every job that can be read.
fn jobs(db: &Connection) -> Result<Vec<JobRow>> {
    Ok(stored_jobs(db)?.into_iter().flatten().collect())
}

fn all_jobs(db: &Connection) -> Result<CronReply> {
    let (mut rows, mut unreadable) = (Vec::new(), Vec::new());
    for job in stored_jobs(db)? {
        match job {
            Ok(row) => rows.push(row),
            Err(job) => unreadable.push(job),
        }
    }
    Ok(CronReply::Jobs(rows, unreadable))
}

type StoredJob = std::result::Result<JobRow, UnreadableJob>;

fn stored_jobs(db: &Connection) -> Result<Vec<StoredJob>> {
    let mut find = db.prepare_cached(&format!("{JOB} ORDER BY id"))?;
    let rows = find.query_map([], job_row)?;
    rows.collect()
}

fn one(db: &Connection, id: &str) -> Result<Option<JobRow>> {
    let mut find = db.prepare_cached(&format!("{JOB} WHERE id = ?1"))?;
    Ok(find.query_row([id], job_row).optional()?.and_then(StoredJob::ok))
}

/// An error for a record that cannot be read: another version or a person wrote it.
fn job_row(row: &Row<'_>) -> Result<StoredJob> {
    let (id, record): (String, String) = (row.get(0)?, row.get(1)?);
    let read = serde_json::from_str(&record)
        .map_err(|error| format!("its record is no JSON: {error}"))
        .and_then(|record| Job::from_record(record).map_err(|error| format!("its record: {error}")))
        .and_then(|job| {
            let is_own = job.id() == id;
            is_own
                .then_some(job)
                .ok_or_else(|| "its record has another id".to_owned())
        });
    let job = match read {
        Ok(job) => job,
        Err(reason) => return Ok(Err(UnreadableJob { id, reason })),
    };
    Ok(Ok(JobRow {
        job,
        consumed: row.get::<_, Option<i64>>(2)?.map(instant),
        armed: row.get(3)?,
        arm_error: row.get(4)?,
        is_running: row.get(5)?,
    }))
}

fn count(db: &Connection) -> Result<usize> {
    let count: i64 = db.query_row("SELECT count(*) FROM cron_jobs", [], |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

fn text_of(job: &Job) -> String {
    serde_json::to_string(job.record()).unwrap_or_default()
}

fn put(db: &Connection, job: &Job) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO cron_jobs (id, record) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET record = excluded.record",
    )?
    .execute(params![job.id(), text_of(job)])?;
    Ok(())
}

fn insert_run(
    db: &Connection,
    job: &Job,
    occurrence: Option<Timestamp>,
    source: RunSource,
    status: JobRunStatus,
    owner: Option<&ClaimOwner>,
    now: Timestamp,
) -> Result<i64> {
    db.prepare_cached(
        "INSERT INTO cron_runs (job, name, occurrence, source, status, owner, requested_at, renewed_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)",
    )?
    .execute(params![
        job.id(),
        job.name(),
        occurrence.map(Timestamp::as_microsecond),
        source.as_str(),
        status.as_str(),
        owner.map(ToString::to_string),
        now.as_microsecond(),
    ])?;
    Ok(db.last_insert_rowid())
}

const RUN: &str =
    "SELECT seq, job, name, occurrence, source, status, owner, requested_at, began_at, ended_at, error,
    delivery_error, output FROM cron_runs";

fn run_row(row: &Row<'_>) -> Result<RunRow> {
    let optional = |at| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(instant));
    Ok(RunRow {
        seq: row.get(0)?,
        job: row.get(1)?,
        name: row.get(2)?,
        occurrence: optional(3)?,
        source: RunSource::from_word(&row.get::<_, String>(4)?),
        status: JobRunStatus::from_word(&row.get::<_, String>(5)?),
        owner: row.get(6)?,
        requested_at: instant(row.get(7)?),
        began_at: optional(8)?,
        ended_at: optional(9)?,
        error: row.get(10)?,
        delivery_error: row.get(11)?,
        output: row.get(12)?,
    })
}

fn runs(db: &Connection, job: Option<&str>, limit: u32) -> Result<Vec<RunRow>> {
    let mut find = db.prepare_cached(&format!(
        "{RUN} WHERE ?1 IS NULL OR job = ?1 ORDER BY seq DESC LIMIT ?2"
    ))?;
    let rows = find.query_map(params![job, limit.min(MAX_LISTED_RUNS)], run_row)?;
    rows.collect()
}

fn with_status(db: &Connection, condition: &str) -> Result<Vec<RunRow>> {
    let mut find = db.prepare_cached(&format!("{RUN} WHERE {condition} ORDER BY seq"))?;
    let rows = find.query_map([], run_row)?;
    rows.collect()
}

fn run_at(db: &Connection, seq: i64) -> Result<Option<RunRow>> {
    let mut find = db.prepare_cached(&format!("{RUN} WHERE seq = ?1"))?;
    find.query_row([seq], run_row).optional()
}

/// The claim on a job, and when it was renewed.
fn open_run(db: &Connection, job: &str) -> Result<Option<(RunRow, Timestamp)>> {
    let mut find = db.prepare_cached(&format!(
        "{RUN} WHERE job = ?1 AND status IN ('claimed', 'running')"
    ))?;
    let Some(run) = find.query_row([job], run_row).optional()? else {
        return Ok(None);
    };
    let renewed_at = renewed_at(db, run.seq)?;
    Ok(Some((run, renewed_at)))
}

fn renewed_at(db: &Connection, seq: i64) -> Result<Timestamp> {
    db.prepare_cached("SELECT renewed_at FROM cron_runs WHERE seq = ?1")?
        .query_row([seq], |row| row.get(0))
        .map(instant)
}

/// Deletes what is beyond the bounds: the oldest ended runs, and jobs that have run for the last time.
fn prune(db: &Connection) -> Result<()> {
    db.prepare_cached(
        "DELETE FROM cron_runs WHERE status IN ('completed', 'failed', 'unknown') AND seq <=
         (SELECT ifnull(max(seq), 0) FROM cron_runs) - ?1",
    )?
    .execute([MAX_RUNS])?;
    let mut completed: Vec<JobRow> = jobs(db)?;
    completed.retain(|row| row.job.state() == JobState::Completed);
    if completed.len() > MAX_COMPLETED {
        let last = |row: &JobRow| row.consumed;
        completed.sort_by_key(last);
        for row in &completed[..completed.len() - MAX_COMPLETED] {
            db.execute("DELETE FROM cron_jobs WHERE id = ?1", [row.job.id()])?;
        }
    }
    Ok(())
}

fn instant(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn clip(text: &str) -> String {
    text.chars().take(MAX_ERROR_CHARS).collect()
}
