//! Questions from end to end, on a simulated clock.

mod lists;
mod shown;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::adapter::{Chat, ChatFacts, ChatId, RelayAdapter};
use crate::wire::{Action, CapabilityDescriptor, OpResult, Outcome, SessionKey};
use crate::words::PhraseKey;

const NONCE: [u8; 3] = [0xab, 0x01, 0xff];

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn prompts() -> Prompts {
    Prompts::new(PromptSettings::default(), NONCE, 7)
}

fn descriptor(ops: &[&str]) -> CapabilityDescriptor {
    let mut descriptor = CapabilityDescriptor::placeholder("discord");
    descriptor.markdown_dialect = Some("discord".to_owned());
    descriptor.supported_ops = ops.iter().map(|&op| op.to_owned()).collect();
    descriptor
}

/// The adapter of a platform with this descriptor.
fn on(descriptor: Option<&CapabilityDescriptor>) -> RelayAdapter {
    RelayAdapter::new("discord", None, descriptor.cloned().map(Arc::new), Arc::default())
}

fn chat() -> ChatId {
    ChatId {
        platform: "discord".into(),
        chat: "c".into(),
    }
}

fn session() -> SessionKey {
    SessionKey::from_text("s".to_owned())
}

fn person(id: &str) -> Person {
    Person {
        id: Some(id.to_owned()),
        name: Some(format!("{id}'s name")),
        known_as: Vec::new(),
    }
}

fn options(meanings: &[Meaning]) -> Vec<PromptOption> {
    let option = |meaning: &Meaning| PromptOption {
        label: format!("{meaning:?}"),
        meaning: *meaning,
    };
    meanings.iter().map(option).collect()
}

/// An approval that `ann` may give.
fn request(id: u64, chat_type: &str) -> PromptRequest {
    PromptRequest {
        id: QuestionId(id),
        session: session(),
        chat: Chat {
            id: chat(),
            facts: ChatFacts {
                chat_type: Some(chat_type.into()),
                message_id: Some("m0".into()),
                user_id: Some("ann".into()),
                ..ChatFacts::default()
            },
        },
        author: Some("ann".to_owned()),
        named_only: false,
        personal: true,
        kind: QuestionKind::Approval,
        text: "Run it?".to_owned(),
        detail: Some("ls -la".to_owned()),
        options: options(&[Meaning::AllowOnce, Meaning::AllowAlways, Meaning::Deny]),
        timeout: None,
        is_silent: false,
        is_list: false,
        closing: None,
    }
}

fn press(prompt: &PromptId, option: &str, by: &str) -> ButtonPress {
    ButtonPress {
        prompt_id: prompt.as_str().to_owned(),
        option_id: option.to_owned(),
        message_id: None,
        private_reply: None,
        chat: chat(),
        parent: None,
        by: person(by),
    }
}

/// What a typed message is.
fn match_text(
    prompts: &Prompts,
    session: &SessionKey,
    by: &str,
    text: &str,
    reply_to: Option<&str>,
    now: Duration,
) -> Option<TypedMatch> {
    let message = TypedMessage {
        session: Some(session),
        chat: &chat(),
        by: &person(by),
        text,
        reply_to,
    };
    prompts.match_text(&message, now)
}

/// The answer that somebody types, if it is one.
fn typed_answer(
    prompts: &Prompts,
    session: &SessionKey,
    by: &str,
    text: &str,
    now: Duration,
) -> Option<TypedAnswer> {
    match match_text(prompts, session, by, text, None, now)? {
        TypedMatch::Answer(typed) => Some(typed),
        TypedMatch::Undecided(_) => None,
    }
}

/// Somebody types an answer, and it is taken.
fn type_answer(
    prompts: &mut Prompts,
    session: &SessionKey,
    by: &str,
    text: &str,
    now: Duration,
) -> Option<Resolution> {
    let typed = typed_answer(prompts, session, by, text, now)?;
    prompts.answer(&typed, &person(by), now)
}

/// The code that a question shows.
fn code(action: &Action) -> String {
    let (Action::Prompt { content, .. } | Action::Send { content, .. }) = action else {
        panic!("{action:?}")
    };
    let (_, code) = content.rsplit_once("/deny ").expect("a code");
    code.trim_end_matches('.').to_owned()
}

fn applied(id: &str) -> Outcome {
    Outcome::from(OpResult {
        success: true,
        message_id: Some(id.into()),
        ..OpResult::default()
    })
}

fn refused(code: &str) -> Outcome {
    Outcome::from(OpResult {
        code: Some(code.into()),
        ..OpResult::default()
    })
}

#[track_caller]
fn resolved(pressed: PressResult) -> Resolution {
    match pressed {
        PressResult::Resolved(resolution) => resolution,
        other => panic!("not resolved: {other:?}"),
    }
}

#[track_caller]
fn edited(edit: Option<&PromptOp>) -> (&str, &str) {
    match edit.map(|op| &op.action) {
        Some(Action::Edit {
            message_id, content, ..
        }) => (message_id, content),
        other => panic!("not an edit: {other:?}"),
    }
}

#[test]
fn people_are_reminded_once_at_half_of_the_time_of_a_question_that_they_can_see() {
    let mut prompts = prompts();
    let adapter = on(Some(&descriptor(&["send", "prompt"])));
    let seen = prompts.open(request(1, "dm"), &adapter, secs(0)).unwrap();
    prompts.open(request(2, "dm"), &adapter, secs(0)).unwrap();
    prompts.op_finished(&seen.prompt, &applied("q1"), secs(1));
    assert!(prompts.remind(secs(149)).is_empty());
    let reminders = prompts.remind(secs(150));
    assert_eq!(reminders.len(), 1, "the other one is not shown yet");
    let Action::Send {
        content, metadata, ..
    } = &reminders[0].action
    else {
        panic!("{reminders:?}")
    };
    assert!(content.contains("another 2 min 30 s"), "{content}");
    assert_eq!(metadata.get("notify"), Some(&true.into()));
    assert!(prompts.remind(secs(299)).is_empty(), "once");
}

#[test]
fn a_reminder_says_how_much_time_is_left_to_the_nearest_second() {
    let adapter = on(Some(&descriptor(&["send", "prompt"])));
    for (timeout, late_ms, left) in [
        (4, 0, "2 s"),
        (4, 1, "2 s"),
        (4, 499, "2 s"),
        (4, 501, "1 s"),
        (2, 999, "1 s"),
        (300, 3, "2 min 30 s"),
        (3, 0, "2 s"),
    ] {
        let settings = PromptSettings {
            timeout_secs: timeout,
            ..PromptSettings::default()
        };
        let mut prompts = Prompts::new(settings, NONCE, 0);
        let opened = prompts.open(request(1, "dm"), &adapter, secs(0)).unwrap();
        prompts.op_finished(&opened.prompt, &applied("q1"), secs(0));
        let now = secs(timeout) / 2 + Duration::from_millis(late_ms);
        let reminders = prompts.remind(now);
        let Action::Send { content, .. } = &reminders[0].action else {
            panic!("{reminders:?}")
        };
        assert!(content.contains(&format!("another {left}")), "{content}");
    }
}

#[test]
fn a_press_decides_once_and_the_message_shows_it() {
    let native = descriptor(&["send", "prompt"]);
    let mut prompts = prompts();
    let opened = prompts
        .open(request(1, "dm"), &on(Some(&native)), secs(0))
        .unwrap();
    assert!(opened.native);
    assert_eq!(
        prompts.op_finished(&opened.prompt, &applied("m1"), secs(0)),
        PromptStep::Nothing
    );
    let resolution = resolved(prompts.press(&press(&opened.prompt, "o0", "ann"), secs(1)));
    assert_eq!(
        (resolution.id, resolution.decision),
        (QuestionId(1), Decision::Chosen(0))
    );
    let (message, content) = edited(resolution.edit.as_deref());
    assert_eq!(message, "m1");
    assert_eq!(
        content,
        "Run it?\n```\nls -la\n```\n\n✅ Allowed once — by ann's name"
    );
    let again = prompts.press(&press(&opened.prompt, "o2", "ann"), secs(2));
    assert_eq!(again, PressResult::Repeated);
    assert!(prompts.is_empty() && prompts.poll_timeout().is_none());
}

#[test]
fn presses_that_decide_nothing() {
    let native = descriptor(&["send", "prompt"]);
    let mut prompts = prompts();
    let opened = prompts
        .open(request(1, "group"), &on(Some(&native)), secs(0))
        .unwrap();
    let prompt = &opened.prompt;
    let mut foreign = press(prompt, "o0", "ann");
    foreign.prompt_id = "ab01fe.00000001".to_owned();
    assert_eq!(prompts.press(&foreign, secs(1)), PressResult::NotOurs);
    foreign.prompt_id = "ab01ff.00000000".to_owned();
    assert_eq!(prompts.press(&foreign, secs(1)), PressResult::Repeated);

    let mut elsewhere = press(prompt, "o0", "ann");
    elsewhere.chat.chat = "other".into();
    assert_eq!(prompts.press(&elsewhere, secs(1)), PressResult::NotAllowed(None));
    let stranger = press(prompt, "o0", "bob");
    assert!(matches!(
        prompts.press(&stranger, secs(1)),
        PressResult::NotAllowed(Some(_))
    ));
    assert_eq!(
        prompts.press(&stranger, secs(1)),
        PressResult::NotAllowed(None),
        "notified once"
    );
    // Where nobody else reads it, everybody who presses gets the notice.
    let private = ButtonPress {
        private_reply: Some("press-1".to_owned()),
        ..stranger.clone()
    };
    for _ in 0..2 {
        let PressResult::NotAllowed(Some(notice)) = prompts.press(&private, secs(1)) else {
            panic!("a notice for whoever pressed");
        };
        let Action::Send { reply_to, .. } = notice.action else {
            panic!("{:?}", notice.action);
        };
        assert_eq!(reply_to.as_deref(), Some("press-1"));
    }
    let mut nameless = stranger;
    nameless.by.id = None;
    assert_eq!(prompts.press(&nameless, secs(1)), PressResult::NotAllowed(None));
    assert_eq!(prompts.count(), 1);
    resolved(prompts.press(&press(prompt, "o0", "ann"), secs(1)));
}

#[test]
fn a_late_press_is_notified_once_and_decides_nothing() {
    let native = descriptor(&["send", "prompt"]);
    let mut prompts = prompts();
    let noticed = prompts
        .open(request(1, "dm"), &on(Some(&native)), secs(0))
        .unwrap();
    assert_eq!(prompts.poll_timeout(), Some(secs(150)), "the reminder");
    assert!(prompts.expire(secs(299)).is_empty());
    let ended = prompts.expire(secs(300));
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].decision, Decision::TimedOut);
    assert_eq!(
        prompts.press(&press(&noticed.prompt, "o0", "bob"), secs(301)),
        PressResult::Repeated
    );
    for notified in [true, false] {
        match prompts.press(&press(&noticed.prompt, "o0", "ann"), secs(301)) {
            PressResult::Expired { resolution, notice } => {
                assert!(notified && resolution.is_none() && notice.is_some());
            }
            other => assert!(!notified && other == PressResult::Repeated, "{other:?}"),
        }
    }

    let unnoticed = prompts
        .open(request(2, "dm"), &on(Some(&native)), secs(400))
        .unwrap();
    let late = prompts.press(&press(&unnoticed.prompt, "o0", "ann"), secs(700));
    let PressResult::Expired { resolution, .. } = late else {
        panic!("{late:?}")
    };
    assert_eq!(resolution.unwrap().decision, Decision::TimedOut);
    assert!(prompts.expire(secs(900)).is_empty());
    let again = prompts.press(&press(&unnoticed.prompt, "o0", "ann"), secs(701));
    assert_eq!(again, PressResult::Repeated);
}

#[test]
fn an_unknown_button_denies_an_approval_and_leaves_a_choice_open() {
    let native = descriptor(&["send", "prompt"]);
    let mut prompts = prompts();
    let approval = prompts
        .open(request(1, "dm"), &on(Some(&native)), secs(0))
        .unwrap();
    let resolution = resolved(prompts.press(&press(&approval.prompt, "once", "ann"), secs(1)));
    assert_eq!(resolution.decision, Decision::Chosen(2));

    let mut undeniable = request(2, "dm");
    undeniable.options.pop();
    let undeniable = prompts.open(undeniable, &on(Some(&native)), secs(0)).unwrap();
    let resolution = resolved(prompts.press(&press(&undeniable.prompt, "o2", "ann"), secs(1)));
    assert_eq!(resolution.decision, Decision::Cancelled);

    let mut choice = request(3, "dm");
    choice.kind = QuestionKind::Choice;
    choice.options = options(&[Meaning::Plain; 2]);
    let choice = prompts.open(choice, &on(Some(&native)), secs(0)).unwrap();
    let unknown = prompts.press(&press(&choice.prompt, "o2", "ann"), secs(1));
    assert_eq!((unknown, prompts.count()), (PressResult::NoSuchOption, 1));
}

#[test]
fn an_option_dropped_in_a_group_cannot_be_pressed_or_typed() {
    let native = descriptor(&["send", "prompt"]);
    let mut prompts = prompts();
    for (key, chat_type, offered) in [(1, "group", false), (2, "dm", true), (3, "thread", false)] {
        let opened = prompts
            .open(request(key, chat_type), &on(Some(&native)), secs(0))
            .unwrap();
        prompts.op_finished(&opened.prompt, &applied("m1"), secs(0));
        let typed = typed_answer(&prompts, &session(), "ann", "/approve always", secs(2));
        assert_eq!(typed.is_some(), offered, "{chat_type}");
        let resolution = resolved(prompts.press(&press(&opened.prompt, "o1", "ann"), secs(1)));
        let expected = if offered { 1 } else { 2 };
        assert_eq!(resolution.decision, Decision::Chosen(expected), "{chat_type}");
    }
}

#[test]
fn a_refusal_is_tried_once_as_text_and_a_decline_never() {
    let native = descriptor(&["send", "prompt"]);
    let mut prompts = prompts();
    let opened = prompts
        .open(request(1, "dm"), &on(Some(&native)), secs(0))
        .unwrap();
    let then = prompts.op_finished(&opened.prompt, &refused("unsupported"), secs(0));
    let PromptStep::Show(op) = then else {
        panic!("{then:?}")
    };
    assert!(matches!(&op.action, Action::Send { content, .. } if content.contains("1. AllowOnce")));
    let early = match_text(&prompts, &session(), "ann", "1", None, secs(2));
    assert_eq!(early, None, "not shown yet");
    let then = prompts.op_finished(&opened.prompt, &refused("unsupported"), secs(0));
    let PromptStep::Resolved(resolution) = then else {
        panic!("{then:?}")
    };
    assert_eq!(
        (resolution.decision, resolution.edit),
        (Decision::Cancelled, None)
    );
    assert_eq!(type_answer(&mut prompts, &session(), "ann", "1", secs(2)), None);

    let opened = prompts
        .open(request(2, "dm"), &on(Some(&native)), secs(0))
        .unwrap();
    let then = prompts.op_finished(&opened.prompt, &refused("egress_declined"), secs(0));
    assert!(matches!(then, PromptStep::Resolved(_)), "{then:?}");
    let opened = prompts
        .open(request(4, "dm"), &on(Some(&native)), secs(0))
        .unwrap();
    let closed = Outcome::from(OpResult {
        is_permanent: true,
        ..OpResult::default()
    });
    let then = prompts.op_finished(&opened.prompt, &closed, secs(0));
    assert!(
        matches!(then, PromptStep::Resolved(_)),
        "a closed chat shows no text either: {then:?}"
    );
    let opened = prompts
        .open(request(3, "dm"), &on(Some(&native)), secs(0))
        .unwrap();
    assert_eq!(
        prompts.op_not_sent(&opened.prompt).unwrap().decision,
        Decision::Cancelled
    );
    assert_eq!(prompts.op_not_sent(&opened.prompt), None);
}

#[test]
fn a_typed_answer_counts_only_for_visible_questions_and_allowed_people() {
    let (native, plain) = (descriptor(&["send", "prompt"]), descriptor(&["send"]));
    #[rustfmt::skip]
    let cases = [
        // buttons, outcome of the op, who, words, decision
        (false, Some(applied("m")), "ann", "1", Some(Decision::Chosen(0))),
        (false, Some(applied("m")), "ann", "3", Some(Decision::Chosen(2))),
        (false, Some(applied("m")), "ann", "4", None),
        (false, Some(applied("m")), "ann", "0", None),
        (false, Some(applied("m")), "bob", "1", None),
        (false, Some(applied("m")), "ann", "/approve", Some(Decision::Chosen(0))),
        (false, Some(applied("m")), "ann", "/approve session", None),
        (false, Some(applied("m")), "ann", "/approve always", Some(Decision::Chosen(1))),
        (false, Some(applied("m")), "ann", "/deny", Some(Decision::Chosen(2))),
        (false, Some(applied("m")), "bob", "/deny", None),
        (false, Some(applied("m")), "ann", "yes", None),
        (true, Some(applied("m")), "ann", "1", Some(Decision::Chosen(0))),
        (true, Some(applied("m")), "ann", "3", Some(Decision::Chosen(2))),
        (true, Some(applied("m")), "ann", "4", None),
        (true, Some(applied("m")), "bob", "1", None),
        (true, Some(Outcome::Unknown), "ann", "1", None),
        (true, None, "ann", "1", None),
        (true, Some(applied("m")), "ann", "/approve", Some(Decision::Chosen(0))),
        (true, Some(applied("m")), "ann", "/deny", Some(Decision::Chosen(2))),
        (true, None, "ann", "/approve", None),
        (false, None, "ann", "1", None),
        (false, Some(Outcome::Unknown), "ann", "1", None),
        (false, Some(Outcome::Unknown), "ann", "/approve", Some(Decision::Chosen(0))),
    ];
    for (buttons, outcome, by, reply, decision) in cases {
        let mut prompts = prompts();
        let descriptor = if buttons { &native } else { &plain };
        let opened = prompts
            .open(request(1, "dm"), &on(Some(descriptor)), secs(0))
            .unwrap();
        assert_eq!(opened.native, buttons);
        if let Some(outcome) = &outcome {
            prompts.op_finished(&opened.prompt, outcome, secs(0));
        }
        let other = SessionKey::from_text("other".to_owned());
        assert_eq!(type_answer(&mut prompts, &other, "ann", reply, secs(2)), None);
        let late = match_text(&prompts, &session(), "ann", reply, None, secs(300));
        assert_eq!(late, None, "too late");
        let answer = type_answer(&mut prompts, &session(), by, reply, secs(2));
        let seen = answer.map(|resolution| resolution.decision);
        assert_eq!(seen, decision, "{buttons} {outcome:?} {by} {reply}");
    }
}

#[test]
fn an_ended_question_takes_no_answer_and_leaves_none_to_others() {
    let plain = descriptor(&["send"]);
    let mut prompts = prompts();
    for key in [1, 2] {
        let opened = prompts
            .open(request(key, "dm"), &on(Some(&plain)), secs(0))
            .unwrap();
        prompts.op_finished(&opened.prompt, &applied("m"), secs(0));
    }
    let ann = person("ann");
    let typed = typed_answer(&prompts, &session(), "ann", "/approve A2", secs(1)).unwrap();
    assert_eq!(
        prompts.answer(&typed, &person("bob"), secs(2)),
        None,
        "not theirs"
    );
    assert_eq!(prompts.answer(&typed, &ann, secs(300)), None, "too late");
    assert_eq!(
        prompts.withdraw(QuestionId(2)).unwrap().decision,
        Decision::Cancelled
    );
    assert_eq!(prompts.answer(&typed, &ann, secs(2)), None, "not the older one");
    let answer = type_answer(&mut prompts, &session(), "ann", "/approve", secs(2)).unwrap();
    assert_eq!(answer.id, QuestionId(1));
}

/// What became of a typed message.
#[derive(Debug, PartialEq)]
enum Became {
    /// An ordinary message.
    Message,
    /// The answer to this question.
    Answer(u64),
    /// Nothing was decided, and the notice says so.
    Undecided,
    /// The question that it names or replies to has ended.
    TooLate,
}

#[test]
fn words_decide_the_question_they_can_only_mean() {
    use Became::{Answer, Message, TooLate, Undecided};
    let plain = descriptor(&["send"]);
    // Questions 1 (A2), 2 (A3) and 3 (A4) are visible since 0, 10 and 20; 9 (A1) has ended. Each is shown in `m` and its number.
    #[rustfmt::skip]
    let cases = [
        // now, open, words, in reply to, what became of it
        (1, &[1][..], "/approve", None, Undecided),
        (1, &[1], "1", None, Undecided),
        (1, &[1], "/deny", None, Undecided),
        (1, &[1], "9", None, Message),
        (1, &[1], "/approve session", None, Message),
        (1, &[1], "/approve A2", None, Answer(1)),
        (1, &[1], "A2 1", None, Answer(1)),
        (1, &[1], "/approve", Some("m1"), Answer(1)),
        (2, &[1], "/approve", None, Answer(1)),
        (2, &[1], "1", None, Answer(1)),
        (11, &[1, 2], "/approve", None, Answer(1)),
        (11, &[1, 2], "/deny", None, Answer(1)),
        (11, &[1, 2], "/approve", Some("m2"), Answer(2)),
        (11, &[1, 2], "/approve a3", None, Answer(2)),
        (12, &[1, 2], "/approve", None, Undecided),
        (12, &[1, 2], "2", None, Undecided),
        (12, &[1, 2], "/deny", None, Undecided),
        (12, &[1, 2], "2", Some("m1"), Answer(1)),
        (12, &[1, 2], "2", Some("m2"), Answer(2)),
        (12, &[1, 2], "A3 2", None, Answer(2)),
        (12, &[1, 2], "A4 2", None, Message),
        (12, &[1, 2], "A3 9", None, Message),
        (12, &[1, 2], "9", Some("m2"), Message),
        (12, &[1, 2], "/approve A2", Some("m1"), Answer(1)),
        (12, &[1, 2], "/approve A2", Some("m2"), Undecided),
        (12, &[1, 2], "/approve A2", Some("m9"), TooLate),
        (12, &[1, 2], "/approve A1", None, TooLate),
        (12, &[1, 2], "/deny a1", Some("m1"), TooLate),
        (12, &[], "/approve A1 always", None, TooLate),
        (12, &[], "A1 1", None, TooLate),
        (12, &[], "A1 9", None, Message),
        (12, &[], "A2 1", None, Message),
        (12, &[], "1", None, Message),
        (300, &[1], "/approve A2", None, TooLate),
        (300, &[1], "1", Some("m1"), TooLate),
        (300, &[1], "A2 9", None, Message),
        (12, &[1], "/approve", Some("m9"), TooLate),
        (12, &[], "/approve", Some("m9"), TooLate),
        (12, &[], "/approve", None, Message),
        (12, &[1], "fine", Some("m1"), Message),
        (12, &[1], "/approve", Some("something else"), Answer(1)),
        (12, &[1, 2], "/approve", Some("something else"), Undecided),
        (22, &[1, 2, 3], "/approve", None, Undecided),
        (22, &[1, 2, 3], "/approve A4 always", None, Answer(3)),
    ];
    for (now, open, words, reply_to, became) in cases {
        let mut prompts = prompts();
        let opened = prompts
            .open(request(9, "dm"), &on(Some(&plain)), secs(0))
            .unwrap();
        prompts.op_finished(&opened.prompt, &applied("m9"), secs(0));
        prompts.withdraw(QuestionId(9));
        for key in open {
            let at = secs((key - 1) * 10);
            let opened = prompts.open(request(*key, "dm"), &on(Some(&plain)), at).unwrap();
            prompts.op_finished(&opened.prompt, &applied(&format!("m{key}")), at);
        }
        let seen = match match_text(&prompts, &session(), "ann", words, reply_to, secs(now)) {
            None => Message,
            Some(TypedMatch::Answer(typed)) => {
                let answer = prompts.answer(&typed, &person("ann"), secs(now));
                Answer(answer.unwrap().id.0)
            }
            Some(TypedMatch::Undecided(notice)) => match &notice.action {
                Action::Send { content, .. } if content == "That question is no longer open." => TooLate,
                Action::Send { content, .. } => {
                    assert!(content.contains("/approve A2 or /deny A2"), "{content}");
                    assert!(content.contains("nothing is decided"), "{content}");
                    Undecided
                }
                other => panic!("{other:?}"),
            },
        };
        assert_eq!(seen, became, "at {now}, {open:?} open: {words} to {reply_to:?}");
        let left = open.len() - usize::from(matches!(became, Answer(_)));
        assert_eq!(prompts.count(), left, "{words}");
    }
}

#[test]
fn a_typed_answer_to_an_ended_question_reads_that_if_its_author_could_have_given_it() {
    let plain = descriptor(&["send"]);
    let ends: [fn(&mut Prompts); 3] = [
        |prompts| assert_eq!(prompts.expire(secs(300)).len(), 1),
        |prompts| assert!(prompts.withdraw(QuestionId(1)).is_some()),
        |prompts| assert!(type_answer(prompts, &session(), "ann", "A1 1", secs(9)).is_some()),
    ];
    for end in ends {
        let mut prompts = prompts();
        let opened = prompts
            .open(request(1, "group"), &on(Some(&plain)), secs(0))
            .unwrap();
        prompts.op_finished(&opened.prompt, &applied("m1"), secs(0));
        end(&mut prompts);
        for text in ["/approve A1", "/deny A1", "A1 1"] {
            let late = match_text(&prompts, &session(), "ann", text, None, secs(400));
            let Some(TypedMatch::Undecided(notice)) = late else {
                panic!("{text}: {late:?}")
            };
            let Action::Send { content, .. } = &notice.action else {
                panic!("{notice:?}")
            };
            assert_eq!(content, "That question is no longer open.");
            let by_bob = match_text(&prompts, &session(), "bob", text, None, secs(400));
            assert_eq!(by_bob, None, "{text}");
            let elsewhere = TypedMessage {
                session: Some(&session()),
                chat: &ChatId {
                    chat: "elsewhere".into(),
                    ..chat()
                },
                by: &person("ann"),
                text,
                reply_to: None,
            };
            assert_eq!(prompts.match_text(&elsewhere, secs(400)), None, "{text}");
        }
    }
}

#[test]
fn a_reply_to_a_message_that_is_not_known_decides_nothing_while_a_question_s_message_is_not_known() {
    let plain = descriptor(&["send"]);
    for outcome in [None, Some(Outcome::Unknown)] {
        let mut prompts = prompts();
        for key in [1, 2] {
            let opened = prompts
                .open(request(key, "dm"), &on(Some(&plain)), secs(0))
                .unwrap();
            if key == 1 {
                prompts.op_finished(&opened.prompt, &applied("m1"), secs(0));
            } else if let Some(outcome) = &outcome {
                prompts.op_finished(&opened.prompt, outcome, secs(0));
            }
        }
        let replied = match_text(&prompts, &session(), "ann", "1", Some("m2"), secs(9));
        assert!(matches!(replied, Some(TypedMatch::Undecided(_))), "{replied:?}");
        let replied = match_text(&prompts, &session(), "ann", "1", Some("m1"), secs(9));
        assert!(matches!(replied, Some(TypedMatch::Answer(_))), "{replied:?}");
    }
}

#[test]
fn a_code_is_good_in_its_chat_only_and_for_those_who_may_answer() {
    let open_house = PromptSettings {
        anyone_in_group: true,
        ..PromptSettings::default()
    };
    for (settings, may) in [(PromptSettings::default(), false), (open_house, true)] {
        let plain = descriptor(&["send"]);
        let mut prompts = Prompts::new(settings, NONCE, 0);
        let opened = prompts
            .open(request(1, "group"), &on(Some(&plain)), secs(0))
            .unwrap();
        prompts.op_finished(&opened.prompt, &applied("m1"), secs(0));
        let of_bob = SessionKey::from_text("bob's");
        let by_bob = match_text(&prompts, &of_bob, "bob", "/approve A1", None, secs(1));
        assert_eq!(matches!(by_bob, Some(TypedMatch::Answer(_))), may);
        let bare = match_text(&prompts, &of_bob, "bob", "/approve", None, secs(9));
        assert_eq!(bare, None, "another conversation");
        let elsewhere = ChatId {
            chat: "elsewhere".into(),
            ..chat()
        };
        for reply_to in [None, Some("m1")] {
            let message = TypedMessage {
                session: Some(&session()),
                chat: &elsewhere,
                by: &person("ann"),
                text: "/approve A1",
                reply_to,
            };
            assert_eq!(prompts.match_text(&message, secs(9)), None);
        }
    }
}

#[test]
fn whoever_is_asked_answers_with_any_of_their_ids() {
    let plain = descriptor(&["send"]);
    let native = descriptor(&["send", "prompt"]);
    for (id, known_as, may) in [
        ("ann", &[][..], true),
        ("Ann:12@net", &["ann"], true),
        ("9@lid", &["9@lid", "ann"], true),
        ("9@lid", &["9@lid"], false),
    ] {
        let by = Person {
            known_as: known_as.iter().map(|id| (*id).to_owned()).collect(),
            ..person(id)
        };
        for chat_type in ["dm", "group"] {
            let mut prompts = prompts();
            let opened = prompts
                .open(request(1, chat_type), &on(Some(&plain)), secs(0))
                .unwrap();
            prompts.op_finished(&opened.prompt, &applied("m"), secs(0));
            let message = TypedMessage {
                session: Some(&session()),
                chat: &chat(),
                by: &by,
                text: "1",
                reply_to: None,
            };
            let typed = prompts.match_text(&message, secs(9));
            let answered = typed.and_then(|typed| match typed {
                TypedMatch::Answer(typed) => prompts.answer(&typed, &by, secs(9)),
                TypedMatch::Undecided(_) => None,
            });
            assert_eq!(answered.is_some(), may, "{id} {chat_type}");

            let opened = prompts
                .open(request(2, chat_type), &on(Some(&native)), secs(0))
                .unwrap();
            let pressed = ButtonPress {
                by: by.clone(),
                ..press(&opened.prompt, "o0", "ann")
            };
            let pressed = prompts.press(&pressed, secs(9));
            assert_eq!(
                matches!(pressed, PressResult::Resolved(_)),
                may,
                "{id} {chat_type}"
            );
        }
    }
}

#[test]
fn a_message_of_no_session_answers_the_only_question_that_its_author_was_asked_in_the_chat() {
    let plain = descriptor(&["send"]);
    let elsewhere = ChatId {
        chat: "elsewhere".into(),
        ..chat()
    };
    // The questions that are open, each in a session of its own; who writes where, and whether that answers the first.
    for (open, by, place, text, is_answer) in [
        (1, "ann", chat(), "1", true),
        (1, "ann", chat(), "/approve", true),
        (1, "ann", chat(), "/deny", true),
        (1, "ann", elsewhere.clone(), "1", false),
        (1, "bob", chat(), "1", false),
        (1, "bob", chat(), "/approve", false),
        (2, "ann", chat(), "1", false),
        (2, "ann", chat(), "/approve", false),
    ] {
        let mut prompts = prompts();
        for id in 1..=open {
            let asked = PromptRequest {
                session: SessionKey::from_text(format!("s{id}")),
                options: options(&[Meaning::AllowOnce, Meaning::Deny]),
                ..request(id, "group")
            };
            let opened = prompts.open(asked, &on(Some(&plain)), secs(0)).unwrap();
            prompts.op_finished(&opened.prompt, &applied(&format!("m{id}")), secs(0));
        }
        let author = person(by);
        let message = |session| TypedMessage {
            session,
            chat: &place,
            by: &author,
            text,
            reply_to: None,
        };
        let found = prompts.match_text(&message(None), secs(9));
        let what = format!("{open} {by} {text}");
        assert_eq!(matches!(found, Some(TypedMatch::Answer(_))), is_answer, "{what}");
        let of_other = SessionKey::from_text("other");
        assert_eq!(
            prompts.match_text(&message(Some(&of_other)), secs(9)),
            None,
            "{what}"
        );
    }
}

#[test]
fn whoever_may_not_answer_reads_that_and_is_not_passed_on_to_the_agent() {
    let plain = descriptor(&["send"]);
    let mut prompts = prompts();
    let opened = prompts
        .open(request(1, "group"), &on(Some(&plain)), secs(0))
        .unwrap();
    prompts.op_finished(&opened.prompt, &applied("m1"), secs(0));
    for (text, reply_to, is_answer) in [
        ("/approve", None, true),
        ("/deny", None, true),
        ("/approve A1", None, true),
        ("/deny A1", None, true),
        ("A1 2", None, true),
        ("2", Some("m1"), true),
        // What is no answer to it, whoever writes it.
        ("/approve session", None, false),
        ("/deny A2", None, false),
        ("A1 9", None, false),
        ("yes", Some("m1"), false),
        ("2", None, false),
    ] {
        let matched = match_text(&prompts, &session(), "bob", text, reply_to, secs(3));
        let notice = matched.map(|matched| match matched {
            TypedMatch::Undecided(notice) => notice.action,
            TypedMatch::Answer(answer) => panic!("{text}: {answer:?}"),
        });
        assert_eq!(notice.is_some(), is_answer, "{text}");
        if let Some(action) = notice {
            let Action::Send { content, .. } = action else {
                panic!("{action:?}")
            };
            assert_eq!(content, PhraseKey::NotYours.english());
        }
    }
}

#[test]
fn codes_are_unique_among_the_open_questions_of_a_chat_and_come_again_late() {
    let plain = descriptor(&["send"]);
    let mut prompts = prompts();
    let mut code_of = |id: u64, chat_id: &str| {
        let mut asked = request(id, "dm");
        asked.chat.id.chat = chat_id.into();
        let opened = prompts.open(asked, &on(Some(&plain)), secs(0)).unwrap();
        if id != 1 {
            prompts.withdraw(QuestionId(id));
        }
        code(&opened.op.action)
    };
    assert_eq!(
        [code_of(1, "c"), code_of(2, "c"), code_of(3, "d")],
        ["A1", "A2", "A1"]
    );
    let mut last = String::new();
    for id in 4..4 + 2572 {
        last = code_of(id, "c");
        assert_ne!(last, "A1", "it is open");
    }
    assert_eq!(last, "Z99");
    assert_eq!(
        code_of(9_999, "c"),
        "A2",
        "after the last one, the first that is free"
    );
}

/// The next process, with what this one leaves in the journal.
fn restarted(prompts: &Prompts) -> Prompts {
    let left = serde_json::to_vec(&prompts.remembered()).unwrap();
    let mut next = Prompts::new(PromptSettings::default(), [1, 2, 3], 9);
    next.remember(serde_json::from_slice(&left).unwrap());
    next
}

/// What somebody reads whose answer comes too late.
#[track_caller]
fn late_notice(prompts: &Prompts, by: &str, text: &str, reply_to: Option<&str>) -> String {
    let late = match_text(prompts, &session(), by, text, reply_to, secs(1));
    let Some(TypedMatch::Undecided(notice)) = late else {
        panic!("{text}: {late:?}")
    };
    let Action::Send { content, .. } = &notice.action else {
        panic!("{notice:?}")
    };
    content.clone()
}

#[test]
fn a_late_answer_to_a_question_of_an_earlier_process_decides_no_other_one() {
    let plain = descriptor(&["send"]);
    let ends: [fn(&mut Prompts); 4] = [
        |_| {},
        |prompts| assert_eq!(prompts.expire(secs(300)).len(), 1),
        |prompts| assert!(prompts.withdraw(QuestionId(1)).is_some()),
        |prompts| assert!(type_answer(prompts, &session(), "ann", "A1 1", secs(9)).is_some()),
    ];
    for (end, starts) in ends.into_iter().zip([1, 2, 1, 3]) {
        let mut prompts = prompts();
        let opened = prompts
            .open(request(1, "group"), &on(Some(&plain)), secs(0))
            .unwrap();
        prompts.op_finished(&opened.prompt, &applied("m1"), secs(0));
        end(&mut prompts);
        for _ in 0..starts {
            prompts = restarted(&prompts);
        }
        assert!(prompts.is_empty());
        let over = "That question is no longer open.";
        for text in ["/approve A1", "/deny A1", "A1 1"] {
            assert_eq!(late_notice(&prompts, "ann", text, None), over);
            let by_bob = match_text(&prompts, &session(), "bob", text, None, secs(1));
            assert_eq!(by_bob, None, "{text}");
        }
        assert_eq!(late_notice(&prompts, "ann", "/approve", Some("m1")), over);
        let no_option = match_text(&prompts, &session(), "ann", "A1 9", None, secs(1));
        assert_eq!(no_option, None);
        let opened = prompts
            .open(request(2, "group"), &on(Some(&plain)), secs(0))
            .unwrap();
        assert_eq!(code(&opened.op.action), "A2");
        prompts.op_finished(&opened.prompt, &applied("m2"), secs(0));
        assert_eq!(late_notice(&prompts, "ann", "/approve A1", None), over);
        assert_eq!(prompts.count(), 1);
    }
}

#[test]
fn no_chat_gets_a_code_of_an_earlier_process_soon() {
    let plain = descriptor(&["send"]);
    let ask = |prompts: &mut Prompts, id: u64, chat_id: &str| {
        let mut asked = request(id, "dm");
        asked.chat.id.chat = chat_id.into();
        let opened = prompts.open(asked, &on(Some(&plain)), secs(0)).unwrap();
        prompts.withdraw(QuestionId(id));
        code(&opened.op.action)
    };
    let mut first = prompts();
    for id in 0..300 {
        ask(&mut first, id, "busy");
    }
    assert_eq!(ask(&mut first, 300, "quiet"), "A1");
    let mut second = restarted(&first);
    assert_eq!(
        ["busy", "quiet", "new"].map(|chat| ask(&mut second, 1, chat)),
        ["D4", "D4", "D4"]
    );
    assert_eq!(ask(&mut restarted(&second), 1, "quiet"), "D5");
    let idle = restarted(&restarted(&second));
    assert_eq!(
        ask(&mut restarted(&idle), 1, "quiet"),
        "D5",
        "no question, no code"
    );
}

#[test]
fn a_question_that_goes_on_in_the_next_process_counts_as_open_there() {
    let plain = descriptor(&["send"]);
    let mut prompts = prompts();
    let opened = prompts
        .open(request(1, "dm"), &on(Some(&plain)), secs(0))
        .unwrap();
    prompts.op_finished(&opened.prompt, &applied("m1"), secs(0));
    let saved = prompts.save(QuestionId(1), secs(0)).unwrap();
    let mut next = restarted(&prompts);
    next.restore(saved, QuestionId(5), secs(0), secs(9)).unwrap();
    let second = next.open(request(6, "dm"), &on(Some(&plain)), secs(9)).unwrap();
    assert_eq!(code(&second.op.action), "A2");
    let answered = type_answer(&mut next, &session(), "ann", "/approve A1", secs(9)).unwrap();
    assert_eq!(answered.id, QuestionId(5));
    assert_eq!(next.remembered().into_parts().1.len(), 2, "each once");
}

#[test]
fn a_question_goes_on_only_if_the_settings_still_let_the_same_people_answer_the_same() {
    let strict = PromptSettings::default;
    let anyone = || PromptSettings {
        anyone_in_group: true,
        ..strict()
    };
    let always = || PromptSettings {
        allow_always_in_groups: true,
        ..strict()
    };
    let owners = || PromptSettings {
        approvers: Approvers::Owners,
        ..anyone()
    };
    let plain = descriptor(&["send"]);
    for (before, after, chat_type, goes_on) in [
        (strict(), strict(), "group", true),
        (strict(), anyone(), "group", true),
        (anyone(), anyone(), "group", true),
        (anyone(), strict(), "group", false),
        (anyone(), owners(), "group", false),
        (always(), always(), "group", true),
        (always(), strict(), "group", false),
        (anyone(), strict(), "dm", true),
        (always(), strict(), "dm", true),
    ] {
        let case = format!("{before:?} {after:?} {chat_type}");
        let mut prompts = Prompts::new(before, NONCE, 0);
        prompts
            .open(request(1, chat_type), &on(Some(&plain)), secs(0))
            .unwrap();
        let saved = prompts.save(QuestionId(1), secs(0)).unwrap();
        let mut next = Prompts::new(after, NONCE, 0);
        let restored = next.restore(saved, QuestionId(1), secs(0), secs(9));
        assert_eq!(restored.is_some(), goes_on, "{case}");
    }
}

#[test]
fn a_press_in_a_thread_may_name_the_thread_as_its_chat() {
    let native = descriptor(&["send", "prompt"]);
    let thread = ChatId {
        chat: "m9".into(),
        ..chat()
    };
    let elsewhere = ChatId {
        chat: "elsewhere".into(),
        ..chat()
    };
    for (parent, may) in [(Some(chat()), true), (Some(elsewhere), false), (None, false)] {
        let mut prompts = prompts();
        let opened = prompts
            .open(request(1, "group"), &on(Some(&native)), secs(0))
            .unwrap();
        let press = ButtonPress {
            chat: thread.clone(),
            parent: parent.clone(),
            ..press(&opened.prompt, "o0", "ann")
        };
        let pressed = prompts.press(&press, secs(1));
        assert_eq!(matches!(pressed, PressResult::Resolved(_)), may, "{parent:?}");
    }
}

#[test]
fn so_many_questions_are_remembered_and_the_newest_of_them() {
    let plain = descriptor(&["send"]);
    let mut prompts = prompts();
    for id in 1..=70 {
        prompts
            .open(request(id, "dm"), &on(Some(&plain)), secs(0))
            .unwrap();
        if id <= 66 {
            prompts.withdraw(QuestionId(id));
        }
    }
    let next = restarted(&prompts);
    assert_eq!(next.remembered().into_parts().1.len(), 64);
    let says = |text| match_text(&next, &session(), "ann", text, None, secs(1)).is_some();
    assert!(says("/approve A70") && says("/approve A7") && !says("/approve A6"));
}

#[test]
fn only_where_a_conversation_is_one_person_s_is_more_than_once_offered() {
    use Meaning::{AllowAlways, AllowOnce, AllowSession, Deny, Plain};
    let all = [AllowOnce, AllowSession, AllowAlways, Plain, Deny];
    #[rustfmt::skip]
    let cases = [
        // chat type, one person's, always in groups, offered
        ("dm", true, false, vec![AllowOnce, AllowSession, AllowAlways, Plain, Deny]),
        ("group", true, false, vec![AllowOnce, AllowSession, Plain, Deny]),
        ("group", true, true, vec![AllowOnce, AllowSession, AllowAlways, Plain, Deny]),
        ("group", false, false, vec![AllowOnce, Deny]),
        ("group", false, true, vec![AllowOnce, Deny]),
        ("thread", false, true, vec![AllowOnce, Deny]),
    ];
    for (chat_type, personal, always_in_groups, offered) in cases {
        for native in [true, false] {
            let settings = PromptSettings {
                allow_always_in_groups: always_in_groups,
                ..PromptSettings::default()
            };
            let mut prompts = Prompts::new(settings, NONCE, 0);
            let mut asked = request(1, chat_type);
            asked.personal = personal;
            asked.options = options(&all);
            let ops: &[&str] = if native { &["send", "prompt"] } else { &["send"] };
            let opened = prompts.open(asked, &on(Some(&descriptor(ops))), secs(0)).unwrap();
            let labels: Vec<String> = match &opened.op.action {
                Action::Prompt { options, .. } => options.iter().map(|option| option.label.clone()).collect(),
                Action::Send { content, .. } => content
                    .lines()
                    .filter_map(|line| Some(line.split_once(". ")?.1.to_owned()))
                    .collect(),
                other => panic!("{other:?}"),
            };
            let wanted: Vec<String> = offered.iter().map(|meaning| format!("{meaning:?}")).collect();
            assert_eq!(
                labels, wanted,
                "{chat_type} {personal} {always_in_groups} {native}"
            );
            prompts.op_finished(&opened.prompt, &applied("m1"), secs(0));
            for (words, meaning) in [
                ("/approve session A1", AllowSession),
                ("/approve A1 always", AllowAlways),
            ] {
                let typed = typed_answer(&prompts, &session(), "ann", words, secs(1));
                assert_eq!(
                    typed.is_some(),
                    offered.contains(&meaning),
                    "{chat_type} {personal} {words}"
                );
            }
        }
    }
}

#[test]
fn approving_never_allows_more_than_was_typed() {
    use Meaning::{AllowAlways, AllowOnce, AllowSession, Deny};
    let plain = descriptor(&["send"]);
    for (offered, reply, decision) in [
        (&[AllowAlways, AllowOnce, Deny][..], "/approve", Some(1)),
        (&[AllowAlways, AllowSession, Deny], "/approve", None),
        (&[AllowSession, Deny], "/approve", Some(0)),
        (&[AllowOnce, Deny], "/approve always", None),
        (&[AllowOnce, AllowSession], "/approve session", Some(1)),
    ] {
        let mut prompts = prompts();
        let mut asked = request(1, "dm");
        asked.options = options(offered);
        let opened = prompts.open(asked, &on(Some(&plain)), secs(0)).unwrap();
        prompts.op_finished(&opened.prompt, &applied("m"), secs(0));
        let answer = type_answer(&mut prompts, &session(), "ann", reply, secs(2));
        let seen = answer.map(|resolution| resolution.decision);
        assert_eq!(seen, decision.map(Decision::Chosen), "{offered:?} {reply}");
    }
}

#[test]
fn a_question_can_be_withdrawn_before_it_is_shown() {
    let native = descriptor(&["send", "prompt"]);
    let mut prompts = prompts();
    let opened = prompts
        .open(request(1, "dm"), &on(Some(&native)), secs(0))
        .unwrap();
    prompts
        .open(request(2, "dm"), &on(Some(&native)), secs(0))
        .unwrap();
    let ended = prompts.withdraw(QuestionId(1)).unwrap();
    assert_eq!((ended.decision, ended.edit), (Decision::Cancelled, None));
    assert_eq!(prompts.count(), 1);
    let then = prompts.op_finished(&opened.prompt, &applied("m1"), secs(0));
    let PromptStep::Edit(op) = then else {
        panic!("{then:?}")
    };
    let (message, content) = edited(Some(&op));
    assert!(message == "m1" && content.ends_with("\n\n⏹ No longer asked"));
    assert_eq!(
        prompts.op_finished(&opened.prompt, &applied("m1"), secs(0)),
        PromptStep::Nothing
    );
}

#[test]
fn how_to_answer_by_a_code_is_said_in_the_language_of_the_reader() {
    let plain = descriptor(&["send"]);
    let mut prompts = prompts();
    let mut german = request(1, "dm");
    german.chat.facts.language = Some("de".into());
    let opened = prompts.open(german, &on(Some(&plain)), secs(0)).unwrap();
    prompts.op_finished(&opened.prompt, &applied("m1"), secs(0));
    let matched = match_text(&prompts, &session(), "ann", "/approve", None, secs(1));
    let Some(TypedMatch::Undecided(notice)) = matched else {
        panic!("words came too soon")
    };
    let Action::Send { content, .. } = &notice.action else {
        panic!("{notice:?}")
    };
    assert!(content.contains("/approve A1 oder /deny A1"), "{content}");
}
