//! Stands for the membership in a cluster in a program without NATS: there is none.

use std::convert::Infallible;
use std::io;
use std::process::ExitCode;

use super::reload::Reloaded;
use crate::cli::ProcessEnv;
use crate::cli::log::LogHandle;
use crate::config::{ConfigError, LoadedConfig, Settings};
use crate::net::send_lease::SendLease;
use crate::relay::RelayBuilder;
use crate::serve::ClusterReport;

pub(super) enum NoMembership {}

impl NoMembership {
    pub(super) fn start(settings: &Settings) -> io::Result<Option<Self>> {
        if settings.cluster.is_none() {
            return Ok(None);
        }
        Err(io::Error::other(
            "this program was built without `nats`; build it with `cargo build --profile dist --features nats`",
        ))
    }

    pub(super) fn apply(&self, _: RelayBuilder) -> RelayBuilder {
        match *self {}
    }

    pub(super) fn lease(&self) -> SendLease {
        match *self {}
    }

    pub(super) fn report(&self) -> ClusterReport {
        match *self {}
    }

    pub(super) fn successor(&self) -> Result<String, String> {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "the other one waits")]
    pub(super) async fn stand_by(
        &self,
        _: &Settings,
        _: &ProcessEnv<'_>,
        _: &LogHandle,
        _: impl Fn() -> Result<Reloaded, ConfigError>,
    ) -> Result<Option<LoadedConfig>, ExitCode> {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "the other one waits")]
    pub(super) async fn release(&self) {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "the other one waits")]
    pub(super) async fn step_back(&self) -> Infallible {
        match *self {}
    }
}
