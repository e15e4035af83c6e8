//! Whether a fire may run a job now: at most once per occurrence.
//!
//! An occurrence is an instant. It is consumed by the claim that owns it, for good once its run began. A fire up to
//! [`EARLY_SECS`] early owns its occurrence; an earlier one owns none. An occurrence that becomes due while the one before it still
//! runs is skipped. A run that somebody asked for consumes none: what becomes due meanwhile follows it.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::job::{Job, JobState};
use super::schedule::{ONCE_GRACE_SECS, Timing, plus_secs};

/// How early a fire may be.
pub const EARLY_SECS: i64 = 60;
/// How often the holder of a claim renews it.
pub const HEARTBEAT_SECS: u64 = 60;
/// A claim of another machine that was not renewed for this long is free. On one machine the process itself is looked at.
pub const STALE_SECS: i64 = 300;
/// Instants closer than this are the same occurrence: a scheduler may drop fractions of a second.
const SAME_MILLIS: i64 = 1_000;
/// An occurrence that was consumed further ahead than this was consumed by a clock that was wrong.
const MAX_AHEAD_SECS: i64 = 3_600;

/// A claim that somebody holds on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The occurrence that it owns; none for a run that somebody asked for.
    pub occurrence: Option<Timestamp>,
    /// Whether its run began.
    pub began: bool,
    /// Whether its holder is gone.
    pub is_dead: bool,
}

/// What becomes of a fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// Run it.
    Claim {
        /// The occurrence.
        occurrence: Timestamp,
        /// The run that follows; none for a one-shot, whose record keeps its time.
        next: Option<Timestamp>,
    },
    /// Run it in place of a holder that is gone and had not begun.
    TakeOver,
    /// This occurrence ran already or runs now, or the job is paused.
    Duplicate,
    /// The job runs now, but not for this occurrence, which nothing has consumed.
    Busy {
        /// The occurrence.
        occurrence: Timestamp,
    },
    /// There is no such job any more.
    Gone,
    /// It is too early; nothing is consumed.
    Early {
        /// The occurrence.
        occurrence: Timestamp,
    },
}

/// Decides about a fire of `job`, whose latest consumed occurrence is `consumed`. `fire_at` is the occurrence that the fire
/// names, if it names one.
pub fn decide(
    job: Option<&Job>,
    consumed: Option<Timestamp>,
    held: Option<Held>,
    fire_at: Option<Timestamp>,
    now: Timestamp,
    default_zone: &TimeZone,
) -> ClaimVerdict {
    let Some(job) = job else { return ClaimVerdict::Gone };
    if !job.is_active() {
        return match job.state() {
            JobState::Completed => ClaimVerdict::Gone,
            JobState::Scheduled | JobState::Paused | JobState::Error => ClaimVerdict::Duplicate,
        };
    }
    let same = |occurrence| fire_at.is_none_or(|fire_at| is_same(fire_at, occurrence));
    if held.is_some_and(|held| held.is_dead && !held.began && held.occurrence.is_some_and(same)) {
        return ClaimVerdict::TakeOver;
    }
    let consumed = consumed.filter(|consumed| is_plausible(*consumed, now));
    let is_consumed =
        |at: Timestamp| consumed.is_some_and(|consumed| at <= consumed || is_same(at, consumed));
    if fire_at.is_some_and(is_consumed) {
        return ClaimVerdict::Duplicate;
    }
    let occurrence = match next_run(job, consumed, now, default_zone) {
        NextRun::At(at) | NextRun::Repair(at) => at,
        NextRun::Never => return ClaimVerdict::Duplicate,
    };
    if fire_at.is_some_and(|fire_at| fire_at < occurrence && !is_same(fire_at, occurrence)) {
        // The schedule has moved on since this was armed.
        return ClaimVerdict::Duplicate;
    }
    let is_early = now < plus_secs(occurrence, -EARLY_SECS);
    match held.filter(|held| !held.is_dead) {
        // It names no occurrence, so it may mean the one that runs.
        Some(_) if is_early && fire_at.is_none() => ClaimVerdict::Duplicate,
        _ if is_early => ClaimVerdict::Early { occurrence },
        Some(_) => ClaimVerdict::Busy { occurrence },
        None => {
            let schedule = job.schedule(default_zone);
            let zone = job.zone(default_zone);
            let next = schedule.and_then(|schedule| schedule.next_after_run(Some(occurrence), now, &zone));
            ClaimVerdict::Claim { occurrence, next }
        }
    }
}

/// When a job runs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRun {
    /// Not at all.
    Never,
    /// Then, or as soon as possible if that is past.
    At(Timestamp),
    /// The stored time cannot be used: it has to be this.
    Repair(Timestamp),
}

/// When `job` runs next, given its latest consumed occurrence.
pub fn next_run(job: &Job, consumed: Option<Timestamp>, now: Timestamp, default_zone: &TimeZone) -> NextRun {
    if !job.is_active() {
        return NextRun::Never;
    }
    let consumed = consumed.filter(|consumed| is_plausible(*consumed, now));
    let zone = job.zone(default_zone);
    let schedule = job.schedule(default_zone);
    let stored = job.next_run_at(default_zone);
    let Some(stored) = stored else {
        let next = schedule.and_then(|schedule| match schedule.timing() {
            Timing::Once { run_at } => {
                let is_ahead = consumed.is_none_or(|consumed| *run_at > consumed);
                (is_ahead && *run_at >= plus_secs(now, -ONCE_GRACE_SECS)).then_some(*run_at)
            }
            _ => schedule.next_after_run(consumed, now, &zone),
        });
        return next.map_or(NextRun::Never, NextRun::Repair);
    };
    if consumed.is_some_and(|consumed| stored <= consumed) {
        return match schedule.and_then(|schedule| schedule.next_after_run(consumed, now, &zone)) {
            Some(next) => NextRun::Repair(next),
            None => NextRun::Never,
        };
    }
    if stored <= now
        && let Some(wall) = moved_wall_clock(job, stored, now, &zone)
    {
        let next = schedule.filter(|schedule| matches!(schedule.timing(), Timing::Cron { .. }));
        if let Some(next) = next.and_then(|schedule| schedule.next_after_run(consumed, now, &zone))
            && next <= wall
        {
            return NextRun::Repair(next);
        }
    }
    NextRun::At(stored)
}

/// What the next run has to be if the stored one cannot be used, or is later than the schedule allows: a clock that was ahead
/// stores such a run. More work than [`next_run`], so not for every look at a job.
pub fn repair(
    job: &Job,
    consumed: Option<Timestamp>,
    now: Timestamp,
    default_zone: &TimeZone,
) -> Option<Timestamp> {
    let stored = match next_run(job, consumed, now, default_zone) {
        NextRun::Never => return None,
        NextRun::Repair(next) => return Some(next),
        NextRun::At(stored) => stored,
    };
    let consumed = consumed.filter(|consumed| is_plausible(*consumed, now));
    let latest = job
        .schedule(default_zone)?
        .next_after_run(consumed, now, &job.zone(default_zone))?;
    (latest < stored && !is_same(latest, stored)).then_some(latest)
}

/// The instant that the stored wall clock time means in this zone, if it was stored with the offset of another one and is still
/// ahead: the zone was changed since.
fn moved_wall_clock(job: &Job, stored: Timestamp, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let text = job.next_run_text()?;
    let local = text.get(..19).filter(|_| text.len() > 19)?;
    let wall = super::schedule::parse_instant(local, zone)?;
    (wall != stored && wall > now).then_some(wall)
}

/// Whether an occurrence can have been consumed by now.
pub fn is_plausible(consumed: Timestamp, now: Timestamp) -> bool {
    consumed <= plus_secs(now, MAX_AHEAD_SECS)
}

/// Whether two instants are the same occurrence.
pub fn is_same(a: Timestamp, b: Timestamp) -> bool {
    (a.as_millisecond() - b.as_millisecond()).abs() < SAME_MILLIS
}

#[cfg(test)]
mod tests;
