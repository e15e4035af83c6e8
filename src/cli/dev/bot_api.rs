//! `dev --bot-api`: a fake Telegram or Discord, with the relay as its bot, or for a bot of another program.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;

use super::relay::{DevRelay, RelayPlan};
use super::{DevArgs, SMOKE_TIMEOUT, SmokeFailure, millis, owners, port_in_use, smoke};
use crate::cli::ProcessEnv;
use crate::cli::exit::{self, errln, outln};
use crate::cli::run::build_agents;
use crate::config::{DiscordBotConfig, Settings, TelegramConfig};
use crate::dev::{
    ApiChatKind, ApiPerson, BotApi, BotApiSettings, BotStanding, FakeDiscord, FakeDiscordSettings, RoomKind,
};

/// The platforms that it simulates.
pub(super) const PLATFORMS: [&str; 2] = ["telegram", "discord"];

/// The person whom the smoke test is, in the first private chat.
const ADA: i64 = 1_001;
/// People of the simulation of Telegram.
const PEOPLE: [(i64, &str); 2] = [(ADA, "Ada"), (1_002, "Grace")];
/// Groups and channels of it.
const CHATS: [(i64, ApiChatKind, &str); 3] = [
    (-2_001, ApiChatKind::Group, "Team"),
    (FORUM, ApiChatKind::Forum, "Project"),
    (-1_001_000_000_003, ApiChatKind::Channel, "News"),
];
const FORUM: i64 = -1_001_000_000_002;
/// The same for Discord: ids of people, names, and ids of their direct chats.
const DISCORD_PEOPLE: [(&str, &str, &str); 2] = [("2", "Ada", "72"), ("3", "Grace", "73")];
const DISCORD_CHANNEL: (&str, &str) = ("88", "talk");
/// How often to look whether the bot is connected.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What stands in for a platform.
enum SimulatedPlatform {
    Telegram(BotApi),
    Discord(FakeDiscord),
}

impl SimulatedPlatform {
    async fn start(args: &DevArgs) -> io::Result<Self> {
        if args.platform == "discord" {
            let settings = FakeDiscordSettings {
                port: args.port,
                ..FakeDiscordSettings::default()
            };
            let fake = FakeDiscord::start(settings).await?;
            fake.hub.change(|state| {
                for (id, name, room) in DISCORD_PEOPLE {
                    state.add_person(id, name, room);
                }
                let (id, name) = DISCORD_CHANNEL;
                state.add_room(id, RoomKind::Channel, name, None);
            });
            return Ok(Self::Discord(fake));
        }
        let settings = BotApiSettings {
            port: args.port,
            ..BotApiSettings::default()
        };
        let api = BotApi::start(settings).await?;
        populate(&api);
        Ok(Self::Telegram(api))
    }

    /// Its name for people, and the bot's.
    fn names(&self) -> (&'static str, String) {
        match self {
            Self::Telegram(api) => ("Telegram", api.hub.lock().settings.username.clone()),
            Self::Discord(_) => ("Discord", FakeDiscordSettings::default().username),
        }
    }

    fn open_page(&self) -> String {
        match self {
            Self::Telegram(api) => api.open_page(),
            Self::Discord(fake) => fake.open_page(),
        }
    }

    /// Makes the relay its bot.
    fn configure(&self, settings: &mut Settings) {
        let direct = std::mem::take(&mut settings.direct);
        match self {
            Self::Telegram(api) => {
                settings.direct.telegram = Some(TelegramConfig {
                    token: Some(api.token()),
                    api_base: api.base(),
                    ..direct.telegram.unwrap_or_else(|| TelegramConfig::new(None))
                });
            }
            Self::Discord(fake) => {
                settings.media.allow_hosts.push(fake.host());
                settings.direct.discord = Some(DiscordBotConfig {
                    token: Some(fake.token()),
                    api_base: fake.base(),
                    gateway_url: Some(fake.gateway()),
                    ..direct.discord.unwrap_or_default()
                });
            }
        }
    }

    /// Writes to the bot as soon as it is there; returns when that was.
    async fn send(&self, began: Instant) -> Result<u64, SmokeFailure> {
        match self {
            Self::Telegram(api) => {
                let polled = api.wait_polled(SMOKE_TIMEOUT).await;
                polled.map_err(|error| (error.to_string(), None))?;
            }
            Self::Discord(fake) => {
                while !fake.is_connected() {
                    if began.elapsed() > SMOKE_TIMEOUT {
                        return Err(("the bot did not connect to the gateway".to_owned(), None));
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
        }
        let connected_ms = millis(began);
        match self {
            Self::Telegram(api) => drop(api.say(ADA, ADA, "hello")),
            Self::Discord(fake) => {
                let (id, _, room) = DISCORD_PEOPLE[0];
                fake.hub.change(|state| state.say(room, id, "hello", true));
            }
        }
        Ok(connected_ms)
    }

    /// What the bot has written.
    fn answer(&self) -> String {
        match self {
            Self::Discord(fake) => fake.hub.lock().answers().join("\n"),
            Self::Telegram(api) => {
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
        }
    }

    fn print_environment(&self) {
        match self {
            Self::Telegram(api) => {
                outln!("TELEGRAM_BOT_TOKEN={}", api.token().expose_secret());
                outln!("TELEGRAM_API_BASE={}", api.base());
            }
            Self::Discord(fake) => {
                outln!("DISCORD_BOT_TOKEN={}", fake.token().expose_secret());
                outln!("DISCORD_API_BASE={}", fake.base());
                outln!("DISCORD_GATEWAY_URL={}", fake.gateway());
            }
        }
    }

    fn print_for_others(&self) {
        let (platform, username) = self.names();
        errln!(
            "\nA fake {platform} serves @{username} until it ends, and the token is valid for this run only. Page:"
        );
        errln!("\n  {}\n", self.open_page());
        match self {
            Self::Telegram(api) => {
                let base = api.base();
                errln!("Give a bot the token, and this address instead of https://api.telegram.org:");
                errln!("  hermes-relay: direct.telegram.api_base: {base}");
                errln!("  python-telegram-bot: .base_url(\"{base}/bot\").base_file_url(\"{base}/file/bot\")");
                errln!("  grammY: client: {{ apiRoot: \"{base}\" }}");
                errln!("  anything else: {base}/bot<token>/<method>");
            }
            Self::Discord(fake) => {
                let (base, gateway) = (fake.base(), fake.gateway());
                errln!("Give a bot the token, and this address instead of https://discord.com/api/v10:");
                errln!("  hermes-relay: direct.discord: {{api_base: {base}, gateway_url: {gateway}}}");
                errln!("  discord.py: discord.http.Route.BASE = \"{base}\"");
                errln!("  anything else: {base}/gateway/bot names the gateway, {gateway}");
            }
        }
    }
}

/// Serves until Ctrl-C, or one round trip.
pub(super) async fn serve(
    args: &DevArgs,
    mut settings: Settings,
    process: &ProcessEnv<'_>,
    (began, ending): (Instant, &CancellationToken),
) -> ExitCode {
    let first = if args.platform == "discord" { 2 } else { ADA };
    let ids = (first..)
        .take(crate::dev::MAX_PAGE_PEOPLE)
        .map(|id| id.to_string());
    let access = owners::admit(&mut settings, &args.platform, ids, args.access);
    let fake = match SimulatedPlatform::start(args).await {
        Ok(fake) => fake,
        Err(error) => return port_in_use(args, &error),
    };
    if args.connector_only {
        fake.print_environment();
        fake.print_for_others();
        super::ended(ending).await;
        return ExitCode::SUCCESS;
    }
    match build_agents(&settings, process).await {
        Err(error) => args.errors().fail(exit::CONFIGURATION, error.message, error.hint),
        Ok((agents, voice)) => {
            let plan = RelayPlan {
                platforms: vec![args.platform.clone()],
                settings,
                agents,
                voice,
            };
            serve_relay(args, plan, &fake, access, (began, ending)).await
        }
    }
}

async fn serve_relay(
    args: &DevArgs,
    plan: RelayPlan,
    fake: &SimulatedPlatform,
    access: Option<String>,
    (began, ending): (Instant, &CancellationToken),
) -> ExitCode {
    let agent = plan.settings.agent.clone();
    let relay = match DevRelay::start_bot(plan, |settings| fake.configure(settings)) {
        Ok(relay) => relay,
        Err(error) => return args.errors().fail(exit::CONFIGURATION, error, None),
    };
    let code = if args.smoke {
        let sent = fake.send(began).await;
        smoke(args, sent, (&relay, &agent), began, || fake.answer()).await
    } else {
        let (platform, username) = fake.names();
        fake.print_environment();
        outln!("\nA fake {platform} serves @{username}, the relay is that bot, and `{agent}` answers. Page:");
        outln!("\n  {}\n", fake.open_page());
        outln!("Write to the bot there; in the groups, mention it. Ctrl-C ends.");
        if let Some(access) = access {
            outln!("{access}");
        }
        super::ended(ending).await;
        ExitCode::SUCCESS
    };
    relay.stop(code).await
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
