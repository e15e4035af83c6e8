//! Where a relay stands on its way to sleep, and what the clocks say about it.
//!
//! It decides from two clocks alone and reads neither: one stands still while the machine is frozen, the other does not.

use std::time::Duration;

use crate::link::{Deadline, Moment};

/// How long a machine may take to freeze after it was told to; a dial in between would be frozen with it.
const FENCE: Duration = Duration::from_secs(15);
/// How often the clocks are looked at while the machine may freeze at any moment.
const FENCE_GLANCE: Duration = Duration::from_millis(250);
/// How often they are looked at during a sleep.
const SLEEP_GLANCE: Duration = Duration::from_secs(1);
/// A wall clock that runs ahead by more than this means that the machine was frozen.
const FREEZE: Duration = Duration::from_secs(5);

/// Where the relay stands on its way to sleep.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Not on its way.
    Awake,
    /// The connector is asked to buffer.
    Asking,
    /// The socket is being closed.
    Leaving,
    /// There is no socket, and the machine is being told to freeze.
    Suspending {
        /// What the clocks said last.
        looked: Moment,
    },
    /// The machine was told to freeze, and has or has not.
    Fenced {
        /// When it has, or will not.
        until: Deadline,
    },
    /// There is no socket until there is a reason for one.
    Dormant {
        /// What the clocks said last.
        looked: Moment,
        /// When it has been long enough.
        until: Deadline,
    },
    /// There is no socket yet, and the transport was told to dial.
    Waking,
    /// The process is to end.
    Over,
}

impl Stage {
    /// The machine was told to freeze.
    pub(super) fn fenced(now: Moment) -> Self {
        Self::Fenced {
            until: Deadline::after(now, FENCE),
        }
    }

    /// Whether something is to be done at its beginning that has to be waited for.
    pub(super) fn has_errand(self) -> bool {
        matches!(self, Self::Asking | Self::Leaving | Self::Suspending { .. })
    }

    /// Whether there is no socket, on purpose.
    pub(super) fn is_asleep(self) -> bool {
        match self {
            Self::Suspending { .. } | Self::Fenced { .. } | Self::Dormant { .. } | Self::Waking => true,
            Self::Awake | Self::Asking | Self::Leaving | Self::Over => false,
        }
    }

    /// Whether the machine may freeze at any moment, and a socket with it.
    pub(super) fn may_freeze(self, now: Moment) -> bool {
        match self {
            Self::Suspending { .. } => !self.was_frozen(now),
            Self::Fenced { until } => !until.passed(now),
            Self::Awake | Self::Asking | Self::Leaving | Self::Dormant { .. } | Self::Waking | Self::Over => {
                false
            }
        }
    }

    /// Whether the machine was frozen since the clocks were looked at.
    pub(super) fn was_frozen(self, now: Moment) -> bool {
        match self {
            Self::Suspending { looked } | Self::Dormant { looked, .. } => frozen_for(looked, now) > FREEZE,
            Self::Awake | Self::Asking | Self::Leaving | Self::Fenced { .. } | Self::Waking | Self::Over => {
                false
            }
        }
    }

    /// Looks at the clocks; true when they end the sleep.
    pub(super) fn glance(&mut self, now: Moment) -> bool {
        let frozen = self.was_frozen(now);
        match self {
            Self::Suspending { looked } => {
                *looked = now;
                frozen
            }
            Self::Dormant { looked, until } => {
                *looked = now;
                frozen || until.passed(now)
            }
            Self::Fenced { until } => until.passed(now),
            Self::Awake | Self::Asking | Self::Leaving | Self::Waking | Self::Over => false,
        }
    }

    /// How soon the clocks are to be looked at again.
    pub(super) fn next_glance(self) -> Option<Duration> {
        match self {
            Self::Suspending { .. } | Self::Fenced { .. } => Some(FENCE_GLANCE),
            Self::Dormant { .. } => Some(SLEEP_GLANCE),
            Self::Awake | Self::Asking | Self::Leaving | Self::Waking | Self::Over => None,
        }
    }
}

/// How much further the wall clock went than the other, which stands still in a frozen machine.
fn frozen_for(before: Moment, now: Moment) -> Duration {
    let wall = now.unix_ms.saturating_sub(before.unix_ms).max(0).unsigned_abs();
    Duration::from_millis(wall).saturating_sub(now.mono.saturating_sub(before.mono))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn at(mono: u64, unix_ms: i64) -> Moment {
        Moment {
            mono: Duration::from_millis(mono),
            unix_ms,
        }
    }

    #[test]
    fn a_freeze_is_what_only_the_wall_clock_saw() {
        assert_eq!(frozen_for(at(0, 0), at(1000, 1000)), Duration::ZERO);
        assert_eq!(frozen_for(at(0, 0), at(1000, 61_000)), Duration::from_secs(60));
        assert_eq!(frozen_for(at(0, 50_000), at(1000, 0)), Duration::ZERO, "set back");
    }

    #[test]
    fn a_machine_that_does_not_freeze_is_waited_for_no_longer_than_the_fence() {
        let mut stage = Stage::fenced(at(0, HOUR));
        assert!(!stage.glance(at(14_900, HOUR + 14_900)) && stage.may_freeze(at(14_900, HOUR + 14_900)));
        assert!(stage.glance(at(15_000, HOUR + 15_000)) && !stage.may_freeze(at(15_000, HOUR + 15_000)));
        assert!(
            stage.glance(at(15_000, 0)),
            "a clock that was set back puts nothing off"
        );
    }

    #[test]
    fn a_machine_that_comes_back_ends_the_fence_at_the_first_look() {
        let mut stage = Stage::fenced(at(0, 0));
        assert!(!stage.glance(at(2500, 2500)));
        assert!(stage.glance(at(2750, HOUR)), "an hour went by on the wall alone");
    }

    #[test]
    fn a_machine_that_freezes_before_the_answer_is_noticed_without_it() {
        let mut stage = Stage::Suspending { looked: at(0, 0) };
        for look in 1..100_u32 {
            let now = at(u64::from(look) * 250, i64::from(look) * 250);
            assert!(!stage.glance(now) && stage.may_freeze(now), "only slow: {look}");
        }
        let back = at(25_000, HOUR);
        assert!(stage.was_frozen(back) && !stage.may_freeze(back));
        assert!(stage.glance(back));
        assert!(!stage.glance(at(25_250, HOUR + 250)), "once");
    }

    #[test]
    fn a_sleep_without_a_socket_ends_after_its_time_and_after_a_freeze() {
        let asleep = |now| Stage::Dormant {
            looked: now,
            until: Deadline::after(now, Duration::from_secs(60)),
        };
        let mut stage = asleep(at(0, 0));
        assert!(!stage.glance(at(1000, 1000)) && !stage.glance(at(2000, 6900)));
        assert!(stage.glance(at(60_000, 64_900)), "long enough");
        let mut stage = asleep(at(0, 0));
        assert!(stage.glance(at(1000, 6100)), "frozen for five seconds");
    }
}
