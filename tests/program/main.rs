//! The program as it is installed and operated: its verbs, its hosting and its telemetry.

#[path = "../support/mod.rs"]
mod support;

mod agents_verb;
mod conformance;
mod doctor;
mod enroll;
mod first_answers;
mod hosting;
mod identity;
mod init_agents;
mod init_discord;
mod init_telegram;
mod init_verb;
mod journal_verb;
mod newcomer;
mod operate;
mod telegram_manual;
#[cfg(feature = "otlp")]
mod traces;
mod version;
