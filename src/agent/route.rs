//! Which agent answers which message. It never looks at more of a message than where it comes from and how it begins.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Permission;

/// A rule: what matches all that is set goes to this agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Route {
    /// The platform's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// The chat's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    /// The thread's or topic's id in that chat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The writer's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The profile that the connector routed it to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// How the text begins; the agent does not see this part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The project whose agent, permission and directory hold, unless the route names others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The agent's name; may be empty for a route with a project.
    pub agent: String,
    /// Who decides what it asks: `ask`, `deny` or `allow`; the agent's own when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission: Option<Permission>,
    /// The directory that it works in; the agent's own when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<PathBuf>,
}

/// A project: the directory that an agent works in, and on which terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Project {
    /// The directory; the agent's own when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<PathBuf>,
    /// The agent's name; the default agent when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Who decides what it asks: `ask`, `deny` or `allow`; the agent's own when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission: Option<Permission>,
}

impl Project {
    /// What a route takes from its project: everything that it does not say itself.
    pub fn complete(&self, route: &mut Route, default_agent: &str) {
        if route.agent.is_empty() {
            self.agent
                .as_deref()
                .unwrap_or(default_agent)
                .clone_into(&mut route.agent);
        }
        route.permission = route.permission.or(self.permission);
        if route.workdir.is_none() {
            route.workdir.clone_from(&self.workdir);
        }
    }
}

/// The facts about a message that routes match.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteInput<'m> {
    /// The platform's name.
    pub platform: &'m str,
    /// The chat's id.
    pub chat: &'m str,
    /// The thread's id; empty outside of threads.
    pub thread: &'m str,
    /// The author's id.
    pub user: &'m str,
    /// The profile that the connector routed the message to.
    pub profile: &'m str,
    /// The text of the message.
    pub text: &'m str,
}

impl Route {
    /// Whether a message takes this route; if so, its text without the prefix.
    fn matches<'m>(&self, input: &RouteInput<'m>) -> Option<&'m str> {
        let wanted = [
            (&self.platform, input.platform),
            (&self.chat, input.chat),
            (&self.thread, input.thread),
            (&self.user, input.user),
            (&self.profile, input.profile),
        ];
        let fits = |(want, has): &(&Option<String>, &str)| want.as_deref().is_none_or(|want| want == *has);
        if !wanted.iter().all(fits) {
            return None;
        }
        match &self.prefix {
            None => Some(input.text),
            Some(prefix) => {
                let rest = input.text.trim_start().strip_prefix(prefix.as_str())?;
                Some(rest.trim_start())
            }
        }
    }
}

/// The first route that a message takes, and its text without the prefix.
pub fn match_route<'r, 'm>(routes: &'r [Route], input: &RouteInput<'m>) -> Option<(&'r Route, &'m str)> {
    routes
        .iter()
        .find_map(|route| Some((route, route.matches(input)?)))
}

/// The name that a text is addressed to, `@name` or `name:` first, and the rest of the text.
pub fn addressed(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let is_part = |point: char| point.is_alphanumeric() || matches!(point, '-' | '_' | '.');
    let (name, rest) = match text.strip_prefix('@') {
        Some(text) => {
            let end = text.find(|point| !is_part(point)).unwrap_or(text.len());
            let (name, rest) = text.split_at(end);
            (name, rest.trim_start_matches([':', ',']))
        }
        None => text.split_once(':')?,
    };
    let rest = rest.trim_start();
    let is_name = !name.is_empty() && name.chars().all(is_part);
    (is_name && !rest.is_empty()).then_some((name, rest))
}

/// The route that sets the agent of a chat whatever its messages begin with: the first one without a prefix. People choose
/// an agent only where there is none.
pub fn fixed_route<'r>(routes: &'r [Route], input: &RouteInput<'_>) -> Option<&'r Route> {
    let mut fixed = routes.iter().filter(|route| route.prefix.is_none());
    fixed.find(|route| route.matches(input).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_may_be_addressed_to_a_name() {
        for (text, expected) in [
            ("@code fix it", Some(("code", "fix it"))),
            ("@code, fix it", Some(("code", "fix it"))),
            (" code: fix it", Some(("code", "fix it"))),
            ("@my-agent.2: x", Some(("my-agent.2", "x"))),
            ("code:", None),
            ("@code", None),
            ("see this: x", None),
            ("fix it", None),
            (": x", None),
            ("@ x", None),
        ] {
            assert_eq!(addressed(text), expected, "{text}");
        }
    }

    fn route(agent: &str, set: impl FnOnce(&mut Route)) -> Route {
        let mut route = Route {
            agent: agent.to_owned(),
            ..Route::default()
        };
        set(&mut route);
        route
    }

    #[test]
    fn the_first_route_that_fits_in_everything_is_taken() {
        let routes = [
            route("code", |route| route.prefix = Some("!code".to_owned())),
            route("ops", |route| {
                route.platform = Some("slack".to_owned());
                route.chat = Some("C1".to_owned());
            }),
            route("ann", |route| route.user = Some("u1".to_owned())),
            route("coder", |route| route.profile = Some("coder".to_owned())),
        ];
        let input = RouteInput {
            platform: "slack",
            chat: "C1",
            user: "u1",
            text: "hello",
            ..RouteInput::default()
        };
        let taken = |input: &RouteInput<'_>| {
            match_route(&routes, input).map(|(route, text)| (route.agent.clone(), text.to_owned()))
        };
        let fixed = |input: &RouteInput<'_>| fixed_route(&routes, input).map(|route| route.agent.clone());
        let took = |agent: &str, text: &str| Some((agent.to_owned(), text.to_owned()));
        assert_eq!(taken(&input), took("ops", "hello"));
        let elsewhere = RouteInput { chat: "C2", ..input };
        assert_eq!(taken(&elsewhere), took("ann", "hello"));
        let prefixed = RouteInput {
            text: " !code fix it",
            ..input
        };
        assert_eq!(taken(&prefixed), took("code", "fix it"));
        assert_eq!(
            fixed(&prefixed).as_deref(),
            Some("ops"),
            "a prefix sets no chat's agent"
        );
        let nobody = RouteInput {
            user: "u2",
            ..elsewhere
        };
        assert_eq!((taken(&nobody), fixed(&nobody)), (None, None));
    }
}
