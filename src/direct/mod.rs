//! Platforms that the relay serves itself, without a connector. Pure: what arrives is turned into the contract's events,
//! and ops into the platform's calls; who performs the calls is elsewhere.

pub mod telegram;
