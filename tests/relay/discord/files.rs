//! Files of a Discord bot: voice messages and albums.

use serde_json::json;

use super::{answered, setup, started};
use crate::support::discord::FakeDiscord;
use crate::support::http_stub::{Stub, reply};
use crate::support::wait::eventually;

/// An Ogg Opus file that states its length: three seconds.
const THREE_SECONDS: &[u8] = b"OggS\0\x02\0\0\0\0\0\0\0\0OpusHead OggS\0\x04\x00\x32\x02\0\0\0\0\0";

#[tokio::test]
async fn answers_come_as_voice_messages_also_after_a_restart() {
    let voice = Stub::start(|_| reply(200, THREE_SECONDS)).await;
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake).setting("speak.base_url", &voice.url("/v1"));
    let mut relay = started(&setup).await;
    fake.say("/voice on");
    answered(&fake, "Answers come as voice messages, too, from now on.").await;
    relay.kill().await;
    let relay = started(&setup).await;
    fake.say("hello");
    answered(&fake, "echo: hello").await;
    eventually("the voice message", async || fake.uploads().len() == 1).await;
    let message = fake.sent().pop().unwrap();
    assert_eq!((&message["flags"], message.get("content")), (&json!(8192), None));
    let attachment = &message["attachments"][0];
    assert_eq!(
        (&attachment["filename"], &attachment["duration_secs"]),
        (&json!("answer.ogg"), &json!(3))
    );
    assert!(attachment["waveform"].is_string(), "{attachment}");
    // Where voice messages are not allowed, it is a file.
    fake.allow(10, false);
    fake.say("again");
    answered(&fake, "echo: again").await;
    eventually("the file", async || fake.uploads().len() == 2).await;
    assert_eq!(fake.refused().len(), 1);
    let message = fake.sent().pop().unwrap();
    assert_eq!((&message["flags"], &message["content"]), (&json!(4), &json!("")));
    assert!(message["attachments"][0].get("waveform").is_none(), "{message}");
    relay.stop().await;
}

#[tokio::test]
async fn a_file_that_is_refused_becomes_a_text() {
    let fake = FakeDiscord::start().await;
    let work = tempfile::tempdir().unwrap();
    std::fs::write(work.path().join("notes.txt"), "some notes").unwrap();
    let agent = format!("{{kind: echo, workdir: \"{}\"}}", work.path().display());
    let setup = setup(&fake)
        .setting("agents.filer", &agent)
        .args(&["run", "--agent", "filer"]);
    let relay = started(&setup).await;
    fake.allow(0, true);
    fake.say("media=notes.txt here");
    eventually("the text in its place", async || {
        let answers = fake.answers();
        answers.iter().any(|answer| answer.contains("notes.txt"))
    })
    .await;
    assert_eq!((fake.refused().len(), fake.uploads().len()), (1, 0));
    relay.stop().await;
}

#[tokio::test]
async fn several_files_are_one_message_or_come_one_after_the_other() {
    let fake = FakeDiscord::start().await;
    let work = tempfile::tempdir().unwrap();
    for name in ["a.txt", "b.txt", "c.txt"] {
        std::fs::write(work.path().join(name), name).unwrap();
    }
    let agent = format!("{{kind: echo, workdir: \"{}\"}}", work.path().display());
    let setup = setup(&fake)
        .setting("agents.filer", &agent)
        .args(&["run", "--agent", "filer"]);
    let relay = started(&setup).await;
    fake.say("media=a.txt media=b.txt media=c.txt here");
    answered(&fake, "echo: here").await;
    eventually("the files", async || fake.uploads().len() == 3).await;
    let with_files = |message: &serde_json::Value| message["attachments"].as_array().map(Vec::len);
    let albums: Vec<usize> = fake.sent().iter().filter_map(with_files).collect();
    assert_eq!(albums, [3]);
    fake.allow(1, true);
    fake.say("media=a.txt media=b.txt again");
    answered(&fake, "echo: again").await;
    eventually("the files, one after the other", async || {
        fake.uploads().len() == 5
    })
    .await;
    let albums: Vec<usize> = fake.sent().iter().filter_map(with_files).collect();
    assert_eq!(albums, [3, 1, 1]);
    assert_eq!(fake.refused().len(), 1);
    let outgoing = setup.state_dir().join("media/outgoing");
    eventually("the copies are gone", async || {
        std::fs::read_dir(&outgoing).unwrap().count() == 0
    })
    .await;
    relay.stop().await;
}
