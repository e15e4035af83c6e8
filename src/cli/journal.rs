//! `hermes-relay journal`: look at what waits, is owed, is done or was set aside; try again, give up, export.
//!
//! Looking works while a relay runs. Mending is refused then, with the process that is in the way. What was
//! said is shown only when asked for.

mod entry;
mod export;
mod trouble;

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use self::entry::{Entry, parse_item};
use self::trouble::{Trouble, tell};
use super::Environment;
use super::exit::{self, Voice};
use crate::config::{self, Flags, Sources};
use crate::store::{Counts, InspectError, Inspector, Item, Listed, Section};

/// Look into the journal of a relay, running or not; try an entry again, or give it up.
///
/// Exit codes: 0 done, 1 there is no such entry or no journal yet, 2 it was typed wrongly, 75 a relay holds the
/// state directory (only for retry and drop), 78 the configuration or the journal cannot be used.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay journal list\n  hermes-relay journal list --section outbox --json\n  \
                  hermes-relay journal show message:12 --text\n  hermes-relay journal retry op:3\n  \
                  hermes-relay journal drop message:12 --yes\n  \
                  hermes-relay journal export --section quarantine --text --output set-aside.jsonl"
)]
pub(super) struct JournalArgs {
    /// Our settings file, which may name the state directory.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Where the journal lives [default: as for `run`].
    #[arg(long, value_name = "DIR", global = true)]
    state_dir: Option<PathBuf>,
    /// As JSON, on one line; an error too.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// List entries, without what was said in them.
    #[command(
        after_help = "Examples:\n  hermes-relay journal list\n  hermes-relay journal list --section quarantine"
    )]
    List {
        /// Only this part.
        #[arg(long, value_name = "SECTION")]
        section: Option<Part>,
        /// Entries of each part; of what is done the newest, of everything else the oldest.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Show one entry.
    #[command(after_help = "Example:\n  hermes-relay journal show message:12 --text")]
    Show {
        /// Which one: `message:12`, `op:3` or `quarantine:1`.
        #[arg(value_parser = parse_item)]
        id: Item,
        /// Also what was said.
        #[arg(long)]
        text: bool,
    },
    /// Have a message whose turn was cut short run again, or an op whose fate is unknown sent again, at the
    /// relay's next start.
    #[command(after_help = "Example:\n  hermes-relay journal retry op:3")]
    Retry {
        /// Which one: `message:12` or `op:3`.
        #[arg(value_parser = parse_item)]
        id: Item,
    },
    /// Give an entry up: a message is not answered, an op not sent, a quarantined line not kept.
    #[command(after_help = "Example:\n  hermes-relay journal drop message:12 --yes")]
    Drop {
        /// Which one: `message:12`, `op:3` or `quarantine:1`.
        #[arg(value_parser = parse_item)]
        id: Item,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Write every entry as one line of JSON.
    #[command(
        after_help = "Example:\n  hermes-relay journal export --section quarantine --text --output set-aside.jsonl"
    )]
    Export {
        /// Only this part.
        #[arg(long, value_name = "SECTION")]
        section: Option<Part>,
        /// Into a new file that only its owner can read, instead of standard output.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Also what was said.
        #[arg(long)]
        text: bool,
    },
}

/// The journal's parts, as they are typed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Messages that wait or run.
    #[value(aliases = ["waiting", "running", "messages"])]
    Inbox,
    /// Ops that are not settled.
    #[value(alias = "ops")]
    Outbox,
    /// Messages whose turn ended; what was said is gone.
    #[value(alias = "finished")]
    Done,
    /// Lines that nobody could use.
    Quarantine,
}

impl Part {
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
            Self::Outbox => counts.ops,
            Self::Done => counts.finished,
            Self::Quarantine => counts.quarantined,
        }
    }

    fn heading(self, counts: &Counts) -> String {
        match self {
            Self::Inbox => format!("inbox: {} waiting, {} running", counts.queued, counts.running),
            Self::Outbox => format!("outbox: {} not settled", counts.ops),
            Self::Done => format!("done: {}", counts.finished),
            Self::Quarantine => format!("quarantine: {}", counts.quarantined),
        }
    }

    fn of(listed: &Listed) -> Self {
        match listed.item {
            Item::Message(_) if listed.ended_at.is_some() => Self::Done,
            Item::Message(_) => Self::Inbox,
            Item::Op(_) => Self::Outbox,
            Item::Quarantined(_) => Self::Quarantine,
        }
    }

    fn chosen(section: Option<Self>) -> Vec<Self> {
        section.map_or_else(|| Self::ALL.to_vec(), |one| vec![one])
    }
}

/// Runs the verb.
pub(super) fn run(args: &JournalArgs, env: Environment<'_>) -> ExitCode {
    let flags = Flags {
        config: args.config.clone(),
        state_dir: args.state_dir.clone(),
        ..Flags::default()
    };
    let voice = Voice::of(args.json);
    let loaded = match config::load(&Sources { flags, env }) {
        Ok(loaded) => loaded,
        Err(error) => return voice.fail(exit::CONFIGURATION, error, None),
    };
    let dir = &loaded.settings.state_dir;
    let mut out = anstream::stdout().lock();
    let done = match &args.action {
        Action::List { section, limit } => list(dir, *section, *limit, args.json, &mut out),
        Action::Show { id, text } => show(dir, *id, *text, args.json, &mut out),
        Action::Retry { id } => retry(dir, *id, args.json, &mut out),
        Action::Drop { id, yes } => discard(dir, *id, *yes, args.json, &mut out),
        Action::Export {
            section,
            output,
            text,
        } => export::export(dir, &Part::chosen(*section), output.as_deref(), *text, &mut out),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => tell(trouble, &loaded, voice),
    }
}

fn list(
    dir: &Path,
    section: Option<Part>,
    limit: u32,
    as_json: bool,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let journal = Inspector::open(dir)?;
    let (counts, now_ms) = (journal.counts()?, now_ms());
    let mut entries = Vec::new();
    if !as_json {
        writeln!(out, "{}", journal.path().display())?;
    }
    for part in Part::chosen(section) {
        let listed = match part {
            Part::Done => journal.latest(part.section(), limit)?,
            Part::Inbox | Part::Outbox | Part::Quarantine => journal.list(part.section(), i64::MIN, limit)?,
        };
        if as_json {
            entries.extend(listed.iter().map(|listed| Entry::of(listed).to_json()));
            continue;
        }
        writeln!(out, "\n{}", part.heading(&counts))?;
        for listed in &listed {
            writeln!(out, "  {}", Entry::of(listed).row(now_ms))?;
        }
        let rest = part.count(&counts).saturating_sub(listed.len() as u64);
        if rest > 0 && !listed.is_empty() {
            writeln!(out, "  and {rest} more (--section {} --limit N)", part.name())?;
        }
    }
    if as_json {
        let counts = json!({
            "waiting": counts.queued, "running": counts.running, "outbox": counts.ops, "done": counts.finished,
            "quarantine": counts.quarantined, "chats": counts.chats,
        });
        let all = json!({"journal": journal.path(), "counts": counts, "entries": entries});
        writeln!(out, "{all}")?;
    }
    Ok(())
}

fn show(dir: &Path, id: Item, text: bool, as_json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let (listed, content) = found(dir, id)?;
    let entry = Entry::of(&listed).with(content, text);
    if as_json {
        writeln!(out, "{}", entry.to_json())?;
    } else {
        entry.write_to(out, now_ms())?;
    }
    Ok(())
}

fn retry(dir: &Path, id: Item, as_json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let (listed, _) = found(dir, id)?;
    Inspector::retry(dir, id, now_ms()).map_err(|error| match error {
        InspectError::NotRetryable => Trouble::told(
            exit::FAILED,
            format!(
                "{} is {} and cannot be tried again",
                Entry::name(id),
                listed.state
            ),
            "only a running message and a sent op can; what is queued or pending goes on by itself",
        ),
        other => other.into(),
    })?;
    report(
        id,
        "retry",
        "will be tried again at the relay's next start",
        as_json,
        out,
    )
}

fn discard(dir: &Path, id: Item, yes: bool, as_json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let (listed, _) = found(dir, id)?;
    if Part::of(&listed) == Part::Done {
        return Err(Trouble::told(
            exit::FAILED,
            format!(
                "{} has ended ({}); there is nothing to give up",
                Entry::name(id),
                listed.state
            ),
            "finished entries go by themselves after `journal.keep_days`",
        ));
    }
    if !yes && io::stdin().is_terminal() && !confirmed(&Entry::of(&listed).row(now_ms()))? {
        return Err(Trouble::Told {
            code: exit::FAILED,
            what: format!("{} is left as it is", Entry::name(id)),
            hint: None,
        });
    }
    Inspector::discard(dir, id, now_ms())?;
    report(id, "drop", "is given up", as_json, out)
}

fn report(id: Item, did: &str, said: &str, as_json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let name = Entry::name(id);
    if as_json {
        writeln!(out, "{}", json!({"id": name, "done": did}))?;
    } else {
        writeln!(out, "{name} {said}")?;
    }
    Ok(())
}

fn confirmed(row: &str) -> io::Result<bool> {
    let mut err = io::stderr();
    write!(err, "{row}\nGive it up? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// One entry, or which one there is not.
fn found(dir: &Path, id: Item) -> Result<(Listed, Option<Vec<u8>>), Trouble> {
    Inspector::open(dir)?.show(id).map_err(|error| match error {
        InspectError::NoSuchItem => Trouble::told(
            exit::FAILED,
            format!("there is no {} in the journal", Entry::name(id)),
            "see what there is with `hermes-relay journal list`",
        ),
        other => other.into(),
    })
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
