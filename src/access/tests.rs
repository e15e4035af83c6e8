//! The gate by its table, changes by verbs, pairing, limits, and random walks.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::wire::{NoAliases, Platform, SessionSource};

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
fn the_operator_reads_who_may_not_and_why() {
    let gate = gate(json!({
        "mode": "list",
        "people": [
            {"platform": "slack", "user": "user", "chats": ["C1"]},
            {"platform": "slack", "user": "guest", "role": "guest"},
        ],
        "deny": [{"platform": "slack", "user": "denied"}],
    }));
    let refusal = |author: &Author, kind| gate.refusal(author, kind).unwrap_or_default();
    let message = EventKind::Message;
    assert_eq!(refusal(&author("user", "C1"), message), "");
    assert_eq!(refusal(&Author::operator(), message), "");
    assert_eq!(refusal(&dm("denied"), message), "slack:denied is denied");
    assert_eq!(refusal(&dm("nobody"), message), "slack:nobody is not let in");
    assert_eq!(
        refusal(&author("user", "C2"), message),
        "slack:user is let in in other chats only"
    );
    assert_eq!(refusal(&dm("guest"), message), "");
    assert_eq!(
        refusal(&dm("guest"), EventKind::Command),
        "slack:guest has a role that does not allow this"
    );
    let nobody = source(&json!({"platform": "slack", "chat_id": "C2"}));
    let nobody = Author::from_source(&nobody, &NoAliases);
    assert_eq!(refusal(&nobody, message), "its author is not let in");
}

#[test]
fn an_id_is_its_author_s_in_every_spelling_and_by_every_alias() {
    let author = |id: &str, aliases| Author::new(&Platform::WHATSAPP, [id.into()], [], false, aliases);
    for id in Ann::SPELLINGS {
        let known = author(id, &Ann);
        assert!(Ann::SPELLINGS.iter().all(|other| known.has_id(other)), "{id}");
        assert!(!known.has_id("491701112") && !known.has_id(""), "{id}");
    }
    assert!(
        !author("9000@lid", &NoAliases).has_id("9000"),
        "a number of somebody else"
    );
}

#[test]
fn people_are_matched_by_all_their_ids_on_their_own_platform() {
    let gate = gate(json!({
        "mode": "list",
        "people": [
            {"platform": "whatsapp", "user": "+491701111"},
            {"platform": "Discord", "user": 77},
            {"platform": "slack", "user": "ALT"},
        ],
    }));
    let decide = |value: Value| {
        let author = Author::from_source(&source(&value), &Ann);
        gate.decide(&author, EventKind::Message, None).allowed
    };
    assert!(
        decide(json!({"platform": "whatsapp", "user_id": "9000@lid"})),
        "by an alias file"
    );
    assert!(decide(
        json!({"platform": "whatsapp", "user_id": "491701111:2@s.whatsapp.net"})
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
    let row = stored("slack", "u", "{");
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

/// A rule as the journal has it.
fn stored(platform: &str, user: &str, value: &str) -> StoredRow {
    StoredRow {
        kind: "rule".to_owned(),
        platform: platform.to_owned(),
        user: user.to_owned(),
        value: Some(value.to_owned()),
    }
}

/// Spellings of one person: platform and id as a rule may write them, and as an author has them.
const SAME: &[(&str, &str, &str, &str)] = &[
    ("whatsapp", "+4915112345", "whatsapp", "4915112345@s.whatsapp.net"),
    (
        "whatsapp",
        "4915112345",
        "whatsapp",
        "4915112345:12@s.whatsapp.net",
    ),
    ("WhatsApp", "4915112345@s.whatsapp.net", "whatsapp", "4915112345"),
    ("whatsapp", "+49 151-12345", "whatsapp", "4915112345@c.us"),
    (
        "whatsapp",
        "4915112345:3@S.WhatsApp.net",
        "whatsapp",
        "4915112345_1:7@s.whatsapp.net",
    ),
    ("whatsapp", "9000@lid", "whatsapp", "9000:4@lid"),
    ("whatsapp_cloud", "+4915112345", "WHATSAPP_CLOUD", "4915112345"),
    ("signal", "+4915112345", "signal", "4915112345"),
    ("signal", "4915112345", "Signal", "+4915112345"),
    ("signal", "0E1B-AA", "signal", "0e1b-aa"),
    ("sms", "+1 (555) 010-0000", "sms", "+15550100000"),
    ("bluebubbles", "Ann@Example.org", "bluebubbles", "ann@example.org"),
    ("email", "Ann@Example.ORG", "email", "ann@example.org"),
    ("Discord", " 77 ", "discord", "77"),
    ("telegram", "+77", "telegram", "77"),
    ("Acme-Chat", "Bob", "acme-chat", "Bob"),
    ("ACME-CHAT", "Bob", "Acme-Chat", "Bob"),
    ("acme-chat", "Bob@Example.org", "Acme-Chat", "bob@example.ORG"),
    ("acme-chat", "+49151", "Acme-Chat", "49151"),
];

/// Ids that look alike and are different people.
const OTHERS: &[(&str, &str, &str, &str)] = &[
    ("whatsapp", "9000", "whatsapp", "9000@lid"),
    ("whatsapp", "9000@lid", "whatsapp", "9000@s.whatsapp.net"),
    ("whatsapp", "ann_1", "whatsapp", "ann_2"),
    ("whatsapp", "ann@s.whatsapp.net", "whatsapp", "bob@s.whatsapp.net"),
    ("whatsapp", "@ann", "whatsapp", "@bob"),
    ("whatsapp", "4915112345", "whatsapp_cloud", "4915112345"),
    ("whatsapp", "4915112345", "signal", "4915112345"),
    ("discord", "77", "telegram", "77"),
    ("slack", "U1", "slack", "u1"),
    ("slack", "Ann@example.org", "slack", "ann@example.org"),
    ("matrix", "@Bob:example.org", "matrix", "@bob:example.org"),
    ("acme-chat", "Bob", "Acme-Chat", "bob"),
    ("telegram", "+", "telegram", ""),
    ("acme-chat", "Bob@host", "acme-chat", "bob@host"),
    ("acme-chat", "@Host.example", "acme-chat", "@host.example"),
    ("acme-chat", "Bob@a@b.example", "acme-chat", "bob@a@b.example"),
    ("acme-chat", "Bob.example", "acme-chat", "bob.example"),
];

/// An author whose platform the connector has declared, or not.
fn author_of(platform: &str, user: &str, is_declared: bool) -> Author {
    let mut source = source(&json!({
        "platform": platform, "user_id": user, "chat_id": "c", "chat_type": "dm",
    }));
    if is_declared {
        let mut own = crate::wire::OwnPlatforms::default();
        own.add(platform);
        source.platform.adopt(&own);
    }
    Author::from_source(&source, &NoAliases)
}

fn talks(gate: &Gate, author: &Author) -> bool {
    gate.decide(author, EventKind::Message, None).allowed
}

#[test]
fn nobody_is_let_in_by_a_name_where_people_have_numbers() {
    let mut gate = gate(json!({"mode": "pair"}));
    for name in ["telegram:@ann", "Telegram: @ann", "discord:ann#1234"] {
        let error = gate.handle(allow(name, Some(Role::Owner)), 1).unwrap_err();
        assert!(error.to_string().contains("write the number"), "{error}");
        // A denial from before can be taken back.
        gate.handle(deny(name), 1).unwrap();
        let person = name.to_owned();
        gate.handle(AccessRequest::Forget { person }, 1).unwrap();
    }
    for id in [
        "telegram:1",
        "telegram:-1001",
        "discord:u-boss",
        "acme-chat:@ann",
        "matrix:@ann:h.example",
    ] {
        gate.handle(allow(id, None), 1).unwrap();
    }
    let is_unusual = |id| PersonId::parse(id).unwrap().is_unusual();
    assert!(is_unusual("telegram:ann") && is_unusual("discord:u1"));
    assert!(!is_unusual("telegram:-1001") && !is_unusual("slack:U1"));
}

#[test]
fn one_person_in_any_spelling_is_denied_allowed_and_lifted() {
    for (platform, user, other, id) in SAME {
        let name = format!("{platform}:{user}");
        for author in [author_of(other, id, true), author_of(other, id, false)] {
            assert_eq!(PersonId::new(platform, user), PersonId::new(other, id), "{name}");
            let mut open = gate(json!({"mode": "open"}));
            assert!(talks(&open, &author));
            let handled = open.handle(deny(&name), NOW).unwrap();
            assert!(
                !talks(&open, &author),
                "denied by command: {name} is {other}:{id}"
            );
            assert_eq!(handled.answer["denied"], PersonId::new(other, id).to_string());
            open.handle(allow(&format!("{other}:{id}"), None), NOW).unwrap();
            assert!(talks(&open, &author), "lifted: {name} is {other}:{id}");
            let denying = gate(json!({"mode": "open", "deny": [{"platform": platform, "user": user}]}));
            assert!(
                !talks(&denying, &author),
                "denied by the file: {name} is {other}:{id}"
            );
            // Whoever the file lists is revoked by any spelling.
            let mut listed = gate(json!({"mode": "list", "people": [{"platform": platform, "user": user}]}));
            assert!(talks(&listed, &author), "listed: {name} is {other}:{id}");
            let revoked = listed.handle(deny(&format!("{other}:{id}")), NOW).unwrap();
            assert!(!talks(&listed, &author), "revoked: {name} is {other}:{id}");
            assert_eq!(revoked.answer.get("known"), None, "{name}");
            // An owner is one in any spelling.
            let role = Some(Role::Owner);
            listed.handle(allow(&name, role), NOW).unwrap();
            assert_eq!(listed.role(&author), role, "{name}");
        }
    }
    for (platform, user, other, id) in OTHERS {
        let author = author_of(other, id, true);
        let listed = gate(json!({"mode": "list", "people": [{"platform": platform, "user": user}]}));
        assert!(!talks(&listed, &author), "{platform}:{user} is not {other}:{id}");
    }
    // A number may have been meant for the opaque id: a denial is read in the wider sense.
    let denying = gate(json!({"mode": "open", "deny": [{"platform": "whatsapp", "user": "9000"}]}));
    assert!(!talks(&denying, &author_of("whatsapp", "9000@lid", true)));
    // Rules of Hermes' variables hold on every platform.
    let mut hermes = settings(json!({"mode": "list"}));
    hermes.people = vec![PersonRule {
        platform: ANY.to_owned(),
        user: "+4915112345".to_owned(),
        role: Role::User,
        ..PersonRule::default()
    }];
    let hermes = Gate::new(hermes, []);
    assert!(talks(
        &hermes,
        &author_of("whatsapp", "4915112345@s.whatsapp.net", true)
    ));
    assert!(talks(&hermes, &author_of("signal", "+4915112345", true)));
}

#[test]
fn chats_are_named_in_any_spelling_too() {
    let mut gate = gate(json!({
        "mode": "list",
        "people": [{"platform": "whatsapp", "user": "+49151", "chats": ["+49151"]}],
        "chats": [{"platform": "Acme-Chat", "chat": "Room"}],
    }));
    let at = |platform: &str, chat: &str| {
        let mut source = source(&json!({"platform": platform, "user_id": "49151", "chat_id": chat}));
        let mut own = crate::wire::OwnPlatforms::default();
        own.add(platform);
        source.platform.adopt(&own);
        Author::from_source(&source, &NoAliases)
    };
    assert!(talks(&gate, &at("whatsapp", "49151@s.whatsapp.net")));
    assert!(!talks(&gate, &at("whatsapp", "49152@s.whatsapp.net")));
    assert!(talks(&gate, &at("ACME-chat", "Room")));
    assert!(!talks(&gate, &at("ACME-chat", "Other")));
    let request = AccessRequest::Allow {
        person: "whatsapp:49151".to_owned(),
        role: None,
        agents: None,
        chats: Some(vec!["49153@s.whatsapp.net".to_owned()]),
    };
    let handled = gate.handle(request, NOW).unwrap();
    assert!(talks(&gate, &at("whatsapp", "+49153")));
    let again = Gate::new(
        settings(json!({"mode": "list", "people": [{"platform": "slack", "user": "u"}]})),
        handled.rows,
    );
    assert!(talks(&again, &at("whatsapp", "+49153")));
}

#[test]
fn rules_that_an_earlier_version_stored_hold_and_are_brought_into_form() {
    let denied = json!({"role": null, "origin": "command", "at_ms": NOW}).to_string();
    let allowed = json!({"role": "user", "origin": "pairing", "at_ms": NOW - 1}).to_string();
    let open = || settings(json!({"mode": "open", "people": [{"platform": "whatsapp", "user": "49151"}]}));
    let author = author_of("whatsapp", "49151@s.whatsapp.net", true);
    let rows = vec![
        stored("whatsapp", "+49151", &denied),
        stored("whatsapp", "49151@s.whatsapp.net", &allowed),
        stored("Acme-Chat", "Bob", &denied),
    ];
    for rows in [rows.clone(), rows.iter().rev().cloned().collect()] {
        let mut gate = Gate::new(open(), rows.clone());
        assert!(!talks(&gate, &author), "the newer of two holds");
        assert!(!talks(&gate, &author_of("acme-chat", "Bob", true)));
        // Lifting the denial takes every spelling out of the journal.
        let handled = gate.handle(allow("whatsapp:+49151", None), NOW).unwrap();
        let mut journal = std::collections::BTreeMap::new();
        for row in rows.into_iter().chain(handled.rows) {
            let key = (row.kind.clone(), row.platform.clone(), row.user.clone());
            match row.value {
                Some(_) => drop(journal.insert(key, row)),
                None => drop(journal.remove(&key)),
            }
        }
        let keys: Vec<&str> = journal.keys().map(|(_, _, user)| user.as_str()).collect();
        assert_eq!(keys, ["Bob"], "{journal:?}");
        assert!(journal.keys().all(|(_, platform, _)| platform == "acme-chat"));
        let after = Gate::new(open(), journal.into_values());
        assert!(talks(&after, &author));
        assert!(!talks(&after, &author_of("Acme-Chat", "Bob", true)));
    }
}

#[test]
fn a_denial_says_when_nobody_known_is_meant() {
    let mut gate = gate(json!({
        "mode": "pair",
        "people": [{"platform": "slack", "user": "listed", "role": "owner"}],
    }));
    let known = |gate: &mut Gate, person: &str| {
        gate.handle(deny(person), NOW)
            .unwrap()
            .answer
            .get("known")
            .is_none()
    };
    assert!(known(&mut gate, "slack:listed"));
    assert!(!known(&mut gate, "slack:nobody"));
    assert!(known(&mut gate, "slack:nobody"), "a rule is about them now");
    gate.saw(&person("wrote"));
    assert!(known(&mut gate, "slack:wrote"));
    let request = PairingRequest::default();
    gate.pairings().request(&person("asked"), request, 3, NOW);
    assert!(known(&mut gate, "slack:asked"));
}

#[test]
fn a_kept_message_is_what_it_says_last_and_one_of_an_earlier_version_stays() {
    let kept = |line: &str, id: Option<&str>| KeptMessage {
        line: line.to_owned(),
        is_forward: false,
        message_id: id.map(str::to_owned),
    };
    for (id, known) in [(Some("m1"), true), (None, false)] {
        let mut gate = gate(json!({"mode": "pair"}));
        let request = PairingRequest {
            chat: "D1".to_owned(),
            message: Some(kept("first", id)),
            ..PairingRequest::default()
        };
        gate.pairings().request(&person("ann"), request, 3, NOW);
        let pairings = gate.pairings();
        let new = kept("second", Some("m1"));
        for (chat, other) in [
            (("slack", "D2"), "m1"),
            (("discord", "D1"), "m1"),
            (("slack", "D1"), "m2"),
        ] {
            assert_eq!(pairings.change_kept(chat, other, Some(new.clone())), None);
        }
        let here = ("slack", "D1");
        let row = pairings.change_kept(here, "m1", Some(new.clone()));
        let is_stored = |row: &StoredRow| row.value.as_ref().is_some_and(|value| value.contains("second"));
        assert_eq!(row.as_ref().is_some_and(is_stored), known);
        assert_eq!(pairings.change_kept(here, "m1", None).is_some(), known);
        assert_eq!(pairings.change_kept(here, "m1", Some(new)), None, "it is gone");
        let (_, pending) = pairings.pending(NOW).next().unwrap();
        assert_eq!(pending.message.is_none(), known);
    }
}

#[test]
fn nobody_is_told_to_be_let_in_whom_a_denial_keeps_out() {
    let mut gate = gate(json!({"mode": "pair", "deny": [{"platform": "slack", "user": "never"}]}));
    let step = (gate.pairings()).request(&person("never"), PairingRequest::default(), 3, NOW);
    let approve = AccessRequest::Approve {
        code: code_of(step).unwrap(),
        role: None,
    };
    let refused = gate.handle(approve.clone(), NOW).unwrap_err();
    assert_eq!(refused, AccessError::DeniedByFile(person("never")));
    let again = gate.handle(approve, NOW).unwrap_err();
    assert_eq!(again, refused, "the code still waits");
    // The number may be the same person's as the id.
    gate.handle(deny("whatsapp:9000"), NOW).unwrap();
    let refused = gate.handle(allow("whatsapp:9000@lid", None), NOW).unwrap_err();
    assert_eq!(
        refused,
        AccessError::DeniedAlike(PersonId::new("whatsapp", "9000"))
    );
    gate.handle(allow("whatsapp:9000", None), NOW).unwrap();
    gate.handle(allow("whatsapp:9000@lid", None), NOW).unwrap();
}

#[test]
fn there_is_an_owner_while_somebody_may_be_one() {
    let mut gate = gate(
        json!({"mode": "pair", "deny": [{"platform": "slack", "user": "never"}],
        "people": [{"platform": "slack", "user": "never", "role": "owner"}]}),
    );
    assert!(!gate.has_owner() && gate.owner_warning().is_some());
    let pending = gate.handle(AccessRequest::Pending, NOW).unwrap().answer;
    assert_eq!(pending["has_owner"], false);
    let made = gate.handle(allow("slack:u", None), NOW).unwrap().answer;
    assert_eq!(made["has_owner"], false, "a user is none");
    let made = gate.handle(allow("slack:u", Some(Role::Owner)), NOW).unwrap();
    assert_eq!(made.answer.get("has_owner"), None);
    assert_eq!(made.change.unwrap().role, Some(Role::Owner));
    assert!(gate.has_owner() && gate.owner_warning().is_none());
    gate.handle(deny("slack:u"), NOW).unwrap();
    assert!(!gate.has_owner());
}

#[test]
fn an_owner_of_the_settings_is_one_alone_unless_denied() {
    let owns = |value| gate(value).has_owner();
    let person = |user: &str, role: &str| json!({"platform": "slack", "user": user, "role": role});
    let chat = |role: &str| json!([{"platform": "slack", "chat": "C1", "role": role}]);
    assert!(owns(json!({"people": [person("ann", "owner")]})));
    assert!(owns(
        json!({"people": [person("bob", "user"), person("ann", "owner")]})
    ));
    assert!(owns(json!({"chats": chat("owner")})));
    assert!(!owns(
        json!({"people": [person("ann", "user")], "chats": chat("user")})
    ));
    let denied = json!([{"platform": "slack", "user": "ann"}]);
    assert!(!owns(
        json!({"people": [person("ann", "owner")], "deny": denied.clone()})
    ));
    let rule = json!({"role": "owner", "origin": "command", "at_ms": NOW}).to_string();
    let row = stored("slack", "ann", &rule);
    assert!(Gate::new(settings(json!({})), [row.clone()]).has_owner());
    assert!(!Gate::new(settings(json!({"deny": denied})), [row]).has_owner());
}

#[test]
fn a_platform_may_be_open_to_everybody_while_the_others_have_a_list() {
    for mode in ["list", "pair"] {
        let mut settings = settings(json!({"mode": mode}));
        assert!(!settings.lets_everybody_in());
        settings.everybody_on = vec!["slack".to_owned()];
        assert!(settings.lets_everybody_in());
        let gate = Gate::new(settings, []);
        let verdict = |platform| {
            let verdict = gate.decide(&author_of(platform, "u", false), EventKind::Message, None);
            (verdict.allowed, verdict.reason)
        };
        assert_eq!(verdict("slack"), (true, Reason::Open), "{mode}");
        assert_eq!(verdict("telegram"), (false, Reason::Stranger), "{mode}");
    }
    for mode in ["open", "upstream"] {
        assert!(settings(json!({"mode": mode})).lets_everybody_in(), "{mode}");
    }
}

#[test]
fn a_code_that_is_ignored_frees_its_place_and_its_person_gets_no_other() {
    let mut gate = gate(json!({"mode": "pair"}));
    let ask = |gate: &mut Gate, user: &str, random, now| {
        let request = PairingRequest::default();
        code_of(gate.pairings().request(&person(user), request, random, now))
    };
    let first = ask(&mut gate, "a", 1, NOW).unwrap();
    assert!(ask(&mut gate, "b", 2, NOW).is_some() && ask(&mut gate, "c", 3, NOW).is_some());
    assert_eq!(ask(&mut gate, "d", 4, NOW), None, "three wait");
    let (ignored, row) = gate.pairings().ignore(&first, NOW).unwrap();
    assert_eq!(ignored, person("a"));
    assert!(ask(&mut gate, "d", 4, NOW).is_some(), "its place is free");
    let approve = AccessRequest::Approve {
        code: first,
        role: None,
    };
    assert_eq!(gate.handle(approve, NOW).unwrap_err(), AccessError::NoSuchCode);
    let mut restarted = Gate::new(settings(json!({"mode": "pair"})), [row]);
    assert_eq!(ask(&mut restarted, "a", 5, NOW + 1), None, "also after a restart");
    assert!(ask(&mut restarted, "a", 5, NOW + HOUR).is_some());
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
                .request(&person(user), PairingRequest::default(), random, now),
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
    let step = before
        .pairings()
        .request(&person("a"), PairingRequest::default(), 7, NOW);
    let PairingStep::Code(code, rows) = step else {
        panic!("no code")
    };
    let mut after = Gate::new(settings(json!({"mode": "pair"})), rows);
    let again = after
        .pairings()
        .request(&person("a"), PairingRequest::default(), 8, NOW + 1);
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
            .check(&ann, role, (kind, "C1"), now)
            .map(|exceeded| exceeded.notice.is_some())
    };
    assert_eq!(check(Role::User, message, NOW), None);
    assert_eq!(check(Role::User, message, NOW + 1), None);
    assert_eq!(check(Role::User, message, NOW + 2), Some(true));
    assert_eq!(check(Role::User, message, NOW + 3), Some(false), "once");
    assert_eq!(check(Role::User, EventKind::Stop, NOW + 3), None, "/stop works");
    assert_eq!(
        check(Role::User, EventKind::Command, NOW + 3),
        Some(false),
        "/agent does not"
    );
    assert_eq!(check(Role::Owner, message, NOW + 4), None, "no limit for owners");
    assert_eq!(check(Role::User, message, NOW + 60_000), None, "the next minute");
    for _ in 0..3 {
        limits.turn_started(&ann, NOW);
    }
    let mut check = |now| {
        limits
            .check(&ann, Role::Owner, (message, "C1"), now)
            .map(|exceeded| exceeded.notice.is_some())
    };
    assert_eq!(
        (check(NOW + 120_000), check(NOW + 180_000)),
        (Some(true), Some(false))
    );
    assert_eq!(check(NOW + 86_400_000), None, "the next day");
}

#[test]
fn what_waited_counts_in_the_minute_in_which_it_was_written() {
    let refused = |written: &dyn Fn(i64) -> Option<i64>| {
        let mut limits = limits(json!({"per_user_per_minute": 20}));
        let came = |number: &i64| {
            let time = MessageTime {
                now_ms: NOW + number,
                written_ms: written(*number),
            };
            let exceeded = limits.check(&person("ann"), Role::Owner, (EventKind::Message, "C1"), time);
            exceeded.is_some()
        };
        (0..30).filter(came).count()
    };
    let minute = 60_000;
    assert_eq!(refused(&|_| None), 10);
    assert_eq!(refused(&|number| Some(NOW - (31 - number) * 20 * minute)), 0);
    assert_eq!(
        refused(&|number| Some(NOW - 100 * minute + number)),
        10,
        "all in one minute"
    );
    assert_eq!(
        refused(&|number| Some(NOW - minute + number)),
        10,
        "the last minute"
    );
    assert_eq!(
        refused(&|_| Some(NOW + 100 * minute)),
        10,
        "a clock that is ahead"
    );
    assert_eq!(refused(&|_| Some(i64::MIN)), 10);
    assert_eq!(
        refused(&|number| Some(NOW - (30 + number) * 24 * 60 * minute)),
        10,
        "nothing waits for weeks"
    );
}

#[test]
fn what_waited_or_is_no_message_leaves_the_minute_that_runs_as_it_is() {
    let mut limits = limits(json!({"per_user_per_minute": 2}));
    let mut check = |kind, at: i64, written: Option<i64>| {
        let time = MessageTime {
            now_ms: NOW + at,
            written_ms: written.map(|written| NOW + written),
        };
        let exceeded = limits.check(&person("ann"), Role::User, (kind, "C1"), time);
        exceeded.map(|exceeded| exceeded.notice.is_some())
    };
    let (message, hour) = (EventKind::Message, 3_600_000);
    assert_eq!(check(message, 0, None), None);
    assert_eq!(check(message, 1, Some(-hour)), None, "in a minute of its own");
    assert_eq!(check(EventKind::Press, 2, Some(-hour)), None);
    assert_eq!(check(message, 3, Some(0)), None);
    assert_eq!(check(message, 4, None), Some(true));
    assert_eq!(check(message, 5, Some(1 - hour)), None);
    assert_eq!(check(message, 6, Some(2 - hour)), Some(true));
    assert_eq!(check(EventKind::TypedAnswer, 7, Some(-2 * hour)), None);
    assert_eq!(check(message, 8, None), Some(false));
    assert_eq!(check(message, 9, Some(3 - hour)), Some(false));
}

#[test]
fn programs_that_answer_each_other_are_paused_until_a_new_conversation() {
    let mut limits = limits(json!({}));
    let bot = person("bot");
    let round = |limits: &mut Limits, now: i64| {
        let exceeded = limits.check(&bot, Role::User, (EventKind::Message, "C1"), now);
        limits.turn_ended(&bot, 0, Some("C1"), now + 500);
        exceeded.map(|exceeded| (exceeded.reason, exceeded.notice.is_some()))
    };
    for at in 0..6 {
        assert_eq!(round(&mut limits, NOW + at * 2_000), None, "{at}");
    }
    assert_eq!(round(&mut limits, NOW + 12_000), Some((Reason::Loop, true)));
    assert_eq!(round(&mut limits, NOW + 900_000), Some((Reason::Loop, false)));
    limits.resume(&bot);
    assert_eq!(round(&mut limits, NOW + 901_000), None);
    // Without `/new`, which a guest may not send, it ends by itself.
    let guest = person("guest");
    let mut notices = Vec::new();
    for at in 0..7 {
        let exceeded = limits.check(&guest, Role::Guest, (EventKind::Message, "C1"), NOW + at * 2_000);
        notices.extend(exceeded.and_then(|exceeded| exceeded.notice));
        limits.turn_ended(&guest, 0, Some("C1"), NOW + at * 2_000 + 500);
    }
    assert_eq!(notices.len(), 1);
    assert!(
        notices[0].contains("15 minutes") && !notices[0].contains("/new"),
        "{notices:?}"
    );
    let late = NOW + 12_000 + 900_000;
    let check = |limits: &mut Limits, now| limits.check(&guest, Role::Guest, (EventKind::Message, "C1"), now);
    assert!(check(&mut limits, late - 1).is_some_and(|exceeded| exceeded.notice.is_none()));
    assert_eq!(check(&mut limits, late), None);
    // A person who writes many messages at a time, or takes time to read, is no program.
    let ann = person("ann");
    for at in 0..19 {
        assert_eq!(
            limits.check(&ann, Role::User, (EventKind::Message, "C1"), NOW + at),
            None,
            "{at}"
        );
    }
    for at in 0..19 {
        let now = NOW + 100_000 + at * 14_000;
        assert_eq!(
            limits.check(&ann, Role::User, (EventKind::Message, "C1"), now),
            None,
            "{at}"
        );
        limits.turn_ended(&ann, 0, Some("C1"), now + 1_000);
    }
    // Somebody whose jobs end while they write is no program either.
    let bea = person("bea");
    for at in 0..16 {
        let now = NOW + at * 1_000;
        limits.turn_ended(&bea, 0, None, now);
        let exceeded = limits.check(&bea, Role::User, (EventKind::Message, "C1"), now + 100);
        assert_eq!(exceeded, None, "{at}");
    }
}

#[test]
fn whoever_writes_in_several_chats_is_no_program_and_reads_of_a_pause_in_each_chat() {
    let message = |limits: &mut Limits, who: &PersonId, chat: &str, now: i64| {
        let exceeded = limits.check(who, Role::User, (EventKind::Message, chat), now);
        exceeded.map(|exceeded| (exceeded.reason, exceeded.notice.is_some()))
    };
    let mut limits = limits(json!({}));
    let ann = person("ann");
    for at in 0..18 {
        let (chat, now) = (format!("C{}", at % 4), NOW + at * 2_000);
        assert_eq!(message(&mut limits, &ann, &chat, now), None, "{at}");
        limits.turn_ended(&ann, 0, Some(&chat), now + 500);
    }
    let (told, silent) = (Some((Reason::Loop, true)), Some((Reason::Loop, false)));
    let bot = person("bot");
    for at in 0..7 {
        for chat in ["C1", "C2"] {
            let now = NOW + at * 2_000;
            let expected = if at < 6 { None } else { told };
            assert_eq!(message(&mut limits, &bot, chat, now), expected, "{chat} {at}");
            limits.turn_ended(&bot, 0, Some(chat), now + 500);
        }
    }
    let now = NOW + 20_000;
    assert_eq!(message(&mut limits, &bot, "C1", now), silent);
    assert_eq!(message(&mut limits, &bot, "C2", now), silent);
    assert_eq!(message(&mut limits, &bot, "C3", now), told);
    assert_eq!(message(&mut limits, &bot, "C3", now), silent);
    limits.resume(&bot);
    assert_eq!(message(&mut limits, &bot, "C3", now), None);
}

#[test]
fn what_is_remembered_of_the_chats_of_a_person_is_bounded() {
    let mut limits = limits(json!({}));
    let bot = person("bot");
    let check = |limits: &mut Limits, chat: &str, now| {
        limits.check(&bot, Role::User, (EventKind::Message, chat), now)
    };
    for chat in 0..1000 {
        limits.turn_ended(&bot, 0, Some(&chat.to_string()), NOW + chat);
    }
    // The chats that they were answered in last are remembered.
    for at in 1..7 {
        let exceeded = check(&mut limits, "999", NOW + at * 2_000);
        assert_eq!(exceeded.is_some(), at == 6, "{at}");
        limits.turn_ended(&bot, 0, Some("999"), NOW + at * 2_000 + 500);
    }
    let notices = (0..1000).filter_map(|chat| check(&mut limits, &chat.to_string(), NOW + 14_000)?.notice);
    assert_eq!(notices.count(), 31, "and one before");
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

#[test]
fn bots_that_start_a_thread_each_time_count_in_its_group() {
    let mut limits = limits(json!({}));
    let in_thread = |thread: &str, is_bot| Author {
        is_bot,
        chats: [thread, "C1"].into_iter().map(Into::into).collect(),
        ..author("someone", thread)
    };
    let mut would_exceed = |author: &Author, others| limits.would_exceed(author, Role::User, others, NOW);
    assert!(!would_exceed(&in_thread("t1", true), 1) && would_exceed(&in_thread("t1", true), 2));
    for thread in ["t1", "t2"] {
        assert_eq!(limits.check_bot(&in_thread(thread, true)), None, "{thread}");
    }
    assert!(
        limits.check_bot(&in_thread("t3", true)).is_some(),
        "the group is full"
    );
    let mut would_exceed = |author: &Author| limits.would_exceed(author, Role::User, 0, NOW);
    assert!(would_exceed(&in_thread("t3", true)));
    assert!(!would_exceed(&in_thread("t3", false)), "a person");
    assert_eq!(limits.check_bot(&in_thread("t9", false)), None);
    assert_eq!(limits.check_bot(&in_thread("t3", true)), None, "a person wrote");
}

#[test]
fn whether_a_limit_would_refuse_is_known_without_counting() {
    let mut limits = limits(json!({"per_user_per_minute": 2}));
    let (ann, message) = (author("ann", "C1"), (EventKind::Message, "C1"));
    for _ in 0..3 {
        assert!(!limits.would_exceed(&ann, Role::User, 1, NOW));
    }
    assert!(limits.would_exceed(&ann, Role::User, 2, NOW), "those that wait");
    let person = limits.person(&ann).unwrap();
    for _ in 0..2 {
        assert!(!limits.would_exceed(&ann, Role::User, 0, NOW));
        assert_eq!(limits.check(&person, Role::User, message, NOW), None);
    }
    assert!(limits.would_exceed(&ann, Role::User, 0, NOW));
    assert!(
        !limits.would_exceed(&ann, Role::User, 0, NOW + 60_000),
        "a new minute"
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
        let mut rows: std::collections::BTreeMap<(String, String), StoredRow> = std::collections::BTreeMap::new();
        let mut inside = [true, false, false, false];
        let mut codes: [Option<String>; 4] = Default::default();
        for (at, (who, step)) in steps.into_iter().enumerate() {
            let (name, now) = (format!("slack:u{who}"), NOW + i64::try_from(at).unwrap());
            let mut keep = |new: Vec<StoredRow>| {
                for row in new {
                    rows.insert((row.kind.clone(), row.user.clone()), row);
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
                    let step = gate.pairings().request(&person(&format!("u{who}")), PairingRequest::default(), random, now);
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

#[test]
fn a_person_has_one_budget_whichever_id_they_write_with() {
    let by = |ids: &[&str]| {
        let ids = ids.iter().map(|id| (*id).into());
        Author::new(&Platform::WHATSAPP, ids, vec!["c".into()], true, &NoAliases)
    };
    let settings = LimitSettings {
        per_user_per_minute: Some(ByRole::All(4)),
        turns_per_day: Some(ByRole::All(4)),
        ..LimitSettings::default()
    };
    let mut limits = Limits::new(settings, 6);
    let write = |limits: &mut Limits, ids: &[&str], at: i64| {
        let person = limits.person(&by(ids)).unwrap();
        limits.turn_started(&person, NOW + at);
        let exceeded = limits.check(&person, Role::User, (EventKind::Message, "C1"), NOW + at);
        (limits.today(&person, NOW + at).0, exceeded.is_some())
    };
    // Two ids, first each for itself, then known to be one person's.
    assert_eq!(write(&mut limits, &["49151"], 0), (1, false));
    assert_eq!(write(&mut limits, &["7000@lid"], 1), (1, false));
    assert_eq!(write(&mut limits, &["7000@lid", "+49 151"], 2), (3, false));
    assert_eq!(write(&mut limits, &["49151"], 3), (4, true));
    assert_eq!(
        write(&mut limits, &["49151@s.whatsapp.net", "7000@lid"], 4),
        (5, true)
    );
    assert_eq!(write(&mut limits, &["7000@lid"], 5), (6, true));
    // What was written in an earlier minute does not count in this one.
    assert_eq!(write(&mut limits, &["5"], 0), (1, false));
    let day = NOW.div_euclid(86_400_000);
    limits.restore(&PersonId::new("whatsapp", "6"), day, 3, 0);
    assert_eq!(
        write(&mut limits, &["6", "5"], 61_000),
        (5, true),
        "the day's limit"
    );
    assert_eq!(limits.person(&Author::operator()), None);
}

#[test]
fn what_two_ids_of_a_person_used_is_added_on_the_same_day_and_else_the_later_day_counts() {
    const DAY: i64 = 24 * HOUR;
    let used = |first: i64, second: i64| {
        let mut limits = limits(json!({}));
        let mut use_some = |ids: &[&str], at: i64, tokens: u64| {
            let ids = ids.iter().map(|id| (*id).into());
            let author = Author::new(&Platform::WHATSAPP, ids, vec!["c".into()], true, &NoAliases);
            let person = limits.person(&author).unwrap();
            limits.turn_started(&person, NOW + at);
            limits.turn_ended(&person, tokens, Some("C1"), NOW + at);
            person
        };
        use_some(&["1"], first, 100);
        use_some(&["2"], second, 20);
        let last = first.max(second);
        let person = use_some(&["1", "2"], last, 3);
        limits.today(&person, NOW + last)
    };
    assert_eq!(used(0, 1), (3, 123));
    assert_eq!(used(0, DAY), (2, 23), "the first day is over");
    assert_eq!(used(DAY, 0), (2, 103), "the first day is over");
}

#[test]
fn a_person_is_named_by_a_platform_and_an_id() {
    let long = format!("slack:{}", "u".repeat(513));
    for wrong in [
        "ann",
        "slack:",
        "slack: ",
        "slack:a\u{7}b",
        &long,
        "slack:*",
        ":ann",
    ] {
        assert!(PersonId::parse(wrong).is_err(), "{wrong}");
    }
    let longest = format!("slack:{}", "u".repeat(512));
    for right in ["slack:U1", "slack: U1 ", &longest] {
        assert!(PersonId::parse(right).is_ok(), "{right}");
    }
}

#[test]
fn rules_are_there_with_a_section_or_with_a_stored_one() {
    let none = || serde_json::from_value::<AccessSettings>(json!({})).unwrap();
    assert!(!Gate::new(none(), []).is_active());
    assert!(gate(json!({})).is_active());
    let rule = json!({"role": "user", "origin": "command", "at_ms": NOW}).to_string();
    assert!(Gate::new(none(), [stored("slack", "ann", &rule)]).is_active());
}

#[test]
fn a_role_of_a_server_is_a_number_above_zero() {
    let violates = |role: &str| {
        let rule = json!({"platform": "discord", "guild_role": role, "role": "user"});
        let settings = settings(json!({"mode": "list", "people": [rule]}));
        settings.violation(&|_| None).is_some()
    };
    for role in ["+5", "0", "five", "5x", "99999999999999999999"] {
        assert!(violates(role), "{role}");
    }
    assert!(!violates("123456789012345678"));
}

#[test]
fn an_author_has_a_person_and_is_in_a_direct_chat_or_not() {
    assert_eq!(dm("ann").person(), Some(&person("ann")));
    assert!(dm("ann").direct && !author("ann", "C1").direct);
    assert_eq!(Author::operator().person(), None);
}

#[test]
fn the_operator_is_let_through_whatever_the_rules_say() {
    assert!(Author::operator().is_operator() && !dm("ann").is_operator());
    let gate = gate(json!({"mode": "list", "deny": [{"platform": "slack", "user": "ann"}]}));
    let verdict = gate.decide(&Author::operator(), EventKind::Message, None);
    assert_eq!((verdict.allowed, verdict.reason), (true, Reason::Operator));
}

#[test]
fn what_two_ids_of_a_person_wrote_counts_together_within_a_minute() {
    let left = |first: i64, second: i64| {
        let mut limits = limits(json!({"per_user_per_minute": 4}));
        let mut write = |ids: &[&str], at: i64| {
            let ids = ids.iter().map(|id| (*id).into());
            let author = Author::new(&Platform::WHATSAPP, ids, vec!["c".into()], true, &NoAliases);
            let person = limits.person(&author).unwrap();
            limits.check(&person, Role::User, (EventKind::Message, "C1"), NOW + at)
        };
        for (id, at) in [("1", first), ("1", first), ("2", second), ("2", second)] {
            assert_eq!(write(&[id], at), None);
        }
        let both = |_: &i32| write(&["1", "2"], first.max(second)).is_none();
        (0..9).take_while(both).count()
    };
    assert_eq!(left(0, 0), 0);
    assert_eq!(left(0, 59_999), 0);
    assert_eq!(left(59_999, 0), 0);
    assert_eq!(left(0, 60_000), 2, "the earlier minute is over");
    assert_eq!(left(60_000, 0), 2, "the earlier minute is over");
}

#[test]
fn forgetting_a_person_deletes_what_is_stored_and_says_what_the_file_says() {
    let settings: AccessSettings = serde_json::from_value(json!({
        "mode": "list", "people": [{"platform": "slack", "user": "U1", "role": "guest"}],
    }))
    .unwrap();
    let mut gate = Gate::new(settings, []);
    gate.handle(allow("slack:U2", Some(Role::Owner)), NOW).unwrap();
    gate.handle(deny("slack:U1"), NOW).unwrap();
    let forget = |person: &str| AccessRequest::Forget {
        person: person.to_owned(),
    };
    let handled = gate.handle(forget("slack:U2"), NOW).unwrap();
    assert_eq!(
        handled.answer["removed"],
        json!(["role owner"]),
        "{}",
        handled.answer
    );
    assert_eq!(handled.answer["in_file"], json!([]));
    assert!(
        handled
            .rows
            .iter()
            .all(|row| row.user == "U2" && row.value.is_none())
    );
    assert!(!may_talk(&gate, "U2"));
    let handled = gate.handle(forget("slack:U1"), NOW).unwrap();
    assert_eq!(
        (&handled.answer["removed"], &handled.answer["in_file"]),
        (&json!(["denial"]), &json!(["guest"]))
    );
    assert!(may_talk(&gate, "U1"), "the file's rule holds again");
    let nothing = gate.handle(forget("slack:U3"), NOW).unwrap();
    assert_eq!(nothing.answer["removed"], json!([]));
}

/// An author on Discord with roles of the server.
fn member(user: &str, roles: &[&str], chat: &str) -> Author {
    let source = source(&json!({
        "platform": "discord", "user_id": user, "chat_id": chat, "chat_type": "group", "user_roles": roles,
    }));
    Author::from_source(&source, &NoAliases)
}

#[test]
fn a_rule_may_name_a_role_of_the_server() {
    let gate = gate(json!({
        "mode": "list",
        "people": [
            {"platform": "discord", "guild_role": "700", "role": "guest", "chats": ["C1"]},
            {"platform": "discord", "guild_role": "700", "agents": ["llm"]},
            {"platform": "discord", "user": "ann", "role": "owner"},
            {"platform": "discord", "guild_role": "701", "chats": ["C1"]},
        ],
        "deny": [{"platform": "discord", "user": "eve"}],
    }));
    for (author, role, reason) in [
        (
            member("bob", &["700"], "C1"),
            Some(Role::Guest),
            Reason::GuildRole,
        ),
        (
            member("bob", &["1", "700"], "C2"),
            Some(Role::User),
            Reason::GuildRole,
        ),
        (member("bob", &["701"], "C2"), None, Reason::OtherChat),
        (member("bob", &["70"], "C1"), None, Reason::Stranger),
        (member("bob", &[], "C1"), None, Reason::Stranger),
        (member("ann", &["700"], "C1"), Some(Role::Owner), Reason::Person),
        (member("eve", &["700"], "C1"), None, Reason::Denied),
    ] {
        let verdict = gate.decide(&author, EventKind::Message, None);
        assert_eq!((verdict.role, verdict.reason), (role, reason), "{author:?}");
    }
    let bob = member("bob", &["700"], "C2");
    assert!(!gate.decide(&bob, EventKind::Message, Some("shell")).allowed);
    // The id of a role is not the id of a person.
    assert_eq!(gate.role(&member("700", &[], "C1")), None);
    let slack = source(&json!({"platform": "slack", "user_id": "u", "chat_id": "C1", "user_roles": ["700"]}));
    assert_eq!(gate.role(&Author::from_source(&slack, &NoAliases)), None);
    assert!(gate.settings().names_guild_roles());
    let by_name = json!({"people": [{"platform": "discord", "user": "ann"}]});
    assert!(!settings(by_name).names_guild_roles());
}

#[test]
fn what_an_earlier_run_left_of_a_day_is_added_up() {
    let day = NOW.div_euclid(24 * HOUR);
    let mut limits = limits(json!({}));
    let ann = person("ann");
    for (day, turns, tokens) in [(day - 1, 50, 500), (day, 2, 20), (day, 3, 30)] {
        limits.restore(&ann, day, turns, tokens);
    }
    assert_eq!(limits.today(&ann, NOW), (5, 50));
    assert_eq!(limits.today(&ann, NOW + 24 * HOUR), (0, 0));
}

#[test]
fn the_tokens_of_a_day_are_limited_by_role() {
    let mut limits = limits(json!({"tokens_per_day": {"user": 100, "guest": 10}}));
    let ann = person("ann");
    let mut after = |tokens: u64, role: Role| {
        limits.turn_ended(&ann, tokens, Some("C1"), NOW);
        let used_up = limits.is_day_used_up(&ann, role, NOW);
        used_up.then(|| limits.day_notice(&ann).is_some())
    };
    assert_eq!(after(9, Role::Guest), None);
    assert_eq!(after(1, Role::Guest), Some(true));
    assert_eq!(after(0, Role::Guest), Some(false), "told once");
    assert_eq!(after(89, Role::User), None);
    assert_eq!(after(1, Role::User), Some(false));
    assert_eq!(after(1_000, Role::Owner), None, "owners have no limit here");
}
