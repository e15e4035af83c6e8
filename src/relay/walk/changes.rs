//! Commands that take a turn of their own, and `/diff`: what the agent changed in the last turn of a conversation.

use crate::adapter::CodeFile;
use crate::relay::effects::SelectedAgent;
use crate::relay::event_loop::EventLoop;
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::slash_commands::SlashCommand;
use crate::relay::parts::turn_task::InsteadOfAnswer;
use crate::text::truncate_bytes;
use crate::wire::SessionKey;
use crate::words::{ChatPhrase, PhraseKey};

/// Bytes of a diff where it is a text: a chat is no place for more.
const MAX_TEXT_BYTES: usize = 6000;

impl EventLoop {
    /// What a turn of a command does in place of running its agent.
    pub fn instead_of_answer(
        &mut self,
        command: SlashCommand,
        conversation: &SessionKey,
        origin: &TurnOrigin,
        agent: &SelectedAgent,
        sends_files: bool,
    ) -> Option<InsteadOfAnswer> {
        match command {
            SlashCommand::Prefer(request) => Some(InsteadOfAnswer::Prefer(request)),
            SlashCommand::Diff => Some(self.show_changes(conversation, origin, agent, sends_files)),
            _ => None,
        }
    }

    /// What is shown of the last turn's changes: a file, or a text where the platform takes none.
    fn show_changes(
        &mut self,
        conversation: &SessionKey,
        origin: &TurnOrigin,
        agent: &SelectedAgent,
        sends_files: bool,
    ) -> InsteadOfAnswer {
        let language = self.language(&origin.chat);
        let last = self.changes.last(conversation);
        let Some(mut diff) = last
            .clone()
            .filter(|diff| !diff.text.is_empty() || diff.left_out > 0)
        else {
            let agent_name = &agent.name;
            let text = match last {
                _ if !agent.agent.reports_changes() => {
                    language.say(ChatPhrase::ReportsNoChanges { agent: agent_name })
                }
                Some(_) => language.say(ChatPhrase::NothingChanged { agent: agent_name }),
                None => language.plain(PhraseKey::NoTurnYet).to_owned(),
            };
            return InsteadOfAnswer::Show(text, None);
        };
        if !sends_files && diff.text.len() > MAX_TEXT_BYTES {
            let kept = truncate_bytes(&diff.text, MAX_TEXT_BYTES).len();
            diff.text.truncate(kept);
            diff.text.push_str("\n...\n");
        }
        let text = match diff.left_out {
            0 => String::new(),
            count => language.say(ChatPhrase::ChangesLeftOut { count }),
        };
        let file = (!diff.text.is_empty()).then(|| CodeFile::of_changes(diff.text));
        InsteadOfAnswer::Show(text, file)
    }
}
