//! Every fault of the page, clicked, with the page's own verdict.

use crate::server::Stage;

#[tokio::test]
async fn what_is_broken_heals_and_nothing_is_lost() {
    tokio::join!(
        all_heals("connection", &["refuse_dials", "drop", "expire", "hold"]),
        all_heals(
            "frames",
            &["poison", "duplicate", "delay_result", "refuse_result"]
        ),
    );
}

/// One page with some of the faults, one after the other.
async fn all_heals(of_what: &str, faults: &[&str]) {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    stage.say("hello").await;
    stage.wait_for_reply("echo: hello").await;
    for fault in faults {
        stage.survives(fault).await;
        stage.live().await;
    }
    let page = &stage.browser;
    page.picture(&format!("faults-{of_what}")).await;
    // Everything that was said is in the relay's journal, and nothing is answered twice.
    page.until(
        "every message was taken",
        "[...document.querySelectorAll('.message.person .state')].every((n) => n.textContent === '✓✓')",
    )
    .await;
    let answers = page
        .js("const seen = {}; for (const n of document.querySelectorAll('.message.bot .text')) seen[n.innerText] = (seen[n.innerText] ?? 0) + 1; return Object.entries(seen).filter(([, count]) => count > 1);")
        .await;
    assert_eq!(answers, serde_json::json!([]));
}

#[tokio::test]
async fn a_revoked_relay_gives_up_and_a_reinstated_one_comes_back() {
    let Some(stage) = Stage::set("telegram").await else {
        return;
    };
    stage.survives("revoke").await;
    let page = &stage.browser;
    page.until(
        "the relay has ended",
        "document.querySelector('#link').innerText.includes('revoked')",
    )
    .await;
    stage.say("said to nobody").await;
    page.until(
        "it waits in the connector",
        "document.querySelector('#backlog').textContent === '1'",
    )
    .await;
    page.click("#undo-revoke").await;
    stage.live().await;
    stage.wait_for_reply("echo: said to nobody").await;
}
