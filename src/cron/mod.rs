//! Jobs that run the agent at a time: what they are and when they run, the managed scheduler (Chronos), and the tokens that it
//! fires jobs with.
//!
//! Decisions are pure: [`schedule`] when a job runs, [`job`] what it is, [`claim`] whether a fire may run it now, [`fire_token`]
//! whether a fire is authentic, [`jwks`] which keys are good for that, [`chronos`] which jobs the scheduler has to be told
//! about, [`target`] where an answer goes, [`chat`] what `/cron` means, [`jobs_file`] what Hermes' own file of jobs holds.
//! [`fire_verifier`] and [`arming`] do what they decide; [`fire`] is what passes between the HTTP endpoint and whoever runs jobs. The
//! journal stores jobs, runs and claims.

pub mod arming;
pub mod chat;
pub mod chronos;
pub mod claim;
pub mod fire;
pub mod fire_token;
pub mod fire_verifier;
pub mod job;
pub mod jobs_file;
pub mod jwks;
pub mod output;
pub mod owner;
pub mod schedule;
pub mod target;
