//! The checks: what is expected by which section of `docs/wire.md`, and whether that was seen. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::seen::{Ending, OpRequest, Seen, SeenConnection};
use crate::text::truncate;
use crate::wire::{ConnectorFrame, FROM_CONNECTOR, close_code, problems};

/// Characters of a value that a report quotes.
const MAX_QUOTED: usize = 200;
/// Problems of frames that one check lists.
const MAX_LISTED: usize = 5;

/// One check.
pub(super) struct Check {
    pub(super) name: &'static str,
    /// The heading in `docs/wire.md`.
    pub(super) section: &'static str,
    pub(super) expected: &'static str,
    pub(super) judge: fn(&Seen) -> CheckOutcome,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CheckOutcome {
    Passed,
    /// With what came instead.
    Failed(String),
    /// With the reason.
    Skipped(String),
}

/// Every check, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "auth.missing",
        section: "Authentication",
        expected: "a connection without a token is upgraded and closed with 4401",
        judge: |seen| refused(&seen.without_token, None),
    },
    Check {
        name: "auth.wrong",
        section: "Authentication",
        expected: "a connection with a wrong token is upgraded and closed with 4401",
        judge: |seen| refused(&seen.wrong_token, None),
    },
    Check {
        name: "auth.expired",
        section: "Authentication",
        expected: "a connection with an expired token is upgraded and closed with 4401 and the reason `expired`",
        judge: |seen| refused(&seen.expired_token, Some("expired")),
    },
    Check {
        name: "handshake.descriptor",
        section: "Handshake",
        expected: "every hello is answered with one descriptor of its platform",
        judge: described,
    },
    Check {
        name: "handshake.fields",
        section: "Capabilities",
        expected: "every descriptor has the required fields, each with its type",
        judge: |seen| well_formed(seen, |kind| kind == "descriptor"),
    },
    Check {
        name: "frames.fields",
        section: "Frames from the connector",
        expected: "every line is a JSON object, and every known frame has its fields with their types",
        judge: |seen| well_formed(seen, |kind| kind != "descriptor"),
    },
    Check {
        name: "frames.unknown",
        section: "Framing",
        expected: "a frame of an unknown type is ignored, and the next one is handled",
        judge: |seen| match seen.after_unknown_frame.as_ref() {
            Some(request) if answers(&seen.first, request) > 0 => CheckOutcome::Passed,
            Some(request) => CheckOutcome::Failed(format!(
                "no result of `{}` after it; {}",
                request.op,
                ended(&seen.first.ending)
            )),
            None => not_connected(),
        },
    },
    Check {
        name: "results.unknown_op",
        section: "Results",
        expected: "an op that does not exist is answered with `success: false` and an `error`",
        judge: unknown_op,
    },
    Check {
        name: "results.once",
        section: "Results",
        expected: "every request is answered once",
        judge: answered_once,
    },
    Check {
        name: "delivery.buffer_id",
        section: "Delivery",
        expected: "a message comes as `inbound` with an event and a `bufferId`",
        judge: |seen| match &seen.message {
            Some(message) if message.buffer_id.is_some() => CheckOutcome::Passed,
            Some(message) => CheckOutcome::Failed(format!("no `bufferId` beside {}", quoted(&message.event))),
            None => no_message(seen),
        },
    },
    Check {
        name: "delivery.again",
        section: "Delivery",
        expected: "what was not acknowledged comes again on the next connection, with the same `bufferId`",
        judge: redelivered,
    },
    Check {
        name: "delivery.acknowledged",
        section: "Delivery",
        expected: "what was acknowledged does not come again",
        judge: acknowledged,
    },
    Check {
        name: "results.send",
        section: "Results",
        expected: "a `send` to the chat of the message is answered with `success: true` and a `message_id`",
        judge: sent,
    },
    Check {
        name: "results.repeated",
        section: "Results",
        expected: "the same frame again is answered with the first result, and posts nothing",
        judge: repeated,
    },
    Check {
        name: "interrupt.silent",
        section: "Interrupts",
        expected: "an `interrupt` for a session that runs nowhere is not sent back",
        judge: |seen| match &seen.interrupted {
            None => not_connected(),
            Some(key) => {
                let back = seen.first.of_type("interrupt_inbound");
                match back.filter(|frame| frame["session_key"] == key.as_str()).count() {
                    0 => CheckOutcome::Passed,
                    _ => CheckOutcome::Failed(
                        "`interrupt_inbound` with the same session key came back".to_owned(),
                    ),
                }
            }
        },
    },
    Check {
        name: "sleep.acknowledged",
        section: "Sleep",
        expected: "`going_idle` is answered with `going_idle_ack`",
        judge: |seen| match &seen.third.ending {
            Ending::NotTried => not_connected(),
            _ if seen.third.of_type("going_idle_ack").next().is_some() => CheckOutcome::Passed,
            ending => CheckOutcome::Failed(format!("no `going_idle_ack`; {}", ended(ending))),
        },
    },
    Check {
        name: "sleep.buffered",
        section: "Sleep",
        expected: "a message that is written after `going_idle_ack` comes on the next connection, and not before",
        judge: buffered,
    },
    Check {
        name: "close.open",
        section: "Close codes",
        expected: "a connection with a good token stays open until the relay closes it",
        judge: |seen| {
            let closed = seen
                .good()
                .into_iter()
                .find_map(|(name, session)| match &session.ending {
                    Ending::NotTried | Ending::Open => None,
                    ending => Some(format!("{name}: {}", ended(ending))),
                });
            closed.map_or(CheckOutcome::Passed, CheckOutcome::Failed)
        },
    },
    Check {
        name: "close.answered",
        section: "Close codes",
        expected: "a close with 1000 is answered with a close",
        judge: |seen| {
            let mut tried = seen
                .good()
                .into_iter()
                .filter_map(|(name, session)| Some((name, session.close_answered?)));
            match tried.clone().count() {
                0 => not_connected(),
                _ => match tried.find(|(_, answered)| !answered) {
                    Some((name, _)) => {
                        CheckOutcome::Failed(format!("{name}: the close was not answered in time"))
                    }
                    None => CheckOutcome::Passed,
                },
            }
        },
    },
    Check {
        name: "close.second",
        section: "Close codes",
        expected: "of two connections of one gateway the older is closed with 4000, or the newer with 1008; never with 4401",
        judge: second_connection,
    },
];

fn refused(session: &SeenConnection, reason: Option<&str>) -> CheckOutcome {
    match &session.ending {
        Ending::Closed {
            code: Some(close_code::UNAUTHORIZED),
            reason: given,
        } => match reason {
            Some(wanted) if !given.trim().eq_ignore_ascii_case(wanted) => {
                CheckOutcome::Failed(format!("closed with 4401 and the reason `{}`", cut(given)))
            }
            _ => CheckOutcome::Passed,
        },
        Ending::Open if session.of_type("descriptor").next().is_some() => {
            CheckOutcome::Failed("it was accepted: a descriptor came".to_owned())
        }
        ending => CheckOutcome::Failed(ended(ending)),
    }
}

fn described(seen: &Seen) -> CheckOutcome {
    let described = seen.first.described();
    for platform in &seen.platforms {
        let count = match platform.as_str() {
            // Whoever names no platform is answered with any.
            ANY_PLATFORM => described.len().min(1),
            platform => described.iter().filter(|known| **known == platform).count(),
        };
        let wanted = seen.platforms.iter().filter(|other| *other == platform).count();
        if count != wanted {
            let came = if described.is_empty() {
                "no descriptor".to_owned()
            } else {
                format!("descriptors for {}", described.join(", "))
            };
            return CheckOutcome::Failed(format!(
                "hello for `{platform}`: {came}; {}",
                ended(&seen.first.ending)
            ));
        }
    }
    CheckOutcome::Passed
}

/// The platform of a relay that names none.
const ANY_PLATFORM: &str = "relay";

fn well_formed(seen: &Seen, is_meant: fn(&str) -> bool) -> CheckOutcome {
    if !seen.first.is_open() && seen.first.frames.is_empty() && seen.first.unreadable.is_empty() {
        return not_connected();
    }
    let sessions = || seen.good().into_iter().map(|(_, session)| session);
    let mut wrong: Vec<String> = Vec::new();
    if is_meant("") {
        let lines = sessions().flat_map(|session| &session.unreadable);
        wrong.extend(lines.map(|line| format!("not a JSON object: {}", cut(line))));
    }
    for frame in sessions().flat_map(|session| &session.frames) {
        let kind = frame["type"].as_str().unwrap_or_default();
        if is_meant(kind) && !is_newer(frame) {
            let found = problems(FROM_CONNECTOR, frame);
            wrong.extend(
                found
                    .into_iter()
                    .map(|problem| format!("{kind}: {}", cut(&problem))),
            );
        }
    }
    let mut listed = BTreeSet::new();
    wrong.retain(|problem| listed.insert(problem.clone()));
    if wrong.is_empty() {
        return CheckOutcome::Passed;
    }
    let more = wrong.len().saturating_sub(MAX_LISTED);
    wrong.truncate(MAX_LISTED);
    let more = if more == 0 {
        String::new()
    } else {
        format!("; and {more} more")
    };
    CheckOutcome::Failed(wrong.join("; ") + &more)
}

/// A frame of a type that a newer contract may have.
fn is_newer(frame: &Value) -> bool {
    let decoded = ConnectorFrame::decode(frame.to_string().as_bytes());
    matches!(decoded, Ok(ConnectorFrame::Unknown { kind: Some(_), .. }))
}

fn unknown_op(seen: &Seen) -> CheckOutcome {
    let Some(request) = &seen.unknown_op else {
        return not_connected();
    };
    match seen.first.results(&request.id).next() {
        Some(result) if result["success"] == false && !result["error"].is_null() => CheckOutcome::Passed,
        Some(result) => CheckOutcome::Failed(quoted(result)),
        None => CheckOutcome::Failed(format!("no result; {}", ended(&seen.first.ending))),
    }
}

fn answered_once(seen: &Seen) -> CheckOutcome {
    let first = [&seen.unknown_op, &seen.after_unknown_frame];
    let requests = first.into_iter().flatten().map(|request| (&seen.first, request));
    let requests: Vec<_> = requests
        .chain(seen.send.iter().map(|request| (&seen.second, request)))
        .collect();
    if requests.is_empty() {
        return not_connected();
    }
    for (session, request) in requests {
        let came = answers(session, request);
        if came != request.sent {
            return CheckOutcome::Failed(format!(
                "`{}` was requested {} and answered {}",
                request.op,
                times(request.sent),
                times(came)
            ));
        }
    }
    CheckOutcome::Passed
}

fn redelivered(seen: &Seen) -> CheckOutcome {
    let Some(message) = &seen.message else {
        return no_message(seen);
    };
    let Some(buffer_id) = &message.buffer_id else {
        return CheckOutcome::Skipped("the message has no `bufferId`".to_owned());
    };
    if seen.second.has_message(buffer_id) {
        return CheckOutcome::Passed;
    }
    let message_id = &message.event["message_id"];
    let renamed = seen
        .second
        .messages()
        .find(|(_, event)| !message_id.is_null() && event["message_id"] == *message_id);
    CheckOutcome::Failed(match renamed {
        Some((id, _)) => format!(
            "the message has the `bufferId` {} now, and had {}",
            id.as_deref().map_or("(none)", cut),
            cut(buffer_id)
        ),
        None => format!("it did not come; {}", ended(&seen.second.ending)),
    })
}

fn acknowledged(seen: &Seen) -> CheckOutcome {
    let Some(message) = &seen.message else {
        return no_message(seen);
    };
    match &message.buffer_id {
        None => CheckOutcome::Skipped("the message has no `bufferId`".to_owned()),
        Some(id) if seen.third.has_message(id) || seen.fourth.has_message(id) => {
            CheckOutcome::Failed(format!("`{}` came again after its `inbound_ack`", cut(id)))
        }
        Some(_) if seen.third.ending == Ending::NotTried => not_connected(),
        Some(_) => CheckOutcome::Passed,
    }
}

fn sent(seen: &Seen) -> CheckOutcome {
    let Some(request) = &seen.send else {
        return no_message(seen);
    };
    match seen.second.results(&request.id).next() {
        Some(result) if result["success"] == true && !result["message_id"].is_null() => CheckOutcome::Passed,
        Some(result) => CheckOutcome::Failed(quoted(result)),
        None => CheckOutcome::Failed(format!("no result; {}", ended(&seen.second.ending))),
    }
}

fn repeated(seen: &Seen) -> CheckOutcome {
    let Some(request) = &seen.send else {
        return no_message(seen);
    };
    let mut results = seen.second.results(&request.id);
    match (results.next(), results.last()) {
        (Some(first), Some(again)) if first["message_id"] == again["message_id"] => CheckOutcome::Passed,
        (Some(first), Some(again)) => {
            CheckOutcome::Failed(format!("{} first, {} then", quoted(first), quoted(again)))
        }
        (Some(_), None) => CheckOutcome::Failed("the second one was not answered".to_owned()),
        (None, _) => CheckOutcome::Skipped("the first one was not answered".to_owned()),
    }
}

fn buffered(seen: &Seen) -> CheckOutcome {
    if !seen.wrote_while_idle {
        return CheckOutcome::Skipped("needs --deliver COMMAND, which writes a message".to_owned());
    }
    let mut frames = seen.third.frames.iter();
    let early = frames
        .by_ref()
        .skip_while(|frame| frame["type"] != "going_idle_ack")
        .any(|frame| frame["type"] == "inbound");
    let known = seen
        .message
        .as_ref()
        .and_then(|message| message.buffer_id.as_ref());
    let came = seen
        .fourth
        .messages()
        .any(|(id, _)| id.is_some() && id.as_ref() != known);
    match (early, came) {
        (true, _) => CheckOutcome::Failed("it came on the same connection".to_owned()),
        (false, true) => CheckOutcome::Passed,
        (false, false) => CheckOutcome::Failed(format!(
            "it did not come on the next one; {}",
            ended(&seen.fourth.ending)
        )),
    }
}

fn second_connection(seen: &Seen) -> CheckOutcome {
    let code = |session: &SeenConnection| match &session.ending {
        Ending::Closed { code, .. } => Some(*code),
        _ => None,
    };
    match (code(&seen.older), code(&seen.newer)) {
        _ if seen.newer.ending == Ending::NotTried => not_connected(),
        (Some(Some(close_code::REPLACED)), None) | (None, Some(Some(close_code::POLICY))) => {
            CheckOutcome::Passed
        }
        (None, None) if seen.older.is_open() && seen.newer.is_open() => {
            CheckOutcome::Skipped("both stayed open, which is allowed".to_owned())
        }
        _ => CheckOutcome::Failed(format!(
            "the older: {}; the newer: {}",
            ended(&seen.older.ending),
            ended(&seen.newer.ending)
        )),
    }
}

fn answers(session: &SeenConnection, request: &OpRequest) -> usize {
    session.results(&request.id).count()
}

fn times(count: usize) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

fn not_connected() -> CheckOutcome {
    CheckOutcome::Skipped("there was no handshake".to_owned())
}

fn no_message(seen: &Seen) -> CheckOutcome {
    if seen.is_connected() {
        CheckOutcome::Skipped(seen.no_message.clone())
    } else {
        not_connected()
    }
}

/// How a connection ended, for people.
fn ended(ending: &Ending) -> String {
    match ending {
        Ending::NotTried => "it was not dialled".to_owned(),
        Ending::NotOpened {
            status: Some(status), ..
        } => format!("the upgrade was answered with HTTP status {status}"),
        Ending::NotOpened { status: None, error } => error.clone(),
        Ending::Open => "the connection stayed open".to_owned(),
        Ending::Closed {
            code: Some(code),
            reason,
        } => format!("the connector closed with {code} `{}`", cut(reason)),
        Ending::Closed { code: None, .. } => "the connector closed without a code".to_owned(),
        Ending::Broken(error) => format!("the connection broke: {}", cut(error)),
    }
}

fn quoted(value: &Value) -> String {
    cut(&value.to_string()).to_owned()
}

fn cut(text: &str) -> &str {
    truncate(text, MAX_QUOTED)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
