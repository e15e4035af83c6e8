//! Ops become calls of the Bot API: which calls an op takes, when a call may go out, and what an answer means.

mod cache;
mod fault;
mod flood;
mod menu;
mod op_calls;
mod plan;
mod reaction;

pub use cache::OutboundCache;
pub use fault::ApiFault;
pub use flood::{FloodBudget, FloodPermit};
pub use menu::command_menu;
pub use op_calls::{Observation, OpCalls, OpStep};
pub use plan::OpRefusal;
pub use reaction::{ALLOWED_REACTIONS, allowed_reaction};
