//! Who may drive an agent: the rules, and the one gate that everything from a chat passes. Pure: no I/O, no clock.
//!
//! Rules come from the settings and from `hermes-relay access`, which stores its own in the journal. [`Gate::decide`] looks at
//! both; it never looks at a message's text.
//!
//! | a person | may |
//! |---|---|
//! | is denied, by the settings or by a stored rule | nothing |
//! | has a stored rule, else one in the settings | what their role allows, where the rule says |
//! | has a role of the Discord server that has a rule | what that rule's role allows, where the rule says |
//! | writes in a chat that has a rule | what the chat's role allows |
//! | has no rule | what a user may in the modes `upstream` and `open`; nothing in `list` and `pair` |

#[cfg(test)]
mod ann;
mod author;
mod gate;
mod identity;
mod jobs;
mod limits;
mod pairing;
mod requests;
mod settings;

#[cfg(test)]
pub(crate) use ann::Ann;
pub use author::Author;
pub use gate::{EventKind, Gate, Reason, StoredRow, Verdict};
pub use identity::PersonId;
pub use jobs::{JobAction, JobMaker, JobOwner};
pub use limits::{Exceeded, Limits, MessageTime};
pub(crate) use pairing::has_code_form;
pub use pairing::{
    CODE_LIFETIME_MS, KeptMessage, MAX_PENDING, PairingRequest, PairingStep, Pairings, PendingPairing,
    approve_command,
};
pub use requests::{AccessChange, AccessError, AccessRequest, Handled};
pub use settings::{
    ANY, AccessSettings, ByRole, ChatRule, Denial, LimitSettings, Mode, PersonRule, Role, Strangers,
};

#[cfg(test)]
mod tests;
