//! What is shown while a turn speaks and when it ends, platform by platform, when nothing fails.

use super::super::StreamMode;
use super::*;
use crate::adapter::relay_adapter::reply;

const PLATFORMS: [&str; 6] = ["discord", "telegram", "slack", "whatsapp", "legacy", "relay"];

#[test]
fn an_answer_that_comes_at_once_is_the_plain_reply() {
    for platform in PLATFORMS {
        for text in [
            "Hi.",
            "\n lead",
            " \n ",
            &"word ".repeat(4000),
            "```rust\nlet a;\n```",
        ] {
            let place = place(descriptor(platform));
            let plain = reply(text, &place.chat, &place.facts, place.descriptor.as_deref());
            let mut scene = Scene::new(StreamSettings::default(), place);
            scene.push_text(text);
            let final_ops = scene.finish();
            let said: Vec<_> = final_ops.durable.iter().map(|owed| owed.action.clone()).collect();
            assert_eq!(said, plain, "{platform}");
            assert!(final_ops.durable.iter().all(|owed| owed.fallback.is_empty()));
            assert!(final_ops.indicators.is_empty());
        }
    }
}

#[test]
fn where_messages_can_be_edited_one_grows() {
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
            owed(&scene.finish()),
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
fn what_is_shown_as_it_ends_owes_nothing() {
    let mut scene = Scene::new(
        StreamSettings {
            cursor: String::new(),
            ..bare()
        },
        place(descriptor("discord")),
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
        owed(&scene.finish()),
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
    assert_eq!(owed(&scene.finish()), [(send("Five.", last()), vec![])]);
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
    assert_eq!(owed(&scene.finish()), [(send("It is five.", last()), vec![])]);
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
        owed(&scene.finish()),
        [(
            draft(8, "Five.", true, thread(last())),
            vec![send("Five.", thread(last()))]
        )]
    );
}

#[test]
fn slacks_wishes_travel_with_texts_and_previews_forbid_its_stream() {
    let settings = StreamSettings {
        unfurl_links: Some(false),
        rich_blocks: true,
        ..bare()
    };
    let wishes = json!({"thread_id": "m0", "unfurl_links": false, "format_hints": {"rich_blocks": true},
        "expect_edits": true});
    let mut scene = Scene::new(settings.clone(), place(descriptor("slack")));
    scene.push_text("Five.");
    assert_eq!(scene.op(), send("Five. \u{2589}", wishes));
    let mut scene = Scene::new(settings, place(descriptor("discord")));
    scene.push_text("Five.");
    assert_eq!(scene.op(), send("Five. \u{2589}", growing()));
}

#[test]
fn the_mode_decides_among_what_is_possible() {
    for (mode, platform, op) in [
        (StreamMode::Auto, "telegram", Some("draft")),
        (StreamMode::Draft, "telegram", Some("draft")),
        (StreamMode::Draft, "discord", None),
        (StreamMode::Edit, "telegram", Some("send")),
        (StreamMode::Edit, "whatsapp", None),
        (StreamMode::Segments, "discord", None),
        (StreamMode::Off, "discord", None),
    ] {
        let mut scene = Scene::new(StreamSettings { mode, ..bare() }, place(descriptor(platform)));
        scene.push_text("Some text that is long enough.").after(5000);
        let first = scene.stream.poll(scene.now);
        assert_eq!(first.map(|first| first.action.op()), op, "{mode:?} on {platform}");
    }
}

#[test]
fn off_tells_the_whole_answer_at_the_end() {
    let settings = StreamSettings {
        mode: StreamMode::Off,
        ..bare()
    };
    let mut scene = Scene::new(settings, place(descriptor("discord")));
    scene
        .push_text("Let me look.")
        .tool("t1")
        .push_text("Five.")
        .after(9000)
        .quiet();
    scene.break_message().push_text("Bye.").quiet();
    assert_eq!(
        owed(&scene.finish()),
        [
            (send("Let me look.\n\nFive.", last()), vec![]),
            (send("Bye.", last()), vec![])
        ]
    );
}

#[test]
fn an_interaction_is_answered_through_its_own_slot() {
    let mut place = place(descriptor("discord"));
    place.follow_up = Some("discord.interaction_token".into());
    let mut scene = Scene::new(bare(), place);
    let text = "word ".repeat(500);
    scene.push_text(&text).after(5000).quiet();
    let owed = owed(&scene.finish());
    assert_eq!(owed.len(), 2);
    let (first, otherwise) = &owed[0];
    let content = &first["content"];
    assert_eq!(
        *first,
        json!({"op": "follow_up", "session_key": "agent:main:x", "kind": "discord.interaction_token",
            "content": content, "metadata": tags(last())})
    );
    assert_eq!(*otherwise, [send(content.as_str().unwrap(), last())]);
    assert_eq!(owed[1].0["op"], "send");
}

#[test]
fn a_full_message_is_finished_and_the_fence_goes_on_in_the_next() {
    let mut small = descriptor("discord");
    small.max_message_length = 60;
    let mut scene = Scene::new(bare(), place(small));
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
        owed(&scene.finish()),
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
    assert_eq!(owed(&scene.finish()), [(corrected, vec![send("Eight.", last())])]);
}

/// A message of at most sixty characters is full, and out.
fn full(text: &str) -> Scene {
    let mut small = descriptor("discord");
    small.max_message_length = 60;
    let mut scene = Scene::new(bare(), place(small));
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
fn a_notice_is_a_message_that_answers_nothing() {
    let aside = |more| {
        json!({"op": "send", "chat_id": "c", "content": "Cheaper model.", "reply_to": null,
            "metadata": tags(more)})
    };
    let mut scene = Scene::on("discord");
    scene.stream.notice("Cheaper model.", scene.now);
    assert_eq!(scene.op(), aside(none()));
    scene.settle(&OpOutcome::Dropped).after(800);
    assert_eq!(scene.op(), aside(none()));
    scene.settle(&OpOutcome::NotSent).push_text("Hi.");
    assert_eq!(
        owed(&scene.finish()),
        [(aside(last()), vec![]), (send("Hi.", last()), vec![])]
    );
}

#[test]
fn a_torrent_costs_no_more_ops_than_a_trickle() {
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
fn many_segments_that_wait_become_one() {
    let mut scene = Scene::on("discord");
    let mut said = Vec::new();
    for number in 0..1000 {
        said.push(format!("Segment {number}."));
        scene.push_text(&said[number]).break_message();
    }
    let final_ops = scene.finish();
    assert!(final_ops.durable.len() < 40, "{}", final_ops.durable.len());
    let texts: String = owed(&final_ops)
        .iter()
        .map(|(op, _)| op["content"].as_str().unwrap().to_owned() + "\n")
        .collect();
    let mut rest = texts.as_str();
    for segment in said {
        let at = rest.find(&segment).expect("every segment is there, in order");
        rest = &rest[at + segment.len()..];
    }
}

#[test]
fn a_platform_that_is_not_known_gets_finished_segments() {
    let mut unknown = place(descriptor("relay"));
    unknown.descriptor = None;
    let mut scene = Scene::new(StreamSettings::default(), unknown);
    scene.push_text("Looking.").after(5000).quiet();
    assert_eq!(scene.tool("t1").op(), send("Looking.", none()));
    scene.settle(&applied("m1")).push_text("Five.");
    let final_ops = scene.finish();
    assert_eq!(owed(&final_ops), [(send("Five.", last()), vec![])]);
    assert!(final_ops.indicators.is_empty());
}
