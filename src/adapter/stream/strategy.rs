//! How an answer is shown while it grows.

use super::settings::{StreamMode, StreamSettings};
use super::types::StreamTarget;
use crate::adapter::action_builder::ActionBuilder;
use crate::adapter::slack::is_slack;

/// How text goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// By native drafts.
    Drafts(Drafts),
    /// By one message that is edited.
    Edits,
    /// By one message per finished segment.
    Segments,
    /// At the end only.
    Held,
    /// Not at all: an op was refused for lack of permission.
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

/// The strategies that a platform and the settings allow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strategies {
    pub(super) initial: Strategy,
    /// Used once drafts are refused.
    pub(super) without_drafts: Strategy,
    /// Whether messages can be edited.
    pub(super) edits: bool,
    /// Whether the answer is one text, whatever tools run in between.
    pub(super) whole: bool,
}

impl Strategies {
    pub(super) fn new(settings: &StreamSettings, target: &StreamTarget, builder: &ActionBuilder) -> Self {
        let descriptor = target.descriptor.as_deref();
        let edits = descriptor.is_some_and(|descriptor| descriptor.supports_edit) && target.supports("edit");
        let slack = is_slack(&target.chat.id);
        let unfurls = settings.unfurl_links.is_some() || settings.unfurl_media.is_some();
        let drafts = if slack { Drafts::Sealed } else { Drafts::Preview };
        let drafts = (target.supports("draft") && !(slack && unfurls)).then_some(Strategy::Drafts(drafts));
        // A link that comes late is previewed only in a new message, which replaces the one that grew.
        let grows = edits && (!builder.forces_previews() || target.supports("delete"));
        let edited = if grows {
            Strategy::Edits
        } else {
            Strategy::Segments
        };
        let (initial, without_drafts) = match settings.mode {
            _ if target.uses_follow_up() => (Strategy::Held, Strategy::Held),
            StreamMode::Auto => (drafts.unwrap_or(edited), edited),
            StreamMode::Draft => (drafts.unwrap_or(Strategy::Segments), Strategy::Segments),
            StreamMode::Edit => (edited, edited),
            StreamMode::Segments => (Strategy::Segments, Strategy::Segments),
            StreamMode::Off => (Strategy::Held, Strategy::Held),
        };
        Self {
            initial,
            without_drafts,
            edits,
            whole: initial == Strategy::Held,
        }
    }
}
