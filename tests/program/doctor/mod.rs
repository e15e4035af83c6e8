//! `hermes-relay doctor` against set-ups that are broken in one way each: the real binary must name the cause and what
//! to do, blame nothing else, and skip what hangs on it. And one that is not broken.

mod cron;
mod deliveries;
mod discord;
mod handshake;
mod local;
mod network;
mod rig;
mod telegram;
