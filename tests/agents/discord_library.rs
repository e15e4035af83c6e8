//! A maintained library for Discord bots, from its registry, takes the fake Discord for the real one.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::registry::{announce, python};
use crate::support::discord::{FakeDiscord, TOKEN};

/// What a bot needs for anything here on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A bot as its documentation shows one: a client with a tree of commands and a view with a button. It says what it sees, one JSON
/// object per line.
const BOT: &str = r#"
import json, os
import discord, yarl
from discord import app_commands

discord.http.Route.BASE = os.environ["BASE"]
discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(os.environ["GATEWAY"])
# The fake compresses nothing.
whole = discord.gateway.DiscordWebSocket.from_client.__func__
discord.gateway.DiscordWebSocket.from_client = classmethod(
    lambda cls, client, **more: whole(cls, client, **{**more, "compress": False}))

def say(kind, **what):
    print(json.dumps({"kind": kind, **what}), flush=True)

class Question(discord.ui.View):
    @discord.ui.button(label="Allow", custom_id="allow")
    async def allow(self, interaction, button):
        await interaction.response.send_message("noted", ephemeral=True)
        await interaction.followup.send("further")
        say("press", id=button.custom_id, by=interaction.user.name)

class Bot(discord.Client):
    async def setup_hook(self):
        self.add_view(Question(timeout=None))
        self.tree = app_commands.CommandTree(self)

        @self.tree.command(name="ping", description="answers")
        async def ping(interaction, text: str):
            await interaction.response.defer()
            await interaction.edit_original_response(content="pong " + text)
            say("command", text=text)

        synced = await self.tree.sync()
        say("synced", names=[command.name for command in synced])

    async def on_ready(self):
        say("ready", name=self.user.name, id=self.user.id)

    async def on_resumed(self):
        say("resumed")

    async def on_message(self, message):
        sent = await message.channel.send("seen " + message.content, nonce="n%d" % message.id, view=Question(timeout=None))
        await sent.edit(content="edited " + message.content)
        async with message.channel.typing():
            pass
        say("message", text=message.content, by=message.author.name, direct=message.guild is None, id=str(sent.id))

    async def on_message_delete(self, message):
        say("deleted", text=message.content)

intents = discord.Intents.default()
intents.message_content = True
try:
    Bot(intents=intents).run(os.environ["TOKEN"], log_handler=None)
except discord.ConnectionClosed as closed:
    say("ended", code=closed.code)
"#;

/// The bot and what it says.
struct LibraryBot {
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl LibraryBot {
    fn start(python: &Path, fake: &FakeDiscord) -> Self {
        let mut child = Command::new(python)
            .args(["-c", BOT])
            .env("BASE", format!("http://{}", fake.rest))
            .env("GATEWAY", format!("ws://{}/", fake.gateway))
            .env("TOKEN", TOKEN)
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        Self {
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            _child: child,
        }
    }

    /// The next thing that it says.
    async fn says_next(&mut self) -> Value {
        let line = timeout(SOON, self.lines.next_line()).await;
        let line = line.expect("the bot says something").unwrap();
        serde_json::from_str(&line.expect("the bot runs")).unwrap()
    }

    /// The next thing that it says, which is of this kind.
    async fn says(&mut self, kind: &str) -> Value {
        let said = self.says_next().await;
        assert_eq!(said["kind"], kind, "{said}");
        said
    }
}

#[tokio::test]
async fn discord_py_takes_the_fake_for_discord() {
    match python(
        "discord.py-2.7.1",
        &["discord.py==2.7.1", "audioop-lts; python_version>='3.13'"],
    )
    .await
    {
        Ok(programs) => converse(&programs.join("python")).await,
        Err(why) => announce("discord.py", "python3-venv", &why),
    }
}

async fn converse(python: &Path) {
    let fake = FakeDiscord::start().await;
    let mut bot = LibraryBot::start(python, &fake);
    assert_eq!(bot.says("synced").await["names"], json!(["ping"]));
    let ready = bot.says("ready").await;
    assert_eq!((&ready["name"], &ready["id"]), (&json!("relay"), &json!(1)));

    // A message, answered with a button, and the answer edited.
    let hello = fake.say("hello 😀");
    let said = bot.says("message").await;
    assert_eq!(
        (&said["text"], &said["by"], &said["direct"]),
        (&json!("hello 😀"), &json!("ada"), &json!(true))
    );
    assert_eq!(fake.answers(), ["edited hello 😀"]);
    assert_eq!(
        fake.sent()[0]["components"][0]["components"][0]["custom_id"],
        "allow"
    );
    fake.delete(&[hello]);
    assert_eq!(bot.says("deleted").await["text"], "hello 😀");

    // A press and a command.
    fake.interacts(3, &json!({"custom_id": "allow", "component_type": 2}));
    assert_eq!(bot.says("press").await["by"], "ada");
    assert_eq!(fake.follow_ups()[0]["content"], "further");
    let options = json!([{"type": 3, "name": "text", "value": "now"}]);
    fake.interacts(
        2,
        &json!({"id": "1", "type": 1, "name": "ping", "options": options}),
    );
    assert_eq!(bot.says("command").await["text"], "now");
    assert_eq!(fake.replaced(), ["pong now"]);
    let kinds: Vec<Value> = fake
        .callbacks()
        .iter()
        .map(|answer| answer["type"].clone())
        .collect();
    assert_eq!(kinds, [json!(4), json!(5)]);

    // A cut connection is resumed with what was missed; a lost session begins anew.
    fake.cut();
    fake.say("missed");
    // Each is told by a task of its own.
    let mut said = [bot.says_next().await, bot.says_next().await];
    said.sort_by_key(|said| said["kind"].to_string());
    assert_eq!(
        (&said[0]["text"], &said[1]["kind"]),
        (&json!("missed"), &json!("resumed"))
    );
    assert_eq!(fake.sessions(), (1, 1));
    fake.forget_session();
    fake.ask_to_reconnect();
    bot.says("ready").await;
    assert_eq!(fake.sessions().0, 2);
    // A refused token ends it.
    fake.refuse(4004);
    fake.cut();
    assert_eq!(bot.says("ended").await["code"], 4004);
}
