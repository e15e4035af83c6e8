//! The relay's own slash commands: which there are, how one is read from a message, and what is offered to platforms.

use serde_json::Value;

use crate::adapter::{MANIFEST_PLATFORM, OfferedCommand, manifest};
use crate::agent::AgentCommand;
use crate::cron::chat::JobCommand;
use crate::words::{Language, PhraseKey};

/// A command for the relay itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlashCommand {
    /// Stop the turn.
    Stop,
    /// Start a new conversation.
    New,
    /// Show the status.
    Status,
    /// Choose the agent that answers from now on, or list the agents.
    Agent(Option<String>),
    /// Show the writer's id and role.
    WhoAmI,
    /// Show what the writer has used today.
    Usage,
    /// List or change the jobs of the chat: what follows the name.
    Cron(String),
    /// Switch spoken answers on or off, or say whether they are on: what follows the name.
    Voice(Option<bool>),
    /// Choose hours in which nothing rings, or show them: what follows the name.
    Quiet(String),
    /// Run the writer's last message again.
    Retry,
    /// Show what waits, and offer to drop it.
    Queue,
    /// List the commands.
    Help,
}

impl SlashCommand {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::New => "new",
            Self::Status => "status",
            Self::Agent(_) => "agent",
            Self::WhoAmI => "whoami",
            Self::Usage => "usage",
            Self::Cron(_) => "cron",
            Self::Voice(_) => "voice",
            Self::Quiet(_) => "quiet",
            Self::Retry => "retry",
            Self::Queue => "queue",
            Self::Help => "help",
        }
    }

    /// Whether it only reads.
    pub fn is_inquiry(&self) -> bool {
        match self {
            Self::Status | Self::WhoAmI | Self::Usage | Self::Help => true,
            Self::Cron(rest) => JobCommand::is_inquiry(rest),
            Self::Quiet(hours) => hours.is_empty(),
            Self::Stop | Self::New | Self::Agent(_) | Self::Voice(_) | Self::Retry | Self::Queue => false,
        }
    }
}

/// Every command: its names, and what it does.
const COMMANDS: &[(&[&str], PhraseKey)] = &[
    (&["stop"], PhraseKey::HelpStop),
    (&["new", "reset"], PhraseKey::HelpNew),
    (&["status"], PhraseKey::HelpStatus),
    (&["agent"], PhraseKey::HelpAgent),
    (&["whoami"], PhraseKey::HelpWhoAmI),
    (&["usage"], PhraseKey::HelpUsage),
    (&["cron"], PhraseKey::HelpCron),
    (&["voice"], PhraseKey::HelpVoice),
    (&["retry"], PhraseKey::HelpRetry),
    (&["queue"], PhraseKey::HelpQueue),
    (&["quiet"], PhraseKey::HelpQuiet),
    (&["help"], PhraseKey::HelpHelp),
];

/// The name of every command, without its slash, and what it does.
#[cfg_attr(
    not(feature = "dev"),
    allow(dead_code, reason = "only the page of `dev` lists them")
)]
pub fn command_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS
        .iter()
        .flat_map(|(names, what)| names.iter().map(|name| (*name, what.english())))
}

/// The relay's commands, as the settings enable them.
#[derive(Debug)]
pub struct SlashCommands {
    enabled: Vec<String>,
    /// Language of the menu.
    language: Language,
    /// Further commands that the settings offer on the platform.
    configured: Vec<OfferedCommand>,
    /// The platform with a command menu, when one is among ours.
    menu: Option<&'static str>,
    /// The agents' commands that were offered last.
    offered: Option<Vec<AgentCommand>>,
}

impl SlashCommands {
    pub fn new<'p>(
        enabled: Vec<String>,
        configured: Vec<OfferedCommand>,
        mut platforms: impl Iterator<Item = &'p str>,
        is_bot: bool,
        language: Language,
    ) -> Self {
        let has_menu = platforms.any(|platform| platform == MANIFEST_PLATFORM);
        Self {
            enabled,
            language,
            configured,
            menu: if is_bot {
                Some("telegram")
            } else {
                has_menu.then_some(MANIFEST_PLATFORM)
            },
            offered: None,
        }
    }

    /// Reads an enabled command: the first word without its slash, in lower case, up to an `@`.
    pub fn parse(&self, text: &str) -> Option<SlashCommand> {
        let text = text.trim_start().strip_prefix('/')?;
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let word = word.split('@').next()?.to_ascii_lowercase();
        let (names, _) = self.enabled().find(|(names, _)| names.contains(&word.as_str()))?;
        Some(match names[0] {
            "stop" => SlashCommand::Stop,
            "new" => SlashCommand::New,
            "status" => SlashCommand::Status,
            "agent" => SlashCommand::Agent(rest.split_whitespace().next().map(str::to_owned)),
            "whoami" => SlashCommand::WhoAmI,
            "usage" => SlashCommand::Usage,
            "cron" => SlashCommand::Cron(rest.trim().to_owned()),
            "voice" => SlashCommand::Voice(match rest.trim().to_ascii_lowercase().as_str() {
                "on" => Some(true),
                "off" => Some(false),
                _ => None,
            }),
            "retry" => SlashCommand::Retry,
            "queue" => SlashCommand::Queue,
            "quiet" => SlashCommand::Quiet(rest.trim().to_owned()),
            _ => SlashCommand::Help,
        })
    }

    /// The text that lists the commands.
    pub fn help(&self, language: Language) -> String {
        let or = format!(" {} /", language.plain(PhraseKey::HelpOr));
        let lines: Vec<String> = self
            .enabled()
            .map(|(names, what)| format!("/{}: {}", names.join(&or), language.plain(*what)))
            .collect();
        format!("{}\n{}", lines.join("\n"), language.plain(PhraseKey::HelpRest))
    }

    /// The commands to offer on the platform with a command menu, when they have changed.
    pub fn manifest(
        &mut self,
        agents: impl FnOnce() -> Vec<AgentCommand>,
    ) -> Option<(&'static str, Vec<Value>)> {
        let menu = self.menu?;
        let agents = agents();
        if self.offered.as_ref() == Some(&agents) {
            return None;
        }
        let offer = |name: &str, description: &str| OfferedCommand {
            name: name.to_owned(),
            description: description.to_owned(),
            options: None,
        };
        let language = self.language;
        let own = self
            .enabled()
            .map(|(names, what)| offer(names[0], language.plain(*what)));
        let of_agents = agents
            .iter()
            .map(|command| offer(&command.name, &command.description));
        let manifest = manifest(own.chain(self.configured.iter().cloned()).chain(of_agents));
        self.offered = Some(agents);
        Some((menu, manifest))
    }

    fn enabled(&self) -> impl Iterator<Item = &(&[&str], PhraseKey)> {
        let is_enabled = |names: &[&str]| self.enabled.iter().any(|name| names.contains(&name.as_str()));
        COMMANDS.iter().filter(move |(names, _)| is_enabled(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(enabled: &[&str]) -> SlashCommands {
        let enabled = enabled.iter().map(|name| (*name).to_owned()).collect();
        SlashCommands::new(enabled, Vec::new(), ["discord"].into_iter(), false, Language::En)
    }

    #[test]
    fn a_command_is_the_first_word_in_any_case_when_it_is_enabled() {
        let commands = commands(&["stop", "reset", "agent"]);
        assert_eq!(commands.parse(" /STOP@my_bot now"), Some(SlashCommand::Stop));
        assert_eq!(commands.parse("/new"), Some(SlashCommand::New));
        assert_eq!(
            commands.parse("/agent  code x"),
            Some(SlashCommand::Agent(Some("code".to_owned())))
        );
        assert_eq!(commands.parse("/agent"), Some(SlashCommand::Agent(None)));
        for text in ["/help", "stop", "/stopping", "/", "", "// stop"] {
            assert_eq!(commands.parse(text), None, "{text}");
        }
    }

    #[test]
    fn commands_are_offered_again_only_when_the_agents_change_theirs() {
        let mut commands = commands(&["stop"]);
        assert!(commands.manifest(Vec::new).is_some());
        assert!(commands.manifest(Vec::new).is_none());
        let review = AgentCommand {
            name: "review".to_owned(),
            description: "review the change".to_owned(),
        };
        let (platform, offered) = commands.manifest(|| vec![review]).unwrap();
        assert_eq!((platform, offered.len()), ("discord", 2));
    }
}
