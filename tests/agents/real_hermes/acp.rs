//! Hermes as a program that speaks the Agent Client Protocol, started by the relay.

use crate::real_hermes::home::{Home, OFFLINE};
use crate::real_hermes::{conversation, install, model, processes};
use crate::support::relay_process::Setup;

#[tokio::test(flavor = "multi_thread")]
async fn hermes_behind_acp_answers_asks_stops_and_remembers() {
    let Some(hermes) = install::hermes().await else {
        return;
    };
    let model = model::start().await;
    let connector = conversation::connector().await;
    let mut setup = Setup::for_connector(&connector).args(&["run", "--agent", "h"]);
    let home = Home::settle(&setup, &model.base());
    let offline = OFFLINE
        .map(|(name, value)| format!("{name}: \"{value}\""))
        .join(", ");
    let agent = format!(
        "{{kind: acp, preset: hermes, argv: [\"{}\"], cwd: \"{}\", env: {{{offline}}}}}",
        hermes.program("hermes-acp").display(),
        home.work().display(),
    );
    setup = setup
        .setting("agents.h", &agent)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    conversation::held(&connector, &setup, home.work()).await;
    processes::gone(home.folder(), "", processes::LEAVING).await;
}
