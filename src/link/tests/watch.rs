//! What a random walk watches: every action as it comes, and the link after every step.

use super::random::Walk;
use super::*;

/// An op that was asked for and is not settled.
pub(super) struct Asked {
    pub(super) lane: Option<u64>,
    pub(super) request_id: Option<String>,
}

impl Walk {
    pub(super) fn perform(&mut self) {
        while let Some(action) = self.link.poll_action() {
            match action {
                Action::Dial { generation, .. } => {
                    assert_eq!(self.open, None, "one dialler");
                    assert_eq!(generation, Generation::numbered(self.highest + 1));
                    assert_eq!(self.link.held_until(), None);
                    self.highest += 1;
                    self.open = Some(generation);
                    self.dialed = false;
                    self.greeted = false;
                }
                Action::Write { generation, line, .. } => {
                    assert!(self.dialed && self.open == Some(generation));
                    self.note_write(&line);
                }
                Action::Ping { generation } => assert!(self.greeted && self.open == Some(generation)),
                Action::CloseSocket { generation, .. } => {
                    assert_eq!(self.open, Some(generation), "closed once, and never a stranger");
                    self.open = None;
                }
                Action::Settled { token, outcome } => self.note_settled(token, &outcome),
                Action::Report(report) => self.note_report(&report),
            }
        }
    }

    fn note_write(&mut self, written: &str) {
        assert!(written.ends_with('\n'));
        let Some(rest) = written.strip_prefix(r#"{"type":"outbound","requestId":""#) else {
            return;
        };
        assert!(self.greeted, "ops only after the handshake");
        let (_, content) = rest.split_once(r#""content":""#).unwrap();
        let token: u64 = content.split('"').next().unwrap().parse().unwrap();
        let lane = self.asked[&token].lane;
        if let Some(lane) = lane {
            let busy = |asked: &Asked| asked.lane == Some(lane) && asked.request_id.is_some();
            assert!(!self.asked.values().any(busy), "one at a time");
            let last = &mut self.last_of_lane[usize::try_from(lane).unwrap()];
            assert!(*last < token, "in order");
            *last = token;
        }
        let asked = self.asked.get_mut(&token).unwrap();
        assert_eq!(
            asked.request_id.replace(rest[..32].to_owned()),
            None,
            "written once"
        );
        self.see("written");
    }

    fn note_settled(&mut self, token: u64, outcome: &Settled) {
        let asked = self.asked.remove(&token).expect("settled once");
        match outcome {
            Settled::Sent(known) => {
                assert!(asked.request_id.is_some());
                self.see(match **known {
                    Outcome::Applied(_) => "applied",
                    Outcome::Refused { .. } => "refused",
                    Outcome::Unknown => "unknown",
                });
                assert!(self.answered > 0 || **known == Outcome::Unknown);
            }
            Settled::NotSent(why) => {
                assert!(asked.request_id.is_none());
                self.see(match why {
                    NotSent::NotLive => "not live",
                    NotSent::Lost => "lost in waiting",
                    NotSent::Full => "full",
                    NotSent::Expired => "expired in waiting",
                    NotSent::Cancelled => "cancelled",
                    NotSent::Closing => "closing",
                });
            }
        }
    }

    fn note_report(&mut self, report: &Report) {
        self.see(match report {
            Report::Dialing { .. } => "dialing",
            Report::Live { .. } => "live",
            Report::Described { .. } => "described",
            Report::Lost { loss, retry_in } => {
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
                    Loss::HandshakeTimeout => "handshake timeout",
                    Loss::Closed { .. } => "closed by the connector",
                    Loss::Silent => "silent",
                    Loss::SocketError => "broken",
                    Loss::TooLarge { .. } => "too large",
                    Loss::StayedAwake => "stayed awake",
                }
            }
            Report::SkewWarning { .. } => {
                assert!(!self.seen.contains_key("skew"));
                "skew"
            }
            Report::Thawed => "thawed",
            Report::IdleAcked { late: false } => "idle acked",
            Report::IdleAcked { late: true } => "idle acked late",
            Report::IdleUnanswered => "idle unanswered",
            Report::Dormant => "told dormant",
            Report::Ended(End::Revoked { .. }) => {
                assert!(self.ever_greeted && self.refusals >= 2);
                "revoked"
            }
            Report::Ended(End::Closed) => "ended",
        });
    }

    pub(super) fn check(&mut self) {
        let ended = matches!(self.link.state(), LinkState::Ended(_));
        assert_eq!(self.link.poll_timeout().is_none(), ended, "a timer is armed");
        assert_eq!(self.link.generation(), self.open);
        let sent = self
            .asked
            .values()
            .filter(|asked| asked.request_id.is_some())
            .count();
        assert_eq!(self.link.in_flight(), sent);
        assert_eq!(self.link.waiting(), self.asked.len() - sent);
        assert!(sent <= 3 && self.link.waiting() <= 4);
        assert!(self.link.descriptors().iter().count() <= 2);
        match self.link.state() {
            LinkState::Live(_) => assert!(self.greeted),
            LinkState::Closing { .. } => {
                assert!(
                    self.greeted && !self.asked.is_empty(),
                    "nothing left to close for"
                );
                self.see("in closing");
            }
            LinkState::Waiting { .. }
            | LinkState::Dialing { .. }
            | LinkState::Greeting { .. }
            | LinkState::Dormant { .. }
            | LinkState::Ended(_) => assert!(self.asked.is_empty(), "settled with its socket"),
        }
    }
}
