//! Probes of a Telegram bot of one's own: its token, what Telegram says about it, and who else receives its messages.
//!
//! Nothing is confirmed and nothing is changed: updates stay at Telegram, and so does a webhook. The token is in no finding.

use std::time::Duration;

use serde_json::{Map, Value};
use url::Url;

use super::context::{CheckContext, Peer, PeerTarget, RunningRelay};
use super::network::explain_dial;
use super::probe::ProbeResult;
use crate::config::{Origin, TelegramConfig, check_bot_token};
use crate::direct::telegram::{ApiAnswer, Bot, PollTrouble};
use crate::net::http::excerpt;
use crate::net::proxy::is_loopback;
use crate::net::steps::Steps;
use crate::net::telegram::BotClient;
use crate::relay::bot_client;

/// How long to look for another poller: most poll again within this time after a conflict, another relay after 3 s.
const POLLER_WAIT: Duration = Duration::from_secs(6);

/// Where to get a token.
const BOT_FATHER: &str = "ask @BotFather on Telegram for the bot's token (/mybots, the bot, API Token)";
/// How to see everything in groups.
const SET_PRIVACY: &str = "switch privacy mode off with /setprivacy at @BotFather, then remove the bot from the group and add it again; or \
                           make it an administrator there";

/// Checks the address of the Bot API.
pub(super) fn api(context: &mut CheckContext<'_>) -> Vec<ProbeResult> {
    let (Some(known), Some(bot)) = (&context.loaded, bot_of(context)) else {
        return Vec::new();
    };
    let base = bot.api_base.trim_end_matches('/').to_owned();
    // The settings allow nothing but http and https with a host.
    let Ok(url) = Url::parse(&base) else {
        return vec![ProbeResult::failed("`direct.telegram.api_base` is not a URL", "")];
    };
    let dialled = base.replacen("http", "ws", 1);
    let steps = match Steps::toward(&dialled, known.tls.clone(), &context.proxies) {
        Ok(steps) => steps,
        Err(error) => {
            let (detail, remedy) = explain_dial(&error, Peer::Telegram);
            return vec![ProbeResult::failed(detail, remedy)];
        }
    };
    // Beside a connector, the steps of the network are those to the connector.
    context.target.get_or_insert(PeerTarget {
        peer: Peer::Telegram,
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
    let origin = known.loaded.origins.of("direct.telegram.token");
    let Some(token) = &bot.token else {
        return vec![ProbeResult::failed(
            "no token is configured",
            format!(
                "{BOT_FATHER}; store it in a file for `direct.telegram.token_file`, or set TELEGRAM_BOT_TOKEN"
            ),
        )];
    };
    vec![match check_bot_token(token) {
        Ok(()) => ProbeResult::ok(format!("from {origin}")),
        Err(why) => ProbeResult::failed(
            format!("{origin} does not hold a token: {why}"),
            format!("{BOT_FATHER}, and store exactly that"),
        ),
    }]
}

fn bot_of<'a>(context: &'a CheckContext<'_>) -> Option<&'a TelegramConfig> {
    context.settings()?.direct.telegram.as_ref()
}

/// Asks Telegram about the bot.
pub(super) async fn telegram(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let (Some(known), Some(settings)) = (&context.loaded, bot_of(context)) else {
        return Vec::new();
    };
    let client = match bot_client(settings, known.tls.clone(), context.proxies.clone()) {
        Ok(client) => client,
        Err(error) => return vec![ProbeResult::failed(error.to_string(), "")],
    };
    let described = context.step(client.call("getMe", &Map::new())).await;
    let bot = match described {
        Some(ApiAnswer::Ok(value)) => Bot::from_value(&value),
        answer => return vec![unanswered(context, answer.as_ref(), &client)],
    };
    let Some(bot) = bot else {
        let what = format!("{} did not describe the bot", client.host());
        return vec![ProbeResult::failed(what, "check `direct.telegram.api_base`")];
    };
    let mut results = vec![ProbeResult::ok(format!(
        "@{} ({}), number {}",
        excerpt(&bot.username),
        excerpt(&bot.name),
        bot.id
    ))];
    results.push(groups(&bot, settings).about("groups"));
    let info = context.step(client.call("getWebhookInfo", &Map::new())).await;
    let info = match info {
        Some(ApiAnswer::Ok(info)) => info,
        answer => {
            results.push(unanswered(context, answer.as_ref(), &client).about("webhook"));
            return results;
        }
    };
    let webhook = webhook(&info);
    let has_webhook = webhook.is_some();
    results.extend(webhook.map(|webhook| webhook.about("webhook")));
    let waiting = info.get("pending_update_count").and_then(Value::as_u64);
    if let Some(waiting) = waiting {
        let detail = match waiting {
            0 => "no updates wait".to_owned(),
            1 => "1 update waits for a poll; Telegram keeps it for 24 hours".to_owned(),
            waiting => format!("{waiting} updates wait for a poll; Telegram keeps them for 24 hours"),
        };
        results.push(ProbeResult::ok(detail).about("queue"));
    }
    if !has_webhook {
        results.push(other_poller(context, &client).await.about("other programs"));
    }
    results
}

/// What a call without a result means.
fn unanswered(context: &CheckContext<'_>, answer: Option<&ApiAnswer>, client: &BotClient) -> ProbeResult {
    let known = context.loaded.as_ref();
    let token = known.map(|known| known.loaded.origins.of("direct.telegram.token"));
    let token = token.unwrap_or(&Origin::Default);
    let host = client.host();
    let retry = "try again; the relay retries by itself";
    match answer {
        Some(ApiAnswer::Error {
            code: code @ (401 | 404),
            description,
            ..
        }) => ProbeResult::failed(
            format!(
                "{host} does not accept the token from {token} ({code} {description}): it was revoked, or belongs to another server"
            ),
            format!("{BOT_FATHER}, and store it there"),
        ),
        Some(ApiAnswer::Error {
            code: 429,
            retry_after,
            ..
        }) => ProbeResult::warn(
            format!("{host} asks to wait {} s", retry_after.unwrap_or(1)),
            retry,
        ),
        Some(ApiAnswer::Error {
            code, description, ..
        }) => ProbeResult::failed(
            format!("{host} refused: {code} {description}"),
            "check `direct.telegram.api_base`",
        ),
        Some(ApiAnswer::NotSent(why)) => ProbeResult::failed(why, Peer::Telegram.connect_remedy()),
        Some(ApiAnswer::Unknown | ApiAnswer::Ok(_)) => ProbeResult::failed(
            format!("{host} gave no usable answer"),
            "try again; if it persists, look for a proxy in between, and check `direct.telegram.api_base`",
        ),
        None => ProbeResult::failed(format!("{host} did not answer in time"), retry),
    }
}

/// What the bot sees in groups, and whether that is what the settings need.
fn groups(bot: &Bot, settings: &TelegramConfig) -> ProbeResult {
    if bot.reads_all_group_messages {
        return ProbeResult::ok("privacy mode is off: it sees every message of its groups");
    }
    let sees = "privacy mode is on: in groups where it is not an administrator it sees only commands, replies to it and mentions";
    if settings.require_mention && settings.free_chats.is_empty() {
        return ProbeResult::ok(sees);
    }
    ProbeResult::warn(
        format!("{sees}, but `policy.telegram` lets it answer other messages too"),
        SET_PRIVACY,
    )
}

/// The webhook that is set, if one is. Only its host is shown: the rest may be a secret.
fn webhook(info: &Value) -> Option<ProbeResult> {
    let url = info
        .get("url")
        .and_then(Value::as_str)
        .filter(|url| !url.is_empty())?;
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(excerpt));
    Some(ProbeResult::warn(
        format!(
            "a webhook is set, so another program at {} receives this bot's messages",
            host.as_deref().unwrap_or("an unknown host")
        ),
        "if that is over, start the relay: it removes the webhook and keeps what waits; otherwise make another bot with /newbot at @BotFather",
    ))
}

/// Whether another program polls. Two pollers end each other's polls, so a conflict shows it.
async fn other_poller(context: &CheckContext<'_>, client: &BotClient) -> ProbeResult {
    let pid = match &context.running {
        RunningRelay::None => return poll_once(context, client).await,
        RunningRelay::Unknown => {
            return ProbeResult::skipped("a relay may be running here, and a poll would end its own");
        }
        RunningRelay::Connected(pid) | RunningRelay::Disconnected(pid) => pid,
    };
    let troubles = [PollTrouble::Conflict, PollTrouble::Webhook].map(|trouble| trouble.to_string());
    match &context.running_trouble {
        Some(trouble) if troubles.contains(trouble) => conflict(),
        _ => ProbeResult::ok(format!("the relay that runs here (process {pid}) reports none")),
    }
}

async fn poll_once(context: &CheckContext<'_>, client: &BotClient) -> ProbeResult {
    // Without an offset nothing is confirmed, and without kinds of updates those that were asked for last stay.
    let body = Map::from_iter([
        ("limit".to_owned(), 1.into()),
        ("timeout".to_owned(), POLLER_WAIT.as_secs().into()),
    ]);
    let poll = client.poll(&body, POLLER_WAIT);
    match context.waiting_step(POLLER_WAIT, poll).await {
        // A poll that brings something ends at once, and so before another program would have noticed it.
        Some(ApiAnswer::Ok(updates)) if updates.as_array().is_some_and(|updates| !updates.is_empty()) => {
            ProbeResult::skipped(
                "not checked, because updates wait; start the relay, and see `hermes-relay status`",
            )
        }
        Some(ApiAnswer::Ok(_)) => {
            ProbeResult::ok(format!("none polled this bot within {} s", POLLER_WAIT.as_secs()))
        }
        Some(ApiAnswer::Error { code: 409, .. }) => conflict(),
        answer => unanswered(context, answer.as_ref(), client),
    }
}

fn conflict() -> ProbeResult {
    ProbeResult::failed(
        "another program polls this bot: each ends the other's polls, and messages go to one or the other",
        "stop the other program (a Hermes with the same TELEGRAM_BOT_TOKEN, another relay, a script), or make a bot for this relay with \
         /newbot at @BotFather; if you find none, revoke the token there",
    )
}
