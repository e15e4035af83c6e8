//! Groups, forums and channels: what is for the agent, and where its answers go.

use crate::support::dev::PersonMessage;
use hermes_relay::config::TelegramConfig;

use super::{ADA, BOB, CHANNEL, FORUM, GROUP, Noting, OTHER_BOT, SUPERGROUP, World, number};
use crate::support::dev::MessageParts as _;

fn bot(settings: &mut hermes_relay::config::Settings) -> &mut TelegramConfig {
    settings.direct.telegram.as_mut().unwrap()
}

#[tokio::test]
async fn in_a_group_a_mention_an_answer_and_a_command_count_and_chatter_does_not() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    let api = &world.api;
    api.say(GROUP, BOB, "just chatting");
    api.say(GROUP, BOB, "@relay_dev_botany is somebody else");
    api.say(GROUP, BOB, "\u{1f600} hey @Relay_Dev_Bot, hello");
    let answer = api
        .wait_for_answer(GROUP, "an answer to the mention", super::SOON, |seen| {
            seen.text.starts_with("echo:") && seen.text.contains("hello")
        })
        .await
        .unwrap();
    assert!(answer.reply_to.is_some());
    api.say(GROUP, BOB, "more chatter");
    api.send(
        GROUP,
        ADA,
        PersonMessage::text("what is this?").answering(answer.message_id),
    );
    world.answer(GROUP, "echo: what is this?").await;
    api.say(GROUP, BOB, "/ask@relay_dev_bot something");
    world
        .until("the command answered", |api| {
            (api.answers(GROUP).len() == 3).then_some(())
        })
        .await;
    api.say(GROUP, BOB, "/ask@other_bot something");
    world.settle("after").await;
    let texts = agent.texts();
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert!(
        texts[2].starts_with("/ask") && !texts[2].contains('@'),
        "{texts:?}"
    );
    assert_eq!(world.texts(GROUP).len(), 3);
    let origins: Vec<_> = agent
        .inputs()
        .iter()
        .map(|(input, _)| input.origin.chat_type.clone())
        .collect();
    assert_eq!(origins, ["group", "group", "group", "dm"]);
    world.confirmed().await;
    relay.stop().await;
}

#[tokio::test]
async fn the_agent_gets_the_last_messages_of_a_group_when_it_is_called() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world
        .start_with(agent.clone(), |settings| settings.chat.group_context = 2)
        .await;
    let api = &world.api;
    for text in ["first", "second", "third"] {
        api.say(GROUP, BOB, text);
    }
    api.say(GROUP, ADA, "@relay_dev_bot what do you think?");
    world
        .until("an answer", |api| (api.answers(GROUP).len() == 1).then_some(()))
        .await;
    api.say(GROUP, ADA, "@relay_dev_bot and now?");
    world
        .until("another answer", |api| {
            (api.answers(GROUP).len() == 2).then_some(())
        })
        .await;
    let contexts: Vec<String> = agent
        .inputs()
        .iter()
        .map(|(input, _)| input.channel_context.clone().unwrap_or_default())
        .collect();
    assert!(!contexts[0].contains("first"), "{contexts:?}");
    assert!(contexts[0].contains("second") && contexts[0].contains("third"));
    assert_eq!(contexts[1], "", "each is given once");
    relay.stop().await;
}

#[tokio::test]
async fn without_require_mention_everything_in_groups_counts_but_what_is_meant_for_others() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world
        .start_with(agent.clone(), |settings| bot(settings).require_mention = false)
        .await;
    world.api.say(GROUP, BOB, "just chatting");
    world.answer(GROUP, "echo: just chatting").await;
    world.api.say(GROUP, BOB, "/go@other_bot");
    world.api.say(GROUP, OTHER_BOT, "I am a bot");
    world.settle("after").await;
    assert_eq!(agent.texts(), ["just chatting", "after"]);
    relay.stop().await;
}

#[tokio::test]
async fn in_free_chats_and_topics_no_mention_is_needed() {
    let world = World::new().await;
    let agent = Noting::default();
    let topic = world.api.open_topic(FORUM, ADA, "Free");
    let other = world.api.open_topic(FORUM, ADA, "Busy");
    world.api.forget_updates();
    let relay = world
        .start_with(agent.clone(), |settings| {
            bot(settings).free_chats =
                vec![GROUP.to_string(), format!("{FORUM}:{topic}"), CHANNEL.to_string()];
        })
        .await;
    world.api.say(GROUP, BOB, "free here");
    world.answer(GROUP, "echo: free here").await;
    world.api.say(SUPERGROUP, BOB, "not here");
    world.api.send(
        FORUM,
        BOB,
        PersonMessage::text("not in this topic").in_topic(other),
    );
    world
        .api
        .send(FORUM, BOB, PersonMessage::text("in this topic").in_topic(topic));
    world.answer(FORUM, "echo: in this topic").await;
    world.api.say(CHANNEL, 0, "a post");
    world.answer(CHANNEL, "echo: a post").await;
    world.settle("after").await;
    assert_eq!(agent.texts(), ["free here", "in this topic", "a post", "after"]);
    relay.stop().await;
}

#[tokio::test]
async fn other_bots_count_only_where_they_are_allowed_and_mention_this_one() {
    for allowed in [false, true] {
        let world = World::new().await;
        let agent = Noting::default();
        let relay = world
            .start_with(agent.clone(), |settings| bot(settings).allow_bots = allowed)
            .await;
        world.api.say(GROUP, OTHER_BOT, "I say something");
        world.api.say(GROUP, OTHER_BOT, "@relay_dev_bot and to you");
        world.settle("after").await;
        if allowed {
            agent.turns(2).await;
        }
        assert_eq!(
            agent.texts().len(),
            if allowed { 2 } else { 1 },
            "{:?}",
            agent.texts()
        );
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_topic_is_a_thread_of_a_forum_and_its_answers_stay_in_it() {
    let world = World::new().await;
    let agent = Noting::default();
    let topic = world.api.open_topic(FORUM, ADA, "Plans");
    let relay = world.start_with(agent.clone(), |_| {}).await;
    let asked = PersonMessage::text("@relay_dev_bot in the topic").in_topic(topic);
    world.api.send(FORUM, ADA, asked);
    let answer = world
        .until("an answer", |api| api.answers(FORUM).into_iter().next_back())
        .await;
    assert_eq!(answer.thread_id, Some(topic));
    let (input, _) = &agent.turns(1).await[0];
    assert_eq!(input.origin.chat_type, "forum");
    assert_eq!(
        input.origin.thread_id.as_deref(),
        Some(topic.to_string().as_str())
    );
    let send = &world.calls("sendMessage", FORUM)[0];
    assert_eq!(number(send, "message_thread_id"), Some(topic));
    // A plain message in a topic seems to answer the topic's first message, and is still only chatter.
    world
        .api
        .send(FORUM, BOB, PersonMessage::text("chatter").in_topic(topic));
    world.settle("after").await;
    assert_eq!(agent.texts().len(), 2, "{:?}", agent.texts());
    relay.stop().await;
}

#[tokio::test]
async fn general_is_thread_1_coming_in_and_no_thread_going_out() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    world.api.say(FORUM, ADA, "@relay_dev_bot in General");
    let answer = world
        .until("an answer", |api| api.answers(FORUM).into_iter().next_back())
        .await;
    assert_eq!(answer.thread_id, None);
    let (input, _) = &agent.turns(1).await[0];
    assert_eq!(
        (input.origin.chat_type.as_str(), input.origin.thread_id.as_deref()),
        ("forum", Some("1"))
    );
    let sent = world.calls("sendMessage", FORUM);
    assert_eq!(sent.len(), 1, "at the first attempt");
    assert_eq!(number(&sent[0], "message_thread_id"), None);
    for action in world.calls("sendChatAction", FORUM) {
        assert!(action.is_ok(), "{action:?}");
    }
    relay.stop().await;
}

#[tokio::test]
async fn an_anonymous_administrator_is_the_group_not_a_person() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    let hidden = PersonMessage {
        is_anonymous: true,
        ..PersonMessage::text("@relay_dev_bot who am I?")
    };
    world.api.send(SUPERGROUP, ADA, hidden);
    world
        .until("an answer", |api| api.answers(SUPERGROUP).into_iter().next())
        .await;
    let (input, _) = &agent.turns(1).await[0];
    assert_eq!(input.author_id.as_deref(), Some(SUPERGROUP.to_string().as_str()));
    relay.stop().await;
}
