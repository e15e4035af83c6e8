//! What is shown while a turn streams and when it ends, platform by platform, when nothing fails.

use super::*;
use crate::adapter::relay_adapter::reply;

const PLATFORMS: [&str; 6] = ["discord", "telegram", "slack", "whatsapp", "legacy", "relay"];

#[test]
fn an_answer_in_one_piece_is_the_plain_reply() {
    for platform in PLATFORMS {
        for text in [
            "Hi.",
            "\n lead",
            " \n ",
            &"word ".repeat(4000),
            "```rust\nlet a;\n```",
        ] {
            let target = target(descriptor(platform));
            let settings = StreamSettings::default();
            let plain = reply(text, &builder(&settings, SlackConfig::default(), &target));
            let mut scene = Scene::new(settings, target);
            scene.push_text(text);
            let final_ops = scene.finish();
            let texts: Vec<_> = final_ops
                .durable
                .iter()
                .map(|durable| durable.action.clone())
                .collect();
            assert_eq!(texts, plain, "{platform}");
            assert!(
                final_ops
                    .durable
                    .iter()
                    .all(|durable| durable.fallback.is_empty())
            );
            assert!(final_ops.indicators.is_empty());
        }
    }
}

#[test]
fn where_messages_can_be_edited_one_message_grows() {
    for platform in ["discord", "legacy"] {
        let mut scene = Scene::on(platform);
        scene.push_text("Hel").quiet();
        scene.push_text("lo");
        assert_eq!(scene.op(), send("Hello \u{2589}", growing()));
        assert!(scene.stream.awaits_outcome());
        scene
            .push_text(" there, this is more than enough")
            .after(900)
            .quiet();
        scene.settle(&applied("m1"));
        assert_eq!(
            scene.op(),
            edit("m1", "Hello there, this is more than enough \u{2589}", none())
        );
        scene.settle(&applied("m1"));
        scene.push_text(" and then some more, much more").quiet();
        scene.after(799).quiet();
        let more = "Hello there, this is more than enough and then some more, much more";
        assert_eq!(
            scene.after(1).op(),
            edit("m1", &format!("{more} \u{2589}"), none())
        );
        scene.settle(&applied("m1")).push_text(".");
        let rest = send(".", last());
        assert_eq!(
            durable(&scene.finish()),
            [(edit("m1", &format!("{more}."), last()), vec![rest])]
        );
    }
}

#[test]
fn a_few_characters_wait_for_more_or_for_a_pause() {
    let mut scene = Scene::on("discord");
    scene.push_text("Hello").op();
    scene.settle(&applied("m1")).after(5000).push_text(" you").quiet();
    assert_eq!(
        scene.stream.poll_timeout(),
        Some(Duration::from_millis(5000 + 1600))
    );
    scene.after(1599).quiet();
    assert_eq!(scene.after(1).op(), edit("m1", "Hello you \u{2589}", none()));
    scene.settle(&applied("m1")).after(60_000).quiet();
    assert_eq!(scene.stream.poll_timeout(), None);
}

#[test]
fn a_complete_shown_answer_needs_no_final_op() {
    let mut scene = Scene::new(
        StreamSettings {
            cursor: String::new(),
            ..bare()
        },
        target(descriptor("discord")),
    );
    scene.push_text("Hello");
    assert_eq!(scene.op(), send("Hello", growing()));
    scene.settle(&applied("m1"));
    assert_eq!(scene.finish(), FinalOps::default());
}

#[test]
fn a_tool_ends_a_message_and_the_next_text_begins_another() {
    let mut scene = Scene::on("discord");
    scene.push_text("Let me look.").op();
    scene.settle(&applied("m1")).after(100).tool("t1").quiet();
    assert_eq!(scene.after(700).op(), edit("m1", "Let me look.", none()));
    scene.settle(&applied("m1")).push_text("\n\n  \nIt is five");
    assert_eq!(scene.after(800).op(), send("It is five \u{2589}", growing()));
    scene.settle(&applied("m2"));
    // News of a tool that is known does not cut the text.
    scene.stream.tool(&tool("t1", "t1", StepState::Done), scene.now);
    scene.push_text("ty.");
    assert_eq!(
        durable(&scene.finish()),
        [(edit("m2", "It is fivety.", last()), vec![send("ty.", last())])]
    );
}

#[test]
fn a_segment_that_ends_before_it_is_shown_is_sent_as_it_is() {
    let mut scene = Scene::on("discord");
    scene
        .push_text("One.")
        .break_message()
        .push_text("\nTwo.")
        .break_message();
    assert_eq!(scene.op(), send("One.", none()));
    scene.settle(&applied("m1")).quiet();
    assert_eq!(scene.after(800).op(), send("Two.", none()));
    scene.settle(&applied("m2"));
    assert_eq!(scene.finish(), FinalOps::default());
}

#[test]
fn where_nothing_can_be_edited_finished_segments_are_sent() {
    let mut scene = Scene::on("whatsapp");
    scene
        .push_text("Let me look at that for you.")
        .after(5000)
        .quiet();
    scene.tool("t1");
    assert_eq!(scene.op(), send("Let me look at that for you.", none()));
    scene.settle(&OpOutcome::Applied { message_id: None });
    scene.push_text("Five.").after(5000).quiet();
    assert_eq!(durable(&scene.finish()), [(send("Five.", last()), vec![])]);
}

#[test]
fn telegram_previews_by_draft_and_sends_the_answer() {
    let mut scene = Scene::on("telegram");
    scene.push_text("Looking");
    assert_eq!(scene.op(), draft(7, "Looking", false, none()));
    scene.settle(&OpOutcome::Applied { message_id: None }).after(800);
    scene.push_text(" at what there is to see.");
    assert_eq!(
        scene.op(),
        draft(7, "Looking at what there is to see.", false, none())
    );
    scene
        .settle(&OpOutcome::Applied { message_id: None })
        .after(800)
        .tool("t1");
    assert_eq!(scene.op(), send("Looking at what there is to see.", none()));
    scene.settle(&applied("m1")).after(800).push_text("It is five.");
    assert_eq!(scene.op(), draft(8, "It is five.", false, none()));
    scene.settle(&OpOutcome::Applied { message_id: None });
    assert_eq!(durable(&scene.finish()), [(send("It is five.", last()), vec![])]);
}

#[test]
fn slack_seals_its_stream() {
    let thread = |more: Value| {
        let mut tags = json!({"thread_id": "m0"});
        tags.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        tags
    };
    let mut scene = Scene::on("slack");
    scene.push_text("Looking");
    assert_eq!(scene.op(), draft(7, "Looking", false, thread(none())));
    scene.settle(&applied("m1")).after(800).tool("t1");
    assert_eq!(scene.op(), draft(7, "Looking", true, thread(none())));
    scene.settle(&applied("m1")).after(800).push_text("Five.");
    assert_eq!(scene.op(), draft(8, "Five.", false, thread(none())));
    scene.settle(&applied("m2"));
    assert_eq!(
        durable(&scene.finish()),
        [(
            draft(8, "Five.", true, thread(last())),
            vec![send("Five.", thread(last()))]
        )]
    );
}

#[test]
fn a_draft_is_half_written_until_it_is_sealed_where_it_becomes_the_message() {
    let half = |scene: &Scene| {
        let half = scene.stream.half_written();
        half.map(|half| (half.draft_id, half.text))
    };
    let mut scene = Scene::on("slack");
    scene.push_text("Looking").op();
    assert_eq!(half(&scene), None);
    scene.settle(&applied("m1"));
    assert_eq!(half(&scene), Some((Some(7), "Looking".to_owned())));
    scene.after(800).tool("t1").op();
    scene.settle(&applied("m1"));
    assert_eq!(half(&scene), None);
    scene.after(800).push_text("Five.").op();
    scene.settle(&OpOutcome::Unknown);
    assert_eq!(half(&scene), Some((Some(8), "Five.".to_owned())));
    let mut scene = Scene::on("telegram");
    scene.push_text("Looking").op();
    scene.settle(&OpOutcome::Applied { message_id: None });
    assert_eq!(half(&scene), None, "a preview goes by itself");
}

#[test]
fn slack_hints_go_with_texts_and_preview_settings_disable_its_stream() {
    let settings = StreamSettings {
        unfurl_links: Some(false),
        rich_blocks: true,
        ..bare()
    };
    let hints = json!({"thread_id": "m0", "unfurl_links": false, "format_hints": {"rich_blocks": true},
        "expect_edits": true});
    let mut scene = Scene::new(settings.clone(), target(descriptor("slack")));
    scene.push_text("Five.");
    assert_eq!(scene.op(), send("Five. \u{2589}", hints));
    let mut scene = Scene::new(settings, target(descriptor("discord")));
    scene.push_text("Five.");
    assert_eq!(scene.op(), send("Five. \u{2589}", growing()));
}

#[test]
fn the_mode_selects_among_the_supported_strategies() {
    for (mode, platform, op) in [
        (StreamMode::Auto, "telegram", Some("draft")),
        (StreamMode::Draft, "telegram", Some("draft")),
        (StreamMode::Draft, "discord", None),
        (StreamMode::Edit, "telegram", Some("send")),
        (StreamMode::Edit, "whatsapp", None),
        (StreamMode::Segments, "discord", None),
        (StreamMode::Off, "discord", None),
    ] {
        let mut scene = Scene::new(StreamSettings { mode, ..bare() }, target(descriptor(platform)));
        scene.push_text("Some text that is long enough.").after(5000);
        let first = scene.stream.poll(scene.now);
        assert_eq!(first.map(|first| first.action.op()), op, "{mode:?} on {platform}");
    }
}

#[test]
fn off_sends_the_whole_answer_at_the_end() {
    let settings = StreamSettings {
        mode: StreamMode::Off,
        ..bare()
    };
    let mut scene = Scene::new(settings, target(descriptor("discord")));
    scene
        .push_text("Let me look.")
        .tool("t1")
        .push_text("Five.")
        .after(9000)
        .quiet();
    scene.break_message().push_text("Bye.").quiet();
    assert_eq!(
        durable(&scene.finish()),
        [
            (send("Let me look.\n\nFive.", last()), vec![]),
            (send("Bye.", last()), vec![])
        ]
    );
}

#[test]
fn an_interaction_is_answered_by_a_follow_up() {
    let mut target = target(descriptor("discord"));
    target.follow_up = Some("discord.interaction_token".into());
    let mut scene = Scene::new(bare(), target);
    let text = "word ".repeat(500);
    scene.push_text(&text).after(5000).quiet();
    let durable = durable(&scene.finish());
    assert_eq!(durable.len(), 2);
    let (first, fallback) = &durable[0];
    let content = &first["content"];
    assert_eq!(
        *first,
        json!({"op": "follow_up", "session_key": "agent:main:x", "kind": "discord.interaction_token",
            "content": content, "metadata": tags(last())})
    );
    assert_eq!(*fallback, [send(content.as_str().unwrap(), last())]);
    assert_eq!(durable[1].0["op"], "send");
}

#[test]
fn a_full_message_is_completed_and_its_fence_continues_in_the_next() {
    let mut small = descriptor("discord");
    small.max_message_length = 60;
    let mut scene = Scene::new(bare(), target(small));
    scene.push_text("```rust\nlet a = 1;\n");
    assert_eq!(scene.op(), send("```rust\nlet a = 1;\n \u{2589}", growing()));
    scene
        .settle(&applied("m1"))
        .push_text("let b = 2;\nlet c = 3;\nlet d = 4;\nlet e = 5;");
    let first = "```rust\nlet a = 1;\nlet b = 2;\nlet c = 3;\nlet d = 4;\n```";
    assert_eq!(scene.after(800).op(), edit("m1", first, none()));
    scene.settle(&applied("m1"));
    assert_eq!(
        scene.after(800).op(),
        send("```rust\nlet e = 5; \u{2589}", growing())
    );
    scene.settle(&applied("m2")).push_text("\n```");
    assert_eq!(
        durable(&scene.finish()),
        [(edit("m2", "```rust\nlet e = 5;\n```", last()), vec![])]
    );
}

#[test]
fn a_corrected_text_is_shown_corrected_and_never_twice() {
    let mut scene = Scene::on("discord");
    scene.push_text("It is sicks.").op();
    scene.settle(&applied("m1"));
    scene.stream.replace_text("It is six.", scene.now);
    assert_eq!(scene.after(800).op(), edit("m1", "It is six. \u{2589}", none()));
    scene.settle(&applied("m1")).tool("t1");
    assert_eq!(scene.after(800).op(), edit("m1", "It is six.", none()));
    scene.settle(&applied("m1")).push_text("No.");
    scene.stream.replace_text("It is six.\n\nNo, seven.", scene.now);
    assert_eq!(scene.after(800).op(), send("No, seven. \u{2589}", growing()));
    scene.settle(&applied("m2"));
    scene.stream.replace_text("It is six.\n\nEight.", scene.now);
    let corrected = edit("m2", "Eight.", last());
    assert_eq!(
        durable(&scene.finish()),
        [(corrected, vec![send("Eight.", last())])]
    );
}

/// A message of at most sixty characters is full, and out.
fn full(text: &str) -> Scene {
    let mut small = descriptor("discord");
    small.max_message_length = 60;
    let mut scene = Scene::new(bare(), target(small));
    scene.push_text(text);
    assert_eq!(scene.op(), send(&"x".repeat(52), none()));
    scene
}

#[test]
fn the_space_at_a_cut_is_dropped_also_when_it_comes_later() {
    let mut scene = full(&("x".repeat(52) + "      "));
    scene.push_text("  yes, more").settle(&applied("m1")).after(800);
    assert_eq!(scene.op(), send("yes, more \u{2589}", growing()));
}

#[test]
fn a_correction_that_crosses_a_full_message_corrects_it() {
    let mut scene = full(&"x".repeat(70));
    scene.stream.replace_text("Something else.", scene.now);
    scene.settle(&applied("m1")).after(800);
    assert_eq!(scene.op(), edit("m1", "Something else. \u{2589}", none()));

    let mut scene = full(&"x".repeat(70));
    scene.stream.replace_text(&"x".repeat(72), scene.now);
    scene.settle(&applied("m1")).after(800);
    assert_eq!(scene.op(), send(&("x".repeat(20) + " \u{2589}"), growing()));
}

#[test]
fn a_notice_is_a_message_that_replies_to_nothing() {
    let notice = |more| {
        json!({"op": "send", "chat_id": "c", "content": "Cheaper model.", "reply_to": null,
            "metadata": tags(more)})
    };
    let mut scene = Scene::on("discord");
    scene.stream.notice("Cheaper model.", scene.now);
    assert_eq!(scene.op(), notice(none()));
    scene.settle(&OpOutcome::Dropped).after(800);
    assert_eq!(scene.op(), notice(none()));
    scene.settle(&OpOutcome::NotSent).push_text("Hi.");
    assert_eq!(
        durable(&scene.finish()),
        [(notice(last()), vec![]), (send("Hi.", last()), vec![])]
    );
}

#[test]
fn a_fast_agent_causes_no_more_ops_than_a_slow_one() {
    let ops = |tokens: u64| {
        let (mut scene, mut sent) = (Scene::on("discord"), 0);
        for _ in 0..tokens {
            scene.push_text(&"tok ".repeat(usize::try_from(10_000 / tokens).unwrap()));
            while let Some(op) = scene.stream.poll(scene.now) {
                scene.stream.op_finished(op.id, &applied("m"), scene.now);
                sent += 1;
            }
            scene.now += Duration::from_micros(5_000_000 / tokens);
        }
        sent
    };
    assert_eq!((ops(10_000), ops(100), ops(20)), (7, 7, 5));
}

#[test]
fn many_pending_segments_are_merged() {
    let mut scene = Scene::on("discord");
    let mut segments = Vec::new();
    for number in 0..1000 {
        segments.push(format!("Segment {number}."));
        scene.push_text(&segments[number]).break_message();
    }
    let final_ops = scene.finish();
    assert!(final_ops.durable.len() < 40, "{}", final_ops.durable.len());
    let texts: String = durable(&final_ops)
        .iter()
        .map(|(op, _)| op["content"].as_str().unwrap().to_owned() + "\n")
        .collect();
    let mut rest = texts.as_str();
    for segment in segments {
        let at = rest.find(&segment).expect("every segment is there, in order");
        rest = &rest[at + segment.len()..];
    }
}

#[test]
fn an_undeclared_platform_gets_finished_segments() {
    let mut unknown = target(descriptor("relay"));
    unknown.descriptor = None;
    let mut scene = Scene::new(StreamSettings::default(), unknown);
    scene.push_text("Looking.").after(5000).quiet();
    assert_eq!(scene.tool("t1").op(), send("Looking.", none()));
    scene.settle(&applied("m1")).push_text("Five.");
    let final_ops = scene.finish();
    assert_eq!(durable(&final_ops), [(send("Five.", last()), vec![])]);
    assert!(final_ops.indicators.is_empty());
}
