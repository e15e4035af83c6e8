//! The agents of one relay, and which of them answers a message.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::agent::{Agent, Permission, Route, RouteInput, match_route};
use crate::wire::{MessageEvent, Scalar};

/// An agent and what holds for it wherever no route says otherwise.
#[derive(Clone)]
pub struct Member {
    /// Who answers.
    pub agent: Arc<dyn Agent>,
    /// Who decides what it asks.
    pub permission: Permission,
    /// Where it works.
    pub workdir: Option<PathBuf>,
}

impl Member {
    /// An agent that asks people, and works where it likes.
    pub fn new(agent: Arc<dyn Agent>) -> Self {
        Self {
            agent,
            permission: Permission::Ask,
            workdir: None,
        }
    }

    pub(super) fn terms(&self) -> Terms {
        (self.permission, self.workdir.clone())
    }
}

/// Who decides what an agent asks, and where it works.
pub(super) type Terms = (Permission, Option<PathBuf>);

/// Who answers one message, and how.
#[derive(Clone)]
pub(super) struct Pick {
    pub(super) name: Arc<str>,
    pub(super) member: Member,
    /// The text, when a prefix was taken off.
    pub(super) text: Option<String>,
}

/// All agents of a relay; there is always one.
pub(super) struct Crew {
    members: BTreeMap<Arc<str>, Member>,
    default: (Arc<str>, Member),
    routes: Vec<Route>,
}

impl Crew {
    /// These agents; `default` answers what no route takes. Routes to nobody are left out.
    pub(super) fn new(
        default: (String, Member),
        others: impl IntoIterator<Item = (String, Member)>,
        routes: Vec<Route>,
    ) -> Self {
        let default = (Arc::from(default.0), default.1);
        let mut members: BTreeMap<Arc<str>, Member> = others
            .into_iter()
            .map(|(name, member)| (Arc::from(name), member))
            .collect();
        members.insert(Arc::clone(&default.0), default.1.clone());
        let routes = routes
            .into_iter()
            .filter(|route| members.contains_key(route.agent.as_str()))
            .collect();
        Self {
            members,
            default,
            routes,
        }
    }

    /// The name of who answers when nothing else is known.
    pub(super) fn default_name(&self) -> Arc<str> {
        Arc::clone(&self.default.0)
    }

    /// Whether there is anything to choose.
    pub(super) fn is_several(&self) -> bool {
        self.members.len() > 1
    }

    /// The agents' names.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.members.keys()
    }

    /// Every agent once.
    pub(super) fn agents(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<dyn Agent>)> {
        self.members.iter().map(|(name, member)| (name, &member.agent))
    }

    /// The name of an agent, as it is written.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<str>> {
        self.members.keys().find(|known| known.eq_ignore_ascii_case(name))
    }

    fn pick_default(&self) -> Pick {
        Pick {
            name: Arc::clone(&self.default.0),
            member: self.default.1.clone(),
            text: None,
        }
    }

    /// Who answers a message in a conversation for which `chosen` was chosen, if anybody was.
    pub(super) fn pick(&self, event: &MessageEvent, chosen: Option<&str>) -> Pick {
        if self.routes.is_empty() && chosen.is_none() {
            return self.pick_default();
        }
        let text = |field: &'_ Option<Scalar>| field.as_ref().map_or("", |text| text.as_str()).to_owned();
        let source = &event.source;
        let (chat, user, profile) = (
            text(&source.chat_id),
            text(&source.user_id),
            text(&source.profile),
        );
        let letter = RouteInput {
            platform: source.platform.as_str(),
            chat: &chat,
            user: &user,
            profile: &profile,
            text: event.text(),
        };
        let chosen = chosen.and_then(|name| self.members.get_key_value(name));
        if let Some((route, rest)) = match_route(&self.routes, &letter, chosen.is_some())
            && let Some((name, member)) = self.members.get_key_value(route.agent.as_str())
        {
            let mut member = member.clone();
            member.permission = route.permission.unwrap_or(member.permission);
            member.workdir = route.workdir.clone().or(member.workdir);
            return Pick {
                name: Arc::clone(name),
                member,
                text: route.prefix.is_some().then(|| rest.to_owned()),
            };
        }
        chosen.map_or_else(
            || self.pick_default(),
            |(name, member)| Pick {
                name: Arc::clone(name),
                member: member.clone(),
                text: None,
            },
        )
    }
}
