//! Voice messages to a bot of one's own.

use hermes_relay::agent::EchoAgent;
use hermes_relay::config::{Settings, SpeakConfig};

use super::{ADA, Noting, World};
use crate::support::dev::{BotApiAnswer, BotApiRule, PersonFile, PersonMessage, SeenFile};
use crate::support::http_stub::{Stub, reply};
use crate::support::wait::eventually;

#[tokio::test]
async fn a_voice_message_to_the_bot_is_its_transcript() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world
        .start_with(agent.clone(), |settings| {
            let argv = [
                "/bin/sh",
                "-c",
                "grep -q OggS \"$1\" && echo 'what time is it?'",
                "sh",
            ];
            settings.transcribe.argv = argv.map(str::to_owned).into();
        })
        .await;
    let voice = PersonFile::new("voice", "", *b"OggS voice");
    world.api.send(ADA, ADA, PersonMessage::file(voice, ""));
    world.answer(ADA, "🎤 what time is it?").await;
    world.answer(ADA, "echo: what time is it?").await;
    let (input, files) = &agent.turns(1).await[0];
    assert!(files.is_empty() && input.attachments.is_empty(), "{input:?}");
    relay.stop().await;
}

/// The files that Ada got.
fn files(world: &World) -> Vec<SeenFile> {
    let answers = world.api.answers(ADA).into_iter();
    answers.filter_map(|answer| answer.file).collect()
}

#[tokio::test]
async fn answers_come_as_voice_messages_also_after_a_restart() {
    let voice = Stub::start(|_| reply(200, &b"OggS a voice"[..])).await;
    let speak = SpeakConfig {
        base_url: Some(voice.url("/v1")),
        ..SpeakConfig::default()
    };
    let adjust = |settings: &mut Settings| settings.speak = speak.clone();
    let world = World::new().await;
    let relay = world.start_with(EchoAgent, adjust).await;
    world.api.say(ADA, ADA, "/voice on");
    world
        .answer(ADA, "Answers come as voice messages, too, from now on.")
        .await;
    relay.stop().await;
    let relay = world.start_with(EchoAgent, adjust).await;
    world.api.say(ADA, ADA, "hello");
    world.answer(ADA, "echo: hello").await;
    eventually("the voice message", async || !files(&world).is_empty()).await;
    assert_eq!(world.api.calls_of("sendVoice").len(), 1);
    // People can forbid voice messages: it comes as a file.
    world.api.script(BotApiRule::on(
        "sendVoice",
        BotApiAnswer::refuse(400, "Bad Request: VOICE_MESSAGES_FORBIDDEN"),
    ));
    world.api.say(ADA, ADA, "again");
    world.answer(ADA, "echo: again").await;
    eventually("the file", async || files(&world).len() == 2).await;
    assert_eq!(world.api.calls_of("sendDocument").len(), 1);
    relay.stop().await;
}
