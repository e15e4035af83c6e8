//! Capability descriptors, per platform, across reconnects.
//!
//! While a new connection is being made, the old descriptors stay in force. The first new one becomes the primary; an
//! old one of another platform stays until it is replaced, or until all hellos are answered or have timed out.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::Generation;
use crate::wire::CapabilityDescriptor;

/// The descriptors in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Descriptors {
    primary: Option<Arc<CapabilityDescriptor>>,
    by_platform: BTreeMap<String, Declared>,
    answered: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Declared {
    on: Generation,
    descriptor: Arc<CapabilityDescriptor>,
}

impl Descriptors {
    /// The descriptors of one connection, in order; the first is the primary.
    pub fn new(on: Generation, declared: impl IntoIterator<Item = CapabilityDescriptor>) -> Self {
        let mut all = Self::default();
        for descriptor in declared {
            if all.primary.is_none() {
                all.begin(on, descriptor, usize::MAX);
            } else {
                all.add(on, descriptor, usize::MAX);
            }
        }
        all
    }

    /// The first descriptor of the last connection that had one.
    pub fn primary(&self) -> Option<&Arc<CapabilityDescriptor>> {
        self.primary.as_ref()
    }

    /// The descriptor of this platform, if there is one.
    pub fn declared(&self, platform: &str) -> Option<&Arc<CapabilityDescriptor>> {
        self.by_platform
            .get(platform)
            .map(|declared| &declared.descriptor)
    }

    /// The descriptor of this platform, else the primary.
    pub fn for_platform(&self, platform: &str) -> Option<&Arc<CapabilityDescriptor>> {
        self.declared(platform).or(self.primary())
    }

    /// All descriptors, by platform.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<CapabilityDescriptor>)> {
        self.by_platform
            .iter()
            .map(|(platform, declared)| (platform.as_str(), &declared.descriptor))
    }

    /// Adds the first descriptor of a connection; drops old ones if there are too many.
    pub(super) fn begin(
        &mut self,
        on: Generation,
        descriptor: CapabilityDescriptor,
        max: usize,
    ) -> Arc<CapabilityDescriptor> {
        self.answered = 1;
        if self.by_platform.len() >= max && !self.by_platform.contains_key(&descriptor.platform) {
            self.by_platform.clear();
        }
        let descriptor = Arc::new(descriptor);
        self.primary = Some(Arc::clone(&descriptor));
        self.declare(on, Arc::clone(&descriptor));
        descriptor
    }

    /// Adds a further one; `false` if there are too many.
    pub(super) fn add(&mut self, on: Generation, descriptor: CapabilityDescriptor, max: usize) -> bool {
        self.answered = self.answered.saturating_add(1);
        if self.by_platform.len() >= max && !self.by_platform.contains_key(&descriptor.platform) {
            return false;
        }
        self.declare(on, Arc::new(descriptor));
        true
    }

    /// Hellos that this connection has answered.
    pub(super) fn answered(&self) -> usize {
        self.answered
    }

    /// Drops descriptors of earlier connections; returns whether there were any.
    pub(super) fn drop_older(&mut self, than: Generation) -> bool {
        let before = self.by_platform.len();
        self.by_platform.retain(|_, declared| declared.on >= than);
        self.by_platform.len() != before
    }

    fn declare(&mut self, on: Generation, descriptor: Arc<CapabilityDescriptor>) {
        self.by_platform
            .insert(descriptor.platform.clone(), Declared { on, descriptor });
    }
}
