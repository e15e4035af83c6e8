//! Jobs: how they are read and changed.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use serde_json::{Map, Value};

use super::runs::insert_run;
use super::{
    ChangeRefusal, CronReply, FILE_FIELDS, JobChange, JobRow, JobRunStatus, MAX_CHAT_JOBS, MAX_JOBS,
    RunSource, UnreadableJob,
};
use super::{clip, instant};
use crate::access::{JobAction, JobMaker};
use crate::cron::claim;
use crate::cron::job::{self, Job, JobError, JobState, MAX_RECORD_BYTES, NewJob};

type Change = (Option<JobRow>, Vec<std::result::Result<String, String>>);

pub(super) fn make_change(
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
        JobChange::Pause { .. } if row.job.state() == JobState::Completed => Err(JobError::Completed),
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

pub(super) fn file_fields(db: &Connection) -> Result<Map<String, Value>> {
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
pub(super) fn not_delivered(db: &Connection, id: &str, error: &str) -> Result<bool> {
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

const JOB: &str = "SELECT id, record, consumed, armed, arm_error,
    EXISTS (SELECT 1 FROM cron_runs WHERE job = cron_jobs.id AND status IN ('claimed', 'running')) FROM cron_jobs";

/// Every job that can be read.
pub(super) fn jobs(db: &Connection) -> Result<Vec<JobRow>> {
    Ok(stored_jobs(db)?.into_iter().flatten().collect())
}

pub(super) fn all_jobs(db: &Connection) -> Result<CronReply> {
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

pub(super) fn one(db: &Connection, id: &str) -> Result<Option<JobRow>> {
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

pub(super) fn put(db: &Connection, job: &Job) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO cron_jobs (id, record) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET record = excluded.record",
    )?
    .execute(params![job.id(), text_of(job)])?;
    Ok(())
}
