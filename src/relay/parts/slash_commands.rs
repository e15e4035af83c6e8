//! The relay's own slash commands: which there are, how one is read from a message, and what is offered to platforms.

use serde_json::Value;

use crate::adapter::{MANIFEST_PLATFORM, OfferedCommand, manifest};
use crate::agent::{AgentCommand, Preference, PreferenceRequest};
use crate::cron::chat::JobCommand;
use crate::text::truncate;
use crate::wire::MessageEvent;
use crate::words::{ChatPhrase, Language, PhraseKey};

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
    /// Choose hours in which nothing rings, or show them: what follows the name.
    Quiet(String),
    /// Send what the last turn changed, as a file.
    Diff,
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
            Self::Quiet(_) => "quiet",
            Self::Diff => "diff",
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
            Self::Stop
            | Self::New(_)
            | Self::Sessions
            | Self::Resume(_)
            | Self::Project(_)
            | Self::Agent(_)
            | Self::Prefer(_)
            | Self::Voice(_)
            | Self::Diff
            | Self::Retry
            | Self::Queue => false,
        }
    }

    /// Whether it takes a turn of its own, as a message does: the agent is asked, or what it did is shown.
    pub fn is_for_agent(&self) -> bool {
        matches!(self, Self::Prefer(_) | Self::Diff)
    }

    /// Whether it means nothing outside threads where each message there begins a conversation. What goes on with an earlier
    /// conversation does so in the thread of the command, if that has one.
    pub fn needs_thread(&self, opens_thread: bool) -> bool {
        match self {
            Self::New(_) | Self::Prefer(_) | Self::Diff => true,
            Self::Sessions | Self::Resume(_) => !opens_thread,
            _ => false,
        }
    }

    /// Whether its answer depends on the agent or the project of the chat, which may have to be read first.
    pub fn is_about_agent(&self) -> bool {
        match self {
            Self::Status | Self::Agent(_) | Self::Help => true,
            Self::Cron(rest) => !JobCommand::is_inquiry(rest),
            _ => self.is_about_conversations(),
        }
    }

    /// Whether it is about conversations, which may have to be read first.
    pub fn is_about_conversations(&self) -> bool {
        matches!(
            self,
            Self::New(_) | Self::Sessions | Self::Resume(_) | Self::Project(_)
        )
    }
}

/// Every command: its names, and what it does.
const COMMANDS: &[(&[&str], PhraseKey)] = &[
    (&["stop"], PhraseKey::HelpStop),
    (&["new", "reset"], PhraseKey::HelpNew),
    (&["sessions"], PhraseKey::HelpSessions),
    (&["resume"], PhraseKey::HelpResume),
    (&["status"], PhraseKey::HelpStatus),
    (&["agent"], PhraseKey::HelpAgent),
    (&["project"], PhraseKey::HelpProject),
    (&["model"], PhraseKey::HelpModel),
    (&["mode"], PhraseKey::HelpMode),
    (&["whoami"], PhraseKey::HelpWhoAmI),
    (&["usage"], PhraseKey::HelpUsage),
    (&["cron"], PhraseKey::HelpCron),
    (&["voice"], PhraseKey::HelpVoice),
    (&["diff"], PhraseKey::HelpDiff),
    (&["retry"], PhraseKey::HelpRetry),
    (&["queue"], PhraseKey::HelpQueue),
    (&["quiet"], PhraseKey::HelpQuiet),
    (&["help"], PhraseKey::HelpHelp),
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
    /// The platforms with a command menu that are among ours.
    menus: Vec<&'static str>,
    /// The agents' commands that were offered last.
    offered: Option<Vec<AgentCommand>>,
}

impl SlashCommands {
    pub fn new<'p>(
        enabled: Vec<String>,
        configured: Vec<OfferedCommand>,
        mut platforms: impl Iterator<Item = &'p str>,
        bots: Vec<&'static str>,
        language: Language,
    ) -> Self {
        // A connector fills one menu only, and bots of one's own fill theirs.
        let is_own = bots.contains(&MANIFEST_PLATFORM);
        let has_menu = !is_own && platforms.any(|platform| platform == MANIFEST_PLATFORM);
        let menus = bots.into_iter().chain(has_menu.then_some(MANIFEST_PLATFORM));
        Self {
            enabled,
            language,
            configured,
            menus: menus.collect(),
            offered: None,
        }
    }

    /// The enabled command that a message is. One that was edited or deleted is none, whatever it says.
    pub fn of(&self, event: &MessageEvent) -> Option<SlashCommand> {
        let is_as_written = !event.is_edit && !event.is_deleted;
        is_as_written.then(|| self.parse(event.text())).flatten()
    }

    /// Reads an enabled command: the first word without its slash, in lower case, up to an `@`.
    fn parse(&self, text: &str) -> Option<SlashCommand> {
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
            "diff" => SlashCommand::Diff,
            "retry" => SlashCommand::Retry,
            "queue" => SlashCommand::Queue,
            "quiet" => SlashCommand::Quiet(rest.trim().to_owned()),
            _ => SlashCommand::Help,
        })
    }

    /// The text that lists the commands, and those of the agent that answers.
    pub fn help(&self, agent: &str, offered: &[AgentCommand], language: Language) -> String {
        let or = format!(" {} /", language.plain(PhraseKey::HelpOr));
        let own = self
            .enabled()
            .map(|(names, what)| format!("/{}: {}", names.join(&or), language.plain(*what)));
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
            lines.push(language.say(ChatPhrase::HelpCommandsOf { agent }));
            lines.extend(others);
        }
        format!("{}\n{}", lines.join("\n"), language.plain(PhraseKey::HelpRest))
    }

    /// The commands to offer, and the platforms with a command menu to offer them on, when they have changed.
    pub fn manifest(
        &mut self,
        agents: impl FnOnce() -> Vec<AgentCommand>,
    ) -> Option<(Vec<&'static str>, Vec<Value>)> {
        if self.menus.is_empty() {
            return None;
        }
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
        Some((self.menus.clone(), manifest))
    }

    fn enabled(&self) -> impl Iterator<Item = &(&[&str], PhraseKey)> {
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
        SlashCommands::new(
            enabled,
            Vec::new(),
            ["discord"].into_iter(),
            Vec::new(),
            Language::En,
        )
    }

    #[test]
    fn only_a_menu_that_can_be_filled_is_offered() {
        for (platforms, bots, expected) in [
            (&["discord", "telegram"][..], &[][..], &["discord"][..]),
            (&["telegram"], &[], &[]),
            (&["telegram"], &["telegram"], &["telegram"]),
            (&["discord"], &["discord"], &["discord"]),
            (&["discord"], &["telegram"], &["telegram", "discord"]),
            (&[], &["telegram", "discord"], &["telegram", "discord"]),
        ] {
            let enabled = vec!["stop".to_owned()];
            let platforms = platforms.iter().copied();
            let mut commands =
                SlashCommands::new(enabled, Vec::new(), platforms, bots.to_vec(), Language::En);
            let menus = commands.manifest(Vec::new).map(|(menus, _)| menus);
            assert_eq!(menus.unwrap_or_default(), expected, "{bots:?}");
        }
    }

    #[test]
    fn a_command_is_the_first_word_in_any_case_when_it_is_enabled() {
        let commands = commands(&["stop", "reset", "agent"]);
        let mut event = MessageEvent {
            text: Some("/stop".into()),
            ..MessageEvent::default()
        };
        assert_eq!(commands.of(&event), Some(SlashCommand::Stop));
        event.is_edit = true;
        assert_eq!(commands.of(&event), None);
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
        let (platforms, offered) = commands.manifest(|| vec![review]).unwrap();
        assert_eq!((&platforms[..], offered.len()), (&["discord"][..], 2));
    }
}
