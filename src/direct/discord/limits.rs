//! When a request may go out, as far as the server's headers say: a bucket per route, a limit over all routes, and a budget of
//! invalid requests, beyond which Discord bans the address.

use std::time::Duration;

use crate::collections::BoundedCache;
use crate::direct::flood::{CallKind, FloodPermit, MAX_RETRY_AFTER};

/// Routes that are tracked; the least recently used starts afresh.
const MAX_ROUTES: usize = 4096;
/// Invalid requests (401, 403, 429) per window; Discord bans beyond 10,000 in 10 minutes.
const MAX_INVALID: u32 = 1_000;
const INVALID_WINDOW: Duration = Duration::from_secs(600);

/// What the headers of a response say about limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateHeaders {
    /// Requests that are left in the bucket.
    pub remaining: Option<u32>,
    /// When the bucket is full again.
    pub reset_after: Option<Duration>,
    /// How long to wait after a limit.
    pub retry_after: Option<Duration>,
    /// Whether the limit is that of the whole bot.
    pub is_global: bool,
    /// Whether others share the limit: it is not our fault.
    pub is_shared: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct RouteBucket {
    remaining: u32,
    reset_at: Duration,
}

/// The limits of a bot.
#[derive(Debug)]
pub struct RestLimits {
    routes: BoundedCache<String, RouteBucket>,
    silent_until: Duration,
    window_began: Duration,
    invalid: u32,
}

impl Default for RestLimits {
    fn default() -> Self {
        Self {
            routes: BoundedCache::new(MAX_ROUTES),
            silent_until: Duration::ZERO,
            window_began: Duration::ZERO,
            invalid: 0,
        }
    }
}

impl RestLimits {
    /// Whether there is room for a request of this route.
    pub fn room(&mut self, route: &str, kind: CallKind, now: Duration) -> FloodPermit {
        let bucket = self.routes.get(&route.to_owned()).copied().unwrap_or_default();
        let route_until = if bucket.remaining == 0 {
            bucket.reset_at
        } else {
            Duration::ZERO
        };
        let until = route_until.max(self.silent_until);
        match kind {
            _ if until <= now => FloodPermit::Now,
            CallKind::Droppable => FloodPermit::Drop,
            CallKind::Required => FloodPermit::At(until),
        }
    }

    /// Until when no route may be used.
    pub fn silent_until(&self) -> Duration {
        self.silent_until
    }

    /// A request of this route goes out.
    pub fn took(&mut self, route: &str) {
        if let Some(bucket) = self.routes.get_mut(&route.to_owned()) {
            bucket.remaining = bucket.remaining.saturating_sub(1);
        }
    }

    /// A response came.
    pub fn learn(&mut self, route: &str, status: u16, headers: &RateHeaders, now: Duration) {
        if let (Some(remaining), Some(reset)) = (headers.remaining, headers.reset_after) {
            let bucket = RouteBucket {
                remaining,
                reset_at: now + reset.min(MAX_RETRY_AFTER),
            };
            self.routes.insert(route.to_owned(), bucket);
        }
        if let (429, Some(wait)) = (status, headers.retry_after) {
            let wait = wait.min(MAX_RETRY_AFTER);
            if headers.is_global {
                self.silent_until = self.silent_until.max(now + wait);
            } else {
                let bucket = RouteBucket {
                    remaining: 0,
                    reset_at: now + wait,
                };
                self.routes.insert(route.to_owned(), bucket);
            }
        }
        if matches!(status, 401 | 403 | 429) && !headers.is_shared {
            if now >= self.window_began + INVALID_WINDOW {
                (self.window_began, self.invalid) = (now, 0);
            }
            self.invalid += 1;
            if self.invalid >= MAX_INVALID {
                self.silent_until = self.silent_until.max(self.window_began + INVALID_WINDOW);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CallKind::{Droppable, Required};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_bucket_without_room_waits_for_its_reset() {
        let mut limits = RestLimits::default();
        assert_eq!(limits.room("a", Required, SECOND), FloodPermit::Now);
        let headers = RateHeaders {
            remaining: Some(1),
            reset_after: Some(SECOND),
            ..RateHeaders::default()
        };
        limits.learn("a", 200, &headers, SECOND);
        assert_eq!(limits.room("a", Required, SECOND), FloodPermit::Now);
        limits.took("a");
        assert_eq!(limits.room("a", Required, SECOND), FloodPermit::At(2 * SECOND));
        assert_eq!(limits.room("a", Droppable, SECOND), FloodPermit::Drop);
        assert_eq!(limits.room("b", Required, SECOND), FloodPermit::Now);
        assert_eq!(limits.room("a", Required, 2 * SECOND), FloodPermit::Now);
    }

    #[test]
    fn a_wait_that_is_absurd_is_a_day() {
        let absurd = |is_global| RateHeaders {
            remaining: Some(0),
            reset_after: Some(Duration::MAX),
            retry_after: Some(Duration::MAX),
            is_global,
            ..RateHeaders::default()
        };
        let mut limits = RestLimits::default();
        limits.learn("a", 429, &absurd(false), SECOND);
        let until = FloodPermit::At(SECOND + MAX_RETRY_AFTER);
        assert_eq!(limits.room("a", Required, SECOND), until);
        limits.learn("a", 429, &absurd(true), SECOND);
        assert_eq!(limits.room("b", Required, SECOND), until);
    }

    #[test]
    fn the_global_limit_and_many_refusals_silence_every_route() {
        let mut limits = RestLimits::default();
        let global = RateHeaders {
            retry_after: Some(SECOND),
            is_global: true,
            ..RateHeaders::default()
        };
        limits.learn("a", 429, &global, SECOND);
        assert_eq!(limits.room("b", Required, SECOND), FloodPermit::At(2 * SECOND));
        assert_eq!(limits.silent_until(), 2 * SECOND);
        for _ in 0..MAX_INVALID {
            limits.learn("c", 403, &RateHeaders::default(), 700 * SECOND);
        }
        assert_eq!(
            limits.room("b", Required, 700 * SECOND),
            FloodPermit::At(1300 * SECOND)
        );
    }
}
