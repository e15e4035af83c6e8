//! A permission request as a question to people, and the answer for the agent. Pure.
//!
//! Option ids may be any text, even duplicates: choices are identified by position. Whatever goes wrong ends in a denial:
//! an open question is cancelled, an unanswered one is rejected.

use std::time::Duration;

use serde_json::{Value, json};

use super::update::text_of;
use crate::agent::{Choice, Meaning, PromptAnswer, Question, QuestionKind};
use crate::text::{one_line, truncate_bytes};

/// Maximum options; further ones are dropped.
const MAX_OPTIONS: usize = 20;

/// Maximum length of a detail, in bytes.
const DETAIL_BYTES: usize = 256 * 1024;

/// A permission that is asked for.
#[derive(Debug)]
pub(super) struct PermissionRequest {
    /// The question to people.
    pub(super) question: Question,
    /// The agent's names for the choices, by position.
    ids: Vec<String>,
    /// The agent's name for the choice "no".
    no: Option<String>,
}

impl PermissionRequest {
    /// Reads the request.
    pub(super) fn read(params: &Value, by_option_id: bool, question_timeout: Option<Duration>) -> Self {
        let call = &params["toolCall"];
        let mut offered: Vec<Offered> = params["options"]
            .as_array()
            .map_or(&[][..], Vec::as_slice)
            .iter()
            .filter_map(|option| Offered::read(option, by_option_id))
            .take(MAX_OPTIONS)
            .collect();
        // The one-time denial comes before the permanent one.
        offered.sort_by_key(|option| option.is_permanent_deny);
        let no = offered.iter().find(|option| option.meaning == Meaning::Deny);
        let detail = detail(call);
        let title = one_line(call["title"].as_str().unwrap_or_default(), 300);
        let title = without(&title, detail.as_deref().unwrap_or_default());
        Self {
            no: no.map(|option| option.id.clone()),
            question: Question {
                kind: QuestionKind::Approval,
                text: if title.is_empty() {
                    "The agent asks for permission.".to_owned()
                } else {
                    title.to_owned()
                },
                detail,
                options: offered
                    .iter()
                    .enumerate()
                    .map(|(position, option)| Choice {
                        id: position.to_string(),
                        label: option.label.clone(),
                        meaning: option.meaning,
                    })
                    .collect(),
                timeout: question_timeout,
                resume: None,
            },
            ids: offered.into_iter().map(|option| option.id).collect(),
        }
    }

    /// The result for the agent.
    pub(super) fn outcome(&self, answer: &PromptAnswer) -> Value {
        match answer {
            PromptAnswer::Chosen(position) => {
                let id = position
                    .parse()
                    .ok()
                    .and_then(|position: usize| self.ids.get(position));
                id.map_or_else(cancelled, |id| selected(id))
            }
            PromptAnswer::TimedOut => self.no.as_deref().map_or_else(cancelled, selected),
            PromptAnswer::Cancelled => cancelled(),
        }
    }
}

/// The result of a cancelled question.
pub(super) fn cancelled() -> Value {
    json!({"outcome": {"outcome": "cancelled"}})
}

fn selected(id: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": id}})
}

struct Offered {
    id: String,
    label: String,
    meaning: Meaning,
    is_permanent_deny: bool,
}

impl Offered {
    fn read(option: &Value, by_option_id: bool) -> Option<Self> {
        let id = option["optionId"].as_str()?;
        let kind = option["kind"].as_str().unwrap_or_default();
        let meaning = match (by_option_id, id, kind) {
            (true, "allow_session", _) => Meaning::AllowSession,
            (true, "allow_once", _) | (_, _, "allow_once") => Meaning::AllowOnce,
            (true, "allow_always", _) | (_, _, "allow_always") => Meaning::AllowAlways,
            (true, "deny" | "deny_always", _) | (_, _, "reject_once" | "reject_always") => Meaning::Deny,
            _ => Meaning::Plain,
        };
        let label = one_line(option["name"].as_str().unwrap_or_default(), 80);
        Some(Self {
            label: if label.is_empty() { one_line(id, 80) } else { label },
            id: id.to_owned(),
            meaning,
            is_permanent_deny: kind == "reject_always" || (by_option_id && id == "deny_always"),
        })
    }
}

/// The title without the command at its end, which is shown below it anyway.
fn without<'a>(title: &'a str, detail: &str) -> &'a str {
    let rest = title.strip_suffix(one_line(detail, 300).as_str());
    let rest = rest.and_then(|rest| rest.trim_end().strip_suffix(':'));
    rest.filter(|rest| !rest.is_empty()).unwrap_or(title)
}

/// What it is about: the command, else what the call shows, else the files that it names.
fn detail(call: &Value) -> Option<String> {
    let input = &call["rawInput"];
    let command = match &input["command"] {
        Value::String(command) => Some(command.clone()),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            Some(words.join(" "))
        }
        _ => None,
    };
    let list = |name: &str| call[name].as_array().map_or(&[][..], Vec::as_slice);
    let shown = || {
        list("content")
            .iter()
            .find_map(|content| match content["type"].as_str()? {
                "content" => text_of(&content["content"]),
                "diff" => Some(content["path"].as_str()?.to_owned()),
                _ => None,
            })
    };
    let files = || {
        let paths: Vec<&str> = list("locations")
            .iter()
            .filter_map(|place| place["path"].as_str())
            .collect();
        Some(paths.join("\n"))
    };
    let filled = |text: &String| !text.trim().is_empty();
    let detail = command
        .filter(filled)
        .or_else(|| shown().filter(filled))
        .or_else(|| files().filter(filled))?;
    Some(truncate_bytes(&detail, DETAIL_BYTES).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(55));

    fn hermes() -> Value {
        json!({"sessionId": "s", "toolCall": {"toolCallId": "perm-check-1", "title": "rm", "rawInput": {"command": "rm -r x"}},
        "options": [
            {"optionId": "deny_always", "name": "Never", "kind": "reject_always"},
            {"optionId": "allow_once", "name": "Once", "kind": "allow_once"},
            {"optionId": "allow_session", "name": "Session", "kind": "allow_always"},
            {"optionId": "allow_always", "name": "Always", "kind": "allow_always"},
            {"optionId": "deny", "name": "No", "kind": "reject_once"},
        ]})
    }

    fn chosen(asked: &PermissionRequest, answer: &PromptAnswer) -> Value {
        asked.outcome(answer)["outcome"].clone()
    }

    #[test]
    fn options_mean_what_their_kind_or_their_id_says() {
        let meanings = |by_id| {
            let asked = PermissionRequest::read(&hermes(), by_id, TIMEOUT);
            asked
                .question
                .options
                .iter()
                .map(|choice| choice.meaning)
                .collect::<Vec<_>>()
        };
        let by_kind = [
            Meaning::AllowOnce,
            Meaning::AllowAlways,
            Meaning::AllowAlways,
            Meaning::Deny,
            Meaning::Deny,
        ];
        assert_eq!(meanings(false), by_kind);
        let by_id = [
            Meaning::AllowOnce,
            Meaning::AllowSession,
            Meaning::AllowAlways,
            Meaning::Deny,
            Meaning::Deny,
        ];
        assert_eq!(meanings(true), by_id);
    }

    #[test]
    fn a_choice_goes_back_by_position_and_silence_is_a_no_for_once() {
        let asked = PermissionRequest::read(&hermes(), true, TIMEOUT);
        assert_eq!(asked.question.detail.as_deref(), Some("rm -r x"));
        assert_eq!(asked.question.timeout, TIMEOUT);
        assert_eq!(
            chosen(&asked, &PromptAnswer::Chosen("1".to_owned()))["optionId"],
            "allow_session"
        );
        assert_eq!(chosen(&asked, &PromptAnswer::TimedOut)["optionId"], "deny");
        assert_eq!(
            chosen(&asked, &PromptAnswer::Cancelled),
            json!({"outcome": "cancelled"})
        );
        for nonsense in ["9", "-1", "allow_once", ""] {
            assert_eq!(
                chosen(&asked, &PromptAnswer::Chosen(nonsense.to_owned()))["outcome"],
                "cancelled"
            );
        }
    }

    #[test]
    fn hostile_requests_end_in_no() {
        for params in [
            Value::Null,
            json!({"options": 7}),
            json!({"options": [{}, 1, {"optionId": 3}]}),
        ] {
            let asked = PermissionRequest::read(&params, false, TIMEOUT);
            assert!(asked.question.options.is_empty() && !asked.question.text.is_empty());
            assert_eq!(chosen(&asked, &PromptAnswer::TimedOut)["outcome"], "cancelled");
        }
        let same = json!({"options": [{"optionId": "x", "kind": "reject_once"}, {"optionId": "x", "kind": "allow_once"}]});
        let asked = PermissionRequest::read(&same, false, TIMEOUT);
        let ids: Vec<_> = asked
            .question
            .options
            .iter()
            .map(|choice| choice.id.as_str())
            .collect();
        assert_eq!(ids, ["0", "1"]);
        let many: Vec<Value> = (0..1000)
            .map(|n| json!({"optionId": n.to_string(), "kind": "new"}))
            .collect();
        let asked = PermissionRequest::read(&json!({"options": many}), false, TIMEOUT);
        assert_eq!(asked.question.options.len(), MAX_OPTIONS);
        assert!(
            asked
                .question
                .options
                .iter()
                .all(|choice| choice.meaning == Meaning::Plain)
        );
    }

    #[test]
    fn a_command_is_not_shown_twice() {
        for (title, shown) in [
            ("delete in root path: rm -r /x", "delete in root path"),
            ("rm -r /x", "rm -r /x"),
            (": rm -r /x", ": rm -r /x"),
            ("may I?", "may I?"),
        ] {
            let call = json!({"toolCall": {"title": title, "rawInput": {"command": "rm  -r\n/x"}}});
            let asked = PermissionRequest::read(&call, true, TIMEOUT);
            assert_eq!(asked.question.text, shown);
        }
    }

    #[test]
    fn the_detail_is_the_command_the_content_or_the_files() {
        let of = |call: Value| detail(&call);
        assert_eq!(
            of(json!({"rawInput": {"command": ["ls", "-l"]}})).as_deref(),
            Some("ls -l")
        );
        let diff = json!({"content": [{"type": "terminal"}, {"type": "diff", "path": "/a"}]});
        assert_eq!(of(diff).as_deref(), Some("/a"));
        assert_eq!(
            of(json!({"locations": [{"path": "/a"}, {"path": "/b"}]})).as_deref(),
            Some("/a\n/b")
        );
        assert_eq!(of(json!({"rawInput": {"command": " "}})), None);
        let long = of(json!({"rawInput": {"command": "é".repeat(9000)}})).unwrap();
        assert!(long.len() <= DETAIL_BYTES);
    }
}
