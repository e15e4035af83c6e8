//! `hermes-relay agents`: which agents there are, whether they can be used, and one turn with one of them.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use tokio_util::sync::CancellationToken;

use super::exit::{self, Voice, fail, note, printed, say};
use super::{SharedArgs, Surround};
use crate::agent::acp::PRESETS;
use crate::agent::{
    AgentEvent, AgentHealth, AgentSignal, Approver, BUILT_IN, ChatOrigin, EventSink, Meaning, Permission,
    PromptAnswer, Question, Turn, TurnEnd, TurnInput,
};
use crate::config::file::nearest;
use crate::config::{self, Settings, Sources};
use crate::relay::Member;
use crate::session::TurnId;
use crate::wire::SessionKey;

/// How long an agent may take to say how it stands.
const HEALTH: Duration = Duration::from_secs(10);

/// Tell which agents there are, and try one.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay agents list\n  hermes-relay agents test echo")]
pub(super) struct AgentsArgs {
    #[command(subcommand)]
    verb: AgentsVerb,
}

#[derive(Subcommand, Debug)]
enum AgentsVerb {
    /// Tell which agents are configured and built in, which programs are installed, and how each stands.
    ///
    /// Exit codes: 0 listed, 78 the configuration cannot be used.
    #[command(
        after_help = "Examples:\n  hermes-relay agents list\n  hermes-relay agents list --config relay.yaml\n  \
                      hermes-relay agents list --json | jq '.[] | select(.answers)'"
    )]
    List {
        #[command(flatten)]
        shared: SharedArgs,
        /// As one JSON array, on one line; an error too.
        #[arg(long)]
        json: bool,
    },
    /// Run one turn with an agent, as a message from a chat would.
    ///
    /// Prints what the agent says as it says it. What it asks is denied, unless --allow is given.
    ///
    /// Exit codes: 0 the turn ended well, 1 it did not, 78 there is no such agent or it cannot be used.
    #[command(
        after_help = "Examples:\n  hermes-relay agents test echo\n  hermes-relay agents test code \"What is in this directory?\""
    )]
    Test {
        #[command(flatten)]
        shared: SharedArgs,
        /// The agent: one from the settings, a built-in one, or a preset of `kind: acp` such as `gemini`.
        name: String,
        /// What to say to it.
        #[arg(default_value = "Say hello in one short sentence.")]
        text: String,
        /// Give the agent leave for whatever it asks, once each.
        #[arg(long)]
        allow: bool,
    },
}

/// Runs the verb.
pub(super) fn run(args: &AgentsArgs, surround: &Surround<'_>) -> ExitCode {
    let (shared, voice) = match &args.verb {
        AgentsVerb::List { shared, json } => (shared, Voice::of(*json)),
        AgentsVerb::Test { shared, .. } => (shared, Voice::People),
    };
    let loaded = match config::load(&Sources {
        flags: shared.flags(),
        env: surround.env,
    }) {
        Ok(loaded) => loaded,
        Err(error) => return voice.fail(exit::CONFIGURATION, error, None),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return voice.fail(exit::OUR_FAULT, "cannot start the runtime", None);
    };
    match &args.verb {
        AgentsVerb::List { json, .. } => runtime.block_on(list(loaded.settings, surround, *json)),
        AgentsVerb::Test {
            name, text, allow, ..
        } => {
            let permission = if *allow {
                Permission::Allow
            } else {
                Permission::Deny
            };
            runtime.block_on(test(loaded.settings, surround, name, text, permission))
        }
    }
}

async fn list(mut settings: Settings, surround: &Surround<'_>, json: bool) -> ExitCode {
    let configured: Vec<String> = settings.agents.keys().cloned().collect();
    for preset in PRESETS {
        if !settings.agents.contains_key(preset.name) {
            let entry = serde_json::from_value(serde_json::json!({ "preset": preset.name }));
            settings
                .agents
                .extend(entry.ok().map(|entry| (preset.name.to_owned(), entry)));
        }
    }
    let mut rows = Vec::new();
    for name in BUILT_IN
        .iter()
        .filter(|name| !configured.iter().any(|known| known == *name))
    {
        rows.push(((*name).to_owned(), "built in", "ready".to_owned(), String::new()));
    }
    for name in settings.agents.keys() {
        let (state, detail) = match surround.hire_those(&settings, |known| known == name) {
            Ok(members) => match members.into_iter().next() {
                Some((_, member)) => stands(&member).await,
                None => continue,
            },
            Err(error) => ("unusable".to_owned(), error.to_string()),
        };
        let origin = if configured.contains(name) {
            "configured"
        } else {
            "preset"
        };
        rows.push((name.clone(), origin, state, detail));
    }
    let rank = |origin: &str| {
        ["configured", "built in"]
            .iter()
            .position(|known| *known == origin)
    };
    rows.sort_by_key(|(_, origin, ..)| rank(origin).unwrap_or(usize::MAX));
    let default = settings.agent.as_str();
    let mut out = anstream::stdout().lock();
    let written = if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(name, origin, state, detail)| {
                serde_json::json!({ "name": name, "origin": origin, "state": state, "detail": detail,
                    "answers": name == default })
            })
            .collect();
        writeln!(out, "{}", serde_json::Value::Array(rows))
    } else {
        let mut lines = rows.iter().map(|(name, origin, state, detail)| {
            let mark = if name == default { "*" } else { " " };
            format!("{mark} {name:<12} {origin:<11} {state:<9} {detail}")
        });
        lines
            .try_for_each(|line| writeln!(out, "{}", line.trim_end()))
            .and_then(|()| {
                writeln!(
                    out,
                    "\n* answers what no route takes. Try one with `hermes-relay agents test NAME`."
                )
            })
    };
    printed(written.and_then(|()| out.flush()))
}

async fn stands(member: &Member) -> (String, String) {
    match tokio::time::timeout(HEALTH, member.agent.health()).await {
        Ok(AgentHealth::Ready) => ("ready".to_owned(), String::new()),
        Ok(AgentHealth::Degraded(why)) => ("degraded".to_owned(), why),
        Ok(AgentHealth::Down(why)) => ("down".to_owned(), why),
        Err(_) => (
            "down".to_owned(),
            "it did not say how it stands in time".to_owned(),
        ),
    }
}

async fn test(
    mut settings: Settings,
    surround: &Surround<'_>,
    name: &str,
    text: &str,
    permission: Permission,
) -> ExitCode {
    if !settings.agents.contains_key(name) {
        let written = match name {
            built_in if BUILT_IN.contains(&built_in) => serde_json::json!({ "kind": built_in }),
            preset if PRESETS.iter().any(|known| known.name == preset) => {
                serde_json::json!({ "preset": preset })
            }
            _ => {
                let configured = settings.agents.keys().map(String::as_str);
                let presets = PRESETS.iter().map(|preset| preset.name);
                let meant = nearest(name, configured.chain(BUILT_IN.iter().copied()).chain(presets));
                let meant = meant.map(|near| format!("did you mean `{near}`? "));
                let hint = format!(
                    "{}`hermes-relay agents list` shows all",
                    meant.unwrap_or_default()
                );
                return fail(
                    exit::CONFIGURATION,
                    format!("there is no agent named `{name}`"),
                    Some(&hint),
                );
            }
        };
        let entry = serde_json::from_value(written);
        settings
            .agents
            .extend(entry.ok().map(|entry| (name.to_owned(), entry)));
    }
    let member = match surround.hire_those(&settings, |known| known == name) {
        Ok(members) => members.into_iter().next(),
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    let Some((_, member)) = member else {
        return fail(exit::OUR_FAULT, "the agent was not built", None);
    };
    if let (_, why) = stands(&member).await
        && !why.is_empty()
    {
        note!("note: {why}");
    }
    let began = Instant::now();
    let (end, said) = one_turn(&member, text, permission).await;
    let _ = tokio::time::timeout(HEALTH, member.agent.shutdown()).await;
    let took = began.elapsed().as_millis();
    match end {
        TurnEnd::Completed | TurnEnd::Truncated(_) => {
            say!("");
            note!("The turn ended well after {took} ms, {said} characters.");
            ExitCode::SUCCESS
        }
        TurnEnd::Refused => fail(exit::FAILED, "the agent declines to answer this", None),
        TurnEnd::Cancelled { .. } => fail(exit::FAILED, "the turn was stopped", None),
        TurnEnd::Failed(failure) => {
            let hint = failure.public_text.as_str();
            fail(
                exit::FAILED,
                format!("the turn failed: {}", failure.detail),
                Some(hint),
            )
        }
    }
}

/// Runs a turn and prints what is said; Ctrl-C stops it.
async fn one_turn(member: &Member, text: &str, permission: Permission) -> (TurnEnd, usize) {
    let (events, mut signals) = EventSink::new();
    let cancel = CancellationToken::new();
    let turn = Turn {
        id: TurnId(1),
        session: SessionKey::from_text("agent:main:test:dm:terminal".to_owned()),
        input: TurnInput {
            text: text.to_owned(),
            origin: ChatOrigin {
                platform: "test".to_owned(),
                chat_id: "terminal".to_owned(),
                chat_type: "dm".to_owned(),
                ..ChatOrigin::default()
            },
            ..TurnInput::default()
        },
        approver: Approver::new(&events, permission),
        events,
        cancel: cancel.clone(),
        workdir: member.workdir.clone(),
    };
    let mut running = member.agent.run(turn);
    let mut said = 0;
    let end = loop {
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => cancel.cancel(),
            end = &mut running => break end,
            Some(signal) = signals.recv() => said += print(signal),
        }
    };
    while let Ok(signal) = signals.try_recv() {
        said += print(signal);
    }
    (end, said)
}

/// Prints what is said and tells how many characters of answer it was; progress goes to standard error.
fn print(signal: AgentSignal) -> usize {
    match signal {
        AgentSignal::Event(AgentEvent::Text(text) | AgentEvent::Replace(text)) => {
            let mut out = std::io::stdout();
            // A closed pipe is no reason to fail: the turn goes on.
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            text.chars().count()
        }
        AgentSignal::Event(AgentEvent::Tool(call)) if std::io::stderr().is_terminal() => {
            note!("[{:?}] {}", call.state, call.title);
            0
        }
        AgentSignal::Question(question, answer) => {
            let _ = answer.send(denied(&question));
            0
        }
        AgentSignal::LoadState(answer) => {
            let _ = answer.send(None);
            0
        }
        AgentSignal::Event(_) | AgentSignal::SaveState(_) => 0,
    }
}

fn denied(question: &Question) -> PromptAnswer {
    question
        .choice(Meaning::Deny)
        .map_or(PromptAnswer::Cancelled, |choice| {
            PromptAnswer::Chosen(choice.id.clone())
        })
}
