//! The record of calls, bounded, without the token.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::feed::micros;

/// Letters of a call's parameters by which the page filters; all of them are asked for.
const SHOWN_TEXT: usize = 600;

/// One call of the bot.
#[derive(Clone, Debug)]
pub struct BotApiCall {
    /// Its place among all calls since the start.
    pub sequence: u64,
    /// When it came.
    pub at: Instant,
    /// When it came, by the wall clock.
    pub date: SystemTime,
    /// The method, as the documentation writes it; as it was written when there is none of this name.
    pub method: String,
    /// Its parameters. Files are objects with `file`, `bytes` and `mime`.
    pub params: Value,
    /// The status of the answer; `None` while there is none.
    pub status: Option<u16>,
    /// The answer, without the updates of `getUpdates`; `null` while there is none.
    pub answer: Value,
    /// How long the answer took.
    pub took: Option<Duration>,
    /// Its place among all changes of the record: it is there twice, when it comes and when it is answered.
    pub change: u64,
}

impl BotApiCall {
    /// The chat that it names.
    pub fn chat_id(&self) -> Option<i64> {
        match &self.params["chat_id"] {
            Value::Number(id) => id.as_i64(),
            Value::String(id) => id.parse().ok(),
            _ => None,
        }
    }
}

/// Calls, newest last.
pub struct CallLog {
    calls: VecDeque<BotApiCall>,
    limit: usize,
    counted: u64,
    changes: u64,
}

impl CallLog {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            calls: VecDeque::new(),
            limit,
            counted: 0,
            changes: 0,
        }
    }

    /// Records a call that just came; returns its number.
    pub(super) fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.counted += 1;
        self.changes += 1;
        self.calls.push_back(BotApiCall {
            sequence: self.counted,
            at: Instant::now(),
            date: SystemTime::now(),
            method: method.to_owned(),
            params,
            status: None,
            answer: Value::Null,
            took: None,
            change: self.changes,
        });
        while self.calls.len() > self.limit {
            self.calls.pop_front();
        }
        self.counted
    }

    /// Records the answer.
    pub(super) fn end(&mut self, sequence: u64, status: u16, answer: Value) {
        let found = self.calls.iter_mut().rev().find(|call| call.sequence == sequence);
        if let Some(call) = found {
            call.status = Some(status);
            call.answer = answer;
            call.took = Some(call.at.elapsed());
            self.changes += 1;
            call.change = self.changes;
        }
    }

    /// Calls from this number on.
    pub fn since(&self, sequence: u64) -> impl Iterator<Item = &BotApiCall> {
        self.calls.iter().filter(move |call| call.sequence >= sequence)
    }

    /// How often the record changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// How many there were.
    pub(super) fn counted(&self) -> u64 {
        self.counted
    }
}

/// A call as the page lists it: to whom it went, and one line about it.
pub(super) fn row(call: &BotApiCall, to: &str, about: &str) -> Value {
    let params = call.params.to_string();
    json!({
        "n": call.sequence,
        "t": micros(call.date.duration_since(UNIX_EPOCH).unwrap_or_default()),
        "to": to,
        "type": call.method,
        "about": about,
        "pending": call.status.is_none(),
        "bad": call.status.is_some_and(|status| status >= 400),
        "took": call.took.map(|took| took.as_secs_f64() * 1000.0),
        "text": crate::text::truncate(&params, SHOWN_TEXT),
    })
}
