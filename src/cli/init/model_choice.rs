//! Which model answers: named by options, or chosen among those of the servers that run on this machine.

use super::menu::{ATTEMPTS, ask, list, pick};
use super::{InitArgs, InitFailure};
use crate::cli::exit::{self, outln};
use crate::cli::model_server::{ModelServer, models_at, server_of};

/// Ollama's address.
const OLLAMA: &str = "http://127.0.0.1:11434/v1";
/// What a script passes instead of answering.
const OPTION: &str = "--model NAME";
/// Models that one list offers.
const MAX_LISTED: usize = 30;
/// The choice of a server that was not found.
const OTHER: &str = "other";

/// What there is, for the list of agents.
pub(super) fn summary(servers: &[ModelServer]) -> String {
    let count = |server: &ModelServer| match server.models.len() {
        1 => format!("{} (1 model)", server.name),
        models => format!("{} ({models} models)", server.name),
    };
    let found: Vec<String> = servers.iter().map(count).collect();
    match found.as_slice() {
        [] => "a model server with an OpenAI-compatible API, such as Ollama".to_owned(),
        found => format!("a model of a server that runs here: {}", found.join(", ")),
    }
}

/// The model and the base URL of its server.
pub(super) async fn choose(
    args: &InitArgs,
    asks: bool,
    servers: &[ModelServer],
) -> Result<(String, String), InitFailure> {
    match (&args.model, &args.base_url) {
        (Some(model), Some(url)) => Ok((model.clone(), url.clone())),
        (Some(model), None) => {
            let server = server_of(servers, model);
            let url = server.map_or(OLLAMA, |server| server.base_url.as_str());
            Ok((model.clone(), url.to_owned()))
        }
        (None, Some(url)) => Ok((model_of(url, asks).await?, url.clone())),
        (None, None) => match (asks, servers) {
            (false, servers) => only_one(servers),
            (true, []) => ask_for_server().await,
            (true, servers) => ask_for_model(servers).await,
        },
    }
}

/// The only model of the servers that run.
fn only_one(servers: &[ModelServer]) -> Result<(String, String), InitFailure> {
    let models = |server: &'_ ModelServer| {
        let url = server.base_url.clone();
        let models = server.models.clone();
        models.into_iter().map(move |model| (model, url.clone()))
    };
    let mut all: Vec<(String, String)> = servers.iter().flat_map(models).collect();
    if all.len() == 1
        && let Some(only) = all.pop()
    {
        return Ok(only);
    }
    let names: Vec<String> = all.into_iter().map(|(model, _)| model).collect();
    Err(missing(&names))
}

fn missing(models: &[String]) -> InitFailure {
    let hint = match models {
        [] => "name it with --model".to_owned(),
        models => format!("name it with --model; there are {}", models.join(", ")),
    };
    InitFailure::new(exit::USAGE, "the model is missing", hint)
}

/// Asks for a model of the servers that run, or for another server.
async fn ask_for_model(servers: &[ModelServer]) -> Result<(String, String), InitFailure> {
    let mut choices: Vec<(&str, &str)> = Vec::new();
    for server in servers {
        let models = server.models.iter().map(|model| (model.as_str(), server.name));
        choices.extend(models.take(MAX_LISTED - choices.len().min(MAX_LISTED)));
    }
    choices.push((OTHER, "another server, by its URL"));
    outln!("Models:");
    list(&choices);
    let model = pick("Which one?", &choices, OPTION)?;
    match server_of(servers, model) {
        Some(server) => Ok((model.to_owned(), server.base_url.clone())),
        None => ask_for_server().await,
    }
}

/// Asks for the URL of a server, and for one of its models.
async fn ask_for_server() -> Result<(String, String), InitFailure> {
    let url = match ask(&format!("URL of the model server [{OLLAMA}]"), "--base-url URL")?.as_str() {
        "" => OLLAMA.to_owned(),
        url => url.to_owned(),
    };
    Ok((model_of(&url, true).await?, url))
}

/// A model of the server with this URL: the only one, or the one that is chosen or typed.
async fn model_of(url: &str, asks: bool) -> Result<String, InitFailure> {
    let models = models_at(url).await;
    let listed = models.as_deref().unwrap_or_default();
    if !asks {
        return match listed {
            [only] => Ok(only.clone()),
            listed => Err(missing(listed)),
        };
    }
    match &models {
        Ok(models) if !models.is_empty() => {
            let choices: Vec<(&str, &str)> = models
                .iter()
                .take(MAX_LISTED)
                .map(|model| (model.as_str(), ""))
                .collect();
            outln!("Models:");
            list(&choices);
            return pick("Which one?", &choices, OPTION).map(str::to_owned);
        }
        Ok(_) => {}
        Err(why) => outln!("The server does not list its models: {why}."),
    }
    for _ in 0..ATTEMPTS {
        let answer = ask("Model, such as llama3.2", OPTION)?;
        if !answer.is_empty() {
            return Ok(answer);
        }
    }
    Err(missing(&[]))
}
