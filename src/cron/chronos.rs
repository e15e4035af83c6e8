//! Which jobs the managed scheduler has to be told about, and when to try again. Pure.
//!
//! The relay says which jobs should be armed ([`ArmPlan::set_desired`]); the plan compares that with what the scheduler has
//! and hands out one call at a time ([`ArmPlan::next_call`]). Times are compared as instants, so `Z` equals `+00:00`. A
//! failed call is repeated with backoff and listed first, since nobody knows whether it took effect. When the scheduler
//! does not know this login (403 `invalid_client`), no further call is made in this process: the relay's own timer takes
//! over. While the scheduler cannot list, nothing is cancelled.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backoff::{Backoff, jitter};
use crate::net::chronos::ArmedJob;
use crate::text::parse_instant;

/// Delay before the first retry; the later ones double.
const FIRST_RETRY: Duration = Duration::from_secs(3);
/// Longest delay before a retry.
const MAX_RETRY: Duration = Duration::from_secs(5 * 60);

/// One request to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortalCall {
    /// What is armed?
    List,
    /// Arm this job.
    Provision(ArmedJob),
    /// Cancel this job.
    Cancel(String),
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The list.
    Listed(Vec<ArmedJob>),
    /// It took effect.
    Done,
    /// It failed.
    Failed(CallFailure),
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// The scheduler refused this one or had an error of its own.
    Refused(String),
    /// The scheduler cannot be reached: nothing else will get through now.
    Unreachable(String),
    /// There is no login to call it with.
    LoggedOut(String),
    /// The scheduler does not know this login, for good.
    IdentityRejected(String),
}

/// Whether a job will be fired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArmState {
    /// The scheduler has it.
    Armed,
    /// A call for it is due or under way.
    Pending,
    /// The last call failed; it is made again after a while.
    NotArmed {
        /// The reason.
        why: String,
    },
    /// The scheduler is not used: the relay's own timer runs the job.
    Unavailable {
        /// The reason.
        why: String,
    },
}

impl ArmState {
    /// For people: `will run`, or what is the matter and what happens next.
    pub fn summary(&self) -> String {
        match self {
            Self::Armed => "will run".to_owned(),
            Self::Pending => "saved; the scheduler has not confirmed it yet".to_owned(),
            Self::NotArmed { why } => format!("saved; the scheduler has not taken it: {why}; will retry"),
            Self::Unavailable { why } => {
                format!("saved; the scheduler is not used: {why}; the relay's own timer runs it")
            }
        }
    }
}

impl ArmState {
    /// For people in a chat, without what only an operator can do something about.
    pub fn for_chat(&self) -> &'static str {
        match self {
            Self::Armed => "will run",
            Self::Pending => "saved; the scheduler has not confirmed it yet",
            Self::NotArmed { .. } => "saved; the scheduler has not taken it yet; will retry",
            Self::Unavailable { .. } => "saved; it runs at its time while I am running",
        }
    }

    /// Why it is not armed.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Armed | Self::Pending => None,
            Self::NotArmed { why } | Self::Unavailable { why } => Some(why),
        }
    }
}

/// Where arming stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArmReport {
    /// Every job that should be armed.
    pub jobs: BTreeMap<String, ArmedAs>,
    /// Why the scheduler is not used, if it is not: the relay's own timer has to run jobs.
    pub unavailable: Option<String>,
}

/// A job in an [`ArmReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmedAs {
    /// The time that it should be armed for.
    pub fire_at: String,
    /// Whether it is.
    pub state: ArmState,
}

impl ArmReport {
    /// Whether nothing is left to do: each job is armed, or is not going to be. A relay may sleep then.
    pub fn is_settled(&self) -> bool {
        let settled = |job: &ArmedAs| match job.state {
            ArmState::Armed | ArmState::Unavailable { .. } => true,
            ArmState::Pending | ArmState::NotArmed { .. } => false,
        };
        self.jobs.values().all(settled)
    }

    /// How many jobs the scheduler has.
    pub fn armed(&self) -> usize {
        let armed = |job: &&ArmedAs| job.state == ArmState::Armed;
        self.jobs.values().filter(armed).count()
    }
}

/// A failure and when its call is repeated.
#[derive(Clone, Debug)]
struct FailedCall {
    why: String,
    retry_at_ms: i64,
    backoff: Backoff,
}

impl FailedCall {
    /// The failure after `before`, if that failed too.
    fn after(before: Option<Self>, why: String, now_ms: i64, random: u64) -> Self {
        let mut backoff = before.map_or(Backoff::new(FIRST_RETRY, MAX_RETRY), |before| before.backoff);
        let delay = backoff.next_delay();
        let delay = delay / 2 + jitter(delay / 2, random);
        let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        Self {
            why,
            retry_at_ms: now_ms.saturating_add(delay_ms),
            backoff,
        }
    }
}

/// What is armed, what should be, and what failed. Times are milliseconds of a clock that nobody sets.
#[derive(Debug, Default)]
pub struct ArmPlan {
    desired: BTreeMap<String, String>,
    /// What the scheduler has, as far as is known.
    observed: BTreeMap<String, String>,
    /// Whether `observed` came from a list since the last failure.
    is_listed: bool,
    /// When to list, unless it is listed.
    list_at_ms: i64,
    /// The last list was refused.
    list_failure: Option<FailedCall>,
    /// Failures by job, of those that are missing or to be cancelled.
    failures: BTreeMap<String, FailedCall>,
    /// The scheduler cannot be reached, or there is no login.
    outage: Option<(FailedCall, Outage)>,
    rejected: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    Unreachable,
    LoggedOut,
}

impl ArmPlan {
    /// Replaces the jobs that should be armed. A job whose time changed is tried without waiting for its last failure.
    pub fn set_desired(&mut self, jobs: impl IntoIterator<Item = ArmedJob>) {
        let desired: BTreeMap<_, _> = jobs.into_iter().map(|job| (job.job_id, job.fire_at)).collect();
        let old = std::mem::replace(&mut self.desired, desired);
        let changed = |id: &String| self.desired.get(id) != old.get(id);
        self.failures.retain(|id, _| !changed(id));
    }

    /// Asks the scheduler what is armed before the next call: it may have lost something.
    pub fn relist(&mut self) {
        self.is_listed = false;
        self.list_at_ms = i64::MIN;
    }

    /// The next call, if one is due at `now_ms`. Report what became of it before asking again.
    pub fn next_call(&self, now_ms: i64) -> Option<PortalCall> {
        if self.rejected.is_some() || is_waiting(self.outage.as_ref().map(|(failure, _)| failure), now_ms) {
            return None;
        }
        if !self.is_listed && self.list_at_ms <= now_ms {
            return Some(PortalCall::List);
        }
        let due = |id: &str| !is_waiting(self.failures.get(id), now_ms);
        let missing = self.missing().find(|(id, _)| due(id));
        if let Some((id, fire_at)) = missing {
            return Some(PortalCall::Provision(ArmedJob {
                job_id: id.to_owned(),
                fire_at: fire_at.to_owned(),
            }));
        }
        let orphan = self.orphans().find(|id| due(id))?;
        Some(PortalCall::Cancel(orphan.to_owned()))
    }

    /// When to ask for the next call, if not before.
    pub fn next_retry(&self) -> Option<i64> {
        if self.rejected.is_some() {
            return None;
        }
        if let Some((failure, _)) = &self.outage {
            return Some(failure.retry_at_ms);
        }
        let open = self.missing().map(|(id, _)| id).chain(self.orphans());
        let jobs = open.filter_map(|id| Some(self.failures.get(id)?.retry_at_ms));
        jobs.chain((!self.is_listed).then_some(self.list_at_ms)).min()
    }

    /// Takes the outcome of `call`. Randomness spreads the retries.
    pub fn on_outcome(&mut self, call: &PortalCall, outcome: CallOutcome, now_ms: i64, random: u64) {
        let failure = match outcome {
            CallOutcome::Failed(failure) => failure,
            CallOutcome::Listed(armed) => {
                self.outage = None;
                self.list_failure = None;
                self.is_listed = true;
                self.observed = armed.into_iter().map(|job| (job.job_id, job.fire_at)).collect();
                let settled = |id: &String| match (self.observed.get(id), self.desired.get(id)) {
                    (Some(at), Some(wanted)) => is_same_instant(at, wanted),
                    (observed, desired) => observed.is_none() && desired.is_none(),
                };
                self.failures.retain(|id, _| !settled(id));
                return;
            }
            CallOutcome::Done => {
                self.outage = None;
                match call {
                    PortalCall::List => {}
                    PortalCall::Provision(job) => {
                        self.failures.remove(&job.job_id);
                        self.observed.insert(job.job_id.clone(), job.fire_at.clone());
                    }
                    PortalCall::Cancel(id) => {
                        self.failures.remove(id);
                        self.observed.remove(id);
                    }
                }
                return;
            }
        };
        let (why, outage) = match failure {
            CallFailure::IdentityRejected(why) => {
                self.rejected = Some(why);
                return;
            }
            CallFailure::Refused(why) => {
                // Whoever refuses can be reached.
                self.outage = None;
                (why, None)
            }
            CallFailure::Unreachable(why) => (why, Some(Outage::Unreachable)),
            CallFailure::LoggedOut(why) => (why, Some(Outage::LoggedOut)),
        };
        if let Some(outage) = outage {
            let before = self.outage.take().map(|(failure, _)| failure);
            self.outage = Some((FailedCall::after(before, why, now_ms, random), outage));
            self.relist();
            return;
        }
        match call {
            PortalCall::List => {
                let failure = FailedCall::after(self.list_failure.take(), why, now_ms, random);
                self.list_at_ms = failure.retry_at_ms;
                self.list_failure = Some(failure);
            }
            PortalCall::Provision(ArmedJob { job_id, .. }) | PortalCall::Cancel(job_id) => {
                let before = self.failures.remove(job_id);
                let failure = FailedCall::after(before, why, now_ms, random);
                self.list_at_ms = if self.is_listed {
                    failure.retry_at_ms
                } else {
                    self.list_at_ms.min(failure.retry_at_ms)
                };
                self.is_listed = false;
                self.failures.insert(job_id.clone(), failure);
            }
        }
    }

    /// Where arming stands.
    pub fn report(&self) -> ArmReport {
        let logged_out = self.outage.as_ref().and_then(|(failure, outage)| match outage {
            Outage::LoggedOut => Some(failure.why.clone()),
            Outage::Unreachable => None,
        });
        let unavailable = self.rejected.clone().or(logged_out);
        let outage = self.outage.as_ref().map(|(failure, _)| failure);
        let state = |id: &str, fire_at: &str| {
            if let Some(why) = &unavailable {
                return ArmState::Unavailable { why: why.clone() };
            }
            if self.is_armed(id, fire_at) {
                return ArmState::Armed;
            }
            match outage.or(self.failures.get(id)) {
                None => ArmState::Pending,
                Some(failure) => ArmState::NotArmed {
                    why: failure.why.clone(),
                },
            }
        };
        let jobs = self.desired.iter().map(|(id, fire_at)| {
            let state = state(id, fire_at);
            let fire_at = fire_at.clone();
            (id.clone(), ArmedAs { fire_at, state })
        });
        ArmReport {
            jobs: jobs.collect(),
            unavailable: unavailable.clone(),
        }
    }

    fn is_armed(&self, id: &str, fire_at: &str) -> bool {
        self.observed
            .get(id)
            .is_some_and(|at| is_same_instant(at, fire_at))
    }

    /// Jobs that should be armed and are not.
    fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.desired.iter().map(|(id, at)| (id.as_str(), at.as_str()));
        all.filter(|(id, at)| !self.is_armed(id, at))
    }

    /// Jobs that are armed and should not be.
    fn orphans(&self) -> impl Iterator<Item = &str> {
        let all = self.observed.keys().filter(|id| !self.desired.contains_key(*id));
        all.map(String::as_str)
    }
}

fn is_waiting(failure: Option<&FailedCall>, now_ms: i64) -> bool {
    failure.is_some_and(|failure| failure.retry_at_ms > now_ms)
}

/// Whether two texts name the same second; what is no time is compared as text.
fn is_same_instant(one: &str, other: &str) -> bool {
    match (parse_instant(one), parse_instant(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "2026-11-15T09:00:00+00:00";

    fn job(id: &str, fire_at: &str) -> ArmedJob {
        ArmedJob {
            job_id: id.to_owned(),
            fire_at: fire_at.to_owned(),
        }
    }

    fn wanting(jobs: &[(&str, &str)]) -> ArmPlan {
        let mut plan = ArmPlan::default();
        plan.set_desired(jobs.iter().map(|(id, at)| job(id, at)));
        plan
    }

    /// Makes every call that is due, with these outcomes, and returns the calls.
    fn run(
        plan: &mut ArmPlan,
        now_ms: i64,
        mut outcome: impl FnMut(&PortalCall) -> CallOutcome,
    ) -> Vec<PortalCall> {
        let mut calls = Vec::new();
        while let Some(call) = plan.next_call(now_ms) {
            assert!(calls.len() < 100, "a hot loop: {calls:?}");
            let outcome = outcome(&call);
            plan.on_outcome(&call, outcome, now_ms, u64::MAX);
            calls.push(call);
        }
        assert!(
            plan.next_retry().is_none_or(|at| at > now_ms),
            "a retry in the past"
        );
        calls
    }

    fn listing(armed: &[(&str, &str)]) -> impl FnMut(&PortalCall) -> CallOutcome {
        let armed: Vec<_> = armed.iter().map(|(id, at)| job(id, at)).collect();
        move |call| match call {
            PortalCall::List => CallOutcome::Listed(armed.clone()),
            _ => CallOutcome::Done,
        }
    }

    fn refused(why: &str) -> CallOutcome {
        CallOutcome::Failed(CallFailure::Refused(why.to_owned()))
    }

    #[test]
    fn what_is_armed_alike_costs_one_list() {
        let mut plan = wanting(&[("a", AT), ("b", "2026-11-15T10:00:00.674346+01:00")]);
        let calls = run(
            &mut plan,
            0,
            listing(&[("a", "2026-11-15T09:00:00Z"), ("b", "2026-11-15T09:00:00Z")]),
        );
        assert_eq!(calls, [PortalCall::List]);
        assert!(plan.report().is_settled());
        assert_eq!(plan.report().armed(), 2);
        assert_eq!(run(&mut plan, 1, listing(&[])), [], "warm: nothing");
    }

    #[test]
    fn missing_jobs_are_armed_changed_ones_again_and_orphans_cancelled() {
        let mut plan = wanting(&[("a", AT), ("b", AT)]);
        let calls = run(
            &mut plan,
            0,
            listing(&[("b", "2026-11-15T08:00:00Z"), ("old", AT)]),
        );
        let expected = [
            PortalCall::List,
            PortalCall::Provision(job("a", AT)),
            PortalCall::Provision(job("b", AT)),
            PortalCall::Cancel("old".to_owned()),
        ];
        assert_eq!(calls, expected);
        plan.set_desired([job("b", "2026-11-16T09:00:00+00:00")]);
        let calls = run(&mut plan, 1, listing(&[]));
        let expected = [
            PortalCall::Provision(job("b", "2026-11-16T09:00:00+00:00")),
            PortalCall::Cancel("a".to_owned()),
        ];
        assert_eq!(calls, expected);
    }

    #[test]
    fn a_list_that_fails_arms_everything_and_cancels_nothing() {
        let mut plan = wanting(&[("a", AT)]);
        let calls = run(&mut plan, 0, |call| match call {
            PortalCall::List => refused("HTTP 500"),
            _ => CallOutcome::Done,
        });
        assert_eq!(calls, [PortalCall::List, PortalCall::Provision(job("a", AT))]);
        assert!(plan.report().is_settled(), "armed all the same");
        let retry = plan.next_retry().expect("a list is due");
        let calls = run(&mut plan, retry, listing(&[("a", AT), ("old", AT)]));
        assert_eq!(calls, [PortalCall::List, PortalCall::Cancel("old".to_owned())]);
    }

    #[test]
    fn a_failed_arm_is_reported_and_tried_again_within_five_seconds() {
        let mut plan = wanting(&[("a", AT), ("b", AT)]);
        let failing = |call: &PortalCall| match call {
            PortalCall::List => CallOutcome::Listed(Vec::new()),
            PortalCall::Provision(one) if one.job_id == "a" => refused("HTTP 503"),
            _ => CallOutcome::Done,
        };
        let calls = run(&mut plan, 0, failing);
        assert_eq!(calls.len(), 3, "the other job is armed: {calls:?}");
        let report = plan.report();
        assert_eq!(report.jobs["b"].state, ArmState::Armed);
        assert!(!report.is_settled());
        assert_eq!(
            report.jobs["a"].state.summary(),
            "saved; the scheduler has not taken it: HTTP 503; will retry"
        );
        let mut at = 0;
        let mut waits = Vec::new();
        for _ in 0..12 {
            let next = plan.next_retry().expect("a retry");
            waits.push((next - at) / 1000);
            at = next;
            let calls = run(&mut plan, at, |call| match call {
                PortalCall::List => CallOutcome::Listed(vec![job("b", AT)]),
                other => failing(other),
            });
            assert_eq!(calls, [PortalCall::List, PortalCall::Provision(job("a", AT))]);
        }
        assert!(waits[0] <= 5, "{waits:?}");
        assert!(waits.is_sorted() && waits[11] == 300, "{waits:?}");
        let retry = plan.next_retry().unwrap();
        run(&mut plan, retry, listing(&[("b", AT)]));
        assert!(plan.report().is_settled());
        assert_eq!(plan.next_retry(), None);
    }

    #[test]
    fn an_arm_that_took_effect_unseen_is_found_by_the_list() {
        let mut plan = wanting(&[("a", AT)]);
        run(&mut plan, 0, |call| match call {
            PortalCall::List => CallOutcome::Listed(Vec::new()),
            _ => refused("timed out"),
        });
        let retry = plan.next_retry().unwrap();
        assert_eq!(run(&mut plan, retry, listing(&[("a", AT)])), [PortalCall::List]);
        assert!(plan.report().is_settled());
        assert_eq!(plan.next_retry(), None);
    }

    #[test]
    fn an_outage_holds_back_every_call_until_the_retry() {
        let mut plan = wanting(&[("a", AT), ("b", AT)]);
        let down = |_: &PortalCall| CallOutcome::Failed(CallFailure::Unreachable("no connection".to_owned()));
        assert_eq!(run(&mut plan, 0, down), [PortalCall::List]);
        plan.set_desired([job("c", AT)]);
        assert_eq!(run(&mut plan, 100, down), []);
        let summary = plan.report().jobs["c"].state.summary();
        assert_eq!(
            summary,
            "saved; the scheduler has not taken it: no connection; will retry"
        );
        let retry = plan.next_retry().unwrap();
        assert!(retry <= 5000, "{retry}");
        assert_eq!(run(&mut plan, retry, listing(&[])).len(), 2);
        assert!(plan.report().is_settled());
    }

    #[test]
    fn a_refusal_after_an_outage_ends_it_and_is_tried_again_after_a_while() {
        let failures: [fn(String) -> CallFailure; 2] = [CallFailure::Unreachable, CallFailure::LoggedOut];
        for failure in failures {
            let mut plan = wanting(&[("a", AT)]);
            run(&mut plan, 0, |_| CallOutcome::Failed(failure("gone".to_owned())));
            let retry = plan.next_retry().unwrap();
            // The harness sees to it that no retry is in the past.
            let calls = run(&mut plan, retry, |_| refused("HTTP 500"));
            assert_eq!(calls, [PortalCall::List, PortalCall::Provision(job("a", AT))]);
            let report = plan.report();
            assert!(report.unavailable.is_none() && !report.is_settled(), "{report:?}");
            assert_eq!(report.jobs["a"].state.error(), Some("HTTP 500"));
            let retry = plan.next_retry().unwrap();
            run(&mut plan, retry, listing(&[]));
            assert!(plan.report().is_settled());
        }
    }

    #[test]
    fn a_rejected_identity_ends_all_calls_of_this_process() {
        let mut plan = wanting(&[("a", AT)]);
        let calls = run(&mut plan, 0, |_| {
            CallOutcome::Failed(CallFailure::IdentityRejected(
                "HTTP 403: invalid_client".to_owned(),
            ))
        });
        assert_eq!(calls, [PortalCall::List]);
        plan.set_desired([job("b", AT)]);
        plan.relist();
        assert_eq!(plan.next_call(i64::MAX), None);
        assert_eq!(plan.next_retry(), None);
        let report = plan.report();
        assert!(report.is_settled() && report.unavailable.is_some());
        assert!(report.jobs["b"].state.summary().ends_with("own timer runs it"));
    }

    #[test]
    fn a_lost_login_leaves_jobs_to_the_timer_until_it_is_back() {
        let mut plan = wanting(&[("a", AT)]);
        run(&mut plan, 0, |_| {
            CallOutcome::Failed(CallFailure::LoggedOut("not logged in".to_owned()))
        });
        assert_eq!(plan.report().unavailable.as_deref(), Some("not logged in"));
        assert!(plan.report().is_settled(), "nothing to wait for");
        let retry = plan.next_retry().expect("it looks again");
        run(&mut plan, retry, listing(&[]));
        assert_eq!(plan.report().unavailable, None);
        assert_eq!(plan.report().armed(), 1);
    }

    #[test]
    fn a_chat_reads_nothing_that_only_an_operator_can_mend() {
        let why = || "invalid_client".to_owned();
        let states = [
            (ArmState::Armed, "will run", None),
            (ArmState::Pending, "not confirmed", None),
            (
                ArmState::NotArmed { why: why() },
                "will retry",
                Some("invalid_client"),
            ),
            (
                ArmState::Unavailable { why: why() },
                "at its time",
                Some("invalid_client"),
            ),
        ];
        for (state, said, error) in states {
            assert!(state.for_chat().contains(said), "{}", state.for_chat());
            assert!(!state.for_chat().contains("invalid_client"));
            assert_eq!(
                (state.error(), state.summary().contains("invalid_client")),
                (error, error.is_some())
            );
        }
    }

    #[test]
    fn a_job_whose_time_changed_does_not_wait_for_its_last_failure() {
        let mut plan = wanting(&[("a", "2026-06-19T09:00:00Z"), ("b", "2026-06-19T09:00:00Z")]);
        run(&mut plan, 0, |call| match call {
            PortalCall::List => CallOutcome::Listed(Vec::new()),
            _ => refused("no"),
        });
        let failed = |plan: &ArmPlan| plan.failures.keys().cloned().collect::<Vec<_>>();
        assert_eq!(failed(&plan), ["a", "b"]);
        plan.set_desired([job("a", "2026-06-19T10:00:00Z"), job("b", "2026-06-19T09:00:00Z")]);
        assert_eq!(failed(&plan), ["b"]);
        plan.set_desired([job("a", "2026-06-19T10:00:00Z")]);
        assert_eq!(failed(&plan), [""; 0]);
    }

    #[test]
    fn a_lost_arm_is_found_when_asked_for() {
        let mut plan = wanting(&[("a", AT)]);
        run(&mut plan, 0, listing(&[("a", AT)]));
        plan.relist();
        let calls = run(&mut plan, 1, listing(&[]));
        assert_eq!(calls, [PortalCall::List, PortalCall::Provision(job("a", AT))]);
    }

    #[test]
    fn a_cancel_that_fails_is_tried_again() {
        let mut plan = wanting(&[]);
        let calls = run(&mut plan, 0, |call| match call {
            PortalCall::List => CallOutcome::Listed(vec![job("old", AT)]),
            _ => refused("HTTP 500"),
        });
        assert_eq!(calls.len(), 2);
        let retry = plan.next_retry().unwrap();
        assert_eq!(run(&mut plan, retry, listing(&[("old", AT)])).len(), 2);
        assert_eq!(plan.next_retry(), None);
    }
}
