//! What the event loop does with each event, in the order of the walk: what came in ([`arrival`], [`group_threads`], [`edits`], [`command`], [`session_list`]), the life of a
//! turn ([`turn`], [`turn_end`]), what it changed ([`changes`]) and where its task makes a difference ([`job`], [`handed`]), the requests of a running one
//! ([`turn_requests`]), what goes out ([`ops`]) and whether it rings ([`quiet`]), the journal's answers ([`journal`]), and what an earlier process left
//! ([`recovery`]). Requests of handles come in beside all of that ([`requests`], [`repairs`]).
//!
//! Everything here is a method of the event loop. It asks the parts and passes their answers on; it keeps no state.

pub mod arrival;
pub mod changes;
pub mod command;
pub mod conversations;
pub mod edits;
pub mod group_threads;
pub mod handed;
pub mod job;
pub mod journal;
pub mod ops;
pub mod preferences;
pub mod projects;
pub mod quiet;
pub mod recovery;
pub mod repairs;
pub mod requests;
pub mod session_list;
pub mod turn;
pub mod turn_end;
pub mod turn_requests;
