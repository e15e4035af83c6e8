//! Maps an agent's updates to events. Pure; unknown updates are skipped.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use crate::agent::{AgentCommand, AgentEvent, PlanStep, StepState, ToolCall, ToolKind, Usage};
use crate::text::one_line;

/// Maximum tools tracked per turn; the oldest is dropped first.
const MAX_TOOLS: usize = 256;

/// Maximum length of a title, in characters.
const TITLE_CHARS: usize = 200;

/// Maximum steps of a plan.
const MAX_STEPS: usize = 50;

/// Maximum commands.
const MAX_COMMANDS: usize = 100;

/// Reads the updates of one turn.
#[derive(Debug, Default)]
pub(super) struct UpdateReader {
    /// The message that the last text belonged to, when it was named.
    message: Option<String>,
    text: TextState,
    tools: HashMap<String, ToolCall>,
    order: VecDeque<String>,
    mode: Option<String>,
}

/// State before the next text chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TextState {
    /// Nothing in this message, or only blank lines: an agent may begin with them after a tool.
    #[default]
    Nothing,
    /// Text that continues.
    Running,
    /// Text, and then a tool: what follows is a message of its own.
    Interrupted,
}

impl UpdateReader {
    /// Events of an update: at most a break and one more.
    pub(super) fn read(&mut self, update: &Value) -> Vec<AgentEvent> {
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => self.text(update),
            "agent_thought_chunk" => match text_of(&update["content"]) {
                Some(text) if !text.is_empty() => vec![AgentEvent::Thought(text)],
                _ => Vec::new(),
            },
            "tool_call" | "tool_call_update" => self.tool(update),
            "plan" => vec![AgentEvent::Plan(plan(&update["entries"]))],
            "session_info_update" => title(update).map(AgentEvent::Title).into_iter().collect(),
            "usage_update" => match update["used"].as_u64() {
                Some(used) => vec![AgentEvent::Usage(Usage {
                    input_tokens: used,
                    output_tokens: 0,
                })],
                None => Vec::new(),
            },
            "current_mode_update" => self.mode(update),
            "notice" => notice(update),
            _ => Vec::new(),
        }
    }

    fn text(&mut self, update: &Value) -> Vec<AgentEvent> {
        let Some(mut text) = text_of(&update["content"]) else {
            return Vec::new();
        };
        let message = update["messageId"].as_str();
        let other =
            message.is_some_and(|message| self.message.as_deref().is_some_and(|last| last != message));
        if let Some(message) = message {
            self.message = Some(message.to_owned());
        }
        let mut events = Vec::new();
        let breaks = match self.text {
            TextState::Interrupted => true,
            TextState::Running => other,
            TextState::Nothing => false,
        };
        if breaks {
            events.push(AgentEvent::Break);
            self.text = TextState::Nothing;
        }
        if self.text == TextState::Nothing {
            let start = text.len() - text.trim_start_matches(['\n', '\r']).len();
            text.drain(..start);
        }
        if !text.is_empty() {
            self.text = TextState::Running;
            events.push(AgentEvent::Text(text));
        }
        events
    }

    fn tool(&mut self, update: &Value) -> Vec<AgentEvent> {
        let Some(id) = update["toolCallId"].as_str() else {
            return Vec::new();
        };
        if self.text == TextState::Running {
            self.text = TextState::Interrupted;
        }
        let id = one_line(id, TITLE_CHARS);
        if !self.tools.contains_key(&id) {
            if self.order.len() == MAX_TOOLS
                && let Some(oldest) = self.order.pop_front()
            {
                self.tools.remove(&oldest);
            }
            self.order.push_back(id.clone());
        }
        let tool = self.tools.entry(id.clone()).or_insert_with(|| ToolCall {
            id,
            title: String::new(),
            kind: ToolKind::Other,
            state: StepState::Pending,
        });
        if let Some(title) = update["title"].as_str() {
            tool.title = one_line(title, TITLE_CHARS);
        }
        if let Some(kind) = update["kind"].as_str() {
            tool.kind = tool_kind(kind);
        }
        if let Some(status) = update["status"].as_str() {
            tool.state = step_state(status);
        }
        vec![AgentEvent::Tool(tool.clone())]
    }

    fn mode(&mut self, update: &Value) -> Vec<AgentEvent> {
        let Some(mode) = update["currentModeId"].as_str().map(|mode| one_line(mode, 80)) else {
            return Vec::new();
        };
        if self.mode.as_ref() == Some(&mode) {
            return Vec::new();
        }
        let notice = AgentEvent::Notice(format!("The agent is now in the mode `{mode}`."));
        self.mode = Some(mode);
        vec![notice]
    }
}

/// The commands that an update lists; `None` when it is another one.
pub(super) fn commands(update: &Value) -> Option<Vec<AgentCommand>> {
    if update["sessionUpdate"] != "available_commands_update" {
        return None;
    }
    let listed = update["availableCommands"].as_array()?;
    let read = listed.iter().filter_map(|command| {
        let name = one_line(command["name"].as_str()?, 64);
        let name = name.trim_start_matches('/').to_owned();
        (!name.is_empty()).then(|| AgentCommand {
            name,
            description: one_line(command["description"].as_str().unwrap_or_default(), TITLE_CHARS),
        })
    });
    Some(read.take(MAX_COMMANDS).collect())
}

/// The title that an update gives its session.
pub(super) fn title(update: &Value) -> Option<String> {
    if update["sessionUpdate"] != "session_info_update" {
        return None;
    }
    let title = one_line(update["title"].as_str()?, TITLE_CHARS);
    (!title.is_empty()).then_some(title)
}

/// Usage in a prompt's response.
pub(super) fn usage(answer: &Value) -> Option<AgentEvent> {
    let usage = &answer["usage"];
    let tokens = |name: &str| usage[name].as_u64();
    if tokens("inputTokens").is_none() && tokens("outputTokens").is_none() {
        return None;
    }
    Some(AgentEvent::Usage(Usage {
        input_tokens: tokens("inputTokens").unwrap_or(0),
        output_tokens: tokens("outputTokens").unwrap_or(0),
    }))
}

/// The text of a piece of content: a text's own, or the address of something on the network. Anything else is skipped.
pub(super) fn text_of(content: &Value) -> Option<String> {
    match content["type"].as_str()? {
        "text" => Some(content["text"].as_str()?.to_owned()),
        "resource_link" => {
            let uri = content["uri"].as_str()?;
            (uri.starts_with("https://") || uri.starts_with("http://")).then(|| format!(" {uri} "))
        }
        _ => None,
    }
}

fn plan(entries: &Value) -> Vec<PlanStep> {
    let entries = entries.as_array().map_or(&[][..], Vec::as_slice);
    let step = |entry: &Value| {
        Some(PlanStep {
            text: one_line(entry["content"].as_str()?, TITLE_CHARS),
            state: step_state(entry["status"].as_str().unwrap_or_default()),
        })
    };
    entries.iter().filter_map(step).take(MAX_STEPS).collect()
}

fn notice(update: &Value) -> Vec<AgentEvent> {
    let line = |field: &str| one_line(update[field].as_str().unwrap_or_default(), 500);
    let notice = match (line("title"), line("description")) {
        (title, description) if description.is_empty() => title,
        (title, description) if title.is_empty() => description,
        (title, description) => format!("{title}: {description}"),
    };
    if notice.is_empty() {
        return Vec::new();
    }
    vec![AgentEvent::Notice(notice)]
}

fn tool_kind(kind: &str) -> ToolKind {
    match kind {
        "read" => ToolKind::Read,
        "edit" | "move" => ToolKind::Edit,
        "delete" => ToolKind::Delete,
        "search" => ToolKind::Search,
        "execute" => ToolKind::Execute,
        "fetch" => ToolKind::Fetch,
        _ => ToolKind::Other,
    }
}

fn step_state(status: &str) -> StepState {
    match status {
        "in_progress" => StepState::Running,
        "completed" => StepState::Done,
        "failed" | "cancelled" => StepState::Failed,
        _ => StepState::Pending,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text_chunk(text: &str) -> Value {
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
    }

    fn text_chunk_in(message: &str, text: &str) -> Value {
        let mut update = text_chunk(text);
        update["messageId"] = json!(message);
        update
    }

    fn tool(id: &str, status: &str) -> Value {
        json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status})
    }

    fn texts(reader: &mut UpdateReader, updates: &[Value]) -> String {
        let mut reply = String::new();
        for event in updates.iter().flat_map(|update| reader.read(update)) {
            match event {
                AgentEvent::Text(text) => reply.push_str(&text),
                AgentEvent::Break => reply.push('|'),
                _ => {}
            }
        }
        reply
    }

    #[test]
    fn a_new_message_begins_with_a_new_name_or_after_a_tool() {
        let text = texts(
            &mut UpdateReader::default(),
            &[
                text_chunk_in("1", "a"),
                text_chunk_in("1", "b"),
                text_chunk_in("2", "c"),
                text_chunk("d"),
                tool("t", "completed"),
            ],
        );
        assert_eq!(text, "ab|cd");
        let text = texts(
            &mut UpdateReader::default(),
            &[
                tool("t", "pending"),
                text_chunk("a"),
                tool("t", "failed"),
                text_chunk("\n"),
                text_chunk("\nb"),
                text_chunk("\nc"),
            ],
        );
        assert_eq!(text, "a|b\nc");
        let text = texts(
            &mut UpdateReader::default(),
            &[
                tool("t", "completed"),
                text_chunk("\n\n"),
                text_chunk("a\n\n"),
                text_chunk("b"),
            ],
        );
        assert_eq!(text, "a\n\nb");
        let text = texts(
            &mut UpdateReader::default(),
            &[
                text_chunk(""),
                tool("t", "pending"),
                text_chunk("a"),
                tool("t", "pending"),
            ],
        );
        assert_eq!(text, "a", "nothing stands before a break, and none at the end");
    }

    #[test]
    fn a_tool_is_reported_with_its_known_fields() {
        let mut reader = UpdateReader::default();
        let begun =
            json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "ls\n-l", "kind": "execute"});
        let expected = |state| {
            vec![AgentEvent::Tool(ToolCall {
                id: "t".to_owned(),
                title: "ls -l".to_owned(),
                kind: ToolKind::Execute,
                state,
            })]
        };
        assert_eq!(reader.read(&begun), expected(StepState::Pending));
        assert_eq!(
            reader.read(&tool("t", "in_progress")),
            expected(StepState::Running)
        );
        assert_eq!(reader.read(&tool("t", "completed")), expected(StepState::Done));
        for number in 0..10 * MAX_TOOLS {
            reader.read(&tool(&number.to_string(), "pending"));
        }
        assert!(reader.tools.len() == MAX_TOOLS && reader.order.len() == MAX_TOOLS);
    }

    #[test]
    fn progress_is_reported_by_kind() {
        let mut reader = UpdateReader::default();
        let plan = json!({"sessionUpdate": "plan", "entries": [
            {"content": "look", "status": "completed"}, {"content": "act", "status": "new"}, {"no": 1}]});
        let step = |text: &str, state| PlanStep {
            text: text.to_owned(),
            state,
        };
        assert_eq!(
            reader.read(&plan),
            [AgentEvent::Plan(vec![
                step("look", StepState::Done),
                step("act", StepState::Pending)
            ])]
        );
        let title = json!({"sessionUpdate": "session_info_update", "title": " Of\nmice "});
        assert_eq!(reader.read(&title), [AgentEvent::Title("Of mice".to_owned())]);
        assert_eq!(
            reader.read(&json!({"sessionUpdate": "session_info_update", "title": null})),
            []
        );
        let mode = json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"});
        assert_eq!(reader.read(&mode).len(), 1);
        assert_eq!(reader.read(&mode), []);
        let thought =
            json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}});
        assert_eq!(reader.read(&thought), [AgentEvent::Thought("hm".to_owned())]);
        let notice =
            json!({"sessionUpdate": "notice", "severity": "info", "title": "Low", "description": "disk"});
        assert_eq!(reader.read(&notice), [AgentEvent::Notice("Low: disk".to_owned())]);
        let Some(AgentEvent::Usage(used)) = usage(&json!({"usage": {"inputTokens": 3, "outputTokens": 4}}))
        else {
            panic!("no usage")
        };
        assert_eq!((used.input_tokens, used.output_tokens), (3, 4));
    }

    #[test]
    fn what_is_not_known_is_skipped() {
        let mut reader = UpdateReader::default();
        for update in [
            Value::Null,
            json!([]),
            json!("agent_message_chunk"),
            json!({"sessionUpdate": "from_the_future", "content": {"type": "text", "text": "x"}}),
            json!({"sessionUpdate": "agent_message_chunk"}),
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "hologram", "text": "x"}}),
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": 7}}),
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "AA=="}}),
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "resource_link", "uri": "file:///etc/passwd"}}),
            json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "x"}}),
            json!({"sessionUpdate": "tool_call", "title": "no id"}),
            json!({"sessionUpdate": "usage_update", "used": "many"}),
        ] {
            assert_eq!(reader.read(&update), [], "{update}");
        }
        assert_eq!(usage(&json!({"usage": "much"})), None);
    }

    #[test]
    fn commands_are_read_and_bounded() {
        let update = json!({"sessionUpdate": "available_commands_update", "availableCommands": [
            {"name": "/help", "description": "tells\nmore"}, {"name": ""}, {"description": "x"}, {"name": "plain"}]});
        let read = commands(&update).unwrap();
        let names: Vec<_> = read
            .iter()
            .map(|command| (command.name.as_str(), command.description.as_str()))
            .collect();
        assert_eq!(names, [("help", "tells more"), ("plain", "")]);
        let many: Vec<Value> = (0..10_000).map(|n| json!({"name": n.to_string()})).collect();
        let update = json!({"sessionUpdate": "available_commands_update", "availableCommands": many});
        assert_eq!(commands(&update).unwrap().len(), MAX_COMMANDS);
        assert_eq!(commands(&text_chunk("x")), None);
    }
}
