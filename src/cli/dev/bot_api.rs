//! `dev --bot-api`: a fake Telegram Bot API, for a bot of another program.

use std::process::ExitCode;

use secrecy::ExposeSecret as _;

use super::port_in_use;
use crate::cli::exit::{errln, outln};
use crate::dev::{ApiChatKind, ApiPerson, BotApi, BotApiSettings, BotStanding};

/// The only platform that it simulates.
pub(super) const PLATFORM: &str = "telegram";

/// People of the simulation; the first one has the first private chat.
const PEOPLE: [(i64, &str); 2] = [(1_001, "Ada"), (1_002, "Grace")];
/// Groups and channels of the simulation.
const CHATS: [(i64, ApiChatKind, &str); 3] = [
    (-2_001, ApiChatKind::Group, "Team"),
    (FORUM, ApiChatKind::Forum, "Project"),
    (-1_001_000_000_003, ApiChatKind::Channel, "News"),
];
const FORUM: i64 = -1_001_000_000_002;

/// Serves until Ctrl-C.
pub(super) async fn serve(port: u16) -> ExitCode {
    let settings = BotApiSettings {
        port,
        ..BotApiSettings::default()
    };
    let username = settings.username.clone();
    let api = match BotApi::start(settings).await {
        Ok(api) => api,
        Err(error) => return port_in_use(port, &error),
    };
    populate(&api);
    let base = api.base();
    outln!("TELEGRAM_BOT_TOKEN={}", api.token().expose_secret());
    outln!("TELEGRAM_API_BASE={base}");
    errln!(
        "\nA fake Telegram serves @{username} until it ends, and the token is valid for this run only. Page:"
    );
    errln!("\n  {}\n", api.open_page());
    errln!("Give a bot the token, and this address instead of https://api.telegram.org:");
    errln!("  python-telegram-bot: .base_url(\"{base}/bot\").base_file_url(\"{base}/file/bot\")");
    errln!("  grammY: client: {{ apiRoot: \"{base}\" }}");
    errln!("  anything else: {base}/bot<token>/<method>");
    let _ = tokio::signal::ctrl_c().await;
    ExitCode::SUCCESS
}

/// Adds people and chats, before anybody polls: the bot gets no update of it.
fn populate(api: &BotApi) {
    for (id, name) in PEOPLE {
        api.add_person(ApiPerson::named(id, name));
    }
    for (id, kind, title) in CHATS {
        api.add_chat(id, kind, title);
    }
    api.set_standing(FORUM, PEOPLE[0].0, BotStanding::Administrator);
    api.open_topic(FORUM, PEOPLE[0].0, "Releases");
    api.forget_updates();
}
