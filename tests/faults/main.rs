//! The real program under faults and load: killed, disconnected, flooded, and out of disk.

#[path = "../support/mod.rs"]
mod support;

mod chaos;
mod crash;
mod cron;
mod deliveries;
mod disk;
mod instructions;
mod journal_speed;
mod pressure;
mod rig;
mod soak;
mod telegram;
