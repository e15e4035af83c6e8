//! A model that does as it is told by single words of the last thing that a person said.

use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};

use crate::support::http_stub::{Seen, Stub, json_reply, reply, reply_with};

/// Makes the model answer at once.
pub(crate) const SAY: &str = "SAY";
/// Makes it run the command between `<` and `>`, and repeat what the command printed.
pub(crate) const RUN: &str = "RUN";
/// Makes it repeat everything that was said before, by anyone.
pub(crate) const RECALL: &str = "RECALL";

/// The tools with which agents run commands: Hermes', and OpenCode's.
const TERMINALS: [&str; 2] = ["terminal", "bash"];

/// What the model does next.
enum Move {
    Say(String),
    /// With this tool.
    Run(&'static str, String),
}

/// Starts a model. It answers streaming requests as a stream and others at once.
pub(crate) async fn start() -> Stub {
    Stub::start(|seen| match (seen.method.as_str(), seen.uri.as_str()) {
        ("POST", "/v1/chat/completions") => complete(seen),
        ("GET", "/v1/models") => json_reply(
            200,
            &json!({
                "object": "list",
                "data": [{"id": "made-up", "object": "model", "owned_by": "test"}],
            }),
        ),
        // Hermes tries what kind of server it talks to.
        _ => reply(404, "{}"),
    })
    .await
}

fn complete(seen: &Seen) -> Response<Body> {
    let asked = seen.json();
    let chosen = choose(&asked);
    if asked["stream"] == true {
        let kind = ("content-type", "text/event-stream");
        reply_with(200, &[kind], stream(&chosen))
    } else {
        json_reply(200, &whole(&chosen))
    }
}

/// Decides by the last order that a person gave.
fn choose(asked: &Value) -> Move {
    let none = Vec::new();
    let messages = asked["messages"].as_array().unwrap_or(&none);
    let Some(turn) = messages.iter().rposition(|message| message["role"] == "user") else {
        return Move::Say("Nobody has said anything.".to_owned());
    };
    let order = text(&messages[turn]);
    let results = &messages[turn + 1..];
    // A message that was not answered may be merged with the next: the last order counts.
    let last = [SAY, RUN, RECALL]
        .into_iter()
        .max_by_key(|word| order.rfind(word).map_or(0, |at| at + 1));
    match last {
        Some(RUN) if order.contains(RUN) => match results.iter().rfind(|message| message["role"] == "tool") {
            Some(result) => Move::Say(format!("The command printed: {}", text(result))),
            None => match offered_terminal(asked) {
                Some(tool) => Move::Run(tool, command(&order)),
                None => Move::Say("There is no tool to run commands with.".to_owned()),
            },
        },
        Some(RECALL) if order.contains(RECALL) => Move::Say(recall(&messages[..turn], &order)),
        _ => Move::Say(format!("You said: {order}")),
    }
}

fn recall(before: &[Value], order: &str) -> String {
    let earlier = before.iter().filter(|message| message["role"] != "system");
    let earlier: Vec<String> = earlier.map(text).collect();
    format!("You ask: {order}. Before that: {}", earlier.join(" / "))
}

fn command(order: &str) -> String {
    let after = &order[order.rfind(RUN).unwrap()..];
    let (_, from) = after.split_once('<').expect("a command between < and >");
    from.rsplit_once('>')
        .expect("the end of the command")
        .0
        .to_owned()
}

fn offered_terminal(asked: &Value) -> Option<&'static str> {
    let tools = asked["tools"].as_array()?;
    let is_offered = |name: &&str| tools.iter().any(|tool| tool["function"]["name"] == *name);
    TERMINALS.into_iter().find(is_offered)
}

/// A message's text, whether it is a string or a list of parts.
fn text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

fn usage() -> Value {
    json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110})
}

fn arguments(tool: &str, command: &str) -> String {
    match tool {
        // It wants to know why.
        "bash" => json!({"command": command, "description": "as the person says"}).to_string(),
        _ => json!({"command": command}).to_string(),
    }
}

fn call_id() -> String {
    static CALLS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(1);
    let number = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("call_{number}")
}

fn whole(chosen: &Move) -> Value {
    let (message, reason) = match chosen {
        Move::Say(text) => (json!({"role": "assistant", "content": text}), "stop"),
        Move::Run(tool, command) => {
            let function = json!({"name": tool, "arguments": arguments(tool, command)});
            let calls = json!([{"id": call_id(), "type": "function", "function": function}]);
            let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
            (message, "tool_calls")
        }
    };
    json!({
        "id": "made-up-1", "object": "chat.completion", "created": 1, "model": "made-up", "usage": usage(),
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
    })
}

/// The answer in pieces, as models send it: words one by one, and a call's arguments in two halves.
fn stream(chosen: &Move) -> String {
    let (deltas, reason): (Vec<Value>, _) = match chosen {
        Move::Say(text) => {
            let words = text.split_inclusive(' ').map(|word| json!({"content": word}));
            (words.collect(), "stop")
        }
        Move::Run(tool, command) => {
            let arguments = arguments(tool, command);
            let (first, second) = arguments.split_at(1);
            let begin = json!({"index": 0, "id": call_id(), "type": "function",
                "function": {"name": tool, "arguments": first}});
            let rest = json!({"index": 0, "function": {"arguments": second}});
            let calls = [begin, rest].map(|call| json!({"tool_calls": [call]}));
            (calls.to_vec(), "tool_calls")
        }
    };
    let choice = |delta: Value, reason: Value| json!([{"index": 0, "delta": delta, "finish_reason": reason}]);
    let mut pieces = vec![choice(json!({"role": "assistant", "content": ""}), Value::Null)];
    pieces.extend(deltas.into_iter().map(|delta| choice(delta, Value::Null)));
    pieces.push(choice(json!({}), reason.into()));
    pieces.push(json!([]));
    let last = pieces.len() - 1;
    let mut body = String::new();
    for (at, choices) in pieces.into_iter().enumerate() {
        let mut piece = json!({"id": "made-up-1", "object": "chat.completion.chunk", "created": 1,
            "model": "made-up", "choices": choices});
        if at == last {
            piece["usage"] = usage();
        }
        body.extend(["data: ", &piece.to_string(), "\n\n"]);
    }
    body + "data: [DONE]\n\n"
}
