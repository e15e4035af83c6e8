//! A conversation with the real OpenCode, as it is published: installed from its registry, with a made-up model behind it.
//!
//! The real relay, the real agent, real processes; only the connector and the model are ours, and both are on loopback.
//! Nothing is sent to anyone. Where OpenCode cannot be installed, the tests say so loudly and are skipped.

mod in_chat;
mod install;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::real_hermes::home::OFFLINE;
use crate::real_hermes::{conversation, model, processes};
use crate::support::dev::Connector;
use crate::support::quick_start::Way;
use crate::support::relay_process::Setup;

#[tokio::test(flavor = "multi_thread")]
async fn opencode_answers_asks_stops_and_remembers() {
    let Some(opencode) = install::opencode().await else {
        return;
    };
    let model = model::start().await;
    let connector = conversation::connector().await;
    let (setup, work) = set_up(&connector, &opencode, &model.base(), "");
    conversation::held(&connector, &setup, &work).await;
    let folder = work.parent().unwrap_or(Path::new("/"));
    processes::gone(folder, "", processes::LEAVING).await;
}

/// A relay whose agent `o` is this OpenCode with this model and further settings, and the directory that it works in.
fn set_up(connector: &Connector, opencode: &Path, model: &str, more: &str) -> (Setup, PathBuf) {
    let setup = Setup::for_connector(connector).args(&["run", "--agent", "o"]);
    let work = setup.home().with_file_name("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("opencode.json"), settings(model)).unwrap();
    let offline = OFFLINE
        .iter()
        .chain(&QUIET)
        .map(|(name, value)| format!("{name}: \"{value}\""))
        .collect::<Vec<_>>()
        .join(", ");
    let agent = format!(
        "{{preset: opencode, argv: [\"{}\", acp], cwd: \"{}\", env: {{{offline}}}{more}}}",
        opencode.display(),
        work.display(),
    );
    let setup = setup
        .setting("agents.o", &agent)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    (setup, work)
}

/// How long OpenCode may take for an answer, its first start included.
const FIRST_ANSWER: Duration = Duration::from_secs(120);

/// The way of a person who has OpenCode with a model already. `init` shows an answer, and `dev` is a chat with it.
#[tokio::test(flavor = "multi_thread")]
async fn an_own_coding_agent_answers_after_one_command() {
    let Some(opencode) = install::opencode().await else {
        return;
    };
    let model = model::start().await;
    let programs = opencode.parent().unwrap_or(Path::new("/")).display();
    let mut setup = Setup::new().env("PATH", &format!("{programs}:/usr/local/bin:/usr/bin:/bin"));
    for (name, value) in OFFLINE.iter().chain(&QUIET) {
        setup = setup.env(name, value);
    }
    fs::remove_file(setup.home().join("relay.yaml")).unwrap();
    let own = setup.home().join(".config/opencode");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("opencode.json"), settings(&model.base())).unwrap();
    let mut way = Way::read("Your own coding agent", &[]);
    let lines = way.prepare(way.first(&setup), FIRST_ANSWER).await;
    let is_answer = |line: &String| line.contains("You said: ");
    assert!(lines.iter().any(is_answer), "after one command: {lines:#?}");
    way.chat(way.second(&setup), FIRST_ANSWER, "You said: hello")
        .await;
    let folder = setup.home().parent().unwrap_or(Path::new("/")).to_owned();
    processes::gone(&folder, "", processes::LEAVING).await;
}

/// What would be fetched at the start.
const QUIET: [(&str, &str); 3] = [
    ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
    ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
    ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
];

/// A model at this address, and a question before anything is removed.
fn settings(model: &str) -> String {
    json!({
        "autoupdate": false,
        "share": "disabled",
        "model": "test/made-up",
        "small_model": "test/made-up",
        "permission": {"bash": {"*": "allow", "rm *": "ask"}},
        "provider": {"test": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "test",
            "options": {"baseURL": format!("{model}/v1"), "apiKey": "not-a-secret"},
            "models": {"made-up": {"name": "made-up"}, "other": {"name": "other"}},
        }},
    })
    .to_string()
}
