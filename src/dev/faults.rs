//! Everything that can go wrong, on request: dials, tokens, sockets, HTTP routes and the results of ops.

use std::collections::VecDeque;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use super::connector::Connector;
use super::state::{SocketEnd, unauthorized};

/// How a dial is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DialRule {
    /// With an upgrade.
    #[default]
    Accept,
    /// With a status.
    Refuse {
        /// The status.
        status: StatusCode,
        /// Seconds for a `Retry-After` header.
        retry_after: Option<u64>,
    },
    /// With a redirect.
    Redirect {
        /// Where to.
        location: String,
    },
    /// Not at all: the request is taken and nothing comes.
    Hang,
}

/// When a connection is closed with 4401.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Right after the upgrade.
    AtOnce,
    /// When the first hello comes; it is not answered.
    AfterHello,
    /// After the first descriptor.
    AfterDescriptor,
}

/// An HTTP route of the connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpRoute {
    /// `POST /relay/enroll`
    Enroll,
    /// `POST /relay/provision`
    Provision,
    /// `POST /relay/policy`
    Policy,
    /// `POST /relay/media`
    MediaUpload,
    /// `GET /relay/media/{id}`
    MediaDownload,
}

/// How a route fails.
#[derive(Clone, Debug)]
pub struct HttpRouteFault {
    /// Status of the answer.
    pub status: StatusCode,
    /// Body of the answer.
    pub body: String,
    /// A `Location` header.
    pub location: Option<String>,
    /// A `Retry-After` header, in seconds.
    pub retry_after: Option<u64>,
    /// How long the answer takes.
    pub delay: Duration,
    /// After how many requests the route works again; `None` is never.
    pub times: Option<usize>,
}

impl HttpRouteFault {
    /// A fault that answers `status` and `body` to every request.
    pub fn answering(status: StatusCode, body: impl Into<String>) -> Self {
        Self {
            status,
            body: body.into(),
            location: None,
            retry_after: None,
            delay: Duration::ZERO,
            times: None,
        }
    }

    /// The fault is over after one request.
    #[must_use]
    pub fn once(self) -> Self {
        Self {
            times: Some(1),
            ..self
        }
    }
}

/// A 4401 to come.
#[derive(Clone, Debug)]
pub(super) struct TokenDenial {
    pub(super) when: When,
    pub(super) reason: String,
}

/// The faults in force.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) dials: DialRule,
    pub(super) next_dials: VecDeque<DialRule>,
    pub(super) denials: VecDeque<TokenDenial>,
    pub(super) revoked: bool,
    pub(super) mute_hello: bool,
    pub(super) mute_idle: bool,
    pub(super) corrupt: usize,
    pub(super) clock_offset: i64,
    routes: Vec<(HttpRoute, HttpRouteFault)>,
}

impl Faults {
    const LIMIT: usize = 1_000;

    /// How the dial that just came is answered.
    pub(super) fn dial(&mut self) -> DialRule {
        self.next_dials.pop_front().unwrap_or_else(|| self.dials.clone())
    }

    /// How the request that just came to this route fails, if it does.
    pub(super) fn route(&mut self, route: HttpRoute) -> Option<HttpRouteFault> {
        let index = self.routes.iter().position(|(faulty, _)| *faulty == route)?;
        let fault = &mut self.routes[index].1;
        let answer = fault.clone();
        if let Some(times) = &mut fault.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                self.routes.remove(index);
            }
        }
        Some(answer)
    }
}

/// Faults. Those of sockets concern the ones that are open now; the others last until they are taken back.
impl Connector {
    /// Resets every open socket, as a dying machine or middlebox does.
    pub fn drop_sockets(&self) {
        self.hub.end_all(&SocketEnd::Abort);
    }

    /// Closes every open socket with a close frame.
    pub fn close_with(&self, code: u16, reason: &str) {
        self.hub.end_all(&SocketEnd::Close {
            code,
            reason: reason.to_owned(),
        });
    }

    /// Stops reading from and writing to every open socket, without closing it.
    pub fn stall(&self) {
        self.set_stalled(true);
    }

    /// Takes [`stall`](Self::stall) back.
    pub fn resume(&self) {
        self.set_stalled(false);
    }

    /// Answers every further dial by a rule.
    pub fn answer_dials(&self, rule: DialRule) {
        self.hub.change(|state| state.faults.dials = rule);
    }

    /// Answers the next `count` dials by a rule.
    pub fn answer_next_dials(&self, count: usize, rule: &DialRule) {
        self.hub.change(|state| {
            let next = &mut state.faults.next_dials;
            next.extend(std::iter::repeat_n(
                rule.clone(),
                count.min(Faults::LIMIT - next.len()),
            ));
        });
    }

    /// Refuses every further dial with a status and perhaps a `Retry-After` in seconds.
    pub fn refuse_dials(&self, status: StatusCode, retry_after: Option<u64>) {
        self.answer_dials(DialRule::Refuse { status, retry_after });
    }

    /// Accepts dials again.
    pub fn accept_dials(&self) {
        self.hub.change(|state| {
            state.faults.dials = DialRule::Accept;
            state.faults.next_dials.clear();
        });
    }

    /// Closes the next `count` connections with 4401 and this reason, though their token is good.
    pub fn unauthorized_next(&self, count: usize, reason: &str, when: When) {
        let denial = TokenDenial {
            when,
            reason: reason.to_owned(),
        };
        self.hub.change(|state| {
            let denials = &mut state.faults.denials;
            denials.extend(std::iter::repeat_n(
                denial,
                count.min(Faults::LIMIT - denials.len()),
            ));
        });
    }

    /// Closes everything with 4401 `unauthorized` and accepts no token any more.
    pub fn revoke(&self) {
        self.hub.change(|state| state.faults.revoked = true);
        self.hub.end_all(&unauthorized("unauthorized"));
    }

    /// Takes [`revoke`](Self::revoke) back.
    pub fn reinstate(&self) {
        self.hub.change(|state| state.faults.revoked = false);
    }

    /// Whether [`revoke`](Self::revoke) is in force.
    pub fn is_revoked(&self) -> bool {
        self.hub.lock().faults.revoked
    }

    /// Delivers nothing more on the connection that the gateway has now, as if it had gone idle: messages wait
    /// for its next one. Returns whether it has one.
    pub fn hold_deliveries(&self) -> bool {
        self.hub.hold()
    }

    /// Whether hellos get no answer.
    pub fn ignore_hellos(&self, ignore: bool) {
        self.hub.change(|state| state.faults.mute_hello = ignore);
    }

    /// Whether `going_idle` gets no answer.
    pub fn ignore_going_idle(&self, ignore: bool) {
        self.hub.change(|state| state.faults.mute_idle = ignore);
    }

    /// Tears the next `count` frames to the gateway in half.
    pub fn corrupt_next(&self, count: usize) {
        self.hub.change(|state| state.faults.corrupt = count);
    }

    /// Makes the connector's clock wrong by so many seconds: its `Date` headers and its view of tokens.
    pub fn set_clock_offset(&self, seconds: i64) {
        self.hub.change(|state| state.faults.clock_offset = seconds);
    }

    /// Makes a route fail. Faults of one route are used up in the order they were given.
    pub fn fail_route(&self, route: HttpRoute, fault: HttpRouteFault) {
        self.hub.change(|state| {
            if state.faults.routes.len() < Faults::LIMIT {
                state.faults.routes.push((route, fault));
            }
        });
    }

    /// Makes a route work again.
    pub fn mend_route(&self, route: HttpRoute) {
        self.hub
            .change(|state| state.faults.routes.retain(|(faulty, _)| *faulty != route));
    }

    fn set_stalled(&self, stalled: bool) {
        for live in self.hub.lock().connections.values() {
            live.stalled.send_replace(stalled);
        }
    }
}

/// What becomes of an op that a rule matches.
#[derive(Clone, Debug)]
pub enum OpAnswer {
    /// Performed and answered, as without a rule.
    Usual,
    /// Performed, answered after this long.
    Delay(Duration),
    /// Not performed.
    Refuse {
        /// Why, for people.
        error: String,
        /// Why, for programs.
        code: Option<String>,
    },
    /// Performed, never answered.
    Never,
    /// Performed, answered twice.
    Twice,
    /// Performed, and the socket is reset instead of an answer.
    DropSocket,
    /// Performed, answered with something that is not JSON.
    Malformed,
    /// Performed, answered with this result, whatever it is.
    Result(Value),
}

/// One rule: which ops, how often, what becomes of them. The first rule that matches counts.
#[derive(Clone, Debug)]
pub struct ResultRule {
    op: Option<String>,
    times: Option<usize>,
    answer: OpAnswer,
}

impl ResultRule {
    /// A rule for one op.
    pub fn on(op: &str, answer: OpAnswer) -> Self {
        Self {
            op: Some(op.to_owned()),
            times: None,
            answer,
        }
    }

    /// A rule for every op.
    pub fn on_all(answer: OpAnswer) -> Self {
        Self {
            op: None,
            times: None,
            answer,
        }
    }

    /// The rule is spent after `times` ops.
    #[must_use]
    pub fn times(self, times: usize) -> Self {
        Self {
            times: Some(times),
            ..self
        }
    }

    /// The rule is spent after one op.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }
}

/// The rules in force.
#[derive(Default)]
pub(super) struct ResultRules(Vec<ResultRule>);

impl ResultRules {
    const LIMIT: usize = 1_000;

    /// Adds a rule; one over the limit is ignored.
    pub(super) fn add(&mut self, rule: ResultRule) {
        if self.0.len() < Self::LIMIT && rule.times != Some(0) {
            self.0.push(rule);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The answer that the rules give this op, if any.
    pub(super) fn answer(&mut self, op: &str) -> Option<OpAnswer> {
        let index = self
            .0
            .iter()
            .position(|rule| rule.op.as_deref().is_none_or(|wanted| wanted == op))?;
        let rule = &mut self.0[index];
        let answer = rule.answer.clone();
        if let Some(times) = &mut rule.times {
            *times -= 1;
            if *times == 0 {
                self.0.remove(index);
            }
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_counts_until_it_is_spent() {
        let mut rules = ResultRules::default();
        rules.add(ResultRule::on("send", OpAnswer::Never).times(2));
        rules.add(ResultRule::on_all(OpAnswer::Twice));
        rules.add(ResultRule::on("send", OpAnswer::Malformed).times(0));
        assert!(matches!(rules.answer("send"), Some(OpAnswer::Never)));
        assert!(matches!(rules.answer("edit"), Some(OpAnswer::Twice)));
        assert!(matches!(rules.answer("send"), Some(OpAnswer::Never)));
        assert!(matches!(rules.answer("send"), Some(OpAnswer::Twice)));
        rules.clear();
        assert!(rules.answer("send").is_none());
    }
}
