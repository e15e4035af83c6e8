use super::*;
use crate::dev::{ConnectorSettings, text_event};

#[test]
fn a_bad_file_says_what_is_wrong_with_it() {
    let head = r#"{"trace":"hermes-relay","version":1,"platform":"slack"}"#;
    let bad = |text: &str| Trace::parse(text).unwrap_err().to_string();
    assert!(bad("").contains("no recording"));
    assert!(bad("{\"hello\":1}\n").contains("no recording"));
    assert!(bad(&head.replace('1', "2")).contains("version 2"));
    assert!(bad(&format!("{head}\n")).contains("no message"));
    for line in [
        "{",
        "7",
        "{}",
        r#"{"t":-1,"to":"relay","frame":{}}"#,
        r#"{"t":1,"to":"moon","frame":{}}"#,
    ] {
        assert!(bad(&format!("{head}\n\n{line}\n")).contains("line 3"), "{line}");
    }
    let good = format!(
        "{head}\n{{\"lost\":2}}\n{}\n",
        r#"{"t":1.5,"to":"relay","raw":"x"}"#
    );
    let trace = Trace::parse(&good).unwrap();
    assert_eq!(
        (trace.platform.as_str(), &trace.lines[0].said),
        ("slack", &Traced::Raw("x".to_owned()))
    );
}

#[tokio::test]
async fn a_recording_holds_every_frame_and_no_secret() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire.jsonl");
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let recording = connector.record(&file, "discord").await.unwrap();
    let secret = connector.credentials().unwrap().secret.expose_secret().to_owned();
    let said =
        json!({ "type": "inbound", "event": text_event("discord", "c", "m1", &format!("my {secret}")) });
    let forward = json!({
        "type": "passthrough_forward",
        "forward": { "headers": [["Authorization", "Bot hush"], ["x-signature-ed25519", "hush"], ["x", "kept"]] },
    });
    connector.hub.change(|state| {
        for text in [said.to_string(), forward.to_string(), "{poison".to_owned()] {
            let id = super::super::record::ConnectionId(1);
            state.log.frame(id, Direction::ToGateway, text.into());
        }
    });
    assert_eq!(recording.finish().await.unwrap(), 3);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(&secret) && !text.contains("hush") && text.contains("kept"));
    let trace = Trace::open(&file).unwrap();
    assert_eq!(trace.lines.len(), 3);
    assert_eq!(trace.lines[2].said, Traced::Raw("{poison".to_owned()));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = connector.record(&file, "discord").await.unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
}
