//! What the platforms can do, as real connectors declare it.

use serde_json::Value;

use crate::wire::CapabilityDescriptor;

/// A ready-made descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlatformPreset {
    /// 2000 characters, edits, threads, reactions, prompts and media.
    Discord,
    /// 4096 UTF-16 units, edits, draft previews, topics, and reactions of its own choosing.
    Telegram,
    /// Long messages, edits, threads; streaming is by drafts that become the message.
    Slack,
    /// 4096 characters that cannot be edited, no typing and no threads, and at most ten answers to a question.
    WhatsApp,
    /// Text and nothing else.
    Plain,
    /// A connector from before ops were listed.
    Legacy,
}

impl PlatformPreset {
    /// Every preset.
    pub const ALL: [Self; 6] = [
        Self::Discord,
        Self::Telegram,
        Self::Slack,
        Self::WhatsApp,
        Self::Plain,
        Self::Legacy,
    ];

    /// The preset that a platform of this name gets: its own, else [`Self::Plain`].
    pub fn named(platform: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|preset| preset.name() == platform)
            .unwrap_or(Self::Plain)
    }

    /// The platform that this is the preset of.
    pub fn name(self) -> &'static str {
        match self {
            Self::Discord => "discord",
            Self::Telegram => "telegram",
            Self::Slack => "slack",
            Self::WhatsApp => "whatsapp",
            Self::Plain => "plain",
            Self::Legacy => "legacy",
        }
    }

    /// The descriptor, under the given platform name.
    pub fn descriptor(self, platform: &str) -> CapabilityDescriptor {
        let traits = self.traits();
        CapabilityDescriptor {
            label: traits.label.to_owned(),
            max_message_length: traits.length,
            supports_draft_streaming: traits.ops.contains(&"draft"),
            supports_edit: traits.ops.contains(&"edit") || self == Self::Legacy,
            supports_threads: traits.ops.contains(&"thread_create"),
            markdown_dialect: Some(traits.dialect.to_owned()),
            len_unit: traits.unit.to_owned(),
            emoji: Some(traits.emoji.to_owned()),
            supports_context: !matches!(self, Self::Plain | Self::Legacy),
            supports_inchannel_continuable: matches!(self, Self::Discord | Self::Slack),
            supports_block_formatting: self == Self::Slack,
            pii_safe: self == Self::WhatsApp,
            supported_ops: traits.ops.iter().map(|op| (*op).to_owned()).collect(),
            ..CapabilityDescriptor::placeholder(platform)
        }
    }

    /// Most answers that one question can offer; beyond that the platform has nothing to show them with.
    pub(super) fn max_options(self) -> usize {
        match self {
            // Five rows of five buttons.
            Self::Discord | Self::Slack => 25,
            Self::Telegram => 100,
            // Three are buttons, up to ten a list.
            Self::WhatsApp => 10,
            Self::Plain | Self::Legacy => 0,
        }
    }

    /// Longest text with a file, in UTF-16 units, where it is shorter than a message of its own.
    pub(super) fn longest_caption(self) -> Option<u64> {
        matches!(self, Self::Telegram | Self::WhatsApp).then_some(1024)
    }

    /// Whether messages can be reacted to with this.
    pub(super) fn takes_reaction(self, emoji: &str) -> bool {
        // Telegram has a list of its own, on which these are not.
        self != Self::Telegram || !matches!(emoji, "\u{2705}" | "\u{274c}")
    }

    /// Whether the platform reports thread names, so that a name is not overwritten.
    pub(super) fn reports_thread_names(self) -> bool {
        self != Self::Telegram
    }

    /// The descriptor as it goes on the wire.
    pub fn wire(self, platform: &str) -> Value {
        let mut wire = serde_json::to_value(self.descriptor(platform)).expect("a descriptor has text keys");
        if self == Self::Legacy
            && let Some(fields) = wire.as_object_mut()
        {
            for newer in [
                "supported_ops",
                "supports_context",
                "supports_inchannel_continuable",
                "supports_block_formatting",
            ] {
                fields.remove(newer);
            }
        }
        wire
    }

    fn traits(self) -> Traits {
        match self {
            Self::Discord => Traits {
                label: "Discord",
                length: 2000,
                unit: "chars",
                dialect: "discord",
                emoji: "\u{1f3ae}",
                ops: &[
                    "send",
                    "edit",
                    "typing",
                    "follow_up",
                    "delete",
                    "react",
                    "prompt",
                    "send_media",
                    "thread_create",
                    "thread_rename",
                    "get_chat_info",
                ],
            },
            Self::Telegram => Traits {
                label: "Telegram",
                length: 4096,
                unit: "utf16",
                dialect: "markdown_v2",
                emoji: "\u{2708}\u{fe0f}",
                ops: &[
                    "send",
                    "edit",
                    "typing",
                    "delete",
                    "react",
                    "prompt",
                    "send_media",
                    "draft",
                    "thread_create",
                    "thread_rename",
                    "get_chat_info",
                ],
            },
            Self::Slack => Traits {
                label: "Slack",
                length: 39_000,
                unit: "chars",
                dialect: "slack_mrkdwn",
                emoji: "\u{1f4bc}",
                ops: &[
                    "send",
                    "edit",
                    "typing",
                    "delete",
                    "react",
                    "prompt",
                    "send_media",
                    "draft",
                    "task_card",
                    "task_card_stop",
                    "thread_create",
                    "get_chat_info",
                ],
            },
            Self::WhatsApp => Traits {
                label: "WhatsApp",
                length: 4096,
                unit: "chars",
                dialect: "whatsapp",
                emoji: "\u{1f4f1}",
                ops: &["send", "react", "prompt", "send_media", "get_chat_info"],
            },
            Self::Plain => Traits {
                label: "Plain",
                length: 4096,
                unit: "chars",
                dialect: "plain",
                emoji: "\u{1f4ac}",
                ops: &["send"],
            },
            Self::Legacy => Traits {
                label: "Legacy",
                length: 4096,
                unit: "chars",
                dialect: "plain",
                emoji: "\u{1f50c}",
                ops: &[],
            },
        }
    }
}

struct Traits {
    label: &'static str,
    length: u64,
    unit: &'static str,
    dialect: &'static str,
    emoji: &'static str,
    ops: &'static [&'static str],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_read_back_as_it_was_meant() {
        for preset in PlatformPreset::ALL {
            let wire = preset.wire("somewhere");
            let read = CapabilityDescriptor::from_value(&wire).unwrap();
            assert_eq!(read.platform, "somewhere");
            assert_eq!(read.supported_ops, preset.descriptor("somewhere").supported_ops);
            assert!(read.supports_op("send"));
            assert_eq!(read.supports_edit, read.supports_op("edit"), "{preset:?}");
            assert_eq!(read.supports_draft_streaming, read.supports_op("draft"));
        }
        assert!(PlatformPreset::Legacy.wire("x").get("supported_ops").is_none());
        assert_eq!(PlatformPreset::named("matrix"), PlatformPreset::Plain);
        assert_eq!(PlatformPreset::named("slack"), PlatformPreset::Slack);
    }

    #[test]
    fn presets_can_do_what_their_platforms_can() {
        let (no, yes) = (false, true);
        // Preset, length, unit, edits, drafts, threads, renames, typing, reactions, questions, files, deletes, context.
        for (preset, length, unit, can) in [
            (
                PlatformPreset::Discord,
                2000,
                "chars",
                [yes, no, yes, yes, yes, yes, yes, yes, yes, yes],
            ),
            (
                PlatformPreset::Telegram,
                4096,
                "utf16",
                [yes, yes, yes, yes, yes, yes, yes, yes, yes, yes],
            ),
            (
                PlatformPreset::Slack,
                39_000,
                "chars",
                [yes, yes, yes, no, yes, yes, yes, yes, yes, yes],
            ),
            (
                PlatformPreset::WhatsApp,
                4096,
                "chars",
                [no, no, no, no, no, yes, yes, yes, no, yes],
            ),
            (
                PlatformPreset::Plain,
                4096,
                "chars",
                [no, no, no, no, no, no, no, no, no, no],
            ),
            (
                PlatformPreset::Legacy,
                4096,
                "chars",
                [yes, no, no, no, yes, no, no, no, no, no],
            ),
        ] {
            let descriptor = CapabilityDescriptor::from_value(&preset.wire(preset.name())).unwrap();
            let op = |name| descriptor.supports_op(name);
            let has = [
                descriptor.supports_edit,
                descriptor.supports_draft_streaming,
                descriptor.supports_threads,
                op("thread_rename"),
                op("typing"),
                op("react"),
                op("prompt"),
                op("send_media"),
                op("delete"),
                descriptor.supports_context,
            ];
            assert_eq!(has, can, "{preset:?}");
            assert_eq!(
                (descriptor.max_message_length, &*descriptor.len_unit),
                (length, unit),
                "{preset:?}"
            );
            assert_eq!(
                op("follow_up"),
                matches!(preset, PlatformPreset::Discord | PlatformPreset::Legacy),
                "{preset:?}"
            );
            assert_eq!(op("prompt"), preset.max_options() > 0, "{preset:?}");
            assert_eq!(op("task_card"), preset == PlatformPreset::Slack, "{preset:?}");
        }
    }
}
