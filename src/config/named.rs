//! What our own file names must be there: agents and presets. It looks at nothing beyond the file.

use super::agents::{AgentChoice, Backend};
use super::file::{FileTree, nearest};
use crate::agent::BUILT_IN;
use crate::agent::acp::PRESETS;
use crate::wire::ConnectorUrl;

/// The first key of a file whose value names something that does not exist, and what is wrong with it.
pub(super) fn missing(tree: &FileTree) -> Option<(&'static str, String)> {
    if let Some(Err(error)) = tree.connector.url.as_deref().map(ConnectorUrl::parse) {
        return Some(("connector.url", error.to_string()));
    }
    let presets = tree.agents.iter().find_map(|(name, entry)| match &entry.backend {
        Backend::Acp(settings) => {
            let preset = settings.preset.as_deref()?;
            let known = || PRESETS.iter().map(|preset| preset.name);
            let what = format!("`{name}` has the preset `{preset}`, which is none of: ");
            (!known().any(|name| name == preset))
                .then(|| what + &known().collect::<Vec<_>>().join(", ") + &meant(preset, known()))
        }
        _ => None,
    });
    if let Some(what) = presets {
        return Some(("agents", what));
    }
    let agents = || {
        tree.agents
            .keys()
            .map(String::as_str)
            .chain(BUILT_IN.iter().copied())
    };
    let unknown = |name: &str| {
        let what = format!("there is no agent named `{name}` in `agents`, and none is built in");
        (!agents().any(|known| known == name)).then(|| what + &meant(name, agents()))
    };
    let answers = match &tree.agent {
        Some(AgentChoice::Named(name)) => unknown(name),
        _ => None,
    };
    answers.map(|what| ("agent", what)).or_else(|| {
        let mut routes = tree.routes.iter();
        routes.find_map(|route| Some(("routes", unknown(&route.agent)?)))
    })
}

fn meant<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml;

    fn told(text: &str) -> Option<(&'static str, String)> {
        missing(&yaml::strict(text).unwrap())
    }

    #[test]
    fn what_is_named_must_be_there() {
        let sound = "agents: {code: {preset: claude}, other: {kind: acp, argv: [x]}}\nagent: code\n\
                     routes: [{agent: echo}, {agent: other}]\nconnector: {url: https://connector.example}\n";
        assert_eq!(told(sound), None);
        assert_eq!(told("agent: {kind: echo}"), None);
        let wrong = [
            ("agent: ecko", "agent", "did you mean `echo`?"),
            (
                "agents: {code: {preset: claud}}",
                "agents",
                "did you mean `claude`?",
            ),
            ("routes: [{agent: nobody}]", "routes", "`nobody`"),
            (
                "connector: {url: 'ftp://connector.example'}",
                "connector.url",
                "ftp",
            ),
        ];
        for (text, key, part) in wrong {
            let (named, what) = told(text).unwrap_or_else(|| panic!("{text}"));
            assert!(named == key && what.contains(part), "{text}: {named}: {what}");
        }
    }
}
