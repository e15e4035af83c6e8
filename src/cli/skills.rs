//! `hermes-relay skills`: the playbooks that jobs run. Changes are made in their store, with or without a running relay.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Environment;
use super::caller::Caller;
use super::cron::jobs_with_skill;
use super::exit;
use super::format::{printable, stderr};
use super::remote::{RemoteArgs, RemoteRelay};
use crate::config::Settings;
use crate::config::file::nearest;
use crate::skill::{
    MAX_BODY_BYTES, SkillDetails, SkillError, SkillErrorReason, SkillFilter, SkillMeta, SkillSource,
    SkillStatus, SkillStore, SkillVersion, SkillWrite,
};
use crate::store::make_private;
use crate::text::instant;

/// Keep playbooks that scheduled jobs run. A new one is a Draft; only an Approved one is run. Works with the relay running or
/// stopped. Without a command: `list`.
///
/// Exit codes: 0 done, 1 there is no such skill or the change is not valid, 2 invalid usage, 78 invalid configuration, or a file
/// that cannot be used.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  hermes-relay skills add inbox inbox.md\n  hermes-relay skills approve inbox\n  \
                  hermes-relay cron add \"weekdays at 9am\" --skill inbox --deliver telegram:123456\n  \
                  hermes-relay skills list --status Approved"
)]
pub(super) struct SkillsArgs {
    #[command(subcommand)]
    action: Option<SkillsAction>,
    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Subcommand, Debug)]
enum SkillsAction {
    /// List skills.
    #[command(
        after_help = "Examples:\n  hermes-relay skills list --tag mail --status Approved\n  \
                      hermes-relay skills list --json | jq -r '.skills[] | [.name, .status] | @tsv'"
    )]
    List(SkillsListArgs),
    /// Show a skill with its text.
    #[command(
        disable_version_flag = true,
        after_help = "Examples:\n  hermes-relay skills show inbox\n  \
                      hermes-relay skills show inbox --version 3f2a9c81d0b7 --json"
    )]
    Show {
        #[command(flatten)]
        remote: RemoteArgs,
        /// Name of the skill.
        #[arg(value_name = "NAME")]
        name: String,
        /// This version [default: the current one].
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
    },
    /// Add a skill, or a new version of it. It is a Draft unless its header says otherwise (`# Status: Approved`).
    #[command(after_help = "Examples:\n  hermes-relay skills add inbox inbox.md\n  \
                      hermes-relay skills add inbox - --tag mail --author ada < inbox.md")]
    Add(SkillsAddArgs),
    /// Approve a skill, so that jobs may run it.
    #[command(after_help = "Example:\n  hermes-relay skills approve inbox")]
    Approve(SkillNameArgs),
    /// Disable a skill: jobs that name it fail until it is approved again.
    #[command(after_help = "Example:\n  hermes-relay skills disable inbox")]
    Disable(SkillNameArgs),
    /// Delete a skill with its history, for good. Asks first; refused while a scheduled job names it.
    #[command(
        alias = "remove",
        visible_alias = "rm",
        after_help = "Examples:\n  hermes-relay skills delete inbox\n  hermes-relay skills delete inbox --yes --force"
    )]
    Delete {
        #[command(flatten)]
        remote: RemoteArgs,
        /// Name of the skill.
        #[arg(value_name = "NAME")]
        name: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        /// Delete it although scheduled jobs name it; their runs fail.
        #[arg(long)]
        force: bool,
    },
    /// Show the history of a skill, the oldest entry first.
    #[command(
        alias = "history",
        after_help = "Example:\n  hermes-relay skills versions inbox --json"
    )]
    Versions(SkillNameArgs),
}

/// `skills list`.
#[derive(Args, Debug, Default)]
struct SkillsListArgs {
    #[command(flatten)]
    remote: Option<RemoteArgs>,
    /// Only those with this status: Draft, Approved or Disabled; may be repeated.
    #[arg(long, value_name = "STATUS")]
    status: Vec<SkillStatus>,
    /// Only those with this tag; repeated: with all of them.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Only those of this author.
    #[arg(long, value_name = "AUTHOR")]
    author: Option<String>,
    /// Only those with this name; `*` stands for any text.
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Maximum.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Leave out so many first.
    #[arg(long, value_name = "N", default_value_t = 0, hide_short_help = true)]
    offset: usize,
    /// With --json: print no list while `catalog_version` is still this.
    #[arg(long, value_name = "CATALOG_VERSION", hide_short_help = true)]
    if_none_match: Option<String>,
}

/// `skills add`.
#[derive(Args, Debug)]
struct SkillsAddArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Name: a letter or digit, then letters, digits, `_`, `-` and `.`.
    #[arg(value_name = "NAME")]
    name: String,
    /// File with the text, at most 1 MiB; `-` reads standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Who wrote it. It stays with the skill: later versions cannot name another author.
    #[arg(long, value_name = "AUTHOR")]
    author: Option<String>,
    /// Tag; may be repeated [default: those of its header].
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// One line for people [default: that of its header].
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

/// A skill by its name.
#[derive(Args, Debug)]
struct SkillNameArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Name of the skill.
    #[arg(value_name = "NAME")]
    name: String,
}

/// Runs the verb.
pub(super) fn run(args: &SkillsArgs, env: Environment<'_>) -> ExitCode {
    let done = match &args.action {
        None => list(&args.remote, &SkillsListArgs::default(), env),
        Some(SkillsAction::List(list_args)) => {
            let remote = list_args.remote.as_ref().unwrap_or(&args.remote);
            list(remote, list_args, env)
        }
        Some(SkillsAction::Show {
            remote,
            name,
            version,
        }) => show(remote, name, version.as_deref(), env),
        Some(SkillsAction::Add(args)) => add(args, env),
        Some(SkillsAction::Approve(args)) => set_status(args, SkillStatus::Approved, env),
        Some(SkillsAction::Disable(args)) => set_status(args, SkillStatus::Disabled, env),
        Some(SkillsAction::Delete {
            remote,
            name,
            yes,
            force,
        }) => delete(remote, name, *yes, *force, env),
        Some(SkillsAction::Versions(args)) => versions(args, env),
    };
    done.unwrap_or_else(|code| code)
}

/// The skills of a relay that may or may not run.
struct Catalog {
    relay: RemoteRelay,
    store: Box<dyn SkillStore>,
}

impl Catalog {
    fn new(remote: &RemoteArgs, env: Environment<'_>) -> Result<Self, ExitCode> {
        let relay = remote.relay(env)?;
        let settings = relay.settings();
        let store = settings.skills.store_in(&settings.state_dir);
        Ok(Self { relay, store })
    }

    /// Reports an error of the store.
    fn check<T>(&self, result: Result<T, SkillError>) -> Result<T, ExitCode> {
        result.map_err(|error| SkillRefusal::new(&*self.store, &error).report(&self.relay))
    }
}

/// Why a verb cannot use a skill, for people.
pub(super) struct SkillRefusal {
    pub(super) code: u8,
    pub(super) what: String,
    pub(super) hint: Option<String>,
}

impl SkillRefusal {
    fn new(store: &dyn SkillStore, error: &SkillError) -> Self {
        let (code, hint) = match &error.reason {
            SkillErrorReason::NotFound(name) => (exit::FAILED, Some(similar(store, name))),
            SkillErrorReason::VersionNotFound { name, .. }
                if store.manifest().features.supports_versioning =>
            {
                let hint = format!("`hermes-relay skills versions {}` lists them", printable(name));
                (exit::FAILED, Some(hint))
            }
            SkillErrorReason::VersionNotFound { .. } => {
                let hint =
                    "this store keeps only the current text; `skills.store: sqlite` keeps earlier ones";
                (exit::FAILED, Some(hint.to_owned()))
            }
            SkillErrorReason::Conflict(_)
            | SkillErrorReason::Lint(_)
            | SkillErrorReason::ApprovalRejected(_) => (exit::FAILED, None),
            SkillErrorReason::Unavailable(_) => (exit::CONFIGURATION, None),
        };
        Self {
            code,
            what: printable(&error.to_string()),
            hint,
        }
    }

    /// Reports it; returns the exit code.
    pub(super) fn report(&self, relay: &RemoteRelay) -> ExitCode {
        relay.fail(self.code, &self.what, self.hint.as_deref())
    }
}

/// A skill that may be run: there is one, and it is Approved.
pub(super) fn approved(settings: &Settings, name: &str) -> Result<SkillSource, SkillRefusal> {
    let store = settings.skills.store_in(&settings.state_dir);
    let skill = (store.load(name.trim(), None)).map_err(|error| SkillRefusal::new(&*store, &error))?;
    if skill.metadata.status == SkillStatus::Approved {
        return Ok(skill);
    }
    let name = &skill.name;
    Err(SkillRefusal {
        code: exit::FAILED,
        what: format!(
            "the skill `{name}` is {}; only Approved skills are run",
            skill.metadata.status
        ),
        hint: Some(format!(
            "read it with `hermes-relay skills show {name}`, then approve it with `hermes-relay skills approve {name}`"
        )),
    })
}

/// A skill that somebody may have meant.
fn similar(store: &dyn SkillStore, wanted: &str) -> String {
    let known = store.query(&SkillFilter::default()).unwrap_or_default();
    match nearest(wanted, known.iter().map(|skill| skill.name.as_str())) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => {
            "there are no skills; `hermes-relay skills add NAME FILE` adds one".to_owned()
        }
        None => "`hermes-relay skills list` lists the skills".to_owned(),
    }
}

fn list(remote: &RemoteArgs, args: &SkillsListArgs, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let catalog = Catalog::new(remote, env)?;
    // Read first: a change in between makes the next look see a new version.
    let version = catalog.check(catalog.store.version())?;
    if remote.json && args.if_none_match.is_some() && args.if_none_match == version {
        return Ok(exit::print(
            json!({"not_modified": true, "catalog_version": version}),
        ));
    }
    let filter = SkillFilter {
        status: args.status.clone(),
        tags: args.tags.clone(),
        author: args.author.clone(),
        name_pattern: args.name.clone(),
        limit: args.limit,
        offset: args.offset,
        ..SkillFilter::default()
    };
    let skills = catalog.check(catalog.store.query(&filter))?;
    if remote.json {
        let skills: Vec<Value> = skills.iter().map(meta_json).collect();
        return Ok(exit::print(json!({"catalog_version": version, "skills": skills})));
    }
    if skills.is_empty() {
        let hint = if filter == SkillFilter::default() {
            "; add one: hermes-relay skills add NAME FILE"
        } else {
            " like this"
        };
        return Ok(exit::print(format!("no skills{hint}")));
    }
    let width = skills.iter().map(|skill| skill.name.len()).max().unwrap_or(0);
    let lines: Vec<String> = (skills.iter())
        .map(|skill| {
            let about = skill.details.description.as_deref().unwrap_or_default();
            let line = format!(
                "{:<width$}  {:<8}  {}  {}",
                skill.name,
                skill.status.as_str(),
                skill.version,
                printable(about)
            );
            line.trim_end().to_owned()
        })
        .collect();
    Ok(exit::print(lines.join("\n")))
}

/// With `null` for an unknown author.
fn meta_json(skill: &SkillMeta) -> Value {
    let mut json = serde_json::to_value(skill).unwrap_or_default();
    json["author"] = skill.author.clone().into();
    json
}

fn show(
    remote: &RemoteArgs,
    name: &str,
    version: Option<&str>,
    env: Environment<'_>,
) -> Result<ExitCode, ExitCode> {
    let catalog = Catalog::new(remote, env)?;
    let skill = catalog.check(catalog.store.load(name, version))?;
    let meta = &skill.metadata;
    let json = json!({
        "name": skill.name,
        "version": skill.version,
        "content_hash": skill.content_hash,
        "source": skill.source,
        "metadata": meta_json(meta),
    });
    let mut lines = vec![
        format!("name     {}", skill.name),
        format!("status   {}", meta.status),
        format!("version  {}", skill.version),
        format!("sha256   {}", skill.content_hash),
        format!("changed  {}", instant(meta.updated_at)),
    ];
    let tags = meta.details.tags.as_ref().map(|tags| tags.join(", "));
    for (label, value) in [("author ", &meta.author), ("tags   ", &tags)] {
        if let Some(value) = value {
            lines.push(format!("{label}  {}", printable(value)));
        }
    }
    lines.push(format!("\n{}", skill.source.trim_end()));
    Ok(remote.print(&json, lines.join("\n")))
}

fn add(args: &SkillsAddArgs, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let catalog = Catalog::new(&args.remote, env)?;
    let caller = Caller::find(&catalog.relay)?;
    let is_approved = |skill: SkillMeta| skill.status == SkillStatus::Approved;
    if catalog.store.metadata(&args.name).is_ok_and(is_approved) {
        // Jobs run it: another text would change or fail them.
        caller.require_owner(&catalog.relay)?;
    }
    let source = read_text(&catalog.relay, &args.file)?;
    let write = SkillWrite {
        author: args.author.clone(),
        // Its own header must not approve it.
        status: (!caller.is_owner()).then_some(SkillStatus::Draft),
        details: SkillDetails {
            description: args.description.clone(),
            tags: (!args.tags.is_empty()).then(|| args.tags.clone()),
            ..SkillDetails::default()
        },
        ..SkillWrite::default()
    };
    let settings = catalog.relay.settings();
    if settings.skills.is_in_state_dir()
        && let Err(error) = make_private(&settings.state_dir, settings.state_dir_assigned)
    {
        return Err(catalog.relay.fail(exit::CONFIGURATION, error, None));
    }
    let stored = catalog.check(catalog.store.store(&args.name, &source, &write))?;
    let next = match stored.status {
        SkillStatus::Approved => "jobs may run it".to_owned(),
        SkillStatus::Draft | SkillStatus::Disabled => {
            format!(
                "jobs run it once it is approved: hermes-relay skills approve {}",
                stored.name
            )
        }
    };
    Ok(args.remote.print(
        &json!(stored),
        format!(
            "stored {} {} ({}); {next}",
            stored.name, stored.version, stored.status
        ),
    ))
}

/// The text of a file or of standard input.
fn read_text(relay: &RemoteRelay, path: &Path) -> Result<String, ExitCode> {
    let mut bytes = Vec::new();
    // One byte more, so that a longer one is refused and not cut.
    let limit = MAX_BODY_BYTES as u64 + 1;
    let (what, read) = if path == Path::new("-") {
        let read = io::stdin().lock().take(limit).read_to_end(&mut bytes);
        ("standard input".to_owned(), read)
    } else {
        let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
        (path.display().to_string(), read)
    };
    if let Err(error) = read {
        let why = format!("cannot read {}: {error}", printable(&what));
        return Err(relay.fail(exit::CONFIGURATION, why, None));
    }
    String::from_utf8(bytes).map_err(|_| {
        let why = format!("{} is not UTF-8 text", printable(&what));
        relay.fail(exit::FAILED, why, None)
    })
}

fn set_status(args: &SkillNameArgs, status: SkillStatus, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let catalog = Catalog::new(&args.remote, env)?;
    Caller::find(&catalog.relay)?.require_owner(&catalog.relay)?;
    let changed = catalog.check(catalog.store.update_status(&args.name, status))?;
    let before = changed.previous_status.map_or("new", SkillStatus::as_str);
    let mut text = format!(
        "{} is {status} (was {before}), version {}",
        changed.name, changed.version
    );
    if status != SkillStatus::Approved && !args.remote.json {
        let jobs = jobs_with_skill(&catalog.relay, &args.name)?;
        if !jobs.is_empty() {
            text = format!(
                "{text}\nthese jobs fail until it is approved: {}",
                jobs.join(", ")
            );
        }
    }
    Ok(args.remote.print(&json!(changed), text))
}

fn delete(
    remote: &RemoteArgs,
    name: &str,
    yes: bool,
    force: bool,
    env: Environment<'_>,
) -> Result<ExitCode, ExitCode> {
    let catalog = Catalog::new(remote, env)?;
    let relay = &catalog.relay;
    Caller::find(relay)?.require_owner(relay)?;
    let meta = catalog.check(catalog.store.metadata(name))?;
    let jobs = jobs_with_skill(relay, name)?;
    if !jobs.is_empty() && !force {
        let why = format!(
            "the skill `{name}` is used by scheduled jobs: {}",
            jobs.join(", ")
        );
        let hint = "remove them or give them another skill (`hermes-relay cron edit JOB --skill NAME`); --force deletes it all \
                    the same, and their runs fail";
        return Err(relay.fail(exit::FAILED, why, Some(hint)));
    }
    if !yes {
        if !io::stdin().is_terminal() {
            let why =
                format!("cannot ask for confirmation (standard input is not a terminal); `{name}` is kept");
            let hint = "pass --yes to delete it without confirmation";
            return Err(relay.fail(exit::FAILED, why, Some(hint)));
        }
        if !confirm(&meta).unwrap_or(false) {
            return Err(relay.fail(exit::FAILED, format!("`{name}` is kept"), None));
        }
    }
    catalog.check(catalog.store.delete(name))?;
    Ok(remote.print(&json!({"name": name, "deleted": true}), format!("deleted {name}")))
}

fn confirm(skill: &SkillMeta) -> io::Result<bool> {
    let mut err = stderr();
    write!(
        err,
        "{} ({}, version {})\nDelete it with its history? [y/N] ",
        skill.name, skill.status, skill.version
    )?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn versions(args: &SkillNameArgs, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let catalog = Catalog::new(&args.remote, env)?;
    let versions = catalog.check(catalog.store.versions(&args.name))?;
    let line = |version: &SkillVersion| {
        let before = version.previous_status.map_or("new", SkillStatus::as_str);
        let who = version.changed_by.as_deref().map(printable).unwrap_or_default();
        let line = format!(
            "{}  {}  {before} -> {}  {who}",
            instant(version.changed_at),
            version.version,
            version.status
        );
        line.trim_end().to_owned()
    };
    let text: Vec<String> = versions.iter().map(line).collect();
    Ok(args
        .remote
        .print(&json!({"name": args.name, "versions": versions}), text.join("\n")))
}
