//! What the chats of a walk were shown, over all starts of its relay.

use std::collections::{HashMap, HashSet};

use hermes_relay::relay::{Record, SeenOp};
use serde_json::Value;

use super::agent::Run;

/// One message in a chat. An op that is sent again under the same id is the same message; an edit changes it.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) platform: String,
    pub(super) chat: String,
    pub(super) reply_to: Option<String>,
    pub(super) text: String,
    pub(super) action: Value,
    /// Its ids at the connector of the process that sent it.
    pub(super) ids: Vec<(usize, String)>,
}

impl Shown {
    pub(super) fn is_in(&self, platform: &str, chat: &str) -> bool {
        self.platform == platform && self.chat == chat
    }

    /// Its id, as it was last sent.
    pub(super) fn id(&self) -> &str {
        self.ids.last().map_or("", |(_, id)| id)
    }

    /// The code that answers name it by, if it is a question.
    pub(super) fn code(&self) -> Option<&str> {
        let (_, rest) = self.text.split_once("/approve ")?;
        rest.split(|c: char| !c.is_alphanumeric())
            .find(|word| word.len() > 1 && word.ends_with(|c: char| c.is_ascii_digit()))
    }

    /// What it answers or asks about, by the name and the number of the agent's run.
    pub(super) fn about(&self) -> Option<(&str, usize)> {
        let starts = ["re ", "May I "];
        let mut rests = starts.iter().flat_map(|start| {
            let found = self.text.match_indices(start);
            found.map(|(at, _)| &self.text[at + start.len()..])
        });
        rests.find_map(|rest| {
            let (name, rest) = rest.split_once(" run ")?;
            let number = rest.split(['.', '?']).next()?;
            Some((name, number.parse().ok()?))
        })
    }

    /// Whether it asks something.
    pub(super) fn is_question(&self) -> bool {
        self.text.contains("May I ") || self.text.contains(" talk to me?")
    }
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) shown: Vec<Shown>,
    pub(super) acked: HashSet<String>,
    by_op: HashMap<String, usize>,
    /// How much of the current connector's record was read.
    read: (usize, usize),
}

impl Seen {
    /// Another process has another connector.
    pub(super) fn restarted(&mut self) {
        self.read = (0, 0);
    }

    /// Reads what is new in a record; returns the messages that are.
    pub(super) fn take(&mut self, record: &Record, process: usize) -> std::ops::Range<usize> {
        let first = self.shown.len();
        for op in record.ops.iter().skip(self.read.0) {
            self.take_op(op, process);
        }
        self.acked.extend(record.acks.iter().skip(self.read.1).cloned());
        self.read = (record.ops.len(), record.acks.len());
        first..self.shown.len()
    }

    fn take_op(&mut self, op: &SeenOp, process: usize) {
        let id = (process, op.message_id.clone());
        let text = op.text().unwrap_or_default().to_owned();
        if op.kind() == Some("edit") {
            let edited = op.action["message_id"].as_str().unwrap_or_default().to_owned();
            // The end of a question may come from a process after the one that asked it, whose messages had the same ids.
            let is_late = text.contains("No longer asked") || text.contains(" talk to me?");
            let first_line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
            for process in (0..=process).rev().take(if is_late { usize::MAX } else { 1 }) {
                let id = (process, edited.clone());
                let mut shown = self.shown.iter_mut().filter(|shown| shown.ids.contains(&id));
                if let Some(shown) =
                    shown.find(|shown| !is_late || first_line(&shown.text) == first_line(&text))
                {
                    shown.text = text;
                    return;
                }
            }
            return;
        }
        if let Some(known) = self.by_op.get(&op.id.to_string()) {
            return self.shown[*known].ids.push(id);
        }
        self.by_op.insert(op.id.to_string(), self.shown.len());
        self.shown.push(Shown {
            platform: op.platform.clone().unwrap_or_default(),
            chat: op.chat().unwrap_or_default().to_owned(),
            reply_to: op.action["reply_to"].as_str().map(str::to_owned),
            text,
            action: op.action.clone(),
            ids: vec![id],
        });
    }

    /// The messages that contain a text.
    pub(super) fn with<'s>(&'s self, text: &'s str) -> impl Iterator<Item = &'s Shown> {
        self.shown.iter().filter(move |shown| shown.text.contains(text))
    }

    /// The messages that reply to one with this id.
    pub(super) fn replies<'s>(&'s self, id: &'s str) -> impl Iterator<Item = &'s Shown> {
        self.shown
            .iter()
            .filter(move |shown| shown.reply_to.as_deref() == Some(id))
    }

    /// The message that asks the question of a run.
    pub(super) fn question(&self, name: &str, number: usize) -> Option<&Shown> {
        let text = Run::question(name, number);
        self.shown.iter().rev().find(|shown| shown.text.contains(&text))
    }
}
