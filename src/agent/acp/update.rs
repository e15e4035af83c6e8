//! What an agent's updates mean for the turn that they belong to. Pure: an [`Ear`] hears one update after the other and
//! says what is to be told. An update that it does not know is skipped.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use crate::agent::{AgentCommand, AgentEvent, PlanStep, StepState, ToolCall, ToolKind, Usage};

/// Tools of one turn that are remembered; the oldest is forgotten first.
const TOOLS: usize = 256;

/// Longest title of a tool or of a conversation, in characters.
const TITLE_CHARS: usize = 200;

/// Steps of a plan that are told.
const STEPS: usize = 50;

/// Commands of an agent that are remembered.
const COMMANDS: usize = 100;

/// Hears the updates of one turn.
#[derive(Debug, Default)]
pub(super) struct Ear {
    /// The message that the last text belonged to, when it was named.
    message: Option<String>,
    text: TextState,
    tools: HashMap<String, ToolCall>,
    order: VecDeque<String>,
    mode: Option<String>,
}

/// What stands before the next piece of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TextState {
    /// Nothing in this message, or only blank lines: an agent may begin with them after a tool.
    #[default]
    Nothing,
    /// Text, which goes on.
    Running,
    /// Text, and then a tool: what follows is a message of its own.
    Interrupted,
}

impl Ear {
    /// What this update tells. One update tells at most a break and one thing more.
    pub(super) fn hear(&mut self, update: &Value) -> Vec<AgentEvent> {
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
            if self.order.len() == TOOLS
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
        let told = AgentEvent::Notice(format!("The agent is now in the mode \"{mode}\"."));
        self.mode = Some(mode);
        vec![told]
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
    Some(read.take(COMMANDS).collect())
}

/// The title that an update gives its session.
pub(super) fn title(update: &Value) -> Option<String> {
    if update["sessionUpdate"] != "session_info_update" {
        return None;
    }
    let title = one_line(update["title"].as_str()?, TITLE_CHARS);
    (!title.is_empty()).then_some(title)
}

/// What a prompt's answer says about its cost.
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

/// A text on one line, without control characters, cut to a bound.
pub(super) fn one_line(text: &str, chars: usize) -> String {
    let spaced: String = text
        .chars()
        .take(chars.saturating_mul(4))
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    words.join(" ").chars().take(chars).collect()
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
    entries.iter().filter_map(step).take(STEPS).collect()
}

fn notice(update: &Value) -> Vec<AgentEvent> {
    let line = |field: &str| one_line(update[field].as_str().unwrap_or_default(), 500);
    let told = match (line("title"), line("description")) {
        (title, description) if description.is_empty() => title,
        (title, description) if title.is_empty() => description,
        (title, description) => format!("{title}: {description}"),
    };
    if told.is_empty() {
        return Vec::new();
    }
    vec![AgentEvent::Notice(told)]
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
mod tests;
