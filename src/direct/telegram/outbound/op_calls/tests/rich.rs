//! Rich messages: when they are used, and what follows when the server does not take one.

use super::*;

const ANSWER: &str = "Sizes:\n\n| a | b |\n|---|---|\n| 1 | 2 |";
const MARKDOWN: &str = "Sizes:\n\n| a | b |\n| --- | --- |\n| 1 | 2 |";

fn rich() -> TestBot {
    let mut bot = TestBot::new();
    bot.cache.use_rich(RichMessages::Tables);
    bot
}

#[test]
fn an_answer_with_a_table_is_a_rich_message_where_that_is_wanted() {
    let mut bot = rich();
    let run = bot.run(&send(ANSWER), &[message(9)]);
    let body = json!({
        "chat_id": 42,
        "rich_message": {"markdown": MARKDOWN},
        "reply_parameters": {"message_id": 7, "allow_sending_without_reply": true},
    });
    assert_eq!(run.calls, [json!(["sendRichMessage", body])]);
    assert_eq!(
        (run.message_id(), run.kinds.as_slice()),
        ("9", &[CallKind::Required][..])
    );
    let topic = json!({"op": "send", "chat_id": CLUB, "content": ANSWER, "metadata": {"thread_id": "5"}});
    let run = bot.run(&topic, &[message(10)]);
    assert_eq!(
        (
            &run.calls[0][1]["message_thread_id"],
            &run.calls[0][1]["disable_notification"]
        ),
        (&json!(5), &json!(true))
    );
    // A draft ends as a rich message, but is text while it grows.
    let draft = |last: bool| json!({"op": "draft", "chat_id": PERSON, "draft_id": 3, "content": ANSWER, "final": last});
    let run = bot.run(&draft(false), &[done()]);
    assert_eq!(
        (run.methods(), run.texts()),
        (vec!["sendMessageDraft"], vec![ANSWER])
    );
    assert_eq!(
        bot.run(&draft(true), &[message(11)]).methods(),
        ["sendRichMessage"]
    );
}

#[test]
fn everything_else_stays_text() {
    let growing =
        json!({"op": "send", "chat_id": PERSON, "content": ANSWER, "metadata": {"expect_edits": true}});
    let question = json!({"op": "prompt", "chat_id": PERSON, "content": ANSWER, "prompt_kind": "approval",
        "prompt_id": "p", "options": [{"id": "o", "label": "Yes"}]});
    let mut bot = rich();
    for op in [send("plain **text**"), growing, question] {
        assert_eq!(bot.run(&op, &[message(3)]).methods(), ["sendMessage"], "{op}");
    }
    let run = bot.run(&edit("8", ANSWER, false), &[message(8)]);
    assert!(run.texts()[0].contains("<pre>"), "a growing text");
    assert_eq!(
        TestBot::new().run(&send(ANSWER), &[message(3)]).methods(),
        ["sendMessage"]
    );
}

#[test]
fn a_final_edit_makes_a_rich_message_of_a_text() {
    let mut bot = rich();
    let run = bot.run(&edit("8", ANSWER, true), &[message(8)]);
    let body = json!({"chat_id": 42, "message_id": 8, "rich_message": {"markdown": MARKDOWN}});
    assert_eq!(
        (run.calls.as_slice(), run.message_id()),
        (&[json!(["editMessageText", body])][..], "8")
    );
    // A text of several messages becomes one.
    let ids: Vec<ApiAnswer> = (20..23).map(message).collect();
    let long =
        json!({"op": "send", "chat_id": PERSON, "content": long_text(), "metadata": {"expect_edits": true}});
    assert_eq!(bot.run(&long, &ids).message_id(), "20");
    let run = bot.run(&edit("20", ANSWER, true), &[message(20), done()]);
    assert_eq!(run.methods(), ["editMessageText", "deleteMessages"]);
    assert_eq!(run.calls[1][1]["message_ids"], json!([21, 22]));
    // And back again.
    let run = bot.run(&edit("20", "plain", true), &[message(20)]);
    assert_eq!(
        (run.methods(), run.texts()),
        (vec!["editMessageText"], vec!["plain"])
    );
}

#[test]
fn a_message_that_is_not_taken_goes_out_as_text_and_only_that_one() {
    for refusal in [
        "Bad Request: can't parse entities: x",
        "Bad Request: RICH_MESSAGE_INVALID",
        "Bad Request: message is too long",
    ] {
        let mut bot = rich();
        let run = bot.run(&send(ANSWER), &[error(400, refusal), message(9)]);
        assert_eq!(run.methods(), ["sendRichMessage", "sendMessage"], "{refusal}");
        assert_eq!(
            (run.observations.as_slice(), run.message_id()),
            (&[Observation::RichRefused][..], "9")
        );
        assert!(run.texts()[1].contains("<pre>"));
        assert_eq!(run.calls[1][1]["reply_parameters"]["message_id"], 7);
        // The same text again, as after a cut, goes the same way; another one is tried.
        assert_eq!(bot.run(&send(ANSWER), &[message(10)]).methods(), ["sendMessage"]);
        let other = format!("{ANSWER}\n| 3 | 4 |");
        assert_eq!(
            bot.run(&send(&other), &[message(11)]).methods(),
            ["sendRichMessage"]
        );
    }
    for refusal in [
        "Bad Request: there is no text in the message to edit",
        "Bad Request: message can't be edited",
    ] {
        let run = rich().run(&edit("8", ANSWER, true), &[error(400, refusal), message(8)]);
        assert_eq!(run.methods(), ["editMessageText", "editMessageText"], "{refusal}");
        assert!(run.texts()[1].contains("<pre>"));
    }
}

#[test]
fn a_server_without_rich_messages_is_asked_once() {
    let mut bot = rich();
    let missing = error(404, "Not Found: method not found");
    let run = bot.run(&send(ANSWER), &[missing, message(9)]);
    assert_eq!(run.methods(), ["sendRichMessage", "sendMessage"]);
    assert_eq!(run.observations, [Observation::NoRich]);
    assert!(!bot.cache.has_rich());
    let other = format!("{ANSWER}\n| 3 | 4 |");
    assert_eq!(bot.run(&send(&other), &[message(10)]).methods(), ["sendMessage"]);
}

#[test]
fn what_is_unknown_or_limited_is_sent_again_the_same_way() {
    let mut bot = rich();
    let run = bot.run(&send(ANSWER), &[ApiAnswer::Unknown]);
    assert_eq!(run.end, OpStep::Done(Outcome::Unknown));
    let run = bot.run(&send(ANSWER), &[error(500, "Internal Server Error")]);
    assert_eq!(run.end, OpStep::Done(Outcome::Unknown));
    let run = bot.run(&send(ANSWER), &[too_many(3)]);
    assert_eq!(run.refused(), "rate_limited");
    let run = bot.run(&send(ANSWER), &[ApiAnswer::NotSent("x".to_owned())]);
    assert_eq!(run.end, OpStep::NotSent);
    // A chat that is closed, or a topic that is gone, is so for a text, too.
    let run = bot.run(
        &send(ANSWER),
        &[error(403, "Forbidden: bot was blocked by the user")],
    );
    assert_eq!(
        (run.methods(), run.refused()),
        (vec!["sendRichMessage"], "blocked")
    );
    let run = bot.run(&send(ANSWER), &[error(400, "Bad Request: TOPIC_CLOSED")]);
    assert_eq!(
        (run.methods(), run.refused()),
        (vec!["sendRichMessage"], "topic_closed")
    );
    let run = bot.run(
        &send(ANSWER),
        &[
            error(400, "Bad Request: message to be replied not found"),
            message(9),
        ],
    );
    assert_eq!(run.methods(), ["sendRichMessage", "sendRichMessage"]);
    let run = bot.run(
        &edit("9", ANSWER, true),
        &[error(400, "Bad Request: message is not modified")],
    );
    assert_eq!(run.message_id(), "9");
}

#[test]
fn an_edit_that_is_cut_remembers_its_messages() {
    let mut bot = rich();
    let ids: Vec<ApiAnswer> = (20..23).map(message).collect();
    let long =
        json!({"op": "send", "chat_id": PERSON, "content": long_text(), "metadata": {"expect_edits": true}});
    bot.run(&long, &ids);
    bot.run(&edit("20", ANSWER, true), &[ApiAnswer::Unknown]);
    let run = bot.run(&edit("20", ANSWER, true), &[message(20), done()]);
    assert_eq!(run.methods(), ["editMessageText", "deleteMessages"]);
    assert_eq!(run.calls[1][1]["message_ids"], json!([21, 22]));
}
