//! Probes of a Discord bot of one's own: its token, and what Discord says about it. Nothing is changed, no session is begun, and the
//! token is in no finding.

use serde_json::Value;
use url::Url;

use super::context::{CheckContext, Peer, PeerTarget};
use super::network::explain_dial;
use super::probe::ProbeResult;
use crate::config::{DiscordBotConfig, check_discord_token};
use crate::direct::discord::{DiscordBot, RestAnswer, RestRequest, invite_link, reads_content};
use crate::net::discord::DiscordClient;
use crate::net::http::excerpt;
use crate::net::proxy::is_loopback;
use crate::net::steps::Steps;
use crate::relay::discord_client;

/// Where to get a token.
const PORTAL: &str = "reset the token on the page Bot of https://discord.com/developers/applications";
/// How to see what people write in channels.
const CONTENT: &str =
    "turn on Message Content Intent on the page Bot of https://discord.com/developers/applications";

fn bot_of<'a>(context: &'a CheckContext<'_>) -> Option<&'a DiscordBotConfig> {
    context.settings()?.direct.discord.as_ref()
}

/// Checks the address of the REST API.
pub(super) fn api(context: &mut CheckContext<'_>) -> Vec<ProbeResult> {
    let (Some(known), Some(bot)) = (&context.loaded, bot_of(context)) else {
        return Vec::new();
    };
    let base = bot.api_base.trim_end_matches('/').to_owned();
    // The settings allow nothing but http and https with a host.
    let Ok(url) = Url::parse(&base) else {
        return vec![ProbeResult::failed("`direct.discord.api_base` is not a URL", "")];
    };
    let steps = match Steps::toward(
        &base.replacen("http", "ws", 1),
        known.tls.clone(),
        &context.proxies,
    ) {
        Ok(steps) => steps,
        Err(error) => {
            let (detail, remedy) = explain_dial(&error, Peer::Discord);
            return vec![ProbeResult::failed(detail, remedy)];
        }
    };
    // With two bots, or beside a connector, the steps of the network are those to the first.
    context.target.get_or_insert(PeerTarget {
        peer: Peer::Discord,
        host: url.host_str().unwrap_or_default().to_owned(),
        is_loopback: url.host().is_some_and(|host| is_loopback(&host)),
        is_plaintext: url.scheme() == "http",
        http_base: url.origin().ascii_serialization(),
        steps,
    });
    vec![ProbeResult::ok(format!("{base}, no connector is used"))]
}

/// Checks whether there is a token that can be one.
pub(super) fn bot_token(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let (Some(known), Some(bot)) = (&context.loaded, bot_of(context)) else {
        return Vec::new();
    };
    let origin = known.loaded.origins.of("direct.discord.token");
    let Some(token) = &bot.token else {
        let remedy =
            format!("{PORTAL}; store it in a file for `direct.discord.token_file`, or set DISCORD_BOT_TOKEN");
        return vec![ProbeResult::failed("no token is configured", remedy)];
    };
    vec![match check_discord_token(token) {
        Ok(()) => ProbeResult::ok(format!("from {origin}")),
        Err(why) => ProbeResult::failed(
            format!("{origin} does not hold a token: {why}"),
            format!("{PORTAL}, and store exactly that"),
        ),
    }]
}

/// Asks Discord about the bot.
pub(super) async fn discord(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let (Some(known), Some(settings)) = (&context.loaded, bot_of(context)) else {
        return Vec::new();
    };
    let client = match discord_client(settings, known.tls.clone(), context.proxies.clone()) {
        Ok(client) => client,
        Err(error) => return vec![ProbeResult::failed(error.to_string(), "")],
    };
    let user = match asked(context, &client, "users/@me").await {
        Ok(user) => user,
        Err(result) => return vec![result],
    };
    let Some(bot) = DiscordBot::from_user(&user) else {
        let what = format!("{} did not describe the bot", client.host());
        return vec![ProbeResult::failed(what, "check `direct.discord.api_base`")];
    };
    let mut results = vec![ProbeResult::ok(format!(
        "{} (id {})",
        excerpt(&bot.name),
        excerpt(&bot.id)
    ))];
    let Ok(application) = asked(context, &client, "applications/@me").await else {
        return results;
    };
    if let Some(may_read) = reads_content(&application) {
        let reading = if may_read {
            ProbeResult::ok("the bot may read the content of messages")
        } else {
            ProbeResult::failed(
                "the bot may not read the content of messages; Discord refuses it",
                CONTENT,
            )
        };
        results.push(reading.about("intents"));
    }
    if let Some(id) = application["id"].as_str() {
        results.push(ProbeResult::ok(invite_link(id)).about("invite"));
    }
    results
}

/// The answer to a question; the error is the finding.
async fn asked(context: &CheckContext<'_>, client: &DiscordClient, path: &str) -> Result<Value, ProbeResult> {
    let request = RestRequest::get(path, path);
    let host = client.host();
    let retry = "try again; the relay retries by itself";
    Err(match context.step(client.request(&request)).await {
        Some((RestAnswer::Ok(found), ..)) => return Ok(found),
        Some((RestAnswer::Error { status: 401, .. }, ..)) => ProbeResult::failed(
            format!("{host} does not accept the token: it was reset, or belongs to another server"),
            format!("{PORTAL}, and store the new one"),
        ),
        Some((RestAnswer::Error { status: 429, .. }, ..)) => {
            ProbeResult::warn(format!("{host} asks to wait"), retry)
        }
        Some((RestAnswer::Error { status, message, .. }, ..)) => ProbeResult::failed(
            format!("{host} refused: {status} {}", excerpt(&message)),
            "check `direct.discord.api_base`",
        ),
        Some((RestAnswer::NotSent(why), ..)) => ProbeResult::failed(why, Peer::Discord.connect_remedy()),
        Some((RestAnswer::Unknown, ..)) => ProbeResult::failed(
            format!("{host} gave no usable answer"),
            "try again; if it persists, look for a proxy in between, and check `direct.discord.api_base`",
        ),
        None => ProbeResult::failed(format!("{host} did not answer in time"), retry),
    })
}
