//! The record of calls, bounded, without the token.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::feed::micros;

/// Calls that a new page is shown.
const SHOWN_CALLS: u64 = 500;
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

    /// What a page has seen of the calls when it opens.
    pub(super) fn cursor(&self) -> CallCursor {
        CallCursor {
            first: (self.counted + 1).saturating_sub(SHOWN_CALLS),
            changes: 0,
        }
    }

    /// The calls that came or were answered since a page looked, as it lists them: to whom they went, and one line about each.
    pub(super) fn news(
        &self,
        cursor: &mut CallCursor,
        to: &str,
        about: impl Fn(&BotApiCall) -> String,
    ) -> Vec<Value> {
        let calls = self.since(cursor.first);
        let rows = calls.filter(|call| call.change > cursor.changes);
        let rows = rows.map(|call| row(call, to, &about(call))).collect();
        cursor.changes = self.changes;
        rows
    }

    /// A call with its answer, as the page shows it.
    pub(super) fn details(&self, number: u64) -> Option<Value> {
        let call = self.since(number).next().filter(|call| call.sequence == number)?;
        // As text, so that the parameters stay before the answer.
        let text = format!(
            r#"{{"method":{},"params":{},"status":{},"answer":{}}}"#,
            json!(call.method),
            call.params,
            json!(call.status),
            call.answer
        );
        Some(json!({ "text": text }))
    }

    /// How many there were.
    pub(super) fn counted(&self) -> u64 {
        self.counted
    }
}

/// What a page has seen of the calls.
pub struct CallCursor {
    first: u64,
    changes: u64,
}

/// A call as the page lists it.
fn row(call: &BotApiCall, to: &str, about: &str) -> Value {
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
