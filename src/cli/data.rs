//! `hermes-relay data`: keeps and finds pieces of text. Changes are made in their store, with or without a running relay.

use std::io::{self, IsTerminal as _, Read as _};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::Environment;
use super::exit;
use super::format::printable;
use super::prompt::{SecretInput as _, Stdin};
use super::remote::{RemoteArgs, RemoteRelay};
use crate::data::{
    DEFAULT_LIMIT, DataError, DataStore, DataWrite, Expiry, MAX_CONTENT_BYTES, MAX_LIMIT, PortableData,
    QueryFilters,
};
use crate::store::{SqliteDataStore, make_private};
use crate::text::instant;

/// Keep pieces of text and find them again by their words. They are kept for ever unless you say otherwise. Works with the relay
/// running or stopped.
///
/// Exit codes: 0 done (also if nothing is found), 1 there is no such item or the change is not valid, 2 invalid usage, 78 invalid
/// configuration.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay data write \"The router is in the cellar\" --tag house\n  \
                  hermes-relay data query router --filter tags=house\n  hermes-relay data list\n  hermes-relay data get 0f8c2d5e9a7b4c31a6d2e8f09b4c7d15"
)]
pub(super) struct DataArgs {
    #[command(subcommand)]
    action: DataAction,
}

#[derive(Subcommand, Debug)]
enum DataAction {
    /// Keep a text and print its id.
    #[command(
        after_help = "Examples:\n  hermes-relay data write \"The router is in the cellar\" --tag house\n  \
                      hermes-relay data write - --expires-in 30d --meta vault=home < notes.txt"
    )]
    Write(DataWriteArgs),
    /// Find texts that contain all these words, the best match first. Nothing in the words is search syntax.
    #[command(after_help = "Examples:\n  hermes-relay data query router cellar\n  \
                      hermes-relay data query router --filter tags=house --filter tags=garden --limit 3 --json")]
    Query(DataQueryArgs),
    /// List the texts, the newest first.
    #[command(
        after_help = "Examples:\n  hermes-relay data list\n  hermes-relay data list --filter tags=house --json"
    )]
    List(DataListArgs),
    /// Delete a text by its id.
    #[command(after_help = "Example:\n  hermes-relay data delete 0f8c2d5e9a7b4c31a6d2e8f09b4c7d15 --yes")]
    Delete {
        #[command(flatten)]
        remote: RemoteArgs,
        /// Id of the item.
        #[arg(value_name = "ID")]
        id: String,
        /// Do not ask for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
    /// Show a text by its id.
    #[command(after_help = "Example:\n  hermes-relay data get 0f8c2d5e9a7b4c31a6d2e8f09b4c7d15")]
    Get {
        #[command(flatten)]
        remote: RemoteArgs,
        /// Id of the item.
        #[arg(value_name = "ID")]
        id: String,
    },
}

/// `data write`.
#[derive(Args, Debug)]
struct DataWriteArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// The text, at most 1 MiB; `-` reads standard input. Its first line is its summary.
    #[arg(value_name = "TEXT", required = true)]
    text: Vec<String>,
    /// Tag; may be repeated.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Whom it is for; may be repeated.
    #[arg(long = "recipient", value_name = "NAME")]
    recipients: Vec<String>,
    /// Delete it after this time, such as 90s, 30m, 2h or 30d [default: never].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    expires_in: Option<i64>,
    /// Something else to keep with it, such as vault=home; may be repeated.
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = parse_pair)]
    metadata: Vec<(String, String)>,
}

/// `data query`.
#[derive(Args, Debug)]
struct DataQueryArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Words that the text contains, in any order.
    #[arg(value_name = "TEXT", required = true)]
    text: Vec<String>,
    #[command(flatten)]
    page: DataPageArgs,
}

/// `data list`.
#[derive(Args, Debug)]
struct DataListArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    page: DataPageArgs,
}

/// Which of the items, and how many.
#[derive(Args, Debug)]
struct DataPageArgs {
    /// Maximum, after the offset.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT as u64, value_parser = clap::value_parser!(u64).range(1..=MAX_LIMIT as u64))]
    limit: u64,
    /// Leave out so many first.
    #[arg(long, value_name = "N", default_value_t = 0, hide_short_help = true)]
    offset: usize,
    /// Only items like this: `tags`, `recipients`, `agent_id`, `vault`, `thread_status`, `payload_type`, `knowledge_type` or
    /// `pinned`. The same key again means any of its values.
    #[arg(long = "filter", value_name = "KEY=VALUE", value_parser = parse_pair)]
    filters: Vec<(String, String)>,
    /// Ignore filters that the store does not know, in place of failing.
    #[arg(long, hide_short_help = true)]
    permissive_filters: bool,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

/// Seconds.
fn parse_time(text: &str) -> Result<i64, String> {
    let wrong = || "write a time such as 90s, 30m, 2h or 30d".to_owned();
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: i64 = number.parse().map_err(|_| wrong())?;
    // A hundred years and more are for ever.
    let secs = number
        .checked_mul(unit)
        .filter(|secs| *secs <= 100 * 366 * 86_400);
    secs.filter(|secs| *secs > 0).ok_or_else(wrong)
}

/// Runs the verb.
pub(super) fn run(args: &DataArgs, env: Environment<'_>) -> ExitCode {
    let done = match &args.action {
        DataAction::Write(args) => write(args, env),
        DataAction::Query(args) => query(args, env),
        DataAction::List(args) => find(&args.remote, String::new(), &args.page, env),
        DataAction::Delete { remote, id, yes } => delete(remote, id, *yes, env),
        DataAction::Get { remote, id } => get(remote, id, env),
    };
    done.unwrap_or_else(|code| code)
}

fn write(args: &DataWriteArgs, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let relay = args.remote.relay(env)?;
    let content = read_text(&relay, &args.text.join(" "))?;
    let metadata: Map<String, Value> = (args.metadata.iter())
        .map(|(key, value)| (key.clone(), typed(key, value)))
        .collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let new = DataWrite {
        content,
        tags: args.tags.clone(),
        recipients: args.recipients.clone(),
        expires_at: (args.expires_in)
            .map_or(Expiry::StoreDefault, |secs| Expiry::At(now.saturating_add(secs))),
        metadata,
    };
    let settings = relay.settings();
    if let Err(error) = make_private(&settings.state_dir, settings.state_dir_assigned) {
        return Err(relay.fail(exit::CONFIGURATION, error, None));
    }
    let written = store(&relay)
        .write(&new)
        .map_err(|error| report(&relay, &error))?;
    Ok(args
        .remote
        .print(&json!(written), format!("kept as {}", written.id)))
}

/// Curated fields that are no texts, as what they are; the store refuses what does not fit.
fn typed(key: &str, value: &str) -> Value {
    let parsed = match key {
        "pinned" => value.parse::<bool>().ok().map(Value::from),
        "confidence" => value.parse::<f64>().ok().map(Value::from),
        "expires_at" => value.parse::<i64>().ok().map(Value::from),
        "domain_tags" | "recipients" => Some(json!([value])),
        _ => None,
    };
    parsed.unwrap_or_else(|| value.into())
}

fn query(args: &DataQueryArgs, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let query = args.text.join(" ");
    if query.trim().is_empty() {
        let hint = "name at least one word, such as `hermes-relay data query router`, or use `hermes-relay data list`";
        let relay = args.remote.relay(env)?;
        return Err(relay.fail(exit::USAGE, "there is nothing to search for", Some(hint)));
    }
    find(&args.remote, query, &args.page, env)
}

/// Prints the items that contain all words; without words all, the newest first.
fn find(
    remote: &RemoteArgs,
    query: String,
    page: &DataPageArgs,
    env: Environment<'_>,
) -> Result<ExitCode, ExitCode> {
    let relay = remote.relay(env)?;
    let is_list = query.is_empty();
    let mut wanted = QueryFilters {
        query,
        limit: usize::try_from(page.limit).unwrap_or(MAX_LIMIT),
        offset: page.offset,
        permissive_filters: page.permissive_filters,
        ..QueryFilters::default()
    };
    for (key, value) in &page.filters {
        // The contract's own keys are never filters of a store.
        match key.as_str() {
            "mode" => wanted.mode.clone_from(value),
            "query" | "limit" | "offset" | "permissive_filters" => {
                let option = key.replace('_', "-");
                let hint = match key.as_str() {
                    "query" => "write the words without an option".to_owned(),
                    _ => format!("use --{option}"),
                };
                return Err(relay.fail(exit::USAGE, format!("`{key}` is not a filter"), Some(&hint)));
            }
            _ => {
                let values = wanted.filters.entry(key.clone()).or_insert_with(|| json!([]));
                if let Value::Array(values) = values {
                    values.push(value.clone().into());
                }
            }
        }
    }
    let items = store(&relay)
        .query(&wanted)
        .map_err(|error| report(&relay, &error))?;
    if remote.json {
        return Ok(exit::print(json!({ "items": items })));
    }
    if items.is_empty() {
        let none = if is_list && wanted.filters.is_empty() && wanted.offset == 0 {
            "nothing is kept; `hermes-relay data write TEXT` keeps a text"
        } else {
            "nothing found"
        };
        return Ok(exit::print(none));
    }
    let line = |item: &PortableData| {
        let date = item
            .created_at
            .filter(|_| is_list)
            .map(instant)
            .unwrap_or_default();
        let date = date.split('T').next().filter(|date| !date.is_empty());
        let date = date.map(|date| format!("{date}  ")).unwrap_or_default();
        format!("{}  {date}{}", item.id, printable(&item.summary))
    };
    let mut lines: Vec<String> = items.iter().map(line).collect();
    if is_list && items.len() == wanted.limit {
        lines.push(format!("the newest {}; --limit N shows more", wanted.limit));
    }
    Ok(exit::print(lines.join("\n")))
}

fn delete(remote: &RemoteArgs, id: &str, yes: bool, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let relay = remote.relay(env)?;
    let store = store(&relay);
    let item = store.get(id).map_err(|error| report(&relay, &error))?;
    let Some(item) = item else {
        return Err(no_item(&relay, id));
    };
    if !yes {
        if !io::stdin().is_terminal() {
            let why = format!(
                "cannot ask for confirmation (standard input is not a terminal); {} is kept",
                item.id
            );
            return Err(relay.fail(
                exit::FAILED,
                why,
                Some("pass --yes to delete it without confirmation"),
            ));
        }
        let question = format!("Delete `{}`? [y/N]", printable(&item.summary));
        let typed = Stdin
            .line(&question)
            .map_err(|error| relay.fail(exit::FAILED, format!("cannot read the answer: {error}"), None))?;
        let typed = typed.unwrap_or_default().to_ascii_lowercase();
        if !matches!(typed.as_str(), "y" | "yes") {
            return Err(relay.fail(exit::FAILED, format!("{} is kept", item.id), None));
        }
    }
    let deleted = store.delete(&item.id).map_err(|error| report(&relay, &error))?;
    if !deleted {
        return Err(no_item(&relay, id));
    }
    Ok(remote.print(&json!({"deleted": item.id}), format!("deleted {}", item.id)))
}

fn no_item(relay: &RemoteRelay, id: &str) -> ExitCode {
    let why = format!("there is no item `{}`", printable(id));
    let hint = "`hermes-relay data list` lists the items; those that have expired are gone";
    relay.fail(exit::FAILED, why, Some(hint))
}

fn get(remote: &RemoteArgs, id: &str, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let relay = remote.relay(env)?;
    let item = store(&relay).get(id).map_err(|error| report(&relay, &error))?;
    let Some(item) = item else {
        return Err(no_item(&relay, id));
    };
    let mut lines = vec![format!("id        {}", item.id)];
    let tags = item.domain_tags.as_ref().map(|tags| tags.join(", "));
    for (label, value) in [
        ("written ", item.created_at.map(instant)),
        ("expires ", item.expires_at.map(instant)),
        ("tags    ", tags),
    ] {
        if let Some(value) = value {
            lines.push(format!("{label}  {}", printable(&value)));
        }
    }
    lines.push(format!(
        "\n{}",
        item.detail.as_deref().unwrap_or(&item.summary).trim_end()
    ));
    Ok(remote.print(&json!(item), lines.join("\n")))
}

fn store(relay: &RemoteRelay) -> SqliteDataStore {
    SqliteDataStore::in_state_dir(&relay.settings().state_dir)
}

/// Reports an error of the store; returns the exit code.
fn report(relay: &RemoteRelay, error: &DataError) -> ExitCode {
    let (code, hint) = match error {
        DataError::UnsupportedFilter { supported_keys, .. } => {
            let keys = supported_keys.join(", ");
            let hint = format!("there are {keys}; --permissive-filters ignores others");
            (exit::FAILED, Some(hint))
        }
        DataError::UnsupportedMode { .. }
        | DataError::Invalid(_)
        | DataError::Full(_)
        | DataError::ReadOnly(_) => (exit::FAILED, None),
        DataError::Unavailable(_) => (exit::CONFIGURATION, None),
    };
    relay.fail(code, printable(&error.to_string()), hint.as_deref())
}

/// The text as typed, or from standard input.
fn read_text(relay: &RemoteRelay, typed: &str) -> Result<String, ExitCode> {
    if typed != "-" {
        return Ok(typed.to_owned());
    }
    let mut bytes = Vec::new();
    // One byte more, so that a longer one is refused and not cut.
    let limit = MAX_CONTENT_BYTES as u64 + 1;
    if let Err(error) = io::stdin().lock().take(limit).read_to_end(&mut bytes) {
        let why = format!("cannot read standard input: {error}");
        return Err(relay.fail(exit::FAILED, why, None));
    }
    String::from_utf8(bytes).map_err(|_| relay.fail(exit::FAILED, "standard input is not UTF-8 text", None))
}
