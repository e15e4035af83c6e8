//! Waiting for a condition with a deadline and a message.

use std::fmt::Debug;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Far more than anything takes that should happen soon, even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// How often a condition is checked.
const INTERVAL: Duration = Duration::from_millis(2);

/// What a check returns: a bool, an option, or a result whose error shows the state so far.
pub(crate) trait Check {
    type Found;

    /// What was found, or the state to show when time is up.
    fn outcome(self) -> Result<Self::Found, String>;
}

impl Check for bool {
    type Found = ();

    fn outcome(self) -> Result<(), String> {
        if self { Ok(()) } else { Err(String::new()) }
    }
}

impl<T> Check for Option<T> {
    type Found = T;

    fn outcome(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, S: Debug> Check for Result<T, S> {
    type Found = T;

    fn outcome(self) -> Result<T, String> {
        self.map_err(|state| format!("; last seen: {state:#?}"))
    }
}

/// Checks until the condition holds, and returns what was found. Panics with `what` after [`SOON`].
pub(crate) async fn eventually<C: Check>(what: &str, check: impl AsyncFnMut() -> C) -> C::Found {
    eventually_within(SOON, what, check).await
}

/// The same with a time limit of the test's own.
pub(crate) async fn eventually_within<C: Check>(
    limit: Duration,
    what: &str,
    mut check: impl AsyncFnMut() -> C,
) -> C::Found {
    let deadline = Instant::now() + limit;
    loop {
        match check().await.outcome() {
            Ok(found) => return found,
            Err(state) => assert!(Instant::now() < deadline, "not within {limit:?}: {what}{state}"),
        }
        sleep(INTERVAL).await;
    }
}

/// The same for tests without a runtime.
#[expect(
    clippy::disallowed_methods,
    reason = "there is no runtime whose timer could wait"
)]
pub(crate) fn eventually_blocking<C: Check>(what: &str, mut check: impl FnMut() -> C) -> C::Found {
    let deadline = std::time::Instant::now() + SOON;
    loop {
        match check().outcome() {
            Ok(found) => return found,
            Err(state) => assert!(
                std::time::Instant::now() < deadline,
                "not within {SOON:?}: {what}{state}"
            ),
        }
        std::thread::sleep(10 * INTERVAL);
    }
}
