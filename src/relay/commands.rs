//! The relay's own slash commands: few, answered at once, and never the agent's.

use super::core::Core;
use crate::adapter::{ChatFacts, ChatId, MANIFEST_PLATFORM, OfferedCommand, manifest};
use crate::agent::AgentCommand;
use crate::session::TurnId;
use crate::store::{Command, TurnState};
use crate::wire::{MessageEvent, SessionKey};

/// What `/stop` is told when there is nothing to stop.
const NOTHING_RUNS: &str = "Nothing is running.";
/// What `/new` is told.
const NEW_CONVERSATION: &str = "A new conversation begins.";

/// A command for the relay itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RelayCommand {
    /// Stop the turn.
    Stop,
    /// Forget the conversation.
    New,
    /// Tell how it stands.
    Status,
    /// Let this agent answer from now on, or tell which there are.
    Agent(Option<String>),
    /// Tell which commands there are.
    Help,
}

/// Every command: the words for it, and what it does.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["stop"], "stop what is running"),
    (&["new", "reset"], "begin a new conversation"),
    (&["status"], "tell how it stands"),
    (&["agent"], "choose who answers: /agent NAME"),
    (&["help"], "tell which commands there are"),
];

impl RelayCommand {
    /// Reads a command that is switched on: the first word without its slash, in lower case, cut at `@`.
    pub(super) fn read(text: &str, on: &[String]) -> Option<Self> {
        let mut words = text.trim_start().strip_prefix('/')?.split(char::is_whitespace);
        let word = words.next()?.split('@').next()?.to_ascii_lowercase();
        let (names, _) = COMMANDS
            .iter()
            .find(|(names, _)| names.contains(&word.as_str()))?;
        if !on.iter().any(|on| names.contains(&on.as_str())) {
            return None;
        }
        Some(match names[0] {
            "stop" => Self::Stop,
            "new" => Self::New,
            "status" => Self::Status,
            "agent" => Self::Agent(words.find(|word| !word.is_empty()).map(str::to_owned)),
            _ => Self::Help,
        })
    }
}

impl Core {
    /// The relay's own command that a message is, if it is one.
    pub(super) fn command_in(&self, event: &MessageEvent) -> Option<RelayCommand> {
        RelayCommand::read(event.text(), &self.settings.relay_commands)
    }

    /// Does what a command says, now that it is committed, and answers it. `met` is the turn that ran when it came.
    pub(super) fn obey(
        &mut self,
        command: RelayCommand,
        met: Option<TurnId>,
        key: &SessionKey,
        seq: i64,
        (chat, facts): (&ChatId, &ChatFacts),
    ) {
        let said = match command {
            RelayCommand::Stop => {
                let stopped = met.is_some() && self.interrupt(key, met);
                if stopped { "Stopped." } else { NOTHING_RUNS }.to_owned()
            }
            RelayCommand::New => {
                if met.is_some() {
                    self.interrupt(key, met);
                }
                self.forget_session(key);
                NEW_CONVERSATION.to_owned()
            }
            RelayCommand::Status => self.told_status(key),
            RelayCommand::Agent(None) => self.told_agents(key),
            RelayCommand::Agent(Some(name)) => self.choose(key, &name),
            RelayCommand::Help => self.told_help(),
        };
        let ops = self.plan(&said, key, chat, facts);
        self.end_row(seq, TurnState::Done, ops, None);
    }

    fn told_status(&self, key: &SessionKey) -> String {
        let doing = match self.sessions.turn_of(key) {
            Some(_) => "working on a message",
            None => "idle",
        };
        let waiting = self.sessions.waiting(key);
        let agent = self.chosen(key).unwrap_or_else(|| self.crew.default_name());
        let more = if waiting > 0 {
            format!(", {waiting} waiting")
        } else {
            String::new()
        };
        format!(
            "{agent}: {doing}{more}. {} conversations are active, {} turns run.",
            self.sessions.active(),
            self.sessions.running()
        )
    }

    fn told_agents(&self, key: &SessionKey) -> String {
        let now = self.chosen(key).unwrap_or_else(|| self.crew.default_name());
        let names: Vec<&str> = self.crew.names().map(|name| &**name).collect();
        format!(
            "{now} answers. There are: {}. Choose with /agent NAME.",
            names.join(", ")
        )
    }

    fn choose(&mut self, key: &SessionKey, name: &str) -> String {
        let Some(name) = self.crew.find(name).cloned() else {
            let names: Vec<&str> = self.crew.names().map(|name| &**name).collect();
            let asked: String = name
                .chars()
                .filter(|letter| !letter.is_control())
                .take(40)
                .collect();
            return format!(
                "There is no agent named {asked}. There are: {}.",
                names.join(", ")
            );
        };
        self.writes.push(Command::SetResume {
            session: choice_key(key),
            blob: name.as_bytes().to_vec(),
            now_ms: self.now_ms(),
        });
        self.choices.learn(key, Some(name.clone()));
        format!("{name} answers from now on.")
    }

    /// Offers what can be typed after a slash, when that has changed.
    pub(super) fn offer_commands(&mut self) {
        if !self
            .settings
            .identities
            .iter()
            .any(|identity| identity.platform == MANIFEST_PLATFORM)
        {
            return;
        }
        let of_agents: Vec<AgentCommand> = self
            .crew
            .agents()
            .flat_map(|(_, agent)| agent.commands())
            .collect();
        if self.offered.as_ref() == Some(&of_agents) {
            return;
        }
        let on = |names: &[&str]| {
            self.settings
                .relay_commands
                .iter()
                .any(|on| names.contains(&on.as_str()))
        };
        let own = COMMANDS
            .iter()
            .filter(|(names, _)| on(names))
            .map(|(names, what)| OfferedCommand {
                name: names[0].to_owned(),
                description: (*what).to_owned(),
                options: None,
            });
        let theirs = of_agents.iter().map(|command| OfferedCommand {
            name: command.name.clone(),
            description: command.description.clone(),
            options: None,
        });
        let all = own
            .chain(self.settings.offered_commands.iter().cloned())
            .chain(theirs);
        self.transport.offer_commands(MANIFEST_PLATFORM, manifest(all));
        self.offered = Some(of_agents);
    }

    fn told_help(&self) -> String {
        let on = |names: &&[&str]| {
            self.settings
                .relay_commands
                .iter()
                .any(|on| names.contains(&on.as_str()))
        };
        let lines: Vec<String> = COMMANDS
            .iter()
            .filter(|(names, _)| on(names))
            .map(|(names, what)| format!("/{}: {what}", names.join(" or /")))
            .collect();
        format!("{}\nEverything else goes to the agent.", lines.join("\n"))
    }
}

/// Where the journal keeps who was chosen for a session.
pub(super) fn choice_key(key: &SessionKey) -> std::sync::Arc<str> {
    format!("{}#agent", key.as_str()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_its_first_word_whatever_the_case_and_only_when_it_is_on() {
        let on = ["stop", "reset", "agent"].map(str::to_owned);
        let read = |text| RelayCommand::read(text, &on);
        assert_eq!(read(" /STOP@my_bot now"), Some(RelayCommand::Stop));
        assert_eq!(read("/new"), Some(RelayCommand::New));
        assert_eq!(
            read("/agent  code x"),
            Some(RelayCommand::Agent(Some("code".to_owned())))
        );
        assert_eq!(read("/agent"), Some(RelayCommand::Agent(None)));
        for text in ["/help", "stop", "/stopping", "/", "", "// stop"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
