//! The slash commands that the bot registers, and whether Discord has them already.

use serde_json::{Value, json};

/// The option of a command that names none: what a person would write behind it.
const FREE_TEXT: &str = "text";

/// The commands of a manifest as Discord registers them: in servers and in direct messages. A command without options takes a
/// text.
pub fn registration(manifest: &[Value]) -> Vec<Value> {
    let commands = manifest.iter().filter(|command| command.is_object());
    commands
        .map(|command| {
            let mut command = command.clone();
            command["type"] = 1.into();
            command["contexts"] = json!([0, 1]);
            command["integration_types"] = json!([0]);
            if command.get("options").is_none_or(Value::is_null) {
                let text = json!({ "type": 3, "name": FREE_TEXT, "description": "What follows the command" });
                command["options"] = json!([text]);
            }
            command
        })
        .collect()
}

/// Whether Discord has exactly these commands.
pub fn is_registered(known: &[Value], commands: &[Value]) -> bool {
    let has = |command: &Value| {
        known
            .iter()
            .any(|known| known["name"] == command["name"] && includes(known, command))
    };
    known.len() == commands.len() && commands.iter().all(has)
}

/// Whether a value says what another one says. Discord adds fields, and leaves out what is the default.
fn includes(known: &Value, wanted: &Value) -> bool {
    match (known, wanted) {
        (Value::Object(known), Value::Object(wanted)) => {
            let same = |key: &str| {
                let of = |object: &serde_json::Map<String, Value>| {
                    object.get(key).filter(|value| !is_default(value)).cloned()
                };
                match (of(known), of(wanted)) {
                    (Some(known), Some(wanted)) => includes(&known, &wanted),
                    (known, wanted) => known.is_none() && wanted.is_none(),
                }
            };
            let lists = ["options", "choices", "required"];
            wanted.keys().map(String::as_str).chain(lists).all(same)
        }
        (Value::Array(known), Value::Array(wanted)) => {
            known.len() == wanted.len()
                && known
                    .iter()
                    .zip(wanted)
                    .all(|(known, wanted)| includes(known, wanted))
        }
        (known, wanted) => known == wanted,
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_registered_only_when_they_differ() {
        let manifest = [
            json!({"name": "new", "description": "start"}),
            json!({"name": "pick", "description": "pick", "options": [
                {"type": 3, "name": "how", "description": "how", "required": false, "choices": []}]}),
        ];
        let wanted = registration(&manifest);
        assert_eq!(wanted[0]["options"][0]["name"], "text");
        let mut known = wanted.clone();
        known.reverse();
        for command in &mut known {
            command["id"] = "1".into();
            command["version"] = "2".into();
            command["nsfw"] = false.into();
        }
        known[0]["options"][0].as_object_mut().unwrap().remove("required");
        assert!(is_registered(&known, &wanted));
        assert!(!is_registered(&known[1..], &wanted));
        for (at, key, value) in [
            (0, "description", json!("other")),
            (1, "options", json!([])),
            (0, "contexts", json!([0])),
        ] {
            let mut other = known.clone();
            other[at][key] = value;
            assert!(!is_registered(&other, &wanted), "{key}");
        }
        let mut more = known.clone();
        more[0]["options"][0]["choices"] = json!([{"name": "a", "value": "a"}]);
        assert!(!is_registered(&more, &wanted));
    }
}
