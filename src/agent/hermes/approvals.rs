//! The approvals that a run waits for, in sync with Hermes' own list.
//!
//! Hermes gives approvals no ids: an answer applies to the oldest that it still waits for, and it drops one silently after
//! its own timeout. So Hermes waits for the later part of this list, as long as nothing leaves the list before Hermes was
//! answered. An answer may apply to a later approval than the one it was given for, so it is sent once all are answered, and
//! never grants more than the strictest of them; a denial is sent immediately.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::REQUEST_TIMEOUT;
use super::event::{Approval, RunStatus, run_status};
use super::run::Run;
use crate::agent::http::AgentRequest;
use crate::agent::{AgentEvent, PromptAnswer, Question};

/// Maximum open approvals; with one more, all are denied.
const MAX_OPEN: usize = 16;

/// What an answer allows, the strictest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ApprovalChoice {
    Deny,
    Once,
    Session,
    Always,
}

/// One that Hermes may wait for.
#[derive(Debug)]
struct OpenApproval {
    since: Instant,
    approval: Approval,
    answer: Option<ApprovalChoice>,
    /// Whether another was answered while this one was open; then Hermes' status says nothing about this one.
    crossed: bool,
}

/// An answer that can be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The choice that is sent to Hermes.
    pub(super) grant: ApprovalChoice,
    /// The choice of the person.
    pub(super) chosen: ApprovalChoice,
    /// Whether the answer comes too late for Hermes.
    pub(super) is_late: bool,
    /// Whether Hermes' status shows if it waits for this one.
    pub(super) is_visible: bool,
}

/// The approvals of a run, oldest first.
#[derive(Debug)]
pub(super) struct PendingApprovals {
    approval_timeout: Duration,
    open: VecDeque<OpenApproval>,
    /// Answers of ours that Hermes has yet to repeat in the stream.
    echoes: usize,
}

impl ApprovalChoice {
    /// The choice by Hermes' name for it; whatever is not known is a no.
    pub(super) fn named(choice: &str) -> Self {
        match choice {
            "once" => Self::Once,
            "session" => Self::Session,
            "always" => Self::Always,
            _ => Self::Deny,
        }
    }

    /// Hermes' name for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Once => "once",
            Self::Session => "session",
            Self::Always => "always",
        }
    }
}

impl PendingApprovals {
    /// No approvals; each expires after `approval_timeout`.
    pub(super) fn new(approval_timeout: Duration) -> Self {
        Self {
            approval_timeout,
            open: VecDeque::new(),
            echoes: 0,
        }
    }

    /// Adds an approval; `false` when there are too many, and all have to be denied.
    #[must_use]
    pub(super) fn add(&mut self, approval: Approval, now: Instant) -> bool {
        if self.open.len() >= MAX_OPEN {
            return false;
        }
        self.open.push_back(OpenApproval {
            since: now,
            approval,
            answer: None,
            crossed: false,
        });
        true
    }

    /// Whether nothing is waited for.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether something is not answered yet.
    pub(super) fn has_unanswered(&self) -> bool {
        self.open.iter().any(|open| open.answer.is_none())
    }

    /// What people are asked next. One that is hardly waited for any more is not worth a question: it is a no. Only an answer to
    /// the oldest is certain to reach the approval that it was given for, so only that question outlives the relay, with `resume`.
    pub(super) fn next_question(
        &mut self,
        now: Instant,
        resume: impl FnOnce() -> Option<String>,
    ) -> Option<Question> {
        for (at, open) in self.open.iter_mut().enumerate() {
            if open.answer.is_some() {
                continue;
            }
            let left = self.approval_timeout.saturating_sub(now - open.since);
            if left * 10 >= self.approval_timeout {
                let resume = if at == 0 { resume() } else { None };
                return Some(open.approval.question(left, resume));
            }
            open.answer = Some(ApprovalChoice::Deny);
        }
        None
    }

    /// The answer to what was asked last.
    pub(super) fn answer(&mut self, answer: &PromptAnswer) {
        let grant = match answer {
            PromptAnswer::Chosen(choice) => ApprovalChoice::named(choice),
            PromptAnswer::TimedOut | PromptAnswer::Cancelled => ApprovalChoice::Deny,
        };
        if let Some(open) = self.open.iter_mut().find(|open| open.answer.is_none()) {
            open.answer = Some(grant);
        }
    }

    /// The answer that can be sent now: a denial immediately, anything else once all are answered, before it expires, and
    /// no more than the strictest.
    pub(super) fn due(&self, now: Instant) -> Option<Due> {
        let oldest = self.open.front()?;
        let chosen = oldest.answer?;
        let strictest = self.open.iter().map(|open| open.answer).min()?;
        let is_late = now - oldest.since > self.approval_timeout;
        let grant = match strictest {
            _ if is_late => ApprovalChoice::Deny,
            // Someone has yet to answer a later one.
            None if chosen != ApprovalChoice::Deny => return None,
            None => ApprovalChoice::Deny,
            Some(strictest) => strictest,
        };
        Some(Due {
            grant,
            chosen,
            is_late,
            is_visible: !oldest.crossed,
        })
    }

    /// The oldest answer was sent; `taken` when Hermes waited for one.
    pub(super) fn delivered(&mut self, taken: bool) {
        self.open.pop_front();
        if taken {
            self.echoes += 1;
            self.cross();
        }
    }

    /// A denial of all was sent; `taken` when there was any.
    pub(super) fn denied_all(&mut self, taken: bool) {
        self.open.clear();
        self.echoes += usize::from(taken);
    }

    /// Hermes reports this many answers; `true` when the question that is open was answered elsewhere.
    #[must_use]
    pub(super) fn responded(&mut self, resolved: usize) -> bool {
        if self.echoes > 0 {
            self.echoes -= 1;
            return false;
        }
        let gone = resolved.max(1).min(self.open.len());
        // All of them go, whichever it is.
        let asked = self.open.drain(..gone).any(|open| open.answer.is_none());
        self.cross();
        asked
    }

    /// Hermes' status says that it waits for nothing: what nobody has answered is not asked any more; `true` unless the status says
    /// nothing about what is open.
    #[must_use]
    pub(super) fn take_back(&mut self) -> bool {
        let is_visible = self.open.iter().all(|open| !open.crossed);
        if is_visible {
            self.open.retain(|open| open.answer.is_some());
        }
        is_visible
    }

    fn cross(&mut self) {
        for open in &mut self.open {
            open.crossed = true;
        }
    }
}

/// Tolerance between an event's time and the status' time, in seconds.
const CLOCK_TOLERANCE: f64 = 1.0;
/// Delay before the status is read again.
const RECHECK_DELAY: Duration = Duration::from_millis(500);

const TOO_LATE: &str = "Hermes no longer waits for this approval; it has denied it by itself.";
const NOT_DELIVERED: &str = "The answer could not be handed to Hermes, which denies what is not answered.";
const STRICTEST: &str = "Hermes requested several approvals at a time and cannot distinguish the answers, so none allows \
     more than the strictest of them.";
const ALL_DENIED: &str = "Hermes may have mistaken one approval for another, so everything it waited for was denied. \
     Please ask again for what is still wanted.";

/// Whether a grant can be sent.
enum Readiness {
    /// Hermes waits, and the stream was read up to its state.
    Ready,
    /// The stream was not read up to the run's state.
    Behind,
    /// Hermes does not wait for an approval.
    NotWaiting,
    /// The status could not be read.
    Unknown,
}

impl Run<'_> {
    /// Sends the answer that is due. Cancel-safe: it stays due, or is voided by the stop that follows.
    pub(super) async fn deliver_answer(&mut self, due: Due) {
        let mut grant = due.grant;
        if grant != ApprovalChoice::Deny {
            match self.readiness(due).await {
                Readiness::Ready => {}
                Readiness::Behind => {
                    self.recheck_at = Some(Instant::now() + RECHECK_DELAY);
                    return;
                }
                // Sent all the same, to keep both lists in sync.
                Readiness::NotWaiting => grant = ApprovalChoice::Deny,
                Readiness::Unknown => return self.deny_after_failure(due).await,
            }
        }
        let body = json!({"choice": grant.name()}).to_string();
        let posted = self.control("approval", body).await;
        let taken = matches!(posted, Ok(200..=299));
        if !taken && !matches!(posted, Ok(409)) {
            return self.deny_after_failure(due).await;
        }
        self.approvals.delivered(taken);
        if due.chosen == ApprovalChoice::Deny {
            return;
        }
        if !taken || due.is_late || grant != due.grant {
            self.notify(TOO_LATE).await;
        } else if grant < due.chosen {
            self.notify(STRICTEST).await;
        }
    }

    /// Denies everything that Hermes waits for.
    pub(super) async fn deny_all(&mut self) {
        let body = json!({"choice": "deny", "all": true}).to_string();
        let posted = self.control("approval", body).await;
        let taken = matches!(posted, Ok(200..=299));
        // Until Hermes is in sync again no question is asked: an answer might apply to another approval.
        self.desynced = !taken && !matches!(posted, Ok(409));
        if !self.desynced {
            self.approvals.denied_all(taken);
            if taken {
                self.notify(ALL_DENIED).await;
            }
        }
    }

    /// The answer may or may not have arrived, so it is unknown what Hermes waits for.
    async fn deny_after_failure(&mut self, due: Due) {
        tracing::debug!("the answer to an approval was not accepted; denying all");
        if due.chosen != ApprovalChoice::Deny {
            self.notify(NOT_DELIVERED).await;
        }
        self.deny_all().await;
    }

    async fn readiness(&self, due: Due) -> Readiness {
        let path = format!("/v1/runs/{}", self.handle.id);
        let request = AgentRequest {
            path: &path,
            ..AgentRequest::default()
        };
        let body = match self.hermes.http.send(request, REQUEST_TIMEOUT).await {
            Ok(reply) if reply.status == 404 => return Readiness::NotWaiting,
            Ok(reply) if reply.is_success() => reply.short_body(REQUEST_TIMEOUT).await,
            Ok(_) | Err(_) => return Readiness::Unknown,
        };
        let Some(status) = body.ok().and_then(|body| run_status(&body)) else {
            return Readiness::Unknown;
        };
        match status {
            RunStatus::Ended => Readiness::NotWaiting,
            RunStatus::Running { .. } if due.is_visible => Readiness::NotWaiting,
            RunStatus::Running { updated_at } | RunStatus::Waiting { updated_at } => {
                let is_behind = match (self.read_up_to, updated_at) {
                    (_, None) => false,
                    // The last change was an answer: Hermes has asked nothing since.
                    _ if self.is_unread && matches!(status, RunStatus::Running { .. }) => false,
                    (None, Some(_)) => !matches!(status, RunStatus::Waiting { .. }),
                    (Some(read), Some(updated_at)) => updated_at > read + CLOCK_TOLERANCE,
                };
                if is_behind {
                    Readiness::Behind
                } else {
                    Readiness::Ready
                }
            }
        }
    }

    async fn notify(&self, text: &str) {
        self.turn.events.emit(AgentEvent::Notice(text.to_owned())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::hermes::event::RunEvent;
    use crate::wire::SseEvent;

    const APPROVAL_TIMEOUT: Duration = Duration::from_secs(50);

    fn approval(command: &str) -> Approval {
        let event = SseEvent {
            name: "approval.request".to_owned(),
            data: serde_json::json!({"command": command}).to_string(),
        };
        match RunEvent::decode(&event) {
            Some((RunEvent::Approval(approval), _)) => approval,
            other => panic!("{other:?}"),
        }
    }

    fn some(commands: &[&str], now: Instant) -> PendingApprovals {
        let mut approvals = PendingApprovals::new(APPROVAL_TIMEOUT);
        for command in commands {
            assert!(approvals.add(approval(command), now));
        }
        approvals
    }

    fn asks(approvals: &mut PendingApprovals, now: Instant) -> Option<String> {
        approvals
            .next_question(now, || None)
            .map(|question| question.detail.unwrap())
    }

    fn chosen(choice: &str) -> PromptAnswer {
        PromptAnswer::Chosen(choice.to_owned())
    }

    fn due(approvals: &PendingApprovals, now: Instant) -> Option<ApprovalChoice> {
        approvals.due(now).map(|due| due.grant)
    }

    #[test]
    fn a_yes_waits_for_the_later_ones_and_allows_no_more_than_they_do() {
        let now = Instant::now();
        for (one, other, want) in [
            ("once", "once", [ApprovalChoice::Once, ApprovalChoice::Once]),
            ("always", "once", [ApprovalChoice::Once, ApprovalChoice::Once]),
            ("once", "always", [ApprovalChoice::Once, ApprovalChoice::Always]),
            ("always", "deny", [ApprovalChoice::Deny, ApprovalChoice::Deny]),
        ] {
            let mut approvals = some(&["a", "b"], now);
            assert_eq!(asks(&mut approvals, now).as_deref(), Some("a"));
            approvals.answer(&chosen(one));
            assert_eq!(due(&approvals, now), None, "{one} has to wait");
            assert_eq!(asks(&mut approvals, now).as_deref(), Some("b"));
            approvals.answer(&chosen(other));
            for want in want {
                assert_eq!(due(&approvals, now), Some(want), "{one} {other}");
                approvals.delivered(true);
            }
            assert_eq!(due(&approvals, now), None);
        }
    }

    #[test]
    fn a_no_goes_at_once_and_silence_is_one() {
        let now = Instant::now();
        for answer in [chosen("deny"), PromptAnswer::TimedOut, PromptAnswer::Cancelled] {
            let mut approvals = some(&["a", "b"], now);
            approvals.answer(&answer);
            assert_eq!(due(&approvals, now), Some(ApprovalChoice::Deny));
            approvals.delivered(false);
            assert_eq!(asks(&mut approvals, now).as_deref(), Some("b"));
        }
    }

    #[test]
    fn what_is_not_asked_in_time_is_denied_and_not_passed_over() {
        let now = Instant::now();
        let late = now + APPROVAL_TIMEOUT - Duration::from_secs(1);
        let mut approvals = some(&["a"], now);
        assert_eq!(asks(&mut approvals, late), None);
        assert_eq!(due(&approvals, late), Some(ApprovalChoice::Deny));
        // Nor is a yes handed over that comes when nobody waits for it.
        let mut approvals = some(&["a"], now);
        approvals.answer(&chosen("once"));
        assert_eq!(
            due(&approvals, now + APPROVAL_TIMEOUT * 2),
            Some(ApprovalChoice::Deny)
        );
    }

    #[test]
    fn others_answers_take_the_question_back_and_our_own_do_not() {
        let now = Instant::now();
        let mut approvals = some(&["a", "b"], now);
        assert!(
            approvals.responded(1),
            "a was asked, and someone else answered it"
        );
        assert_eq!(asks(&mut approvals, now).as_deref(), Some("b"));
        approvals.answer(&chosen("once"));
        assert!(
            !approvals.due(now).unwrap().is_visible,
            "the status is about a only"
        );
        approvals.delivered(true);
        assert!(approvals.add(approval("c"), now));
        assert!(!approvals.responded(1), "that is our own answer to b");
        assert_eq!(asks(&mut approvals, now).as_deref(), Some("c"));
        assert!(approvals.due(now).is_none());
        assert!(approvals.responded(7), "however many it says");
        assert!(!approvals.responded(1), "none is left");
    }

    #[test]
    fn a_run_that_waits_for_nothing_takes_back_what_its_status_shows() {
        let now = Instant::now();
        let mut approvals = some(&["a", "b"], now);
        approvals.answer(&chosen("once"));
        assert!(approvals.take_back());
        assert_eq!(asks(&mut approvals, now), None);
        assert_eq!(due(&approvals, now), Some(ApprovalChoice::Once), "a is answered");
        let mut approvals = some(&["a", "b"], now);
        approvals.answer(&chosen("deny"));
        approvals.delivered(true);
        assert!(!approvals.take_back(), "the status is about a only");
        assert_eq!(asks(&mut approvals, now).as_deref(), Some("b"));
    }

    #[test]
    fn too_many_are_denied_together() {
        let now = Instant::now();
        let mut approvals = some(&["a"; MAX_OPEN], now);
        assert!(!approvals.add(approval("b"), now));
        approvals.denied_all(true);
        assert_eq!(asks(&mut approvals, now), None);
        assert!(approvals.add(approval("c"), now));
        assert!(!approvals.responded(17), "that is our own no to all");
        assert_eq!(asks(&mut approvals, now).as_deref(), Some("c"));
    }
}
