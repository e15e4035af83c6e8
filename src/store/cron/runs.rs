//! Runs: claims, their ends, and what is left of both.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::jobs::{jobs, one, put};
use super::{ClaimReply, CronReply, JobRow, JobRunStatus, MAX_LISTED_RUNS, RunRow, RunSource, clip, instant};
use crate::cron::claim::{self, ClaimVerdict, Held, STALE_SECS};
use crate::cron::job::{Job, JobState, RunOutcome};
use crate::cron::owner::ClaimOwner;
use crate::store::process;

/// Jobs that have run for the last time and are kept; the oldest are deleted.
const MAX_COMPLETED: usize = 100;
/// Ended runs that are kept; the oldest are deleted.
const MAX_RUNS: i64 = 1_000;

pub(super) fn claim_occurrence(
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
        (ClaimVerdict::Busy { occurrence }, ..) => Ok(ClaimReply::Busy { occurrence }),
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

pub(super) fn claim_requested(
    db: &Connection,
    seq: i64,
    owner: &ClaimOwner,
    now: Timestamp,
) -> Result<ClaimReply> {
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

pub(super) fn finish(
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

pub(super) fn recover(db: &Connection, owner: &ClaimOwner, now: Timestamp) -> Result<CronReply> {
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

pub(super) fn interrupted(db: &Connection, seq: i64, zone: &TimeZone, now: Timestamp) -> Result<CronReply> {
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

pub(super) fn insert_run(
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

pub(super) fn runs(db: &Connection, job: Option<&str>, limit: u32) -> Result<Vec<RunRow>> {
    let mut find = db.prepare_cached(&format!(
        "{RUN} WHERE ?1 IS NULL OR job = ?1 ORDER BY seq DESC LIMIT ?2"
    ))?;
    let rows = find.query_map(params![job, limit.min(MAX_LISTED_RUNS)], run_row)?;
    rows.collect()
}

pub(super) fn with_status(db: &Connection, condition: &str) -> Result<Vec<RunRow>> {
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
