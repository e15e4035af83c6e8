//! The approvals that a run waits for, in step with Hermes' own list of them.
//!
//! Hermes gives an approval no name: an answer goes to the oldest that it still waits for, and it gives one up by
//! itself after a time of its own, without a word. What it waits for is therefore the later part of this list, as long
//! as nothing leaves the list before Hermes was told. An answer may meet a later approval than the one it was given to,
//! so it waits for the answers to those, and is never more generous than they are; a no needs no wait. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::SHORT;
use super::event::{Approval, Standing, standing_of};
use super::run::Run;
use crate::agent::http::AgentRequest;
use crate::agent::{AgentEvent, PromptAnswer, Question};

/// Approvals that may wait at once; with one more, all are denied.
const MOST: usize = 16;

/// What an answer allows, the strictest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Consent {
    Deny,
    Once,
    Session,
    Always,
}

/// One that Hermes may wait for.
#[derive(Debug)]
struct Open {
    since: Instant,
    approval: Approval,
    answer: Option<Consent>,
    /// Whether another was answered while this one waited; Hermes' status does not tell of this one then.
    crossed: bool,
}

/// An answer that can be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// What Hermes is told.
    pub(super) consent: Consent,
    /// What people said.
    pub(super) meant: Consent,
    /// Whether it comes too late for Hermes.
    pub(super) is_late: bool,
    /// Whether Hermes' status tells if it waits for it.
    pub(super) is_told: bool,
}

/// The approvals of a run, oldest first.
#[derive(Debug)]
pub(super) struct Approvals {
    patience: Duration,
    open: VecDeque<Open>,
    /// Answers of ours that Hermes has yet to repeat in the stream.
    echoes: usize,
}

impl Consent {
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

impl Approvals {
    /// None yet; each is given up after `patience`.
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            patience,
            open: VecDeque::new(),
            echoes: 0,
        }
    }

    /// Hermes waits for one more; `false` when that is too many, and all have to be denied.
    #[must_use]
    pub(super) fn hear(&mut self, approval: Approval, now: Instant) -> bool {
        if self.open.len() >= MOST {
            return false;
        }
        self.open.push_back(Open {
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

    /// What people are asked next. One that is hardly waited for any more is not worth a question: it is a no.
    pub(super) fn next_question(&mut self, now: Instant) -> Option<Question> {
        for open in self.open.iter_mut().filter(|open| open.answer.is_none()) {
            let left = self.patience.saturating_sub(now - open.since);
            if left * 10 >= self.patience {
                return Some(open.approval.question(left));
            }
            open.answer = Some(Consent::Deny);
        }
        None
    }

    /// The answer to what was asked last.
    pub(super) fn answer(&mut self, answer: &PromptAnswer) {
        let consent = match answer {
            PromptAnswer::Chosen(choice) => Consent::named(choice),
            PromptAnswer::TimedOut | PromptAnswer::Cancelled => Consent::Deny,
        };
        if let Some(open) = self.open.iter_mut().find(|open| open.answer.is_none()) {
            open.answer = Some(consent);
        }
    }

    /// The answer that can be handed over now: a no at once, anything else when all are answered, while it is waited
    /// for, and no more of it than all of them allow.
    pub(super) fn due(&self, now: Instant) -> Option<Due> {
        let oldest = self.open.front()?;
        let meant = oldest.answer?;
        let strictest = self.open.iter().map(|open| open.answer).min()?;
        let is_late = now - oldest.since > self.patience;
        let consent = match strictest {
            _ if is_late => Consent::Deny,
            // Someone has yet to answer a later one.
            None if meant != Consent::Deny => return None,
            None => Consent::Deny,
            Some(strictest) => strictest,
        };
        Some(Due {
            consent,
            meant,
            is_late,
            is_told: !oldest.crossed,
        })
    }

    /// Hermes was told the oldest one's answer; `taken` when it waited for one.
    pub(super) fn handed_over(&mut self, taken: bool) {
        self.open.pop_front();
        if taken {
            self.echoes += 1;
            self.cross();
        }
    }

    /// Hermes was told to deny all that it waits for; `taken` when there was any.
    pub(super) fn denied_all(&mut self, taken: bool) {
        self.open.clear();
        self.echoes += usize::from(taken);
    }

    /// The stream tells that so many were answered; `true` when the one that people are asked about is among those that
    /// someone else has answered.
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

    fn cross(&mut self) {
        for open in &mut self.open {
            open.crossed = true;
        }
    }
}

/// How much later than the event itself Hermes may note it in a run's status, in seconds.
const NOTED_WITHIN: f64 = 1.0;
/// How long the stream is read before the status is asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

const TOO_LATE: &str = "Hermes no longer waits for this approval; it has denied it by itself.";
const NOT_HANDED_OVER: &str = "The answer could not be handed to Hermes, which denies what is not answered.";
const STRICTEST: &str = "Hermes asked for several approvals at once and cannot tell the answers apart, so none allows \
     more than the strictest of them.";
const ALL_DENIED: &str = "Hermes may have mistaken one approval for another, so everything it waited for was denied. \
     Please ask again for what is still wanted.";

/// What the status says about handing a yes over.
enum Outlook {
    /// Hermes waits, for nothing that was not read.
    Clear,
    /// The run has come further than its stream was read.
    Behind,
    /// Hermes does not wait for an approval.
    Void,
    /// Nothing could be seen.
    Blind,
}

impl Run<'_> {
    /// Hands over the answer that is due. Dropping this leaves it due, or unknown to the stop that follows.
    pub(super) async fn hand_over(&mut self, due: Due) {
        let mut consent = due.consent;
        if consent != Consent::Deny {
            match self.outlook(due).await {
                Outlook::Clear => {}
                Outlook::Behind => {
                    self.look_again = Some(Instant::now() + LOOK_AGAIN);
                    return;
                }
                // It is told all the same: Hermes and we have to agree on what is answered.
                Outlook::Void => consent = Consent::Deny,
                Outlook::Blind => return self.lose_step(due).await,
            }
        }
        let body = json!({"choice": consent.name()}).to_string();
        let posted = self.control("approval", body).await;
        let taken = matches!(posted, Ok(200..=299));
        if !taken && !matches!(posted, Ok(409)) {
            return self.lose_step(due).await;
        }
        self.approvals.handed_over(taken);
        if due.meant == Consent::Deny {
            return;
        }
        if !taken || due.is_late || consent != due.consent {
            self.tell(TOO_LATE).await;
        } else if consent < due.meant {
            self.tell(STRICTEST).await;
        }
    }

    /// Denies everything that Hermes waits for.
    pub(super) async fn deny_all(&mut self) {
        let body = json!({"choice": "deny", "all": true}).to_string();
        let posted = self.control("approval", body).await;
        let taken = matches!(posted, Ok(200..=299));
        // While Hermes cannot be told, nobody is asked: an answer might meet something else.
        self.out_of_step = !taken && !matches!(posted, Ok(409));
        if !self.out_of_step {
            self.approvals.denied_all(taken);
            if taken {
                self.tell(ALL_DENIED).await;
            }
        }
    }

    /// Whether the answer arrived is not known, so neither is what Hermes waits for.
    async fn lose_step(&mut self, due: Due) {
        tracing::debug!("an approval's answer was not taken; all are denied");
        if due.meant != Consent::Deny {
            self.tell(NOT_HANDED_OVER).await;
        }
        self.deny_all().await;
    }

    async fn outlook(&self, due: Due) -> Outlook {
        let path = format!("/v1/runs/{}", self.leash.id);
        let request = AgentRequest {
            path: &path,
            ..AgentRequest::default()
        };
        let body = match self.hermes.http.send(request, SHORT).await {
            Ok(reply) if reply.status == 404 => return Outlook::Void,
            Ok(reply) if reply.is_success() => reply.short_body(SHORT).await,
            Ok(_) | Err(_) => return Outlook::Blind,
        };
        let Some(standing) = body.ok().and_then(|body| standing_of(&body)) else {
            return Outlook::Blind;
        };
        match standing {
            Standing::Over => Outlook::Void,
            Standing::Running { .. } if due.is_told => Outlook::Void,
            Standing::Running { updated_at } | Standing::Waiting { updated_at } => {
                let is_behind = match (self.read_up_to, updated_at) {
                    (_, None) => false,
                    (None, Some(_)) => !matches!(standing, Standing::Waiting { .. }),
                    (Some(read), Some(updated_at)) => updated_at > read + NOTED_WITHIN,
                };
                if is_behind {
                    Outlook::Behind
                } else {
                    Outlook::Clear
                }
            }
        }
    }

    async fn tell(&self, words: &str) {
        self.turn.events.emit(AgentEvent::Notice(words.to_owned())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::hermes::event::RunEvent;
    use crate::wire::SseEvent;

    const PATIENCE: Duration = Duration::from_secs(50);

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

    fn some(commands: &[&str], now: Instant) -> Approvals {
        let mut approvals = Approvals::new(PATIENCE);
        for command in commands {
            assert!(approvals.hear(approval(command), now));
        }
        approvals
    }

    fn asks(approvals: &mut Approvals, now: Instant) -> Option<String> {
        approvals
            .next_question(now)
            .map(|question| question.detail.unwrap())
    }

    fn chosen(choice: &str) -> PromptAnswer {
        PromptAnswer::Chosen(choice.to_owned())
    }

    fn due(approvals: &Approvals, now: Instant) -> Option<Consent> {
        approvals.due(now).map(|due| due.consent)
    }

    #[test]
    fn a_yes_waits_for_the_later_ones_and_allows_no_more_than_they_do() {
        let now = Instant::now();
        for (one, other, want) in [
            ("once", "once", [Consent::Once, Consent::Once]),
            ("always", "once", [Consent::Once, Consent::Once]),
            ("once", "always", [Consent::Once, Consent::Always]),
            ("always", "deny", [Consent::Deny, Consent::Deny]),
        ] {
            let mut approvals = some(&["a", "b"], now);
            assert_eq!(asks(&mut approvals, now).as_deref(), Some("a"));
            approvals.answer(&chosen(one));
            assert_eq!(due(&approvals, now), None, "{one} has to wait");
            assert_eq!(asks(&mut approvals, now).as_deref(), Some("b"));
            approvals.answer(&chosen(other));
            for want in want {
                assert_eq!(due(&approvals, now), Some(want), "{one} {other}");
                approvals.handed_over(true);
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
            assert_eq!(due(&approvals, now), Some(Consent::Deny));
            approvals.handed_over(false);
            assert_eq!(asks(&mut approvals, now).as_deref(), Some("b"));
        }
    }

    #[test]
    fn what_is_not_asked_in_time_is_denied_and_not_passed_over() {
        let now = Instant::now();
        let late = now + PATIENCE - Duration::from_secs(1);
        let mut approvals = some(&["a"], now);
        assert_eq!(asks(&mut approvals, late), None);
        assert_eq!(due(&approvals, late), Some(Consent::Deny));
        // Nor is a yes handed over that comes when nobody waits for it.
        let mut approvals = some(&["a"], now);
        approvals.answer(&chosen("once"));
        assert_eq!(due(&approvals, now + PATIENCE * 2), Some(Consent::Deny));
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
        assert!(!approvals.due(now).unwrap().is_told, "the status told of a alone");
        approvals.handed_over(true);
        assert!(approvals.hear(approval("c"), now));
        assert!(!approvals.responded(1), "that is our own answer to b");
        assert_eq!(asks(&mut approvals, now).as_deref(), Some("c"));
        assert!(approvals.due(now).is_none());
        assert!(approvals.responded(7), "however many it says");
        assert!(!approvals.responded(1), "none is left");
    }

    #[test]
    fn too_many_are_denied_together() {
        let now = Instant::now();
        let mut approvals = some(&["a"; MOST], now);
        assert!(!approvals.hear(approval("b"), now));
        approvals.denied_all(true);
        assert_eq!(asks(&mut approvals, now), None);
        assert!(approvals.hear(approval("c"), now));
        assert!(!approvals.responded(17), "that is our own no to all");
        assert_eq!(asks(&mut approvals, now).as_deref(), Some("c"));
    }
}
