//! The real binary with a connector and a bot of its own: platforms of one relay that do not overlap.

use crate::support::dev::{
    ApiPerson, BotApi, BotApiSettings, Connector, ConnectorSettings, Direction, RecordedFrame, SentMessage,
    text_event,
};
use crate::support::discord::{FakeDiscord, TOKEN};
use crate::support::relay_process::{RelayProcess, SOON, Setup};
use crate::support::wait::eventually;

use serde_json::{Value, json};

const ADA: i64 = 42;

/// A connector with Discord, a Telegram bot, and a relay that has both.
struct Both {
    connector: Connector,
    api: BotApi,
    setup: Setup,
}

impl Both {
    async fn new() -> Self {
        let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
        let api = BotApi::start(BotApiSettings::default()).await.unwrap();
        api.add_person(ApiPerson::named(ADA, "Ada"));
        let setup = Setup::for_bot(&api)
            .env("GATEWAY_RELAY_URL", &connector.url())
            .enrolled_with(&connector);
        Self {
            connector,
            api,
            setup,
        }
    }

    async fn started(&self) -> RelayProcess {
        let relay = self.setup.start();
        relay.wait_for_log("connected to the connector").await;
        relay
    }

    fn say_there(&self, id: &str, text: &str) {
        let event = text_event("discord", "c1", id, text);
        self.connector.deliver(&event).unwrap();
    }

    fn say_here(&self, text: &str) {
        self.api.say(ADA, ADA, text);
    }

    async fn answered_there(&self, text: &str) {
        let wanted = format!("echo: {text}");
        let sent = |sent: &SentMessage| sent.text.contains(&wanted);
        self.connector.wait_for_sent(&wanted, SOON, sent).await.unwrap();
    }

    async fn answered_here(&self, text: &str) {
        let wanted = format!("echo: {text}");
        let found = self
            .api
            .wait_for_answer(ADA, &wanted, SOON, |seen| seen.text == wanted);
        found.await.unwrap();
    }

    async fn status(&self) -> Value {
        let status = self.setup.verb(&["status", "--json"]).output().await.unwrap();
        serde_json::from_slice(&status.stdout).unwrap()
    }

    /// Messages of the connector that were acknowledged.
    fn acks(&self) -> usize {
        self.connector.acks().iter().filter(|ack| ack.matched).count()
    }

    fn received(&self, kind: &str) -> usize {
        let frames = self.connector.frames();
        let of_it = |frame: &&RecordedFrame| {
            frame.direction == Direction::FromGateway && frame.json()["type"] == kind
        };
        frames.iter().filter(of_it).count()
    }
}

#[tokio::test]
async fn each_message_is_answered_and_acknowledged_where_it_came_from() {
    let both = Both::new().await;
    let mut relay = both.started().await;
    for (round, acks) in [("one", 1), ("two", 3)] {
        both.say_there(round, round);
        both.say_here(round);
        both.answered_there(round).await;
        both.answered_here(round).await;
        eventually("the acknowledgements", async || {
            both.api.pending_count() == 0 && both.acks() == acks
        })
        .await;
        // Telegram knows no nonces: an answer whose delivery is unknown would come again.
        tokio::time::sleep(std::time::Duration::from_millis(600)).await;
        relay.kill().await;
        both.say_there(&format!("{round} missed"), &format!("{round} missed"));
        relay = both.started().await;
        both.answered_there(&format!("{round} missed")).await;
    }
    let status = both.status().await;
    assert_eq!(status["link"], "live", "{status}");
    assert_eq!(status["platforms"], json!(["discord", "telegram"]), "{status}");
    assert!(
        status["connector"].is_string() && status["telegram"].is_object(),
        "{status}"
    );
    // What is said from this machine, to either.
    for chat in ["c1", &ADA.to_string()] {
        let sent = both.setup.verb(&["send", "--chat", chat, "from here"]).output();
        let sent = sent.await.unwrap();
        assert!(sent.status.success(), "{chat}: {sent:?}");
    }
    let hello = |sent: &SentMessage| sent.text == "from here";
    both.connector
        .wait_for_sent("what was sent", SOON, hello)
        .await
        .unwrap();
    let sent = both
        .api
        .wait_for_answer(ADA, "what was sent", SOON, |seen| seen.text == "from here");
    sent.await.unwrap();
    relay.stop().await;
    assert_eq!(both.api.answers(ADA).len(), 3);
    assert_eq!(
        both.received("going_idle"),
        1,
        "the connector buffers from now on"
    );
}

#[tokio::test]
async fn a_cut_of_one_leaves_the_other_alone_and_nothing_is_lost() {
    let both = Both::new().await;
    let relay = both.started().await;
    both.say_there("m1", "sleep=2500 late");
    eventually("the message is taken", async || both.acks() == 1).await;
    both.connector.take_down().await;
    eventually("the cut is shown", async || {
        let link = both.status().await["link"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        link.starts_with("connector ") && link.ends_with("telegram live")
    })
    .await;
    both.say_here("meanwhile");
    both.answered_here("meanwhile").await;
    // The answer for the connector is ready, and waits.
    eventually("the answer waits", async || {
        both.status().await["ops_durable"] == 1
    })
    .await;
    both.connector.bring_up().await.unwrap();
    both.answered_there("late").await;
    both.api.take_down().await;
    both.say_there("m2", "the other way round");
    both.answered_there("the other way round").await;
    both.api.bring_up().await.unwrap();
    both.say_here("again");
    both.answered_here("again").await;
    relay.stop().await;
    assert_eq!(both.api.answers(ADA).len(), 2);
    let late = both.connector.sent_messages();
    let late = late.iter().filter(|sent| sent.text.contains("late"));
    assert_eq!(late.count(), 1);
}

#[tokio::test]
async fn an_edit_whose_acknowledgement_was_lost_is_known_when_it_comes_again() {
    let both = Both::new().await;
    let relay = both.started().await;
    both.say_there("m1", "one");
    both.answered_there("one").await;
    eventually("the acknowledgement", async || both.acks() == 1).await;
    both.connector.ignore_acks();
    let mut edit = text_event("discord", "c1", "m1", "two");
    edit["message_is_edit"] = json!(true);
    both.connector.deliver(&edit).unwrap();
    eventually("the edit is taken", async || {
        both.status().await["tally"]["acks"] == 2
    })
    .await;
    both.connector.drop_sockets();
    eventually("it is known", async || {
        both.status().await["tally"]["duplicates"] == 1
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn what_a_killed_turn_showed_is_put_away_when_its_platform_is_there_again() {
    let both = Both::new().await;
    let reactions = || {
        let frames = both.connector.frames();
        let ops = frames.iter().map(|frame| frame.json()["action"].clone());
        let reactions = ops.filter(|action| action["op"] == "react");
        let removes = reactions.map(|action| action["remove"] == true);
        removes.collect::<Vec<_>>()
    };
    let mut relay = both.started().await;
    both.say_there("m1", "sleep=60000 long");
    eventually("the turn is shown", async || reactions() == [false]).await;
    relay.kill().await;
    both.connector.take_down().await;
    let relay = both.setup.start();
    eventually("only the bot is there", async || {
        let link = both.status().await["link"].to_string();
        link.starts_with("\"connector ") && link.ends_with("telegram live\"")
    })
    .await;
    both.connector.bring_up().await.unwrap();
    eventually("it is put away", async || reactions().last() == Some(&true)).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_platform_of_both_is_refused() {
    let both = Both::new().await;
    let fake = FakeDiscord::start().await;
    let bot = format!(
        "{{api_base: \"http://{}\", gateway_url: \"ws://{}\"}}",
        fake.rest, fake.gateway
    );
    let setup = both.setup.env("DISCORD_BOT_TOKEN", TOKEN);
    let setup = setup.setting("direct.discord", &bot);
    let (exit, said) = setup.ends().await;
    assert_eq!(exit, 78, "{said}");
    assert!(
        said.contains("both serve discord") && said.contains("GATEWAY_RELAY_PLATFORMS"),
        "{said}"
    );
    let check = setup.verb(&["config", "check"]).output().await.unwrap();
    let said = String::from_utf8_lossy(&check.stderr).into_owned();
    assert_eq!(check.status.code(), Some(78), "{said}");
    assert!(said.contains("both serve discord"), "{said}");
    // On another platform, the connector and both bots are one relay.
    let setup = setup.env("GATEWAY_RELAY_PLATFORMS", "slack");
    let relay = setup.start();
    relay.wait_for_log("connected to Discord").await;
    relay.wait_for_log("connected to the connector").await;
    fake.say("hello");
    eventually("the answer", async || {
        fake.answers().contains(&"echo: hello".to_owned())
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_platform_that_the_connector_declares_later_is_served_by_the_bot_alone() {
    let both = Both::new().await;
    let relay = both.started().await;
    let descriptor = json!({"type": "descriptor", "descriptor": {
        "contract_version": 1, "platform": "telegram", "label": "Telegram", "max_message_length": 4096,
        "supports_draft_streaming": false, "supports_edit": true, "supports_threads": false,
        "markdown_dialect": "plain", "len_unit": "chars",
    }});
    assert!(both.connector.send_raw(&format!("{descriptor}\n")));
    let line = relay.wait_for_log("the connector serves this platform too").await;
    assert!(line.contains("telegram"), "{line}");
    let twice = text_event("telegram", &ADA.to_string(), "m1", "twice");
    both.connector.deliver(&twice).unwrap();
    both.say_there("m2", "after it");
    both.answered_there("after it").await;
    both.say_here("once");
    both.answered_here("once").await;
    eventually("the acknowledgements", async || both.acks() == 2).await;
    let list = ["journal", "list", "--section", "quarantine"];
    let list = both.setup.verb(&list).output().await.unwrap();
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.contains("telegram"), "the message is kept: {list}");
    relay.stop().await;
    assert_eq!(both.api.answers(ADA).len(), 1);
    let ops = both.connector.sent_messages();
    assert!(ops.iter().all(|sent| !sent.text.contains("twice")), "{ops:?}");
}

#[tokio::test]
async fn files_go_to_whoever_serves_the_platform() {
    let both = Both::new().await;
    let work = tempfile::tempdir().unwrap();
    std::fs::write(work.path().join("notes.txt"), "some notes").unwrap();
    let agent = format!("{{kind: echo, workdir: \"{}\"}}", work.path().display());
    let setup = both.setup.setting("agents.filer", &agent);
    let both = Both {
        setup: setup.args(&["run", "--agent", "filer"]),
        connector: both.connector,
        api: both.api,
    };
    let relay = both.started().await;
    both.say_there("m1", "media=notes.txt there");
    both.say_here("media=notes.txt here");
    let uploads = || {
        let requests = both.connector.requests();
        requests
            .iter()
            .filter(|request| request.path == "/relay/media")
            .count()
    };
    eventually("the file at the connector", async || uploads() == 1).await;
    eventually("the file at the bot", async || {
        both.api.calls_of("sendDocument").len() == 1
    })
    .await;
    both.answered_there("there").await;
    both.answered_here("here").await;
    relay.stop().await;
    assert_eq!((uploads(), both.api.calls_of("sendDocument").len()), (1, 1));
}

#[tokio::test]
async fn nothing_sleeps_beside_a_bot() {
    let both = Both::new().await;
    let setup = both
        .setup
        .env("GATEWAY_RELAY_WAKE_URL", "http://127.0.0.1:9/wake");
    let both = Both {
        setup: setup
            .setting("sleep.enabled", "true")
            .setting("sleep.idle_secs", "1")
            .setting("sleep.action", "wait"),
        connector: both.connector,
        api: both.api,
    };
    let relay = both.started().await;
    let line = relay.wait_for_log("the relay stays awake").await;
    assert!(line.contains("direct.telegram"), "{line}");
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    assert_eq!(both.received("going_idle"), 0);
    both.say_here("awake");
    both.answered_here("awake").await;
    relay.stop().await;
}

#[tokio::test]
async fn an_end_of_one_ends_the_relay_and_says_whose() {
    let both = Both::new().await;
    let mut relay = both.started().await;
    both.connector.revoke();
    assert_eq!(relay.exit_code(SOON).await, 78, "{}", relay.stderr());
    let said = relay.stderr();
    assert!(
        said.contains("the connector has revoked this gateway") && said.contains("hermes-relay enroll"),
        "{said}"
    );
}
