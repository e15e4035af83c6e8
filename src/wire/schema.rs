//! `docs/wire.schema.json`, and what a frame has against it. Only the keywords that the schema uses are understood; a test
//! holds that.

use serde_json::Value;
use std::sync::LazyLock;

/// The definition of every frame from the connector.
pub const FROM_CONNECTOR: &str = "from_connector";
/// Problems of one frame that are listed.
const MAX_PROBLEMS: usize = 20;
/// Where definitions are.
const DEFINITIONS: &str = "#/$defs/";

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../docs/wire.schema.json")).expect("the schema is JSON")
});

/// What is wrong with a value by a definition of the schema, each with the path of the field; empty if nothing is.
pub fn problems(definition: &str, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(&SCHEMA["$defs"][definition], "", value, &mut found);
    found.truncate(MAX_PROBLEMS);
    found
}

fn check(schema: &Value, path: &str, value: &Value, found: &mut Vec<String>) {
    let schema = resolve(schema);
    let mut wrong = |what: String| found.push(format!("{} {what}", named(path)));
    if let Some(types) = schema.get("type") {
        let accepted: Vec<&str> = types.as_array().map_or_else(
            || types.as_str().into_iter().collect(),
            |types| types.iter().filter_map(Value::as_str).collect(),
        );
        if !accepted.iter().any(|wanted| is_type(wanted, value)) {
            return wrong(format!("is {}, not {}", type_of(value), accepted.join(" or ")));
        }
    }
    if let Some(wanted) = schema.get("const")
        && wanted != value
    {
        return wrong(format!("is {value}, not {wanted}"));
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array)
        && !values.contains(value)
    {
        let values: Vec<String> = values.iter().map(Value::to_string).collect();
        wrong(format!("is {value}, not one of {}", values.join(", ")));
    }
    if let (Some(least), Some(number)) = (schema.get("minimum").and_then(Value::as_f64), value.as_f64())
        && number < least
    {
        wrong(format!("is {value}, less than {least}"));
    }
    if let (Some(least), Some(text)) = (schema.get("minLength").and_then(Value::as_u64), value.as_str())
        && (text.chars().count() as u64) < least
    {
        wrong(format!("is shorter than {least} characters"));
    }
    for key in schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if let Some(key) = key.as_str()
            && value.get(key).is_none()
        {
            found.push(format!("{} is missing", joined(path, key)));
        }
    }
    for (key, schema) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if let Some(value) = value.get(key) {
            check(schema, &joined(path, key), value, found);
        }
    }
    if let (Some(schema), Some(items)) = (schema.get("items"), value.as_array()) {
        for (index, item) in items.iter().enumerate() {
            if found.len() >= MAX_PROBLEMS {
                return;
            }
            check(schema, &joined(path, &index.to_string()), item, found);
        }
    }
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        one_of(choices, path, value, found);
    }
}

/// The alternatives are told apart by their `const` fields.
fn one_of(choices: &[Value], path: &str, value: &Value, found: &mut Vec<String>) {
    let chosen = choices.iter().map(resolve).find(|choice| {
        let mut properties = choice["properties"].as_object().into_iter().flatten();
        properties.all(|(key, schema)| {
            schema
                .get("const")
                .is_none_or(|wanted| value.get(key) == Some(wanted))
        })
    });
    match chosen {
        Some(choice) => check(choice, path, value, found),
        None => found.push(format!("{} is of no known kind", named(path))),
    }
}

fn resolve(schema: &Value) -> &Value {
    let reference = schema.get("$ref").and_then(Value::as_str);
    match reference.and_then(|reference| reference.strip_prefix(DEFINITIONS)) {
        Some(name) => &SCHEMA["$defs"][name],
        None => schema,
    }
}

fn is_type(wanted: &str, value: &Value) -> bool {
    match wanted {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => other == type_of(value),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn named(path: &str) -> &str {
    if path.is_empty() { "the frame" } else { path }
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    /// Keywords with a meaning here, and those that only people read.
    const KEYWORDS: &[&str] = &[
        "$ref",
        "const",
        "enum",
        "items",
        "minLength",
        "minimum",
        "oneOf",
        "properties",
        "required",
        "type",
    ];
    const NOTES: &[&str] = &["$defs", "$id", "$schema", "description", "title"];

    fn keywords<'s>(schema: &'s Value, used: &mut BTreeSet<&'s str>) {
        for (key, value) in schema.as_object().into_iter().flatten() {
            used.insert(key);
            match key.as_str() {
                "properties" | "$defs" => {
                    let below = value.as_object().into_iter().flatten();
                    below.for_each(|(_, schema)| keywords(schema, used));
                }
                "items" => keywords(value, used),
                "oneOf" => value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .for_each(|schema| keywords(schema, used)),
                _ => {}
            }
        }
    }

    #[test]
    fn every_keyword_of_the_schema_is_understood() {
        let mut used = BTreeSet::new();
        keywords(&SCHEMA, &mut used);
        let unknown: Vec<_> = used
            .iter()
            .filter(|key| !KEYWORDS.contains(key) && !NOTES.contains(key))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        for wanted in KEYWORDS {
            assert!(used.contains(wanted), "{wanted} is not used");
        }
    }

    #[test]
    fn each_problem_names_its_field() {
        let found = |frame: Value| problems(FROM_CONNECTOR, &frame);
        assert_eq!(found(json!({"type": "going_idle_ack", "new": 1})), [""; 0]);
        assert_eq!(
            found(json!({"type": "nonsense"})),
            ["the frame is of no known kind"]
        );
        assert_eq!(found(json!([])), ["the frame is of no known kind"]);
        assert_eq!(
            found(json!({"type": "outbound_result", "requestId": 1, "result": {}})),
            ["requestId is number, not string", "result.success is missing"]
        );
        let descriptor = json!({"contract_version": 1, "platform": "", "label": "D", "max_message_length": 0,
            "supports_draft_streaming": false, "supports_edit": "yes", "supports_threads": true,
            "markdown_dialect": null, "len_unit": "bytes", "supported_ops": ["send", 1]});
        let mut wrong = found(json!({"type": "descriptor", "descriptor": descriptor}));
        wrong.sort();
        assert_eq!(
            wrong,
            [
                "descriptor.len_unit is \"bytes\", not one of \"chars\", \"utf16\"",
                "descriptor.max_message_length is 0, less than 1",
                "descriptor.platform is shorter than 1 characters",
                "descriptor.supported_ops.1 is number, not string",
                "descriptor.supports_edit is string, not boolean",
            ]
        );
    }

    #[test]
    fn a_long_list_of_problems_is_cut() {
        let frame = json!({"type": "inbound", "event": {"media_urls": vec![1; 1000]}});
        assert_eq!(problems(FROM_CONNECTOR, &frame).len(), MAX_PROBLEMS);
    }
}
