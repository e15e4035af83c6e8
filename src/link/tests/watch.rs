//! What a random walk watches: every action as it comes, and the link after every step.

use super::random::Walk;
use super::*;

impl Walk {
    pub(super) fn perform(&mut self) {
        while let Some(action) = self.link.poll_action() {
            match action {
                LinkAction::Dial { generation, .. } => {
                    assert_eq!(self.open, None, "one dialler");
                    assert_eq!(generation, Generation::numbered(self.highest + 1));
                    assert_eq!(self.link.hold, None);
                    self.highest += 1;
                    self.open = Some(generation);
                    self.dialed = false;
                    self.greeted = false;
                    self.blocked = false;
                }
                LinkAction::Write { generation, line, .. } => {
                    assert!(self.dialed && self.open == Some(generation));
                    self.note_write(&line);
                }
                LinkAction::Ping { generation } => {
                    assert!(self.greeted && self.open == Some(generation));
                    assert!(!self.blocked, "no pings while nothing is read");
                }
                LinkAction::CloseSocket { generation, .. } => {
                    assert_eq!(self.open, Some(generation), "closed once, and never a stranger");
                    self.open = None;
                }
                LinkAction::Completed { id, result } => self.note_completed(id, &result),
                LinkAction::Event(report) => self.note_report(&report),
            }
        }
    }

    fn note_write(&mut self, written: &str) {
        assert!(written.ends_with('\n'));
        let Some(rest) = written.strip_prefix(r#"{"type":"outbound","requestId":""#) else {
            return;
        };
        assert!(self.greeted, "ops only after the handshake");
        let id = OpId::parse(&rest[..32]).unwrap();
        assert!(self.last_written < id, "in request order");
        self.last_written = id;
        let written = self.requested.get_mut(&id).unwrap();
        assert!(!std::mem::replace(written, true), "written once");
        self.see("written");
    }

    fn note_completed(&mut self, id: OpId, result: &SendResult) {
        if *result == SendResult::NotSent(NotSent::AlreadyInFlight) {
            assert!(self.requested.contains_key(&id));
            self.repeated -= 1;
            return self.see("already in flight");
        }
        let written = self.requested.remove(&id).expect("completed once");
        match result {
            SendResult::Answered(known) => {
                assert!(written);
                self.see(match **known {
                    Outcome::Applied(_) => "applied",
                    Outcome::Refused { .. } => "refused",
                    Outcome::Unknown => "unknown",
                });
                assert!(self.answered > 0 || **known == Outcome::Unknown);
            }
            SendResult::Lost => {
                assert!(written);
                self.see("lost in flight");
            }
            SendResult::NotSent(why) => {
                assert!(!written);
                self.see(match why {
                    NotSent::NotLive => "not live",
                    NotSent::Lost => "lost in waiting",
                    NotSent::Full => "full",
                    NotSent::Expired => "expired in waiting",
                    NotSent::AlreadyInFlight => unreachable!(),
                    NotSent::Closing => "closing",
                });
            }
        }
    }

    fn note_report(&mut self, report: &LinkEvent) {
        self.see(match report {
            LinkEvent::Dialing { .. } => "dialing",
            LinkEvent::Live { .. } => "live",
            LinkEvent::Described { .. } => "described",
            LinkEvent::Lost { loss, retry_in } => {
                assert!(*retry_in <= secs(600));
                match loss {
                    Loss::DialFailed => "dial failed",
                    Loss::DialTimeout => "dial timeout",
                    Loss::Refused { .. } => "refused by HTTP",
                    Loss::UnauthorizedHttp { .. } => "unauthorized by HTTP",
                    Loss::Unauthorized { .. } => {
                        assert!(!self.ever_greeted);
                        "unauthorized"
                    }
                    Loss::Expired => "expired",
                    Loss::Doubted { .. } => {
                        assert!(self.ever_greeted && retry_in.is_zero());
                        "doubted"
                    }
                    Loss::HandshakeTimeout => {
                        assert!(!self.blocked);
                        "handshake timeout"
                    }
                    Loss::Closed { .. } => "closed by the connector",
                    Loss::Silent => {
                        assert!(!self.blocked, "silence while nothing is read means nothing");
                        "silent"
                    }
                    Loss::SocketError => "broken",
                    Loss::TooLarge { .. } => "too large",
                    Loss::Renewed => "stayed awake",
                }
            }
            LinkEvent::SkewWarning { .. } => {
                assert!(!self.seen.contains_key("skew"));
                "skew"
            }
            LinkEvent::Thawed => "thawed",
            LinkEvent::IdleAcked { late: false } => "idle acked",
            LinkEvent::IdleAcked { late: true } => "idle acked late",
            LinkEvent::IdleUnanswered => "idle unanswered",
            LinkEvent::Dormant => "told dormant",
            LinkEvent::Ended(End::Revoked { .. }) => {
                assert!(self.ever_greeted && self.refusals >= 2);
                "revoked"
            }
            LinkEvent::Ended(End::Closed) => "ended",
        });
    }

    pub(super) fn check(&mut self) {
        let ended = matches!(self.link.state(), LinkState::Ended(_));
        assert_eq!(self.link.poll_timeout().is_none(), ended, "a timer is armed");
        assert_eq!(self.link.generation(), self.open);
        let sent = self.requested.values().filter(|written| **written).count();
        assert_eq!(self.link.pending.in_flight(), sent);
        assert_eq!(self.link.pending.waiting(), self.requested.len() - sent);
        assert!(sent <= 3 && self.link.pending.waiting() <= 4);
        assert!(self.link.descriptors().iter().count() <= 2);
        match self.link.state() {
            LinkState::Live(_) => assert!(self.greeted),
            LinkState::Closing { .. } => {
                assert!(
                    self.greeted && !self.requested.is_empty(),
                    "nothing left to close for"
                );
                self.see("in closing");
            }
            LinkState::Waiting { .. }
            | LinkState::Dialing { .. }
            | LinkState::Greeting { .. }
            | LinkState::Dormant { .. }
            | LinkState::Ended(_) => assert!(self.requested.is_empty(), "settled with its socket"),
        }
    }
}
