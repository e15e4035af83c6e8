//! Until when this process may write to the connector: with several relays for one gateway, only the active one may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A time by the machine's own clock, which goes on while the machine or the process is suspended. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SendLease(Arc<AtomicU64>);

impl SendLease {
    /// Writing is allowed until then.
    #[cfg(any(feature = "nats", test))]
    pub fn extend(&self, until: Duration) {
        let millis = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.0.store(millis, Ordering::SeqCst);
    }

    /// Writing is not allowed any more.
    #[cfg(any(feature = "nats", test))]
    pub fn end(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// Whether writing is allowed now.
    pub fn holds(&self) -> bool {
        now().as_millis() < u128::from(self.0.load(Ordering::SeqCst))
    }
}

/// The machine's time since it was started, suspensions included.
pub fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_until_its_time() {
        let lease = SendLease::default();
        assert!(!lease.holds());
        lease.extend(now() + Duration::from_secs(60));
        assert!(lease.clone().holds());
        lease.extend(now().saturating_sub(Duration::from_millis(1)));
        assert!(!lease.holds());
        lease.extend(now() + Duration::from_secs(60));
        lease.end();
        assert!(!lease.holds());
    }
}
