//! What agents list: their sessions, asked for beside the event loop.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::agent::{Agent, ListedSession};
use crate::relay::effects::Listing;

/// How long an agent may take, the start of its process included.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);
/// Lists that are asked for at a time; for further ones, agents list nothing.
const MAX_LISTINGS: usize = 32;

/// Asks agents.
pub struct Listings {
    tasks: JoinSet<Vec<ListedSession>>,
    waiting: HashMap<tokio::task::Id, Listing>,
}

impl Listings {
    pub fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            waiting: HashMap::new(),
        }
    }

    /// Lists that are being asked for.
    pub fn outstanding(&self) -> usize {
        self.waiting.len()
    }

    /// Asks an agent; [`Self::next_list`] has what it lists.
    pub fn ask(&mut self, listing: Listing, agent: Arc<dyn Agent>, workdir: Option<PathBuf>) {
        let is_full = self.waiting.len() >= MAX_LISTINGS;
        let task = self.tasks.spawn(async move {
            if is_full {
                return Vec::new();
            }
            let listed = timeout(LIST_TIMEOUT, agent.list_sessions(workdir.as_deref()));
            listed.await.unwrap_or_else(|_| {
                tracing::info!("an agent did not list its sessions in time");
                Vec::new()
            })
        });
        self.waiting.insert(task.id(), listing);
    }

    /// Waits for the next list; never resolves while none is asked for. Cancel-safe.
    pub async fn next_list(&mut self) -> (Listing, Vec<ListedSession>) {
        loop {
            let (task, listed) = match self.tasks.join_next_with_id().await {
                Some(Ok(listed)) => listed,
                Some(Err(error)) => (error.id(), Vec::new()),
                None => std::future::pending().await,
            };
            if let Some(listing) = self.waiting.remove(&task) {
                return (listing, listed);
            }
        }
    }
}
