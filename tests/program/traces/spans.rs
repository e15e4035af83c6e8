//! The spans that traces are made of: each ends, with its outcome, however its turn does.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use hermes_relay::agent::{AgentEvent, Media, MediaLocation, TurnEnd};
use hermes_relay::config::{BusyMode, Durability, Settings};
use hermes_relay::relay::{ReplyMode, SeenOp};
use hermes_relay::wire::{CapabilityDescriptor, OpId};
use serde_json::json;
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::Registry;

use crate::support::memory_relay::{Running, start_answering, start_with};
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::wait::eventually;

#[derive(Clone, Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}").replace('"', ""));
    }
}

/// Keeps the fields of each session span that has ended with an outcome.
#[derive(Clone, Default)]
struct Ended(Arc<Mutex<Vec<Fields>>>);

impl Layer<Registry> for Ended {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, Registry>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, Registry>) {
        let span = context.span(id).unwrap();
        values.record(span.extensions_mut().get_mut::<Fields>().unwrap());
    }

    fn on_close(&self, id: Id, context: Context<'_, Registry>) {
        let span = context.span(&id).unwrap();
        let fields = span.extensions().get::<Fields>().cloned().unwrap();
        if span.name() == "session" && fields.0.contains_key("outcome") {
            self.0.lock().unwrap().push(fields);
        }
    }
}

impl Ended {
    /// Listens on this thread, on which the test's relay runs.
    fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        let ended = Self::default();
        let subscriber = tracing_subscriber::registry().with(ended.clone());
        (ended, tracing::subscriber::set_default(subscriber))
    }

    async fn count(&self, count: usize) -> Vec<Fields> {
        eventually(&format!("{count} sessions ended"), async || {
            let ended = self.0.lock().unwrap().clone();
            (ended.len() >= count).then_some(ended)
        })
        .await
    }
}

/// Sends a picture, waits, and answers; accepts every message meanwhile.
fn painter(go_on: &Arc<Notify>) -> ScriptedAgent {
    let agent = ScriptedAgent::sharing(go_on, |turn, go_on| async move {
        let picture = Media {
            location: MediaLocation::Url("https://files.example/cat.png".to_owned()),
            caption: String::new(),
            kind: None,
            name: None,
        };
        turn.events.emit(AgentEvent::Media(picture)).await;
        go_on.notified().await;
        turn.events.text("two words").await;
        TurnEnd::Completed
    });
    agent.steered(|_| true)
}

async fn start(dir: &std::path::Path, go_on: &Arc<Notify>) -> Running {
    let platform = CapabilityDescriptor {
        supported_ops: ["send", "send_media"].map(str::to_owned).to_vec(),
        ..CapabilityDescriptor::placeholder("discord")
    };
    let adjust = |settings: &mut Settings| settings.journal.durability = Durability::Full;
    start_answering(dir, painter(go_on), &platform, ReplyMode::Hold, adjust).await
}

/// Waits for a chat's op of this kind.
async fn op(relay: &Running, chat: &str, kind: &str) -> OpId {
    let is_it = |op: &&SeenOp| op.chat() == Some(chat) && op.kind() == Some(kind);
    let seen = relay
        .seen(kind, |seen| seen.ops.iter().any(|op| is_it(&op)))
        .await;
    seen.ops.iter().find(is_it).unwrap().id
}

#[tokio::test]
async fn a_turn_counts_the_messages_that_it_was_handed() {
    let (ended, _guard) = Ended::listen();
    let (dir, go_on) = (tempfile::tempdir().unwrap(), Arc::default());
    let relay = start_with(dir.path(), painter(&go_on), |settings| {
        settings.sessions.busy_mode = BusyMode::Steer;
    })
    .await;
    relay.deliver("a", "1", "go").await;
    relay.wait_for_turns(1).await;
    relay.deliver("a", "2", "left").await;
    relay.deliver("a", "3", "right").await;
    relay
        .wait_for_status("both handed over", |status| status.tally.steered == 2)
        .await;
    go_on.notify_one();
    let fields = ended.count(1).await.remove(0).0;
    assert_eq!(fields["steered"], "2");
    assert_eq!(fields["outcome"], "done");
    relay.stop().await;
}

#[tokio::test]
async fn a_session_ends_after_its_last_op() {
    let (ended, _guard) = Ended::listen();
    let (dir, go_on) = (tempfile::tempdir().unwrap(), Arc::default());
    let relay = start(dir.path(), &go_on).await;
    relay.deliver("a", "1", "go").await;
    let file = op(&relay, "a", "send_media").await;
    go_on.notify_one();
    relay
        .wait_for_status("its end", |status| {
            status.tally.turns_done == 1 && status.ops_durable == 2
        })
        .await;
    assert!(relay.connector.answer(file, &json!({"success": true})));
    let text = op(&relay, "a", "send").await;
    assert!(ended.0.lock().unwrap().is_empty());
    assert!(relay.connector.answer(text, &json!({"success": true})));
    let fields = ended.count(1).await.remove(0).0;
    assert_eq!(fields["ops"], "1");
    relay.stop().await;
}

#[tokio::test]
async fn every_session_ends_whenever_its_answer_is_declined() {
    const TURNS: usize = 60;
    let (ended, _guard) = Ended::listen();
    let (dir, go_on) = (tempfile::tempdir().unwrap(), Arc::default());
    let relay = start(dir.path(), &go_on).await;
    // The file is declined before its turn's end is committed, meanwhile and afterwards.
    for turn in 0..TURNS {
        let chat = format!("chat-{turn}");
        relay.deliver(&chat, "1", "go").await;
        let file = op(&relay, &chat, "send_media").await;
        go_on.notify_one();
        if turn % 3 > 0 {
            // As soon as its end is decided; the journal takes longer.
            while relay.handle.status().await.unwrap().tally.turns_done <= turn as u64 {}
        }
        let declined = json!({"success": false, "code": "egress_declined", "error": "not here"});
        assert!(relay.connector.answer(file, &declined));
        relay
            .wait_for_status("its end", |status| {
                status.turns_running == 0 && status.ops_durable == 0
            })
            .await;
    }
    let ended = ended.count(TURNS).await;
    assert!(ended.iter().all(|fields| fields.0["outcome"] == "declined"));
    relay.stop().await;
}
