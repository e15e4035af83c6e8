//! What the gate's decisions lead to: limits, counts, rows, and what strangers read.

use super::*;
use crate::access::{AccessSettings, CODE_LIFETIME_MS, PairingRequest};
use crate::words::Language;

const NOW: i64 = 1_790_000_000_000;

struct World {
    access: AccessControl,
    effects: Effects,
    _dir: tempfile::TempDir,
}

impl World {
    fn new(access: serde_json::Value, usage: &[UsageRow]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::embedded(dir.path());
        if !access.is_null() {
            settings.access = serde_json::from_value::<AccessSettings>(access).unwrap();
            settings.access.is_set = true;
        }
        Self {
            access: AccessControl::new(&settings, &[], usage, NOW),
            effects: Effects::default(),
            _dir: dir,
        }
    }

    fn admit(&mut self, author: &Author, kind: EventKind) -> (bool, Reason, bool) {
        let verdict = self.access.decide(author, kind);
        let (verdict, notice) = self.access.admit(author, (kind, None), verdict, NOW);
        (verdict.allowed, verdict.reason, notice.is_some())
    }

    /// Turns and tokens of the rows since the last call.
    fn usage(&mut self) -> Vec<(String, i64, i64)> {
        let (commands, _) = self.effects.take_commands();
        let rows = commands.into_iter().filter_map(|command| match command {
            Command::AddUsage(row) => Some((row.agent, row.turns, row.tokens)),
            _ => None,
        });
        rows.collect()
    }

    fn stranger(&mut self, user: &str, chat_type: &str, now_ms: i64) -> Option<strangers::StrangerReply> {
        let random = u64::try_from(now_ms).unwrap();
        self.access.answer_stranger(
            &author(user, chat_type),
            PairingRequest::default(),
            Language::default(),
            (random, now_ms),
            &mut self.effects,
        )
    }
}

fn author(user: &str, chat_type: &str) -> Author {
    let source = json!({"platform": "slack", "user_id": user, "chat_id": "C1", "chat_type": chat_type});
    let source = SessionSource::from_value(&source).unwrap();
    Author::from_source(&source, &NoAliases)
}

fn ann() -> Author {
    author("ann", "dm")
}

fn people() -> serde_json::Value {
    json!([
        {"platform": "slack", "user": "ann", "role": "owner", "agents": ["llm"]},
        {"platform": "slack", "user": "gus", "role": "guest"},
    ])
}

#[test]
fn limits_count_with_a_section_and_the_reply_to_a_refused_command_counts_too() {
    let mut world = World::new(
        json!({"mode": "list", "people": people(), "limits": {"per_user_per_minute": 2}}),
        &[],
    );
    let gus = author("gus", "dm");
    assert_eq!(
        world.admit(&gus, EventKind::Command),
        (false, Reason::Role, false)
    );
    assert_eq!(
        world.admit(&gus, EventKind::Command),
        (false, Reason::Role, false)
    );
    assert_eq!(
        world.admit(&gus, EventKind::Command),
        (false, Reason::Limit, true)
    );
    assert_eq!(
        world.admit(&gus, EventKind::Message),
        (false, Reason::Limit, false)
    );
    assert_eq!(
        world.admit(&ann(), EventKind::Press),
        (true, Reason::Person, false)
    );
    for _ in 0..2 {
        assert_eq!(
            world.admit(&ann(), EventKind::Message),
            (true, Reason::Person, false)
        );
    }
    assert_eq!(
        world.admit(&ann(), EventKind::Inquiry),
        (false, Reason::Limit, true)
    );
    let strange = author("eve", "dm");
    for _ in 0..9 {
        assert_eq!(
            world.admit(&strange, EventKind::Command),
            (false, Reason::Stranger, false)
        );
    }
    let counts = world.access.counts();
    assert!(counts.contains(&("allowed", "person", 3)), "{counts:?}");
    assert!(counts.contains(&("refused", "role", 2)), "{counts:?}");
    assert!(counts.contains(&("refused", "limit", 3)), "{counts:?}");
    assert!(counts.contains(&("refused", "stranger", 9)), "{counts:?}");
    let mut none = World::new(serde_json::Value::Null, &[]);
    assert!(!none.access.is_active() && none.access.acts_as_owner(&gus));
    assert_eq!(
        none.admit(&gus, EventKind::Command),
        (true, Reason::Upstream, false)
    );
}

#[test]
fn bots_are_counted_in_messages_alone() {
    let mut world = World::new(json!({"mode": "open", "max_turns_without_human": 1}), &[]);
    let mut bot = author("bot", "group");
    bot.is_bot = true;
    assert!(world.admit(&bot, EventKind::Inquiry).0 && world.admit(&bot, EventKind::Inquiry).0);
    assert_eq!(world.admit(&bot, EventKind::Message), (true, Reason::Open, false));
    assert_eq!(world.admit(&bot, EventKind::Message), (false, Reason::Loop, true));
}

#[test]
fn a_turn_begins_with_an_agent_of_its_author_within_the_day() {
    let earlier = UsageRow {
        day: NOW.div_euclid(DAY_MS),
        platform: "slack".to_owned(),
        person: "ann".to_owned(),
        chat: String::new(),
        agent: "llm".to_owned(),
        turns: 1,
        tokens: 5,
    };
    let other = UsageRow {
        agent: "shell".to_owned(),
        ..earlier.clone()
    };
    let mut world = World::new(
        json!({"mode": "list", "people": people(), "limits": {"turns_per_day": 3}}),
        &[earlier, other],
    );
    let begin = |world: &mut World, agent: &str| {
        let role = world
            .access
            .begin(&ann(), (TurnId(1), agent), false, NOW, &mut world.effects);
        role.map_err(|reason| {
            let notice = world.access.refusal_notice(&ann(), reason, agent);
            (reason, notice.is_some())
        })
    };
    assert_eq!(begin(&mut world, "shell"), Err((Reason::Agent, true)));
    assert_eq!(world.usage(), []);
    assert_eq!(begin(&mut world, "llm"), Ok(Some(Role::Owner)));
    assert_eq!(world.usage(), [("llm".to_owned(), 1, 0)]);
    let job = (TurnId(3), "llm");
    let refused = world.access.begin(&ann(), job, false, NOW, &mut world.effects);
    assert_eq!(
        refused,
        Err(Reason::Limit),
        "a job, which nobody reads a notice of"
    );
    assert_eq!(begin(&mut world, "llm"), Err((Reason::Limit, true)));
    assert_eq!(begin(&mut world, "llm"), Err((Reason::Limit, false)), "told once");
    for tokens in [7, 0] {
        world
            .access
            .turn_ended(&ann(), "llm", (tokens, true), NOW, &mut world.effects);
    }
    assert_eq!(world.usage(), [("llm".to_owned(), 0, 7)]);
    let used = world.access.describe_usage(&ann(), Language::default(), NOW);
    assert!(
        used.contains("3 of 3 turns") && used.contains("17 tokens"),
        "{used}"
    );
    assert_eq!(world.access.agents(&ann()), Some(vec!["llm".to_owned()]));
    let operator = Author::operator();
    let role = world
        .access
        .begin(&operator, (TurnId(2), "shell"), false, NOW, &mut world.effects);
    assert_eq!(role.unwrap(), Some(Role::Owner));
    assert_eq!(world.usage(), [], "nobody counts the operator");
}

#[test]
fn the_turn_of_a_command_neither_counts_nor_needs_a_turn_of_the_day() {
    let mut world = World::new(
        json!({"mode": "list", "people": people(), "limits": {"turns_per_day": 1}}),
        &[],
    );
    let begin = |world: &mut World, agent: &str, is_command| {
        let turn = (TurnId(1), agent);
        (world.access).begin(&ann(), turn, is_command, NOW, &mut world.effects)
    };
    assert!(begin(&mut world, "llm", true).is_ok());
    assert_eq!(world.usage(), []);
    assert!(begin(&mut world, "llm", false).is_ok());
    assert_eq!(begin(&mut world, "llm", false), Err(Reason::Limit));
    assert!(begin(&mut world, "llm", true).is_ok());
    assert_eq!(begin(&mut world, "shell", true), Err(Reason::Agent));
    assert_eq!(world.usage(), [("llm".to_owned(), 1, 0)]);
}

#[test]
fn owners_guests_and_strangers_may_what_their_role_says() {
    let world = World::new(
        json!({"mode": "list", "people": people(), "deny": [{"platform": "slack", "user": "eve"}]}),
        &[],
    );
    let access = &world.access;
    let (gus, eve) = (author("gus", "dm"), author("eve", "dm"));
    assert!(access.is_owner(&ann()) && access.acts_as_owner(&ann()));
    assert!(!access.is_owner(&gus) && !access.acts_as_owner(&gus));
    assert!(!access.is_owner(&Author::operator()), "nobody could ask");
    assert!(access.may_talk(&gus) && !access.may_talk(&eve));
    assert!(access.may_stop(&ann()) && !access.may_stop(&gus));
    assert!(access.maker(&gus).is_some() && access.maker(&Author::operator()).is_none());
    let session = SessionKey::from_text("s");
    let turns = [(TurnId(1), &session, &gus), (TurnId(2), &session, &eve)];
    assert_eq!(access.refused(turns.into_iter()), [(TurnId(2), session.clone())]);
    assert!(access.describe(&gus, Language::default()).contains("slack:gus"));
    assert!(access.status().has_owner);
    let made = |user: Option<&str>, chat_type: Option<&str>| {
        let made = MadeIn {
            platform: Platform::SLACK,
            chat_id: "C1".to_owned(),
            chat_type: chat_type.map(str::to_owned),
            parent_chat_id: None,
            user_id: user.map(str::to_owned),
            other_ids: vec![String::new()],
            roles: Vec::new(),
        };
        access.author(Starter::Job(Some(&made)))
    };
    assert!(made(None, None).is_operator(), "nobody made it in a chat");
    assert!(!made(None, Some("group")).is_operator());
    let job = made(Some("ann"), Some("dm"));
    assert!(job.direct && access.is_owner(&job));
    assert_eq!((job.ids.len(), job.chat()), (1, "C1"));
    assert!(!made(Some("ann"), Some("group")).direct);
    assert!(access.author(Starter::Program).is_operator());
}

#[test]
fn strangers_are_told_once_an_hour_and_only_in_direct_messages() {
    let mut world = World::new(
        json!({"mode": "list", "people": people(), "strangers": "notice"}),
        &[],
    );
    assert!(!world.access.keeps_message(&ann()));
    assert!(world.stranger("eve", "group", NOW).is_none());
    assert!(
        world
            .stranger("eve", "dm", NOW)
            .is_some_and(|reply| reply.code.is_none())
    );
    assert!(world.stranger("eve", "dm", NOW + HOUR_MS - 1).is_none());
    assert!(world.stranger("eve", "dm", NOW + HOUR_MS).is_some());
    let told = (0..60).filter(|who| world.stranger(&format!("u{who}"), "dm", NOW + HOUR_MS).is_some());
    assert_eq!(told.count(), 49, "all together");
    let mut silent = World::new(json!({"mode": "list", "people": people()}), &[]);
    assert!(silent.stranger("eve", "dm", NOW).is_none());
}

#[test]
fn a_stranger_gets_a_code_that_an_owner_may_ignore() {
    let mut world = World::new(json!({"mode": "pair"}), &[]);
    let eve = author("eve", "dm");
    assert!(world.access.keeps_message(&eve) && !world.access.keeps_message(&author("eve", "group")));
    assert!(world.access.status().warning.is_some(), "nobody is an owner");
    let reply = world.stranger("eve", "dm", NOW).unwrap();
    let code = reply.code.unwrap();
    assert!(
        reply.text.contains(&code) && reply.text.contains("--role owner"),
        "{}",
        reply.text
    );
    assert_eq!(world.effects.take_commands().0.len(), 1, "its row");
    world.access.ignore("AAAAAAAA", NOW, &mut world.effects);
    assert_eq!(world.effects.take_commands().0.len(), 0);
    world.access.ignore(&code, NOW, &mut world.effects);
    assert_eq!(world.effects.take_commands().0.len(), 1);
    let approve = AccessRequest::Approve { code, role: None };
    assert!(world.access.handle(approve, NOW, &mut world.effects).is_err());
    let allow = AccessRequest::Allow {
        person: "slack:eve".to_owned(),
        role: Some(Role::Owner),
        agents: None,
        chats: None,
    };
    let handled = world.access.handle(allow, NOW, &mut world.effects).unwrap();
    assert!(handled.stored && world.access.is_owner(&eve));
    assert!(!world.effects.take_commands().0.is_empty());
    let list = world
        .access
        .handle(AccessRequest::List, NOW, &mut world.effects)
        .unwrap();
    assert!(!list.stored);
    let reply = world.stranger("joe", "dm", NOW).unwrap();
    assert!(!reply.text.contains("--role owner"), "{}", reply.text);
}

#[test]
fn a_request_that_only_reads_waits_for_no_commit_when_codes_are_over() {
    let mut world = World::new(json!({"mode": "pair"}), &[]);
    for (who, request) in [("eve", AccessRequest::Pending), ("joe", AccessRequest::List)] {
        world.stranger(who, "dm", NOW).unwrap();
        world.effects.take_commands();
        let later = NOW + CODE_LIFETIME_MS + 1;
        let handled = world.access.handle(request, later, &mut world.effects).unwrap();
        assert!(!handled.stored);
        assert_eq!(world.effects.take_commands().0.len(), 1, "the code's row");
    }
}

#[test]
fn decisions_are_written_to_the_audit_log_where_there_are_rules() {
    let mut world = World::new(json!({"mode": "list", "people": people()}), &[]);
    world.admit(&author("eve", "dm"), EventKind::Message);
    world.admit(&ann(), EventKind::Press);
    world.admit(&ann(), EventKind::Message);
    world.admit(&Author::operator(), EventKind::Command);
    world
        .access
        .record_question(&ann(), "decided", "Run it?", "once", NOW);
    let operator = Author::operator();
    world
        .access
        .record_question(&operator, "asked", "Run it?", "owner", NOW);
    let World {
        access, _dir: dir, ..
    } = world;
    drop(access);
    let mut events = Vec::new();
    let each = |line: &str| {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        let field = |name: &str| entry[name].as_str().unwrap().to_owned();
        events.push([field("event"), field("person"), field("decision")].join(" "));
    };
    crate::store::AuditFile::read(dir.path(), each).unwrap();
    let wanted = [
        "settings  started",
        "message slack:eve refused",
        "press slack:ann allowed",
        "question slack:ann decided",
        "question operator asked",
    ];
    assert_eq!(events, wanted, "a message is written with its turn");
    let mut silent = World::new(serde_json::Value::Null, &[]);
    silent.admit(&ann(), EventKind::Press);
    silent
        .access
        .record_question(&ann(), "decided", "Run it?", "once", NOW);
    let World {
        access, _dir: dir, ..
    } = silent;
    drop(access);
    crate::store::AuditFile::read(dir.path(), |line| panic!("{line}")).unwrap();
}

#[test]
fn usage_takes_the_plural_of_its_numbers_and_the_language_of_its_reader() {
    let used = |limits: serde_json::Value, (turns, tokens): (u64, u64), language| {
        let access = json!({"mode": "list", "people": people(), "limits": limits});
        let mut world = World::new(access, &[]);
        world.access.limits.restore(
            &PersonId::parse("slack:ann").unwrap(),
            NOW.div_euclid(DAY_MS),
            turns,
            tokens,
        );
        world.access.describe_usage(&ann(), language, NOW)
    };
    for (limits, numbers, language, text) in [
        (
            json!({}),
            (1, 1),
            Language::En,
            "Today you have used 1 turn and 1 token.",
        ),
        (
            json!({}),
            (0, 2),
            Language::En,
            "Today you have used 0 turns and 2 tokens.",
        ),
        (
            json!({"turns_per_day": 20}),
            (1, 2),
            Language::En,
            "Today you have used 1 of 20 turns and 2 tokens.",
        ),
        (
            json!({"tokens_per_day": 500}),
            (1, 21),
            Language::De,
            "Heute hast du 1 Antwort und 21 von 500 Token verbraucht.",
        ),
    ] {
        assert_eq!(used(limits, numbers, language), text);
    }
}

#[test]
fn somebody_without_an_id_reads_that_in_their_language() {
    let world = World::new(serde_json::Value::Null, &[]);
    let source = SessionSource::from_value(&json!({"platform": "slack", "chat_id": "C1"})).unwrap();
    let nobody = Author::from_source(&source, &NoAliases);
    let said = world.access.describe(&nobody, Language::De);
    assert!(said.starts_with("Du bist unbekannt."), "{said}");
}

#[test]
fn what_somebody_wrote_before_their_approval_is_kept_on_until_it_is_taken() {
    let mut world = World::new(json!({"mode": "pair"}), &[]);
    let code = world.stranger("eve", "dm", NOW).unwrap().code.unwrap();
    let approve = AccessRequest::Approve { code, role: None };
    let handled = world.access.handle(approve, NOW, &mut world.effects).unwrap();
    let (person, pending) = handled.paired.unwrap();
    assert!(world.access.approved().is_empty());
    world.effects.take_commands();
    world.access.keep_on(&person, pending.clone(), &mut world.effects);
    let (commands, _) = world.effects.take_commands();
    let [Command::SetAccess(row)] = &commands[..] else {
        panic!("{commands:?}")
    };
    let stored: PendingPairing = serde_json::from_str(row.value.as_ref().unwrap()).unwrap();
    assert!(stored.is_approved && stored.code == pending.code);
    assert_eq!(world.access.approved(), [(person.clone(), stored)]);
    assert_eq!(
        world.access.person_with(&pending.code, NOW),
        None,
        "it works once"
    );
    world.access.welcomed(&person, &mut world.effects);
    assert!(world.access.approved().is_empty());
}
