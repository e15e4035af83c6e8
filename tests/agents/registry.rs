//! Agents from their package registries: installed once for all runs, under the target directory.
//!
//! A file lock keeps parallel test runs apart, and a marker that is written last tells a whole installation from a broken
//! one: its programs may name their own path, so it cannot be made elsewhere and moved into place.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tokio::time::timeout;

/// How long a download may take.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How long a program may take to say that it is there.
const MOMENT: Duration = Duration::from_secs(10);

/// What pip says when its registry is not reached, or not well enough.
const PIP_UNREACHABLE: [&str; 8] = [
    "NewConnectionError",
    "TimeoutError",
    "ReadTimeout",
    "ProxyError",
    "SSLError",
    "connection broken by",
    "Connection aborted",
    "Temporary failure in name resolution",
];

/// The same of npm.
const NPM_UNREACHABLE: [&str; 10] = [
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONN",
    "ETIMEDOUT",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "ERR_SOCKET_TIMEOUT",
    "network request to",
    "CERT",
    "code E5",
];

/// Packages of Python's registry in a virtual environment of their own; gives the folder of its programs. An error is why
/// this machine cannot have them; packages that can be had and do not install fail the test.
pub(crate) async fn python(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let installation = Installation {
        name,
        wanted: &packages.join("\n"),
        program: Path::new("bin/python"),
    };
    let folder = installation.ready(async |folder: &Path| {
        let venv = run(Command::new("python3").args(["-m", "venv"]).arg(folder), TIMEOUT).await;
        venv.map_err(|log_text| {
            format!("python3 cannot make a virtual environment (install python3-venv):\n{log_text}")
        })?;
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args([
            "-m",
            "pip",
            "install",
            "--no-input",
            "--timeout",
            "30",
            "--retries",
            "2",
        ]);
        let installed = run(pip.args(packages), TIMEOUT).await;
        installed.map_err(|log_text| {
            if log_text.contains("require a different python version") {
                return format!("python3 is too old for it:\n{log_text}");
            }
            unreachable("pip", &log_text, &PIP_UNREACHABLE)
        })
    });
    Ok(folder.await?.join("bin"))
}

/// A package of npm's registry, as [`python`]; gives its folder. The program is tried to see whether it is whole.
pub(crate) async fn npm(name: &str, package: &str, program: &Path) -> Result<PathBuf, String> {
    let installation = Installation {
        name,
        wanted: package,
        program,
    };
    let make = async |folder: &Path| {
        let cache = folder.join("cache");
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--ignore-scripts",
        ]);
        npm.args(["--fetch-retries=1", "--fetch-timeout=60000"]);
        npm.arg("--prefix")
            .arg(folder)
            .arg("--cache")
            .arg(&cache)
            .arg(package);
        let installed = run(&mut npm, TIMEOUT).await;
        let _ = fs::remove_dir_all(&cache);
        installed.map_err(|log_text| {
            if log_text.starts_with("it does not start") {
                return format!("npm is missing (install npm): {log_text}");
            }
            unreachable("npm", &log_text, &NPM_UNREACHABLE)
        })
    };
    installation.ready(make).await
}

/// What is installed, and where.
struct Installation<'a> {
    /// What it is called, with its version.
    name: &'a str,
    /// Everything that is asked of the registry: with something else it is installed anew.
    wanted: &'a str,
    /// The program that is tried with `--version`, in its folder unless the path is absolute.
    program: &'a Path,
}

impl Installation<'_> {
    fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(self.name)
    }

    /// Its folder, filled by `make` if it was not yet. An error is why that cannot be done here.
    async fn ready(&self, make: impl AsyncFnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
        let folder = self.folder();
        let lock = folder.with_file_name(format!("{}.lock", self.name));
        let lock = File::create(lock).expect("a lock file");
        // Whoever holds it is done within its own timeout; it is let go at the end.
        let locked = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await;
        let _locked = locked.expect("the wait for the lock").expect("the lock");
        let marker = folder.join("complete");
        let whole = fs::read_to_string(&marker).is_ok_and(|kept| kept == self.wanted);
        // What it was made with may have gone.
        if !whole || !self.works(&folder).await {
            let started = Instant::now();
            if folder.exists() {
                fs::remove_dir_all(&folder).expect("a broken installation can be removed");
            }
            make(&folder).await?;
            fs::write(&marker, self.wanted).expect("the marker");
            let seconds = started.elapsed().as_secs();
            say(&format!("{} was installed in {seconds} s\n", self.name));
        }
        Ok(folder)
    }

    async fn works(&self, folder: &Path) -> bool {
        let program = folder.join(self.program);
        run(Command::new(program).arg("--version"), MOMENT).await.is_ok()
    }
}

/// Runs a program to its end, or ends it and all that it started. An error is the end of what it said.
async fn run(command: &mut Command, limit: Duration) -> Result<(), String> {
    let log = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a log file");
    let output = || Stdio::from(log.as_file().try_clone().expect("the log file"));
    command.stdin(Stdio::null()).stdout(output()).stderr(output());
    let child = command.process_group(0).kill_on_drop(true).spawn();
    let mut child = child.map_err(|error| format!("it does not start: {error}"))?;
    let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    let status = if let Ok(ended) = timeout(limit, child.wait()).await {
        let status = ended.expect("a child of ours");
        if status.success() {
            return Ok(());
        }
        status.to_string()
    } else {
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        format!("gave up after {} s", limit.as_secs())
    };
    let log_text = fs::read(log.path()).unwrap_or_default();
    let log_text = String::from_utf8_lossy(&log_text);
    let lines: Vec<&str> = log_text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(30)..];
    Err(format!("{}\n({status})", tail.join("\n")))
}

/// Why a download failed: the registry was not reached, or not well enough. Any other reason fails the test.
fn unreachable(installer: &str, log_text: &str, signs: &[&str]) -> String {
    let is_unreachable =
        log_text.contains("gave up after") || signs.iter().any(|sign| log_text.contains(sign));
    assert!(
        is_unreachable,
        "the registry was reached, but {installer} failed:\n{log_text}"
    );
    format!("the package registry cannot be reached:\n{log_text}")
}

/// Says that the tests are skipped, where it is seen: the harness keeps what passing tests print to itself.
pub(crate) fn announce(agent: &str, needs: &str, why: &str) {
    let line = "!".repeat(100);
    let notice = format!(
        "\n{line}\n!!! SKIPPED: nothing was tested against the real {agent}, because it cannot be installed here.\n!!! {}\n{line}\n",
        why.replace('\n', "\n!!! ")
    );
    say(&notice);
    if std::env::var_os("CI").is_some_and(|value| value == "true") {
        say(&format!(
            "!!! OTHERS RELY ON THIS RUN: see to it that {needs} and the registry are there.\n{line}\n"
        ));
    }
}

fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
