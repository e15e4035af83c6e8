//! The relay's own slash commands: which there are, how one is read from a message, and what is offered to platforms.

use serde_json::Value;

use crate::adapter::{MANIFEST_PLATFORM, OfferedCommand, manifest};
use crate::agent::{AgentCommand, Preference, PreferenceRequest};
use crate::cron::chat::JobCommand;
use crate::text::truncate;

/// A command for the relay itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlashCommand {
    /// Stop the turn.
    Stop,
    /// Start a new conversation: its title, or none.
    New(String),
    /// List the conversations.
    Sessions,
    /// Go on with a conversation: what follows the name.
    Resume(String),
    /// Show the status.
    Status,
    /// Choose the agent that answers from now on, or list the agents.
    Agent(Option<String>),
    /// Set the project of a chat or a thread, or list the projects.
    Project(Option<String>),
    /// Show the writer's id and role.
    WhoAmI,
    /// Show what the writer has used today.
    Usage,
    /// Choose the model or the mode of the agent, or list what there is.
    Prefer(PreferenceRequest),
    /// List or change the jobs of the chat: what follows the name.
    Cron(String),
    /// Switch spoken answers on or off, or say whether they are on: what follows the name.
    Voice(Option<bool>),
    /// List the commands.
    Help,
}

impl SlashCommand {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::New(_) => "new",
            Self::Sessions => "sessions",
            Self::Resume(_) => "resume",
            Self::Status => "status",
            Self::Agent(_) => "agent",
            Self::Prefer(request) => request.preference.name(),
            Self::Project(_) => "project",
            Self::WhoAmI => "whoami",
            Self::Usage => "usage",
            Self::Cron(_) => "cron",
            Self::Voice(_) => "voice",
            Self::Help => "help",
        }
    }

    /// Whether it only reads.
    pub fn is_inquiry(&self) -> bool {
        match self {
            Self::Status | Self::WhoAmI | Self::Usage | Self::Help => true,
            Self::Cron(rest) => JobCommand::is_inquiry(rest),
            Self::Stop
            | Self::New(_)
            | Self::Sessions
            | Self::Resume(_)
            | Self::Project(_)
            | Self::Agent(_)
            | Self::Prefer(_)
            | Self::Voice(_) => false,
        }
    }

    /// Whether the agent is asked for it, in a turn of its own.
    pub fn is_for_agent(&self) -> bool {
        matches!(self, Self::Prefer(_))
    }

    /// Whether it is about conversations, which may have to be read first.
    pub fn is_about_conversations(&self) -> bool {
        matches!(
            self,
            Self::New(_) | Self::Sessions | Self::Resume(_) | Self::Project(_)
        )
    }

    /// What the agent is asked for.
    pub fn into_preference(self) -> Option<PreferenceRequest> {
        match self {
            Self::Prefer(request) => Some(request),
            _ => None,
        }
    }
}

/// Every command: its names, and what it does.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["stop"], "stop the running turn"),
    (&["new", "reset"], "start a new conversation: /new TITLE names it"),
    (&["sessions"], "list your last conversations"),
    (&["resume"], "go on with one of them here: /resume NUMBER"),
    (&["status"], "show the status"),
    (&["agent"], "choose the agent: /agent NAME"),
    (&["model"], "choose the model of this conversation: /model NAME"),
    (
        &["mode"],
        "choose how the agent works in this conversation: /mode NAME",
    ),
    (
        &["project"],
        "set the project of this chat or topic: /project NAME",
    ),
    (&["whoami"], "show your id and your role"),
    (&["usage"], "show what you have used today"),
    (&["cron"], "list and change the jobs of this chat: /cron help"),
    (
        &["voice"],
        "get answers as voice messages, too: /voice on, /voice off",
    ),
    (&["help"], "list the commands"),
];

/// Commands of an agent that are listed.
const MAX_AGENT_COMMANDS: usize = 30;
/// Length of what is said about one.
const MAX_DESCRIPTION_CHARS: usize = 120;

/// The name of every command, without its slash, and what it does.
#[cfg_attr(
    not(feature = "dev"),
    allow(dead_code, reason = "only the page of `dev` lists them")
)]
pub fn command_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS
        .iter()
        .flat_map(|(names, what)| names.iter().map(|name| (*name, *what)))
}

/// The relay's commands, as the settings enable them.
#[derive(Debug)]
pub struct SlashCommands {
    enabled: Vec<String>,
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
    ) -> Self {
        let has_menu = platforms.any(|platform| platform == MANIFEST_PLATFORM);
        Self {
            enabled,
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
            "new" => SlashCommand::New(rest.trim().to_owned()),
            "sessions" => SlashCommand::Sessions,
            "resume" => SlashCommand::Resume(rest.trim().to_owned()),
            "status" => SlashCommand::Status,
            "agent" => SlashCommand::Agent(rest.split_whitespace().next().map(str::to_owned)),
            "model" => prefer(Preference::Model, rest),
            "mode" => prefer(Preference::Mode, rest),
            "project" => SlashCommand::Project(rest.split_whitespace().next().map(str::to_owned)),
            "whoami" => SlashCommand::WhoAmI,
            "usage" => SlashCommand::Usage,
            "cron" => SlashCommand::Cron(rest.trim().to_owned()),
            "voice" => SlashCommand::Voice(match rest.trim().to_ascii_lowercase().as_str() {
                "on" => Some(true),
                "off" => Some(false),
                _ => None,
            }),
            _ => SlashCommand::Help,
        })
    }

    /// The text that lists the commands, and those of the agent that answers.
    pub fn help(&self, agent: &str, offered: &[AgentCommand]) -> String {
        let own = self
            .enabled()
            .map(|(names, what)| format!("/{}: {what}", names.join(" or /")));
        let mut lines: Vec<String> = own.collect();
        let is_own = |name: &str| self.enabled().any(|(names, _)| names.contains(&name));
        let others = offered.iter().filter(|command| !is_own(&command.name));
        let others = others.take(MAX_AGENT_COMMANDS).map(|command| {
            let what = truncate(&command.description, MAX_DESCRIPTION_CHARS);
            match what {
                "" => format!("/{}", command.name),
                what => format!("/{}: {what}", command.name),
            }
        });
        let others: Vec<String> = others.collect();
        if !others.is_empty() {
            lines.push(format!("Commands of {agent}:"));
            lines.extend(others);
        }
        format!("{}\nEverything else goes to the agent.", lines.join("\n"))
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
        let own = self.enabled().map(|(names, what)| offer(names[0], what));
        let of_agents = agents
            .iter()
            .map(|command| offer(&command.name, &command.description));
        let manifest = manifest(own.chain(self.configured.iter().cloned()).chain(of_agents));
        self.offered = Some(agents);
        Some((menu, manifest))
    }

    fn enabled(&self) -> impl Iterator<Item = &(&[&str], &str)> {
        let is_enabled = |names: &[&str]| self.enabled.iter().any(|name| names.contains(&name.as_str()));
        COMMANDS.iter().filter(move |(names, _)| is_enabled(names))
    }
}

fn prefer(preference: Preference, rest: &str) -> SlashCommand {
    let choice = Some(rest.trim()).filter(|choice| !choice.is_empty());
    SlashCommand::Prefer(PreferenceRequest {
        preference,
        choice: choice.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(enabled: &[&str]) -> SlashCommands {
        let enabled = enabled.iter().map(|name| (*name).to_owned()).collect();
        SlashCommands::new(enabled, Vec::new(), ["discord"].into_iter(), false)
    }

    #[test]
    fn a_command_is_the_first_word_in_any_case_when_it_is_enabled() {
        let commands = commands(&["stop", "reset", "agent"]);
        assert_eq!(commands.parse(" /STOP@my_bot now"), Some(SlashCommand::Stop));
        assert_eq!(commands.parse("/new"), Some(SlashCommand::New(String::new())));
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
