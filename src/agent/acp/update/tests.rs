//! One update after the other, and what is told.

use serde_json::json;

use super::*;

fn says(text: &str) -> Value {
    json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
}

fn says_in(message: &str, text: &str) -> Value {
    let mut update = says(text);
    update["messageId"] = json!(message);
    update
}

fn tool(id: &str, status: &str) -> Value {
    json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status})
}

fn texts(ear: &mut Ear, updates: &[Value]) -> String {
    let mut said = String::new();
    for event in updates.iter().flat_map(|update| ear.hear(update)) {
        match event {
            AgentEvent::Text(text) => said.push_str(&text),
            AgentEvent::Break => said.push('|'),
            _ => {}
        }
    }
    said
}

#[test]
fn a_new_message_begins_with_a_new_name_or_after_a_tool() {
    let said = texts(
        &mut Ear::default(),
        &[
            says_in("1", "a"),
            says_in("1", "b"),
            says_in("2", "c"),
            says("d"),
            tool("t", "completed"),
        ],
    );
    assert_eq!(said, "ab|cd");
    let said = texts(
        &mut Ear::default(),
        &[
            tool("t", "pending"),
            says("a"),
            tool("t", "failed"),
            says("\n"),
            says("\nb"),
            says("\nc"),
        ],
    );
    assert_eq!(said, "a|b\nc");
    let said = texts(
        &mut Ear::default(),
        &[tool("t", "completed"), says("\n\n"), says("a\n\n"), says("b")],
    );
    assert_eq!(said, "a\n\nb");
    let said = texts(
        &mut Ear::default(),
        &[says(""), tool("t", "pending"), says("a"), tool("t", "pending")],
    );
    assert_eq!(said, "a", "nothing stands before a break, and none at the end");
}

#[test]
fn a_tool_is_told_with_what_is_known_of_it() {
    let mut ear = Ear::default();
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
    assert_eq!(ear.hear(&begun), expected(StepState::Pending));
    assert_eq!(ear.hear(&tool("t", "in_progress")), expected(StepState::Running));
    assert_eq!(ear.hear(&tool("t", "completed")), expected(StepState::Done));
    for number in 0..10 * TOOLS {
        ear.hear(&tool(&number.to_string(), "pending"));
    }
    assert!(ear.tools.len() == TOOLS && ear.order.len() == TOOLS);
}

#[test]
fn progress_is_told_as_what_it_is() {
    let mut ear = Ear::default();
    let plan = json!({"sessionUpdate": "plan", "entries": [
        {"content": "look", "status": "completed"}, {"content": "act", "status": "new"}, {"no": 1}]});
    let step = |text: &str, state| PlanStep {
        text: text.to_owned(),
        state,
    };
    assert_eq!(
        ear.hear(&plan),
        [AgentEvent::Plan(vec![
            step("look", StepState::Done),
            step("act", StepState::Pending)
        ])]
    );
    let title = json!({"sessionUpdate": "session_info_update", "title": " Of\nmice "});
    assert_eq!(ear.hear(&title), [AgentEvent::Title("Of mice".to_owned())]);
    assert_eq!(
        ear.hear(&json!({"sessionUpdate": "session_info_update", "title": null})),
        []
    );
    let mode = json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"});
    assert_eq!(ear.hear(&mode).len(), 1);
    assert_eq!(ear.hear(&mode), []);
    let thought = json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}});
    assert_eq!(ear.hear(&thought), [AgentEvent::Thought("hm".to_owned())]);
    let notice =
        json!({"sessionUpdate": "notice", "severity": "info", "title": "Low", "description": "disk"});
    assert_eq!(ear.hear(&notice), [AgentEvent::Notice("Low: disk".to_owned())]);
    let Some(AgentEvent::Usage(used)) = usage(&json!({"usage": {"inputTokens": 3, "outputTokens": 4}}))
    else {
        panic!("no usage")
    };
    assert_eq!((used.input_tokens, used.output_tokens), (3, 4));
}

#[test]
fn what_is_not_known_is_skipped() {
    let mut ear = Ear::default();
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
        assert_eq!(ear.hear(&update), [], "{update}");
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
    assert_eq!(commands(&update).unwrap().len(), COMMANDS);
    assert_eq!(commands(&says("x")), None);
}
