//! Says back what it hears, so that everything can be tried without a model.
//!
//! The answer to `hello` is `echo: hello`. The text may start with directives, any number of them:
//!
//! | directive | effect |
//! |---|---|
//! | `sleep=MS` | the turn takes that long; a stop ends it at once |
//! | `stream=MS` | the answer is spoken word by word, that long apart |
//! | `fail` | the turn fails |
//!
//! Directives are taken off before the text is echoed: `sleep=500 hi` answers `echo: hi` after half a second.

use std::time::Duration;

use super::{Agent, AgentFuture, Description, Failure, FailureClass, Turn, TurnEnd};

/// Longest pause that a directive may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// The echoing agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Agent for Echo {
    fn describe(&self) -> Description {
        Description {
            name: "echo".to_owned(),
            kind: "echo",
            ..Description::default()
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            let script = Script::parse(&turn.input.text);
            tokio::select! {
                biased;
                () = turn.cancel.cancelled() => TurnEnd::Cancelled { confirmed: true },
                end = script.play(&turn) => end,
            }
        })
    }
}

/// A text with its directives taken off.
#[derive(Debug, Default, PartialEq, Eq)]
struct Script<'a> {
    sleep: Option<Duration>,
    stream: Option<Duration>,
    fail: bool,
    text: &'a str,
}

impl<'a> Script<'a> {
    fn parse(text: &'a str) -> Self {
        let mut script = Self {
            text,
            ..Self::default()
        };
        loop {
            let (word, rest) = script
                .text
                .split_once(char::is_whitespace)
                .unwrap_or((script.text, ""));
            if word == "fail" {
                script.fail = true;
            } else if let Some(pause) = directive(word, "sleep=") {
                script.sleep = Some(pause);
            } else if let Some(pause) = directive(word, "stream=") {
                script.stream = Some(pause);
            } else {
                return script;
            }
            script.text = rest;
        }
    }

    async fn play(&self, turn: &Turn) -> TurnEnd {
        if let Some(pause) = self.sleep {
            tokio::time::sleep(pause).await;
        }
        if self.fail {
            let asked = "echo: this turn was asked to fail.";
            let failure = Failure::new(FailureClass::Reported, asked, "the text asked for it");
            return TurnEnd::Failed(failure.without_side_effects());
        }
        match self.stream {
            None => turn.events.text(format!("echo: {}", self.text)).await,
            Some(pause) => {
                turn.events.text("echo:").await;
                for word in self.text.split_whitespace() {
                    tokio::time::sleep(pause).await;
                    turn.events.text(format!(" {word}")).await;
                }
            }
        }
        TurnEnd::Completed
    }
}

fn directive(word: &str, name: &str) -> Option<Duration> {
    let millis = word.strip_prefix(name)?.parse().ok()?;
    Some(Duration::from_millis(millis).min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_taken_off_and_anything_else_is_text() {
        let ms = Duration::from_millis;
        assert_eq!(
            Script::parse("sleep=5 stream=2 a b"),
            Script {
                sleep: Some(ms(5)),
                stream: Some(ms(2)),
                fail: false,
                text: "a b"
            }
        );
        assert_eq!(
            Script::parse("fail"),
            Script {
                fail: true,
                text: "",
                ..Script::default()
            }
        );
        assert_eq!(Script::parse("sleep=soon x").text, "sleep=soon x");
        assert_eq!(Script::parse("failing x").text, "failing x");
        assert_eq!(Script::parse("").text, "");
        assert_eq!(
            Script::parse("sleep=18446744073709551615 x").sleep,
            Some(LONGEST_PAUSE)
        );
    }
}
