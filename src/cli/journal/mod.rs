//! `hermes-relay journal`: lists, shows, retries, drops and exports entries of the journal.
//!
//! Reading works beside a running relay; a change is made by the relay itself then. Message text is shown only on request.

mod entry;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use self::entry::{JournalEntry, message_source, parse_item};
use super::Environment;
use super::access::stored;
use super::caller;
use super::exit::{self, ErrorFormat};
use super::format::{printable, stderr, stdout};
use super::remote::{RemoteArgs, RemoteRelay};
use crate::access::{Author, EventKind, Gate};
use crate::config::{AliasFiles, LoadedConfig, Settings};
use crate::relay::now_ms;
use crate::serve::ControlRequest;
use crate::serve::client::ClientError;
use crate::store::{Counts, InspectError, Inspector, Item, Listed, OpenError, Repair, Section, held_by};
use crate::wire::{JOB_SESSION, NoAliases, WhatsAppAliases};

/// Inspect the journal of a relay, running or not; retry or drop an entry.
///
/// Exit codes: 0 done, 1 there is no such entry or no journal yet, or it may not be done, 2 invalid usage, 75 a program without a control socket
/// uses the state directory (only for retry and drop), 78 the configuration or the journal cannot be used.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay journal list\n  hermes-relay journal list --section outbox --json\n  \
                  hermes-relay journal show message:12 --text\n  hermes-relay journal retry op:3\n  \
                  hermes-relay journal drop message:12 --yes\n  \
                  hermes-relay journal export --section quarantine --text --output quarantine.jsonl"
)]
pub(super) struct JournalArgs {
    /// Settings file, which may name the state directory.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Directory of the journal [default: as for `run`].
    #[arg(long, value_name = "DIR", global = true)]
    state_dir: Option<PathBuf>,
    /// Print JSON on one line, errors included.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: JournalCommand,
}

#[derive(Subcommand, Debug)]
enum JournalCommand {
    /// List entries without message text.
    #[command(
        after_help = "Examples:\n  hermes-relay journal list\n  hermes-relay journal list --section quarantine"
    )]
    List {
        /// Only this section.
        #[arg(long, value_name = "SECTION")]
        section: Option<SectionArg>,
        /// Maximum number of entries per section: the newest of `done`, the oldest of the others.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Show one entry.
    #[command(after_help = "Example:\n  hermes-relay journal show message:12 --text")]
    Show {
        /// Id: `message:12`, `op:3` or `quarantine:1`.
        #[arg(value_parser = parse_item)]
        id: Item,
        /// Include the message text.
        #[arg(long)]
        text: bool,
    },
    /// Run a message whose turn was interrupted again, or send an op again that was dropped. A running relay does it at once,
    /// another one at its next start.
    ///
    /// The agent may have acted on an interrupted message before; running it again may repeat that. A message whose author may not
    /// talk to the agent any more is not run, and is kept.
    #[command(
        after_help = "Examples:\n  hermes-relay journal retry message:12\n  hermes-relay journal retry op:3"
    )]
    Retry {
        /// Id: `message:12` or `op:3`.
        #[arg(value_parser = parse_item)]
        id: Item,
    },
    /// Drop an entry: a message is not answered, an op not sent, a quarantined frame not kept.
    #[command(after_help = "Example:\n  hermes-relay journal drop message:12 --yes")]
    Drop {
        /// Id: `message:12`, `op:3` or `quarantine:1`.
        #[arg(value_parser = parse_item)]
        id: Item,
        /// Do not ask for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
    /// Export entries, one line of JSON each.
    #[command(
        after_help = "Example:\n  hermes-relay journal export --section quarantine --text --output quarantine.jsonl"
    )]
    Export {
        /// Only this section.
        #[arg(long, value_name = "SECTION")]
        section: Option<SectionArg>,
        /// Write to a new file that only its owner can read, instead of standard output.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Include the message text.
        #[arg(long)]
        text: bool,
    },
}

impl JournalCommand {
    /// Whether an agent may do it for an owner only: it changes the journal, or shows what people wrote.
    fn is_for_owners(&self) -> bool {
        match self {
            Self::List { .. } => false,
            Self::Show { text, .. } | Self::Export { text, .. } => *text,
            Self::Retry { .. } | Self::Drop { .. } => true,
        }
    }
}

/// A section of the journal, as typed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum SectionArg {
    /// Messages that wait or run.
    #[value(aliases = ["waiting", "running", "messages"])]
    Inbox,
    /// Ops without an outcome, and ops that were dropped.
    #[value(alias = "ops")]
    Outbox,
    /// Messages whose turn ended; their text is deleted unless the turn was interrupted.
    #[value(alias = "finished")]
    Done,
    /// Frames that could not be used.
    Quarantine,
}

impl SectionArg {
    const ALL: [Self; 4] = [Self::Inbox, Self::Outbox, Self::Done, Self::Quarantine];

    fn section(self) -> Section {
        match self {
            Self::Inbox => Section::Unfinished,
            Self::Outbox => Section::Ops,
            Self::Done => Section::Finished,
            Self::Quarantine => Section::Quarantine,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Outbox => "outbox",
            Self::Done => "done",
            Self::Quarantine => "quarantine",
        }
    }

    fn count(self, counts: &Counts) -> u64 {
        match self {
            Self::Inbox => counts.queued + counts.running,
            Self::Outbox => counts.ops + counts.dropped,
            Self::Done => counts.finished,
            Self::Quarantine => counts.quarantined,
        }
    }

    fn heading(self, counts: &Counts) -> String {
        match self {
            Self::Inbox => format!("inbox: {} waiting, {} running", counts.queued, counts.running),
            Self::Outbox => format!(
                "outbox: {} without an outcome, {} dropped",
                counts.ops, counts.dropped
            ),
            Self::Done => format!("done: {}", counts.finished),
            Self::Quarantine => format!("quarantine: {}", counts.quarantined),
        }
    }

    fn from_entry(listed: &Listed) -> Self {
        match listed.item {
            Item::Message(_) if listed.ended_at.is_some() => Self::Done,
            Item::Message(_) => Self::Inbox,
            Item::Op(_) => Self::Outbox,
            Item::Quarantined(_) => Self::Quarantine,
        }
    }

    fn selected(section: Option<Self>) -> Vec<Self> {
        section.map_or_else(|| Self::ALL.to_vec(), |one| vec![one])
    }
}

/// Runs the verb.
pub(super) fn run(args: &JournalArgs, env: Environment<'_>) -> ExitCode {
    let errors = ErrorFormat::new(args.json);
    let mut remote = RemoteArgs::new(args.config.clone(), args.state_dir.clone());
    remote.json = args.json;
    let found = match &args.action {
        // Whether a message may run again depends on the settings.
        JournalCommand::Retry { .. } => remote.relay(env),
        _ => remote.running(env),
    };
    let relay = match found {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    if args.action.is_for_owners()
        && let Err(code) = caller::require_owner_where_served(&relay)
    {
        return code;
    }
    let dir = &relay.settings().state_dir;
    let mut out = stdout();
    let done = match &args.action {
        JournalCommand::List { section, limit } => list(dir, *section, *limit, args.json, &mut out),
        JournalCommand::Show { id, text } => show(dir, *id, *text, args.json, &mut out),
        JournalCommand::Retry { id } => retry(&relay, *id, args.json, &mut out),
        JournalCommand::Drop { id, yes } => drop_entry(&relay, *id, *yes, args.json, &mut out),
        JournalCommand::Export {
            section,
            output,
            text,
        } => export(
            dir,
            &SectionArg::selected(*section),
            output.as_deref(),
            *text,
            &mut out,
        ),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_error(error, relay.loaded(), errors),
    }
}

fn list(
    dir: &Path,
    section: Option<SectionArg>,
    limit: u32,
    as_json: bool,
    out: &mut impl Write,
) -> Result<(), JournalError> {
    let journal = Inspector::open(dir)?;
    let (counts, now_ms) = (journal.counts()?, now_ms());
    let mut entries = Vec::new();
    if !as_json {
        writeln!(out, "{}", journal.path().display())?;
    }
    for part in SectionArg::selected(section) {
        let listed = match part {
            SectionArg::Done => journal.latest(part.section(), limit)?,
            SectionArg::Inbox | SectionArg::Outbox | SectionArg::Quarantine => {
                journal.list(part.section(), i64::MIN, limit)?
            }
        };
        if as_json {
            entries.extend(listed.iter().map(|listed| JournalEntry::new(listed).to_json()));
            continue;
        }
        writeln!(out, "\n{}", part.heading(&counts))?;
        for listed in &listed {
            writeln!(out, "  {}", JournalEntry::new(listed).row(now_ms))?;
        }
        let rest = part.count(&counts).saturating_sub(listed.len() as u64);
        if rest > 0 && !listed.is_empty() {
            writeln!(out, "  and {rest} more (--section {} --limit N)", part.name())?;
        }
    }
    if as_json {
        let counts = json!({
            "waiting": counts.queued, "running": counts.running, "outbox": counts.ops, "done": counts.finished,
            "dropped": counts.dropped, "quarantine": counts.quarantined, "chats": counts.chats,
        });
        let all = json!({"journal": journal.path(), "counts": counts, "entries": entries});
        writeln!(out, "{all}")?;
    }
    Ok(())
}

fn show(dir: &Path, id: Item, text: bool, as_json: bool, out: &mut impl Write) -> Result<(), JournalError> {
    let (listed, content) = read_entry(dir, id)?;
    let entry = JournalEntry::new(&listed).with_content(content, text);
    if as_json {
        writeln!(out, "{}", entry.to_json())?;
    } else {
        entry.write_to(out, now_ms())?;
    }
    Ok(())
}

fn retry(relay: &RemoteRelay, id: Item, as_json: bool, out: &mut impl Write) -> Result<(), JournalError> {
    let (listed, content) = read_entry(&relay.settings().state_dir, id)?;
    if let (Item::Message(_), Some(line)) = (id, content.filter(|_| listed.state != "queued"))
        && let Some(refusal) = refusal_without_relay(relay.settings(), &line)?
    {
        return Err(not_allowed(id, &refusal));
    }
    let repaired = repair(relay, Repair::Retry, id).map_err(|error| match error {
        RepairFailure::WrongState => JournalError::new(
            exit::FAILED,
            format!(
                "{} is {} and cannot be retried",
                JournalEntry::name(id),
                listed.state
            ),
            "only a message of a chat whose turn was interrupted, and an op that was sent or dropped, can be retried; queued and \
             pending entries need no retry, and a job runs again with `hermes-relay cron run`",
        ),
        RepairFailure::NotAllowed(refusal) => not_allowed(id, &refusal),
        RepairFailure::Other(error) => error,
    })?;
    if matches!(id, Item::Message(_)) {
        writeln!(
            stderr(),
            "warning: the agent may have acted on {} before it was interrupted; running it again may repeat that",
            JournalEntry::name(id)
        )?;
    }
    let result = match (repaired, id) {
        (RepairedBy::Verb, _) => "is retried at the relay's next start",
        (RepairedBy::EndingRelay, Item::Message(_)) => "runs again at the relay's next start",
        (RepairedBy::Relay | RepairedBy::EndingRelay, Item::Op(_)) => "is sent again",
        (RepairedBy::Relay | RepairedBy::EndingRelay, _) => "runs again",
    };
    print_done(id, "retry", result, as_json, out)
}

/// Why a message may not run any more, where no relay is there to say so.
fn refusal_without_relay(settings: &Settings, line: &[u8]) -> Result<Option<String>, JournalError> {
    let is_held = held_by(&settings.state_dir).is_ok_and(|holder| holder.is_some());
    let Some(source) = message_source(line).filter(|_| !is_held) else {
        return Ok(None);
    };
    let rows = Inspector::open(&settings.state_dir)?.access()?;
    let gate = Gate::new(settings.access.clone(), rows.into_iter().map(stored));
    let aliases = settings.hermes_home.as_deref().map(AliasFiles::new);
    let aliases: &dyn WhatsAppAliases = aliases.as_ref().map_or(&NoAliases, |files| files);
    Ok(gate.refusal(&Author::from_source(&source, aliases), EventKind::Message))
}

/// The error of a message that may not run any more.
fn not_allowed(id: Item, refusal: &str) -> JournalError {
    JournalError::new(
        exit::FAILED,
        format!(
            "{} does not run again: {}",
            JournalEntry::name(id),
            printable(refusal)
        ),
        "it is kept; let them in with `hermes-relay access allow PLATFORM:ID`, or take them off `access.deny` in the settings file, \
         and repeat this; `hermes-relay access list` shows the rules",
    )
}

fn drop_entry(
    relay: &RemoteRelay,
    id: Item,
    yes: bool,
    as_json: bool,
    out: &mut impl Write,
) -> Result<(), JournalError> {
    let (listed, _) = read_entry(&relay.settings().state_dir, id)?;
    if SectionArg::from_entry(&listed) == SectionArg::Done {
        return Err(JournalError::new(
            exit::FAILED,
            format!(
                "{} has ended ({}); there is nothing to drop",
                JournalEntry::name(id),
                listed.state
            ),
            "finished entries are deleted after `journal.keep_days`",
        ));
    }
    if !yes {
        if !io::stdin().is_terminal() {
            return Err(JournalError::new(
                exit::FAILED,
                format!(
                    "cannot ask for confirmation (standard input is not a terminal); {} is kept",
                    JournalEntry::name(id)
                ),
                "pass --yes to drop it without confirmation",
            ));
        }
        if !confirm(&JournalEntry::new(&listed).row(now_ms()))? {
            return Err(JournalError::Message {
                code: exit::FAILED,
                message: format!("{} is kept", JournalEntry::name(id)),
                hint: None,
            });
        }
    }
    repair(relay, Repair::Drop, id).map_err(|error| match error {
        RepairFailure::WrongState => JournalError::Message {
            code: exit::FAILED,
            message: format!("{} is {} now; it is kept", JournalEntry::name(id), listed.state),
            hint: listed.session.as_deref().and_then(|session| {
                let stop = format!("`hermes-relay sessions stop {}`", printable(session));
                if listed.state == "running" {
                    Some(format!("stop its turn with {stop}"))
                } else if session.starts_with(JOB_SESSION) {
                    Some(format!(
                        "it is a run of a scheduled job; once it runs, {stop} stops it"
                    ))
                } else {
                    None
                }
            }),
        },
        RepairFailure::NotAllowed(refusal) => not_allowed(id, &refusal),
        RepairFailure::Other(error) => error,
    })?;
    print_done(id, "drop", "is dropped", as_json, out)
}

/// Who made a repair.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RepairedBy {
    /// This program, because no relay runs.
    Verb,
    /// The running relay.
    Relay,
    /// The running relay, which is shutting down and starts no turns.
    EndingRelay,
}

enum RepairFailure {
    /// The entry's state does not allow it.
    WrongState,
    /// The rules do not allow it: who may not, and why.
    NotAllowed(String),
    Other(JournalError),
}

/// Makes a repair, or has the running relay make it.
fn repair(relay: &RemoteRelay, repair: Repair, item: Item) -> Result<RepairedBy, RepairFailure> {
    let dir = &relay.settings().state_dir;
    let repaired = match repair {
        Repair::Retry => Inspector::retry(dir, item, now_ms()),
        Repair::Drop => Inspector::discard(dir, item, now_ms()),
    };
    let in_use = match repaired {
        Ok(()) => return Ok(RepairedBy::Verb),
        Err(error @ InspectError::Open(OpenError::InUse { .. })) => error,
        Err(InspectError::NotRetryable | InspectError::NotDroppable) => {
            return Err(RepairFailure::WrongState);
        }
        Err(other) => return Err(RepairFailure::Other(other.into())),
    };
    if !caller::is_served(relay) {
        return Err(RepairFailure::Other(in_use.into()));
    }
    match relay.call(&ControlRequest::Repair { repair, item }) {
        Ok(answer) if answer["shutting_down"] == true => Ok(RepairedBy::EndingRelay),
        Ok(_) => Ok(RepairedBy::Relay),
        Err(ClientError::NotRunning(_)) => Err(RepairFailure::Other(in_use.into())),
        Err(ClientError::Refused(refused)) if refused.code == "wrong_state" => Err(RepairFailure::WrongState),
        Err(ClientError::Refused(refused)) if refused.code == "not_allowed" => {
            Err(RepairFailure::NotAllowed(refused.message))
        }
        Err(error) => Err(RepairFailure::Other(JournalError::new(
            exit::FAILED,
            format!("the running relay did not do it: {error}"),
            "try again in a moment; `hermes-relay journal list` shows the entry",
        ))),
    }
}

fn print_done(
    id: Item,
    action: &str,
    result: &str,
    as_json: bool,
    out: &mut impl Write,
) -> Result<(), JournalError> {
    let name = JournalEntry::name(id);
    if as_json {
        writeln!(out, "{}", json!({"id": name, "done": action}))?;
    } else {
        writeln!(out, "{name} {result}")?;
    }
    Ok(())
}

fn confirm(row: &str) -> io::Result<bool> {
    let mut err = stderr();
    write!(err, "{row}\nDrop it? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Reads one entry.
fn read_entry(dir: &Path, id: Item) -> Result<(Listed, Option<Vec<u8>>), JournalError> {
    Inspector::open(dir)?.show(id).map_err(|error| match error {
        InspectError::NoSuchItem => JournalError::new(
            exit::FAILED,
            format!("there is no {} in the journal", JournalEntry::name(id)),
            "`hermes-relay journal list` lists the entries",
        ),
        other => other.into(),
    })
}

/// Writes every entry of the sections as a line of JSON, one page in memory at a time.
fn export(
    dir: &Path,
    parts: &[SectionArg],
    output: Option<&Path>,
    text: bool,
    out: &mut impl Write,
) -> Result<(), JournalError> {
    let journal = Inspector::open(dir)?;
    let Some(path) = output else {
        write_all(&journal, parts, text, &mut BufWriter::new(out))?;
        return Ok(());
    };
    let failed = |error: io::Error| JournalError::Message {
        code: exit::FAILED,
        message: format!("cannot write {}: {error}", path.display()),
        hint: (error.kind() == io::ErrorKind::AlreadyExists)
            .then(|| "choose a file that does not exist yet".to_owned()),
    };
    let mut file = BufWriter::new(new_private_file(path).map_err(failed)?);
    let count = write_all(&journal, parts, text, &mut file).map_err(|error| match error {
        JournalError::Output(error) => failed(error),
        other => other,
    })?;
    file.into_inner()
        .map_err(io::IntoInnerError::into_error)
        .and_then(|file| file.sync_all())
        .map_err(failed)?;
    writeln!(out, "{count} entries in {}", path.display())?;
    Ok(())
}

fn write_all(
    journal: &Inspector,
    parts: &[SectionArg],
    text: bool,
    out: &mut impl Write,
) -> Result<u64, JournalError> {
    let mut count = 0;
    for part in parts {
        journal.export(part.section(), |listed, content| {
            let entry = JournalEntry::new(&listed).with_content(content, text);
            writeln!(out, "{}", entry.to_json())?;
            count += 1;
            Ok::<(), JournalError>(())
        })?;
    }
    out.flush()?;
    Ok(count)
}

fn new_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Why the verb failed.
#[derive(Debug)]
enum JournalError {
    /// A message with its exit code.
    Message {
        code: u8,
        message: String,
        hint: Option<String>,
    },
    /// The output cannot be written.
    Output(io::Error),
    /// The journal cannot be read.
    Journal(InspectError),
}

impl JournalError {
    fn new(code: u8, message: impl Into<String>, hint: &str) -> Self {
        Self::Message {
            code,
            message: message.into(),
            hint: Some(hint.to_owned()),
        }
    }
}

impl From<io::Error> for JournalError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<InspectError> for JournalError {
    fn from(error: InspectError) -> Self {
        Self::Journal(error)
    }
}

/// Reports an error and returns its exit code. A reader that went away is no failure.
fn report_error(error: JournalError, loaded: &LoadedConfig, errors: ErrorFormat) -> ExitCode {
    let dir = loaded.settings.state_dir.display();
    match error {
        JournalError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        JournalError::Output(error) => errors.fail(exit::FAILED, format!("cannot write: {error}"), None),
        JournalError::Message { code, message, hint } => errors.fail(code, message, hint.as_deref()),
        JournalError::Journal(InspectError::NoJournal(path)) => {
            let origin = loaded.origins.of("state_dir");
            let hint = format!(
                "the state directory is {dir} ({origin}); name another with --state-dir DIR or --config FILE"
            );
            errors.fail(exit::FAILED, InspectError::NoJournal(path), Some(&hint))
        }
        JournalError::Journal(InspectError::Open(error @ OpenError::InUse { .. })) => {
            let stop = match &error {
                OpenError::InUse { pid, .. } => pid.pid().map(|pid| format!(" (kill -TERM {pid})")),
                _ => None,
            };
            let hint = format!(
                "stop that relay{}, repeat this, and start it again; list, show and export work while it runs",
                stop.unwrap_or_default()
            );
            errors.fail(exit::TRY_AGAIN, error, Some(&hint))
        }
        JournalError::Journal(InspectError::Open(error @ OpenError::Directory { .. })) => errors.fail(
            exit::CONFIGURATION,
            error,
            Some("run this as the user that runs the relay"),
        ),
        JournalError::Journal(InspectError::Open(error)) => errors.fail(exit::CONFIGURATION, error, None),
        JournalError::Journal(
            error @ (InspectError::Fault(_)
            | InspectError::NotChanged(_)
            | InspectError::NoSuchItem
            | InspectError::NotRetryable
            | InspectError::NotDroppable),
        ) => errors.fail(exit::FAILED, error, None),
    }
}
