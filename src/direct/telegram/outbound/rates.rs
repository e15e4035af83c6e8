//! The rates that Telegram allows. Groups have negative ids.

use crate::direct::flood::{FloodRate, FloodRates};

/// A private chat: a call per second, three at once.
const PRIVATE: FloodRate = FloodRate::new(1_000, 3);
/// A group: a call every three seconds, five at once.
const GROUP: FloodRate = FloodRate::new(3_000, 5);

/// Telegram's rates; all chats together: 25 calls per second.
pub const FLOOD_RATES: FloodRates = FloodRates {
    of_chat: |chat| if chat < 0 { GROUP } else { PRIVATE },
    of_all: FloodRate::new(40, 25),
};
