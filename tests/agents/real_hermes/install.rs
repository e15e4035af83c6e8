//! Installs Hermes from its registry, once for all runs, and says loudly when that cannot be done.
//!
//! The environment stays under the target directory. A file lock keeps parallel test runs apart, and a marker that is
//! written last tells a whole environment from a broken one: its programs name their own path, so it cannot be made elsewhere
//! and moved into place.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// The release that is tested against.
const VERSION: &str = "0.19.0";
/// What is asked of the registry: the agent with its ACP part, and what its API server needs.
const PACKAGES: [&str; 2] = ["hermes-agent[acp]==0.19.0", "aiohttp>=3.13,<4"];
/// How long the download may take.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How long the interpreter may take to say that it is there.
const MOMENT: Duration = Duration::from_secs(10);

/// What the installer says when the registry cannot be reached, or not well enough.
const UNREACHABLE: [&str; 9] = [
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ReadTimeout",
    "ProxyError",
    "SSLError",
    "connection broken by",
    "Connection aborted",
    "Temporary failure in name resolution",
];

/// An installed Hermes.
#[derive(Clone, Debug)]
pub(crate) struct Hermes {
    programs: PathBuf,
}

impl Hermes {
    /// The program of that name.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }
}

/// Hermes, installed now if it was not yet; `None` when this machine cannot have it, which has been said then.
pub(crate) async fn hermes() -> Option<Hermes> {
    static ONCE: OnceCell<Option<Hermes>> = OnceCell::const_new();
    let found = ONCE.get_or_init(|| async { install().await.map_err(|why| announce(&why)).ok() });
    found.await.clone()
}

/// Why it cannot be had is an error; that it can be had and does not install fails the test.
async fn install() -> Result<Hermes, String> {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = parent.join(format!("hermes-{VERSION}"));
    let lock = File::create(parent.join(format!("hermes-{VERSION}.lock"))).expect("a lock file");
    // Whoever holds it is done within its own timeout; it is let go at the end.
    let locked = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await;
    let _locked = locked.expect("the wait for the lock").expect("the lock");
    let marker = folder.join("complete");
    let wanted = PACKAGES.join("\n");
    let python = folder.join("bin/python");
    let whole = fs::read_to_string(&marker).is_ok_and(|kept| kept == wanted);
    // The interpreter that it was made with may have gone.
    if !whole
        || run(Command::new(&python).arg("--version"), parent, MOMENT)
            .await
            .is_err()
    {
        let started = Instant::now();
        if folder.exists() {
            fs::remove_dir_all(&folder).expect("a broken environment can be removed");
        }
        make(&folder, &python, parent).await?;
        fs::write(&marker, &wanted).expect("the marker");
        say(&format!(
            "hermes-agent {VERSION} was installed in {} s\n",
            started.elapsed().as_secs()
        ));
    }
    Ok(Hermes {
        programs: folder.join("bin"),
    })
}

async fn make(folder: &Path, python: &Path, parent: &Path) -> Result<(), String> {
    let venv = run(
        Command::new("python3").args(["-m", "venv"]).arg(folder),
        parent,
        TIMEOUT,
    )
    .await;
    venv.map_err(|log_text| {
        format!("python3 cannot make a virtual environment (install python3-venv):\n{log_text}")
    })?;
    let pip = [
        "-m",
        "pip",
        "install",
        "--no-input",
        "--timeout",
        "30",
        "--retries",
        "2",
    ];
    let installed = run(Command::new(python).args(pip).args(PACKAGES), parent, TIMEOUT).await;
    installed.map_err(|log_text| {
        let reached =
            !log_text.contains("gave up after") && !UNREACHABLE.iter().any(|sign| log_text.contains(sign));
        let fits = !log_text.contains("require a different python version");
        assert!(
            !reached || !fits,
            "the registry was reached, but pip failed:\n{log_text}"
        );
        let why = if fits {
            "the package registry cannot be reached"
        } else {
            "python3 is too old for it"
        };
        format!("{why}:\n{log_text}")
    })
}

/// Runs a program to its end, or ends it and all that it started. An error is the end of what it said.
async fn run(command: &mut Command, parent: &Path, limit: Duration) -> Result<(), String> {
    let log = tempfile::NamedTempFile::new_in(parent).expect("a log file");
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

/// Says that the tests are skipped, where it is seen: the harness keeps what passing tests print to itself.
fn announce(why: &str) {
    let line = "!".repeat(100);
    let mut notice = format!(
        "\n{line}\n!!! SKIPPED: nothing was tested against the real Hermes, because it cannot be installed here.\n!!! {}\n{line}\n",
        why.replace('\n', "\n!!! ")
    );
    if std::env::var_os("CI").is_some_and(|value| value == "true") {
        notice.push_str(
            "!!! OTHERS RELY ON THIS RUN: see to it that python3-venv and the registry are there.\n",
        );
        notice = notice + &line + "\n";
    }
    say(&notice);
}

fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Asked for alone it fetches Hermes ahead of the tests that talk to it, which `tests/run` does while others are built.
#[tokio::test]
async fn it_is_installed_once_and_for_all() {
    if let Some(hermes) = hermes().await {
        for name in ["python", "hermes", "hermes-acp"] {
            assert!(hermes.program(name).exists(), "{name} is not there");
        }
    }
}
