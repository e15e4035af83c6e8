//! Questions of agents on a made-up clock.

use serde_json::json;

use super::*;
use crate::access::Ann;
use crate::agent::{Question, question};
use crate::link::{Moment, NotSent};
use crate::relay::effects::{HandedTask, JobTask};
use crate::wire::{Action, CapabilityDescriptor, OpResult, Platform, SessionSource};

struct World {
    approvals: Approvals,
    adapters: Adapters,
    effects: Effects,
    now: Duration,
}

/// A question that is asked.
struct Asked {
    answer: oneshot::Receiver<PromptAnswer>,
    question: QuestionId,
    prompt: PromptId,
    op: OpId,
}

const OWNER: Asker = Asker {
    is_owner: true,
    may_answer: true,
    is_direct: true,
    has_rules: true,
};

impl World {
    fn new(settings: &PromptSettings) -> Self {
        let mut descriptor = CapabilityDescriptor::placeholder("discord");
        descriptor.supported_ops = ["send", "edit", "prompt"].map(str::to_owned).into();
        let descriptors = [("discord".to_owned(), Arc::new(descriptor))];
        let identities = [("discord".to_owned(), "b".to_owned())];
        Self {
            approvals: Approvals::new(settings, 7, OpIds::new(1), "the connector"),
            adapters: Adapters::new(
                identities.into_iter(),
                descriptors.into_iter(),
                Arc::default(),
                Arc::default(),
                Arc::default(),
            ),
            effects: Effects::default(),
            now: Duration::from_secs(1_000),
        }
    }

    fn effects(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.effects.next()).collect()
    }

    /// What the relay itself asked, once it is shown.
    fn asked_by_relay(&mut self) -> Asked {
        let (question, prompt, op) = self.shown();
        let asked = Asked {
            answer: oneshot::channel().1,
            question,
            prompt,
            op,
        };
        self.finish(&asked, &applied());
        asked
    }

    /// The op that shows a question.
    fn shown(&mut self) -> (QuestionId, PromptId, OpId) {
        let effects = self.effects();
        let shown = effects.into_iter().find_map(|effect| match effect {
            Effect::Queue(EphemeralOp {
                id,
                owner: OpOwner::Question(question, prompt),
                ..
            }) => Some((question, prompt, id)),
            _ => None,
        });
        shown.expect("a question is shown")
    }

    fn ask(&mut self, turn: u64, asker: Asker) -> Asked {
        self.ask_in(&asking(turn), asker)
    }

    fn ask_in(&mut self, asking: &Asking, asker: Asker) -> Asked {
        let (reply, answer) = oneshot::channel();
        let adapter = self.adapters.get(&asking.chat.id.platform);
        self.approvals.ask(
            asking,
            asker,
            question(),
            reply,
            &adapter,
            self.now,
            &mut self.effects,
        );
        let (question, prompt, op) = self.shown();
        Asked {
            answer,
            question,
            prompt,
            op,
        }
    }

    fn finish(&mut self, asked: &Asked, result: &SendResult) -> Vec<Effect> {
        let prompt = asked.prompt.clone();
        self.approvals.op_finished(
            asked.question,
            prompt,
            result,
            &self.adapters,
            self.now,
            &mut self.effects,
        );
        self.effects()
    }

    /// Ann presses a button.
    fn press(&mut self, asked: &Asked, option: &str) -> Option<DecidedQuestion> {
        let press = QuestionResponse::Press(ButtonPress {
            prompt_id: asked.prompt.as_str().to_owned(),
            option_id: option.to_owned(),
            message_id: None,
            private_reply: None,
            chat: chat().id,
            parent: None,
            by: Person {
                id: Some("ann".to_owned()),
                ..Person::default()
            },
        });
        self.approvals
            .respond(&press, &self.adapters, self.now, &mut self.effects)
    }
}

fn session() -> SessionKey {
    SessionKey::from_text("s")
}

fn chat() -> Chat {
    let source = json!({"platform": "discord", "chat_id": "c", "chat_type": "dm", "user_id": "ann"});
    let source = SessionSource::from_value(&source).unwrap();
    Chat::from_source(&source)
}

fn asking(turn: u64) -> Asking {
    Asking {
        turn: TurnId(turn),
        session: session(),
        chat: Arc::new(chat()),
        personal: true,
        is_quiet: false,
        kept: None,
    }
}

fn applied() -> SendResult {
    let result = OpResult {
        success: true,
        message_id: Some("m1".into()),
        ..OpResult::default()
    };
    SendResult::Answered(Box::new(result.into()))
}

#[test]
fn the_agent_gets_what_a_person_decides() {
    let mut world = World::new(&PromptSettings::default());
    let mut asked = world.ask(1, OWNER);
    assert_eq!(
        (world.approvals.count(), world.approvals.counters().opened),
        (1, 1)
    );
    world.finish(&asked, &applied());
    let decided = world.press(&asked, "o1").unwrap();
    assert_eq!(
        (decided.title.as_str(), decided.answer.as_str()),
        ("Run it?", "always")
    );
    assert_eq!(
        asked.answer.try_recv(),
        Ok(PromptAnswer::Chosen("always".to_owned()))
    );
    assert_eq!(
        (world.approvals.count(), world.approvals.counters().answered),
        (0, 1)
    );
    let effects = world.effects();
    assert!(
        matches!(effects[..], [Effect::Deliver(_)]),
        "its end is shown: {effects:?}"
    );
    assert!(world.press(&asked, "o0").is_none(), "it is decided");
}

#[test]
fn whoever_is_asked_on_whatsapp_answers_in_every_spelling_and_by_every_alias() {
    let message = |user: &str, press: Option<&Asked>| {
        let source = json!({"platform": "whatsapp", "chat_id": "g", "chat_type": "group", "user_id": user});
        let mut event = json!({"text": "1", "source": source});
        if let Some(asked) = press {
            event["prompt_response"] = json!({"prompt_id": asked.prompt.as_str(), "option_id": "o0"});
        }
        MessageEvent::from_value(&event).unwrap()
    };
    for asked_by in Ann::SPELLINGS {
        for (answered_by, may) in Ann::SPELLINGS
            .map(|id| (id, true))
            .into_iter()
            .chain([("491702222", false)])
        {
            for is_press in [true, false] {
                let mut world = World::new(&PromptSettings::default());
                let source = message(asked_by, None).source;
                let asking = Asking {
                    chat: Arc::new(Chat::from_source(&source)),
                    ..asking(1)
                };
                let mut asked = world.ask_in(&asking, OWNER);
                world.finish(&asked, &applied());
                world.now += Duration::from_secs(9);
                let event = message(answered_by, is_press.then_some(&asked));
                let author = Author::from_source(&event.source, &Ann);
                let response =
                    (world.approvals).match_response(Some(&session()), (&event, &author), world.now);
                if let Some(response) = response {
                    let (now, effects) = (world.now, &mut world.effects);
                    world.approvals.respond(&response, &world.adapters, now, effects);
                }
                let is_answered = asked.answer.try_recv().is_ok();
                assert_eq!(is_answered, may, "{asked_by} {answered_by} {is_press}");
            }
        }
    }
}

#[test]
fn only_an_owner_who_alone_may_answer_allows_for_ever() {
    let group = PromptSettings {
        anyone_in_group: true,
        ..PromptSettings::default()
    };
    let asker = |is_owner, is_direct, has_rules| Asker {
        is_owner,
        is_direct,
        has_rules,
        ..OWNER
    };
    for (settings, asker, offers) in [
        (&PromptSettings::default(), asker(true, true, true), true),
        (&PromptSettings::default(), asker(true, false, true), true),
        (&PromptSettings::default(), asker(false, true, true), false),
        (&PromptSettings::default(), asker(false, true, false), true),
        (&group, asker(true, false, true), false),
        (&group, asker(true, true, true), true),
        (&group, asker(true, false, false), true),
    ] {
        let mut world = World::new(settings);
        let question = world.ask(1, asker).question;
        let waiting = &world.approvals.waiting[&question];
        let Recipient::Agent { choices, .. } = &waiting.recipient else {
            panic!("an agent waits")
        };
        assert_eq!(
            choices.iter().any(|choice| choice == "always"),
            offers,
            "{asker:?}"
        );
    }
}

#[test]
fn the_setting_says_who_decides() {
    let owners = PromptSettings {
        approvers: Approvers::Owners,
        ..PromptSettings::default()
    };
    let other = Asker {
        is_owner: false,
        ..OWNER
    };
    let guest = Asker {
        may_answer: false,
        ..other
    };
    let authors = PromptSettings::default();
    let standing = |settings, asker| World::new(settings).approvals.standing(asker);
    for (asker, by_owners, by_authors) in [
        (OWNER, AskerStanding::Always, AskerStanding::Always),
        (other, AskerStanding::OwnerDecides, AskerStanding::Once),
        (guest, AskerStanding::Denied, AskerStanding::Denied),
    ] {
        assert_eq!(standing(&owners, asker), by_owners, "{asker:?}");
        assert_eq!(standing(&authors, asker), by_authors, "{asker:?}");
    }
    let chat = |platform: &str| {
        let mut chat = chat();
        chat.id.platform = platform.into();
        chat
    };
    let best = |platforms: &[&str]| {
        let best = OwnerChat::best(platforms.iter().map(|name| chat(name)), "slack");
        best.map(|chat| chat.id.platform.to_string())
    };
    assert_eq!(best(&["discord", "slack", "signal"]).as_deref(), Some("slack"));
    assert_eq!(best(&["discord", "signal"]).as_deref(), Some("discord"));
    assert_eq!(best(&[]), None);
}

#[test]
fn a_question_without_an_owner_is_denied() {
    let mut world = World::new(&PromptSettings::default());
    let author = Author::operator();
    for (question, wanted) in [
        (question(), PromptAnswer::Chosen("no".to_owned())),
        (
            Question {
                options: Vec::new(),
                ..question()
            },
            PromptAnswer::Cancelled,
        ),
    ] {
        let (reply, mut answer) = oneshot::channel();
        let asked = world.approvals.ask_owner(
            &asking(1),
            (Questioner::Person(&author), None),
            question,
            reply,
            &world.adapters,
            world.now,
            &mut world.effects,
        );
        assert_eq!(asked.recorded, ("denied", "no_owner"));
        assert_eq!(answer.try_recv(), Ok(wanted));
    }
    assert_eq!(world.approvals.count(), 0);
    let owner = OwnerChat {
        session: session(),
        chat: chat(),
        is_quiet: false,
    };
    let (reply, mut answer) = oneshot::channel();
    let asked = world.approvals.ask_owner(
        &asking(1),
        (Questioner::Person(&author), Some(owner)),
        question(),
        reply,
        &world.adapters,
        world.now,
        &mut world.effects,
    );
    assert_eq!((asked.recorded, world.approvals.count()), (("asked", "owner"), 1));
    world.effects();
    world
        .approvals
        .withdraw_from_owners(|_| false, &mut world.effects);
    assert!(answer.try_recv().is_err(), "the owner is still one");
    world.approvals.withdraw_from_owners(|_| true, &mut world.effects);
    assert_eq!(answer.try_recv(), Ok(PromptAnswer::Cancelled));
    assert_eq!(world.approvals.count(), 0);
}

#[test]
fn a_question_is_withdrawn_once_its_author_may_decide_less() {
    let user = Asker {
        is_owner: false,
        ..OWNER
    };
    let guest = Asker {
        may_answer: false,
        ..user
    };
    let owners = PromptSettings {
        approvers: Approvers::Owners,
        ..PromptSettings::default()
    };
    let authors = PromptSettings::default();
    for (settings, asked_as, now, is_kept) in [
        (&authors, OWNER, OWNER, true),
        (&authors, OWNER, user, false),
        (&authors, user, OWNER, true),
        (&authors, user, user, true),
        (&authors, user, guest, false),
        (&owners, OWNER, user, false),
    ] {
        let mut world = World::new(settings);
        let (mut asked, other) = (world.ask(1, asked_as), world.ask(2, asked_as));
        let author_of = |turn| (turn == TurnId(1)).then_some(now);
        let (approvals, effects) = (&mut world.approvals, &mut world.effects);
        approvals.withdraw_from_askers(author_of, effects);
        let answer = asked.answer.try_recv();
        assert_eq!(answer.is_err(), is_kept, "{asked_as:?} {now:?}");
        if !is_kept {
            assert_eq!(answer, Ok(PromptAnswer::Cancelled));
        }
        assert!(approvals.waiting.contains_key(&other.question), "of another turn");
    }
}

#[test]
fn an_owner_reads_whose_question_it_is() {
    let (ann, aliases) = (["ann".into()], &crate::wire::NoAliases);
    let author = Author::new(&Platform::DISCORD, ann, [], true, aliases);
    let operator = Author::operator();
    let job = || {
        Task::Job(JobTask {
            run: RunSeq(7),
            prompt: String::new(),
        })
    };
    let handed = Task::Handed(Box::new(HandedTask {
        agent: "coder".to_owned(),
        text: String::new(),
        deliver: None,
        is_collected: false,
        mark: None,
    }));
    for (author, task, wanted) in [
        (&author, Task::Message(None), "discord:ann asks: "),
        (&author, job(), "discord:ann asks: "),
        (&operator, job(), "The scheduled job `report` asks: "),
        (&operator, handed, "Something handed to coder asks: "),
    ] {
        let questioner = Questioner::of(author, Some(&task), |run| (run == RunSeq(7)).then_some("report"));
        let mut world = World::new(&PromptSettings::default());
        let owner = OwnerChat {
            session: session(),
            chat: chat(),
            is_quiet: false,
        };
        let (reply, _answer) = oneshot::channel();
        world.approvals.ask_owner(
            &asking(1),
            (questioner, Some(owner)),
            question(),
            reply,
            &world.adapters,
            world.now,
            &mut world.effects,
        );
        let titles: Vec<&str> = world
            .approvals
            .waiting
            .values()
            .map(|waiting| waiting.title.as_str())
            .collect();
        assert!(titles.len() == 1 && titles[0].starts_with(wanted), "{titles:?}");
    }
}

#[test]
fn the_questions_of_a_turn_end_with_it_and_no_others() {
    let mut world = World::new(&PromptSettings::default());
    let (mut first, mut second) = (world.ask(1, OWNER), world.ask(2, OWNER));
    world.approvals.withdraw_turn(TurnId(1), &mut world.effects);
    assert_eq!(first.answer.try_recv(), Ok(PromptAnswer::Cancelled));
    assert!(second.answer.try_recv().is_err());
    let effects = world.effects();
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Withdraw(op) if *op == first.op))
    );
    world.approvals.op_renamed(second.question, first.op);
    world.approvals.withdraw_turn(TurnId(2), &mut world.effects);
    let effects = world.effects();
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Withdraw(op) if *op == first.op))
    );
}

#[test]
fn a_question_expires_and_one_that_no_agent_waits_for_ends_soon() {
    let settings = PromptSettings {
        timeout_secs: 100,
        ..PromptSettings::default()
    };
    let mut world = World::new(&settings);
    assert_eq!(world.approvals.deadline(), None);
    let mut asked = world.ask(1, OWNER);
    let gone = world.ask(2, OWNER);
    world.finish(&asked, &applied());
    world.finish(&gone, &applied());
    world.approvals.expire(world.now, &mut world.effects);
    assert_eq!(world.approvals.count(), 2);
    assert_eq!(world.approvals.deadline(), Some(world.now + CHECK_INTERVAL));
    drop(gone.answer);
    let early = world.now + CHECK_INTERVAL * 9 / 10;
    world.approvals.expire(early, &mut world.effects);
    assert_eq!(world.approvals.count(), 2, "looked for from time to time");
    world
        .approvals
        .expire(world.now + CHECK_INTERVAL, &mut world.effects);
    assert_eq!(world.approvals.count(), 1);
    world
        .approvals
        .expire(world.now + Duration::from_secs(99), &mut world.effects);
    assert!(asked.answer.try_recv().is_err());
    world
        .approvals
        .expire(world.now + Duration::from_secs(100), &mut world.effects);
    assert_eq!(asked.answer.try_recv(), Ok(PromptAnswer::TimedOut));
    assert_eq!(
        (world.approvals.count(), world.approvals.counters().expired),
        (0, 1)
    );
}

#[test]
fn a_question_that_cannot_be_shown_is_cancelled() {
    let mut world = World::new(&PromptSettings::default());
    let mut asked = world.ask(1, OWNER);
    world.finish(&asked, &SendResult::NotSent(NotSent::Closing));
    assert_eq!(asked.answer.try_recv(), Ok(PromptAnswer::Cancelled));
    let mut asked = world.ask(1, OWNER);
    world.finish(&asked, &SendResult::Lost);
    assert!(asked.answer.try_recv().is_err(), "somebody may have seen it");
    let refused = |code: Option<&str>| {
        let result = OpResult {
            code: code.map(Into::into),
            ..OpResult::default()
        };
        SendResult::Answered(Box::new(result.into()))
    };
    let mut limited = world.ask(1, OWNER);
    world.finish(&limited, &refused(Some("rate_limited")));
    assert_eq!(limited.answer.try_recv(), Ok(PromptAnswer::Cancelled));
    let mut again = world.ask(1, OWNER);
    let effects = world.finish(&again, &refused(None));
    assert!(
        matches!(effects[..], [Effect::Queue(_)]),
        "once more as text: {effects:?}"
    );
    assert!(again.answer.try_recv().is_err());
}

/// A list of two messages, in rows 5 and 6.
fn show_queue(world: &mut World) -> Asked {
    let entry = |row, gist: &str| QueueEntry {
        session: session(),
        row: InboxSeq(row),
        gist: gist.to_owned(),
    };
    let queue = QueueQuestion {
        session: session(),
        chat: chat(),
        text: "2 messages wait.".to_owned(),
        entries: vec![entry(5, "one"), entry(6, "two")],
        is_quiet: false,
    };
    let adapter = world.adapters.get("discord");
    let opened = world
        .approvals
        .ask_about_queue(queue, &adapter, world.now, &mut world.effects);
    opened.unwrap();
    world.asked_by_relay()
}

/// The text that an op edits into a message, or sends.
fn text(effect: &Effect) -> &str {
    let Effect::Deliver(op) = effect else {
        panic!("{effect:?}")
    };
    match &op.action {
        Action::Edit { content, .. } | Action::Send { content, .. } => content,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_list_ends_once_none_of_its_messages_waits() {
    let mut world = World::new(&PromptSettings::default());
    let list = show_queue(&mut world);
    let end_lists = |world: &mut World, waiting: &[i64]| {
        let waits = |_: &SessionKey, row: InboxSeq| waiting.contains(&row.0);
        world.approvals.end_lists(waits, &mut world.effects);
        world.effects()
    };
    assert!(end_lists(&mut world, &[6]).is_empty());
    let ended = end_lists(&mut world, &[7]);
    assert!(text(&ended[0]).ends_with("This list is over. /queue shows what waits."));
    assert_eq!((ended.len(), world.approvals.count()), (1, 0));
    assert!(world.press(&list, "o0").is_none(), "nothing is dropped");
    let effects = world.effects();
    assert!(
        matches!(effects[..], [Effect::Queue(_)]),
        "it says so: {effects:?}"
    );
    assert!(end_lists(&mut world, &[]).is_empty());
}

#[test]
fn a_question_counts_as_visible_once_it_is_shown_and_a_list_never() {
    let mut world = World::new(&PromptSettings::default());
    let asked = world.ask(1, OWNER);
    assert_eq!(world.approvals.visible_in(asked.question), None);
    world.finish(&asked, &applied());
    assert_eq!(world.approvals.visible_in(asked.question), Some(&session()));
    world.press(&asked, "o0").unwrap();
    assert_eq!(world.approvals.visible_in(asked.question), None);
    world.effects();
    let list = show_queue(&mut world);
    assert_eq!(world.approvals.visible_in(list.question), None);
}

#[test]
fn a_choice_from_a_list_names_the_row_to_drop_and_what_is_said_then() {
    let mut world = World::new(&PromptSettings::default());
    let list = show_queue(&mut world);
    assert_eq!(world.press(&list, "o1").unwrap().answer, "drop");
    let mut effects = world.effects();
    let Some(Effect::DropWaiting { row, done, .. }) = effects.pop() else {
        panic!("{effects:?}")
    };
    assert_eq!((row, done.as_str()), (InboxSeq(6), "Dropped 2: two"));
    assert!(effects.is_empty(), "nothing is said before: {effects:?}");
}

/// An owner is asked about somebody's code.
fn ask_about_pairing(world: &mut World) -> Asked {
    let owner = OwnerChat {
        session: session(),
        chat: chat(),
        is_quiet: false,
    };
    let person = crate::access::PersonId::parse("discord:bob").unwrap();
    let adapter = world.adapters.get("discord");
    let (code, now) = ("K7QWXP2M".to_owned(), world.now);
    world
        .approvals
        .ask_about_pairing(&owner, &person, code, &adapter, now, &mut world.effects);
    world.asked_by_relay()
}

#[test]
fn an_owner_reads_what_became_of_a_code_and_not_what_was_pressed() {
    for (option, lets_in) in [("o0", true), ("o1", false)] {
        let mut world = World::new(&PromptSettings::default());
        let asked = ask_about_pairing(&mut world);
        world.press(&asked, option).unwrap();
        let mut effects = world.effects();
        let Some(Effect::PairingDecided { code, approved, .. }) = effects.pop() else {
            panic!("{effects:?}")
        };
        assert_eq!((code.as_str(), approved), ("K7QWXP2M", lets_in));
        assert!(effects.is_empty(), "nothing is said before: {effects:?}");
    }
    let mut world = World::new(&PromptSettings::default());
    ask_about_pairing(&mut world);
    world
        .approvals
        .expire(world.now + Duration::from_secs(300), &mut world.effects);
    let ended = world.effects();
    let command = "hermes-relay access approve K7QWXP2M";
    assert!(text(&ended[0]).ends_with(command), "{ended:?}");
}

#[test]
fn a_question_about_a_code_that_waits_no_more_says_what_became_of_it() {
    let mut world = World::new(&PromptSettings::default());
    let asked = ask_about_pairing(&mut world);
    world.ask(1, OWNER);
    assert_eq!(world.approvals.codes().collect::<Vec<_>>(), ["K7QWXP2M"]);
    let say = |_: Language| "Bob is in".to_owned();
    world.approvals.end_pairing("AAAAAAAA", say, &mut world.effects);
    assert!(world.effects().is_empty());
    world.approvals.end_pairing("K7QWXP2M", say, &mut world.effects);
    let ended = world.effects();
    assert!(text(&ended[0]).ends_with("⏹ Bob is in"), "{ended:?}");
    assert_eq!((ended.len(), world.approvals.count()), (1, 1));
    assert_eq!(world.approvals.codes().count(), 0);
    assert!(world.press(&asked, "o0").is_none(), "nobody is let in twice");
    let late = world.effects();
    assert!(matches!(late[..], [Effect::Queue(_)]), "{late:?}");
}

#[test]
fn the_next_process_goes_on_with_a_question_about_a_code() {
    let mut world = World::new(&PromptSettings::default());
    let now = Moment {
        mono: world.now,
        unix_ms: 1_790_000_000_000,
    };
    let asked = ask_about_pairing(&mut world);
    let left = serde_json::to_vec(&world.approvals.take_changed(now).unwrap()).unwrap();
    let later = |secs: u64| Moment {
        mono: world.now,
        unix_ms: now.unix_ms + i64::try_from(secs).unwrap() * 1000,
    };
    for (secs, goes_on) in [(299, true), (300, false)] {
        let mut left = LeftQuestions::read(&left).shown;
        let LeftQuestion { closing, pairing, .. } = left.remove(0);
        assert!(closing.is_some());
        let pairing = pairing.unwrap();
        assert_eq!(pairing.owner, chat());
        let mut next = World::new(&PromptSettings::default());
        let restored = next.approvals.restore_pairing(pairing, later(secs));
        assert_eq!(restored.is_some(), goes_on, "after {secs} s");
        assert_eq!(next.press(&asked, "o0").is_some(), goes_on);
        let effects = next.effects();
        let is_decided = matches!(&effects[..], [Effect::PairingDecided { code, .. }] if code == "K7QWXP2M");
        assert_eq!(is_decided, goes_on, "{effects:?}");
    }
}

#[test]
fn what_is_kept_of_a_question_has_its_chat_and_its_owner_in_full() {
    let mut world = World::new(&PromptSettings::default());
    ask_about_pairing(&mut world);
    let now = Moment {
        mono: world.now,
        unix_ms: 0,
    };
    let left = serde_json::to_string(&world.approvals.take_changed(now).unwrap()).unwrap();
    for kept in [
        r#""owner":[{"platform":"discord","chat":"c"},{"user_id":"ann","chat_type":"dm"}],"question":"#,
        r#""builder":{"chat":{"platform":"discord","chat":"c"},"facts":{"user_id":"ann","chat_type":"dm"},"is_anchored":true,"formats":{},"previews":{},"limit":"#,
    ] {
        assert!(left.contains(kept), "{left}");
    }
}

#[test]
fn the_next_process_knows_the_questions_that_this_one_leaves() {
    let now = Moment {
        mono: Duration::ZERO,
        unix_ms: 1_790_000_000_000,
    };
    let mut world = World::new(&PromptSettings::default());
    let asked = world.ask(1, OWNER);
    let sent = world.approvals.take_changed(now).unwrap();
    assert!(sent.shown.is_empty() && !sent.is_empty(), "it may be shown soon");
    world.finish(&asked, &applied());
    let open = world.approvals.take_changed(now).unwrap();
    world.approvals.withdraw_turn(TurnId(1), &mut world.effects);
    let ended = world.approvals.take_changed(now).unwrap();
    assert!(ended.shown.is_empty());
    for left in [sent, open, ended] {
        let left = LeftQuestions::read(&serde_json::to_vec(&left).unwrap());
        let mut next = World::new(&PromptSettings::default());
        next.approvals.remember(left.remembered);
        for text in ["/approve A1", "A1 1"] {
            let source = json!({"platform": "discord", "chat_id": "c", "chat_type": "dm", "user_id": "ann"});
            let event = MessageEvent::from_value(&json!({"text": text, "source": source})).unwrap();
            let author = Author::from_source(&event.source, &Ann);
            let response = (next.approvals).match_response(Some(&session()), (&event, &author), next.now);
            assert!(
                matches!(response, Some(QuestionResponse::Undecided(_))),
                "{text}: {response:?}"
            );
        }
    }
}

#[test]
fn what_an_earlier_version_kept_of_questions_is_read() {
    let now = Moment {
        mono: Duration::ZERO,
        unix_ms: 1_790_000_000_000,
    };
    let mut world = World::new(&PromptSettings::default());
    let asked = world.ask(1, OWNER);
    world.finish(&asked, &applied());
    let left = world.approvals.take_changed(now).unwrap();
    let earlier = LeftQuestions::read(&serde_json::to_vec(&left.shown).unwrap());
    assert!(earlier.remembered.is_empty());
    assert!(matches!(
        &earlier.shown[..],
        [LeftQuestion { closing: Some(_), .. }]
    ));
    assert!(LeftQuestions::read(b"{").is_empty());
}

#[test]
fn what_is_kept_of_questions_is_asked_for_when_it_changed() {
    let mut world = World::new(&PromptSettings::default());
    let now = Moment {
        mono: world.now,
        unix_ms: 1_790_000_000_000,
    };
    assert!(world.approvals.take_changed(now).is_none());
    let asked = world.ask(1, OWNER);
    world.finish(&asked, &applied());
    let left = world.approvals.take_changed(now).unwrap().shown;
    assert_eq!((left.len(), left[0].kept.is_some()), (1, false));
    assert!(world.approvals.take_changed(now).is_none());
    world.approvals.mark_changed();
    assert!(world.approvals.take_changed(now).is_some());
    let kept = KeptTurn {
        row: 5,
        agent: "llm".to_owned(),
        state: "there".to_owned(),
    };
    let waiting = world.approvals.waiting.get_mut(&asked.question).unwrap();
    waiting.kept = Some(kept);
    world.approvals.mark_changed();
    let mut left = world.approvals.take_changed(now).unwrap().shown;
    let kept = left.remove(0).kept.unwrap();
    assert_eq!(world.approvals.leave(), [TurnId(1)]);
    assert!(
        world.press(&asked, "o0").is_none(),
        "the next process goes on with it"
    );
    let mut next = World::new(&PromptSettings::default());
    assert!(next.approvals.restore(kept, now).is_some());
    assert_eq!(
        (next.approvals.count(), next.approvals.is_restored(InboxSeq(5))),
        (1, true)
    );
    assert!(!next.approvals.is_restored(InboxSeq(6)));
    assert_eq!(next.approvals.restored_rows().collect::<Vec<_>>(), [InboxSeq(5)]);
    next.approvals.abandon_restored(InboxSeq(5));
    assert!(!next.approvals.is_restored(InboxSeq(5)));
    next.approvals
        .expire(next.now + CHECK_INTERVAL, &mut next.effects);
    assert_eq!(next.approvals.count(), 0, "nobody waits for it");
}
