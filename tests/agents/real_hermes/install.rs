//! Installs Hermes from its registry.

use std::path::{Path, PathBuf};

use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::registry::{Installation, TIMEOUT, announce, is_unreachable, run};

/// The release that is tested against.
const VERSION: &str = "0.19.0";
/// What is asked of the registry: the agent with its ACP part, and what its API server needs.
const PACKAGES: [&str; 2] = ["hermes-agent[acp]==0.19.0", "aiohttp>=3.13,<4"];

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
    let found = ONCE.get_or_init(|| async {
        let found = install().await;
        found.map_err(|why| announce("Hermes", "python3-venv", &why)).ok()
    });
    found.await.clone()
}

/// Why it cannot be had is an error; that it can be had and does not install fails the test.
async fn install() -> Result<Hermes, String> {
    let installation = Installation {
        name: format!("hermes-{VERSION}"),
        wanted: PACKAGES.join("\n"),
        program: PathBuf::from("bin/python"),
    };
    let folder = installation.ready(make).await?;
    Ok(Hermes {
        programs: folder.join("bin"),
    })
}

async fn make(folder: &Path) -> Result<(), String> {
    let venv = run(Command::new("python3").args(["-m", "venv"]).arg(folder), TIMEOUT).await;
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
    let python = folder.join("bin/python");
    let installed = run(Command::new(python).args(pip).args(PACKAGES), TIMEOUT).await;
    installed.map_err(|log_text| {
        let reached = !is_unreachable(&log_text, &UNREACHABLE);
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

/// Asked for alone it fetches Hermes ahead of the tests that talk to it, which `tests/run` does while others are built.
#[tokio::test]
async fn it_is_installed_once_and_for_all() {
    if let Some(hermes) = hermes().await {
        for name in ["python", "hermes", "hermes-acp"] {
            assert!(hermes.program(name).exists(), "{name} is not there");
        }
    }
}
