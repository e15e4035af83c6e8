//! `hermes-relay logs`: makes a log fit to be shown to others.
//!
//! Reads and writes streams; no line is held longer than it takes to look at it. What is found is told by kind and line
//! number, never by value.

mod ids;
mod lines;
mod pairs;
mod redactor;
mod report;
mod shapes;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::lines::Lines;
use self::redactor::Redactor;
use self::report::{Knowledge, Report, Tally};
use super::Surround;
use super::exit::{self, fail, note};
use super::logging::{Veil, known, without_settings};
use super::words::spelled;
use crate::config::{self, Flags, Settings, Sources};

/// Make a log fit to be shown to others.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  journalctl -u hermes-relay | hermes-relay logs redact > log.txt")]
pub(super) struct LogsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    Redact(RedactArgs),
}

/// Take secrets and people's ids out of a log, before you attach it to a report.
///
/// Reads standard input or files, writes to standard output. Hidden are: the secrets of this set-up, found by the same
/// settings, files and variables that `run` would read, and by Hermes' `.env`; and what looks like a secret: bearers,
/// tokens, keys of well-known forms, values whose name says secret, token, key or password, logins in URLs. Ids of
/// chats and people become `<id-1>`, `<id-2>`, the same for the same id, so that the log can still be followed.
///
/// Run it as the user that the relay runs as: others cannot read its secrets, and what is not known is only guessed.
/// It finds a lot, not everything: read the result before you post it.
///
/// Exit codes: 0 done; with --check, no secret of this set-up is in there, and with --strict also nothing that looks like a
/// secret or an id. 1 with --check, one is in there, or a line is longer than 1 MiB and was not looked at to its end; or
/// something could not be read or written. 2 it was typed wrongly. 78 with --check, the settings cannot be read or hold no
/// secret of a gateway, so that nobody knows.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  journalctl -u hermes-relay | hermes-relay logs redact > log.txt\n  \
                  hermes-relay logs redact relay.log agent.log > both.txt\n  \
                  journalctl -u hermes-relay -o json | hermes-relay logs redact --keep-ids > log.json\n  \
                  hermes-relay logs redact --check --strict log.txt && echo 'fit to be shown'"
)]
struct RedactArgs {
    /// Our settings file [default: as for `run`].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print nothing of the log, only what was found and on which lines.
    #[arg(long)]
    check: bool,
    /// With --check: what only looks like a secret or an id counts as well.
    #[arg(long, requires = "check")]
    strict: bool,
    /// The report of --check as JSON.
    #[arg(long, requires = "check")]
    json: bool,
    /// Leave the ids of chats and people as they are.
    #[arg(long)]
    keep_ids: bool,
    /// The logs, one after the other; `-` is standard input [default: -].
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Runs the verb.
pub(super) fn run(args: &LogsArgs, surround: &Surround<'_>) -> ExitCode {
    match &args.action {
        Action::Redact(args) => redact(args, surround),
    }
}

fn redact(args: &RedactArgs, surround: &Surround<'_>) -> ExitCode {
    let flags = Flags {
        config: args.config.clone(),
        ..Flags::default()
    };
    let env = surround.env;
    let loaded = config::load(&Sources { flags, env });
    let veil = match &loaded {
        Ok(loaded) => Veil::over(known(loaded, surround)),
        Err(error) => {
            note!("warning: the settings cannot be read: {error}");
            note!("hint: secrets of this set-up are not known now, only what looks like one is found");
            Veil::over(without_settings(surround))
        }
    };
    let knowledge = match &loaded {
        Err(_) => Knowledge::NoSettings,
        Ok(loaded) if holds_gateways(&loaded.settings) => Knowledge::Secrets,
        Ok(_) => Knowledge::NoSecret,
    };
    if knowledge == Knowledge::NoSecret {
        note!("warning: these settings hold no secret of a gateway, so only what looks like one is found");
        note!("hint: run this as the user that the relay runs as, or name its settings with --config");
    }
    let mut redactor = Redactor::new(veil, args.keep_ids);
    let mut report = Report::new(knowledge);
    let mut out: Box<dyn Write> = if args.check {
        Box::new(io::sink())
    } else {
        Box::new(BufWriter::new(io::stdout().lock()))
    };
    let stdin = [PathBuf::from("-")];
    let files = if args.files.is_empty() {
        &stdin
    } else {
        &*args.files
    };
    for file in files {
        let name = spelled(&file.to_string_lossy());
        let mut tally = Tally::default();
        let copied = copy(file, &mut redactor, &mut tally, &mut out);
        report.add(&name, tally);
        match copied {
            Ok(()) => {}
            Err(Trouble::Read(error)) => {
                report.add_unread(&name);
                fail(
                    exit::FAILED,
                    format!("cannot read {name}: {error}"),
                    Some(hint(&error)),
                );
            }
            Err(Trouble::Write(error)) => return exit::printed(Err(error)),
        }
    }
    if let Err(error) = out.flush() {
        return exit::printed(Err(error));
    }
    drop(out);
    if !args.check {
        note!("{}", report.summary());
        return ExitCode::from(if report.is_whole() { 0 } else { exit::FAILED });
    }
    let mut page = anstream::stdout().lock();
    let printed = if args.json {
        writeln!(page, "{}", report.to_json(redactor.secrets()))
    } else {
        report.write_to(&mut page, redactor.secrets())
    };
    if let Err(error) = printed.and_then(|()| page.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return exit::printed(Err(error));
    }
    ExitCode::from(match report.holds_known() {
        true => exit::FAILED,
        false if !report.is_looked_through() => exit::FAILED,
        false if args.strict && report.holds_anything() => exit::FAILED,
        false if knowledge != Knowledge::Secrets => exit::CONFIGURATION,
        false => 0,
    })
}

/// Whether the settings hold what this gateway shows the connector, or gets it with.
fn holds_gateways(settings: &Settings) -> bool {
    let mut keys = settings.secrets().map(|(key, _)| key);
    keys.any(|key| key.starts_with("connector.") || key.starts_with("idp."))
}

/// What went wrong, and on which side.
enum Trouble {
    Read(io::Error),
    Write(io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "check the name; without a file, standard input is read",
        io::ErrorKind::PermissionDenied => "run this as a user who may read it",
        io::ErrorKind::IsADirectory => "name the files in it",
        _ => "what was read before it is done",
    }
}

/// One log through the redactor; what is found in it is counted.
fn copy(file: &Path, redactor: &mut Redactor, tally: &mut Tally, out: &mut dyn Write) -> Result<(), Trouble> {
    let source: Box<dyn Read> = if file == Path::new("-") {
        if io::stdin().is_terminal() {
            note!("reading standard input; end it with Ctrl-D");
        }
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file).map_err(Trouble::Read)?)
    };
    let mut lines = Lines::new(BufReader::new(source));
    while let Some(line) = lines.next().map_err(Trouble::Read)? {
        let shown = redactor.line(&line, tally);
        out.write_all(&shown).map_err(Trouble::Write)?;
        // Somebody may be waiting for it at the other end of `journalctl --follow`.
        if lines.is_drained() {
            out.flush().map_err(Trouble::Write)?;
        }
    }
    Ok(())
}
