//! docs/telegram.md, step by step against the fake Bot API: the commands as they are written, with what a person replaces.

use std::fs::{self, File};
use std::time::Duration;

use crate::newcomer::{MODEL_ANSWER, decline_service, model_server, new_home};
use crate::support::dev::{ApiPerson, BotApi, BotApiSettings};
use crate::support::relay_process::{SOON, Setup};
use crate::support::terminal::Terminal;
use secrecy::ExposeSecret as _;

/// The person who follows the manual.
const ADA: i64 = 100;
/// The code in the manual.
const EXAMPLE_CODE: &str = "K7QWXP2M";

/// The arguments of every command of the manual, in order, and whether it reads its input from a file.
fn commands() -> Vec<(Vec<String>, bool)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/telegram.md");
    let text = fs::read_to_string(path).unwrap();
    let typed = text.lines().filter_map(|line| line.strip_prefix("$ "));
    let parsed = typed.map(|line| {
        let (command, input) = line.split_once(" < ").unwrap_or((line, ""));
        let words = command
            .split_whitespace()
            .skip_while(|word| *word != "hermes-relay");
        (words.skip(1).map(str::to_owned).collect(), !input.is_empty())
    });
    parsed.collect()
}

async fn bot_api() -> BotApi {
    let api = BotApi::start(BotApiSettings::default()).await.unwrap();
    api.add_person(ApiPerson::named(ADA, "Ada"));
    api
}

/// The verb of a command of the manual, with more options.
fn with<'a>(command: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    command
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect()
}

async fn answer(api: &BotApi, chat: i64, part: &str) {
    let answered = api.wait_for_answer(chat, part, SOON, |message| message.text.contains(part));
    answered.await.unwrap_or_else(|error| panic!("{error}"));
}

#[tokio::test]
async fn the_manual_leads_from_a_token_to_the_first_answer() {
    let commands = commands();
    let [
        (init, false),
        (run, false),
        (approve, false),
        (script, true),
        (direct, false),
    ] = &commands[..]
    else {
        panic!("the manual has other commands: {commands:?}");
    };
    let api = bot_api().await;
    let token = api.token().expose_secret().to_owned();
    let secret = token.split_once(':').unwrap().1.to_owned();

    follow_in_a_terminal(&api, &token, init, run, approve).await;
    follow_in_a_script(&api, &token, script, run).await;

    // Without a settings file, but for the address of the fake.
    let setup = Setup::new()
        .setting("direct.telegram", &format!("{{api_base: '{}'}}", api.base()))
        .env("TELEGRAM_BOT_TOKEN", &token);
    api.say(ADA, ADA, "am I early?");
    let setup = setup.args(&with(direct, &["--log-level", "debug"]));
    let relay = setup.start();
    answer(&api, ADA, "echo: am I early?").await;
    let took: Duration = relay.started.elapsed();
    println!(
        "from `run --telegram` to the first answer: {} ms",
        took.as_millis()
    );
    let status = setup.verb(&["status"]).output().await.unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    let bot = format!(
        "telegram  bot {} at {}, without a connector\n",
        api.bot_id(),
        api.base()
    );
    for part in [&*bot, "platform  telegram (Telegram, @relay_dev_bot): "] {
        assert!(status.contains(part), "{part}: {status}");
    }
    assert!(!relay.stderr().contains(&secret), "{}", relay.stderr());
    relay.stop().await;
}

/// Steps 2 to 5, as a person.
async fn follow_in_a_terminal(
    api: &BotApi,
    token: &str,
    init: &[String],
    run: &[String],
    approve: &[String],
) {
    let model = model_server(&[]).await;
    let setup = new_home();
    let (base, url) = (api.base(), model.url("/v1"));
    let args = with(init, &["--api-base", &base, "--telegram", "--base-url", &url]);
    let mut terminal = Terminal::start(setup.verb(&args));
    for (question, typed) in [
        ("Which one answers? [1]:", "openai"),
        ("Model, such as llama3.2:", "m"),
        ("Token (it is not shown):", token),
    ] {
        terminal.reply(question, typed).await;
    }
    decline_service(&mut terminal).await;
    terminal
        .shows("hermes-relay access approve CODE --role owner")
        .await;
    assert_eq!(terminal.ends().await, (Some(0), true));

    let setup = setup.args(&with(run, &[]));
    let relay = setup.start();
    api.say(ADA, ADA, "hello");
    let told = api.wait_for_answer(ADA, "a code", SOON, |message| code_in(&message.text).is_some());
    let code = code_in(&told.await.unwrap().text).unwrap();
    let approval: Vec<String> = approve
        .iter()
        .map(|word| word.replace(EXAMPLE_CODE, &code))
        .collect();
    assert_ne!(approval, approve, "the manual has a code");
    let approved = setup.verb(&with(&approval, &[])).output().await.unwrap();
    assert!(approved.status.success(), "{approved:?}");
    api.say(ADA, ADA, "hello again");
    answer(api, ADA, MODEL_ANSWER).await;
    relay.stop().await;
}

/// A code of eight letters.
fn code_in(text: &str) -> Option<String> {
    let is_code = |word: &&str| {
        word.len() == EXAMPLE_CODE.len()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
    };
    let mut words = text.split(|char: char| !char.is_ascii_alphanumeric());
    words.find(is_code).map(str::to_owned)
}

/// The same with options, for another owner.
async fn follow_in_a_script(api: &BotApi, token: &str, script: &[String], run: &[String]) {
    let setup = new_home();
    let owner = script
        .iter()
        .skip_while(|word| *word != "--owner")
        .nth(1)
        .unwrap();
    let owner: i64 = owner.parse().unwrap();
    api.add_person(ApiPerson::named(owner, "Owner"));
    let file = setup.home().join("token.txt");
    fs::write(&file, token).unwrap();
    // The agent of the manual is not on every machine.
    let script: Vec<String> = script.iter().map(|word| word.replace("claude", "echo")).collect();
    let base = api.base();
    let mut command = setup.verb(&with(&script, &["--api-base", &base]));
    let output = command.stdin(File::open(&file).unwrap()).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let relay = setup.args(&with(run, &[])).start();
    api.say(owner, owner, "hello");
    answer(api, owner, "echo: hello").await;
    relay.stop().await;
}
