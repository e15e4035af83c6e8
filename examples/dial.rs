//! A relay that dials a connector: `cargo run --example dial -- wss://connector.example/relay`. `GATEWAY_RELAY_ID` and
//! `GATEWAY_RELAY_SECRET` are the credentials that `hermes-relay enroll` prints; without them it dials without any.

use std::error::Error;
use std::path::Path;

use hermes_relay::settings::{BotIdentity, Settings};
use hermes_relay::{EchoAgent, ExitReason, Relay};

/// Answers what comes from the connector at `url` until `shutdown`.
pub(crate) async fn serve(
    url: &str,
    state_dir: &Path,
    shutdown: impl Future<Output = ()>,
) -> Result<ExitReason, Box<dyn Error>> {
    let mut settings = Settings::embedded(state_dir);
    settings.connector.url = Some(url.to_owned());
    settings.connector.identities = vec![BotIdentity::new("discord", "")];
    settings.connector.gateway_id = std::env::var("GATEWAY_RELAY_ID").ok();
    settings.connector.secret = std::env::var("GATEWAY_RELAY_SECRET").ok().map(Into::into);
    let relay = Relay::builder(settings).agent("echo", EchoAgent).build()?;
    let mut link = relay.link();
    let mut running = std::pin::pin!(relay.run(shutdown));
    loop {
        tokio::select! {
            ended = &mut running => return Ok(ended),
            Ok(()) = link.changed() => println!("link: {}", link.borrow_and_update().state),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("usage: dial URL")?;
    // Keep it between runs: the journal in it is what survives a crash.
    let state = tempfile::tempdir()?;
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let ended = Box::pin(serve(&url, state.path(), stop)).await?;
    println!("{ended:?}");
    Ok(())
}
