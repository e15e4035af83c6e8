//! Questions from end to end, on a simulated clock.

mod shown;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::adapter::{ChatFacts, ChatId, RelayAdapter};
use crate::wire::{Action, CapabilityDescriptor, OpResult, Outcome, SessionKey};

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
        platform: "discord".to_owned(),
        chat: "c".to_owned(),
    }
}

fn session() -> SessionKey {
    SessionKey::from_text("s".to_owned())
}

fn person(id: &str) -> Person {
    Person {
        id: Some(id.to_owned()),
        name: Some(format!("{id}'s name")),
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
        chat: chat(),
        facts: ChatFacts {
            chat_type: Some(chat_type.to_owned()),
            message_id: Some("m0".to_owned()),
            user_id: Some("ann".to_owned()),
            ..ChatFacts::default()
        },
        author: Some("ann".to_owned()),
        kind: QuestionKind::Approval,
        text: "Run it?".to_owned(),
        detail: Some("ls -la".to_owned()),
        options: options(&[Meaning::AllowOnce, Meaning::AllowAlways, Meaning::Deny]),
        timeout: None,
    }
}

fn press(prompt: &PromptId, option: &str, by: &str) -> ButtonPress {
    ButtonPress {
        prompt_id: prompt.as_str().to_owned(),
        option_id: option.to_owned(),
        message_id: None,
        chat: chat(),
        by: person(by),
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
    let typed = prompts.match_text(session, &person(by), text, now)?;
    prompts.answer(&typed, &person(by), now)
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
fn a_press_decides_once_and_the_message_shows_it() {
    let native = descriptor(&["send", "prompt"]);
    let mut prompts = prompts();
    let opened = prompts
        .open(request(1, "dm"), &on(Some(&native)), secs(0))
        .unwrap();
    assert!(opened.native);
    assert_eq!(
        prompts.op_finished(&opened.prompt, &applied("m1")),
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
    elsewhere.chat.chat = "other".to_owned();
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
    let mut nameless = stranger;
    nameless.by.id = None;
    assert_eq!(prompts.press(&nameless, secs(1)), PressResult::NotAllowed(None));
    assert_eq!(prompts.len(), 1);
    resolved(prompts.press(&press(prompt, "o0", "ann"), secs(1)));
}

#[test]
fn a_late_press_is_notified_once_and_decides_nothing() {
    let native = descriptor(&["send", "prompt"]);
    let mut prompts = prompts();
    let noticed = prompts
        .open(request(1, "dm"), &on(Some(&native)), secs(0))
        .unwrap();
    assert_eq!(prompts.poll_timeout(), Some(secs(300)));
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
    assert_eq!((unknown, prompts.len()), (PressResult::NoSuchOption, 1));
}

#[test]
fn an_option_dropped_in_a_group_cannot_be_pressed_or_typed() {
    let native = descriptor(&["send", "prompt"]);
    let mut prompts = prompts();
    for (key, chat_type, offered) in [(1, "group", false), (2, "dm", true), (3, "thread", false)] {
        let opened = prompts
            .open(request(key, chat_type), &on(Some(&native)), secs(0))
            .unwrap();
        prompts.op_finished(&opened.prompt, &applied("m1"));
        let typed = prompts.match_text(&session(), &person("ann"), "/approve always", secs(1));
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
    let then = prompts.op_finished(&opened.prompt, &refused("unsupported"));
    let PromptStep::Show(op) = then else {
        panic!("{then:?}")
    };
    assert!(matches!(&op.action, Action::Send { content, .. } if content.contains("1. AllowOnce")));
    let early = prompts.match_text(&session(), &person("ann"), "1", secs(1));
    assert_eq!(early, None, "not shown yet");
    let then = prompts.op_finished(&opened.prompt, &refused("unsupported"));
    let PromptStep::Resolved(resolution) = then else {
        panic!("{then:?}")
    };
    assert_eq!(
        (resolution.decision, resolution.edit),
        (Decision::Cancelled, None)
    );
    assert_eq!(type_answer(&mut prompts, &session(), "ann", "1", secs(1)), None);

    let opened = prompts
        .open(request(2, "dm"), &on(Some(&native)), secs(0))
        .unwrap();
    let then = prompts.op_finished(&opened.prompt, &refused("egress_declined"));
    assert!(matches!(then, PromptStep::Resolved(_)), "{then:?}");
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
    let ann = person("ann");
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
        (true, Some(applied("m")), "ann", "1", None),
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
            prompts.op_finished(&opened.prompt, outcome);
        }
        let other = SessionKey::from_text("other".to_owned());
        assert_eq!(type_answer(&mut prompts, &other, "ann", reply, secs(1)), None);
        assert_eq!(
            prompts.match_text(&session(), &ann, reply, secs(300)),
            None,
            "too late"
        );
        let answer = type_answer(&mut prompts, &session(), by, reply, secs(1));
        let seen = answer.map(|resolution| resolution.decision);
        assert_eq!(seen, decision, "{buttons} {outcome:?} {by} {reply}");
    }
}

#[test]
fn the_newest_question_is_answered_and_an_ended_one_takes_no_answer() {
    let plain = descriptor(&["send"]);
    let mut prompts = prompts();
    for key in [1, 2] {
        let opened = prompts
            .open(request(key, "dm"), &on(Some(&plain)), secs(0))
            .unwrap();
        prompts.op_finished(&opened.prompt, &applied("m"));
    }
    let ann = person("ann");
    let typed = prompts.match_text(&session(), &ann, "/approve", secs(1)).unwrap();
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
        prompts.op_finished(&opened.prompt, &applied("m"));
        let answer = type_answer(&mut prompts, &session(), "ann", reply, secs(1));
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
    assert_eq!(prompts.len(), 1);
    let then = prompts.op_finished(&opened.prompt, &applied("m1"));
    let PromptStep::Edit(op) = then else {
        panic!("{then:?}")
    };
    let (message, content) = edited(Some(&op));
    assert!(message == "m1" && content.ends_with("\n\n⏹ No longer asked"));
    assert_eq!(
        prompts.op_finished(&opened.prompt, &applied("m1")),
        PromptStep::Nothing
    );
}
