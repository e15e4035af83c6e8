//! The scripted peer of the ACP tests: a program that speaks ACP over its standard input and output, without a model. The first
//! word of a prompt says what it does, or how it misbehaves.
//!
//! `stream`, `messages`, `tool`, `think`, `ask`, `hang`, `crash`, `history` and many more are understood, see
//! `Prompted::play`; anything else is said back.
//!
//! What it claims to be able to do is said by the variable `ACP_AGENT`, words apart: `load resume fork close delete
//! list image models`; `rehearsed` makes it say what a test tells it, `stubborn` makes it keep the model it has, `hermes` makes it deviate as that agent does, `auth` makes it want someone to sign in, `version2` speaks of
//! another version, `mute` says nothing at all. Sessions are kept in the directory `ACP_AGENT_STORE`.

#![expect(
    clippy::disallowed_methods,
    reason = "a program of its own that has to hang and to crash when it is told to"
)]

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

mod script;

fn main() {
    let agent = Arc::new(Agent::new());
    if agent.can("mute") {
        std::thread::sleep(Duration::from_secs(600));
    }
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        agent.take(&message);
    }
}

/// Everything that the agent knows.
struct Agent {
    words: Vec<String>,
    store: Option<PathBuf>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    /// Questions that wait for their answer, by number; the first is 0.
    asked: Mutex<HashMap<i64, Sender<Value>>>,
    questions: AtomicI64,
    running: AtomicUsize,
    begun: AtomicUsize,
}

/// One conversation.
struct Session {
    id: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    cancelled: bool,
    prompting: bool,
    wedged: bool,
    poisoned: bool,
    mode: String,
    cwd: String,
    model: String,
    options: Vec<String>,
    history: Vec<String>,
}

impl Agent {
    fn new() -> Self {
        let words = std::env::var("ACP_AGENT").unwrap_or_default();
        Self {
            words: words.split_whitespace().map(str::to_owned).collect(),
            store: std::env::var_os("ACP_AGENT_STORE").map(PathBuf::from),
            sessions: Mutex::default(),
            asked: Mutex::default(),
            questions: AtomicI64::new(0),
            running: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
        }
    }

    fn can(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }

    fn take(self: &Arc<Self>, message: &Value) {
        let id = &message["id"];
        let params = &message["params"];
        let Some(method) = message["method"].as_str() else {
            let waiting = id.as_i64().and_then(|id| self.asked.lock().unwrap().remove(&id));
            if let Some(waiting) = waiting {
                let _ = waiting.send(message["result"].clone());
            }
            return;
        };
        match (method, id) {
            ("session/prompt", _) => return self.prompt(id.clone(), params),
            ("session/cancel", _) => return self.cancel(params),
            (_, Value::Null) => return,
            _ => {}
        }
        match self.answer(method, params) {
            Ok(result) => write(&json!({"jsonrpc": "2.0", "id": id, "result": result})),
            Err((code, text)) => fail(id, code, text),
        }
    }

    fn answer(&self, method: &str, params: &Value) -> Result<Value, (i64, &'static str)> {
        match method {
            "initialize" => Ok(self.greeting()),
            "session/new" if self.can("auth") => Err((-32000, "Authentication required")),
            "session/new" => {
                let session = self.begin(Vec::new());
                let cwd = params["cwd"].as_str().unwrap_or_default();
                cwd.clone_into(&mut session.state.lock().unwrap().cwd);
                let options = self.options(&session);
                Ok(json!({"sessionId": session.id, "modes": modes(), "configOptions": options}))
            }
            "session/fork" if self.can("fork") => {
                let old = self.session(params).ok_or((-32002, "Resource not found"))?;
                let history = old.state.lock().unwrap().history.clone();
                Ok(json!({"sessionId": self.begin(history).id, "modes": modes()}))
            }
            "session/list" if self.can("list") => Ok(self.list(params)),
            "session/load" if self.can("load") => self.restore(params),
            "session/resume" if self.can("resume") => self.restore(params),
            "session/close" | "session/delete" => {
                let id = params["sessionId"].as_str().unwrap_or_default();
                self.sessions.lock().unwrap().remove(id);
                self.log(&format!("{method} {id}"));
                Ok(json!({}))
            }
            "session/set_mode" => {
                let session = self.session(params).ok_or((-32002, "Resource not found"))?;
                let mode = params["modeId"].as_str().unwrap_or_default();
                if !matches!(mode, "ask" | "plan") {
                    return Err((-32602, "there is no such mode"));
                }
                mode.clone_into(&mut session.state.lock().unwrap().mode);
                Ok(json!({}))
            }
            "session/set_config_option" => {
                let session = self.session(params).ok_or((-32002, "Resource not found"))?;
                let set = format!("{}={}", params["configId"], params["value"]);
                self.log(&format!("set {set}"));
                session.state.lock().unwrap().options.push(set);
                if params["configId"] == "llm" && !self.can("stubborn") {
                    let model = params["value"].as_str().unwrap_or_default();
                    model.clone_into(&mut session.state.lock().unwrap().model);
                }
                Ok(json!({"configOptions": self.options(&session)}))
            }
            _ => Err((-32601, "Method not found")),
        }
    }

    fn greeting(&self) -> Value {
        let mut can = json!({});
        for word in ["resume", "fork", "close", "delete", "list"] {
            if self.can(word) {
                can[word] = json!({});
            }
        }
        json!({
            "protocolVersion": if self.can("version2") { 2 } else { 1 },
            "agentCapabilities": {
                "loadSession": self.can("load"),
                "promptCapabilities": {"image": self.can("image")},
                "sessionCapabilities": can,
            },
            "authMethods": [{"id": "key", "name": "A key"}],
        })
    }

    fn begin(&self, history: Vec<String>) -> Arc<Session> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        self.known(&format!("s-{}-{number}", std::process::id()), history)
    }

    fn known(&self, id: &str, history: Vec<String>) -> Arc<Session> {
        let session = Arc::new(Session {
            id: id.to_owned(),
            state: Mutex::new(State {
                mode: "ask".to_owned(),
                model: "small".to_owned(),
                history,
                ..State::default()
            }),
            changed: Condvar::new(),
        });
        self.sessions
            .lock()
            .unwrap()
            .insert(id.to_owned(), Arc::clone(&session));
        let commands = json!([{"name": "compact", "description": "Shortens the conversation"}]);
        let update = json!({"sessionUpdate": "available_commands_update", "availableCommands": commands});
        write(
            &json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": id, "update": update}}),
        );
        session
    }

    /// The sessions that are kept, two on a page, named after the first thing that was said in them.
    fn list(&self, params: &Value) -> Value {
        let store = self
            .store
            .as_ref()
            .and_then(|store| std::fs::read_dir(store).ok());
        let mut files: Vec<PathBuf> = store
            .into_iter()
            .flatten()
            .flatten()
            .map(|file| file.path())
            .collect();
        let is_own = |name: &str| matches!(name, "log" | "asked" | "says");
        files.retain(|file| {
            let name = file.file_name().and_then(std::ffi::OsStr::to_str);
            file.is_file() && !name.is_some_and(is_own)
        });
        files.sort();
        let after: usize = params["cursor"]
            .as_str()
            .and_then(|at| at.parse().ok())
            .unwrap_or(0);
        let page = files.iter().skip(after).take(2).map(|file| {
            let kept = std::fs::read_to_string(file).unwrap_or_default();
            let id = file.file_name().unwrap_or_default().to_string_lossy();
            json!({"sessionId": id, "cwd": params["cwd"], "title": kept.lines().next()})
        });
        let mut answer = json!({"sessions": page.collect::<Vec<_>>()});
        if after + 2 < files.len() {
            answer["nextCursor"] = json!((after + 2).to_string());
        }
        answer
    }

    /// Continues a session, replaying it first.
    fn restore(&self, params: &Value) -> Result<Value, (i64, &'static str)> {
        let id = params["sessionId"].as_str().unwrap_or_default();
        let kept = self
            .store
            .as_ref()
            .and_then(|store| std::fs::read_to_string(store.join(id)).ok());
        let Some(kept) = kept else {
            return if !self.can("hermes") {
                Err((-32002, "Resource not found"))
            } else if self.can("resume") {
                let other = self.begin(Vec::new());
                Ok(json!({"_meta": {"hermes": {"sessionProvenance": {"acpSessionId": other.id}}}}))
            } else {
                Ok(json!({}))
            };
        };
        let history: Vec<String> = kept.lines().map(str::to_owned).collect();
        let session = self.known(id, history.clone());
        let cwd = params["cwd"].as_str().unwrap_or_default();
        cwd.clone_into(&mut session.state.lock().unwrap().cwd);
        for text in history {
            session.update(&json!({"sessionUpdate": "agent_message_chunk",
                "content": {"type": "text", "text": format!("replayed {text}")}}));
        }
        Ok(json!({"modes": modes(), "configOptions": self.options(&session)}))
    }

    /// What people can choose beside a mode.
    fn options(&self, session: &Session) -> Value {
        if !self.can("models") {
            return json!([]);
        }
        let model = session.state.lock().unwrap().model.clone();
        json!([{"id": "llm", "name": "Model", "category": "model", "type": "select", "currentValue": model, "options": [
            {"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}]}])
    }

    fn session(&self, params: &Value) -> Option<Arc<Session>> {
        self.sessions
            .lock()
            .unwrap()
            .get(params["sessionId"].as_str()?)
            .cloned()
    }

    fn cancel(&self, params: &Value) {
        let Some(session) = self.session(params) else {
            return;
        };
        let mut state = session.state.lock().unwrap();
        if state.prompting {
            state.cancelled = true;
        } else if self.can("hermes") {
            // Taken for the next prompt.
            state.poisoned = true;
        }
        drop(state);
        session.changed.notify_all();
    }

    fn prompt(self: &Arc<Self>, id: Value, params: &Value) {
        let Some(session) = self.session(params) else {
            if self.can("hermes") {
                write(&json!({"jsonrpc": "2.0", "id": id, "result": {"stopReason": "refusal"}}));
            } else {
                fail(&id, -32002, "Resource not found");
            }
            return;
        };
        let agent = Arc::clone(self);
        let blocks = params["prompt"].clone();
        {
            let mut state = session.state.lock().unwrap();
            state.prompting = true;
            state.cancelled = false;
        }
        std::thread::spawn(move || {
            let now = agent.running.fetch_add(1, Ordering::SeqCst) + 1;
            let prompted = script::Prompted::new(&agent, &session, &blocks, now);
            let answer = prompted.play();
            agent.running.fetch_sub(1, Ordering::SeqCst);
            session.state.lock().unwrap().prompting = false;
            match answer {
                Ok(reason) => {
                    let usage = json!({"inputTokens": 3, "outputTokens": 4, "totalTokens": 7});
                    let result = json!({"stopReason": reason, "usage": usage});
                    write(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
                }
                Err((code, text)) => fail(&id, code, text),
            }
        });
    }

    /// Asks for a permission and waits for the answer.
    fn ask(&self, session: &Session, command: &str) -> String {
        let (_, answered) = self.request_permission(session, command);
        chosen(&answered)
    }

    /// Asks for a permission, does not want it any more, and waits for the answer.
    fn ask_and_withdraw(&self, session: &Session) -> String {
        let (id, answered) = self.request_permission(session, "rm -r /tmp/x");
        write(&json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}}));
        chosen(&answered)
    }

    fn request_permission(&self, session: &Session, command: &str) -> (i64, Receiver<Value>) {
        let id = self.questions.fetch_add(1, Ordering::SeqCst);
        let (answer, answered) = channel();
        self.asked.lock().unwrap().insert(id, answer);
        write(
            &json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": {
                "sessionId": session.id,
                "toolCall": {"toolCallId": "perm-check-1", "title": "Run a command", "rawInput": {"command": command}},
                "options": [
                    {"optionId": "yes / once", "name": "Yes", "kind": "allow_once"},
                    {"optionId": "yes / always", "name": "Always", "kind": "allow_always"},
                    {"optionId": "deny it", "name": "No", "kind": "reject_once"},
                ],
            }}),
        );
        (id, answered)
    }

    /// Keeps a session for other processes.
    fn keep(&self, session: &Session) {
        if let Some(store) = &self.store {
            let history = session.state.lock().unwrap().history.join("\n");
            let _ = std::fs::write(store.join(&session.id), history);
        }
    }

    /// Notes a prompt for whoever tests, and gives its number.
    fn note_prompt(&self, text: &str) -> usize {
        let Some(store) = &self.store else { return 0 };
        let file = store.join("asked");
        let before = std::fs::read_to_string(&file).unwrap_or_default().lines().count();
        if let Ok(mut file) = std::fs::File::options().append(true).create(true).open(file) {
            let _ = writeln!(file, "{}", json!({"text": text, "process": std::process::id()}));
        }
        before
    }

    /// Notes something for whoever tests.
    fn log(&self, line: &str) {
        if let Some(store) = &self.store
            && let Ok(mut file) = std::fs::File::options()
                .append(true)
                .create(true)
                .open(store.join("log"))
        {
            let _ = writeln!(file, "{line}");
        }
    }
}

impl Session {
    fn update(&self, update: &Value) {
        write(&json!({"jsonrpc": "2.0", "method": "session/update",
            "params": {"sessionId": self.id, "update": update}}));
    }

    /// Waits until the prompt is cancelled.
    fn cancelled(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !state.cancelled).unwrap());
    }
}

fn modes() -> Value {
    json!({"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "plan", "name": "Plan"}]})
}

fn fail(id: &Value, code: i64, text: &str) {
    write(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}));
}

/// Writes one line, whole.
fn write(message: &Value) {
    raw(&format!("{message}\n"));
}

fn raw(text: &str) {
    let mut out = std::io::stdout().lock();
    // The reader has gone: so has the reason to be here.
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// What was chosen.
fn chosen(answered: &Receiver<Value>) -> String {
    let outcome = answered.recv().unwrap_or_default();
    let chosen = outcome["outcome"]["optionId"].as_str();
    chosen
        .or(outcome["outcome"]["outcome"].as_str())
        .unwrap_or("nothing")
        .to_owned()
}
