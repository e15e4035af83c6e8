//! The managed scheduler: which jobs it should have, which it has, and who waits to learn that.

use std::time::Duration;

use super::{ArmWaiter, Provider, Scheduler, request};
use crate::cron::chronos::{ArmReport, ArmState};
use crate::net::chronos::ArmedJob;
use crate::relay::effects::{ChatJobRequest, Effects, JobStep};
use crate::store::{CronCommand, JobRow};

/// How long a command line waits for the managed scheduler's answer.
pub(super) const ARM_TIMEOUT: Duration = Duration::from_secs(5);

impl Scheduler {
    /// Where arming stands, with the managed scheduler.
    pub fn arms(&self) -> Option<ArmReport> {
        match &self.provider {
            Provider::Managed(arms) => Some(arms.report.borrow().clone()),
            Provider::Off | Provider::Timer => None,
        }
    }

    /// Answers verbs once the managed scheduler was asked about every job, or after a while.
    pub(super) fn answer_waiters(&mut self, now: Duration) {
        let is_current = !self.reads.pending && !self.reads.stale && self.are_arms_known();
        let waiters = std::mem::take(&mut self.arm_waiters);
        for (until, waiter) in waiters {
            if !is_current && now < until {
                self.arm_waiters.push((until, waiter));
                continue;
            }
            let report = self.arms().unwrap_or_default();
            match waiter {
                ArmWaiter::Verb(reply) => drop(reply.send(report)),
                ArmWaiter::Chat { request, job, answer } => {
                    let state = report.jobs.get(&job).map(|arm| &arm.state);
                    let state = state.filter(|state| **state != ArmState::Armed);
                    let row = self.jobs.get(&job);
                    let paused = row.and_then(|row| row.job.paused_reason());
                    let note = paused.map(|reason| format!("it stays paused: {reason}"));
                    let note = note.or_else(|| state.map(|state| state.for_chat().to_string()));
                    let answer = match note {
                        Some(note) => format!("{answer}\nNote: {note}."),
                        None => answer,
                    };
                    self.answers.push((request, answer));
                }
            }
        }
    }

    /// The next answer for a chat that waited.
    pub fn next_answer(&mut self) -> Option<(Box<ChatJobRequest>, String)> {
        self.answers.pop()
    }

    /// Whether every call that is due was made.
    pub(super) fn are_arms_known(&self) -> bool {
        let Provider::Managed(arms) = &self.provider else {
            return true;
        };
        let (desired, report) = (arms.desired.borrow(), arms.report.borrow());
        desired.jobs.iter().all(|job| {
            report
                .jobs
                .get(&job.job_id)
                .is_some_and(|arm| arm.fire_at == job.fire_at && arm.state != ArmState::Pending)
        })
    }

    /// Jobs were changed by somebody who waits to learn whether they are armed.
    pub fn changed(&mut self, waiter: ArmWaiter, now: Duration) {
        self.reads.stale = true;
        self.arm_waiters.push((now + ARM_TIMEOUT, waiter));
    }

    /// Waits until arming stands elsewhere; never resolves without the managed scheduler. Cancel-safe.
    pub async fn arms_changed(&mut self) {
        if let Provider::Managed(arms) = &mut self.provider
            && arms.report.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Stores what the managed scheduler has, so that verbs show it also without a relay.
    pub fn note_arms(&mut self, effects: &mut Effects) {
        let Some(report) = self.arms() else { return };
        for (id, arm) in &report.jobs {
            let Some(row) = self.jobs.get_mut(id) else {
                continue;
            };
            let (armed, error) = match &arm.state {
                ArmState::Armed => (Some(arm.fire_at.clone()), None),
                ArmState::Pending => continue,
                ArmState::NotArmed { why } | ArmState::Unavailable { why } => (None, Some(why.clone())),
            };
            if (&row.armed, &row.arm_error) == (&armed, &error) {
                continue;
            }
            row.armed.clone_from(&armed);
            row.arm_error.clone_from(&error);
            let note = CronCommand::SetArmed {
                job: id.clone(),
                armed,
                error,
            };
            request(JobStep::Noted, note, effects);
        }
    }

    /// Says which jobs should be armed.
    pub(super) fn publish(&self) {
        let Provider::Managed(arms) = &self.provider else {
            return;
        };
        if !self.is_loaded {
            return;
        }
        let wanted = |row: &JobRow| {
            Some(ArmedJob {
                job_id: row.job.id().to_owned(),
                fire_at: row.wanted_arm(&self.zone)?.to_owned(),
            })
        };
        let jobs: Vec<ArmedJob> = self.jobs.values().filter_map(wanted).collect();
        arms.desired.send_if_modified(|desired| {
            let changed = desired.jobs != jobs || desired.is_unread;
            desired.jobs = jobs;
            desired.is_unread = false;
            changed
        });
    }
}
