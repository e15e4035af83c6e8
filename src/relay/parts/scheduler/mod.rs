//! Scheduled jobs: when to claim one, which runs are under way, and what the managed scheduler should have.
//!
//! The journal holds jobs, claims and runs, and decides who may run what ([`CronCommand`]); this part decides when to ask. Without
//! the managed scheduler its own timer claims what is due; with it, only what a fire should have started long ago. A claimed run
//! waits here for a slot, then becomes a turn in the session of its job.

mod arms;
mod claims;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::sync::{oneshot, watch};

use crate::access::{JobAction, JobMaker};
use crate::config::{CronConfig, CronProvider};
use crate::cron::arming::DesiredArms;
use crate::cron::chronos::ArmReport;
use crate::cron::claim::{HEARTBEAT_SECS, NextRun};
use crate::cron::job::{Job, JobState, RunOutcome, joined};
use crate::cron::owner::ClaimOwner;
use crate::cron::schedule;
use crate::link::Moment;
use crate::relay::effects::{ChatJobRequest, Effects, JobStep, Pending, RunSeq};
use crate::relay::status::CronStatus;
use crate::session::TurnId;
use crate::store::{Command, CronCommand, JobChange, JobRow, UnreadableJob, current_owner};
use crate::wire::{JOB_SESSION, SessionKey};

/// How long to wait before the jobs are read again when that failed.
const READ_RETRY: Duration = Duration::from_secs(5);
/// The longest time between two looks at the jobs, so that a changed clock or suspended machine is noticed.
const MAX_LOOK: Duration = Duration::from_secs(30);

/// How far the time of day may be set back before the next runs are looked at again, in milliseconds.
const MAX_SET_BACK_MS: i64 = 60_000;

/// The connection to the managed scheduler.
#[derive(Debug)]
pub struct Arms {
    desired: watch::Sender<DesiredArms>,
    report: watch::Receiver<ArmReport>,
}

impl Arms {
    /// The relay's end, and that of whoever makes the calls.
    pub fn channel() -> (Self, watch::Receiver<DesiredArms>, watch::Sender<ArmReport>) {
        let unread = DesiredArms {
            is_unread: true,
            ..DesiredArms::default()
        };
        let (desired, desired_receiver) = watch::channel(unread);
        let (report_sender, report) = watch::channel(ArmReport::default());
        (Self { desired, report }, desired_receiver, report_sender)
    }
}

/// What starts jobs.
#[derive(Debug)]
enum Provider {
    Off,
    Timer,
    Managed(Arms),
}

/// What happened to jobs so far.
#[derive(Clone, Copy, Debug, Default)]
struct JobCounters {
    completed: u64,
    failed: u64,
    misfires: u64,
}

/// A run that this process has claimed.
#[derive(Clone, Debug)]
pub struct JobRun {
    pub seq: RunSeq,
    owner: ClaimOwner,
    pub job: Job,
    timeout: Duration,
    /// When it has to be over; none before it begins.
    deadline: Option<Duration>,
    pub timed_out: bool,
}

impl JobRun {
    /// How long it may take, in seconds.
    pub fn timeout_secs(&self) -> u64 {
        self.timeout.as_secs()
    }
}

/// Somebody who changed jobs and waits to learn whether they are armed.
#[derive(Debug)]
pub enum ArmWaiter {
    /// A verb.
    Verb(oneshot::Sender<ArmReport>),
    /// A chat, which gets this answer, with what is the matter with this job.
    Chat {
        request: Box<ChatJobRequest>,
        job: String,
        answer: String,
    },
}

/// Jobs and their runs.
#[derive(Debug)]
pub struct Scheduler {
    provider: Provider,
    settings: CronConfig,
    zone: TimeZone,
    owner: ClaimOwner,
    jobs: BTreeMap<String, JobRow>,
    /// Whether all of them have been read; before, nothing is armed or cancelled.
    is_loaded: bool,
    reads: Reads,
    /// When the jobs were last looked at.
    looked_at: Option<Moment>,
    /// Jobs that are not claimed before then: the last claim failed, or one is under way ([`Duration::MAX`]).
    held: BTreeMap<String, Duration>,
    /// Occurrences whose fire met a running job. Their alarm is spent, so this process starts them when that run is over.
    owed: BTreeMap<String, Timestamp>,
    /// Claimed runs that wait for a slot.
    waiting: VecDeque<JobRun>,
    /// Runs with a slot.
    running: BTreeMap<RunSeq, JobRun>,
    /// Runs that are over, except that their output is being written.
    unsaved: BTreeMap<RunSeq, (JobRun, RunOutcome)>,
    renew_at: Duration,
    /// Who waits to learn whether jobs are armed, and how long at most.
    arm_waiters: Vec<(Duration, ArmWaiter)>,
    /// Answers for chats that waited.
    answers: Vec<(Box<ChatJobRequest>, String)>,
    counters: JobCounters,
    last_failure: Option<(String, String)>,
    /// Jobs that cannot be read, and were reported.
    unreadable: BTreeSet<String>,
}

/// Whether what is known of the jobs is current.
#[derive(Debug, Default)]
struct Reads {
    /// A read is under way.
    pending: bool,
    /// Another one is needed after it.
    stale: bool,
    again_at: Option<Duration>,
}

impl Scheduler {
    pub fn new(settings: &CronConfig, arms: Option<Arms>, random: u64) -> Self {
        let zone = settings.timezone.as_deref().map(schedule::zone);
        Self {
            provider: match (settings.provider, arms) {
                (CronProvider::Off, _) => Provider::Off,
                (CronProvider::Chronos, Some(arms)) => Provider::Managed(arms),
                (CronProvider::Chronos | CronProvider::Builtin, _) => Provider::Timer,
            },
            zone: zone.and_then(Result::ok).unwrap_or(TimeZone::UTC),
            settings: settings.clone(),
            owner: current_owner(random),
            jobs: BTreeMap::new(),
            is_loaded: false,
            reads: Reads::default(),
            looked_at: None,
            held: BTreeMap::new(),
            owed: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            unsaved: BTreeMap::new(),
            renew_at: Duration::ZERO,
            arm_waiters: Vec::new(),
            answers: Vec::new(),
            counters: JobCounters::default(),
            last_failure: None,
            unreadable: BTreeSet::new(),
        }
    }

    pub fn settings(&self) -> &CronConfig {
        &self.settings
    }

    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The state of the jobs, for people.
    pub fn status(&self, now: Moment) -> CronStatus {
        let report = self.arms();
        let next_of = |row: &JobRow| match row.next_run(instant(now), &self.zone) {
            NextRun::At(at) | NextRun::Repair(at) => Some((at, row.job.zone(&self.zone))),
            NextRun::Never => None,
        };
        let pending: Vec<_> = self.jobs.values().filter_map(next_of).collect();
        let next = pending.iter().min_by_key(|(at, _)| *at);
        CronStatus {
            provider: match &self.provider {
                Provider::Off => "off",
                Provider::Managed(_) if !self.uses_timer() => "chronos",
                Provider::Timer | Provider::Managed(_) => "builtin",
            },
            unavailable: report.as_ref().and_then(|report| report.unavailable.clone()),
            timezone: self.zone.iana_name().unwrap_or("UTC").to_owned(),
            jobs: pending.len(),
            armed: report.map(|report| report.armed()),
            running: self.running.len(),
            waiting: self.waiting.len(),
            next_run_at: next.map(|(at, zone)| schedule::format(*at, zone)),
            completed: self.counters.completed,
            failed: self.counters.failed,
            misfires: self.counters.misfires,
            last_failure: self.last_failure.clone(),
        }
    }

    /// Whether the relay's own timer starts jobs.
    fn uses_timer(&self) -> bool {
        match &self.provider {
            Provider::Off => false,
            Provider::Timer => true,
            Provider::Managed(arms) => arms.report.borrow().unavailable.is_some(),
        }
    }

    /// Takes in what an earlier run left, before anything else.
    pub fn start(&mut self, now: Moment, effects: &mut Effects) {
        let recover = CronCommand::Recover {
            owner: self.next_owner(),
            now: instant(now),
        };
        request(JobStep::Recover, recover, effects);
        self.reads.stale = true;
    }

    fn next_owner(&mut self) -> ClaimOwner {
        // Recovery may use a few of the numbers after its own.
        self.owner = self.owner.with_random(self.owner.random.wrapping_add(1 << 16));
        self.owner.clone()
    }

    /// Reads the jobs anew, claims what is due, renews claims.
    pub fn step(&mut self, now: Moment, serving: bool, effects: &mut Effects) {
        if self.clock_was_ahead(now) {
            // The next runs were computed by a clock that was wrong.
            self.reads.stale = true;
        }
        if self.reads.again_at.is_some_and(|at| at <= now.mono) {
            self.reads.again_at = None;
            self.reads.stale = true;
        }
        if self.reads.stale && !self.reads.pending {
            self.reads = Reads {
                pending: true,
                ..Reads::default()
            };
            let repair = CronCommand::Repair {
                zone: self.zone.clone(),
                now: instant(now),
            };
            request(JobStep::Jobs, repair, effects);
            request(JobStep::Requested, CronCommand::Requested, effects);
        }
        self.held.retain(|_, until| *until > now.mono);
        if serving {
            self.claim_due(now, effects);
        }
        let claims: Vec<_> = (self.running.values().chain(&self.waiting))
            .map(|run| (run.seq.0, run.owner.clone()))
            .collect();
        if !claims.is_empty() && now.mono >= self.renew_at {
            self.renew_at = now.mono + Duration::from_secs(HEARTBEAT_SECS);
            let renew = CronCommand::Renew {
                claims,
                now: instant(now),
            };
            request(JobStep::Noted, renew, effects);
        }
        self.answer_waiters(now.mono);
    }

    /// Whether the time of day was set back since the last look.
    fn clock_was_ahead(&mut self, now: Moment) -> bool {
        let last = self.looked_at.replace(now);
        last.is_some_and(|last| {
            let elapsed = now.mono.saturating_sub(last.mono).as_millis();
            let expected = last
                .unix_ms
                .saturating_add(i64::try_from(elapsed).unwrap_or(i64::MAX));
            expected.saturating_sub(now.unix_ms) > MAX_SET_BACK_MS
        })
    }

    /// The jobs as they are stored now.
    pub fn loaded(&mut self, rows: Vec<JobRow>) {
        self.reads.pending = false;
        self.is_loaded = true;
        self.jobs = rows
            .into_iter()
            .map(|row| (row.job.id().to_owned(), row))
            .collect();
        let is_pending = |id: &String, at: &mut Timestamp| {
            let row = self.jobs.get(id);
            row.and_then(|row| row.pending_run(&self.zone)) == Some(*at)
        };
        self.owed.retain(is_pending);
        self.publish();
    }

    /// Reports jobs that cannot be read, each once.
    pub fn report_unreadable(&mut self, jobs: &[UnreadableJob]) {
        self.unreadable.retain(|id| jobs.iter().any(|job| job.id == *id));
        for UnreadableJob { id, reason } in jobs {
            if self.unreadable.insert(id.clone()) {
                tracing::warn!(
                    job = id,
                    reason,
                    "a scheduled job cannot be read and does not run; `hermes-relay cron remove` deletes it, \
                     `cron import` replaces it"
                );
            }
        }
    }

    /// The jobs could not be read.
    pub fn read_failed(&mut self, now: Duration) {
        self.reads.pending = false;
        self.reads.again_at = Some(now + READ_RETRY);
    }

    /// The next run that has a slot.
    pub fn next_run(&mut self) -> Option<JobRun> {
        if self.running.len() >= self.settings.max_parallel_jobs {
            return None;
        }
        let run = self.waiting.pop_front()?;
        self.running.insert(run.seq, run.clone());
        Some(run)
    }

    /// A run with a slot.
    pub fn run(&self, run: RunSeq) -> Option<&JobRun> {
        self.running.get(&run)
    }

    /// Notes in the journal that a run is about to begin.
    pub fn begin(&mut self, turn: TurnId, run: RunSeq, now: Moment, effects: &mut Effects) {
        if let Some(run) = self.running.get_mut(&run) {
            run.deadline = Some(now.mono + run.timeout);
            let begin = CronCommand::Begin {
                seq: run.seq.0,
                owner: run.owner.clone(),
                now: instant(now),
            };
            request(JobStep::Begin(turn, run.seq), begin, effects);
        }
    }

    /// Runs that take too long, each reported once.
    pub fn overdue(&mut self, now: Duration) -> Vec<RunSeq> {
        let overdue = |run: &&mut JobRun| !run.timed_out && run.deadline.is_some_and(|at| at <= now);
        let runs = self.running.values_mut().filter(overdue);
        runs.map(|run| {
            run.timed_out = true;
            run.seq
        })
        .collect()
    }

    /// A run is over: gives its slot back.
    pub fn end(&mut self, run: RunSeq) -> Option<JobRun> {
        self.running.remove(&run)
    }

    /// Notes in the journal that an answer of this session did not reach a target, if the session is a job's.
    pub fn not_delivered(&mut self, session: &str, target: &str, reason: &str, effects: &mut Effects) {
        let Some(id) = session.strip_prefix(JOB_SESSION) else {
            return;
        };
        let error = format!("{target}: {reason}");
        self.last_failure = Some((id.to_owned(), format!("not delivered to {error}")));
        Self::note_undelivered(id, error, effects);
    }

    /// A run has only its output, and ends when that is written.
    pub fn finish_when_saved(&mut self, run: JobRun, outcome: RunOutcome) {
        self.unsaved.insert(run.seq, (run, outcome));
    }

    /// Whether a run waits for its output to be written.
    pub fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// The output of a job's run is written, or there is an error. A run that has ended already gets that noted.
    pub fn saved(
        &mut self,
        run: RunSeq,
        job: &str,
        error: Option<String>,
        now: Moment,
        effects: &mut Effects,
    ) {
        let error = error.map(|error| format!("the output was not saved: {error}"));
        if let Some(error) = &error {
            self.last_failure = Some((job.to_owned(), error.clone()));
        }
        match (self.unsaved.remove(&run), error) {
            (Some((run, mut outcome)), error) => {
                if let Some(error) = error {
                    outcome.delivery_error = Some(joined(outcome.delivery_error.as_deref(), &error));
                    outcome.output = None;
                }
                self.finish(&run, outcome, now, effects);
            }
            (None, Some(error)) => Self::note_undelivered(job, error, effects),
            (None, None) => {}
        }
    }

    fn note_undelivered(id: &str, error: String, effects: &mut Effects) {
        let job = id.to_owned();
        request(JobStep::Noted, CronCommand::NotDelivered { job, error }, effects);
    }

    /// Notes in the journal how a run ended.
    pub fn finish(&mut self, run: &JobRun, outcome: RunOutcome, now: Moment, effects: &mut Effects) {
        match &outcome.error {
            None => self.counters.completed += 1,
            Some(error) => {
                self.counters.failed += 1;
                self.last_failure = Some((run.job.id().to_owned(), error.clone()));
            }
        }
        let finish = CronCommand::Finish {
            seq: run.seq.0,
            owner: run.owner.clone(),
            outcome,
            zone: self.zone.clone(),
            now: instant(now),
        };
        request(JobStep::Finished, finish, effects);
    }

    /// Notes in the journal that a run ended with an earlier process.
    pub fn interrupted(&self, seq: i64, now: Moment, effects: &mut Effects) {
        let interrupted = CronCommand::Interrupted {
            seq,
            zone: self.zone.clone(),
            now: instant(now),
        };
        request(JobStep::Finished, interrupted, effects);
    }

    /// The end of a run is stored: the job as it is now.
    pub fn finished(&mut self, job: Option<JobRow>) {
        // Somebody may have asked for another run meanwhile.
        self.reads.stale = true;
        if let Some(row) = job {
            self.jobs.insert(row.job.id().to_owned(), row);
            self.publish();
        }
    }

    /// Whether jobs never run.
    pub fn is_off(&self) -> bool {
        matches!(self.provider, Provider::Off)
    }

    /// The jobs that somebody may see.
    pub fn jobs_of<'s>(&'s self, maker: &'s JobMaker) -> impl Iterator<Item = &'s Job> {
        let jobs = self.jobs.values().map(|row| &row.job);
        jobs.filter(|job| job.allows(JobAction::See, Some(maker)))
    }

    /// The jobs that run when they are due.
    pub fn active(&self) -> impl Iterator<Item = &Job> {
        let jobs = self.jobs.values().map(|row| &row.job);
        jobs.filter(|job| job.is_active() && job.state() == JobState::Scheduled)
    }

    /// Pauses a job for a reason that people read in lists. Whoever waits to learn about jobs learns of that, too.
    pub fn pause(&mut self, id: &str, reason: String, now: Moment, effects: &mut Effects) {
        if let Some(row) = self.jobs.get_mut(id) {
            row.job.pause(Some(&reason), instant(now), &self.zone);
        }
        let pause = CronCommand::Change {
            change: JobChange::Pause {
                job: id.to_owned(),
                reason: Some(reason),
            },
            maker: None,
            zone: self.zone.clone(),
            now: instant(now),
        };
        request(JobStep::Noted, pause, effects);
        self.reads.stale = true;
    }

    /// Changes a job as somebody asked in a chat.
    pub fn change(
        &mut self,
        change: JobChange,
        request_of: ChatJobRequest,
        now: Moment,
        effects: &mut Effects,
    ) {
        let change = CronCommand::Change {
            change,
            maker: Some(request_of.maker.clone()),
            zone: self.zone.clone(),
            now: instant(now),
        };
        request(JobStep::Change(Box::new(request_of)), change, effects);
    }

    /// Runs that are claimed and not over, claims and reads under way, jobs that are still to be armed, and what nothing else starts.
    pub fn outstanding(&self) -> usize {
        let claiming = self
            .held
            .values()
            .filter(|until| **until == Duration::MAX)
            .count();
        let owed = self.jobs.values().filter(|row| self.is_owed(row)).count();
        let arming = self.arms().is_some_and(|report| !report.is_settled());
        self.running.len()
            + self.waiting.len()
            + self.unsaved.len()
            + claiming
            + owed
            + self.arm_waiters.len()
            + usize::from(self.reads.pending)
            + usize::from(arming)
    }

    /// When a job is due for which the process has to be awake.
    pub fn next_due(&self, now: Moment) -> Option<Duration> {
        if !self.uses_timer() {
            return None;
        }
        let due = self
            .jobs
            .values()
            .filter_map(|row| Some(self.due_at(row, now)?.0))
            .min()?;
        Some(after(now, due))
    }

    /// When there is something to do by itself. Whatever comes due is claimed only while the relay serves.
    pub fn deadline(&self, now: Moment, serving: bool) -> Option<Duration> {
        let due = serving
            .then(|| self.next_claims(now).map(|(at, ..)| at).min())
            .flatten()
            // Time may jump, and a machine may have been suspended.
            .map(|at| at.min(now.mono + MAX_LOOK));
        let runs = self.running.values().filter(|run| !run.timed_out);
        let overdue = runs.filter_map(|run| run.deadline).min();
        let renew = (self.running.len() + self.waiting.len() > 0).then_some(self.renew_at);
        let waiters = self.arm_waiters.iter().map(|(until, _)| *until).min();
        [due, overdue, renew, waiters, self.reads.again_at]
            .into_iter()
            .flatten()
            .min()
    }
}

/// The session of a job's runs.
pub fn job_session(job: &str) -> SessionKey {
    SessionKey::from_text(format!("{JOB_SESSION}{job}"))
}

fn request(step: JobStep, command: CronCommand, effects: &mut Effects) {
    effects.request(Pending::Job(step), |token| Command::Cron {
        token,
        command: Box::new(command),
    });
}

/// The time of day.
pub fn instant(now: Moment) -> Timestamp {
    Timestamp::from_millisecond(now.unix_ms).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A time of day on the monotonic clock.
fn after(now: Moment, unix_ms: i64) -> Duration {
    let ms = u64::try_from(unix_ms.saturating_sub(now.unix_ms)).unwrap_or(0);
    now.mono.saturating_add(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests;
