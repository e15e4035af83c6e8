//! Which agent answers somewhere, as far as that has to be read: what people chose, and the project of a chat or a thread. And
//! `/project`.

use smol_str::SmolStr;

use crate::adapter::{AnswerShaper, Chat, ChatId, RelayAdapter};
use crate::relay::effects::{AgentWaiter, CommandCall, OwnerKey, Pending, PlaceKey};
use crate::relay::event_loop::EventLoop;
use crate::relay::ops::OpGroup;
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::agents::{choice_key, places, project_key};
use crate::session::TurnId;
use crate::store::{Command, RowState};
use crate::text::printable;
use crate::wire::SessionKey;
use crate::words::ChatPhrase;

use super::command::route_input;

impl EventLoop {
    /// Reads which project a place has, for whoever waits for it.
    pub fn read_project(&mut self, place: PlaceKey, waiter: AgentWaiter) {
        let session = project_key(&place);
        self.effects
            .request(Pending::Project(place, waiter), |token| Command::LoadResume {
                token,
                session,
            });
    }

    /// Reads which agent people chose for a session, for whoever waits for it.
    pub fn read_choice(&mut self, session: SessionKey, waiter: AgentWaiter) {
        let key = choice_key(&session);
        let pending = Pending::AgentChoice(session, waiter);
        self.effects
            .request(pending, |token| Command::LoadResume { token, session: key });
    }

    /// The journal knows which project a place has.
    pub fn project_known(&mut self, place: &PlaceKey, waiter: AgentWaiter, saved: Option<Vec<u8>>) {
        self.agents.learn_project(place, saved);
        self.go_on(waiter);
    }

    /// The journal knows which agent people chose for a session. A message outside threads, if it is a session of its own, begins with
    /// what they chose for its chat.
    pub fn choice_known(&mut self, session: &SessionKey, waiter: AgentWaiter, choice: Option<Vec<u8>>) {
        if let Some(agent) = self.agents.learn_choice(session, choice) {
            tracing::warn!(
                session = session.as_str(),
                agent = %printable(&agent, 80),
                "the agent that was chosen for a session is gone or cannot be chosen; another one answers"
            );
        }
        if let AgentWaiter::Turn(turn) = &waiter
            && let Some(origin) = self.turns.origin(*turn)
            && let Some(of_chat) = self.chats.session_of_chat(&origin.chat)
        {
            if self.agents.is_choice_unknown(&of_chat) {
                return self.read_choice(of_chat, waiter);
            }
            let (now_ms, effects) = (self.clock.unix_ms(), &mut self.effects);
            (self.agents).inherit_choice(&origin.session, &of_chat, now_ms, effects);
        }
        self.go_on(waiter);
    }

    fn go_on(&mut self, waiter: AgentWaiter) {
        match waiter {
            AgentWaiter::Turn(turn) => self.prepare_again(turn),
            AgentWaiter::Command(call) => self.run_command(&call),
            AgentWaiter::Thread(key) => self.open_thread(key),
        }
    }

    /// A message is in a thread that nobody was asked about yet: it has the project of the group that the relay opened it in or, if
    /// the message itself starts the thread, of its chat; else an owner is asked.
    pub fn ask_about_thread(&mut self, turn: TurnId, place: &PlaceKey) {
        let Some(origin) = self.turns.origin(turn) else {
            return;
        };
        let (platform, thread) = (&origin.chat.id.platform, origin.chat.facts.thread_id.as_deref());
        let group = thread.and_then(|thread| self.group_threads.parent(platform, thread));
        let group = group.map(|chat| ChatId {
            platform: platform.clone(),
            chat: chat.into(),
        });
        let starts_it = self.chats.is_separate_in(&origin.chat);
        let group = group.or_else(|| starts_it.then(|| origin.chat.id.clone()));
        match group.map(Chat::from) {
            Some(group) if !self.inherit_project(turn, place, &group) => return,
            Some(_) => {}
            None => self.ask_about_project(place, &origin),
        }
        self.prepare_again(turn);
    }

    /// What rewrites an answer for its chat. The first one of a conversation says its project.
    pub fn answer_shaper(
        &self,
        adapter: &RelayAdapter,
        origin: &TurnOrigin,
        sends_files: bool,
        is_first: bool,
    ) -> AnswerShaper {
        let mut shaper = adapter.answer_shaper(&origin.chat.facts, sends_files);
        if let Some(header) = self.project_header(origin).filter(|_| is_first) {
            shaper.set_header(header);
        }
        shaper
    }

    /// The line above the first answer of a conversation: its project, where there are several and no name of a thread says it.
    fn project_header(&self, origin: &TurnOrigin) -> Option<String> {
        let (platform, thread) = (&origin.chat.id.platform, origin.chat.facts.thread_id.as_deref());
        let is_named = |thread: &str| self.group_threads.parent(platform, thread).is_some();
        if thread.is_some_and(is_named) {
            return None;
        }
        let project = (self.agents).shown_project(&route_input(&origin.chat))?;
        Some(format!("[{project}]"))
    }

    fn ask_about_project(&mut self, place: &PlaceKey, origin: &TurnOrigin) {
        let (now_ms, effects) = (self.clock.unix_ms(), &mut self.effects);
        self.agents.bind(place.clone(), None, now_ms, effects);
        let text = self.language(&origin.chat).say(ChatPhrase::ProjectAsked);
        let group = self.outbox.notice_group();
        let ops = self.plan_projects(&text, None, origin, group);
        self.add_ops(ops, None);
    }

    /// `/project`: lists the projects, or sets the one of this place; an owner's alone.
    pub fn run_project_command(&mut self, owner: &OwnerKey, name: Option<&str>, call: &CommandCall) {
        let chat = &call.origin.chat;
        let Some(name) = name else {
            let current = self.agents.project(&route_input(chat)).map(|(name, _)| name);
            let text = self.language(chat).say(match &current {
                Some(project) => ChatPhrase::ProjectHere { project },
                None => ChatPhrase::ProjectNone,
            });
            let asked_by = chat.facts.user_id.as_ref().map(SmolStr::to_string);
            let ops = self.plan_projects(&text, asked_by, &call.origin, OpGroup::Message(call.row));
            return self.end_row(call.row, RowState::Done, ops, None);
        };
        let answer = self.set_project(owner, name, &call.origin);
        self.answer_command(&answer, call);
    }

    fn set_project(&mut self, owner: &OwnerKey, name: &str, origin: &TurnOrigin) -> String {
        let TurnOrigin {
            session,
            chat,
            author,
            ..
        } = origin;
        let language = self.language(chat);
        if !self.access.acts_as_owner(author) {
            return language.say(ChatPhrase::ProjectOwnersOnly);
        }
        let input = route_input(chat);
        if self.agents.is_routed(&input) {
            return language.say(ChatPhrase::ProjectRouted);
        }
        let project = self.agents.find_project(name);
        if project.is_none() && name != "off" {
            let known: Vec<&str> = self.agents.projects().map(String::as_str).collect();
            return language.say(ChatPhrase::ProjectUnknown {
                name: &printable(name, 40),
                projects: &known.join(", "),
            });
        }
        if self.turns.sessions().turn_of(session).is_some() {
            return language.say(ChatPhrase::ProjectBusy);
        }
        // Outside threads it is for the chat, and for what is replied to the command.
        let is_for_chat = self.chats.is_separate_in(chat);
        let count = if is_for_chat { usize::MAX } else { 1 };
        let (now_ms, effects) = (self.clock.unix_ms(), &mut self.effects);
        for place in places(&input).take(count) {
            self.agents.bind(place, project.clone(), now_ms, effects);
        }
        // Another directory is another conversation.
        if self.conversations.knows(owner) {
            self.conversations.leave(owner, session, "", now_ms, effects);
        }
        let agent = &self.answering(origin).agent.name;
        language.say(match &project {
            Some(project) => ChatPhrase::ProjectSet { project, agent },
            None => ChatPhrase::ProjectUnset { agent },
        })
    }

    fn plan_projects(
        &mut self,
        text: &str,
        asked_by: Option<String>,
        origin: &TurnOrigin,
        group: OpGroup,
    ) -> crate::relay::ops::DurableOps {
        let TurnOrigin { session, chat, .. } = origin;
        let names: Vec<String> = self.agents.projects().cloned().collect();
        let lines: Vec<String> = (names.iter().zip(1..))
            .map(|(name, number)| format!("{number}. {name}"))
            .collect();
        let text = format!("{text}\n{}", lines.join("\n"));
        let entries = names
            .into_iter()
            .map(|name| (name.clone(), format!("/project {name}")));
        let of_chat = self.chats.session_of_chat(chat);
        let actions = self.show_list(&text, entries.collect(), asked_by, of_chat, origin);
        self.plan_actions(&actions, session, &chat.id, group)
    }
}
