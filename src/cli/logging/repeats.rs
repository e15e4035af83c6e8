//! How often one line may be said: the first few in a window pass, the rest are counted and told once.
//!
//! Only decides; time comes in as an argument. It never holds more than a bounded number of kinds of lines: at the bound
//! a line of a new kind passes without being counted, so that what is new is never what is missing.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Kinds of lines that are counted at the same time.
const MOST_KINDS: usize = 256;

/// What passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// Lines of one kind in each window; 0 for any number.
    pub(super) burst: u32,
    /// How long a window is; zero for no limit.
    pub(super) window: Duration,
}

impl Allowance {
    fn is_unlimited(self) -> bool {
        self.burst == 0 || self.window.is_zero()
    }
}

/// Lines that were left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftOut<D> {
    /// What they were like.
    pub(super) like: D,
    /// How many.
    pub(super) count: u64,
}

/// One kind of line in its window.
struct Kind<D> {
    since: Duration,
    passed: u32,
    /// What was left out and is not told yet, and when it is to be told.
    owed: Option<(LeftOut<D>, Duration)>,
}

/// Which lines were said lately. A kind is known by `K` and described by `D`.
pub(super) struct Repeats<K, D> {
    allowance: Allowance,
    kinds: HashMap<K, Kind<D>>,
}

impl<K: Eq + Hash, D> Repeats<K, D> {
    pub(super) fn new(allowance: Allowance) -> Self {
        Self {
            allowance,
            kinds: HashMap::new(),
        }
    }

    /// From now on another allowance holds. What was left out is still told.
    pub(super) fn allow(&mut self, allowance: Allowance) {
        self.allowance = allowance;
    }

    /// Whether a line of this kind is said at `now`; described only when it is the first to be left out.
    pub(super) fn passes(&mut self, kind: K, now: Duration, describe: impl FnOnce() -> D) -> bool {
        let Allowance { burst, window } = self.allowance;
        if self.allowance.is_unlimited() {
            return true;
        }
        if self.kinds.len() >= MOST_KINDS && !self.kinds.contains_key(&kind) {
            self.kinds
                .retain(|_, known| known.owed.is_some() || now < known.since.saturating_add(window));
            if self.kinds.len() >= MOST_KINDS {
                return true;
            }
        }
        let known = self.kinds.entry(kind).or_insert(Kind {
            since: now,
            passed: 0,
            owed: None,
        });
        if now >= known.since.saturating_add(window) {
            (known.since, known.passed) = (now, 0);
        }
        if known.passed < burst {
            known.passed += 1;
            return true;
        }
        let due = known.since.saturating_add(window);
        let (left_out, _) = known.owed.get_or_insert_with(|| {
            let like = describe();
            (LeftOut { like, count: 0 }, due)
        });
        left_out.count = left_out.count.saturating_add(1);
        false
    }

    /// When something is to be told next.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let owed = self.kinds.values().filter_map(|known| known.owed.as_ref());
        owed.map(|(_, due)| *due).min()
    }

    /// What is to be told at `now`; each once.
    pub(super) fn due(&mut self, now: Duration) -> Vec<LeftOut<D>> {
        let kinds = self.kinds.values_mut();
        kinds
            .filter_map(|known| known.owed.take_if(|(_, due)| *due <= now))
            .map(|(left_out, _)| left_out)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn repeats(burst: u32) -> Repeats<u32, u32> {
        Repeats::new(Allowance {
            burst,
            window: WINDOW,
        })
    }

    fn say(repeats: &mut Repeats<u32, u32>, kind: u32, secs: u64, times: usize) -> usize {
        (0..times)
            .filter(|_| repeats.passes(kind, at(secs), || kind))
            .count()
    }

    #[test]
    fn the_first_few_pass_and_the_rest_is_told_once_when_the_window_is_over() {
        let mut repeats = repeats(5);
        assert_eq!(say(&mut repeats, 1, 10, 5), 5);
        assert_eq!(repeats.next_due(), None);
        assert_eq!(say(&mut repeats, 1, 30, 7), 0);
        assert_eq!(repeats.next_due(), Some(at(70)));
        assert_eq!(repeats.due(at(69)), []);
        assert_eq!(repeats.due(at(70)), [LeftOut { like: 1, count: 7 }]);
        assert_eq!((repeats.due(at(500)), repeats.next_due()), (vec![], None));
        assert_eq!(say(&mut repeats, 1, 70, 6), 5, "a new window");
        assert_eq!(repeats.next_due(), Some(at(130)));
    }

    #[test]
    fn kinds_do_not_count_for_each_other() {
        let mut repeats = repeats(2);
        assert_eq!((say(&mut repeats, 1, 0, 9), say(&mut repeats, 2, 0, 2)), (2, 2));
        assert_eq!(repeats.due(at(60)).len(), 1);
    }

    #[test]
    fn what_nobody_fetched_goes_on_counting() {
        let mut repeats = repeats(1);
        assert_eq!(say(&mut repeats, 1, 0, 3), 1);
        assert_eq!(
            say(&mut repeats, 1, 60, 3),
            1,
            "a new window, the old count not told yet"
        );
        assert_eq!(repeats.due(at(61)), [LeftOut { like: 1, count: 4 }]);
    }

    #[test]
    fn zero_is_no_limit() {
        for allowance in [(0, WINDOW), (3, Duration::ZERO)] {
            let (burst, window) = allowance;
            let mut repeats: Repeats<u32, u32> = Repeats::new(Allowance { burst, window });
            assert_eq!(say(&mut repeats, 1, 0, 100), 100);
            assert_eq!(repeats.next_due(), None);
        }
    }

    #[test]
    fn another_allowance_holds_at_once_and_loses_nothing() {
        let mut repeats = repeats(1);
        assert_eq!(say(&mut repeats, 1, 0, 3), 1);
        repeats.allow(Allowance {
            burst: 0,
            window: WINDOW,
        });
        assert_eq!(say(&mut repeats, 1, 1, 3), 3);
        assert_eq!(repeats.due(at(60)), [LeftOut { like: 1, count: 2 }]);
    }

    #[test]
    fn at_the_bound_a_new_kind_passes_and_the_quiet_ones_make_room() {
        let mut repeats = repeats(1);
        let most = u32::try_from(MOST_KINDS).unwrap();
        for kind in 0..most {
            assert_eq!(say(&mut repeats, kind, 0, 2), 1);
        }
        assert_eq!(say(&mut repeats, most, 1, 50), 50, "uncounted");
        assert_eq!(repeats.kinds.len(), MOST_KINDS);
        let told: u64 = repeats.due(at(60)).iter().map(|left_out| left_out.count).sum();
        assert_eq!(told, u64::from(most), "nobody's count was lost");
        assert_eq!(say(&mut repeats, most, 61, 50), 1, "there is room again");
        assert_eq!(repeats.kinds.len(), 1);
    }
}
