//! Whether the page says that its program is there.

use rustix::process::Signal;

use crate::accessibility::text_is_readable;
use crate::server::Stage;

const RED: &str = "document.body.classList.contains('is-gone') && document.title.startsWith('⚠ gone') \
                   && document.querySelector('#link').dataset.state === 'lost' \
                   && document.querySelector('#gone').checkVisibility() && document.querySelector('#gone').innerText";

#[tokio::test]
async fn the_page_turns_red_while_the_program_is_away() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    let page = &stage.browser;
    stage.say("hello").await;
    stage.wait_for_reply("echo: hello").await;
    stage.signal(Signal::STOP);
    page.until("a red page", RED).await;
    for theme in ["light", "dark"] {
        page.prefer(theme).await;
        text_is_readable(page, &format!("gone, {theme}")).await;
        page.picture(&format!("gone-{theme}")).await;
    }
    stage.signal(Signal::CONT);
    page.until(
        "a page as before",
        "!document.body.classList.contains('is-gone') && document.title.startsWith('Discord') && document.querySelector('#gone').hidden",
    )
    .await;
    stage.live().await;
    stage.say("and again").await;
    stage.wait_for_reply("echo: and again").await;
    let copies = page
        .js("return [...document.querySelectorAll('.message.bot .text')].filter((n) => n.innerText === 'echo: hello').length;")
        .await;
    assert_eq!(copies, 1, "nothing is shown twice");
    stage.signal(Signal::KILL);
    let banner = page.until("a red page", RED).await;
    assert!(banner.as_str().unwrap().contains("does not answer"), "{banner}");
    // What is typed meanwhile is kept.
    stage.say("anybody?").await;
    page.until(
        "the text is back",
        "document.querySelector('#input').value === 'anybody?' && document.querySelector('#keys').innerText.includes('Not sent')",
    )
    .await;
}
