//! A directory as a mailbox: each notice is a file `<dispatch_id>.json` that appears whole, with the body of a webhook.
//!
//! A file is written under a hidden temporary name, synced and renamed; the same `dispatch_id` again replaces it. Whoever reads the
//! directory deletes what it has read.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;

use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::contract::{
    AgentAddress, AgentDescriptor, CauseKind, DeliveryFailure, DeliveryPayload, DeliveryReceipt,
    StaticCapabilities, WakeOpts, WakeReceipt,
};
use super::degraded::deliver_instead;
use super::target::{TargetContext, TargetFault, TargetKind, wrong_ids};
use super::{AgentConnector, Delivering, TargetSetupError, bundled, descriptor, now_ms};

/// Files that are written at the same time; further notices wait.
const PARALLEL: usize = 16;
/// Maximum length of a `dispatch_id` that is a file's name.
const MAX_NAME: usize = 200;

/// `{kind: file, dir, agents: [ID]}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileTarget {
    /// The directory, which exists.
    pub dir: PathBuf,
    /// The ids of the agents that read it.
    pub agents: Vec<String>,
}

impl TargetKind for FileTarget {
    fn capabilities(&self) -> StaticCapabilities {
        FileConnector::CAPABILITIES
    }

    fn agents(&self, _own: &[String]) -> Vec<String> {
        self.agents.clone()
    }

    fn violation(&self) -> Option<String> {
        if self.dir.as_os_str().is_empty() {
            return Some("`dir` is empty; name a directory".to_owned());
        }
        wrong_ids(self.agents.iter())
    }

    fn connect(&self, _with: &TargetContext<'_>) -> Result<Box<dyn AgentConnector>, TargetSetupError> {
        Ok(Box::new(FileConnector::new(self.clone())))
    }

    fn fault(&self) -> TargetFault {
        let dir = self.dir.display();
        TargetFault {
            what: "this user cannot write to the directory of `dir`",
            remedy: format!(
                "create it with `mkdir -p {dir}` and let this user write to it, or correct `dir`"
            ),
        }
    }

    fn path_mut(&mut self) -> Option<&mut PathBuf> {
        Some(&mut self.dir)
    }
}

/// Writes notices into a directory.
#[derive(Debug)]
pub struct FileConnector {
    settings: FileTarget,
    slots: Semaphore,
}

impl FileConnector {
    /// What it can do.
    pub const CAPABILITIES: StaticCapabilities = bundled("file", false, false);

    /// A connector for these agents. Looks at nothing yet.
    pub fn new(settings: FileTarget) -> Self {
        Self {
            settings,
            slots: Semaphore::new(PARALLEL),
        }
    }

    async fn put(
        &self,
        agent_id: &str,
        payload: &DeliveryPayload,
    ) -> Result<DeliveryReceipt, DeliveryFailure> {
        let address = AgentAddress::parse(agent_id);
        if !self.settings.agents.contains(&address.agent) {
            return Err(DeliveryFailure::unknown_agent(agent_id));
        }
        let id = payload.meta.dispatch_id();
        if !is_file_name(id) {
            let what = format!(
                "the dispatch_id `{}` cannot be a file's name; letters, digits, `.`, `_` and `-` can",
                crate::text::printable(id, 80)
            );
            return Err(DeliveryFailure::new(CauseKind::ClientValidation, agent_id, what));
        }
        let path = self.settings.dir.join(format!("{id}.json"));
        let body = payload.to_body(agent_id).to_string();
        let _slot = self.slots.acquire().await;
        let target = path.clone();
        let written = tokio::task::spawn_blocking(move || write(&target, body.as_bytes())).await;
        match written.unwrap_or_else(|ended| Err(io::Error::other(ended))) {
            Ok(()) => Ok(DeliveryReceipt {
                delivered_at: now_ms(),
                delivery_id: Some(path.display().to_string()),
                session_id: address.session,
                ..DeliveryReceipt::default()
            }),
            Err(error) => Err(failure(agent_id, &self.settings.dir, &error)),
        }
    }
}

fn failure(agent_id: &str, dir: &Path, error: &io::Error) -> DeliveryFailure {
    let shown = dir.display();
    let (cause, what) = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => (
            CauseKind::ClientValidation,
            format!("{shown} is not a directory; create it with `mkdir -p`, or correct `dir`"),
        ),
        io::ErrorKind::PermissionDenied => (
            CauseKind::ClientValidation,
            format!("{shown} cannot be written to; check its owner and its mode"),
        ),
        _ => (CauseKind::Network, format!("cannot write into {shown}: {error}")),
    };
    DeliveryFailure::new(cause, agent_id, what)
}

/// Whether an id is a plain file name that is not hidden.
fn is_file_name(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !id.is_empty() && id.len() <= MAX_NAME && !id.starts_with('.') && id.bytes().all(is_plain)
}

/// Writes a file that appears whole under its name, for its owner alone, and survives a power failure.
fn write(path: &Path, body: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".notice-")
        .suffix(".tmp")
        .tempfile_in(dir)?;
    file.write_all(body)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    std::fs::File::open(dir)?.sync_all()
}

impl AgentConnector for FileConnector {
    fn capabilities(&self) -> StaticCapabilities {
        Self::CAPABILITIES
    }

    fn list_agents(&self) -> Vec<AgentDescriptor> {
        self.settings
            .agents
            .iter()
            .map(|id| descriptor(id, false))
            .collect()
    }

    fn deliver<'c>(
        &'c self,
        agent_id: &'c str,
        payload: &'c DeliveryPayload,
    ) -> Delivering<'c, DeliveryReceipt> {
        Box::pin(self.put(agent_id, payload))
    }

    fn wake<'c>(&'c self, agent_id: &'c str, opts: &'c WakeOpts) -> Delivering<'c, WakeReceipt> {
        Box::pin(deliver_instead(self, agent_id, opts))
    }

    fn health_check(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        let dir = &self.settings.dir;
        let is_usable = dir.is_dir() && access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok();
        Box::pin(async move { is_usable })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_the_directory() {
        for id in ["a", "3f2c9c1e-6d0a-4c35-9b4e-6f0f5f3b9a10", "a.b_c-1"] {
            assert!(is_file_name(id), "{id}");
        }
        let long = "x".repeat(MAX_NAME + 1);
        for id in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "../x",
            "a\0b",
            "a b",
            "é",
            long.as_str(),
        ] {
            assert!(!is_file_name(id), "{id}");
        }
    }
}
