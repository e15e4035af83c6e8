//! A conversation with the real OpenCode, as it is published: installed from its registry, with a made-up model behind it.
//!
//! The real relay, the real agent, real processes; only the connector and the model are ours, and both are on loopback.
//! Nothing is sent to anyone. Where OpenCode cannot be installed, the tests say so loudly and are skipped.

mod install;

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::real_hermes::home::OFFLINE;
use crate::real_hermes::{conversation, model, processes};
use crate::support::relay_process::Setup;

#[tokio::test(flavor = "multi_thread")]
async fn opencode_answers_asks_stops_and_remembers() {
    let Some(opencode) = install::opencode().await else {
        return;
    };
    let model = model::start().await;
    let connector = conversation::connector().await;
    let mut setup = Setup::for_connector(&connector).args(&["run", "--agent", "o"]);
    let work = setup.home().with_file_name("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("opencode.json"), settings(&model.base())).unwrap();
    let offline = OFFLINE
        .iter()
        .chain(&QUIET)
        .map(|(name, value)| format!("{name}: \"{value}\""))
        .collect::<Vec<_>>()
        .join(", ");
    let agent = format!(
        "{{preset: opencode, argv: [\"{}\", acp], cwd: \"{}\", env: {{{offline}}}}}",
        opencode.display(),
        work.display(),
    );
    setup = setup
        .setting("agents.o", &agent)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    conversation::held(&connector, &setup, &work).await;
    let folder = work.parent().unwrap_or(Path::new("/"));
    processes::gone(folder, "", processes::LEAVING).await;
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
            "models": {"made-up": {"name": "made-up"}},
        }},
    })
    .to_string()
}
