//! Texts that take several messages.

use super::*;

fn letters(run: &Run) -> Vec<String> {
    let first = |text: &str| text.chars().next().map(String::from).unwrap_or_default();
    run.texts().into_iter().map(first).collect()
}

#[test]
fn the_anchor_is_on_the_first_part_and_the_buttons_are_on_the_last() {
    let mut bot = TestBot::new();
    let prompt = json!({
        "op": "prompt", "chat_id": PERSON, "content": long_text(), "prompt_kind": "clarify", "prompt_id": "p.1",
        "reply_to": "7", "options": [{"id": "o0", "label": "Yes"}],
    });
    let run = bot.run(&prompt, &[message(1), message(2), message(3)]);
    let has = |field: &str| -> Vec<bool> {
        run.calls
            .iter()
            .map(|call| call[1].get(field).is_some())
            .collect()
    };
    assert_eq!(has("reply_parameters"), [true, false, false]);
    assert_eq!(has("reply_markup"), [false, false, true]);
    assert_eq!(letters(&run), ["a", "b", "c"]);
    assert_eq!(
        run.message_id(),
        "3",
        "a press names the message with the buttons"
    );
    // The decision replaces all of it.
    let run = bot.run(&edit("3", "decided", false), &[message(1), done()]);
    assert_eq!(run.methods(), ["editMessageText", "deleteMessages"]);
    assert_eq!(
        (
            run.calls[0][1]["message_id"].clone(),
            run.calls[1][1]["message_ids"].clone()
        ),
        (json!(1), json!([2, 3]))
    );
}

#[test]
fn a_text_that_is_cut_short_goes_on_where_it_stopped() {
    for cut in [
        too_many(5),
        ApiAnswer::Unknown,
        ApiAnswer::NotSent(String::new()),
        error(500, "x"),
    ] {
        let mut bot = TestBot::new();
        let run = bot.run(&send(&long_text()), &[message(1), cut]);
        assert_eq!(letters(&run), ["a", "b"]);
        let run = bot.run(&send(&long_text()), &[too_many(1)]);
        assert_eq!(letters(&run), ["b"], "again, with nothing new");
        let run = bot.run(&send(&long_text()), &[message(2), message(3)]);
        assert_eq!(letters(&run), ["b", "c"]);
        assert!(
            run.calls
                .iter()
                .all(|call| call[1].get("reply_parameters").is_none())
        );
        assert_eq!(run.message_id(), "1", "the first of all parts");
        // All three are known, and the next time it is a new text.
        let run = bot.run(&edit("1", "short", true), &[message(1), done()]);
        assert_eq!(
            run.calls[1],
            json!(["deleteMessages", {"chat_id": 42, "message_ids": [2, 3]}])
        );
        let run = bot.run(&send(&long_text()), &[message(4), message(5), message(6)]);
        assert_eq!(letters(&run), ["a", "b", "c"]);
    }
}

#[test]
fn another_chat_topic_or_text_begins_anew() {
    let mut bot = TestBot::new();
    bot.run(&send(&long_text()), &[message(1), too_many(5)]);
    let mut other = send(&long_text());
    other["chat_id"] = json!("43");
    assert_eq!(letters(&bot.run(&other, &[message(9), too_many(5)])), ["a", "b"]);
    let mut topic = send(&long_text());
    topic["metadata"]["thread_id"] = json!("5");
    assert_eq!(letters(&bot.run(&topic, &[too_many(5)])), ["a"]);
    let text = send(&format!("{}d", long_text()));
    assert_eq!(letters(&bot.run(&text, &[too_many(5)])), ["a"]);
}

#[test]
fn a_file_after_a_long_text_goes_on_too() {
    let mut bot = TestBot::new();
    let media = json!({
        "op": "send_media", "chat_id": PERSON, "media_kind": "image", "source_url": "u", "content": "x".repeat(2_000),
    });
    assert_eq!(
        bot.run(&media, &[message(1), ApiAnswer::Unknown]).methods(),
        ["sendMessage", "sendPhoto"]
    );
    let run = bot.run(&media, &[message(2)]);
    assert_eq!((run.methods(), run.message_id()), (vec!["sendPhoto"], "2"));
}

#[test]
fn an_edit_changes_only_the_parts_that_differ() {
    let mut bot = TestBot::new();
    bot.run(&send(&long_text()), &[message(1), message(2), message(3)]);
    let changed = long_text().replace('b', "B");
    let run = bot.run(&edit("1", &changed, false), &[message(2)]);
    assert_eq!(
        (run.methods(), run.calls[0][1]["message_id"].clone()),
        (vec!["editMessageText"], json!(2))
    );
    let longer = format!("{changed}\n\n{}", "d".repeat(3_000));
    let run = bot.run(&edit("1", &longer, false), &[message(4)]);
    assert_eq!(
        (run.methods(), letters(&run)),
        (vec!["sendMessage"], vec!["d".to_owned()])
    );
    assert_eq!(run.calls[0][1]["disable_notification"], true);
    let run = bot.run(&edit("1", "a", true), &[message(1), done()]);
    assert_eq!(run.calls[1][1]["message_ids"], json!([2, 3, 4]));
    assert_eq!(run.message_id(), "1");
}

#[test]
fn an_edit_that_is_cut_short_knows_what_was_changed() {
    let mut bot = TestBot::new();
    bot.run(&send(&long_text()), &[message(1), message(2), message(3)]);
    let changed = long_text().to_uppercase();
    let run = bot.run(&edit("1", &changed, true), &[message(1), too_many(3)]);
    assert_eq!(run.refused(), "rate_limited");
    let run = bot.run(&edit("1", &changed, true), &[message(2), message(3)]);
    assert_eq!(letters(&run), ["B", "C"]);
}

#[test]
fn a_part_that_is_gone_is_sent_again_with_all_that_follow() {
    let mut bot = TestBot::new();
    bot.run(&send(&long_text()), &[message(1), message(2), message(3)]);
    let changed = long_text().to_uppercase();
    let gone = error(400, "Bad Request: message to edit not found");
    let run = bot.run(
        &edit("1", &changed, true),
        &[message(1), gone, message(12), message(13), done()],
    );
    assert_eq!(
        run.methods(),
        [
            "editMessageText",
            "editMessageText",
            "sendMessage",
            "sendMessage",
            "deleteMessage"
        ]
    );
    assert_eq!(
        run.calls[4][1]["message_id"], 3,
        "the last one is shown anew, and the old one goes"
    );
    assert_eq!(run.message_id(), "1");
    bot.run(&edit("1", &changed, true), &[]).applied();
}

#[test]
fn a_text_that_is_too_long_for_the_server_is_cut_further() {
    let mut bot = TestBot::new();
    let too_long = error(400, "Bad Request: message is too long");
    let text = format!("{}\n\n{}", "a".repeat(1_500), "b".repeat(1_500));
    let run = bot.run(&send(&text), &[too_long.clone(), message(1), message(2)]);
    assert_eq!(letters(&run), ["a", "a", "b"]);
    assert_eq!(run.message_id(), "1");
    // It ends, whatever the server says.
    let run = bot.run(&send("short"), &[too_long]);
    assert_eq!(run.refused(), "too_long");
}

#[test]
fn a_table_that_grows_beyond_a_message_is_shown_in_whole() {
    let mut bot = TestBot::new();
    let rows: Vec<String> = (0..150).map(|row| format!("|{row}|**x**|")).collect();
    let table = format!(
        "|a rather long heading|and a second one that is long|\n|-|-|\n{}",
        rows.join("\n")
    );
    assert!(table.len() < MESSAGE_CHARS);
    let mut answers: Vec<ApiAnswer> = Vec::new();
    let parts = render(&table).split(MESSAGE_CHARS);
    assert!(parts.len() > 1 && parts.iter().all(|part| part.spans.len() <= MAX_ENTITIES));
    answers.extend((1..).take(parts.len()).map(message));
    let run = bot.run(&send(&table), &answers);
    assert!(
        run.texts()
            .last()
            .unwrap()
            .ends_with("a rather long heading: 149\nand a second one that is long: <b>x</b>")
    );
}
