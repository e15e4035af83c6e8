//! The backend, the scripted peer behind it, and someone who listens to its turns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_relay::agent::{
    AcpAgent, AcpSettings, Agent, AgentEvent, AgentSignal, Approver, BaseEnv, EventSink, Failure, Meaning,
    Permission, PromptAnswer, Question, Turn, TurnEnd, TurnInput,
};
use hermes_relay::session::TurnId;
use hermes_relay::wire::{Grouping, NoAliases, SessionKey, SessionSource};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Long enough for a busy machine, short enough for a test.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// What people answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum People {
    Say(Meaning),
    Wait,
    /// They do not even read what the agent says.
    Sleep,
}

/// A backend at work.
pub(crate) struct Rig {
    pub(crate) agent: Arc<AcpAgent>,
    pub(crate) store: Arc<TempDir>,
    pub(crate) people: People,
    kept: Arc<Mutex<HashMap<SessionKey, Vec<u8>>>>,
}

/// What was heard of a turn so far; breaks are `|`.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnRecord {
    pub(crate) text: String,
    pub(crate) events: Vec<AgentEvent>,
    pub(crate) questions: Vec<Question>,
}

/// A turn that runs.
pub(crate) struct Running {
    pub(crate) cancel: CancellationToken,
    pub(crate) task: JoinHandle<TurnEnd>,
    reply: watch::Receiver<TurnRecord>,
}

pub(crate) fn key(chat: &str) -> SessionKey {
    let source = json!({"platform": "discord", "chat_id": chat, "chat_type": "dm"});
    let source = SessionSource::from_value(&source).unwrap();
    SessionKey::build(&source, Grouping::default(), None, &NoAliases)
}

impl Rig {
    /// An agent that claims to be able to do these things.
    pub(crate) fn new(flags: &str) -> Self {
        Self::with(flags, |_| {})
    }

    pub(crate) fn with(flags: &str, adjust: impl FnOnce(&mut AcpSettings)) -> Self {
        Self::on(
            Arc::new(tempfile::tempdir().unwrap()),
            Arc::default(),
            flags,
            adjust,
        )
    }

    /// The same after a restart of the relay: what was kept is there, and what the agent stored.
    pub(crate) fn restarted(&self, flags: &str, adjust: impl FnOnce(&mut AcpSettings)) -> Self {
        Self::on(Arc::clone(&self.store), Arc::clone(&self.kept), flags, adjust)
    }

    fn on(
        store: Arc<TempDir>,
        kept: Arc<Mutex<HashMap<SessionKey, Vec<u8>>>>,
        flags: &str,
        adjust: impl FnOnce(&mut AcpSettings),
    ) -> Self {
        let mut settings = AcpSettings {
            argv: vec![crate::acp::PEER.to_owned()],
            cancel_grace_secs: 1,
            ..AcpSettings::default()
        };
        settings.env.0.insert("ACP_AGENT".to_owned(), flags.to_owned());
        let folder = store.path().to_str().unwrap().to_owned();
        settings.env.0.insert("ACP_AGENT_STORE".to_owned(), folder);
        adjust(&mut settings);
        let base = BaseEnv::new([
            ("PLAIN".into(), "seen".into()),
            ("SOME_API_KEY".into(), "hidden".into()),
            ("GATEWAY_RELAY_URL".into(), "hidden".into()),
        ]);
        Self {
            agent: Arc::new(AcpAgent::new("tested", settings, &base).unwrap()),
            store,
            people: People::Wait,
            kept,
        }
    }

    /// A turn to its end.
    pub(crate) async fn turn(&self, chat: &str, text: &str) -> (TurnEnd, TurnRecord) {
        self.start(chat, text).end().await
    }

    /// A turn that must be completed; what it said.
    pub(crate) async fn ask(&self, chat: &str, text: &str) -> String {
        let (end, reply) = self.turn(chat, text).await;
        assert_eq!(end, TurnEnd::Completed, "{reply:?}");
        reply.text
    }

    /// A turn that must fail.
    pub(crate) async fn fails(&self, chat: &str, text: &str) -> Failure {
        match self.turn(chat, text).await {
            (TurnEnd::Failed(failure), _) => failure,
            (end, reply) => panic!("ended as {end:?} after {reply:?}"),
        }
    }

    pub(crate) fn start(&self, chat: &str, text: &str) -> Running {
        let input = TurnInput {
            text: text.to_owned(),
            ..TurnInput::default()
        };
        self.start_with(chat, input, Permission::Ask)
    }

    pub(crate) fn start_with(&self, chat: &str, input: TurnInput, permission: Permission) -> Running {
        let (events, mut signals) = EventSink::new();
        let cancel = CancellationToken::new();
        let session = key(chat);
        let turn = Turn {
            id: TurnId(1),
            session: session.clone(),
            input,
            approver: Approver::new(&events, permission),
            events,
            cancel: cancel.clone(),
            workdir: None,
            resumed: None,
        };
        let (record_sender, reply) = watch::channel(TurnRecord::default());
        let (kept, people) = (Arc::clone(&self.kept), self.people);
        tokio::spawn(async move {
            if matches!(people, People::Sleep) {
                // Until the turn has ended; what keeps the sink open is taken first, as the relay does.
                while let Some(signal) = signals.recv().await {
                    match signal {
                        AgentSignal::LoadState(answer) => drop(answer.send(None)),
                        AgentSignal::SaveState(_) => break,
                        AgentSignal::Event(_) | AgentSignal::Question(..) => {}
                    }
                }
                record_sender.closed().await;
                return;
            }
            let mut unanswered = Vec::new();
            while let Some(signal) = signals.recv().await {
                match signal {
                    AgentSignal::Event(event) => record_sender.send_modify(|reply| reply.take(event)),
                    AgentSignal::Question(question, answer) => {
                        match people {
                            People::Say(meaning) => {
                                let choice = question.choice(meaning).expect("a fitting choice");
                                let _ = answer.send(PromptAnswer::Chosen(choice.id.clone()));
                            }
                            People::Wait | People::Sleep => unanswered.push(answer),
                        }
                        record_sender.send_modify(|reply| reply.questions.push(*question));
                    }
                    AgentSignal::SaveState(memory) => {
                        drop(kept.lock().unwrap().insert(session.clone(), memory));
                    }
                    AgentSignal::LoadState(answer) => {
                        let _ = answer.send(kept.lock().unwrap().get(&session).cloned());
                    }
                }
            }
        });
        let agent = Arc::clone(&self.agent);
        Running {
            cancel,
            task: tokio::spawn(async move { agent.run(turn).await }),
            reply,
        }
    }

    /// What the agent noted.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.store.path().join("log")).unwrap_or_default()
    }
}

impl TurnRecord {
    fn take(&mut self, event: AgentEvent) {
        match &event {
            AgentEvent::Text(text) => self.text.push_str(text),
            AgentEvent::Break => self.text.push('|'),
            _ => {}
        }
        self.events.push(event);
    }

    pub(crate) fn notices(&self) -> Vec<&str> {
        let events = self.events.iter();
        let notices = events.filter_map(|event| match event {
            AgentEvent::Notice(text) => Some(text.as_str()),
            _ => None,
        });
        notices.collect()
    }
}

impl Running {
    /// Waits until this was heard.
    pub(crate) async fn wait_for(&mut self, what: &str, wanted: impl FnMut(&TurnRecord) -> bool) {
        let seen = timeout(SOON, self.reply.wait_for(wanted)).await;
        assert!(matches!(seen, Ok(Ok(_))), "in vain for {what}");
    }

    /// Waits until the agent has said this.
    pub(crate) async fn wait_for_text(&mut self, text: &str) {
        self.wait_for(text, |reply| reply.text.contains(text)).await;
    }

    /// Waits for the end.
    pub(crate) async fn end(mut self) -> (TurnEnd, TurnRecord) {
        let end = timeout(SOON, self.task).await.expect("the turn ends").unwrap();
        // The listener ends with the sink, and has then heard everything.
        while timeout(SOON, self.reply.changed())
            .await
            .expect("the sink is closed")
            .is_ok()
        {}
        let reply = self.reply.borrow().clone();
        (end, reply)
    }

    /// Stops it and waits for the end.
    pub(crate) async fn stop(self) -> (TurnEnd, TurnRecord) {
        self.cancel.cancel();
        self.end().await
    }
}
