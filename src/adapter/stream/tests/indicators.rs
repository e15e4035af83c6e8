//! Marks, typing and progress.

use super::super::PlanLine;
use super::*;

fn react(emoji: &str, remove: bool, more: Value) -> Value {
    json!({"op": "react", "chat_id": "c", "message_id": "m0", "emoji": emoji, "remove": remove,
        "metadata": tags(more)})
}

fn only(change: impl Fn(&mut StreamSettings)) -> StreamSettings {
    let mut settings = bare();
    change(&mut settings);
    settings
}

fn reactions() -> StreamSettings {
    only(|settings| settings.reactions = true)
}

fn progress() -> StreamSettings {
    only(|settings| settings.tool_progress = true)
}

#[test]
fn the_answered_message_gets_a_reaction_while_the_turn_runs_and_at_its_end() {
    for (platform, end, emoji) in [
        ("discord", TurnResult::Done, Some("\u{2705}")),
        ("discord", TurnResult::Failed, Some("\u{274c}")),
        ("discord", TurnResult::Stopped, None),
        ("telegram", TurnResult::Done, Some("\u{1f44d}")),
        ("telegram", TurnResult::Failed, Some("\u{1f44e}")),
    ] {
        let mut scene = Scene::new(reactions(), target(descriptor(platform)));
        assert_eq!(scene.op(), react("\u{1f440}", false, none()));
        scene
            .settle(&OpOutcome::Applied { message_id: None })
            .after(5000)
            .quiet();
        let after = values(&scene.stream.finish(end, scene.now).indicators);
        let mut wanted = vec![react("\u{1f440}", true, none())];
        wanted.extend(emoji.map(|emoji| react(emoji, false, none())));
        assert_eq!(after, wanted, "{platform} {end:?}");
    }
}

#[test]
fn a_long_turn_shows_its_time_and_step_and_more_rarely_the_longer_it_runs() {
    for lists_steps in [true, false] {
        let settings = only(|settings| settings.tool_progress = lists_steps);
        let mut scene = Scene::new(settings, target(descriptor("discord")));
        scene.stream = scene.stream.showing_time(Duration::from_secs(30), Duration::ZERO);
        scene.after(29_000).quiet();
        let due = scene.stream.poll_timeout();
        assert_eq!(due, Some(Duration::from_secs(30)));
        scene.after(1000);
        assert_eq!(scene.op()["content"], "\u{23f1} 30 s");
        scene.settle(&applied("p1")).quiet();
        scene.tool("build").after(1000);
        let steps = if lists_steps { "\n\u{25b8} build" } else { "" };
        assert_eq!(scene.op()["content"], format!("\u{23f1} 31 s: build{steps}"));
        scene.settle(&applied("p1")).after(8000).quiet();
        scene.after(1000);
        assert_eq!(
            scene.op()["content"],
            format!("\u{23f1} 40 s: build{steps}"),
            "every ten seconds"
        );
        scene.settle(&applied("p1")).after(120_000);
        scene.op();
        scene.settle(&applied("p1")).after(29_000).quiet();
        let last = values(&scene.finish().indicators);
        let steps = if lists_steps { "\n\u{2713} build" } else { "" };
        assert_eq!(last[0]["content"], format!("\u{23f1} 3 min 9 s{steps}"));
    }
}

#[test]
fn a_reaction_that_was_not_added_is_not_removed() {
    for outcome in [
        OpOutcome::Refused,
        OpOutcome::Dropped,
        OpOutcome::NotSent,
        OpOutcome::Declined,
    ] {
        let mut scene = Scene::new(reactions(), target(descriptor("discord")));
        scene.op();
        scene.settle(&outcome).after(5000).quiet();
        scene.push_text("Hi.");
        let final_ops = scene.finish();
        assert!(
            final_ops.indicators.is_empty() && final_ops.durable.len() == 1,
            "{outcome:?}"
        );
    }
    let mut nameless = target(descriptor("discord"));
    Arc::make_mut(&mut nameless.chat).facts.message_id = None;
    Scene::new(reactions(), nameless).quiet();
    Scene::new(reactions(), target(descriptor("legacy"))).quiet();
}

#[test]
fn typing_repeats_while_the_turn_runs_but_not_in_a_quick_turn() {
    let mut scene = Scene::new(
        only(|settings| settings.typing = true),
        target(descriptor("discord")),
    );
    scene.after(399).quiet();
    scene.after(1);
    let op = scene.stream.poll(scene.now).unwrap();
    assert_eq!(
        serde_json::to_value(&op.action).unwrap(),
        json!({"op": "typing", "chat_id": "c", "metadata": tags(none())})
    );
    assert_eq!(op.priority, Priority::Activity);
    assert_eq!(op.deadline, Some(Duration::from_millis(1900)));
    let later = scene.after(1500).now;
    scene.stream.op_finished(op.id, &OpOutcome::Unknown, later);
    scene.after(499).quiet();
    assert_eq!(scene.after(1).op()["op"], "typing");
    scene.settle(&OpOutcome::Refused).after(60_000).quiet();
    assert_eq!(scene.finish(), FinalOps::default());
}

#[test]
fn slacks_status_is_cleared_when_it_was_shown() {
    let status = |content: &str| {
        json!({"op": "typing", "chat_id": "c", "metadata": tags(json!({"thread_id": "m0"})),
            "content": content})
    };
    let settings = only(|settings| settings.typing = true);
    let mut scene = Scene::new(settings.clone(), target(descriptor("slack")));
    assert_eq!(scene.after(400).op(), status("is thinking\u{2026}"));
    scene.settle(&OpOutcome::Applied { message_id: None });
    assert_eq!(values(&scene.finish().indicators), [status("")]);
    let mut scene = Scene::new(settings, target(descriptor("slack")));
    scene.quiet();
    assert_eq!(scene.finish(), FinalOps::default());
}

#[test]
fn what_a_turn_may_have_shown_that_ended_with_its_process_is_taken_back_as_after_a_stop() {
    let settings = only(|settings| (settings.typing, settings.reactions) = (true, true));
    for (platform, ops) in [
        ("slack", vec!["react", "typing"]),
        ("discord", vec!["react"]),
        ("telegram", vec!["react"]),
        ("legacy", vec![]),
    ] {
        let target = target(descriptor(platform));
        let mut scene = Scene::new(settings.clone(), target.clone());
        if !ops.is_empty() {
            scene.op();
            scene.settle(&OpOutcome::Unknown).after(400).op();
        }
        let stopped = scene.stream.finish(TurnResult::Stopped, scene.now).indicators;
        let builder = builder(&settings, SlackConfig::default(), &target);
        let left = left_indicators(&Arc::new(settings.clone()), &builder, &target);
        assert_eq!(left, stopped, "{platform}");
        let names: Vec<_> = left.iter().map(Action::op).collect();
        assert_eq!(names, ops, "{platform}");
        assert!(
            values(&left)
                .iter()
                .all(|op| op["op"] != "react" || op["remove"] == true)
        );
    }
    let target = target(descriptor("slack"));
    let builder = builder(&bare(), SlackConfig::default(), &target);
    assert_eq!(left_indicators(&Arc::new(bare()), &builder, &target), []);
}

#[test]
fn progress_is_one_growing_message_that_replies_to_nothing() {
    let mut scene = Scene::new(progress(), target(descriptor("discord")));
    scene.tool("read\n  it").quiet();
    assert_eq!(
        scene.after(400).op(),
        json!({"op": "send", "chat_id": "c", "content": "\u{25b8} read it", "reply_to": null,
            "metadata": tags(growing())})
    );
    scene.settle(&applied("p1"));
    scene
        .stream
        .tool(&tool("read\n  it", "", StepState::Done), scene.now);
    scene.tool("write it").quiet();
    assert_eq!(
        scene.after(800).op(),
        edit("p1", "\u{2713} read it\n\u{25b8} write it", none())
    );
    scene.settle(&applied("p1")).push_text("Done.");
    let final_ops = scene.stream.finish(TurnResult::Stopped, scene.now);
    assert_eq!(
        values(&final_ops.indicators),
        [edit("p1", "\u{2713} read it\n\u{25a0} write it", none())]
    );
}

#[test]
fn progress_keeps_the_newest_lines_and_stays_within_the_limit() {
    let mut small = descriptor("discord");
    small.max_message_length = 40;
    let mut scene = Scene::new(progress(), target(small));
    let step = |text: &str, state| PlanLine {
        text: text.into(),
        state,
    };
    scene.stream.plan(
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
    scene.settle(&OpOutcome::Applied { message_id: None });
    scene.tool("another").after(60_000).quiet();
}

#[test]
fn progress_needs_edits_and_ends_with_a_refusal() {
    let mut scene = Scene::new(progress(), target(descriptor("whatsapp")));
    scene.tool("t1").after(60_000).quiet();
    for outcome in [OpOutcome::Refused, OpOutcome::Unknown, OpOutcome::Declined] {
        let mut scene = Scene::new(progress(), target(descriptor("discord")));
        scene.tool("t1").after(400).op();
        scene.settle(&outcome).tool("t2").after(60_000).quiet();
        assert_eq!(scene.finish(), FinalOps::default());
    }
}

#[test]
fn a_rate_limit_of_text_holds_indicators_too() {
    let mut settings = progress();
    settings.typing = true;
    let mut scene = Scene::new(settings, target(descriptor("discord")));
    scene.push_text("Some text.").op();
    scene.settle(&OpOutcome::RateLimited {
        retry_after: Some(Duration::from_secs(9)),
    });
    scene.tool("t1").after(8999).quiet();
    scene.after(1);
    assert_eq!(scene.op()["op"], "send");
    assert_eq!(scene.op()["op"], "typing");
}
