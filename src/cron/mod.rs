//! Jobs that run the agent at a time: the managed scheduler (Chronos), and the tokens that it fires jobs with.
//!
//! Decisions are pure: [`fire_token`] whether a fire is authentic, [`jwks`] which keys are good for that, [`chronos`] which
//! jobs the scheduler has to be told about. [`fire_verifier`] and [`arming`] do what they decide; [`fire`] is what passes
//! between the HTTP endpoint and whoever runs jobs.

pub mod arming;
pub mod chronos;
pub mod fire;
pub mod fire_token;
pub mod fire_verifier;
pub mod jwks;
