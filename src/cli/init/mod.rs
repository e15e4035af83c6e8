//! `hermes-relay init`: the first run. Chooses an agent and how people reach it, writes the settings file, tests one turn, and
//! offers to enroll and to install the service.
//!
//! Everything is asked first, in a terminal, or given by options. The file is written once and only if `run` would accept it;
//! an existing one is added to or replaced only on request, and a copy of it stays.

mod adapter;
mod addition;
mod agent_choice;
mod bot;
mod menu;
mod model_choice;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use self::addition::AddError;
use self::agent_choice::{ChosenAgent, PAIRING, choose};
use self::bot::{BotPlatform, ChosenBot};
use self::menu::{agrees, ask, list, pick};
use super::access;
use super::agents::{self, TEST_MESSAGE};
use super::enroll::{self, EnrollVerb};
use super::exit::{self, ErrorFormat, errln, outln, print};
use super::format::{printable, shell_word, stdout};
use super::{Environment, ProcessEnv, service};
use crate::access::{Mode, PersonId};
use crate::agent::Permission;
use crate::config::{self, Flags, LoadedConfig, Settings, Sources};

/// Choose an agent, write the settings file, and test one turn.
///
/// In a terminal it asks: which agent answers (one that is installed, or a model of a server that runs on this machine), in which
/// directory it works, whether people reach it through a
/// Telegram or Discord bot of your own or through a connector, and whether to install the service. In a script, pass --agent, and
/// --telegram or --discord for a bot. An existing file is kept unless you add to it (--add) or replace it (--force); either leaves a copy with
/// the suffix `.bak`. For an agent that can act on this machine,
/// the settings contain `access.mode: pair`: you approve who may write.
///
/// Exit codes: 0 written and tested, 1 not written or the test failed, 2 nobody to ask or an invalid option, 78 a file or
/// directory cannot be used.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay init\n  hermes-relay init --agent claude --workdir ~/project --yes\n  \
                  hermes-relay init --agent claude --telegram --owner 123456 --token-file - < token.txt\n  \
                  hermes-relay init --agent openai --model llama3.2 --config relay.yaml --yes --json"
)]
pub(super) struct InitArgs {
    #[arg(
        long,
        value_name = "FILE",
        help = "Settings file to write [default: $HERMES_RELAY_CONFIG, $HERMES_HOME/relay.yaml]"
    )]
    config: Option<PathBuf>,
    /// Agent: a preset such as claude, openai for a model server such as Ollama, or echo.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Directory that the agent works in [default: the current one].
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// Model, for --agent openai.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// URL of the model server, for --agent openai [default: the server on this machine that has the model: Ollama, LM Studio or
    /// llama.cpp].
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Ask nothing: take the defaults.
    #[arg(long, short)]
    yes: bool,
    /// Add the agent, and the bot of --telegram or --discord, to an existing settings file; what it says already stays. With a bot
    /// and without --agent, only the bot.
    #[arg(long, conflicts_with = "force")]
    add: bool,
    /// Replace an existing settings file; a copy of it stays beside it as `.bak`.
    #[arg(long)]
    force: bool,
    /// Do not test a turn.
    #[arg(long)]
    no_test: bool,
    /// People reach the agent through a Telegram bot of your own, without a connector.
    #[arg(long, conflicts_with = "connector_url", group = "bot")]
    telegram: bool,
    /// People reach the agent through a Discord bot of your own, without a connector.
    #[arg(long, conflicts_with = "connector_url", group = "bot")]
    discord: bool,
    /// File with the bot's token, which is used where it is; - reads the token from standard input [default:
    /// `TELEGRAM_BOT_TOKEN` or `DISCORD_BOT_TOKEN`, else asks]. A token without a file is stored in `telegram-token` or
    /// `discord-token` beside the settings.
    #[arg(long, value_name = "FILE", requires = "bot")]
    token_file: Option<PathBuf>,
    /// Base URL of the platform's API, for a server of your own.
    #[arg(long, value_name = "URL", requires = "bot")]
    api_base: Option<String>,
    /// Make the person with this id on the bot's platform an owner, who may do everything and approves others.
    #[arg(long, value_name = "ID", requires = "bot", value_parser = person_number)]
    owner: Option<String>,
    /// Then enroll with this connector, as `enroll` does.
    #[arg(long, value_name = "URL")]
    connector_url: Option<String>,
    /// Then install the service for your own user and start it, as `service install --user --now` does.
    #[arg(long)]
    service: bool,
    /// Ask nothing, and print a JSON object on one line, errors included.
    #[arg(long, conflicts_with_all = ["connector_url", "service"])]
    json: bool,
}

/// Why it did not work.
struct InitFailure {
    code: u8,
    what: String,
    hint: Option<String>,
}

impl InitFailure {
    fn new(code: u8, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
            hint: Some(hint.into()),
        }
    }
}

/// Runs the verb.
pub(super) fn run(args: &InitArgs, process: &ProcessEnv<'_>) -> ExitCode {
    let errors = ErrorFormat::new(args.json);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return errors.fail(exit::INTERNAL, "cannot start the runtime", None);
    };
    let report = |failure: InitFailure| errors.fail(failure.code, failure.what, failure.hint.as_deref());
    let prepared = match runtime.block_on(prepare(args, process)) {
        Ok(prepared) => prepared,
        Err(failure) => return report(failure),
    };
    if let Some(owner) = &prepared.owner {
        let config = Some(prepared.file.clone());
        let made = access::add_owner(owner, config, args.json, process.env);
        if let Err(code) = made {
            return code;
        }
        if !args.json {
            outln!("{owner} is an owner.");
        }
    }
    let agent = prepared.agent.as_ref().filter(|_| !args.no_test);
    let tested = agent.map_or(Ok(()), |agent| {
        runtime.block_on(test(&prepared.file, agent, args.json, process))
    });
    drop(runtime);
    if let Err(failure) = tested {
        let code = report(failure);
        if !args.json {
            leave_open(args, &prepared);
        }
        return code;
    }
    if args.json {
        let mut report = json!({
            "config": prepared.file.display().to_string(),
            "agent": prepared.agent.as_ref().map(ChosenAgent::name),
            "access": if prepared.pairs { "pair" } else { "upstream" },
            "tested": !args.no_test && prepared.agent.is_some(),
            "telegram": null,
        });
        if let Some(bot) = &prepared.bot {
            let described = bot.described.as_ref();
            report[bot.platform.key()] = json!({
                "bot": described.map(|bot| &bot.username),
                "token_file": bot.token_file.display().to_string(),
                "owner": prepared.owner.as_ref().map(PersonId::to_string),
            });
            if let Some(described) = described.filter(|_| bot.platform == BotPlatform::Discord) {
                report["discord"]["invite"] = described.link.as_str().into();
                report["discord"]["reads_content"] = (!described.is_blind).into();
            }
        }
        return print(report);
    }
    go_on(args, &prepared, process)
}

/// The number of a person on the bot's platform, with or without the platform.
fn person_number(text: &str) -> Result<String, String> {
    let id = text.rsplit_once(':').map_or(text, |(_, id)| id);
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(
            "write the number that the platform gave you, such as 123456; names can change".to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// The person who becomes an owner.
fn owner(args: &InitArgs) -> Result<Option<PersonId>, InitFailure> {
    let (Some(text), Some(platform)) = (&args.owner, BotPlatform::of(args)) else {
        return Ok(None);
    };
    let wrong = |why: String| InitFailure::new(exit::USAGE, why, "write the number alone, such as 123456");
    let prefix = format!("{}:", platform.key());
    let id = text.strip_prefix(&prefix).unwrap_or(text);
    if id.contains(':') {
        return Err(wrong(format!("{text} is nobody on {}", platform.name())));
    }
    PersonId::parse(&format!("{prefix}{id}")).map(Some).map_err(wrong)
}

/// The written settings.
struct Prepared {
    file: PathBuf,
    /// The new agent; `None` if only a bot was added.
    agent: Option<ChosenAgent>,
    /// The bot, if that is how people reach it.
    bot: Option<ChosenBot>,
    /// Who becomes an owner.
    owner: Option<PersonId>,
    /// Whether people are approved by code.
    pairs: bool,
    /// Whether a connector is to be enrolled with.
    enrolls: bool,
    /// Whether questions may be asked.
    asks: bool,
    /// Whether `run` finds the file by itself.
    is_default: bool,
    /// Whether `run` would have somebody to talk to: a connector or a bot.
    can_serve: bool,
}

impl Prepared {
    /// The option that names the file, with a space before it, where `run` would read another one.
    fn config_option(&self) -> String {
        if self.is_default {
            String::new()
        } else {
            format!(" --config {}", shell_word(&self.file))
        }
    }
}

async fn prepare(args: &InitArgs, process: &ProcessEnv<'_>) -> Result<Prepared, InitFailure> {
    let asks = !args.yes && !args.json && io::stdin().is_terminal();
    let owner = owner(args)?;
    let default = default_file(process.env);
    let file = args.config.clone().or_else(|| default.clone()).ok_or_else(|| {
        InitFailure::new(
            exit::CONFIGURATION,
            "there is no home directory to write the settings to",
            "set HOME, or name a file with --config",
        )
    })?;
    let is_default = default.as_ref().is_some_and(|default| *default == file);
    let before = existing(args, asks, &file)?;
    let compose = |new: &str| match &before {
        Some(before) => addition::add(before, new).map_err(|error| {
            let what = format!("cannot add to {}: {error}", file.display());
            let hint = match error {
                AddError::Exists { .. } => {
                    "change that entry in the file, or replace the file with --force".to_owned()
                }
                AddError::OneLine(_) => format!("edit the file yourself, and add:\n\n{new}"),
            };
            InitFailure::new(exit::FAILED, what, hint)
        }),
        None => Ok(new.to_owned()),
    };
    let only_bot = before.is_some() && BotPlatform::of(args).is_some() && args.agent.is_none();
    let agent = if only_bot {
        None
    } else {
        Some(choose(args, asks, process).await?)
    };
    let settings = |pairs| {
        agent
            .as_ref()
            .map_or_else(String::new, |agent| agent.settings(pairs))
    };
    let draft = Draft::new(&file, &compose(&settings(false))?, process.env)?;
    let reach = reach(args, asks, &draft.loaded)?;
    if args.service && reach == Reach::Later && !has_peer(&draft.loaded.settings) {
        return Err(InitFailure::new(
            exit::USAGE,
            "a service would have nobody to talk to: there is no connector and no bot",
            "add --telegram, --discord or --connector-url URL, or omit --service",
        ));
    }
    let bot = match reach {
        Reach::Bot(platform) => {
            Some(bot::choose(platform, args, asks, &file, &draft.loaded, process.env).await?)
        }
        Reach::Connector | Reach::Later => None,
    };
    let pairs = match &agent {
        Some(agent) => agent.pairs(bot.is_some()),
        None => true,
    };
    let mut text = match agent {
        Some(_) => settings(pairs),
        None => PAIRING.to_owned(),
    };
    let mut token_written = None;
    if let Some(bot) = &bot {
        // Nothing is stored for settings that would be refused.
        Draft::new(
            &file,
            &compose(&(text.clone() + &bot.settings(false)))?,
            process.env,
        )?;
        text.push_str(&bot.settings(true));
        token_written = bot.store()?.then_some(&bot.token_file);
    }
    let written = Draft::new(&file, &compose(&text)?, process.env)?;
    let pairs = written.loaded.settings.access.mode == Mode::Pair;
    let can_serve = has_peer(&written.loaded.settings);
    let copy = written.keep(&file)?;
    if !args.json {
        outln!("Wrote {}.", file.display());
        if let Some(copy) = copy {
            outln!("The file from before is {}.", copy.display());
        }
        if let Some(token) = token_written {
            outln!("Wrote {}, which only you can read.", token.display());
        }
        introduce(agent.as_ref(), bot.as_ref(), pairs);
    }
    Ok(Prepared {
        file,
        agent,
        bot,
        owner,
        pairs,
        enrolls: matches!(reach, Reach::Connector),
        asks,
        is_default,
        can_serve,
    })
}

fn has_peer(settings: &Settings) -> bool {
    settings.connector.url.is_some() || settings.direct.is_bot()
}

/// Says who the bot is, and why people have to be approved.
fn introduce(agent: Option<&ChosenAgent>, bot: Option<&ChosenBot>, pairs: bool) {
    if let Some((bot, described)) = bot.and_then(|bot| Some((bot, bot.described.as_ref()?))) {
        outln!("Your bot is {}.", bot.name());
        if described.is_blind {
            outln!(
                "It may not read messages yet: turn on Message Content Intent on the page Bot of \
                 https://discord.com/developers/applications."
            );
        }
    }
    let acting = agent.filter(|agent| agent.acts() && pairs);
    if let Some(agent) = acting {
        outln!(
            "{} can act on this machine, so `access.mode` is `pair`: you approve who may write.",
            agent.name()
        );
    } else if let Some(bot) = bot.filter(|_| pairs) {
        outln!(
            "Everybody on {} can find the bot, so `access.mode` is `pair`: you approve who may write.",
            bot.platform.name()
        );
    }
}

/// The text of an existing file that is added to; `None` for a file that is new or replaced.
fn existing(args: &InitArgs, asks: bool, file: &Path) -> Result<Option<String>, InitFailure> {
    // A link to nothing is kept, too.
    if file.symlink_metadata().is_err() || args.force {
        return Ok(None);
    }
    let choice = match (args.add, asks) {
        (true, _) => "add",
        (false, true) => {
            outln!("{} exists.", file.display());
            let choices = [
                ("add", "add to it; what it says already stays"),
                ("replace", "replace it; a copy of it stays beside it as .bak"),
                ("keep", "keep it, and end here"),
            ];
            list(&choices);
            pick("What now?", &choices, "--add or --force")?
        }
        (false, false) => "keep",
    };
    match choice {
        "add" => std::fs::read_to_string(file).map(Some).map_err(|error| {
            let what = format!("cannot read {}: {error}", file.display());
            InitFailure::new(exit::CONFIGURATION, what, "write another file with --config")
        }),
        "replace" => Ok(None),
        _ => Err(InitFailure::new(
            exit::FAILED,
            format!("{} exists and is kept", file.display()),
            "add to it with --add, replace it with --force, or write another file with --config",
        )),
    }
}

/// How people reach the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Through a bot of one's own.
    Bot(BotPlatform),
    /// Through a connector that is to be enrolled with.
    Connector,
    /// As the settings say already, or not yet.
    Later,
}

/// Asks how people reach the agent, unless the options or the settings say it.
fn reach(args: &InitArgs, asks: bool, loaded: &LoadedConfig) -> Result<Reach, InitFailure> {
    let known = loaded.settings.connector.url.is_some();
    if let Some(platform) = BotPlatform::of(args) {
        let key = platform.key();
        let mut announced = loaded.settings.connector.identities.iter();
        if !known || announced.all(|identity| identity.platform != key) {
            return Ok(Reach::Bot(platform));
        }
        let what = format!(
            "the connector ({}) has {key} already, and every message would come twice",
            loaded.origins.of("connector.url")
        );
        return Err(InitFailure::new(
            exit::CONFIGURATION,
            what,
            format!("remove {key} from GATEWAY_RELAY_PLATFORMS or `connector.identities`, or omit --{key}"),
        ));
    }
    if args.connector_url.is_some() {
        return Ok(Reach::Connector);
    }
    if !asks {
        return Ok(Reach::Later);
    }
    if known {
        let question =
            "Enroll with a connector now? You need its URL and a one-time token from its operator.";
        return Ok(if agrees(question) {
            Reach::Connector
        } else {
            Reach::Later
        });
    }
    let choices = [
        (
            "telegram",
            "a Telegram bot of your own; you need its token from @BotFather",
        ),
        (
            "discord",
            "a Discord bot of your own; you need its token from the developer portal",
        ),
        (
            "connector",
            "a connector, which holds the bots; you need its URL and a one-time token",
        ),
        ("later", ""),
    ];
    outln!("How do people reach it?");
    list(&choices);
    Ok(
        match pick(
            "Which one?",
            &choices,
            "--telegram, --discord or --connector-url URL",
        )? {
            "telegram" => Reach::Bot(BotPlatform::Telegram),
            "discord" => Reach::Bot(BotPlatform::Discord),
            "connector" => Reach::Connector,
            _ => Reach::Later,
        },
    )
}

/// The file that `run` would read.
fn default_file(env: Environment<'_>) -> Option<PathBuf> {
    let var = |name: &str| {
        let value = env(name)?.trim().to_owned();
        (!value.is_empty()).then(|| PathBuf::from(value))
    };
    let home = || var("HERMES_HOME").or_else(|| Some(var("HOME")?.join(".hermes")));
    var("HERMES_RELAY_CONFIG").or_else(|| Some(home()?.join("relay.yaml")))
}

/// The directory of a file.
fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Settings that `run` would accept, in a temporary file beside the one that they are for.
struct Draft {
    new: tempfile::NamedTempFile,
    loaded: LoadedConfig,
}

impl Draft {
    fn new(file: &Path, text: &str, env: Environment<'_>) -> Result<Self, InitFailure> {
        let failed = |error: io::Error| Self::failure(file, &error);
        let folder = folder_of(file);
        std::fs::create_dir_all(folder).map_err(failed)?;
        // Readable by its owner only, because people add to it.
        let mut new = tempfile::Builder::new()
            .prefix(".relay-")
            .suffix(".yaml")
            .tempfile_in(folder)
            .map_err(failed)?;
        new.write_all(text.as_bytes())
            .and_then(|()| new.as_file().sync_all())
            .map_err(failed)?;
        let flags = Flags {
            config: Some(new.path().to_owned()),
            ..Flags::default()
        };
        let loaded = config::load(&Sources { flags, env }).map_err(|error| InitFailure {
            code: exit::CONFIGURATION,
            what: format!("the settings would not be accepted: {error}"),
            hint: None,
        })?;
        Ok(Self { new, loaded })
    }

    /// Becomes the file, atomically. Returns the copy of a file that was there before.
    fn keep(self, file: &Path) -> Result<Option<PathBuf>, InitFailure> {
        let failed = |error: io::Error| Self::failure(file, &error);
        let mut copy = file.as_os_str().to_owned();
        copy.push(".bak");
        let copy = PathBuf::from(copy);
        let has_copy = file.exists();
        if has_copy {
            std::fs::copy(file, &copy).map_err(failed)?;
        }
        self.new.persist(file).map_err(|error| failed(error.error))?;
        Ok(has_copy.then_some(copy))
    }

    fn failure(file: &Path, error: &io::Error) -> InitFailure {
        InitFailure::new(
            exit::CONFIGURATION,
            format!("cannot write {}: {error}", file.display()),
            "write another file with --config",
        )
    }
}

/// Runs one turn as `agents test` does, with the new settings.
async fn test(
    file: &Path,
    agent: &ChosenAgent,
    json: bool,
    process: &ProcessEnv<'_>,
) -> Result<(), InitFailure> {
    let failed = |what: String| {
        let retry = format!(
            "the settings are written; try again with `hermes-relay agents test {} --config {}`",
            agent.name(),
            shell_word(file)
        );
        InitFailure::new(
            exit::FAILED,
            format!("{} does not answer: {what}", agent.name()),
            retry,
        )
    };
    let flags = Flags {
        config: Some(file.to_owned()),
        ..Flags::default()
    };
    let loaded = config::load(&Sources {
        flags,
        env: process.env,
    });
    let loaded = loaded.map_err(|error| failed(error.to_string()))?;
    if !json {
        outln!(
            "Testing {} with one message, without permission to act:",
            agent.name()
        );
    }
    let mut show = |text: &str| {
        let mut out = stdout();
        if !json {
            // Ignore a closed pipe: the turn goes on.
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    };
    let tested = agents::test_turn(
        &loaded.settings,
        process,
        agent.name(),
        TEST_MESSAGE,
        Permission::Deny,
        &mut show,
    );
    let tested = tested.await.map_err(failed)?;
    if let Some(problem) = tested.problem() {
        return Err(failed(problem));
    }
    if !json {
        outln!("\nIt answered after {} s.", tested.seconds());
    }
    Ok(())
}

/// Offers what comes next, or does what the options say, and lists the rest.
fn go_on(args: &InitArgs, prepared: &Prepared, process: &ProcessEnv<'_>) -> ExitCode {
    let url = args.connector_url.clone().or_else(|| {
        let url = (prepared.enrolls).then(|| ask("Connector URL", "--connector-url URL").ok());
        url.flatten().filter(|url| !url.is_empty())
    });
    if let Some(url) = &url {
        let verb = EnrollVerb::for_connector(prepared.file.clone(), url.clone());
        let code = enroll::run_verb(&verb, process);
        if code != ExitCode::SUCCESS {
            return code;
        }
    }
    let is_offered = prepared.asks
        && prepared.is_default
        && (prepared.can_serve || url.is_some())
        && service::has_systemd();
    let serves = args.service
        || (is_offered && agrees("Run the relay as a service of your user, started with the session?"));
    if serves {
        let config = (!prepared.is_default).then_some(&*prepared.file);
        let code = service::install_for_user(config, process.env);
        if code != ExitCode::SUCCESS {
            return code;
        }
    }
    list_next(prepared, url.is_some(), serves);
    ExitCode::SUCCESS
}

/// After a failed test: says how to do what was asked for and is not done, and lists what comes next.
fn leave_open(args: &InitArgs, prepared: &Prepared) {
    let file = prepared.config_option();
    let enroll = prepared.enrolls.then(|| {
        let url = args.connector_url.as_deref().unwrap_or("URL");
        format!(
            "`hermes-relay enroll --connector-url {}{file}`",
            shell_word(Path::new(url))
        )
    });
    let service = (args.service).then(|| format!("`hermes-relay service install --user --now{file}`"));
    let open: Vec<String> = enroll.into_iter().chain(service).collect();
    if !open.is_empty() {
        errln!("hint: not done yet: {}", open.join(", "));
    }
    list_next(prepared, prepared.enrolls, false);
}

fn list_next(prepared: &Prepared, has_enrollment: bool, serves: bool) {
    let file = prepared.config_option();
    outln!("Next:");
    outln!(
        "  hermes-relay dev --config {}    # a chat with it on this machine",
        shell_word(&prepared.file)
    );
    if !has_enrollment && prepared.bot.is_none() {
        outln!("  hermes-relay enroll --connector-url URL{file}    # credentials from a connector");
        outln!(
            "  hermes-relay init --telegram --add{file}    # or a Telegram bot of your own; --discord for Discord"
        );
    }
    if prepared.pairs && prepared.bot.is_none() {
        outln!("  hermes-relay access owner PLATFORM:ID    # yourself; you approve others");
    }
    if !serves {
        outln!("  hermes-relay run{file}    # serve");
    }
    if let Some(bot) = &prepared.bot {
        let link = bot.described.as_ref().map(|bot| printable(&bot.link));
        match (bot.platform, link) {
            (BotPlatform::Telegram, Some(link)) => outln!("  Write to {} on Telegram ({link}).", bot.name()),
            (BotPlatform::Discord, Some(link)) => {
                outln!("  Invite {} to a server, and write to it: {link}", bot.name());
            }
            (platform, None) => outln!("  Write to {} on {}.", bot.name(), platform.name()),
        }
        if prepared.pairs && prepared.owner.is_none() {
            outln!(
                "  hermes-relay access approve CODE --role owner{file}    # with the code that it sends you"
            );
        }
    }
    outln!("  hermes-relay doctor{file}    # if it does not answer");
}
