//! The place of `traces` in a program that is built without them: nothing is noted, nothing kept, and nothing left of
//! it once it is compiled.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use super::metrics::{Counts, TRACE_OUTCOMES};
use super::turn_task::TurnReport;
use crate::config::Settings;
use crate::link::SendResult;
use crate::net::proxy::ProxyRules;
use crate::net::tls::Tls;
use crate::store::TurnState;

/// When a message was seen first; nobody wants to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen;

/// Notes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traces(());

#[expect(
    clippy::unused_self,
    clippy::needless_pass_by_ref_mut,
    clippy::trivially_copy_pass_by_ref,
    reason = "the same signatures as where traces are made"
)]
impl Traces {
    pub(super) fn of(_: &Settings, _: Option<&Tls>, _: &ProxyRules) -> Self {
        Self(())
    }

    pub(super) fn start(&mut self) {}

    pub(super) fn arrived(&self) -> Seen {
        Seen
    }

    pub(super) fn accepted(&mut self, _: Seen, _: i64) {}

    pub(super) fn loaded(&mut self, _: i64, _: u32, _: i64) {}

    pub(super) fn steered(&mut self, _: impl FnOnce() -> Option<i64>) {}

    pub(super) fn began(&mut self, _: i64, _: &str, _: &Arc<str>) {}

    pub(super) fn reported(&mut self, _: i64, _: &TurnReport) {}

    pub(super) fn ended(&mut self, _: i64, _: TurnState, _: usize) {}

    pub(super) fn declined(&mut self, _: i64) {}

    pub(super) fn close(&mut self, _: i64) {}

    pub(super) fn forget(&mut self, _: i64) {}

    pub(super) fn owed(&mut self, _: i64, _: i64) {}

    pub(super) fn op_out(&mut self, _: i64) {}

    pub(super) fn op_settled(&mut self, _: i64, _: &str, _: u32, _: &SendResult) {}

    pub(super) fn op_over(&mut self, _: i64) {}

    pub(super) fn counts(&self) -> Counts {
        Counts::new(&TRACE_OUTCOMES)
    }

    pub(super) fn end(&mut self, _: Duration) -> Ready<()> {
        ready(())
    }
}
