//! Installs OpenCode from its registry: the package with the program for this machine, which `opencode-ai` installs too.

use std::path::{Path, PathBuf};

use tokio::sync::OnceCell;

use crate::registry::{announce, npm};

/// The release that is tested against.
const VERSION: &str = "1.18.33";

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

async fn install() -> Result<PathBuf, String> {
    let package = package().ok_or("there is no package for this kind of processor")?;
    let program = Path::new("node_modules").join(package).join("bin/opencode");
    let name = format!("opencode-{VERSION}");
    let folder = npm(&name, &format!("{package}@{VERSION}"), &program).await?;
    Ok(folder.join(program))
}

/// Asked for alone it fetches OpenCode ahead of the test that talks to it, which `tests/run` does while others are built.
#[tokio::test]
async fn it_is_installed_once_and_for_all() {
    if let Some(opencode) = opencode().await {
        assert!(opencode.is_file(), "{} is not there", opencode.display());
    }
}
