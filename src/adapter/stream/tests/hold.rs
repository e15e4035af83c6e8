//! The first text is held back a moment, so that a short, fast answer is one message.

use super::*;

fn holding(platform: &str) -> Scene {
    let settings = StreamSettings {
        first_hold_ms: 250,
        ..bare()
    };
    Scene::new(settings, target(descriptor(platform)))
}

#[test]
fn an_answer_that_ends_within_the_hold_is_one_message() {
    for platform in ["discord", "telegram", "slack", "legacy"] {
        let mut scene = holding(platform);
        scene.push_text("Hello").quiet();
        scene.after(249).push_text(" there.").quiet();
        assert!(!scene.stream.awaits_outcome());
        let ops = durable(&scene.finish());
        let [(only, fallback)] = &ops[..] else {
            panic!("{platform}: {ops:?}");
        };
        assert_eq!(
            (&only["op"], &only["content"]),
            (&json!("send"), &json!("Hello there."))
        );
        assert!(fallback.is_empty(), "{platform}");
    }
}

#[test]
fn an_answer_that_goes_on_is_shown_when_the_hold_ends() {
    let mut scene = holding("discord");
    scene
        .after(1000)
        .push_text("Hello")
        .after(100)
        .push_text(" there")
        .quiet();
    assert_eq!(scene.stream.poll_timeout(), Some(Duration::from_millis(1250)));
    assert_eq!(scene.after(150).op(), send("Hello there \u{2589}", growing()));
    scene.settle(&applied("m1"));
    // Only the first text waits.
    scene.push_text(", and this is a good deal more").after(800);
    assert_eq!(
        scene.op(),
        edit("m1", "Hello there, and this is a good deal more \u{2589}", none())
    );
}

#[test]
fn whatever_else_the_agent_does_ends_the_hold() {
    let mut scene = holding("discord");
    assert_eq!(
        scene.push_text("Looking.").tool("t1").op(),
        send("Looking.", none())
    );
    let mut scene = holding("discord");
    assert_eq!(
        scene.push_text("Which one?").break_message().op(),
        send("Which one?", none())
    );
    scene
        .settle(&applied("m1"))
        .after(800)
        .push_text("This one, then");
    assert_eq!(
        scene.op(),
        send("This one, then \u{2589}", growing()),
        "the hold is over"
    );
    let mut scene = holding("discord");
    scene.push_text("Hello").quiet();
    scene.stream.notice("Cheaper model.", scene.now);
    assert_eq!(scene.op()["content"], "Cheaper model.");
}

#[test]
fn a_full_message_and_indicators_do_not_wait() {
    let mut scene = holding("discord");
    scene.push_text(&"word ".repeat(500));
    assert_eq!(scene.op()["op"], "send");
    let settings = StreamSettings {
        typing: true,
        typing_after_ms: 100,
        first_hold_ms: 250,
        ..bare()
    };
    let mut scene = Scene::new(settings, target(descriptor("discord")));
    scene.push_text("Hello");
    assert_eq!(scene.after(100).op()["op"], "typing");
}

#[test]
fn without_a_hold_the_first_text_is_shown_at_once() {
    let mut scene = Scene::on("discord");
    assert_eq!(scene.push_text("Hello").op(), send("Hello \u{2589}", growing()));
}
