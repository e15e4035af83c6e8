//! Talking on the page.

use serde_json::json;

use crate::browser::{DOWN, ENTER, ESCAPE, TAB};
use crate::server::Stage;

#[tokio::test]
async fn the_first_message_is_answered_and_the_wire_shows_how() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    let page = &stage.browser;
    let focused = page.js("return document.activeElement.id;").await;
    assert_eq!(focused, "input", "a person can type at once");
    page.until(
        "three things to try",
        "document.querySelectorAll('.welcome > ul:not(.more) button').length === 3",
    )
    .await;
    page.picture("welcome").await;
    stage.say("hello").await;
    assert_eq!(stage.wait_for_reply("echo: hello").await, "echo: hello");
    page.until(
        "the message is in the journal",
        "document.querySelector('.message.person .state').textContent === '✓✓'",
    )
    .await;
    for kind in [
        "hello",
        "descriptor",
        "inbound",
        "inbound_ack",
        "outbound",
        "outbound_result",
    ] {
        page.until(
            kind,
            &format!("document.querySelector('.row[data-type=\"{kind}\"]')"),
        )
        .await;
    }
    page.keys("#filter", "echo: hello").await;
    page.until(
        "one frame is left",
        "[...document.querySelectorAll('.row')].filter((r) => !r.hidden).length === 1",
    )
    .await;
    page.click(".row:not([hidden])").await;
    page.until(
        "the frame in full",
        "document.querySelector('#detail-text').textContent.includes('\"op\": \"send\"')",
    )
    .await;
    page.picture("answered").await;
}

#[tokio::test]
async fn text_never_becomes_markup_and_markdown_becomes_nodes() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    let page = &stage.browser;
    stage
        .say("<img src=x onerror=\"document.title='owned'\"> **bold** `code` <b>not</b>")
        .await;
    let reply = stage.wait_for_reply("echo:").await;
    assert!(
        reply.contains("<img src=x onerror") && reply.contains("<b>not</b>"),
        "{reply}"
    );
    let counts = page
        .js("const t = document.querySelector('.message.bot .text'); return [t.querySelectorAll('img, b').length, t.querySelector('strong')?.textContent, t.querySelector('code')?.textContent, document.title.includes('owned')];")
        .await;
    assert_eq!(counts, json!([0, "bold", "code", false]));
}

#[tokio::test]
async fn stop_stops_the_turn_and_the_next_message_is_answered() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    let page = &stage.browser;
    for (round, by_key) in [false, true].into_iter().enumerate() {
        stage.say("sleep=600000 never").await;
        page.until(
            "a turn runs",
            "document.querySelector('#turns').textContent === '1'",
        )
        .await;
        if by_key {
            page.keys("#input", ESCAPE).await;
        } else {
            page.click("#stop").await;
        }
        page.until(
            "no turn runs",
            "document.querySelector('#turns').textContent === '0'",
        )
        .await;
        page.until(
            "the message says that it was stopped",
            &format!(
                "document.querySelectorAll('.message.person .stopped').length === {}",
                round + 1
            ),
        )
        .await;
        stage.say(&format!("after stop {round}")).await;
        stage.wait_for_reply(&format!("echo: after stop {round}")).await;
    }
    let never = page
        .js("return [...document.querySelectorAll('.message.bot .text')].some((n) => n.innerText.includes('never'));")
        .await;
    assert_eq!(never, false);
    // An answer that had begun says so too, and a Stop that finds nothing to stop leaves no mark.
    stage
        .say("stream=1500 one two three four five six seven eight nine ten")
        .await;
    stage.wait_for_reply("echo: one").await;
    page.click("#stop").await;
    page.until(
        "the answer says that it was stopped",
        "document.querySelectorAll('.message.bot .stopped').length === 1",
    )
    .await;
    page.until(
        "no turn runs",
        "document.querySelector('#turns').textContent === '0'",
    )
    .await;
    stage.say("the end").await;
    stage.wait_for_reply("echo: the end").await;
    page.click("#stop").await;
    page.until(
        "the frame of the last Stop",
        "document.querySelectorAll('.row[data-type=\"interrupt_inbound\"]').length === 4",
    )
    .await;
    let marks = page
        .js("return [...document.querySelectorAll('.message.person .stopped')].length;")
        .await;
    assert_eq!(marks, 3);
}

#[tokio::test]
async fn commands_are_completed_and_still_sent_as_they_are_typed() {
    let Some(stage) = Stage::set("telegram").await else {
        return;
    };
    let page = &stage.browser;
    let names = "[...document.querySelectorAll('#commands code')].map((n) => n.innerText).join(' ')";
    page.keys("#input", "/").await;
    page.until(
        "all commands",
        &format!("{names}.includes('/stop') && {names}.includes('/help')"),
    )
    .await;
    page.picture("commands").await;
    crate::accessibility::text_is_readable(page, "commands").await;
    page.keys("#input", "st").await;
    page.until("two commands", &format!("{names} === '/stop /status'"))
        .await;
    page.press(DOWN).await;
    page.press(DOWN).await;
    page.until(
        "the second one",
        "document.querySelector('#commands [aria-selected=true]').id === document.querySelector('#input').getAttribute('aria-activedescendant')",
    )
    .await;
    page.press(TAB).await;
    page.until(
        "the command",
        "document.querySelector('#input').value === '/status ' && document.querySelector('#commands').hidden && document.activeElement.id === 'input'",
    )
    .await;
    page.press(ENTER).await;
    stage.wait_for_reply("Agent echo is idle.").await;
    // Enter sends what is typed, although the list is open.
    stage.say("/help").await;
    stage.wait_for_reply("list the commands").await;
    page.keys("#input", "/s").await;
    page.until("the list", "!document.querySelector('#commands').hidden")
        .await;
    page.press(ESCAPE).await;
    page.until(
        "no list, and the text is still there",
        "document.querySelector('#commands').hidden && document.querySelector('#input').value === '/s'",
    )
    .await;
}

#[tokio::test]
async fn the_signs_of_activity_stay_in_a_lively_chat() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    for turn in 0..5 {
        stage.say(&format!("sleep=200 message {turn}")).await;
        stage.wait_for_reply(&format!("message {turn}")).await;
    }
    // The reaction at the end is only there after one at the beginning.
    stage
        .browser
        .until(
            "a reaction on every message",
            "[...document.querySelectorAll('.message.person')].filter((n) => n.querySelector('.reaction')?.innerText === '✅').length === 5",
        )
        .await;
}

#[tokio::test]
async fn chats_people_replies_commands_and_files_travel_as_they_should() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    let page = &stage.browser;
    let kinds = page
        .js("return [...document.querySelectorAll('.chat small')].map((n) => n.textContent);")
        .await;
    assert_eq!(kinds, json!(["direct message", "group", "thread", "forum topic"]));
    for index in 1..=4 {
        page.click(&format!("#chats li:nth-child({index}) button")).await;
        page.js("document.querySelector('#who').value = 'u2';").await;
        stage.say(&format!("in chat {index}")).await;
        stage.wait_for_reply(&format!("echo: in chat {index}")).await;
    }
    page.click("#add summary").await;
    page.js("document.querySelector('#add-kind').value = 'group';")
        .await;
    page.keys("#add-name", "garden").await;
    page.click("#add-form button").await;
    page.until(
        "the new chat",
        "document.querySelector('#place').textContent === 'garden'",
    )
    .await;
    stage.say("is there rain").await;
    stage.wait_for_reply("echo: is there rain").await;
    // A reply quotes, and says so on the wire.
    page.click(".message.bot .reply").await;
    stage.say("thanks").await;
    stage.wait_for_reply("echo: thanks").await;
    page.until(
        "the quoted answer",
        "[...document.querySelectorAll('.message.person .quoted')].some((n) => n.textContent.includes('is there rain'))",
    )
    .await;
    // A command as an interaction takes the other lane into the same session.
    page.js("document.querySelector('#lane').value = 'interaction';")
        .await;
    stage.say("/new").await;
    page.until(
        "the forwarded request is acknowledged",
        "[...document.querySelectorAll('.message.person')].some((n) => n.innerText.includes('interaction') && n.innerText.includes('✓✓'))",
    )
    .await;
    page.until(
        "it on the wire",
        "document.querySelector('.row[data-type=\"passthrough_forward\"]')",
    )
    .await;
    page.js("document.querySelector('#lane').value = 'message';")
        .await;
    // A file becomes a reference that only the relay can fetch, and the page shows it.
    let picture = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("dot.png");
    std::fs::write(&picture, DOT).unwrap();
    page.js("document.querySelector('#file').hidden = false;").await;
    page.keys("#file", picture.to_str().unwrap()).await;
    page.until("the file is listed", "document.querySelector('#attached li')")
        .await;
    stage.say("look").await;
    page.until(
        "the picture",
        "document.querySelector('img.picture')?.naturalWidth === 1",
    )
    .await;
    page.until(
        "its reference on the wire",
        "[...document.querySelectorAll('.row')].some((r) => r.dataset.hay.includes('/relay/media/'))",
    )
    .await;
}

#[tokio::test]
async fn an_answer_is_seen_growing_as_each_platform_shows_it() {
    tokio::join!(
        an_answer_grows("discord", ".message.bot:not(.passing) .text"),
        an_answer_grows("telegram", ".message.draft .text"),
        an_answer_grows("slack", ".message.draft .text"),
    );
}

async fn an_answer_grows(platform: &str, growing: &str) {
    let Some(stage) = Stage::set(platform).await else {
        return;
    };
    let page = &stage.browser;
    // Every length that the text was seen with, by an observer that misses none.
    page.js(&format!(
        "window.lengths = new Set(); new MutationObserver(() => {{ for (const n of document.querySelectorAll('{growing}')) window.lengths.add(n.innerText.length); }}).observe(document.querySelector('#log'), {{ childList: true, subtree: true, characterData: true }});"
    ))
    .await;
    let words =
        "some words that are long enough to be seen growing from the first to the very last one of them all";
    stage.say(&format!("stream=250 {words}")).await;
    stage.wait_for_reply("very last one of them all").await;
    let steps = page
        .js("return [...window.lengths].filter((n) => n > 0).length;")
        .await;
    assert!(
        steps.as_u64() >= Some(3),
        "{platform}: only {steps} states were seen"
    );
    page.until(
        "one answer, whole",
        "document.querySelectorAll('.message.bot').length === 1 && !document.querySelector('.message.draft')",
    )
    .await;
    let whole = format!("echo: {words}");
    assert_eq!(stage.wait_for_reply("echo:").await, whole, "{platform}");
}

#[tokio::test]
async fn an_approval_is_given_with_a_button_on_either_lane() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    let page = &stage.browser;
    for (round, lane) in ["message", "interaction"].into_iter().enumerate() {
        stage.say(&format!("ask round {round}")).await;
        page.until(
            "buttons",
            "document.querySelectorAll('.choice:not(:disabled)').length >= 2",
        )
        .await;
        page.js(&format!("document.querySelector('#lane').value = '{lane}';"))
            .await;
        let primary = page
            .js("return [...document.querySelectorAll('.choice.style-primary:not(:disabled)')].map((n) => n.innerText);")
            .await;
        assert_eq!(primary, json!(["Allow once"]));
        page.click(".choice:not(:disabled)").await;
        page.until("the choice is shown", "document.querySelector('.choice.chosen')")
            .await;
        stage.wait_for_reply(&format!("allowed once round {round}")).await;
        page.until(
            "the turn is over",
            "document.querySelector('#turns').textContent === '0'",
        )
        .await;
    }
    page.picture("approved").await;
}

/// A picture of one pixel.
pub(crate) const DOT: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0, 0, 0, 1, 0, 0,
    0, 1, 8, 4, 0, 0, 0, 0xb5, 0x1c, 0x0c, 2, 0, 0, 0, 0x0b, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0x64,
    0xf8, 0x5f, 0x0f, 0, 2, 0x87, 1, 0x80, 0xeb, 0x47, 0xba, 0x92, 0, 0, 0, 0, 0x49, 0x45, 0x4e, 0x44, 0xae,
    0x42, 0x60, 0x82,
];
