//! Final ops when ops are refused, lost, or of unknown outcome.

use super::*;

const TEXT: &str = "Hello there, this is the beginning";

/// A message is shown with the text's beginning and the cursor.
fn shown() -> Scene {
    let mut scene = Scene::on("discord");
    scene.push_text(TEXT);
    assert_eq!(scene.op(), send(&format!("{TEXT} \u{2589}"), growing()));
    scene
}

fn held(mut scene: Scene, expected: &[(Value, Vec<Value>)]) {
    scene.push_text(" and the end.").after(20_000).quiet();
    scene.tool("t1").quiet();
    scene.push_text("\nMore.").after(20_000).quiet();
    let mut wanted = expected.to_vec();
    wanted.push((send("More.", last()), vec![]));
    assert_eq!(durable(&scene.finish()), wanted);
}

#[test]
fn a_message_without_an_id_is_continued_at_the_end() {
    let mut scene = shown();
    scene.settle(&OpOutcome::Applied { message_id: None });
    held(scene, &[(send("and the end.", last()), vec![])]);
}

#[test]
fn a_refused_edit_is_continued_at_the_end() {
    let mut scene = shown();
    scene
        .settle(&applied("m1"))
        .push_text(" of something that is")
        .after(800);
    scene.push_text(" long");
    scene.op();
    scene.settle(&OpOutcome::Refused);
    held(
        scene,
        &[(send("of something that is long and the end.", last()), vec![])],
    );
}

#[test]
fn a_first_send_that_may_have_arrived_is_followed_by_the_whole_text() {
    let mut scene = shown();
    scene.settle(&OpOutcome::Unknown);
    held(scene, &[(send(&format!("{TEXT} and the end."), last()), vec![])]);
}

#[test]
fn after_a_refused_first_send_the_text_is_sent_at_the_end() {
    let mut scene = shown();
    scene.settle(&OpOutcome::Refused);
    held(scene, &[(send(&format!("{TEXT} and the end."), last()), vec![])]);
}

#[test]
fn an_op_in_flight_at_the_end_counts_as_unknown() {
    let mut scene = shown();
    assert!(scene.stream.awaits_outcome());
    scene.push_text(".");
    assert_eq!(
        durable(&scene.finish()),
        [(send(&format!("{TEXT}."), last()), vec![])]
    );
}

#[test]
fn an_op_that_was_not_sent_is_retried() {
    for outcome in [OpOutcome::NotSent, OpOutcome::Dropped] {
        let mut scene = shown();
        scene.settle(&outcome).quiet();
        assert_eq!(
            scene.after(800).op(),
            send(&format!("{TEXT} \u{2589}"), growing()),
            "{outcome:?}"
        );
        scene.settle(&applied("m1"));
    }
}

#[test]
fn an_edit_of_unknown_outcome_is_retried_and_then_replaced_by_the_whole_text() {
    let mut scene = shown();
    scene
        .settle(&applied("m1"))
        .push_text(" and quite a bit more of it")
        .after(800);
    let more = format!("{TEXT} and quite a bit more of it");
    let wanted = edit("m1", &format!("{more} \u{2589}"), none());
    assert_eq!(scene.op(), wanted);
    scene.settle(&OpOutcome::Unknown).quiet();
    assert_eq!(scene.after(800).op(), wanted);
    scene.settle(&OpOutcome::Unknown);
    assert_eq!(
        durable(&scene.finish()),
        [(edit("m1", &more, last()), vec![send(&more, last())])]
    );
}

#[test]
fn a_rate_limit_doubles_the_interval_and_loses_nothing() {
    let mut scene = shown();
    scene
        .settle(&applied("m1"))
        .push_text(" and quite a bit more of it")
        .after(800);
    for wait in [1600, 3200, 6400, 10_000, 10_000] {
        scene.op();
        scene.settle(&OpOutcome::RateLimited { retry_after: None });
        scene.after(wait - 1).quiet();
        scene.after(1);
    }
    scene.op();
    scene.settle(&OpOutcome::RateLimited {
        retry_after: Some(Duration::from_secs(30)),
    });
    scene.after(29_999).quiet();
    let all = format!("{TEXT} and quite a bit more of it");
    let rest = send("and quite a bit more of it", last());
    assert_eq!(durable(&scene.finish()), [(edit("m1", &all, last()), vec![rest])]);
}

#[test]
fn a_decline_ends_everything() {
    for platform in ["discord", "telegram", "slack", "whatsapp"] {
        let mut scene = Scene::new(StreamSettings::default(), target(descriptor(platform)));
        scene.push_text(TEXT).tool("t1");
        let text = loop {
            let op = scene.stream.poll(scene.now).expect("text goes first");
            if op.priority == Priority::Text {
                break op.id;
            }
        };
        scene.stream.notice("Cheaper model.", scene.now);
        scene.stream.op_finished(text, &OpOutcome::Declined, scene.now);
        scene
            .push_text("More text, quite a lot of it.")
            .tool("t2")
            .push_text("And more.");
        for _ in 0..10 {
            scene.after(5000).quiet();
        }
        assert_eq!(scene.stream.poll_timeout(), None);
        assert_eq!(scene.finish(), FinalOps::default(), "{platform}");
    }
}

#[test]
fn a_refused_draft_is_followed_by_edits_or_by_the_whole_text() {
    let mut scene = Scene::on("telegram");
    scene.push_text(TEXT).op();
    scene.settle(&OpOutcome::Refused);
    assert_eq!(
        scene.after(800).op(),
        send(&format!("{TEXT} \u{2589}"), growing())
    );

    let mut scene = Scene::on("slack");
    scene.push_text(TEXT).op();
    scene.settle(&OpOutcome::Applied { message_id: None });
    scene.push_text(" and quite a bit more of it").after(800).op();
    scene.settle(&OpOutcome::Refused).after(20_000).quiet();
    let final_ops = scene.finish();
    assert_eq!(final_ops.durable.len(), 1);
    let Action::Send { content, .. } = &final_ops.durable[0].action else {
        panic!("{final_ops:?}")
    };
    assert_eq!(*content, format!("{TEXT} and quite a bit more of it"));
}

#[test]
fn a_finished_part_that_cannot_be_edited_is_continued_with_its_fence() {
    let mut small = descriptor("discord");
    small.max_message_length = 60;
    let mut scene = Scene::new(bare(), target(small));
    scene.push_text("```rust\nlet a = 1;\n").op();
    scene.settle(&applied("m1"));
    scene
        .push_text("let b = 2;\nlet c = 3;\nlet d = 4;\nlet e = 5;\n```")
        .after(800);
    assert_eq!(scene.op()["op"], "edit");
    scene.settle(&OpOutcome::Refused).after(20_000).quiet();
    assert_eq!(
        durable(&scene.finish()),
        [(
            send(
                "```rust\nlet b = 2;\nlet c = 3;\nlet d = 4;\nlet e = 5;\n```",
                last()
            ),
            vec![]
        )]
    );
}

#[test]
fn a_message_never_gets_shorter_so_no_text_is_repeated_when_its_last_edit_is_refused() {
    let mut small = descriptor("discord");
    small.max_message_length = 60;
    let mut scene = Scene::new(bare(), target(small));
    let seen = format!("{}\n{}", "x".repeat(30), "y y y y y y");
    scene.push_text(&seen);
    assert_eq!(scene.op(), send(&format!("{seen} \u{2589}"), growing()));
    scene.settle(&applied("m1"));
    let rest = "z".repeat(40);
    scene.push_text(&format!(" {rest}"));
    assert_eq!(
        durable(&scene.finish()),
        [(edit("m1", &seen, last()), vec![]), (send(&rest, last()), vec![])]
    );
}

#[test]
fn an_op_finishes_once() {
    let mut scene = shown();
    let id = scene.out[0].0;
    scene.settle(&applied("m1"));
    scene.stream.op_finished(id, &OpOutcome::Declined, scene.now);
    scene.push_text(" and quite a bit more of it").after(800);
    assert_eq!(scene.op()["op"], "edit");
}
