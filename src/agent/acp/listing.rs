//! The sessions that the agent keeps in a directory, also those that were begun without the relay.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::time::timeout;

use super::preferences::Chosen;
use super::sessions::{SavedSession, is_id};
use super::{AcpAgent, REQUEST_TIMEOUT};
use crate::agent::ListedSession;
use crate::text::{one_line, parse_instant};

/// Pages that are asked for.
const MAX_PAGES: usize = 5;
/// Sessions that are read of an agent's list; further ones are left out.
const MAX_LISTED: usize = 100;
/// Length of a title.
const MAX_TITLE_CHARS: usize = 60;
/// Length of the name of the next page, in bytes.
const MAX_CURSOR: usize = 4096;

impl AcpAgent {
    /// The sessions of a directory that can be continued, the latest first; none when the agent lists none.
    pub(super) async fn listed(&self, cwd: PathBuf) -> Vec<ListedSession> {
        let lease = match self.acquire(None).await {
            Ok(lease) => lease,
            Err(error) => {
                let failure = self.not_opened(error);
                tracing::info!(agent = %self.name, error = %failure.detail, "the agent cannot list its sessions");
                return Vec::new();
            }
        };
        let can = &lease.process.capabilities;
        if !can.list || can.continues().is_none() {
            return Vec::new();
        }
        let (mut found, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let mut params = json!({"cwd": cwd});
            if let Some(cursor) = &cursor {
                params["cursor"] = json!(cursor);
            }
            let asked = lease.process.peer().call("session/list", &params);
            let page = match timeout(REQUEST_TIMEOUT, asked).await {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => {
                    tracing::info!(agent = %self.name, %error, "the agent did not list its sessions");
                    break;
                }
                Err(_) => break,
            };
            found.extend(read_page(&page, &cwd, &self.name));
            cursor = next_page(&page);
            if cursor.is_none() || found.len() >= MAX_LISTED {
                break;
            }
        }
        found.truncate(MAX_LISTED);
        found.sort_by_key(|session| std::cmp::Reverse(session.used_ms));
        found
    }
}

/// The sessions of a page that are in the directory.
fn read_page(page: &Value, cwd: &Path, backend: &str) -> Vec<ListedSession> {
    let sessions = page["sessions"].as_array().map_or(&[][..], Vec::as_slice);
    let read = |session: &Value| {
        let id = session["sessionId"].as_str().filter(|id| is_id(id))?;
        let is_there = session["cwd"]
            .as_str()
            .is_none_or(|place| Path::new(place) == cwd);
        let saved = SavedSession {
            backend: backend.to_owned(),
            session_id: id.to_owned(),
            cwd: cwd.to_owned(),
            chosen: Chosen::default(),
        };
        let used = session["updatedAt"].as_str().and_then(parse_instant);
        is_there.then(|| ListedSession {
            id: id.to_owned(),
            title: one_line(session["title"].as_str().unwrap_or_default(), MAX_TITLE_CHARS),
            used_ms: used.map(|secs| secs.saturating_mul(1000)),
            state: saved.write(),
        })
    };
    sessions.iter().take(MAX_LISTED).filter_map(read).collect()
}

/// Where the next page begins.
fn next_page(page: &Value) -> Option<String> {
    let cursor = page["nextCursor"].as_str()?;
    (!cursor.is_empty() && cursor.len() <= MAX_CURSOR).then(|| cursor.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_sessions_of_its_directory_and_where_the_next_begins() {
        let page = json!({
            "sessions": [
                {"sessionId": "a", "cwd": "/w", "title": "One\ntwo", "updatedAt": "2026-11-15T02:41:00Z"},
                {"sessionId": "b", "cwd": "/elsewhere"},
                {"sessionId": "", "cwd": "/w"},
                {"sessionId": "c", "title": null},
                7,
            ],
            "nextCursor": "p2",
        });
        let found = read_page(&page, Path::new("/w"), "code");
        let ids: Vec<(&str, Option<i64>)> = found.iter().map(|found| (&*found.id, found.used_ms)).collect();
        assert_eq!(ids, [("a", Some(1_794_710_460_000)), ("c", None)]);
        assert_eq!(found[0].title, "One two");
        let (status, _) = SavedSession::read(&found[0].state, "code");
        assert!(format!("{status:?}").contains("Detached"), "{status:?}");
        assert_eq!(next_page(&page).as_deref(), Some("p2"));
        for last in [json!({}), json!({"nextCursor": ""}), json!({"nextCursor": null})] {
            assert_eq!(next_page(&last), None);
            assert!(read_page(&last, Path::new("/w"), "code").is_empty());
        }
    }
}
