//! Claims: when this process has to claim an occurrence of a job, and what becomes of that.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::sync::oneshot;

use super::{JobRun, Provider, READ_RETRY, Scheduler, after, instant, request};
use crate::cron::claim::NextRun;
use crate::cron::fire::{FireAdmission, FireRequest};
use crate::cron::owner::ClaimOwner;
use crate::cron::schedule;
use crate::link::Moment;
use crate::relay::effects::{Effects, JobStep, RunSeq};
use crate::store::{CronCommand, JobRow, RunRow, RunSource};

/// How long to wait before a job is claimed again whose claim failed, or was not due after all.
const CLAIM_RETRY: Duration = Duration::from_secs(5);

impl Scheduler {
    pub(super) fn claim_due(&mut self, now: Moment, effects: &mut Effects) {
        let due: Vec<(String, RunSource)> = self
            .next_claims(now)
            .filter(|(at, ..)| *at <= now.mono)
            .map(|(_, id, source)| (id.to_owned(), source))
            .collect();
        for (id, source) in due {
            if source == RunSource::Misfire {
                tracing::warn!(
                    job = id,
                    "the managed scheduler did not fire a job in time; running it"
                );
                self.counters.misfires += 1;
            }
            self.claim(id, None, source, None, now, effects);
        }
    }

    /// When this process has to claim which job, and why. A job that runs or is being claimed has no such time.
    pub(super) fn next_claims(&self, now: Moment) -> impl Iterator<Item = (Duration, &str, RunSource)> {
        let idle = self.jobs.iter().filter(|(id, _)| !self.has_run(id));
        idle.filter_map(move |(id, row)| {
            let (at, source) = self.due_at(row, now)?;
            let held = self.held.get(id).copied().unwrap_or_default();
            (held != Duration::MAX).then(|| (after(now, at).max(held), id.as_str(), source))
        })
    }

    /// When this process has to claim a job, in Unix milliseconds, and why; `None` for never.
    pub(super) fn due_at(&self, row: &JobRow, now: Moment) -> Option<(i64, RunSource)> {
        let (NextRun::At(next) | NextRun::Repair(next)) = row.next_run(instant(now), &self.zone) else {
            return None;
        };
        let next = next.as_millisecond();
        match &self.provider {
            Provider::Off => None,
            _ if self.uses_timer() => Some((next, RunSource::Builtin)),
            _ if self.is_owed(row) => Some((next, RunSource::Chronos)),
            Provider::Timer | Provider::Managed(_) => {
                let grace = i64::try_from(self.settings.misfire_grace_minutes).ok()?;
                (grace > 0).then(|| (next.saturating_add(grace * 60_000), RunSource::Misfire))
            }
        }
    }

    /// Whether the alarm of the next run is spent, since its fire met a running job.
    pub(super) fn is_owed(&self, row: &JobRow) -> bool {
        let owed = self.owed.get(row.job.id());
        owed.is_some_and(|at| row.pending_run(&self.zone) == Some(*at))
    }

    /// Asks the journal to claim an occurrence of a job.
    pub(super) fn claim(
        &mut self,
        job: String,
        fire_at: Option<Timestamp>,
        source: RunSource,
        reply: Option<oneshot::Sender<FireAdmission>>,
        now: Moment,
        effects: &mut Effects,
    ) {
        self.held.insert(job.clone(), Duration::MAX);
        let claim = CronCommand::Claim {
            job: job.clone(),
            fire_at,
            source,
            owner: self.next_owner(),
            zone: self.zone.clone(),
            now: instant(now),
        };
        request(JobStep::Claim(job, reply), claim, effects);
    }

    /// The managed scheduler fires a job.
    pub fn fire(
        &mut self,
        fire: FireRequest,
        reply: oneshot::Sender<FireAdmission>,
        now: Moment,
        effects: &mut Effects,
    ) {
        let fire_at = fire
            .fire_at
            .and_then(|text| schedule::parse_instant(&text, &TimeZone::UTC));
        self.claim(
            fire.job_id,
            fire_at,
            RunSource::Chronos,
            Some(reply),
            now,
            effects,
        );
    }

    /// Somebody asked for these runs.
    pub fn requested(&mut self, runs: Vec<RunRow>, now: Moment, effects: &mut Effects) {
        for run in runs {
            if self.is_busy(&run.job, now) {
                // It waits until the run before it is over.
                self.reads.again_at.get_or_insert(now.mono + READ_RETRY);
                continue;
            }
            self.held.insert(run.job.clone(), Duration::MAX);
            let claim = CronCommand::ClaimRequested {
                seq: run.seq,
                owner: self.next_owner(),
                now: instant(now),
            };
            request(JobStep::Claim(run.job, None), claim, effects);
        }
    }

    /// Whether a job runs or is being claimed, or was tried a moment ago.
    fn is_busy(&self, job: &str, now: Moment) -> bool {
        self.has_run(job) || self.held.get(job).is_some_and(|until| *until > now.mono)
    }

    /// Whether a run of a job is claimed, and its end is not stored.
    fn has_run(&self, job: &str) -> bool {
        let mut runs = self.running.values().chain(&self.waiting);
        self.jobs.get(job).is_some_and(|row| row.is_running) || runs.any(|run| run.job.id() == job)
    }

    /// A run is claimed: it waits for a slot, and the occurrence after it is armed.
    pub fn claimed(&mut self, run: &RunRow, row: JobRow) {
        let id = row.job.id().to_owned();
        let owner = run.owner.as_deref().and_then(ClaimOwner::parse);
        let timeout = row.job.timeout_secs().unwrap_or(self.settings.job_timeout_secs);
        self.waiting.push_back(JobRun {
            seq: RunSeq(run.seq),
            owner: owner.unwrap_or_else(|| self.owner.clone()),
            job: row.job.clone(),
            timeout: Duration::from_secs(timeout),
            deadline: None,
            timed_out: false,
        });
        self.held.remove(&id);
        self.jobs.insert(id, row);
        self.publish();
    }

    /// A job was not claimed; it is tried again after a while, if it is still due then.
    pub fn not_claimed(&mut self, job: &str, now: Moment) {
        self.held.insert(job.to_owned(), now.mono + CLAIM_RETRY);
        self.reads.stale = true;
    }

    /// A job was not claimed, because it runs and this occurrence has to wait for that.
    pub fn met_run(&mut self, job: &str, occurrence: Timestamp, now: Moment) {
        self.owed.insert(job.to_owned(), occurrence);
        self.not_claimed(job, now);
    }
}
