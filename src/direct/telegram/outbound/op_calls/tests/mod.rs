use serde_json::json;

use super::*;
use crate::direct::text::MAX_ENTITIES;

mod calls;
mod faults;
mod parts;
mod rich;

const PERSON: &str = "42";
const CLUB: &str = "-1001";

/// One bot: what it remembers, and its key.
struct TestBot {
    keys: CallbackKey,
    cache: OutboundCache,
}

impl TestBot {
    fn new() -> Self {
        Self {
            keys: CallbackKey::new(b"1:secret"),
            cache: OutboundCache::new(),
        }
    }

    fn begin(&mut self, op: &Value) -> Result<OpCalls, OpRefusal> {
        let action: Action = serde_json::from_value(op.clone()).expect("an op");
        OpCalls::new(&action, &self.keys, &mut self.cache)
    }

    fn refusal(&mut self, op: &Value) -> &'static str {
        let refused = self.begin(op).expect_err("it is refused without a call");
        let result = refused.result();
        assert!(!result.success && result.error.is_some() && result.rate_limited().is_none());
        refused.code
    }

    /// Runs an op against answers in order. Returns the calls, what was observed, and how it ended.
    fn run(&mut self, op: &Value, answers: &[ApiAnswer]) -> Run {
        let mut calls = self.begin(op).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        let mut run = Run {
            calls: Vec::new(),
            kinds: Vec::new(),
            observations: Vec::new(),
            end: OpStep::NotSent,
        };
        let mut answers = answers.iter();
        loop {
            let call = match calls.step() {
                OpStep::Call(call) => call,
                end => {
                    assert_eq!(calls.step(), end, "an end stays");
                    assert!(answers.next().is_none(), "every answer is used: {:?}", run.calls);
                    run.end = end;
                    return run;
                }
            };
            assert_eq!(calls.step(), OpStep::Call(call.clone()), "asking changes nothing");
            assert_eq!(call.chat, calls.chat());
            run.kinds.push(call.kind);
            let mut shown = json!([call.method, call.body]);
            for CallFile { field, source, name } in call.files {
                shown.as_array_mut().unwrap().push(json!([field, source, name]));
            }
            run.calls.push(shown);
            let answer = answers
                .next()
                .unwrap_or_else(|| panic!("no answer for {:?}", run.calls.last()));
            run.observations
                .extend(calls.answered(answer.clone(), &mut self.cache));
        }
    }
}

struct Run {
    calls: Vec<Value>,
    kinds: Vec<CallKind>,
    observations: Vec<Observation>,
    end: OpStep,
}

impl Run {
    /// The result of an op that was applied.
    fn applied(&self) -> &OpResult {
        match &self.end {
            OpStep::Done(Outcome::Applied(result)) => result,
            end => panic!("applied: {end:?}"),
        }
    }

    fn message_id(&self) -> &str {
        self.applied().message_id.as_ref().expect("a message id").as_str()
    }

    /// The code of an op that was refused.
    fn refused(&self) -> &str {
        match &self.end {
            OpStep::Done(Outcome::Refused {
                result,
                declined: false,
            }) => result.code.as_ref().unwrap().as_str(),
            end => panic!("refused: {end:?}"),
        }
    }

    fn methods(&self) -> Vec<&str> {
        self.calls.iter().map(|call| call[0].as_str().unwrap()).collect()
    }

    fn texts(&self) -> Vec<&str> {
        self.calls
            .iter()
            .map(|call| call[1]["text"].as_str().unwrap_or_default())
            .collect()
    }
}

fn message(id: i64) -> ApiAnswer {
    ApiAnswer::Ok(json!({"message_id": id, "chat": {"id": 42}}))
}

fn done() -> ApiAnswer {
    ApiAnswer::Ok(json!(true))
}

fn error(code: i64, description: &str) -> ApiAnswer {
    ApiAnswer::Error {
        code,
        description: description.to_owned(),
        retry_after: None,
        migrate_to: None,
    }
}

fn too_many(seconds: u64) -> ApiAnswer {
    ApiAnswer::Error {
        code: 429,
        description: format!("Too Many Requests: retry after {seconds}"),
        retry_after: Some(seconds),
        migrate_to: None,
    }
}

fn send(text: &str) -> Value {
    json!({"op": "send", "chat_id": PERSON, "content": text, "reply_to": "7", "metadata": {"notify": true}})
}

fn edit(id: &str, text: &str, is_last_text: bool) -> Value {
    let metadata = if is_last_text {
        json!({"notify": true})
    } else {
        json!({})
    };
    json!({"op": "edit", "chat_id": PERSON, "message_id": id, "content": text, "metadata": metadata})
}

/// A text of three blocks, each of which fills most of a message.
fn long_text() -> String {
    let block = |letter: &str| letter.repeat(3_000);
    [block("a"), block("b"), block("c")].join("\n\n")
}

#[test]
fn memory_is_bounded() {
    let mut bot = TestBot::new();
    for id in 1..9_000_i64 {
        let op =
            json!({"op": "send", "chat_id": id.to_string(), "content": "x", "metadata": {"thread_id": "5"}});
        assert_eq!(bot.run(&op, &[message(id)]).message_id(), id.to_string());
        bot.cache.topic_named(id, 1, "x");
        bot.cache.chat_moved(-id, -id - 1_000_000);
        let cut = json!({"op": "send", "chat_id": id.to_string(), "content": long_text()});
        if id % 20 == 0 {
            bot.run(&cut, &[message(id), ApiAnswer::Unknown]);
        }
    }
    assert!(bot.cache.len() <= 3 * 4096 + 256);
}

#[test]
fn an_answer_after_the_end_changes_nothing() {
    let mut bot = TestBot::new();
    let mut calls = bot.begin(&send("x")).unwrap();
    calls.answered(message(1), &mut bot.cache);
    let end = calls.step();
    assert_eq!(calls.answered(too_many(9), &mut bot.cache), None);
    assert_eq!(calls.step(), end);
}
