//! `dev --model` and `dev --base-url`: a model server as the agent, without a settings file.

use std::process::ExitCode;

use super::DevArgs;
use crate::cli::Environment;
use crate::cli::exit::{self, ErrorFormat};
use crate::cli::model_server::{find, known, models_at, server_of};
use crate::config::Settings;

/// The name and the kind of that agent.
const AGENT: &str = "openai";
/// Models that an error names.
const MAX_NAMED: usize = 10;

/// Makes the model of the options the agent that answers.
pub(super) async fn choose(
    args: &DevArgs,
    settings: &mut Settings,
    env: Environment<'_>,
) -> Result<(), ExitCode> {
    if args.model.is_none() && args.base_url.is_none() {
        return Ok(());
    }
    let errors = args.errors();
    if let Some(agent) = args.agent.as_deref().filter(|agent| *agent != AGENT) {
        let what = format!("--model and --base-url are for a model server, and --agent is {agent}");
        return Err(errors.fail(exit::USAGE, what, Some("omit --agent, or the other two")));
    }
    let (model, base_url) = match (&args.model, &args.base_url) {
        (Some(model), Some(url)) => (model.clone(), url.clone()),
        (None, Some(url)) => (only_model(url, errors).await?, url.clone()),
        (Some(model), None) => (model.clone(), server_with(model, env, errors).await?),
        (None, None) => return Ok(()),
    };
    let entry = serde_json::json!({"kind": "openai", "base_url": base_url, "model": model});
    let entry = serde_json::from_value(entry);
    let entry =
        entry.map_err(|error| errors.fail(exit::USAGE, format!("invalid model or URL: {error}"), None))?;
    settings.agents.insert(AGENT.to_owned(), entry);
    AGENT.clone_into(&mut settings.agent);
    Ok(())
}

/// The only model of a server.
async fn only_model(url: &str, errors: ErrorFormat) -> Result<String, ExitCode> {
    let models = models_at(url).await;
    match models.as_deref() {
        Ok([only]) => Ok(only.clone()),
        Ok([]) => Err(errors.fail(
            exit::CONFIGURATION,
            format!("the server at {url} lists no model"),
            Some("name one with --model"),
        )),
        Ok(models) => Err(errors.fail(
            exit::USAGE,
            format!("the server at {url} has several models: {}", named(models)),
            Some("name one with --model"),
        )),
        Err(why) => Err(errors.fail(
            exit::CONFIGURATION,
            format!("cannot ask the server at {url} for its models: {why}"),
            Some("start the server, or name the model with --model"),
        )),
    }
}

/// The base URL of the server on this machine that has a model.
async fn server_with(model: &str, env: Environment<'_>, errors: ErrorFormat) -> Result<String, ExitCode> {
    let servers = find(env).await;
    if let Some(server) = server_of(&servers, model) {
        return Ok(server.base_url.clone());
    }
    let models: Vec<String> = servers.iter().flat_map(|server| server.models.clone()).collect();
    let names: Vec<&str> = servers.iter().map(|server| server.name).collect();
    Err(match names.as_slice() {
        [] => errors.fail(
            exit::CONFIGURATION,
            format!(
                "no model server runs on this machine: {} do not answer",
                known(env)
            ),
            Some("start one, such as `ollama serve`, or name its URL with --base-url"),
        ),
        names => {
            let hint = match models.as_slice() {
                [] => "it has no model yet; `ollama pull NAME` fetches one".to_owned(),
                models => format!("there are {}", named(models)),
            };
            let what = format!("{} has no model `{model}`", names.join(" or "));
            errors.fail(exit::CONFIGURATION, what, Some(&hint))
        }
    })
}

fn named(models: &[String]) -> String {
    let rest = models.len().saturating_sub(MAX_NAMED);
    let named = models
        .iter()
        .take(MAX_NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match rest {
        0 => named,
        rest => format!("{named} and {rest} more"),
    }
}
