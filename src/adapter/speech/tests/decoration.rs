//! Marks, typing and progress.

use super::super::PlanLine;
use super::*;

fn react(emoji: &str, remove: bool, more: Value) -> Value {
    json!({"op": "react", "chat_id": "c", "message_id": "m0", "emoji": emoji, "remove": remove,
        "metadata": tags(more)})
}

fn only(change: impl Fn(&mut SpeechSettings)) -> SpeechSettings {
    let mut settings = bare();
    change(&mut settings);
    settings
}

fn reactions() -> SpeechSettings {
    only(|settings| settings.reactions = true)
}

fn progress() -> SpeechSettings {
    only(|settings| settings.tool_progress = true)
}

#[test]
fn the_message_is_marked_while_the_turn_runs_and_when_it_ended() {
    for (platform, end, emoji) in [
        ("discord", Ending::Done, Some("\u{2705}")),
        ("discord", Ending::Failed, Some("\u{274c}")),
        ("discord", Ending::Stopped, None),
        ("telegram", Ending::Done, Some("\u{1f44d}")),
        ("telegram", Ending::Failed, Some("\u{1f44e}")),
    ] {
        let mut scene = Scene::new(reactions(), place(descriptor(platform)));
        assert_eq!(scene.op(), react("\u{1f440}", false, none()));
        scene
            .settle(&Fate::Applied { message_id: None })
            .after(5000)
            .quiet();
        let after = values(&scene.speech.finish(end, scene.now).after);
        let mut wanted = vec![react("\u{1f440}", true, none())];
        wanted.extend(emoji.map(|emoji| react(emoji, false, none())));
        assert_eq!(after, wanted, "{platform} {end:?}");
    }
}

#[test]
fn a_mark_that_was_not_made_is_not_taken_away() {
    for fate in [Fate::Refused, Fate::Shed, Fate::NotSent, Fate::Declined] {
        let mut scene = Scene::new(reactions(), place(descriptor("discord")));
        scene.op();
        scene.settle(&fate).after(5000).quiet();
        scene.say("Hi.");
        let farewell = scene.finish();
        assert!(farewell.after.is_empty() && farewell.owed.len() == 1, "{fate:?}");
    }
    let mut nameless = place(descriptor("discord"));
    Arc::make_mut(&mut nameless.facts).message_id = None;
    Scene::new(reactions(), nameless).quiet();
    Scene::new(reactions(), place(descriptor("legacy"))).quiet();
}

#[test]
fn typing_beats_while_the_turn_runs_and_not_in_a_quick_one() {
    let mut scene = Scene::new(
        only(|settings| settings.typing = true),
        place(descriptor("discord")),
    );
    scene.after(399).quiet();
    scene.after(1);
    let utterance = scene.speech.poll(scene.now).unwrap();
    assert_eq!(
        serde_json::to_value(&utterance.action).unwrap(),
        json!({"op": "typing", "chat_id": "c", "metadata": tags(none())})
    );
    assert_eq!(utterance.weight, Weight::Cosmetic);
    assert_eq!(utterance.deadline, Some(Duration::from_millis(1900)));
    let later = scene.after(1500).now;
    scene.speech.settled(utterance.ticket, &Fate::Unknown, later);
    scene.after(499).quiet();
    assert_eq!(scene.after(1).op()["op"], "typing");
    scene.settle(&Fate::Refused).after(60_000).quiet();
    assert_eq!(scene.speech.counters().cosmetic_failed, 2);
    assert_eq!(scene.finish(), Farewell::default());
}

#[test]
fn slacks_status_is_cleared_when_it_was_shown() {
    let status = |content: &str| {
        json!({"op": "typing", "chat_id": "c", "metadata": tags(json!({"thread_id": "m0"})),
            "content": content})
    };
    let settings = only(|settings| settings.typing = true);
    let mut scene = Scene::new(settings.clone(), place(descriptor("slack")));
    assert_eq!(scene.after(400).op(), status("is thinking\u{2026}"));
    scene.settle(&Fate::Applied { message_id: None });
    assert_eq!(values(&scene.finish().after), [status("")]);
    let mut scene = Scene::new(settings, place(descriptor("slack")));
    scene.quiet();
    assert_eq!(scene.finish(), Farewell::default());
}

#[test]
fn progress_is_one_message_that_grows_and_answers_nothing() {
    let mut scene = Scene::new(progress(), place(descriptor("discord")));
    scene.tool("read\n  it").quiet();
    assert_eq!(
        scene.after(400).op(),
        json!({"op": "send", "chat_id": "c", "content": "\u{25b8} read it", "reply_to": null,
            "metadata": tags(growing())})
    );
    scene.settle(&applied("p1"));
    scene
        .speech
        .tool(&tool("read\n  it", "", StepState::Done), scene.now);
    scene.tool("write it").quiet();
    assert_eq!(
        scene.after(800).op(),
        edit("p1", "\u{2713} read it\n\u{25b8} write it", none())
    );
    scene.settle(&applied("p1")).say("Done.");
    let farewell = scene.speech.finish(Ending::Stopped, scene.now);
    assert_eq!(
        values(&farewell.after),
        [edit("p1", "\u{2713} read it\n\u{25a0} write it", none())]
    );
}

#[test]
fn progress_keeps_the_newest_lines_and_stays_within_the_limit() {
    let mut small = descriptor("discord");
    small.max_message_length = 40;
    let mut scene = Scene::new(progress(), place(small));
    let step = |text: &str, state| PlanLine {
        text: text.into(),
        state,
    };
    scene.speech.plan(
        &[step("first", StepState::Done), step("second", StepState::Running)],
        scene.now,
    );
    for number in 0..500 {
        scene.tool(&format!("tool number {number}"));
    }
    let op = scene.after(400).op();
    assert_eq!(
        op["content"],
        "\u{25b8} tool number 498\n\u{25b8} tool number 499"
    );
    scene.settle(&Fate::Applied { message_id: None });
    scene.tool("another").after(60_000).quiet();
}

#[test]
fn progress_needs_edits_and_ends_with_a_refusal() {
    let mut scene = Scene::new(progress(), place(descriptor("whatsapp")));
    scene.tool("t1").after(60_000).quiet();
    for fate in [Fate::Refused, Fate::Unknown, Fate::Declined] {
        let mut scene = Scene::new(progress(), place(descriptor("discord")));
        scene.tool("t1").after(400).op();
        scene.settle(&fate).tool("t2").after(60_000).quiet();
        assert_eq!(scene.finish(), Farewell::default());
    }
}

#[test]
fn patience_with_text_is_patience_with_decoration() {
    let mut settings = progress();
    settings.typing = true;
    let mut scene = Scene::new(settings, place(descriptor("discord")));
    scene.say("Some text.").op();
    scene.settle(&Fate::RateLimited {
        retry_after: Some(Duration::from_secs(9)),
    });
    scene.tool("t1").after(8999).quiet();
    scene.after(1);
    assert_eq!(scene.op()["op"], "send");
    assert_eq!(scene.op()["op"], "typing");
}
