//! Whether each agent can be used.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::case::Case;
use super::probe::Verdict;
use crate::agent::{AgentHealth, BUILT_IN};
use crate::config::{AgentEntry, Settings};
use crate::relay::{AgentEnvironment, build_agents};

/// How long an agent may take to let go of what it started.
const LEAVE: Duration = Duration::from_secs(1);

/// Looks at every agent that the settings name, all at once.
pub(super) async fn agents(case: &Case<'_>) -> Vec<Verdict> {
    let Some(settings) = case.settings() else {
        return Vec::new();
    };
    let mut verdicts: Vec<Verdict> = answering(settings)
        .into_iter()
        .filter(|name| !settings.agents.contains_key(*name))
        .map(|name| unlisted(name).of(name))
        .collect();
    let looks = settings
        .agents
        .iter()
        .map(|(name, entry)| async move { stands(case, settings, name, entry).await.of(name) });
    verdicts.extend(join_all(looks).await);
    verdicts
}

/// Those that some message goes to, each once.
fn answering(settings: &Settings) -> Vec<&str> {
    let mut names = vec![settings.agent.as_str()];
    for route in &settings.routes {
        if !names.contains(&route.agent.as_str()) {
            names.push(&route.agent);
        }
    }
    names
}

fn unlisted(name: &str) -> Verdict {
    if BUILT_IN.contains(&name) {
        return Verdict::ok("built in");
    }
    let what = format!("there is no agent named `{name}`");
    let remedy =
        "name one from `agents:` in the settings or a built-in one; `hermes-relay agents list` shows all";
    Verdict::failed(what, remedy)
}

async fn stands(case: &Case<'_>, settings: &Settings, name: &str, entry: &AgentEntry) -> Verdict {
    let Some(known) = &case.known else {
        return Verdict::skipped("there are no settings");
    };
    let mut alone = settings.clone();
    alone.agents = [(name.to_owned(), entry.clone())].into();
    let around = AgentEnvironment {
        env: case.env,
        base: case.base.clone(),
        tls: known.tls.clone(),
        proxies: case.proxies.clone(),
    };
    let trouble = if answering(settings).contains(&name) {
        Verdict::failed
    } else {
        Verdict::warn
    };
    let remedy = "install its program or correct its settings, then try `hermes-relay agents test NAME`";
    let remedy = remedy.replace("NAME", name);
    let member = match build_agents(&alone, &around, |_| true) {
        Ok(members) => members.into_iter().next(),
        Err(error) => return trouble(error.to_string(), remedy),
    };
    let Some((_, member)) = member else {
        return Verdict::skipped("it was not built");
    };
    let health = case.within(member.agent.health()).await;
    let leave = case.deadline().min(Instant::now() + LEAVE);
    let _ = timeout_at(leave, member.agent.shutdown()).await;
    match health {
        Some(AgentHealth::Ready) => Verdict::ok("ready"),
        Some(AgentHealth::Degraded(why)) => Verdict::warn(why, remedy),
        Some(AgentHealth::Down(why)) => trouble(why, remedy),
        None => trouble("it did not say how it stands in time".to_owned(), remedy),
    }
}
