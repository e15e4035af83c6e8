//! Lists of the relay's own: they stand back behind questions, remind nobody, and say what became of a choice.

use super::*;

const CLOSING: &str = "The list is over.";

/// A list of three that `ann` may choose from.
fn list(id: u64) -> PromptRequest {
    PromptRequest {
        kind: QuestionKind::Choice,
        text: "Which one?".to_owned(),
        detail: None,
        options: options(&[Meaning::Plain; 3]),
        timeout: Some(secs(120)),
        is_list: true,
        closing: Some(CLOSING.to_owned()),
        ..request(id, "dm")
    }
}

fn open(prompts: &mut Prompts, request: PromptRequest, adapter: &RelayAdapter) -> PromptId {
    let message = format!("m{}", request.id.0);
    let opened = prompts.open(request, adapter, secs(0)).unwrap();
    prompts.op_finished(&opened.prompt, &applied(&message), secs(0));
    opened.prompt
}

fn sent(op: &PromptOp) -> &str {
    match &op.action {
        Action::Send { content, .. } => content,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_list_reminds_nobody() {
    let mut prompts = prompts();
    open(&mut prompts, list(1), &on(Some(&descriptor(&["send", "prompt"]))));
    assert_eq!(prompts.poll_timeout(), Some(secs(115)), "its end alone");
    assert!(prompts.remind(secs(110)).is_empty());
}

#[test]
fn a_bare_answer_is_for_a_question_if_one_takes_it_else_for_the_newest_list() {
    let plain = on(Some(&descriptor(&["send"])));
    // Question 1 has two options, question 4 the same, lists 2 and 3 have three.
    #[rustfmt::skip]
    let cases = [
        // open, words, the question or list that is answered
        (&[1, 2][..], "1", Some(1)),
        (&[2, 1], "1", Some(1)),
        (&[1, 2, 3], "/deny", Some(1)),
        (&[1, 2], "3", Some(2)),
        (&[2], "1", Some(2)),
        (&[2, 3], "1", Some(3)),
        (&[3, 2], "/deny", Some(2)),
        (&[2, 3], "4", None),
        (&[1, 2], "4", None),
        (&[1, 4, 2], "1", None),
        (&[2, 3], "/approve", None),
    ];
    for (keys, words, answered) in cases {
        let mut prompts = prompts();
        for key in keys {
            let asked = match key {
                2 | 3 => list(*key),
                _ => PromptRequest {
                    options: options(&[Meaning::AllowOnce, Meaning::Deny]),
                    ..request(*key, "dm")
                },
            };
            open(&mut prompts, asked, &plain);
        }
        let answer = type_answer(&mut prompts, &session(), "ann", words, secs(9));
        let seen = answer.map(|resolution| resolution.id.0);
        assert_eq!(seen, answered, "{keys:?}: {words}");
    }
}

#[test]
fn a_list_whose_message_is_not_known_keeps_no_reply_from_a_question() {
    let plain = on(Some(&descriptor(&["send"])));
    let mut prompts = prompts();
    open(&mut prompts, request(1, "dm"), &plain);
    let shown = prompts.open(list(2), &plain, secs(0)).unwrap();
    prompts.op_finished(&shown.prompt, &Outcome::Unknown, secs(0));
    let replied = match_text(&prompts, &session(), "ann", "1", Some("something else"), secs(9));
    let Some(TypedMatch::Answer(typed)) = replied else {
        panic!("{replied:?}")
    };
    let answer = prompts.answer(&typed, &person("ann"), secs(9));
    assert_eq!(answer.unwrap().id, QuestionId(1));
}

#[test]
fn what_became_of_a_choice_is_said_by_whoever_acts_on_it() {
    for edits in [true, false] {
        let mut native = descriptor(&["send", "prompt"]);
        native.supports_edit = edits;
        for is_done in [true, false] {
            let mut prompts = prompts();
            let prompt = open(&mut prompts, list(1), &on(Some(&native)));
            let resolution = resolved(prompts.press(&press(&prompt, "o1", "ann"), secs(5)));
            assert_eq!(
                (resolution.decision, resolution.edit),
                (Decision::Chosen(1), None)
            );
            let end = resolution.unsaid.unwrap();
            let (op, line) = if is_done {
                (end.done("Gone."), "✅ Gone. — by ann's name")
            } else {
                (end.not_done("It stays."), "⏹ It stays.")
            };
            if edits {
                assert_eq!(edited(Some(&op)), ("m1", &*format!("Which one?\n\n{line}")));
            } else {
                assert_eq!(sent(&op), line);
            }
        }
    }
}

#[test]
fn a_list_that_ends_without_a_choice_says_so_and_so_does_what_comes_late() {
    let native = on(Some(&descriptor(&["send", "prompt"])));
    let ends: [fn(&mut Prompts) -> Resolution; 3] = [
        |prompts| prompts.withdraw(QuestionId(1)).unwrap(),
        |prompts| prompts.expire(secs(115)).remove(0),
        |prompts| type_answer(prompts, &session(), "ann", "/deny A1", secs(9)).unwrap(),
    ];
    for end in ends {
        let mut prompts = prompts();
        let prompt = open(&mut prompts, list(1), &native);
        let typed = typed_answer(&prompts, &session(), "ann", "/deny A1", secs(9)).unwrap();
        let resolution = end(&mut prompts);
        assert_eq!(
            edited(resolution.edit.as_deref()).1,
            format!("Which one?\n\n⏹ {CLOSING}")
        );
        assert!(resolution.unsaid.is_none());
        assert_eq!(prompts.answer(&typed, &person("ann"), secs(9)), None);
        assert_eq!(sent(&prompts.late_answer(&typed).unwrap()), CLOSING);
        for is_first in [true, false] {
            match prompts.press(&press(&prompt, "o0", "ann"), secs(200)) {
                PressResult::Expired { notice, .. } => {
                    assert!(is_first);
                    assert_eq!(sent(&notice.unwrap()), CLOSING);
                }
                other => assert!(!is_first && other == PressResult::Repeated, "{other:?}"),
            }
        }
        let replied = match_text(&prompts, &session(), "ann", "1", Some("m1"), secs(200));
        let Some(TypedMatch::Undecided(notice)) = replied else {
            panic!("{replied:?}")
        };
        assert_eq!(sent(&notice), CLOSING);
    }
}

#[test]
fn a_second_press_of_a_list_is_told_that_it_is_late_unless_it_is_the_same() {
    let native = on(Some(&descriptor(&["send", "prompt"])));
    let mut prompts = prompts();
    let prompt = open(&mut prompts, list(1), &native);
    resolved(prompts.press(&press(&prompt, "o1", "ann"), secs(5)));
    let again = prompts.press(&press(&prompt, "o1", "ann"), secs(6));
    assert_eq!(again, PressResult::Repeated);
    let other = prompts.press(&press(&prompt, "o0", "ann"), secs(6));
    assert!(
        matches!(other, PressResult::Expired { notice: Some(_), .. }),
        "{other:?}"
    );
}
