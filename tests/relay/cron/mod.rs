//! Managed cron: fire tokens, the fire endpoint, the scheduler's client.

mod arming;
mod end_to_end;
mod fire_endpoint;
mod fire_token;
mod flood;
mod jobs;
mod managed_scheduler;
mod signing;
