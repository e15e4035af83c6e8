//! The agents of one relay: the registry, and which of them answers a message.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::agent::{
    Agent, AgentCommand, AgentPool, Permission, Project, Route, RouteInput, UnknownAgent, addressed,
    built_in, fixed_route, match_route,
};
use crate::collections::{BoundedCache, TextMap};
use crate::config::{DEFAULT_AGENT, Settings};
use crate::relay::effects::{Effects, PlaceKey, SelectedAgent};
use crate::store::Command;
use crate::text::printable;
use crate::wire::{MessageEvent, Scalar, SessionKey};
use crate::words::{ChatPhrase, Language, PhraseKey};

/// Sessions whose chosen agent is cached; others are read from the journal again.
const MAX_CACHED_CHOICES: usize = 4096;
/// How long the agents may take to forget a session.
const FORGET_TIMEOUT: Duration = Duration::from_secs(60);

/// An agent and what holds for it wherever no route says otherwise.
#[derive(Clone)]
pub struct AgentSlot {
    /// The agent.
    pub agent: Arc<dyn Agent>,
    /// Who decides what it asks.
    pub permission: Permission,
    /// The directory it works in.
    pub workdir: Option<PathBuf>,
    /// Whether people may choose it with `/agent`.
    pub choosable: bool,
}

impl AgentSlot {
    /// An agent that asks people, works where it likes and can be chosen.
    pub fn new(agent: Arc<dyn Agent>) -> Self {
        Self {
            agent,
            permission: Permission::Ask,
            workdir: None,
            choosable: true,
        }
    }
}

/// What has to be read before it is known who answers.
#[derive(Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Which project this chat or thread has.
    Project(PlaceKey),
    /// Whether an owner is asked for the project of this thread.
    NewThread(PlaceKey),
    /// Which agent people chose for the session.
    Choice,
}

/// What is known of the project of a chat or a thread.
#[derive(Debug)]
enum PlaceProject {
    /// Nobody set one, and nobody was asked.
    Unasked,
    /// There is none.
    None,
    /// An owner set this one.
    Project(String),
}

impl PlaceProject {
    fn project(&self) -> Option<&String> {
        match self {
            Self::Project(name) => Some(name),
            Self::Unasked | Self::None => None,
        }
    }
}

impl From<Option<String>> for PlaceProject {
    fn from(project: Option<String>) -> Self {
        project.map_or(Self::None, Self::Project)
    }
}

/// The agent that answers one message.
pub struct Selection {
    pub agent: SelectedAgent,
    /// The text, when a route's prefix was removed.
    pub text: Option<String>,
}

impl Selection {
    /// This agent on its own terms.
    fn new((name, slot): (&Arc<str>, &AgentSlot)) -> Self {
        Self {
            agent: SelectedAgent {
                name: Arc::clone(name),
                agent: Arc::clone(&slot.agent),
                permission: slot.permission,
                set_permission: slot.permission,
                workdir: slot.workdir.clone(),
            },
            text: None,
        }
    }

    /// The terms that a route sets.
    fn take_terms(&mut self, route: &Route) {
        if let Some(permission) = route.permission {
            (self.agent.permission, self.agent.set_permission) = (permission, permission);
        }
        if let Some(workdir) = &route.workdir {
            self.agent.workdir = Some(workdir.clone());
        }
    }
}

/// All agents of a relay; there is always one.
pub struct AgentRegistry {
    slots: BTreeMap<Arc<str>, AgentSlot>,
    default: (Arc<str>, AgentSlot),
    routes: Vec<Route>,
    projects: BTreeMap<String, Project>,
    /// What is known of the projects of chats and threads.
    bindings: BoundedCache<PlaceKey, PlaceProject>,
    /// The agent that people chose for a session, or that they chose none.
    choices: BoundedCache<SessionKey, Option<Arc<str>>>,
    /// Sessions that the agents are about to forget; each token is cancelled once they have.
    forgetting: TextMap<SessionKey, CancellationToken>,
    forget_tasks: JoinSet<()>,
    /// Whether no agent does anything but answer.
    are_repeatable: bool,
}

impl AgentRegistry {
    /// The agents that were added and those that routes name. `settings.agent` names the one that answers what no route
    /// takes; the first that was added when it is empty.
    pub fn new(settings: &Settings, mut agents: Vec<(String, AgentSlot)>) -> Result<Self, UnknownAgent> {
        let name = match (settings.agent.as_str(), agents.first()) {
            ("", Some((first, _))) => first.clone(),
            ("", None) => DEFAULT_AGENT.to_owned(),
            (named, _) => named.to_owned(),
        };
        let default = match agents.iter().position(|(known, _)| *known == name) {
            Some(at) => agents.swap_remove(at).1,
            None => AgentSlot::new(built_in(&name)?),
        };
        let mut routes = settings.routes.clone();
        for route in &mut routes {
            if let Some(project) = route
                .project
                .as_ref()
                .and_then(|project| settings.projects.get(project))
            {
                project.complete(route, &name);
            }
        }
        let of_projects = settings
            .projects
            .values()
            .filter_map(|project| project.agent.as_ref());
        for agent in routes.iter().map(|route| &route.agent).chain(of_projects) {
            let known = *agent == name || agents.iter().any(|(known, _)| known == agent);
            if !known {
                agents.push((agent.clone(), AgentSlot::new(built_in(agent)?)));
            }
        }
        let default: (Arc<str>, AgentSlot) = (name.into(), default);
        let mut slots: BTreeMap<Arc<str>, AgentSlot> = agents
            .into_iter()
            .map(|(name, slot)| (Arc::from(name), slot))
            .collect();
        slots.insert(Arc::clone(&default.0), default.1.clone());
        Ok(Self {
            are_repeatable: slots.values().all(|slot| slot.agent.info().repeatable),
            slots,
            default,
            routes,
            projects: settings.projects.clone(),
            bindings: BoundedCache::new(MAX_CACHED_CHOICES),
            choices: BoundedCache::new(MAX_CACHED_CHOICES),
            forgetting: TextMap::default(),
            forget_tasks: JoinSet::new(),
        })
    }

    /// Every agent once.
    pub fn agents(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<dyn Agent>)> {
        self.slots.iter().map(|(name, slot)| (name, &slot.agent))
    }

    /// The commands that agents offer.
    pub fn commands(&self) -> Vec<AgentCommand> {
        self.agents().flat_map(|(_, agent)| agent.commands()).collect()
    }

    /// The pools of workers that they use.
    pub fn pools(&self) -> Vec<AgentPool> {
        AgentPool::merged(self.agents().filter_map(|(_, agent)| agent.pool()))
    }

    /// The commands that one agent offers.
    pub fn commands_of(&self, name: &str) -> Vec<AgentCommand> {
        self.slots
            .get(name)
            .map(|slot| slot.agent.commands())
            .unwrap_or_default()
    }

    /// Whether running any turn twice does no harm.
    pub fn are_repeatable(&self) -> bool {
        self.are_repeatable
    }

    /// Whether there is an agent of this name that takes up turns again which an earlier process left with an open question.
    pub fn resumes(&self, name: &str) -> bool {
        (self.slots.get(name)).is_some_and(|slot| slot.agent.info().resumes)
    }

    /// What has to be read before it is known who answers a session's messages, whatever its project becomes.
    pub fn unknown(&self, session: &SessionKey, input: &RouteInput<'_>) -> Option<Unknown> {
        if self.is_routed(input) {
            return None;
        }
        let place = self.unknown_place(input).map(Unknown::Project);
        place.or_else(|| self.is_choice_unknown(session).then_some(Unknown::Choice))
    }

    /// Whether it has to be read which agent people chose for a session.
    pub fn is_choice_unknown(&self, session: &SessionKey) -> bool {
        self.slots.len() > 1 && self.choices.peek(session).is_none()
    }

    /// The agent that answers a message: by its route, else by whom it is addressed to, else as [`Self::answering`] says. An error
    /// while something is not known that matters.
    pub fn select(
        &mut self,
        session: &SessionKey,
        event: &MessageEvent,
        allowed: Option<&[String]>,
    ) -> Result<Selection, Unknown> {
        let source = &event.source;
        let [chat, thread, user, profile] = [
            &source.chat_id,
            &source.thread_id,
            &source.user_id,
            &source.profile,
        ]
        .map(|field| field.as_ref().map_or("", Scalar::as_str));
        let input = RouteInput {
            platform: source.platform.as_str(),
            chat,
            thread,
            user,
            profile,
            text: event.text(),
        };
        if let Some((route, rest)) = match_route(&self.routes, &input) {
            let mut routed = self.on_terms(route);
            routed.text = route.prefix.is_some().then(|| rest.to_owned());
            return Ok(routed);
        }
        if let Some(place) = self.unknown_place(&input) {
            return Err(Unknown::Project(place));
        }
        if let Some(thread) = self.new_thread(&input) {
            return Err(Unknown::NewThread(thread));
        }
        if self.slots.len() > 1
            && let Some((name, rest)) = addressed(event.text())
            && let Some(named) = self.find(name).filter(|name| may_use(allowed, name))
            && let Some(mut called) = self.called(&named, Some(&input))
        {
            called.text = Some(rest.to_owned());
            return Ok(called);
        }
        if self.is_choice_unknown(session) && self.bound_terms(&input).is_none() {
            return Err(Unknown::Choice);
        }
        Ok(self.answering(session, &input, allowed))
    }

    /// The agent that answers a session's messages which neither a prefix nor a name gives to another: that of the chat's route or
    /// project on its terms, else the one that people chose, else the default; as far as it is known.
    ///
    /// A writer who may use only some agents is answered by the one that would answer anybody, when it is among them, else
    /// by the default, else by the first of them; a route or a project holds, so that the gate refuses a writer who may not use its
    /// agent.
    pub fn answering(
        &mut self,
        session: &SessionKey,
        input: &RouteInput<'_>,
        allowed: Option<&[String]>,
    ) -> Selection {
        if let Some(terms) = self.fixed_terms(input) {
            return self.on_terms(&terms);
        }
        let chosen = self.choices.get(session).and_then(Option::as_ref);
        let chosen = chosen.filter(|name| may_use(allowed, name));
        if let Some(slot) = chosen.and_then(|name| self.slots.get_key_value(name)) {
            return Selection::new(slot);
        }
        let default = (&self.default.0, &self.default.1);
        let first = || {
            let mut allowed = allowed.into_iter().flatten();
            allowed.find_map(|name| self.slots.get_key_value(name.as_str()))
        };
        let own = (!may_use(allowed, default.0)).then(first).flatten();
        Selection::new(own.unwrap_or(default))
    }

    /// The agent of a job: by its name, the default one without a name. Where the operator or an owner set an agent for the chat that
    /// the job was made in, it is that one, on the terms of the route or the project.
    pub fn of_job(&self, name: Option<&str>, made_in: Option<&RouteInput<'_>>) -> Option<Selection> {
        if let Some(terms) = made_in.and_then(|made_in| self.fixed_terms(made_in)) {
            return Some(self.on_terms(&terms));
        }
        self.called(name.unwrap_or(&self.default.0), None)
    }

    /// An agent by its name. Where the route or the project of a chat names the same agent, its terms hold.
    pub fn called(&self, name: &str, chat: Option<&RouteInput<'_>>) -> Option<Selection> {
        let mut called = Selection::new(self.slots.get_key_value(name)?);
        let terms = chat.and_then(|chat| self.fixed_terms(chat));
        if let Some(terms) = terms.filter(|terms| terms.agent == name) {
            called.take_terms(&terms);
        }
        Some(called)
    }

    /// The agent that a route or a project names, on its terms.
    fn on_terms(&self, terms: &Route) -> Selection {
        let named = self.slots.get_key_value(terms.agent.as_str());
        let mut selection = Selection::new(named.unwrap_or((&self.default.0, &self.default.1)));
        selection.take_terms(terms);
        selection
    }

    /// The terms that hold in a chat whatever its messages begin with: those of a route, else those of the project that is set.
    fn fixed_terms(&self, input: &RouteInput<'_>) -> Option<Route> {
        fixed_route(&self.routes, input)
            .cloned()
            .or_else(|| self.bound_terms(input))
    }

    fn bound_terms(&self, input: &RouteInput<'_>) -> Option<Route> {
        let project = self.projects.get(self.bound_project(input)?)?;
        let mut terms = Route::default();
        project.complete(&mut terms, &self.default.0);
        Some(terms)
    }

    fn bound_project(&self, input: &RouteInput<'_>) -> Option<&String> {
        if self.projects.is_empty() {
            return None;
        }
        places(input).find_map(|place| self.bindings.peek(&place)?.project())
    }

    /// The project of a chat or a thread: its name, and whether a route sets it.
    pub fn project(&self, input: &RouteInput<'_>) -> Option<(String, bool)> {
        if let Some(route) = fixed_route(&self.routes, input) {
            return Some((route.project.clone()?, true));
        }
        let name = self.bound_project(input)?;
        self.projects.contains_key(name).then(|| (name.clone(), false))
    }

    /// The project of a chat or a thread that people are told: where there are several.
    pub fn shown_project(&self, input: &RouteInput<'_>) -> Option<String> {
        let project = || self.project(input).map(|(name, _)| name);
        (self.projects.len() > 1).then(project).flatten()
    }

    /// Whether a route sets the agent here, so that nobody sets a project.
    pub fn is_routed(&self, input: &RouteInput<'_>) -> bool {
        fixed_route(&self.routes, input).is_some()
    }

    /// The projects, by name.
    pub fn projects(&self) -> impl Iterator<Item = &String> {
        self.projects.keys()
    }

    /// The name of a project, as the settings write it.
    pub fn find_project(&self, name: &str) -> Option<String> {
        self.projects
            .keys()
            .find(|known| known.eq_ignore_ascii_case(name))
            .cloned()
    }

    /// A place of a message of which it is not known whether it has a project; none where there are no projects.
    pub fn unknown_place(&self, input: &RouteInput<'_>) -> Option<PlaceKey> {
        if self.projects.is_empty() || fixed_route(&self.routes, input).is_some() {
            return None;
        }
        places(input).find(|place| self.bindings.peek(place).is_none())
    }

    /// The thread of a message, if it has no project and nobody was asked for one.
    fn new_thread(&self, input: &RouteInput<'_>) -> Option<PlaceKey> {
        if self.projects.is_empty() || input.thread.is_empty() {
            return None;
        }
        let is_new = |place: &PlaceKey| matches!(self.bindings.peek(place), Some(PlaceProject::Unasked));
        places(input).next().filter(is_new)
    }

    /// What the journal knows of a place; something newer may be known already.
    pub fn learn_project(&mut self, place: &PlaceKey, saved: Option<Vec<u8>>) {
        if self.bindings.peek(place).is_none() {
            let binding = saved.map_or(PlaceProject::Unasked, |name| {
                let name = String::from_utf8(name).ok();
                name.filter(|name| !name.is_empty()).into()
            });
            self.bindings.insert(Arc::clone(place), binding);
        }
    }

    /// Sets the project of a place, or none.
    pub fn bind(&mut self, place: PlaceKey, project: Option<String>, now_ms: i64, effects: &mut Effects) {
        effects.write(Command::SetResume {
            session: project_key(&place),
            // An empty name: it has been asked for.
            blob: project.clone().unwrap_or_default().into_bytes(),
            now_ms,
        });
        self.bindings.insert(place, project.into());
    }

    /// The agents that somebody may choose from, and the one that answers, where there are several and no route sets one.
    pub fn offered(
        &mut self,
        session: &SessionKey,
        allowed: Option<&[String]>,
        input: &RouteInput<'_>,
    ) -> Option<(Arc<str>, Vec<Arc<str>>)> {
        if self.is_routed(input) || self.project(input).is_some() {
            return None;
        }
        let names: Vec<Arc<str>> = self.choosable(allowed).map(Arc::clone).collect();
        (names.len() > 1).then(|| (self.answering(session, input, allowed).agent.name, names))
    }

    /// A person lists the agents, or chooses one for a session by its name or its number in the list; returns the answer.
    pub fn choose(
        &mut self,
        session: &SessionKey,
        name: Option<&str>,
        allowed: Option<&[String]>,
        input: &RouteInput<'_>,
        (language, now_ms): (Language, i64),
        effects: &mut Effects,
    ) -> String {
        let agent = &self.answering(session, input, allowed).agent.name;
        if self.is_routed(input) {
            return language.say(ChatPhrase::AgentFixed { agent });
        }
        if let Some((project, _)) = &self.project(input) {
            return language.say(ChatPhrase::AgentOfProject { agent, project });
        }
        let agents = &self.choosable_names(allowed, language);
        let Some(name) = name else {
            return language.say(ChatPhrase::AgentList { agent, agents });
        };
        let by_number = || {
            let at = name.parse::<usize>().ok()?.checked_sub(1)?;
            self.choosable(allowed).nth(at).map(Arc::clone)
        };
        let named = self.find(name).filter(|name| may_use(allowed, name));
        let Some(chosen) = named.or_else(by_number) else {
            let name = &printable(name, 40);
            return language.say(ChatPhrase::AgentUnknown { name, agents });
        };
        effects.write(Command::SetResume {
            session: choice_key(session),
            blob: chosen.as_bytes().to_vec(),
            now_ms,
        });
        let answer = language.say(ChatPhrase::AgentChosen { agent: &chosen });
        self.choices.insert(session.clone(), Some(chosen));
        answer
    }

    /// The agents that people may choose, in the order of their numbers.
    fn choosable(&self, allowed: Option<&[String]>) -> impl Iterator<Item = &Arc<str>> {
        let choosable =
            (self.slots.iter()).filter(move |(name, slot)| slot.choosable && may_use(allowed, name));
        choosable.map(|(name, _)| name)
    }

    /// The names of the agents that people may choose.
    fn choosable_names(&self, allowed: Option<&[String]>, language: Language) -> String {
        let names: Vec<&str> = self.choosable(allowed).map(|name| &**name).collect();
        if names.is_empty() {
            return language.plain(PhraseKey::AgentNone).to_owned();
        }
        names.join(", ")
    }

    /// What the journal knows of a session's choice; something newer may be known already. Returns an agent that was chosen and
    /// cannot be any more.
    pub fn learn_choice(&mut self, session: &SessionKey, saved: Option<Vec<u8>>) -> Option<String> {
        if self.choices.get(session).is_some() {
            return None;
        }
        let name = saved.and_then(|name| String::from_utf8(name).ok());
        let choice = name.as_ref().and_then(|name| self.find(name));
        let gone = name.filter(|_| choice.is_none());
        self.choices.insert(session.clone(), choice);
        gone
    }

    /// A session begins with the agent that people chose for its chat, unless they chose one for it.
    pub fn inherit_choice(
        &mut self,
        session: &SessionKey,
        of_chat: &SessionKey,
        now_ms: i64,
        effects: &mut Effects,
    ) {
        let is_chosen = matches!(self.choices.peek(session), Some(Some(_)));
        if let Some(Some(chosen)) = self.choices.peek(of_chat).filter(|_| !is_chosen).cloned() {
            effects.write(Command::SetResume {
                session: choice_key(session),
                blob: chosen.as_bytes().to_vec(),
                now_ms,
            });
            self.choices.insert(session.clone(), Some(chosen));
        }
    }

    /// The name, as the settings write it, of an agent that people may choose.
    fn find(&self, name: &str) -> Option<Arc<str>> {
        let mut choosable = self.slots.iter().filter(|(_, slot)| slot.choosable);
        let (known, _) = choosable.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(Arc::clone(known))
    }

    /// Has the agents forget a session: after the turn that runs in it, and before the next.
    pub fn forget(
        &mut self,
        session: &SessionKey,
        running: Option<CancellationToken>,
        effects: &mut Effects,
    ) {
        let agents: Vec<Arc<dyn Agent>> = self.slots.values().map(|slot| Arc::clone(&slot.agent)).collect();
        for name in self.slots.keys() {
            effects.write(Command::DropResume {
                session: state_key(session, name),
            });
        }
        while self.forget_tasks.try_join_next().is_some() {}
        // Not every session has a next turn.
        self.forgetting.retain(|_, forgotten| !forgotten.is_cancelled());
        let forgotten = CancellationToken::new();
        self.forgetting.insert(session.clone(), forgotten.clone());
        let session = session.clone();
        self.forget_tasks.spawn(async move {
            // Also when an agent panics.
            let _forgotten = forgotten.drop_guard();
            if let Some(running) = running {
                running.cancelled().await;
            }
            let forget = async {
                for agent in &agents {
                    agent.forget(&session).await;
                }
            };
            if timeout(FORGET_TIMEOUT, forget).await.is_err() {
                tracing::warn!(
                    session = session.as_str(),
                    "timed out while an agent forgets a conversation"
                );
            }
        });
    }

    /// What the next turn of a session waits for: that the agents have forgotten it.
    pub fn pending_forget(&mut self, session: &SessionKey) -> Option<CancellationToken> {
        self.forgetting.remove(session)
    }

    /// Sessions that the agents are still about to forget.
    pub fn forgetting(&mut self) -> usize {
        self.forgetting.retain(|_, forgotten| !forgotten.is_cancelled());
        self.forgetting.len()
    }

    /// Shuts all agents down.
    pub async fn shutdown(&self) {
        futures_util::future::join_all(self.agents().map(|(_, agent)| agent.shutdown())).await;
    }
}

/// Whether somebody who may use only these agents, or all, may use this one.
fn may_use(allowed: Option<&[String]>, name: &str) -> bool {
    allowed.is_none_or(|allowed| allowed.iter().any(|own| own == name))
}

/// The places of a message: its thread, if it is in one, and its chat.
pub fn places(input: &RouteInput<'_>) -> impl Iterator<Item = PlaceKey> {
    let place = |thread: &str| -> PlaceKey { format!("{}:{}:{thread}", input.platform, input.chat).into() };
    let thread = (!input.thread.is_empty()).then(|| place(input.thread));
    thread.into_iter().chain([place("")])
}

/// Where the journal keeps the project of a place.
pub fn project_key(place: &PlaceKey) -> Arc<str> {
    format!("{place}#project").into()
}

/// Where the journal keeps the agent that was chosen for a session.
pub fn choice_key(session: &SessionKey) -> Arc<str> {
    format!("{}#agent", session.as_str()).into()
}

/// Where the journal keeps what an agent saved for a session.
pub fn state_key(session: &SessionKey, agent: &str) -> Arc<str> {
    format!("{}#memory:{agent}", session.as_str()).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::{AgentFuture, AgentInfo, EchoAgent, Turn, TurnEnd};

    /// Agents `code` and `ops`, and `root`, which nobody may choose; `code` answers what no route takes.
    fn registry(routes: Vec<Route>) -> AgentRegistry {
        let mut settings = Settings::embedded("/nowhere");
        settings.agent = "code".to_owned();
        settings.routes = routes;
        let slot = |name: &str, choosable| {
            let slot = AgentSlot {
                choosable,
                ..AgentSlot::new(Arc::new(EchoAgent))
            };
            (name.to_owned(), slot)
        };
        let agents = vec![slot("code", true), slot("ops", true), slot("root", false)];
        AgentRegistry::new(&settings, agents).unwrap()
    }

    fn route(agent: &str, set: impl FnOnce(&mut Route)) -> Route {
        let mut route = Route {
            agent: agent.to_owned(),
            ..Route::default()
        };
        set(&mut route);
        route
    }

    fn session() -> SessionKey {
        SessionKey::from_text("s")
    }

    fn in_chat(chat: &str) -> RouteInput<'_> {
        RouteInput {
            platform: "slack",
            chat,
            user: "u1",
            ..RouteInput::default()
        }
    }

    fn message(chat: &str, text: &str) -> MessageEvent {
        let source = json!({"platform": "slack", "chat_id": chat, "user_id": "u1"});
        MessageEvent::from_value(&json!({"text": text, "source": source})).unwrap()
    }

    #[test]
    fn a_route_without_a_prefix_holds_whatever_was_chosen() {
        let routes = vec![
            route("code", |route| route.prefix = Some("!code".to_owned())),
            route("ops", |route| {
                route.chat = Some("C1".to_owned());
                route.permission = Some(Permission::Deny);
                route.workdir = Some("/srv/ops".into());
            }),
            route("code", |route| route.prefix = Some("!late".to_owned())),
        ];
        for choice in [None, Some("code"), Some("ops"), Some("root"), Some("gone")] {
            let mut agents = registry(routes.clone());
            let gone = agents.learn_choice(&session(), choice.map(|name| name.as_bytes().to_vec()));
            let expected = choice.filter(|name| matches!(*name, "root" | "gone"));
            assert_eq!(gone.as_deref(), expected, "nobody may choose it, or it is gone");
            let mut selected = |chat, text| {
                let Selection { agent, text } =
                    agents.select(&session(), &message(chat, text), None).unwrap();
                let workdir = agent.workdir.map(|path| path.display().to_string());
                (agent.name.to_string(), agent.permission, workdir, text)
            };
            let fixed = (
                "ops".to_owned(),
                Permission::Deny,
                Some("/srv/ops".to_owned()),
                None,
            );
            assert_eq!(selected("C1", "hi"), fixed, "{choice:?}");
            assert_eq!(
                selected("C1", "!late hi"),
                fixed,
                "{choice:?}: an earlier route wins"
            );
            let prefixed = ("code".to_owned(), Permission::Ask, None, Some("hi".to_owned()));
            assert_eq!(selected("C1", "!code hi"), prefixed, "{choice:?}");
            let elsewhere = choice.filter(|name| *name == "ops").unwrap_or("code");
            let elsewhere = (elsewhere.to_owned(), Permission::Ask, None, None);
            assert_eq!(selected("C2", "hi"), elsewhere, "{choice:?}");
        }
    }

    #[test]
    fn people_choose_among_choosable_agents_where_no_route_sets_one() {
        let routes = vec![route("root", |route| route.chat = Some("C1".to_owned()))];
        for (chat, name, answer, chosen) in [
            (
                "C1",
                None,
                "root answers here. The operator set this chat's agent.",
                None,
            ),
            (
                "C1",
                Some("root"),
                "root answers here. The operator set this chat's agent.",
                None,
            ),
            (
                "C1",
                Some("ops"),
                "root answers here. The operator set this chat's agent.",
                None,
            ),
            (
                "C2",
                None,
                "code answers. Agents: code, ops. Choose one with /agent NAME.",
                None,
            ),
            ("C2", Some("OPS"), "ops answers from now on.", Some("ops")),
            ("C2", Some("2"), "ops answers from now on.", Some("ops")),
            (
                "C2",
                Some("3"),
                "There is no agent named 3. Agents: code, ops.",
                None,
            ),
            (
                "C2",
                Some("0"),
                "There is no agent named 0. Agents: code, ops.",
                None,
            ),
            (
                "C2",
                Some("root"),
                "There is no agent named root. Agents: code, ops.",
                None,
            ),
            (
                "C2",
                Some("nobody"),
                "There is no agent named nobody. Agents: code, ops.",
                None,
            ),
        ] {
            let mut agents = registry(routes.clone());
            let mut effects = Effects::default();
            let said = agents.choose(
                &session(),
                name,
                None,
                &in_chat(chat),
                (Language::En, 1),
                &mut effects,
            );
            assert_eq!(said, answer, "{chat} {name:?}");
            assert_eq!(
                effects.commands(),
                usize::from(chosen.is_some()),
                "{chat} {name:?}"
            );
            let mut answering = |chat| agents.answering(&session(), &in_chat(chat), None).agent.name;
            assert_eq!(&*answering("C2"), chosen.unwrap_or("code"), "{chat} {name:?}");
            assert_eq!(&*answering("C1"), "root");
        }
    }

    #[test]
    fn several_agents_are_offered_to_whoever_may_choose_them() {
        let routes = vec![route("root", |route| route.chat = Some("C1".to_owned()))];
        let mut agents = registry(routes);
        let own = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut offered = |chat, allowed: Option<&[String]>| {
            let (current, names) = agents.offered(&session(), allowed, &in_chat(chat))?;
            Some((current.to_string(), names.join(", ")))
        };
        let both = Some(("code".to_owned(), "code, ops".to_owned()));
        assert_eq!(offered("C2", None), both);
        assert_eq!(offered("C2", Some(&own(&["ops", "code", "root"]))), both);
        assert_eq!(offered("C2", Some(&own(&["ops", "root"]))), None, "one alone");
        assert_eq!(offered("C1", None), None, "a route sets it");
    }

    #[test]
    fn whoever_may_use_some_agents_is_answered_by_one_of_them() {
        let mut agents = registry(Vec::new());
        let own = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let unknown = agents.select(&session(), &message("C1", "hi"), None);
        assert_eq!(unknown.err(), Some(Unknown::Choice));
        agents.learn_choice(&session(), Some(b"OPS".to_vec()));
        agents.learn_choice(&session(), Some(b"code".to_vec()));
        let mut answers = |text: &str, allowed: Option<&[String]>| {
            let selected = agents.select(&session(), &message("C1", text), allowed).unwrap();
            (selected.agent.name.to_string(), selected.text)
        };
        let ops = ("ops".to_owned(), None);
        assert_eq!(answers("hi", None), ops, "what was known first holds");
        assert_eq!(answers("hi", Some(&own(&["code"]))).0, "code");
        assert_eq!(answers("hi", Some(&own(&["gone", "root"]))).0, "root");
        assert_eq!(answers("hi", Some(&own(&["ops"]))), ops);
        assert_eq!(
            answers("@code hi", None),
            ("code".to_owned(), Some("hi".to_owned()))
        );
        assert_eq!(
            answers("@code hi", Some(&own(&["ops"]))),
            ops,
            "they may not use it"
        );
        assert_eq!(answers("@root hi", None), ops, "nobody may choose it");
        let mut answering = |allowed: Option<&[String]>| {
            let selected = agents.answering(&session(), &in_chat("C1"), allowed);
            let list = (Language::En, 1);
            let effects = &mut Effects::default();
            let listed = agents.choose(&session(), None, allowed, &in_chat("C1"), list, effects);
            let name = selected.agent.name.to_string();
            assert!(listed.starts_with(&format!("{name} answers. ")), "{listed}");
            name
        };
        assert_eq!(answering(None), "ops");
        assert_eq!(answering(Some(&own(&["ops", "code"]))), "ops");
        assert_eq!(answering(Some(&own(&["code", "root"]))), "code");
        assert_eq!(
            answering(Some(&own(&["root", "code"]))),
            "code",
            "the default one"
        );
        assert_eq!(answering(Some(&own(&["gone", "root"]))), "root");
        let list = agents.choosable_names(Some(&own(&["ops", "root"])), Language::En);
        assert_eq!(list, "ops");
        assert!(
            !agents
                .choosable_names(Some(&own(&["root"])), Language::En)
                .contains("root")
        );
    }

    #[test]
    fn a_job_runs_with_the_agent_that_it_names_unless_its_chat_has_one() {
        let routes = vec![route("ops", |route| {
            route.chat = Some("C1".to_owned());
            route.permission = Some(Permission::Deny);
        })];
        let agents = registry(routes);
        let named = |name: Option<&str>, chat: Option<&str>| {
            let selected = agents.of_job(name, chat.map(in_chat).as_ref())?;
            Some((selected.agent.name.to_string(), selected.agent.permission))
        };
        let ask = |name: &str| Some((name.to_owned(), Permission::Ask));
        assert_eq!(named(None, None), ask("code"));
        assert_eq!(named(Some("root"), Some("C2")), ask("root"));
        assert_eq!(
            named(Some("root"), Some("C1")),
            Some(("ops".to_owned(), Permission::Deny))
        );
        assert_eq!(named(Some("gone"), None), None);
        assert!(!agents.resumes("code") && !agents.resumes("gone"));
        assert_eq!(agents.agents().count(), 3);
        assert!(agents.is_routed(&in_chat("C1")) && !agents.is_routed(&in_chat("C2")));
    }

    #[test]
    fn a_project_holds_in_its_chat_and_a_thread_may_have_another() {
        let mut settings = Settings::embedded("/nowhere");
        for (name, workdir) in [("Site", "/srv/site"), ("shop", "/srv/shop")] {
            let project = Project {
                workdir: Some(workdir.into()),
                ..Project::default()
            };
            settings.projects.insert(name.to_owned(), project);
        }
        let slot = ("code".to_owned(), AgentSlot::new(Arc::new(EchoAgent)));
        let mut agents = AgentRegistry::new(&settings, vec![slot]).unwrap();
        let mut effects = Effects::default();
        let thread = RouteInput {
            thread: "t",
            ..in_chat("C1")
        };
        let chat = in_chat("C1");
        let keys: Vec<PlaceKey> = places(&thread).collect();
        assert_eq!((keys.len(), places(&chat).count()), (2, 1));
        assert_eq!(agents.unknown_place(&thread), Some(Arc::clone(&keys[0])));
        let unknown = agents.select(&session(), &message("C1", "hi"), None).err();
        assert_eq!(unknown, Some(Unknown::Project(Arc::clone(&keys[1]))));
        agents.learn_project(&keys[0], None);
        agents.learn_project(&keys[1], Some(b"Site".to_vec()));
        agents.learn_project(&keys[1], Some(b"shop".to_vec()));
        assert_eq!(agents.unknown_place(&thread), None);
        assert_eq!(agents.project(&thread), Some(("Site".to_owned(), false)));
        agents.bind(Arc::clone(&keys[0]), Some("shop".to_owned()), 1, &mut effects);
        assert_eq!(effects.commands(), 1);
        assert_eq!(agents.project(&thread), Some(("shop".to_owned(), false)));
        assert_eq!(agents.shown_project(&chat).as_deref(), Some("Site"));
        let selected = agents.select(&session(), &message("C1", "hi"), None).unwrap();
        assert_eq!(selected.agent.workdir, Some("/srv/site".into()));
        assert_eq!(agents.find_project("SITE").as_deref(), Some("Site"));
        assert_eq!(agents.find_project("other"), None);
        assert_eq!(agents.projects().count(), 2);
        agents.bind(Arc::clone(&keys[1]), None, 1, &mut effects);
        assert_eq!(agents.project(&chat), None);
        assert!(
            registry(Vec::new()).unknown_place(&chat).is_none(),
            "there are none"
        );
    }

    /// The agents of [`registry`], which may do everything, with a project `site` of `ops` that may do nothing.
    fn with_project() -> AgentRegistry {
        let mut agents = registry(Vec::new());
        for slot in agents.slots.values_mut() {
            slot.permission = Permission::Allow;
        }
        let site = Project {
            agent: Some("ops".to_owned()),
            permission: Some(Permission::Deny),
            workdir: Some("/srv/site".into()),
        };
        agents.projects.insert("site".to_owned(), site);
        agents
    }

    #[test]
    fn the_terms_of_a_chat_hold_for_jobs_and_for_items_of_its_agent() {
        let mut agents = with_project();
        let chat = in_chat("C1");
        let place = agents.unknown_place(&chat).unwrap();
        agents.learn_project(&place, Some(b"site".to_vec()));
        let other = agents.unknown_place(&in_chat("C2")).unwrap();
        agents.learn_project(&other, None);
        let terms = |selection: Option<Selection>| {
            let agent = selection.unwrap().agent;
            let workdir = agent.workdir.is_some();
            (agent.name.to_string(), agent.permission, workdir)
        };
        let deny = |name: &str| (name.to_owned(), Permission::Deny, true);
        let allow = |name: &str| (name.to_owned(), Permission::Allow, false);
        assert_eq!(terms(agents.of_job(None, Some(&chat))), deny("ops"));
        assert_eq!(terms(agents.of_job(Some("code"), Some(&chat))), deny("ops"));
        assert_eq!(
            terms(agents.of_job(Some("ops"), Some(&in_chat("C2")))),
            allow("ops")
        );
        assert_eq!(terms(agents.called("ops", Some(&chat))), deny("ops"));
        assert_eq!(terms(agents.called("code", Some(&chat))), allow("code"));
        assert_eq!(terms(agents.called("ops", Some(&in_chat("C2")))), allow("ops"));
        assert_eq!(terms(agents.called("ops", None)), allow("ops"));
        assert!(agents.called("gone", Some(&chat)).is_none());
    }

    #[test]
    fn a_command_waits_for_the_project_and_the_choice_and_nobody_is_asked_about_a_thread_for_it() {
        let mut agents = with_project();
        let thread = RouteInput {
            thread: "t",
            ..in_chat("C1")
        };
        let keys: Vec<PlaceKey> = places(&thread).collect();
        for place in &keys {
            let unknown = agents.unknown(&session(), &thread);
            assert_eq!(unknown, Some(Unknown::Project(Arc::clone(place))));
            agents.learn_project(place, None);
        }
        assert_eq!(agents.unknown(&session(), &thread), Some(Unknown::Choice));
        agents.learn_choice(&session(), None);
        assert_eq!(agents.unknown(&session(), &thread), None);
        let mut event = message("C1", "hi");
        event.source.thread_id = Some("t".into());
        let unknown = agents.select(&session(), &event, None).err();
        assert_eq!(unknown, Some(Unknown::NewThread(Arc::clone(&keys[0]))));
        agents.bind(Arc::clone(&keys[0]), None, 1, &mut Effects::default());
        assert!(agents.select(&session(), &event, None).is_ok());
        let routes = vec![route("ops", |route| route.chat = Some("C1".to_owned()))];
        assert_eq!(
            registry(routes).unknown(&session(), &thread),
            None,
            "a route holds"
        );
    }

    #[test]
    fn a_session_begins_with_the_choice_of_its_chat_and_keeps_its_own() {
        let (mut agents, mut effects) = (registry(Vec::new()), Effects::default());
        let [chat, first, second, third] = ["c", "c:1", "c:2", "c:3"].map(SessionKey::from_text);
        agents.inherit_choice(&first, &chat, 1, &mut effects);
        assert_eq!(effects.commands(), 0, "nothing is known of the chat");
        assert!(agents.is_choice_unknown(&chat));
        agents.learn_choice(&chat, Some(b"ops".to_vec()));
        for session in [&first, &second] {
            agents.learn_choice(session, None);
        }
        agents.learn_choice(&third, Some(b"code".to_vec()));
        for session in [&first, &third] {
            agents.inherit_choice(session, &chat, 1, &mut effects);
        }
        let answering = |agents: &mut AgentRegistry, session| {
            let selected = agents.answering(session, &in_chat("C1"), None);
            selected.agent.name.to_string()
        };
        for (session, agent) in [(&first, "ops"), (&second, "code"), (&third, "code")] {
            assert_eq!(answering(&mut agents, session), agent);
        }
        assert_eq!(effects.commands(), 1, "what it begins with is kept");
    }

    #[test]
    fn where_a_project_sets_the_agent_people_read_that_it_does() {
        let (mut agents, mut effects) = (with_project(), Effects::default());
        let chat = in_chat("C1");
        let place = agents.unknown_place(&chat).unwrap();
        agents.bind(place, Some("site".to_owned()), 1, &mut effects);
        for name in [None, Some("code"), Some("ops")] {
            let said = agents.choose(&session(), name, None, &chat, (Language::En, 1), &mut effects);
            assert_eq!(said, "ops answers here. The project site sets this chat's agent.");
        }
        assert_eq!(effects.commands(), 1, "nothing was chosen");
    }

    #[tokio::test]
    async fn a_session_is_forgotten_after_its_turn_and_before_the_next() {
        let (mut agents, mut effects) = (registry(Vec::new()), Effects::default());
        let running = CancellationToken::new();
        agents.forget(&session(), Some(running.clone()), &mut effects);
        assert_eq!((effects.commands(), agents.forgetting()), (3, 1), "of each agent");
        let forgotten = agents.forgetting[&session()].clone();
        tokio::task::yield_now().await;
        assert!(!forgotten.is_cancelled(), "its turn runs");
        running.cancel();
        forgotten.cancelled().await;
        assert_eq!(agents.forgetting(), 0);
        agents.forget(&session(), None, &mut effects);
        assert!(agents.pending_forget(&session()).is_some());
        assert!(agents.pending_forget(&session()).is_none(), "once");
        assert_eq!(&*state_key(&session(), "code"), "s#memory:code");
        assert_eq!(&*choice_key(&session()), "s#agent");
    }

    #[tokio::test]
    async fn what_is_forgotten_is_not_remembered_until_the_sessions_next_turn() {
        let (mut agents, mut effects) = (registry(Vec::new()), Effects::default());
        for number in 0..5 {
            let session = SessionKey::from_text(format!("s{number}"));
            agents.forget(&session, None, &mut effects);
            assert_eq!(agents.forgetting.len(), 1);
            let forgotten = agents.forgetting[&session].clone();
            forgotten.cancelled().await;
        }
    }

    /// Has a bug.
    struct Panicking;

    impl Agent for Panicking {
        fn info(&self) -> AgentInfo {
            AgentInfo::default()
        }

        fn run(&self, _turn: Turn) -> AgentFuture<'_, TurnEnd> {
            Box::pin(async { TurnEnd::Completed })
        }

        fn forget<'a>(&'a self, _session: &'a SessionKey) -> AgentFuture<'a, ()> {
            panic!("a test")
        }
    }

    #[tokio::test]
    async fn an_agent_that_panics_while_it_forgets_holds_up_no_turn() {
        let slots = vec![("code".to_owned(), AgentSlot::new(Arc::new(Panicking)))];
        let mut settings = Settings::embedded("/nowhere");
        settings.agent = "code".to_owned();
        let mut agents = AgentRegistry::new(&settings, slots).unwrap();
        agents.forget(&session(), None, &mut Effects::default());
        agents.pending_forget(&session()).unwrap().cancelled().await;
    }
}
