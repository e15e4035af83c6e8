//! Managed cron: fire tokens, the fire endpoint, the scheduler's client.

mod jobs;
mod arming;
mod fire_endpoint;
mod fire_token;
mod flood;
mod nas;
mod signing;
