//! Whether the service manager gives the relay the time that its shutdown takes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::case::Case;
use super::probe::Verdict;

/// Where units for the whole machine lie: what was installed by hand, then a package's, which the first hides.
const SYSTEM: [&str; 2] = ["/etc/systemd/system", "/usr/lib/systemd/system"];
/// Where a package puts users' units.
const PACKAGED_USER: &str = "/usr/lib/systemd/user";
/// The names that a unit may have.
const UNITS: [&str; 2] = ["hermes-relay.service", "hermes-relay-only.service"];
/// What systemd waits when the unit says nothing.
const DEFAULT_STOP: Duration = Duration::from_secs(90);
/// The largest unit file that is read.
const MAX_BYTES: u64 = 256 * 1024;
/// The most drop-in files that are read.
const MAX_DROP_INS: usize = 64;

/// Looks at the machine's unit and at the user's.
pub(super) fn unit(case: &Case<'_>) -> Vec<Verdict> {
    let Some(settings) = case.settings() else {
        return Vec::new();
    };
    let budget = Duration::from_secs(settings.shutdown.budget_secs);
    let mut verdicts: Vec<Verdict> = managers(case.env)
        .iter()
        .flat_map(|folders| UNITS.map(|name| judge(folders, name, budget)))
        .flatten()
        .collect();
    if verdicts.is_empty() {
        verdicts.push(Verdict::ok("none installed"));
    }
    verdicts
}

/// The folders of each manager, the one that counts most first.
fn managers(env: &dyn Fn(&str) -> Option<String>) -> [Vec<PathBuf>; 2] {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let user = config.map(|config| config.join("systemd/user"));
    [
        SYSTEM.map(PathBuf::from).into(),
        user.into_iter().chain([PathBuf::from(PACKAGED_USER)]).collect(),
    ]
}

fn judge(folders: &[PathBuf], name: &str, budget: Duration) -> Option<Verdict> {
    let (path, mut text) = folders.iter().find_map(|folder| {
        let path = folder.join(name);
        read(&path).map(|text| (path, text))
    })?;
    let mut drop_ins: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder.join(format!("{name}.d"))))
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        .take(MAX_DROP_INS)
        .collect();
    drop_ins.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    for more in drop_ins.iter().filter_map(|path| read(path)) {
        text.push('\n');
        text.push_str(&more);
    }
    let shown = path.display();
    let needed = budget.as_secs();
    let remedy = format!(
        "set TimeoutStopSec={} in its section [Service]: `systemctl edit {name}`, with --user for a user's unit",
        needed + 10
    );
    Some(match stop_time(&text) {
        Stop::Never => Verdict::ok(format!("{shown} waits for the relay's end as long as it takes")),
        Stop::After(time) if time > budget => Verdict::ok(format!(
            "{shown} waits {} s, the relay needs {needed}",
            time.as_secs()
        )),
        Stop::After(time) => Verdict::failed(
            format!(
                "{shown} kills the relay after {} s, its shutdown may take {needed}",
                time.as_secs()
            ),
            remedy,
        ),
        Stop::Unreadable(value) => Verdict::warn(
            format!("{shown} has a TimeoutStopSec that cannot be read: {value}"),
            remedy,
        ),
    })
}

fn read(path: &Path) -> Option<String> {
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MAX_BYTES {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

/// How long a unit waits before it kills.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    Never,
    After(Duration),
    Unreadable(String),
}

/// The last word of a unit on how long it waits.
fn stop_time(unit: &str) -> Stop {
    let mut stop = Stop::After(DEFAULT_STOP);
    for line in unit.lines() {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        if !matches!(key.trim(), "TimeoutStopSec" | "TimeoutSec") {
            continue;
        }
        let value = value.trim();
        stop = match value {
            "" => Stop::After(DEFAULT_STOP),
            "infinity" | "0" => Stop::Never,
            written => span(written).map_or_else(
                || Stop::Unreadable(written.chars().take(64).collect()),
                Stop::After,
            ),
        };
    }
    stop
}

/// A time as systemd writes it: numbers, each with a unit or in seconds, added up.
fn span(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let part = match &rest[..letters] {
            "" | "s" | "sec" | "second" | "seconds" => Duration::from_secs(number),
            "ms" | "msec" => Duration::from_millis(number),
            "m" | "min" | "minute" | "minutes" => Duration::from_secs(number.checked_mul(60)?),
            "h" | "hr" | "hour" | "hours" => Duration::from_secs(number.checked_mul(3600)?),
            _ => return None,
        };
        total = total.checked_add(part)?;
        rest = rest[letters..].trim_start();
    }
    (text.trim() != "").then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_systemd_writes_them() {
        for (text, secs) in [
            ("40", 40),
            ("1min 30s", 90),
            ("2m", 120),
            ("1h", 3600),
            ("5 s", 5),
        ] {
            assert_eq!(span(text), Some(Duration::from_secs(secs)), "{text}");
        }
        assert_eq!(span("250ms"), Some(Duration::from_millis(250)));
        for text in ["", "soon", "3 fortnights", "-1", "99999999999999999999"] {
            assert_eq!(span(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_last_word_counts_and_silence_is_the_default() {
        assert_eq!(stop_time("[Service]\n"), Stop::After(DEFAULT_STOP));
        assert_eq!(
            stop_time("TimeoutStopSec=5\n# TimeoutStopSec=9\nTimeoutStopSec = 7s\n"),
            Stop::After(Duration::from_secs(7))
        );
        assert_eq!(stop_time("TimeoutStopSec=infinity"), Stop::Never);
        assert_eq!(
            stop_time("TimeoutStopSec=ages"),
            Stop::Unreadable("ages".to_owned())
        );
    }

    #[test]
    fn a_unit_that_kills_too_early_fails_and_a_drop_in_or_a_unit_that_hides_it_mends_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let [own, packaged] = ["own", "packaged"].map(|name| folder.path().join(name));
        for place in [&own, &packaged] {
            std::fs::create_dir(place).expect("a folder");
        }
        let folders = [own.clone(), packaged.clone()];
        let judged = |name| judge(&folders, name, Duration::from_secs(30));
        let name = UNITS[1];
        assert_eq!(judged(name), None);
        std::fs::write(packaged.join(name), "[Service]\nTimeoutStopSec=20\n").expect("a unit");
        let short = judged(name).expect("a verdict");
        assert_eq!(short.outcome, super::super::Outcome::Failed);
        assert!(
            short
                .remedy
                .is_some_and(|remedy| remedy.contains("TimeoutStopSec=40"))
        );
        let more = own.join(format!("{name}.d"));
        std::fs::create_dir(&more).expect("a folder");
        std::fs::write(more.join("stop.conf"), "[Service]\nTimeoutStopSec=2min\n").expect("a drop-in");
        let mended = judged(name).expect("a verdict");
        assert_eq!(mended.outcome, super::super::Outcome::Ok);
        std::fs::remove_file(more.join("stop.conf")).expect("no drop-in");
        std::fs::write(own.join(name), "[Service]\nTimeoutStopSec=50\n").expect("a unit");
        let hidden = judged(name).expect("a verdict");
        assert_eq!(
            hidden.outcome,
            super::super::Outcome::Ok,
            "the package's is hidden"
        );
    }
}
