//! What goes wrong, on request: by method, by chat and by count.

use std::time::Duration;

use super::refusal::ApiRefusal;

/// What becomes of a call that a rule matches.
#[derive(Clone, Debug)]
pub enum BotApiAnswer {
    /// Performed, answered after this long.
    Delay(Duration),
    /// Not performed: refused with a code and a description.
    Refuse {
        /// The code, which is the HTTP status, too.
        code: u16,
        /// The description, with its prefix.
        description: String,
        /// Seconds to wait, as a 429 names them.
        retry_after: Option<u64>,
    },
    /// Not performed: a page of HTML with status 502, as a front end answers.
    BadGateway,
    /// Performed, answered with something that is not JSON.
    Garbage,
    /// Not performed: the connection is closed before the body is read.
    CutBefore,
    /// Performed, and the connection is closed instead of an answer.
    CutAfter,
    /// Not performed and never answered.
    HangBefore,
    /// Performed and never answered.
    HangAfter,
}

impl BotApiAnswer {
    /// A refusal with code and description.
    pub fn refuse(code: u16, description: &str) -> Self {
        Self::Refuse {
            code,
            description: description.to_owned(),
            retry_after: None,
        }
    }

    /// A 429.
    pub fn too_many(retry_after: u64) -> Self {
        Self::Refuse {
            code: 429,
            description: format!("Too Many Requests: retry after {retry_after}"),
            retry_after: Some(retry_after),
        }
    }

    /// The refusal, if it is one.
    pub(super) fn refusal(&self) -> Option<ApiRefusal> {
        match self {
            Self::Refuse {
                code,
                description,
                retry_after,
            } => Some(ApiRefusal {
                retry_after: *retry_after,
                ..ApiRefusal::new(*code, description.clone())
            }),
            _ => None,
        }
    }
}

/// One rule: which calls, how often, what becomes of them. The first rule that matches counts.
#[derive(Clone, Debug)]
pub struct BotApiRule {
    method: Option<String>,
    chat_id: Option<i64>,
    times: Option<usize>,
    answer: BotApiAnswer,
}

impl BotApiRule {
    /// A rule for one method; `file` is the download of a file.
    pub fn on(method: &str, answer: BotApiAnswer) -> Self {
        Self {
            method: Some(method.to_owned()),
            chat_id: None,
            times: None,
            answer,
        }
    }

    /// A rule for every method.
    pub fn on_all(answer: BotApiAnswer) -> Self {
        Self {
            method: None,
            chat_id: None,
            times: None,
            answer,
        }
    }

    /// Only calls that name this chat.
    #[must_use]
    pub fn in_chat(self, chat_id: i64) -> Self {
        Self {
            chat_id: Some(chat_id),
            ..self
        }
    }

    /// The rule is spent after `times` calls.
    #[must_use]
    pub fn times(self, times: usize) -> Self {
        Self {
            times: Some(times),
            ..self
        }
    }

    /// The rule is spent after one call.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }
}

/// The rules in force.
#[derive(Default)]
pub(super) struct BotApiRules(Vec<BotApiRule>);

impl BotApiRules {
    const LIMIT: usize = 1_000;

    /// Adds a rule; one over the limit is ignored.
    pub(super) fn add(&mut self, rule: BotApiRule) {
        if self.0.len() < Self::LIMIT && rule.times != Some(0) {
            self.0.push(rule);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the connection is to be closed before anything is read.
    pub(super) fn cuts_unread(&mut self, method: &str) -> bool {
        let index = self.0.iter().position(|rule| rule.is_for(method));
        let cuts =
            |rule: &BotApiRule| rule.chat_id.is_none() && matches!(rule.answer, BotApiAnswer::CutBefore);
        match index.filter(|index| cuts(&self.0[*index])) {
            None => false,
            Some(index) => {
                self.spend(index);
                true
            }
        }
    }

    /// What the rules make of this call, if anything.
    pub(super) fn answer(&mut self, method: &str, chat_id: Option<i64>) -> Option<BotApiAnswer> {
        let index = self.0.iter().position(|rule| {
            rule.is_for(method) && rule.chat_id.is_none_or(|wanted| Some(wanted) == chat_id)
        })?;
        Some(self.spend(index))
    }

    fn spend(&mut self, index: usize) -> BotApiAnswer {
        let rule = &mut self.0[index];
        let answer = rule.answer.clone();
        if let Some(times) = &mut rule.times {
            *times -= 1;
            if *times == 0 {
                self.0.remove(index);
            }
        }
        answer
    }
}

impl BotApiRule {
    fn is_for(&self, method: &str) -> bool {
        self.method
            .as_deref()
            .is_none_or(|wanted| wanted.eq_ignore_ascii_case(method))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts_until_it_is_spent() {
        let mut rules = BotApiRules::default();
        rules.add(
            BotApiRule::on("sendmessage", BotApiAnswer::too_many(3))
                .in_chat(7)
                .times(2),
        );
        rules.add(BotApiRule::on("getMe", BotApiAnswer::CutBefore).once());
        rules.add(BotApiRule::on_all(BotApiAnswer::BadGateway).times(1));
        assert!(!rules.cuts_unread("sendMessage"));
        for _ in 0..2 {
            let refused = rules
                .answer("sendMessage", Some(7))
                .and_then(|answer| answer.refusal());
            assert_eq!(refused.and_then(|refusal| refusal.retry_after), Some(3));
        }
        assert!(matches!(
            rules.answer("sendMessage", Some(7)),
            Some(BotApiAnswer::BadGateway)
        ));
        assert!(rules.answer("sendMessage", Some(7)).is_none());
        assert!(rules.cuts_unread("getMe") && !rules.cuts_unread("getMe"));
    }
}
