//! Maps an agent's updates to events. Pure; unknown updates are skipped.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use crate::agent::{AgentCommand, AgentEvent, FileChange, PlanStep, StepState, ToolCall, ToolKind, Usage};
use crate::text::one_line;

/// Maximum tools tracked per turn; the oldest is dropped first.
const MAX_TOOLS: usize = 256;

/// Maximum length of a title, in characters.
const TITLE_CHARS: usize = 200;

/// Texts of changes that are kept while their tools run, in bytes; larger ones are reported without their text.
const MAX_CHANGED_BYTES: usize = 1024 * 1024;

/// Texts of one change, in bytes.
const MAX_CHANGE_BYTES: usize = 256 * 1024;

/// Changes that one tool makes.
const MAX_CHANGES: usize = 100;

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
    /// The changes of tools that have not ended, and the bytes of their texts.
    changes: HashMap<String, Vec<FileChange>>,
    changed_bytes: usize,
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
    /// Events of an update: at most a break and one more, or those of a tool that has ended.
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
                self.take_changes(&oldest);
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
        let tool = tool.clone();
        if let Some(content) = update["content"].as_array() {
            self.keep_changes(&tool, content);
        }
        let changes = match tool.state {
            StepState::Done | StepState::Failed => self.take_changes(&tool.id),
            StepState::Pending | StepState::Running => Vec::new(),
        };
        let changes = changes.into_iter().filter(|_| tool.state == StepState::Done);
        let changes: Vec<_> = changes.map(AgentEvent::Changed).collect();
        std::iter::once(AgentEvent::Tool(tool)).chain(changes).collect()
    }

    /// Keeps what a tool is about to change; what an update says replaces what was said before.
    fn keep_changes(&mut self, tool: &ToolCall, content: &[Value]) {
        let diffs = content.iter().filter(|item| item["type"] == "diff");
        let read = diffs.take(MAX_CHANGES).filter_map(change).collect::<Vec<_>>();
        if read.is_empty() {
            return;
        }
        self.take_changes(&tool.id);
        for mut change in read {
            let size =
                change.old.as_ref().map_or(0, String::len) + change.new.as_ref().map_or(0, String::len);
            if size > MAX_CHANGE_BYTES || self.changed_bytes + size > MAX_CHANGED_BYTES {
                (change.old, change.new) = (None, None);
            } else {
                self.changed_bytes += size;
            }
            self.changes.entry(tool.id.clone()).or_default().push(change);
        }
    }

    fn take_changes(&mut self, tool: &str) -> Vec<FileChange> {
        let changes = self.changes.remove(tool).unwrap_or_default();
        let texts = changes
            .iter()
            .flat_map(|change| change.old.iter().chain(&change.new));
        self.changed_bytes -= texts.map(String::len).sum::<usize>();
        changes
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

/// A change that a tool reports.
fn change(diff: &Value) -> Option<FileChange> {
    let text = |field: &str| diff[field].as_str().map(str::to_owned);
    Some(FileChange {
        path: text("path")?,
        old: text("oldText"),
        new: Some(text("newText")?),
    })
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
    fn changes_are_reported_once_their_tool_has_ended() {
        let mut reader = UpdateReader::default();
        let edit = |status: &str, id: &str, new: &str| {
            json!({"sessionUpdate": "tool_call", "toolCallId": id, "status": status, "content": [
                {"type": "diff", "path": "/w/a", "oldText": "a", "newText": new},
                {"type": "diff", "path": "/w/b", "newText": 7},
                {"type": "content", "content": {"type": "text", "text": "done"}}]})
        };
        let changes = |events: Vec<AgentEvent>| -> Vec<FileChange> {
            let changes = events.into_iter().filter_map(|event| match event {
                AgentEvent::Changed(change) => Some(change),
                _ => None,
            });
            changes.collect()
        };
        assert_eq!(changes(reader.read(&edit("pending", "t", "b"))), []);
        assert_eq!(changes(reader.read(&edit("in_progress", "t", "c"))), []);
        let wanted = FileChange {
            path: "/w/a".to_owned(),
            old: Some("a".to_owned()),
            new: Some("c".to_owned()),
        };
        assert_eq!(changes(reader.read(&tool("t", "completed"))), [wanted]);
        assert_eq!(changes(reader.read(&tool("t", "completed"))), []);
        // What was refused was not done.
        reader.read(&edit("pending", "u", "b"));
        assert_eq!(changes(reader.read(&tool("u", "failed"))), []);
        assert_eq!(changes(reader.read(&tool("u", "completed"))), []);
        let large = changes(reader.read(&edit("completed", "v", &"x".repeat(MAX_CHANGE_BYTES))));
        assert_eq!((large.len(), &large[0].new), (1, &None));
        assert_eq!(reader.changed_bytes, 0);
        for number in 0..10 * MAX_TOOLS {
            reader.read(&edit("pending", &number.to_string(), &"x".repeat(10_000)));
        }
        assert!(reader.changed_bytes <= MAX_CHANGED_BYTES && reader.changes.len() <= MAX_TOOLS);
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
