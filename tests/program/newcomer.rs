//! What the tests of the first steps share: a home without settings, a model server, and the end of `init`.

use std::fs;

use serde_json::{Value, json};

use crate::support::http_stub::{Seen, Stub, json_reply, reply_with};
use crate::support::relay_process::Setup;
use crate::support::terminal::{ENTER, Terminal, has};

/// What the model says.
pub(crate) const MODEL_ANSWER: &str = "Hello from the model.";

/// A home without settings.
pub(crate) fn new_home() -> Setup {
    let setup = Setup::new();
    fs::remove_file(setup.home().join("relay.yaml")).unwrap();
    setup
}

/// A server with these models, which always says the same.
pub(crate) async fn model_server(models: &'static [&'static str]) -> Stub {
    Stub::start(move |seen: &Seen| {
        if !seen.uri.ends_with("/chat/completions") {
            let models: Vec<Value> = models.iter().map(|model| json!({ "id": model })).collect();
            return json_reply(200, &json!({ "data": models }));
        }
        let event = json!({"choices": [{"delta": {"content": MODEL_ANSWER}}]});
        let body = format!("data: {event}\n\ndata: [DONE]\n\n");
        reply_with(200, &[("content-type", "text/event-stream")], body)
    })
    .await
}

/// Says no to the service that `init` offers where there is systemd.
pub(crate) async fn decline_service(terminal: &mut Terminal) {
    let offered = |lines: &[String]| has(lines, "Next:") || has(lines, "Run the relay as a service");
    let lines = terminal
        .until("the end, or the offer of a service", offered)
        .await;
    if !has(&lines, "Next:") {
        terminal.keys(ENTER);
    }
}
