//! Tables on a platform without any.

use super::{platform, terse};
use crate::support::memory_relay::start_on;
use crate::support::scripted_agent::ScriptedAgent;
use hermes_relay::agent::{Turn, TurnEnd};
use hermes_relay::wire::{CapabilityDescriptor, TABLES};

/// Writes a table in small pieces.
async fn tabulate(turn: Turn) -> TurnEnd {
    for piece in [
        "Two:\n| A | B",
        " |\n|---|---|\n|",
        " 1 | 22 |\n",
        "| 333 | 4 |\n\nEnd.",
    ] {
        turn.events.text(piece).await;
    }
    TurnEnd::Completed
}

#[tokio::test]
async fn a_table_is_aligned_where_the_platform_has_none() {
    const UNCHANGED: &str = "Two:\n| A | B |\n|---|---|\n| 1 | 22 |\n| 333 | 4 |\n\nEnd.";
    for (dialect, extra, width, expected) in [
        (
            "discord",
            "edit",
            80,
            "Two:\n```\nA   | B\n----+---\n1   | 22\n333 | 4\n```\n\nEnd.",
        ),
        ("discord", "edit", 5, "Two:\nA: 1\nB: 22\n\nA: 333\nB: 4\n\nEnd."),
        ("discord", "edit", 0, UNCHANGED),
        ("gfm", "edit", 80, UNCHANGED),
        ("markdown_v2", TABLES, 80, UNCHANGED),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let platform = CapabilityDescriptor {
            markdown_dialect: Some(dialect.to_owned()),
            ..platform(&["send", extra])
        };
        let relay = start_on(dir.path(), ScriptedAgent::new(tabulate), &platform, |settings| {
            terse(settings);
            settings.chat.table_width = width;
        })
        .await;
        relay.deliver("a", "1", "go").await;
        assert_eq!(relay.replies("a", 1).await, [expected], "{dialect} {width}");
        relay.stop().await;
    }
}
