//! A maintained library for Telegram bots, from its registry, takes the fake Bot API for the real one.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::dev::{
    ApiChatKind, ApiPerson, BotApi, BotApiAnswer, BotApiRule, BotApiSettings, BotStanding, PersonFile,
    PersonMessage,
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::registry::{announce, python};

/// What a bot needs for anything here on a busy machine.
const SOON: Duration = Duration::from_secs(60);
const ADA: i64 = 100;
const FORUM: i64 = -1_000_300;

/// A bot as its documentation shows one: an `Application` that polls. It says what it sees, one JSON object per line.
const BOT: &str = r#"
import json, os
from telegram import InlineKeyboardButton, InlineKeyboardMarkup, InputMediaPhoto, Update
from telegram.constants import ChatAction, ParseMode
from telegram.error import BadRequest, Forbidden, RetryAfter
from telegram.ext import Application, CallbackQueryHandler, CommandHandler, MessageHandler, MessageReactionHandler, filters

base = os.environ["BASE"]

def say(kind, **what):
    print(json.dumps({"kind": kind, **what}), flush=True)

async def ready(app):
    me = await app.bot.get_me()
    await app.bot.set_my_commands([("start", "begin"), ("chat", "about a chat")])
    commands = await app.bot.get_my_commands()
    say("ready", username=me.username, commands=[command.command for command in commands])

async def start(update, context):
    await update.message.reply_text("welcome", do_quote=True)
    say("start", args=context.args)

async def chat(update, context):
    chat = await context.bot.get_chat(int(context.args[0]))
    member = await context.bot.get_chat_member(chat.id, context.bot.id)
    topic = await context.bot.create_forum_topic(chat.id, "Deploy")
    await context.bot.edit_forum_topic(chat.id, topic.message_thread_id, name="Release")
    sent = await context.bot.send_message(chat.id, "in a topic", message_thread_id=topic.message_thread_id)
    say("chat", type=chat.type, forum=chat.is_forum, status=member.status, manages=member.can_manage_topics,
        thread=topic.message_thread_id, sent_in=sent.message_thread_id)

async def refusals(update, context):
    seen = []
    for call in [
        lambda: context.bot.send_message(update.effective_chat.id, "<b>open", parse_mode=ParseMode.HTML),
        lambda: context.bot.send_message(update.effective_chat.id, "x" * 4097),
        lambda: context.bot.send_message(424242, "nobody"),
        lambda: context.bot.send_photo(update.effective_chat.id, "https://files.example/a.png"),
    ]:
        try:
            await call()
            seen.append("sent")
        except RetryAfter as error:
            seen.append("retry after %s" % error._retry_after.total_seconds())
        except (BadRequest, Forbidden) as error:
            seen.append("%s: %s" % (type(error).__name__, error))
    say("refusals", seen=seen)

async def text(update, context):
    message = update.message
    await context.bot.send_chat_action(message.chat_id, ChatAction.TYPING)
    await context.bot.send_message_draft(message.chat_id, 7, "growing")
    keyboard = InlineKeyboardMarkup([[InlineKeyboardButton("Allow", callback_data="allow:1"),
                                      InlineKeyboardButton("Deny", callback_data="deny:1")]])
    sent = await message.reply_html("<b>Bold</b> and <code>x &lt; y</code>", reply_markup=keyboard, do_quote=True)
    file = await message.reply_document(b"line one\nline two", filename="notes.txt", caption="a file")
    await message.set_reaction("👍")
    again = await message.reply_document(file.document.file_id)
    await again.delete()
    say("text", text=message.text, user=message.from_user.full_name, chat=message.chat.type,
        commands=list(message.parse_entities(["mention"]).values()),
        sent=sent.text, entities=[entity.type for entity in sent.entities], name=file.document.file_name,
        answers=sent.reply_to_message.message_id == message.message_id)

async def photo(update, context):
    file = await update.message.photo[-1].get_file()
    content = bytes(await file.download_as_bytearray())
    album = await update.message.reply_media_group([InputMediaPhoto(content, caption="one"), InputMediaPhoto(content)])
    say("photo", caption=update.message.caption, bytes=list(content), album=len({one.media_group_id for one in album}))

async def press(update, context):
    query = update.callback_query
    await query.answer("noted")
    edited = await query.edit_message_text("You chose <i>%s</i>" % query.data, parse_mode=ParseMode.HTML)
    say("press", data=query.data, text=edited.text, by=query.from_user.first_name)

async def reaction(update, context):
    change = update.message_reaction
    say("reaction", emoji=[one.emoji for one in change.new_reaction], by=change.user.first_name)

async def edited(update, context):
    say("edited", text=update.edited_message.text)

async def failed(update, context):
    say("error", error="%s: %s" % (type(context.error).__name__, context.error))

app = (Application.builder().token(os.environ["TOKEN"]).base_url(base + "/bot").base_file_url(base + "/file/bot")
       .post_init(ready).build())
app.add_handler(CommandHandler("start", start))
app.add_handler(CommandHandler("chat", chat))
app.add_handler(CommandHandler("refusals", refusals))
app.add_handler(MessageHandler(filters.UpdateType.EDITED_MESSAGE, edited))
app.add_handler(MessageHandler(filters.PHOTO, photo))
app.add_handler(MessageHandler(filters.TEXT, text))
app.add_handler(CallbackQueryHandler(press))
app.add_handler(MessageReactionHandler(reaction))
app.add_error_handler(failed)
app.run_polling(allowed_updates=Update.ALL_TYPES, timeout=5)
"#;

/// A picture of two by two.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x02\x08\x06\0\0\0rest";

/// The bot and what it says.
struct RunningBot {
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl RunningBot {
    fn start(python: &Path, api: &BotApi) -> Self {
        let mut child = Command::new(python)
            .args(["-c", BOT])
            .env("BASE", api.base())
            .env("TOKEN", api.token().expose_secret())
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

    /// The next thing that it says, which is of this kind.
    async fn says(&mut self, kind: &str) -> Value {
        let line = timeout(SOON, self.lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("the bot says nothing of {kind}"));
        let said: Value = serde_json::from_str(&line.unwrap().expect("the bot runs")).unwrap();
        assert_eq!(said["kind"], kind, "{said}");
        said
    }
}

#[tokio::test]
async fn python_telegram_bot_takes_the_fake_for_telegram() {
    match python("python-telegram-bot-22.8", &["python-telegram-bot==22.8"]).await {
        Ok(programs) => converse(&programs.join("python")).await,
        Err(why) => announce("python-telegram-bot", "python3-venv", &why),
    }
}

async fn converse(python: &Path) {
    let api = BotApi::start(BotApiSettings::default()).await.unwrap();
    api.add_person(ApiPerson::named(ADA, "Ada"));
    api.add_chat(FORUM, ApiChatKind::Forum, "Project");
    api.set_standing(FORUM, ADA, BotStanding::Administrator);
    // What waited before it started is read, too.
    let first = api.say(ADA, ADA, "/start deep link");
    let mut bot = RunningBot::start(python, &api);
    let ready = bot.says("ready").await;
    assert_eq!(
        (&ready["username"], &ready["commands"]),
        (&json!("relay_dev_bot"), &json!(["start", "chat"]))
    );
    assert_eq!(bot.says("start").await["args"], json!(["deep", "link"]));
    assert_eq!(api.answers(ADA)[0].reply_to, Some(first));

    // A text, answered with formatting, buttons, a file and a reaction.
    let hello = api.say(ADA, ADA, "hello 😀 @relay_dev_bot");
    let said = bot.says("text").await;
    assert_eq!(
        (&said["text"], &said["user"], &said["chat"]),
        (
            &json!("hello 😀 @relay_dev_bot"),
            &json!("Ada"),
            &json!("private")
        )
    );
    assert_eq!(said["commands"], json!(["@relay_dev_bot"]), "UTF-16 offsets");
    assert_eq!(
        (&said["sent"], &said["entities"]),
        (&json!("Bold and x < y"), &json!(["bold", "code"]))
    );
    assert_eq!(
        (&said["name"], &said["answers"]),
        (&json!("notes.txt"), &json!(true))
    );
    let answers = api.answers(ADA);
    let asked = &answers[1];
    assert_eq!(asked.html, "<b>Bold</b> and <code>x &lt; y</code>");
    let labels: Vec<_> = asked.buttons[0]
        .iter()
        .map(|button| button.text.as_str())
        .collect();
    assert_eq!(labels, ["Allow", "Deny"]);
    let file = answers[2].file.as_ref().unwrap();
    assert_eq!(
        (file.name.as_deref(), &file.bytes[..]),
        (Some("notes.txt"), &b"line one\nline two"[..])
    );
    assert_eq!(
        (answers[2].text.as_str(), answers.len()),
        ("a file", 3),
        "the copy by id was deleted"
    );
    let read = api
        .messages(ADA)
        .into_iter()
        .find(|message| message.message_id == hello);
    assert_eq!(read.unwrap().reactions, ["👍"]);
    assert_eq!(api.calls_of("sendMessageDraft").len(), 1);

    // A press, answered and edited.
    api.press(ADA, asked.message_id, ADA, "Allow").unwrap();
    let said = bot.says("press").await;
    assert_eq!((&said["data"], &said["by"]), (&json!("allow:1"), &json!("Ada")));
    assert_eq!(api.presses()[0].answer.as_deref(), Some("noted"));
    let chosen = api.answers(ADA).remove(1);
    assert_eq!(
        (chosen.html.as_str(), chosen.buttons.len()),
        ("You chose <i>allow:1</i>", 0)
    );

    // A photo, downloaded and sent back twice as an album.
    api.send(
        ADA,
        ADA,
        PersonMessage::file(PersonFile::new("photo", "a.png", PNG), "look"),
    );
    let said = bot.says("photo").await;
    assert_eq!((&said["caption"], &said["album"]), (&json!("look"), &json!(1)));
    assert_eq!(said["bytes"], json!(PNG));
    let album = api.answers(ADA);
    assert_eq!(album.last().unwrap().file.as_ref().unwrap().bytes, PNG);
    people_act(&api, &mut bot, hello, chosen.message_id).await;
    calls_are_refused(&api, &mut bot).await;
}

/// Edits, reactions, chats and topics.
async fn people_act(api: &BotApi, bot: &mut RunningBot, hello: i64, chosen: i64) {
    api.edit(ADA, hello, "hello again");
    assert_eq!(bot.says("edited").await["text"], "hello again");
    api.react(ADA, chosen, ADA, &["🔥"]);
    assert_eq!(bot.says("reaction").await["emoji"], json!(["🔥"]));

    // Chats, members and topics.
    api.say(ADA, ADA, &format!("/chat {FORUM}"));
    let said = bot.says("chat").await;
    assert_eq!(said["type"], "supergroup");
    assert_eq!(
        (&said["forum"], &said["status"], &said["manages"]),
        (&json!(true), &json!("administrator"), &json!(true))
    );
    assert_eq!(said["thread"], said["sent_in"]);
    assert_eq!(
        api.topic_name(FORUM, said["thread"].as_i64().unwrap()).as_deref(),
        Some("Release")
    );
}

/// Refusals are what the library expects, and it goes on after another poller took its poll.
async fn calls_are_refused(api: &BotApi, bot: &mut RunningBot) {
    let sends = |answer| BotApiRule::on("sendMessage", answer).in_chat(424_242).once();
    api.script(sends(BotApiAnswer::refuse(
        403,
        "Forbidden: bot was blocked by the user",
    )));
    api.script(BotApiRule::on("sendPhoto", BotApiAnswer::too_many(9)).once());
    api.say(ADA, ADA, "/refusals");
    let seen = bot.says("refusals").await;
    let seen: Vec<_> = seen["seen"]
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text.as_str().unwrap())
        .collect();
    assert!(
        seen[0].starts_with("BadRequest: Can't parse entities"),
        "{seen:?}"
    );
    assert_eq!(seen[1], "BadRequest: Message is too long");
    assert_eq!(seen[2], "Forbidden: Forbidden: bot was blocked by the user");
    assert_eq!(seen[3], "retry after 9.0");

    // Another poller ends its poll once; it goes on, and confirms everything in the end.
    api.wait_polled(SOON).await.unwrap();
    assert!(api.steal_poll());
    assert!(
        bot.says("error").await["error"]
            .as_str()
            .unwrap()
            .starts_with("Conflict: ")
    );
    api.say(ADA, ADA, "/start");
    bot.says("start").await;
    api.until("everything confirmed", SOON, |api| {
        (api.pending_count() == 0).then_some(())
    })
    .await
    .unwrap();
    let refused: Vec<_> = api
        .calls()
        .into_iter()
        .filter(|call| call.status == Some(404))
        .map(|call| call.method)
        .collect();
    assert_eq!(
        refused,
        Vec::<String>::new(),
        "every method that it calls is there"
    );
}
