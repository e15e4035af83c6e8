//! What may be set about questions to people.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Agents that give up by themselves are answered this much earlier.
const MARGIN: Duration = Duration::from_secs(5);

/// Questions to people: how long they wait, and who may answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PromptSettings {
    /// How long an answer is waited for; without one the question counts as denied.
    pub timeout_secs: u64,
    /// In a group, others than the one whose message is being answered may answer too.
    pub anyone_in_group: bool,
    /// Offer answers that hold from now on outside of direct messages too.
    pub allow_always_in_groups: bool,
    /// The most questions that are open at a time; one more is not asked and counts as withdrawn.
    pub max_open: usize,
    /// How many ended questions are remembered, so that a late press is told apart.
    pub remembered: usize,
}

impl Default for PromptSettings {
    fn default() -> Self {
        Self {
            timeout_secs: 300,
            anyone_in_group: false,
            allow_always_in_groups: false,
            max_open: 256,
            remembered: 256,
        }
    }
}

impl PromptSettings {
    /// How long a question waits when the agent itself waits this long.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> Duration {
        let most = Duration::from_secs(self.timeout_secs.max(1));
        let timeout = timeout.map(|timeout| timeout.saturating_sub(MARGIN).max(timeout / 2));
        most.min(timeout.unwrap_or(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_gives_up_sooner_is_answered_before_it_does() {
        let wait = |timeout: Option<u64>| {
            let timeout = timeout.map(Duration::from_secs);
            PromptSettings::default().wait(timeout).as_millis()
        };
        let seen = [None, Some(60), Some(4), Some(0), Some(9_999)].map(wait);
        assert_eq!(seen, [300_000, 55_000, 2_000, 0, 300_000]);
    }

    #[test]
    fn what_is_not_written_has_its_default_and_what_is_unknown_is_an_error() {
        let read = |text| serde_json::from_str::<PromptSettings>(text);
        assert_eq!(read("{}").unwrap(), PromptSettings::default());
        assert!(read(r#"{"anyone_in_group": true}"#).unwrap().anyone_in_group);
        assert!(read(r#"{"timeout": 3}"#).is_err());
    }
}
