//! Several agents behind one relay: who answers, also after a crash, and what is never done twice.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::deliveries::template;
use crate::support::memory_relay::{SOON, event, session};
use crate::support::wait::eventually;
use hermes_relay::agent::{
    Agent, AgentCommand, AgentFuture, AgentInfo, EchoAgent, Permission, Route, Turn, TurnEnd, TurnInput,
};
use hermes_relay::config::{BusyMode, Settings};
use hermes_relay::relay::{
    AgentSlot, BuildError, ExitReason, HandedItem, MemoryConnector, MemoryTransport, Relay,
};
use hermes_relay::store::{CronCommand, CronFiles, CronReply};
use hermes_relay::wire::{CapabilityDescriptor, SessionKey};
use serde_json::json;
use tokio::task::JoinHandle;

const HANG: &str = "hang";

/// Answers with its own name, hangs when told to, and notes what it was asked.
#[derive(Clone)]
struct Named {
    name: &'static str,
    repeatable: bool,
    steers: bool,
    remembers: bool,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Named {
    fn new(name: &'static str, repeatable: bool) -> Self {
        Self {
            name,
            repeatable,
            steers: false,
            remembers: false,
            asked: Arc::default(),
        }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Agent for Named {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: self.name.into(),
            repeatable: self.repeatable,
            steers: self.steers,
            remembers: self.remembers,
            ..AgentInfo::default()
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(turn.input.text.clone());
            if turn.input.text == HANG {
                turn.cancel.cancelled().await;
                return TurnEnd::Cancelled { confirmed: true };
            }
            turn.events
                .text(format!("{}: {}", self.name, turn.input.text))
                .await;
            TurnEnd::Completed
        })
    }

    fn commands(&self) -> Vec<AgentCommand> {
        vec![AgentCommand {
            name: format!("{}-now", if self.repeatable { "answer" } else { "act" }),
            description: String::new(),
        }]
    }

    fn steer(&self, _session: &SessionKey, input: &TurnInput) -> bool {
        self.asked
            .lock()
            .unwrap()
            .push(format!("steered: {}", input.text));
        true
    }
}

/// Starts a relay, once the one before it has let go of the journal.
async fn start(dir: &Path, safe: &Named, acting: &Named) -> (MemoryConnector, JoinHandle<ExitReason>) {
    start_with(dir, safe, acting, &[]).await
}

/// The same with these routes behind those by prefix.
async fn start_with(
    dir: &Path,
    safe: &Named,
    acting: &Named,
    routes: &[Route],
) -> (MemoryConnector, JoinHandle<ExitReason>) {
    start_adjusted(dir, safe, acting, &|settings| {
        settings.routes.extend_from_slice(routes);
    })
    .await
}

/// The same with other settings.
async fn start_adjusted(
    dir: &Path,
    safe: &Named,
    acting: &Named,
    adjust: &dyn Fn(&mut Settings),
) -> (MemoryConnector, JoinHandle<ExitReason>) {
    eventually("the journal is released", async || {
        try_start(dir, safe, acting, adjust)
    })
    .await
}

fn try_start(
    dir: &Path,
    safe: &Named,
    acting: &Named,
    adjust: &dyn Fn(&mut Settings),
) -> Result<(MemoryConnector, JoinHandle<ExitReason>), BuildError> {
    let (connector, relay) = build(dir, safe, acting, adjust)?;
    Ok((connector, tokio::spawn(relay.run(std::future::pending()))))
}

fn build(
    dir: &Path,
    safe: &Named,
    acting: &Named,
    adjust: &dyn Fn(&mut Settings),
) -> Result<(MemoryConnector, Relay), BuildError> {
    let (transport, connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
    let mut settings = Settings::embedded(dir);
    settings.streaming.first_hold_ms = 0;
    settings.sessions.interrupted_notice = Some("cut short".to_owned());
    settings.streaming.typing = false;
    settings.sessions.busy_mode = BusyMode::Steer;
    let route = |prefix: &str, agent: &str, permission| Route {
        prefix: Some(prefix.to_owned()),
        agent: agent.to_owned(),
        permission,
        ..Route::default()
    };
    settings.routes = vec![
        route("!act", "acting", None),
        route("!safe", "safe", None),
        route("!freely", "safe", Some(Permission::Allow)),
    ];
    adjust(&mut settings);
    let hidden = AgentSlot {
        choosable: false,
        ..AgentSlot::new(Arc::new(EchoAgent))
    };
    let relay = Relay::builder(settings)
        .agent("safe", safe.clone())
        .agent("acting", acting.clone())
        .agents([("hidden".to_owned(), hidden)])
        .transport(Arc::new(transport))
        .build()?;
    Ok((connector, relay))
}

async fn send(connector: &MemoryConnector, id: &str, text: &str) {
    connector
        .deliver_buffered(id, event("a", id, text))
        .await
        .unwrap();
}

async fn replies(connector: &MemoryConnector, count: usize) -> Vec<String> {
    let seen = connector
        .wait_for(SOON, |seen| seen.texts("a").len() >= count)
        .await
        .unwrap();
    seen.texts("a").into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_person_a_prefix_and_the_settings_choose_who_answers_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (safe, acting) = (Named::new("safe", true), Named::new("acting", false));
    let (connector, running) = start(dir.path(), &safe, &acting).await;
    send(&connector, "1", "hi").await;
    replies(&connector, 1).await;
    send(&connector, "2", "!act now").await;
    replies(&connector, 2).await;
    send(&connector, "3", "/agent acting").await;
    replies(&connector, 3).await;
    send(&connector, "4", "you there?").await;
    assert_eq!(
        replies(&connector, 4).await,
        [
            "safe: hi",
            "acting: now",
            "acting answers from now on.",
            "acting: you there?"
        ]
    );
    send(&connector, "5", "/agent nobody").await;
    assert!(replies(&connector, 5).await[4].contains("acting, safe"));
    running.abort();
    let _ = running.await;
    let (connector, running) = start(dir.path(), &safe, &acting).await;
    send(&connector, "6", "and now?").await;
    let texts = replies(&connector, 1).await;
    assert_eq!(texts.last().map(String::as_str), Some("acting: and now?"));
    running.abort();
}

#[tokio::test]
async fn a_message_interrupts_only_a_turn_of_the_same_agent_with_the_same_options() {
    for (text, interrupts) in [
        ("now", true),
        ("!safe now", true),
        ("@safe now", true),
        ("!act now", false),
        ("@acting now", false),
        ("!freely now", false),
        ("!elsewhere now", false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (safe, acting) = (Named::new("safe", true), Named::new("acting", false));
        let interrupting = |settings: &mut Settings| {
            settings.sessions.busy_mode = BusyMode::Interrupt;
            settings.routes.push(Route {
                prefix: Some("!elsewhere".to_owned()),
                agent: "safe".to_owned(),
                workdir: Some("/tmp".into()),
                ..Route::default()
            });
        };
        let (connector, running) = start_adjusted(dir.path(), &safe, &acting, &interrupting).await;
        send(&connector, "1", HANG).await;
        eventually("it runs", async || safe.asked() == [HANG]).await;
        send(&connector, "2", text).await;
        if !interrupts {
            // It is decided by then.
            send(&connector, "3", "/status").await;
            let waits = "Agent safe is working on a message, 1 waiting.";
            assert_eq!(replies(&connector, 1).await, [waits], "{text}");
            send(&connector, "4", "/stop").await;
        }
        let seen = connector
            .wait_for(SOON, |seen| {
                seen.texts("a").iter().any(|text| text.ends_with(": now"))
            })
            .await;
        assert!(seen.is_some(), "{text}");
        running.abort();
        let _ = running.await;
    }
}

#[tokio::test]
async fn a_message_does_not_stop_an_item_that_begins_for_another_agent() {
    let dir = tempfile::tempdir().unwrap();
    let safe = Named::new("safe", true);
    // Its turns begin once its conversations are read.
    let acting = Named {
        remembers: true,
        ..Named::new("acting", false)
    };
    let interrupting = |settings: &mut Settings| settings.sessions.busy_mode = BusyMode::Interrupt;
    let (connector, relay) = build(dir.path(), &safe, &acting, &interrupting).unwrap();
    let handle = relay.handle();
    let running = tokio::spawn(relay.run(std::future::pending()));
    let chats: Vec<String> = (0..20).map(|chat| format!("chat-{chat}")).collect();
    for chat in &chats {
        let item = HandedItem {
            agent: "acting".to_owned(),
            ..template(chat, &session(chat), "work")
        };
        handle.submit(item).await.unwrap();
        connector
            .deliver_buffered(chat, event(chat, "1", "hi"))
            .await
            .unwrap();
    }
    eventually("all messages are answered", async || {
        safe.asked().len() == chats.len()
    })
    .await;
    assert_eq!(acting.asked().len(), chats.len());
    running.abort();
}

#[tokio::test]
async fn a_command_knows_the_chosen_agent_when_it_is_the_first_after_a_restart() {
    for first in ["/status", "/agent", "/help", "/cron add every 2h look"] {
        let dir = tempfile::tempdir().unwrap();
        let (safe, acting) = (Named::new("safe", true), Named::new("acting", false));
        let (connector, running) = start(dir.path(), &safe, &acting).await;
        send(&connector, "1", "/agent acting").await;
        replies(&connector, 1).await;
        running.abort();
        let _ = running.await;
        let (connector, running) = start(dir.path(), &safe, &acting).await;
        send(&connector, "2", first).await;
        let answer = replies(&connector, 1).await.remove(0);
        match first {
            "/status" => assert_eq!(answer, "Agent acting is idle."),
            "/agent" => assert!(answer.starts_with("acting answers."), "{answer}"),
            "/help" => assert!(answer.contains("/act-now"), "{answer}"),
            _ => {
                let command = CronCommand::Jobs;
                let now_ms = jiff::Timestamp::now().as_millisecond();
                let mut files = CronFiles::open(dir.path(), false, now_ms).unwrap();
                let CronReply::Jobs(jobs, _) = files.run(&command).unwrap() else {
                    panic!("not the jobs");
                };
                assert_eq!(jobs[0].job.agent(), Some("acting"), "{answer}");
            }
        }
        running.abort();
    }
}

#[tokio::test]
async fn whoever_may_use_one_agent_reads_of_that_one() {
    let dir = tempfile::tempdir().unwrap();
    let (safe, acting) = (Named::new("safe", true), Named::new("acting", false));
    let own = json!({"platform": "discord", "user": "user-of-a", "agents": ["acting"]});
    let rules = json!({"mode": "list", "people": [own]});
    let adjust = |settings: &mut Settings| settings.access = serde_json::from_value(rules.clone()).unwrap();
    let (connector, running) = start_adjusted(dir.path(), &safe, &acting, &adjust).await;
    for (at, text) in ["/status", "/agent", "/help", "hi"].into_iter().enumerate() {
        send(&connector, &at.to_string(), text).await;
        replies(&connector, at + 1).await;
    }
    let read = replies(&connector, 4).await;
    assert_eq!(read[0], "Agent acting is idle.");
    assert!(read[1].starts_with("acting answers. Agents: acting."), "{read:?}");
    assert!(read[2].contains("/act-now"), "{read:?}");
    assert_eq!(read[3], "acting: hi");
    running.abort();
}

#[tokio::test]
async fn several_agents_in_one_chat_answer_to_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let (safe, acting) = (Named::new("safe", true), Named::new("acting", false));
    let (connector, running) = start(dir.path(), &safe, &acting).await;
    let said = [
        ("@acting do it", "acting: do it"),
        ("Acting: and that", "acting: and that"),
        ("and then?", "safe: and then?"),
        ("@nobody hello", "safe: @nobody hello"),
        ("hidden: hello", "safe: hidden: hello"),
        ("note: this", "safe: note: this"),
    ];
    for (at, (text, answer)) in said.iter().enumerate() {
        send(&connector, &at.to_string(), text).await;
        assert_eq!(replies(&connector, at + 1).await[at], *answer);
    }
    running.abort();
}

#[tokio::test]
async fn nobody_chooses_where_the_operator_set_the_agent_and_an_earlier_choice_gives_way() {
    let dir = tempfile::tempdir().unwrap();
    let (safe, acting) = (Named::new("safe", true), Named::new("acting", false));
    let (connector, running) = start(dir.path(), &safe, &acting).await;
    send(&connector, "1", "/agent acting").await;
    send(&connector, "2", "/agent hidden").await;
    send(&connector, "3", "/agent").await;
    assert_eq!(
        replies(&connector, 3).await,
        [
            "acting answers from now on.",
            "There is no agent named hidden. Agents: acting, safe.",
            "acting answers. The agents:\n1. acting\n2. safe\nChoose with /agent NUMBER, /agent NAME, or the number alone.",
        ]
    );
    send(&connector, "4", "2").await;
    send(&connector, "5", "/agent 1").await;
    let chosen = replies(&connector, 5).await;
    assert_eq!(
        chosen[3..],
        ["safe answers from now on.", "acting answers from now on."]
    );
    running.abort();
    let _ = running.await;
    let fixed = Route {
        chat: Some("a".to_owned()),
        agent: "hidden".to_owned(),
        permission: Some(Permission::Deny),
        ..Route::default()
    };
    let (connector, running) = start_with(dir.path(), &safe, &acting, &[fixed]).await;
    for (at, text) in [
        "ask hi",
        "/agent hidden",
        "/agent acting",
        "/agent",
        "ask hi",
        "!act now",
    ]
    .into_iter()
    .enumerate()
    {
        send(&connector, &format!("then {at}"), text).await;
        replies(&connector, at + 1).await;
    }
    let set = "hidden answers here. The operator set this chat's agent.";
    let denied = "echo: denied hi";
    assert_eq!(
        replies(&connector, 6).await,
        [denied, set, set, set, denied, "acting: now"]
    );
    running.abort();
}

#[tokio::test]
async fn a_turn_of_an_agent_that_a_person_chose_is_not_repeated_after_a_crash_because_another_could_be() {
    let dir = tempfile::tempdir().unwrap();
    let (safe, acting) = (Named::new("safe", true), Named::new("acting", false));
    let (connector, running) = start(dir.path(), &safe, &acting).await;
    send(&connector, "1", "/agent acting").await;
    replies(&connector, 1).await;
    send(&connector, "2", HANG).await;
    until_asked(&acting, 1).await;
    running.abort();
    let _ = running.await;
    let (connector, running) = start(dir.path(), &safe, &acting).await;
    assert_eq!(replies(&connector, 1).await, ["cut short"]);
    send(&connector, "3", "go on").await;
    replies(&connector, 2).await;
    assert_eq!(acting.asked(), [HANG, "go on"]);
    assert!(safe.asked().is_empty());
    running.abort();
}

#[tokio::test]
async fn a_turn_of_an_agent_that_only_answers_is_asked_again_after_a_crash_beside_one_that_acts() {
    let dir = tempfile::tempdir().unwrap();
    let (safe, acting) = (Named::new("safe", true), Named::new("acting", false));
    let (connector, running) = start(dir.path(), &safe, &acting).await;
    send(&connector, "1", HANG).await;
    until_asked(&safe, 1).await;
    running.abort();
    let _ = running.await;
    let (connector, running) = start(dir.path(), &safe, &acting).await;
    until_asked(&safe, 2).await;
    // Whoever is chosen meanwhile gets what is asked again, and once only.
    send(&connector, "2", "/agent acting").await;
    replies(&connector, 1).await;
    running.abort();
    let _ = running.await;
    let (_connector, running) = start(dir.path(), &safe, &acting).await;
    until_asked(&acting, 1).await;
    running.abort();
    let _ = running.await;
    let (connector, running) = start(dir.path(), &safe, &acting).await;
    assert_eq!(replies(&connector, 1).await, ["cut short"]);
    assert_eq!(
        (safe.asked(), acting.asked()),
        (vec![HANG.to_owned(); 2], vec![HANG.to_owned()])
    );
    running.abort();
}

#[tokio::test]
async fn what_an_agent_was_when_its_turn_began_decides_after_a_crash_whatever_the_settings_say_then() {
    for (acts, acts_later) in [(true, false), (false, true)] {
        let dir = tempfile::tempdir().unwrap();
        let agents = |acts: bool| (Named::new("safe", true), Named::new("acting", !acts));
        let (safe, acting) = agents(acts);
        let (connector, running) = start(dir.path(), &safe, &acting).await;
        send(&connector, "1", &format!("!act {HANG}")).await;
        until_asked(&acting, 1).await;
        running.abort();
        let _ = running.await;
        let (safe, acting) = agents(acts_later);
        let (connector, running) = start(dir.path(), &safe, &acting).await;
        if acts {
            assert_eq!(replies(&connector, 1).await, ["cut short"]);
            assert!(acting.asked().is_empty());
        } else {
            until_asked(&acting, 1).await;
        }
        running.abort();
    }
}

#[tokio::test]
async fn a_choice_that_comes_with_the_first_message_holds() {
    let dir = tempfile::tempdir().unwrap();
    let (safe, acting) = (Named::new("safe", true), Named::new("acting", false));
    let (connector, running) = start(dir.path(), &safe, &acting).await;
    for (id, text) in [("1", "hi"), ("2", "/agent acting"), ("3", "do it")] {
        send(&connector, id, text).await;
    }
    let mut texts = replies(&connector, 3).await;
    texts.sort();
    assert!(texts.contains(&"acting: do it".to_owned()), "{texts:?}");
    running.abort();
}

#[tokio::test]
async fn only_what_is_for_the_running_agent_on_the_same_terms_is_steered_into_its_turn() {
    for (text, answer) in [("!act now", "acting: now"), ("!freely now", "safe: now")] {
        let dir = tempfile::tempdir().unwrap();
        let (mut safe, acting) = (Named::new("safe", true), Named::new("acting", false));
        safe.steers = true;
        let (connector, running) = start(dir.path(), &safe, &acting).await;
        send(&connector, "1", HANG).await;
        acked(&connector, 1).await;
        until_asked(&safe, 1).await;
        send(&connector, "2", "left").await;
        send(&connector, "3", "!safe right").await;
        until_asked(&safe, 3).await;
        send(&connector, "4", text).await;
        send(&connector, "5", "after it").await;
        acked(&connector, 5).await;
        assert_eq!(safe.asked(), [HANG, "steered: left", "steered: right"], "{text}");
        assert!(acting.asked().is_empty());
        connector.interrupt(&session("a"), "a").await.unwrap();
        assert_eq!(replies(&connector, 2).await, [answer, "safe: after it"]);
        running.abort();
    }
}

async fn acked(connector: &MemoryConnector, count: usize) {
    let seen = connector.wait_for(SOON, |seen| seen.acks.len() >= count).await;
    assert!(seen.is_some(), "in vain for {count} acknowledgements");
}

async fn until_asked(agent: &Named, count: usize) {
    eventually(&format!("{count} turns"), async || agent.asked().len() >= count).await;
}

#[tokio::test]
async fn a_choice_outside_threads_on_slack_is_for_what_begins_in_the_chat_and_a_thread_keeps_its_agent() {
    let dir = tempfile::tempdir().unwrap();
    let (safe, acting) = (Named::new("safe", true), Named::new("acting", false));
    let (connector, running) = start(dir.path(), &safe, &acting).await;
    let say = async |connector: &MemoryConnector, id: &str, thread: Option<&str>, text: &str| {
        let before = connector.record().borrow().texts("a").len();
        let mut said = event("a", id, text);
        said["source"]["platform"] = json!("slack");
        said["source"]["thread_id"] = json!(thread);
        connector.deliver_buffered(id, said).await.unwrap();
        replies(connector, before + 1).await.pop().unwrap()
    };
    assert_eq!(say(&connector, "1", None, "hi").await, "safe: hi");
    let chosen = "acting answers from now on.";
    assert_eq!(say(&connector, "2", None, "/agent acting").await, chosen);
    assert_eq!(say(&connector, "3", None, "hi").await, "acting: hi");
    assert_eq!(say(&connector, "4", Some("2"), "hi").await, "acting: hi");
    assert_eq!(say(&connector, "5", Some("1"), "hi").await, "safe: hi");
    running.abort();
    let _ = running.await;
    let (connector, running) = start(dir.path(), &safe, &acting).await;
    assert_eq!(say(&connector, "6", None, "hi").await, "acting: hi");
    let chosen = "safe answers from now on.";
    assert_eq!(say(&connector, "7", None, "/agent safe").await, chosen);
    assert_eq!(say(&connector, "8", None, "hi").await, "safe: hi");
    assert_eq!(say(&connector, "9", Some("3"), "hi").await, "acting: hi");
    running.abort();
}
