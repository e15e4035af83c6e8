//! The contract, example by example: every golden vector, asked of the real `oracle` verb.

use std::io::Write as _;
use std::process::{Command, Stdio};

use hermes_relay::wire::{Grouping, NoAliases, Platform, SessionKey, SessionSource};
use serde_json::{Value, json};

/// Reads one list of a vector file and insists that it holds something.
fn vectors(file: &str, list: &str) -> Vec<Value> {
    let path = format!("{}/tests/vectors/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_slice(&std::fs::read(&path).expect(&path)).expect(&path);
    let list = file[list].as_array().expect("the list is there").clone();
    assert!(!list.is_empty());
    list
}

/// Asks the oracle all questions in one run.
fn oracle(kind: &str, questions: &[Value]) -> Vec<Value> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hermes-relay"))
        .args(["oracle", kind])
        .env_remove("HERMES_HOME")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = questions
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join("\n");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    let answers: Vec<Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(answers.len(), questions.len());
    answers
}

fn newest<'a>(vector: &'a Value, field: &str) -> &'a Value {
    vector
        .get(format!("{field}_newest"))
        .or_else(|| vector.get(field))
        .unwrap_or(&Value::Null)
}

fn name(vector: &Value) -> &str {
    vector["name"].as_str().unwrap_or("unnamed")
}

#[test]
fn tokens_are_minted_byte_for_byte() {
    let vectors = vectors("token", "mint");
    for (vector, answer) in vectors.iter().zip(oracle("token", &vectors)) {
        assert_eq!(answer, json!({"ok": vector["token"]}), "{vector}");
    }
}

#[test]
fn tokens_are_verified_alike() {
    let vectors = vectors("token", "verify");
    for (vector, answer) in vectors.iter().zip(oracle("verify", &vectors)) {
        assert_eq!(answer, json!({"ok": vector["payload"]}), "{}", name(vector));
    }
    for vector in self::vectors("token", "sign") {
        let (payload, secret) = (
            vector["payload"].as_str().unwrap(),
            vector["secret"].as_str().unwrap(),
        );
        assert_eq!(
            hermes_relay::wire::sign(payload, secret),
            vector["hex"].as_str().unwrap()
        );
    }
}

#[test]
fn session_keys_are_built_byte_for_byte() {
    let vectors = vectors("session-key", "vectors");
    for (vector, answer) in vectors.iter().zip(oracle("session-key", &vectors)) {
        assert_eq!(answer, json!({"ok": newest(vector, "key")}), "{}", name(vector));
    }
}

#[test]
fn descriptors_are_normalised_alike() {
    let vectors = vectors("descriptor", "vectors");
    let wires: Vec<Value> = vectors.iter().map(|vector| vector["wire"].clone()).collect();
    for (vector, answer) in vectors.iter().zip(oracle("descriptor", &wires)) {
        if vector.get("error_newest").is_some() {
            assert!(answer["error"].is_string(), "{}", name(vector));
            continue;
        }
        assert_eq!(answer["ok"], *newest(vector, "out"), "{}", name(vector));
        let descriptor = hermes_relay::wire::CapabilityDescriptor::from_value(&vector["wire"]).unwrap();
        assert_eq!(
            descriptor.supports_code_blocks(),
            vector["derived"]["supports_code_blocks"],
            "{}",
            name(vector)
        );
        let unit = serde_json::to_value(descriptor.length_unit()).unwrap();
        let wanted = vector["derived"]["len_fn"].as_str().unwrap();
        assert!(
            unit.as_str().unwrap().eq_ignore_ascii_case(wanted),
            "{}",
            name(vector)
        );
        for (op, supported) in vector["supports_op_newest"].as_object().unwrap() {
            assert_eq!(descriptor.supports_op(op), *supported, "{}: {op}", name(vector));
        }
    }
}

#[test]
fn events_are_read_alike() {
    let vectors = vectors("event", "vectors");
    let wires: Vec<Value> = vectors.iter().map(|vector| vector["wire"].clone()).collect();
    for (vector, answer) in vectors.iter().zip(oracle("event", &wires)) {
        let expected = match name(vector) {
            // The contract's first text called the scope `guild_id`; both spellings are understood here.
            "legacy guild_id only" => {
                let mut expected = newest(vector, "out").clone();
                expected["source"]["scope_id"] = json!("gLegacy");
                expected["source"]["guild_id"] = json!("gLegacy");
                expected
            }
            // Where others crash, the message still arrives: without its quote, or without a rewrite.
            "reply_to string" | "slack text null -> crash in newest" => {
                let mut expected = vector["out"].clone();
                expected["prompt_response"] = Value::Null;
                expected["source"]["prospective_thread_id"] = Value::Null;
                expected
            }
            _ if vector.get("error_newest").is_some() => {
                assert!(answer["error"].is_string(), "{}", name(vector));
                continue;
            }
            _ => newest(vector, "out").clone(),
        };
        assert_eq!(answer["ok"], expected, "{}", name(vector));
    }
}

#[test]
fn events_belong_to_the_same_sessions() {
    let mut asked = 0;
    for vector in vectors("event", "vectors") {
        let Some(source) = vector.get("out_newest").map(|event| &event["source"]) else {
            continue;
        };
        let source = SessionSource::from_value(source).unwrap();
        let key = SessionKey::build(&source, Grouping::default(), None, &NoAliases);
        let expected = match vector["adapter_session_key"].as_str() {
            // The recorded keys are those of a version that did not name the workspace.
            Some(recorded) if source.platform == Platform::SLACK => {
                let scope = source.scope_id.as_ref().unwrap().as_str();
                recorded.replace(":slack:group:", &format!(":slack:group:{scope}:"))
            }
            Some(recorded) => recorded.to_owned(),
            // That version failed where there is no chat type.
            None => "agent:main:discord:None:c1".to_owned(),
        };
        assert_eq!(key.as_str(), expected, "{}", name(&vector));
        asked += 1;
    }
    assert!(asked > 40, "{asked}");
}

#[test]
fn policies_are_projected_alike() {
    let vectors = vectors("policy", "vectors");
    for (vector, answer) in vectors.iter().zip(oracle("policy", &vectors)) {
        assert_eq!(
            answer,
            json!({"ok": newest(vector, "policy")}),
            "{}",
            name(vector)
        );
    }
}

#[test]
fn interactions_become_the_same_messages() {
    let vectors = vectors("passthrough", "vectors");
    let forwards: Vec<Value> = vectors.iter().map(|vector| vector["forward"].clone()).collect();
    let mut keys = Vec::new();
    for (vector, answer) in vectors.iter().zip(oracle("interaction", &forwards)) {
        let Some(expected) = newest(vector, "out").as_object() else {
            assert_eq!(answer, json!({"ok": null}), "{}", name(vector));
            continue;
        };
        let got = answer["ok"].as_object().unwrap();
        for (field, value) in expected.iter().filter(|(field, _)| *field != "source") {
            assert_eq!(got[field], *value, "{}: {field}", name(vector));
        }
        for (field, value) in expected["source"].as_object().unwrap() {
            assert_eq!(got["source"][field], *value, "{}: source.{field}", name(vector));
        }
        keys.push((
            vector,
            json!({"source": got["source"], "group_sessions_per_user": true}),
        ));
    }
    let questions: Vec<Value> = keys.iter().map(|(_, question)| question.clone()).collect();
    for ((vector, _), answer) in keys.iter().zip(oracle("session-key", &questions)) {
        assert_eq!(answer["ok"], *newest(vector, "session_key"), "{}", name(vector));
    }
}

#[test]
fn addresses_are_derived_alike() {
    let vectors = vectors("url-env", "urls");
    for (vector, answer) in vectors.iter().zip(oracle("url", &vectors)) {
        match vector["configured"].as_str().unwrap() {
            // No scheme: refused here instead of failing at the dial.
            "/relay" => assert!(answer["error"].is_string()),
            // An upper-case scheme is a scheme.
            "HTTPS://connector.example" => {
                assert_eq!(answer["ok"]["dial_url"], "wss://connector.example/relay");
                assert_eq!(answer["ok"]["enroll_base"], "https://connector.example");
            }
            configured => {
                for field in ["dial_url", "provision_url", "policy_url", "enroll_base"] {
                    assert_eq!(answer["ok"][field], vector[field], "{configured}: {field}");
                }
            }
        }
    }
}

#[test]
fn texts_are_split_alike() {
    // Compared part by part in tests/pure/split; here only that the verb passes them through.
    let vectors = vectors("chunk", "truncate");
    for (vector, answer) in vectors.iter().zip(oracle("split", &vectors)) {
        let parts = answer["ok"].as_array().unwrap();
        let limit = vector["max_length"].as_u64().unwrap();
        let within = vector["lengths"]
            .as_array()
            .unwrap()
            .iter()
            .all(|length| length.as_u64().unwrap() <= limit);
        assert!(
            !within || parts == vector["chunks"].as_array().unwrap(),
            "{}",
            name(vector)
        );
    }
}

#[test]
fn frames_are_distinguished_and_errors_are_answers() {
    let question = |line: &str| json!({ "line": line });
    let answers = oracle(
        "frame",
        &[
            question(r#"{"type":"inbound","event":{"text":"hi"},"bufferId":7}"#),
            question(r#"{"bufferId":"b","type":"inbound","event":null}"#),
            question("[]"),
            question("{nope"),
            question(r#"{"type":"new_thing","x":1}"#),
            question("{\"type\":\"hello\",\"platform\":\"discord\",\"botId\":\"\"}\r\n"),
            json!(5),
        ],
    );
    assert_eq!(answers[0]["ok"]["type"], "inbound");
    assert_eq!(answers[0]["ok"]["bufferId"], "7");
    assert!(
        answers[1..4].iter().all(|answer| answer["error"].is_string()),
        "{answers:?}"
    );
    assert_eq!(answers[4]["ok"]["type"], "new_thing");
    assert_eq!(answers[5]["ok"]["type"], "hello");
    assert!(answers[6]["error"].is_string());
}

#[test]
fn every_kind_is_listed_with_an_answer() {
    let output = Command::new(env!("CARGO_BIN_EXE_hermes-relay"))
        .args(["oracle", "--list"])
        .output()
        .unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(listed.matches("\n  out: {\"ok\":").count(), 11, "{listed}");
}
