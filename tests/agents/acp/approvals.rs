//! Permissions: asked, denied, not answered, overtaken by a stop.

use std::time::Duration;

use hermes_relay::agent::{Meaning, Permission, TurnEnd, TurnInput};

use crate::acp::rig::{People, Rig};

#[tokio::test]
async fn what_people_choose_reaches_the_agent_by_its_own_name() {
    let mut rig = Rig::new("");
    for (meaning, chosen) in [
        (Meaning::AllowOnce, "yes / once"),
        (Meaning::AllowAlways, "yes / always"),
        (Meaning::Deny, "deny it"),
    ] {
        rig.people = People::Say(meaning);
        let (end, reply) = rig.turn("a", "ask").await;
        assert_eq!(end, TurnEnd::Completed);
        assert_eq!(reply.text, format!("may I? chosen: {chosen}"));
        let question = &reply.questions[0];
        assert_eq!(
            (question.text.as_str(), question.detail.as_deref()),
            ("Run a command", Some("rm -r /tmp/x"))
        );
    }
}

#[tokio::test]
async fn a_policy_answers_without_people() {
    let rig = Rig::new("");
    let input = || TurnInput {
        text: "ask".to_owned(),
        ..TurnInput::default()
    };
    let (_, reply) = rig.start_with("a", input(), Permission::Deny).end().await;
    assert_eq!(
        (reply.text.as_str(), reply.questions.len()),
        ("may I? chosen: deny it", 0)
    );
    let (_, reply) = rig.start_with("a", input(), Permission::Allow).end().await;
    assert_eq!(reply.text, "may I? chosen: yes / once");
}

#[tokio::test]
async fn an_unanswered_question_is_denied_before_the_agent_times_out() {
    let rig = Rig::with("", |settings| settings.permission_patience_secs = Some(1));
    let (end, reply) = rig.turn("a", "ask").await;
    assert_eq!(
        (end, reply.text.as_str()),
        (TurnEnd::Completed, "may I? chosen: deny it")
    );
    assert_eq!(reply.questions[0].timeout, Some(Duration::from_secs(1)));
    let hermes = Rig::with("", |settings| settings.preset = Some("hermes".to_owned()));
    let mut running = hermes.start("a", "ask");
    running
        .wait_for("a question", |reply| !reply.questions.is_empty())
        .await;
    let (_, reply) = running.stop().await;
    assert_eq!(reply.questions[0].timeout, Some(Duration::from_secs(60)));
}

#[tokio::test]
async fn a_question_that_the_agent_withdraws_ends() {
    let (end, reply) = Rig::new("").turn("a", "withdraw").await;
    assert_eq!(
        (end, reply.text.as_str()),
        (TurnEnd::Completed, "chosen: nothing")
    );
}

#[tokio::test]
async fn a_stop_cancels_open_questions_before_it_reaches_the_agent() {
    let rig = Rig::new("");
    let mut running = rig.start("a", "askhang");
    running
        .wait_for("a question", |reply| !reply.questions.is_empty())
        .await;
    let (end, _) = running.stop().await;
    assert_eq!(end, TurnEnd::Cancelled { confirmed: true });
    assert!(rig.log().contains("chosen: cancelled"), "{}", rig.log());
}
