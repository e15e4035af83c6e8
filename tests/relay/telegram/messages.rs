//! Private chats: what is said, what is answered, and when Telegram is told that it arrived.

use std::time::{Duration, Instant};

use crate::support::dev::{BotApiAnswer, BotApiRule, BotApiSettings, PersonMessage};
use hermes_relay::config::Settings;
use serde_json::json;

use super::{ADA, BOB, Noting, World, number};
use crate::support::dev::MessageParts as _;

#[tokio::test]
async fn a_private_message_is_answered_in_html_with_a_reply_anchor() {
    let world = World::new().await;
    let relay = world.start().await;
    let asked = world.api.say(ADA, ADA, "**bold** and `code` & <tags>");
    let answer = world.answer(ADA, "echo: bold and code & <tags>").await;
    assert_eq!(
        answer.html,
        "echo: <b>bold</b> and <code>code</code> &amp; &lt;tags&gt;"
    );
    assert_eq!(answer.reply_to, Some(asked));
    let calls = world.calls("sendMessage", ADA);
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].params["parse_mode"], "HTML");
    assert_eq!(
        calls[0].params["reply_parameters"]["allow_sending_without_reply"],
        true
    );
    assert_eq!(
        calls[0].params["disable_notification"],
        json!(null),
        "an answer notifies"
    );
    relay.stop().await;
}

#[tokio::test]
async fn an_update_is_confirmed_only_after_its_commit() {
    let world = World::new().await;
    let relay = world.start().await;
    world.settle("before").await;
    world.confirmed().await;
    // Nobody else can write to the journal while this transaction is open.
    let journal = rusqlite::Connection::open(world.state.path().join("journal.db")).unwrap();
    journal.execute_batch("BEGIN IMMEDIATE").unwrap();
    world.api.forget_calls();
    world.api.say(ADA, ADA, "held");
    let update = world.api.pending_updates()[0]["update_id"].as_i64().unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    let passed = |world: &World| {
        let mut polls = world.api.calls_of("getUpdates");
        polls.retain(|call| number(call, "offset").is_some_and(|offset| offset > update));
        polls
    };
    assert_eq!(passed(&world).len(), 0);
    assert_eq!(world.api.pending_count(), 1);
    let released = Instant::now();
    journal.execute_batch("COMMIT").unwrap();
    world.answer(ADA, "echo: held").await;
    world.confirmed().await;
    assert!(passed(&world)[0].at >= released);
    relay.stop().await;
}

#[tokio::test]
async fn what_came_while_nobody_polled_is_answered_once_also_after_a_restart() {
    let world = World::new().await;
    world.api.say(ADA, ADA, "early");
    let relay = world.start().await;
    world.answer(ADA, "echo: early").await;
    world.confirmed().await;
    relay.stop().await;
    for person in [ADA, BOB] {
        world.api.say(person, person, "while away");
    }
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    world.answer(ADA, "echo: while away").await;
    world.answer(BOB, "echo: while away").await;
    world.confirmed().await;
    assert_eq!(agent.texts(), ["while away", "while away"]);
    relay.stop().await;
}

#[tokio::test]
async fn messages_to_another_bot_are_answered_though_they_have_the_ids_of_those_to_the_first() {
    let bot = |token: &str| BotApiSettings {
        token: token.into(),
        ..BotApiSettings::default()
    };
    let mut world = World::new().await;
    for token in ["5:first", "6:second"] {
        let state = world.state;
        world = World {
            state,
            ..World::with(bot(token)).await
        };
        let relay = world.start().await;
        assert_eq!(world.api.say(ADA, ADA, "hello"), 1);
        world.answer(ADA, "echo: hello").await;
        world.confirmed().await;
        relay.stop().await;
    }
    // What the server delivers again is still known.
    for token in ["5:first", "6:second"] {
        let state = world.state;
        world = World {
            state,
            ..World::with(bot(token)).await
        };
        let relay = world.start().await;
        assert_eq!(world.api.say(ADA, ADA, "hello"), 1);
        world.settle("new").await;
        assert_eq!(world.texts(ADA), ["echo: new"], "{token}");
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_relay_that_ends_polls_no_more_when_all_is_confirmed() {
    let world = World::new().await;
    let relay = world.start().await;
    world.settle("only").await;
    world.confirmed().await;
    let polls = world.api.calls_of("getUpdates").len();
    relay.stop().await;
    assert_eq!(world.api.calls_of("getUpdates").len(), polls);
}

#[tokio::test]
async fn a_message_has_its_author_its_chat_and_what_it_answers() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    world.settle("first").await;
    let first = world.answer(ADA, "echo: first").await;
    world.api.send(
        ADA,
        ADA,
        PersonMessage::text("and this?").answering(first.message_id),
    );
    world.answer(ADA, "echo: and this?").await;
    let (input, _) = &agent.turns(2).await[1];
    assert_eq!(input.author.as_deref(), Some("Ada"));
    assert_eq!(input.author_id.as_deref(), Some("100"));
    assert_eq!(
        (
            input.origin.platform.as_str(),
            input.origin.chat_id.as_str(),
            input.origin.chat_type.as_str()
        ),
        ("telegram", "100", "dm")
    );
    assert_eq!(input.reply_to_text.as_deref(), Some("echo: first"));
    assert_eq!(input.reply_to_author, None, "it is the bot's own");
    relay.stop().await;
}

#[tokio::test]
async fn a_command_for_another_bot_is_ignored_in_private_chats_too() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    world.api.say(ADA, ADA, "/stop@other_bot now");
    world.api.say(ADA, ADA, "/whatever@OTHER_BOT");
    world.settle("after").await;
    assert_eq!(agent.texts(), ["after"]);
    assert_eq!(world.texts(ADA), ["echo: after"]);
    world.confirmed().await;
    relay.stop().await;
}

#[tokio::test]
async fn an_edit_is_no_second_turn() {
    let world = World::new().await;
    let agent = Noting::default();
    let everything = |settings: &mut Settings| {
        let bot = settings.direct.telegram.as_mut().unwrap();
        bot.allowed_updates.push("edited_message".to_owned());
    };
    let relay = world.start_with(agent.clone(), everything).await;
    let asked = world.api.say(ADA, ADA, "hello");
    world.answer(ADA, "echo: hello").await;
    world.api.edit(ADA, asked, "hello again");
    world.settle("after").await;
    assert_eq!(agent.texts(), ["hello", "after"]);
    world.confirmed().await;
    relay.stop().await;
}

#[tokio::test]
async fn a_long_answer_comes_in_parts_and_whole() {
    let world = World::new().await;
    let relay = world.start().await;
    world.api.say(ADA, ADA, "long=9000 x");
    let parts = world
        .until("9000 characters", |api| {
            let answers = api.answers(ADA);
            let length: usize = answers.iter().map(|answer| answer.text.chars().count()).sum();
            (length >= 8_900).then_some(answers)
        })
        .await;
    assert!(parts.len() >= 3, "{}", parts.len());
    assert!(parts.iter().all(|part| part.text.encode_utf16().count() <= 4096));
    relay.stop().await;
}

#[tokio::test]
async fn a_chat_that_wrote_before_can_be_written_to() {
    let world = World::new().await;
    let relay = world.start().await;
    world.settle("hello").await;
    relay.handle.send("100", "*The backup* is done.").await.unwrap();
    let sent = world.answer(ADA, "The backup is done.").await;
    assert_eq!(
        (sent.reply_to, sent.html.as_str()),
        (None, "<i>The backup</i> is done.")
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_silent_message_rings_nobody() {
    let world = World::new().await;
    let relay = world.start().await;
    world.settle("hello").await;
    relay.handle.send("100", "Loud.").await.unwrap();
    world.answer(ADA, "Loud.").await;
    relay.handle.send_silently(None, "100", "Quiet.").await.unwrap();
    world.answer(ADA, "Quiet.").await;
    let calls = world.api.calls_of("sendMessage").into_iter();
    let silent: Vec<bool> = calls
        .map(|call| call.params["disable_notification"] == true)
        .collect();
    assert!(silent.ends_with(&[false, true]), "{silent:?}");
    relay.stop().await;
}

#[tokio::test]
async fn what_the_journal_could_not_hold_is_taken_once_it_can() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    world.settle("before").await;
    world.confirmed().await;
    let journal = rusqlite::Connection::open(world.state.path().join("journal.db")).unwrap();
    journal.execute_batch("BEGIN IMMEDIATE").unwrap();
    world.api.say(ADA, ADA, "held");
    relay
        .until("a journal that fails", |status| status.journal_failing.is_some())
        .await;
    assert_eq!(world.api.pending_count(), 1);
    journal.execute_batch("COMMIT").unwrap();
    world.answer(ADA, "echo: held").await;
    world.confirmed().await;
    assert_eq!(agent.texts(), ["before", "held"]);
    relay.stop().await;
}

#[tokio::test]
async fn a_menu_that_telegram_did_not_take_is_sent_again() {
    let world = World::new().await;
    for fate in [BotApiAnswer::BadGateway, BotApiAnswer::too_many(1)] {
        world.api.script(BotApiRule::on("setMyCommands", fate).once());
    }
    let relay = world.start().await;
    world
        .until("the menu", |api| {
            (api.calls_of("setMyCommands").len() == 3).then_some(())
        })
        .await;
    world.settle("after").await;
    relay.stop().await;
    assert_eq!(world.api.calls_of("setMyCommands").len(), 3);
}

#[tokio::test]
async fn stop_as_a_command_stops_the_turn_and_the_menu_offers_it() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    world.api.say(ADA, ADA, "sleep=60000 never");
    agent.turns(1).await;
    world.api.say(ADA, ADA, "/stop@Relay_Dev_Bot");
    relay
        .until("the turn stopped", |status| status.tally.turns_stopped == 1)
        .await;
    world.settle("after").await;
    assert_eq!(agent.texts().len(), 2);
    // Nobody else runs turns of this bot.
    world.api.say(ADA, ADA, "/stop");
    world.answer(ADA, "Nothing is running.").await;
    let menus = world.api.calls_of("setMyCommands");
    assert_eq!(menus.len(), 1);
    assert!(
        menus[0].params["commands"].to_string().contains("\"stop\""),
        "{menus:?}"
    );
    relay.stop().await;
}
