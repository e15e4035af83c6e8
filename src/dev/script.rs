//! How ops are answered when not as usual.

use std::time::Duration;

use serde_json::Value;

/// What becomes of an op that a rule matches.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Carried out and answered, as without a rule.
    Usual,
    /// Carried out, answered after this long.
    Delay(Duration),
    /// Not carried out.
    Refuse {
        /// Why, for people.
        error: String,
        /// Why, for programs.
        code: Option<String>,
    },
    /// Carried out, never answered.
    Never,
    /// Carried out, answered twice.
    Twice,
    /// Carried out, and the socket goes instead of an answer.
    DropSocket,
    /// Carried out, answered with something that is not JSON.
    Malformed,
    /// Carried out, answered with this result, whatever it is.
    Result(Value),
}

/// One line of the script: which ops, how often, what becomes of them. The first rule that matches counts.
#[derive(Clone, Debug)]
pub struct ResultRule {
    op: Option<String>,
    times: Option<usize>,
    answer: Answer,
}

impl ResultRule {
    /// A rule for one op.
    pub fn on(op: &str, answer: Answer) -> Self {
        Self {
            op: Some(op.to_owned()),
            times: None,
            answer,
        }
    }

    /// A rule for every op.
    pub fn on_all(answer: Answer) -> Self {
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
pub(super) struct Script(Vec<ResultRule>);

impl Script {
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

    /// What the script says about this op, if anything.
    pub(super) fn answer(&mut self, op: &str) -> Option<Answer> {
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
        let mut script = Script::default();
        script.add(ResultRule::on("send", Answer::Never).times(2));
        script.add(ResultRule::on_all(Answer::Twice));
        script.add(ResultRule::on("send", Answer::Malformed).times(0));
        assert!(matches!(script.answer("send"), Some(Answer::Never)));
        assert!(matches!(script.answer("edit"), Some(Answer::Twice)));
        assert!(matches!(script.answer("send"), Some(Answer::Never)));
        assert!(matches!(script.answer("send"), Some(Answer::Twice)));
        script.clear();
        assert!(script.answer("send").is_none());
    }
}
