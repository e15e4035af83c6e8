//! The suite: what a backend must be brought to do, and the cases it then passes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hermes_relay::agent::Agent;

/// Something that a backend's peer is made to do by the text of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Says [`ANSWER`], in several pieces where it can.
    Say,
    /// Ends well without saying anything.
    Nothing,
    /// Says [`MUCH`] characters or more.
    Much,
    /// Says [`CUT`] in pieces that cut characters in the middle.
    Cut,
    /// Says nothing and does not end.
    Hang,
    /// Says something and does not end.
    SpeakAndHang,
    /// Says something, does not end, and does not listen to requests to stop.
    Deaf,
    /// Asks for an approval, then says which choice was made: a word with `once` or `den` in it.
    Ask,
    /// Says `half` and is gone.
    Crash,
    /// Fails and says so, without crashing.
    Fail,
    /// Floods its log, then says `survived`.
    Flood,
    /// Leaves a process behind that holds its pipes, and says `left`.
    Orphan,
    /// Writes on and on without ever ending a line or an event; whether and how it ends is its own affair.
    Endless,
    /// Writes bytes that are no text, and says `survived`.
    Garbled,
    /// Says `left`, closes its output and lives on.
    Close,
    /// Starts a process that leaves its group and holds its pipes, and says `left`.
    Daemon,
    /// Remembers the word [`WORD`].
    Remember,
    /// Says the word that it remembers.
    Recall,
}

/// What is said.
pub(crate) const ANSWER: &str = "one two three";
/// How much is much.
pub(crate) const MUCH: usize = 300_000;
/// Text that is cut.
pub(crate) const CUT: &str = "grüße 日本 🎉 end";
/// What is remembered.
pub(crate) const WORD: &str = "plum";

/// A backend under test, and the way to its peer.
pub(crate) trait Fixture: Send + Sync {
    /// A new agent, as after a restart of the program; whatever outlives a restart is the same.
    fn agent(&self) -> Arc<dyn Agent>;

    /// The message that brings the peer to do this; nothing when it cannot.
    fn text(&self, act: Act) -> Option<String>;

    /// What the chat reads when nothing was said.
    fn silence(&self) -> &'static str {
        ""
    }

    /// Breaks or mends the backend, so that its health changes; `false` when that cannot be done.
    fn break_down(&self, _broken: bool) -> bool {
        false
    }

    /// How long a stop may take, at most.
    fn stop_time(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// How a case went, when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    NotApplicable,
}

/// What a case returns.
pub(crate) type CaseFuture<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// One case.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: for<'a> fn(&'a dyn Fixture) -> CaseFuture<'a>,
}

/// Declares the cases of a module: async functions of a fixture, and the list of them.
macro_rules! cases {
    ($list:ident: $($name:ident),* $(,)?) => {
        pub(crate) const $list: &[crate::conformance::suite::Case] = &[$(crate::conformance::suite::Case {
            name: stringify!($name),
            run: |fixture| Box::pin($name(fixture)),
        }),*];
    };
}
pub(crate) use cases;

/// The text for an act, or the case does not apply.
macro_rules! text {
    ($fixture:ident, $act:ident) => {
        match $fixture.text(crate::conformance::suite::Act::$act) {
            Some(text) => text,
            None => return crate::conformance::suite::Outcome::NotApplicable,
        }
    };
}
pub(crate) use text;

/// Every case.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    let lists = [
        crate::conformance::cases::CASES,
        crate::conformance::robust::CASES,
        crate::conformance::stopping::CASES,
    ];
    lists.into_iter().flatten()
}

/// Runs every case. Those that do not apply are printed, and must be the ones that are named.
pub(crate) async fn conform(name: &str, fixture: &dyn Fixture, not_applicable: &[&str]) {
    let mut skipped = Vec::new();
    let mut passed = 0;
    for case in all() {
        println!("{name}: {}", case.name);
        match (case.run)(fixture).await {
            Outcome::Passed => passed += 1,
            Outcome::NotApplicable => skipped.push(case.name),
        }
    }
    println!("{name}: {passed} cases passed; not applicable: {skipped:?}");
    assert_eq!(skipped, not_applicable, "cases that do not apply to {name}");
}
