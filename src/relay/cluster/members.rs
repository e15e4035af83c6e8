//! What a member knows of the others, and what it says of itself: who is there, whose the active role is, and what `status` shows.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::driver::{ANNOUNCE_EVERY, DriverEvent, LeaseText, MemberDriver, cannot_take_over, member_subject};
use super::{AloneStatus, HolderStatus, MemberPhase, MemberStatus};
use crate::cluster::{Hold, LeaseTiming, MemberEvent, MemberRole};

/// When a silent member is gone.
const GONE_AFTER: Duration = Duration::from_secs(4);
/// Members that are remembered.
const MAX_MEMBERS: usize = 64;

impl MemberDriver {
    /// Why `handover --take` is not needed or does not help.
    pub(super) fn take_refusal(&self) -> Option<String> {
        let held = self.hold() == Hold::Other;
        match (self.member.role(), &self.problem) {
            (MemberRole::Standby, Some(problem)) => Some(cannot_take_over(problem)),
            (MemberRole::Standby, None) if held && self.follower.is_some() => None,
            (MemberRole::Standby, None) => Some(
                "nobody holds the active role without a limit; a standby takes over by itself here"
                    .to_owned(),
            ),
            _ => Some("this relay is not a standby".to_owned()),
        }
    }

    pub(super) fn hold(&self) -> Hold {
        match self.holder {
            None => Hold::Nobody,
            Some(_) if self.holder == self.own => Hold::Own,
            Some(_) => Hold::Other,
        }
    }

    /// The stream says whose the active role is without a limit.
    pub(super) fn held_by(&mut self, holder: Option<u64>) {
        if self.holder != holder {
            self.seen_holder = (None, Instant::now());
        }
        self.holder = holder;
        self.member_event(MemberEvent::Held(self.hold()));
    }

    pub(super) fn holder_seen(&mut self, name: Option<String>) {
        let LeaseTiming { ttl, .. } = LeaseTiming::default();
        if name.is_some() {
            self.seen_holder = (name, Instant::now());
            self.is_silence_reported = false;
        } else if self.seen_holder.1.elapsed() > ttl
            && !std::mem::replace(&mut self.is_silence_reported, true)
        {
            tracing::warn!(
                holder = self.seen_holder.0,
                "the active relay does not renew its lease and may be going on alone, so that this one does not take over; \
                 if it is gone for good, run `hermes-relay handover --take` here"
            );
        }
    }

    fn role(&self) -> &'static str {
        match self.member.role() {
            MemberRole::Standby | MemberRole::Returning | MemberRole::Stopped => "standby",
            MemberRole::TakingOver => "taking over",
            MemberRole::Active | MemberRole::Alone => "active",
        }
    }

    fn own_status(&self) -> MemberStatus {
        MemberStatus {
            name: self.settings.name.clone(),
            id: self.id.clone(),
            role: self.role().to_owned(),
            position: self
                .position
                .filter(|_| self.problem.is_none() && self.alone.is_none()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    pub(super) fn announce(&mut self) {
        self.others.retain(|_, (_, seen)| seen.elapsed() < GONE_AFTER);
        let text = serde_json::to_vec(&self.own_status()).unwrap_or_default();
        let (bus, subject) = (self.bus.clone(), member_subject(&self.settings));
        if bus.is_connected() {
            tokio::spawn(async move {
                let _ = timeout(ANNOUNCE_EVERY, bus.publish(subject, text)).await;
            });
        }
        if self.member.role() == MemberRole::Standby && self.hold() == Hold::Other {
            let (store, events) = (self.store.clone(), self.events.clone());
            tokio::spawn(async move {
                // Without the server nobody knows.
                if let Ok(lease) = store.lease().await {
                    let text = lease.and_then(|(_, text)| serde_json::from_slice::<LeaseText>(&text).ok());
                    let _ = events.try_send(DriverEvent::Lease(text.map(|text| text.name)));
                }
            });
        }
    }

    pub(super) fn heard(&mut self, text: &[u8]) {
        let Ok(other) = serde_json::from_slice::<MemberStatus>(text) else {
            return;
        };
        if other.id != self.id && (self.others.len() < MAX_MEMBERS || self.others.contains_key(&other.id)) {
            self.others.insert(other.id.clone(), (other, Instant::now()));
        }
    }

    pub(super) fn report(&self) {
        let mut members = vec![self.own_status()];
        members.extend(self.others.values().map(|(member, _)| member.clone()));
        let (role, problem) = (self.role(), self.problem.clone());
        let alone = self.alone.as_ref().map(|alone| AloneStatus {
            since_record: self.position.unwrap_or(0),
            since_ms: alone.since_ms,
            commits: alone.commits,
        });
        let silent = self.seen_holder.1.elapsed();
        let is_held = self.member.role() == MemberRole::Standby && self.hold() == Hold::Other;
        let holder = is_held.then(|| HolderStatus {
            name: self.seen_holder.0.clone(),
            silent_secs: if silent > LeaseTiming::default().ttl {
                silent.as_secs()
            } else {
                0
            },
        });
        self.status.send_if_modified(|status| {
            let phase = match (&status.phase, self.member.role()) {
                (MemberPhase::Following, MemberRole::Active | MemberRole::Alone)
                    if self.appends.is_none() =>
                {
                    MemberPhase::Active
                }
                (phase, _) => phase.clone(),
            };
            let is_changed = (status.role, &status.phase, &status.members, &status.problem)
                != (role, &phase, &members, &problem)
                || (status.position, status.last) != (self.position, self.last)
                || (&status.alone, &status.holder) != (&alone, &holder);
            (status.alone, status.holder) = (alone, holder);
            status.role = role;
            status.phase = phase;
            status.members = members;
            status.problem = problem;
            (status.position, status.last, status.commits) = (self.position, self.last, self.commits);
            is_changed
        });
    }
}
