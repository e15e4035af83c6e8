//! The slash commands that are offered to a platform which registers them: the relay's own, those that were
//! configured, and the agents'.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The platform that takes the list in its hello.
pub const MANIFEST_PLATFORM: &str = "discord";
/// Commands that one bot may have there.
const MOST_COMMANDS: usize = 100;
/// Longest name.
const NAME: usize = 32;
/// Longest description.
const DESCRIPTION: usize = 100;

/// A slash command to offer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OfferedCommand {
    /// Its name, without the slash: small letters, digits, `-` and `_`, at most 32.
    pub name: String,
    /// What it does, in at most 100 characters.
    pub description: String,
    /// What may follow it, as the platform writes it; none when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

/// The list: the first of two with one name counts, what the platform would refuse is left out or cut, and what is
/// too much is left out from the end.
pub fn manifest(commands: impl IntoIterator<Item = OfferedCommand>) -> Vec<Value> {
    let mut offered: Vec<Value> = Vec::new();
    for command in commands {
        let name = command.name.trim_start_matches('/').to_lowercase();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let usable = (1..=NAME).contains(&name.len()) && name.chars().all(plain);
        if !usable || offered.len() >= MOST_COMMANDS || offered.iter().any(|known| known["name"] == name) {
            continue;
        }
        let description: String = command
            .description
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .filter(|letter| !letter.is_control())
            .take(DESCRIPTION)
            .collect();
        let description = if description.is_empty() {
            name.clone()
        } else {
            description
        };
        let mut entry = json!({ "name": name, "description": description });
        if let Some(options) = command.options.filter(Value::is_array) {
            entry["options"] = options;
        }
        offered.push(entry);
    }
    offered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str, description: &str) -> OfferedCommand {
        OfferedCommand {
            name: name.to_owned(),
            description: description.to_owned(),
            options: None,
        }
    }

    #[test]
    fn the_list_is_what_the_platform_takes() {
        let offered = manifest([
            command("/Stop", "stop it"),
            command("stop", "another"),
            command("bad name", "x"),
            command("", "x"),
            command(&"x".repeat(33), "x"),
            command("long", &"word ".repeat(50)),
            command("plain", "  "),
        ]);
        let names: Vec<_> = offered
            .iter()
            .map(|entry| entry["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["stop", "long", "plain"]);
        assert_eq!(offered[0]["description"], "stop it");
        assert!(offered[1]["description"].as_str().unwrap().chars().count() <= 100);
        assert_eq!(offered[2]["description"], "plain");
        assert_eq!(
            manifest((0..300).map(|number| command(&format!("c{number}"), "x"))).len(),
            100
        );
    }
}
