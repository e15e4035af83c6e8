//! The doctor's probes: what can be wrong between this machine and its chats, each with what to do about it.
//!
//! [`examine`] goes through [`PROBES`] in order and gives one or more [`Finding`]s for each. A probe only looks: it
//! changes no setting and no journal, and prints nothing. What would disturb a running relay (a second dial as the same
//! gateway) or change the connector's state (a declared policy) is left out unless it was asked for. Every step on the
//! network has a deadline, all of them together [`BUDGET`], and no secret is in a finding.

mod agents;
mod case;
mod explain;
mod here;
mod probe;
mod running;
mod table;
mod talk;
mod unit;
mod way;

pub use case::{BUDGET, Case, Consent};
pub use probe::{Finding, Outcome, Probe, Verdict, examine};
pub use table::PROBES;
