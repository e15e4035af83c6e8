//! How long to wait before the next dial. Short delays return only after a connection that lasted.

use std::time::Duration;

use super::close_reason::Pace;
use super::rng::Rng;
use super::settings::LinkSettings;
use crate::backoff::Backoff;

/// Upper bound on any `Retry-After`.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// A first refusal of the credentials may be temporary: the delay starts at an eighth of its full length.
const FIRST_REFUSAL_DIVISOR: u32 = 8;

/// The delays between dials.
#[derive(Clone, Copy, Debug)]
pub(super) struct RedialDelay {
    losses: Backoff,
    refusals: Backoff,
    min: Duration,
}

impl RedialDelay {
    pub(super) fn new(settings: &LinkSettings) -> Self {
        let refused = settings.refused_retry;
        Self {
            losses: Backoff::new(settings.backoff_min, settings.backoff_max),
            refusals: Backoff::new(refused / FIRST_REFUSAL_DIVISOR, refused),
            min: settings.backoff_floor,
        }
    }

    /// A connection has lasted long enough.
    pub(super) fn reset(&mut self) {
        self.losses.reset();
        self.refusals.reset();
    }

    /// The delay after a loss.
    pub(super) fn after_loss(&mut self, pace: Pace, rng: &mut Rng) -> Duration {
        let (own, retry_after) = match pace {
            Pace::Immediate => return Duration::ZERO,
            Pace::Backoff { retry_after } => (self.next(rng), retry_after),
            Pace::Slow { retry_after } => {
                self.next(rng);
                (self.next_refused(rng), retry_after)
            }
        };
        own.max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER))
    }

    fn next(&mut self, rng: &mut Rng) -> Duration {
        self.losses.next_delay_with_jitter(rng.next_u64()).max(self.min)
    }

    /// With a quarter of jitter to either side.
    fn next_refused(&mut self, rng: &mut Rng) -> Duration {
        let delay = self.refusals.next_delay();
        delay
            .saturating_sub(delay / 4)
            .saturating_add(rng.up_to(delay / 2))
    }
}
