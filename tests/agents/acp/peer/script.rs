//! What the agent does with a prompt.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Agent, Session, raw};

/// A prompt at work.
pub(crate) struct Prompted<'a> {
    agent: &'a Agent,
    session: &'a Session,
    blocks: &'a Value,
    text: &'a str,
    /// Prompts at work in this process, this one counted.
    running: usize,
}

type Reason = Result<&'static str, (i64, &'static str)>;

impl<'a> Prompted<'a> {
    pub(crate) fn new(agent: &'a Agent, session: &'a Session, blocks: &'a Value, running: usize) -> Self {
        Self {
            agent,
            session,
            blocks,
            text: blocks[0]["text"].as_str().unwrap_or_default(),
            running,
        }
    }

    /// Does what the first word says, and says why it ends.
    pub(crate) fn play(&self) -> Reason {
        let (word, rest) = self.text.split_once(' ').unwrap_or((self.text, ""));
        {
            let mut state = self.session.state.lock().unwrap();
            if state.wedged {
                drop(state);
                self.say("Queued for the next turn. (1 queued)");
                return Ok("end_turn");
            }
            if state.poisoned {
                return Err((-32603, "'NoneType' object has no attribute 'startswith'"));
            }
            state.history.push(self.text.replace('\n', " "));
        }
        self.agent.keep(self.session);
        self.agent.log(&format!("prompt {}", self.text));
        if self.agent.can("rehearsed") {
            return self.rehearsed();
        }
        match word {
            "messages" => self.messages(),
            "tool" => self.tool(),
            "think" => self.think(),
            "stream" => (0..rest.parse().unwrap_or(3)).for_each(|n: u32| self.say(&format!("{n} "))),
            "ask" => {
                self.say("may I? ");
                let chosen = self.agent.ask(self.session, "rm -r /tmp/x");
                self.say(&format!("chosen: {chosen}"));
            }
            "withdraw" => {
                let chosen = self.agent.ask_and_withdraw(self.session);
                self.say(&format!("chosen: {chosen}"));
            }
            "nothing" => {}
            "much" => (0..300).for_each(|_| self.say(&"x".repeat(1000))),
            "babble" => {
                for number in 0..100 {
                    self.message(&number.to_string(), "x");
                }
                (0..20).for_each(|_| self.say(&"x".repeat(1024 * 1024)));
            }
            "cut" => self.cut(rest),
            "orphan" | "daemon" | "close" => self.leave(word),
            "garbled" => self.garbled(),
            "recall" => {
                let history = self.session.state.lock().unwrap().history.join(", ");
                self.say(&history);
            }
            "crash" => {
                self.say("half");
                eprintln!("Traceback: the key is hunter2");
                std::process::exit(3);
            }
            "garbage" => self.garbage(),
            "flood" => {
                let line = "noise ".repeat(200);
                for _ in 0..1000 {
                    let _ = writeln!(std::io::stderr(), "{line}");
                }
                self.say("survived");
            }
            "long" => {
                raw(&format!("{}\n", "x".repeat(9 * 1024 * 1024)));
                self.say("short again");
            }
            "lose" => {
                self.agent.sessions.lock().unwrap().remove(&self.session.id);
                self.say("who are you");
            }
            "history" => {
                let said = self.session.state.lock().unwrap().history.len();
                self.say(&format!("{said} in {}", self.session.id));
            }
            "count" => {
                std::thread::sleep(Duration::from_millis(rest.parse().unwrap_or(300)));
                self.say(&format!("{} of {}", self.running, std::process::id()));
            }
            "blocks" => {
                let blocks = self.blocks.as_array().into_iter().flatten();
                let kinds: Vec<_> = blocks.filter_map(|block| block["type"].as_str()).collect();
                self.say(&kinds.join(" "));
            }
            "mode" => {
                let state = self.session.state.lock().unwrap();
                self.say(&format!("{} {}", state.mode, state.options.join(" ")));
            }
            "model" => {
                let model = self.session.state.lock().unwrap().model.clone();
                self.say(&format!("I am {model}"));
            }
            "where" => {
                let cwd = self.session.state.lock().unwrap().cwd.clone();
                self.say(&cwd);
            }
            "env" => self.say(&std::env::var(rest).unwrap_or_else(|_| "unset".to_owned())),
            "stop" => return self.stop(rest),
            _ => return self.wait(word),
        }
        Ok("end_turn")
    }

    /// Says what whoever tests has it say to this prompt, once they do: a line of the file `says` for each of the file `asked`. Until
    /// then it works on something that is called as the prompt is.
    fn rehearsed(&self) -> Reason {
        let Some(store) = &self.agent.store else {
            return Err((-32603, "there is no store"));
        };
        let at = self.agent.note_prompt(self.text);
        let title: String = self.text.chars().take(1).flat_map(char::to_uppercase).collect();
        let title = format!("{title}{}", self.text.chars().skip(1).collect::<String>());
        let step = |status| json!({"toolCallId": "t", "title": title, "kind": "execute", "status": status, "sessionUpdate": "tool_call"});
        self.session.update(&step("in_progress"));
        loop {
            let says = std::fs::read_to_string(store.join("says")).unwrap_or_default();
            let said = says
                .lines()
                .nth(at)
                .and_then(|line| serde_json::from_str(line).ok());
            if let Some(said) = said {
                let said: String = said;
                self.session.update(
                    &json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"}),
                );
                self.say(&said);
                return Ok("end_turn");
            }
            if self.session.state.lock().unwrap().cancelled {
                return Ok("cancelled");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What waits to be stopped, each in its own way; anything else is said back.
    fn wait(&self, word: &str) -> Reason {
        match word {
            "askhang" => {
                let chosen = self.agent.ask(self.session, "rm -r /tmp/x");
                self.agent.log(&format!("chosen: {chosen}"));
                self.session.cancelled();
                return Ok("cancelled");
            }
            "silent" => {
                self.session.cancelled();
                return Ok("cancelled");
            }
            "hang" => {
                self.say("working");
                self.session.cancelled();
                self.say(", stopped");
                return Ok("cancelled");
            }
            "ignore" => {
                self.say("working");
                std::thread::sleep(Duration::from_secs(600));
            }
            "wedge" => {
                self.say("working");
                self.session.cancelled();
                self.session.state.lock().unwrap().wedged = true;
                return Err((-32603, "'NoneType' object has no attribute 'startswith'"));
            }
            "late" => {
                self.say("done");
                self.session.cancelled();
                self.session.state.lock().unwrap().poisoned = true;
            }
            _ => self.say(&format!("heard: {}", self.text)),
        }
        Ok("end_turn")
    }

    fn stop(&self, reason: &str) -> Reason {
        match reason {
            "tokens" => Ok("max_tokens"),
            "steps" => Ok("max_turn_requests"),
            "refusal" => {
                self.say("no");
                Ok("refusal")
            }
            "auth" => Err((-32000, "Authentication required")),
            _ => Err((-32603, "boom")),
        }
    }

    fn say(&self, text: &str) {
        self.session.update(
            &json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}),
        );
    }

    /// Says it in a line that is written a few bytes at a time, so that characters are cut.
    fn cut(&self, text: &str) {
        let update =
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
        let params = json!({"sessionId": self.session.id, "update": update});
        let line = json!({"jsonrpc": "2.0", "method": "session/update", "params": params}).to_string() + "\n";
        let mut out = std::io::stdout().lock();
        for piece in line.as_bytes().chunks(5) {
            let _ = out.write_all(piece).and_then(|()| out.flush());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn messages(&self) {
        for (message, text) in [("m1", "one, "), ("m1", "still one"), ("m2", "two")] {
            self.message(message, text);
        }
    }

    fn message(&self, name: &str, text: &str) {
        self.session
            .update(&json!({"sessionUpdate": "agent_message_chunk", "messageId": name,
                "content": {"type": "text", "text": text}}));
    }

    fn tool(&self) {
        self.say("looking");
        self.session.update(
            &json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "ls -l",
            "kind": "execute", "status": "in_progress"}),
        );
        self.session
            .update(&json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"}));
        self.say("\n\nfound");
    }

    fn think(&self) {
        self.session.update(
            &json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}),
        );
        self.session
            .update(&json!({"sessionUpdate": "plan", "entries": [{"content": "act", "status": "pending"}]}));
        self.session
            .update(&json!({"sessionUpdate": "session_info_update", "title": "Of mice"}));
        self.say("thought about it");
    }

    /// Leaves something behind that holds our pipes, or lives on without its output.
    fn leave(&self, word: &str) {
        let (program, args): (&str, &[&str]) = match word {
            // Never waited for.
            "orphan" => ("/bin/sleep", &["600"]),
            // Out of our group.
            "daemon" => ("setsid", &["sleep", "30"]),
            _ => ("/bin/sh", &["-c", "exec >&-; sleep 600"]),
        };
        let mut left = std::process::Command::new(program);
        left.args(args);
        if word == "close" {
            self.say("left");
            eprintln!("{}", left.exec());
            std::process::exit(1);
        }
        self.say(if left.spawn().is_ok() { "left" } else { "alone" });
    }

    fn garbled(&self) {
        let mut out = std::io::stdout().lock();
        let bytes = b"\xff\xfe{\"half\": \"\xc3\"\n";
        let _ = out.write_all(bytes).and_then(|()| out.flush());
        drop(out);
        self.say("survived");
    }

    fn garbage(&self) {
        raw("Loading model...\n\n{\"half\": \n[1,2]\n\u{1b}[31mred\u{1b}[0m\n");
        raw("{\"jsonrpc\":\"2.0\",\"method\":\"_vendor/thing\",\"params\":{}}\n");
        raw(
            "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"fs/read_text_file\",\"params\":{\"path\":\"/etc/passwd\"}}\n",
        );
        raw("{\"jsonrpc\":\"2.0\",\"id\":4711,\"result\":{}}\n");
        self.session
            .update(&json!({"sessionUpdate": "from_the_future", "content": 7}));
        self.session
            .update(&json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "hologram"}}));
        self.session.update(&Value::Null);
        self.say("fine");
    }
}
