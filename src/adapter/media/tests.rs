use serde_json::json;

use super::*;

fn chat() -> ChatId {
    ChatId {
        platform: "discord".into(),
        chat: "c".into(),
    }
}

fn facts() -> ChatFacts {
    ChatFacts {
        message_id: Some("m".into()),
        ..ChatFacts::default()
    }
}

fn descriptor(platform: &str, limit: u64) -> CapabilityDescriptor {
    let mut descriptor = CapabilityDescriptor::placeholder(platform);
    descriptor.max_message_length = limit;
    descriptor.supported_ops = vec!["send".into(), "send_media".into()];
    descriptor
}

fn send_media(caption: &str, descriptor: &CapabilityDescriptor) -> Vec<Action> {
    let file = OutgoingAttachment::File {
        kind: MediaKind::Image,
        source_url: "https://c.example/relay/media/1".to_owned(),
        caption: caption.to_owned(),
        name: Some("../x y.png".to_owned()),
        is_public: false,
    };
    let ops = attachment_ops(&file, &chat(), &facts(), Some(descriptor));
    ops.into_iter().map(|op| op.action).collect()
}

#[test]
fn an_attachment_is_one_op_with_every_field() {
    let ops = send_media(" look ", &descriptor("discord", 2000));
    assert_eq!(
        serde_json::to_value(&ops).unwrap(),
        json!([{
            "op": "send_media", "chat_id": "c", "media_kind": "image", "content": "look", "reply_to": "m",
            "source_url": "https://c.example/relay/media/1", "metadata": {"notify": true}, "filename": "x y.png",
        }])
    );
}

#[test]
fn a_long_caption_goes_on_in_messages_that_fit() {
    for (platform, limit, fits) in [
        ("discord", 60, 60),
        ("telegram", 4096, 1024),
        ("WhatsApp", 100, 100),
    ] {
        let caption = "word ".repeat(2000);
        let ops = send_media(&caption, &descriptor(platform, limit));
        let Action::SendMedia { content, .. } = &ops[0] else {
            panic!("{ops:?}")
        };
        assert!(
            !content.is_empty() && content.encode_utf16().count() <= fits,
            "{platform}"
        );
        assert!(ops.len() > 2);
        let mut words = content.matches("word").count();
        for op in &ops[1..] {
            let Action::Send {
                content, reply_to, ..
            } = op
            else {
                panic!("{op:?}")
            };
            assert!(content.chars().count() as u64 <= limit && reply_to.as_deref() == Some("m"));
            words += content.matches("word").count();
        }
        assert_eq!(words, 2000, "{platform}");
    }
}

#[test]
fn the_fallback_is_honest_and_keeps_paths_to_itself() {
    let at = |url| fallback_text(Undelivered::At(url), "see");
    assert_eq!(at("https://h.example/x.png"), "see\nhttps://h.example/x.png");
    for hidden in [
        "file:///home/me/x",
        "http://10.0.0.1/x",
        "https://u:p@h.example/",
        "/home/me/x",
    ] {
        assert_eq!(at(hidden), "see\n(could not deliver a file)");
    }
    assert_eq!(
        fallback_text(Undelivered::Named("/home/me/report.pdf"), ""),
        "(could not deliver report.pdf)"
    );
    assert_eq!(
        fallback_text(Undelivered::Named(".."), ""),
        "(could not deliver a file)"
    );
    assert_eq!(missing_note(0), None);
    assert!(missing_note(1).unwrap().contains("one") && missing_note(3).unwrap().contains('3'));
}
