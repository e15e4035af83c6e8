//! Events and status of a run. Pure and lenient: unknown events are [`RunEvent::Other`].

use std::time::Duration;

use serde_json::{Map, Value};

use crate::agent::completion::{error_of, usage_of};
use crate::agent::{
    AgentEvent, Choice, Meaning, Question, QuestionKind, StepState, ToolCall, ToolKind, Usage,
};
use crate::net::http::excerpt;
use crate::wire::SseEvent;

/// Maximum length of a command in a question, in characters.
const MAX_DETAIL: usize = 2000;

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RunEvent {
    /// More of the answer.
    Delta(String),
    /// A tool begins.
    ToolStarted { tool: String, preview: String },
    /// A tool has ended.
    ToolCompleted { tool: String, failed: bool },
    /// Hermes waits for an approval.
    Approval(Approval),
    /// This many approvals were answered, by us or elsewhere.
    Responded(usize),
    /// The run has ended.
    Ended(RunEnd),
    /// Anything else.
    Other,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// The run completed with this answer.
    Completed { output: String, usage: Option<Usage> },
    /// The run failed for this reason.
    Failed(String),
    /// Somebody stopped the run.
    Cancelled,
}

/// An approval that Hermes waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Approval {
    command: String,
    description: String,
    choices: Vec<String>,
}

impl RunEvent {
    /// Decodes an event and its time in Hermes' seconds; `None` when it is not a JSON object.
    pub(super) fn decode(event: &SseEvent) -> Option<(Self, Option<f64>)> {
        let object: Map<String, Value> = serde_json::from_str(&event.data).ok()?;
        let text = |name: &str| text_of(&object, name);
        let name = text("event");
        let name = if name.is_empty() { &event.name } else { &name };
        let read = match name.as_str() {
            "message.delta" => Self::Delta(text("delta")),
            "tool.started" => Self::ToolStarted {
                tool: excerpt(&text("tool")),
                preview: excerpt(&text("preview")),
            },
            "tool.completed" => Self::ToolCompleted {
                tool: excerpt(&text("tool")),
                failed: object.get("error").and_then(error_of).is_some(),
            },
            "approval.request" => Self::Approval(Approval::of(&object)),
            "approval.responded" => {
                let resolved = object.get("resolved").and_then(Value::as_u64);
                Self::Responded(resolved.map_or(1, |many| usize::try_from(many).unwrap_or(usize::MAX)))
            }
            "run.completed" => Self::Ended(completed(&object)),
            "run.failed" => Self::Ended(failed(&object)),
            "run.cancelled" => Self::Ended(RunEnd::Cancelled),
            _ => Self::Other,
        };
        Some((read, object.get("timestamp").and_then(Value::as_f64)))
    }
}

/// Status of a run and its approvals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RunStatus {
    /// It works; when it last changed, in Hermes' seconds.
    Running { updated_at: Option<f64> },
    /// It waits for an approval; when it last changed, in Hermes' seconds.
    Waiting { updated_at: Option<f64> },
    /// It has ended, or is about to.
    Ended,
}

/// Decodes the status; `None` when it is unreadable.
pub(super) fn run_status(body: &[u8]) -> Option<RunStatus> {
    let object: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let updated_at = object.get("updated_at").and_then(Value::as_f64);
    match text_of(&object, "status").as_str() {
        "" => None,
        "waiting_for_approval" => Some(RunStatus::Waiting { updated_at }),
        "completed" | "failed" | "cancelled" | "stopping" => Some(RunStatus::Ended),
        _ => Some(RunStatus::Running { updated_at }),
    }
}

/// How the run ended according to its status; `None` while it runs.
pub(super) fn run_end(body: &[u8]) -> Result<Option<RunEnd>, &'static str> {
    let object: Map<String, Value> =
        serde_json::from_slice(body).map_err(|_| "the status of a run is not a JSON object")?;
    match text_of(&object, "status").as_str() {
        "completed" => Ok(Some(completed(&object))),
        "failed" => Ok(Some(failed(&object))),
        "cancelled" => Ok(Some(RunEnd::Cancelled)),
        "" => Err("the status of a run names no status"),
        _ => Ok(None),
    }
}

/// Whether Hermes waits for an approval according to its status.
pub(super) fn awaits_approval(body: &[u8]) -> bool {
    matches!(run_status(body), Some(RunStatus::Waiting { .. }))
}

/// The id of an accepted run; `None` when it cannot be used in a path.
pub(super) fn run_id_of(body: &[u8]) -> Option<String> {
    let object: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let id = text_of(&object, "run_id");
    is_run_id(&id).then_some(id)
}

/// Whether a run's id can be used in a path.
pub(super) fn is_run_id(id: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=128).contains(&id.len()) && id.chars().all(plain)
}

/// A tool's progress in a chat completion's stream.
pub(super) fn chat_progress(event: &SseEvent) -> Option<AgentEvent> {
    if event.name != "hermes.tool.progress" {
        return None;
    }
    let object: Map<String, Value> = serde_json::from_str(&event.data).ok()?;
    let text = |name: &str| excerpt(&text_of(&object, name));
    let state = match text("status").as_str() {
        "completed" => StepState::Done,
        "failed" | "error" => StepState::Failed,
        _ => StepState::Running,
    };
    Some(tool_event(
        text("toolCallId"),
        &text("tool"),
        &text("label"),
        state,
    ))
}

/// One use of a tool as progress.
pub(super) fn tool_event(id: String, tool: &str, about: &str, state: StepState) -> AgentEvent {
    let title = match (tool, about) {
        ("", "") => "a tool".to_owned(),
        (tool, "") => tool.to_owned(),
        ("", about) => about.to_owned(),
        (tool, about) => format!("{tool}: {about}"),
    };
    AgentEvent::Tool(ToolCall {
        id,
        title,
        kind: kind_of(tool),
        state,
    })
}

impl Approval {
    fn of(object: &Map<String, Value>) -> Self {
        let named = object.get("choices").and_then(Value::as_array);
        let named: Vec<&str> = named.into_iter().flatten().filter_map(Value::as_str).collect();
        let permanent = object.get("allow_permanent").and_then(Value::as_bool) != Some(false);
        let offered = |choice: &&str| {
            *choice == "deny"
                || ((named.is_empty() || named.contains(choice)) && (*choice != "always" || permanent))
        };
        let choices = ["once", "session", "always", "deny"].into_iter().filter(offered);
        Self {
            command: text_of(object, "command"),
            description: text_of(object, "description"),
            choices: choices.map(str::to_owned).collect(),
        }
    }

    /// The question for people.
    pub(super) fn question(&self, approval_timeout: Duration, resume: Option<String>) -> Question {
        let options = self.choices.iter().map(|id| {
            Choice {
                id: id.clone(),
                // As its reader's language names the meaning.
                label: String::new(),
                meaning: match id.as_str() {
                    "once" => Meaning::AllowOnce,
                    "session" => Meaning::AllowSession,
                    "always" => Meaning::AllowAlways,
                    _ => Meaning::Deny,
                },
            }
        });
        let about = excerpt(&self.description);
        let text = if about.is_empty() {
            "Hermes wants to run a command. Allow it?".to_owned()
        } else {
            format!("Hermes wants to run a command ({about}). Allow it?")
        };
        let mut detail: String = self.command.chars().take(MAX_DETAIL).collect();
        if detail.len() < self.command.len() {
            detail.push('…');
        }
        Question {
            kind: QuestionKind::Approval,
            text,
            detail: (!detail.trim().is_empty()).then_some(detail),
            options: options.collect(),
            timeout: Some(approval_timeout),
            resume,
        }
    }
}

fn completed(object: &Map<String, Value>) -> RunEnd {
    RunEnd::Completed {
        output: text_of(object, "output"),
        usage: object.get("usage").and_then(usage_of),
    }
}

fn failed(object: &Map<String, Value>) -> RunEnd {
    let reason = object.get("error").and_then(error_of);
    RunEnd::Failed(reason.unwrap_or_else(|| "no reason given".to_owned()))
}

fn text_of(object: &Map<String, Value>, name: &str) -> String {
    object
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn kind_of(tool: &str) -> ToolKind {
    let matches = |words: &[&str]| words.iter().any(|word| tool.contains(word));
    if matches(&["search", "grep", "find"]) {
        ToolKind::Search
    } else if matches(&["web", "fetch", "browser", "http"]) {
        ToolKind::Fetch
    } else if matches(&["delete", "remove"]) {
        ToolKind::Delete
    } else if matches(&["write", "edit", "patch"]) {
        ToolKind::Edit
    } else if matches(&["read", "view", "list"]) {
        ToolKind::Read
    } else if matches(&["terminal", "exec", "shell", "process", "code"]) {
        ToolKind::Execute
    } else {
        ToolKind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(data: &str) -> RunEvent {
        let event = SseEvent {
            name: String::new(),
            data: data.to_owned(),
        };
        RunEvent::decode(&event).unwrap().0
    }

    #[test]
    fn events_are_read_and_strangers_passed_over() {
        assert_eq!(
            event(r#"{"event":"message.delta","delta":"a"}"#),
            RunEvent::Delta("a".to_owned())
        );
        assert_eq!(
            event(r#"{"event":"reasoning.available","text":"a"}"#),
            RunEvent::Other
        );
        assert_eq!(event("{}"), RunEvent::Other);
        let ended =
            event(r#"{"event":"run.completed","output":"x","usage":{"input_tokens":1,"output_tokens":2}}"#);
        let RunEvent::Ended(RunEnd::Completed { output, usage }) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!((output.as_str(), usage.unwrap().output_tokens), ("x", 2));
        let tool = |error: &str| {
            event(&format!(
                r#"{{"event":"tool.completed","tool":"t","error":{error}}}"#
            ))
        };
        let want = |failed| RunEvent::ToolCompleted {
            tool: "t".to_owned(),
            failed,
        };
        assert_eq!(tool("false"), want(false));
        assert_eq!(tool("true"), want(true));
    }

    #[test]
    fn questions_offer_what_hermes_offers_and_always_a_no() {
        let ids = |data: &str| {
            let RunEvent::Approval(approval) = event(data) else {
                panic!("{data}");
            };
            approval.choices
        };
        let all = ["once", "session", "always", "deny"];
        assert_eq!(ids(r#"{"event":"approval.request"}"#), all);
        assert_eq!(
            ids(
                r#"{"event":"approval.request","allow_permanent":false,"choices":["once","session","always","deny"]}"#
            ),
            ["once", "session", "deny"]
        );
        assert_eq!(
            ids(r#"{"event":"approval.request","choices":["once","maybe"]}"#),
            ["once", "deny"]
        );
    }

    #[test]
    fn statuses_and_run_ids_are_read() {
        assert_eq!(run_end(br#"{"status":"running"}"#), Ok(None));
        assert_eq!(run_end(br#"{"status":"cancelled"}"#), Ok(Some(RunEnd::Cancelled)));
        let at = Some(7.5);
        for (body, want) in [
            (
                r#"{"status":"running","updated_at":7.5}"#,
                Some(RunStatus::Running { updated_at: at }),
            ),
            (
                r#"{"status":"waiting_for_approval","updated_at":7.5}"#,
                Some(RunStatus::Waiting { updated_at: at }),
            ),
            (
                r#"{"status":"waiting_for_approval"}"#,
                Some(RunStatus::Waiting { updated_at: None }),
            ),
            (r#"{"status":"stopping"}"#, Some(RunStatus::Ended)),
            ("{}", None),
            ("no", None),
        ] {
            assert_eq!(run_status(body.as_bytes()), want, "{body}");
        }
        assert!(run_end(b"{}").is_err());
        assert!(run_end(b"no").is_err());
        assert_eq!(run_id_of(br#"{"run_id":"run_a-1"}"#).as_deref(), Some("run_a-1"));
        for bad in [
            r#"{"run_id":"../x"}"#,
            r#"{"run_id":""}"#,
            r#"{"run_id":7}"#,
            "[]",
        ] {
            assert_eq!(run_id_of(bad.as_bytes()), None, "{bad}");
        }
    }
}
