//! Limits on how often a bot may call.

use std::time::{Duration, Instant};

use crate::support::dev::{FloodControl, FloodLimits};

#[test]
fn calls_beyond_a_limit_are_recorded_and_refused_until_the_time_is_over() {
    let mut flood = FloodControl::with(FloodLimits::default());
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    for _ in 0..20 {
        assert_eq!(flood.admit("sendMessage", -5, at(0)), None);
    }
    assert_eq!(flood.admit("editMessageText", -5, at(1)), Some(60));
    assert_eq!(
        flood.admit("sendMessage", -5, at(30)),
        Some(32),
        "calls during a 429 make it longer"
    );
    assert_eq!(flood.admit("getMe", -5, at(30)), None);
    assert_eq!(flood.admit("sendMessage", 5, at(30)), None, "another chat");
    assert_eq!(flood.admit("sendMessage", -5, at(63)), None);
    assert_eq!(flood.violations().count(), 2);
    let mut watched = FloodControl::with(FloodLimits {
        is_enforced: false,
        ..FloodLimits::default()
    });
    for _ in 0..21 {
        assert_eq!(watched.admit("sendChatAction", 5, at(0)), None);
    }
    assert_eq!(watched.violations().next().unwrap().limit, "show calls in 5 s");
}
