//! Conversations: which one a turn belongs to, and `/new`.

use crate::adapter::Chat;
use crate::relay::effects::{AboutTurn, CommandCall, Listing, OwnerKey, Pending, SelectedAgent, Task};
use crate::relay::event_loop::EventLoop;
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::access::Starter;
use crate::relay::parts::agents::Selection;
use crate::relay::parts::conversations::{Use, book_key};
use crate::relay::parts::slash_commands::SlashCommand;
use crate::session::TurnId;
use crate::store::Command;
use crate::text::printable;
use crate::wire::SessionKey;
use crate::words::ChatPhrase;

impl EventLoop {
    /// Whose conversations those of a session are: a person's, or those of a chat that several people share.
    fn conversation_owner(&self, session: &SessionKey, chat: &Chat) -> OwnerKey {
        let source = self.chats.source(chat);
        let author = self.access.author(Starter::Message(&source));
        match author.person().filter(|_| self.chats.is_personal(&source)) {
            Some(person) => person.to_string().into(),
            None => session.shared(),
        }
    }

    /// Whose conversations those of a turn are. What a program hands over belongs where the messages of its session do.
    fn turn_owner(&self, origin: &TurnOrigin) -> OwnerKey {
        let handed_to = Some(&origin.session).filter(|_| origin.author.is_operator());
        match handed_to.and_then(|session| self.chats.person_of_session(session)) {
            Some(chat) => self.conversation_owner(&origin.session, &chat),
            None => self.conversation_owner(&origin.session, &origin.chat),
        }
    }

    /// Whether a turn has to wait until the conversations of its owner are read; then they are asked for.
    pub fn awaits_conversations(&mut self, turn: TurnId, selection: &Selection) -> bool {
        let Some(origin) = self.turns.origin(turn) else {
            return false;
        };
        let is_job = matches!(self.turns.preparing(turn), Some((_, _, Task::Job(_))));
        if is_job || !selection.agent.agent.info().remembers {
            return false;
        }
        let owner = self.turn_owner(&origin);
        if self.conversations.knows(&owner) {
            return false;
        }
        let session = book_key(&owner);
        self.effects
            .request(Pending::Conversations(turn, owner), |token| Command::LoadResume {
                token,
                session,
            });
        true
    }

    /// The journal has the conversations that a turn waits for.
    pub fn conversations_known(&mut self, turn: TurnId, owner: &OwnerKey, saved: Option<Vec<u8>>) {
        self.conversations.learn(owner, saved);
        self.prepare_again(turn);
    }

    /// The key of the conversation that a turn belongs to, and whether it begins with it. `said` is the text that may be its title.
    pub fn enter_conversation(
        &mut self,
        origin: &TurnOrigin,
        agent: &SelectedAgent,
        said: Option<&String>,
    ) -> (SessionKey, bool) {
        if !agent.agent.info().remembers {
            return (origin.session.clone(), false);
        }
        let owner = self.turn_owner(origin);
        let workdir = agent.workdir.as_deref().and_then(std::path::Path::to_str);
        let kind = origin.chat.facts.chat_type.as_deref().unwrap_or("chat");
        let used = Use {
            session: &origin.session,
            agent: &agent.name,
            workdir,
            text: said.map_or("", String::as_str),
            place: &format!("{} {kind}", origin.chat.id.platform),
            now_ms: self.clock.unix_ms(),
        };
        let entered = self.conversations.begin(&owner, used, &mut self.effects);
        if let Some(dropped) = entered.dropped {
            self.agents.forget(&dropped, None, &mut self.effects);
        }
        (entered.key, entered.is_new)
    }

    /// The agent gave a conversation a title.
    pub fn entitle_conversation(&mut self, origin: &TurnOrigin, title: &str) {
        let owner = self.turn_owner(origin);
        if self.conversations.knows(&owner) {
            let (now_ms, effects) = (self.clock.unix_ms(), &mut self.effects);
            self.conversations
                .entitle(&owner, &origin.session, title, now_ms, effects);
        }
    }

    /// `/new`, `/sessions` and `/resume`, once the conversations are known.
    pub fn run_conversation_command(&mut self, call: &CommandCall) {
        let origin = &*call.origin;
        let owner = self.conversation_owner(&origin.session, &origin.chat);
        // An agent that remembers nothing has no conversations that would have to be read.
        let remembers = self.answering(origin).agent.agent.info().remembers;
        if remembers && !self.conversations.knows(&owner) {
            self.turns.answer_later(call.row);
            let key = book_key(&owner);
            let pending = Pending::CommandConversations(owner, Box::new(call.clone()));
            self.effects
                .request(pending, |token| Command::LoadResume { token, session: key });
            return;
        }
        match &call.command {
            SlashCommand::Resume(_) | SlashCommand::Sessions => {
                let call = Box::new(call.clone());
                self.choose_conversation(Listing { owner, call });
            }
            SlashCommand::New(title) => {
                self.new_conversation(&owner, title, call);
                let language = self.language(&origin.chat);
                let answer = match title.as_str() {
                    "" => language.say(ChatPhrase::NewConversation),
                    title => language.say(ChatPhrase::NewConversationNamed {
                        title: &printable(title, 60),
                    }),
                };
                self.answer_command(&answer, call);
            }
            SlashCommand::Project(name) => self.run_project_command(&owner, name.as_deref(), call),
            _ => {}
        }
    }

    /// The journal has the conversations that a command waits for.
    pub fn command_conversations_known(
        &mut self,
        owner: &OwnerKey,
        call: &CommandCall,
        saved: Option<Vec<u8>>,
    ) {
        self.conversations.learn(owner, saved);
        self.run_conversation_command(call);
    }

    fn new_conversation(&mut self, owner: &OwnerKey, title: &str, call: &CommandCall) {
        let TurnOrigin { session, author, .. } = &*call.origin;
        if let AboutTurn::Running(turns) = &call.about {
            self.stop_turns(turns);
        }
        self.access.resume(author);
        let (now_ms, effects) = (self.clock.unix_ms(), &mut self.effects);
        let is_kept = self.conversations.knows(owner)
            && self.conversations.leave(owner, session, title, now_ms, effects);
        if !is_kept {
            // What an agent without conversations remembers is forgotten.
            let running = self.turns.forget(session);
            self.agents.forget(session, running, &mut self.effects);
        }
    }
}
