//! Ops become calls of the Bot API: which calls an op takes, when a call may go out, and what an answer means.

mod cache;
mod fault;
mod menu;
mod op_calls;
mod plan;
mod rates;
mod reaction;

pub use cache::OutboundCache;
pub use fault::ApiFault;
pub use menu::command_menu;
pub use op_calls::{Observation, OpCalls, OpStep};
pub use plan::OpRefusal;
pub use rates::FLOOD_RATES;
pub use reaction::{ALLOWED_REACTIONS, allowed_reaction};
