//! Slack's one slash command: `/hermes sub …` becomes the command it names.

use std::collections::BTreeMap;

use super::event::{MessageEvent, MessageType};
use super::source::Platform;

/// Which word after `/hermes` means which command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandMap(BTreeMap<String, String>);

/// Commands and aliases that map to themselves with a slash in front.
#[rustfmt::skip]
const COMMANDS: &[&str] = &[
    "agents", "approve", "background", "bg", "blueprint", "bp", "branch", "btw", "bundles",
    "codex-runtime", "codex_runtime", "commands", "compress", "curator", "debug", "deny", "fast",
    "footer", "fork", "goal", "help", "insights", "kanban", "learn", "memory", "moa", "model", "new",
    "personality", "platform", "profile", "q", "queue", "reasoning", "reload-mcp", "reload-skills",
    "reload_mcp", "reload_skills", "reset", "restart", "resume", "retry", "rollback", "sessions",
    "set-home", "sethome", "start", "status", "steer", "stop", "subgoal", "suggest", "suggestions",
    "tasks", "title", "topic", "topup", "undo", "update", "usage", "v", "version", "voice", "whoami",
    "yolo",
];

impl Default for CommandMap {
    fn default() -> Self {
        let own = COMMANDS
            .iter()
            .map(|name| ((*name).to_owned(), format!("/{name}")));
        Self(
            own.chain([("compact".to_owned(), "/compress".to_owned())])
                .collect(),
        )
    }
}

impl CommandMap {
    /// The usual map with some words added or changed; a word mapped to `""` is taken out.
    #[must_use]
    pub fn with(mut self, changes: impl IntoIterator<Item = (String, String)>) -> Self {
        for (word, command) in changes {
            if command.is_empty() {
                self.0.remove(&word);
            } else {
                self.0.insert(word, command);
            }
        }
        self
    }

    /// Rewrites a Slack `/hermes …` message in place; any other message is left alone.
    pub fn rewrite(&self, event: &mut MessageEvent) {
        if event.source.platform != Platform::SLACK {
            return;
        }
        let Some(rewritten) = event.text.as_ref().and_then(|text| self.rewritten(text.as_str())) else {
            return;
        };
        event.message_type = MessageType::from_text(&rewritten);
        event.text = Some(rewritten.into());
    }

    fn rewritten(&self, text: &str) -> Option<String> {
        let rest = text.trim().strip_prefix("/hermes")?;
        if !(rest.is_empty() || rest.starts_with(char::is_whitespace)) {
            return None;
        }
        let rest = rest.trim();
        if rest.is_empty() {
            return Some("/help".to_owned());
        }
        let (word, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let Some(command) = self.0.get(word) else {
            return Some(rest.to_owned());
        };
        Some(format!("{command} {}", arguments.trim()).trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_map_is_the_registry_of_record() {
        let recorded: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/vectors/slack-subcommand-map.json")).unwrap();
        let recorded = recorded["map"].as_object().unwrap();
        let CommandMap(ours) = CommandMap::default();
        assert_eq!(ours.len(), recorded.len());
        for (word, command) in recorded {
            let expected = if word == "compact" {
                "/compress"
            } else {
                command.as_str().unwrap()
            };
            assert_eq!(ours[word], expected);
        }
    }

    #[test]
    fn words_can_be_added_and_taken_out() {
        let map = CommandMap::default().with([
            ("deploy".into(), "/skill deploy".into()),
            ("yolo".into(), String::new()),
        ]);
        assert_eq!(
            map.rewritten("/hermes deploy now").as_deref(),
            Some("/skill deploy now")
        );
        assert_eq!(map.rewritten("/hermes yolo on").as_deref(), Some("yolo on"));
        assert_eq!(map.rewritten("/hermesx new"), None);
        assert_eq!(map.rewritten("hello /hermes"), None);
    }
}
