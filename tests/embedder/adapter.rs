//! A `RelayAdapter` without a relay: it plans ops, and the test sends them.

use std::sync::Arc;

use hermes_relay::chat::{CapabilityDescriptor, ChatFacts, ChatId, MediaKind, OutgoingAttachment};
use hermes_relay::settings::StreamSettings;
use hermes_relay::transport::{RelayTransport as _, SendResult, inbound_channel};
use hermes_relay::{MemoryTransport, RelayAdapter};

#[tokio::test]
async fn an_adapter_alone_plans_what_a_platform_is_sent() {
    let (transport, connector) = MemoryTransport::pair([CapabilityDescriptor {
        max_message_length: 40,
        supported_ops: vec!["send".into(), "send_media".into()],
        ..CapabilityDescriptor::placeholder("discord")
    }]);
    let (inbound, _receiver) = inbound_channel();
    transport.connect(inbound);
    let descriptor = transport.handshake().await.unwrap();
    let settings = Arc::new(StreamSettings::default());
    let adapter = RelayAdapter::new("discord", Some("bot".into()), Some(descriptor), settings);
    assert!(adapter.supports("send_media") && !adapter.supports("edit"));

    let chat = ChatId {
        platform: "discord".into(),
        chat: "c1".into(),
    };
    let facts = ChatFacts {
        message_id: Some("m1".into()),
        ..ChatFacts::default()
    };
    let picture = OutgoingAttachment::File {
        kind: MediaKind::Image,
        source_url: "https://charts.example/requests.png".into(),
        caption: "Requests".into(),
        name: None,
        is_public: true,
        instead: None,
    };
    let long = "Nine words are too many for one small message.";
    let planned = [
        adapter.reply(long, &chat, &facts),
        adapter.attachment(&picture, &chat, &facts),
    ]
    .concat();
    for op in planned {
        let (platform, bot_id) = adapter.tags();
        let sent = transport.send_outbound(&op.action, platform, bot_id).await;
        assert!(matches!(sent, SendResult::Answered(_)), "{sent:?}");
    }
    let seen = connector.record().borrow().clone();
    let kinds: Vec<_> = seen.ops.iter().filter_map(|op| op.kind()).collect();
    assert_eq!(kinds, ["send", "send", "send_media"]);
    for op in &seen.ops {
        assert_eq!(
            (op.platform.as_deref(), op.bot_id.as_deref()),
            (Some("discord"), Some("bot"))
        );
        assert_eq!(op.action["reply_to"], "m1");
    }
}
