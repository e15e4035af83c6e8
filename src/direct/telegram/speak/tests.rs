use serde_json::json;

use super::super::split::MAX_ENTITIES;
use super::*;

mod calls;
mod faults;
mod parts;
mod rich;

const PERSON: &str = "42";
const CLUB: &str = "-1001";

/// One speaker: what it remembers, and its key.
struct Speaker {
    keys: CallbackKey,
    spoken: Spoken,
}

impl Speaker {
    fn new() -> Self {
        Self {
            keys: CallbackKey::new(b"1:secret"),
            spoken: Spoken::new(),
        }
    }

    fn begin(&mut self, op: &Value) -> Result<Speech, SpeechRefused> {
        let action: Action = serde_json::from_value(op.clone()).expect("an op");
        Speech::new(&action, &self.keys, &mut self.spoken)
    }

    fn refusal(&mut self, op: &Value) -> &'static str {
        let refused = self.begin(op).expect_err("it is refused without a call");
        let result = OpResult::from(refused);
        assert!(!result.success && result.error.is_some() && result.rate_limited().is_none());
        refused.code
    }

    /// Runs an op against answers in order. Returns the calls, what was learnt, and how it ended.
    fn run(&mut self, op: &Value, answers: &[ApiAnswer]) -> Run {
        let mut speech = self.begin(op).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        let mut run = Run {
            calls: Vec::new(),
            kinds: Vec::new(),
            learnt: Vec::new(),
            end: SpeechStep::NotSent,
        };
        let mut answers = answers.iter();
        loop {
            let call = match speech.step() {
                SpeechStep::Call(call) => call,
                end => {
                    assert_eq!(speech.step(), end, "an end stays");
                    assert!(answers.next().is_none(), "every answer is used: {:?}", run.calls);
                    run.end = end;
                    return run;
                }
            };
            assert_eq!(
                speech.step(),
                SpeechStep::Call(call.clone()),
                "asking changes nothing"
            );
            assert_eq!(call.chat, speech.chat());
            run.kinds.push(call.kind);
            let mut shown = json!([call.method, call.body]);
            if let Some(CallFile { field, source, name }) = call.file {
                shown.as_array_mut().unwrap().push(json!([field, source, name]));
            }
            run.calls.push(shown);
            let answer = answers
                .next()
                .unwrap_or_else(|| panic!("no answer for {:?}", run.calls.last()));
            run.learnt
                .extend(speech.answered(answer.clone(), &mut self.spoken));
        }
    }
}

struct Run {
    calls: Vec<Value>,
    kinds: Vec<CallKind>,
    learnt: Vec<Learnt>,
    end: SpeechStep,
}

impl Run {
    /// The result of an op that was applied.
    fn applied(&self) -> &OpResult {
        match &self.end {
            SpeechStep::Done(Outcome::Applied(result)) => result,
            end => panic!("applied: {end:?}"),
        }
    }

    fn message_id(&self) -> &str {
        self.applied().message_id.as_ref().expect("a message id").as_str()
    }

    /// The code of an op that was refused.
    fn refused(&self) -> &str {
        match &self.end {
            SpeechStep::Done(Outcome::Refused {
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

fn edit(id: &str, text: &str, is_final: bool) -> Value {
    json!({"op": "edit", "chat_id": PERSON, "message_id": id, "content": text, "metadata": {"notify": is_final}})
}

/// A text of three blocks, each of which fills most of a message.
fn long_text() -> String {
    let block = |letter: &str| letter.repeat(3_000);
    [block("a"), block("b"), block("c")].join("\n\n")
}

#[test]
fn memory_is_bounded() {
    let mut speaker = Speaker::new();
    for id in 1..9_000_i64 {
        let op =
            json!({"op": "send", "chat_id": id.to_string(), "content": "x", "metadata": {"thread_id": "5"}});
        assert_eq!(speaker.run(&op, &[message(id)]).message_id(), id.to_string());
        speaker.spoken.topic_named(id, 1, "x");
        speaker.spoken.chat_moved(-id, -id - 1_000_000);
        let cut = json!({"op": "send", "chat_id": id.to_string(), "content": long_text()});
        if id % 20 == 0 {
            speaker.run(&cut, &[message(id), ApiAnswer::Unknown]);
        }
    }
    assert!(speaker.spoken.len() <= 3 * 4096 + 256);
}

#[test]
fn an_answer_after_the_end_changes_nothing() {
    let mut speaker = Speaker::new();
    let mut speech = speaker.begin(&send("x")).unwrap();
    speech.answered(message(1), &mut speaker.spoken);
    let end = speech.step();
    assert_eq!(speech.answered(too_many(9), &mut speaker.spoken), None);
    assert_eq!(speech.step(), end);
}
