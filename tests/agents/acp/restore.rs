//! Sessions that outlive their process, or do not.

use hermes_relay::agent::{AcpSettings, Agent, TurnEnd};

use crate::acp::rig::{Rig, key};

fn hermes(settings: &mut AcpSettings) {
    settings.preset = Some("hermes".to_owned());
}

#[tokio::test]
async fn a_session_goes_on_after_a_restart_and_the_replay_is_not_shown() {
    for flags in ["load", "resume", "load resume"] {
        let rig = Rig::new(flags);
        assert_eq!(rig.ask("a", "one").await, "heard: one");
        rig.agent.shutdown().await;
        let rig = rig.restarted(flags, |_| {});
        let (end, reply) = rig.turn("a", "history").await;
        assert_eq!(end, TurnEnd::Completed);
        assert!(reply.text.starts_with("2 in "), "{flags}: {reply:?}");
        assert_eq!(reply.notices(), Vec::<&str>::new());
    }
}

#[tokio::test]
async fn a_session_that_is_lost_begins_anew_and_reports_it() {
    for (flags, quirks) in [
        ("load", None),
        ("", None),
        ("load hermes", Some(hermes as fn(&mut AcpSettings))),
        ("resume hermes", Some(hermes)),
    ] {
        let rig = Rig::new(flags);
        rig.ask("a", "one").await;
        rig.agent.shutdown().await;
        for file in std::fs::read_dir(rig.store.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        let rig = rig.restarted(flags, |settings| {
            if let Some(adjust) = quirks {
                adjust(settings);
            }
        });
        let (end, reply) = rig.turn("a", "history").await;
        assert_eq!(end, TurnEnd::Completed);
        assert!(reply.text.starts_with("1 in "), "{flags}: {reply:?}");
        assert_eq!(reply.notices().len(), 1, "{flags}: {reply:?}");
        assert!(rig.ask("a", "history").await.starts_with("2 in "), "{flags}");
    }
}

#[tokio::test]
async fn a_session_that_the_agent_lost_while_it_ran_begins_anew_once() {
    for flags in ["", "hermes"] {
        let rig = Rig::with(flags, |settings| {
            if flags == "hermes" {
                hermes(settings);
            }
        });
        assert_eq!(rig.ask("a", "lose").await, "who are you");
        assert!(rig.ask("a", "history").await.starts_with("1 in "), "{flags}");
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
    for (flags, logged) in [
        ("load delete close", "session/delete"),
        ("load close", "session/close"),
    ] {
        let rig = Rig::new(flags);
        rig.ask("a", "one").await;
        rig.agent.forget(&key("a")).await;
        assert!(rig.log().contains(logged), "{}", rig.log());
        assert!(rig.ask("a", "history").await.starts_with("1 in "), "{flags}");
    }
    let rig = Rig::new("load");
    rig.ask("a", "one").await;
    let rig = rig.restarted("load", |_| {});
    rig.agent.forget(&key("a")).await;
    assert!(
        rig.ask("a", "history").await.starts_with("1 in "),
        "not recalled either"
    );
}

#[tokio::test]
async fn another_backend_does_not_take_what_was_kept() {
    let rig = Rig::new("load");
    rig.ask("a", "one").await;
    let moved = tempfile::tempdir().unwrap();
    let rig = rig.restarted("load", |settings| settings.cwd = Some(moved.path().to_owned()));
    assert!(
        rig.ask("a", "history").await.starts_with("1 in "),
        "another directory is another session"
    );
}
