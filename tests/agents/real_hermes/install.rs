//! Installs Hermes from its registry.

use std::path::PathBuf;

use tokio::sync::OnceCell;

use crate::registry::{announce, python};

/// The release that is tested against.
const VERSION: &str = "0.19.0";
/// What is asked of the registry: the agent with its ACP part, and what its API server needs.
const PACKAGES: [&str; 2] = ["hermes-agent[acp]==0.19.0", "aiohttp>=3.13,<4"];

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
        let found = python(&format!("hermes-{VERSION}"), &PACKAGES).await;
        let found = found.map_err(|why| announce("Hermes", "python3-venv", &why));
        found.ok().map(|programs| Hermes { programs })
    });
    found.await.clone()
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
