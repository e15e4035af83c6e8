//! What several test binaries share.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod alone;
pub(crate) mod dev;
pub(crate) mod discord;
pub(crate) mod executable;
pub(crate) mod http_stub;
pub(crate) mod load;
pub(crate) mod memory_relay;
pub(crate) mod port;
pub(crate) mod quick_start;
pub(crate) mod raw_http;
pub(crate) mod relay_process;
pub(crate) mod scripted_agent;
pub(crate) mod skip;
pub(crate) mod small_disk;
pub(crate) mod terminal;
pub(crate) mod tls_front;
pub(crate) mod torn_disk;
pub(crate) mod wait;
