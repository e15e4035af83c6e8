//! Fault rules: which ops, calls or requests, how often, and what becomes of them. The first rule that matches counts.

/// One rule.
#[derive(Clone, Debug)]
pub(crate) struct Rule<A> {
    name: Option<String>,
    chat_id: Option<i64>,
    times: Option<usize>,
    answer: A,
}

impl<A> Rule<A> {
    /// A rule for one op, method or route.
    pub(crate) fn on(name: &str, answer: A) -> Self {
        Self {
            name: Some(name.to_owned()),
            chat_id: None,
            times: None,
            answer,
        }
    }

    /// A rule for everything.
    pub(crate) fn on_all(answer: A) -> Self {
        Self {
            name: None,
            chat_id: None,
            times: None,
            answer,
        }
    }

    /// Only what names this chat.
    pub(crate) fn in_chat(self, chat_id: i64) -> Self {
        Self {
            chat_id: Some(chat_id),
            ..self
        }
    }

    /// The rule is spent after it was used so often.
    pub(crate) fn times(self, times: usize) -> Self {
        Self {
            times: Some(times),
            ..self
        }
    }

    /// The rule is spent after it was used once.
    pub(crate) fn once(self) -> Self {
        self.times(1)
    }

    fn is_for(&self, name: &str) -> bool {
        self.name
            .as_deref()
            .is_none_or(|wanted| wanted.eq_ignore_ascii_case(name))
    }
}

/// The rules in force.
#[derive(Debug)]
pub(crate) struct Rules<A>(Vec<Rule<A>>);

impl<A> Default for Rules<A> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<A: Clone> Rules<A> {
    pub(crate) fn add(&mut self, rule: Rule<A>) {
        if rule.times != Some(0) {
            self.0.push(rule);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the rules for one name away.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|rule| rule.name.as_deref() != Some(name));
    }

    /// What the rules make of this, if anything.
    pub(crate) fn take(&mut self, name: &str, chat_id: Option<i64>) -> Option<A> {
        let matches =
            |rule: &Rule<A>| rule.is_for(name) && rule.chat_id.is_none_or(|wanted| Some(wanted) == chat_id);
        let index = self.0.iter().position(matches)?;
        Some(self.spend(index))
    }

    /// The same before it is known which chat is named, if the first rule for the name does not ask and its answer is wanted.
    pub(crate) fn take_early(&mut self, name: &str, wanted: impl Fn(&A) -> bool) -> Option<A> {
        let index = self.0.iter().position(|rule| rule.is_for(name))?;
        let rule = &self.0[index];
        (rule.chat_id.is_none() && wanted(&rule.answer)).then(|| self.spend(index))
    }

    fn spend(&mut self, index: usize) -> A {
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
