//! The log of the relay: from its file, or from journald.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::Duration;

use crate::cli::Environment;
use crate::cli::exit::{self, fail, finish};
use crate::cli::format::stdout;
use crate::cli::service::ServiceUnit;
use crate::config::Settings;
use crate::serve::ControlRequest;
use crate::serve::client;

/// How much of the end of a file is read at most.
const MAX_TAIL: u64 = 16 * 1024 * 1024;
/// How often a file is looked at for new lines.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Shows the last lines of the log, and with `follow` those that come.
pub(super) fn run(settings: &Settings, lines: usize, follow: bool, env: Environment<'_>) -> ExitCode {
    if let Some(file) = &settings.log.file {
        return match show_file(file, lines, follow) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => fail(
                exit::FAILED,
                format!("there is no log at {} yet", file.display()),
                Some("the relay writes it when it runs; `hermes-relay run` starts it"),
            ),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => fail(
                exit::FAILED,
                format!("cannot read {}: {error}", file.display()),
                Some("run this as the user that runs the relay"),
            ),
            written => finish(written),
        };
    }
    let Some(unit) = unit(settings, env) else {
        return fail(
            exit::FAILED,
            "the relay has no log file and does not run as a service: its log is where it was started",
            Some(
                "set `log.file: PATH` and restart it, or install the service with `hermes-relay service install --user --now`",
            ),
        );
    };
    journald(&unit, lines, follow)
}

/// The unit that the relay runs as, or that is installed.
fn unit(settings: &Settings, env: Environment<'_>) -> Option<ServiceUnit> {
    let status = client::call(&settings.state_dir, &ControlRequest::Status).ok();
    let pid = status.and_then(|status| u32::try_from(status["pid"].as_u64()?).ok());
    match pid {
        Some(pid) => ServiceUnit::of_process(pid),
        None => ServiceUnit::installed(env),
    }
}

/// The last lines of the log, or why there are none.
pub(in crate::cli) fn last_lines(
    settings: &Settings,
    lines: usize,
    env: Environment<'_>,
) -> Result<String, String> {
    if let Some(path) = &settings.log.file {
        let read = File::open(path).and_then(|mut file| tail(&mut file, lines));
        let last = read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        return Ok(Vec::from(last).join("\n"));
    }
    let unit = unit(settings, env).ok_or("there is no log file, and no service")?;
    let output = journalctl(&unit, lines).output();
    let output = output.map_err(|error| format!("cannot run journalctl: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn journalctl(unit: &ServiceUnit, lines: usize) -> Command {
    let mut command = Command::new("journalctl");
    if unit.user {
        command.arg("--user");
    }
    command.args(["--no-pager", "--unit", &unit.name, "--lines", &lines.to_string()]);
    command
}

fn journald(unit: &ServiceUnit, lines: usize, follow: bool) -> ExitCode {
    let mut command = journalctl(unit, lines);
    if follow {
        command.arg("--follow");
    }
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        // It has said why.
        Ok(_) => ExitCode::from(exit::FAILED),
        Err(error) => fail(
            exit::FAILED,
            format!(
                "cannot run journalctl, which has the log of {}: {error}",
                unit.name
            ),
            Some("set `log.file: PATH` to have the log in a file as well"),
        ),
    }
}

fn show_file(path: &Path, lines: usize, follow: bool) -> io::Result<()> {
    let mut out = stdout();
    let mut file = File::open(path)?;
    let mut last = tail(&mut file, lines)?;
    // The file may have been started a moment ago.
    if last.len() < lines
        && let Ok(mut older) = File::open(older(path))
    {
        let mut before = tail(&mut older, lines - last.len())?;
        before.append(&mut last);
        last = before;
    }
    for line in last {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    if follow {
        return follow_file(path, file, &mut out);
    }
    Ok(())
}

/// Writes new lines as they come. Returns when they cannot be read or written any more.
#[expect(
    clippy::disallowed_methods,
    reason = "a file says nothing when it grows; Ctrl-C ends this"
)]
fn follow_file(path: &Path, mut file: File, out: &mut impl io::Write) -> io::Result<()> {
    loop {
        sleep(LOOK_EVERY);
        let mut new = String::new();
        read_new(&mut file, &mut new)?;
        if is_other(path, &file) {
            // It was moved aside: its last lines were read above.
            file = File::open(path)?;
            read_new(&mut file, &mut new)?;
        }
        out.write_all(new.as_bytes())?;
        out.flush()?;
    }
}

fn read_new(file: &mut File, new: &mut String) -> io::Result<()> {
    if file.metadata()?.len() < file.stream_position()? {
        file.rewind()?;
    }
    let mut bytes = Vec::new();
    file.take(MAX_TAIL).read_to_end(&mut bytes)?;
    // A line that is half written is read again with its rest.
    let complete = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let rest = i64::try_from(bytes.len() - complete).unwrap_or(0);
    file.seek(SeekFrom::Current(-rest))?;
    new.push_str(&String::from_utf8_lossy(&bytes[..complete]));
    Ok(())
}

/// Whether the path leads to another file now.
fn is_other(path: &Path, file: &File) -> bool {
    let (Ok(now), Ok(open)) = (std::fs::metadata(path), file.metadata()) else {
        return false;
    };
    (now.dev(), now.ino()) != (open.dev(), open.ino())
}

/// The file before this one.
fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// The last lines of a file; it is read to its end.
fn tail(file: &mut File, lines: usize) -> io::Result<VecDeque<String>> {
    let start = file.metadata()?.len().saturating_sub(MAX_TAIL);
    file.seek(SeekFrom::Start(start))?;
    let mut last = VecDeque::new();
    let mut reader = BufReader::new(&mut *file);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        if last.len() == lines {
            last.pop_front();
        }
        if lines > 0 {
            let text = String::from_utf8_lossy(&line);
            last.push_back(text.trim_end_matches(['\n', '\r']).to_owned());
        }
        line.clear();
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_has_the_last_lines_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("relay.log");
        std::fs::write(&path, "one\ntwo\nthree").unwrap();
        let of = |lines| Vec::from(tail(&mut File::open(&path).unwrap(), lines).unwrap());
        assert_eq!(of(2), ["two", "three"]);
        assert_eq!(of(9), ["one", "two", "three"]);
        assert!(of(0).is_empty());
    }

    #[test]
    fn only_complete_new_lines_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("relay.log");
        std::fs::write(&path, "one\ntw").unwrap();
        let (mut file, mut new) = (File::open(&path).unwrap(), String::new());
        read_new(&mut file, &mut new).unwrap();
        assert_eq!(new, "one\n");
        std::fs::write(&path, "one\ntwo\n").unwrap();
        read_new(&mut file, &mut new).unwrap();
        assert_eq!(new, "one\ntwo\n");
        std::fs::write(&path, "x\n").unwrap();
        read_new(&mut file, &mut new).unwrap();
        assert_eq!(new, "one\ntwo\nx\n", "a file that was cut is read from its start");
    }
}
