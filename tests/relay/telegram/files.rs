//! Files both ways: what the agent gets to see, and what the chat does.

use std::sync::Arc;

use crate::support::dev::{BotApiAnswer, BotApiRule, PersonFile, PersonMessage, SeenFile};
use hermes_relay::agent::{AgentEvent, EchoAgent, Media, MediaLocation, TurnEnd};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::{ADA, Noting, World};
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::wait::eventually;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";

/// Sends a file for each word of the message.
fn sending() -> ScriptedAgent {
    ScriptedAgent::new(|turn| async move {
        for name in turn.input.text.split_whitespace() {
            let media = Media {
                location: MediaLocation::File(name.into()),
                caption: format!("this is {name}"),
                kind: None,
                name: None,
            };
            turn.events.emit(AgentEvent::Media(media)).await;
        }
        turn.events.text("that is all").await;
        TurnEnd::Completed
    })
}

/// The files that the bot sent.
fn sent(world: &World) -> Vec<SeenFile> {
    let answers = world.api.answers(ADA).into_iter();
    answers.filter_map(|answer| answer.file).collect()
}

#[tokio::test]
async fn files_come_from_the_api_without_being_listed_as_allowed_hosts() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world
        .start_with(agent.clone(), |settings| {
            assert!(settings.media.allow_hosts.is_empty());
        })
        .await;
    let document = PersonFile::new("document", "report of March.pdf", *b"%PDF-1.7 report");
    world
        .api
        .send(ADA, ADA, PersonMessage::file(document, "read this"));
    world.answer(ADA, "echo: read this").await;
    let voice = PersonFile::new("voice", "", *b"OggS voice");
    world.api.send(ADA, ADA, PersonMessage::file(voice, ""));
    let photo = PersonFile::new("photo", "p.jpg", *b"\xff\xd8\xff\xe0 photo");
    world.api.send(ADA, ADA, PersonMessage::file(photo, ""));
    let inputs = agent.turns(3).await;
    let names: Vec<&str> = inputs
        .iter()
        .map(|(input, _)| input.attachments[0].name.as_str())
        .collect();
    assert_eq!(names[0], "report of March.pdf");
    let bytes: Vec<&[u8]> = inputs.iter().map(|(_, files)| files[0].as_slice()).collect();
    assert_eq!(
        bytes,
        [
            b"%PDF-1.7 report".as_slice(),
            b"OggS voice",
            b"\xff\xd8\xff\xe0 photo"
        ]
    );
    assert_eq!(inputs[1].0.attachments[0].mime, "audio/ogg");
    let shown = format!("{inputs:?}");
    assert!(!shown.contains(world.api.token().expose_secret()), "{shown}");
    assert!(!shown.contains("/bot"), "no address of the API: {shown}");
    world.confirmed().await;
    relay.stop().await;
}

#[tokio::test]
async fn a_file_beyond_the_limit_still_starts_the_turn_with_a_note() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    let large = PersonFile {
        stated_size: Some(48 * 1024 * 1024),
        ..PersonFile::new("document", "film.mkv", *b"x")
    };
    world.api.send(ADA, ADA, PersonMessage::file(large, "watch this"));
    let (input, _) = &agent.turns(1).await[0];
    assert!(input.attachments.is_empty());
    assert!(
        input.text.starts_with("watch this")
            && input.text.contains("film.mkv")
            && input.text.contains("too large"),
        "{input:?}"
    );
    assert!(world.api.calls_of("getFile").is_empty());
    // What the server itself refuses to hand out is a note, too.
    world.api.script(BotApiRule::on(
        "getFile",
        BotApiAnswer::refuse(400, "Bad Request: file is too big"),
    ));
    let refused = PersonFile::new("document", "other.bin", *b"x");
    world.api.send(ADA, ADA, PersonMessage::file(refused, "and this"));
    let (input, files) = &agent.turns(2).await[1];
    assert_eq!((input.text.as_str(), files.len()), ("and this", 0));
    assert_eq!(input.notes.len(), 1, "{input:?}");
    assert!(!input.notes[0].contains(world.api.token().expose_secret()));
    relay.stop().await;
}

#[tokio::test]
async fn documents_and_photos_of_the_agent_are_uploaded_with_their_names_and_captions() {
    let world = World::new().await;
    std::fs::write(world.work.path().join("notes.txt"), "some notes").unwrap();
    std::fs::write(world.work.path().join("chart.png"), PNG).unwrap();
    let relay = world.start_with(sending(), |_| {}).await;
    world.api.say(ADA, ADA, "notes.txt chart.png");
    world.answer(ADA, "that is all").await;
    let files = sent(&world);
    assert_eq!(files.len(), 2, "{files:?}");
    assert_eq!(
        (files[0].kind.as_str(), files[0].name.as_deref()),
        ("document", Some("notes.txt"))
    );
    assert_eq!(files[0].bytes, b"some notes");
    assert_eq!(
        (files[1].kind.as_str(), files[1].bytes.as_slice()),
        ("photo", PNG)
    );
    let texts = world.texts(ADA);
    assert!(texts.contains(&"this is notes.txt".to_owned()), "{texts:?}");
    let outgoing = world.state.path().join("media/outgoing");
    eventually("the copies are gone", async || {
        std::fs::read_dir(&outgoing).unwrap().count() == 0
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_file_outside_of_the_workdir_is_not_sent() {
    let world = World::new().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("secret.txt");
    std::fs::write(&path, "secret").unwrap();
    let relay = world.start_with(sending(), |_| {}).await;
    world.api.say(ADA, ADA, &path.display().to_string());
    world.answer(ADA, "that is all").await;
    assert!(sent(&world).is_empty());
    relay.stop().await;
}

#[tokio::test]
async fn a_photo_that_telegram_cannot_show_goes_out_as_a_document() {
    let world = World::new().await;
    std::fs::write(world.work.path().join("wide.png"), PNG).unwrap();
    world.api.script(BotApiRule::on(
        "sendPhoto",
        BotApiAnswer::refuse(400, "Bad Request: PHOTO_INVALID_DIMENSIONS"),
    ));
    let relay = world.start_with(sending(), |_| {}).await;
    world.api.say(ADA, ADA, "wide.png");
    world.answer(ADA, "that is all").await;
    let files = sent(&world);
    assert_eq!(files.len(), 1);
    assert_eq!(
        (files[0].kind.as_str(), files[0].bytes.as_slice()),
        ("document", PNG)
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_file_that_was_not_uploaded_before_a_crash_is_uploaded_after_it() {
    let world = World::new().await;
    let work = world.work.path().to_owned();
    std::fs::write(work.join("notes.txt"), "some notes").unwrap();
    world
        .api
        .script(BotApiRule::on("sendDocument", BotApiAnswer::too_many(60)));
    let relay = world.start_with(sending(), |_| {}).await;
    world.api.say(ADA, ADA, "notes.txt");
    relay
        .until("an upload that has to wait", |status| {
            status.tally.ops_limited == 1
        })
        .await;
    world.confirmed().await;
    relay.crash().await;
    // What was sent is what the file was then.
    std::fs::remove_file(work.join("notes.txt")).unwrap();
    world.api.clear_script();
    let relay = world.start_with(EchoAgent, |_| {}).await;
    let file = world
        .until("the file", |api| {
            api.answers(ADA).into_iter().find_map(|answer| answer.file)
        })
        .await;
    assert_eq!(
        (file.name.as_deref(), file.bytes.as_slice()),
        (Some("notes.txt"), b"some notes".as_slice())
    );
    relay.stop().await;
}

#[tokio::test]
async fn an_upload_of_unknown_outcome_is_sent_again() {
    let world = World::new().await;
    world
        .api
        .script(BotApiRule::on("sendDocument", BotApiAnswer::BadGateway).once());
    let file = Arc::new(world.work.path().join("x.txt"));
    let agent = ScriptedAgent::sharing(&file, |turn, file| async move {
        std::fs::write(&*file, "one").unwrap();
        let media = Media {
            location: MediaLocation::File(file.to_path_buf()),
            caption: String::new(),
            kind: None,
            name: Some("named.txt".to_owned()),
        };
        turn.events.emit(AgentEvent::Media(media)).await;
        turn.events.text("done").await;
        TurnEnd::Completed
    });
    let relay = world.start_with(agent, |_| {}).await;
    world.api.say(ADA, ADA, "go");
    world.answer(ADA, "done").await;
    let files = sent(&world);
    assert_eq!(files.len(), 1);
    assert_eq!(
        (files[0].name.as_deref(), files[0].bytes.as_slice()),
        (Some("named.txt"), b"one".as_slice())
    );
    assert_eq!(world.api.calls_of("sendDocument").len(), 2);
    relay.stop().await;
}

/// Sends a file without a caption for each word of the message.
fn sending_silently() -> ScriptedAgent {
    ScriptedAgent::new(|turn| async move {
        for name in turn.input.text.split_whitespace() {
            let media = Media {
                location: MediaLocation::File(name.into()),
                caption: if name == "a.png" {
                    "look".to_owned()
                } else {
                    String::new()
                },
                kind: None,
                name: None,
            };
            turn.events.emit(AgentEvent::Media(media)).await;
        }
        turn.events.text("that is all").await;
        TurnEnd::Completed
    })
}

#[tokio::test]
async fn several_files_of_an_answer_are_one_album_as_far_as_telegram_mixes_them() {
    let world = World::new().await;
    for name in ["a.png", "b.png", "c.txt", "d.txt", "e.png"] {
        std::fs::write(world.work.path().join(name), PNG).unwrap();
    }
    let relay = world.start_with(sending_silently(), |_| {}).await;
    world.api.say(ADA, ADA, "a.png b.png c.txt d.txt e.png");
    world.answer(ADA, "that is all").await;
    eventually("the files", async || sent(&world).len() == 5).await;
    let albums = world.api.calls_of("sendMediaGroup").into_iter();
    let albums: Vec<Value> = albums
        .map(|call| serde_json::from_str(call.params["media"].as_str().unwrap()).unwrap())
        .collect();
    let kinds: Vec<Vec<&str>> = albums
        .iter()
        .map(|media| {
            let media = media.as_array().unwrap().iter();
            media.map(|item| item["type"].as_str().unwrap()).collect()
        })
        .collect();
    assert_eq!(kinds, [["photo", "photo"], ["document", "document"]]);
    let first = &albums[0];
    assert_eq!(
        (&first[0]["caption"], first[1].get("caption")),
        (&"look".into(), None)
    );
    assert_eq!(world.api.calls_of("sendPhoto").len(), 1);
    let outgoing = world.state.path().join("media/outgoing");
    eventually("the copies are gone", async || {
        std::fs::read_dir(&outgoing).unwrap().count() == 0
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn an_album_that_is_refused_comes_one_by_one_and_each_file_once() {
    let world = World::new().await;
    for name in ["a.png", "b.png", "c.png"] {
        std::fs::write(world.work.path().join(name), PNG).unwrap();
    }
    let refuse = |method: &str, why: &str| BotApiRule::on(method, BotApiAnswer::refuse(400, why));
    world
        .api
        .script(refuse("sendMediaGroup", "Bad Request: wrong file"));
    // The first of them is refused alone, too, and the second has to wait.
    world
        .api
        .script(refuse("sendPhoto", "Bad Request: wrong file").once());
    world
        .api
        .script(BotApiRule::on("sendPhoto", BotApiAnswer::too_many(1)).once());
    let relay = world.start_with(sending_silently(), |_| {}).await;
    world.api.say(ADA, ADA, "a.png b.png c.png");
    world.answer(ADA, "look\n(could not deliver a.png)").await;
    eventually("the other files", async || sent(&world).len() == 2).await;
    world.answer(ADA, "that is all").await;
    assert_eq!(world.api.calls_of("sendMediaGroup").len(), 1);
    let mut texts = world.texts(ADA);
    texts.sort();
    assert_eq!(texts, ["", "", "look\n(could not deliver a.png)", "that is all"]);
    relay.stop().await;
}
