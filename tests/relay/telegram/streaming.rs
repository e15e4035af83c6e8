//! Answers that grow: drafts with a Stop button in private chats, edits elsewhere.

use crate::support::dev::{BotApiAnswer, BotApiRule, BotApiSettings};
use hermes_relay::config::Settings;
use serde_json::json;

use super::{ADA, GROUP, Noting, World, number};

fn eager(settings: &mut Settings) {
    settings.streaming.interval_ms = 100;
    settings.streaming.buffer_chars = 1;
    settings.streaming.first_chars = 1;
    settings.streaming.reactions = false;
}

/// A text whose echo takes seconds.
fn slow(words: usize) -> String {
    let words: Vec<String> = (0..words).map(|number| format!("word{number}")).collect();
    format!("stream=250 {}", words.join(" "))
}

#[tokio::test]
async fn in_private_chats_drafts_with_a_stop_button_grow_until_the_answer_replaces_them() {
    let world = World::new().await;
    let relay = world.start_with(Noting::default(), eager).await;
    let asked = world.api.say(ADA, ADA, &slow(16));
    let draft = world
        .until("a draft", |api| {
            api.drafts(ADA)
                .into_iter()
                .find(|draft| draft.text.contains("word2"))
        })
        .await;
    assert!(draft.can_stop);
    assert!(world.api.answers(ADA).is_empty());
    let answer = world
        .until("the answer", |api| api.answers(ADA).into_iter().next())
        .await;
    assert!(answer.text.ends_with("word15"), "{}", answer.text);
    assert_eq!(answer.reply_to, Some(asked));
    assert!(!answer.text.contains('\u{2589}'), "no cursor is left");
    assert!(world.api.drafts(ADA).is_empty());
    let drafts: Vec<_> = world.calls("sendMessageDraft", ADA);
    assert!(drafts.len() >= 2, "{drafts:?}");
    assert!(
        drafts
            .iter()
            .all(|call| call.params["can_stop"] == json!(true) && number(call, "draft_id") != Some(0))
    );
    assert_eq!(world.api.answers(ADA).len(), 1);
    assert!(world.api.violations().is_empty());
    relay.stop().await;
}

#[tokio::test]
async fn in_groups_a_message_is_edited_until_it_is_the_answer() {
    let world = World::new().await;
    let relay = world
        .start_with(Noting::default(), |settings| {
            eager(settings);
            settings.direct.telegram.as_mut().unwrap().require_mention = false;
        })
        .await;
    world.api.say(GROUP, ADA, &slow(30));
    let answer = world.answer_ending(GROUP, "word29").await;
    assert!(answer.is_edited && !answer.text.contains('\u{2589}'));
    assert_eq!(world.api.answers(GROUP).len(), 1);
    assert!(world.calls("sendMessageDraft", GROUP).is_empty());
    assert!(!world.calls("editMessageText", GROUP).is_empty());
    relay.stop().await;
}

#[tokio::test]
async fn a_server_without_drafts_is_asked_once_and_gets_edits() {
    let world = World::with(BotApiSettings {
        drafts: false,
        ..BotApiSettings::default()
    })
    .await;
    let relay = world.start_with(Noting::default(), eager).await;
    for words in [14, 15] {
        world.api.say(ADA, ADA, &slow(words));
        let last = format!("word{}", words - 1);
        world.answer_ending(ADA, &last).await;
    }
    assert_eq!(world.api.calls_of("sendMessageDraft").len(), 1, "the probe");
    assert!(!world.calls("editMessageText", ADA).is_empty());
    assert_eq!(world.api.answers(ADA).len(), 2);
    relay.stop().await;
}

#[tokio::test]
async fn stop_stops_exactly_that_turn_and_once() {
    let world = World::new().await;
    let relay = world.start_with(Noting::default(), eager).await;
    for person in [ADA, super::BOB] {
        world.api.say(person, person, &slow(60));
    }
    let draft_of = |person: i64| {
        world.until("a draft", move |api| {
            api.drafts(person)
                .into_iter()
                .find(|draft| draft.text.contains("word1"))
        })
    };
    draft_of(super::BOB).await;
    let draft = draft_of(ADA).await;
    assert_eq!(world.api.press_stop(ADA), Some(draft.draft_id));
    let status = relay
        .until("one turn stopped", |status| status.tally.turns_stopped == 1)
        .await;
    assert_eq!(status.turns_running, 1, "the other one goes on");
    // The same press again, late, hits nothing.
    world.api.say(ADA, ADA, &slow(12));
    relay
        .until("the next turn", |status| status.turns_running == 2)
        .await;
    world.api.push_update(json!({
        "stopped_message_generation": {
            "chat": {"id": ADA, "type": "private", "first_name": "Ada"},
            "draft_id": draft.draft_id.to_string(),
        },
    }));
    let answer = world
        .until("the next answer", |api| {
            api.answers(ADA)
                .into_iter()
                .find(|answer| answer.text.ends_with("word11"))
        })
        .await;
    assert!(answer.text.starts_with("echo: word0"));
    let status = relay.status().await;
    assert_eq!(status.tally.turns_stopped, 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_stop_after_the_answer_hits_nothing() {
    let world = World::new().await;
    let relay = world.start_with(Noting::default(), eager).await;
    world.api.say(ADA, ADA, &slow(12));
    let draft = world
        .until("a draft", |api| api.drafts(ADA).into_iter().next())
        .await;
    world
        .until("the answer", |api| api.answers(ADA).into_iter().next())
        .await;
    world.api.say(ADA, ADA, "sleep=1500 late");
    relay
        .until("the next turn", |status| status.tally.turns_started == 2)
        .await;
    world.api.push_update(json!({
        "stopped_message_generation": {
            "chat": {"id": ADA, "type": "private", "first_name": "Ada"},
            "draft_id": draft.draft_id.to_string(),
        },
    }));
    world.answer(ADA, "echo: late").await;
    assert_eq!(relay.status().await.tally.turns_stopped, 0);
    relay.stop().await;
}

#[tokio::test]
async fn a_stop_while_the_answer_waits_for_a_limit_does_not_stop_the_next_turn() {
    let world = World::new().await;
    let relay = world.start_with(Noting::default(), eager).await;
    world.api.say(ADA, ADA, &slow(12));
    let draft = world
        .until("a draft", |api| api.drafts(ADA).into_iter().next())
        .await;
    let limit = BotApiAnswer::too_many(10);
    world
        .api
        .script(BotApiRule::on("sendMessageDraft", limit).in_chat(ADA).once());
    relay
        .until("the turn ended", |status| status.tally.turns_done == 1)
        .await;
    world.api.say(ADA, ADA, "sleep=2500 next");
    relay
        .until("the next turn", |status| status.turns_running == 1)
        .await;
    assert!(
        world.texts(ADA).is_empty(),
        "the answer waits, the draft is shown"
    );
    world.api.push_update(json!({
        "stopped_message_generation": {
            "chat": {"id": ADA, "type": "private", "first_name": "Ada"},
            "draft_id": draft.draft_id.to_string(),
        },
    }));
    relay
        .until("the stop arrived", |status| status.tally.interrupts == 1)
        .await;
    world.answer(ADA, "echo: next").await;
    let status = relay.status().await;
    assert_eq!((status.tally.turns_stopped, status.tally.turns_done), (0, 2));
    assert!(world.texts(ADA)[0].ends_with("word11"), "{:?}", world.texts(ADA));
    relay.stop().await;
}

#[tokio::test]
async fn an_edit_of_a_growing_text_that_fails_is_not_repeated_and_the_answer_arrives() {
    let world = World::with(BotApiSettings {
        drafts: false,
        ..BotApiSettings::default()
    })
    .await;
    let relay = world.start_with(Noting::default(), eager).await;
    world
        .api
        .script(BotApiRule::on("editMessageText", BotApiAnswer::BadGateway).once());
    world.api.say(ADA, ADA, &slow(24));
    world.answer_ending(ADA, "word23").await;
    let edits = world.calls("editMessageText", ADA);
    let failed = edits
        .iter()
        .position(|edit| edit.status == Some(502))
        .expect("a failed edit");
    let text = edits[failed].text("text");
    assert!(
        edits[failed + 1..].iter().all(|edit| edit.text("text") != text),
        "the same edit came again"
    );
    assert_eq!(world.api.answers(ADA).len(), 1);
    relay.stop().await;
}

#[tokio::test]
async fn the_end_of_a_long_turn_rings_once() {
    let world = World::new().await;
    let agent = crate::support::scripted_agent::ScriptedAgent::new(|turn| async move {
        tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
        turn.events.text("All tests pass.").await;
        hermes_relay::agent::TurnEnd::Completed
    });
    let relay = world
        .start_with(agent, |settings| {
            settings.streaming.mode = hermes_relay::adapter::stream::StreamMode::Off;
            settings.chat.notify_after_secs = 1;
        })
        .await;
    world.api.say(ADA, ADA, "go");
    world.answer(ADA, "Done after 1 s: All tests pass.").await;
    let sent = world.api.calls_of("sendMessage");
    let silent: Vec<bool> = sent
        .iter()
        .map(|call| call.params["disable_notification"] == true)
        .collect();
    assert_eq!(silent, [true, false], "{sent:?}");
    relay.stop().await;
}
