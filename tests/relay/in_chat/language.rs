//! The relay's own words in the language of their reader.

use super::{platform, terse, text};
use crate::support::memory_relay::{Running, event, start_on};
use hermes_relay::agent::EchoAgent;
use hermes_relay::words::Language;
use serde_json::json;
use std::path::Path;

async fn start(dir: &Path) -> Running {
    start_on(
        dir,
        EchoAgent,
        &platform(&["send", "edit", "prompt"]),
        |settings| {
            terse(settings);
            settings.chat.language = Language::De;
        },
    )
    .await
}

/// Writes in a chat of this language, and gives what is said last.
async fn said(relay: &Running, language: Option<&str>, id: &str, written: &str) -> String {
    let before = relay.connector.record().borrow().ops.len();
    let mut event = event("a", id, written);
    if let Some(language) = language {
        event["source"]["language_code"] = json!(language);
    }
    relay.connector.deliver_buffered(id, event).await.unwrap();
    let seen = relay.seen("an answer", |seen| seen.ops.len() > before).await;
    text(seen.ops.back().unwrap()).to_owned()
}

#[tokio::test]
async fn a_person_reads_the_language_of_their_client_else_that_of_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    for (id, language, expected) in [
        ("1", None, "Agent tested ist frei."),
        ("2", Some("fr-CA"), "L\u{2019}agent tested est libre."),
        ("3", Some("sv"), "Agent tested ist frei."),
        ("4", Some("en"), "Agent tested is idle."),
    ] {
        assert_eq!(said(&relay, language, id, "/status").await, expected);
    }
    let stop = said(&relay, None, "5", "/stop").await;
    assert!(stop.starts_with("Hier l\u{e4}uft nichts."), "{stop}");
    let help = said(&relay, Some("ja"), "6", "/help").await;
    assert!(help.contains("/new \u{307e}\u{305f}\u{306f} /reset: "), "{help}");
    let new = said(&relay, None, "8", "/new Plan").await;
    assert_eq!(new, "Ein neues Gespr\u{e4}ch hat begonnen: Plan.");
    let jobs = said(&relay, None, "9", "/cron list").await;
    assert!(
        jobs.starts_with("Dieser Chat hat keine Auftr\u{e4}ge.\n/cron list: die Auftr\u{e4}ge"),
        "{jobs}"
    );
    let added = said(&relay, Some("es"), "10", "/cron add in 2h hola").await;
    assert!(
        added.starts_with("Tarea ") && added.contains("Para deshacer: /cron remove"),
        "{added}"
    );
    let missing = said(&relay, None, "11", "/cron pause nothing").await;
    assert!(
        missing.starts_with("Es gibt keinen Auftrag `nothing`."),
        "{missing}"
    );
    // What the agent says stays as it is.
    assert_eq!(said(&relay, None, "7", "Stopped.").await, "echo: Stopped.");
    relay.stop().await;
}

#[tokio::test]
async fn a_question_and_its_decision_are_in_the_language_of_who_answers() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let question = said(&relay, Some("es"), "1", "ask hi").await;
    assert!(
        question.contains("Pulsa un bot\u{f3}n, o escribe su n\u{fa}mero, /approve A1 o /deny A1."),
        "{question}"
    );
    let mut answer = event("a", "2", "/deny A1");
    answer["source"]["language_code"] = json!("es");
    relay.connector.deliver_buffered("2", answer).await.unwrap();
    relay
        .seen("the decision", |seen| {
            seen.ops.iter().any(|op| text(op).contains("\u{274c} Denegado"))
        })
        .await;
    relay.stop().await;
}
