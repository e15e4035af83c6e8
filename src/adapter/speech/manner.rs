//! Which way an answer is shown while it grows.

use super::exchange::Place;
use super::settings::{SpeechSettings, StreamMode};
use crate::adapter::envelope::is_slack;

/// How text goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// By native drafts.
    Drafts(Drafts),
    /// By one message that is edited.
    Edits,
    /// By one message per finished segment.
    Segments,
    /// Not before the end.
    Held,
    /// Not at all: it was refused as a matter of permission.
    Silent,
}

/// What a draft is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drafts {
    /// A preview that a message replaces.
    Preview,
    /// The message itself, once it is sealed.
    Sealed,
}

/// What can be done in a place, and what is wanted there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Means {
    /// The way to begin with.
    pub(super) manner: Manner,
    /// The way when drafts are refused.
    pub(super) without_drafts: Manner,
    /// Whether messages can be edited.
    pub(super) edits: bool,
    /// Whether the answer is one text, whatever the tools do in between.
    pub(super) whole: bool,
}

impl Means {
    pub(super) fn of(settings: &SpeechSettings, place: &Place) -> Self {
        let descriptor = place.descriptor.as_deref();
        let can = |op: &str| descriptor.is_some_and(|descriptor| descriptor.supports_op(op));
        let edits = descriptor.is_some_and(|descriptor| descriptor.supports_edit) && can("edit");
        let slack = is_slack(&place.chat);
        let unfurls = settings.unfurl_links.is_some() || settings.unfurl_media.is_some();
        let drafts = if slack { Drafts::Sealed } else { Drafts::Preview };
        let drafts = (can("draft") && !(slack && unfurls)).then_some(Manner::Drafts(drafts));
        let edited = if edits { Manner::Edits } else { Manner::Segments };
        let (manner, without_drafts) = match settings.mode {
            _ if follows_up(place) => (Manner::Held, Manner::Held),
            StreamMode::Auto => (drafts.unwrap_or(edited), edited),
            StreamMode::Draft => (drafts.unwrap_or(Manner::Segments), Manner::Segments),
            StreamMode::Edit => (edited, edited),
            StreamMode::Segments => (Manner::Segments, Manner::Segments),
            StreamMode::Off => (Manner::Held, Manner::Held),
        };
        Self {
            manner,
            without_drafts,
            edits,
            whole: manner == Manner::Held,
        }
    }
}

/// Whether the answer begins with a follow-up.
pub(super) fn follows_up(place: &Place) -> bool {
    let can =
        |descriptor: &std::sync::Arc<crate::wire::CapabilityDescriptor>| descriptor.supports_op("follow_up");
    place.follow_up.is_some() && place.descriptor.as_ref().is_some_and(can)
}
