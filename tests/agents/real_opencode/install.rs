//! Installs OpenCode from its registry: the package with the program for this machine, which `opencode-ai` installs too.

use std::path::{Path, PathBuf};

use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::registry::{Installation, TIMEOUT, announce, is_unreachable, run};

/// The release that is tested against.
const VERSION: &str = "1.18.33";

/// What the installer says when the registry cannot be reached, or not well enough.
const UNREACHABLE: [&str; 12] = [
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "ETIMEDOUT",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "ERR_SOCKET_TIMEOUT",
    "network request to",
    "CERT",
    "npm error code E5",
    "npm ERR! code E5",
];

/// The program, installed now if it was not yet; `None` when this machine cannot have it, which has been said then.
pub(crate) async fn opencode() -> Option<PathBuf> {
    static ONCE: OnceCell<Option<PathBuf>> = OnceCell::const_new();
    let found = ONCE.get_or_init(|| async {
        let found = install().await;
        found.map_err(|why| announce("OpenCode", "npm", &why)).ok()
    });
    found.await.clone()
}

/// The package for this machine.
fn package() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let package = if std::is_x86_feature_detected!("avx2") {
        "opencode-linux-x64"
    } else {
        "opencode-linux-x64-baseline"
    };
    #[cfg(not(target_arch = "x86_64"))]
    let package = "opencode-linux-arm64";
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64")).then_some(package)
}

/// Why it cannot be had is an error; that it can be had and does not install fails the test.
async fn install() -> Result<PathBuf, String> {
    let package = package().ok_or("there is no package for this kind of processor")?;
    let installation = Installation {
        name: format!("opencode-{VERSION}"),
        wanted: format!("{package}@{VERSION}"),
        program: Path::new("node_modules").join(package).join("bin/opencode"),
    };
    let wanted = installation.wanted.as_str();
    let folder = installation
        .ready(async |folder: &Path| make(folder, wanted).await)
        .await?;
    Ok(folder.join(&installation.program))
}

async fn make(folder: &Path, wanted: &str) -> Result<(), String> {
    let options = [
        "install",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--ignore-scripts",
        "--fetch-retries=1",
        "--fetch-timeout=60000",
    ];
    let cache = folder.join("cache");
    let mut npm = Command::new("npm");
    npm.args(options).arg("--prefix").arg(folder);
    npm.arg("--cache").arg(&cache).arg(wanted);
    let installed = run(&mut npm, TIMEOUT).await;
    let _ = std::fs::remove_dir_all(&cache);
    installed.map_err(|log_text| {
        if log_text.starts_with("it does not start") {
            return format!("npm is missing (install npm): {log_text}");
        }
        assert!(
            is_unreachable(&log_text, &UNREACHABLE),
            "the registry was reached, but npm failed:\n{log_text}"
        );
        format!("the package registry cannot be reached:\n{log_text}")
    })
}

/// Asked for alone it fetches OpenCode ahead of the test that talks to it, which `tests/run` does while others are built.
#[tokio::test]
async fn it_is_installed_once_and_for_all() {
    if let Some(opencode) = opencode().await {
        assert!(opencode.is_file(), "{} is not there", opencode.display());
    }
}
