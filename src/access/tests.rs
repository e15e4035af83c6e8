//! The gate by its table, changes by verbs, pairing, limits, and random walks.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::wire::{NoAliases, SessionSource, WhatsAppAliases};

const NOW: i64 = 1_790_000_000_000;
const HOUR: i64 = 3_600_000;

fn settings(value: Value) -> AccessSettings {
    let mut read: AccessSettings = serde_json::from_value(value).unwrap();
    read.is_set = true;
    read
}

fn gate(value: Value) -> Gate {
    Gate::new(settings(value), [])
}

fn source(value: &Value) -> SessionSource {
    SessionSource::from_value(value).unwrap()
}

fn author(user: &str, chat: &str) -> Author {
    let chat_type = if chat == "dm" { "dm" } else { "group" };
    let parent = match chat {
        "T1" => json!("C1"),
        "T9" => json!("C9"),
        _ => Value::Null,
    };
    let source = source(&json!({
        "platform": "slack", "user_id": user, "chat_id": chat, "chat_type": chat_type, "parent_chat_id": parent,
    }));
    Author::from_source(&source, &NoAliases)
}

fn dm(user: &str) -> Author {
    author(user, "dm")
}

fn person(user: &str) -> PersonId {
    PersonId::parse(&format!("slack:{user}")).unwrap()
}

fn allow(person: &str, role: Option<Role>) -> AccessRequest {
    AccessRequest::Allow {
        person: person.to_owned(),
        role,
        agents: None,
        chats: None,
    }
}

fn deny(person: &str) -> AccessRequest {
    AccessRequest::Deny {
        person: person.to_owned(),
    }
}

fn may_talk(gate: &Gate, user: &str) -> bool {
    gate.decide(&dm(user), EventKind::Message, None).allowed
}

#[test]
fn the_gate_follows_its_table() {
    let kinds = [
        EventKind::Message,
        EventKind::Interaction,
        EventKind::Press,
        EventKind::TypedAnswer,
        EventKind::Command,
        EventKind::Inquiry,
    ];
    let mut seen = BTreeSet::new();
    for line in include_str!("../../tests/vectors/access.txt").lines() {
        let cells: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with('#') || cells.is_empty() {
            continue;
        }
        let [mode, who, chat, agent] = [cells[0], cells[1], cells[2], cells[3]];
        let gate = gate(json!({
            "mode": mode,
            "people": [
                {"platform": "slack", "user": "owner", "role": "owner"},
                {"platform": "slack", "user": "member"},
                {"platform": "slack", "user": "user", "role": "user", "chats": ["C1"], "agents": ["llm"]},
                {"platform": "slack", "user": "guest", "role": "guest", "agents": ["llm"]},
                {"platform": "slack", "user": "denied", "role": "owner"},
            ],
            "chats": [{"platform": "slack", "chat": "C9", "role": "guest", "agents": ["llm"]}],
            "deny": [{"platform": "slack", "user": "denied"}],
        }));
        assert_eq!(cells.len(), 4 + kinds.len(), "{line}");
        for (kind, want) in kinds.into_iter().zip(&cells[4..]) {
            let verdict = gate.decide(&author(who, chat), kind, Some(agent));
            let sign = if verdict.allowed { "+" } else { "" };
            assert_eq!(
                format!("{sign}{}", verdict.reason.as_str()),
                *want,
                "{kind:?}: {line}"
            );
        }
        seen.insert((mode, who, chat, agent));
    }
    assert_eq!(seen.len(), 4 * 6 * 5 * 2, "every row is written out");
}

#[test]
fn people_are_matched_by_all_their_ids_on_their_own_platform() {
    struct Known;
    impl WhatsAppAliases for Known {
        fn aliases_of(&self, id: &str) -> Vec<String> {
            if id == "9000" {
                vec!["4912345".to_owned()]
            } else {
                Vec::new()
            }
        }
    }
    let gate = gate(json!({
        "mode": "list",
        "people": [
            {"platform": "whatsapp", "user": "+4912345"},
            {"platform": "Discord", "user": 77},
            {"platform": "slack", "user": "ALT"},
        ],
    }));
    let decide = |value: Value| {
        let author = Author::from_source(&source(&value), &Known);
        gate.decide(&author, EventKind::Message, None).allowed
    };
    assert!(
        decide(json!({"platform": "whatsapp", "user_id": "9000@lid"})),
        "by an alias file"
    );
    assert!(decide(
        json!({"platform": "whatsapp", "user_id": "4912345:2@s.whatsapp.net"})
    ));
    assert!(!decide(json!({"platform": "whatsapp", "user_id": "9001@lid"})));
    assert!(decide(json!({"platform": "discord", "user_id": 77})));
    assert!(
        !decide(json!({"platform": "telegram", "user_id": 77})),
        "another platform"
    );
    assert!(decide(
        json!({"platform": "slack", "user_id": "U", "user_id_alt": "ALT"})
    ));
    assert!(
        !decide(json!({"platform": "slack", "user_name": "ALT"})),
        "never by name"
    );
    assert!(!decide(json!({"platform": "slack"})), "nobody is a stranger");
}

#[test]
fn a_denial_holds_against_the_settings_and_is_lifted_to_what_they_say() {
    let file = json!({
        "mode": "list",
        "people": [{"platform": "slack", "user": "user", "role": "guest", "agents": ["llm"]}],
        "deny": [{"platform": "slack", "user": "never"}],
    });
    let mut gate = gate(file.clone());
    assert!(may_talk(&gate, "user"));
    let denied = gate.handle(deny("slack:user"), NOW).unwrap();
    assert!(!may_talk(&gate, "user"));
    let restarted = Gate::new(settings(file), denied.rows.clone());
    assert!(!may_talk(&restarted, "user"), "also after a restart");
    gate.handle(allow("slack:user", None), NOW).unwrap();
    assert_eq!(gate.role(&dm("user")), Some(Role::Guest), "as the settings say");
    assert_eq!(gate.agents(&dm("user")), Some(&["llm".to_owned()][..]));
    gate.handle(allow("slack:user", Some(Role::Owner)), NOW).unwrap();
    assert_eq!(gate.role(&dm("user")), Some(Role::Owner));
    gate.handle(allow("slack:other", None), NOW).unwrap();
    assert_eq!(gate.role(&dm("other")), Some(Role::User));
    let refused = gate.handle(allow("slack:never", None), NOW).unwrap_err();
    assert_eq!(refused, AccessError::DeniedByFile(person("never")));
    for wrong in ["slack", "slack:", "slack:*", "discrod:1", ":1"] {
        assert!(gate.handle(allow(wrong, None), NOW).is_err(), "{wrong}");
    }
}

#[test]
fn a_row_that_cannot_be_read_denies_its_person() {
    let row = StoredRow {
        kind: "rule".to_owned(),
        person: person("u"),
        value: Some("{".to_owned()),
    };
    assert!(!may_talk(
        &Gate::new(settings(json!({"mode": "open"})), [row]),
        "u"
    ));
}

#[test]
fn every_entry_of_the_list_has_its_origin() {
    let mut gate = gate(json!({
        "mode": "pair",
        "people": [{"platform": "slack", "user": "a", "role": "owner"}],
        "chats": [{"platform": "slack", "chat": "C9", "role": "guest"}],
        "deny": [{"platform": "slack", "user": "b"}],
    }));
    gate.handle(allow("slack:c", None), NOW).unwrap();
    gate.handle(deny("slack:d"), NOW).unwrap();
    let list = gate.handle(AccessRequest::List, NOW).unwrap().answer;
    let entries = list["entries"].as_array().unwrap();
    let seen: Vec<(&str, bool)> = entries
        .iter()
        .map(|entry| {
            (
                entry["origin"].as_str().unwrap(),
                entry["denied"].as_bool().unwrap(),
            )
        })
        .collect();
    let want = [
        ("file", false),
        ("file", false),
        ("file", true),
        ("command", false),
        ("command", true),
    ];
    assert_eq!(seen, want);
    assert_eq!(
        (list["mode"].as_str(), list["strangers"].as_str()),
        (Some("pair"), Some("pair"))
    );
}

fn code_of(step: PairingStep) -> Option<String> {
    match step {
        PairingStep::Code(code, _) => Some(code),
        PairingStep::Nothing => None,
    }
}

#[test]
fn a_code_works_once_within_its_hour() {
    let mut gate = gate(json!({"mode": "pair"}));
    let ask = |gate: &mut Gate, user: &str, random, now| {
        code_of(
            gate.pairings()
                .request(&person(user), "D1", Value::Null, random, now),
        )
    };
    let approve = |code: &str, role| AccessRequest::Approve {
        code: code.to_owned(),
        role,
    };
    let code = ask(&mut gate, "a", 0x1234_5678_9abc_def0, NOW).unwrap();
    assert_eq!(code.len(), 8);
    assert!(
        code.chars()
            .all(|c| "ABCDEFGHJKLMNPQRSTUVWXYZ23456789".contains(c)),
        "{code}"
    );
    assert_eq!(ask(&mut gate, "a", 1, NOW + HOUR - 1), None, "one an hour");
    assert!(!may_talk(&gate, "a"));
    assert_eq!(
        gate.handle(approve("AAAAAAA2", None), NOW).unwrap_err(),
        AccessError::NoSuchCode
    );
    let late = gate.handle(approve(&code, None), NOW + HOUR).unwrap_err();
    assert_eq!(late, AccessError::NoSuchCode);
    gate.handle(approve(&code.to_lowercase(), Some(Role::Guest)), NOW + 5)
        .unwrap();
    assert_eq!(gate.role(&dm("a")), Some(Role::Guest));
    let again = gate.handle(approve(&code, None), NOW + 6).unwrap_err();
    assert_eq!(again, AccessError::NoSuchCode, "used");
    for (user, random) in [("b", 1), ("c", 2), ("d", 3)] {
        assert!(ask(&mut gate, user, random, NOW).is_some());
    }
    assert_eq!(ask(&mut gate, "e", 4, NOW), None, "three wait");
    assert!(ask(&mut gate, "e", 4, NOW + HOUR).is_some(), "they are over");
}

#[test]
fn codes_and_their_hour_survive_a_restart() {
    let mut before = gate(json!({"mode": "pair"}));
    let step = before.pairings().request(&person("a"), "D1", Value::Null, 7, NOW);
    let PairingStep::Code(code, rows) = step else {
        panic!("no code")
    };
    let mut after = Gate::new(settings(json!({"mode": "pair"})), rows);
    let again = after
        .pairings()
        .request(&person("a"), "D1", Value::Null, 8, NOW + 1);
    assert_eq!(again, PairingStep::Nothing);
    after
        .handle(AccessRequest::Approve { code, role: None }, NOW + 2)
        .unwrap();
    assert!(may_talk(&after, "a"));
}

#[test]
fn wrong_settings_are_refused_by_key() {
    let unknown = |name: &str| (name != "llm").then(|| name.to_owned());
    let key = |value: Value| settings(value).violation(&unknown).map(|(key, _)| key);
    let someone = json!({"platform": "slack", "user": "u"});
    assert_eq!(key(json!({})), None);
    assert_eq!(key(json!({"mode": "pair"})), None, "may list nobody");
    assert_eq!(key(json!({"mode": "list", "people": [someone]})), None);
    assert_eq!(
        key(json!({"mode": "list", "chats": [{"platform": "slack", "chat": "C"}]})),
        None
    );
    for (value, want) in [
        (json!({"mode": "list"}), "access.mode"),
        (json!({"mode": "list", "people": []}), "access.mode"),
        (
            json!({"people": [{"platform": "slack", "user": "*"}]}),
            "access.people",
        ),
        (
            json!({"people": [{"platform": "slak", "user": "u"}]}),
            "access.people",
        ),
        (
            json!({"people": [{"platform": "slack", "user": " "}]}),
            "access.people",
        ),
        (
            json!({"people": [{"platform": "slack", "user": "u", "agents": []}]}),
            "access.people",
        ),
        (
            json!({"people": [{"platform": "slack", "user": "u", "agents": ["lm"]}]}),
            "access.people",
        ),
        (
            json!({"people": [{"platform": "slack", "user": "u", "chats": ["*"]}]}),
            "access.people",
        ),
        (
            json!({"chats": [{"platform": "slack", "chat": "*"}]}),
            "access.chats",
        ),
        (json!({"deny": [{"platform": "*", "user": "u"}]}), "access.deny"),
        (json!({"mode": "pair", "strangers": "silent"}), "access.strangers"),
        (
            json!({"limits": {"turns_per_day": 0}}),
            "access.limits.turns_per_day",
        ),
        (
            json!({"limits": {"tokens_per_day": {"guest": 0}}}),
            "access.limits.tokens_per_day",
        ),
    ] {
        assert_eq!(key(value.clone()), Some(want), "{value}");
    }
}

#[test]
fn only_a_section_of_our_own_has_limits() {
    let mut hermes = AccessSettings {
        mode: Mode::List,
        from_hermes: true,
        ..AccessSettings::default()
    };
    assert_eq!((hermes.is_active(), hermes.has_section()), (true, false));
    hermes.from_hermes = false;
    assert_eq!(
        (hermes.is_active(), hermes.has_section()),
        (true, true),
        "set by an embedder"
    );
    let nothing = AccessSettings::default();
    assert_eq!((nothing.is_active(), nothing.has_section()), (false, false));
    assert!(settings(json!({})).has_section(), "an empty section is one");
}

fn limits(value: Value) -> Limits {
    Limits::new(serde_json::from_value(value).unwrap(), 2)
}

#[test]
fn a_limit_is_told_once_per_window() {
    let mut limits = limits(json!({"per_user_per_minute": {"user": 2}, "turns_per_day": 3}));
    let (ann, message) = (person("ann"), EventKind::Message);
    let mut check = |role, kind, now| {
        limits
            .check(&ann, role, kind, now)
            .map(|exceeded| exceeded.notice.is_some())
    };
    assert_eq!(check(Role::User, message, NOW), None);
    assert_eq!(check(Role::User, message, NOW + 1), None);
    assert_eq!(check(Role::User, message, NOW + 2), Some(true));
    assert_eq!(check(Role::User, message, NOW + 3), Some(false), "once");
    assert_eq!(
        check(Role::User, EventKind::Command, NOW + 3),
        None,
        "/stop works"
    );
    assert_eq!(check(Role::Owner, message, NOW + 4), None, "no limit for owners");
    assert_eq!(check(Role::User, message, NOW + 60_000), None, "the next minute");
    for _ in 0..3 {
        limits.turn_started(&ann, NOW);
    }
    let mut check = |now| {
        limits
            .check(&ann, Role::Owner, message, now)
            .map(|exceeded| exceeded.notice.is_some())
    };
    assert_eq!(
        (check(NOW + 120_000), check(NOW + 180_000)),
        (Some(true), Some(false))
    );
    assert_eq!(check(NOW + 86_400_000), None, "the next day");
}

#[test]
fn programs_that_answer_each_other_are_paused_until_a_new_conversation() {
    let mut limits = limits(json!({}));
    let bot = person("bot");
    let round = |limits: &mut Limits, now: i64| {
        let exceeded = limits.check(&bot, Role::User, EventKind::Message, now);
        limits.turn_ended(&bot, 0, true, now + 500);
        exceeded.map(|exceeded| (exceeded.reason, exceeded.notice.is_some()))
    };
    for at in 0..6 {
        assert_eq!(round(&mut limits, NOW + at * 2_000), None, "{at}");
    }
    assert_eq!(round(&mut limits, NOW + 12_000), Some((Reason::Loop, true)));
    assert_eq!(round(&mut limits, NOW + 900_000), Some((Reason::Loop, false)));
    limits.resume(&bot);
    assert_eq!(round(&mut limits, NOW + 901_000), None);
    // A person who writes many messages at a time, or takes time to read, is no program.
    let ann = person("ann");
    for at in 0..19 {
        assert_eq!(
            limits.check(&ann, Role::User, EventKind::Message, NOW + at),
            None,
            "{at}"
        );
    }
    for at in 0..19 {
        let now = NOW + 100_000 + at * 14_000;
        assert_eq!(
            limits.check(&ann, Role::User, EventKind::Message, now),
            None,
            "{at}"
        );
        limits.turn_ended(&ann, 0, true, now + 1_000);
    }
    // Somebody whose jobs end while they write is no program either.
    let bea = person("bea");
    for at in 0..16 {
        let now = NOW + at * 1_000;
        limits.turn_ended(&bea, 0, false, now);
        let exceeded = limits.check(&bea, Role::User, EventKind::Message, now + 100);
        assert_eq!(exceeded, None, "{at}");
    }
}

#[test]
fn bots_pause_until_a_person_writes() {
    let mut limits = limits(json!({}));
    let bot = Author {
        is_bot: true,
        ..author("bot", "C1")
    };
    let mut check = |author: &Author| limits.check_bot(author).map(|exceeded| exceeded.notice.is_some());
    assert_eq!((check(&bot), check(&bot)), (None, None));
    assert_eq!((check(&bot), check(&bot)), (Some(true), Some(false)), "told once");
    let elsewhere = Author {
        is_bot: true,
        ..author("bot", "C2")
    };
    assert_eq!(check(&elsewhere), None, "another chat");
    assert_eq!(
        (check(&author("ann", "C1")), check(&bot)),
        (None, None),
        "a person wrote"
    );
}

/// One step of a walk: what happens to one of four people.
#[derive(Debug, Clone, Copy)]
enum Step {
    Allow(Option<Role>),
    Deny,
    Ask,
    Approve,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let role = prop_oneof![Just(None), Just(Some(Role::Owner)), Just(Some(Role::Guest))];
    let step = prop_oneof![
        role.prop_map(Step::Allow),
        Just(Step::Deny),
        Just(Step::Ask),
        Just(Step::Approve),
        Just(Step::Restart),
    ];
    proptest::collection::vec((0usize..4, step), 0..60)
}

proptest! {
    /// Whatever happens: only who was let in last, and not kept out after that, may do anything.
    #[test]
    fn nobody_gets_in_who_was_not_let_in_last(steps in steps()) {
        let file = json!({"mode": "pair", "people": [{"platform": "slack", "user": "u0"}]});
        let mut gate = gate(file.clone());
        let mut rows: std::collections::BTreeMap<(String, PersonId), StoredRow> = std::collections::BTreeMap::new();
        let mut inside = [true, false, false, false];
        let mut codes: [Option<String>; 4] = Default::default();
        for (at, (who, step)) in steps.into_iter().enumerate() {
            let (name, now) = (format!("slack:u{who}"), NOW + i64::try_from(at).unwrap());
            let mut keep = |new: Vec<StoredRow>| {
                for row in new {
                    rows.insert((row.kind.clone(), row.person.clone()), row);
                }
            };
            match step {
                Step::Allow(role) => {
                    keep(gate.handle(allow(&name, role), now).unwrap().rows);
                    (inside[who], codes[who]) = (true, None);
                }
                Step::Deny => {
                    keep(gate.handle(deny(&name), now).unwrap().rows);
                    (inside[who], codes[who]) = (false, None);
                }
                Step::Ask if !inside[who] && gate.decide(&dm(&format!("u{who}")), EventKind::Message, None).reason == Reason::Stranger => {
                    let random = u64::try_from(at).unwrap() * 31 + 7;
                    let step = gate.pairings().request(&person(&format!("u{who}")), "D", Value::Null, random, now);
                    if let PairingStep::Code(code, new) = step {
                        keep(new);
                        codes[who] = Some(code);
                    }
                }
                Step::Ask => {}
                Step::Approve => {
                    let code = codes[who].take().unwrap_or_else(|| "AAAAAAAA".to_owned());
                    let known = code != "AAAAAAAA";
                    let handled = gate.handle(AccessRequest::Approve { code, role: None }, now);
                    prop_assert_eq!(handled.is_ok(), known);
                    if let Ok(handled) = handled {
                        keep(handled.rows);
                        inside[who] = true;
                    }
                }
                Step::Restart => {
                    let stored = rows.values().filter(|row| row.value.is_some()).cloned();
                    gate = Gate::new(settings(file.clone()), stored);
                }
            }
            for (who, inside) in inside.iter().enumerate() {
                let author = dm(&format!("u{who}"));
                for kind in [EventKind::Message, EventKind::Press, EventKind::Command, EventKind::Inquiry] {
                    let allowed = gate.decide(&author, kind, None).allowed;
                    prop_assert!(!allowed || *inside, "u{} {:?}", who, kind);
                }
                prop_assert_eq!(may_talk(&gate, &format!("u{who}")), *inside);
            }
        }
    }
}
