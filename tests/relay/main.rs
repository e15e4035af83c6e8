//! The running relay: its link, sessions, prompts, attachments, sleep and journal, in memory and over real sockets.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod adapter;
mod agent_choice;
mod beside_connector;
mod chat;
mod connector_http;
mod cron;
mod deliveries;
mod dev_bot_api;
mod dev_connector;
mod dev_discord;
mod dial;
mod discord;
mod embed;
mod in_chat;
mod interactions;
mod journal;
mod link;
mod media;
mod prompts;
mod sessions;
mod slack;
mod sleep;
mod telegram;
mod walk;
