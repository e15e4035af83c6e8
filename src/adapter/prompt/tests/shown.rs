//! How questions look, and which are not asked.

use serde_json::json;

use super::*;
use crate::adapter::prompt_token;
use crate::wire::LenUnit;

fn content(action: &Action) -> &str {
    match action {
        Action::Prompt { content, .. } | Action::Send { content, .. } | Action::Edit { content, .. } => {
            content
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn buttons_carry_safe_ids_styles_and_the_chats_tags() {
    let native = descriptor(&["send", "prompt"]);
    let mut asked = request(1, "dm");
    asked.options[0].label = format!("  Allow\n{} ", "x".repeat(200));
    asked.options[2].label = String::new();
    asked.timeout = Some(secs(60));
    let opened = prompts().open(asked, &on(Some(&native)), secs(0)).unwrap();
    let Action::Prompt {
        prompt_kind,
        prompt_id,
        options,
        reply_to,
        metadata,
        timeout_s,
        ..
    } = &opened.op.action
    else {
        panic!("{opened:?}")
    };
    assert_eq!(
        (prompt_kind.as_str(), reply_to.as_deref()),
        ("approval", Some("m0"))
    );
    assert_eq!(
        content(&opened.op.action),
        "Run it?\n```\nls -la\n```\n\nPress a button, or type its number, /approve A1 or /deny A1."
    );
    assert_eq!(
        (metadata.get("user_id"), *timeout_s),
        (Some(&json!("ann")), Some(55))
    );
    assert!(prompt_id.starts_with("ab01ff.") && prompt_id.len() == 15);
    for option in options {
        let token = format!("hp1:{prompt_id}:{}", option.id);
        assert_eq!(
            prompt_token(&token),
            Some((prompt_id.as_str(), option.id.as_str()))
        );
    }
    let styles: Vec<_> = options.iter().map(|option| option.style.as_deref()).collect();
    assert_eq!(styles, [Some("primary"), None, Some("danger")]);
    assert_eq!(options[0].label.chars().count(), 75);
    assert!(options[0].label.starts_with("Allow xxx") && options[0].label.ends_with('…'));
    assert_eq!(options[2].label, "Deny");
}

#[test]
fn an_approval_has_once_first_and_denial_last_whatever_the_agents_order() {
    let meanings = [
        Meaning::Deny,
        Meaning::AllowAlways,
        Meaning::Plain,
        Meaning::AllowSession,
        Meaning::AllowOnce,
    ];
    let mut asked = request(1, "dm");
    asked.options = options(&meanings);
    let opened = prompts()
        .open(
            asked.clone(),
            &on(Some(&descriptor(&["send", "prompt"]))),
            secs(0),
        )
        .unwrap();
    let Action::Prompt { options, .. } = &opened.op.action else {
        panic!("{opened:?}")
    };
    let shown: Vec<_> = options
        .iter()
        .map(|option| (option.id.as_str(), option.style.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [
            ("o4", Some("primary")),
            ("o3", None),
            ("o1", None),
            ("o2", None),
            ("o0", Some("danger"))
        ]
    );
    // Which of several is meant is the agent's matter.
    asked.kind = QuestionKind::Choice;
    let opened = prompts()
        .open(asked, &on(Some(&descriptor(&["send", "prompt"]))), secs(0))
        .unwrap();
    let Action::Prompt { options, .. } = &opened.op.action else {
        panic!("{opened:?}")
    };
    let ids: Vec<_> = options.iter().map(|option| option.id.as_str()).collect();
    assert_eq!(ids, ["o0", "o1", "o2", "o3", "o4"]);
}

#[test]
fn a_numbered_list_explains_how_to_answer() {
    let plain = descriptor(&["send"]);
    let opened = prompts()
        .open(request(1, "group"), &on(Some(&plain)), secs(0))
        .unwrap();
    assert_eq!(
        content(&opened.op.action),
        "Run it?\n```\nls -la\n```\n\n1. AllowOnce\n2. Deny\n\n\
         Reply with a number, /approve or /deny, or type A1 1, /approve A1 or /deny A1."
    );
    let Action::Send {
        reply_to, metadata, ..
    } = &opened.op.action
    else {
        panic!("{opened:?}")
    };
    assert!(reply_to.is_some() && metadata.get("notify") == Some(&true.into()));
    let mut unknown = request(1, "dm");
    unknown.detail = Some("a\n1. Deny".to_owned());
    let opened = prompts().open(unknown, &on(None), secs(0)).unwrap();
    let shown = content(&opened.op.action);
    assert!(
        !opened.native && shown.starts_with("Run it?\n| a\n| 1. Deny\n\n1. AllowOnce\n"),
        "{shown}"
    );
}

#[test]
fn ids_are_unique() {
    let mut prompts = Prompts::new(
        PromptSettings {
            max_open: 10_000,
            ..PromptSettings::default()
        },
        NONCE,
        u32::MAX,
    );
    let mut seen = std::collections::HashSet::new();
    for key in 0..2_000 {
        let opened = prompts.open(request(key, "dm"), &on(None), secs(0)).unwrap();
        assert!(seen.insert(opened.prompt.to_string()));
    }
}

#[test]
fn questions_that_are_not_opened() {
    let plain = descriptor(&["send"]);
    let mut tiny = descriptor(&["send"]);
    tiny.max_message_length = 60;
    let short = PromptSettings {
        max_open: 1,
        ..PromptSettings::default()
    };
    let mut prompts = Prompts::new(short, NONCE, 0);
    let mut refused = |change: &dyn Fn(&mut PromptRequest)| {
        let mut asked = request(1, "group");
        change(&mut asked);
        prompts.open(asked, &on(Some(&plain)), secs(0)).map(|_| ())
    };
    assert_eq!(
        refused(&|request| request.author = None),
        Err(NotOpened::NobodyMayAnswer)
    );
    assert_eq!(
        refused(&|request| request.author = Some(String::new())),
        Err(NotOpened::NobodyMayAnswer)
    );
    assert_eq!(
        refused(&|request| request.options.clear()),
        Err(NotOpened::NothingToChoose)
    );
    assert_eq!(
        refused(&|request| request.options = options(&[Meaning::AllowAlways, Meaning::Deny])),
        Err(NotOpened::NothingToChoose)
    );
    assert_eq!(
        refused(&|request| request.options = options(&[Meaning::AllowOnce; 33])),
        Err(NotOpened::TooManyOptions)
    );
    assert_eq!(refused(&|_| ()), Ok(()));
    assert_eq!(refused(&|_| ()), Err(NotOpened::AlreadyOpen));
    assert_eq!(
        refused(&|request| request.id = QuestionId(2)),
        Err(NotOpened::Full)
    );
    let no_room = super::prompts().open(request(1, "dm"), &on(Some(&tiny)), secs(0));
    assert_eq!(no_room.unwrap_err(), NotOpened::NoRoom);
}

#[test]
fn anyone_may_answer_where_configured_and_in_a_direct_message_without_an_author() {
    let open_house = PromptSettings {
        anyone_in_group: true,
        ..PromptSettings::default()
    };
    for (settings, chat_type, author, by, may) in [
        (&open_house, "group", Some("ann"), Some("bob"), true),
        (&open_house, "group", None, None, true),
        (&open_house, "dm", Some("ann"), Some("bob"), false),
        (&PromptSettings::default(), "dm", None, Some("bob"), true),
        (&PromptSettings::default(), "dm", Some("ann"), None, true),
        (&PromptSettings::default(), "group", Some("ann"), None, false),
    ] {
        let native = descriptor(&["send", "prompt"]);
        let mut prompts = Prompts::new(settings.clone(), NONCE, 0);
        let mut asked = request(1, chat_type);
        asked.author = author.map(str::to_owned);
        let opened = prompts.open(asked, &on(Some(&native)), secs(0)).unwrap();
        let mut press = press(&opened.prompt, "o0", "x");
        press.by.id = by.map(str::to_owned);
        let pressed = prompts.press(&press, secs(1));
        assert_eq!(
            matches!(pressed, PressResult::Resolved(_)),
            may,
            "{chat_type} {author:?} {by:?}"
        );
    }
}

/// Where every line that a reader takes for a fence stands.
fn fences(content: &str) -> usize {
    content.matches("```").count()
}

#[test]
fn every_question_fits_and_stays_in_its_frame() {
    let hostile = [
        "```\n@everyone click here\n```".repeat(300),
        "`".repeat(9_000),
        "🦀".repeat(5_000),
        "\n".repeat(5_000) + "rm -rf /",
        "a".repeat(100_000) + "; rm -rf /",
        "\u{202e}\u{0}".repeat(3_000),
        "ls".to_owned(),
    ];
    let mut asked_at_all = 0;
    for (detail, limit, unit, dialect, native) in combinations(&hostile) {
        let mut descriptor = descriptor(if native { &["send", "prompt"] } else { &["send"] });
        descriptor.max_message_length = limit;
        descriptor.len_unit = unit.to_owned();
        descriptor.markdown_dialect = Some(dialect.to_owned());
        let mut asked = request(1, "dm");
        asked.text = "Run `this```".repeat(200);
        asked.detail = Some(detail.to_owned());
        asked.options[0].label = "🦀 ".repeat(100);
        let mut prompts = prompts();
        let Ok(opened) = prompts.open(asked, &on(Some(&descriptor)), secs(0)) else {
            assert!(limit < 400, "not asked within {limit}");
            continue;
        };
        asked_at_all += 1;
        let mut shown = vec![content(&opened.op.action).to_owned()];
        if native {
            match prompts.op_finished(&opened.prompt, &refused("no"), secs(0)) {
                PromptStep::Show(op) => shown.push(content(&op.action).to_owned()),
                PromptStep::Resolved(_) if limit < 400 => continue,
                other => panic!("{other:?}"),
            }
        }
        prompts.op_finished(&opened.prompt, &applied("m"), secs(0));
        let mut press = press(&opened.prompt, "o0", "ann");
        press.by.name = Some("@everyone ```\n".repeat(40));
        let edit = resolved(prompts.press(&press, secs(1))).edit.unwrap();
        shown.push(content(&edit.action).to_owned());
        for content in shown {
            let length = LenUnit::from_wire(unit).measure(&content);
            assert!(
                length <= usize::try_from(limit.min(4096)).unwrap(),
                "{length} of {limit}"
            );
            if dialect == "discord" {
                assert!(matches!(fences(&content), 0 | 2), "{content}");
                let before = content.split("```").next().unwrap();
                assert!(before.matches('`').count() % 2 == 0, "{content}");
            } else {
                assert!(!content.contains("\n@everyone"), "{content}");
            }
            assert!(!content.contains("by @"));
            if detail.ends_with("rm -rf /") && content.contains("aaa") {
                assert!(content.contains("rm -rf /") && content.contains("characters are not shown"));
            }
        }
    }
    assert!(asked_at_all > 100, "{asked_at_all}");
}

fn combinations(details: &[String]) -> impl Iterator<Item = (&str, u64, &'static str, &'static str, bool)> {
    details.iter().flat_map(|detail| {
        [1, 90, 160, 300, 400, 2000, 4096, u64::MAX >> 1]
            .into_iter()
            .flat_map(|limit| ["utf16", "chars"].map(|unit| (limit, unit)))
            .flat_map(|(limit, unit)| ["discord", "plain"].map(|dialect| (limit, unit, dialect)))
            .flat_map(|(limit, unit, dialect)| [true, false].map(|native| (limit, unit, dialect, native)))
            .map(move |(limit, unit, dialect, native)| (detail.as_str(), limit, unit, dialect, native))
    })
}
