//! Which agent answers: named by an option, chosen in the terminal, or the only one that is installed.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::menu::{ATTEMPTS, ask, list, pick};
use super::{InitArgs, InitFailure, adapter, model_choice};
use crate::agent::acp::PRESETS;
use crate::cli::agents::{self, PresetState};
use crate::cli::exit::{self, outln};
use crate::cli::model_server::{self, ModelServer};
use crate::cli::{Environment, ProcessEnv};
use crate::config::file::nearest;

/// What a script passes instead of answering.
const OPTION: &str = "--agent NAME";

/// The settings with which people are approved before they write.
pub(super) const PAIRING: &str = "access:\n  # You approve who may write, by code. Make yourself an owner: `hermes-relay access owner telegram:123456`.\n  mode: pair\n";

const OPENAI: &str = "openai";
const ECHO: &str = "echo";

/// An agent with what its settings need.
pub(super) enum ChosenAgent {
    Preset { name: &'static str, workdir: PathBuf },
    OpenAi { model: String, base_url: String },
    Echo,
}

impl ChosenAgent {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Preset { name, .. } => name,
            Self::OpenAi { .. } => OPENAI,
            Self::Echo => ECHO,
        }
    }

    /// Whether it can act on this machine.
    pub(super) fn acts(&self) -> bool {
        matches!(self, Self::Preset { .. })
    }

    /// Whether people should be approved before they write: it can act, or everybody on a platform could use it up.
    pub(super) fn pairs(&self, is_public: bool) -> bool {
        match self {
            Self::Preset { .. } => true,
            Self::OpenAi { .. } => is_public,
            Self::Echo => false,
        }
    }

    /// The settings file, with pairing if `pairs`.
    pub(super) fn settings(&self, pairs: bool) -> String {
        let name = self.name();
        let mut text =
            "# Written by `hermes-relay init`. `hermes-relay config reference` lists every option.\n"
                .to_owned();
        // Writing to a String does not fail. Text in double quotes is YAML as it is JSON.
        let quoted = |text: &str| Value::from(text).to_string();
        let _ = match self {
            Self::Preset { workdir, .. } => write!(
                text,
                "agents:\n  {name}:\n    preset: {name}\n    workdir: {}\n",
                quoted(&workdir.to_string_lossy())
            ),
            Self::OpenAi { model, base_url } => write!(
                text,
                "agents:\n  {name}:\n    kind: openai\n    base_url: {}\n    model: {}\n",
                quoted(base_url),
                quoted(model)
            ),
            Self::Echo => write!(text, "agents:\n  {name}:\n    kind: {name}\n"),
        };
        let _ = writeln!(text, "agent: {name}");
        if pairs {
            text.push_str(PAIRING);
        }
        text
    }
}

/// The agent of the options, of the person in front of the terminal, or the only one that can be used.
pub(super) async fn choose(
    args: &InitArgs,
    asks: bool,
    process: &ProcessEnv<'_>,
) -> Result<ChosenAgent, InitFailure> {
    if args.agent.is_none() && !asks && !args.yes && !args.json {
        return Err(InitFailure::new(
            exit::USAGE,
            "standard input is not a terminal, so there is nobody to ask",
            "name an agent, such as `hermes-relay init --agent claude`; `hermes-relay agents list` lists them",
        ));
    }
    let looks = asks || args.agent.as_deref() == Some(OPENAI);
    let looks = looks && args.base_url.is_none();
    let look = async {
        if looks {
            model_server::find(process.env).await
        } else {
            Vec::new()
        }
    };
    let (mut presets, servers) = tokio::join!(agents::presets(process), look);
    let name = match &args.agent {
        Some(name) => known(name)?,
        None if asks => ask_for_agent(&presets, &servers)?,
        None => only_one(&presets)?,
    };
    let lacking = presets.iter().find(|preset| preset.name == name);
    if let Some(title) = lacking.and_then(|preset| preset.lacks_adapter_for)
        && asks
        && !args.no_test
    {
        adapter::offer(name, title)?;
        presets = agents::presets(process).await;
    }
    let preset = presets.iter().find(|preset| preset.name == name);
    if let Some(problem) = preset.and_then(|preset| preset.problem.as_deref())
        && !args.no_test
    {
        let hint = "install it, or write the settings all the same with --no-test";
        return Err(InitFailure::new(
            exit::FAILED,
            format!("{name} cannot be used: {problem}"),
            hint,
        ));
    }
    match (preset, name) {
        (Some(preset), _) => Ok(ChosenAgent::Preset {
            name: preset.name,
            workdir: workdir(args, asks, process.env)?,
        }),
        (None, OPENAI) => {
            let (model, base_url) = model_choice::choose(args, asks, &servers).await?;
            Ok(ChosenAgent::OpenAi { model, base_url })
        }
        (None, _) => Ok(ChosenAgent::Echo),
    }
}

/// The known name that was given.
fn known(name: &str) -> Result<&'static str, InitFailure> {
    let names = || PRESETS.iter().map(|preset| preset.name).chain([OPENAI, ECHO]);
    names().find(|known| *known == name).ok_or_else(|| {
        let near = nearest(name, names()).map(|near| format!("did you mean `{near}`? "));
        let all: Vec<_> = names().collect();
        let hint = format!(
            "{}Known are {}; for any other agent write the file yourself: docs/agents.md",
            near.unwrap_or_default(),
            all.join(", ")
        );
        InitFailure::new(exit::USAGE, format!("there is no agent named `{name}`"), hint)
    })
}

/// The only preset that can be used.
fn only_one(presets: &[PresetState]) -> Result<&'static str, InitFailure> {
    let usable = presets.iter().filter(|preset| preset.problem.is_none());
    let usable: Vec<_> = usable.map(|preset| preset.name).collect();
    match usable[..] {
        [name] => Ok(name),
        [] => Err(InitFailure::new(
            exit::FAILED,
            "no known agent is installed",
            "install one (`hermes-relay agents list` shows how), or try `--agent echo`",
        )),
        _ => Err(InitFailure::new(
            exit::USAGE,
            format!("several agents are installed: {}", usable.join(", ")),
            "name one with --agent",
        )),
    }
}

/// Shows what there is, and asks for one.
fn ask_for_agent(presets: &[PresetState], servers: &[ModelServer]) -> Result<&'static str, InitFailure> {
    let installed = presets.iter().filter(|preset| preset.problem.is_none());
    let mut choices: Vec<(&'static str, String)> = installed
        .map(|preset| (preset.name, "installed".to_owned()))
        .collect();
    choices.extend(presets.iter().filter_map(|preset| {
        let title = preset.lacks_adapter_for?;
        Some((
            preset.name,
            format!("{title} is installed; its adapter is offered for installation"),
        ))
    }));
    choices.push((OPENAI, model_choice::summary(servers)));
    choices.push((ECHO, "repeats every message; needs nothing".to_owned()));
    let choices: Vec<(&'static str, &str)> = choices
        .iter()
        .map(|(name, what)| (*name, what.as_str()))
        .collect();
    outln!("Agents:");
    list(&choices);
    let is_missing = |preset: &&PresetState| preset.problem.is_some() && preset.lacks_adapter_for.is_none();
    let missing: Vec<_> = (presets.iter().filter(is_missing))
        .map(|preset| preset.name)
        .collect();
    if !missing.is_empty() {
        outln!(
            "Not installed: {}. `hermes-relay agents list` shows how.",
            missing.join(", ")
        );
    }
    pick("Which one answers?", &choices, OPTION)
}

/// The directory that the agent works in, as a full path.
fn workdir(args: &InitArgs, asks: bool, env: Environment<'_>) -> Result<PathBuf, InitFailure> {
    let refused = |path: &Path, why: io::Error| {
        let what = format!("{} cannot be the agent's directory: {why}", path.display());
        InitFailure::new(
            exit::CONFIGURATION,
            what,
            "name an existing directory with --workdir",
        )
    };
    let usable = |path: &Path| {
        let full = path.canonicalize().map_err(|error| refused(path, error))?;
        if full.is_dir() {
            Ok(full)
        } else {
            Err(refused(&full, io::ErrorKind::NotADirectory.into()))
        }
    };
    let here = std::env::current_dir().map_err(|error| refused(Path::new("."), error))?;
    if !asks || args.workdir.is_some() {
        return usable(args.workdir.as_deref().unwrap_or(&here));
    }
    let question = format!("Directory that it works in [{}]", here.display());
    let mut attempts_left = ATTEMPTS;
    loop {
        attempts_left -= 1;
        let chosen = match ask(&question, "--workdir DIR")?.as_str() {
            "" => here.clone(),
            answer => match (answer.strip_prefix("~/"), env("HOME")) {
                (Some(rest), Some(home)) => Path::new(&home).join(rest),
                _ => PathBuf::from(answer),
            },
        };
        match usable(&chosen) {
            Err(failure) if attempts_left > 0 => outln!("{}.", failure.what),
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_protect_what_can_act_and_quote_paths() {
        let preset = ChosenAgent::Preset {
            name: "claude",
            workdir: "/srv/a \"b\": c".into(),
        };
        let text = preset.settings(preset.pairs(false));
        assert!(text.contains("    workdir: \"/srv/a \\\"b\\\": c\"\n"), "{text}");
        assert!(text.ends_with("  mode: pair\n"), "{text}");
        let echo = ChosenAgent::Echo.settings(ChosenAgent::Echo.pairs(true));
        assert!(
            !echo.contains("access") && echo.ends_with("agent: echo\n"),
            "{echo}"
        );
    }

    #[test]
    fn only_a_single_installed_agent_is_taken_unasked() {
        let state = |name, problem: Option<&str>| PresetState {
            name,
            problem: problem.map(str::to_owned),
            lacks_adapter_for: None,
        };
        let down = || state("codex", Some("not installed"));
        assert_eq!(only_one(&[state("claude", None), down()]).ok(), Some("claude"));
        assert_eq!(only_one(&[down()]).err().unwrap().code, exit::FAILED);
        let both = [state("claude", None), state("gemini", None)];
        let refused = only_one(&both).err().unwrap();
        assert!(refused.code == exit::USAGE && refused.what.ends_with("claude, gemini"));
        let typo = known("cluade").err().unwrap();
        assert!(typo.hint.unwrap().starts_with("did you mean `claude`?"));
    }
}
