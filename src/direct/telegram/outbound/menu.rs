//! The bot's command menu.

use serde_json::{Value, json};

/// Commands that a bot can offer.
const MAX_COMMANDS: usize = 100;
/// Longest name and longest description of a command.
const MAX_NAME: usize = 32;
const MAX_DESCRIPTION: usize = 256;

/// The commands of a manifest that Telegram takes, in its form.
pub fn command_menu(manifest: &[Value]) -> Vec<Value> {
    let usable = |name: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(plain)
    };
    let text = |command: &Value, key: &str| command.get(key).and_then(Value::as_str).map(str::to_owned);
    let offered = manifest.iter().filter_map(|command| {
        let name = text(command, "name").filter(|name| usable(name))?;
        let description = text(command, "description").filter(|text| !text.is_empty());
        let description: String = description?.chars().take(MAX_DESCRIPTION).collect();
        Some(json!({"command": name, "description": description}))
    });
    offered.take(MAX_COMMANDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_telegram_does_not_take_are_left_out() {
        let long = "é".repeat(300);
        let manifest = [
            json!({"name": "new", "description": "Starts over"}),
            json!({"name": "set_mode2", "description": long, "options": []}),
            json!({"name": "New", "description": "x"}),
            json!({"name": "re-start", "description": "x"}),
            json!({"name": "", "description": "x"}),
            json!({"name": "x".repeat(33), "description": "x"}),
            json!({"name": "silent", "description": ""}),
            json!({"name": "nameless"}),
            json!(7),
        ];
        let expected = [
            json!({"command": "new", "description": "Starts over"}),
            json!({"command": "set_mode2", "description": "é".repeat(256)}),
        ];
        assert_eq!(command_menu(&manifest), expected);
        let many: Vec<Value> = (0..150)
            .map(|number| json!({"name": format!("c{number}"), "description": "x"}))
            .collect();
        assert_eq!(command_menu(&many).len(), MAX_COMMANDS);
    }
}
