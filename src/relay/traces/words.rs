//! The words that a trace may hold, and no others.

use crate::agent::FailureClass;
use crate::store::TurnState;
use crate::wire::Action;

/// The longest name of a platform that is told; names come from the other end.
const LONGEST_PLATFORM: usize = 32;

/// How a turn ended of which the connector will not have the answer.
pub(super) const DECLINED: &str = "declined";

/// A platform's name, unless it is none that anybody would give to one.
pub(super) fn known_word(platform: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_' || byte == b'-';
    let is_name = !platform.is_empty() && platform.len() <= LONGEST_PLATFORM && platform.bytes().all(plain);
    if is_name { platform } else { "other" }.to_owned()
}

pub(super) fn op_word(name: &str) -> &'static str {
    Action::OPS
        .into_iter()
        .find(|known| *known == name)
        .unwrap_or("other")
}

pub(super) fn class_word(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Unavailable => "unavailable",
        FailureClass::Credentials => "credentials",
        FailureClass::Timeout => "timeout",
        FailureClass::Protocol => "protocol",
        FailureClass::Crashed => "crashed",
        FailureClass::Reported => "reported",
        FailureClass::Internal => "internal",
    }
}

pub(super) fn state_word(state: TurnState) -> &'static str {
    match state {
        TurnState::Done => "done",
        TurnState::Stopped => "stopped",
        TurnState::Failed => "failed",
        TurnState::Interrupted => "interrupted",
        _ => "other",
    }
}
