//! The transport in memory by itself: it keeps the contract's promises.

use crate::support::memory_relay::{SOON, event};
use hermes_relay::link::{DormancyRefused, End, NotSent, SendResult};
use hermes_relay::relay::{
    DeliverError, FrameBody, InboundFrame, MemoryTransport, RelayTransport, ReplyMode, inbound_channel,
};
use hermes_relay::wire::{Action, CapabilityDescriptor, Outcome};
use serde_json::json;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

async fn next(deliveries: &mut mpsc::Receiver<Vec<InboundFrame>>) -> Vec<InboundFrame> {
    timeout(SOON, deliveries.recv()).await.expect("in time").unwrap()
}

fn chat_info() -> Action {
    Action::GetChatInfo { chat_id: "c".into() }
}

#[tokio::test]
async fn a_new_connection_brings_again_what_the_old_one_did_not_acknowledge() {
    let (transport, connector) = MemoryTransport::pair([
        CapabilityDescriptor::placeholder("discord"),
        CapabilityDescriptor::placeholder("slack"),
    ]);
    let (sender, inbound) = inbound_channel();
    let mut deliveries = inbound.frames;
    connector
        .deliver_buffered("b1", event("a", "1", "kept"))
        .await
        .unwrap();
    let lost = connector.deliver(event("a", "2", "lost")).await;
    assert_eq!(lost, Err(DeliverError::NotConnected));
    transport.connect(sender);
    assert_eq!(transport.handshake().await.unwrap().platform, "discord");
    assert_eq!(transport.status().borrow().descriptors.iter().count(), 2);

    let first = next(&mut deliveries).await.remove(0);
    assert!(matches!(&first.body, FrameBody::Message { buffer_id: Some(id), .. } if id == "b1"));
    transport.reconnect();
    let again = next(&mut deliveries).await.remove(0);
    assert!(again.generation > first.generation && again.line == first.line);
    transport.acknowledge(first.generation, "b1".into());
    assert!(
        connector.record().borrow().acks.is_empty(),
        "that connection is gone"
    );
    transport.acknowledge(again.generation, "b1".into());
    assert_eq!(connector.record().borrow().acks, ["b1"]);
    transport.reconnect();
    connector.deliver(event("a", "3", "new")).await.unwrap();
    let batch = next(&mut deliveries).await;
    assert!(matches!(
        &batch[..],
        [InboundFrame {
            body: FrameBody::Message { buffer_id: None, .. },
            ..
        }]
    ));
}

#[tokio::test]
async fn ops_are_answered_lost_or_never_sent() {
    let (transport, connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
    let before = transport.send_outbound(&chat_info(), None, None).await;
    assert_eq!(before, SendResult::NotSent(NotSent::NotLive));
    let (sender, _inbound) = inbound_channel();
    transport.connect(sender);
    connector.set_reply_mode(ReplyMode::Hold);
    let (info, ()) = tokio::join!(transport.get_chat_info("c".into()), async {
        let seen = connector
            .wait_for(SOON, |seen| seen.in_flight == 1)
            .await
            .unwrap();
        let result = json!({"success": true, "chat_info": {"name": "General", "type": "group"}});
        assert!(connector.answer(seen.ops[0].id, &result));
    });
    assert_eq!(
        (info.name.as_str(), info.chat_type.as_str()),
        ("General", "group")
    );
    let (unknown, ()) = tokio::join!(transport.send_outbound(&chat_info(), None, None), async {
        connector
            .wait_for(SOON, |seen| seen.in_flight == 1)
            .await
            .unwrap();
        connector.drop_connection();
    });
    assert_eq!(unknown, SendResult::Lost);
    connector.restore();
    connector.set_reply_mode(ReplyMode::Refuse("egress declined: no".into()));
    let refused = transport.send_outbound(&chat_info(), None, None).await;
    let SendResult::Answered(outcome) = refused else {
        panic!("{refused:?}")
    };
    assert!(matches!(*outcome, Outcome::Refused { declined: true, .. }));
    transport.send_interrupt("s".into(), None);
    assert_eq!(connector.record().borrow().interrupts, ["s"]);
    transport.disconnect(Duration::ZERO).await;
    assert_eq!(transport.handshake().await.unwrap_err(), End::Closed);
    let after = transport.send_outbound(&chat_info(), None, None).await;
    assert_eq!(after, SendResult::NotSent(NotSent::Closing));
    assert_eq!(connector.deliver(json!({})).await, Err(DeliverError::Closed));
}

#[tokio::test]
async fn it_sleeps_only_once_the_connector_buffers_and_wakes_with_what_was_kept() {
    let (transport, connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
    assert_eq!(transport.go_dormant().await, Err(DormancyRefused::NotLive));
    assert!(!transport.go_idle(SOON).await);
    let (sender, inbound) = inbound_channel();
    let mut deliveries = inbound.frames;
    transport.connect(sender);
    assert_eq!(transport.go_dormant().await, Err(DormancyRefused::NotBuffering));
    connector.hold_idle();
    assert!(!transport.go_idle(Duration::from_millis(1)).await);
    connector.answer_idle();
    assert!(transport.go_idle(SOON).await);
    assert_eq!(transport.go_dormant().await, Ok(()));
    connector
        .deliver_buffered("b", event("a", "1", "hi"))
        .await
        .unwrap();
    assert!(!connector.record().borrow().connected);
    transport.wake();
    assert_eq!(next(&mut deliveries).await.len(), 1);
}
