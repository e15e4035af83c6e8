//! Messages that change after they came, placeholders of commands, and what breaks at random moments.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::load::{chance, number_from};
use super::{answered, setup, started};
use crate::support::discord::{CHANNEL, FakeDiscord};
use crate::support::wait::eventually;

/// Rounds of kills and cuts: `DISCORD_KILLS`, else a few.
const KILLS: &str = "DISCORD_KILLS";

#[tokio::test]
async fn an_edit_replaces_what_waits_and_a_deletion_withdraws_it() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    fake.say("sleep=2000 one");
    let [two, three, four, five, six] = ["two", "three", "four", "five", "six"].map(|text| fake.say(text));
    fake.change(two, "two, better", Some("2026-01-01T00:00:00.000000+00:00"));
    fake.change(three, "three with a preview", None);
    fake.delete(&[four]);
    fake.delete(&[five, six]);
    fake.say("seven");
    answered(&fake, "echo: seven").await;
    assert_eq!(
        fake.answers(),
        ["echo: one", "echo: two, better", "echo: three", "echo: seven"]
    );
    // It is answered already.
    fake.change(three, "three, too late", Some("2026-01-01T00:00:01.000000+00:00"));
    fake.say("eight");
    answered(&fake, "echo: eight").await;
    assert_eq!(fake.answers().len(), 5, "{:?}", fake.answers());
    relay.stop().await;
}

#[tokio::test]
async fn whoever_is_ignored_sees_no_placeholder() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake)
        .setting("access.mode", "list")
        .setting("access.people", "[{platform: discord, user: '3', role: owner}]");
    let relay = started(&setup).await;
    fake.interacts(2, &json!({"name": "ask-me"}));
    eventually("the placeholder is gone", async || fake.discarded() == 1).await;
    assert_eq!(fake.callbacks(), [json!({"type": 5})]);
    assert!(
        fake.replaced().is_empty() && fake.answers().is_empty(),
        "{:?}",
        fake.answers()
    );
    relay.stop().await;
}

#[tokio::test]
async fn no_placeholder_stays_after_an_answer_without_text_or_with_a_file_only() {
    let fake = FakeDiscord::start().await;
    let work = tempfile::tempdir().unwrap();
    std::fs::write(work.path().join("notes.txt"), "some notes").unwrap();
    let script = r#"echo '{\"type\":\"media\",\"path\":\"notes.txt\"}'"#;
    let filer = format!(
        "{{kind: command, argv: [sh, -c, \"{script}\"], output: jsonl, workdir: \"{}\"}}",
        work.path().display()
    );
    let setup = setup(&fake)
        .setting("agents.silent", "{kind: noop}")
        .setting("agents.filer", &filer)
        .args(&["run", "--agent", "silent"]);
    let relay = started(&setup).await;
    fake.interacts(2, &json!({"name": "ask-me"}));
    eventually("the placeholder is gone", async || fake.discarded() == 1).await;
    assert!(fake.replaced().is_empty() && fake.answers().is_empty());
    relay.stop().await;
    let setup = setup.args(&["run", "--agent", "filer"]);
    let relay = started(&setup).await;
    fake.interacts(2, &json!({"name": "ask-me"}));
    eventually("the file takes its place", async || fake.uploads().len() == 1).await;
    assert_eq!((fake.replaced(), fake.discarded()), (vec![String::new()], 1));
    assert!(fake.answers().is_empty(), "{:?}", fake.answers());
    relay.stop().await;
}

#[tokio::test]
async fn no_placeholder_stays_of_a_command_that_gets_no_answer_of_its_own() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    fake.say("one");
    answered(&fake, "echo: one").await;
    fake.interacts(2, &json!({"name": "retry"}));
    eventually("the message runs again", async || fake.answers().len() == 2).await;
    eventually("the placeholder is gone", async || fake.discarded() == 1).await;
    // One that waits is dropped, and the question about that takes the place of its own placeholder.
    fake.say("sleep=4000 two");
    fake.interacts(2, &json!({"name": "ask-me"}));
    fake.interacts(2, &json!({"name": "queue"}));
    eventually("the question", async || fake.replaced().len() == 1).await;
    assert!(fake.replaced()[0].contains("Which one"), "{:?}", fake.replaced());
    let drop = fake.buttons()[0]["components"][0]["custom_id"].clone();
    fake.interacts(3, &json!({"custom_id": drop, "component_type": 2}));
    eventually("the placeholder is gone", async || fake.discarded() == 2).await;
    answered(&fake, "echo: two").await;
    assert_eq!(fake.replaced().len(), 1, "{:?}", fake.replaced());
    relay.stop().await;
}

#[tokio::test]
async fn a_message_that_comes_again_when_a_session_goes_on_gets_its_thread() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake).setting("chat.group_threads", "true");
    let mut relay = started(&setup).await;
    fake.say_in(CHANNEL, "<@1> one");
    answered(&fake, "echo: one").await;
    // The position is stored shortly after the commit.
    sleep(Duration::from_millis(600)).await;
    relay.kill().await;
    fake.say_in(CHANNEL, "<@1> two");
    let relay = started(&setup).await;
    answered(&fake, "echo: two").await;
    relay.stop().await;
    assert_eq!(fake.sessions(), (1, 1), "the session was resumed");
    assert_eq!(fake.threads(), ["one", "two"]);
}

#[tokio::test]
async fn a_running_turn_leaves_the_placeholder_of_a_command_to_its_answer() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    fake.say("sleep=1000 one");
    fake.interacts(2, &json!({"name": "ask-me"}));
    eventually("the answer to the command", async || fake.replaced().len() == 1).await;
    assert!(fake.replaced()[0].contains("/ask-me"), "{:?}", fake.replaced());
    assert_eq!(fake.answers(), ["echo: one"]);
    assert_eq!(fake.discarded(), 0);
    relay.stop().await;
}

/// Kills the relay or cuts its connection at moments that differ from run to run.
#[tokio::test]
async fn kills_and_cuts_at_random_moments_lose_nothing_and_show_nothing_twice() {
    let rounds = number_from(KILLS, 4);
    let mut random = chance();
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let mut relay = started(&setup).await;
    for round in 0..rounds {
        fake.say(&format!("{round} a"));
        sleep(Duration::from_millis(random(300))).await;
        fake.say(&format!("{round} b"));
        if round % 2 == 0 {
            relay.kill().await;
            fake.say(&format!("{round} c"));
            relay = started(&setup).await;
        } else {
            fake.cut();
            fake.say(&format!("{round} c"));
        }
        sleep(Duration::from_millis(random(300))).await;
    }
    let wanted = usize::try_from(3 * rounds).unwrap();
    eventually("an answer to each message", async || {
        fake.answers().len() >= wanted
    })
    .await;
    relay.stop().await;
    let mut answers = fake.answers();
    assert_eq!(answers.len(), wanted, "{answers:?}");
    // A turn that a kill ended is not run again: its answer is a notice.
    answers.retain(|answer| answer.starts_with("echo: "));
    answers.sort();
    answers.dedup();
    let notices = wanted - answers.len();
    println!("{notices} of {wanted} turns were ended by a kill");
    assert!(
        notices <= wanted / 3,
        "{notices} of {wanted} turns were not answered"
    );
}
