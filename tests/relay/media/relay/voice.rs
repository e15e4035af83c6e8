//! Voice messages through the embedded connector: what the agent gets instead of a recording, and what the chat is told.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use hermes_relay::config::{Settings, SpeakConfig, TranscribeConfig};
use hermes_relay::relay::{BuildError, Relay};
use hermes_relay::wire::Action;

use serde_json::json;
use std::path::Path;

use super::{Running, next, reader};
use crate::support::dev::Connector;
use crate::support::http_stub::{Stub, json_reply, reply};
use crate::support::wait::SOON;

const VOICE: &[u8] = b"OggS a recording";

/// Transcribes with this shell script; `$1` is the file.
fn script(script: &str) -> impl FnOnce(&mut Settings) + use<> {
    let argv = ["/bin/sh", "-c", script, "sh"].map(str::to_owned).into();
    move |settings: &mut Settings| settings.transcribe.argv = argv
}

/// An Ogg Opus file that states its length.
fn recording_of(secs: u64) -> Vec<u8> {
    let mut file = b"OggS\0\x02\0\0\0\0\0\0\0\0OpusHead OggS\0\x04".to_vec();
    file.extend((secs * 48_000).to_le_bytes());
    file
}

#[tokio::test]
async fn a_voice_message_is_its_transcript() {
    let api = Stub::start(|_| json_reply(200, &serde_json::json!({"text": " turn on the lamp\n"}))).await;
    let (agent, mut given) = reader();
    let relay = Running::start("discord", agent, |settings| {
        settings.transcribe = TranscribeConfig {
            base_url: Some(api.url("/v1/")),
            language: Some("de".to_owned()),
            ..TranscribeConfig::default()
        };
    })
    .await;
    let url = relay
        .connector
        .put_media("audio/ogg", Some("voice.ogg"), VOICE.to_vec());
    relay.deliver("a", "1", "", &[(&url, "audio/ogg")]);
    let (input, files) = next(&mut given).await;
    assert_eq!(input.text, "turn on the lamp");
    assert!(files.is_empty() && input.attachments.is_empty(), "{input:?}");
    assert!(input.notes[0].contains("transcript"), "{input:?}");
    let told = relay.replies("a", 2).await;
    let told: Vec<&str> = told.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(told, ["🎤 turn on the lamp", "read turn on the lamp"]);

    let asked = api.only();
    assert_eq!(
        (asked.method.as_str(), asked.path()),
        ("POST", "/v1/audio/transcriptions")
    );
    for part in [
        "name=\"model\"",
        "whisper-1",
        "name=\"language\"",
        "filename=\"voice.ogg\"",
        "OggS a recording",
    ] {
        assert!(asked.body.contains(part), "{part} in {}", asked.body);
    }
    assert_eq!(asked.header("authorization"), None);
    relay.stop().await;
}

#[tokio::test]
async fn a_recording_with_a_caption_stays_and_is_followed_by_its_transcript() {
    let (agent, mut given) = reader();
    let relay = Running::start("discord", agent, |settings| {
        script("cat \"$1\"")(settings);
        settings.transcribe.show = false;
    })
    .await;
    let url = relay
        .connector
        .put_media("audio/mpeg", Some("talk.mp3"), b"forty words".to_vec());
    let picture = relay
        .connector
        .put_media("image/png", Some("cat.png"), vec![1; 10]);
    relay.deliver(
        "a",
        "1",
        "sum it up",
        &[(&url, "audio/mpeg"), (&picture, "image/png")],
    );
    let (input, files) = next(&mut given).await;
    assert_eq!(
        input.text,
        "sum it up\n\nTranscript of the attached recording:\nforty words"
    );
    assert_eq!(files, [b"forty words".to_vec(), vec![1; 10]]);
    let (_, answer) = &relay.replies("a", 1).await[0];
    assert!(
        answer.starts_with("read sum it up"),
        "nothing is shown before: {answer}"
    );
    relay.stop().await;
}

#[tokio::test]
async fn what_cannot_be_transcribed_is_told_and_reaches_the_agent_as_a_file() {
    let failing = "echo the model is missing >&2; exit 3";
    let cases = [
        (failing, VOICE.to_vec(), "the transcription failed"),
        ("true", VOICE.to_vec(), "no words were recognised"),
        (
            "sleep 60",
            VOICE.to_vec(),
            "the transcription took longer than 1 s",
        ),
        (
            "echo unheard",
            recording_of(601),
            "the recording is longer than 600 s",
        ),
    ];
    for (command, bytes, reason) in cases {
        let (agent, mut given) = reader();
        let relay = Running::start("discord", agent, |settings| {
            script(command)(settings);
            settings.transcribe.timeout_secs = 1;
        })
        .await;
        let url = relay
            .connector
            .put_media("audio/ogg", Some("voice.ogg"), bytes.clone());
        relay.deliver("a", "1", "", &[(&url, "audio/ogg")]);
        let (input, files) = next(&mut given).await;
        assert_eq!((input.text.as_str(), files), ("", vec![bytes]), "{reason}");
        assert!(input.notes[0].contains("could not be transcribed"), "{input:?}");
        let (_, told) = &relay.replies("a", 1).await[0];
        assert_eq!(*told, format!("I could not transcribe this recording: {reason}."));
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_recording_that_cannot_be_downloaded_is_told() {
    let (agent, mut given) = reader();
    let relay = Running::start("discord", agent, script("echo unheard")).await;
    let gone = format!("{}/relay/media/{:032x}", relay.connector.http_base(), 999);
    relay.deliver("a", "1", "", &[(&gone, "audio/ogg")]);
    assert_eq!(next(&mut given).await.0.text, "");
    let (_, told) = &relay.replies("a", 1).await[0];
    assert_eq!(
        told,
        "I could not transcribe this recording: the recording could not be downloaded."
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_slow_transcription_holds_up_nobody_else_and_ends_with_its_turn() {
    let (agent, mut given) = reader();
    let relay = Running::start("discord", agent, script("sleep 600")).await;
    let url = relay
        .connector
        .put_media("audio/ogg", Some("voice.ogg"), VOICE.to_vec());
    relay.deliver("slow", "1", "", &[(&url, "audio/ogg")]);
    relay.wait_for_turns(1).await;
    relay.deliver("other", "2", "hi", &[]);
    assert_eq!(relay.replies("other", 1).await, [("send", "read hi".to_owned())]);
    assert_eq!(next(&mut given).await.0.text, "hi");
    relay.connector.interrupt("agent:main:discord:dm:slow", "slow");
    relay.wait_for_turns(0).await;
    assert!(given.try_recv().is_err(), "the agent of a stopped turn ran");
    relay.stop().await;
}

/// Speaks with this shell script.
fn speaking(script: &str) -> impl FnOnce(&mut Settings) + use<> {
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).into();
    move |settings: &mut Settings| settings.speak.argv = argv
}

/// What the chat was told, without the mark of a text that still grows.
async fn told(relay: &Running, count: usize) -> Vec<(&'static str, String)> {
    let told = relay.replies("a", count).await.into_iter();
    told.map(|(op, text)| (op, text.trim_end_matches(" ▉").to_owned()))
        .collect()
}

#[tokio::test]
async fn answers_are_spoken_from_voice_on_until_voice_off() {
    let (agent, _given) = reader();
    let relay = Running::start("discord", agent, speaking("printf 'OggS '; cat")).await;
    relay.deliver("a", "1", "one", &[]);
    assert_eq!(told(&relay, 1).await, [("send", "read one".to_owned())]);
    relay.deliver("a", "2", "/voice on", &[]);
    told(&relay, 2).await;
    relay.deliver("a", "3", "two", &[]);
    let seen = told(&relay, 4).await;
    assert_eq!(seen[2], ("send", "read two".to_owned()));
    assert_eq!(seen[3].0, "send_media");
    let sent = relay.connector.messages_in("a");
    let recording = sent.iter().find(|sent| sent.op == "send_media");
    let Some(Action::SendMedia {
        media_kind, filename, ..
    }) = recording.map(|sent| &sent.action)
    else {
        panic!("{sent:?}");
    };
    assert_eq!(
        (media_kind.as_str(), filename.as_deref()),
        ("voice", Some("answer.ogg"))
    );
    relay.deliver("a", "4", "/voice off", &[]);
    relay.deliver("a", "5", "three", &[]);
    relay.deliver("a", "6", "four", &[]);
    let seen = told(&relay, 7).await;
    let ops: Vec<&str> = seen[4..].iter().map(|(op, _)| *op).collect();
    assert_eq!(ops, ["send", "send", "send"]);
    relay.stop().await;
}

#[tokio::test]
async fn the_text_of_an_answer_is_complete_while_it_is_spoken() {
    for platform in ["discord", "telegram", "slack", "whatsapp"] {
        let dir = tempfile::tempdir().unwrap();
        let spoken = dir.path().join("spoken");
        let script = format!(
            "until [ -e '{}' ]; do sleep 0.02; done; printf 'OggS '; cat",
            spoken.display()
        );
        let (agent, _given) = reader();
        let relay = Running::start(platform, agent, speaking(&script)).await;
        relay.deliver("a", "1", "/voice on", &[]);
        told(&relay, 1).await;
        relay.deliver("a", "2", "two", &[]);
        let shown = |connector: &Connector| {
            let shown = connector.messages_in("a").into_iter();
            let shown: Vec<String> = shown.skip(1).map(|sent| sent.text).collect();
            (shown == ["read two"]).then_some(())
        };
        let complete = relay.connector.until("the whole text", SOON, shown).await;
        complete.unwrap_or_else(|_| panic!("{platform}: {:?}", relay.connector.messages_in("a")));
        std::fs::write(&spoken, "").unwrap();
        let recording = |connector: &Connector| {
            let sent = connector.messages_in("a");
            (sent.len() == 3 && sent[2].op == "send_media").then_some(())
        };
        let recorded = relay.connector.until("the recording", SOON, recording).await;
        recorded.unwrap_or_else(|_| panic!("{platform}: {:?}", relay.connector.messages_in("a")));
        relay.stop().await;
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_spoken_comes_as_text() {
    for script in ["exit 1", "echo no such voice", "true"] {
        let (agent, _given) = reader();
        let relay = Running::start("discord", agent, speaking(script)).await;
        relay.deliver("a", "1", "/voice on", &[]);
        told(&relay, 1).await;
        relay.deliver("a", "2", "two", &[]);
        let seen = told(&relay, 3).await;
        let mut texts: Vec<&str> = seen[1..].iter().map(|(_, text)| text.as_str()).collect();
        texts.sort_unstable();
        assert_eq!(
            texts,
            ["(I could not speak this answer.)", "read two"],
            "{script}"
        );
        relay.stop().await;
    }
}

/// Speaks with an API, whose key is in a file.
fn speaking_with(api: &Stub, key: &Path) -> impl FnOnce(&mut Settings) + use<> {
    std::fs::write(key, "the-key-of-the-voice\n").unwrap();
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let speak = SpeakConfig {
        base_url: Some(api.url("/v1/")),
        model: "tts-2".to_owned(),
        voice: "nova".to_owned(),
        api_key_file: Some(key.to_owned()),
        timeout_secs: 1,
        ..SpeakConfig::default()
    };
    move |settings: &mut Settings| settings.speak = speak
}

#[tokio::test]
async fn an_api_speaks_answers_and_gets_its_key_in_the_header_only() {
    let api = Stub::start(|_| reply(200, &b"OggS a voice"[..])).await;
    let dir = tempfile::tempdir().unwrap();
    let (agent, _given) = reader();
    let relay = Running::start("discord", agent, speaking_with(&api, &dir.path().join("key"))).await;
    relay.deliver("a", "1", "/voice on", &[]);
    told(&relay, 1).await;
    relay.deliver("a", "2", "two", &[]);
    let seen = told(&relay, 3).await;
    assert_eq!(seen[1], ("send", "read two".to_owned()));
    let sent = relay.connector.messages_in("a");
    let Some(Action::SendMedia {
        media_kind,
        source_url,
        filename,
        ..
    }) = sent.last().map(|sent| &sent.action)
    else {
        panic!("{sent:?}");
    };
    assert_eq!(
        (media_kind.as_str(), filename.as_deref()),
        ("voice", Some("answer.ogg"))
    );
    assert_eq!(relay.uploaded(source_url).await, b"OggS a voice");

    let asked = api.only();
    assert_eq!(
        (asked.method.as_str(), asked.uri.as_str()),
        ("POST", "/v1/audio/speech")
    );
    assert_eq!(asked.header("authorization"), Some("Bearer the-key-of-the-voice"));
    assert_eq!(asked.header("content-type"), Some("application/json"));
    assert_eq!(
        asked.json(),
        json!({"model": "tts-2", "voice": "nova", "input": "read two", "response_format": "opus"})
    );
    relay.stop().await;
}

#[tokio::test]
async fn an_api_that_fails_is_told_once_and_the_answer_stays() {
    let too_large = || [&b"OggS"[..], &[b'x'; 5000]].concat();
    let cases = [
        (
            Stub::always(500, "{\"error\": {\"message\": \"no voice\"}}").await,
            "a failure",
        ),
        (Stub::always(200, "<html>no recording</html>").await, "no audio"),
        (Stub::start(move |_| reply(200, too_large())).await, "too large"),
        (
            Stub::at("127.0.0.1:0", Duration::from_secs(30), |_| {
                reply(200, &b"OggS late"[..])
            })
            .await,
            "too late",
        ),
    ];
    for (api, case) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (agent, _given) = reader();
        let speak = speaking_with(&api, &dir.path().join("key"));
        let relay = Running::start("discord", agent, |settings| {
            speak(settings);
            settings.media.max_bytes = 1000;
        })
        .await;
        relay.deliver("a", "1", "/voice on", &[]);
        told(&relay, 1).await;
        relay.deliver("a", "2", "two", &[]);
        told(&relay, 3).await;
        relay.wait_for_turns(0).await;
        // Whatever else it said came before this.
        relay.deliver("a", "3", "/voice off", &[]);
        let mut texts: Vec<String> = told(&relay, 4).await.into_iter().map(|(_, text)| text).collect();
        texts[1..3].sort_unstable();
        assert_eq!(
            texts[1..3],
            ["(I could not speak this answer.)", "read two"],
            "{case}"
        );
        assert_eq!(texts.len(), 4, "{case}: {texts:?}");
        assert_eq!(api.seen().len(), 1, "{case}");
        relay.stop().await;
    }
}

#[tokio::test]
async fn without_a_voice_the_command_goes_to_the_agent() {
    let (agent, mut given) = reader();
    let relay = Running::start("discord", agent, |_| {}).await;
    relay.deliver("a", "1", "/voice on", &[]);
    assert_eq!(next(&mut given).await.0.text, "/voice on");
    relay.stop().await;
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_found_when_the_relay_is_built() {
    let state = tempfile::tempdir().unwrap();
    let mut settings = Settings::embedded(state.path());
    settings.connector.url = Some("ws://127.0.0.1:9".to_owned());
    settings.transcribe.argv = vec!["/no/such/whisper".to_owned()];
    let Err(BuildError::Voice(why)) = Relay::builder(settings).build() else {
        panic!("it was built");
    };
    assert!(
        why.starts_with("transcribe.argv: ") && why.contains("/no/such/whisper"),
        "{why}"
    );
}
