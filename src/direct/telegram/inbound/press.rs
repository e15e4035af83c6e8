//! Presses of buttons: whether a press is answered, with which text, and whether the buttons are removed.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::collections::BoundedCache;
use crate::direct::telegram::call::ApiAnswer;
use crate::words::{Language, PhraseKey};

/// Questions, and presses, that are remembered.
const MAX_REMEMBERED: usize = 1024;
/// Attempts to answer one press.
const MAX_ATTEMPTS: u32 = 4;
/// Longest rate limit that is waited for: the person who pressed does not wait longer.
const MAX_LIMIT_SECS: u64 = 3;
/// Shown to a person who presses a button of another bot, or one with forged data.
const INVALID_BUTTON: PhraseKey = PhraseKey::UnusedButton;
/// Shown to a person who presses a button of an earlier run.
const OLD_BUTTON: PhraseKey = PhraseKey::TooLate;

/// The questions that were asked, and the presses that were answered.
#[derive(Debug)]
pub struct Presses {
    questions: BoundedCache<String, ()>,
    answered: BoundedCache<String, ()>,
    /// The language of people whose clients have none that is known.
    language: Language,
}

/// The answer to a press.
#[derive(Clone, Debug, PartialEq)]
pub struct PressAnswer {
    /// The parameters of `answerCallbackQuery`.
    pub body: Map<String, Value>,
    /// The parameters of `editMessageReplyMarkup`, when the buttons are removed because their question is over.
    pub without_buttons: Option<Map<String, Value>>,
}

/// What follows an attempt to answer a press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PressNext {
    /// No further attempt: the press is answered, or cannot be.
    Over,
    /// Another attempt at once: this one has used up its time.
    Now,
    /// Another attempt when the time of this one has passed.
    Later,
    /// Another attempt after this time.
    After(Duration),
}

impl Presses {
    /// Nothing was asked yet. The language is that of people whose clients have none that is known.
    pub fn new(language: Language) -> Self {
        Self {
            questions: BoundedCache::new(MAX_REMEMBERED),
            answered: BoundedCache::new(MAX_REMEMBERED),
            language,
        }
    }

    /// Remembers a question that is open in this run.
    pub fn asked(&mut self, prompt_id: &str) {
        self.questions.insert(prompt_id.to_owned(), ());
    }

    /// The answer to a press; `None` if it was answered already. `event` is the contract's event of a press with authentic
    /// data, `button` the chat and the message of the button, `client` the language of the person's client.
    pub fn pressed(
        &mut self,
        query_id: &str,
        event: Option<&Value>,
        button: Option<(i64, i64)>,
        client: Option<&str>,
    ) -> Option<PressAnswer> {
        if self.answered.insert(query_id.to_owned(), ()).is_some() {
            return None;
        }
        let prompt = event.and_then(|event| event.pointer("/prompt_response/prompt_id")?.as_str());
        let is_asked = prompt.is_some_and(|prompt| self.questions.get(&prompt.to_owned()).is_some());
        let (text, is_old) = match prompt {
            None => (Some(INVALID_BUTTON), false),
            Some(_) if !is_asked => (Some(OLD_BUTTON), true),
            Some(_) => (None, false),
        };
        let mut body = Map::from_iter([("callback_query_id".to_owned(), query_id.into())]);
        if let Some(text) = text {
            let language = Language::of_client(client, self.language);
            body.insert("text".to_owned(), language.plain(text).into());
        }
        let without_buttons = button.filter(|_| is_old).map(|(chat, message)| {
            Map::from_iter([
                ("chat_id".to_owned(), chat.into()),
                ("message_id".to_owned(), message.into()),
                ("reply_markup".to_owned(), json!({ "inline_keyboard": [] })),
            ])
        });
        Some(PressAnswer {
            body,
            without_buttons,
        })
    }
}

/// What follows this many attempts to answer a press. `answer` is the result of the latest; `None` if it timed out.
pub fn after_press(answer: Option<&ApiAnswer>, attempts: u32) -> PressNext {
    match answer {
        _ if attempts >= MAX_ATTEMPTS => PressNext::Over,
        Some(ApiAnswer::Error {
            retry_after: Some(secs),
            ..
        }) if *secs <= MAX_LIMIT_SECS => PressNext::After(Duration::from_secs(*secs)),
        Some(ApiAnswer::Ok(_) | ApiAnswer::Error { .. }) => PressNext::Over,
        None => PressNext::Now,
        Some(ApiAnswer::NotSent(_) | ApiAnswer::Unknown) => PressNext::Later,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(prompt: &str) -> Value {
        json!({ "prompt_response": { "prompt_id": prompt, "option_id": "o0" } })
    }

    #[test]
    fn a_press_is_answered_by_what_became_of_its_question() {
        let open = event("open");
        let old = event("old");
        let button = Some((5, 7));
        let keyboard = json!({"chat_id": 5, "message_id": 7, "reply_markup": {"inline_keyboard": []}});
        for (event, button, text, without_buttons) in [
            (Some(&open), button, None, None),
            (Some(&old), button, Some(OLD_BUTTON), Some(&keyboard)),
            // A button of a message that is not known any more.
            (Some(&old), None, Some(OLD_BUTTON), None),
            // Altered, or of another bot: its message is left alone.
            (None, button, Some(INVALID_BUTTON), None),
            (Some(&json!({})), button, Some(INVALID_BUTTON), None),
        ] {
            let mut presses = Presses::new(Language::Fr);
            presses.asked("open");
            let answer = presses.pressed("q", event, button, Some("de-AT")).unwrap();
            assert_eq!(answer.body["callback_query_id"], "q");
            let shown = answer.body.get("text").and_then(Value::as_str);
            assert_eq!(shown, text.map(|text| Language::De.plain(text)), "{event:?}");
            let keyboard = answer.without_buttons.map(Value::Object);
            assert_eq!(keyboard.as_ref(), without_buttons, "{event:?}");
        }
    }

    #[test]
    fn a_press_is_answered_once() {
        let mut presses = Presses::new(Language::Fr);
        assert!(presses.pressed("q", None, None, None).is_some());
        assert_eq!(presses.pressed("q", Some(&event("p")), None, None), None);
        let answer = presses.pressed("r", None, None, Some("tlh")).unwrap();
        assert_eq!(answer.body["text"], Language::Fr.plain(INVALID_BUTTON));
    }

    #[test]
    fn an_answer_that_did_not_arrive_is_sent_again() {
        let error = |code, retry_after| ApiAnswer::Error {
            code,
            description: String::new(),
            retry_after,
            migrate_to: None,
        };
        let (refused, limited, closed) = (error(400, None), error(429, Some(2)), error(429, Some(30)));
        let not_sent = ApiAnswer::NotSent("no route".to_owned());
        for (answer, next) in [
            (Some(&ApiAnswer::Ok(Value::Bool(true))), PressNext::Over),
            (Some(&refused), PressNext::Over),
            (Some(&limited), PressNext::After(Duration::from_secs(2))),
            (Some(&closed), PressNext::Over),
            (Some(&not_sent), PressNext::Later),
            (Some(&ApiAnswer::Unknown), PressNext::Later),
            (None, PressNext::Now),
        ] {
            assert_eq!(after_press(answer, 1), next, "{answer:?}");
            assert_eq!(after_press(answer, MAX_ATTEMPTS), PressNext::Over, "{answer:?}");
        }
    }
}
