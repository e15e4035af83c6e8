//! What a person reads first who starts the relay in a terminal.

use std::fmt::Write as _;

use crate::access::Mode;
use crate::config::Settings;
use crate::wire::ConnectorUrl;

/// Which bot or connector, which agents, who may write, and what to do now.
pub(super) fn text(settings: &Settings, version: &str) -> String {
    let mut text = format!("hermes-relay {version}\n\n");
    for (label, value) in [
        ("Chats", chats(settings)),
        ("Agents", agents(settings).join(", ")),
        ("May write", writers(settings)),
        ("Now", next(settings)),
    ] {
        // Writing to a String does not fail.
        let _ = writeln!(text, "  {label:<10} {value}");
    }
    text
}

/// The agents with their kinds, the default one first.
pub(super) fn agents(settings: &Settings) -> Vec<String> {
    let others = settings
        .agents
        .iter()
        .filter(|(name, _)| **name != settings.agent);
    let others = others.map(|(name, entry)| format!("{name} ({})", entry.backend.kind()));
    let default = match settings.agents.get(&settings.agent) {
        Some(entry) => format!("{} ({})", settings.agent, entry.backend.kind()),
        None => settings.agent.clone(),
    };
    std::iter::once(default).chain(others).collect()
}

/// A URL without what may be secret in it.
pub(super) fn shown_url(url: &str) -> String {
    ConnectorUrl::parse(url).map_or_else(|_| "invalid".to_owned(), |url| url.to_string())
}

fn chats(settings: &Settings) -> String {
    let telegram = settings.direct.telegram.as_ref().map(|bot| match bot.bot_id() {
        Some(id) => format!("your Telegram bot {id}"),
        None => "your Telegram bot".to_owned(),
    });
    let discord = settings
        .direct
        .discord
        .as_ref()
        .map(|_| "your Discord bot".to_owned());
    let mut bots: Vec<String> = telegram.into_iter().chain(discord).collect();
    if settings.has_connector() {
        bots.push(connected_chats(settings));
    }
    bots.join(" and ")
}

fn connected_chats(settings: &Settings) -> String {
    let identities = settings.connector.identities.iter();
    let mut platforms: Vec<&str> = identities.map(|identity| identity.platform.as_str()).collect();
    platforms.dedup();
    let url = settings
        .connector
        .url
        .as_deref()
        .map(shown_url)
        .unwrap_or_default();
    if platforms.is_empty() {
        format!("those of the connector {url}")
    } else {
        format!("{} through the connector {url}", platforms.join(", "))
    }
}

fn writers(settings: &Settings) -> String {
    let access = &settings.access;
    let listed = match access.people.len() {
        0 => String::new(),
        1 => "1 person of the settings, and ".to_owned(),
        people => format!("{people} people of the settings, and "),
    };
    match access.mode {
        Mode::Open => "everybody".to_owned(),
        Mode::Upstream if settings.direct.is_bot() && !access.is_active() => {
            "everybody who finds the bot".to_owned()
        }
        Mode::Upstream if !access.is_active() => "everybody whom the connector lets through".to_owned(),
        Mode::Upstream => {
            format!("{listed}whom the connector and `hermes-relay access list` let through")
        }
        Mode::List => format!("{listed}whom `hermes-relay access allow` lets in"),
        Mode::Pair => format!(
            "{listed}whom you approve; when somebody new writes, the command that lets them in appears here"
        ),
    }
}

fn next(settings: &Settings) -> String {
    let place = if settings.has_connector() {
        "to your bot in a chat".to_owned()
    } else {
        format!("to your bot on {}", settings.peer())
    };
    format!("write {place}; Ctrl-C stops, and `hermes-relay status` in another terminal shows more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_agent_the_chats_and_who_may_write() {
        let mut settings = Settings::embedded("/nowhere");
        settings.agent = "echo".to_owned();
        settings.connector.url = Some("wss://user:secret@connector.example/relay?token=secret".to_owned());
        let shown = text(&settings, "1.2.3");
        for part in [
            "hermes-relay 1.2.3",
            "echo",
            "everybody whom the connector",
            "Ctrl-C",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("secret"), "{shown}");
        settings.access.mode = Mode::Pair;
        settings.access.is_set = true;
        assert!(text(&settings, "1").contains("whom you approve"));
    }
}
