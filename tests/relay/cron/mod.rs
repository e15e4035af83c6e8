//! Managed cron: fire tokens, the fire endpoint, the scheduler's client.

mod fire_token;
mod signing;
