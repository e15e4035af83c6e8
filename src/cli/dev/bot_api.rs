//! `dev --bot-api`: a fake Telegram Bot API, with the relay as its bot, or for a bot of another program.

use std::process::ExitCode;
use std::time::Instant;

use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;

use super::relay::{DevRelay, RelayPlan};
use super::{DevArgs, SMOKE_TIMEOUT, SmokeFailure, millis, owners, port_in_use, smoke};
use crate::cli::ProcessEnv;
use crate::cli::exit::{self, errln, fail, outln};
use crate::cli::run::build_agents;
use crate::config::Settings;
use crate::dev::{ApiChatKind, ApiPerson, BotApi, BotApiSettings, BotStanding};

/// The only platform that it simulates.
pub(super) const PLATFORM: &str = "telegram";

/// The person whom the smoke test is, in the first private chat.
const ADA: i64 = 1_001;
/// People of the simulation.
const PEOPLE: [(i64, &str); 2] = [(ADA, "Ada"), (1_002, "Grace")];
/// Groups and channels of the simulation.
const CHATS: [(i64, ApiChatKind, &str); 3] = [
    (-2_001, ApiChatKind::Group, "Team"),
    (FORUM, ApiChatKind::Forum, "Project"),
    (-1_001_000_000_003, ApiChatKind::Channel, "News"),
];
const FORUM: i64 = -1_001_000_000_002;

/// Serves until Ctrl-C, or one round trip.
pub(super) async fn serve(
    args: &DevArgs,
    mut settings: Settings,
    process: &ProcessEnv<'_>,
    (began, ending): (Instant, &CancellationToken),
) -> ExitCode {
    let ids = (ADA..).take(crate::dev::MAX_PAGE_PEOPLE).map(|id| id.to_string());
    let access = owners::admit(&mut settings, PLATFORM, ids, args.access);
    let api_settings = BotApiSettings {
        port: args.port,
        ..BotApiSettings::default()
    };
    let username = api_settings.username.clone();
    let api = match BotApi::start(api_settings).await {
        Ok(api) => api,
        Err(error) => return port_in_use(args.port, &error),
    };
    populate(&api);
    if args.connector_only {
        print_environment(&api);
        print_for_others(&api, &username);
        super::ended(ending).await;
        return ExitCode::SUCCESS;
    }
    match build_agents(&settings, process).await {
        Err(error) => fail(exit::CONFIGURATION, error.message, error.hint),
        Ok((agents, voice)) => {
            let plan = RelayPlan {
                platforms: vec![PLATFORM.to_owned()],
                settings,
                agents,
                voice,
            };
            serve_relay(args, plan, (&api, &username), access, (began, ending)).await
        }
    }
}

async fn serve_relay(
    args: &DevArgs,
    plan: RelayPlan,
    (api, username): (&BotApi, &str),
    access: Option<String>,
    (began, ending): (Instant, &CancellationToken),
) -> ExitCode {
    let agent = plan.settings.agent.clone();
    let relay = match DevRelay::start_bot(plan, api) {
        Ok(relay) => relay,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    let code = if args.smoke {
        let sent = send(api, began).await;
        smoke(args, sent, (&relay, &agent), began, || answer(api)).await
    } else {
        print_environment(api);
        outln!("\nA fake Telegram serves @{username}, the relay is that bot, and `{agent}` answers. Page:");
        outln!("\n  {}\n", api.open_page());
        outln!("Write to the bot there; in the groups, mention it. Ctrl-C ends.");
        if let Some(access) = access {
            outln!("{access}");
        }
        super::ended(ending).await;
        ExitCode::SUCCESS
    };
    relay.stop(code).await
}

/// Writes to the bot as soon as it polls; returns when that was.
async fn send(api: &BotApi, began: Instant) -> Result<u64, SmokeFailure> {
    let polled = api.wait_polled(SMOKE_TIMEOUT).await;
    polled.map_err(|error| (error.to_string(), None))?;
    let connected_ms = millis(began);
    api.say(ADA, ADA, "hello");
    Ok(connected_ms)
}

/// What the bot has written.
fn answer(api: &BotApi) -> String {
    let state = api.hub.lock();
    let messages = state
        .chats
        .get(&ADA)
        .into_iter()
        .flat_map(|chat| chat.messages.values());
    let texts = messages
        .filter(|message| message.is_by_bot)
        .map(|message| message.text.text());
    texts.collect::<Vec<_>>().join("\n")
}

fn print_environment(api: &BotApi) {
    outln!("TELEGRAM_BOT_TOKEN={}", api.token().expose_secret());
    outln!("TELEGRAM_API_BASE={}", api.base());
}

fn print_for_others(api: &BotApi, username: &str) {
    let base = api.base();
    errln!(
        "\nA fake Telegram serves @{username} until it ends, and the token is valid for this run only. Page:"
    );
    errln!("\n  {}\n", api.open_page());
    errln!("Give a bot the token, and this address instead of https://api.telegram.org:");
    errln!("  hermes-relay: direct.telegram.api_base: {base}");
    errln!("  python-telegram-bot: .base_url(\"{base}/bot\").base_file_url(\"{base}/file/bot\")");
    errln!("  grammY: client: {{ apiRoot: \"{base}\" }}");
    errln!("  anything else: {base}/bot<token>/<method>");
}

/// Adds people and chats, before anybody polls: the bot gets no update of it.
fn populate(api: &BotApi) {
    for (id, name) in PEOPLE {
        api.add_person(ApiPerson::named(id, name));
    }
    for (id, kind, title) in CHATS {
        api.add_chat(id, kind, title);
    }
    api.set_standing(FORUM, ADA, BotStanding::Administrator);
    api.open_topic(FORUM, ADA, "Releases");
    api.forget_updates();
}
