//! `hermes-relay agents`: lists the agents with their health, and runs a test turn.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use tokio_util::sync::CancellationToken;

use super::exit::{self, ErrorFormat, errln, fail, finish, outln};
use super::format::stdout;
use super::{ProcessEnv, SharedArgs};
use crate::agent::acp::PRESETS;
use crate::agent::child::program_exists;
use crate::agent::{
    AgentEvent, AgentHealth, AgentSignal, Approver, BUILT_IN, ChatOrigin, EventSink, Meaning, Permission,
    PromptAnswer, Question, Turn, TurnEnd, TurnInput,
};
use crate::config::file::nearest;
use crate::config::{self, Settings, Sources};
use crate::relay::AgentSlot;
use crate::session::TurnId;
use crate::wire::SessionKey;

/// Timeout of an agent's health check and shutdown.
const AGENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The message of a test turn.
pub(super) const TEST_MESSAGE: &str = "Say hello in one short sentence.";

/// List agents, or test one.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay agents list\n  hermes-relay agents test echo")]
pub(super) struct AgentsArgs {
    #[command(subcommand)]
    verb: AgentsVerb,
}

#[derive(Subcommand, Debug)]
enum AgentsVerb {
    /// List configured and built-in agents, presets of installed programs, and the health of each.
    ///
    /// Exit codes: 0 listed, 78 invalid configuration.
    #[command(
        after_help = "Examples:\n  hermes-relay agents list\n  hermes-relay agents list --config relay.yaml\n  \
                      hermes-relay agents list --json | jq '.[] | select(.answers)'"
    )]
    List {
        #[command(flatten)]
        shared: SharedArgs,
        /// Print a JSON array on one line, errors included.
        #[arg(long)]
        json: bool,
    },
    /// Run one turn with an agent, as a chat message would.
    ///
    /// Prints the agent's output as it arrives. Approval requests are denied unless --allow is given.
    ///
    /// Exit codes: 0 the turn completed, 1 it failed, 78 there is no such agent or it cannot be used.
    #[command(
        after_help = "Examples:\n  hermes-relay agents test echo\n  hermes-relay agents test code \"What is in this directory?\""
    )]
    Test {
        #[command(flatten)]
        shared: SharedArgs,
        /// Agent from the settings, a built-in one, or a preset of `kind: acp` such as `gemini`.
        name: String,
        /// Message to send.
        #[arg(default_value = TEST_MESSAGE)]
        text: String,
        /// Approve every request of the agent, once each.
        #[arg(long)]
        allow: bool,
    },
}

/// Runs the verb.
pub(super) fn run(args: &AgentsArgs, process: &ProcessEnv<'_>) -> ExitCode {
    let (shared, errors) = match &args.verb {
        AgentsVerb::List { shared, json } => (shared, ErrorFormat::new(*json)),
        AgentsVerb::Test { shared, .. } => (shared, ErrorFormat::Text),
    };
    let loaded = match config::load(&Sources {
        flags: shared.relay_flags(),
        env: process.env,
    }) {
        Ok(loaded) => loaded,
        Err(error) => return errors.fail(exit::CONFIGURATION, error, None),
    };
    let process = &process.with_config(loaded.own_file.as_deref());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return errors.fail(exit::INTERNAL, "cannot start the runtime", None);
    };
    match &args.verb {
        AgentsVerb::List { json, .. } => runtime.block_on(list(loaded.settings, process, *json)),
        AgentsVerb::Test {
            name, text, allow, ..
        } => {
            let permission = if *allow {
                Permission::Allow
            } else {
                Permission::Deny
            };
            runtime.block_on(test(loaded.settings, process, name, text, permission))
        }
    }
}

async fn list(mut settings: Settings, process: &ProcessEnv<'_>, json: bool) -> ExitCode {
    let configured: Vec<String> = settings.agents.keys().cloned().collect();
    for preset in PRESETS {
        if !settings.agents.contains_key(preset.name) {
            let entry = serde_json::from_value(serde_json::json!({ "preset": preset.name }));
            settings
                .agents
                .extend(entry.ok().map(|entry| (preset.name.to_owned(), entry)));
        }
    }
    let mut rows: Vec<AgentRow> = BUILT_IN
        .iter()
        .filter(|name| !configured.iter().any(|known| known == *name))
        .map(|name| AgentRow {
            name: (*name).to_owned(),
            origin: "built in",
            state: "ready",
            detail: String::new(),
        })
        .collect();
    for name in settings.agents.keys() {
        let (state, detail) = match process.build_agents(&settings, |known| known == name) {
            Ok(agents) => match agents.into_iter().next() {
                Some((_, slot)) => health(&slot).await,
                None => continue,
            },
            Err(error) => ("unusable", error.to_string()),
        };
        let origin = if configured.contains(name) {
            "configured"
        } else {
            "preset"
        };
        rows.push(AgentRow {
            name: name.clone(),
            origin,
            state,
            detail,
        });
    }
    let rank = |origin: &str| {
        ["configured", "built in"]
            .iter()
            .position(|known| *known == origin)
    };
    rows.sort_by_key(|row| rank(row.origin).unwrap_or(usize::MAX));
    let default = settings.agent.as_str();
    let mut out = stdout();
    let written = if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                serde_json::json!({ "name": row.name, "origin": row.origin, "state": row.state, "detail": row.detail,
                    "answers": row.name == default })
            })
            .collect();
        writeln!(out, "{}", serde_json::Value::Array(rows))
    } else {
        let width = rows.iter().map(|row| row.name.chars().count()).max();
        let width = width.unwrap_or_default().max("NAME".len());
        let line = |mark: &str, name: &str, state: &str, note: &str| {
            let line = format!("{mark} {name:width$}  {state:13}  {note}");
            line.trim_end().to_owned()
        };
        let header = line(" ", "NAME", "STATE", "NOTE");
        let lines = rows.iter().map(|row| {
            let mark = if row.name == default { "*" } else { " " };
            line(mark, &row.name, row.state, row.note())
        });
        let hint =
            "\n* answers what no route matches. Test one with `hermes-relay agents test NAME`.".to_owned();
        [header]
            .into_iter()
            .chain(lines)
            .chain([hint])
            .try_for_each(|line| writeln!(out, "{line}"))
    };
    finish(written.and_then(|()| out.flush()))
}

/// An agent in the list.
struct AgentRow {
    name: String,
    /// `configured`, `built in` or `preset`.
    origin: &'static str,
    state: &'static str,
    /// What is wrong with it.
    detail: String,
}

impl AgentRow {
    /// For people: what is wrong; of a preset that is not installed only how to install it.
    fn note(&self) -> &str {
        let preset = PRESETS.iter().find(|preset| preset.name == self.name);
        match (self.origin, preset) {
            ("preset", Some(preset)) if self.state == NOT_INSTALLED => preset.install,
            ("built in", _) if self.detail.is_empty() => "built in",
            _ => &self.detail,
        }
    }
}

/// State of an agent whose program is not there.
const NOT_INSTALLED: &str = "not installed";

async fn health(slot: &AgentSlot) -> (&'static str, String) {
    match tokio::time::timeout(AGENT_TIMEOUT, slot.agent.health()).await {
        Ok(AgentHealth::Ready) => ("ready", String::new()),
        Ok(AgentHealth::Degraded(why)) => ("degraded", why),
        Ok(AgentHealth::Down(why)) => ("down", why),
        Ok(AgentHealth::NotInstalled(why)) => (NOT_INSTALLED, why),
        Err(_) => ("down", "the health check timed out".to_owned()),
    }
}

async fn test(
    mut settings: Settings,
    process: &ProcessEnv<'_>,
    name: &str,
    text: &str,
    permission: Permission,
) -> ExitCode {
    if let Err(code) = add_known(&mut settings, name, ErrorFormat::Text) {
        return code;
    }
    let mut show = |text: &str| {
        let mut out = stdout();
        // Ignore a closed pipe: the turn goes on.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    };
    let tested = match test_turn(&settings, process, name, text, permission, &mut show).await {
        Ok(tested) => tested,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    match tested.problem() {
        None => {
            outln!("");
            let (took, characters) = (tested.seconds(), tested.characters);
            errln!("The turn completed after {took} s, {characters} characters.");
            ExitCode::SUCCESS
        }
        Some(problem) => {
            let hint = match &tested.end {
                TurnEnd::Failed(failure) => Some(format!("a chat would read: {}", failure.public_text)),
                _ => None,
            };
            fail(exit::FAILED, problem, hint.as_deref())
        }
    }
}

/// Adds the settings of a built-in agent or a preset, unless the settings have an agent of this name.
pub(super) fn add_known(settings: &mut Settings, name: &str, errors: ErrorFormat) -> Result<(), ExitCode> {
    if settings.agents.contains_key(name) {
        return Ok(());
    }
    let entry = match name {
        built_in if BUILT_IN.contains(&built_in) => serde_json::json!({ "kind": built_in }),
        preset if PRESETS.iter().any(|known| known.name == preset) => {
            serde_json::json!({ "preset": preset })
        }
        _ => {
            let configured = settings.agents.keys().map(String::as_str);
            let presets = PRESETS.iter().map(|preset| preset.name);
            let near = nearest(name, configured.chain(BUILT_IN.iter().copied()).chain(presets));
            let near = near.map(|near| format!("did you mean `{near}`? "));
            let hint = format!("{}`hermes-relay agents list` lists all", near.unwrap_or_default());
            let what = format!("there is no agent named `{name}`");
            return Err(errors.fail(exit::CONFIGURATION, what, Some(&hint)));
        }
    };
    let entry = serde_json::from_value(entry);
    settings
        .agents
        .extend(entry.ok().map(|entry| (name.to_owned(), entry)));
    Ok(())
}

/// A known agent, and why it cannot be used here.
pub(super) struct PresetState {
    pub(super) name: &'static str,
    pub(super) problem: Option<String>,
    /// The title of the agent's own program, if that is installed and only the adapter for it is missing.
    pub(super) lacks_adapter_for: Option<&'static str>,
}

/// The presets, and whether each can be used.
pub(super) async fn presets(process: &ProcessEnv<'_>) -> Vec<PresetState> {
    let mut states = Vec::new();
    for preset in PRESETS {
        let mut settings = Settings::embedded(".");
        let entry = serde_json::from_value(serde_json::json!({ "preset": preset.name }));
        settings
            .agents
            .extend(entry.ok().map(|entry| (preset.name.to_owned(), entry)));
        let problem = match process.build_agents(&settings, |name| name == preset.name) {
            Err(error) => Some(error.to_string()),
            Ok(agents) => match agents.first() {
                Some((_, slot)) => match health(slot).await {
                    ("down" | NOT_INSTALLED, why) => Some(why),
                    _ => None,
                },
                None => continue,
            },
        };
        let path = (process.env)("PATH").map(OsString::from);
        let is_there = || program_exists(OsStr::new(preset.name), path.as_deref()).is_ok();
        let adapted = preset.adapted().filter(|_| problem.is_some() && is_there());
        states.push(PresetState {
            name: preset.name,
            problem,
            lacks_adapter_for: adapted,
        });
    }
    states
}

/// How a test turn went.
pub(super) struct TestedTurn {
    end: TurnEnd,
    took_ms: u128,
    characters: usize,
}

impl TestedTurn {
    /// How long it took, for people.
    pub(super) fn seconds(&self) -> String {
        format!("{}.{}", self.took_ms / 1000, self.took_ms % 1000 / 100)
    }

    /// Why there is no answer.
    pub(super) fn problem(&self) -> Option<String> {
        match &self.end {
            TurnEnd::Completed | TurnEnd::Truncated(_) => None,
            TurnEnd::Refused => Some("the agent refused to answer".to_owned()),
            TurnEnd::Cancelled { .. } => Some("the turn was stopped".to_owned()),
            TurnEnd::Failed(failure) => Some(format!("the turn failed: {}", failure.detail)),
        }
    }
}

/// Runs one turn with a configured agent; `show` gets its text as it arrives. The error is for people.
pub(super) async fn test_turn(
    settings: &Settings,
    process: &ProcessEnv<'_>,
    name: &str,
    text: &str,
    permission: Permission,
    show: &mut dyn FnMut(&str),
) -> Result<TestedTurn, String> {
    let agents = process.build_agents(settings, |known| known == name);
    let agents = agents.map_err(|error| error.to_string())?;
    let Some((_, slot)) = agents.into_iter().next() else {
        return Err(format!("there is no agent named `{name}`"));
    };
    if let (_, why) = health(&slot).await
        && !why.is_empty()
    {
        errln!("note: {why}");
    }
    let began = Instant::now();
    let (end, characters) = run_turn(&slot, text, permission, show).await;
    let _ = tokio::time::timeout(AGENT_TIMEOUT, slot.agent.shutdown()).await;
    Ok(TestedTurn {
        end,
        took_ms: began.elapsed().as_millis(),
        characters,
    })
}

/// Runs a turn; Ctrl-C stops it. Returns the number of characters.
async fn run_turn(
    slot: &AgentSlot,
    text: &str,
    permission: Permission,
    show: &mut dyn FnMut(&str),
) -> (TurnEnd, usize) {
    let (events, mut signals) = EventSink::new();
    let cancel = CancellationToken::new();
    let turn = Turn {
        id: TurnId(1),
        session: SessionKey::from_text("agent:main:test:dm:terminal".to_owned()),
        input: TurnInput {
            text: text.to_owned(),
            origin: ChatOrigin {
                platform: "test".into(),
                chat_id: "terminal".into(),
                chat_type: "dm".into(),
                ..ChatOrigin::default()
            },
            ..TurnInput::default()
        },
        approver: Approver::new(&events, permission),
        events,
        cancel: cancel.clone(),
        workdir: slot.workdir.clone(),
        resumed: None,
    };
    let mut running = slot.agent.run(turn);
    let mut printed = 0;
    let end = loop {
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => cancel.cancel(),
            end = &mut running => break end,
            Some(signal) = signals.recv() => printed += print(signal, show),
        }
    };
    while let Ok(signal) = signals.try_recv() {
        printed += print(signal, show);
    }
    (end, printed)
}

/// Shows an event and returns the number of characters; progress goes to standard error.
fn print(signal: AgentSignal, show: &mut dyn FnMut(&str)) -> usize {
    match signal {
        AgentSignal::Event(AgentEvent::Text(text) | AgentEvent::Replace(text)) => {
            show(&text);
            text.chars().count()
        }
        AgentSignal::Event(AgentEvent::Tool(call)) if std::io::stderr().is_terminal() => {
            errln!("[{:?}] {}", call.state, call.title);
            0
        }
        AgentSignal::Question(question, answer) => {
            let _ = answer.send(deny(&question));
            0
        }
        AgentSignal::LoadState(answer) => {
            let _ = answer.send(None);
            0
        }
        AgentSignal::Event(_) | AgentSignal::SaveState(_) => 0,
    }
}

fn deny(question: &Question) -> PromptAnswer {
    question
        .choice(Meaning::Deny)
        .map_or(PromptAnswer::Cancelled, |choice| {
            PromptAnswer::Chosen(choice.id.clone())
        })
}
