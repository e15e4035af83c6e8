//! Sessions that outlive their process, or do not.

use hermes_relay::agent::{AcpSettings, Agent, TurnEnd};

use crate::acp::rig::{Rig, key};

fn hermes(settings: &mut AcpSettings) {
    settings.preset = Some("hermes".to_owned());
}

#[tokio::test]
async fn a_session_goes_on_after_a_restart_and_the_replay_is_not_shown() {
    for words in ["load", "resume", "load resume"] {
        let rig = Rig::new(words);
        assert_eq!(rig.says("a", "one").await, "heard: one");
        rig.agent.shutdown().await;
        let rig = rig.restarted(words, |_| {});
        let (end, heard) = rig.turn("a", "history").await;
        assert_eq!(end, TurnEnd::Completed);
        assert!(heard.text.starts_with("2 in "), "{words}: {heard:?}");
        assert_eq!(heard.notices(), Vec::<&str>::new());
    }
}

#[tokio::test]
async fn a_session_that_is_lost_begins_anew_and_reports_it() {
    for (words, quirks) in [
        ("load", None),
        ("", None),
        ("load hermes", Some(hermes as fn(&mut AcpSettings))),
        ("resume hermes", Some(hermes)),
    ] {
        let rig = Rig::new(words);
        rig.says("a", "one").await;
        rig.agent.shutdown().await;
        for file in std::fs::read_dir(rig.store.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        let rig = rig.restarted(words, |settings| {
            if let Some(adjust) = quirks {
                adjust(settings);
            }
        });
        let (end, heard) = rig.turn("a", "history").await;
        assert_eq!(end, TurnEnd::Completed);
        assert!(heard.text.starts_with("1 in "), "{words}: {heard:?}");
        assert_eq!(heard.notices().len(), 1, "{words}: {heard:?}");
        assert!(rig.says("a", "history").await.starts_with("2 in "), "{words}");
    }
}

#[tokio::test]
async fn a_session_that_the_agent_lost_while_it_ran_begins_anew_once() {
    for words in ["", "hermes"] {
        let rig = Rig::with(words, |settings| {
            if words == "hermes" {
                hermes(settings);
            }
        });
        assert_eq!(rig.says("a", "lose").await, "who are you");
        assert!(rig.says("a", "history").await.starts_with("1 in "), "{words}");
    }
}

#[tokio::test]
async fn a_refusal_of_the_model_is_one() {
    let rig = Rig::with("hermes", hermes);
    assert_eq!(rig.turn("a", "stop refusal").await.0, TurnEnd::Refused);
    assert_eq!(rig.log().matches("prompt stop refusal").count(), 1);
}

#[tokio::test]
async fn what_is_forgotten_does_not_come_back() {
    for (words, told) in [
        ("load delete close", "session/delete"),
        ("load close", "session/close"),
    ] {
        let rig = Rig::new(words);
        rig.says("a", "one").await;
        rig.agent.forget(&key("a")).await;
        assert!(rig.log().contains(told), "{}", rig.log());
        assert!(rig.says("a", "history").await.starts_with("1 in "), "{words}");
    }
    let rig = Rig::new("load");
    rig.says("a", "one").await;
    let rig = rig.restarted("load", |_| {});
    rig.agent.forget(&key("a")).await;
    assert!(
        rig.says("a", "history").await.starts_with("1 in "),
        "not recalled either"
    );
}

#[tokio::test]
async fn another_backend_does_not_take_what_was_kept() {
    let rig = Rig::new("load");
    rig.says("a", "one").await;
    let moved = tempfile::tempdir().unwrap();
    let rig = rig.restarted("load", |settings| settings.cwd = Some(moved.path().to_owned()));
    assert!(
        rig.says("a", "history").await.starts_with("1 in "),
        "another directory is another session"
    );
}
