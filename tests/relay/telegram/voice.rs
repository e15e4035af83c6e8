//! Voice messages to a bot of one's own.

use super::{ADA, Noting, World};
use crate::support::dev::{PersonFile, PersonMessage};

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
