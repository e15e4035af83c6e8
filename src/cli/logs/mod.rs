//! `hermes-relay logs`: shows the log of the relay, and redacts logs.
//!
//! Reads and writes streams line by line. Findings are reported by kind and line number, never by value.

mod report;
mod show;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::report::{Coverage, FileScan, LogReport};
pub(super) use self::show::last_lines;
use super::ProcessEnv;
use super::exit::{self, errln, fail};
use super::format::{printable, stdout};
use super::log::redact::{Redactor, known_secrets, known_without_settings};
use crate::config::{self, Flags, Settings, Sources};

/// Maximum length of a line; the rest of a longer one is dropped.
const MAX_LINE: usize = 1024 * 1024;
/// At least this much is dropped from the end of a truncated line: it may contain part of a secret.
const TRUNCATION_MARGIN: usize = 8 * 1024;

/// Show the log of the relay: from its file (`log.file`), or from journald if it runs as a service.
///
/// Exit codes: 0 shown, 1 there is no log to be read, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay logs\n  hermes-relay logs -f -n 100\n  \
                  hermes-relay doctor --bundle relay.txt       # for a bug report, without secrets",
    args_conflicts_with_subcommands = true
)]
pub(super) struct LogsArgs {
    /// Settings file [default: as for `run`].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// State directory of the relay [default: as for `run`].
    #[arg(long, value_name = "DIR", global = true)]
    state_dir: Option<PathBuf>,
    /// Show new lines as they come, until Ctrl-C.
    #[arg(long, short)]
    follow: bool,
    /// Number of lines from the end.
    #[arg(long, short = 'n', value_name = "LINES", default_value_t = 50)]
    lines: usize,
    #[command(subcommand)]
    action: Option<LogsCommand>,
}

#[derive(Subcommand, Debug)]
enum LogsCommand {
    Redact(RedactArgs),
}

/// Remove secrets, and ids and names of people and chats, from a log before you share it.
///
/// Reads standard input or files and writes to standard output. It removes the secrets of this installation, which it
/// reads from the same settings, files and variables as `run` and from Hermes' `.env`, and whatever looks like a secret:
/// bearers, tokens, pairing codes, keys in well-known formats, values named secret, token, key or password, and logins in URLs. Ids and
/// names of chats and people become `<id-1>`, `<id-2>`; the same one always becomes the same, so the log stays readable.
///
/// Run it as the user that runs the relay: other users cannot read its secrets. It finds much, but not everything: read the
/// result before you post it.
///
/// Exit codes: 0 done; with --check, no secret of this installation was found, and with --strict nothing that looks like a
/// secret or an id either. 1 with --check, something was found, or a line is longer than 1 MiB and was not checked to its
/// end; or a file could not be read or written. 2 invalid usage. 78 with --check, the settings cannot be read or contain no
/// gateway secret, so the result is unknown.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay logs -n 2000 | hermes-relay logs redact > log.txt\n  \
                  hermes-relay logs redact relay.log agent.log > both.txt\n  \
                  journalctl --user -u hermes-relay -o json | hermes-relay logs redact --keep-ids > log.json\n  \
                  hermes-relay logs redact --check --strict log.txt && echo 'safe to share'"
)]
struct RedactArgs {
    /// Settings file [default: as for `run`].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print only what was found and on which lines, not the log.
    #[arg(long)]
    check: bool,
    /// With --check: also fail on what only looks like a secret or an id.
    #[arg(long, requires = "check")]
    strict: bool,
    /// Print the report of --check as JSON.
    #[arg(long, requires = "check")]
    json: bool,
    /// Keep the ids and names of chats and people; secrets and pairing codes are removed all the same.
    #[arg(long)]
    keep_ids: bool,
    /// Logs to read in order; `-` is standard input [default: -].
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Runs the verb.
pub(super) fn run(args: &LogsArgs, process: &ProcessEnv<'_>) -> ExitCode {
    if let Some(LogsCommand::Redact(redacted)) = &args.action {
        return redact(redacted, args.state_dir.as_deref(), process);
    }
    let flags = Flags::of_relay(args.config.clone(), args.state_dir.clone());
    let env = process.env;
    match config::load(&Sources { flags, env }) {
        Ok(loaded) => show::run(&loaded.settings, args.lines, args.follow, env),
        Err(error) => fail(exit::CONFIGURATION, error, None),
    }
}

fn redact(args: &RedactArgs, state_dir: Option<&Path>, process: &ProcessEnv<'_>) -> ExitCode {
    let flags = Flags::of_relay(args.config.clone(), state_dir.map(Path::to_owned));
    let env = process.env;
    let loaded = config::load(&Sources { flags, env });
    let (secrets, coverage) = match &loaded {
        Ok(loaded) if has_gateway_secret(&loaded.settings) => {
            (known_secrets(loaded, process), Coverage::GatewaySecret)
        }
        Ok(loaded) => {
            errln!("warning: these settings contain no gateway secret; only likely secrets are found");
            errln!("hint: run this as the user that runs the relay, or name its settings with --config");
            (known_secrets(loaded, process), Coverage::NoGatewaySecret)
        }
        Err(error) => {
            errln!("warning: cannot read the settings: {error}");
            errln!("hint: the secrets of this installation are unknown; only likely secrets are found");
            (known_without_settings(process), Coverage::NoSettings)
        }
    };
    let redactor = Redactor::thorough(secrets, args.keep_ids);
    let mut report = LogReport::new(coverage);
    let mut out: Box<dyn Write> = if args.check {
        Box::new(io::sink())
    } else if io::stdout().is_terminal() {
        Box::new(stdout())
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
        let name = printable(&file.to_string_lossy());
        let mut scan = FileScan::default();
        let copied = copy(file, &redactor, &mut scan, &mut out);
        report.add(&name, scan);
        match copied {
            Ok(()) => {}
            Err(CopyError::Read(error)) => {
                report.add_unread(&name);
                let what = format!("cannot read {name}: {error}");
                fail(exit::FAILED, what, Some(read_hint(&error)));
            }
            Err(CopyError::Write(error)) => return exit::finish(Err(error)),
        }
    }
    if let Err(error) = out.flush() {
        return exit::finish(Err(error));
    }
    drop(out);
    if !args.check {
        errln!("{}", report.summary());
        return ExitCode::from(if report.is_complete() { 0 } else { exit::FAILED });
    }
    let mut stdout = stdout();
    let printed = if args.json {
        writeln!(stdout, "{}", report.to_json(redactor.secrets()))
    } else {
        report.write_to(&mut stdout, redactor.secrets())
    };
    if let Err(error) = printed.and_then(|()| stdout.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return exit::finish(Err(error));
    }
    ExitCode::from(match report.has_known_secret() {
        true => exit::FAILED,
        false if !report.is_fully_checked() => exit::FAILED,
        false if args.strict && report.has_any() => exit::FAILED,
        false if coverage != Coverage::GatewaySecret => exit::CONFIGURATION,
        false => 0,
    })
}

/// Whether the settings contain a credential of this gateway, or of a bot.
fn has_gateway_secret(settings: &Settings) -> bool {
    let mut keys = settings.secrets().map(|(key, _)| key);
    keys.any(|key| {
        ["connector.", "idp.", "direct."]
            .iter()
            .any(|section| key.starts_with(section))
    })
}

enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

fn read_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "check the name; without a file, standard input is read",
        io::ErrorKind::PermissionDenied => "run this as a user who may read it",
        io::ErrorKind::IsADirectory => "name the files in it",
        _ => "the part before the error was processed",
    }
}

/// Copies one log through the redactor and counts what was found.
fn copy(file: &Path, redactor: &Redactor, scan: &mut FileScan, out: &mut dyn Write) -> Result<(), CopyError> {
    let source: Box<dyn Read> = if file == Path::new("-") {
        if io::stdin().is_terminal() {
            errln!("reading standard input; end it with Ctrl-D");
        }
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file).map_err(CopyError::Read)?)
    };
    let mut lines = LogLines::new(BufReader::new(source));
    while let Some(line) = lines.next().map_err(CopyError::Read)? {
        let shown = redact_line(&line, redactor, scan);
        out.write_all(&shown).map_err(CopyError::Write)?;
        // A reader may be waiting for it, as with `journalctl --follow`.
        if lines.is_drained {
            out.flush().map_err(CopyError::Write)?;
        }
    }
    Ok(())
}

fn redact_line(line: &LogLine, redactor: &Redactor, scan: &mut FileScan) -> Vec<u8> {
    scan.next_line();
    let mut text = line.text.as_slice();
    let mut matches = redactor.find(text);
    for found in &matches {
        scan.found(found.kind);
    }
    if line.is_truncated {
        scan.truncated();
        let margin = TRUNCATION_MARGIN.max(redactor.longest());
        let end = text.len().saturating_sub(margin);
        let across = matches.iter().find(|found| found.range.contains(&end));
        let end = across.map_or(end, |found| found.range.start);
        matches.retain(|found| found.range.end <= end);
        text = &text[..end];
    }
    let mut shown = redactor.replace(text, &matches);
    if line.is_truncated {
        shown.extend(format!("[cut: the line is longer than {MAX_LINE} bytes]").into_bytes());
    }
    if line.has_newline {
        shown.push(b'\n');
    }
    shown
}

/// A line of arbitrary bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct LogLine {
    /// Without its newline.
    text: Vec<u8>,
    is_truncated: bool,
    has_newline: bool,
}

/// Reads lines of bounded length.
struct LogLines<R> {
    source: R,
    /// The next line may block.
    is_drained: bool,
}

impl<R: BufRead> LogLines<R> {
    fn new(source: R) -> Self {
        Self {
            source,
            is_drained: false,
        }
    }

    /// The next line; `None` at the end.
    fn next(&mut self) -> io::Result<Option<LogLine>> {
        let mut line = LogLine::default();
        let mut has_bytes = false;
        loop {
            let bytes = match self.source.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if bytes.is_empty() {
                self.is_drained = true;
                return Ok(has_bytes.then_some(line));
            }
            has_bytes = true;
            let end = memchr::memchr(b'\n', bytes);
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let room = MAX_LINE - line.text.len();
            line.is_truncated |= part.len() > room;
            line.text.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(end.is_some());
            self.is_drained = used == bytes.len();
            self.source.consume(used);
            if end.is_some() {
                line.has_newline = true;
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::log::redact::KnownSecret;

    const SECRET: &str = "the-gateways-secret";

    fn lines(bytes: &[u8]) -> Vec<LogLine> {
        let mut lines = LogLines::new(BufReader::with_capacity(7, bytes));
        std::iter::from_fn(|| lines.next().unwrap()).collect()
    }

    #[test]
    fn lines_end_at_newlines_only() {
        let line = |text: &[u8], has_newline| LogLine {
            text: text.to_vec(),
            is_truncated: false,
            has_newline,
        };
        assert_eq!(lines(b""), []);
        assert_eq!(
            lines(b"one, longer than the buffer\n\n\xff\x00\r\nlast"),
            [
                line(b"one, longer than the buffer", true),
                line(b"", true),
                line(b"\xff\x00\r", true),
                line(b"last", false)
            ]
        );
    }

    #[test]
    fn a_long_line_is_truncated() {
        let mut long = vec![b'x'; 3 * MAX_LINE];
        long.extend_from_slice(b"\nnext\n");
        let found = lines(&long);
        assert_eq!((found[0].text.len(), found[0].is_truncated), (MAX_LINE, true));
        assert_eq!(
            (&*found[1].text, found[1].is_truncated),
            (b"next".as_slice(), false)
        );
    }

    fn redact_truncated(text: Vec<u8>) -> String {
        let redactor = Redactor::thorough(vec![KnownSecret::new("connector.secret", SECRET)], false);
        let line = LogLine {
            text,
            is_truncated: true,
            has_newline: true,
        };
        String::from_utf8(redact_line(&line, &redactor, &mut FileScan::default())).unwrap()
    }

    #[test]
    fn a_truncated_secret_leaves_no_part_behind() {
        for known in [5, SECRET.len() - 1] {
            for before in ["", "token="] {
                let tail = [before, &SECRET[..known]].concat();
                let mut text = vec![b' '; MAX_LINE - tail.len()];
                text.extend_from_slice(tail.as_bytes());
                let shown = redact_truncated(text);
                assert!(!shown.contains(&SECRET[..known]), "{known}");
                assert!(shown.ends_with("bytes]\n"));
            }
        }
    }

    #[test]
    fn a_match_across_the_end_is_dropped_completely() {
        let mut text = vec![b' '; MAX_LINE - 2 * TRUNCATION_MARGIN];
        text.extend_from_slice(b"token=");
        text.resize(MAX_LINE, b'x');
        assert!(!redact_truncated(text).contains("xx"));
    }
}
