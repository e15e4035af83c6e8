//! `hermes-relay oracle`: answers questions about the contract, one JSON value per line, for tests of connectors.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::Environment;
use super::exit;
use crate::adapter::{interaction_event, split};
use crate::config::{AliasFiles, yaml};
use crate::cron::schedule::{self, Schedule};
use crate::wire::{
    CapabilityDescriptor, CommandMap, ConnectorFrame, ConnectorUrl, GatewayFrame, Grouping, LenUnit, Line,
    LineFramer, MessageEvent, PassthroughForward, RelevancePolicy, SessionKey, SessionSource, UpgradeToken,
    WhatsAppAliases, is_truthy, text_of,
};

/// Maximum length of a line; a longer one is answered with an error.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// Answer questions about the relay contract, one JSON value per input line.
///
/// Each line of standard input is one question; each line of output is its answer:
/// {"ok": …} or {"error": "…"}. Run `hermes-relay oracle --list` for an example of each kind.
///
/// Exit codes: 0 every line was answered, 1 standard input cannot be read or the answers cannot be written.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay oracle --list\n  echo '{\"configured\": \"https://connector.example\"}' | hermes-relay oracle url"
)]
pub(super) struct OracleArgs {
    /// Kind of question.
    #[arg(value_enum, required_unless_present = "list")]
    kind: Option<OracleKind>,
    /// Print every kind with one example of input and output.
    #[arg(long, conflicts_with = "kind")]
    list: bool,
}

/// A kind of question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OracleKind {
    /// Mint an upgrade token.
    Token,
    /// Check a token against secrets.
    Verify,
    /// Name the session of a source.
    SessionKey,
    /// Normalise a capability descriptor.
    Descriptor,
    /// Normalise an inbound event.
    Event,
    /// Project settings to a relevance policy.
    Policy,
    /// Split a text by a platform's limit.
    Split,
    /// Read a forwarded Discord interaction.
    Interaction,
    /// Derive every address from a configured URL.
    Url,
    /// Decode one line of the wire.
    Frame,
    /// Compute when a schedule runs next.
    Schedule,
}

impl OracleKind {
    fn example(self) -> &'static str {
        match self {
            Self::Token => {
                r#"{"gateway_id": "gw-test", "secret": "topsecret", "ttl_seconds": 300, "now": 1754700000}"#
            }
            Self::Verify => r#"{"token": "YTpi", "secrets": ["new", "old"], "now": 1754700000}"#,
            Self::SessionKey => {
                r#"{"source": {"platform": "discord", "chat_id": "c1", "chat_type": "group", "user_id": "u1"}, "group_sessions_per_user": true, "thread_sessions_per_user": false, "profile": null}"#
            }
            Self::Descriptor => {
                r#"{"contract_version": 1, "platform": "discord", "label": "Discord", "max_message_length": 2000, "supports_draft_streaming": false, "supports_edit": true, "supports_threads": true, "markdown_dialect": "discord", "len_unit": "chars"}"#
            }
            Self::Event => {
                r#"{"text": "hi", "message_id": "m1", "source": {"platform": "discord", "chat_id": "c1", "chat_type": "dm", "user_id": "u1"}}"#
            }
            Self::Policy => {
                r#"{"config_yaml": "discord:\n  require_mention: true\n", "platform_arg": "discord", "env": {"DISCORD_ALLOW_BOTS": "all"}}"#
            }
            Self::Split => {
                r#"{"content": "one two three four five six seven eight", "max_length": 30, "len_unit": "chars"}"#
            }
            Self::Interaction => {
                r#"{"platform": "discord", "botId": "app", "method": "POST", "path": "/interactions/app", "headers": [], "bodyB64": "eyJpZCI6ImkxIiwidHlwZSI6MiwiY2hhbm5lbF9pZCI6ImMiLCJkYXRhIjp7Im5hbWUiOiJuZXcifX0="}"#
            }
            Self::Url => r#"{"configured": "https://connector.example"}"#,
            Self::Frame => {
                r#"{"line": "{\"type\": \"inbound\", \"event\": {\"text\": \"hi\"}, \"bufferId\": 7}"}"#
            }
            Self::Schedule => {
                r#"{"schedule": "weekdays at 9am", "timezone": "Europe/Berlin", "now": "2026-06-18T10:00:00+00:00"}"#
            }
        }
    }

    fn answer(self, question: &Value, home: Option<&Path>) -> Result<Value, String> {
        match self {
            Self::Token => token(question),
            Self::Verify => verify(question),
            Self::SessionKey => session_key(question, home),
            Self::Descriptor => to_json(CapabilityDescriptor::from_value(question)),
            Self::Event => event(question),
            Self::Policy => policy(question),
            Self::Split => split_text(question),
            Self::Interaction => interaction(question),
            Self::Url => url(question),
            Self::Frame => frame(question),
            Self::Schedule => schedule(question),
        }
    }
}

/// When a schedule runs next. An empty zone is UTC, as is an unknown one.
fn schedule(question: &Value) -> Result<Value, String> {
    let text = |name: &str| match &question[name] {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text.as_str()),
        _ => Err(format!("`{name}` must be a text")),
    };
    let zone = schedule::zone(text("timezone")?).unwrap_or(schedule::TimeZone::UTC);
    let now = schedule::parse_instant(text("now")?, &zone).ok_or("`now` must be an ISO 8601 time")?;
    let read = Schedule::parse(text("schedule")?, now, &zone).map_err(|error| error.to_string())?;
    let first = read.first_run(now, &zone).map_err(|error| error.to_string())?;
    Ok(json!({
        "kind": read.kind(),
        "next_run_at": schedule::format(first, &zone),
        "display": read.display(),
    }))
}

/// Runs the verb.
pub(super) fn run(args: &OracleArgs, env: Environment<'_>) -> ExitCode {
    let home = env("HERMES_HOME").filter(|home| !home.is_empty());
    let home = home.map(PathBuf::from);
    let mut output = io::LineWriter::new(io::stdout().lock());
    let answered = match args.kind {
        Some(kind) => answer_all(kind, home.as_deref(), io::stdin().lock(), &mut output),
        None => list(&mut output),
    };
    match answered {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let what = format!("cannot read the questions from standard input: {error}");
            exit::fail(exit::FAILED, what, None)
        }
    }
}

fn list(output: &mut impl Write) -> io::Result<()> {
    for kind in OracleKind::value_variants() {
        let name = kind.to_possible_value().expect("no kind is hidden");
        let question: Value = serde_json::from_str(kind.example()).expect("examples are JSON");
        writeln!(
            output,
            "{}: {}",
            name.get_name(),
            name.get_help().map(ToString::to_string).unwrap_or_default()
        )?;
        writeln!(
            output,
            "  in:  {}\n  out: {}",
            kind.example(),
            response(kind.answer(&question, None))
        )?;
    }
    Ok(())
}

fn answer_all(
    kind: OracleKind,
    home: Option<&Path>,
    mut input: impl Read,
    output: &mut impl Write,
) -> io::Result<()> {
    let mut framer = LineFramer::new(MAX_LINE_BYTES);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = input.read(&mut buffer)?;
        let chunk = if read == 0 { &b"\n"[..] } else { &buffer[..read] };
        let mut written = Ok(());
        framer.feed(chunk, |line| {
            let answer = match line {
                Line::Whole(line) => serde_json::from_slice(line)
                    .map_err(|error| format!("not JSON: {error}"))
                    .and_then(|question| kind.answer(&question, home)),
                Line::TooLong { .. } => Err(format!("longer than {MAX_LINE_BYTES} bytes")),
            };
            if written.is_ok() {
                written = writeln!(output, "{}", response(answer));
            }
        });
        written?;
        if read == 0 {
            return output.flush();
        }
    }
}

fn response(answer: Result<Value, String>) -> Value {
    match answer {
        Ok(answer) => json!({ "ok": answer }),
        Err(error) => json!({ "error": error }),
    }
}

fn to_json<T: serde::Serialize, E: std::fmt::Display>(answer: Result<T, E>) -> Result<Value, String> {
    answer
        .map_err(|error| error.to_string())
        .and_then(|answer| serde_json::to_value(answer).map_err(|error| error.to_string()))
}

fn text<'a>(question: &'a Value, key: &str) -> Result<&'a str, String> {
    question
        .get(key)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("{key} must be text"))
}

fn integer(question: &Value, key: &str) -> Result<i64, String> {
    let number = question.get(key).ok_or_else(|| format!("{key} is missing"))?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the integer part of a Unix time is what counts"
    )]
    number
        .as_i64()
        .or_else(|| number.as_f64().map(|float| float as i64))
        .ok_or_else(|| format!("{key} must be a number"))
}

fn token(question: &Value) -> Result<Value, String> {
    let secret = text(question, "secret")?.into();
    let ttl = integer(question, "ttl_seconds")?;
    Ok(json!(
        UpgradeToken::mint(
            text(question, "gateway_id")?,
            &secret,
            ttl,
            integer(question, "now")?
        )
        .expose()
    ))
}

fn verify(question: &Value) -> Result<Value, String> {
    let secrets = question
        .get("secrets")
        .and_then(Value::as_array)
        .ok_or("secrets must be a list")?;
    let secrets = secrets.iter().filter_map(Value::as_str);
    Ok(json!(UpgradeToken::verify(
        text(question, "token")?,
        secrets,
        integer(question, "now")?
    )))
}

struct GivenAliases(BTreeMap<String, String>);

impl WhatsAppAliases for GivenAliases {
    fn aliases_of(&self, id: &str) -> Vec<String> {
        let names = [
            format!("lid-mapping-{id}.json"),
            format!("lid-mapping-{id}_reverse.json"),
        ];
        names
            .iter()
            .filter_map(|name| self.0.get(name).cloned())
            .collect()
    }
}

fn session_key(question: &Value, home: Option<&Path>) -> Result<Value, String> {
    let source = SessionSource::from_value(question.get("source").unwrap_or(&Value::Null))
        .map_err(|error| error.to_string())?;
    let flag = |key: &str, default: bool| {
        question
            .get(key)
            .filter(|f| !f.is_null())
            .map_or(default, is_truthy)
    };
    let grouping = Grouping {
        group_sessions_per_user: flag("group_sessions_per_user", true),
        thread_sessions_per_user: flag("thread_sessions_per_user", false),
    };
    let profile = question
        .get("profile")
        .filter(|profile| !profile.is_null())
        .map(text_of);
    let given = question
        .get("whatsapp_mapping_files")
        .and_then(Value::as_object)
        .map(|files| {
            GivenAliases(
                files
                    .iter()
                    .map(|(name, alias)| (name.clone(), text_of(alias)))
                    .collect(),
            )
        });
    let files = home.map(AliasFiles::new);
    let none = crate::wire::NoAliases;
    let aliases: &dyn WhatsAppAliases = match (&given, &files) {
        (Some(given), _) => given,
        (None, Some(files)) => files,
        (None, None) => &none,
    };
    Ok(json!(
        SessionKey::build(&source, grouping, profile.as_deref(), aliases).as_str()
    ))
}

fn event(question: &Value) -> Result<Value, String> {
    let mut event = MessageEvent::from_value(question).map_err(|error| error.to_string())?;
    CommandMap::default().rewrite(&mut event);
    to_json(Ok::<_, String>(event))
}

fn policy(question: &Value) -> Result<Value, String> {
    let env = |key: &str| question.get("env").and_then(|env| env.get(key)?.as_str());
    let platform = match question.get("platform_arg").and_then(Value::as_str) {
        Some(platform) => platform,
        None => env("GATEWAY_RELAY_PLATFORMS")
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
            .find(|platform| !platform.is_empty())
            .unwrap_or("relay"),
    };
    let config = question
        .get("config_yaml")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let config = yaml::lenient(config).unwrap_or_default();
    to_json(Ok::<_, String>(RelevancePolicy::project(
        &config,
        platform,
        env(&RelevancePolicy::allow_bots_variable(platform)),
    )))
}

fn split_text(question: &Value) -> Result<Value, String> {
    let limit = usize::try_from(integer(question, "max_length")?).unwrap_or(0);
    let unit = LenUnit::from_wire(
        question
            .get("len_unit")
            .and_then(Value::as_str)
            .unwrap_or("chars"),
    );
    Ok(json!(split::split(text(question, "content")?, limit, unit)))
}

fn interaction(question: &Value) -> Result<Value, String> {
    let forward = PassthroughForward::from_value(question).map_err(|error| error.to_string())?;
    let Some(event) = interaction_event(&forward) else {
        return Ok(Value::Null);
    };
    let mut answer = to_json(Ok::<_, String>(&event))?;
    answer["metadata"] = Value::Object(event.metadata);
    Ok(answer)
}

fn url(question: &Value) -> Result<Value, String> {
    let configured = question
        .get("configured")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if configured.trim().is_empty() {
        return Ok(json!({"dial_url": null, "provision_url": null, "policy_url": null, "enroll_base": null}));
    }
    let url = ConnectorUrl::parse(configured).map_err(|error| error.to_string())?;
    Ok(json!({
        "dial_url": url.dial_url(),
        "provision_url": url.provision_url(),
        "policy_url": url.policy_url(),
        "enroll_base": url.http_base(),
    }))
}

fn frame(question: &Value) -> Result<Value, String> {
    let line = question.as_str().map_or_else(|| text(question, "line"), Ok)?;
    if let Ok(frame) = GatewayFrame::decode(line.as_bytes()) {
        return to_json(Ok::<_, String>(frame));
    }
    match ConnectorFrame::decode(line.trim().as_bytes()) {
        Ok(frame) => to_json(Ok::<_, String>(frame)),
        Err(undecodable) => Err(undecodable.error.to_string()),
    }
}
