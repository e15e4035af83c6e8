//! The list of frames: what belongs together, frames in full, copies and files of them.

use hermes_relay::dev::{Trace, Traced};

use crate::accessibility::text_is_readable;
use crate::browser::ESCAPE;
use crate::server::Stage;

#[tokio::test]
async fn a_request_and_its_result_are_shown_together_and_in_full() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    let page = &stage.browser;
    stage.say("<img src=x> hello").await;
    stage.wait_for_reply("echo: <img").await;
    for (kind, answer) in [("outbound", "outbound_result"), ("inbound", "inbound_ack")] {
        page.until(
            "an answered frame",
            &format!("document.querySelector('.row[data-type=\"{kind}\"]')?.dataset.took?.endsWith(' ms')"),
        )
        .await;
        page.click(&format!(".row[data-type=\"{kind}\"]")).await;
        page.until(
            "its answer stands out",
            &format!("[...document.querySelectorAll('.row.paired')].map((r) => r.dataset.type).join() === '{answer}'"),
        )
        .await;
        page.until(
            "how long it took",
            "/^answered by frame \\d+, [\\d.]+ ms$/.test(document.querySelector('#detail-pair').innerText)",
        )
        .await;
        page.click("#detail-pair").await;
        let there = format!(
            "document.querySelector('.row[aria-selected=true]').dataset.type === '{answer}' && document.querySelector('.row.paired').dataset.type === '{kind}' && document.querySelector('#detail-pair').innerText.startsWith('answers frame')"
        );
        page.until("the other way round", &there).await;
    }
    for (what, test) in [
        (
            "colours",
            "document.querySelectorAll('#detail-text .json-key').length >= 2",
        ),
        (
            "text that stays text",
            "[...document.querySelectorAll('#detail-text *')].every((n) => n.tagName === 'SPAN')",
        ),
        (
            "the frame as it is",
            "JSON.stringify(JSON.parse(document.querySelector('#detail-text').textContent), null, 2) === document.querySelector('#detail-text').textContent",
        ),
        (
            "the time of day",
            "[...document.querySelectorAll('.row time, .message time')].every((n) => /^\\d\\d:\\d\\d:\\d\\d/.test(n.textContent) && Math.abs(Date.now() - new Date(n.dateTime)) < 600000 && n.title.includes(String(new Date().getFullYear())))",
        ),
    ] {
        page.until(what, test).await;
    }
    for theme in ["light", "dark"] {
        page.prefer(theme).await;
        text_is_readable(page, &format!("a pair, {theme}")).await;
        page.picture(&format!("pair-{theme}")).await;
    }
    page.allow_clipboard().await;
    page.click("#detail-copy").await;
    page.until(
        "it says so",
        "document.querySelector('#detail-copy').innerText === 'Copied'",
    )
    .await;
    let copied = page.js("return navigator.clipboard.readText();").await;
    let copied: serde_json::Value = serde_json::from_str(copied.as_str().unwrap()).unwrap();
    assert_eq!(copied["type"], "inbound_ack");

    let exported = page
        .js("return fetch(document.querySelector('#export').href).then((r) => r.text());")
        .await;
    let trace = Trace::parse(exported.as_str().unwrap()).unwrap();
    assert_eq!(trace.platform, "discord");
    let is_hello = |content: &Traced| match content {
        Traced::Frame(frame) => frame["event"]["text"] == "<img src=x> hello",
        Traced::Raw(_) => false,
    };
    assert_eq!(
        trace.lines.iter().filter(|line| is_hello(&line.content)).count(),
        1
    );
}

#[tokio::test]
async fn empty_lists_say_so_and_help_lists_the_keys() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    let page = &stage.browser;
    let none = "document.querySelector('#frames-none')";
    page.until(
        "frames",
        &format!("{none}.hidden && document.querySelector('#chats-none').hidden"),
    )
    .await;
    page.until("no jobs", "document.querySelector('#job-none').checkVisibility()")
        .await;
    page.keys("#filter", "nothing like this").await;
    page.until(
        "no match",
        &format!("!{none}.hidden && {none}.innerText.includes('matches')"),
    )
    .await;
    page.click("#clear").await;
    page.until(
        "no frame",
        &format!("!{none}.hidden && {none}.innerText.startsWith('No frames yet')"),
    )
    .await;
    // In a text field it is a character, elsewhere a key.
    let open = "document.querySelector('#help').open";
    page.keys("#input", "?").await;
    assert_eq!(
        page.js(&format!(
            "return [{open}, document.querySelector('#input').value];"
        ))
        .await,
        serde_json::json!([false, "?"])
    );
    page.js("document.activeElement.blur();").await;
    page.press("?").await;
    page.until("help", open).await;
    let dialog = &page.elements("#help").await[0];
    assert_eq!(page.property(dialog, "computedlabel").await, "Keys");
    for theme in ["light", "dark"] {
        page.prefer(theme).await;
        page.picture(&format!("help-{theme}")).await;
        text_is_readable(page, &format!("help, {theme}")).await;
    }
    page.press(ESCAPE).await;
    page.until("no help", &format!("!{open}")).await;
    page.click("#help-open").await;
    page.until("help again", open).await;
    page.click("#help-close").await;
    page.until("no help again", &format!("!{open}")).await;
}
