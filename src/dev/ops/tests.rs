use super::super::presets::Preset;
use super::super::record::ConnectionId;
use super::*;

struct Desk {
    ledger: Ledger,
    preset: Preset,
}

impl Desk {
    fn of(preset: Preset) -> Self {
        Self {
            ledger: Ledger::new(),
            preset,
        }
    }

    fn ask(&mut self, action: &Value) -> Result<Value, String> {
        let descriptor = self.preset.descriptor(self.preset.name());
        let origin = Origin {
            platform: self.preset.name(),
            bot_id: None,
            connection: ConnectionId(1),
        };
        let asked = Asked::read(&action.to_string());
        carry_out(
            &asked,
            &mut self.ledger,
            &Chats::default(),
            Some(&descriptor),
            &origin,
        )
    }
}

fn send(text: &str) -> Value {
    json!({ "op": "send", "chat_id": "c", "content": text })
}

#[test]
fn messages_are_made_edited_and_deleted() {
    let mut desk = Desk::of(Preset::Discord);
    assert_eq!(desk.ask(&send("one")).unwrap()["message_id"], "m1");
    assert_eq!(desk.ask(&send("two")).unwrap()["message_id"], "m2");
    desk.ask(&json!({ "op": "edit", "chat_id": "c", "message_id": "m1", "content": "uno" }))
        .unwrap();
    desk.ask(&json!({ "op": "edit", "chat_id": "other", "message_id": "m1", "content": "x" }))
        .unwrap_err();
    let delete = json!({ "op": "delete", "chat_id": "c", "message_id": "m2" });
    desk.ask(&delete).unwrap();
    desk.ask(&delete).unwrap_err();
    let texts: Vec<_> = desk.ledger.messages.iter().map(|sent| &*sent.text).collect();
    assert_eq!(texts, ["uno", "two"]);
}

#[test]
fn what_is_not_listed_or_not_known_is_unsupported() {
    let mut desk = Desk::of(Preset::Plain);
    let edit = json!({ "op": "edit", "chat_id": "c", "message_id": "m1", "content": "x" });
    assert_eq!(desk.ask(&edit).unwrap_err(), "unsupported op: edit");
    assert_eq!(
        desk.ask(&json!({ "op": "dance" })).unwrap_err(),
        "unsupported op: dance"
    );
    assert_eq!(desk.ask(&json!({})).unwrap_err(), "unsupported op: ");
    let half = desk.ask(&json!({ "op": "send" })).unwrap_err();
    assert!(half.starts_with("malformed action: "), "{half}");
    let mut legacy = Desk::of(Preset::Legacy);
    legacy.ask(&send("x")).unwrap();
    legacy.ask(&edit).unwrap();
    legacy
        .ask(&json!({ "op": "get_chat_info", "chat_id": "c" }))
        .unwrap_err();
}

#[test]
fn length_is_measured_in_the_platforms_unit() {
    let mut telegram = Desk::of(Preset::Telegram);
    telegram.ask(&send(&"\u{1f600}".repeat(2048))).unwrap();
    let over = telegram.ask(&send(&"\u{1f600}".repeat(2049))).unwrap_err();
    assert_eq!(over, "message too long: 4098 of 4096");
    Desk::of(Preset::Discord)
        .ask(&send(&"\u{1f600}".repeat(2000)))
        .unwrap();
    telegram.ask(&send("")).unwrap_err();
}

#[test]
fn a_draft_grows_and_is_sealed_once() {
    let mut desk = Desk::of(Preset::Slack);
    let draft = |text: &str, last: bool| json!({ "op": "draft", "chat_id": "c", "draft_id": 7, "content": text, "final": last });
    assert!(desk.ask(&draft("a", false)).unwrap().get("message_id").is_none());
    desk.ask(&draft("ab", false)).unwrap();
    assert_eq!(desk.ledger.drafts.values().next().unwrap(), "ab");
    assert_eq!(desk.ask(&draft("abc", true)).unwrap()["message_id"], "m1");
    assert!(desk.ledger.drafts.is_empty());
    desk.ask(&draft("abcd", true)).unwrap_err();
}

#[test]
fn a_follow_up_needs_its_capability() {
    let mut desk = Desk::of(Preset::Discord);
    let follow_up = json!({ "op": "follow_up", "session_key": "k", "kind": "discord.token", "content": "x" });
    desk.ask(&follow_up).unwrap_err();
    desk.ledger.grant("k", "discord.token");
    assert_eq!(desk.ask(&follow_up).unwrap()["message_id"], "m1");
}

#[test]
fn threads_are_opened_and_renamed_under_their_guard() {
    let mut desk = Desk::of(Preset::Discord);
    let opened = desk
        .ask(&json!({ "op": "thread_create", "chat_id": "c", "thread_name": "a" }))
        .unwrap();
    let rename = |guard: &str| {
        json!({ "op": "thread_rename", "chat_id": "c", "message_id": opened["thread_id"], "thread_name": "b",
            "only_if_current_name": guard })
    };
    desk.ask(&rename("z")).unwrap_err();
    desk.ask(&rename("a")).unwrap();
    assert_eq!(desk.ledger.threads.iter().next().unwrap().name, "b");
}

#[test]
fn what_a_platform_cannot_show_is_refused() {
    let prompt = |options: usize| {
        let options: Vec<_> = (0..options)
            .map(|option| json!({ "id": format!("o{option}"), "label": "x" }))
            .collect();
        json!({ "op": "prompt", "chat_id": "c", "content": "May I?", "prompt_kind": "approval", "prompt_id": "p",
            "options": options })
    };
    let media = |caption: &str| {
        json!({ "op": "send_media", "chat_id": "c", "media_kind": "image", "source_url": "https://x/y",
            "content": caption })
    };
    for (preset, most) in [
        (Preset::WhatsApp, 10),
        (Preset::Discord, 25),
        (Preset::Slack, 25),
        (Preset::Telegram, 100),
    ] {
        let mut desk = Desk::of(preset);
        desk.ask(&prompt(most)).unwrap();
        desk.ask(&prompt(most + 1)).unwrap_err();
        let long = desk.ask(&media(&"x".repeat(1025)));
        let short = matches!(preset, Preset::WhatsApp | Preset::Telegram);
        assert_eq!(long.is_err(), short, "{preset:?}");
        desk.ask(&media(&"x".repeat(1024))).unwrap();
        let react =
            json!({ "op": "react", "chat_id": "c", "message_id": "m", "emoji": "\u{2705}", "remove": false });
        assert_eq!(desk.ask(&react).is_err(), preset == Preset::Telegram);
        let typing = json!({ "op": "typing", "chat_id": "c" });
        assert_eq!(desk.ask(&typing).is_err(), preset == Preset::WhatsApp);
    }
    let mut telegram = Desk::of(Preset::Telegram);
    let opened = telegram
        .ask(&json!({ "op": "thread_create", "chat_id": "c", "thread_name": "a" }))
        .unwrap();
    let mut rename = json!({ "op": "thread_rename", "chat_id": "c", "message_id": opened["thread_id"], "thread_name": "b" });
    telegram.ask(&rename).unwrap();
    rename["only_if_current_name"] = json!("b");
    telegram.ask(&rename).unwrap_err();
}
