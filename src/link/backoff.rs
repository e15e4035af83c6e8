//! How long to wait before the next dial. The way back to short waits is earned, not given.

use std::time::Duration;

use super::chance::Chance;
use super::settings::LinkSettings;
use super::verdict::Pace;

/// Nobody's `Retry-After` keeps us away for longer than this.
pub(super) const RETRY_AFTER_CEILING: Duration = Duration::from_secs(600);

/// A first refusal of the credentials may be a passing one; this often the wait doubles to its full length.
const REFUSAL_STEPS: u32 = 3;

/// Counts the losses since a connection last held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    losses: u32,
    refusals: u32,
}

impl Backoff {
    /// A connection has held for long enough.
    pub(super) fn earn_back(&mut self) {
        *self = Self::default();
    }

    /// The wait after a loss.
    pub(super) fn after_loss(
        &mut self,
        pace: Pace,
        settings: &LinkSettings,
        chance: &mut Chance,
    ) -> Duration {
        let (own, asked) = match pace {
            Pace::AtOnce => return Duration::ZERO,
            Pace::Backoff { retry_after } => (self.grow(settings, chance), retry_after),
            Pace::Slow { retry_after } => {
                self.grow(settings, chance);
                (self.grow_refused(settings, chance), retry_after)
            }
        };
        own.max(asked.unwrap_or_default().min(RETRY_AFTER_CEILING))
    }

    fn grow(&mut self, settings: &LinkSettings, chance: &mut Chance) -> Duration {
        let doubled = settings
            .backoff_min
            .saturating_mul(1_u32.checked_shl(self.losses).unwrap_or(u32::MAX));
        self.losses = self.losses.saturating_add(1).min(31);
        chance
            .up_to(doubled.min(settings.backoff_max))
            .max(settings.backoff_floor)
    }

    /// An eighth of the full wait at first, and a quarter of it to either side.
    fn grow_refused(&mut self, settings: &LinkSettings, chance: &mut Chance) -> Duration {
        let wait = settings.refused_retry / (1 << REFUSAL_STEPS.saturating_sub(self.refusals));
        self.refusals = self.refusals.saturating_add(1).min(REFUSAL_STEPS);
        wait.saturating_sub(wait / 4)
            .saturating_add(chance.up_to(wait / 2))
    }
}
