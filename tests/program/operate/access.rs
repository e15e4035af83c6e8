//! Who may drive an agent, with the real binary: pairing end to end, revocation, Hermes' variables, and the warning.

use crate::support::dev::{Connector, text_event};
use serde_json::{Value, json};

use crate::operate::{VerbOutput, connected, connector, status, status_until, verb};
use crate::support::relay_process::Setup;
use crate::support::wait::eventually;

/// A direct message of a person whose id is made of the chat's.
fn message(chat: &str, id: &str, text: &str) -> Value {
    let mut event = text_event("discord", chat, id, text);
    event["source"]["chat_type"] = json!("dm");
    event["source"]["user_id"] = json!(format!("u-{chat}"));
    event
}

fn texts(connector: &Connector, chat: &str) -> Vec<String> {
    let sent = connector.sent_messages().into_iter();
    sent.filter(|sent| sent.chat_id == chat)
        .map(|sent| sent.text)
        .collect()
}

async fn replies(connector: &Connector, chat: &str, count: usize) -> Vec<String> {
    eventually(&format!("{count} messages to {chat}"), async || {
        let texts = texts(connector, chat);
        if texts.len() >= count {
            Ok(texts)
        } else {
            Err(texts)
        }
    })
    .await
}

async fn access(setup: &Setup, args: &[&str]) -> VerbOutput {
    verb(setup, &[&["access"], args, &["--json"]].concat()).await
}

async fn entries(setup: &Setup, args: &[&str]) -> Vec<Value> {
    let log = access(setup, &[&["log"], args].concat()).await.json();
    log["entries"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_stranger_is_paired_end_to_end() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("access.mode", "pair");
    // The first owner is made before the first start.
    let owner = access(&setup, &["owner", "discord:u-boss"]).await.json();
    assert_eq!(owner, json!({"allowed": "discord:u-boss", "role": "owner"}));
    let relay = connected(&setup).await;
    assert_eq!(status(&setup).await["access"]["mode"], "pair");
    connector.deliver(&message("c1", "m1", "hello")).unwrap();
    let notice = replies(&connector, "c1", 1).await;
    let pending = access(&setup, &["pending"]).await.json();
    let code = pending["pending"][0]["code"].as_str().unwrap();
    assert_eq!(pending["pending"][0]["person"], "discord:u-c1");
    assert!(notice[0].contains(code), "{notice:?}");
    let wrong = access(&setup, &["approve", "AAAAAAAA"]).await;
    assert_eq!(wrong.code, 1, "{wrong:?}");
    let approved = access(&setup, &["approve", code]).await.json();
    assert_eq!(approved, json!({"approved": "discord:u-c1", "role": "user"}));
    assert_eq!(access(&setup, &["approve", code]).await.code, 1, "it works once");
    replies(&connector, "c1", 3).await;
    connector.deliver(&message("c1", "m2", "again")).unwrap();
    connector.deliver(&message("boss", "m3", "/whoami")).unwrap();
    let texts = replies(&connector, "c1", 4).await;
    assert_eq!(
        &texts[1..],
        ["You have access now.", "echo: hello", "echo: again"],
        "the first message is answered now"
    );
    let whoami = replies(&connector, "boss", 1).await;
    assert_eq!(whoami, ["You are discord:u-boss. Your role is owner."]);
    let list = access(&setup, &["list"]).await.json();
    let origins: Vec<&str> = list["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["origin"].as_str().unwrap())
        .collect();
    assert_eq!(origins, ["command", "pairing"]);
    relay.stop().await;
    let usage = verb(&setup, &["usage", "--json"]).await.json();
    let used = usage["usage"].as_array().unwrap();
    let used = used.iter().find(|used| used["person"] == "discord:u-c1");
    assert_eq!(used.expect("the turns are counted")["turns"], 2, "{usage}");
    let log = entries(&setup, &["--person", "discord:u-c1"]).await;
    let decisions: Vec<(&str, &str)> = log
        .iter()
        .map(|entry| {
            for key in ["time", "platform", "chat", "person", "decision", "reason"] {
                assert!(entry[key].is_string(), "{key}: {entry}");
            }
            (
                entry["decision"].as_str().unwrap(),
                entry["reason"].as_str().unwrap(),
            )
        })
        .collect();
    let want = [
        ("refused", "stranger"),
        ("pairing", "code"),
        ("approve", "command"),
        ("allowed", "person"),
        ("allowed", "person"),
    ];
    assert_eq!(decisions, want);
    assert_eq!(log[2]["role"], "user", "the role that was given: {log:?}");
    let file = setup.state_dir().join("audit.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        !text.contains("hello") && !text.contains("again"),
        "never text: {text}"
    );
    assert!(entries(&setup, &["--since", "2100-01-01"]).await.is_empty());
    let shown = verb(&setup, &["access", "list"]).await;
    assert!(
        shown.out.contains("owner   discord:u-boss  (command)"),
        "{}",
        shown.out
    );
}

#[tokio::test]
async fn a_code_that_is_approved_while_no_relay_runs_is_answered_at_the_next_start() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("access.mode", "pair");
    let relay = connected(&setup).await;
    connector.deliver(&message("c1", "m1", "hello")).unwrap();
    replies(&connector, "c1", 1).await;
    relay.stop().await;
    let pending = access(&setup, &["pending"]).await.json();
    let code = pending["pending"][0]["code"].as_str().unwrap();
    let approved = access(&setup, &["approve", code]).await.json();
    assert_eq!(approved["approved"], "discord:u-c1");
    assert_eq!(access(&setup, &["approve", code]).await.code, 1, "it works once");
    let pending = access(&setup, &["pending"]).await.json();
    assert_eq!(pending["pending"], json!([]));
    for _ in 0..2 {
        let relay = connected(&setup).await;
        replies(&connector, "c1", 3).await;
        relay.stop().await;
    }
    let texts = texts(&connector, "c1");
    assert_eq!(&texts[1..], ["You have access now.", "echo: hello"], "once");
}

#[tokio::test]
async fn a_revocation_holds_during_a_turn_and_across_a_restart() {
    let connector = connector().await;
    let people = "[{platform: discord, user: u-c1}, {platform: discord, user: u-c2}]";
    let setup = Setup::for_connector(&connector)
        .setting("access.mode", "list")
        .setting("access.people", people);
    let relay = connected(&setup).await;
    connector
        .deliver(&message("c1", "m1", "sleep=60000 long"))
        .unwrap();
    connector.deliver(&message("c1", "m2", "next")).unwrap();
    status_until(&setup, "one runs and one waits", |status| {
        status["turns_running"] == 1 && status["journal"]["waiting"] == 1
    })
    .await;
    let revoked = access(&setup, &["revoke", "--person", "discord:u-c1"])
        .await
        .json();
    assert_eq!(revoked, json!({"denied": "discord:u-c1"}));
    status_until(&setup, "nothing left", |status| {
        status["turns_running"] == 0 && status["journal"]["waiting"] == 0
    })
    .await;
    relay.stop().await;
    let relay = connected(&setup).await;
    connector.deliver(&message("c1", "m3", "hello?")).unwrap();
    connector.deliver(&message("c2", "m4", "hello")).unwrap();
    assert_eq!(replies(&connector, "c2", 1).await, ["echo: hello"]);
    assert!(
        texts(&connector, "c1")
            .iter()
            .all(|text| text != "echo: hello?" && text != "echo: next")
    );
    assert_eq!(status(&setup).await["tally"]["turns_started"], 1);
    relay.stop().await;
    let list = access(&setup, &["list"]).await.json();
    let denied = list["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["denied"] == true)
        .unwrap();
    assert_eq!(
        (denied["origin"].as_str(), denied["person"].as_str()),
        (Some("command"), Some("discord:u-c1"))
    );
    access(&setup, &["allow", "discord:u-c1"]).await.json();
    let relay = connected(&setup).await;
    connector.deliver(&message("c1", "m5", "back")).unwrap();
    eventually("an answer", async || {
        texts(&connector, "c1")
            .into_iter()
            .find(|text| text == "echo: back")
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn hermes_variables_keep_their_people() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).env("DISCORD_ALLOWED_USERS", "u-c1, u-c3");
    setup.write(".env", "GATEWAY_ALLOWED_USERS=u-c2\n");
    let relay = connected(&setup).await;
    assert_eq!(status(&setup).await["access"]["mode"], "list");
    for (chat, id) in [("c9", "m0"), ("c1", "m1"), ("c2", "m2")] {
        connector.deliver(&message(chat, id, "hello")).unwrap();
    }
    for chat in ["c1", "c2"] {
        assert_eq!(replies(&connector, chat, 1).await, ["echo: hello"]);
    }
    assert!(texts(&connector, "c9").is_empty());
    relay.stop().await;
    let list = access(&setup, &["list"]).await.json();
    assert!(
        list["entries"]
            .as_array()
            .unwrap()
            .iter()
            .all(|entry| entry["origin"] == "hermes" && entry["role"] == "user")
    );
    for (variable, value) in [
        ("DISCORD_ALLOWED_USERS", "*"),
        ("GATEWAY_ALLOW_ALL_USERS", "true"),
    ] {
        let setup = Setup::for_connector(&connector).env(variable, value);
        let relay = connected(&setup).await;
        connector.deliver(&message("c9", variable, variable)).unwrap();
        eventually("an answer", async || {
            texts(&connector, "c9")
                .into_iter()
                .find(|text| text.ends_with(variable))
        })
        .await;
        relay.stop().await;
    }
    // A section of our own holds instead.
    let setup = Setup::for_connector(&connector)
        .env("DISCORD_ALLOWED_USERS", "u-c1")
        .setting("access.mode", "open");
    let relay = connected(&setup).await;
    assert_eq!(status(&setup).await["access"]["mode"], "open");
    relay.stop().await;
}

#[tokio::test]
async fn everybody_behind_an_agent_that_can_act_is_reported() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("agents.script", "{kind: command, argv: [/bin/cat]}")
        .args(&["run", "--agent", "script"]);
    let relay = connected(&setup).await;
    relay
        .wait_for_log("everybody whom the connector lets through may drive script (command)")
        .await;
    let status = status(&setup).await;
    assert_eq!(status["access"]["mode"], "upstream");
    assert!(
        status["access"]["warning"]
            .as_str()
            .unwrap()
            .contains("access.mode: pair"),
        "{status}"
    );
    relay.stop().await;
    let setup = setup.setting("access.mode", "pair");
    let relay = connected(&setup).await;
    assert_eq!(relay.count("may drive"), 0);
    relay.stop().await;
}

#[tokio::test]
async fn wrong_rules_stop_the_start_and_name_their_key() {
    for (key, value, part) in [
        ("access.mode", "list", "access.people"),
        ("access.mode", "everybody", "upstream"),
        (
            "access.people",
            "[{platform: discord, user: '*'}]",
            "access.mode: open",
        ),
        (
            "access.people",
            "[{platform: discrod, user: u}]",
            "unknown platform",
        ),
        ("access.people", "[{platform: discord}]", "an id"),
        (
            "access.people",
            "[{platform: discord, guild_role: admins}]",
            "Copy Role ID",
        ),
        (
            "access.people",
            "[{platform: discord, user: u, guild_role: '7'}]",
            "not both",
        ),
        (
            "access.people",
            "[{platform: slack, guild_role: '7'}]",
            "another platform",
        ),
        ("access.deny", "[{user: u}]", "platform"),
    ] {
        let setup = Setup::with_url("ws://127.0.0.1:1").setting(key, value);
        let (code, said) = setup.ends().await;
        assert_eq!(code, 78, "{value}: {said}");
        assert!(said.contains(part), "{value}: {said}");
    }
    let setup = Setup::new();
    for args in [
        &["allow"][..],
        &["allow", "discrod:1"],
        &["deny", "discord"],
        &["approve"],
    ] {
        assert_eq!(access(&setup, args).await.code, 2, "{args:?}");
    }
}

#[tokio::test]
async fn a_flood_of_strangers_delays_nobody_and_needs_no_memory() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("access.mode", "pair")
        .setting("access.people", "[{platform: discord, user: u-c1}]");
    let relay = connected(&setup).await;
    connector.deliver(&message("c1", "m0", "before")).unwrap();
    replies(&connector, "c1", 1).await;
    let before = relay.memory_kib("VmRSS");
    for number in 0..1500 {
        connector
            .deliver(&message(
                &format!("x{number}"),
                &format!("f{number}"),
                "let me in",
            ))
            .unwrap();
    }
    connector.deliver(&message("c1", "m1", "during")).unwrap();
    assert_eq!(replies(&connector, "c1", 2).await[1], "echo: during");
    status_until(&setup, "all taken", |status| status["tally"]["acks"] == 1502).await;
    let strangers = connector
        .sent_messages()
        .into_iter()
        .filter(|sent| sent.chat_id != "c1");
    assert_eq!(strangers.count(), 3, "three codes wait at a time");
    let status = status(&setup).await;
    assert_eq!(
        (&status["chats_known"], &status["tally"]["turns_started"]),
        (&json!(1), &json!(2))
    );
    let grown = relay.memory_kib("VmRSS").saturating_sub(before);
    assert!(grown < 48 * 1024, "{grown} KiB more");
    relay.stop().await;
}
