//! `/sessions` and `/resume`: the conversations of whoever asks and, for owners, those that were begun without the relay.
//!
//! Those come from the agent. It lists the sessions of everybody, so those that the relay has saved are taken out of its list
//! before anybody sees it; a choice is looked up in a list that was made in the same way, never taken by its name alone.

use serde_json::Value;

use crate::agent::ListedSession;
use crate::relay::effects::{Listing, Pending, SelectedAgent};
use crate::relay::event_loop::EventLoop;
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::agents::state_key;
use crate::relay::parts::conversations::{Conversation, MAX_LISTED, Use, describe_listed, listed_title};
use crate::relay::parts::slash_commands::SlashCommand;
use crate::store::Command;
use crate::wire::SessionKey;
use crate::words::{ChatPhrase, Language};

/// What a choice means.
enum ChosenConversation<'l> {
    Own(&'l Conversation),
    Listed(&'l ListedSession),
}

impl EventLoop {
    /// `/sessions` and `/resume`, once the conversations of whoever asks are known. Owners wait for what the agent lists, unless
    /// what they chose is a conversation of theirs.
    pub fn choose_conversation(&mut self, listing: Listing) {
        let (selected, recent) = self.recent_conversations(&listing);
        let is_found = match &listing.call.command {
            SlashCommand::Resume(choice) => {
                find(choice, &recent, &[], self.reader_language(&listing)).is_some()
            }
            _ => false,
        };
        if is_found || !selected.agent.info().remembers || !self.sees_all_sessions(&listing) {
            return self.sessions_sorted(&listing, &[]);
        }
        self.turns.answer_later(listing.call.row);
        self.listings.ask(listing, selected.agent, selected.workdir);
    }

    /// Whether somebody sees sessions that were begun without the relay: an owner, in a conversation of their own.
    fn sees_all_sessions(&self, Listing { call, .. }: &Listing) -> bool {
        let source = self.chats.source(&call.origin.chat);
        self.chats.is_personal(&source) && self.access.acts_as_owner(&call.origin.author)
    }

    /// An agent has listed its sessions: which of them are not conversations of the relay?
    pub fn sessions_listed(&mut self, listing: Listing, listed: Vec<ListedSession>) {
        if listed.is_empty() {
            return self.sessions_sorted(&listing, &listed);
        }
        // As it stands in what an agent saved.
        let texts = listed.iter().map(|session| Value::from(&*session.id).to_string());
        let texts = texts.collect();
        let pending = Pending::ListedSessions(Box::new(listing), listed);
        self.effects
            .request(pending, |token| Command::FindResume { token, texts });
    }

    /// What can be chosen is known, and `others` is what nobody has in the relay.
    pub fn sessions_sorted(&mut self, listing: &Listing, others: &[ListedSession]) {
        let (selected, recent) = self.recent_conversations(listing);
        let others = &others[..others.len().min(MAX_LISTED)];
        let agent = &*selected.name;
        let language = self.reader_language(listing);
        let answer = if !selected.agent.info().remembers {
            language.say(ChatPhrase::KeepsNoConversations { agent })
        } else if recent.is_empty() && others.is_empty() {
            language.say(ChatPhrase::NoConversationsYet { agent })
        } else {
            match &listing.call.command {
                SlashCommand::Resume(choice) => match find(choice, &recent, others, language) {
                    Some(ChosenConversation::Own(chosen)) => self.resume_conversation(listing, chosen),
                    Some(ChosenConversation::Listed(chosen)) => {
                        self.adopt_session(listing, &selected, chosen)
                    }
                    None => language.say(ChatPhrase::ConversationUnknown),
                },
                _ => return self.show_conversations(listing, agent, &recent, others),
            }
        };
        self.answer_command(&answer, &listing.call);
    }

    fn reader_language(&self, Listing { call, .. }: &Listing) -> Language {
        self.language(&call.origin.chat)
    }

    /// The agent that answers here, and the last conversations with it.
    fn recent_conversations(
        &mut self,
        Listing { owner, call }: &Listing,
    ) -> (SelectedAgent, Vec<Conversation>) {
        let selected = self.answering(&call.origin).agent;
        let workdir = selected.workdir.as_deref().and_then(std::path::Path::to_str);
        let recent = self.conversations.recent(owner, &selected.name, workdir);
        (selected, recent)
    }

    fn show_conversations(
        &mut self,
        listing: &Listing,
        agent: &str,
        recent: &[Conversation],
        others: &[ListedSession],
    ) {
        let session = &listing.call.origin.session;
        let (language, now_ms) = (self.reader_language(listing), self.clock.unix_ms());
        let own = recent
            .iter()
            .map(|known| known.describe(session, language, now_ms));
        let all = own.chain(
            others
                .iter()
                .map(|other| describe_listed(other, language, now_ms)),
        );
        let lines: Vec<String> = all
            .zip(1..)
            .map(|(line, number)| format!("{number}. {line}"))
            .collect();
        let text = language.say(ChatPhrase::ConversationList {
            agent,
            list: &lines.join("\n"),
        });
        let own = recent.iter().map(|known| {
            let choice = format!("/resume #{}", known.number);
            (known.title(language).to_owned(), choice)
        });
        let others = others.iter().map(|other| {
            let choice = format!("/resume ={}", other.id);
            (listed_title(other, language).to_owned(), choice)
        });
        let entries = own.chain(others).collect();
        self.answer_with_list(&text, entries, None, &listing.call);
    }

    fn is_busy(&self, session: &SessionKey) -> bool {
        self.turns.sessions().turn_of(session).is_some()
    }

    fn resume_conversation(&mut self, listing: &Listing, chosen: &Conversation) -> String {
        let (language, session) = (self.reader_language(listing), &listing.call.origin.session);
        let title = chosen.title(language);
        if chosen.is_in(session) {
            return language.say(ChatPhrase::ConversationHere { title });
        }
        if self.is_busy(session) || chosen.session().is_some_and(|other| self.is_busy(&other)) {
            return language.say(ChatPhrase::ConversationsBusy);
        }
        let (now_ms, effects) = (self.clock.unix_ms(), &mut self.effects);
        self.conversations
            .resume(&listing.owner, session, chosen.number, now_ms, effects);
        language.say(ChatPhrase::ConversationResumed { title })
    }

    /// This chat goes on with a session that was begun without the relay.
    fn adopt_session(&mut self, listing: &Listing, agent: &SelectedAgent, chosen: &ListedSession) -> String {
        let language = self.reader_language(listing);
        let TurnOrigin { session, chat, .. } = &*listing.call.origin;
        if self.is_busy(session) {
            return language.say(ChatPhrase::ConversationsBusy);
        }
        let kind = chat.facts.chat_type.as_deref().unwrap_or("chat");
        let now_ms = self.clock.unix_ms();
        let used = Use {
            session,
            agent: &agent.name,
            workdir: agent.workdir.as_deref().and_then(std::path::Path::to_str),
            text: &chosen.title,
            place: &format!("{} {kind}", chat.id.platform),
            now_ms,
        };
        let adopted = self.conversations.adopt(&listing.owner, used, &mut self.effects);
        self.effects.write(Command::SetResume {
            session: state_key(&adopted.key, &agent.name),
            blob: chosen.state.clone(),
            now_ms,
        });
        if let Some(dropped) = adopted.dropped {
            self.agents.forget(&dropped, None, &mut self.effects);
        }
        language.say(ChatPhrase::ConversationResumed {
            title: listed_title(chosen, language),
        })
    }
}

/// What somebody means: the mark of a button, a number of the list, or a title.
fn find<'l>(
    choice: &str,
    own: &'l [Conversation],
    others: &'l [ListedSession],
    language: Language,
) -> Option<ChosenConversation<'l>> {
    if let Some(number) = choice.strip_prefix('#') {
        let known = own.iter().find(|known| Ok(known.number) == number.parse());
        return known.map(ChosenConversation::Own);
    }
    if let Some(id) = choice.strip_prefix('=') {
        return others
            .iter()
            .find(|other| other.id == id)
            .map(ChosenConversation::Listed);
    }
    if let Ok(number) = choice.parse::<usize>() {
        let at = number.checked_sub(1)?;
        let other = || at.checked_sub(own.len()).and_then(|at| others.get(at));
        return own
            .get(at)
            .map(ChosenConversation::Own)
            .or_else(|| other().map(ChosenConversation::Listed));
    }
    let is_it = |title: &str| title.eq_ignore_ascii_case(choice);
    let known = own.iter().find(|known| is_it(known.title(language)));
    let other = || others.iter().find(|other| is_it(&other.title));
    known
        .map(ChosenConversation::Own)
        .or_else(|| other().map(ChosenConversation::Listed))
}
